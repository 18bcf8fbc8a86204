//! Descriptors that other processes send (`SCM_RIGHTS`), and sockets on which they can.
//!
//! Closing the last descriptor of a TCP connection may wait for its peer, for as long as
//! `SO_LINGER` says, and the sender of the descriptor chooses both. An event loop must not wait for
//! that, neither when it closes a descriptor that it has received, nor when it closes a socket in
//! which a descriptor still waits to be received. Descriptors may also wait in a socket that waits
//! in a socket, thousands deep, or in a connection that a received listener has not accepted, so
//! nothing here looks for them ([`process::close_without_lingering`]).

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use bytes::BytesMut;
use rustix::fs::FileType;
use rustix::io::ioctl_fionread;
use rustix::net::{AddressFamily, Shutdown, sockopt};
use sendoff_sys::{fdpass, process};
use tokio::net::UnixStream;

/// A UNIX socket whose other end another process has. If descriptors may wait in it, it is closed on
/// another thread, after them.
#[derive(Debug)]
pub struct ForeignSocket<S: IntoDescriptor> {
    /// `None`: it has been taken.
    socket: Option<S>,
    is_stream: bool,
}

impl<S: IntoDescriptor + AsFd> ForeignSocket<S> {
    /// Takes a stream socket.
    pub fn new(socket: S) -> Self {
        // Otherwise a read drops a byte that was sent with `MSG_OOB`, and the descriptors that have
        // come with the byte, in the middle of the call.
        let _older_than_5_15 = sockopt::set_socket_oobinline(&socket, true);
        Self { socket: Some(socket), is_stream: true }
    }
}

impl<S: IntoDescriptor> ForeignSocket<S> {
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
        close(VecDeque::from([socket]));
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

/// Checks that descriptors, from the one with number `from` on, are of files, folders or pipes: to
/// close these waits for no peer. Only regular files are of use, and their use is checked where a
/// record names them (`HandedFiles::open` in `upstream_worker/files.rs`).
///
/// # Errors
/// Others have come along. All from `from` on are closed, so the stream is useless.
pub fn check_kinds(descriptors: &mut VecDeque<OwnedFd>, from: usize) -> io::Result<()> {
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

/// Closes descriptors without a wait of the caller, whatever they are.
pub fn close(descriptors: VecDeque<OwnedFd>) {
    static CLOSER: OnceLock<Option<Sender<VecDeque<OwnedFd>>>> = OnceLock::new();
    if descriptors.is_empty() {
        return;
    }
    let closer = CLOSER.get_or_init(|| {
        let (to_closer, batches) = mpsc::channel();
        let started = thread::Builder::new().name("closer".into()).spawn(move || run(&batches));
        started.is_ok().then_some(to_closer)
    });
    // Without a thread they are closed here.
    let _closed = closer.as_ref().map(|closer| closer.send(descriptors));
}

/// Closes batches of descriptors. What has come while one was closed is one batch.
fn run(batches: &Receiver<VecDeque<OwnedFd>>) {
    while let Ok(mut batch) = batches.recv() {
        batch.extend(batches.try_iter().flatten());
        if let Err(error) = process::close_without_lingering(batch) {
            tracing::warn!(%error, "descriptors of other processes are closed without a thread");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
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
        send_with(to, descriptor, SendFlags::empty());
    }

    fn send_with(to: &std::os::unix::net::UnixStream, descriptor: OwnedFd, flags: SendFlags) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(to, &[IoSlice::new(b"x")], &mut control, flags).unwrap();
    }

    /// As [`hand_over`], with an urgent byte.
    fn hand_over_urgently(to: &std::os::unix::net::UnixStream, descriptor: OwnedFd) {
        send_with(to, descriptor, SendFlags::OOB);
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
            assert!(check_kinds(&mut VecDeque::from([socket]), 0).is_err());
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
    fn an_urgent_descriptor_is_closed_without_a_wait() {
        run(async {
            let (ours, theirs) = pair();
            let (socket, _peer) = lingering();
            hand_over_urgently(&theirs, socket);
            hand_over(&theirs, std::fs::File::open("/proc/self/exe").unwrap().into());
            ours.readable().await.unwrap();
            let mut buffer = BytesMut::with_capacity(10);
            while buffer.len() < 2 {
                assert!(read(&ours, &mut buffer).unwrap() > 0);
            }
        });
    }

    /// A received listener has not accepted a connection in which the descriptor waits, and waits
    /// itself at the end of a chain of sockets. Not even the next descriptor waits for it.
    #[test]
    fn a_descriptor_that_is_hard_to_find_is_closed_without_a_wait() {
        const DEPTH: usize = 3000;
        let (mut next, write) = io::pipe().unwrap();
        run(async move {
            let (ours, theirs) = pair();
            let (socket, _peer) = lingering();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("listener");
            let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
            hand_over(&std::os::unix::net::UnixStream::connect(&path).unwrap(), socket);
            let mut innermost = OwnedFd::from(listener);
            for _ in 0..DEPTH {
                let (outer, inner) = std::os::unix::net::UnixStream::pair().unwrap();
                hand_over(&inner, innermost);
                innermost = outer.into();
            }
            hand_over(&theirs, innermost);
            drop((ours, theirs));
            close(VecDeque::from([write.into()]));
            assert_eq!(next.read(&mut [0]).unwrap(), 0);
        });
    }

    #[test]
    fn files_folders_and_pipes_pass() {
        let open = |path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let (pipe, _) = io::pipe().unwrap();
        let mut all = VecDeque::from([open("/proc/self/exe"), open("/"), pipe.into()]);
        assert!(check_kinds(&mut all, 0).is_ok());
        all.push_back(open("/dev/null"));
        assert!(check_kinds(&mut all, 0).is_err());
        assert!(all.is_empty());
    }

    #[test]
    fn files_before_others_stay() {
        let file = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut all = VecDeque::from([file(), file(), socket.into()]);
        assert!(check_kinds(&mut all, 1).is_err());
        assert_eq!(all.len(), 1);
        assert!(check_kinds(&mut all, 0).is_ok());
        assert!(check_sockets(&mut all).is_err());
    }
}
