//! Instructions to the server in an application's response: [`pass_on`] reads and follows them.
//!
//! A response may name a file ([`named`]), parts of files ([`sendfile2`]), other URLs ([`reproxy`])
//! or files within its body (the crate `zero_copy`), redirect the request to a location of the server
//! ([`internal_redirect`]), and limit the rate of its body ([`companions`], [`rate_limit`]).

mod companions;
pub(crate) mod internal_redirect;
pub(crate) mod named;
pub(crate) mod pass_on;
pub(crate) mod rate_limit;
mod reproxy;
mod requirements;
mod sendfile2;
