//! FastCGI applications, the programs of pools among them: connections that are kept, and requests over them.
//!
//! Which request gets which connection: `connections.rs`. What goes over it: `driver.rs`.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sendoff_config::Address;
use sendoff_fastcgi::handover::Sockets;
use sendoff_upstream::cgi::StreamedRequest;
use sendoff_upstream::error::{UpstreamError, UpstreamErrorKind};
use sendoff_upstream::hosts::Turn;
use sendoff_upstream::inbox::{Event, Inbox};
use sendoff_upstream::queue::QueueLimits;
use sendoff_upstream_worker::claims::Claim;
use sendoff_upstream_worker::region::LinkRegion;
use tokio::task::AbortHandle;

use super::connections::{Connections, Grant};
use super::driver::Driver;
use super::framed::{self, Framed};
use super::peer::{Connection, Kept, Peer};
use super::program::Program;
use super::shared::{Over, Seat, Sharing};

#[cfg(test)]
mod tests;

/// The pause after a new connection until another one may be tried although no process has taken the first. Over UNIX
/// sockets the kernel says whether a process has begun to read, over TCP only an answer does.
const PATIENCE_UNIX: Duration = Duration::from_secs(1);
const PATIENCE_TCP: Duration = Duration::from_millis(1);

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Application {
    peer: Arc<Peer>,
    connections: Arc<Connections<Kept>>,
    /// Requests that it was given.
    requests: AtomicU64,
    sharing: Arc<Sharing>,
}

/// What an application has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplicationLoad {
    /// Requests that wait for a process.
    pub waiting: usize,
    /// Requests that a process has.
    pub busy: usize,
    /// Requests that it was given since the front knows it.
    pub requests: u64,
}

impl Application {
    /// An application at `address` that may be silent for `timeout` while it has a request, with the usual limits.
    #[must_use]
    pub fn new(address: Address, timeout: Duration) -> Arc<Self> {
        Self::with_limits(address, timeout, QueueLimits::default())
    }

    /// The same; `limits` are those of requests that wait for a connection.
    #[must_use]
    pub fn with_limits(address: Address, timeout: Duration, limits: QueueLimits) -> Arc<Self> {
        Self::with_peer(Peer::new(address, None, timeout), limits)
    }

    /// The program of a pool, which may be silent for `timeout` while it has a request; `limits` are those of requests that wait for a
    /// connection.
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

    /// It gets no more connections than this at a time; `None`: as many as it says, or is found to take.
    pub fn limit(&self, limit: Option<NonZeroUsize>) {
        if limit.is_some() {
            self.sharing.is_configured();
        }
        self.connections.limit(limit);
    }

    /// Whether it can be connected to.
    ///
    /// # Errors
    /// Why not.
    pub(super) async fn probe(&self) -> Result<(), UpstreamError> {
        self.peer.reach().await.map(drop)
    }

    /// Closes connections that have been idle for too long, or on which the application says something between requests; while
    /// descriptors `are_scarce`, all idle ones.
    pub(super) fn close_old(&self, are_scarce: bool) {
        self.connections.close_old(|kept| !are_scarce && kept.parked.is_quiet());
    }

    /// Whether it is the program of a pool: nothing but a request ends its processes at work, apart from the system.
    pub fn is_program(&self) -> bool {
        self.peer.program.is_some()
    }

    /// Connections that it has closed when it should not have.
    #[must_use]
    pub fn connections_lost(&self) -> u64 {
        self.peer.lost.load(Ordering::Relaxed)
    }

