//! HPACK (RFC 7541). The client may use a dynamic table of 4,096 bytes, the initial size; the
//! server uses none: its fields differ from response to response, and each entry would cost memory
//! on idle connections.

mod decode;
mod encode;
mod static_table;

#[cfg(test)]
mod tests;

pub use decode::{Decoder, HpackError};
pub use encode::{NO_TABLE, encode, encode_trailers};
