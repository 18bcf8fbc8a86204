//! Field blocks of responses: the static table and literals. Literals are not compressed by the
//! Huffman code, which would save a fifth of some 200 bytes for the work of a second copy.

use bytes::{BufMut, BytesMut};
use http::StatusCode;
use sendoff_field_section::integer;

use super::static_table::{self, Found};

/// The beginning of the next field block after the client has set the size of its dynamic table: a
/// size of 0 (RFC 7541 §4.2).
pub const NO_TABLE: u8 = 0x20;

/// Appends the field block of a response: `:status`, then the fields with names in lower case. The
/// caller has validated the fields, and sends none that belongs to the connection (RFC 9113 §8.2.2).
pub fn encode<'a>(
    status: StatusCode,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut BytesMut,
) {
    line(b":status", status.as_str().as_bytes(), out);
    encode_trailers(fields, out);
}

/// Appends the field block of trailers (RFC 9113 §8.1), with the same duties as [`encode`].
pub fn encode_trailers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>, out: &mut BytesMut) {
    for (name, value) in fields {
        line(name, value, out);
    }
}

fn line(name: &[u8], value: &[u8], out: &mut BytesMut) {
    match static_table::find(name, value) {
        // Indexed (RFC 7541 §6.1).
        Found::Line(index) => return integer::encode(0x80, 7, index, out),
        // Literal without indexing (§6.2.2).
        Found::Name(index) => integer::encode(0, 4, index, out),
        Found::Nothing => {
            out.put_u8(0);
            integer::encode(0, 7, name.len(), out);
            let start = out.len();
            out.put_slice(name);
            out[start..].make_ascii_lowercase();
        }
    }
    integer::encode(0, 7, value.len(), out);
    out.put_slice(value);
}
