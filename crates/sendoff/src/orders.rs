//! How the supervisor reaches the running front: over a socket that keeps the boundaries of messages (`SOCK_SEQPACKET`). Each front
//! gets a socket of its own at its start, so that no front reads what was meant for the previous one. Messages are JSON;
//! descriptors travel with them (`SCM_RIGHTS`).

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
use sendoff_server::front::{ListenerSource, LogSource, Order, Orders, PoolSource, Purge, Reload};
use sendoff_tls::{Challenge, Vault};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixStream, unix::pipe};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::signals::{Asked, Signals};

/// The largest message, in bytes.
const MAX_MESSAGE: usize = 64 * 1024;

/// What the supervisor tells the front.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToFront {
    /// Logs have been opened again; their descriptors come along.
    ReopenLogs(Vec<LogTarget>),
    /// Descriptors for the message that follows: there are more than fit one.
    Descriptors,
    /// The server is about to end: say so to load balancers.
    Leave,
    /// Say what you do. The answer, a JSON value, goes to the pipe that comes along.
    Status,
    /// Forget kept pages. The answer, their number, goes to the pipe that comes along.
    Purge(Purge),
    /// Answer these challenges of authorities and no others. A pipe for the answer comes along, a `Result<(), String>`.
    Challenges(Vec<Challenge>),
    /// Use other certificates. A pipe for the answer comes along, a `Result<(), String>`, and the credentials of sites.
    Certificates,
    /// Serve by another configuration. A pipe for the answer comes along, a `Result<(), String>`, the configuration, and the
    /// credentials of its sites; then the front's end of each new pool's socket; then the file of each new log; then the sockets of each new listener, one for each
    /// event loop.
    Reload(Kept),
}

/// What stays at a reload. For each pool, log target and listener: the number of the same in the current configuration; `None`: it
/// is new.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) pools: Vec<Option<usize>>,
    pub(crate) logs: Vec<Option<usize>>,
    pub(crate) listeners: Vec<Option<usize>>,
}

/// Descriptors that go with one message; the kernel takes 253.
const MOST_DESCRIPTORS: usize = 200;

/// The most that an answer to an order may be long, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The answer to an order, which is on its way through a pipe.
#[derive(Debug)]
pub(crate) struct Reply(pipe::Receiver);

impl Reply {
    /// The reply, and the end of the pipe that goes along with the order.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(pipe::Receiver::from_owned_fd(reader)?), writer))
    }

    /// Waits for the whole answer, at most for `limit`.
    ///
    /// # Errors
    /// The front ends, or does not answer in time.
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

/// Where the front puts its answer to an order; it is written to the pipe then.
fn reply_to<A: Serialize + 'static>(pipe: OwnedFd) -> oneshot::Sender<A> {
    let (sender, answered) = oneshot::channel();
    tokio::task::spawn_local(async move {
        if let Ok(value) = answered.await {
            // The supervisor may have given up.
            let _ = answer(pipe, value).await;
        }
    });
    sender
}

/// The configuration that came along with the order to serve by it.
fn reload(
    Kept { pools, logs, listeners }: Kept,
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

/// Both ends: the supervisor's and the front's.
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
        // A packet socket; the type is used to wait for it and for nothing else.
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(socket)?))
    }

    /// Sends a message. Never waits: a process that does not read its messages must not stop the other.
    ///
    /// # Errors
    /// `WouldBlock` if the other end is behind with its messages; those of `sendmsg(2)`.
    pub(crate) fn send(&self, message: &ToFront, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut parts = descriptors.chunks(MOST_DESCRIPTORS);
        let last = parts.next_back().unwrap_or_default();
        parts.try_for_each(|part| self.send_one(&ToFront::Descriptors, part))?;
        self.send_one(message, last)
    }

    /// As [`send`](Self::send), for any message whose descriptors are few.
    ///
    /// # Errors
    /// As there; or the message is too long.
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

    /// As [`send_one`](Self::send_one), but waits until the other end has room for it.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn send_when_possible(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let send = || self.send_one(message, descriptors);
        self.0.async_io(Interest::WRITABLE, send).await
    }

    /// The next message, with its descriptors; `None` when the other end is closed. A call that is dropped loses none.
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

/// The orders of a front: what its supervisor says, and signals.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// `None`: the supervisor has closed its end.
    socket: Option<Socket>,
    /// Descriptors for the next message.
    descriptors: VecDeque<OwnedFd>,
    signals: Signals,
}

impl Inbox {
    /// To be called inside an event loop.
    ///
    /// # Errors
    /// The system has no descriptor for it.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = Some(Socket::new(socket)?);
        Ok(Self { socket, descriptors: VecDeque::new(), signals: Signals::new()? })
    }
}

impl Orders for Inbox {
    async fn next(&mut self) -> Order {
        let Self { socket, descriptors, signals } = self;
        loop {
            tokio::select! {
                order = order_from(socket, descriptors) => return order,
                asked = signals.next() => match asked {
                    Asked::Drain => return Order::Drain,
                    Asked::Cut => return Order::Cut,
                    Asked::Reopen
                    | Asked::Reload
                    | Asked::Upgrade
                    | Asked::Renew => {}
                },
            }
        }
    }
}

/// The next order of the supervisor. Waits for ever once there is none. `early`: descriptors that came before their message.
async fn order_from(inbox: &mut Option<Socket>, early: &mut VecDeque<OwnedFd>) -> Order {
    while let Some(socket) = inbox {
        match socket.receive().await {
            Ok(Some((message, came))) => {
                early.extend(came);
                if matches!(message, ToFront::Descriptors) {
                    continue;
                }
                if matches!(message, ToFront::Leave) {
                    return Order::Leave;
                }
                let mut descriptors = std::mem::take(early);
                let Some(descriptor) = descriptors.pop_front() else { continue };
                return match message {
                    ToFront::Descriptors | ToFront::Leave => continue,
                    ToFront::Reload(kept) => match reload(kept, descriptors) {
                        Ok(reload) => Order::Reload(Box::new(reload), reply_to(descriptor)),
                        Err(why) => {
                            let _ = answer(descriptor, Err::<(), _>(why)).await;
                            continue;
                        }
                    },
                    ToFront::ReopenLogs(targets) => {
                        let files = [descriptor].into_iter().chain(descriptors).map(File::from);
                        Order::ReopenLogs(targets.into_iter().zip(files).collect())
                    }
                    ToFront::Challenges(challenges) => {
                        Order::Challenges(challenges, reply_to(descriptor))
                    }
                    ToFront::Certificates => match descriptors.pop_front().map(Vault::read) {
                        Some(Ok(vault)) => Order::Certificates(vault, reply_to(descriptor)),
                        _ => continue,
                    },
                    ToFront::Status => Order::Status(reply_to(descriptor)),
                    ToFront::Purge(purge) => Order::Purge(purge, reply_to(descriptor)),
                };
            }
            // The end of the supervisor is noticed by the pool socket, and by a signal.
            Ok(None) => *inbox = None,
            Err(error) => {
                tracing::error!(%error, "what the supervisor says cannot be read");
                *inbox = None;
            }
        }
    }
    std::future::pending().await
}
