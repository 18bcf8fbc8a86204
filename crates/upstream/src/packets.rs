//! Messages with descriptors, as the masters and workers of pools send them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sendoff_report::limits::lacks_descriptor;
use sendoff_sys::fdpass;
use sendoff_transport::foreign::{self, ForeignSocket};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The time between two attempts to receive a message for which too few descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// A message and the descriptors that came with it.
pub(crate) type Packet = (BytesMut, VecDeque<OwnedFd>);

/// A packet socket. The stream type inside serves only to wait for it.
#[derive(Debug)]
pub struct Packets(ForeignSocket<UnixStream>);

impl Packets {
    /// Wraps a connected socket (`SOCK_SEQPACKET`).
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = StdStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self(ForeignSocket::of_packets(UnixStream::from_std(socket)?)))
    }

    /// The next message, cut to `room` bytes; `None`: the peer has closed the socket. The message
    /// waits for descriptors if too few are left. Empty messages are dropped.
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
                Ok(1..) => return Ok(Some((message, fds))),
                Ok(_) if self.has_ended() => return Ok(None),
                Ok(_) => {
                    let (mut nothing, mut fds) = (BytesMut::with_capacity(1), VecDeque::new());
                    let dropped = fdpass::try_receive(self.0.as_fd(), &mut nothing, &mut fds);
                    foreign::close(fds);
                    dropped?;
                }
                Err(error) if fdpass::is_short(&error) => {
                    lacks_descriptor(&error, "a message with a process of a pool waits");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// True if no process can send any more: an empty message looks like the end otherwise.
    fn has_ended(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default())) != Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    #[test]
    fn an_empty_message_is_not_the_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let flags = SocketFlags::CLOEXEC;
            let (ours, theirs) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            for message in [&b""[..], b"first", b"", b"", b"last"] {
                send(&theirs, message, SendFlags::empty()).unwrap();
            }
            let packets = Packets::new(ours).unwrap();
            for expected in ["first", "last"] {
                assert_eq!(&packets.next(10).await.unwrap().unwrap().0, expected);
            }
            drop(theirs);
            assert!(packets.next(10).await.unwrap().is_none());
        });
    }
}
