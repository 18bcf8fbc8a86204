//! Blobs: stored once, named on every link, and dropped without waiting for an answer.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use crate::front::{self, Front, Seen, connect, sockets};
use rustix::io::Errno;
use sendoff_fastcgi::handover::{FileId, Record};
use sendoff_worker::{MAX_BLOB_BYTES, MAX_BLOBS, Worker};

const TEXT: &[u8] = b"written again and again";

fn open(file: FileId) -> Seen {
    Seen::Record(Record::Open(file))
}

fn segment(file: FileId, offset: u64, length: u64) -> Seen {
    Seen::Record(Record::Segment { file, offset, length })
}

fn write_blob(front: &mut Front, worker: &mut Worker, link: usize, blob: FileId) -> Vec<Seen> {
    front.links[link].ask(1);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    worker.write_file(blob, 8, 5).unwrap();
    worker.finish(0, false);
    front.links[link].response()
}

fn contents(fd: &OwnedFd) -> Vec<u8> {
    let file = File::from(fd.try_clone().unwrap());
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A worker with a guard and a helper thread, and one without them.
fn workers() -> [(Front, Worker); 2] {
    let (front, links, _guard) = sockets(2);
    [connect(2), (front, Worker::new(links, None).unwrap())]
}

#[test]
fn a_blob_is_opened_once_on_each_link_and_released_on_those() {
    for (mut front, mut worker) in workers() {
        let blob = worker.blob_store(TEXT).unwrap();
        for is_known in [false, true] {
            let mut expected = vec![
                Seen::Record(Record::Length(5)),
                Seen::Stdout(b"\r\n".to_vec()),
                open(blob),
                segment(blob, 8, 5),
                Seen::End(0),
            ];
            expected.retain(|seen| !is_known || *seen != open(blob));
            assert_eq!(write_blob(&mut front, &mut worker, 0, blob), expected);
        }
        worker.file_drop(blob);
        assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Release(blob))));
        let given = front.links[0].fds.pop_front().unwrap();
        assert_eq!(contents(&given), TEXT, "the front's descriptor outlives the blob");
        assert!(sendoff_sys::memfd::is_final(&given));
        // The front has not answered, and the id is not reused.
        let next = worker.blob_store(TEXT).unwrap();
        assert_ne!(next, blob);
        assert!(!worker.file_use(blob));
        assert!(write_blob(&mut front, &mut worker, 1, next).contains(&open(next)));
        worker.file_drop(next);
        assert_eq!(front.links[1].next(), Some(Seen::Record(Record::Release(next))));
        drop(worker);
        assert_eq!(front.links[0].next(), None, "a link that does not know a blob hears nothing");
    }
}

#[test]
fn a_blob_dropped_in_the_middle_of_a_response_is_sent_first() {
    let (mut front, mut worker) = connect(1);
    front.links[0].ask(1);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    let blob = worker.blob_store(TEXT).unwrap();
    worker.write_file(blob, 0, 3).unwrap();
    worker.file_drop(blob);
    assert!(worker.write_file(blob, 0, 3).is_err());
    worker.write(b"!").unwrap();
    worker.finish(0, false);
    let expected = [
        Seen::Stdout(b"\r\n".to_vec()),
        open(blob),
        segment(blob, 0, 3),
        Seen::Record(Record::Release(blob)),
        Seen::Stdout(b"!".to_vec()),
        Seen::End(0),
    ];
    assert_eq!(front.links[0].response(), expected);
    assert_eq!(contents(&front.links[0].fds[0]), TEXT);
}

#[test]
fn a_front_that_takes_no_files_gets_the_bytes() {
    let (mut front, mut worker) = connect(1);
    let blob = worker.blob_store(TEXT).unwrap();
    let wire = front::request(1, &[("SENDOFF_ACCEPT", "nothing")], b"");
    front.links[0].send(&wire);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    worker.write_file(blob, 8, 5).unwrap();
    assert!(worker.write_file(blob, 8, 500).is_err());
    worker.finish(0, false);
    let response = front.links[0].response();
    assert!(response.contains(&Seen::Stdout(b"\r\nagain".to_vec())), "{response:?}");
}

#[test]
fn number_and_bytes_are_limited() {
    let (_front, mut worker) = connect(1);
    let full = |error: std::io::Error| error.raw_os_error() == Some(Errno::NOSPC.raw_os_error());
    let all: Vec<_> = (0..MAX_BLOBS).map(|_| worker.blob_store(b"x").unwrap()).collect();
    assert!(full(worker.blob_store(b"x").unwrap_err()));
    worker.file_drop(all[3]);
    worker.blob_store(b"x").unwrap();
    all.iter().for_each(|blob| worker.file_drop(*blob));
    let half = vec![b'x'; usize::try_from(MAX_BLOB_BYTES / 2).unwrap()];
    worker.blob_store(&half).unwrap();
    assert!(full(worker.blob_store(&half).unwrap_err()), "one byte is left from before");
    worker.blob_store(&half[1..]).unwrap();
    assert!(worker.blob_store(b"").is_err());
}
