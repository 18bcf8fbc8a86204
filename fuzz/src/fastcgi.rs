//! The promise: a stream of records gives the same records however it is cut; only stream data may
//! arrive in other pieces.

use bytes::BytesMut;
use sendoff_fastcgi::record::{BeginRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, Error, RecordPart};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<RecordPart>, Error> {
    let (mut decoder, mut buf, mut parts) = (Decoder::default(), BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while let Some(part) = decoder.next(&mut buf)? {
            join(&mut parts, part);
        }
    }
    Ok(parts)
}

fn join(parts: &mut Vec<RecordPart>, part: RecordPart) {
    if let (
        Some(RecordPart::Stream { kind, request_id, data }),
        RecordPart::Stream { kind: next_kind, request_id: next_id, data: next },
    ) = (parts.last_mut(), &part)
        && (*kind, *request_id) == (*next_kind, *next_id)
    {
        *data = [&data[..], &next[..]].concat().into();
        return;
    }
    parts.push(part);
}

/// Checks the promise for a stream, which follows the size of its pieces.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let Some((&size, wire)) = input.split_first() else { return };
    let whole = read(std::iter::once(wire));
    let cut = read(wire.chunks(usize::from(size).max(1)));
    match (whole, cut) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (whole, cut) => assert_eq!(whole.is_err(), cut.is_err()),
    }
}

/// Streams to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let record = |kind: Kind, content: &[u8]| {
        let len = u16::try_from(content.len()).unwrap_or(u16::MAX);
        [&Header::new(kind, 1, len).encode()[..], content].concat()
    };
    let begin = BeginRequest { keep_conn: true }.encode(1).to_vec();
    let params = record(Kind::PARAMS, b"\x01\x01AB\x02\x00CD");
    let input = [record(Kind::STDIN, b"some bytes"), record(Kind::STDIN, b"")].concat();
    let output = [record(Kind::STDOUT, b"A: b\r\n\r\nbody"), record(Kind::STDOUT, b"")].concat();
    let end = record(Kind::END_REQUEST, &[0; 8]);
    let streams = [
        [begin, params.clone(), record(Kind::PARAMS, b""), input].concat(),
        [output, end].concat(),
        params,
    ];
    streams.map(|stream| [&[5][..], &stream].concat()).to_vec()
}

/// Strings that streams are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\x01\x06\x00\x01\x00\x00\x00\x00",
    b"\x01\x05\x00\x01",
    b"\xff\xff",
    b"\x00\x08\x00\x00",
    b"\x01\x03",
];
