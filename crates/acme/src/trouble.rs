//! Reasons for failed attempts, and advice for the operator.

use std::error::Error as _;
use std::fmt::Write;

use instant_acme::{Error, Problem};

use crate::client::NotAcme;
use crate::wanted::Method;

/// The kind of a failure, which decides the pause before the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The authority does not answer, or its answer is not ACME.
    Unreachable,
    /// The authority limits the rate of requests.
    Limited,
    /// The authority could not check a name.
    Validation,
    /// The authority refuses for another reason.
    Refused,
    /// The fault is on this machine: its disk, its front.
    Here,
}

impl FailureKind {
    /// True if the failure is of the node alone: another one may reach the authority.
    pub(crate) fn is_of_node(self) -> bool {
        match self {
            Self::Unreachable | Self::Here => true,
            Self::Limited | Self::Validation | Self::Refused => false,
        }
    }
}

/// The failure of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: FailureKind,
    /// The failure and the advice, without a full stop.
    pub(crate) says: String,
    /// The time to wait that the authority demands, in seconds.
    pub(crate) retry_after: Option<u64>,
}

/// The prefix of problem types (RFC 8555 §6.7).
const NAMESPACE: &str = "urn:ietf:params:acme:error:";

/// A problem's type, without the prefix.
pub(crate) fn type_of(problem: &Problem) -> &str {
    problem.r#type.as_deref().map_or("", |name| name.strip_prefix(NAMESPACE).unwrap_or(name))
}

/// True if an error is a problem of this type.
pub(crate) fn is(error: &Error, name: &str) -> bool {
    matches!(error, Error::Api(problem) if type_of(problem) == name)
}

impl Trouble {
    /// A failure on this machine.
    pub(crate) fn here(what: &str, error: impl std::fmt::Display) -> Self {
        Self { kind: FailureKind::Here, says: format!("{what}: {error}"), retry_after: None }
    }

    /// A failed check of names; `said` has the authority's error for each name.
    pub(crate) fn validation(said: &[String], retry_after: Option<u64>) -> Self {
        Self { kind: FailureKind::Validation, says: plain(&said.join("; ")), retry_after }
    }

    /// The failure of a request to the authority.
    pub(crate) fn with_authority(directory: &str, error: &Error) -> Self {
        let says = match error {
            Error::Api(problem) => return Self::of(problem),
            Error::Timeout(_) => format!("{directory} has not come to a decision in time"),
            // The error may quote the response.
            Error::Json(_) | Error::Str(_) | Error::Unsupported(_) => {
                format!("{directory} answers with something else than ACME: {error}")
            }
            Error::Other(other) if other.is::<NotAcme>() => {
                format!("{directory} answers with something else than ACME: {other}")
            }
            _ => {
                let mut says = format!("{directory} is not reached: {error}");
                let mut source = error.source();
                while let Some(cause) = source {
                    let _ = write!(says, ": {cause}");
                    source = cause.source();
                }
                says += if says.contains("UnknownIssuer") {
                    "; acme_roots names the roots of a private authority"
                } else {
                    "; can this machine make connections to it (DNS, firewall)?"
                };
                says
            }
        };
        Self { kind: FailureKind::Unreachable, says: plain(&says), retry_after: None }
    }

    /// The failure for a problem with the proof of a name.
    pub(crate) fn of_check(problem: &Problem, method: Method) -> Self {
        let mut trouble = Self::of(problem);
        if method == Method::Dns01 && trouble.kind == FailureKind::Validation {
            trouble.says = with_help(
                problem,
                "the authority looks for a TXT record, also with the name servers farthest away: the program of acme_dns must keep the records of earlier calls, and acme_dns_wait may be too short",
            );
        }
        trouble
    }

