//! A client's socket that is lent to an application.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use sendoff_transport::lent::LentSocket;

/// A client's socket that is lent to an application.
pub(super) struct LentClient {
    pub(super) socket: LentSocket,
    /// The number of bytes written to the socket until the last check.
    written: Option<u64>,
}

impl LentClient {
    pub(super) fn new(client: BorrowedFd<'_>) -> io::Result<Self> {
        let socket = LentSocket::of(client)?;
        let written = sendoff_sys::tcp::written(client).ok();
        Ok(Self { socket, written })
    }

    /// True if bytes were written since the last check, which this call replaces: an application
    /// that writes to the client may be silent here.
    pub(super) fn check_progress(&mut self) -> bool {
        let written = sendoff_sys::tcp::written(self.socket.as_fd()).ok();
        let before = std::mem::replace(&mut self.written, written);
        before != written
    }
}
