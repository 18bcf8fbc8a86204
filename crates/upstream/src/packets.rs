//! Messages with descriptors, as masters and workers of pools send them.

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

/// A packet socket. The type inside is used to wait for it and for nothing else.
#[derive(Debug)]
pub struct Packets(UnixStream);

impl Packets {
    /// Takes a connected socket (`SOCK_SEQPACKET`).
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = StdStream::from(socket);
        socket.set_nonblocking(true)?;
        UnixStream::from_std(socket).map(Self)
    }

    /// The next message, of which at most `room` bytes are read; `None`: the other side has closed.
    ///
    /// # Errors
    /// The socket cannot be read. After [`is_full`] it can be again.
    pub async fn next(&self, room: usize) -> io::Result<Option<Packet>> {
        let (mut message, mut fds) = (BytesMut::with_capacity(room), VecDeque::new());
        let received = self.0.async_io(Interest::READABLE, || {
            sendoff_sys::fdpass::try_receive(self.0.as_fd(), &mut message, &mut fds)
        });
        let length = received.await?;
        Ok((length > 0).then_some((message, fds)))
    }
}

/// Whether a message was lost because this process has all the descriptors that it may have.
pub fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}
