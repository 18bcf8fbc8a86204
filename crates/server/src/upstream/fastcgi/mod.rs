//! FastCGI applications that were started elsewhere (`docs/fastcgi.md`).

mod answer;
pub(super) mod application;
pub(super) mod channel;
mod connections;
mod driver;
mod framed;
mod outgoing;
mod peer;
mod stream;
