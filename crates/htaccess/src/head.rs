//! The head of a response.

use std::time::SystemTime;

/// The head of a response, as far as rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// True if the server itself makes the response (a redirect or an error page), instead of a
    /// file or a script. `Header` then has no effect unless it says `always`.
    pub by_server: bool,
    /// Names and values, `Content-Type` among them.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The last change of the file that is sent.
    pub modified: Option<SystemTime>,
}

/// A change of a response's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadChange {
    /// Changes with `always` come first, and also apply to responses of the server itself. Other
    /// changes do not affect the fields that they make.
    pub always: bool,
    /// The action on the fields with this name.
    pub action: HeadAction,
    /// The name of the field.
    pub name: Vec<u8>,
    /// The value; empty for `Unset`.
    pub value: Vec<u8>,
}

/// An action on the fields with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadAction {
    /// One field with the value replaces them.
    Set,
    /// A field with the value is added.
    Add,
    /// They are removed.
    Unset,
}
