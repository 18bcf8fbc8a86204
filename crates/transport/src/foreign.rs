//! Descriptors that other processes send (`SCM_RIGHTS`), and sockets on which they can.
//!
//! Closing the last descriptor of a TCP connection may wait for its peer, for as long as
//! `SO_LINGER` says, and the sender of the descriptor chooses both. An event loop must not wait for
//! that, neither when it closes a descriptor that it has received, nor when it closes a socket in
//! which a descriptor still waits to be received.

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::BytesMut;
use rustix::fs::FileType;
use rustix::io::ioctl_fionread;
use rustix::net::{AddressFamily, Shutdown, sockopt};
use sendoff_sys::fdpass;
use tokio::net::UnixStream;
use tokio::runtime::Handle;

/// The most messages that are taken out of a socket before it is closed.
const MOST_MESSAGES: usize = 1024;

/// Bytes of such a message that are read at once.
const READ: usize = 64 * 1024;

/// A UNIX socket whose other end another process has. If descriptors may wait in it, it is closed on
/// another thread, after them.
#[derive(Debug)]
pub struct ForeignSocket<S: IntoDescriptor> {
    /// `None`: it has been taken.
    socket: Option<S>,
    is_stream: bool,
}

impl<S: IntoDescriptor> ForeignSocket<S> {
    /// Takes a stream socket.
    pub fn new(socket: S) -> Self {
        Self { socket: Some(socket), is_stream: true }
    }

    /// Takes a packet socket, in which empty packets may wait, and which may have other owners.
    pub fn of_packets(socket: S) -> Self {
        Self { socket: Some(socket), is_stream: false }
    }

    /// The descriptor; `None` if it had to be closed.
    pub fn into_descriptor(mut self) -> Option<OwnedFd> {
        self.socket.take().and_then(IntoDescriptor::into_descriptor)
    }
}

impl<S: IntoDescriptor> Deref for ForeignSocket<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.socket.as_ref().unwrap_or_else(|| unreachable!("it is taken at the end alone"))
    }
}

impl<S: IntoDescriptor> DerefMut for ForeignSocket<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.socket.as_mut().unwrap_or_else(|| unreachable!("it is taken at the end alone"))
    }
}

impl<S: IntoDescriptor + AsFd> AsFd for ForeignSocket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<S: IntoDescriptor> Drop for ForeignSocket<S> {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take().and_then(IntoDescriptor::into_descriptor) else {
            return;
        };
        if self.is_stream {
            let _gone = rustix::net::shutdown(&socket, Shutdown::Both);
            if ioctl_fionread(&socket) == Ok(0) {
                // Descriptors come with bytes only, and nothing comes any more.
                return;
            }
        }
        elsewhere(move || close_socket(socket));
    }
}

/// Reads bytes from a stream socket into the spare capacity of `buffer`, and closes descriptors
/// that come along. Returns 0 at the end of the stream.
///
/// # Errors
/// The errors of [`fdpass::try_receive`].
pub fn read(socket: &UnixStream, buffer: &mut BytesMut) -> io::Result<usize> {
    let mut descriptors = VecDeque::new();
    let read = fdpass::try_receive(socket.as_fd(), buffer, &mut descriptors);
    close(descriptors);
    read
}

/// A socket that can leave its event loop.
pub trait IntoDescriptor: Sized {
    /// The descriptor; `None` if it had to be closed.
    fn into_descriptor(self) -> Option<OwnedFd>;
}

impl IntoDescriptor for OwnedFd {
    fn into_descriptor(self) -> Option<OwnedFd> {
        Some(self)
    }
}

impl IntoDescriptor for UnixStream {
    fn into_descriptor(self) -> Option<OwnedFd> {
        self.into_std().ok().map(OwnedFd::from)
    }
}

/// Checks that descriptors are of files or folders, from the one with number `from` on.
///
/// # Errors
/// Others have come along. All from `from` on are closed, so the stream is useless.
pub fn check_files(descriptors: &mut VecDeque<OwnedFd>, from: usize) -> io::Result<()> {
    check(descriptors, from, |descriptor| {
        rustix::fs::fstat(descriptor).is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Fifo)
        })
    })
}

