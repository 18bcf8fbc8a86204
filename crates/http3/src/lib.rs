//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) for a server: frames, settings and field sections. No I/O
//! and no clock: the server passes in the bytes of each stream and sends the bytes that it gets.
//!
//! ```text
//!                                      Head, Trailers
//!  request stream ──▶ RequestDecoder ──▶ qpack::decode, qpack::trailers ──▶ fields
//!                                    ──▶ Data
//!  control stream ──▶ ControlDecoder ──▶ Settings, GoAway, ...
//!  response ──▶ qpack::encode ──▶ frame::headers, frame::data_header ──▶ request stream
//! ```
//! The capacity of the dynamic table is 0 in both directions. No field section waits for another
//! stream, and no memory is kept for a client between requests.
#![forbid(unsafe_code)]

mod code;
pub mod frame;
pub mod qpack;
mod stream_type;
pub mod varint;

pub use code::Code;
pub use frame::{Control, ControlDecoder, RequestDecoder, RequestPart, Settings};
pub use stream_type::StreamType;
