//! A link whose worker is played by the test.

use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use sendoff_delivery::segment::Segment;
use sendoff_delivery::{SnapshotLimits, Snapshots};
use sendoff_fastcgi::channel::Secret;
use sendoff_fastcgi::direct::{self, Rest, Sent};
use sendoff_fastcgi::handover::{FileId, MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::{EndRequest, Header, Kind};
use sendoff_fastcgi::region::Piece;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;
use sendoff_upstream::inbox::INBOX_EVENTS;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::pool::Pool;
use super::super::reader::RECEIVE;
use super::super::register::{LinkOrigin, NewLink};
use super::*;

mod hostile;
mod region;
mod ring;

/// A link whose worker is played by the test, with the worker's end.
pub(crate) fn link() -> (Arc<Pool>, Rc<Links>, UnixStream) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let (guard, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let pool = LocalPool::new(Pool::new(1));
    let new = NewLink {
        origin: LinkOrigin::Pool { pool: 0, worker: WorkerId(0) },
        pid: 1,
        number: 0,
        socket: ours.into(),
        guard: guard.into(),
    };
    let snapshots = Snapshots::new(SnapshotLimits::default());
    Link::start(new, 0, slice::from_ref(&pool), &Rc::default(), &snapshots).unwrap();
    let LocalPool { shared: pool, links, .. } = pool;
    (pool, links, UnixStream::from_std(theirs).unwrap())
}

pub(crate) async fn begin(pool: &Arc<Pool>, links: &Links) -> WorkerExchange {
    let request = RequestMessageBuilder::new().with_bytes(b"");
    begin_with(pool, links, &request, None).await
}

async fn begin_with(
    pool: &Arc<Pool>,
    links: &Links,
    request: &RequestMessage,
    client: Option<BorrowedFd<'_>>,
) -> WorkerExchange {
    let permit = pool.acquire(0).await.unwrap();
    let link = Rc::clone(&links.borrow()[&permit.worker()]);
    link.begin(permit, request, client, "GET /".into()).unwrap()
}

pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async { tokio::time::timeout(Duration::from_secs(20), test).await };
    tokio::task::LocalSet::new().block_on(&runtime, test).expect("it hangs");
}

fn stdout(request_id: u16, text: &[u8]) -> Vec<u8> {
    let len = u16::try_from(text.len()).unwrap();
    [&Header::new(Kind::STDOUT, request_id, len).encode(), text].concat()
}

#[test]
fn records_out_of_place_break_the_link() {
    let record = |record: Record, id| {
        let mut wire = Vec::new();
        record.encode(id, &mut wire);
        wire
    };
    let late_length = [stdout(1, b"x"), record(Record::Length(5), 1)].concat();
    for lie in [
        stdout(2, b"x"),
        stdout(0, b"x"),
        record(Record::Ready, 1),
        record(Record::Body(1), 1),
        record(Record::Claim(Secret([0; 16])), 1),
        record(Record::Open(FileId(1)), 1),
        record(Record::Release(FileId(9)), 0),
        record(Record::Named, 1),
        [&Header::new(Kind::EXPLAIN, 1, 1025).encode()[..], &[b'x'; 1025]].concat(),
        record(Record::Region, 1),
        record(Record::Piece(Piece { chunk: 0, last: true, offset: 0, length: 0 }), 1),
        // Without a socket to have sent it to.
        record(Record::Sent(SENT), 1),
        late_length,
        EndRequest { app_status: 0, protocol_status: 1 }.encode(1).to_vec(),
        EndRequest { app_status: 0, protocol_status: 0 }.encode(2).to_vec(),
        Header::new(Kind::STDIN, 1, 0).encode().to_vec(),
        b"HTTP/1.1".to_vec(),
    ] {
        run(async {
            let (pool, links, mut worker) = link();
            let exchange = begin(&pool, &links).await;
            worker.write_all(&lie).await.unwrap();
            while !matches!(exchange.inbox.next().await, Event::Failed(error) if error.retry() == Retry::Unsafe)
            {
            }
            assert!(links.borrow().is_empty() && pool.workers() == 0, "{lie:?}");
            let mut rest = Vec::new();
            worker.read_to_end(&mut rest).await.unwrap();
        });
    }
}

const SENT: Sent = Sent {
    wire: 100,
    head: 50,
    framed: 0,
    rest: Rest::Length(0),
    status: 200,
    gone: false,
    surplus: false,
};

