//! Conversion of heads between the server's form and HTTP/2's.

use bytes::{Bytes, BytesMut};
use http::Version;
use sendoff_field_section::FieldSection;
use sendoff_http2::hpack;
use sendoff_message::response::{ResponseHead, Trailers};
use sendoff_streams::{ReceivedHead, content_length, response_lines, trailer_lines};

/// Space for the field block of a usual response.
const BLOCK: usize = 256;

/// The checked head of a request; `None`: it exceeds the limit. `ends`: it has no body.
pub(super) fn received(head: Option<FieldSection>, ends: bool) -> ReceivedHead {
    let Some(head) = head else { return ReceivedHead::too_large(Version::HTTP_2) };
    ReceivedHead::of(Version::HTTP_2, head, ends)
}

/// The field block of a response head. Calls `invalid` with the name of each field that is not
/// valid and therefore left out.
pub(super) fn response(head: &ResponseHead, invalid: &mut dyn FnMut(&[u8])) -> Bytes {
    let length = content_length(head);
    let mut block = BytesMut::with_capacity(BLOCK);
    let lines = response_lines(head, length.as_deref(), invalid);
    hpack::encode(head.status, lines, &mut block);
    block.freeze()
}

/// The field block of trailers.
pub(super) fn trailers(trailers: &Trailers) -> Bytes {
    let mut block = BytesMut::new();
    hpack::encode_trailers(trailer_lines(trailers), &mut block);
    block.freeze()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

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
        let block = response(&head, &mut |name| left_out.push(name.to_vec()));
        let mut sent = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let decoded = hpack::Decoder::default()
            .decode(&block, |name, value| sent.push((text(&name), text(&value))));
        assert_eq!(decoded, Ok(()));
        let expected = [
            (":status", "200"),
            ("x-upper", "a"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("content-length", "7"),
        ];
        assert_eq!(sent, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(left_out, [b"a b".to_vec(), b"X-Split".to_vec()]);
    }
}
