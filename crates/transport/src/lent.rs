//! Sockets that other processes hold, too.
//!
//! `O_NONBLOCK` and the options of a socket belong to the open socket, not to a descriptor. A
//! process that was lent a socket can therefore change them at any time, even between a check and
//! the next call. The event loop must not wait for any client, so it relies on neither:
//!
//! | call | blocks if | on a socket that was lent |
//! |---|---|---|
//! | `sendmsg`, `recv` | `O_NONBLOCK` is missing | `MSG_DONTWAIT` |
//! | `sendfile`, `splice` | the same | no such flag: bytes are read and sent instead |
//! | the last `close` | `SO_LINGER` is set | done by another thread, if bytes are unacknowledged |
//! | `shutdown`, `getsockopt`, `setsockopt`, `ioctl` | never | |
//!
//! The connection belongs to the socket, too. A borrower can read the client's bytes, so that the
//! rest looks like other requests. It can also connect the socket to another peer (`connect(2)`
//! with `AF_UNSPEC`, then with an address), which then speaks in the client's name. After each read
//! of plain text, [`Lent::check`] therefore asks the kernel whether the peer is still the same and
//! whether the front has made all reads. The check follows the read, because a process that has
//! disconnected the socket gets the old peer back only if that peer accepts a connection. Under TLS the client's
//! records show any change.
//!
//! The event loop keeps the end of a direction for ever once the kernel has reported it. Two calls
//! of a borrower make the kernel report an end that is none, and the event loop would try again and
//! again to send or to receive:
//!
//! | call | the kernel reports | the front |
//! |---|---|---|
//! | `setsockopt(2)` with `SO_TIMESTAMPING` or `SO_ZEROCOPY` | an error for each message in the socket's error queue | empties the queue, turns the options off, and has the event loop watch the socket anew ([`may_write`]) |
//! | `connect(2)` with `AF_UNSPEC`, then with an address | the end of both directions | ends the connection |

use std::fmt::{self, Write};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use sendoff_sys::tcp;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// State of a plain-text connection that was lent: the peer when it was first lent, and the bytes
/// read since.
#[derive(Debug)]
pub(crate) struct Lent {
    peer: SocketAddr,
    /// Bytes that the front has read since the connection was accepted.
    read: u64,
    /// The last borrower.
    borrower: String,
    /// The connection has ended, or another process has changed it: reading stops.
    is_broken: bool,
}

impl Lent {
    /// The state of a connection that has not been lent yet.
    ///
    /// # Errors
    /// The connection has ended, or the kernel does not count the bytes read.
    pub(crate) fn new(socket: &TcpStream) -> io::Result<Self> {
        let (peer, read) = (socket.peer_addr()?, tcp::consumed(socket.as_fd())?);
        Ok(Self { peer, read, borrower: String::new(), is_broken: false })
    }

    pub(crate) fn note_borrower(&mut self, borrower: &dyn fmt::Display) {
        self.borrower.clear();
        // Writing to a string does not fail.
        let _ = write!(self.borrower, "{borrower}");
    }

    /// Checks that the `n` bytes that the front has just read are the client's next bytes.
    ///
    /// # Errors
    /// They may be other bytes, which is logged; or the connection has ended.
    pub(crate) fn check(&mut self, socket: &TcpStream, n: usize) -> io::Result<()> {
        if self.is_broken {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.read += n as u64;
        let checked = self.ask(socket);
        self.is_broken = checked.is_err();
        checked
    }

    fn ask(&self, socket: &TcpStream) -> io::Result<()> {
        let peer = socket.peer_addr()?;
        let why = if peer != self.peer {
            format!("has connected it to {peer}")
        } else if tcp::has_consumed(socket.as_fd(), self.read)? {
            return Ok(());
        } else {
            "has read from it, or the client has sent urgent data".to_owned()
        };
        let (client, borrower) = (self.peer, &self.borrower);
        tracing::error!(
            %client,
            "the connection of a client is closed: a process that it was lent to, the last one being {borrower}, {why}"
        );
        let what = format!("a process that the connection was lent to {why}");
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

/// True if a socket can be written to, or if a send tells why not. Empties the error queue first,
/// whose messages look like an error of the socket.
pub(crate) fn may_write(socket: BorrowedFd<'_>) -> bool {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    tcp::clear_errors(socket);
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    // A failure means that memory is short: the send is tried.
    poll(&mut asked, Some(&AT_ONCE)).is_err() || !asked[0].revents().is_empty()
}

/// A descriptor of a socket that is or was lent.
#[derive(Debug)]
pub struct LentSocket(OwnedFd);

impl LentSocket {
    /// Duplicates the descriptor of a socket.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        socket.try_clone_to_owned().map(Self)
    }
}

impl AsFd for LentSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for LentSocket {
    /// While the connection is in use, this is not the last descriptor. Afterwards the connection
    /// has been shut down.
    fn drop(&mut self) {
        if !tcp::is_open(self.as_fd()) {
            keep_from_waiting(self.as_fd());
        }
    }
}

/// Keeps a close from blocking the event loop. Must be called before a descriptor of a connection
/// that was shut down is closed.
pub(crate) fn keep_from_waiting(socket: BorrowedFd<'_>) {
    if tcp::close_may_wait(socket)
        && let Ok(runtime) = Handle::try_current()
        && let Ok(last) = socket.try_clone_to_owned()
    {
        // The runtime's blocking threads are many and end when idle.
        runtime.spawn_blocking(move || {
            // With a linger time of zero close(2) resets the connection and does not block.
            if sockopt::socket_linger(&last)
                .is_ok_and(|time| time.is_some_and(|time| !time.is_zero()))
            {
                let _as_it_was = sockopt::set_socket_linger(&last, None);
            }
            drop(last);
        });
    }
}
