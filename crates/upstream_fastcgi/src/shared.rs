//! Applications that take several requests on one connection (`FCGI_MPXS_CONNS`, FastCGI 1.0 §4.1),
//! and the assignment of requests to shared connections.
//!
//! Each event loop has a few connections to such an application. A request gets an idle one,
//! otherwise a new one up to [`FEW`], otherwise it shares the one with the fewest requests.
//!
//! FastCGI has no flow control per request, so a request can delay those behind it (head-of-line
//! blocking): Go's `net/http/fcgi` stops reading a connection until the handler has read the last
//! piece of a body, and a slow client delays all responses of its connection. A new request avoids
//! such a blocked connection if it can have another one; up to [`MANY`] further connections are
//! made for this.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;

use sendoff_upstream::error::{UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::StreamedRequest;
use sendoff_upstream::queue::QueueLimits;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::connections::{ConnectionPermit, Connections, Grant};
use super::facts::ApplicationFacts;
use super::peer::{KeptConnection, Peer};
use super::stream::Stream;
use super::values;
use connection::{Carrier, CloseReason, SharedConnection};
use requests::{InFlightGuard, RequestHandles, RequestKey};

mod connection;
mod requests;

/// Connections of one event loop without a request that may delay others.
const FEW: usize = 4;

/// The most further connections of one event loop.
const MANY: usize = 16;

/// The connections that a request may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// Any connection: the request may be sent again if the application has just closed the
    /// connection.
    Any,
    /// No idle connection, because the application may be closing it.
    Busy,
    /// A new one, exclusive to the request.
    Own,
}

/// The shared connections to one application.
#[derive(Debug)]
pub(super) struct Sharing {
    /// The number of the application.
    number: u64,
    peer: Arc<Peer>,
    known: Arc<ApplicationFacts>,
    connections: Arc<Connections<KeptConnection>>,
    limits: QueueLimits,
    /// Shared connections of all event loops.
    open: Arc<AtomicUsize>,
    /// Requests in flight on them.
    busy: Arc<AtomicUsize>,
    /// Requests that wait for a permit, or for a connection that is being made.
    waiting: AtomicUsize,
}

thread_local! {
    /// The shared connections of this event loop, by the number of the application.
    static HERE: RefCell<HashMap<u64, Rc<Here>>> = RefCell::default();
}

/// The shared connections of one event loop to one application.
#[derive(Debug, Default)]
struct Here {
    connections: RefCell<Vec<Rc<SharedConnection>>>,
    /// The number of connections that are being made.
    connecting: Cell<usize>,
    /// Notified when a connection was made or has failed.
    changed: Notify,
    /// The number of connections that could not be made, and the last error.
    failures: Cell<u64>,
    failure: RefCell<Option<UpstreamError>>,
}

/// A request on a shared connection.
#[derive(Debug)]
pub(super) struct SharedRequest {
    connection: Rc<SharedConnection>,
    key: RequestKey,
}

impl SharedRequest {
    /// Gives up the request, because its client has left.
    pub(super) fn give_up(&self) {
        self.connection.give_up(self.key);
    }
}

/// The connection for a request.
enum ConnectionChoice {
    Shared(Rc<SharedConnection>),
    /// A new connection, with permission to make it or without: then it waits for permission.
    New(Option<ConnectionPermit<KeptConnection>>),
    /// A connection that is being made: the request waits for it.
    Wait,
}

/// A connection that is being made.
struct Connecting(Rc<Here>);

impl Connecting {
    fn new(here: &Rc<Here>) -> Self {
        here.connecting.set(here.connecting.get() + 1);
        Self(Rc::clone(here))
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.connecting.set(self.0.connecting.get() - 1);
        self.0.changed.notify_waiters();
    }
}

impl Sharing {
    pub(super) fn new(
        peer: &Arc<Peer>,
        connections: &Arc<Connections<KeptConnection>>,
        limits: QueueLimits,
    ) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            peer: Arc::clone(peer),
            known: Arc::default(),
            connections: Arc::clone(connections),
            limits,
            open: Arc::default(),
            busy: Arc::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// True if requests may share connections.
    pub(super) fn is_on(&self) -> bool {
        self.known.multiplexes()
    }

    /// Prevents the question for the application's values: the configuration has the number of
    /// connections, and each gets one request at a time.
    pub(super) fn skip_asking(&self) {
        self.known.skip_asking();
    }

