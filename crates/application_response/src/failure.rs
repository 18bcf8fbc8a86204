//! The one table from upstream errors to status codes.

use std::fmt;

use http::StatusCode;
use sendoff_application_request::Unsendable;
use sendoff_report::limits::Limit;
use sendoff_report::repeated::{self, Weight};
use sendoff_upstream::error::{UpstreamError, UpstreamErrorKind};

/// Why the client gets an error page instead of an application's response.
#[derive(Debug)]
pub struct ApplicationFailure {
    /// The status of the error page.
    pub status: StatusCode,
    /// For the log.
    pub why: String,
    /// The failure is not about this request: other requests meet it as well, so the log counts
    /// them.
    pub is_outage: bool,
}

impl ApplicationFailure {
    /// A failure of this request.
    pub fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), is_outage: false }
    }

    /// Logs the failure with the request that met it. `what` names the consequence for the client.
    pub fn log(&self, request: &str, what: &str) {
        let Self { status, why, is_outage } = self;
        let line = format!("answered with {}: {what}{why}", status.as_u16());
        if !is_outage || repeated::is_first(Weight::Error, &line) {
            tracing::error!(request, "{line}");
        }
    }

    /// The application died or broke the protocol.
    pub fn bad_gateway(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, why)
    }

    /// Adds the name of the process at fault to the log text.
    pub fn of(self, who: &impl fmt::Display) -> Self {
        Self { why: format!("{who}: {}", self.why), ..self }
    }
}

/// The limit that was reached, if the error means one.
fn limit(kind: UpstreamErrorKind) -> Option<Limit> {
    match kind {
        UpstreamErrorKind::QueueFull => Some(Limit::Queue),
        UpstreamErrorKind::WaitTimedOut => Some(Limit::QueueTime),
        UpstreamErrorKind::ConnectTimedOut => Some(Limit::ConnectTimeout),
        UpstreamErrorKind::Silent => Some(Limit::RequestTimeout),
        UpstreamErrorKind::Overloaded
        | UpstreamErrorKind::Unreachable
        | UpstreamErrorKind::Died
        | UpstreamErrorKind::Broken
        | UpstreamErrorKind::Request(_)
        | UpstreamErrorKind::Server => None,
    }
}

impl From<Unsendable> for ApplicationFailure {
    fn from(Unsendable { status, why }: Unsendable) -> Self {
        Self::new(status, why)
    }
}

impl From<UpstreamError> for ApplicationFailure {
    /// Counts the error if it means that a limit was met.
    fn from(error: UpstreamError) -> Self {
        if let Some(limit) = limit(error.kind()) {
            limit.reached();
        }
        let status = match error.kind() {
            UpstreamErrorKind::QueueFull
            | UpstreamErrorKind::WaitTimedOut
            | UpstreamErrorKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            UpstreamErrorKind::Request(status) => status,
            UpstreamErrorKind::ConnectTimedOut | UpstreamErrorKind::Silent => {
                StatusCode::GATEWAY_TIMEOUT
            }
            UpstreamErrorKind::Unreachable
            | UpstreamErrorKind::Died
            | UpstreamErrorKind::Broken => StatusCode::BAD_GATEWAY,
            UpstreamErrorKind::Server => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, why: error.to_string(), is_outage: error.is_outage() }
    }
}
