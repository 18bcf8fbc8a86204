//! Receiving bytes and descriptors from a UNIX socket (`unix(7)`, `SCM_RIGHTS`).

use std::collections::VecDeque;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use bytes::BytesMut;

/// The most descriptors that the kernel delivers with one message (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;

/// Control bytes for [`MAX_FDS`] descriptors, in units that keep `cmsghdr` aligned.
const CONTROL_WORDS: usize = (size_of::<libc::cmsghdr>() + MAX_FDS * 4).div_ceil(8) + 1;

/// True for `EMFILE` and `ENFILE`: this process, or the system, has no descriptor left.
#[must_use]
pub fn is_short(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Receives into the spare capacity of `buf` (the caller reserves it) and appends the descriptors
/// that came along to `fds`, oldest first. Returns the number of bytes received; 0 means that the
/// peer has closed its end, or that `buf` had no room.
///
/// # Errors
/// Errors of `recvmsg(2)`. `EMFILE` if the kernel had to drop descriptors because this process has
/// too many: the stream is then useless, because later records would take the wrong descriptor.
pub fn receive(
    socket: BorrowedFd<'_>,
    buf: &mut BytesMut,
    fds: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    receive_with(socket, buf, fds, 0)
}

/// Like [`receive`], but never waits, even if another process has changed the socket's flags.
///
/// # Errors
/// Errors of [`receive`]; `WouldBlock` if nothing has arrived.
pub fn try_receive(
    socket: BorrowedFd<'_>,
    buf: &mut BytesMut,
    fds: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    receive_with(socket, buf, fds, libc::MSG_DONTWAIT)
}

/// As [`try_receive`], but takes bytes only together with all descriptors that come along with
/// them. It reads twice, so it is for a process that has few descriptors left. The socket must not
/// receive credentials (`SO_PASSCRED`).
///
/// # Errors
/// The errors of [`receive`]. `EMFILE`: more descriptors come along than this process may open; the
/// socket keeps the message.
pub fn try_receive_whole(
    socket: BorrowedFd<'_>,
    buf: &mut BytesMut,
    fds: &mut VecDeque<OwnedFd>,
) -> io::Result<usize> {
    let (before, mut came) = (buf.len(), VecDeque::new());
    let seen = receive_with(socket, buf, &mut came, libc::MSG_DONTWAIT | libc::MSG_PEEK);
    buf.truncate(before);
    let seen = seen?;
    if seen == 0 {
        return Ok(0);
    }
    // Takes the same bytes, without room for descriptors: the kernel drops its copies of the
    // descriptors already received.
    let spare = buf.spare_capacity_mut().as_mut_ptr();
    let mut iov = libc::iovec { iov_base: spare.cast(), iov_len: seen };
    // SAFETY: an all-zero msghdr is valid: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    // SAFETY: `seen` bytes were just read to the same place, so the spare capacity is at least as
    // large; it outlives the call.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: recvmsg initialised the first `n` bytes of the spare capacity.
    unsafe { buf.set_len(before + n) };
    if n != seen {
        return Err(io::Error::other("another process reads from this socket"));
    }
    // If the buffer ends exactly with a message, the kernel shows the next message's descriptors,
    // too (Linux 6.18). `MSG_CTRUNC` tells that the descriptors belong to the bytes taken.
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        fds.append(&mut came);
    }
    Ok(n)
}

fn receive_with(
    socket: BorrowedFd<'_>,
    buf: &mut BytesMut,
    fds: &mut VecDeque<OwnedFd>,
    flags: libc::c_int,
) -> io::Result<usize> {
    let spare = buf.spare_capacity_mut();
    let mut iov = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_WORDS];
    // SAFETY: an all-zero msghdr is valid: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the message points to one writable region of `spare.len()` bytes and to a control
    // buffer of the given size; both outlive the call.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has just filled `message`, whose control buffer is still alive.
    unsafe { take_descriptors(&message, fds) };
    // SAFETY: recvmsg initialised the first `n` bytes of the spare capacity.
    unsafe { buf.set_len(buf.len() + n) };
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok(n)
}

/// # Safety
/// `message` was filled by a successful `recvmsg` and its control buffer is alive; it is read once
/// only, because every descriptor in it gets an owner here.
unsafe fn take_descriptors(message: &libc::msghdr, fds: &mut VecDeque<OwnedFd>) {
    // SAFETY: per this function's contract; the CMSG macros stay inside the control buffer the
    // kernel described.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(cmsg) = header.as_ref() {
            if cmsg.cmsg_level == libc::SOL_SOCKET && cmsg.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(cmsg).cast::<RawFd>();
                let count = (cmsg.cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                for i in 0..count {
                    fds.push_back(OwnedFd::from_raw_fd(data.add(i).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, cmsg);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;

    fn send(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
    }

    #[test]
    fn bytes_and_descriptors_arrive_together_and_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut left, right) = UnixStream::pair().unwrap();
        let (other, _end) = UnixStream::pair().unwrap();
        send(&a, b"two", &[right.as_fd(), other.as_fd()]);
        drop(right);
        let (mut buf, mut fds) = (BytesMut::with_capacity(64), VecDeque::new());
        assert_eq!(receive(b.as_fd(), &mut buf, &mut fds).unwrap(), 3);
        assert_eq!((&buf[..], fds.len()), (&b"two"[..], 2));
        let mut received = UnixStream::from(fds.pop_front().unwrap());
        received.write_all(b"through").unwrap();
        drop(received);
        let mut text = String::new();
        left.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn what_is_received_whole_is_what_is_received() {
        let (a, b) = UnixStream::pair().unwrap();
        let (other, _end) = UnixStream::pair().unwrap();
        let mut got = (Vec::new(), Vec::new());
        send(&a, b"none", &[]);
        send(&a, b"two", &[other.as_fd(), other.as_fd()]);
        send(&a, b"one", &[other.as_fd()]);
        for room in [4, 1, 64] {
            let (mut buf, mut fds) = (BytesMut::with_capacity(room), VecDeque::new());
            assert!(try_receive_whole(b.as_fd(), &mut buf, &mut fds).unwrap() <= room);
            got.0.extend_from_slice(&buf);
            got.1.push(fds.len());
        }
        // The first buffer ends where the next message begins, which has descriptors.
        assert_eq!(got, (b"nonetwoone".to_vec(), vec![0, 2, 1]));
        let (mut buf, mut fds) = (BytesMut::with_capacity(8), VecDeque::new());
        let nothing = try_receive_whole(b.as_fd(), &mut buf, &mut fds).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(try_receive_whole(b.as_fd(), &mut buf, &mut fds).unwrap(), 0);
    }

    #[test]
    fn a_blocking_socket_is_not_waited_for() {
        let (_a, b) = UnixStream::pair().unwrap();
        let (mut buf, mut fds) = (BytesMut::with_capacity(8), VecDeque::new());
        let nothing = try_receive(b.as_fd(), &mut buf, &mut fds).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_closed_peer_is_zero_bytes_and_an_unread_one_is_a_reset() {
        let (a, mut b) = UnixStream::pair().unwrap();
        let (mut buf, mut fds) = (BytesMut::with_capacity(8), VecDeque::new());
        a.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(receive(b.as_fd(), &mut buf, &mut fds).unwrap(), 0);
        b.write_all(b"never read").unwrap();
        drop(a);
        let error = receive(b.as_fd(), &mut buf, &mut fds).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
