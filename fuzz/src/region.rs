//! The promise for the header of shared memory and the pieces that name bytes in it, from an
//! untrusted worker: accepted pieces are inside the memory, and have the same meaning after they
//! are encoded again.

use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::record::{HEADER_LEN, Kind};
use sendoff_fastcgi::region::{self, Layout};

/// Checks the promise for a header, a layout in two numbers, and the content of a piece.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    let Some((header, rest)) = input.split_first_chunk::<{ region::HEADER_LEN }>() else { return };
    let Some((numbers, content)) = rest.split_first_chunk::<8>() else { return };
    let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| numbers[at + byte]));
    let layouts = [Layout::decode(header), Layout::new(number(0), number(4))];
    for layout in layouts.into_iter().flatten() {
        assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
        let Ok(Some(Record::Piece(piece))) = Record::decode(Kind::PIECE, content) else {
            continue;
        };
        let mut wire = Vec::new();
        Record::Piece(piece).encode(1, &mut wire);
        assert_eq!(&wire[HEADER_LEN..], content);
        if let Some(range) = layout.range(piece) {
            let chunk = piece.chunk as usize * layout.chunk_size() as usize;
            assert!(range.start >= chunk && range.end <= chunk + layout.chunk_size() as usize);
            assert!(range.end <= layout.data_len() && range.len() == piece.length as usize);
        }
    }
    if let Ok(Some(record)) = Record::decode(Kind::REGION, content) {
        assert_eq!(record, Record::Region);
        assert!(content.is_empty());
    }
}

/// Inputs to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let piece = [[0; 4], [1; 4], [0; 4]].concat();
    let layouts = [(4096, 16), (65_536, 64)].into_iter().filter_map(|(chunk_size, chunks)| {
        let header = Layout::new(chunk_size, chunks).ok()?.encode();
        Some([&header[..], &chunk_size.to_le_bytes(), &chunks.to_le_bytes(), &piece].concat())
    });
    layouts.collect()
}

/// Strings that inputs are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\x00\x10\x00\x00",
    b"\x00\x00\x10\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x01",
];
