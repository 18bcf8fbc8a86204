//! Conversion of heads between the server's form and h2's.

use bytes::Bytes;
use h2::RecvStream;
use h2::ext::Protocol;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use sendoff_http1::{Limits, StreamHead};
use sendoff_message::response::{Field, ResponseHead};
use sendoff_streams::{OF_THE_CONNECTION, ReceivedHead};

/// The checked head of a request.
pub(super) fn received(request: &mut Request<RecvStream>) -> ReceivedHead {
    let uri = request.uri();
    // `None` only if the client left the path out.
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let path = Bytes::copy_from_slice(path.as_bytes());
    let authority = uri.authority().map(|name| Bytes::copy_from_slice(name.as_str().as_bytes()));
    let (method, fields) = (request.method().clone(), std::mem::take(request.headers_mut()));
    let field_size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let size = path.len() + fields.iter().map(field_size).sum::<usize>();
    let protocol = request.extensions().get::<Protocol>();
    let protocol = protocol.map(|name| Bytes::copy_from_slice(name.as_str().as_bytes()));
    let (version, ends) = (Version::HTTP_2, request.body().is_end_stream());
    let (asked, named) = (method.clone(), path.clone());
    let head = StreamHead { version, method, path, protocol, authority, fields, ends };
    let checked = head.check(Limits::default());
    ReceivedHead { method: asked, path: named, version, size, checked }
}

/// The head of a response. Calls `invalid` with the name of each field that is not valid and
/// therefore left out.
pub(super) fn response(head: ResponseHead, invalid: &mut dyn FnMut(&[u8])) -> Response<()> {
    let mut fields = HeaderMap::with_capacity(head.fields.len() + 1);
    for (name, value) in head.fields.into_iter().map(Field::into_parts) {
        let parsed = HeaderName::from_bytes(&name).ok();
        let value = HeaderValue::from_maybe_shared(without_blanks(value)).ok();
        match (parsed, value) {
            (Some(name), _) if OF_THE_CONNECTION.contains(&name.as_str()) => {}
            (Some(name), Some(value)) => {
                fields.append(name, value);
            }
            _ => invalid(&name),
        }
    }
    if let Some(length) = head.length.filter(|_| head.status != StatusCode::NO_CONTENT) {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    let mut response = Response::new(());
    *response.status_mut() = head.status;
    *response.headers_mut() = fields;
    response
}

/// The value without blanks around it (RFC 9113 §8.2.1).
fn without_blanks(value: Bytes) -> Bytes {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let from = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let to = value.iter().rposition(|byte| !is_blank(byte)).map_or(from, |last| last + 1);
    if from == 0 && to == value.len() { value } else { value.slice(from..to) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_of_http_2_are_sent() {
        let mut head = ResponseHead::new(StatusCode::OK, Some(7));
        for (name, value) in [
            ("X-Upper", " a\t"),
            ("Connection", "close"),
            ("Keep-Alive", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Proxy-Connection", "x"),
            ("Set-Cookie", "a"),
            ("Set-Cookie", "b"),
            ("a b", "1"),
            ("X-Split", "a\r\nb: c"),
        ] {
            head.field(name, value);
        }
        let mut left_out = Vec::new();
        let response = response(head, &mut |name| left_out.push(name.to_vec()));
        let sent: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let expected =
            [("x-upper", "a"), ("set-cookie", "a"), ("set-cookie", "b"), ("content-length", "7")];
        assert_eq!(sent, expected);
        assert_eq!(left_out, [b"a b".to_vec(), b"X-Split".to_vec()]);
    }
}
