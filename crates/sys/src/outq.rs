//! `SIOCOUTQ`: the amount of data in a socket's send queue. The unit depends on the protocol.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

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
