//! FastCGI applications, including the programs of pools: their kept connections, and the requests
//! over them.
//!
//! `connections.rs` decides which request gets which connection; `driver.rs` does the I/O.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sendoff_config::Address;
use sendoff_fastcgi::handover::Sockets;
use sendoff_upstream::error::{UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::StreamedRequest;
use sendoff_upstream::hosts::AttemptGuard;
use sendoff_upstream::inbox::{Event, Inbox};
use sendoff_upstream::queue::QueueLimits;
use sendoff_upstream_worker::claims::Claim;
use sendoff_upstream_worker::region::LinkRegion;
use tokio::task::AbortHandle;

use super::connections::{Connections, Grant};
use super::driver::Driver;
pub use super::driver::SentAlong;
use super::framed::{self, Framed};
use super::peer::{Connection, KeptConnection, Peer};
use super::program::Program;
use super::shared::{Reuse, SharedRequest, Sharing};

#[cfg(test)]
mod tests;

/// The pause after a new connection until the next one may be tried although no process has taken
/// the first. Over UNIX sockets the kernel shows that a process has begun to read, over TCP only an
/// answer does.
const PATIENCE_UNIX: Duration = Duration::from_secs(1);
const PATIENCE_TCP: Duration = Duration::from_millis(1);

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Application {
    peer: Arc<Peer>,
    connections: Arc<Connections<KeptConnection>>,
    /// Requests that it was given.
    requests: AtomicU64,
    sharing: Arc<Sharing>,
}

/// The load of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationLoad {
    /// Requests that wait for a process.
    pub waiting: usize,
    /// Requests that a process works on.
    pub busy: usize,
    /// Requests that it was given since the front has known it.
    pub requests: u64,
}

impl Application {
    /// An application at `address` with the usual limits. `timeout` is the longest silence during a
    /// request.
    #[must_use]
    pub fn new(address: Address, timeout: Duration) -> Arc<Self> {
        Self::with_limits(address, timeout, QueueLimits::default())
    }

    /// As [`new`](Self::new), with `limits` for requests that wait for a connection.
    #[must_use]
    pub fn with_limits(address: Address, timeout: Duration, limits: QueueLimits) -> Arc<Self> {
        Self::with_peer(Peer::new(address, None, timeout), limits)
    }

    /// The program of a pool. `timeout` is the longest silence during a request; `limits` apply to
    /// requests that wait for a connection.
    #[must_use]
    pub fn of_pool(program: Arc<Program>, timeout: Duration, limits: QueueLimits) -> Arc<Self> {
        let address = Address::Pool(program.name().to_owned());
        Self::with_peer(Peer::new(address, Some(program), timeout), limits)
    }

    fn with_peer(peer: Peer, limits: QueueLimits) -> Arc<Self> {
        let patience = if peer.is_local() { PATIENCE_UNIX } else { PATIENCE_TCP };
        let (peer, connections) = (Arc::new(peer), Connections::new(patience, limits));
        let sharing = Sharing::new(&peer, &connections, limits);
        Arc::new(Self { peer, connections, requests: AtomicU64::new(0), sharing })
    }

    /// Limits its connections; `None`: the limit is the number that the application reports, or is
    /// found by trial.
    pub fn limit(&self, limit: Option<NonZeroUsize>) {
        if limit.is_some() {
            self.sharing.skip_asking();
        }
        self.connections.limit(limit);
    }

    /// Connects to it, to find out if it is up.
    ///
    /// # Errors
    /// It cannot be reached.
    pub(super) async fn probe(&self) -> Result<(), UpstreamError> {
        self.peer.reach().await.map(drop)
    }

    /// Closes connections that have been idle for too long, or on which the application has sent
    /// something between requests. While descriptors `are_scarce`, closes all idle ones.
    pub(super) fn close_old(&self, are_scarce: bool) {
        self.connections.close_old(|kept| !are_scarce && kept.parked.is_quiet());
    }

