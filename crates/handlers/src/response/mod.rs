//! What an application's response asks the server to do: [`pass_on`] finds out and does it.
//!
//! It may name a file ([`named`]), parts of files ([`ranges`]), other URLs ([`reproxy`]) or files within its body ([`zero_copy`]), send
//! the client to a location of the server ([`internal_redirect`]), and say how fast its body leaves ([`companions`], [`rate_limit`]).

mod companions;
mod internal_redirect;
pub(crate) mod named;
pub(crate) mod pass_on;
mod ranges;
mod rate_limit;
mod reproxy;
mod wanted;
pub(crate) mod zero_copy;
