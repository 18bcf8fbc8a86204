//! The answer with a page to one client: conditions and ranges (RFC 9110 §13, §14).

use std::io;
use std::time::{Duration, SystemTime};

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, Method, StatusCode};
use sendoff_delivery::segment::Segment;
use sendoff_message::request::{Request, is_conditional};
use sendoff_message::response::{Field, ResponseHead};
use sendoff_static_files::conditional::{ConditionOutcome, Validators};
use sendoff_static_files::range::Ranges;

use super::Page;

impl Page {
    /// The answer to a client: the head, and the body unless the client has it already or asks for
    /// a part.
    ///
    /// # Errors
    /// The errors of `body`, which returns the whole body.
    pub(crate) fn answer(
        &self,
        body: impl FnOnce() -> io::Result<Segment>,
        request: &Request,
        now: SystemTime,
    ) -> io::Result<(ResponseHead, Option<Segment>)> {
        let mut head = self.stored_head();
        head.field("Age", self.age(now).to_string());
        if !is_conditional(&request.headers) {
            return Ok((head, Some(body()?)));
        }
        if head.status == StatusCode::OK && is_current(&head, &request.headers) {
            head.status = StatusCode::NOT_MODIFIED;
            (head.reason, head.length) = (None, None);
            return Ok((head, None));
        }
        let mut body = body()?;
        match self.ranges(&head, request, now) {
            Ranges::One(range) => {
                head.status = StatusCode::PARTIAL_CONTENT;
                (head.reason, head.length) = (None, Some(range.len));
                head.fields.retain(|field| !field.is("Content-Range"));
                head.field("Content-Range", range.content_range(self.facts.len));
                if range.first > 0 {
                    body = body.split_off(range.first);
                }
                body.truncate(range.len);
            }
            Ranges::Unsatisfiable => {
                let mut head = ResponseHead::new(StatusCode::RANGE_NOT_SATISFIABLE, Some(0));
                head.field("Content-Range", format!("bytes */{}", self.facts.len));
                return Ok((head, None));
            }
            // RFC 9110 §14.2 allows to ignore the field.
            Ranges::Whole | Ranges::Several(_) => {}
        }
        Ok((head, Some(body)))
    }

    /// The ranges that the client asks for.
    fn ranges(&self, head: &ResponseHead, request: &Request, now: SystemTime) -> Ranges {
        if request.method != Method::GET || head.status != StatusCode::OK {
            return Ranges::Whole;
        }
        // A weak tag does not promise identical bytes (§13.1.5).
        let strong = only_tag(values(head, "ETag")).filter(|tag| !tag.starts_with(b"W/"));
        let strong = strong.unwrap_or_default();
        let validators = Validators { etag: strong, ..validators(head) };
        let value = validators.range(&request.headers, now);
        value.map_or(Ranges::Whole, |value| Ranges::parse(value, self.facts.len))
    }
}

/// True if the client's copy of a response with this head is current, so that 304 answers the
/// request.
pub(crate) fn is_current(head: &ResponseHead, fields: &HeaderMap) -> bool {
    let has_conditions =
        fields.contains_key(IF_NONE_MATCH) || fields.contains_key(IF_MODIFIED_SINCE);
    has_conditions
        && !fields.contains_key(IF_UNMODIFIED_SINCE)
        && validators(head).evaluate(fields) == ConditionOutcome::NotModified
}

pub(super) fn values<'h>(head: &'h ResponseHead, name: &str) -> impl Iterator<Item = &'h [u8]> {
    head.fields.iter().filter(move |field| field.is(name)).map(Field::value)
}

/// The tag in the `ETag` fields of a response. The field has a single value (RFC 9110 §8.8.3), so
/// several fields, or a list in one, are no tag (§5.3: they are one field with a list).
pub(super) fn only_tag<'h>(mut fields: impl Iterator<Item = &'h [u8]>) -> Option<&'h [u8]> {
    let tag = fields.next().filter(|_| fields.next().is_none())?;
    let is_one = match opaque(tag) {
        [b'"', inner @ .., b'"'] => !inner.contains(&b'"'),
        bare => !bare.iter().any(|byte| matches!(byte, b'"' | b',')),
    };
    is_one.then_some(tag)
}

/// A tag without the `W/` of weak tags.
pub(super) fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The validators of a response; a missing one matches nothing.
fn validators(head: &ResponseHead) -> Validators<'_> {
    let tag = only_tag(values(head, "ETag")).unwrap_or_default();
    let date = head.value("Last-Modified").and_then(|date| std::str::from_utf8(date).ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let never = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    Validators { etag: opaque(tag), modified: date.unwrap_or(never) }
}