    /// Whether descriptors can pass to it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.peer.is_local()
    }

    /// What it has to do.
    #[must_use]
    pub fn load(&self) -> ApplicationLoad {
        let (waiting, connections) = self.connections.load();
        let (shared, sharing, admitted_later) = self.sharing.load();
        let busy = connections.saturating_sub(shared) + sharing;
        let waiting = waiting + admitted_later;
        ApplicationLoad { waiting, busy, requests: self.requests.load(Ordering::Relaxed) }
    }

    /// Whether `region` should be announced to it.
    #[must_use]
    pub fn knows_region(&self) -> bool {
        self.peer.hints().region
    }

    /// The clients' sockets that it may be lent.
    #[must_use]
    pub fn knows_direct(&self) -> Sockets {
        self.peer.hints().direct
    }

    /// Whether the channel should be announced to it. Others would show the parameter to their scripts.
    #[must_use]
    pub fn knows_channel(&self) -> bool {
        self.peer.knows_channel()
    }

    /// Remembers whether it says so in its responses. Over TCP no descriptors pass, whatever it says.
    pub fn says_it_knows_channel(&self, knows: bool) {
        self.peer.note_channel(knows);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.peer.address
    }

    /// Gives the application a request: over a shared connection if the application multiplexes, otherwise over an exclusive one.
    /// The socket of its `client` goes along if the request lends it and the application at the other end of a kept connection knows what
    /// to do with it.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn begin(
        self: &Arc<Self>,
        request: Rc<StreamedRequest>,
        over: Over,
        client: Option<BorrowedFd<'_>>,
        label: Rc<str>,
    ) -> Result<FastcgiExchange, UpstreamError> {
        let exchange = loop {
            if over != Over::Own
                && self.sharing.is_on()
                && let Some((begun, seat)) = self.sharing.begin(&request, over, &label).await?
            {
                break FastcgiExchange {
                    application: Arc::clone(self),
                    inbox: begun.inbox,
                    may_be_silent: begun.may_be_silent,
                    framed: RefCell::default(),
                    knows_direct: false,
                    carrier: Carrier::Shared(seat),
                    turn: None,
                };
            }
            let Some(connection) = self.connection(over).await? else { continue };
            break self.drive(connection, request, client, label);
        };
        self.requests.fetch_add(1, Ordering::Relaxed);
        Ok(exchange)
    }

    /// Gives the application a request on a connection that it has alone.
    fn drive(
        self: &Arc<Self>,
        connection: Connection,
        request: Rc<StreamedRequest>,
        client: Option<BorrowedFd<'_>>,
        label: Rc<str>,
    ) -> FastcgiExchange {
        let driver = Driver::new(Arc::clone(&self.peer), connection, request, client, label);
        let (inbox, may_be_silent) = (Rc::clone(&driver.inbox), Rc::clone(&driver.may_be_silent));
        let knows_direct = driver.knows_direct;
        let carrier = Carrier::Own(tokio::task::spawn_local(driver.run()).abort_handle());
        let application = Arc::clone(self);
        let (framed, turn) = (RefCell::default(), None);
        FastcgiExchange { application, inbox, may_be_silent, framed, knows_direct, carrier, turn }
    }

    /// A connection for one request; `None`: it is to share one.
    async fn connection(self: &Arc<Self>, over: Over) -> Result<Option<Connection>, UpstreamError> {
        loop {
            self.sharing.make_room();
            match self.connections.acquire(over == Over::Any).await? {
                Grant::Kept(place, Kept { parked, region, last }) => {
                    if parked.is_quiet()
                        && let Ok(stream) = parked.resume()
                    {
                        return Ok(Some(Connection { place, stream, region, last: Some(last) }));
                    }
                    self.peer.lost.fetch_add(1, Ordering::Relaxed);
                }
                Grant::New(place) => {
                    self.sharing.ask();
                    let connected = self.peer.reach().await;
                    if connected.as_ref().is_err_and(is_full) {
                        place.back_off();
                    }
                    let (stream, region) = (connected?, LinkRegion::default());
                    return Ok(Some(Connection { place, stream, region, last: None }));
                }
                Grant::Shared if over != Over::Own => return Ok(None),
                Grant::Shared => {}
            }
        }
    }
}

/// Whether as many connections wait already as the application lets wait.
fn is_full(error: &UpstreamError) -> bool {
    error.kind() == UpstreamErrorKind::Overloaded
}

/// One request to an application and its response. Dropped before the last event, it closes the connection, or has the application abort
/// the request if others share it.
#[derive(Debug)]
pub struct FastcgiExchange {
    application: Arc<Application>,
    inbox: Rc<Inbox>,
    /// The rest of the body comes elsewhere.
    may_be_silent: Rc<Cell<bool>>,
    framed: RefCell<Option<Framed>>,
    knows_direct: bool,
    carrier: Carrier,
    /// Until the exchange has ended, the host counts as busy with it.
    turn: Option<Turn<Application>>,
}

/// What carries a request and its answer.
#[derive(Debug)]
enum Carrier {
    /// A connection that it has alone, by this task.
    Own(AbortHandle),
    Shared(Seat),
}

impl FastcgiExchange {
    /// Whether other requests share its connection, so that one of its own may be better for it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.carrier, Carrier::Shared(_))
    }

    /// The body is framed and may move to a link; `rest` is what of it came with the header block.
    pub fn expect_frames(&mut self, claim: Rc<Claim>, rest: Bytes) {
        *self.framed.get_mut() = Some(Framed::new(claim, rest));
    }

    /// The application; of an upstream, which of its hosts.
    pub fn who(&self) -> String {
        let address = self.application.address();
        let upstream = self.turn.as_ref().and_then(Turn::upstream);
        upstream.map_or_else(|| address.to_string(), |name| format!("upstream:{name}, {address}"))
    }

    /// The host has this exchange until its end.
    pub fn hold(&mut self, turn: Turn<Application>) {
        self.turn = Some(turn);
    }

    /// The next event, if it is there already.
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

    /// Whether it could have been lent the client's socket: on a new connection, none is.
    #[must_use]
    pub fn knows_direct(&self) -> bool {
        self.knows_direct
    }

    /// Whether the body may move to a link, and files with it.
    #[must_use]
    pub fn is_framed(&self) -> bool {
        self.framed.borrow().is_some()
    }
}

impl Drop for FastcgiExchange {
    fn drop(&mut self) {
        match &self.carrier {
            // The inbox may have ended by a failure of the disk.
            Carrier::Shared(seat) => seat.give_up(),
            Carrier::Own(task) if !self.inbox.has_ended() => task.abort(),
            Carrier::Own(_) => {}
        }
    }
}
