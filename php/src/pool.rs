//! The sockets of a worker, and their handover to the front.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketFlags, SocketType, sendmsg, shutdown, socketpair,
};
use rustix::process::Pid;
use sendoff_pool_messages::OUT_OF_MEMORY;
use sendoff_sys::process::close_without_lingering;

use crate::log::log;

/// One side's ends of a worker's sockets: the worker's, or the front's.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) links: Vec<OwnedFd>,
    pub(crate) guard: OwnedFd,
}

impl Ends {
    /// Closes the front's ends, in which the worker may have left what takes long to close.
    pub(crate) fn close(self) {
        if let Err(error) = close_without_lingering(self.links.into_iter().chain([self.guard])) {
            log(format_args!("sockets of a worker are closed without a thread: {error}"));
        }
    }
}

/// Both sides of a worker's sockets, the front's first. One message can carry all descriptors,
/// since the number of event loops is limited ([`sendoff_config::MAX_THREADS`]).
pub(crate) fn sockets(links: u8) -> io::Result<(Ends, Ends)> {
    let pair = |kind| socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let pairs: Vec<_> = (0..links).map(|_| pair(SocketType::STREAM)).collect::<Result<_, _>>()?;
    let (front_links, worker_links) = pairs.into_iter().unzip();
    let (front_guard, worker_guard) = pair(SocketType::SEQPACKET)?;
    let front = Ends { links: front_links, guard: front_guard };
    Ok((front, Ends { links: worker_links, guard: worker_guard }))
}

/// A socket pair for sending files to a worker: the master's end, and the worker's, which cannot
/// send anything: the master would wait when it closes its end.
pub(crate) fn file_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    shutdown(&ours, Shutdown::Read)?;
    Ok((ours, theirs))
}

/// Sends a file to a worker.
pub(crate) fn send_file(socket: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    send_with(socket, b"f", &[file])
}

/// The next message of the front; `None` if there is none at the moment.
pub(crate) fn receive<'m>(pool: BorrowedFd<'_>, message: &'m mut [u8]) -> Option<&'m [u8]> {
    let (received, _) = rustix::net::recv(pool, &mut *message, RecvFlags::DONTWAIT).ok()?;
    // An empty read: the front has closed the socket.
    Some(&message[..received]).filter(|message| !message.is_empty())
}

/// Announces a new worker to the front, with the front's ends of its sockets.
///
/// # Errors
/// The front has ended, or is so far behind that the socket is full.
pub(crate) fn announce(pool: BorrowedFd<'_>, worker: Pid, ends: Ends) -> io::Result<()> {
    let mut message = [0; 8];
    message[..4].copy_from_slice(&worker.as_raw_nonzero().get().to_be_bytes());
    let links = u32::try_from(ends.links.len()).map_err(io::Error::other)?;
    message[4..].copy_from_slice(&links.to_be_bytes());
    let fds: Vec<_> = ends.links.iter().chain([&ends.guard]).map(AsFd::as_fd).collect();
    let sent = send_with(pool, &message, &fds);
    ends.close();
    sent
}

/// A socket pair on which workers ask the front for the state of their pool: the front's end, and
/// the end that all workers share.
pub(crate) fn status_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends the front its end of that socket pair, and the pool's counters of purges if it keeps
/// fragments. Such a message has the process id 0, and no links.
///
/// # Errors
/// Same as [`announce`].
pub(crate) fn announce_pool(
    pool: BorrowedFd<'_>,
    status: BorrowedFd<'_>,
    purges: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let fds: Vec<_> = [status].into_iter().chain(purges).collect();
    send_with(pool, &[0; 8], &fds)
}

/// Reports to the front that the worker script has failed to boot: process id 0, and the largest
/// number of links.
///
/// # Errors
/// Same as [`announce`].
pub(crate) fn announce_failure(pool: BorrowedFd<'_>) -> io::Result<()> {
    send_with(pool, &[0, 0, 0, 0, 255, 255, 255, 255], &[])
}

/// Reports to the front that the kernel has killed a worker for lack of memory.
///
/// # Errors
/// Same as [`announce`].
pub(crate) fn announce_out_of_memory(pool: BorrowedFd<'_>) -> io::Result<()> {
    send_with(pool, &OUT_OF_MEMORY, &[])
}

/// True if a message was not sent because the front has ended. A front that ends without having
/// read all messages resets the socket.
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
            // After a reset the first error is ECONNRESET, the next one EPIPE.
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
