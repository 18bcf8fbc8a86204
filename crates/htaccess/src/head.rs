//! The head of a response.

use std::time::SystemTime;

/// The head of a response, as far as rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Whether the server itself makes the response, instead of a file or a script: a redirect or an error page.
    /// `Header` then has no effect unless it says `always`.
    pub by_server: bool,
    /// Names and values, `Content-Type` among them.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The last change of the file that is sent.
    pub modified: Option<SystemTime>,
}

/// A change of a response's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadChange {
    /// It is made first, and in responses that the server itself makes, too. All others leave the fields that it makes alone.
    pub always: bool,
    /// What happens to the fields of the name.
    pub action: HeadAction,
    /// The name of the field.
    pub name: Vec<u8>,
    /// The value; empty if the field is taken out.
    pub value: Vec<u8>,
}

/// What happens to the fields of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadAction {
    /// One field with the value takes their place.
    Set,
    /// A field with the value is added.
    Add,
    /// They are taken out.
    Unset,
}
