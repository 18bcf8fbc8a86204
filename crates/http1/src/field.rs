//! A header field of a response.

use std::borrow::Cow;

use bytes::Bytes;

use crate::FieldLine;

/// A header field of a response, with its name as the client will see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// Name and value, not validated yet.
    Own(Bytes, Bytes),
    /// Validated, as a line of a head: a field of many responses, or of an application's head.
    Line(FieldLine),
}

impl Field {
    /// A field of many responses, written once. If it is not valid, the protocol drops and logs it.
    #[must_use]
    pub fn shared(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        let (name, value) = (name.into(), value.into());
        FieldLine::new(&name, &value).map_or_else(|_| Self::Own(name, value), Self::Line)
    }

    /// A field that a parser has validated, in the block in which it stands. Not copied.
    pub(crate) fn in_block(block: &Bytes, field: &httparse::Header<'_>) -> Self {
        let (name, value) = (field.name.as_bytes(), field.value);
        FieldLine::in_block(block, name, value)
            .map_or_else(|| Self::Own(block.slice_ref(name), block.slice_ref(value)), Self::Line)
    }

    /// A field of this response.
    #[must_use]
    pub fn new(name: &'static str, value: impl Into<Bytes>) -> Self {
        Self::Own(Bytes::from_static(name.as_bytes()), value.into())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        match self {
            Self::Own(name, _) => name,
            Self::Line(line) => line.name(),
        }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        match self {
            Self::Own(_, value) => value,
            Self::Line(line) => line.value(),
        }
    }

    /// Name and value, without a copy.
    #[must_use]
    pub fn into_parts(self) -> (Bytes, Bytes) {
        match self {
            Self::Own(name, value) => (name, value),
            Self::Line(line) => line.into_parts(),
        }
    }

    /// Replaces the value.
    pub fn set_value(&mut self, new: impl Into<Bytes>) {
        match self {
            Self::Own(_, value) => *value = new.into(),
            Self::Line(line) => *self = Self::Own(line.clone().into_parts().0, new.into()),
        }
    }

    /// True if this is the field's name, in any case.
    #[must_use]
    pub fn is(&self, name: impl AsRef<[u8]>) -> bool {
        self.name().eq_ignore_ascii_case(name.as_ref())
    }

    /// The field for messages and tests.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |bytes| -> Cow<'_, str> { String::from_utf8_lossy(bytes) };
        [text(self.name()), text(self.value())].join(": ")
    }
}
