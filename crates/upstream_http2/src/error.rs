//! Errors of h2 as errors of an upstream.

use h2::Reason;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};

/// The error of a stream. Two errors promise that the host has not processed the request: a GOAWAY
/// with a smaller stream id, and `REFUSED_STREAM` (RFC 9113 §6.8, §8.7).
pub(crate) fn of_stream(error: &h2::Error) -> UpstreamError {
    if error.is_library() {
        return UpstreamError::broken(format!("it breaks the rules of HTTP/2: {error}"));
    }
    let reason = error.reason();
    if error.is_go_away() {
        let why = "it told the connection to go before it processed the request";
        return died(Retry::Safe, why.to_owned());
    }
    match reason {
        Some(Reason::REFUSED_STREAM) => died(Retry::Safe, "it refused the stream".to_owned()),
        Some(Reason::HTTP_1_1_REQUIRED) => {
            UpstreamError::broken("it demands HTTP/1.1: write http:// or https:// in its URL")
        }
        Some(reason) => died(Retry::Unsafe, format!("it reset the stream: {reason:?}")),
        None => died(Retry::Unsafe, format!("the connection ended: {error}")),
    }
}

/// True if the connection has ended otherwise than in order, so one of its requests may be the cause.
pub(crate) fn ends_connection(error: &h2::Error) -> bool {
    error.is_io() || error.is_go_away() && error.reason() != Some(Reason::NO_ERROR)
}

/// The error of a connection that takes no further stream. Nothing of the request was sent.
pub(crate) fn of_connection(error: &h2::Error) -> UpstreamError {
    died(Retry::Safe, format!("the connection takes no request: {error}"))
}

/// The error of a connection that has not come about.
pub(crate) fn of_handshake(error: &h2::Error) -> UpstreamError {
    without_settings(&error.to_string())
}

/// The error of a connection on which the host has allowed no request.
pub(crate) fn without_settings(why: &str) -> UpstreamError {
    let why = format!("no HTTP/2 connection came about: {why}");
    UpstreamError::new(UpstreamErrorKind::Unreachable, Retry::Safe, why)
}

fn died(retry: Retry, why: String) -> UpstreamError {
    UpstreamError::new(UpstreamErrorKind::Died, retry, why)
}
