//! Instructions to the server in an application's response: [`pass_on`] reads and follows them.
//!
//! A response may name a file ([`named`]), parts of files (`X-Sendfile2`), other URLs ([`reproxy`])
//! or files within its body (the crate `zero_copy`), redirect the request to a location of the server
//! ([`internal_redirect`]), and limit the rate of its body. The crate `application_response` reads
//! the fields for parts of files and for the rate.

pub(crate) mod internal_redirect;
pub(crate) mod named;
pub(crate) mod pass_on;
mod reproxy;
mod requirements;
