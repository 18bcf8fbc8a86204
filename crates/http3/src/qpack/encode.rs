//! Field sections of responses.

use bytes::{BufMut, BytesMut};
use http::StatusCode;
use sendoff_field_section::integer;

use super::static_table::find;

/// Appends the encoded field section (RFC 9204 §4.5) of a response: `:status`, then the fields with
/// names in lower case. The caller has validated the fields, and sends none that belongs to the
/// connection (RFC 9114 §4.2).
pub fn encode<'a>(
    status: StatusCode,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    out: &mut BytesMut,
) {
    // Required Insert Count and Base: no dynamic table.
    out.put_slice(&[0, 0]);
    line(b":status", status.as_str().as_bytes(), out);
    for (name, value) in fields {
        line(name, value, out);
    }
}

/// Appends the encoded field section of trailers (RFC 9114 §4.1), with the same duties as
/// [`encode`].
pub fn encode_trailers<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>, out: &mut BytesMut) {
    out.put_slice(&[0, 0]);
    for (name, value) in fields {
        line(name, value, out);
    }
}

fn line(name: &[u8], value: &[u8], out: &mut BytesMut) {
    match find(name, value) {
        // Indexed field line in the static table (§4.5.2).
        Some((index, true)) => return integer::encode(0xc0, 6, index, out),
        // Literal with name reference in the static table (§4.5.4).
        Some((index, false)) => integer::encode(0x50, 4, index, out),
        // Literal with literal name (§4.5.6).
        None => {
            integer::encode(0x20, 3, name.len(), out);
            let start = out.len();
            out.put_slice(name);
            out[start..].make_ascii_lowercase();
        }
    }
    integer::encode(0, 7, value.len(), out);
    out.put_slice(value);
}
