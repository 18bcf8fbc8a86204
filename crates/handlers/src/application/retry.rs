//! The rule of repeating a request, for all kinds of applications.
//!
//! A request is sent again only if no byte of an answer has arrived, nothing has reached the
//! client, its body is still available, and one of these is true:
//! - The application has read no byte of the request ([`Retry::Safe`]).
//! - The request is [repeatable](is_repeatable), and its application runs elsewhere, where an
//!   administrator may end busy processes, for example by a reload of php-fpm. In a pool of this
//!   server, a request that has ended one process would end the next one, too.
//!
//! The places that send requests:
//! - [`worker`](super::worker): to another worker of the pool, at most `MAX_TRIES` times in all.
//! - [`fastcgi`](super::fastcgi): first over a new connection, because a process may have closed
//!   the kept one at that moment. Then other hosts are asked; if there is no other host, a few
//!   further retries ask the same application.
//! - [`proxy`](super::proxy): over a new connection if the host has closed the kept one. Then other
//!   hosts are asked.
//!
//! Which failures let another host be asked is decided by [`Tried::may_go_on`]
//! (`upstream/hosts/group.rs`).
//!
//! [`Retry::Safe`]: sendoff_upstream::error::Retry::Safe
//! [`Tried::may_go_on`]: sendoff_upstream::hosts::Tried::may_go_on

use sendoff_message::request::Request;

/// True if the request may be sent again after an application has read it: it is idempotent (RFC
/// 9110 §9.2.2), and its body is still available.
pub(super) fn is_repeatable(request: &Request) -> bool {
    request.method.is_idempotent() && request.body.is_repeatable()
}
