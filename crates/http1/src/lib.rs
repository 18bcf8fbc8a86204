//! HTTP/1.1 message heads and body framing (RFC 9112): the server's side, the client's side in
//! [`client`], and the heads that applications write (RFC 3875). Request heads of HTTP/2 are
//! checked by the same rules ([`StreamHead`]). No I/O and no clock.
//!
//! A request that two recipients could read differently is refused, because request smuggling uses
//! such differences. After any [`RequestError`] the server answers with an error and closes the
//! connection.
//!
//! ```text
//!           HeadDecoder                    BodyDecoder
//!  bytes ────────────────▶ Head (framing) ─────────────▶ Data* End ──▶ the next head
//! ```
#![forbid(unsafe_code)]

mod body;
mod cgi_head;
mod cgi_head_reader;
pub mod client;
mod error;
mod field;
mod framing;
mod head;

mod request_line;
mod response;
mod response_framing;
mod stream_head;
mod target;
mod trailers;

#[cfg(test)]
mod tests;

pub use body::{BodyDecoder, Decoded};
pub use cgi_head::{BadHead, BadLine, CgiHead, MAX_HEAD as MAX_CGI_HEAD};
pub use cgi_head_reader::CgiHeadReader;
pub use error::RequestError;
pub use field::Field;
pub use framing::BodyFraming;
pub use head::{Head, HeadDecoder, Limits, MAX_FIELDS};
pub use response::{FieldLine, HeadEncoder, InvalidField};
pub use response_framing::Framing;
pub use stream_head::StreamHead;
pub use target::{Target, is_host};
pub use trailers::{Trailers, takes_trailers};
