//! The reasons why an upstream has not answered, or not completely.

use std::borrow::Cow;
use std::{fmt, io};

use http::StatusCode;

pub use sendoff_link::front::Retry;

use super::queue::QueueLimits;

/// The reason why an upstream has not answered, or not completely, and the safety of a retry. The
/// kind shows the party at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    kind: UpstreamErrorKind,
    retry: Retry,
    why: Cow<'static, str>,
}

/// The kind of an error. Handlers choose the status code by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamErrorKind {
    // The upstream is overloaded: the client may try again later.
    /// Too many requests wait for the upstream already.
    QueueFull,
    /// The upstream had no room for the request in time.
    WaitTimedOut,
    /// The upstream was reached and takes no request now.
    Overloaded,
    // The application, or the machine that runs it, is at fault.
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
    // The client is at fault.
    /// The rest of a request body that is passed on while it arrives will not come; the client gets
    /// a response with this status.
    Request(StatusCode),
    // This server is at fault.
    /// The server itself lacks a resource, such as a descriptor.
    Server,
}

impl UpstreamError {
    /// An error of this kind. `why` completes the sentence "the upstream ...", and calls the
    /// upstream "it".
    pub fn new(kind: UpstreamErrorKind, retry: Retry, why: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, retry, why: why.into() }
    }

    /// The worker has died or the connection is gone.
    pub fn died(retry: Retry) -> Self {
        Self::new(UpstreamErrorKind::Died, retry, "it died at work on the request")
    }

    /// The upstream has broken the protocol.
    pub fn broken(why: impl Into<Cow<'static, str>>) -> Self {
        Self::new(UpstreamErrorKind::Broken, Retry::Unsafe, why)
    }

    /// The upstream has been silent for too long.
    pub fn silent() -> Self {
        Self::new(UpstreamErrorKind::Silent, Retry::Unsafe, "it was silent for too long")
    }

    /// The queue of the upstream holds as many requests as it may.
    pub fn queue_full(limits: &QueueLimits) -> Self {
        let why = format!("{} requests are waiting for it already", limits.requests);
        Self::new(UpstreamErrorKind::QueueFull, Retry::Safe, why)
    }

    /// The request has waited in the queue of the upstream for as long as it may.
    pub fn wait_timed_out(limits: &QueueLimits) -> Self {
        let why = format!("it was busy for {} s", limits.wait.as_secs());
        Self::new(UpstreamErrorKind::WaitTimedOut, Retry::Safe, why)
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

    /// The stored body of the request cannot be read.
    pub fn unreadable_body(error: &io::Error) -> Self {
        let why = format!("the request body cannot be read: {error}");
        Self::new(UpstreamErrorKind::Server, Retry::Unsafe, why)
    }

    /// The body of the request was passed on while it arrived, and cannot be passed on again.
    pub fn spent_body() -> Self {
        let why = "the request body was passed on already, while it arrived";
        Self::new(UpstreamErrorKind::Server, Retry::Unsafe, why)
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> UpstreamErrorKind {
        self.kind
    }

    /// True if the error is not specific to this request: the upstream accepts no requests now, or
    /// too few.
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

    /// Safety of giving the request to another worker or sending it over another connection.
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
