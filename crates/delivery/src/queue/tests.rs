//! Tests of the send queue.

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use sendoff_transport::{Tcp, Transport};

use super::*;
use crate::segment::OpenFile;
use crate::snapshots::{Identity, SnapshotLimits, Snapshots};

#[test]
fn many_small_pieces_go_to_the_spool_as_one() {
    let mut queue = SendQueue::default();
    for _ in 0..100 * MEMORY_PIECES {
        queue.push_bytes(Bytes::from_static(b"x")).unwrap();
    }
    assert!(queue.segments.len() <= MEMORY_PIECES + 1);
    assert!(queue.has_room());
}

/// A client that takes the queue at once needs no spool file.
#[test]
fn the_end_of_a_chunk_stays_with_it() {
    let mut queue = SendQueue::default();
    queue.push_bytes(vec![0; MEMORY_LIMIT].into()).unwrap();
    queue.push_bytes(Bytes::from_static(b"\r\n")).unwrap();
    assert!(queue.is_long() && queue.spool.is_none());
    queue.push_bytes(Bytes::from_static(b"5\r\n")).unwrap();
    queue.push_bytes(Bytes::from_static(b"hello")).unwrap();
    assert_eq!(queue.segments.len(), 3);
}

#[test]
fn files_cannot_be_queued_for_ever() {
    let mut queue = SendQueue::default();
    let file = OpenFile::new(std::fs::File::open("/dev/null").unwrap().into());
    let mut queued = 0;
    while queue.has_room() {
        queue.push_file(FileSegment { file: Rc::clone(&file), offset: 0, len: 1 });
        queued += 1;
        assert!(queued <= MAX_QUEUED);
    }
}

/// 1,000 slow readers of generated pages would otherwise keep 256 MB.
#[tokio::test(flavor = "current_thread")]
async fn what_a_slow_client_does_not_take_leaves_memory() {
    let (file, _path, _worker) = leased(b"between");
    let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
    let contents = numbers(2 * MEMORY_LIMIT);
    let push = |queue: &mut SendQueue, expected: &mut Vec<u8>| {
        for piece in contents.chunks(5000) {
            queue.push_bytes(Bytes::copy_from_slice(piece)).unwrap();
            expected.extend_from_slice(piece);
        }
    };
    queue.push_bytes(Bytes::from_static(b"head")).unwrap();
    queue.push_file(FileSegment { file, offset: 0, len: 7 });
    expected.extend_from_slice(b"headbetween");
    push(&mut queue, &mut expected);
    assert!(
        queue.in_memory.bytes() >= MEMORY_LIMIT
            && in_memory::of_this_loop() == queue.in_memory.bytes()
    );
    queue.note_slow();
    push(&mut queue, &mut expected);
    assert_eq!(
        (queue.in_memory.bytes(), in_memory::of_this_loop(), queue.segments.len()),
        (0, 0, 5)
    );
    assert!(queue.is_long());
    assert!(deliver(&mut queue).await == expected);
    assert!(!queue.is_long(), "it has caught up");
    queue.push_bytes(Bytes::from_static(b"next")).unwrap();
    assert_eq!(in_memory::of_this_loop(), 4);
    drop(queue);
    assert_eq!(in_memory::of_this_loop(), 0);
}

#[test]
fn each_queue_keeps_little_when_all_together_keep_much() {
    let page = || {
        let mut queue = SendQueue::default();
        for _ in 0..25 {
            queue.push_bytes(vec![0; 8000].into()).unwrap();
        }
        queue
    };
    let queues: Vec<_> = (0..400).map(|_| page()).collect();
    assert!(queues[0].spool.is_none() && queues[399].spool.is_some());
    assert!(
        in_memory::of_this_loop() < in_memory::LOOP_LIMIT + 400 * (SMALL_LIMIT + 8000),
        "{}",
        in_memory::of_this_loop()
    );
    drop(queues);
    assert!(page().spool.is_none());
}

/// A client's connection, and the client.
fn connection() -> (Tcp, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let server = tokio::net::TcpStream::from_std(server).unwrap();
    (Tcp::new(server), client)
}

/// Sends the whole queue, while a client reads it.
async fn deliver(queue: &mut SendQueue) -> Vec<u8> {
    let (mut socket, mut client) = connection();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).unwrap();
        all
    });
    while queue.try_send(&mut socket).unwrap() != Progress::Done {
        poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
    }
    drop(socket);
    reader.join().unwrap()
}

fn numbers(len: usize) -> Vec<u8> {
    (0_u64..).flat_map(u64::to_be_bytes).take(len).collect()
}

/// A leased file with these contents, its path and a descriptor like the worker's.
fn leased(contents: &[u8]) -> (Rc<OpenFile>, tempfile::TempPath, OwnedFd) {
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::write(&path, contents).unwrap();
    let file = OwnedFd::from(std::fs::File::open(&path).unwrap());
    sendoff_sys::lease::take(file.as_fd(), rustix::thread::gettid()).unwrap();
    let identity = Identity::new(&rustix::fs::fstat(&file).unwrap());
    let workers = file.try_clone().unwrap();
    let snapshots = Snapshots::new(SnapshotLimits::default());
    (OpenFile::guarded(file, identity, &snapshots), path, workers)
}

