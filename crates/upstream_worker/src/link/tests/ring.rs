//! The ring of a pool whose worker is played by the test.

use std::time::Instant;

use sendoff_ring::{ASLEEP, AWAKE, GONE, Memory, Place, Step, Taker};
use sendoff_sys::fdpass;
use sendoff_sys::ring;
use sendoff_upstream::queue::QueueLimits;

use super::*;
use crate::posted::{Acquired, RequestNotes};

/// A worker with a link and a seat.
struct Player {
    link: UnixStream,
    memory: ring::Worker,
    seat: u16,
    taker: Taker,
}

fn notes() -> RequestNotes {
    RequestNotes { label: "GET /".into(), task: None, described: None }
}

fn records(fill: u8) -> RequestMessage {
    RequestMessageBuilder::new().with_bytes(&[fill; 100])
}

fn number_of(record: Record) -> Vec<u8> {
    let mut wire = Vec::new();
    record.encode(1, &mut wire);
    wire
}

impl Player {
    /// Joins a pool, and sleeps.
    async fn join(pool: &LocalPool, worker: u32) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (guard, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let new = NewLink {
            origin: LinkOrigin::Pool { pool: 0, worker: WorkerId(worker) },
            pid: 1,
            number: 0,
            socket: ours.into(),
            guard: guard.into(),
        };
        let snapshots = Snapshots::new(SnapshotLimits::default());
        Link::start(new, 0, slice::from_ref(pool), &Rc::default(), &snapshots).unwrap();
        let link = UnixStream::from_std(theirs).unwrap();
        link.readable().await.unwrap();
        let (mut bytes, mut fds) = (BytesMut::with_capacity(100), VecDeque::new());
        fdpass::receive(link.as_fd(), &mut bytes, &mut fds).unwrap();
        let Ok(Some(Record::Ring(seat))) = Record::decode(Kind::RING, &bytes[8..]) else {
            panic!("{bytes:?}")
        };
        let memory = ring::Worker::open(fds[0].as_fd(), fds[1].as_fd()).unwrap();
        let mut player = Self { link, memory, seat, taker: Taker::new(seat) };
        assert_eq!(player.step(), Step::Wait);
        player
    }

    fn step(&mut self) -> Step {
        self.taker.step(self.memory.memory())
    }

    /// Takes a request from the ring.
    fn take(&mut self) -> (u64, Place) {
        match self.step() {
            Step::Take(number, place) => (number, place),
            Step::Wait => panic!("there is no request"),
        }
    }

    fn bytes(&self, place: Place) -> BytesMut {
        let mut bytes = BytesMut::new();
        assert!(self.memory.read(place.slot, place.length, &mut bytes));
        bytes
    }

    /// Expects a record without content.
    async fn expects(&mut self, expected: &[u8]) {
        let mut came = vec![0; expected.len()];
        self.link.read_exact(&mut came).await.unwrap();
        assert_eq!(came, expected);
    }

    async fn says(&mut self, records: &[&[u8]]) {
        self.link.write_all(&records.concat()).await.unwrap();
    }

    /// Reads the request on the link.
    async fn gets(&mut self, message: &RequestMessage) {
        self.expects(&message.records).await;
        self.taker.given();
    }
}

fn pool() -> LocalPool {
    pool_with(QueueLimits::default())
}

fn pool_with(limits: QueueLimits) -> LocalPool {
    let pool = LocalPool::new(Pool::with_limits(1, limits));
    pool.shared.make_ring().unwrap();
    tokio::task::spawn_local(pool.clone().attend(0));
    pool
}

async fn acquire(pool: &LocalPool, message: &RequestMessage) -> Acquired {
    pool.acquire(0, message, &notes()).await.unwrap()
}

async fn posted(pool: &LocalPool, message: &RequestMessage) -> WorkerExchange {
    match acquire(pool, message).await {
        Acquired::Posted(exchange) => exchange,
        Acquired::Permit(permit) => panic!("{permit:?} is free"),
    }
}

/// Sends a request to the worker that sleeps.
async fn given(pool: &LocalPool, message: &RequestMessage) -> WorkerExchange {
    match acquire(pool, message).await {
        Acquired::Permit(permit) => permit.begin(message, None, "GET /".into()).unwrap(),
        Acquired::Posted(_) => panic!("no worker sleeps"),
    }
}

