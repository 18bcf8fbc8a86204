//! The clients for whom a decision about a named resource holds.
//!
//! Such a decision falls behind the page cache. A page that depends on it may be kept only if the
//! decision is the same for every client that may get the page.

use bytes::Bytes;
use sendoff_message::response::ResponseHead;

/// The clients for whom a decision holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DecidedFor {
    /// The address, the method and the configuration alone have decided.
    #[default]
    AllClients,
    /// A rule about the client was tried, such as its network or one of its request fields. Another
    /// client may get another decision, whether the rule has applied to this one or not.
    ThisClient,
}

impl DecidedFor {
    /// `ThisClient` if the rule that was tried is about clients.
    pub(crate) fn of(is_about_clients: bool) -> Self {
        if is_about_clients { Self::ThisClient } else { Self::AllClients }
    }

    /// The clients for whom both decisions hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::of([self, other].contains(&Self::ThisClient))
    }

    /// Keeps the response out of the page cache, if other clients may get another one.
    pub fn limit(self, head: &mut ResponseHead) {
        match self {
            Self::AllClients => {}
            Self::ThisClient => head.accel_expires = Some(Bytes::from_static(b"0")),
        }
    }
}
