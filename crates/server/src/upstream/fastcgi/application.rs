//! FastCGI applications, the programs of pools among them: connections that are kept, and requests over them.
//!
//! Which request gets which connection: `connections.rs`. What goes over it: `driver.rs`.

use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use sendoff_config::Address;
use sendoff_fastcgi::handover::Sockets;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::connections::{Connections, Grant};
use super::driver::Driver;
use super::framed::{self, Framed};
use super::peer::{Connection, Kept, Peer};
use super::program::Program;
use super::stream::Stream;
use super::values::{Asking, max_connections};
use crate::upstream::cgi::StreamedRequest;
use crate::upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use crate::upstream::hosts::Turn;
use crate::upstream::inbox::{Event, Inbox};
use crate::upstream::queue::QueueLimits;
use crate::upstream::worker::claims::Claim;
use crate::upstream::worker::region::LinkRegion;

#[cfg(test)]
mod tests;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// Whether it was asked how many connections it takes.
    asking: Mutex<Asking>,
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
        Arc::new(Self {
            peer: Arc::new(peer),
            connections: Connections::new(patience, limits),
            requests: AtomicU64::new(0),
            asking: Mutex::default(),
        })
    }

    /// It gets no more connections than this at a time; `None`: as many as it says, or is found to take.
    pub(crate) fn limit(&self, limit: Option<NonZeroUsize>) {
        if limit.is_some() {
            *self.asking() = Asking::Asked;
        }
        self.connections.limit(limit);
    }

    fn asking(&self) -> MutexGuard<'_, Asking> {
        // A panic elsewhere leaves it as it was.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks it how many connections it takes, if it is time to and it has one in use.
    fn ask(self: &Arc<Self>) {
        let (_, busy) = self.connections.load();
        if busy == 0 || !self.asking().begin(Instant::now()) {
            return;
        }
        let application = Arc::clone(self);
        tokio::task::spawn_local(async move {
            if let Ok(limit) = max_connections(&application.peer).await {
                application.connections.limit(limit);
                *application.asking() = Asking::Answered(Instant::now());
            }
        });
    }

    /// Whether it can be connected to.
    ///
    /// # Errors
    /// Why not.
    pub(super) async fn probe(&self) -> Result<(), UpstreamError> {
        self.connect().await.map(drop)
    }

    /// Closes connections that have been idle for too long, or on which the application says something between requests; while
    /// descriptors `are_scarce`, all idle ones.
    pub(super) fn close_old(&self, are_scarce: bool) {
        self.connections.close_old(|kept| !are_scarce && kept.parked.is_quiet());
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
        let (waiting, busy) = self.connections.load();
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

    /// Gives the application a request, over a kept connection only if `repeatable`: the request may then be lost with a
    /// connection that closes at this moment, and must be sent again. The socket of its `client` goes along if the request
    /// lends it and the application at the other end of a kept connection knows what to do with it.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn begin(
        self: &Arc<Self>,
        request: Rc<StreamedRequest>,
        repeatable: bool,
        client: Option<BorrowedFd<'_>>,
        label: Rc<str>,
    ) -> Result<FastcgiExchange, UpstreamError> {
        let connection = self.connection(repeatable).await?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let driver = Driver::new(Arc::clone(&self.peer), connection, request, client, label);
        let (inbox, may_be_silent) = (Rc::clone(&driver.inbox), Rc::clone(&driver.may_be_silent));
        let knows_direct = driver.knows_direct;
        let task = tokio::task::spawn_local(driver.run()).abort_handle();
        let application = Arc::clone(self);
        let (framed, turn) = (RefCell::default(), None);
        Ok(FastcgiExchange { application, inbox, may_be_silent, framed, knows_direct, task, turn })
    }

    async fn connection(self: &Arc<Self>, repeatable: bool) -> Result<Connection, UpstreamError> {
        loop {
            match self.connections.acquire(repeatable).await? {
                Grant::Kept(place, Kept { parked, region, last }) => {
                    if parked.is_quiet()
                        && let Ok(stream) = parked.resume()
                    {
                        return Ok(Connection { place, stream, region, last: Some(last) });
                    }
                    self.peer.lost.fetch_add(1, Ordering::Relaxed);
                }
                Grant::New(place) => {
                    self.ask();
                    let connected = self.connect().await;
                    if connected.as_ref().is_err_and(is_full) {
                        place.back_off();
                    }
                    let (stream, region) = (connected?, LinkRegion::default());
                    return Ok(Connection { place, stream, region, last: None });
                }
            }
        }
    }

    async fn connect(&self) -> Result<Stream, UpstreamError> {
        let connected = tokio::select! {
            biased;
            down = self.peer.down() => return Err(down),
            connected = timeout(CONNECT_TIMEOUT, self.peer.connect()) => connected,
        };
        let (kind, why) = match connected {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                (UpstreamErrorKind::Overloaded, "its queue of connections is full".to_owned())
            }
            Ok(Err(error)) => {
                let hint = match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        ": does the application run, and listen there?"
                    }
                    io::ErrorKind::PermissionDenied => {
                        ": may the server's user write to the socket (listen.owner, listen.group)?"
                    }
                    _ => "",
                };
                let why = format!("it cannot be connected to: {error}{hint}");
                (UpstreamErrorKind::Unreachable, why)
            }
            Err(_) => {
                let why = format!("it took no connection for {} s", CONNECT_TIMEOUT.as_secs());
                (UpstreamErrorKind::ConnectTimedOut, why)
            }
        };
        Err(UpstreamError::new(kind, Retry::Safe, why))
    }
}

/// Whether as many connections wait already as the application lets wait.
fn is_full(error: &UpstreamError) -> bool {
    error.kind() == UpstreamErrorKind::Overloaded
}

/// One request to an application and its response. Dropped before the last event, it closes the connection.
#[derive(Debug)]
pub struct FastcgiExchange {
    application: Arc<Application>,
    inbox: Rc<Inbox>,
    /// The rest of the body comes elsewhere.
    may_be_silent: Rc<Cell<bool>>,
    framed: RefCell<Option<Framed>>,
    knows_direct: bool,
    task: AbortHandle,
    /// Until the exchange has ended, the host counts as busy with it.
    turn: Option<Turn<Application>>,
}

impl FastcgiExchange {
    /// The body is framed and may move to a link; `rest` is what of it came with the header block.
    pub fn expect_frames(&mut self, claim: Rc<Claim>, rest: Bytes) {
        *self.framed.get_mut() = Some(Framed::new(claim, rest));
    }

    /// The application; of an upstream, which of its hosts.
    pub(in crate::upstream) fn who(&self) -> String {
        let address = self.application.address();
        let upstream = self.turn.as_ref().and_then(Turn::upstream);
        upstream.map_or_else(|| address.to_string(), |name| format!("upstream:{name}, {address}"))
    }

    /// The host has this exchange until its end.
    pub(crate) fn hold(&mut self, turn: Turn<Application>) {
        self.turn = Some(turn);
    }

    pub(in crate::upstream) fn try_next(&self) -> Option<Event> {
        let mut framed = self.framed.borrow_mut();
        let Some(framed) = &mut *framed else { return self.inbox.take() };
        let event = framed::try_next(framed, &self.inbox);
        self.may_be_silent.set(framed.has_moved());
        event
    }

    pub(in crate::upstream) async fn next(&self) -> Event {
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
        if !self.inbox.has_ended() {
            self.task.abort();
        }
    }
}