/// The socket goes with the request, before the body's descriptor, and the worker gives it back
/// once, at the beginning of the response.
#[test]
fn a_lent_socket_is_given_back_once() {
    let mut sent = Vec::new();
    Record::Sent(SENT).encode(1, &mut sent);
    let mut length = Vec::new();
    Record::Length(5).encode(1, &mut length);
    let mut client = Vec::new();
    direct::Client { http_10: false, keep_alive: true, encrypted: false, fields: b"" }
        .encode(1, &mut client);
    for lie in [&sent, &length, &client] {
        run(async {
            let (pool, links, mut worker) = link();
            let mut request = RequestMessageBuilder::new();
            request.lend(direct::Client {
                http_10: false,
                keep_alive: true,
                encrypted: false,
                fields: b"",
            });
            let (socket, _end) = std::os::unix::net::UnixStream::pair().unwrap();
            let body = std::fs::File::open("/dev/null").unwrap();
            let request = request.with_file(Rc::new(body.into()), 0);
            let exchange = begin_with(&pool, &links, &request, Some(socket.as_fd())).await;
            let (mut buffer, mut fds) = (BytesMut::with_capacity(1000), VecDeque::new());
            sendoff_sys::fdpass::receive(worker.as_fd(), &mut buffer, &mut fds).unwrap();
            let is_socket = |fd: &OwnedFd| rustix::net::getsockname(fd).is_ok();
            assert_eq!(fds.iter().map(is_socket).collect::<Vec<_>>(), [true, false]);
            assert_eq!(buffer[..16 + client.len()][16..], client);
            worker.write_all(&sent).await.unwrap();
            assert!(matches!(exchange.inbox.next().await, Event::Sent(SENT)));
            worker.write_all(&stdout(1, b"more")).await.unwrap();
            assert!(matches!(exchange.inbox.next().await, Event::Segment(_)));
            worker.write_all(lie).await.unwrap();
            assert!(
                matches!(exchange.inbox.next().await, Event::Failed(error) if error.retry() == Retry::Unsafe)
            );
            assert_eq!(pool.workers(), 0);
        });
    }
}

#[test]
fn descriptors_that_nobody_claims_break_the_link() {
    run(async {
        let (pool, links, worker) = link();
        let exchange = begin(&pool, &links).await;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let fds = [file.as_fd(); MAX_FDS_PER_MESSAGE];
        let piece = stdout(1, b"x");
        for _ in 0..3 {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&fds));
            let flags = SendFlags::NOSIGNAL;
            sendmsg(&worker, &[IoSlice::new(&piece)], &mut control, flags).unwrap();
        }
        while !matches!(exchange.inbox.next().await, Event::Failed(error) if error.retry() == Retry::Unsafe)
        {
        }
    });
}

/// A header block names at most one file; a worker that names more would fill the front with
/// descriptors.
#[test]
fn a_second_named_file_breaks_the_link() {
    run(async {
        let (pool, links, worker) = link();
        let exchange = begin(&pool, &links).await;
        let mut records = Vec::new();
        Record::Named.encode(1, &mut records);
        Record::Named.encode(1, &mut records);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let fds = [file.as_fd(), file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&worker, &[IoSlice::new(&records)], &mut control, SendFlags::NOSIGNAL).unwrap();
        assert!(matches!(exchange.inbox.next().await, Event::Named(_)));
        while !matches!(exchange.inbox.next().await, Event::Failed(error) if error.retry() == Retry::Unsafe)
        {
        }
    });
}

/// Segments hold no bytes, but without a limit a script could queue any number of them.
#[test]
fn a_worker_waits_when_many_segments_lie_around() {
    run(async {
        let (pool, links, worker) = link();
        let exchange = begin(&pool, &links).await;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (mut open, mut segment) = (Vec::new(), Vec::new());
        Record::Open(FileId(1)).encode(1, &mut open);
        let named = Record::Segment { file: FileId(1), offset: 0, length: 1 };
        (0..100).for_each(|_| named.encode(1, &mut segment));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(&worker, &[IoSlice::new(&open)], &mut control, SendFlags::NOSIGNAL).unwrap();
        let mut written = 0;
        // A link that is not read fills up: then the front takes nothing for a while.
        let quiet = Duration::from_millis(200);
        while let Ok(ready) = tokio::time::timeout(quiet, worker.writable()).await {
            ready.unwrap();
            written += worker.try_write(&segment).unwrap_or(0);
            assert!(written < 10 << 20, "the front takes everything");
        }
        assert!(exchange.inbox.waiting() < 2 * INBOX_EVENTS + RECEIVE / 32);
        // All segments come through in the end, each time the inbox has room.
        for _ in 0..written / 32 {
            assert!(matches!(exchange.inbox.next().await, Event::Segment(Segment::File(_))));
        }
    });
}

