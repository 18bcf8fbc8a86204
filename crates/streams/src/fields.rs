//! The fields of responses in the form of HTTP/2 and HTTP/3, which have the same rules for them.

use http::{HeaderName, StatusCode};
use sendoff_message::response::{Field, ResponseHead, Trailers};

/// Fields about an HTTP/1 connection, which exist neither in HTTP/2 (RFC 9113 §8.2.2) nor in HTTP/3
/// (RFC 9114 §4.2). An application that sends one means its server's connection to the client, or
/// copies a field from another response.
const OF_THE_CONNECTION: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// The value of `Content-Length` of a response, if it has one.
pub fn content_length(head: &ResponseHead) -> Option<String> {
    let length = head.length.filter(|_| head.status != StatusCode::NO_CONTENT)?;
    Some(length.to_string())
}

/// Names and values of the fields of a response that can be sent, without blanks around the values
/// (RFC 9113 §8.2.1), and this length behind them. Calls `invalid` with the name of each field that
/// is not valid and therefore left out.
pub fn response_lines<'h>(
    head: &'h ResponseHead,
    length: Option<&'h str>,
    invalid: &mut dyn FnMut(&[u8]),
) -> impl Iterator<Item = (&'h [u8], &'h [u8])> {
    let own = head.fields.iter().filter_map(|field| valid(field, invalid));
    own.chain(length.map(|length| (&b"content-length"[..], length.as_bytes())))
}

/// Names and values of trailers.
pub fn trailer_lines(trailers: &Trailers) -> impl Iterator<Item = (&[u8], &[u8])> {
    trailers.fields().iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
}

/// Name and value of a field that can be sent. Calls `invalid` for an invalid field.
fn valid<'f>(field: &'f Field, invalid: &mut dyn FnMut(&[u8])) -> Option<(&'f [u8], &'f [u8])> {
    let (name, value) = (field.name(), field.value().trim_ascii());
    if OF_THE_CONNECTION.iter().any(|own| field.is(own)) {
        return None;
    }
    let is_checked = matches!(field, Field::Line(_));
    let is_value = || !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if !is_checked && (HeaderName::from_bytes(name).is_err() || !is_value()) {
        invalid(name);
        return None;
    }
    Some((name, value))
}
