//! HTTP/2 (RFC 9113) on the `h2` crate: many requests at a time on one connection, each with a task
//! of its own (`sendoff_streams`).
//!
//! ```text
//!  shared_transport ⇄ h2 (frames, HPACK, windows) ─▶ connection: accepts streams, GOAWAY, floods
//!                     ▲                               │ a task for each stream
//!                     │ Given, within the limits      ▼
//!                     └── directions::Sender ◀── sendoff_streams::serve ─▶ the handler
//! ```
//!
//! Memory is bounded in three places: a stream passes to h2 only as much as the client's window
//! allows, at most [`STREAM_BUFFER`](sendoff_streams::STREAM_BUFFER); all streams of a connection together have at most
//! [`in_flight::LIMIT`] in flight; further bytes wait in each stream's send queue, as in HTTP/1.
//!
//! A client may end its sending direction when it has sent its requests completely. h2 would drop
//! all streams at this, so [`shared_transport`] hides the end from h2 until the requests are answered. Requests
//! that can no longer complete are given up: a request with an incomplete body, a response that
//! waits for a window, and, as in HTTP/1, a request that waits for an application.
#![forbid(unsafe_code)]

mod connection;
mod directions;
mod fields;
mod in_flight;
mod settings;
mod shared_transport;

pub use connection::serve;