#[tokio::test(flavor = "current_thread")]
async fn bytes_files_and_spooled_bytes_arrive_in_order() {
    let contents = numbers(3_000_000);
    let (file, _path, _worker) = leased(&contents);
    let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
    for round in 0..2000_usize {
        let bytes = numbers(round);
        expected.extend_from_slice(&bytes);
        queue.push_bytes(bytes.into()).unwrap();
        if round % 500 == 0 {
            let range = round * 100..contents.len() - round;
            expected.extend_from_slice(&contents[range.clone()]);
            let (offset, len) = (range.start as u64, range.len() as u64);
            queue.push_file(FileSegment { file: Rc::clone(&file), offset, len });
        }
    }
    assert!(queue.spool.is_some());
    assert!(deliver(&mut queue).await == expected);
    assert!(queue.is_empty() && queue.spool.is_none() && queue.in_memory.bytes() == 0);
}

#[test]
fn what_is_taken_is_in_order_and_not_more_than_asked_for() {
    let contents = numbers(1_000_000);
    let (leased, _path, _worker) = leased(&contents);
    let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
    std::fs::write(&path, &contents).unwrap();
    let last = OpenFile::new(std::fs::File::open(&path).unwrap().into());
    let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
    for file in [&leased, &last] {
        for round in 0..700_usize {
            let bytes = numbers(round);
            expected.extend_from_slice(&bytes);
            queue.push_bytes(bytes.into()).unwrap();
        }
        let range = 777..contents.len() - 777;
        expected.extend_from_slice(&contents[range.clone()]);
        let (offset, len) = (range.start as u64, range.len() as u64);
        queue.push_file(FileSegment { file: Rc::clone(file), offset, len });
    }
    assert!(queue.spool.is_some());
    let mut taken = Vec::new();
    for most in (1..).map(|round| round * 1000 % 65_537) {
        let at_most = queue.at_most(most);
        let piece = queue.take(most).unwrap();
        assert!(piece.remaining() <= at_most && at_most <= most);
        assert!(piece.has_remaining() || queue.is_empty());
        taken.extend_from_slice(&bytes_of(piece));
        if queue.is_empty() {
            break;
        }
    }
    assert!(taken == expected && queue.spool.is_none());
    assert_eq!(in_memory::of_this_loop(), 0);
}

fn bytes_of(mut piece: Piece) -> Bytes {
    piece.copy_to_bytes(piece.remaining())
}

#[test]
fn nothing_is_taken_of_a_leased_file_that_changes() {
    let contents = numbers(100_000);
    let (file, path, worker) = leased(&contents);
    let mut queue = SendQueue::default();
    queue.push_file(FileSegment { file, offset: 0, len: contents.len() as u64 });
    assert!(bytes_of(queue.take(50_000).unwrap()) == contents[..50_000]);
    sendoff_sys::lease::give_up(worker.as_fd()).unwrap();
    std::fs::write(&path, vec![b'!'; 100_000]).unwrap();
    assert_eq!(queue.take(50_000).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    // A static file may change its contents, but becoming shorter is an error.
    let file = OpenFile::new(std::fs::File::open(&path).unwrap().into());
    queue = SendQueue::default();
    queue.push_file(FileSegment { file, offset: 99_999, len: 2 });
    assert!(bytes_of(queue.take(1).unwrap()) == b"!"[..]);
    assert_eq!(queue.take(10).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

/// Bytes that the client has not taken when the lease ends are lost; the bytes it gets before
/// are correct.
#[tokio::test(flavor = "current_thread")]
async fn a_leased_file_that_changes_is_cut() {
    let contents = numbers(20_000_000);
    let (file, path, worker) = leased(&contents);
    let (mut socket, mut client) = connection();
    let mut queue = SendQueue::default();
    queue.push_file(FileSegment { file, offset: 0, len: contents.len() as u64 });
    poll_fn(|cx| socket.poll_writable(cx)).await.unwrap();
    while queue.try_send(&mut socket).unwrap() == Progress::Yield {}
    sendoff_sys::lease::give_up(worker.as_fd()).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all(&[b'!'; 20_000_000])
        .unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        (client.read_to_end(&mut all).unwrap_err(), all)
    });
    let error = loop {
        match queue.try_send(&mut socket) {
            Ok(_) => poll_fn(|cx| socket.poll_writable(cx)).await.unwrap(),
            Err(error) => break error,
        }
    };
    let name = path.to_str().unwrap();
    assert!(error.to_string().contains(name), "{error} does not name {name}");
    drop((queue, socket));
    let (end, all) = reader.join().unwrap();
    assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
    assert!(all.len() < contents.len() && contents.starts_with(&all));
}

#[test]
fn lines_are_gathered_before_they_are_written() {
    let mut spool = Spool::default();
    let line = [b'x'; 1000];
    for _ in 0..GATHER / line.len() {
        spool.append(&line);
    }
    assert!(matches!(spool.read(0), Some(Spooled::InMemory(_))), "a short spool needs no file");
    spool.append(&line);
    match spool.read(500) {
        Some(Spooled::InFile(_, len)) => {
            assert_eq!(len, (GATHER / line.len() * 1000 - 500) as u64);
        }
        other => panic!("{other:?}"),
    }
    let end = spool.stored();
    assert!(matches!(spool.read(end - 1), Some(Spooled::InMemory(b"x"))));
    assert!(spool.read(end).is_none());
}
