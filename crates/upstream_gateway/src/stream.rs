//! A connection to an application: TCP or a UNIX socket, in the clear or with TLS.

use std::cell::Cell;
use std::io::{self, BufRead};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustix::net::{RecvFlags, Shutdown};
use sendoff_config::Address;
use sendoff_transport::foreign::{self, ForeignSocket};
use sendoff_transport::pipe::Pipe;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// The most bytes of one read.
const READ: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next read.
const READ_MIN: usize = 16 * 1024;
/// Room for decrypted bytes: one TLS record.
const RECORD: usize = 16 * 1024;

thread_local! {
    /// The spare room of the last buffer. Short responses share one allocation, and mostly find it
    /// free again.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// Keeps the room of an empty buffer for the next read of this event loop.
pub(crate) fn give_back(buffer: BytesMut) {
    if buffer.is_empty() {
        SPARE.set(buffer);
    }
}

/// A connection to an application.
#[derive(Debug)]
pub(super) enum Stream {
    /// In the clear.
    Plain(Plain),
    /// With TLS, whose handshake is complete.
    Tls(Box<TlsStream<Plain>>),
}

/// A socket.
#[derive(Debug)]
pub(super) enum Plain {
    /// A UNIX socket.
    Unix(ForeignSocket<UnixStream>),
    /// TCP.
    Tcp(TcpStream),
}

impl Plain {
    pub(super) async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                Ok(Self::Unix(ForeignSocket::new(UnixStream::connect(path).await?)))
            }
            Address::Tcp(host_port) => {
                let stream = TcpStream::connect(&**host_port).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            // The address of an upstream comes from its hosts; pools speak FastCGI.
            Address::Pool(_) | Address::Upstream(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
        }
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(stream) => stream.poll_read_ready(cx),
            Self::Tcp(stream) => stream.poll_read_ready(cx),
        }
    }

    /// A read that fills the buffer only in part has drained the socket. tokio clears the readiness
    /// then, so the next read makes no system call until the kernel reports more bytes.
    fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_readable(cx))?;
        if buffer.capacity() == 0 {
            *buffer = SPARE.take();
        }
        if buffer.capacity() - buffer.len() < READ_MIN {
            buffer.reserve(READ);
        }
        match self {
            Self::Unix(stream) => loop {
                ready!(stream.poll_read_ready(cx))?;
                match stream.try_io(Interest::READABLE, || foreign::read(stream, buffer)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    read => return Poll::Ready(read),
                }
            },
            Self::Tcp(stream) => pin!(stream.read_buf(buffer)).poll(cx),
        }
    }

    fn try_io<R>(&self, interest: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            Self::Unix(stream) => stream.try_io(interest, io),
            Self::Tcp(stream) => stream.try_io(interest, io),
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(stream) => stream.poll_write_ready(cx),
            Self::Tcp(stream) => stream.poll_write_ready(cx),
        }
    }

    /// A pipe would drop descriptors that have come along on this thread, so UNIX sockets are read.
    fn poll_fill(&self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        if matches!(self, Self::Unix(_)) {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        }
        loop {
            ready!(self.poll_readable(cx))?;
            match self.try_io(Interest::READABLE, || pipe.fill(self)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_drain(&self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_writable(cx))?;
            match self.try_io(Interest::WRITABLE, || pipe.drain(self)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl Stream {
    /// A connected UNIX stream socket, registered with the event loop of the caller.
    pub(super) fn of_unix(socket: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Self::Plain(Plain::Unix(ForeignSocket::new(UnixStream::from_std(socket)?))))
    }

    /// True if bytes may move between the connection and a pipe, because nothing encrypts them.
    pub(super) fn is_clear(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// Moves received bytes into an empty pipe. Only for a connection that [is
    /// clear](Self::is_clear). Fails with `Unsupported` if only a read can tell what was received.
    pub(super) fn poll_fill(
        &self,
        cx: &mut Context<'_>,
        pipe: &mut Pipe,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(plain) => plain.poll_fill(cx, pipe),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Sends the bytes in a pipe. Only for a connection that [is clear](Self::is_clear).
    pub(super) fn poll_drain(
        &self,
        cx: &mut Context<'_>,
        pipe: &mut Pipe,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(plain) => plain.poll_drain(cx, pipe),
            Self::Tls(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Reads received bytes; 0 at the end of the application's stream. The buffer gets its room
    /// only when there are bytes.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(plain) => plain.poll_read_buf(cx, buffer),
            Self::Tls(tls) => {
                let was_empty = buffer.is_empty();
                buffer.reserve(RECORD);
                let read = pin!(tls.read_buf(buffer)).poll(cx);
                if read.is_pending() && was_empty {
                    *buffer = BytesMut::new();
                }
                read
            }
        }
    }

    /// Sends some of the bytes. With TLS they may be buffered until
    /// [`poll_flush`](Self::poll_flush).
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(plain) => Pin::new(plain).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    /// Ready when no written bytes are buffered here.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    /// Closes the sending direction.
    pub(super) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(plain) => Pin::new(plain).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    /// True if the application closed its sending direction and its machine has not received any of
    /// the last `written` bytes, so the connection was closed before they arrived. Known for TCP
    /// without TLS; false if unknown.
    ///
    /// A close with bytes that the application has not read causes a reset, not an end of its
    /// stream. So the result is valid after a read of 0 bytes, but not after an error.
    pub(super) fn is_unreceived(&self, written: u64) -> bool {
        match self {
            Self::Plain(Plain::Tcp(stream)) => sendoff_sys::tcp::unacknowledged(stream.as_fd())
                .is_ok_and(|unacknowledged| written > 0 && unacknowledged >= written),
            Self::Plain(Plain::Unix(_)) | Self::Tls(_) => false,
        }
    }

    /// True if the application has neither closed the connection nor sent any bytes, which it has
    /// no reason to do between requests.
    pub(super) fn is_quiet(&mut self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let socket = match self {
            Self::Plain(plain) => &*plain,
            Self::Tls(tls) => {
                let (plain, session) = tls.get_mut();
                let left = session.reader().fill_buf().map(<[u8]>::len);
                if !matches!(left, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
                    return false;
                }
                &*plain
            }
        };
        let peeked = rustix::net::recv(socket.as_fd(), &mut [0; 1][..], flags);
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }
}

impl AsFd for Plain {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(rustix::net::shutdown(self.as_fd(), Shutdown::Write)?))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(plain).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(self.get_mut(), cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll_flush(self.get_mut(), cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_finish(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// The result of a read after the application has handled a connection and the bytes written to
    /// it.
    async fn after(
        deal: impl FnOnce(std::net::TcpStream, &mut dyn FnMut()),
    ) -> (io::Result<usize>, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let plain = Plain::connect(&Address::Tcp(address)).await.unwrap();
        let Plain::Tcp(tcp) = plain else { panic!("no TCP") };
        let (accepted, _) = listener.accept().unwrap();
        let tcp = tcp.into_std().unwrap();
        let mut write = || rustix::io::write(&tcp, b"a request").map(|n| assert_eq!(n, 9)).unwrap();
        deal(accepted, &mut write);
        let mut stream = Stream::Plain(Plain::Tcp(TcpStream::from_std(tcp).unwrap()));
        let mut received = BytesMut::new();
        let read = std::future::poll_fn(|cx| stream.poll_read(cx, &mut received)).await;
        (read, stream.is_unreceived(9))
    }

    #[tokio::test]
    async fn a_request_that_came_after_the_close_is_told_from_one_that_was_read() {
        let closed_before = after(|accepted, write| {
            drop(accepted);
            write();
        });
        assert!(matches!(closed_before.await, (Ok(0), true)));
        let read_before_it_closed = after(|mut accepted, write| {
            write();
            accepted.read_exact(&mut [0; 9]).unwrap();
        });
        assert!(matches!(read_before_it_closed.await, (Ok(0), false)));
        for len in [0, 4] {
            let read_in_part = after(|mut accepted, write| {
                write();
                accepted.read_exact(&mut [0; 4][..len]).unwrap();
            });
            assert!(matches!(read_in_part.await, (Err(_), _)));
        }
    }
}
