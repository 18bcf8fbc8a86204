//! The amount of data that a UNIX stream socket has sent and the peer has not read.

use std::io;
use std::os::fd::BorrowedFd;

use crate::outq::outq;

/// Memory that the kernel holds for data that was sent and is unread, in bytes of kernel memory.
/// Each `send(2)` adds to the number; its share is subtracted when its last byte has been read. On
/// a connection in the backlog the number only grows.
///
/// # Errors
/// It is not a socket.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<u64> {
    outq(socket)
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
