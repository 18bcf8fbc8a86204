//! The sockets of a worker, and how the front gets its ends of them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, sendmsg, socketpair,
};
use rustix::process::Pid;

/// The links and the guard ride on one message, which carries at most 64 descriptors.
pub(crate) const MAX_LINKS: i64 = 63;

/// The most workers that the front may ask for; it has bounds of its own, but it is not trusted with a fork bomb.
const MOST_WORKERS: u32 = 1024;

/// One side's ends of a worker's sockets.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) links: Vec<OwnedFd>,
    pub(crate) guard: OwnedFd,
}

/// Both sides, the front's first.
pub(crate) fn sockets(links: u8) -> io::Result<(Ends, Ends)> {
    let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let pairs: Vec<_> = (0..links).map(|_| pair(SocketType::STREAM)).collect::<Result<_, _>>()?;
    let (front_links, worker_links) = pairs.into_iter().unzip();
    let (front_guard, worker_guard) = pair(SocketType::SEQPACKET)?;
    let front = Ends { links: front_links, guard: front_guard };
    Ok((front, Ends { links: worker_links, guard: worker_guard }))
}

/// How many workers the front wants from now on, if it has said so: a message of 4 bytes, u32 big-endian.
pub(crate) fn wanted_workers(pool: BorrowedFd<'_>) -> Option<usize> {
    let mut message = [0; 4];
    let (received, _) = rustix::net::recv(pool, &mut message, RecvFlags::DONTWAIT).ok()?;
    let wanted = u32::from_be_bytes(message);
    (received == 4 && (1..=MOST_WORKERS).contains(&wanted)).then_some(wanted as usize)
}

/// Tells the front of a new worker and gives it its ends.
///
/// # Errors
/// The front is gone, or so far behind that the socket is full.
pub(crate) fn announce(pool: BorrowedFd<'_>, worker: Pid, ends: &Ends) -> io::Result<()> {
    let mut message = [0; 8];
    message[..4].copy_from_slice(&worker.as_raw_nonzero().get().to_be_bytes());
    let links = u32::try_from(ends.links.len()).map_err(io::Error::other)?;
    message[4..].copy_from_slice(&links.to_be_bytes());
    let fds: Vec<_> = ends.links.iter().chain([&ends.guard]).map(AsFd::as_fd).collect();
    let mut space = vec![MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(&fds).size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(pool, &[IoSlice::new(&message)], &mut control, flags)?;
    Ok(())
}
