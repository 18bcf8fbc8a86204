//! However a stream of requests is cut, the same heads and bodies come out, or the same refusal.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
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

fuzz_target!(|input: (u8, &[u8])| {
    let (size, wire) = input;
    // Which of two refusals comes first, and how much of a body came before it, may depend on the cuts.
    let (whole, rest) = read(std::iter::once(wire));
    let (cut, cut_rest) = read(wire.chunks(usize::from(size).max(1)));
    assert_eq!(rest.is_ok(), cut_rest.is_ok());
    if rest.is_ok() {
        assert_eq!((whole, rest), (cut, cut_rest));
    }
});
