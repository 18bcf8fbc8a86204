//! One connection that requests share. One task does its I/O for `requests.rs`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use sendoff_fastcgi::Decoder;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::StreamedRequest;
use tokio::io::Interest;
use tokio::time::{Instant, Sleep, sleep_until};

use super::requests::{InFlightGuard, RequestHandles, RequestKey, Requests, TimeoutCheck};
use crate::answer::malformed;
use crate::connections::{ConnectionPermit, Connections};
use crate::driver::is_for_later;
use crate::facts::ApplicationFacts;
use crate::peer::{KeptConnection, Peer};
use crate::stream::Stream;

/// The most bytes of one read.
const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next read.
const RECEIVE_MIN: usize = 16 * 1024;

/// Consecutive reads and writes before other tasks get their turn, so that neither the application
/// nor a disk blocks the event loop.
const ROUNDS: u32 = 8;

/// The idle timeout of a connection.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// The age from which on a connection is given up if other event loops wait for one.
const TURN: Duration = Duration::from_millis(50);

/// The longest pause between two checks of timeouts.
const LOOK: Duration = Duration::from_secs(1);

/// A shared connection as its requests know it.
#[derive(Debug)]
pub(super) struct SharedConnection {
    requests: RefCell<Requests>,
    made: Instant,
    /// It takes no new requests.
    is_retired: Cell<bool>,
    /// A request has begun or was given up since the task last checked.
    has_news: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl SharedConnection {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            requests: RefCell::default(),
            made: Instant::now(),
            is_retired: Cell::new(false),
            has_news: Cell::new(false),
            task: RefCell::default(),
        })
    }

    /// True if a request may begin here.
    pub(super) fn takes_requests(&self) -> bool {
        !self.is_retired.get() && self.requests.borrow().has_room()
    }

    /// Requests with a waiting client.
    pub(super) fn live(&self) -> usize {
        self.requests.borrow().live()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.borrow().is_idle()
    }

    /// True if a request here may delay others.
    pub(super) fn is_blocked(&self) -> bool {
        self.requests.borrow().is_blocked()
    }

    /// Retires the connection if others wait for one and it is older than `TURN`.
    pub(super) fn make_way(&self) {
        if self.made.elapsed() > TURN {
            self.retire();
        }
    }

    /// Takes no new requests, and closes the connection after the last one.
    pub(super) fn retire(&self) {
        self.is_retired.set(true);
        self.wake();
    }

    pub(super) fn begin(
        &self,
        request: Rc<StreamedRequest>,
        label: Rc<str>,
        admitted: InFlightGuard,
    ) -> Option<RequestHandles> {
        let now = Instant::now();
        let begun = self.requests.borrow_mut().begin(request, label, admitted, now);
        self.wake();
        begun
    }

    /// Gives up a request, because its client has left.
    pub(super) fn give_up(&self, key: RequestKey) {
        self.requests.borrow_mut().give_up(key, Instant::now());
        self.wake();
    }

    fn wake(&self) {
        self.has_news.set(true);
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    fn poll_news(&self, cx: &mut Context<'_>, is_read: bool) -> Poll<()> {
        let clients = self.requests.borrow_mut().poll_clients(cx, is_read);
        if self.has_news.take() {
            return Poll::Ready(());
        }
        *self.task.borrow_mut() = Some(cx.waker().clone());
        clients
    }
}

/// The reason why a connection has ended.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// No request needs the connection.
    Unused,
    /// The application has closed the connection or broken the protocol.
    Lost(UpstreamError),
}

/// The end of a shared connection that does the I/O.
pub(super) struct Carrier {
    pub(super) connection: Rc<SharedConnection>,
    pub(super) peer: Arc<Peer>,
    pub(super) known: Arc<ApplicationFacts>,
    pub(super) connections: Arc<Connections<KeptConnection>>,
    pub(super) stream: Stream,
    /// Reports the connection as closed when dropped.
    pub(super) _permit: ConnectionPermit<KeptConnection>,
}

/// State of both directions of a connection.
struct ConnectionIo {
    decoder: Decoder,
    buffer: BytesMut,
    /// Bytes gathered for the next writes, and the number of them already written.
    out: Vec<u8>,
    written: usize,
    /// No byte has arrived yet.
    is_unanswered: bool,
    /// The application reads no more; it may still have answered.
    is_deaf: bool,
    /// The time since which the connection has had no request.
    idle_since: Option<Instant>,
    clock: Pin<Box<Sleep>>,
}

impl Carrier {
    /// Carries requests and answers until the connection ends.
    pub(super) async fn run(self) -> CloseReason {
        let now = Instant::now();
        let mut wire = ConnectionIo {
            decoder: Decoder::default(),
            buffer: BytesMut::new(),
            out: Vec::new(),
            written: 0,
            is_unanswered: true,
            is_deaf: false,
            idle_since: None,
            clock: Box::pin(sleep_until(now + self.look_after())),
        };
        let ended = self.carry(&mut wire).await;
        self.connection.is_retired.set(true);
        if let Err(why) = &ended {
            let mut requests = self.connection.requests.borrow_mut();
            if why.kind() == UpstreamErrorKind::Died && requests.live() > 0 {
                self.peer.note_death_at_work();
            }
            requests.fail(why);
        }
        // Requests given up here may still hold permits and files, and a slowly reading client
        // keeps a reference to the connection.
        drop(self.connection.requests.take());
        ended.map_or_else(CloseReason::Lost, |()| CloseReason::Unused)
    }

