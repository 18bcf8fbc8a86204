//! Response fields in which Sendoff and its peers differ on every page or every file, each with the
//! reason. All other fields are equal, in name, value and number; differences in single answers of
//! an application are in its file of requests.

use sendoff_tests::Response;

use crate::farm::Peer;
use crate::walk::unmarked;

/// Names and values, sorted.
pub(crate) type Fields = Vec<(String, String)>;

/// The rule by which a field of two answers is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Not at all.
    Ignored,
    /// Both answers have it, or neither.
    Presence,
    /// As a list, whose members may come in any order and in several fields.
    List,
    /// As a time: equal, or both within a day of the answer, because scripts write the present one.
    Time,
    /// As it is, in answers with status 200.
    Whole,
    /// By the normal form that [`meaning`] gives it.
    Meaning,
}

/// A difference between all answers of Sendoff and of a peer.
struct Difference {
    field: &'static str,
    /// None: both.
    peer: Option<Peer>,
    /// None: with any status.
    status: Option<u16>,
    how: How,
    #[allow(dead_code, reason = "a reason is for readers")]
    why: &'static str,
}

const fn both(field: &'static str, how: How, why: &'static str) -> Difference {
    Difference { field, peer: None, status: None, how, why }
}

const fn one(
    peer: Peer,
    status: Option<u16>,
    field: &'static str,
    how: How,
    why: &'static str,
) -> Difference {
    Difference { field, peer: Some(peer), status, how, why }
}

/// Every difference. The first that is about an answer holds.
const DIFFERENCES: &[Difference] = &[
    both("date", How::Ignored, "the time of the answer"),
    both("server", How::Ignored, "the name of the server"),
    both(
        "connection",
        How::Ignored,
        "both peers write `keep-alive`, which is what HTTP/1.1 does without it",
    ),
    both(
        "transfer-encoding",
        How::Ignored,
        "framing: the client of the tests checks it, bodies are compared without it",
    ),
    both(
        "content-length",
        How::Ignored,
        "framing: Sendoff knows the length of pages that its peers send chunked; answers to HEAD that have it are compared",
    ),
    one(Peer::Apache, None, "keep-alive", How::Ignored, "Apache writes its idle timeout"),
    one(
        Peer::Apache,
        None,
        "accept-ranges",
        How::Whole,
        "Apache repeats it in parts and in answers without a body, which nothing asks for",
    ),
    one(
        Peer::Apache,
        Some(412),
        "etag",
        How::Ignored,
        "Apache writes it into a refusal; Sendoff and nginx do not",
    ),
    one(Peer::Apache, Some(412), "last-modified", How::Ignored, "as `etag`"),
    one(
        Peer::Nginx,
        Some(405),
        "allow",
        How::Ignored,
        "RFC 9110 section 15.5.6 wants it; nginx leaves it out",
    ),
    both(
        "etag",
        How::Presence,
        "each server has its own form; `If-None-Match: {etag}` sends back what the same server gave",
    ),
    both("x-request-id", How::Presence, "a random number"),
    both("expires", How::Time, "counted from the time of the answer"),
    both(
        "last-modified",
        How::Time,
        "scripts write the time of the answer; that of files is equal",
    ),
    both(
        "set-cookie",
        How::Meaning,
        "values are random, and their end is counted from the time of the answer",
    ),
    both(
        "location",
        How::Meaning,
        "absolute or relative: both name the same page (RFC 9110 section 10.2.2)",
    ),
    both(
        "content-type",
        How::Meaning,
        "tables of media types have two names for scripts, icons and XML; Sendoff names the charset of text files; Apache sends \
         no type where the others say application/octet-stream",
    ),
    both("vary", How::List, "Apache joins what several fields say"),
    both(
        "cache-control",
        How::List,
        "nginx writes what `expires` and `add_header` say as two fields",
    ),
];

