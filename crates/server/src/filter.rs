//! What the server changes in every response head before the protocol writes it. Filters run in this order:
//!
//! 1. common fields: `Server` and `Date`, unless the application has set them.
//!
//! A filter is a function on [`ResponseHead`]. One that changes the body, too, is a responder around the protocol's, as the
//! table of `handler/explain.rs`.

use bytes::Bytes;

use crate::clock::Clock;
use crate::response::ResponseHead;

/// The value of `Server`.
const SERVER: &str = "sendoff";

/// Applies all filters.
pub(crate) fn apply(mut head: ResponseHead, clock: &Clock) -> ResponseHead {
    common(&mut head, clock);
    head
}

/// Adds the common fields, in front of all others.
fn common(head: &mut ResponseHead, clock: &Clock) {
    let mut fields = Vec::with_capacity(head.fields.len() + 2);
    if !head.has("Server") {
        fields.push((Bytes::from_static(b"Server"), Bytes::from_static(SERVER.as_bytes())));
    }
    if !head.has("Date") {
        fields.push((Bytes::from_static(b"Date"), clock.date()));
    }
    fields.append(&mut head.fields);
    head.fields = fields;
}

/// The common fields as lines, for a worker that writes the head itself.
pub(crate) fn common_lines(clock: &Clock) -> Vec<u8> {
    let date = clock.date();
    [b"Server: ", SERVER.as_bytes(), b"\r\nDate: ", &date, b"\r\n"].concat()
}
