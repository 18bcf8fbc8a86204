//! `SIOCOUTQ`: the amount of data in a socket's send queue. The unit depends on the protocol.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Memory that the kernel holds for data that was sent over a UNIX stream socket and that the peer
/// has not read, in bytes of kernel memory.
/// Each `send(2)` adds to the number; its share is subtracted when its last byte has been read. On
/// a connection in the backlog the number only grows.
///
/// # Errors
/// It is not a socket.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<u64> {
    outq(socket)
}

pub(crate) fn outq(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes = MaybeUninit::<libc::c_int>::uninit();
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, bytes.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the int was written.
    Ok(u64::try_from(unsafe { bytes.assume_init() }).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn it_grows_with_each_write_and_shrinks_when_the_peer_has_read_one() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let unread = |socket: &UnixStream| unread(socket.as_fd()).unwrap();
        assert_eq!(unread(&one), 0);
        one.write_all(&[1; 1000]).unwrap();
        let first = unread(&one);
        one.write_all(&[1; 8]).unwrap();
        let both = unread(&one);
        assert!(0 < first && first < both);
        other.read_exact(&mut [0; 999]).unwrap();
        assert_eq!(unread(&one), both);
        other.read_exact(&mut [0; 1]).unwrap();
        assert!(unread(&one) <= first);
        other.read_exact(&mut [0; 8]).unwrap();
        assert_eq!(unread(&one), 0);
    }
}