/// Fields that may differ in pages that the servers write themselves (errors, redirects, folders),
/// each with the reason.
const DIFFERENCES_OF_OWN_PAGES: &[(&str, &str)] =
    &[("content-type", "the page is the server's own")];

/// The fields of a response as they are compared with another server's.
pub(crate) fn fields(response: &Response, peer: Peer, own_page: bool) -> Fields {
    let mut all = Fields::new();
    for (name, value) in &response.head.headers {
        let value = &unmarked(value);
        let name = name.to_ascii_lowercase();
        if own_page && DIFFERENCES_OF_OWN_PAGES.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let known = DIFFERENCES.iter().find(|known| {
            known.field == name
                && known.peer.is_none_or(|of| of == peer)
                && known.status.is_none_or(|status| status == response.status())
        });
        match known.map(|known| known.how) {
            None => all.push((name, value.clone())),
            Some(How::Ignored) => {}
            Some(How::Whole) if response.status() != 200 => {}
            Some(How::Whole) => all.push((name, value.clone())),
            Some(How::Presence) => all.push((name, String::new())),
            Some(How::List) => {
                let members = value.split(',').map(|member| member.trim().to_ascii_lowercase());
                all.extend(members.map(|member| (name.clone(), member)));
            }
            Some(How::Time) => {
                let value = time(value, response);
                all.push((name, value));
            }
            Some(How::Meaning) => {
                let value = meaning(&name, value);
                if value != UNKNOWN {
                    all.push((name, value));
                }
            }
        }
    }
    all.sort();
    // Apache's module also sends session cookies that PHP has replaced by newer cookies of the same
    // name.
    all.dedup_by(|one, other| one.0 == "set-cookie" && one == other);
    all
}

/// The normal form of a time: within a day of the answer's `Date`, "near"; later, the minutes from
/// `Date` until then; earlier, the time as it is.
fn time(value: &str, response: &Response) -> String {
    let parsed = |text: &str| httpdate::parse_http_date(&text.replace("+0000", "GMT")).ok();
    let date = response.header("date").and_then(parsed);
    let (Some(date), Some(time)) = (date, parsed(value)) else {
        return value.to_owned();
    };
    let after = time.duration_since(date);
    let apart = after.clone().unwrap_or_else(|earlier| earlier.duration()).as_secs();
    match after {
        _ if apart < 24 * 3600 => "near".to_owned(),
        // The server may have looked at the clock twice.
        Ok(_) => format!("in {} minutes", (apart + 30) / 60),
        Err(_) => value.to_owned(),
    }
}

/// The type of a file whose type is not known.
const UNKNOWN: &str = "application/octet-stream";

fn meaning(name: &str, value: &str) -> String {
    match name {
        "set-cookie" => masked(value),
        "location" => value.replace("http://example.test/", "/"),
        _ => {
            let kind = value.split(';').next().unwrap_or_default().trim();
            match kind {
                "application/javascript" | "application/x-javascript" => {
                    "text/javascript".to_owned()
                }
                "image/vnd.microsoft.icon" => "image/x-icon".to_owned(),
                "text/xml" => "application/xml".to_owned(),
                other => other.to_owned(),
            }
        }
    }
}

/// The name and the attributes of a cookie. Its age is rounded to minutes: applications compute it
/// from two readings of the clock, between which a second may begin.
fn masked(cookie: &str) -> String {
    let attributes = cookie.split(';').enumerate().map(|(at, part)| {
        let (name, value) = part.trim().split_once('=').unwrap_or((part.trim(), ""));
        let minutes = || value.parse().map(|age: u64| format!("{name}={}m", (age + 30) / 60));
        match name.to_ascii_lowercase().as_str() {
            _ if at == 0 => format!("{name}="),
            "expires" => format!("{name}="),
            "max-age" => minutes().unwrap_or_else(|_| format!("{name}={value}")),
            _ => format!("{name}={value}"),
        }
    });
    attributes.collect::<Vec<_>>().join("; ")
}