    /// The failure for a problem that the authority reports.
    pub(crate) fn of(problem: &Problem) -> Self {
        let (kind, help) = match type_of(problem) {
            "rateLimited" => (
                FailureKind::Limited,
                "the authority's limit is reached, the server waits; for trials there is acme_directory = \"staging\"",
            ),
            "connection" => (
                FailureKind::Validation,
                "the authority must reach this server at port 443 or 80 of every address that the name has: check A and AAAA records, firewalls, and the addresses in listen",
            ),
            "dns" => (
                FailureKind::Validation,
                "the name needs an A or AAAA record that leads to this server",
            ),
            "caa" => (
                FailureKind::Refused,
                "a CAA record of the domain allows other authorities only: add this one, or remove the record",
            ),
            "unauthorized" | "incorrectResponse" | "tls" => (
                FailureKind::Validation,
                "another server answers at this name, or a proxy stands before this one: check A and AAAA records, and that the proxy passes /.well-known/acme-challenge/ on",
            ),
            "rejectedIdentifier" | "unsupportedIdentifier" => (
                FailureKind::Refused,
                "the authority does not sign this name: remove it from hosts",
            ),
            "externalAccountRequired" => (
                FailureKind::Refused,
                "this authority wants to know the account that you have with it: acme_account_id and acme_account_key name it (external account binding)",
            ),
            "userActionRequired" => {
                (FailureKind::Refused, "the authority wants its operator's consent")
            }
            "invalidContact" | "unsupportedContact" => {
                (FailureKind::Refused, "the authority does not take acme_email")
            }
            "serverInternal" => (FailureKind::Unreachable, "the authority has an error of its own"),
            _ => (FailureKind::Refused, ""),
        };
        let kind = match problem.status {
            Some(429) => FailureKind::Limited,
            Some(500..) => FailureKind::Unreachable,
            _ => kind,
        };
        Self { kind, says: with_help(problem, help), retry_after: None }
    }
}

/// The authority's text and the advice.
fn with_help(problem: &Problem, help: &str) -> String {
    let mut says = problem.detail.clone().unwrap_or_else(|| problem.to_string());
    for part in &problem.subproblems {
        let _ = write!(says, "; {part}");
    }
    if !help.is_empty() {
        let _ = write!(says, " ({help})");
    }
    plain(&says)
}

/// The longest text of an authority that is passed on, in characters. The record's file has a size
/// limit as well: a larger file would not be read, and the time before the next attempt would be
/// forgotten.
const LONGEST: usize = 2000;

/// A text from outside as one line.
fn plain(text: &str) -> String {
    text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Trouble {
        Trouble::of(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn problems_are_told_with_what_to_do() {
        let limited = problem(
            r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many", "status": 429}"#,
        );
        assert_eq!(limited.kind, FailureKind::Limited);
        assert!(limited.says.starts_with("too many (the authority's limit"), "{}", limited.says);
        let refused = problem(
            r#"{"type": "urn:ietf:params:acme:error:connection", "detail": "refused\n\u001b[1m"}"#,
        );
        assert_eq!(refused.kind, FailureKind::Validation);
        assert!(refused.says.starts_with("refused  [1m (the authority must reach"));
        assert_eq!(problem(r#"{"status": 503, "detail": "busy"}"#).kind, FailureKind::Unreachable);
        assert_eq!(problem("{}").kind, FailureKind::Refused);
        let long = format!(r#"{{"detail": "{}"}}"#, "x".repeat(100_000));
        assert_eq!(problem(&long).says.len(), LONGEST);
    }
    #[test]
    fn what_an_authority_says_is_bounded_however_it_says_it() {
        let nonsense = format!(r#""\u001b[1m{}""#, "x".repeat(1 << 20));
        let error = serde_json::from_str::<instant_acme::OrderStatus>(&nonsense).unwrap_err();
        assert!(error.to_string().len() > 1 << 20, "the error quotes it");
        let quoted = Trouble::with_authority("https://ca.test", &Error::Json(error));
        assert_eq!((quoted.kind, quoted.says.len()), (FailureKind::Unreachable, LONGEST));
        assert!(!quoted.says.contains(char::is_control));
        let many = vec!["a.test: no\n".to_owned(); 100_000];
        let many = Trouble::validation(&many, Some(5));
        assert_eq!((many.kind, many.says.len()), (FailureKind::Validation, LONGEST));
    }
}
