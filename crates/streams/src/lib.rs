//! Requests that have a stream each: the part that HTTP/2 and HTTP/3 share. A protocol accepts
//! streams, reads the head of each request, and calls [`serve`] with the two directions of its
//! stream; this crate reads the body, calls the handler, and is the sink for the response.
//!
//! ```text
//!  connection (http2_server, http3_server): accepts streams, GOAWAY, floods
//!     │ a task for each stream          ▲
//!     ▼                                 │ ResponseSender, within the client's window
//!   serve ─ reads RequestBody ─▶ handler ─▶ exchange: Sink, a send queue
//! ```
#![forbid(unsafe_code)]

mod directions;
mod drain;
mod exchange;
mod fields;
mod received_head;
mod response_stream;
mod stream;
mod streams;
mod tunnel;

pub use directions::{RequestBody, ResponseSender, StreamGone};
pub use drain::{DrainStage, DrainStep, GOAWAY_TIME};
pub use fields::{content_length, response_lines, trailer_lines};
pub use received_head::ReceivedHead;
pub use stream::serve;
pub use streams::{Penalty, StreamGuard, Streams};

/// The most bytes of one response that its protocol keeps until the network takes them.
pub const STREAM_BUFFER: usize = 64 * 1024;