    /// True if descriptors can be passed to it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.peer.is_local()
    }

    /// Its current load.
    #[must_use]
    pub fn load(&self) -> ApplicationLoad {
        let (waiting, connections) = self.connections.load();
        let (shared, sharing, admitted_later) = self.sharing.load();
        let busy = connections.saturating_sub(shared) + sharing;
        let waiting = waiting + admitted_later;
        ApplicationLoad { waiting, busy, requests: self.requests.load(Ordering::Relaxed) }
    }

    /// True if `region` should be announced to it.
    #[must_use]
    pub fn knows_region(&self) -> bool {
        self.peer.hints().region
    }

    /// The kinds of client sockets that it may be lent.
    #[must_use]
    pub fn knows_direct(&self) -> Sockets {
        self.peer.hints().direct
    }

    /// True if a connection for its answer should be sent along with a request that asks for another
    /// protocol: its last response announced that it knows `TUNNEL`, or it has sent none so far.
    #[must_use]
    pub fn may_know_tunnel(&self) -> bool {
        self.is_local() && self.peer.last_hints().is_none_or(|hints| hints.tunnel)
    }

    /// The longest silence during a request.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.peer.timeout
    }

    /// True if the channel should be announced to it. An application that does not know the channel
    /// would pass the parameter on to its scripts.
    #[must_use]
    pub fn knows_channel(&self) -> bool {
        self.peer.knows_channel()
    }

    /// Notes if its last response announced that it knows the channel. Over TCP this is always
    /// false, because no descriptors can be passed.
    pub fn says_it_knows_channel(&self, knows: bool) {
        self.peer.note_channel(knows);
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.peer.address
    }

    /// Gives the application a request: over a shared connection if the application multiplexes,
    /// otherwise over an exclusive one.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn begin(
        self: &Arc<Self>,
        request: Rc<StreamedRequest>,
        reuse: Reuse,
        along: SentAlong<'_>,
        label: Rc<str>,
    ) -> Result<FastcgiExchange, UpstreamError> {
        let needs_own = reuse == Reuse::Own || matches!(along, SentAlong::Tunnel(_));
        let exchange = loop {
            if !needs_own
                && self.sharing.is_on()
                && let Some((begun, seat)) = self.sharing.begin(&request, reuse, &label).await?
            {
                break FastcgiExchange {
                    application: Arc::clone(self),
                    inbox: begun.inbox,
                    may_be_silent: begun.may_be_silent,
                    framed: RefCell::default(),
                    knows_direct: false,
                    carrier: RequestCarrier::Shared(seat),
                    attempt: None,
                };
            }
            let Some(connection) = self.connection(reuse, needs_own).await? else { continue };
            break self.drive(connection, request, along, label);
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(exchange)
    }

    /// Gives the application a request on an exclusive connection.
    fn drive(
        self: &Arc<Self>,
        connection: Connection,
        request: Rc<StreamedRequest>,
        along: SentAlong<'_>,
        label: Rc<str>,
    ) -> FastcgiExchange {
        let driver = Driver::new(Arc::clone(&self.peer), connection, request, along, label);
        let (inbox, may_be_silent) = (Rc::clone(&driver.inbox), Rc::clone(&driver.may_be_silent));
        let knows_direct = driver.knows_direct;
        let carrier = RequestCarrier::Own(tokio::task::spawn_local(driver.run()).abort_handle());
        let application = Arc::clone(self);
        let (framed, attempt) = (RefCell::default(), None);
        FastcgiExchange {
            application,
            inbox,
            may_be_silent,
            framed,
            knows_direct,
            carrier,
            attempt,
        }
    }

    /// A connection for one request; `None`: the request is to share a connection.
    async fn connection(
        self: &Arc<Self>,
        reuse: Reuse,
        needs_own: bool,
    ) -> Result<Option<Connection>, UpstreamError> {
        loop {
            self.sharing.make_room();
            match self.connections.acquire(reuse == Reuse::Any).await? {
                Grant::Kept(permit, KeptConnection { parked, region, last }) => {
                    if parked.is_quiet()
                        && let Ok(stream) = parked.resume()
                    {
                        return Ok(Some(Connection { permit, stream, region, last: Some(last) }));
                    }
                }
                Grant::New(permit) => {
                    self.sharing.ask();
                    let connected = self.peer.reach().await;
                    if connected.as_ref().is_err_and(is_full) {
                        permit.back_off();
                    }
                    let (stream, region) = (connected?, LinkRegion::default());
                    return Ok(Some(Connection { permit, stream, region, last: None }));
                }
                Grant::Shared if !needs_own => return Ok(None),
                Grant::Shared => {}
            }
        }
    }
}

