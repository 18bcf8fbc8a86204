//! Sockets that other processes have, too.
//!
//! `O_NONBLOCK` and the options of a socket belong to the open socket and not to a descriptor, so each process that was lent a socket can change
//! them at any time, also between a look at them and the next call. The event loop must wait for no client, so it relies on neither:
//!
//! | call | waits by itself if | so on a socket that was lent |
//! |---|---|---|
//! | `sendmsg`, `recv` | `O_NONBLOCK` is missing | `MSG_DONTWAIT` |
//! | `sendfile`, `splice` | the same; they have no such flag | are not called: bytes are read and sent |
//! | the last `close` | `SO_LINGER` is set | is left to another thread, if the client has not acknowledged everything |
//! | `shutdown`, `getsockopt`, `setsockopt`, `ioctl` | never | |
//!
//! The connection belongs to the socket, too. A process that has it can read what the client sends, so that the rest looks like other requests, and can
//! connect the socket to another end (`connect(2)` with `AF_UNSPEC`, then with an address), which then speaks in the client's name. So after each
//! read in the clear, [`Lent::check`] asks the kernel whether the peer is still the same and whether the front has read everything that was read.
//! It asks after the read: a process that has left the peer gets back to it only if the peer accepts its connection. Under TLS the client's
//! records tell.

use std::fmt::{self, Write};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use sendoff_sys::tcp;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// A connection in the clear as it was when it was first lent, and what was read since.
#[derive(Debug)]
pub(crate) struct Lent {
    peer: SocketAddr,
    /// Bytes that the front has read since the connection was made.
    read: u64,
    /// The last process that it was lent to.
    borrower: String,
    /// The connection has ended, or another process has changed it: nothing more is read.
    is_broken: bool,
}

impl Lent {
    /// A connection that no other process has yet.
    ///
    /// # Errors
    /// It has ended, or the kernel does not count what was read.
    pub(crate) fn new(socket: &TcpStream) -> io::Result<Self> {
        let (peer, read) = (socket.peer_addr()?, tcp::consumed(socket.as_fd())?);
        Ok(Self { peer, read, borrower: String::new(), is_broken: false })
    }

    pub(crate) fn note_borrower(&mut self, borrower: &dyn fmt::Display) {
        self.borrower.clear();
        // A string takes everything.
        let _ = write!(self.borrower, "{borrower}");
    }

    /// Checks that `n` bytes, which the front has just read, are the next bytes of the client.
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

/// A descriptor of a socket that is lent, or was.
#[derive(Debug)]
pub struct LentSocket(OwnedFd);

impl LentSocket {
    /// Another descriptor of the socket.
    ///
    /// # Errors
    /// The process has no further descriptors.
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
    /// While the connection is in use this is not the last descriptor, and after that the connection has been shut down.
    fn drop(&mut self) {
        if !tcp::is_open(self.as_fd()) {
            keep_from_waiting(self.as_fd());
        }
    }
}

/// To be called before a descriptor of a connection that was shut down is closed.
pub(crate) fn keep_from_waiting(socket: BorrowedFd<'_>) {
    if tcp::close_may_wait(socket)
        && let Ok(runtime) = Handle::try_current()
        && let Ok(last) = socket.try_clone_to_owned()
    {
        // The process may have many such threads, and lets them end.
        runtime.spawn_blocking(move || {
            // A time of zero resets the connection, and does not wait.
            if sockopt::socket_linger(&last)
                .is_ok_and(|time| time.is_some_and(|time| !time.is_zero()))
            {
                let _as_it_was = sockopt::set_socket_linger(&last, None);
            }
            drop(last);
        });
    }
}
