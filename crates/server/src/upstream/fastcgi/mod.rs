//! FastCGI applications that were started elsewhere (`docs/fastcgi.md`), and the programs of pools (`docs/pools.md`).

mod answer;
pub(super) mod application;
pub(super) mod attached;
pub(super) mod channel;
mod connections;
mod driver;
mod framed;
mod known;
mod outgoing;
mod peer;
pub(super) mod program;
pub(super) mod shared;
mod stream;
mod values;
