//! Sends to the links. The application's thread and the helper thread write under one lock. Neither
//! waits while it holds the lock: when a link is full, the application's thread releases the lock
//! until there is room.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg};
use rustix::process::{Pid, getpid};
use sendoff_fastcgi::handover::{MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::{HEADER_LEN, Header, Kind, MAX_ALIGNED_CONTENT};
use sendoff_link::worker::Queue;

use sendoff_sys::fork;

use crate::Gone;
use crate::state::State;
use crate::wait::Wait;

/// Pause before descriptors are sent again after `ETOOMANYREFS`. The limit on open descriptors of
/// one process is also the limit on all descriptors in flight of its user, and the kernel does not
/// report when the front has received some.
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(1);

/// Maximum number of records from the caller's memory in one `sendmsg`: two vectors each, and one
/// for the queue; the kernel permits 1024 (`IOV_MAX`).
const RECORDS_PER_MESSAGE: usize = 500;

/// State that both threads use.
#[derive(Debug)]
pub(crate) struct SharedOutput {
    pub(crate) links: Vec<OwnedFd>,
    state: Mutex<State>,
    /// This end has shut down its reading half of the links.
    stopping: AtomicBool,
    /// For a connection: the wait for its next request.
    pub(crate) wait: Wait,
    /// `fork::generation()` of the process that the links belong to; `None` if a forked child may
    /// take over.
    generation: Option<u32>,
    /// The process that created this.
    maker: Pid,
}

type Locked<'a> = MutexGuard<'a, State>;

impl SharedOutput {
    pub(crate) fn new(links: Vec<OwnedFd>) -> Self {
        Self {
            links,
            state: Mutex::default(),
            stopping: AtomicBool::new(false),
            wait: Wait::default(),
            generation: Some(fork::generation()),
            maker: getpid(),
        }
    }

    /// For a connection without a helper thread, which a program may pass to a forked child.
    pub(crate) fn for_any_process(connection: OwnedFd) -> Self {
        Self { generation: None, ..Self::new(vec![connection]) }
    }

    /// A thread that panics while it holds the lock ends the process, so the guarded state is
    /// always consistent.
    pub(crate) fn lock(&self) -> Locked<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses further requests; requests that the front has already written are still read.
    /// Async-signal-safe. Has no effect in a child, which shares the sockets: a signal may reach a
    /// child before the C library's fork handlers run, so that `is_forked` does not know of the
    /// fork yet, and a child of `vfork(2)` even shares this memory.
    pub(crate) fn stop(&self) {
        let shuts_down = match self.generation {
            // The body of a request may still be arriving.
            None => self.wait.stop(),
            Some(_) => self.maker == getpid(),
        };
        if shuts_down {
            self.stopping.store(true, Ordering::Relaxed);
            for link in &self.links {
                // It fails only on a link whose other end is closed, which also ends `accept`.
                let _gone = rustix::net::shutdown(link, Shutdown::Read);
            }
        }
    }

    /// True in a child of the process that created the worker. A child must not lock: the helper
    /// thread does not exist in it, but may have held the lock at the fork.
    pub(crate) fn is_forked(&self) -> bool {
        self.generation.is_some_and(|generation| generation != fork::generation())
    }

    /// The lock if it is free, for the operations that are permitted in a forked child.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        self.state.try_lock().ok()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Sends the whole queue.
    pub(crate) fn flush<'a>(&'a self, mut state: Locked<'a>) -> Result<Locked<'a>, Gone> {
        state.queue.seal(false);
        while !state.queue.is_empty() {
            state = self.send(state, &[])?.0;
        }
        Ok(state)
    }

    /// Sends the queue, and `data` as `STDOUT` records straight from the caller's memory.
    pub(crate) fn flush_with<'a>(
        &'a self,
        mut state: Locked<'a>,
        request_id: u16,
        mut data: &[u8],
    ) -> Result<Locked<'a>, Gone> {
        state.queue.seal(!data.is_empty());
        while !data.is_empty() {
            while state.queue.batch().0.len() < state.queue.len() {
                state = self.send(state, &[])?.0;
            }
            let now = &data[..data.len().min(RECORDS_PER_MESSAGE * MAX_ALIGNED_CONTENT)];
            let heads = [MAX_ALIGNED_CONTENT, now.len() % MAX_ALIGNED_CONTENT].map(|len| {
                let len = u16::try_from(len).unwrap_or(u16::MAX);
                Header::new(Kind::STDOUT, request_id, len).encode()
            });
            let mut vectors = Vec::with_capacity(2 * now.len().div_ceil(MAX_ALIGNED_CONTENT));
            for piece in now.chunks(MAX_ALIGNED_CONTENT) {
                let head = &heads[usize::from(piece.len() < MAX_ALIGNED_CONTENT)];
                vectors.extend([IoSlice::new(head), IoSlice::new(piece)]);
            }
            let sent;
            (state, sent) = self.send(state, &vectors)?;
            data = finish_record(&mut state.queue, &heads, data, now.len(), sent);
        }
        self.flush(state)
    }

    /// One `sendmsg` of the queue's next batch and `more`. Returns the bytes of `more` that were
    /// taken. May release the lock and take it again; meanwhile the unsent part of the queue may
    /// change.
    fn send<'a>(
        &'a self,
        mut state: Locked<'a>,
        more: &[IoSlice<'_>],
    ) -> Result<(Locked<'a>, usize), Gone> {
        let link = self.links[state.link].as_fd();
        state.look_after_pause(&self.links);
        // The helper thread's backlog first: a steady stream of output would otherwise leave no
        // room for it.
        state.send_backlog(&self.links);
        let more = if state.queue.batch().0.len() == state.queue.len() { more } else { &[] };
        match send_now(&state, link, more) {
            Ok(n) => {
                let queued = state.queue.batch().0.len().min(n);
                if queued > 0 {
                    state.queue.advance(queued);
                }
                Ok((state, n - queued))
            }
            Err(error) => Ok((self.not_sent(state, error)?, 0)),
        }
    }

    /// Handles a failed `sendmsg`: waits for room on the link if that was the cause.
    fn not_sent<'a>(&'a self, mut state: Locked<'a>, error: Errno) -> Result<Locked<'a>, Gone> {
        let link = self.links[state.link].as_fd();
        match error {
            Errno::INTR => Ok(state),
            Errno::AGAIN => {
                drop(state);
                // An error or a hang-up ends the poll too; the next `sendmsg` reports it.
                match poll(&mut [PollFd::new(&link, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => Ok(self.lock()),
                    Err(_) => Err(Gone),
                }
            }
            Errno::TOOMANYREFS => {
                drop(state);
                std::thread::sleep(IN_FLIGHT_PAUSE);
                Ok(self.lock())
            }
            _ => {
                // Without the shutdown the front would wait for the rest of the response.
                let _gone = rustix::net::shutdown(link, Shutdown::Both);
                state.lost = true;
                state.discard_queue();
                Err(Gone)
            }
        }
    }

    /// Sends the queue, then a short record with a descriptor that belongs to no held file.
    pub(crate) fn send_with_descriptor<'a>(
        &'a self,
        mut state: Locked<'a>,
        record: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> Result<Locked<'a>, Gone> {
        let link = self.links[state.link].as_fd();
        // The front must learn which request the record belongs to (`TAKEN`).
        state.queue.seal(true);
        loop {
            state = self.flush(state)?;
            // The kernel takes a record of this length completely or not at all.
            match send_with(link, &[IoSlice::new(record)], &[descriptor]) {
                Ok(_) => return Ok(state),
                Err(error) => state = self.not_sent(state, error)?,
            }
        }
    }
}