    /// The numbers of shared connections, of requests on them, and of waiting requests.
    pub(super) fn load(&self) -> (usize, usize, usize) {
        let [open, busy, waiting] =
            [&*self.open, &*self.busy, &self.waiting].map(|number| number.load(Ordering::Relaxed));
        (open, busy, waiting)
    }

    /// Asks the application for its values, if it is time to and a connection is in use.
    pub(super) fn ask(self: &Arc<Self>) {
        let (_, busy) = self.connections.load();
        if busy == 0 || !self.known.begin_asking() {
            return;
        }
        let sharing = Arc::clone(self);
        tokio::task::spawn_local(async move {
            let Ok(values) = values::ask(&sharing.peer).await else {
                return sharing.known.note_no_answer();
            };
            sharing.connections.limit(values.connections);
            sharing.known.note_answer(values);
            if values.multiplexes {
                sharing.connections.dismiss();
            }
        });
    }

    /// Gives the application a request on a shared connection. `None`: the application no longer
    /// shares connections.
    pub(super) async fn begin(
        self: &Arc<Self>,
        request: &Rc<StreamedRequest>,
        reuse: Reuse,
        label: &Rc<str>,
    ) -> Result<Option<(RequestHandles, SharedRequest)>, UpstreamError> {
        let permit = self.permit().await?;
        let here = HERE.with_borrow_mut(|all| Rc::clone(all.entry(self.number).or_default()));
        let failures = here.failures.get();
        let (mut failure, mut deadline) = (None, None);
        let connection = loop {
            if !self.is_on() {
                return Ok(None);
            }
            let choice = self.choose(&here, request.has_body(), reuse, failure.is_none());
            match (choice, failure.take()) {
                (ConnectionChoice::Shared(connection), _) => break connection,
                (_, Some(failure)) => return Err(failure),
                (ConnectionChoice::New(connection_permit), None) => {
                    match self.make(&here, connection_permit).await {
                        Ok(Some(connection)) => break connection,
                        Ok(None) => {}
                        // The request may still share an existing connection.
                        Err(error) => failure = Some(error),
                    }
                }
                (ConnectionChoice::Wait, None) => {
                    // A request with a permit has already waited in this queue.
                    let _waits = if permit.is_none() {
                        Some(self.limits.enter(&self.waiting)?)
                    } else {
                        None
                    };
                    let end = *deadline.get_or_insert_with(|| Instant::now() + self.limits.wait);
                    let changed = timeout_at(end, here.changed.notified()).await;
                    changed.map_err(|_| self.connections.timed_out())?;
                    // All waiting requests get the error: another attempt would fail in the same
                    // way.
                    if here.failures.get() != failures
                        && here.connecting.get() == 0
                        && here.connections.borrow().is_empty()
                        && let Some(failure) = &*here.failure.borrow()
                    {
                        return Err(failure.clone());
                    }
                }
            }
        };
        let admitted = InFlightGuard::new(&self.busy, permit);
        let begun = connection.begin(Rc::clone(request), Rc::clone(label), admitted);
        Ok(begun.map(|begun| {
            let key = begun.key;
            (begun, SharedRequest { connection, key })
        }))
    }