fn taken(number: u64) -> Vec<u8> {
    number_of(Record::Taken { number, at: 0 })
}

fn end() -> [u8; 16] {
    EndRequest { app_status: 0, protocol_status: 0 }.encode(1)
}

async fn answers(exchange: &WorkerExchange, text: &str) {
    let event = exchange.inbox().next().await;
    let Event::Segment(Segment::Bytes(bytes)) = event else { panic!("{event:?}") };
    assert_eq!(bytes, text);
    assert!(matches!(exchange.inbox().next().await, Event::End(_)));
}

async fn fails(exchange: &WorkerExchange, kind: UpstreamErrorKind) {
    let event = exchange.inbox().next().await;
    let Event::Failed(error) = event else { panic!("{event:?}") };
    assert_eq!((error.kind(), error.retry()), (kind, Retry::Unsafe));
}

#[test]
fn a_worker_takes_its_next_request_without_being_asked() {
    run(async {
        let pool = pool();
        let mut worker = Player::join(&pool, 0).await;
        let (first, second) = (records(b'1'), records(b'2'));
        let exchange = given(&pool, &first).await;
        worker.gets(&first).await;
        let waiting = posted(&pool, &second).await;
        assert_eq!(pool.shared.waiting(), 1);
        worker.says(&[&stdout(1, b"one"), &end()]).await;
        let (number, place) = worker.take();
        assert_eq!(worker.bytes(place), second.records);
        assert_eq!(pool.shared.waiting(), 0);
        worker.says(&[&taken(number), &stdout(1, b"two"), &end()]).await;
        answers(&exchange, "one").await;
        answers(&waiting, "two").await;
        assert_eq!(worker.step(), Step::Wait);
        assert_eq!((pool.shared.report().idle, pool.shared.report().requests), (1, 2));
        // It sleeps: the next one comes on the link again.
        let exchange = given(&pool, &first).await;
        worker.gets(&first).await;
        worker.says(&[&stdout(1, b"three"), &end()]).await;
        answers(&exchange, "three").await;
    });
}

/// A worker that has answered a request from the ring may sleep before the front has read that: it
/// gets no request on the link then, which its answer would precede.
#[test]
fn a_worker_that_is_ahead_gets_no_request_on_its_link() {
    run(async {
        let pool = pool();
        let mut worker = Player::join(&pool, 0).await;
        let (first, second) = (records(b'1'), records(b'2'));
        let exchange = given(&pool, &first).await;
        worker.gets(&first).await;
        let waiting = posted(&pool, &second).await;
        worker.says(&[&stdout(1, b"one"), &end()]).await;
        answers(&exchange, "one").await;
        let (number, _) = worker.take();
        assert_eq!(worker.step(), Step::Wait);
        let third = posted(&pool, &second).await;
        worker.says(&[&taken(number), &stdout(1, b"two"), &end()]).await;
        answers(&waiting, "two").await;
        worker.expects(&number_of(Record::Look)[..]).await;
        worker.taker.asked();
        let (number, _) = worker.take();
        worker.says(&[&taken(number), &stdout(1, b"three"), &end()]).await;
        answers(&third, "three").await;
    });
}

#[test]
fn a_request_whose_client_leaves_is_taken_back_or_abandoned() {
    run(async {
        let pool = pool();
        let mut worker = Player::join(&pool, 0).await;
        let message = records(b'1');
        let exchange = given(&pool, &message).await;
        worker.gets(&message).await;
        drop(posted(&pool, &message).await);
        assert_eq!(pool.shared.waiting(), 0);
        let (waiting, last) = (posted(&pool, &message).await, posted(&pool, &message).await);
        worker.says(&[&stdout(1, b"one"), &end()]).await;
        answers(&exchange, "one").await;
        let (number, _) = worker.take();
        drop(waiting);
        // The front sees by itself that the worker has taken it.
        worker.expects(&number_of(Record::Abandon(number))).await;
        worker.says(&[&taken(number), &end()]).await;
        let (number, _) = worker.take();
        worker.says(&[&taken(number), &stdout(1, b"last"), &end()]).await;
        answers(&last, "last").await;
    });
}

