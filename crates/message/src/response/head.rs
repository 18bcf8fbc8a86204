//! A response head as data: handlers make it, filters change it, a protocol writes it.

use bytes::Bytes;
use http::StatusCode;
use sendoff_http1::CgiHead;

use super::field::Field;

/// The head of a response before a protocol has written it. Framing fields (`Content-Length`, `Transfer-Encoding`,
/// `Connection`) are not among its fields: protocols make them from `length`.
#[derive(Debug, Clone)]
pub struct ResponseHead {
    /// The status code.
    pub status: StatusCode,
    /// The reason phrase, if the application chose one. Only HTTP/1 sends it (RFC 9112 §4).
    pub reason: Option<Bytes>,
    /// Names and values in the order in which the client gets them. They are not checked yet: the protocol leaves out, and logs,
    /// a field that would break the head.
    pub fields: Vec<Field>,
    /// Bytes of the body, if known. For a response to HEAD: of the body that GET would get.
    pub length: Option<u64>,
    /// What the application tells caches in front of it (`X-Accel-Expires`), and not clients.
    pub accel_expires: Option<Bytes>,
    /// Whether the server itself makes the response, and no file or application: an error page or a redirect.
    pub by_server: bool,
}

impl ResponseHead {
    /// A head without fields.
    #[must_use]
    pub fn new(status: StatusCode, length: Option<u64>) -> Self {
        // Room for what filters add, so that the list seldom moves.
        let fields = Vec::with_capacity(16);
        Self { status, reason: None, fields, length, accel_expires: None, by_server: false }
    }

    /// An application's head. Its `Content-Length` becomes `length`.
    #[must_use]
    pub fn of(head: CgiHead) -> Self {
        let CgiHead { status, reason, fields, content_length, .. } = head;
        let own = fields.into_iter().map(|(name, value)| Field::Own(name, value));
        let mut head = Self { reason, ..Self::new(status, content_length) };
        head.fields.extend(own);
        head
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

    /// Whether there is a field of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }
}

/// Adds fields of the server's own.
pub fn append_fields(
    head: &mut ResponseHead,
    fields: impl IntoIterator<Item = (&'static str, Bytes)>,
) {
    for (name, value) in fields {
        head.field(name, value);
    }
}
