//! Workers that a hostile script has taken over: the resources that they can occupy in the front
//! are bounded.

use std::io::Write;

use sendoff_delivery::{SnapshotLimits, Snapshots};
use sendoff_fastcgi::handover::FileId;

use super::*;

/// A file of this size is not kept in memory; the test gives up after `FILES` of them.
const SIZE: usize = 70_000;
const FILES: u32 = 5000;

/// A link with a request, its worker, and the worker's guard socket, which it never reads.
async fn taken_over() -> (Rc<Links>, WorkerExchange, UnixStream, OwnedFd) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let (guard, workers) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let pool = LocalPool::new(Pool::new(1));
    let origin = LinkOrigin::Pool { pool: 0, worker: WorkerId(0) };
    let new = NewLink { origin, pid: 1, number: 0, socket: ours.into(), guard };
    let snapshots = Snapshots::new(SnapshotLimits::default());
    Link::start(new, 0, slice::from_ref(&pool), &Rc::default(), &snapshots).unwrap();
    let LocalPool { shared: pool, links, .. } = pool;
    let exchange = begin(&pool, &links).await;
    (links, exchange, UnixStream::from_std(theirs).unwrap(), workers)
}

fn file() -> tempfile::TempPath {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[b'x'; SIZE]).unwrap();
    file.into_temp_path()
}

/// Descriptors of this process for the file.
fn descriptors(path: &std::path::Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| {
        let link = std::fs::read_link(entry.as_ref().unwrap().path());
        link.is_ok_and(|link| link == path)
    })
    .count()
}

/// Sends records, with one descriptor if there is one; false once the link is closed.
async fn say(worker: &UnixStream, records: &[Record], file: Option<BorrowedFd<'_>>) -> bool {
    let mut wire = Vec::new();
    for record in records {
        let id = if matches!(record, Record::Release(_)) { 0 } else { 1 };
        record.encode(id, &mut wire);
    }
    loop {
        let sent = worker.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds: Vec<_> = file.into_iter().collect();
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            Ok(sendmsg(worker, &[IoSlice::new(&wire)], &mut control, SendFlags::NOSIGNAL)?)
        });
        match sent {
            Ok(n) => return n == wire.len(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                worker.writable().await.unwrap();
            }
            Err(_) => return false,
        }
    }
}

async fn until_lost(links: &Links) {
    while !links.borrow().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The worker opens files without end, also behind the end of its script.
#[test]
fn a_worker_that_opens_without_end_is_broken_and_its_files_are_closed() {
    run(async {
        let (links, exchange, mut worker, _guard) = taken_over().await;
        let path = file();
        let end = EndRequest { app_status: 0, protocol_status: 0 }.encode(1);
        worker.write_all(&end).await.unwrap();
        assert!(matches!(exchange.inbox.next().await, Event::End(_)));
        let mut opened = 0;
        let mut most = 0;
        for id in 0..FILES {
            let file = std::fs::File::open(&path).unwrap();
            if !say(&worker, &[Record::Open(FileId(id))], Some(file.as_fd())).await {
                break;
            }
            opened = id;
            if id % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                most = most.max(descriptors(&path));
            }
        }
        assert!(opened < FILES - 1, "the front takes everything");
        assert!(most < 2 * 256, "{most} descriptors");
        until_lost(&links).await;
        while descriptors(&path) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

/// The worker's client reads slowly, and the worker names file after file and releases each.
#[test]
fn files_on_their_way_to_clients_are_bounded() {
    let path = file();
    let sealed = sendoff_sys::memfd::Sealed::new(&[b'x'; SIZE]).unwrap();
    let leased = || OwnedFd::from(std::fs::File::open(&path).unwrap());
    let sealed = || sealed.fd().try_clone().unwrap();
    takes_a_bounded_number(leased, FileId);
    takes_a_bounded_number(sealed, FileId);
    takes_a_bounded_number(sealed, |_| FileId(1));
}

fn takes_a_bounded_number(open: impl Fn() -> OwnedFd, id: impl Fn(u32) -> FileId) {
    run(async {
        let (links, exchange, worker, guard) = taken_over().await;
        let client = async {
            let mut owed = Vec::new();
            loop {
                match exchange.inbox.next().await {
                    Event::Segment(segment) => owed.push(segment),
                    _ => return owed,
                }
            }
        };
        let attack = async {
            for id in (0..FILES).map(id) {
                let segment = Record::Segment { file: id, offset: 0, length: 1 };
                let records = [Record::Open(id), segment, Record::Release(id)];
                if !say(&worker, &records, Some(open().as_fd())).await {
                    return;
                }
            }
            panic!("the front takes everything");
        };
        let (owed, ()) = tokio::join!(client, attack);
        assert!(owed.len() < 2000, "{} descriptors", owed.len());
        until_lost(&links).await;
        drop(guard);
    });
}

/// The worker opens and releases files and never reads the answers.
#[test]
fn answers_that_the_worker_does_not_read_are_bounded() {
    run(async {
        let (links, _exchange, worker, guard) = taken_over().await;
        let path = file();
        for id in 0..FILES {
            let file = std::fs::File::open(&path).unwrap();
            let records = [Record::Open(FileId(id)), Record::Release(FileId(id))];
            if !say(&worker, &records, Some(file.as_fd())).await {
                until_lost(&links).await;
                return drop(guard);
            }
        }
        panic!("the front takes everything");
    });
}
