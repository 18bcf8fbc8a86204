//! Spans.

use std::borrow::Cow;

use crate::context::{SpanId, TraceId};

/// The longest text of an attribute, in bytes; the rest is cut. A client chooses paths and fields.
const MAX_TEXT: usize = 1024;

/// The role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Within this server.
    Internal,
    /// A request of a client.
    Server,
    /// A request to an application.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

/// An attribute: its name and its value.
pub type Attribute = (&'static str, Value);

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span that it is a part of.
    pub parent: Option<SpanId>,
    /// The value of `tracestate`.
    pub state: Option<String>,
    /// The name, of which there are few.
    pub name: Cow<'static, str>,
    /// The role.
    pub kind: Kind,
    /// The beginning, in nanoseconds since 1970.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// Attributes.
    pub attributes: Vec<Attribute>,
    /// It has ended with an error.
    pub is_error: bool,
}

impl Span {
    /// Adds a text, of which at most 1 KiB is kept. Bytes that are no UTF-8 are replaced.
    pub fn text(&mut self, name: &'static str, text: &[u8]) {
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]).into_owned();
        self.attributes.push((name, Value::Text(text)));
    }

    /// Adds a number.
    pub fn number(&mut self, name: &'static str, number: impl TryInto<i64>) {
        let number = number.try_into().unwrap_or(i64::MAX);
        self.attributes.push((name, Value::Number(number)));
    }
}

#[cfg(test)]
pub(crate) fn sample(name: &'static str) -> Span {
    Span {
        trace: TraceId::random(),
        id: SpanId::random(),
        parent: None,
        state: None,
        name: name.into(),
        kind: Kind::Internal,
        start: 1,
        end: 2,
        attributes: Vec::new(),
        is_error: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_clients_are_bounded_and_are_text() {
        let mut span = sample("a");
        span.text("long", &[b'a'; 2 * MAX_TEXT]);
        span.text("bad", b"\xffa");
        span.number("most", u64::MAX);
        let Value::Text(long) = &span.attributes[0].1 else { panic!("no text") };
        assert_eq!(long.len(), MAX_TEXT);
        assert_eq!(span.attributes[1].1, Value::Text("\u{fffd}a".to_owned()));
        assert_eq!(span.attributes[2].1, Value::Number(i64::MAX));
    }
}
