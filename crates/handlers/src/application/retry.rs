//! The rule of repeating a request, for all kinds of applications.
//!
//! A request is sent again only if no byte of an answer has arrived, nothing has reached the
//! client, its body is still available, and one of these is true:
//! - The application has read no byte of the request ([`Retry::Safe`]).
//! - The request is [repeatable](is_repeatable), and another host gets it, or it shared its
//!   connection with others. A process that had it alone is not followed by another one of the same
//!   application: a request that has ended one process would end the next one, too.
//!
//! The places that send requests:
//! - [`worker`](super::worker): to another worker of the pool, at most `MAX_TRIES` times in all.
//! - [`fastcgi`](super::fastcgi): first over a new connection, because a process may have closed
//!   the kept one at that moment. Then other hosts are asked.
//! - [`proxy`](super::proxy): over a new connection if the host has closed the kept one. Then other
//!   hosts are asked.
//!
//! Which failures let another host be asked is decided by [`Tried::may_try_another`]
//! (`upstream/hosts/group.rs`).
//!
//! [`Retry::Safe`]: sendoff_upstream::error::Retry::Safe
//! [`Tried::may_try_another`]: sendoff_upstream::hosts::Tried::may_try_another

use std::fmt;

use sendoff_message::request::Request;
use sendoff_report::repeated::{self, Weight};
use sendoff_upstream::error::UpstreamError;

/// True if the request may be sent again after an application has read it: it is idempotent (RFC
/// 9110 §9.2.2), and its body is still available.
pub(super) fn is_repeatable(request: &Request) -> bool {
    request.method.is_idempotent() && request.body.is_repeatable()
}

/// Logs that a request goes to another host than `host`. During an outage, lines after the first are
/// only counted.
pub(super) fn log_retry(host: &impl fmt::Display, request: &str, why: &UpstreamError) {
    let is_first =
        || repeated::is_first(Weight::Info, &format!("sent to another host than {host}: {why}"));
    if !why.is_outage() || is_first() {
        tracing::info!(%host, request, "sent to another host: {why}");
    }
}
