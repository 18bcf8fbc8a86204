//! FastCGI applications that were started elsewhere (`docs/fastcgi.md`), and the programs of pools
//! (`docs/pools.md`).
#![forbid(unsafe_code)]

mod answer;
pub mod application;
pub mod attached;
pub mod channel;
mod connections;
mod driver;
mod facts;
mod framed;
mod outgoing;
mod peer;
pub mod program;
pub mod shared;
mod stream;
mod values;
