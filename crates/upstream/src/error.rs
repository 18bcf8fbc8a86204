//! Why an upstream has not answered, or not to the end.

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;

pub use sendoff_link::front::Retry;

/// Why an upstream has not answered, or not to the end, and whether the request may be sent again. The kind says whose fault it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    kind: UpstreamErrorKind,
    retry: Retry,
    why: Cow<'static, str>,
}

/// What went wrong. A handler chooses the status code by this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamErrorKind {
    // There is more work than the upstream can do: the client may try again later.
    /// Too many requests wait for the upstream already.
    QueueFull,
    /// The upstream had no room for the request in time.
    WaitTimedOut,
    /// The upstream was reached and takes no request now.
    Overloaded,
    // The fault of the application, or of what runs it.
    /// The upstream took no connection in time.
    ConnectTimedOut,
    /// The upstream cannot be connected to.
    Unreachable,
    /// The upstream has closed the connection, or its process has ended.
    Died,
    /// The upstream has broken the protocol.
    Broken,
    /// The upstream has been silent for too long.
    Silent,
    // The fault of the client.
    /// The rest of a request body that is passed on while it arrives will not come; the client gets this status.
    Request(StatusCode),
    // The fault of this server.
    /// The server itself lacks something, such as a descriptor.
    Server,
}

impl UpstreamError {
    /// An error of this kind. `why` completes the sentence "the upstream ...", and has "it" for the upstream.
    pub fn new(kind: UpstreamErrorKind, retry: Retry, why: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, retry, why: why.into() }
    }

    /// A worker or a connection that is gone.
    pub fn died(retry: Retry) -> Self {
        Self::new(UpstreamErrorKind::Died, retry, "it died at work on the request")
    }

    /// An upstream that talks nonsense.
    pub fn broken(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(UpstreamErrorKind::Broken, Retry::Unsafe, why)
    }

    /// An upstream that has been silent for too long.
    pub fn silent() -> Self {
        Self::new(UpstreamErrorKind::Silent, Retry::Unsafe, "it was silent for too long")
    }

    /// The rest of a request body will not come.
    pub fn of_body(status: StatusCode) -> Self {
        let why = match status {
            StatusCode::REQUEST_TIMEOUT => "the request body took too long",
            StatusCode::PAYLOAD_TOO_LARGE => "the request body is too large",
            _ => "the request body is not whole",
        };
        Self::new(UpstreamErrorKind::Request(status), Retry::Unsafe, why)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> UpstreamErrorKind {
        self.kind
    }

    /// True if it is not about this request: the upstream takes none now, or not enough of them.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self.kind {
            UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::WaitTimedOut
            | UpstreamErrorKind::Overloaded
            | UpstreamErrorKind::ConnectTimedOut
            | UpstreamErrorKind::Unreachable => true,
            UpstreamErrorKind::Died
            | UpstreamErrorKind::Broken
            | UpstreamErrorKind::Silent
            | UpstreamErrorKind::Request(_)
            | UpstreamErrorKind::Server => false,
        }
    }

    /// Whether the request may be given to another worker or sent over another connection.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.retry
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for UpstreamError {}