#[test]
fn a_request_with_a_file_comes_on_the_link_of_the_worker_that_took_it() {
    run(async {
        let pool = pool();
        let mut worker = Player::join(&pool, 0).await;
        let message = records(b'1');
        let exchange = given(&pool, &message).await;
        worker.gets(&message).await;
        let file = std::fs::File::open("/dev/null").unwrap();
        let with_file = RequestMessageBuilder::new().with_file(Rc::new(file.into()), 0);
        let mut waiting = Box::pin(acquire(&pool, &with_file));
        let mut left = Box::pin(acquire(&pool, &with_file));
        for waiting in [&mut left, &mut waiting] {
            tokio::select! {
                biased;
                acquired = waiting => panic!("{acquired:?}"),
                () = std::future::ready(()) => {}
            }
        }
        worker.says(&[&stdout(1, b"one"), &end()]).await;
        answers(&exchange, "one").await;
        let (number, place) = worker.take();
        assert_eq!(place.length, 0);
        worker.taker.promised(number);
        drop(left);
        worker.says(&[&taken(number)]).await;
        // A late LOOK changes nothing.
        worker.taker.asked();
        assert_eq!(worker.step(), Step::Wait);
        worker.expects(&number_of(Record::Abandon(number))).await;
        worker.taker.withdrawn(number);
        let (number, _) = worker.take();
        worker.taker.promised(number);
        assert_eq!(worker.step(), Step::Wait);
        worker.says(&[&taken(number)]).await;
        let Acquired::Permit(permit) = waiting.await else { panic!("it needs a worker") };
        let exchange = permit.begin(&with_file, None, "GET /".into()).unwrap();
        worker.gets(&with_file).await;
        worker.says(&[&stdout(1, b"two"), &end()]).await;
        answers(&exchange, "two").await;
    });
}

