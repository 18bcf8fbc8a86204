//! The promise: a stream of requests gives the same heads and bodies, or the same refusal, however
//! it is cut.

use bytes::BytesMut;
use sendoff_http1::{BodyDecoder, Decoded, HeadDecoder, Limits, RequestError};

type Request = (Vec<u8>, Vec<(String, Vec<u8>)>, Vec<u8>);

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Request>, Result<Vec<u8>, u16>) {
    let mut seen = Vec::new();
    let rest = read_into(pieces, &mut seen).map_err(|error| error.status().as_u16());
    (seen, rest)
}

fn read_into<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    seen: &mut Vec<Request>,
) -> Result<Vec<u8>, RequestError> {
    let mut heads = HeadDecoder::new(Limits { request_line: 200, head: 1000 });
    let (mut body, mut buf) = (None::<BodyDecoder>, BytesMut::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let Some(decoder) = &mut body else {
                let Some(head) = heads.next(&mut buf)? else { break };
                body = Some(BodyDecoder::new(head.framing, 1000)?);
                let fields: Vec<_> = head
                    .headers
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                    .collect();
                assert!(fields.iter().all(|(_, v)| !v.iter().any(|b| b"\r\n\0".contains(b))));
                seen.push((head.target.raw().to_vec(), fields, Vec::new()));
                continue;
            };
            match decoder.decode(&mut buf)? {
                Decoded::Data(data) => {
                    assert!(!data.is_empty());
                    if let Some((_, _, body)) = seen.last_mut() {
                        body.extend_from_slice(&data);
                    }
                }
                Decoded::NeedMore => break,
                Decoded::End => body = None,
            }
        }
    }
    Ok(buf.to_vec())
}

/// Checks the promise for a stream, which follows the size of its pieces.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let Some((&size, wire)) = input.split_first() else { return };
    // The cuts may decide which of two refusals comes first, and how much of a body precedes it.
    let (whole, rest) = read(std::iter::once(wire));
    let (cut, cut_rest) = read(wire.chunks(usize::from(size).max(1)));
    assert_eq!(rest.is_ok(), cut_rest.is_ok());
    if rest.is_ok() {
        assert_eq!((whole, rest), (cut, cut_rest));
    }
}

/// Streams to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let streams: [&[u8]; 5] = [
        b"\x03GET /a?b HTTP/1.1\r\nHost: h:80\r\nX: 1\r\nX:\t2 \r\nEmpty:\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        b"\x05POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello\r\n",
        b"\x01PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3 ;a=\"b\"\r\nabc\r\n00A\r\n\
          0123456789\r\n0\r\nTrailer: x\r\n\r\n",
        b"\x07GET http://u.x:8/ HTTP/1.9\r\nHost: [::1]\r\nConnection: close, x\r\n\r\n",
        b"\x10OPTIONS * HTTP/1.1\r\nHost: [v1.a]\r\nAuthorization: Basic a\r\n\r\n",
    ];
    streams.map(<[u8]>::to_vec).to_vec()
}

/// Strings that streams are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 3\r\n",
    b"Host: h\r\n",
    b"GET / HTTP/1.1\r\n",
    b"HEAD ",
    b"Expect:",
    b"100-continue",
    b"Connection: keep-alive\r\n",
    b"\x80\xff",
    b"ffffffffffffffff",
    b"18446744073709551615",
];
