//! Links that a process opens itself: the application receives requests over FastCGI from any
//! number of fronts, and moves bodies that it does not want to copy to a link (`docs/handover.md`
//! §8).
//!
//! `begin_elsewhere()` makes the request current, `claim()` opens its response, `end_elsewhere()`
//! ends both. `answer_with()` is `claim()`, the body, and the end of the response in one message.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
    socketpair,
};
use sendoff_fastcgi::channel::{Announcement, REGISTERED, Registration};
use sendoff_fastcgi::handover::{FileId, MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::Kind;
use sendoff_link::worker::{End, Request, Response};

use super::files::queue_range;
use super::{Channel, Worker};
use crate::Gone;
use crate::files::Held;
use crate::numbers::out_of_the_way;
use crate::output::send_with;

/// Time for the front to answer a registration. It sent a request just before, so it is alive.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(1);

/// A part of a body whose files are held.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeldPart<'p> {
    /// Bytes.
    Bytes(&'p [u8]),
    /// A range of a held file.
    File {
        /// The file.
        file: FileId,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        len: u64,
    },
}

impl Worker {
    /// Opens links to the front that made this announcement.
    ///
    /// # Errors
    /// The front cannot be reached from here, or does not answer in time. Also errors of
    /// [`Self::new`].
    pub fn register(announcement: &Announcement) -> io::Result<Self> {
        let links = usize::from(announcement.links);
        if links >= MAX_FDS_PER_MESSAGE {
            return Err(Errno::INVAL.into());
        }
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(announcement.name.as_bytes())?)?;
        let (mut ours, mut theirs) = (Vec::with_capacity(links), Vec::with_capacity(links + 1));
        for _ in 0..links {
            let (our, their) = pair(SocketType::STREAM)?;
            ours.push(our);
            theirs.push(their);
        }
        let (guard, their_guard) = pair(SocketType::SEQPACKET)?;
        theirs.push(their_guard);
        let registration = Registration {
            token: announcement.token,
            pid: std::process::id(),
            links: announcement.links.into(),
        };
        let fds: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        send_with(socket.as_fd(), &[IoSlice::new(&registration.encode())], &fds)?;
        drop(theirs);
        await_answer(socket.as_fd())?;
        let mut worker = Self::new(ours, Some(guard))?;
        let (token, unsaid) = (announcement.token, Vec::new());
        worker.channel = Some(Channel { token, claim: None, last_id: 0, unsaid });
        Ok(worker)
    }

    /// True if this worker's front made the announcement.
    #[must_use]
    pub fn is_of(&self, announcement: &Announcement) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.token == announcement.token)
    }

    /// True if the front has gone, so that the worker is useless.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        if self.shared.is_forked() {
            return true;
        }
        let state = self.shared.lock();
        state.lost || state.unguarded
    }

    /// Begins a request that has arrived over FastCGI, and whose body may be sent here. Files can
    /// be held at once; output is accepted after [`Self::claim`]. `accept`: the value of the
    /// request's parameter `SENDOFF_ACCEPT`. `false`: this worker has no links to that front.
    pub fn begin_elsewhere(&mut self, announcement: &Announcement, accept: &[u8]) -> bool {
        if !self.is_of(announcement) || self.is_lost() {
            return false;
        }
        self.end_elsewhere();
        let (Some(channel), link) = (&mut self.channel, usize::from(announcement.link)) else {
            return false;
        };
        if link >= self.shared.links.len() {
            return false;
        }
        // A late ABORT_REQUEST must not apply to this request, so each request has a new id. Id 0
        // is for management records.
        channel.last_id = channel.last_id.checked_add(1).unwrap_or(1);
        channel.claim = Some(announcement.claim);
        channel.unsaid.clear();
        self.requests.begin_elsewhere(link, channel.last_id, accept);
        self.response = Response::Elsewhere;
        self.shared.lock().link = link;
        true
    }

    /// Moves the response to this worker. The front has been told when this returns.
    ///
    /// # Errors
    /// The front has not been told: output must stay on the FastCGI connection.
    pub fn claim(&mut self) -> Result<(), Gone> {
        let channel = self.channel.as_mut().ok_or(Gone)?;
        let (claim, unsaid) =
            (channel.claim.take().ok_or(Gone)?, std::mem::take(&mut channel.unsaid));
        if self.is_lost() {
            return Err(Gone);
        }
        let id = self.requests.running().map(Request::id).ok_or(Gone)?;
        self.response.claim();
        let mut state = self.shared.lock();
        state.queue.record(id, Record::Claim(claim));
        unsaid.iter().for_each(|text| state.queue.stream(Kind::EXPLAIN, id, text));
        drop(state);
        let sent = self.flush();
        if sent.is_err() {
            self.response.abandon();
        }
        sent
    }

    /// Claims the response and sends the whole body, in one message. `false`: the lease of a file
    /// has broken, or the front has gone; the body must be sent on the FastCGI connection.
    pub(crate) fn answer_with(&mut self, body: &[HeldPart<'_>]) -> bool {
        let Some(claim) = self.channel.as_mut().and_then(|channel| channel.claim.take()) else {
            return false;
        };
        self.response.claim();
        // Reads a late `ABORT_REQUEST` for the previous request.
        if self.is_lost() || self.look_for_abort().is_err() {
            self.response.abandon();
            return false;
        }
        let Some(request) = self.requests.running() else { return false };
        let mut state = self.shared.lock();
        let are_held = body.iter().all(|piece| match *piece {
            HeldPart::Bytes(_) => true,
            HeldPart::File { file, offset, len } => {
                state.files.use_file(file)
                    && state.files.get(file).is_some_and(|held: &Held| held.contains(offset, len))
            }
        });
        if !are_held {
            drop(state);
            self.response.abandon();
            return false;
        }
        state.queue.record(request.id(), Record::Claim(claim));
        for piece in body {
            match *piece {
                HeldPart::Bytes(bytes) => state.queue.stdout(request.id(), bytes),
                HeldPart::File { file, offset, len } => {
                    queue_range(&mut state, request.id(), file, offset, len);
                }
            }
        }
        let end =
            End { peer: self.requests.peer(), app_status: 0, detach: false, hands_over: false };
        self.response.finish(&mut state.queue, request, end);
        self.shared.flush(state).is_ok()
    }

    /// Ends the request, and its response if it was claimed.
    pub fn end_elsewhere(&mut self) {
        if self.channel.is_some() && !self.requests.is_idle() {
            self.finish(0, false);
            self.requests.end();
        }
    }
}

/// A pair of sockets. Our end gets a descriptor number that scripts do not use.
fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    Ok((out_of_the_way(ours), theirs))
}

fn await_answer(socket: BorrowedFd<'_>) -> io::Result<()> {
    let deadline = Instant::now() + REGISTER_TIMEOUT;
    loop {
        let mut answer = [0; 1];
        match recv(socket, &mut answer, RecvFlags::DONTWAIT) {
            Ok((1, _)) if answer == [REGISTERED] => return Ok(()),
            Ok(_) => return Err(Errno::CONNREFUSED.into()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT.into());
        }
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
