//! The front: speaks HTTP to clients and gives requests to workers and FastCGI applications.
//!
//! ```text
//!  client ⇄ transport ⇄ http1 ── Service ──▶ handler ──▶ upstream (workers, FastCGI applications)
//!                         ▲                     │
//!                         └── Responder ◀── filter ◀── segments
//! ```
//!
//! [`front`] starts event loops and accepts connections, `transport` moves bytes, `http1` reads requests and frames responses,
//! `site` chooses the handler of a path, `handler` answers with [`static_files`] or an [`upstream`], [`delivery`] keeps what is
//! owed to a client, [`observe`] reports about it. Imports point one way: a protocol knows the traits in `service` and `responder`
//! and no handler; a handler knows `responder` and no protocol.
#![forbid(unsafe_code)]

mod at_work;
mod auth;
mod challenges;
mod clients;
mod clock;
mod compress;
mod cut;
pub mod delivery;
pub use delivery::segment;
mod descriptors;
mod filter;
pub mod front;
mod handler;
mod http1;
mod http2;
mod layer;
mod lent;
mod lifecycle;
pub mod lua;
pub mod observe;
mod pace;
mod page_cache;
mod pipe;
mod rates;
pub mod request;
mod responder;
pub mod response;
mod seldom;
mod service;
mod site;
pub mod static_files;
mod transport;
pub mod upstream;
