//! What the server does to every response head before the protocol writes it. Filters run in this order:
//!
//! 1. common fields: `Server` and `Date`, unless the application has set them.
//!
//! Header rules, compression and cache rules will stand here, each as one more function on [`ResponseHead`].

use bytes::Bytes;

use crate::clock::Clock;
use crate::response::ResponseHead;

/// What this server calls itself.
const SERVER: &str = "sendoff";

/// Applies all filters.
pub(crate) fn apply(mut head: ResponseHead, clock: &Clock) -> ResponseHead {
    common(&mut head, clock);
    head
}

/// Puts the common fields before the others.
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
