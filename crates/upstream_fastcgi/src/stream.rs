//! A connection to a FastCGI application over TCP or a UNIX socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, ThreadId};

use bytes::BytesMut;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sendoff_config::Address;
use sendoff_sys::{credentials, fdpass};
use sendoff_transport::foreign::{ForeignSocket, check_kinds};
use tokio::io::{Interest, Ready};
use tokio::net::{TcpStream, UnixStream};

/// A connection, registered with the event loop it is used on.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(ForeignSocket<UnixStream>),
    Tcp(TcpStream),
}

/// A connection between two requests. It stays registered with its event loop, which most often
/// uses it next: that saves two system calls per request.
#[derive(Debug)]
pub(super) struct Parked {
    stream: Stream,
    event_loop: ThreadId,
}

impl Stream {
    pub(super) fn unix(stream: UnixStream) -> Self {
        Self::Unix(ForeignSocket::new(stream))
    }

    pub(super) async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => Ok(Self::unix(UnixStream::connect(path).await?)),
            Address::Tcp(host_port) => {
                let stream = TcpStream::connect(&**host_port).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            // The address of a pool comes from its master, and the address of an upstream from its
            // hosts.
            Address::Pool(_) | Address::Upstream(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Self::Unix(stream) => stream.ready(interest).await,
            Self::Tcp(stream) => stream.ready(interest).await,
        }
    }

    /// Reads into the buffer's spare room. Descriptors, which arrive only over UNIX sockets, are
    /// appended to `descriptors`.
    pub(super) fn try_read(
        &self,
        buffer: &mut BytesMut,
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || {
                let before = descriptors.len();
                let received = fdpass::try_receive(stream.as_fd(), buffer, descriptors);
                check_kinds(descriptors, before)?;
                received
            }),
            Self::Tcp(stream) => stream.try_read_buf(buffer),
        }
    }

    /// Sent bytes that the peer has not read; `None` if the kernel does not report them.
    pub(super) fn unread(&self) -> Option<u64> {
        match self {
            Self::Unix(stream) => sendoff_sys::outq::unread(stream.as_fd()).ok(),
            Self::Tcp(_) => None,
        }
    }

    /// To be called after the end of the peer's stream: true if the peer had read everything that
    /// was sent. A peer that closes a UNIX socket with unread bytes resets the connection. Always
    /// false over TCP, where the kernel does not report this.
    pub(super) fn was_read(&self) -> bool {
        let Self::Unix(stream) = self else { return false };
        // The count must be queried first: bytes that a close has dropped no longer count as
        // unread, but the connection is then reset.
        let is_read = self.unread() == Some(0);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        is_read && matches!(rustix::net::recv(stream.as_fd(), &mut [0; 1][..], flags), Ok((0, _)))
    }

    /// Makes the kernel record the sending process of each message, or stop recording it.
    pub(super) fn note_sender(&self, is_noted: bool) {
        if let Self::Unix(stream) = self {
            // If this fails, the master starts processes after a pause.
            let _ = set_socket_passcred(stream, is_noted);
        }
    }

    /// The process that has sent the next unread bytes, if [it is recorded](Self::note_sender).
    pub(super) fn sender(&self) -> Option<u32> {
        let Self::Unix(stream) = self else { return None };
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, sender) = credentials::receive(stream, &mut [0], flags).ok()?;
        u32::try_from(sender?.pid.as_raw_nonzero().get()).ok()
    }

    /// Clears a readiness: the connection becomes writable again when the peer has read, and
    /// readable when bytes arrive.
    pub(super) fn forget(&self, interest: Interest) {
        let not_now = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // The call only passes on the closure's result.
        let _not_now = match self {
            Self::Unix(stream) => stream.try_io(interest, not_now),
            Self::Tcp(stream) => stream.try_io(interest, not_now),
        };
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tcp(stream) => stream.try_write(bytes),
        }
    }

    /// Writes without the readiness of the event loop, which learns only in its next round that a
    /// resumed connection is writable. A descriptor is sent along, if there is one, over UNIX
    /// sockets only.
    pub(super) fn write_at_once(
        &self,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(sendmsg(self.as_fd(), &[IoSlice::new(bytes)], &mut control, flags)?)
    }

    pub(super) fn park(self) -> Parked {
        Parked { stream: self, event_loop: thread::current().id() }
    }
}

impl Parked {
    /// The connection for a request of this event loop.
    pub(super) fn resume(self) -> io::Result<Stream> {
        if self.event_loop == thread::current().id() {
            return Ok(self.stream);
        }
        Ok(match self.stream {
            Stream::Unix(stream) => {
                let descriptor = stream.into_descriptor().ok_or(io::ErrorKind::NotConnected)?;
                Stream::unix(UnixStream::from_std(descriptor.into())?)
            }
            Stream::Tcp(stream) => Stream::Tcp(TcpStream::from_std(stream.into_std()?)?),
        })
    }

    /// True if the peer has neither closed the connection nor sent any bytes, which it has no
    /// reason to do between requests.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(self.stream.as_fd(), &mut [0; 1][..], flags);
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}
