//! Memory that a worker shares with us on one link (`docs/handover.md` §4). Bytes in it are sent from where they lie; when
//! the last of a chunk are sent or dropped, the chunk goes back to the worker.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use sendoff_fastcgi::region::{DATA_AT, HEADER_LEN, Layout, Piece, RETURNS_AT};
use sendoff_sys::shared::{Reader, Shape, Slice, Unfit};

/// What a worker announced is no region, or it broke the rules of one.
#[derive(Debug)]
pub(in crate::upstream) struct BadRegion(pub(in crate::upstream) String);

impl BadRegion {
    fn new(what: &str) -> Self {
        Self(what.to_owned())
    }
}

impl From<sendoff_fastcgi::Error> for BadRegion {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<Unfit> for BadRegion {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Wrong(what) => Self(format!("shared memory: {what}")),
            Unfit::Failed(error) => Self(format!("shared memory that cannot be mapped: {error}")),
        }
    }
}

/// The region of one link. The mapping outlives it while bytes are still owed to clients.
#[derive(Debug, Default)]
pub(in crate::upstream) struct LinkRegion(Option<Announced>);

#[derive(Debug)]
struct Announced {
    memory: Arc<Reader>,
    layout: Layout,
    chunks: Vec<Chunk>,
}

/// ```text
///          first PIECE          last PIECE           all its bytes sent or dropped
///  at home ───────────▶ filling ──────────▶ leaving ───────────────────────────────▶ at home
/// ```
#[derive(Debug, Default)]
struct Chunk {
    /// How often it was lent. What we tell the worker comes from here, never from the shared memory.
    lent: u32,
    filling: Option<Arc<Lent>>,
    leaving: Weak<Lent>,
}

/// A chunk that we have. Dropping the last reference gives it back.
#[derive(Debug)]
struct Lent {
    memory: Arc<Reader>,
    chunk: u32,
    /// The value that says so.
    returns: u32,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.memory.set_counter(self.chunk, self.returns);
    }
}

impl LinkRegion {
    /// `REGION`: takes the memory on.
    pub(in crate::upstream) fn announce(&mut self, descriptor: &OwnedFd) -> Result<(), BadRegion> {
        if self.0.is_some() {
            return Err(BadRegion::new("it announced a second region"));
        }
        let header: [u8; HEADER_LEN] = Reader::header(descriptor.as_fd())?;
        let layout = Layout::decode(&header)?;
        let shape = Shape {
            counters_at: RETURNS_AT,
            counters: layout.chunks(),
            data_at: DATA_AT,
            data_len: layout.data_len(),
        };
        let memory = Arc::new(Reader::map(descriptor.as_fd(), shape)?);
        let chunks = (0..layout.chunks()).map(|_| Chunk::default()).collect();
        self.0 = Some(Announced { memory, layout, chunks });
        Ok(())
    }

