//! HTTP/2 (RFC 9113) on the codec of `sendoff_http2`: many requests at a time on one connection,
//! each with a task of its own (`sendoff_streams`).
//!
//! ```text
//!  wire ─▶ FrameDecoder ─▶ connection: accepts streams, GOAWAY, floods
//!                           │      │ a task for each stream
//!                           ▼      ▼
//!              session: streams, windows ◀── directions ◀── sendoff_streams::serve ─▶ the handler
//!                           │
//!  wire ◀── output: frames in turn
//! ```
//!
//! Memory is bounded in three places: a stream takes only as much of its response as the client's
//! window allows, at most [`STREAM_BUFFER`](sendoff_streams::STREAM_BUFFER); all streams of a
//! connection together have at most [`settings::IN_FLIGHT`] in flight; further bytes wait in each
//! stream's send queue, as in HTTP/1. An idle connection has no buffer.
//!
//! A client may end its sending direction when it has sent its requests completely; they are
//! answered. Requests that can no longer complete are given up: a request with an incomplete body, a
//! response that waits for a window, and, as in HTTP/1, a request that waits for an application.
#![forbid(unsafe_code)]

mod connection;
mod directions;
mod fields;
mod output;
mod session;
mod settings;
mod stream;
mod wire;

pub use connection::serve;
