//! The channel: processes of FastCGI applications on this host open links to the front
//! (`docs/handover.md` §8), and hand over on them data that they would otherwise copy.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    socket_with,
};
use rustix::process::Pid;
use sendoff_fastcgi::channel::{Announcement, REGISTERED, REGISTRATION_LEN, Registration, Secret};
use sendoff_report::seldom::Seldom;
use sendoff_transport::foreign::{self, ForeignSocket};
use sendoff_upstream_worker::claims::{Claim, Claims, random_secret};
pub use sendoff_upstream_worker::register::{LinkOrigin, NewLink};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;

/// Registrations that may wait to be taken.
const BACKLOG: i32 = 128;
/// Registrations in progress at the same time: every process on this host may connect, and could
/// otherwise use up all descriptors.
const MAX_REGISTERING: usize = 64;
/// The longest time from a process's connect to its message, which are two consecutive system
/// calls.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause in accepting after descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The place where processes register, the same for all event loops.
#[derive(Clone)]
pub struct Channel {
    name: String,
    token: Secret,
    /// The announcement of each event loop, with any claim.
    announcements: Vec<Vec<u8>>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({})", self.name)
    }
}

impl Channel {
    /// A channel for this number of event loops, and its listener. The socket is abstract: any
    /// process in the same network namespace may register if it has the token, regardless of its
    /// file system (`chroot`, another user, a private `/tmp`).
    ///
    /// # Errors
    /// There are too many event loops, or an error of `bind(2)`.
    pub fn open(event_loops: usize) -> io::Result<(Self, OwnedFd)> {
        let links = u8::try_from(event_loops).map_err(io::Error::other)?;
        let token = random_secret()?;
        let unique = String::from_utf8_lossy(&random_secret()?.to_hex()[..16]).into_owned();
        let name = format!("sendoff-{}-{unique}", std::process::id());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        listen(&socket, BACKLOG)?;
        let announcement = |link| {
            let claim = Secret([0; 16]);
            Announcement { name: name.clone(), token, links, link, claim }.encode()
        };
        let announcements = (0..links).map(announcement).collect();
        Ok((Self { name, token, announcements }, socket))
    }

    /// Announces the channel for one request. Returns the value of the parameter, and the claim
    /// with which the response's body may come on the link of this event loop.
    ///
    /// # Errors
    /// The kernel has no random bits, or there is no such event loop.
    pub fn announce(
        &self,
        claims: &Rc<Claims>,
        event_loop: usize,
    ) -> io::Result<(Vec<u8>, Rc<Claim>)> {
        let own = self.announcements.get(event_loop).ok_or(io::ErrorKind::NotFound)?;
        let (mut announcement, claim) = (own.clone(), claims.add()?);
        Announcement::replace_claim(&mut announcement, claim.secret());
        Ok((announcement, claim))
    }

    /// Accepts registrations and gives every event loop its link. Runs forever.
    ///
    /// # Errors
    /// The listener could not be registered with the event loop.
    pub async fn receive(
        self,
        listener: OwnedFd,
        loops: Vec<UnboundedSender<NewLink>>,
    ) -> io::Result<()> {
        // This is a packet socket; the stream type serves only to wait for it. The same holds
        // below.
        let listener = UnixStream::from_std(listener.into())?;
        let places = Arc::new(Semaphore::new(MAX_REGISTERING));
        let refusals = Rc::new(Refusals::new());
        loop {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted =
                listener.async_io(Interest::READABLE, || Ok(accept_with(&listener, flags)?));
            match accepted.await {
                Ok(socket) => {
                    let (channel, loops) = (self.clone(), loops.clone());
                    let refusals = Rc::clone(&refusals);
                    tokio::task::spawn_local(async move {
                        let _place = place;
                        match timeout(REGISTER_TIMEOUT, channel.register(socket, &loops)).await {
                            Ok(Ok(pid)) => tracing::debug!(pid, "a process opened its links"),
                            Ok(Err(error)) => refusals.note(&error),
                            Err(_) => refusals.note(&"it did not come in time"),
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "a registration cannot be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn register(
        &self,
        socket: OwnedFd,
        loops: &[UnboundedSender<NewLink>],
    ) -> io::Result<i32> {
        let socket = ForeignSocket::of_packets(UnixStream::from_std(socket.into())?);
        let mut message = BytesMut::with_capacity(REGISTRATION_LEN + 1);
        let mut fds = VecDeque::new();
        let received = socket.async_io(Interest::READABLE, || {
            sendoff_sys::fdpass::try_receive(socket.as_fd(), &mut message, &mut fds)
        });
        let received = received.await;
        let registered = received.and_then(|_| self.links_of(&message, &mut fds, loops));
        // A process that is refused may have sent anything.
        foreign::close(fds);
        let pid = registered?;
        rustix::net::send(&socket, &[REGISTERED], SendFlags::NOSIGNAL)?;
        Ok(pid)
    }

    /// Gives every event loop its link if the message is right. Returns the process that has sent
    /// it. Descriptors that are not used stay in `fds`.
    fn links_of(
        &self,
        message: &[u8],
        fds: &mut VecDeque<OwnedFd>,
        loops: &[UnboundedSender<NewLink>],
    ) -> io::Result<i32> {
        let refused = io::Error::other;
        let registration = Registration::decode(message).ok_or_else(|| refused("no message"))?;
        if registration.token != self.token {
            return Err(refused("a wrong token"));
        }
        let pid = i32::try_from(registration.pid).ok().filter(|&pid| Pid::from_raw(pid).is_some());
        let pid = pid.ok_or_else(|| refused("a wrong process id"))?;
        if registration.links as usize != loops.len() || fds.len() != loops.len() + 1 {
            return Err(refused("a wrong number of links"));
        }
        foreign::check_sockets(fds)?;
        let guard = fds.pop_back().ok_or_else(|| refused("no guard"))?;
        let guards: Vec<_> = loops.iter().map(|_| guard.try_clone()).collect::<io::Result<_>>()?;
        for ((number, event_loop), (socket, guard)) in
            loops.iter().enumerate().zip(fds.drain(..).zip(guards))
        {
            let number = u8::try_from(number).map_err(io::Error::other)?;
            let new = NewLink { origin: LinkOrigin::Channel, pid, number, socket, guard };
            // An event loop that has ended needs no link.
            drop(event_loop.send(new));
        }
        Ok(pid)
    }
}

/// Registrations that were refused. Every local process can connect, so the log has one line per
/// second at most.
struct Refusals {
    lines: Seldom,
    /// Refusals since the last line, which have none.
    unlogged: Cell<u64>,
}

impl Refusals {
    const fn new() -> Self {
        Self { lines: Seldom::every(Duration::from_secs(1)), unlogged: Cell::new(0) }
    }

    fn note(&self, error: &dyn fmt::Display) {
        if self.lines.is_due() {
            let unlogged = self.unlogged.take();
            tracing::warn!(%error, unlogged, "a registration was refused");
        } else {
            self.unlogged.set(self.unlogged.get() + 1);
        }
    }
}
