//! The application's handle: requests in, responses out.
//!
//! `sendoff_link::worker` implements the protocol. The modules here do its input and output; each
//! adds methods to [`Worker`] and calls only modules that precede it in this list:
//!
//! ```text
//!  input    arrivals on the links, reading the body, noticing that the client has gone
//!  direct   writing to the client's own socket
//!  output   head, body, log, flush, the end of a response
//!  named, explain, files, blob    other contents of a response
//!  ring                           requests from the ring of the pool
//!  accept, connection, register   sources of requests
//! ```

mod accept;
mod blob;
mod connection;
mod direct;
mod explain;
mod files;
mod input;
mod named;
mod output;
mod register;
mod ring;
mod tunnel;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use sendoff_fastcgi::channel::Secret;
use sendoff_link::worker::{Peer, Requests, Response};

use crate::helper::Helper;
use crate::input::RecordInput;
use crate::output::SharedOutput;

pub use blob::{MAX_BLOB_BYTES, MAX_BLOBS};
pub(crate) use register::HeldPart;

/// One worker process's side of its links. See `include/sendoff.h` for the order of calls.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<SharedOutput>,
    inputs: Vec<RecordInput>,
    requests: Requests<OwnedFd>,
    response: Response,
    /// True once nothing more is read from the links. A web server may still get its response.
    input_ended: bool,
    /// `None` without a guard socket.
    helper: Option<Helper>,
    /// The channel, if this process has opened the links; `None` if the front created them and
    /// sends requests on them.
    channel: Option<Channel>,
    /// The ring of the pool, once the front has sent it.
    ring: Option<ring::Ring>,
    /// True if responses on this connection may be moved to the links of a [`crate::Sender`], and
    /// the front may be told so.
    hands_over: bool,
}

/// The channel by which this process has opened its links.
#[derive(Debug)]
struct Channel {
    /// Identifies the front.
    token: Secret,
    /// The claim of the current request; `None` once it is claimed.
    claim: Option<Secret>,
    /// The last request id.
    last_id: u16,
    /// Explanations of the current request that wait for its claim.
    unsaid: Vec<Vec<u8>>,
}

/// Ends a worker's `accept`.
#[derive(Debug)]
pub struct Stopper(Arc<SharedOutput>);

impl Stopper {
    /// Makes `accept` return `false` once no request is waiting. Async-signal-safe; without effect
    /// in a forked child.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Worker {
    /// Takes connected UNIX stream sockets, at most 255, and the guard socket, for which it starts
    /// a thread: call it after the last fork.
    ///
    /// # Errors
    /// `EINVAL`: no link, or too many. Also errors of creating a thread or a descriptor.
    pub fn new(links: Vec<OwnedFd>, guard: Option<OwnedFd>) -> io::Result<Self> {
        if links.is_empty() || links.len() > usize::from(u8::MAX) {
            return Err(Errno::INVAL.into());
        }
        let shared = Arc::new(SharedOutput::new(links));
        let helper = guard.map(|guard| Helper::start(shared.clone(), guard)).transpose()?;
        Ok(Self { helper, ..Self::with(shared, Peer::Front) })
    }

    fn with(shared: Arc<SharedOutput>, peer: Peer) -> Self {
        Self {
            inputs: shared.links.iter().map(|_| RecordInput::default()).collect(),
            shared,
            requests: Requests::new(peer),
            response: Response::new(),
            input_ended: false,
            helper: None,
            channel: None,
            ring: None,
            hands_over: false,
        }
    }

    /// The handle by which a signal handler ends [`Self::accept`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// The request's parameters in order, each name and value followed by a NUL, without the
    /// parameters that are meant for this library.
    pub fn params_with_nul(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.requests.params().with_nul()
    }

    /// True if a web server has opened the connection of this worker.
    #[must_use]
    pub fn is_on_connection(&self) -> bool {
        matches!(self.requests.peer(), Peer::Server(_))
    }
}
