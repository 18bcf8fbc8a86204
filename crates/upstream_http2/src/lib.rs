//! Applications that speak HTTP/2 (RFC 9113): connections that many requests share, or that one
//! request has for itself, and one request on a stream of its own (`docs/gateway.md`, "HTTP/2 and gRPC").
//!
//! ```text
//!  Http2Request ──▶ Connections ── place on a connection ──▶ Http2Stream ──▶ Event
//!                     │                                        │ Upload ──▶ body, trailers
//!                     └── a task per connection moves its frames (h2)
//! ```
//! The state machine of the protocol is the library `h2`. Back-pressure is its flow control: bytes of
//! a response are released when the handler takes them, and bytes of a request are read when the
//! host's windows have room.
#![forbid(unsafe_code)]

mod alone;
mod connection;
mod connections;
mod error;
mod fields;
mod request;
mod settings;
mod stream;
mod tunnel;
mod upload;
mod websocket;

pub use connections::Connections;
pub use request::{Http2Request, RequestTrailers};
pub use stream::Http2Stream;
pub use tunnel::Http2Tunnel;
pub use websocket::WebSocketOffer;
