//! Pipes through which the kernel moves bytes from one socket to another without a copy
//! (splice(2)).
//!
//! ```text
//!  socket ── fill ──▶ Pipe ── drain ──▶ socket
//! ```
//! A connection has a pipe only while the pipe contains bytes. Each event loop keeps a few empty
//! pipes: opening and closing one takes 1.5 µs, a third of the time for moving 64 KiB.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, recv};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use crate::descriptors;
use crate::descriptors::Level;

/// The kernel's default pipe size (pipe(7)). Larger pipes move a megabyte in 15 % less time, but
/// the kernel limits the total size of a user's pipes.
const CAPACITY: usize = 64 * 1024;

/// Most empty pipes that an event loop keeps.
const MAX_SPARE: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// A pipe of one connection.
#[derive(Debug)]
pub struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    /// Bytes in the pipe.
    len: usize,
}

impl Pipe {
    /// An empty pipe; `None` if the process has no descriptors for it.
    pub fn take() -> Option<Self> {
        if let Some(spare) = SPARE.with_borrow_mut(Vec::pop) {
            return Some(spare);
        }
        if descriptors::level() >= Level::Scarce {
            return None;
        }
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        descriptors::note(&input);
        Some(Self { output, input, len: 0 })
    }

    /// Keeps an empty pipe for another connection. A pipe with bytes is closed, and its bytes are
    /// lost.
    pub fn give_back(self) {
        SPARE.with_borrow_mut(|spare| {
            if self.len == 0 && spare.len() < MAX_SPARE {
                spare.push(self);
            }
        });
    }

    /// True if the pipe contains no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Moves bytes that a socket has received into the pipe, which must be empty.
    ///
    /// # Errors
    /// `WouldBlock`: no bytes have come. `Unsupported`: only a read can tell what has come, such as
    /// the end, or bytes after urgent data (tcp(7)), which splice(2) does not move.
    pub fn fill(&mut self, socket: impl AsFd) -> io::Result<usize> {
        debug_assert!(self.is_empty(), "a full pipe would look like a socket without bytes");
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        match retry_on_intr(|| splice(&socket, None, &self.input, None, CAPACITY, flags)) {
            Ok(0) | Err(Errno::INVAL) => Err(io::ErrorKind::Unsupported.into()),
            Err(Errno::AGAIN) if is_readable(&socket) => Err(io::ErrorKind::Unsupported.into()),
            Ok(moved) => {
                self.len = moved;
                Ok(moved)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Puts the beginning of `bytes` into the pipe, which must be empty. Returns the number of
    /// bytes.
    ///
    /// # Errors
    /// The errors of write(2).
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<usize> {
        debug_assert!(self.is_empty(), "there may be no room");
        let len = bytes.len().min(CAPACITY);
        self.len = retry_on_intr(|| rustix::io::write(&self.input, &bytes[..len]))?;
        Ok(self.len)
    }

    /// Moves bytes from the pipe, which must not be empty, to another pipe or to a socket whose
    /// `O_NONBLOCK` no other process can clear.
    ///
    /// # Errors
    /// `WouldBlock`: the other side accepts no bytes now.
    pub fn drain(&mut self, socket: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let moved = retry_on_intr(|| splice(&self.output, None, &socket, None, self.len, flags))?;
        self.len -= moved;
        Ok(moved)
    }
}

/// True if a read would return bytes or the end.
fn is_readable(socket: impl AsFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    retry_on_intr(|| recv(&socket, &mut [0; 1], flags)) != Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn bytes_pass_and_the_end_is_seen() {
        let (mut from, source) = UnixStream::pair().unwrap();
        let (target, mut to) = UnixStream::pair().unwrap();
        source.set_nonblocking(true).unwrap();
        let mut pipe = Pipe::take().unwrap();
        let nothing = pipe.fill(&source).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        from.write_all(b"bytes").unwrap();
        drop(from);
        assert_eq!((pipe.fill(&source).unwrap(), pipe.is_empty()), (5, false));
        assert_eq!((pipe.drain(&target).unwrap(), pipe.is_empty()), (5, true));
        assert_eq!(pipe.fill(&source).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let mut got = [0; 5];
        to.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"bytes");
    }

    /// splice(2) moves no bytes after urgent data, and reports urgent data as the end.
    #[test]
    fn what_comes_behind_urgent_data_is_left_to_reads() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut from = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut source = listener.accept().unwrap().0;
        from.write_all(b"abc").unwrap();
        rustix::net::send(&from, b"!", rustix::net::SendFlags::OOB).unwrap();
        from.write_all(b"def").unwrap();
        drop(from);
        let mut first = [0; 3];
        source.read_exact(&mut first).unwrap();
        let mut pipe = Pipe::take().unwrap();
        assert_eq!(pipe.fill(&source).unwrap_err().kind(), io::ErrorKind::Unsupported);
        let mut rest = Vec::new();
        source.read_to_end(&mut rest).unwrap();
        assert_eq!((&first, &rest[..]), (b"abc", &b"def"[..]));
    }

    #[test]
    fn a_full_pipe_is_not_waited_for() {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut pipe = Pipe::take().unwrap();
        let mut moved = 0;
        let full = loop {
            assert_eq!(pipe.put(b"bytes").unwrap(), 5);
            match pipe.drain(&input) {
                Ok(n) => moved += n,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(input);
        let mut all = Vec::new();
        std::fs::File::from(output).read_to_end(&mut all).unwrap();
        assert_eq!((all.len(), &all[..10]), (moved, &b"bytesbytes"[..]));
    }

    /// The kernel reports a connection's error only once, so it must not get lost.
    #[test]
    fn a_reset_is_no_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let from = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut source = listener.accept().unwrap().0;
        source.write_all(b"unread").unwrap();
        let mut unread = [0; 1];
        (&from).read_exact(&mut unread).unwrap();
        drop(from);
        let mut pipe = Pipe::take().unwrap();
        assert_eq!(pipe.fill(&source).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn only_empty_pipes_are_kept() {
        let (mut from, source) = UnixStream::pair().unwrap();
        from.write_all(b"x").unwrap();
        let mut full = Pipe::take().unwrap();
        full.fill(&source).unwrap();
        full.give_back();
        assert!(SPARE.with_borrow(Vec::is_empty));
        let many: Vec<Pipe> = (0..=MAX_SPARE).map(|_| Pipe::take().unwrap()).collect();
        many.into_iter().for_each(Pipe::give_back);
        assert_eq!(SPARE.with_borrow(Vec::len), MAX_SPARE);
        assert!(Pipe::take().unwrap().is_empty());
        assert_eq!(SPARE.with_borrow(Vec::len), MAX_SPARE - 1);
    }
}
