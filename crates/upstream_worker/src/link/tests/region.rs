//! Shared memory on a link whose worker is played by the test.

use sendoff_fastcgi::region::{DATA_AT, Layout, Piece, RETURNS_AT};
use sendoff_sys::shared::{Shape, Writer};

use super::*;

/// Three chunks of 4 KiB.
fn memory() -> Writer {
    let layout = Layout::new(4096, 3).unwrap();
    let data_len = layout.data_len();
    let shape = Shape { counters_at: RETURNS_AT, counters: 3, data_at: DATA_AT, data_len };
    Writer::create(shape, &layout.encode()).unwrap()
}

fn piece(chunk: u32, offset: u32, length: u32, last: bool) -> Piece {
    Piece { chunk, last, offset, length }
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

async fn end(worker: &mut UnixStream, exchange: WorkerExchange) {
    let end = EndRequest { app_status: 0, protocol_status: 0 }.encode(1);
    worker.write_all(&end).await.unwrap();
    while !matches!(exchange.inbox().next().await, Event::End(_)) {}
}

/// Clients leave in the middle of their responses: lent chunks come back each time.
#[test]
fn abandoned_responses_give_their_chunks_back() {
    run(async {
        let (pool, links, mut worker) = link();
        let writer = memory();
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
            let permit = pool.acquire(0).await.unwrap();
            assert_eq!([0, 1, 2].map(|chunk| writer.counter(chunk)), [round, round, 0]);
            drop(permit);
            // Requests and aborts, which would fill the link.
            while worker.try_read(&mut [0; 4096]).is_ok() {}
        }
    });
}

/// A scripted worker lends a chunk twice, on a real link.
#[test]
fn a_chunk_lent_twice_breaks_the_link() {
    run(async {
        let (pool, links, worker) = link();
        let writer = memory();
        let exchange = begin(&pool, &links).await;
        send(&worker, Record::Region, &[writer.fd().as_fd()]);
        send(&worker, Record::Piece(piece(2, 0, 10, true)), &[]);
        send(&worker, Record::Piece(piece(2, 10, 10, true)), &[]);
        let Event::Piece(_held) = exchange.inbox().next().await else { panic!("a piece") };
        while !matches!(exchange.inbox().next().await, Event::Failed(error) if error.retry() == Retry::Unsafe)
        {
        }
        assert!(links.borrow().is_empty());
    });
}
