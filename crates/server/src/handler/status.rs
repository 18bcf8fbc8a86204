//! The one table from upstream errors to status codes.

use std::fmt;

use http::StatusCode;

use crate::upstream::{UpstreamError, UpstreamErrorKind};

/// Why the client gets an error page instead of an application's response.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// For the log.
    pub(super) why: String,
}

impl Failure {
    /// The application died or broke the protocol.
    pub(super) fn bad_gateway(why: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, why: why.into() }
    }

    /// Adds to the log text which process it is about.
    pub(super) fn of(self, who: &impl fmt::Display) -> Self {
        Self { why: format!("{who}: {}", self.why), ..self }
    }
}

impl From<UpstreamError> for Failure {
    fn from(error: UpstreamError) -> Self {
        let status = match error.kind() {
            UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::WaitTimedOut
            | UpstreamErrorKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            UpstreamErrorKind::ConnectTimedOut | UpstreamErrorKind::Silent => {
                StatusCode::GATEWAY_TIMEOUT
            }
            UpstreamErrorKind::Unreachable
            | UpstreamErrorKind::Died
            | UpstreamErrorKind::Broken => StatusCode::BAD_GATEWAY,
            UpstreamErrorKind::Server => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, why: error.to_string() }
    }
}
