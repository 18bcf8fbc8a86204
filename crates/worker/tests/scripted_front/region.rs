//! Body bytes in shared memory, with the front scripted.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use crate::front::{Link, Seen, connect, push, request_accepting};
use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::record::Kind;
use sendoff_fastcgi::region::{DATA_AT, Layout, Piece, RETURNS_AT};
use sendoff_sys::shared::{Reader, Shape, Slice};
use sendoff_worker::{Gone, Worker};

const CHUNK: usize = 64 * 1024;
const CHUNKS: u32 = 64;

/// The front's view of a region.
struct Region {
    memory: Arc<Reader>,
    layout: Layout,
    returned: Vec<u32>,
}

impl Region {
    fn map(link: &mut Link) -> Self {
        let fd = link.fds.pop_front().expect("REGION brings a descriptor");
        let layout = Layout::decode(&Reader::header(fd.as_fd()).unwrap()).unwrap();
        assert_eq!((layout.chunk_size() as usize, layout.chunks()), (CHUNK, CHUNKS));
        let (counters, data_len) = (layout.chunks(), layout.data_len());
        let shape = Shape { counters_at: RETURNS_AT, counters, data_at: DATA_AT, data_len };
        let memory = Arc::new(Reader::map(fd.as_fd(), shape).unwrap());
        Self { memory, layout, returned: vec![0; counters as usize] }
    }

    fn bytes(&self, piece: Piece) -> Vec<u8> {
        let range = self.layout.range(piece).expect("a piece inside its chunk");
        Slice::new(Arc::clone(&self.memory), range, ()).unwrap().as_ref().to_vec()
    }

    fn give_back(&mut self, chunk: u32) {
        self.returned[chunk as usize] += 1;
        self.memory.set_counter(chunk, self.returned[chunk as usize]);
    }
}

/// A response, and the transport of its parts.
#[derive(Default)]
struct Response {
    bytes: Vec<u8>,
    /// Start of each piece in `bytes`.
    pieces: Vec<(usize, Piece)>,
    length: Option<u64>,
}

impl Response {
    /// Chunks whose last piece has arrived.
    fn ended(&self) -> Vec<u32> {
        self.pieces.iter().filter(|(_, piece)| piece.last).map(|(_, piece)| piece.chunk).collect()
    }

    fn lent(&self) -> usize {
        self.pieces.iter().map(|(_, piece)| piece.length as usize).sum()
    }
}

/// Reads a response. With `return_at_once` chunks are returned immediately, as for a fast client.
fn response(link: &mut Link, region: &mut Option<Region>, return_at_once: bool) -> Response {
    let mut response = Response::default();
    loop {
        match link.next().expect("the worker closed the link") {
            Seen::Stdout(bytes) => response.bytes.extend(bytes),
            Seen::Record(Record::Length(length)) => response.length = Some(length),
            Seen::Record(Record::Region) => {
                assert!(region.is_none(), "announced twice");
                *region = Some(Region::map(link));
            }
            Seen::Record(Record::Piece(piece)) => {
                let region = region.as_mut().expect("announced before the first piece");
                response.pieces.push((response.bytes.len(), piece));
                response.bytes.extend(region.bytes(piece));
                if return_at_once && piece.last {
                    region.give_back(piece.chunk);
                }
            }
            Seen::End(0) => return response,
            other => panic!("{other:?}"),
        }
    }
}

fn ask(link: &mut Link, id: u16) {
    link.send(&request_accepting("file region", id, &[("REQUEST_METHOD", "GET")], b""));
}