/// Call it after `sent` bytes of the records with `now_len` bytes of `data` were sent. Returns the
/// part of `data` that must still be encoded. The rest of a partly sent record goes to the queue,
/// because nothing else may follow on the link.
fn finish_record<'d>(
    queue: &mut Queue,
    heads: &[[u8; HEADER_LEN]; 2],
    data: &'d [u8],
    now_len: usize,
    sent: usize,
) -> &'d [u8] {
    const RECORD: usize = HEADER_LEN + MAX_ALIGNED_CONTENT;
    let (whole, cut) = (sent / RECORD, sent % RECORD);
    let start = (whole * MAX_ALIGNED_CONTENT).min(now_len);
    if cut == 0 {
        return &data[start..];
    }
    let end = now_len.min(start + MAX_ALIGNED_CONTENT);
    let head = &heads[usize::from(end - start < MAX_ALIGNED_CONTENT)];
    let content = &data[start..end];
    if cut < HEADER_LEN + content.len() {
        queue.rest_of_record([
            &head[cut.min(HEADER_LEN)..],
            &content[cut.saturating_sub(HEADER_LEN)..],
        ]);
    }
    &data[end..]
}

fn send_now(
    state: &State,
    link: BorrowedFd<'_>,
    more: &[IoSlice<'_>],
) -> rustix::io::Result<usize> {
    let (bytes, riders) = state.queue.batch();
    let mut vectors;
    let queued = [IoSlice::new(bytes)];
    let vectors: &[IoSlice<'_>] = if more.is_empty() {
        &queued
    } else {
        vectors = Vec::with_capacity(1 + more.len());
        vectors.extend_from_slice(&queued);
        vectors.extend_from_slice(more);
        &vectors
    };
    let descriptor = |record| match record {
        Record::Open(file) => Some(state.files.get(file)?.fd()?.as_fd()),
        _ => Some(state.regions.get(state.link)?.fd().as_fd()),
    };
    let fds: Vec<BorrowedFd<'_>> = riders.filter_map(descriptor).collect();
    send_with(link, vectors, &fds)
}

/// One `sendmsg` with at most [`MAX_FDS_PER_MESSAGE`] descriptors.
pub(crate) fn send_with(
    link: BorrowedFd<'_>,
    vectors: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    if fds.is_empty() {
        return sendmsg(link, vectors, &mut SendAncillaryBuffer::default(), flags);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS_PER_MESSAGE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(fds));
    sendmsg(link, vectors, &mut control, flags)
}