/// Checks that descriptors are of UNIX sockets.
///
/// # Errors
/// Others have come along. All are closed.
pub fn check_sockets(descriptors: &mut VecDeque<OwnedFd>) -> io::Result<()> {
    check(descriptors, 0, |descriptor| {
        sockopt::socket_domain(descriptor).is_ok_and(|domain| domain == AddressFamily::UNIX)
    })
}

fn check(
    descriptors: &mut VecDeque<OwnedFd>,
    from: usize,
    is_expected: impl Fn(&OwnedFd) -> bool,
) -> io::Result<()> {
    if descriptors.iter().skip(from).all(is_expected) {
        return Ok(());
    }
    close(descriptors.split_off(from));
    Err(io::Error::other("a descriptor of another kind has come along"))
}

/// Closes descriptors on another thread.
pub fn close(descriptors: VecDeque<OwnedFd>) {
    if !descriptors.is_empty() {
        elsewhere(move || descriptors.into_iter().for_each(close_one));
    }
}

/// Runs a function that may wait.
fn elsewhere(function: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        // The runtime's blocking threads are many and end when idle.
        Ok(runtime) => drop(runtime.spawn_blocking(function)),
        // Without an event loop nothing else waits.
        Err(_) => function(),
    }
}

/// Closes a descriptor of any kind. A connection is given up before, so that its close does not
/// wait.
fn close_one(descriptor: OwnedFd) {
    match sockopt::socket_domain(&descriptor) {
        Ok(AddressFamily::UNIX) => close_socket(descriptor),
        Ok(_) => {
            let _not_connected = rustix::net::connect_unspec(&descriptor);
        }
        Err(_) => {}
    }
}

/// Takes what waits in the socket, and closes it.
fn close_socket(socket: OwnedFd) {
    let mut buffer = BytesMut::with_capacity(READ);
    for _ in 0..MOST_MESSAGES {
        let mut descriptors = VecDeque::new();
        buffer.clear();
        buffer.reserve(READ);
        let received = fdpass::try_receive(socket.as_fd(), &mut buffer, &mut descriptors);
        // An empty packet looks like the end.
        let is_end = !matches!(received, Ok(1..)) && descriptors.is_empty();
        descriptors.into_iter().for_each(close_one);
        if is_end {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    /// The time for which a close on this thread would wait.
    const LINGER: Duration = Duration::from_secs(20);

    /// A connection whose peer takes nothing, so that closing it waits; and its peer.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65_536]).is_ok() {}
        sockopt::set_socket_linger(&socket, Some(LINGER)).unwrap();
        (socket.into(), listener.accept().unwrap().0)
    }

    /// Sends a byte and the descriptor, and closes the descriptor.
    fn hand_over(to: &std::os::unix::net::UnixStream, descriptor: OwnedFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(to, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    }

    fn pair() -> (ForeignSocket<UnixStream>, std::os::unix::net::UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ForeignSocket::new(UnixStream::from_std(ours).unwrap()), theirs)
    }

    /// Runs an event loop, which must not wait. It does not wait for its other threads.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let began = Instant::now();
        runtime.block_on(test);
        assert!(began.elapsed() < LINGER / 2);
        runtime.shutdown_background();
    }

    #[test]
    fn a_descriptor_that_nobody_expects_is_closed_without_a_wait() {
        run(async {
            let (ours, theirs) = pair();
            let (socket, _peer) = lingering();
            hand_over(&theirs, socket);
            ours.readable().await.unwrap();
            assert_eq!(read(&ours, &mut BytesMut::with_capacity(10)).unwrap(), 1);
            let (socket, _peer) = lingering();
            assert!(check_files(&mut VecDeque::from([socket]), 0).is_err());
            let (socket, _peer) = lingering();
            assert!(check_sockets(&mut VecDeque::from([socket])).is_err());
        });
    }

    #[test]
    fn a_descriptor_that_nobody_has_received_is_closed_without_a_wait() {
        run(async {
            let (ours, theirs) = pair();
            let (socket, _peer) = lingering();
            hand_over(&theirs, socket);
            drop(theirs);
            drop(ours);
        });
    }

    #[test]
    fn files_before_others_stay() {
        let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut all = VecDeque::from([file(), file(), socket.into()]);
        assert!(check_files(&mut all, 1).is_err());
        assert_eq!(all.len(), 1);
        assert!(check_files(&mut all, 0).is_ok());
        assert!(check_sockets(&mut all).is_err());
    }
}
