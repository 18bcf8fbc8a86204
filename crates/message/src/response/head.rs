//! A response head as data: handlers make it, filters change it, a protocol writes it.

use bytes::Bytes;
use http::StatusCode;
use sendoff_http1::{CgiHead, Field};

/// The head of a response before a protocol writes it. Framing fields (`Content-Length`,
/// `Transfer-Encoding`, `Connection`) are not among its fields: protocols make them from `length`.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    /// The status code.
    pub status: StatusCode,
    /// The reason phrase, if the application chose one. Only HTTP/1 sends it (RFC 9112 §4).
    pub reason: Option<Bytes>,
    /// Names and values in the order in which the client gets them. They are not validated yet: the
    /// protocol drops, and logs, a field that would break the head.
    pub fields: Vec<Field>,
    /// Bytes of the body, if known. In a response to HEAD: the length of the body that GET would
    /// get.
    pub length: Option<u64>,
    /// The value of `X-Accel-Expires`, which applications send to the cache in front of them;
    /// clients do not get it.
    pub accel_expires: Option<Bytes>,
    /// Values of `Set-Cookie` fields that the server adds for this client alone, such as the cookie
    /// that binds it to a host. They become fields behind the page cache, which must not keep them.
    pub client_cookies: Vec<Bytes>,
    /// True if a line of the application's head, or a part of one, was dropped. It may have kept
    /// the response from other clients.
    pub is_incomplete: bool,
    /// True if the server itself makes the response (an error page or a redirect) instead of a file
    /// or an application.
    pub by_server: bool,
}

impl ResponseHead {
    /// Room for the fields of most responses, so that the list seldom moves when filters add some.
    pub const USUAL_FIELDS: usize = 16;

    /// A head without fields.
    #[must_use]
    pub fn new(status: StatusCode, length: Option<u64>) -> Self {
        Self::with_fields(status, length, Vec::with_capacity(Self::USUAL_FIELDS))
    }

    /// A head with these fields.
    #[must_use]
    pub fn with_fields(status: StatusCode, length: Option<u64>, fields: Vec<Field>) -> Self {
        Self {
            status,
            reason: None,
            fields,
            length,
            accel_expires: None,
            client_cookies: Vec::new(),
            is_incomplete: false,
            by_server: false,
        }
    }

    /// An application's head. Its `Content-Length` becomes `length`.
    #[must_use]
    pub fn of(head: CgiHead) -> Self {
        let is_incomplete = head.is_incomplete();
        let CgiHead { status, reason, fields, content_length, .. } = head;
        Self { reason, is_incomplete, ..Self::with_fields(status, content_length, fields) }
    }

    /// Adds a field at the end.
    pub fn field(&mut self, name: &'static str, value: impl Into<Bytes>) {
        self.fields.push(Field::new(name, value));
    }

    /// The value of the first field of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|field| field.is(name)).map(Field::value)
    }

    /// Removes the first field of this name. Returns its value.
    pub fn take(&mut self, name: &str) -> Option<Bytes> {
        let at = self.fields.iter().position(|field| field.is(name))?;
        Some(self.fields.remove(at).into_parts().1)
    }

    /// True if there is a field of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }
}

/// Adds the server's own fields.
pub fn append_fields(
    head: &mut ResponseHead,
    fields: impl IntoIterator<Item = (&'static str, Bytes)>,
) {
    for (name, value) in fields {
        head.field(name, value);
    }
}
