//! Counters of a TCP connection: bytes that all processes together have written to it and read from
//! it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BytesMut;
use rustix::io::ioctl_fionread;

use crate::outq::outq;

/// Start and end of `tcpi_bytes_acked` in `struct tcp_info` (`<linux/tcp.h>`, since Linux 4.1).
const BYTES_ACKED_AT: usize = 120;
const BYTES_ACKED_END: usize = BYTES_ACKED_AT + 8;

/// The end of `tcpi_bytes_received`, which follows it (since Linux 4.1).
const BYTES_RECEIVED_END: usize = BYTES_ACKED_END + 8;

/// Maximum number of attempts to read two counters without a change in between.
const MAX_TRIES: usize = 1000;

/// Number of bytes that `send(2)` and `sendfile(2)` have put into an accepted connection since it
/// was created, by any process: acknowledged bytes (`tcpi_bytes_acked`, RFC 4898
/// `tcpEStatsAppHCThruOctetsAcked`) plus unacknowledged bytes (`SIOCOUTQ`, `tcp(7)`). Exact in
/// every state, even after a reset, unless a process has called `shutdown(2)`, which counts as a
/// byte.
///
/// # Errors
/// It is not a TCP socket; `EAGAIN` if acknowledgements kept arriving.
pub fn written(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut acked = acknowledged(socket)?;
    for _ in 0..MAX_TRIES {
        let waiting = outq(socket)?;
        let before = std::mem::replace(&mut acked, acknowledged(socket)?);
        if before == acked {
            return Ok(acked + waiting);
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Number of bytes that were written and that the peer has not acknowledged, even after the end of
/// the connection (`SIOCOUTQ`, `tcp(7)`).
///
/// # Errors
/// The kernel gives no answer.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    outq(socket)
}

/// Bytes that were read from a connection since it was made, by any process: those that came in
/// order (`tcpi_bytes_received`, RFC 4898 `tcpEStatsAppHCThruOctetsReceived`) less the unread ones
/// (`FIONREAD`). A look ahead (`MSG_PEEK`) does not count. Exact until the connection is reset.
///
/// # Errors
/// It is not a TCP connection, or no longer one; `EAGAIN` if bytes kept arriving.
pub fn consumed(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut unread = ioctl_fionread(socket)?;
    for _ in 0..MAX_TRIES {
        let received = received(socket)?;
        let before = std::mem::replace(&mut unread, ioctl_fionread(socket)?);
        if before == unread {
            return received.checked_sub(unread).ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// True if [`consumed`] is `n`. Takes one system call if nothing is unread.
///
/// # Errors
/// As [`consumed`].
pub fn has_consumed(socket: BorrowedFd<'_>, n: u64) -> io::Result<bool> {
    Ok(received(socket)? == n || consumed(socket)? == n)
}

/// Bytes that have come in order since the connection was made.
fn received(socket: BorrowedFd<'_>) -> io::Result<u64> {
    /// States of `<netinet/tcp.h>`.
    const CLOSE: u8 = 7;
    const HAS_ENDED: [u8; 4] = [6, 8, 9, 11];
    let mut info = [0_u8; BYTES_RECEIVED_END];
    let len = info_into(socket, &mut info)?;
    let (state, Some(raw)) = (info[0], info.last_chunk()) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    if len < info.len() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if state == CLOSE {
        return Err(io::ErrorKind::NotConnected.into());
    }
    // The kernel counts the end of the peer's data as a byte.
    let end = u64::from(HAS_ENDED.contains(&state));
    Ok(u64::from_ne_bytes(*raw).saturating_sub(end))
}

/// Receives into the spare capacity of `buf` (the caller reserves it). Never waits, even if another
/// process has changed the socket's flags. Returns the number of bytes received; 0 means that the
/// peer has ended its sending, or that `buf` had no room.
///
/// # Errors
/// Errors of `recv(2)`; `WouldBlock` if nothing has arrived.
pub fn try_receive(socket: BorrowedFd<'_>, buf: &mut BytesMut) -> io::Result<usize> {
    let spare = buf.spare_capacity_mut();
    let (start, len) = (spare.as_mut_ptr().cast(), spare.len());
    // SAFETY: the kernel writes at most `len` bytes into the spare capacity, which is that long.
    let n = unsafe { libc::recv(socket.as_raw_fd(), start, len, libc::MSG_DONTWAIT) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has initialised the first `n` bytes of the spare capacity.
    unsafe { buf.set_len(buf.len() + n) };
    Ok(n)
}

/// Largest number of messages that [`clear_errors`] takes from a socket in one call.
const MAX_ERRORS: usize = 256;

/// Empties the error queue of a socket (`MSG_ERRQUEUE`, `recv(2)`), and turns off the options by
/// which the kernel fills it for TCP: `SO_TIMESTAMPING` and `SO_ZEROCOPY`. The kernel reports each
/// message in the queue as an error of the socket. Never waits. At most 256 messages are taken; the
/// kernel reports the others again.
pub fn clear_errors(socket: BorrowedFd<'_>) {
    const TAKE: libc::c_int = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: all-zero bytes are a valid `msghdr`: no name, no buffers, no room for control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let mut takes_one = || {
        // SAFETY: the kernel writes to no memory but `message`.
        0 <= unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, TAKE) }
    };
    if !takes_one() {
        return;
    }
    for option in [libc::SO_TIMESTAMPING, libc::SO_ZEROCOPY] {
        let off: libc::c_int = 0;
        // A failure leaves the option on.
        let _ = set_option(socket, libc::SOL_SOCKET, option, &off.to_ne_bytes());
    }
    for _ in 1..MAX_ERRORS {
        if !takes_one() {
            break;
        }
    }
}

/// Sets an option of a socket (`setsockopt(2)`).
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).unwrap_or(0);
    // SAFETY: the kernel reads `len` bytes of `value`, which is that long.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// True if closing the last descriptor may have to wait for the peer (`SO_LINGER`), because data or
/// the FIN of this side are not acknowledged. Once false, it stays false.
#[must_use]
pub fn close_may_wait(socket: BorrowedFd<'_>) -> bool {
    /// States of `<netinet/tcp.h>`.
    const FIN_WAIT2: u8 = 5;
    const TIME_WAIT: u8 = 6;
    const CLOSE: u8 = 7;
    let mut info = [0_u8; 1];
    // The state is the first byte.
    info_into(socket, &mut info).is_err() || !matches!(info[0], FIN_WAIT2 | TIME_WAIT | CLOSE)
}

/// True if this side has not ended its sending direction.
#[must_use]
pub fn is_open(socket: BorrowedFd<'_>) -> bool {
    /// States of `<netinet/tcp.h>`.
    const ESTABLISHED: u8 = 1;
    const CLOSE_WAIT: u8 = 8;
    let mut info = [0_u8; 1];
    info_into(socket, &mut info).is_ok() && matches!(info[0], ESTABLISHED | CLOSE_WAIT)
}

/// Number of bytes that the peer has acknowledged since the connection was created.
///
/// # Errors
/// It is not a TCP socket.
pub fn acknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0_u8; BYTES_ACKED_END];
    let len = info_into(socket, &mut info)?;
    match info.last_chunk() {
        Some(raw) if len == info.len() => Ok(u64::from_ne_bytes(*raw)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Fills `info` with the beginning of `struct tcp_info`. Returns the number of bytes that the
/// kernel has filled in.
fn info_into(socket: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<usize> {
    let mut len = libc::socklen_t::try_from(info.len()).unwrap_or(0);
    // SAFETY: the kernel writes at most `len` bytes into `info`, which is that long.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(len as usize) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn every_byte_counts_once_read_or_not() {
        let (mut server, mut client) = pair();
        let count = || written(server.as_fd()).unwrap();
        assert_eq!(count(), 0);
        client.write_all(b"a request does not count").unwrap();
        assert_eq!(count(), 0);
        (&server).write_all(&[7; 5000]).unwrap();
        assert_eq!(count(), 5000);
        client.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(count(), 5000);
        server.set_nonblocking(true).unwrap();
        let mut total = 5000;
        while let Ok(n) = (&server).write(&[7; 100_000]) {
            total += n as u64;
        }
        assert_eq!(count(), total);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(count(), total);
        // Unread bytes turn the close into a reset. Until it arrives the socket may have room
        // again.
        drop(client);
        loop {
            match server.write(b"x") {
                Ok(n) => total += n as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
        assert_eq!(written(server.as_fd()).unwrap(), total);
    }

    #[test]
    fn every_byte_that_was_read_counts_whoever_has_read_it() {
        let (server, mut client) = pair();
        let other = server.try_clone().unwrap();
        let count = || consumed(server.as_fd()).unwrap();
        assert_eq!(count(), 0);
        client.write_all(&[7; 5000]).unwrap();
        (&server).read_exact(&mut [0; 1000]).unwrap();
        assert_eq!(count(), 1000);
        assert!(has_consumed(server.as_fd(), 1000).unwrap());
        other.peek(&mut [0; 100]).unwrap();
        assert_eq!(count(), 1000);
        (&other).read_exact(&mut [0; 500]).unwrap();
        assert_eq!(count(), 1500);
        client.shutdown(Shutdown::Write).unwrap();
        // The end is there when a read that takes everything finds it.
        assert_eq!(server.peek(&mut [0; 10]).unwrap(), 10);
        (&server).read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(count(), 5000);
        assert!(has_consumed(server.as_fd(), 5000).unwrap());
        assert!(!has_consumed(server.as_fd(), 4999).unwrap());
        rustix::net::connect_unspec(&other).unwrap();
        assert!(consumed(server.as_fd()).is_err());
    }

    #[test]
    fn the_end_does_not_count_before_it_is_read() {
        let (server, mut client) = pair();
        client.write_all(&[7; 10]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        while is_established(&server) {}
        assert_eq!(consumed(server.as_fd()).unwrap(), 0);
        (&server).read_exact(&mut [0; 10]).unwrap();
        assert_eq!(consumed(server.as_fd()).unwrap(), 10);
        assert_eq!((&server).read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(consumed(server.as_fd()).unwrap(), 10);
    }

    fn is_established(socket: &TcpStream) -> bool {
        let mut info = [0_u8; 1];
        info_into(socket.as_fd(), &mut info).unwrap();
        info[0] == 1
    }

    #[test]
    fn a_blocking_socket_is_not_waited_for() {
        let (server, mut client) = pair();
        let mut buf = BytesMut::with_capacity(8);
        let nothing = try_receive(server.as_fd(), &mut buf).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        // What was sent may be on its way.
        let mut receive = || {
            loop {
                match try_receive(server.as_fd(), &mut buf) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::yield_now(),
                    other => return other.unwrap(),
                }
            }
        };
        client.write_all(b"abc").unwrap();
        assert_eq!(receive(), 3);
        drop(client);
        assert_eq!(receive(), 0);
        assert_eq!(&buf[..], b"abc");
    }

    #[test]
    fn a_close_may_wait_until_the_end_is_acknowledged() {
        let (mut server, mut client) = pair();
        assert!(close_may_wait(server.as_fd()));
        server.set_nonblocking(true).unwrap();
        while server.write(&[7; 100_000]).is_ok() {}
        server.shutdown(Shutdown::Write).unwrap();
        assert!(close_may_wait(server.as_fd()), "the client has not taken what was sent");
        client.read_to_end(&mut Vec::new()).unwrap();
        // The last acknowledgement may be on its way.
        while close_may_wait(server.as_fd()) {}
    }

    #[test]
    fn only_tcp_sockets_have_an_answer() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(written(one.as_fd()).is_err());
    }
}
