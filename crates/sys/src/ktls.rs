//! TLS in the kernel (Documentation/networking/tls.rst): data written to a socket are sent as
//! encrypted records.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::tcp::set_option;

/// Keys in the kernel's format: one of the structs `tls12_crypto_info_*` of `<linux/tls.h>`, byte
/// by byte.
#[derive(Clone, Copy)]
pub struct CryptoInfo<'k>(&'k [u8]);

impl<'k> CryptoInfo<'k> {
    /// Wraps the bytes; the kernel checks their length and contents.
    #[must_use]
    pub fn new(bytes: &'k [u8]) -> Self {
        Self(bytes)
    }
}

/// Size of the control message with a record's type, in words of 8 bytes.
const CONTROL_WORDS: usize = 4;

/// Attaches the kernel's TLS layer to a connected TCP socket (`TCP_ULP`); the keys are set
/// afterwards.
///
/// # Errors
/// `ENOENT`: the kernel has no TLS, or its module is not loaded and this process may not load it.
pub fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls")
}

/// Sets the keys for sending; later writes to the socket are encrypted.
///
/// # Errors
/// The kernel does not support the algorithm. `EBUSY`: the socket already has keys, and the kernel
/// cannot change them (before Linux 6.14).
pub fn encrypt(socket: BorrowedFd<'_>, keys: CryptoInfo<'_>) -> io::Result<()> {
    set_option(socket, libc::SOL_TLS, libc::TLS_TX, keys.0)
}

/// Fills `info` with the keys for sending. Its first four bytes, version and cipher, must be set by
/// the caller and match the keys. Afterwards its last eight bytes are the number of the next
/// record.
///
/// # Errors
/// The socket has no such keys.
pub fn sending_state(socket: BorrowedFd<'_>, info: &mut [u8]) -> io::Result<()> {
    let mut len = libc::socklen_t::try_from(info.len()).unwrap_or(0);
    // SAFETY: the kernel writes at most `len` bytes into `info`, which is that long.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_TLS,
            libc::TLS_TX,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a record of a type other than application data, such as an alert (RFC 8446 §5.1), without
/// waiting.
///
/// # Errors
/// Errors of `sendmsg(2)`; also if the kernel took only a part of the record.
pub fn send_record(socket: BorrowedFd<'_>, content_type: u8, bytes: &[u8]) -> io::Result<()> {
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: an all-zero msghdr is valid: null pointers with zero lengths.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute. One byte of data takes 24 bytes, and `control`
    // has 32, so CMSG_FIRSTHDR points to a whole header in it, and CMSG_DATA to the byte after
    // that. The message points to memory that outlives the calls; the kernel only reads `bytes`.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(1) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_TLS;
        (*header).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*header).cmsg_len = libc::CMSG_LEN(1) as usize;
        *libc::CMSG_DATA(header) = content_type;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmsg(socket.as_raw_fd(), &raw const message, flags)
    };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
