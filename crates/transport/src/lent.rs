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

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use sendoff_sys::tcp;
use tokio::runtime::Handle;

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
