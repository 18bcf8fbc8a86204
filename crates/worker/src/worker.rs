//! The application's handle: requests in, responses out.
//!
//! The protocol is in `sendoff_link::worker`. The modules here do its input and output; each adds methods to [`Worker`] and
//! calls only those that stand before it in this list:
//!
//! ```text
//!  input    what arrives on the links, reading the body, noticing that the client has gone
//!  direct   writing to the client's own socket
//!  output   head, body, log, flush, the end of a response
//!  named, explain, files, blob    what else a response may contain
//!  accept, connection, register   where requests come from
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

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use sendoff_fastcgi::channel::Secret;
use sendoff_link::worker::{Peer, Requests, Response};

use crate::helper::Helper;
use crate::input::Input;
use crate::output::Shared;

pub use blob::{MAX_BLOB_BYTES, MAX_BLOBS};
pub(crate) use register::Piece;

/// One worker process's side of its links. See `include/sendoff.h` for the order of calls.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    inputs: Vec<Input>,
    requests: Requests<OwnedFd>,
    response: Response,
    /// Nothing more is read from the links. A web server may still get its answer.
    input_ended: bool,
    /// `None` without a guard socket.
    helper: Option<Helper>,
    /// `None`: the front made the links, and requests come on them.
    channel: Option<Channel>,
    /// Responses on this connection may be files on links that a [`crate::Sender`] opens, and the front may hear of it.
    hands_over: bool,
}

/// What a worker knows of the channel by which it opened its links.
#[derive(Debug)]
struct Channel {
    /// Identifies the front.
    token: Secret,
    /// Of the current request, until it is claimed.
    claim: Option<Secret>,
    /// The request id used last.
    last_id: u16,
    /// Explanations of the current request, until it is claimed.
    unsaid: Vec<Vec<u8>>,
}

/// Ends a worker's `accept`.
#[derive(Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets `accept` return `false` once no request waits. Async-signal-safe; without effect in a forked child.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Worker {
    /// Takes connected UNIX stream sockets, at most 255, and the guard socket, for which it starts a thread: call it
    /// after the last fork.
    ///
    /// # Errors
    /// `EINVAL`: no link, or too many. A thread or descriptor could not be had.
    pub fn new(links: Vec<OwnedFd>, guard: Option<OwnedFd>) -> io::Result<Self> {
        if links.is_empty() || links.len() > usize::from(u8::MAX) {
            return Err(Errno::INVAL.into());
        }
        let shared = Arc::new(Shared::new(links));
        let helper = guard.map(|guard| Helper::start(shared.clone(), guard)).transpose()?;
        Ok(Self { helper, ..Self::with(shared, Peer::Front) })
    }

    fn with(shared: Arc<Shared>, peer: Peer) -> Self {
        Self {
            inputs: shared.links.iter().map(|_| Input::default()).collect(),
            shared,
            requests: Requests::new(peer),
            response: Response::new(),
            input_ended: false,
            helper: None,
            channel: None,
            hands_over: false,
        }
    }

    /// What a signal handler needs to end [`Self::accept`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// The request's parameters in order, each name and value with a NUL behind it, without those that
    /// are meant for this library.
    pub fn params_with_nul(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.requests.params().with_nul()
    }

    /// Whether this worker is on a connection that a web server opened.
    #[must_use]
    pub fn is_on_connection(&self) -> bool {
        matches!(self.requests.peer(), Peer::Server(_))
    }
}
