//! New workers: the PHP master sends their sockets over the pool socket.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::Pid;
use sendoff_pool_messages::OUT_OF_MEMORY;
use sendoff_upstream::packets::Packets;
use tokio::sync::mpsc::UnboundedSender;

use super::pool::WorkerId;

/// One event loop's link to a new worker.
#[derive(Debug)]
pub struct NewLink {
    /// The process that opened it.
    pub origin: LinkOrigin,
    /// Process id of the worker, for the log.
    pub pid: i32,
    /// The worker's number for the link.
    pub number: u8,
    /// The link itself.
    pub socket: OwnedFd,
    /// The front's end of the worker's guard socket, for this link.
    pub guard: OwnedFd,
}

/// Origin of the other end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkOrigin {
    /// A worker of a pool: it takes requests on the link.
    Pool {
        /// The number of the pool.
        pool: usize,
        /// The worker's number.
        worker: WorkerId,
    },
    /// A process of a FastCGI application has opened the link: it answers requests there that came
    /// over FastCGI.
    Channel,
}

/// Bytes of a message on the pool socket: worker's process id and number of links, both u32
/// big-endian.
const MESSAGE_LEN: usize = 8;

/// Message that comes with the socket on which workers ask for the state of the pool, and with the
/// counters of purges if the master keeps fragments: process id 0, no links.
const QUESTIONS: [u8; MESSAGE_LEN] = [0; MESSAGE_LEN];

/// Message that the worker script has failed to boot.
const CANNOT_START: [u8; MESSAGE_LEN] = [0, 0, 0, 0, 255, 255, 255, 255];

/// Hands each worker that arrives on the pool socket to the event loops, one link per event loop.
/// `pool`: the number of the pool. `questions` gets the sockets on which workers ask for the state
/// of the pool, one from each master, and `purges` its counters of purges. `cannot_start` is called when the worker script has failed to
/// boot, `out_of_memory` when the kernel has killed a process of the pool for want of memory.
/// Returns when the supervisor closes the other end.
///
/// # Errors
/// The pool socket cannot be read.
pub async fn receive_workers(
    pool: usize,
    pool_socket: OwnedFd,
    loops: &[UnboundedSender<NewLink>],
    mut questions: impl FnMut(OwnedFd),
    purges: impl Fn(Option<OwnedFd>),
    cannot_start: impl Fn(),
    out_of_memory: impl Fn(),
) -> io::Result<()> {
    let packets = Packets::new(pool_socket)?;
    let mut next = 0;
    loop {
        let Some((message, mut fds)) = packets.next(MESSAGE_LEN).await? else { return Ok(()) };
        if *message == QUESTIONS {
            fds.pop_front().into_iter().for_each(&mut questions);
            purges(fds.pop_front());
            continue;
        }
        if *message == CANNOT_START {
            cannot_start();
            continue;
        }
        if *message == OUT_OF_MEMORY {
            out_of_memory();
            continue;
        }
        let origin = LinkOrigin::Pool { pool, worker: WorkerId(next) };
        if register(&message, fds, origin, loops).is_none() {
            tracing::error!("a worker that does not fit this front was refused");
        }
        next += 1;
    }
}

fn register(
    message: &[u8],
    mut fds: VecDeque<OwnedFd>,
    origin: LinkOrigin,
    loops: &[UnboundedSender<NewLink>],
) -> Option<()> {
    let (pid, links) = message.split_first_chunk::<4>()?;
    let pid = i32::try_from(u32::from_be_bytes(*pid)).ok()?;
    let links = u32::from_be_bytes(links.try_into().ok()?) as usize;
    Pid::from_raw(pid)?;
    if links != loops.len() || fds.len() != links + 1 {
        return None;
    }
    let guard = fds.pop_back()?;
    for (i, (event_loop, socket)) in loops.iter().zip(fds).enumerate() {
        let guard = guard.try_clone().ok()?;
        let new = NewLink { origin, pid, number: u8::try_from(i).ok()?, socket, guard };
        // Sending fails only if the event loop has ended; then it needs no link.
        drop(event_loop.send(new));
    }
    Some(())
}
