//! The header of shared memory and the pieces that name bytes in it, from a worker that may say anything: what is taken
//! lies inside, and means the same when it is written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::record::{HEADER_LEN, Kind};
use sendoff_fastcgi::region::{self, Layout};

fuzz_target!(|input: ([u8; region::HEADER_LEN], [u32; 2], Vec<u8>)| {
    let (header, [chunk_size, chunks], content) = input;
    let layouts = [Layout::decode(&header), Layout::new(chunk_size, chunks)];
    for layout in layouts.into_iter().flatten() {
        assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
        let Ok(Some(Record::Piece(piece))) = Record::decode(Kind::PIECE, &content) else {
            continue;
        };
        let mut wire = Vec::new();
        Record::Piece(piece).encode(1, &mut wire);
        assert_eq!(wire[HEADER_LEN..], content);
        if let Some(range) = layout.range(piece) {
            let chunk = piece.chunk as usize * layout.chunk_size() as usize;
            assert!(range.start >= chunk && range.end <= chunk + layout.chunk_size() as usize);
            assert!(range.end <= layout.data_len() && range.len() == piece.length as usize);
        }
    }
    if let Ok(Some(record)) = Record::decode(Kind::REGION, &content) {
        assert_eq!(record, Record::Region);
        assert!(content.is_empty());
    }
});