    /// `PIECE`: bytes of the body; `None` if there are none and it only ends a chunk.
    pub(in crate::upstream) fn piece(&mut self, piece: Piece) -> Result<Option<Bytes>, BadRegion> {
        let missing = || BadRegion::new("a piece of a region that it has not announced");
        let Announced { memory, layout, chunks } = self.0.as_mut().ok_or_else(missing)?;
        let outside = || BadRegion::new("a piece outside its chunk");
        let range = layout.range(piece).ok_or_else(outside)?;
        if range.is_empty() && !piece.last {
            return Err(BadRegion::new("a piece of nothing"));
        }
        let chunk = &mut chunks[piece.chunk as usize];
        let lent = match chunk.filling.take() {
            Some(lent) => lent,
            None if chunk.leaving.strong_count() > 0 => {
                return Err(BadRegion::new("a chunk that it has not got back"));
            }
            None => {
                chunk.lent = chunk.lent.wrapping_add(1);
                let (memory, returns) = (Arc::clone(memory), chunk.lent);
                Arc::new(Lent { memory, chunk: piece.chunk, returns })
            }
        };
        if piece.last {
            chunk.leaving = Arc::downgrade(&lent);
        } else {
            chunk.filling = Some(Arc::clone(&lent));
        }
        if range.is_empty() {
            return Ok(None);
        }
        let slice = Slice::new(Arc::clone(memory), range, lent).ok_or_else(outside)?;
        Ok(Some(Bytes::from_owner(slice)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::BorrowedFd;
    use std::rc::Rc;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use sendoff_fastcgi::handover::{ACCEPT_PARAM, ACCEPT_REGION, Record};
    use sendoff_fastcgi::record::EndRequest;
    use sendoff_sys::shared::Writer;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::super::link::Exchange;
    use super::super::link::tests::{begin, link, run};
    use super::*;
    use crate::request::Body;
    use crate::segment::Segment;
    use crate::upstream::{Application, Event, RequestMessageBuilder};

    const CHUNK: u32 = 4096;

    fn layout() -> Layout {
        Layout::new(CHUNK, 3).unwrap()
    }

    fn shape() -> Shape {
        let (counters, data_len) = (3, layout().data_len());
        Shape { counters_at: RETURNS_AT, counters, data_at: DATA_AT, data_len }
    }

    fn region() -> (Writer, LinkRegion) {
        let writer = Writer::create(shape(), &layout().encode()).unwrap();
        let mut region = LinkRegion::default();
        region.announce(writer.fd()).unwrap();
        (writer, region)
    }

    fn piece(chunk: u32, offset: u32, length: u32, last: bool) -> Piece {
        Piece { chunk, last, offset, length }
    }

    #[test]
    fn a_chunk_goes_back_when_the_last_of_its_bytes_are_gone() {
        let (mut writer, mut region) = region();
        writer.write(4096, b"chunk one");
        let first = region.piece(piece(1, 0, 5, false)).unwrap().unwrap();
        assert_eq!(&first[..], b"chunk");
        let second = region.piece(piece(1, 6, 3, true)).unwrap().unwrap();
        assert_eq!(&second[..], b"one");
        let rest = second.slice(2..);
        drop((first, second));
        assert_eq!(writer.counter(1), 0);
        assert!(region.piece(piece(1, 0, 1, false)).is_err(), "not given back yet");
        drop(rest);
        assert_eq!(writer.counter(1), 1);
        let again = region.piece(piece(1, 0, 1, false)).unwrap().unwrap();
        drop(again);
        assert_eq!(writer.counter(1), 1, "more of it may come");
        assert!(region.piece(piece(1, 0, 0, true)).unwrap().is_none());
        assert_eq!([0, 1, 2].map(|chunk| writer.counter(chunk)), [0, 2, 0]);
    }

    /// The worker and its link are gone, a client is still owed bytes.
    #[test]
    fn bytes_outlive_the_link() {
        let (mut writer, mut region) = region();
        writer.write(0, &[b'x'; 4096]);
        let bytes = region.piece(piece(0, 0, 4096, false)).unwrap().unwrap();
        drop((writer, region));
        assert_eq!(&bytes[..], [b'x'; 4096]);
    }

    #[test]
    fn pieces_that_cannot_be_are_refused() {
        for wrong in [
            piece(3, 0, 1, true),
            piece(u32::MAX, 0, 1, true),
            piece(0, 4096, 1, true),
            piece(0, 1, 4096, true),
            piece(0, u32::MAX, 2, true),
            piece(0, 0, 0, false),
        ] {
            let (_writer, mut region) = region();
            assert!(region.piece(wrong).is_err(), "{wrong:?}");
        }
        assert!(LinkRegion::default().piece(piece(0, 0, 1, true)).is_err(), "before REGION");
        let (writer, mut region) = region();
        assert!(region.announce(writer.fd()).is_err(), "a second one");
    }

    /// A memfd of this size with these seals and this header.
    fn memfd(len: u64, seals: SealFlags, header: &[u8]) -> OwnedFd {
        let fd = memfd_create("lie", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::pwrite(&fd, header, 0).unwrap();
        ftruncate(&fd, len).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    #[test]
    fn memory_that_is_no_region_is_refused() {
        let header = layout().encode();
        let (whole, sealed) = (DATA_AT + 3 * 4096, SealFlags::SHRINK | SealFlags::GROW);
        let announce = |fd: OwnedFd| LinkRegion::default().announce(&fd);
        announce(memfd(whole, sealed, &header)).unwrap();
        let mut version = header;
        version[11] = 2;
        for (len, seals, header) in [
            (whole, SealFlags::SHRINK, header),
            (whole, SealFlags::GROW, header),
            (whole, SealFlags::empty(), header),
            (whole - 1, sealed, header),
            (whole + 1, sealed, header),
            (0, sealed, header),
            (whole, sealed, version),
            (whole, sealed, [0; HEADER_LEN]),
        ] {
            announce(memfd(len, seals, &header)).unwrap_err();
        }
        announce(std::fs::File::open("/proc/self/exe").unwrap().into()).unwrap_err();
        announce(std::io::pipe().unwrap().0.into()).unwrap_err();
        let read_only = memfd(whole, sealed, &header);
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read_only));
        announce(std::fs::File::open(path).unwrap().into()).unwrap_err();
    }

    fn send(worker: &UnixStream, record: Record, fds: &[BorrowedFd<'_>]) {
        let mut wire = Vec::new();
        record.encode(1, &mut wire);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        sendmsg(worker, &[IoSlice::new(&wire)], &mut control, SendFlags::NOSIGNAL).unwrap();
    }

    async fn end(worker: &mut UnixStream, exchange: Exchange) {
        let end = EndRequest { app_status: 0, protocol_status: 0 }.encode(1);
        worker.write_all(&end).await.unwrap();
        while !matches!(exchange.inbox().next().await, Event::End) {}
    }

    /// Clients that leave in the middle: what their responses had lent comes back, for ever.
    #[test]
    fn abandoned_responses_give_their_chunks_back() {
        run(async {
            let (pool, links, mut worker) = link();
            let writer = Writer::create(shape(), &layout().encode()).unwrap();
            let first = begin(&pool, &links).await;
            send(&worker, Record::Region, &[writer.fd().as_fd()]);
            end(&mut worker, first).await;
            for round in 1..1000 {
                let exchange = begin(&pool, &links).await;
                send(&worker, Record::Piece(piece(0, 0, 4096, true)), &[]);
                send(&worker, Record::Piece(piece(1, 0, 9, false)), &[]);
                let Event::Piece(bytes) = exchange.inbox().next().await else {
                    panic!("a piece was sent");
                };
                assert_eq!(bytes.len(), 4096);
                drop((bytes, exchange));
                send(&worker, Record::Piece(piece(1, 9, 100, false)), &[]);
                send(&worker, Record::Piece(piece(1, 0, 0, true)), &[]);
                let end = EndRequest { app_status: 0, protocol_status: 0 }.encode(1);
                worker.write_all(&end).await.unwrap();
                let ticket = pool.acquire(0).await.unwrap();
                assert_eq!([0, 1, 2].map(|chunk| writer.counter(chunk)), [round, round, 0]);
                drop(ticket);
                // Requests and aborts, which would fill the link.
                while worker.try_read(&mut [0; 4096]).is_ok() {}
            }
        });
    }

    /// What one request to an application brings: the bytes, and how many of them lie in its memory.
    async fn ask(application: &Arc<Application>, accept: Option<&[u8]>) -> (Vec<Bytes>, usize) {
        let mut builder = RequestMessageBuilder::new();
        if let Some(words) = accept {
            builder.param(ACCEPT_PARAM, words);
        }
        let message = Rc::new(builder.streamed(&Body::Memory(Bytes::new())));
        let exchange = application.begin(message, true, None, "GET /".into()).await.unwrap();
        let (mut all, mut lent) = (Vec::new(), 0);
        loop {
            match exchange.next().await {
                Event::Segment(Segment::Bytes(bytes)) => all.push(bytes),
                Event::Piece(bytes) => {
                    lent += bytes.len();
                    all.push(bytes);
                }
                Event::End => return (all, lent),
                other => panic!("{other:?}"),
            }
        }
    }

    /// An application that somebody else has started says that it could, and only then is told that it may.
    #[test]
    fn applications_share_memory_over_kept_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let body: Vec<u8> = (0..200_000_u32).map(|i| (i >> 3).to_le_bytes()[0]).collect();
        let written = body.clone();
        let served = std::thread::spawn(move || {
            let connection = listener.accept().unwrap().0;
            let mut worker = sendoff_worker::Worker::new(vec![connection.into()], None).unwrap();
            let mut requests = 0;
            while worker.accept() {
                assert_eq!(worker.params_with_nul().len(), 0, "the parameter is not for scripts");
                worker.write_head(b"\r\n").unwrap();
                worker.write(&written).unwrap();
                worker.finish(0, false);
                requests += 1;
            }
            requests
        });
        run(async {
            let address = format!("unix:{}", path.display()).parse().unwrap();
            let application = Application::new(address, std::time::Duration::from_secs(20));
            assert!(!application.knows_region());
            let (first, lent) = ask(&application, None).await;
            assert!(application.knows_region() && lent == 0);
            // The pieces of a response may be on their way when the connection serves the next.
            let mut held = vec![first];
            for _ in 0..5 {
                let (pieces, lent) = ask(&application, Some(ACCEPT_REGION)).await;
                assert_eq!(lent, body.len());
                held.push(pieces);
            }
            for pieces in held {
                let bytes = pieces.concat();
                assert!(bytes[2..] == body, "{} bytes", bytes.len());
            }
        });
        assert_eq!(served.join().unwrap(), 6);
    }

    /// Only over a connection whose last answer said that it knows what a client's socket is for.
    #[test]
    fn applications_write_to_clients_over_kept_connections() {
        use sendoff_fastcgi::direct::Client;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let served = std::thread::spawn(move || {
            let connection = listener.accept().unwrap().0;
            let mut worker = sendoff_worker::Worker::new(vec![connection.into()], None).unwrap();
            while worker.accept() {
                worker.write_head(b"Content-Length: 100000\r\n\r\n").unwrap();
                worker.write(&[b'x'; 100_000]).unwrap();
                worker.finish(0, false);
            }
        });
        let (ours, mut theirs) = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (listener.accept().unwrap().0, theirs)
        };
        run(async {
            let address = format!("unix:{}", path.display()).parse().unwrap();
            let application = Application::new(address, std::time::Duration::from_secs(20));
            for round in 0..3 {
                let mut builder = RequestMessageBuilder::new();
                builder.lend(Client { http_10: false, keep_alive: true, fields: b"A: b\r\n" });
                let message = Rc::new(builder.streamed(&Body::Memory(Bytes::new())));
                let client = Some(ours.as_fd());
                let begun = application.begin(message, true, client, "GET /".into()).await;
                let exchange = begun.unwrap();
                let Event::Sent(sent) = exchange.next().await else {
                    assert_eq!(round, 0, "it keeps what it is lent");
                    while !exchange.next().await.is_last() {}
                    continue;
                };
                assert!(round > 0 && !sent.gone && sent.wire > 100_000);
                let mut wire = vec![0; usize::try_from(sent.wire).unwrap()];
                std::io::Read::read_exact(&mut theirs, &mut wire).unwrap();
                assert!(wire.starts_with(b"HTTP/1.1 200 OK\r\n") && wire.ends_with(b"xxx"));
                assert!(matches!(exchange.next().await, Event::End));
                assert!(application.knows_direct());
            }
        });
        served.join().unwrap();
    }

    /// A scripted worker lends a chunk twice, on a real link.
    #[test]
    fn a_chunk_lent_twice_breaks_the_link() {
        run(async {
            let (pool, links, worker) = link();
            let writer = Writer::create(shape(), &layout().encode()).unwrap();
            let exchange = begin(&pool, &links).await;
            send(&worker, Record::Region, &[writer.fd().as_fd()]);
            send(&worker, Record::Piece(piece(2, 0, 10, true)), &[]);
            send(&worker, Record::Piece(piece(2, 10, 10, true)), &[]);
            let Event::Piece(_held) = exchange.inbox().next().await else { panic!("a piece") };
            while !matches!(exchange.inbox().next().await, Event::Lost { unread: false }) {}
            assert!(links.borrow().is_empty());
        });
    }
}