    /// Waits for permission to give the application one more request; `None`: no limit is known.
    async fn permit(&self) -> Result<Option<OwnedSemaphorePermit>, UpstreamError> {
        let Some(permits) = self.known.permits() else { return Ok(None) };
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return Ok(Some(permit));
        }
        let _waits = self.limits.enter(&self.waiting)?;
        let wait = timeout(self.limits.wait, Semaphore::acquire_owned(permits)).await;
        // The semaphore is never closed.
        wait.map(Result::ok).map_err(|_| self.connections.timed_out())
    }

    fn choose(
        &self,
        here: &Rc<Here>,
        has_body: bool,
        reuse: Reuse,
        may_make: bool,
    ) -> ConnectionChoice {
        if self.connections.are_wanted() {
            here.connections.borrow().iter().for_each(|connection| connection.make_way());
        }
        let mut connections = here.connections.borrow_mut();
        connections.retain(|connection| connection.takes_requests());
        if let Some(idle) = connections.iter().rposition(|connection| connection.is_idle()) {
            if reuse == Reuse::Any {
                return ConnectionChoice::Shared(Rc::clone(&connections[idle]));
            }
            if may_make {
                connections.remove(idle).retire();
            }
        }
        let connecting = here.connecting.get();
        let busy = || connections.iter().filter(|connection| !connection.is_idle());
        let is_clean = |connection: &&Rc<SharedConnection>| !connection.is_blocked();
        let clean = busy().filter(is_clean).min_by_key(|connection| connection.live());
        let clean_ones = busy().filter(is_clean).count() + connecting;
        let may_have_more =
            connections.len() + connecting < FEW + MANY && (has_body || clean_ones < FEW);
        if may_make
            && may_have_more
            && let Some(connection_permit) = self.connections.another()
        {
            return ConnectionChoice::New(Some(connection_permit));
        }
        let blocked = || {
            busy()
                .filter(|connection| connection.is_blocked())
                .min_by_key(|connection| connection.live())
        };
        // A request without a body prefers a connection that is being made to a blocked one.
        let shared = if has_body { blocked().or(clean) } else { clean };
        let may_wait = may_make && connecting > 0;
        let shared = shared.or_else(|| if may_wait { None } else { blocked() });
        match shared {
            Some(connection) => ConnectionChoice::Shared(Rc::clone(connection)),
            None if connecting > 0 => ConnectionChoice::Wait,
            None => ConnectionChoice::New(None),
        }
    }

    /// Makes a connection. `None`: connections are no longer shared.
    async fn make(
        self: &Arc<Self>,
        here: &Rc<Here>,
        connection_permit: Option<ConnectionPermit<KeptConnection>>,
    ) -> Result<Option<Rc<SharedConnection>>, UpstreamError> {
        let connecting = Connecting::new(here);
        let is_extra = !here.connections.borrow().is_empty();
        let (mut connection_permit, stream) = match self.connect(connection_permit, is_extra).await
        {
            Ok(Some(made)) => made,
            Ok(None) => return Ok(None),
            Err(error) => {
                here.failures.set(here.failures.get() + 1);
                *here.failure.borrow_mut() = Some(error.clone());
                return Err(error);
            }
        };
        // A shared connection occupies no process that could be busy.
        connection_permit.note_taken();
        self.ask();
        let connection = SharedConnection::new();
        here.connections.borrow_mut().push(Rc::clone(&connection));
        drop(connecting);
        self.open.fetch_add(1, Ordering::Relaxed);
        let carrier = Carrier {
            connection: Rc::clone(&connection),
            peer: Arc::clone(&self.peer),
            known: Arc::clone(&self.known),
            connections: Arc::clone(&self.connections),
            stream,
            _permit: connection_permit,
        };
        tokio::task::spawn_local(Arc::clone(self).carry(carrier, Rc::clone(here)));
        Ok(Some(connection))
    }

    /// Connects. After an extra connection has failed, further ones are delayed: requests share the
    /// open connections.
    async fn connect(
        &self,
        connection_permit: Option<ConnectionPermit<KeptConnection>>,
        is_extra: bool,
    ) -> Result<Option<(ConnectionPermit<KeptConnection>, Stream)>, UpstreamError> {
        let connection_permit = match connection_permit {
            Some(connection_permit) => connection_permit,
            None => match self.turn().await? {
                Grant::New(connection_permit) | Grant::Kept(connection_permit, _) => {
                    connection_permit
                }
                Grant::Shared => return Ok(None),
            },
        };
        match self.peer.reach().await {
            Ok(stream) => Ok(Some((connection_permit, stream))),
            Err(error) => {
                if is_extra || error.kind() == UpstreamErrorKind::Overloaded {
                    connection_permit.back_off();
                }
                if is_extra {
                    let address = &self.peer.address;
                    tracing::info!(%address, "requests share fewer connections: {error}");
                }
                Err(error)
            }
        }
    }

    /// Waits for permission to make a connection.
    async fn turn(&self) -> Result<Grant<KeptConnection>, UpstreamError> {
        let mut turn = pin!(self.connections.acquire(false));
        let granted = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await;
        if let Poll::Ready(granted) = granted {
            return granted;
        }
        // Tells the other event loops, now that the request waits.
        self.known.wanted.notify_waiters();
        turn.await
    }

    async fn carry(self: Arc<Self>, carrier: Carrier, here: Rc<Here>) {
        let connection = Rc::clone(&carrier.connection);
        let ended = carrier.run().await;
        self.open.fetch_sub(1, Ordering::Relaxed);
        here.remove(&connection, self.number);
        if let CloseReason::Lost(why) = ended {
            self.known.note_lost();
            if why.kind() == UpstreamErrorKind::Broken {
                let address = &self.peer.address;
                tracing::error!(%address, "broken FastCGI application: {why}");
            }
        }
    }

    /// Retires the shared connections of this event loop, so that the application has room for
    /// another connection.
    pub(super) fn make_room(&self) {
        if self.open.load(Ordering::Relaxed) == 0 {
            return;
        }
        let here = HERE.with_borrow(|all| all.get(&self.number).cloned());
        if let Some(here) = here {
            here.connections.borrow_mut().drain(..).for_each(|connection| connection.retire());
        }
    }
}