/// True if the application's backlog is full.
fn is_full(error: &UpstreamError) -> bool {
    error.kind() == UpstreamErrorKind::Overloaded
}

/// One request to an application and its response. Dropping it before the last event closes the
/// connection; on a shared connection, the application is told to abort the request.
#[derive(Debug)]
pub struct FastcgiExchange {
    application: Arc<Application>,
    inbox: Rc<Inbox>,
    /// The rest of the body comes on a link.
    may_be_silent: Rc<Cell<bool>>,
    framed: RefCell<Option<Framed>>,
    knows_direct: bool,
    carrier: RequestCarrier,
    /// Counts the exchange as work of its host until it ends.
    attempt: Option<AttemptGuard<Application>>,
}

/// The carrier of a request and its answer.
#[derive(Debug)]
enum RequestCarrier {
    /// The task of an exclusive connection.
    Own(AbortHandle),
    Shared(SharedRequest),
}

impl FastcgiExchange {
    /// True if other requests share its connection, so that an exclusive one may be better for it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.carrier, RequestCarrier::Shared(_))
    }

    /// The body is framed and may move to a link. `rest` is the part of it that came with the
    /// header block.
    pub fn expect_frames(&mut self, claim: Rc<Claim>, rest: Bytes) {
        *self.framed.get_mut() = Some(Framed::new(claim, rest));
    }

    /// The application as named in logs; for an upstream, with the host.
    pub fn who(&self) -> String {
        let address = self.application.address();
        let upstream = self.attempt.as_ref().and_then(AttemptGuard::upstream);
        upstream.map_or_else(|| address.to_string(), |name| format!("upstream:{name}, {address}"))
    }

    /// Counts the exchange as work of its host until it ends.
    pub fn hold(&mut self, attempt: AttemptGuard<Application>) {
        self.attempt = Some(attempt);
    }

    /// The attempt that it is a part of.
    #[must_use]
    pub fn attempt(&self) -> Option<&AttemptGuard<Application>> {
        self.attempt.as_ref()
    }

    /// The next event, if it is available.
    pub fn try_next(&self) -> Option<Event> {
        let mut framed = self.framed.borrow_mut();
        let Some(framed) = &mut *framed else { return self.inbox.take() };
        let event = framed::try_next(framed, &self.inbox);
        self.may_be_silent.set(framed.has_moved());
        event
    }

    /// Waits for the next event.
    pub async fn next(&self) -> Event {
        let silence = self.application.peer.timeout;
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            let source = |framed: &Framed| (framed.source(&self.inbox), framed.patience(silence));
            let Some((source, patience)) = self.framed.borrow().as_ref().map(source) else {
                return self.inbox.next().await;
            };
            let event = framed::next(&source, patience).await;
            let mut framed = self.framed.borrow_mut();
            let Some(framed) = &mut *framed else { continue };
            let meaning = match (event, patience) {
                (Some(event), _) => framed.take(event),
                (None, Some(patience)) => framed.too_long(patience, silence),
                (None, None) => None,
            };
            if let Some(event) = meaning {
                return event;
            }
        }
    }

    /// The application that answers.
    #[must_use]
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// True if the application could have been lent the client's socket. It never can on a new
    /// connection.
    #[must_use]
    pub fn knows_direct(&self) -> bool {
        self.knows_direct
    }

    /// True if the body, and files with it, may come on a link.
    #[must_use]
    pub fn is_framed(&self) -> bool {
        self.framed.borrow().is_some()
    }
}

impl Drop for FastcgiExchange {
    fn drop(&mut self) {
        match &self.carrier {
            // The inbox may have ended because the disk failed.
            RequestCarrier::Shared(seat) => seat.give_up(),
            RequestCarrier::Own(task) if !self.inbox.has_ended() => task.abort(),
            RequestCarrier::Own(_) => {}
        }
    }
}
