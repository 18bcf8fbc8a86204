//! Orders of the supervisor to the running front, over a socket that keeps the boundaries of
//! messages (`SOCK_SEQPACKET`). Each front gets a new socket at its start, so that it never reads
//! messages for its predecessor. Messages are JSON; descriptors travel with them (`SCM_RIGHTS`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    sendmsg, socketpair,
};
use rustix::pipe::PipeFlags;
use sendoff_config::{Config, LogTarget};
use sendoff_server::front::{
    FrontOrder, ListenerSource, LogSource, Orders, PoolSource, Purge, Reload,
};
use sendoff_tls::{Challenge, Vault};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixStream, unix::pipe};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::rights::WritableFolders;
use crate::signals::{SignalRequest, Signals};

/// Maximum size of a message in bytes.
const MAX_MESSAGE: usize = 64 * 1024;

/// Messages of the supervisor to the front.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToFront {
    /// The log files were reopened; their descriptors come along.
    ReopenLogs(Vec<LogTarget>),
    /// Descriptors for the next message, which has more than fit into one.
    Descriptors,
    /// The server will end soon: tell load balancers.
    Leave,
    /// Report the status. The answer, a JSON value, goes to the pipe that comes along.
    Status,
    /// Remove kept pages from the cache. The answer, their number, goes to the pipe that comes
    /// along.
    Purge(Purge),
    /// Make the pages of sitemaps that are missing in the cache. The answer, the number of sites,
    /// goes to the pipe that comes along.
    Warm,
    /// Answer these challenges of certificate authorities and no others. A pipe for the answer, a
    /// `Result<(), String>`, comes along.
    Challenges(Vec<Challenge>),
    /// Use new certificates. A pipe for the answer, a `Result<(), String>`, and the credentials of
    /// the sites come along.
    Certificates,
    /// Serve by another configuration. These descriptors come along: a pipe for the answer, a
    /// `Result<(), String>`; the configuration; the credentials of its sites; the front's end of
    /// each new pool's socket; the file of each new log; the sockets of each new listener, one for
    /// each event loop.
    Reload(KeptItems),
}

/// The items that a reload keeps: for each pool, log target and listener of the new configuration,
/// the number of the same item in the current configuration; `None` if the item is new.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeptItems {
    pub(crate) pools: Vec<Option<usize>>,
    pub(crate) logs: Vec<Option<usize>>,
    pub(crate) listeners: Vec<Option<usize>>,
}

/// Maximum number of descriptors with one message; the kernel permits 253 (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 200;

/// Maximum length of an answer to an order, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The answer to an order, which arrives through a pipe.
#[derive(Debug)]
pub(crate) struct Reply(pipe::Receiver);

impl Reply {
    /// The reply, and the end of the pipe to send with the order.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(pipe::Receiver::from_owned_fd(reader)?), writer))
    }

    /// Waits at most `limit` for the whole answer.
    ///
    /// # Errors
    /// The front has ended, or it did not answer in time.
    pub(crate) async fn receive<A: for<'a> Deserialize<'a>>(
        self,
        limit: Duration,
    ) -> io::Result<A> {
        let mut text = Vec::new();
        let mut answer = self.0.take(MAX_ANSWER as u64);
        timeout(limit, answer.read_to_end(&mut text)).await??;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// A channel for the front's answer to an order. A task writes the answer to the pipe.
fn reply_to<A: Serialize + 'static>(pipe: OwnedFd) -> oneshot::Sender<A> {
    let (sender, answered) = oneshot::channel();
    tokio::task::spawn_local(async move {
        if let Ok(value) = answered.await {
            // An error means that the supervisor has given up waiting.
            let _ = answer(pipe, value).await;
        }
    });
    sender
}

/// Builds the new configuration from an order to reload and its descriptors.
fn reload(
    KeptItems { pools, logs, listeners }: KeptItems,
    mut descriptors: VecDeque<OwnedFd>,
) -> Result<Reload, String> {
    let mut next = || descriptors.pop_front().ok_or("a descriptor is missing");
    let config = Config::read(next()?).map_err(|error| error.to_string())?;
    let vault = Vault::read(next()?).map_err(|error| error.to_string())?;
    let pool = |kept| {
        Ok(match kept {
            Some(number) => PoolSource::Kept(number),
            None => PoolSource::New(next()?),
        })
    };
    let pools = pools.into_iter().map(pool).collect::<Result<_, &str>>()?;
    let log = |kept| {
        Ok(match kept {
            Some(number) => LogSource::Kept(number),
            None => LogSource::New(File::from(next()?)),
        })
    };
    let logs = logs.into_iter().map(log).collect::<Result<_, &str>>()?;
    let event_loops = config.front.threads;
    let listener = |kept| {
        Ok(match kept {
            Some(number) => ListenerSource::Kept(number),
            None => {
                ListenerSource::New((0..event_loops).map(|_| next()).collect::<Result<_, _>>()?)
            }
        })
    };
    let listeners = listeners.into_iter().map(listener).collect::<Result<_, &str>>()?;
    Ok(Reload { config, vault, pools, logs, listeners })
}

/// Writes the answer to an order.
async fn answer(pipe: OwnedFd, answer: impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(&answer)?;
    pipe::Sender::from_owned_fd(pipe)?.write_all(&text).await
}

/// A pair of sockets: the supervisor's end and the front's.
pub(crate) fn sockets() -> io::Result<(Socket, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Socket::new(ours)?, theirs))
}

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Socket(UnixStream);