    fn look_after(&self) -> Duration {
        LOOK.min(self.peer.timeout)
    }

    async fn carry(&self, wire: &mut ConnectionIo) -> Result<(), UpstreamError> {
        let mut rounds = 0;
        loop {
            let now = Instant::now();
            let sent = self.send(wire, now);
            let may_read = self.connection.requests.borrow_mut().may_read();
            let received = may_read && self.receive(wire, now)?;
            if self.is_over(wire, now) {
                return Ok(());
            }
            rounds += 1;
            let is_busy = sent || received;
            if !is_busy || rounds >= ROUNDS {
                self.wait(wire, may_read, is_busy).await;
                rounds = 0;
            }
        }
    }

    /// True if the connection is to be closed.
    fn is_over(&self, wire: &mut ConnectionIo, now: Instant) -> bool {
        if self.known.is_limited() && self.connections.are_wanted() {
            self.connection.make_way();
        }
        let requests = self.connection.requests.borrow();
        if requests.live() > 0 {
            wire.idle_since = None;
            return false;
        }
        // Abandoned requests end with the connection.
        if self.connection.is_retired.get() || !requests.is_idle() {
            return true;
        }
        now.duration_since(*wire.idle_since.get_or_insert(now)) >= IDLE_TIME
    }

    fn send(&self, wire: &mut ConnectionIo, now: Instant) -> bool {
        if wire.is_deaf {
            return false;
        }
        if wire.written == wire.out.len() {
            wire.out.clear();
            wire.written = 0;
            let mut requests = self.connection.requests.borrow_mut();
            if !requests.has_to_send() {
                return false;
            }
            requests.gather(&mut wire.out, now);
        }
        let rest = &wire.out[wire.written..];
        if rest.is_empty() {
            return false;
        }
        match self.stream.try_write(rest) {
            Ok(n) => {
                wire.written += n;
                self.connection.requests.borrow_mut().wrote(n);
                true
            }
            Err(error) if is_for_later(&error) => false,
            Err(_) => {
                wire.is_deaf = true;
                self.connection.is_retired.set(true);
                self.connection.requests.borrow_mut().fail_unsent(now);
                true
            }
        }
    }

    fn receive(&self, wire: &mut ConnectionIo, now: Instant) -> Result<bool, UpstreamError> {
        if wire.buffer.capacity() - wire.buffer.len() < RECEIVE_MIN {
            wire.buffer.reserve(RECEIVE);
        }
        let room = wire.buffer.capacity() - wire.buffer.len();
        let mut descriptors = VecDeque::new();
        wire.is_unanswered = wire.is_unanswered && !self.peer.note_answer(&self.stream);
        match self.stream.try_read(&mut wire.buffer, &mut descriptors) {
            Ok(0) => return Err(UpstreamError::died(Retry::Unsafe)),
            // The socket is drained: the event loop reports when more bytes arrive.
            Ok(n) if n < room && descriptors.is_empty() => self.stream.forget(Interest::READABLE),
            Ok(_) => {}
            Err(error) if is_for_later(&error) => return Ok(false),
            Err(_) => return Err(UpstreamError::died(Retry::Unsafe)),
        }
        if !descriptors.is_empty() {
            return Err(UpstreamError::broken("it sent descriptors that no record claims"));
        }
        while let Some(part) = wire.decoder.next(&mut wire.buffer).map_err(malformed)? {
            let ends_record = !wire.decoder.is_inside_content();
            let mut requests = self.connection.requests.borrow_mut();
            if let Some(refusal) = requests.take(part, ends_record, &self.peer, now)? {
                self.known.note_refusal(refusal);
                self.connection.is_retired.set(true);
            }
        }
        Ok(true)
    }

    /// Waits for an event. If the connection `is_busy`, only lets other tasks of the event loop
    /// run.
    async fn wait(&self, wire: &mut ConnectionIo, may_read: bool, is_busy: bool) {
        let may_write = !wire.is_deaf && wire.written < wire.out.len();
        let interest = match (may_read, may_write) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        let interest = interest.filter(|_| !is_busy);
        tokio::select! {
            biased;
            () = poll_fn(|cx| self.connection.poll_news(cx, may_read)) => {}
            // The next read or write returns any error.
            _ = self.stream.ready(interest.unwrap_or(Interest::READABLE)), if interest.is_some() => {}
            () = &mut wire.clock => self.look(wire),
            () = self.known.wanted.notified(), if self.known.is_limited() => {}
            () = tokio::task::yield_now(), if is_busy => {}
        }
    }

    fn look(&self, wire: &mut ConnectionIo) {
        let (now, patience) = (Instant::now(), self.peer.timeout);
        let mut requests = self.connection.requests.borrow_mut();
        if requests.look(now, patience) == TimeoutCheck::Retire {
            self.connection.is_retired.set(true);
        }
        let next = now + self.look_after();
        let deadline = requests.next_deadline(patience);
        wire.clock.as_mut().reset(deadline.map_or(next, |deadline| deadline.min(next)));
    }
}
