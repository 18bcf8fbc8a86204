//! Messages with descriptors, as the masters and workers of pools send them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use bytes::BytesMut;
use sendoff_report::limits::lacks_descriptor;
use sendoff_sys::fdpass;
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The time between two attempts to receive a message for which too few descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

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

    /// The next message, cut to `room` bytes; `None`: the peer has closed the socket. The message
    /// waits for descriptors if too few are left.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub async fn next(&self, room: usize) -> io::Result<Option<Packet>> {
        let (mut message, mut fds) = (BytesMut::with_capacity(room), VecDeque::new());
        loop {
            let received = self.0.async_io(Interest::READABLE, || {
                fdpass::try_receive_whole(self.0.as_fd(), &mut message, &mut fds)
            });
            match received.await {
                Ok(length) => return Ok((length > 0).then_some((message, fds))),
                Err(error) if fdpass::is_short(&error) => {
                    lacks_descriptor(&error, "a message with a process of a pool waits");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
