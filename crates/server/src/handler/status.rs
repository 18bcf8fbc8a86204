//! The one table from what went wrong upstream to the status that the client gets.

use http::StatusCode;

use crate::upstream::{AcquireError, ConnectError};

/// Why there is no response to pass on.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// For the log.
    pub(super) why: String,
}

impl Failure {
    /// The application died, or says what makes no sense.
    pub(super) fn bad_gateway(why: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, why: why.into() }
    }

    /// The application takes no request now.
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why: why.into() }
    }

    /// The application takes too long.
    pub(super) fn timed_out(why: impl Into<String>) -> Self {
        Self { status: StatusCode::GATEWAY_TIMEOUT, why: why.into() }
    }

    /// The same, with the process that it is about.
    pub(super) fn of(self, who: &impl std::fmt::Display) -> Self {
        Self { why: format!("{who}: {}", self.why), ..self }
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        let status = match error {
            ConnectError::Busy | ConnectError::Waiting(_) => StatusCode::SERVICE_UNAVAILABLE,
            ConnectError::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            ConnectError::Failed(_) => StatusCode::BAD_GATEWAY,
        };
        Self { status, why: error.to_string() }
    }
}
