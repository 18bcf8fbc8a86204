//! How many bytes were written to a TCP connection, by all processes together.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::outq::outq;

/// Start and end of `tcpi_bytes_acked` in `struct tcp_info` (`<linux/tcp.h>`, since Linux 4.1).
const BYTES_ACKED_AT: usize = 120;
const BYTES_ACKED_END: usize = BYTES_ACKED_AT + 8;

/// How many times the two counters are read again because an acknowledgement came in between.
const MAX_TRIES: usize = 1000;

/// Bytes that `send(2)` and `sendfile(2)` have put into an accepted connection since it was made, by any process: those that are
/// acknowledged (`tcpi_bytes_acked`, RFC 4898 `tcpEStatsAppHCThruOctetsAcked`) and those that are not (`SIOCOUTQ`,
/// `tcp(7)`). Exact in every state, also after a reset, unless a process has called `shutdown(2)`, which counts as a byte.
///
/// # Errors
/// It is not a TCP socket; `EAGAIN` if acknowledgements kept coming.
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

/// Bytes that were written and that the other end has not acknowledged, also after the connection has ended (`SIOCOUTQ`, `tcp(7)`).
///
/// # Errors
/// The kernel has no answer.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    outq(socket)
}

/// Bytes that the other end has acknowledged since the connection was made.
///
/// # Errors
/// It is not a TCP socket.
pub fn acknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0_u8; BYTES_ACKED_END];
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
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    match info.last_chunk() {
        Some(raw) if len as usize == info.len() => Ok(u64::from_ne_bytes(*raw)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;

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
        // Unread bytes turn the close into a reset. Until it arrives there may be room again.
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
    fn only_tcp_sockets_have_an_answer() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(written(one.as_fd()).is_err());
    }
}