fn bytes(len: usize) -> Vec<u8> {
    (0..u32::try_from(len).unwrap()).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Answers with the given pieces.
fn answer(worker: &mut Worker, pieces: &[&[u8]]) {
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    pieces.iter().for_each(|piece| worker.write(piece).unwrap());
    worker.finish(0, false);
}

#[test]
fn bodies_of_all_sizes_arrive_whole_and_every_chunk_is_given_away() {
    let sizes = [0, 1, 32_767, 32_768, 65_535, 65_536, 65_537, 200_000, 4_000_000];
    let body = bytes(4_000_000);
    for step in [1000, 4096, 30_000, 65_536, usize::MAX] {
        let (mut front, mut worker) = connect(1);
        let (link, mut region) = (&mut front.links[0], None);
        let written = body.clone();
        let writer = thread::spawn(move || {
            for size in sizes {
                answer(&mut worker, &written[..size].chunks(step).collect::<Vec<_>>());
            }
            worker
        });
        for (id, size) in (1..).zip(sizes) {
            ask(link, id);
            let response = response(link, &mut region, true);
            assert!(response.bytes == [b"\r\n", &body[..size]].concat(), "{size} by {step}");
            let chunks = response.ended();
            let lent = response.pieces.iter().filter(|(_, piece)| piece.offset == 0).count();
            assert!(chunks.len() == lent, "{size} by {step}: {:?}", response.pieces);
            let expected = if size < 32_768 { 0..=0 } else { size.saturating_sub(64_000)..=size };
            assert!(expected.contains(&response.lent()), "{size} by {step}: {}", response.lent());
        }
        writer.join().unwrap();
    }
}

/// The first 32 KiB of small pieces are sent in records: a response that ends within them has a
/// length.
#[test]
fn framing_does_not_depend_on_the_way() {
    for accept in ["file", "file region"] {
        for (sizes, length) in [
            (&[32_700][..], None),
            (&[16_000, 16_000], Some(32_000)),
            (&[16_383, 16_000, 5_000, 70_000], None),
            (&[40_000], None),
            (&[100], Some(100)),
        ] {
            let (mut front, mut worker) = connect(1);
            let pairs = [("REQUEST_METHOD", "GET")];
            front.links[0].send(&request_accepting(accept, 1, &pairs, b""));
            let body: Vec<_> = sizes.iter().map(|&size| bytes(size)).collect();
            answer(&mut worker, &body.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let response = response(&mut front.links[0], &mut None, true);
            assert_eq!(response.length, length, "{accept}: {sizes:?}");
            assert!(response.bytes == [b"\r\n", &body.concat()[..]].concat());
        }
    }
}

/// A file's bytes are not generated: even a long file keeps the announced length.
#[test]
fn text_around_a_file_keeps_the_length() {
    for accept in ["file", "file region"] {
        for [before, after] in [[0, 100], [16_000, 0], [16_000, 16_000]] {
            let (mut front, mut worker) = connect(1);
            let file = worker.blob_store(&[b'x'; 40_000]).unwrap();
            let pairs = [("REQUEST_METHOD", "GET")];
            front.links[0].send(&request_accepting(accept, 1, &pairs, b""));
            assert!(worker.accept());
            worker.write_head(b"\r\n").unwrap();
            worker.write(&bytes(before)).unwrap();
            worker.write_file(file, 0, 40_000).unwrap();
            worker.write(&bytes(after)).unwrap();
            worker.finish(0, false);
            let length = Seen::Record(Record::Length((before + 40_000 + after) as u64));
            assert_eq!(front.links[0].next(), Some(length), "{accept}: {before}, {after}");
        }
    }
}

/// An application that flushes writes small pieces: output after a flush is sent in records until
/// it is large again.
#[test]
fn after_a_flush_little_is_not_lent() {
    let (mut front, mut worker) = connect(1);
    ask(&mut front.links[0], 1);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    worker.write(&bytes(60_000)).unwrap();
    for _ in 0..3 {
        worker.flush().unwrap();
        worker.write(b"tick").unwrap();
    }
    worker.write(&bytes(60_000)).unwrap();
    worker.finish(0, false);
    let response = response(&mut front.links[0], &mut None, true);
    let ticks = b"tick".repeat(3);
    assert!(response.bytes == [b"\r\n", &bytes(60_000)[..], &ticks, &bytes(60_000)].concat());
    assert_eq!(response.lent(), 120_000);
}

#[test]
fn a_large_head_travels_in_records() {
    let (mut front, mut worker) = connect(1);
    ask(&mut front.links[0], 1);
    assert!(worker.accept());
    worker.write_head(&[b'h'; 40_000]).unwrap();
    worker.write(&[b'b'; 40_000]).unwrap();
    worker.finish(0, false);
    let response = response(&mut front.links[0], &mut None, true);
    assert_eq!((response.bytes.len(), response.pieces[0].0), (80_000, 40_000));
}

/// The request does not announce `region`.
#[test]
fn without_the_word_there_is_no_region() {
    let (mut front, mut worker) = connect(1);
    front.links[0].send(&request_accepting("file", 1, &[("REQUEST_METHOD", "GET")], b""));
    answer(&mut worker, &[&[b'x'; 100_000]]);
    let response = response(&mut front.links[0], &mut None, true);
    assert_eq!((response.bytes.len(), response.pieces.len()), (100_002, 0));
}

/// The front's clients accept nothing: the worker uses 4 MiB of chunks, then records, and chunks
/// again after their return.
#[test]
fn when_no_chunk_is_free_bytes_go_over_the_link() {
    let (mut front, mut worker) = connect(1);
    let (link, mut region) = (&mut front.links[0], None);
    let body = bytes(5 << 20);
    let written = body.clone();
    let writer = thread::spawn(move || {
        for _ in 0..3 {
            answer(&mut worker, &[&written]);
        }
        worker
    });
    ask(link, 1);
    let first = response(link, &mut region, false);
    assert_eq!(first.lent(), CHUNK * CHUNKS as usize);
    assert!(first.bytes[2..] == body);
    ask(link, 2);
    let second = response(link, &mut region, false);
    assert!(second.pieces.is_empty() && second.bytes[2..] == body);
    region.as_mut().unwrap().give_back(40);
    region.as_mut().unwrap().give_back(7);
    ask(link, 3);
    let third = response(link, &mut region, false);
    let chunks: Vec<_> = third.pieces.iter().map(|(_, piece)| piece.chunk).collect();
    assert_eq!(chunks, [7, 40], "the lowest first");
    assert!(third.bytes[2..] == body);
    writer.join().unwrap();
}

/// A short response is sent in one message; a long one wakes the front at growing intervals.
#[test]
fn announcements_grow_with_the_response() {
    let (mut front, mut worker) = connect(1);
    let link = &mut front.links[0];
    ask(link, 1);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    worker.write(&[b'x'; CHUNK]).unwrap();
    let (mut lent, mut told, mut announced) = (CHUNK, 0, Vec::new());
    while announced.len() < 6 {
        worker.write(&[b'x'; 1024]).unwrap();
        if link.has_more() {
            announced.push(lent - told);
            told = lent;
            let mut seen = 0;
            while link.has_more() {
                if let Seen::Record(Record::Piece(piece)) = link.next().unwrap() {
                    seen += piece.length as usize;
                }
            }
            assert_eq!(seen, announced[announced.len() - 1]);
        }
        lent += 1024;
    }
    assert_eq!(announced, [128, 128, 256, 512, 512, 512].map(|kib| kib * 1024));
    worker.flush().unwrap();
    assert!(link.has_more(), "the last write");
}

/// Records of every kind keep the order of the calls.
#[test]
fn log_lines_and_flushes_do_not_change_the_order() {
    let (mut front, mut worker) = connect(1);
    ask(&mut front.links[0], 1);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    let body = bytes(300_000);
    let mut rest = &body[..];
    for size in [40_000, 10, 20_000, 1, 100_000, 5].into_iter().cycle().take(12) {
        let (now, later) = rest.split_at(size.min(rest.len()));
        worker.write(now).unwrap();
        if size == 10 {
            worker.log(b"a line");
        } else if size == 1 {
            worker.flush().unwrap();
        }
        rest = later;
    }
    worker.write(rest).unwrap();
    worker.finish(0, false);
    let (mut region, mut seen) = (None, Vec::new());
    loop {
        match front.links[0].next().unwrap() {
            Seen::Stdout(bytes) => seen.extend(bytes),
            Seen::Stderr(line) => assert_eq!(line, b"a line\n"),
            Seen::Record(Record::Region) => region = Some(Region::map(&mut front.links[0])),
            Seen::Record(Record::Piece(piece)) => {
                seen.extend(region.as_ref().unwrap().bytes(piece));
            }
            Seen::End(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen[2..] == body);
}

/// The client leaves at any point: afterwards all chunks can be lent again.
#[test]
fn an_aborted_response_gives_its_chunks_away() {
    let (mut front, mut worker) = connect(1);
    let (link, mut region) = (&mut front.links[0], None);
    let mut id = 0;
    for round in 0..300 {
        id += 1;
        ask(link, id);
        assert!(worker.accept());
        worker.write_head(b"\r\n").unwrap();
        // Parts of it are announced, in the queue, and in an incomplete chunk.
        for size in [40_000, 1000, 70_000].into_iter().take(round % 4) {
            worker.write(&[b'x'; 100_000][..size]).unwrap();
        }
        let mut abort = Vec::new();
        push(&mut abort, Kind::ABORT_REQUEST, id, &[]);
        link.send(&abort);
        if round % 3 == 0 {
            assert!(worker.aborted());
        }
        assert_eq!(worker.flush(), Err(Gone));
        worker.finish(0, false);
        response(link, &mut region, true);
    }
    ask(link, id + 1);
    let writer = thread::spawn(move || answer(&mut worker, &[&bytes(5 << 20)]));
    let last = response(link, &mut region, false);
    assert_eq!(last.lent(), CHUNK * CHUNKS as usize, "chunks are missing");
    writer.join().unwrap();
}

/// Each link has its own region.
#[test]
fn links_do_not_share_chunks() {
    let (mut front, mut worker) = connect(2);
    let mut regions = [None, None];
    for id in 1..5 {
        let at = usize::from(id) % 2;
        ask(&mut front.links[at], id);
        answer(&mut worker, &[&[id.to_le_bytes()[0]; 50_000]]);
        let response = response(&mut front.links[at], &mut regions[at], true);
        assert_eq!(response.ended(), [0]);
        assert!(response.bytes[2..] == [id.to_le_bytes()[0]; 50_000]);
    }
}
