//! Preconditions (RFC 9110 §13).

use std::time::{Duration, SystemTime};

use http::header::{
    IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{HeaderMap, HeaderName};

/// The result of the preconditions of a GET or HEAD request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// The request is performed.
    Proceed,
    /// The response is 304.
    NotModified,
    /// The response is 412.
    PreconditionFailed,
}

/// The validators of a resource. `modified` is in whole seconds.
#[derive(Debug, Clone, Copy)]
pub struct Validators<'a> {
    /// Strong, with its quotes.
    pub etag: &'a [u8],
    /// The last modification.
    pub modified: SystemTime,
}

impl Validators<'_> {
    /// Evaluates the preconditions of a GET or HEAD request in the order of §13.2.2.
    #[must_use]
    pub fn evaluate(&self, headers: &HeaderMap) -> ConditionOutcome {
        if headers.contains_key(IF_MATCH) {
            if !self.is_listed(headers, &IF_MATCH, Comparison::Strong) {
                return ConditionOutcome::PreconditionFailed;
            }
        } else if date(headers, &IF_UNMODIFIED_SINCE).is_some_and(|date| self.modified > date) {
            return ConditionOutcome::PreconditionFailed;
        }
        if headers.contains_key(IF_NONE_MATCH) {
            if self.is_listed(headers, &IF_NONE_MATCH, Comparison::Weak) {
                return ConditionOutcome::NotModified;
            }
        } else if date(headers, &IF_MODIFIED_SINCE).is_some_and(|date| self.modified <= date) {
            return ConditionOutcome::NotModified;
        }
        ConditionOutcome::Proceed
    }

    /// The `Range` field, if it is there and `If-Range` does not disable it (§13.1.5).
    #[must_use]
    pub fn range<'h>(&self, headers: &'h HeaderMap, now: SystemTime) -> Option<&'h [u8]> {
        let range = only(headers, &RANGE)?;
        if !headers.contains_key(IF_RANGE) {
            return Some(range);
        }
        let validator = only(headers, &IF_RANGE)?;
        let holds = if validator.contains(&b'"') {
            validator == self.etag
        } else {
            // A date is a strong validator only after the second that it names (§8.8.2.2).
            date(headers, &IF_RANGE) == Some(self.modified)
                && now.duration_since(self.modified).is_ok_and(|age| age > Duration::from_secs(1))
        };
        holds.then_some(range)
    }

    fn is_listed(&self, headers: &HeaderMap, name: &HeaderName, comparison: Comparison) -> bool {
        headers.get_all(name).iter().any(|value| {
            value.as_bytes().trim_ascii() == b"*"
                || EntityTags(value.as_bytes()).any(|tag| {
                    tag.opaque == self.etag && (comparison == Comparison::Weak || !tag.weak)
                })
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

struct EntityTag<'a> {
    weak: bool,
    opaque: &'a [u8],
}

/// The entity tags of a list, up to the first malformed one. A tag may contain commas.
struct EntityTags<'a>(&'a [u8]);

impl<'a> Iterator for EntityTags<'a> {
    type Item = EntityTag<'a>;

    fn next(&mut self) -> Option<EntityTag<'a>> {
        let start = self.0.iter().position(|b| !b" \t,".contains(b))?;
        let rest = &self.0[start..];
        let (weak, rest) = rest.strip_prefix(b"W/").map_or((false, rest), |rest| (true, rest));
        let end = rest.strip_prefix(b"\"")?.iter().position(|b| *b == b'"')? + 2;
        let (opaque, after) = rest.split_at(end);
        let separated = after.trim_ascii_start();
        if !(separated.is_empty() || separated.starts_with(b",")) {
            return None;
        }
        self.0 = after;
        Some(EntityTag { weak, opaque })
    }
}

/// The value of a field that may occur only once; `None` if it is repeated.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

/// A date field; an invalid date is ignored (§13.1.3).
fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(only(headers, name)?).ok()?).ok()
}
