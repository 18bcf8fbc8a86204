//! The part of field sections that HTTP/2 (RFC 9113) and HTTP/3 (RFC 9114) share: the integers and
//! the Huffman code of HPACK and QPACK, and the rules for the fields of requests. No I/O.
#![forbid(unsafe_code)]

pub mod huffman;
pub mod integer;
mod section;

pub use section::{FieldError, FieldSection, SectionBuilder, TrailersBuilder};