impl Here {
    fn remove(&self, connection: &Rc<SharedConnection>, number: u64) {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|other| !Rc::ptr_eq(other, connection));
        if connections.is_empty() && self.connecting.get() == 0 {
            HERE.with_borrow_mut(|all| {
                if all.get(&number).is_some_and(|here| std::ptr::eq(&raw const **here, self)) {
                    all.remove(&number);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use sendoff_config::Address;

    use super::super::facts::SharingRefusal;
    use super::super::values::Values;
    use super::*;
    use sendoff_message::request::Body;
    use sendoff_upstream::fastcgi_request::RequestMessageBuilder;

    /// Shared connections, up to `connections`, to an address without a listener. Up to `waiting`
    /// requests may wait.
    fn sharing(connections: usize, waiting: usize) -> (Arc<Sharing>, Rc<Here>) {
        let limits = QueueLimits { requests: waiting, wait: Duration::from_secs(9) };
        let address = Address::Unix("/does/not/exist".into());
        let peer = Arc::new(Peer::new(address, None, Duration::from_secs(9)));
        let sharing = Sharing::new(&peer, &Connections::new(Duration::ZERO, limits), limits);
        let connections = NonZeroUsize::new(connections);
        sharing.connections.limit(connections);
        sharing.known.note_answer(Values { multiplexes: true, connections, requests: None });
        let here = Rc::new(Here::default());
        HERE.with_borrow_mut(|all| all.insert(sharing.number, Rc::clone(&here)));
        (sharing, here)
    }

    #[tokio::test]
    async fn a_request_does_not_wait_after_its_connection_has_failed() {
        let (sharing, here) = sharing(2, 1);
        let _connecting = Connecting::new(&here);
        let body = Body::Memory("x".into());
        let request = Rc::new(RequestMessageBuilder::new().streamed(&body));
        let failed = sharing.begin(&request, Reuse::Any, &Rc::from("POST /")).await.err();
        assert_eq!(
            failed.expect("nothing listens at the address").kind(),
            UpstreamErrorKind::Unreachable
        );
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_connection_up_to_the_limit() {
        let (sharing, here) = sharing(1, 1);
        let _permit = sharing.connections.another().unwrap();
        let _connecting = Connecting::new(&here);
        let request = Rc::new(RequestMessageBuilder::new().streamed(&Body::default()));
        let failed = sharing.begin(&request, Reuse::Any, &Rc::from("GET /")).await.err();
        assert_eq!(failed.expect("none is made").kind(), UpstreamErrorKind::WaitTimedOut);
    }

    #[tokio::test]
    async fn requests_beyond_the_queue_do_not_wait_for_a_connection() {
        let (sharing, here) = sharing(1, 1);
        let _permit = sharing.connections.another().unwrap();
        let connecting = Connecting::new(&here);
        let request = Rc::new(RequestMessageBuilder::new().streamed(&Body::default()));
        let label = Rc::from("GET /");
        let begin = || sharing.begin(&request, Reuse::Any, &label);
        let mut first = pin!(begin());
        assert!(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending())).await);
        assert_eq!(sharing.load().2, 1);
        let second = begin().await.err().expect("the queue is full");
        assert_eq!(second.kind(), UpstreamErrorKind::QueueFull);
        sharing.known.note_refusal(SharingRefusal::CannotShare);
        drop(connecting);
        assert!(matches!(first.await, Ok(None)));
        assert_eq!(sharing.load().2, 0);
    }
}
