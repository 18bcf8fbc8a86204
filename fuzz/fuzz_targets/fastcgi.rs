//! However a stream of records is cut, the same records come out; streams may come in other pieces.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use sendoff_fastcgi::{Decoder, Error, Part};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Part>, Error> {
    let (mut decoder, mut buf, mut parts) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while let Some(part) = decoder.next(&mut buf)? {
            join(&mut parts, part);
        }
    }
    Ok(parts)
}

fn join(parts: &mut Vec<Part>, part: Part) {
    if let (
        Some(Part::Stream { kind, request_id, data }),
        Part::Stream { kind: next_kind, request_id: next_id, data: next },
    ) = (parts.last_mut(), &part)
        && (*kind, *request_id) == (*next_kind, *next_id)
    {
        *data = [&data[..], &next[..]].concat().into();
        return;
    }
    parts.push(part);
}

fuzz_target!(|input: (u8, &[u8])| {
    let (size, wire) = input;
    let whole = read(std::iter::once(wire));
    let cut = read(wire.chunks(usize::from(size).max(1)));
    match (whole, cut) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (whole, cut) => assert_eq!(whole.is_err(), cut.is_err()),
    }
});
