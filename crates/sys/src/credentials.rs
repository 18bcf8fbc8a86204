//! The sender of a message on a UNIX socket, as the kernel knows it (`unix(7)`, `SCM_CREDENTIALS`).
//! The socket asks for it by `SO_PASSCRED`.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, UCred, recvmsg};

/// Receives bytes into `room`. Returns their number and their sender; `None`: the socket did not
/// ask for it. Descriptors that came along are closed.
///
/// # Errors
/// Errors of `recvmsg(2)`.
pub fn receive(
    socket: impl AsFd,
    room: &mut [u8],
    flags: RecvFlags,
) -> io::Result<(usize, Option<UCred>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut about = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut about, flags)?;
    let sender = about.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender),
        _ => None,
    });
    Ok((received.bytes, sender))
}
