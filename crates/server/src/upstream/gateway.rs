//! FastCGI applications that somebody else has started: connections that are kept, and requests over them.
//!
//! Which request gets which connection: `connections.rs`. What goes over it: `gateway/driver.rs`.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sendoff_config::Address;
use sendoff_fastcgi::handover::Hints;
use tokio::task::AbortHandle;
use tokio::time::timeout;

mod driver;
mod outgoing;

use self::driver::Driver;
use super::cgi::StreamedRequest;
use super::channel::Claim;
use super::connections::{Connections, Grant, Place, WaitError};
use super::framed::{self, Framed};
use super::inbox::{Event, Inbox};
use super::region::LinkRegion;
use super::stream::{Parked, Stream};

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// So long after a new connection another one may be tried although nobody has taken the first. Over UNIX sockets we see
/// whether somebody has, over TCP only that there is an answer.
const PATIENCE_UNIX: Duration = Duration::from_secs(1);
const PATIENCE_TCP: Duration = Duration::from_millis(1);

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Application {
    address: Address,
    timeout: Duration,
    /// Its last answer said that it could put bytes into shared memory.
    knows_region: AtomicBool,
    /// Its last answer said that it could write to the client.
    knows_direct: AtomicBool,
    /// Its last response said that it knows the channel.
    knows_channel: AtomicBool,
    connections: Arc<Connections<Kept>>,
}

/// A kept connection that nobody uses.
#[derive(Debug)]
struct Kept {
    parked: Parked,
    region: LinkRegion,
    last: Last,
}

/// The last exchange on a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    id: u16,
    hints: Hints,
}

/// A connection that an exchange uses.
struct Connection {
    place: Place<Kept>,
    stream: Stream,
    region: LinkRegion,
    /// `None` on a new one.
    last: Option<Last>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// Others were before it.
    Waiting(WaitError),
    /// As many connections wait already as the application lets wait.
    Busy,
    /// Nobody took the connection in time.
    TimedOut,
    /// Nobody is there.
    Failed(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(why) => write!(f, "{why}"),
            Self::Busy => f.write_str("its queue of connections is full"),
            Self::TimedOut => {
                write!(f, "it took no connection for {} s", CONNECT_TIMEOUT.as_secs())
            }
            Self::Failed(error) => write!(f, "it cannot be connected to: {error}"),
        }
    }
}

impl Application {
    /// An application at `address` that may be silent for `timeout` while it has a request.
    #[must_use]
    pub fn new(address: Address, timeout: Duration) -> Arc<Self> {
        let patience = match address {
            Address::Unix(_) => PATIENCE_UNIX,
            Address::Tcp(_) => PATIENCE_TCP,
        };
        Arc::new(Self {
            address,
            timeout,
            knows_region: AtomicBool::new(false),
            knows_direct: AtomicBool::new(false),
            knows_channel: AtomicBool::new(false),
            connections: Connections::new(patience),
        })
    }

    /// Whether `region` should be announced to it.
    #[must_use]
    pub fn knows_region(&self) -> bool {
        self.knows_region.load(Ordering::Relaxed)
    }

    /// Whether it may be lent a client's socket.
    #[must_use]
    pub fn knows_direct(&self) -> bool {
        self.knows_direct.load(Ordering::Relaxed)
    }

    /// Whether the channel should be announced to it. Others would show the parameter to their scripts.
    #[must_use]
    pub fn knows_channel(&self) -> bool {
        self.knows_channel.load(Ordering::Relaxed)
    }

    /// Remembers whether it says so in its responses. Over TCP no descriptors pass, whatever it says.
    pub fn says_it_knows_channel(&self, knows: bool) {
        let knows = knows && matches!(self.address, Address::Unix(_));
        self.knows_channel.store(knows, Ordering::Relaxed);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Gives the application a request, over a kept connection only if `repeatable`: the request may then be lost with a
    /// connection that closes at this moment, and must be sent again. The socket of its `client` goes along if the request
    /// lends it and whoever is at the other end of a kept connection knows what to do with it.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn begin(
        self: &Arc<Self>,
        request: Rc<StreamedRequest>,
        repeatable: bool,
        client: Option<BorrowedFd<'_>>,
        log_name: Rc<str>,
    ) -> Result<Exchange, ConnectError> {
        let connection = self.connection(repeatable).await?;
        let driver = Driver::new(Arc::clone(self), connection, request, client, log_name);
        let (inbox, may_be_silent) = (Rc::clone(&driver.inbox), Rc::clone(&driver.may_be_silent));
        let knows_direct = driver.knows_direct;
        let task = tokio::task::spawn_local(driver.run()).abort_handle();
        let application = Arc::clone(self);
        let framed = RefCell::default();
        Ok(Exchange { application, inbox, may_be_silent, framed, knows_direct, task })
    }

    async fn connection(&self, repeatable: bool) -> Result<Connection, ConnectError> {
        loop {
            match self.connections.acquire(repeatable).await.map_err(ConnectError::Waiting)? {
                Grant::Kept(place, Kept { parked, region, last }) => {
                    if parked.is_quiet()
                        && let Ok(stream) = parked.resume()
                    {
                        return Ok(Connection { place, stream, region, last: Some(last) });
                    }
                }
                Grant::New(place) => {
                    let connected = self.connect().await;
                    if matches!(connected, Err(ConnectError::Busy)) {
                        place.back_off();
                    }
                    let (stream, region) = (connected?, LinkRegion::default());
                    return Ok(Connection { place, stream, region, last: None });
                }
            }
        }
    }

    async fn connect(&self) -> Result<Stream, ConnectError> {
        match timeout(CONNECT_TIMEOUT, Stream::connect(&self.address)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(ConnectError::Busy),
            Ok(Err(error)) => Err(ConnectError::Failed(error)),
            Err(_) => Err(ConnectError::TimedOut),
        }
    }
}

/// Closes connections that have been idle for too long, for ever.
pub async fn sweep(applications: Arc<[Arc<Application>]>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        applications.iter().for_each(|application| {
            application.connections.close_old(|kept| kept.parked.is_quiet());
        });
    }
}

/// One request and its answer. Dropped before the last event, it closes the connection.
#[derive(Debug)]
pub struct Exchange {
    application: Arc<Application>,
    inbox: Rc<Inbox>,
    /// The rest of the body comes elsewhere.
    may_be_silent: Rc<Cell<bool>>,
    framed: RefCell<Option<Framed>>,
    knows_direct: bool,
    task: AbortHandle,
}

impl Exchange {
    /// The body is framed and may move to a link; `rest` is what of it came with the header block.
    pub fn expect_frames(&mut self, claim: Rc<Claim>, rest: Bytes) {
        *self.framed.get_mut() = Some(Framed::new(claim, rest));
    }

    pub(super) fn try_next(&self) -> Option<Event> {
        let mut framed = self.framed.borrow_mut();
        let Some(framed) = &mut *framed else { return self.inbox.take() };
        let event = framed::try_next(framed, &self.inbox);
        self.may_be_silent.set(framed.has_moved());
        event
    }

    pub(super) async fn next(&self) -> Event {
        let silence = self.application.timeout;
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

    /// Who answers.
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

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.inbox.has_ended() {
            self.task.abort();
        }
    }
}