/// Requests wait for longer than a worker may be silent, but this worker has just ended one.
#[test]
fn a_worker_between_two_requests_is_left_alone() {
    run(async {
        let pool = pool();
        let mut worker = Player::join(&pool, 0).await;
        let message = records(b'1');
        let exchange = given(&pool, &message).await;
        worker.gets(&message).await;
        let (waiting, _last) = (posted(&pool, &message).await, posted(&pool, &message).await);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        worker.says(&[&stdout(1, b"one"), &end()]).await;
        answers(&exchange, "one").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let nothing = worker.link.try_read(&mut [0; 16]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let (number, _) = worker.take();
        worker.says(&[&taken(number), &stdout(1, b"two"), &end()]).await;
        answers(&waiting, "two").await;
    });
}

/// A worker dies with a request that it has taken without a word: that request fails, those that
/// wait are left for the other workers, one of which is woken.
#[test]
fn a_worker_that_dies_takes_its_own_requests_along() {
    run(async {
        let pool = pool();
        let mut dying = Player::join(&pool, 0).await;
        let message = records(b'1');
        let exchange = given(&pool, &message).await;
        dying.gets(&message).await;
        let (lost, waiting) = (posted(&pool, &message).await, posted(&pool, &message).await);
        dying.says(&[&stdout(1, b"one"), &end()]).await;
        dying.take();
        drop(dying);
        answers(&exchange, "one").await;
        fails(&lost, UpstreamErrorKind::Died).await;
        assert_eq!((pool.shared.workers(), pool.shared.waiting()), (0, 1));
        let (ours, _kept) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(ours);
        drop(waiting);
        let mut other = Player::join(&pool, 1).await;
        let exchange = given(&pool, &message).await;
        other.gets(&message).await;
        other.says(&[&stdout(1, b"two"), &end()]).await;
        answers(&exchange, "two").await;
    });
}

#[test]
fn lies_about_requests_in_the_ring_break_the_link() {
    // The number, relative to the posted one, and whether the worker has taken that.
    for (number, takes) in [(0, false), (1, false), (1, true), (u64::MAX, true)] {
        run(async move {
            let pool = pool();
            let mut worker = Player::join(&pool, 0).await;
            let message = records(b'1');
            let exchange = given(&pool, &message).await;
            worker.gets(&message).await;
            let waiting = posted(&pool, &message).await;
            worker.says(&[&stdout(1, b"one"), &end()]).await;
            answers(&exchange, "one").await;
            let posted = 1_u64;
            if takes {
                assert_eq!(worker.take().0, posted);
            }
            worker.says(&[&taken(posted.wrapping_add(number))]).await;
            let mut rest = Vec::new();
            worker.link.read_to_end(&mut rest).await.unwrap();
            if takes {
                fails(&waiting, UpstreamErrorKind::Died).await;
            } else {
                assert_eq!(pool.shared.waiting(), 1, "it waits for another worker");
            }
        });
    }
}

/// Words that no worker writes end the requests that they belong to, and the ring goes on.
#[test]
fn a_damaged_ring_goes_on() {
    for damage in [0, 7, u64::MAX, 1 << 18 | 2 << 16 | 55] {
        run(async move {
            let pool = pool();
            let mut worker = Player::join(&pool, 0).await;
            let message = records(b'1');
            let exchange = given(&pool, &message).await;
            worker.gets(&message).await;
            let waiting = posted(&pool, &message).await;
            let word = worker.memory.memory().word(1);
            assert!(worker.memory.memory().swap_word(1, word, damage));
            fails(&waiting, UpstreamErrorKind::Broken).await;
            worker.says(&[&stdout(1, b"one"), &end()]).await;
            answers(&exchange, "one").await;
            let again = acquire(&pool, &message).await;
            let (number, _) = worker.take();
            worker.says(&[&taken(number), &stdout(1, b"two"), &end()]).await;
            let Acquired::Posted(again) = again else { panic!("the worker was awake") };
            answers(&again, "two").await;
        });
    }
}

/// A script may write to the flags of all workers of its pool: that they must take nothing more, or
/// that they are awake.
#[test]
fn an_overwritten_flag_is_set_again() {
    for flag in [GONE, AWAKE, 77] {
        run(async {
            let pool = pool();
            let mut worker = Player::join(&pool, 0).await;
            assert!(worker.memory.memory().swap_flag(worker.seat, ASLEEP, flag));
            let message = records(b'1');
            let waiting = posted(&pool, &message).await;
            worker.expects(&number_of(Record::Look)).await;
            worker.taker.asked();
            let (number, _) = worker.take();
            worker.says(&[&taken(number), &stdout(1, b"one"), &end()]).await;
            answers(&waiting, "one").await;
            assert_eq!(worker.step(), Step::Wait);
            let exchange = given(&pool, &message).await;
            worker.gets(&message).await;
            worker.says(&[&stdout(1, b"two"), &end()]).await;
            answers(&exchange, "two").await;
        });
    }
}

/// With `max_waiting = 0` a request is refused while all workers are busy, but not while a worker
/// that has just ended its request has not fallen asleep.
#[test]
fn an_idle_worker_that_is_awake_counts() {
    run(async {
        let limits = QueueLimits { requests: 0, ..QueueLimits::default() };
        let pool = pool_with(limits);
        let mut worker = Player::join(&pool, 0).await;
        let message = records(b'1');
        let exchange = given(&pool, &message).await;
        worker.gets(&message).await;
        let refused = pool.acquire(0, &message, &notes()).await.unwrap_err();
        assert_eq!(refused.kind(), UpstreamErrorKind::QueueFull);
        worker.says(&[&stdout(1, b"one"), &end()]).await;
        answers(&exchange, "one").await;
        let waiting = posted(&pool, &message).await;
        let refused = pool.acquire(0, &message, &notes()).await.unwrap_err();
        assert_eq!(refused.kind(), UpstreamErrorKind::QueueFull);
        let (number, _) = worker.take();
        worker.says(&[&taken(number), &stdout(1, b"two"), &end()]).await;
        answers(&waiting, "two").await;
    });
}

/// A worker has written a response that its slow client does not take, and has taken the request of
/// another client: that one does not wait.
#[test]
fn a_slow_client_does_not_hold_the_next_request_of_its_worker() {
    run(async {
        let pool = pool();
        let mut worker = Player::join(&pool, 0).await;
        let message = records(b'1');
        let slow = given(&pool, &message).await;
        worker.gets(&message).await;
        let waiting = posted(&pool, &message).await;
        while slow.inbox().waiting() < 6 {
            worker.says(&[&stdout(1, &[b'x'; 60_000])]).await;
            tokio::task::yield_now().await;
        }
        let since = Instant::now();
        worker.says(&[&stdout(1, b"y"), &end()]).await;
        let (number, _) = worker.take();
        worker.says(&[&taken(number), &stdout(1, b"two"), &end()]).await;
        answers(&waiting, "two").await;
        assert!(since.elapsed() < Duration::from_secs(10));
        assert!(slow.inbox().waiting() > 6);
    });
}