/// A request that cannot be sent costs the link, and its place in the pool becomes free.
#[test]
fn a_link_that_takes_no_request_is_given_up() {
    run(async {
        let (pool, links, worker) = link();
        let permit = pool.acquire(0).await.unwrap();
        let link = Rc::clone(&links.borrow()[&permit.worker()]);
        rustix::net::shutdown(&link.socket, rustix::net::Shutdown::Write).unwrap();
        let request = RequestMessageBuilder::new().with_bytes(b"");
        assert!(link.begin(permit, &request, None, "GET /".into()).is_err());
        while pool.workers() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(links.borrow().is_empty());
        drop(worker);
    });
}

/// The client leaves while the request is being sent: the worker gets the whole request and then
/// the abort, and serves the next request.
#[test]
fn a_request_given_up_while_it_is_sent_leaves_the_link_in_order() {
    run(async {
        let (pool, links, mut worker) = link();
        // More than the socket takes.
        let request = RequestMessageBuilder::new().with_bytes(&[b'x'; 1_000_000]);
        drop(begin_with(&pool, &links, &request, None).await);
        let abort = Header::new(Kind::ABORT_REQUEST, 1, 0).encode();
        let expected = [&request.records[..], &abort].concat();
        let mut got = vec![0; expected.len()];
        worker.read_exact(&mut got).await.unwrap();
        assert!(got == expected);
        let end = EndRequest { app_status: 0, protocol_status: 0 }.encode(1);
        worker.write_all(&end).await.unwrap();
        let exchange = begin(&pool, &links).await;
        worker.write_all(&[&stdout(1, b"mine")[..], &end].concat()).await.unwrap();
        let event = exchange.inbox.next().await;
        assert!(matches!(event, Event::Segment(Segment::Bytes(bytes)) if bytes == "mine"));
        assert!(matches!(exchange.inbox.next().await, Event::End(_)));
    });
}

/// A request that the worker has received only in part goes to another worker, and so does the
/// socket that went along.
#[test]
fn a_worker_that_dies_while_a_request_is_sent_has_not_read_it() {
    run(async {
        let (pool, links, mut worker) = link();
        let request = RequestMessageBuilder::new().with_bytes(&[b'x'; 1_000_000]);
        let exchange = begin_with(&pool, &links, &request, None).await;
        worker.read_exact(&mut [0; 1000]).await.unwrap();
        drop(worker);
        let lost = exchange.inbox.next().await;
        assert!(matches!(lost, Event::Failed(error) if error.retry() == Retry::Safe));
        while pool.workers() > 0 {
            tokio::task::yield_now().await;
        }
    });
}

/// Log lines of a script after `fastcgi_finish_request()` name its request.
#[test]
fn a_detached_worker_keeps_the_name_of_its_request_and_its_ticket() {
    run(async {
        let (pool, links, mut worker) = link();
        let exchange = begin(&pool, &links).await;
        let mut detached = Vec::new();
        Record::Detach.encode(1, &mut detached);
        detached.extend(EndRequest { app_status: 0, protocol_status: 0 }.encode(1));
        worker.write_all(&detached).await.unwrap();
        assert!(matches!(exchange.inbox.next().await, Event::End(_)));
        let link = Rc::clone(exchange.link().unwrap());
        drop(exchange);
        let label = || link.front.borrow().held().map(|work| Rc::clone(&work.label));
        assert_eq!(label().as_deref(), Some("GET /"));
        let mut ready = Vec::new();
        Record::Ready.encode(1, &mut ready);
        let mut next = Box::pin(pool.acquire(0));
        tokio::select! {
            biased;
            permit = &mut next => panic!("{permit:?} while the script works on"),
            () = std::future::ready(()) => {}
        }
        worker.write_all(&ready).await.unwrap();
        drop(next.await.unwrap());
        assert_eq!(label(), None);
    });
}
