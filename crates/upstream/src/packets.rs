//! Messages with descriptors, as the masters and workers of pools send them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use bytes::BytesMut;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// A message and the descriptors that came with it.
pub(crate) type Packet = (BytesMut, VecDeque<OwnedFd>);

/// A packet socket. The stream type inside serves only to wait for it.
#[derive(Debug)]
pub struct Packets(UnixStream);

impl Packets {
    /// Wraps a connected socket (`SOCK_SEQPACKET`).
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = StdStream::from(socket);
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket).map(Self)
    }

    /// The next message, cut to `room` bytes; `None`: the peer has closed the socket.
    ///
    /// # Errors
    /// The socket cannot be read. After an error for which [`is_full`] is true, the call may be
    /// repeated.
    pub async fn next(&self, room: usize) -> io::Result<Option<Packet>> {
        let (mut message, mut fds) = (BytesMut::with_capacity(room), VecDeque::new());
        let received = self.0.async_io(Interest::READABLE, || {
            sendoff_sys::fdpass::try_receive(self.0.as_fd(), &mut message, &mut fds)
        });
        let length = received.await?;
        Ok((length > 0).then_some((message, fds)))
    }
}

/// True if a message was lost because this process has reached its limit of descriptors.
pub fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}
