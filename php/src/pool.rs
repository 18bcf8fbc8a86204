//! The sockets of a worker, and how the front gets its ends of them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, sendmsg, socketpair,
};
use rustix::process::Pid;
use sendoff_pool::OUT_OF_MEMORY;

/// One side's ends of a worker's sockets.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) links: Vec<OwnedFd>,
    pub(crate) guard: OwnedFd,
}

/// Both sides, the front's first. A front has few enough event loops for one message to carry the descriptors of all
/// ([`sendoff_config::MAX_THREADS`]).
pub(crate) fn sockets(links: u8) -> io::Result<(Ends, Ends)> {
    let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let pairs: Vec<_> = (0..links).map(|_| pair(SocketType::STREAM)).collect::<Result<_, _>>()?;
    let (front_links, worker_links) = pairs.into_iter().unzip();
    let (front_guard, worker_guard) = pair(SocketType::SEQPACKET)?;
    let front = Ends { links: front_links, guard: front_guard };
    Ok((front, Ends { links: worker_links, guard: worker_guard }))
}

/// Sockets over which the master sends files to a worker: its end, and the worker's.
pub(crate) fn file_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a file over such a socket.
pub(crate) fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    send_with(socket, b"f", &[file])
}

/// The next message of the front, if there is one.
pub(crate) fn receive<'m>(pool: BorrowedFd<'_>, message: &'m mut [u8]) -> Option<&'m [u8]> {
    let (received, _) = rustix::net::recv(pool, &mut *message, RecvFlags::DONTWAIT).ok()?;
    // No bytes: the front has closed the socket.
    Some(&message[..received]).filter(|message| !message.is_empty())
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
    send_with(pool, &message, &fds)
}

/// Sockets over which workers ask the front for the state of their pool: the front's end, and that of all workers.
pub(crate) fn status_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Gives the front its end. Such a message has the process id 0, and no links.
///
/// # Errors
/// As [`announce`].
pub(crate) fn announce_status(pool: BorrowedFd<'_>, front: BorrowedFd<'_>) -> io::Result<()> {
    send_with(pool, &[0; 8], &[front])
}

/// Tells the front that the worker script has failed to boot: process id 0, and the largest number of links.
///
/// # Errors
/// As [`announce`].
pub(crate) fn announce_failure(pool: BorrowedFd<'_>) -> io::Result<()> {
    send_with(pool, &[0, 0, 0, 0, 255, 255, 255, 255], &[])
}

/// Tells the front that a worker was ended because there was no memory left.
///
/// # Errors
/// As [`announce`].
pub(crate) fn announce_out_of_memory(pool: BorrowedFd<'_>) -> io::Result<()> {
    send_with(pool, &OUT_OF_MEMORY, &[])
}

/// Whether a message was not sent because the front has ended. One that has left messages of the master unread has reset the socket.
pub(crate) fn has_front_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn send_with(socket: BorrowedFd<'_>, message: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); SendAncillaryMessage::ScmRights(fds).size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(message)], &mut control, flags)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "the panic is the failure report")]
mod tests {
    use super::*;

    #[test]
    fn a_front_that_has_ended_is_told_from_one_that_is_behind() {
        for unread in [0, 1] {
            let (ours, front) = file_sockets().unwrap();
            (0..unread).for_each(|_| announce_failure(ours.as_fd()).unwrap());
            drop(front);
            // The first error is that of the reset, if there is one.
            for _ in 0..2 {
                let error = announce_failure(ours.as_fd()).unwrap_err();
                assert!(has_front_ended(&error), "{error}");
            }
        }
        let (ours, _front) = file_sockets().unwrap();
        let full = (0..10_000).find_map(|_| announce_failure(ours.as_fd()).err()).unwrap();
        assert!(!has_front_ended(&full), "{full}");
    }
}
