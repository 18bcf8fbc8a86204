//! One address of an application: how to connect to it, the handover that its last answers announced,
//! and a connection to it between two requests. (`facts.rs`: if requests may share connections;
//! `connections.rs`: how many there may be.)

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sendoff_config::Address;
use sendoff_fastcgi::handover::Hints;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::script_log::LogBudget;
use sendoff_upstream_worker::region::LinkRegion;
use tokio::time::timeout;

use super::connections::ConnectionPermit;
use super::program::Program;
use super::stream::{Parked, Stream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// An application as all event loops know it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: Address,
    /// The program that listens there, if the address is a pool's.
    pub(super) program: Option<Arc<Program>>,
    /// The longest silence during a request.
    pub(super) timeout: Duration,
    /// The capabilities that the end of its last answer announced; `None` before the first answer.
    hints: Mutex<Option<Hints>>,
    /// A field of its last response head announced the channel.
    said_channel: AtomicBool,
    /// The log budget of all its connections together.
    log: Mutex<LogBudget>,
}

impl Peer {
    pub(super) fn new(address: Address, program: Option<Arc<Program>>, timeout: Duration) -> Self {
        Self {
            address,
            program,
            timeout,
            hints: Mutex::default(),
            said_channel: AtomicBool::new(false),
            log: Mutex::default(),
        }
    }

    /// A new connection.
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        match &self.program {
            Some(program) => {
                let stream = Stream::unix(program.connect().await?);
                stream.note_sender(true);
                Ok(stream)
            }
            None => Stream::connect(&self.address).await,
        }
    }

    /// A new connection within [`CONNECT_TIMEOUT`].
    ///
    /// # Errors
    /// The application cannot be reached.
    pub(super) async fn reach(&self) -> Result<Stream, UpstreamError> {
        let connected = tokio::select! {
            biased;
            down = self.down() => return Err(down),
            connected = timeout(CONNECT_TIMEOUT, self.connect()) => connected,
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

    /// Returns when no process will accept a connection soon. Never returns for an application that
    /// was started elsewhere.
    pub(super) async fn down(&self) -> UpstreamError {
        match &self.program {
            Some(program) => program.down().await,
            None => pending().await,
        }
    }

    /// Reports to the master of a program which process answers on a new connection. Returns false
    /// if no byte has arrived yet.
    pub(super) fn note_answer(&self, stream: &Stream) -> bool {
        let Some(program) = &self.program else { return true };
        let Some(pid) = stream.sender() else { return false };
        stream.note_sender(false);
        program.note_answer(pid);
        true
    }

    /// Notes that a process has died while it worked on a request that it had read.
    pub(super) fn note_death_at_work(&self) {
        if let Some(program) = &self.program {
            program.note_death_at_work();
        }
    }

    /// True if descriptors can be passed to it, because it listens on a UNIX socket.
    pub(super) fn is_local(&self) -> bool {
        !matches!(self.address, Address::Tcp(_))
    }

    /// The capabilities that the last answer announced.
    pub(super) fn hints(&self) -> Hints {
        self.last_hints().unwrap_or_default()
    }

    /// The same; `None` before the first answer.
    pub(super) fn last_hints(&self) -> Option<Hints> {
        *self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_hints(&self, hints: Hints) {
        *self.hints.lock().unwrap_or_else(PoisonError::into_inner) = Some(hints);
    }

    pub(super) fn log_budget(&self) -> MutexGuard<'_, LogBudget> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn knows_channel(&self) -> bool {
        self.said_channel.load(Ordering::Relaxed) || self.hints().channel
    }

    /// Over TCP this is always false, because no descriptors can be passed.
    pub(super) fn note_channel(&self, knows: bool) {
        let knows = knows && self.is_local();
        self.said_channel.store(knows, Ordering::Relaxed);
    }
}

/// A connection between two requests.
#[derive(Debug)]
pub(super) struct KeptConnection {
    pub(super) parked: Parked,
    pub(super) region: LinkRegion,
    pub(super) last: Last,
}

/// The last exchange on a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Last {
    pub(super) id: u16,
    pub(super) hints: Hints,
}

/// A connection that an exchange uses.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) permit: ConnectionPermit<KeptConnection>,
    pub(super) stream: Stream,
    pub(super) region: LinkRegion,
    /// `None` on a new connection.
    pub(super) last: Option<Last>,
}
