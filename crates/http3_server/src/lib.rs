//! HTTP/3 (RFC 9114) on `quinn-proto`, which has the state machines of QUIC (RFC 9000) and no I/O:
//! one UDP socket for each event loop, a task for each connection, a task for each request.
//!
//! ```text
//!  UDP socket ─▶ endpoint: datagrams to connections, new connections ─▶ driver: packets, timers
//!      ▲                                                                 │ connection: GOAWAY,
//!      └──── packets, many in one call (GSO) ◀───────────────────────────┤ a task for each stream
//!                                                                        ▼
//!            quic: streams of the connection ◀── directions ◀── sendoff_streams::serve
//! ```
//!
//! Memory is bounded in three places: the windows that a client gets for its requests
//! ([`settings`]), the unacknowledged bytes of a connection (twice its congestion window), and the
//! last piece of each response that waits for them, at most 64 KiB. Further bytes wait in each
//! stream's send queue, as in HTTP/1.
#![forbid(unsafe_code)]

mod connection;
mod control;
mod directions;
mod driver;
mod endpoint;
mod quic;
mod request;
mod settings;
mod steering;

pub use endpoint::{Admission, Listener, serve};