impl Socket {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        // The type is for stream sockets, but this is a packet socket. It only serves to wait for
        // readiness.
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(socket)?))
    }

    /// Sends a message. Never blocks: a process that does not read its messages must not stall the
    /// sender.
    ///
    /// # Errors
    /// `WouldBlock` if the receiver is behind with its messages, or an error of `sendmsg(2)`.
    pub(crate) fn send(&self, message: &ToFront, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut parts = descriptors.chunks(MOST_DESCRIPTORS);
        let last = parts.next_back().unwrap_or_default();
        parts.try_for_each(|part| self.send_one(&ToFront::Descriptors, part))?;
        self.send_one(message, last)
    }

    /// Like [`send`](Self::send), for any message with at most [`MOST_DESCRIPTORS`] descriptors.
    ///
    /// # Errors
    /// Like [`send`](Self::send); also if the message is too long.
    pub(crate) fn send_one(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let message = serde_json::to_vec(message)?;
        if message.len() > MAX_MESSAGE {
            return Err(io::Error::other("the message is too long"));
        }
        let rights = SendAncillaryMessage::ScmRights(descriptors);
        let mut space = vec![MaybeUninit::uninit(); rights.size()];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(rights);
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[IoSlice::new(&message)], &mut control, flags)?;
        Ok(())
    }

    /// Like [`send_one`](Self::send_one), but waits until the receiver has room for the message.
    ///
    /// # Errors
    /// Like [`send_one`](Self::send_one), except `WouldBlock`.
    pub(crate) async fn send_when_possible(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let send = || self.send_one(message, descriptors);
        self.0.async_io(Interest::WRITABLE, send).await
    }

    /// The next message with its descriptors; `None` when the other end is closed. Cancel safe: no
    /// message is lost.
    pub(crate) async fn receive<M: for<'m> Deserialize<'m>>(
        &self,
    ) -> io::Result<Option<(M, VecDeque<OwnedFd>)>> {
        let mut message = BytesMut::with_capacity(MAX_MESSAGE);
        let mut descriptors = VecDeque::new();
        let received = self.0.async_io(Interest::READABLE, || {
            sendoff_sys::fdpass::receive(self.0.as_fd(), &mut message, &mut descriptors)
        });
        if received.await? == 0 {
            return Ok(None);
        }
        Ok(Some((serde_json::from_slice(&message)?, descriptors)))
    }
}

/// The orders that reach a front: messages of its supervisor, and signals.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// `None` once the supervisor has closed its end.
    socket: Option<Socket>,
    /// Descriptors that arrived early, for the next message.
    descriptors: VecDeque<OwnedFd>,
    signals: Signals,
    folders: WritableFolders,
}

impl Inbox {
    /// Must be called inside an event loop.
    ///
    /// # Errors
    /// The system refuses to watch the socket or the signals.
    pub(crate) fn new(socket: OwnedFd, folders: WritableFolders) -> io::Result<Self> {
        let socket = Some(Socket::new(socket)?);
        Ok(Self { socket, descriptors: VecDeque::new(), signals: Signals::new()?, folders })
    }
}

impl Orders for Inbox {
    async fn next(&mut self) -> FrontOrder {
        let Self { socket, descriptors, signals, folders } = self;
        loop {
            tokio::select! {
                order = order_from(socket, descriptors) => {
                    if matches!(order, FrontOrder::Reload(..)) {
                        folders.warn_of_others();
                    }
                    return order;
                }
                asked = signals.next() => match asked {
                    SignalRequest::Drain => return FrontOrder::Drain,
                    SignalRequest::Cut => return FrontOrder::Cut,
                    SignalRequest::Reopen
                    | SignalRequest::Reload
                    | SignalRequest::Upgrade
                    | SignalRequest::Renew => {}
                },
            }
        }
    }
}

/// The next order of the supervisor. Waits forever once the socket is closed. `early`: descriptors
/// that arrived before their message.
async fn order_from(inbox: &mut Option<Socket>, early: &mut VecDeque<OwnedFd>) -> FrontOrder {
    while let Some(socket) = inbox {
        match socket.receive().await {
            Ok(Some((message, came))) => {
                early.extend(came);
                if matches!(message, ToFront::Descriptors) {
                    continue;
                }
                if matches!(message, ToFront::Leave) {
                    return FrontOrder::Leave;
                }
                let mut descriptors = std::mem::take(early);
                let Some(descriptor) = descriptors.pop_front() else { continue };
                return match message {
                    ToFront::Descriptors | ToFront::Leave => continue,
                    ToFront::Reload(kept) => match reload(kept, descriptors) {
                        Ok(reload) => FrontOrder::Reload(Box::new(reload), reply_to(descriptor)),
                        Err(why) => {
                            let _ = answer(descriptor, Err::<(), _>(why)).await;
                            continue;
                        }
                    },
                    ToFront::ReopenLogs(targets) => {
                        let files = [descriptor].into_iter().chain(descriptors).map(File::from);
                        FrontOrder::ReopenLogs(targets.into_iter().zip(files).collect())
                    }
                    ToFront::Challenges(challenges) => {
                        FrontOrder::Challenges(challenges, reply_to(descriptor))
                    }
                    ToFront::Certificates => match descriptors.pop_front().map(Vault::read) {
                        Some(Ok(vault)) => FrontOrder::Certificates(vault, reply_to(descriptor)),
                        _ => continue,
                    },
                    ToFront::Status => FrontOrder::Status(reply_to(descriptor)),
                    ToFront::Warm => FrontOrder::Warm(reply_to(descriptor)),
                    ToFront::Purge(purge) => FrontOrder::Purge(purge, reply_to(descriptor)),
                };
            }
            // The end of the supervisor is detected by the pool socket and by a signal, not here.
            Ok(None) => *inbox = None,
            Err(error) => {
                tracing::error!(%error, "what the supervisor says cannot be read");
                *inbox = None;
            }
        }
    }
    std::future::pending().await
}
