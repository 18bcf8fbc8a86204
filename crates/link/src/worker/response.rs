//! The response to the current request: the transport of its bytes, and the records that begin and
//! end it.

use sendoff_fastcgi::handover::{Hints, Record, Sockets};
use sendoff_fastcgi::record::{EndRequest, Kind};

use super::{ClientWriter, Peer, Queue, Request};

/// Body pieces of at least this size, in bytes, are sent from the caller's memory instead of being
/// copied.
pub const COPY_LIMIT: usize = 16 * 1024;

/// A queue longer than this, in bytes, is sent.
pub const FLUSH_LIMIT: usize = 32 * 1024;

/// The same limit for output to the client's socket: a call costs some 5 µs there, since TCP sends
/// at once.
const CLIENT_FLUSH_LIMIT: usize = 128 * 1024;

/// The piece with which a body reaches this size, in bytes, and all later pieces are copied into
/// memory shared with the front. CPU time of front and worker for a PHP page, in µs over the link /
/// in shared memory: 16 KB no difference, 32 KB 101 / 97, 64 KB 95 / 77, 128 KB 136 / 119, 512 KB
/// 256 / 187, 1 MB 480 / 383 (one shared machine, quietest of ten rounds).
const LEND_FROM: u64 = 32 * 1024;

/// Limit on the bytes in chunks that have not been announced to the front. Beyond it they are
/// announced, so that the front sends while the application goes on; a response up to this size is
/// sent in one message. With a limit of 64 KiB a page of 128 KB costs 7 % more CPU.
const ANNOUNCE_LIMIT: usize = 128 * 1024;

/// The limit grows with the bytes announced so far, up to this size: every announcement may wake
/// the front.
const MAX_ANNOUNCE_LIMIT: usize = 512 * 1024;

/// Adjacent pieces of a file are joined up to this size, in bytes; then they are sent, so that the
/// front works while the script reads on. A response that ends earlier is announced with its
/// length, in one message.
pub const JOIN_LIMIT: u64 = 2 * 1024 * 1024;

/// ```text
///                claim()           finish(detach)             ready()
///  Elsewhere ────────────▶ Open ───────────────────▶ Detached ────────▶ Finished
///                           └──── finish() ────────────────────────────▶
/// ```
/// Output is accepted only while it is `OpenResponse`.
#[derive(Debug)]
pub enum Response {
    /// The head was sent over the connection of the request, and so is the body unless it is
    /// claimed for a link.
    Elsewhere,
    /// Output is accepted.
    Open(OpenResponse),
    /// `END_REQUEST` has been queued, `READY` must follow.
    Detached,
    /// `END_REQUEST` has been queued.
    Finished,
}

/// The end of a response.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The other end of the link.
    pub peer: Peer,
    /// The status in `END_REQUEST`.
    pub app_status: u32,
    /// The application goes on after the response.
    pub detach: bool,
    /// The application hands files over on links that it opens, and the front may be told so.
    pub hands_over: bool,
}

/// A response that accepts output.
#[derive(Debug)]
pub struct OpenResponse {
    head: HeadState,
    extent: Extent,
    /// Bytes in shared memory that have been announced to the front.
    announced: usize,
    wrote_stdout: bool,
    wrote_stderr: bool,
}

#[derive(Debug)]
enum HeadState {
    Awaited,
    /// The open file that the head will name has been sent.
    Named,
    Written {
        /// Body bytes so far.
        body: u64,
        /// Body bytes that belong to no file, since the last flush. An application that flushes
        /// writes small pieces, and a chunk of shared memory for each would cost more than the
        /// link.
        generated: u64,
    },
}

/// Progress of the response. Its length is announced only if the whole response is
/// [`Extent::Short`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    /// All of it is queued, and with `--delivery relay` nothing would have been sent yet.
    Short,
    /// All of it is queued or lies in chunks, but with `--delivery relay` part of it would have
    /// been sent: its length is not announced, in any delivery mode.
    Long,
    /// Something has been sent.
    Begun,
}

impl Response {
    /// Nothing has been written.
    #[must_use]
    pub fn new() -> Self {
        Self::Open(OpenResponse::new(HeadState::Awaited, Extent::Short))
    }

    /// The response, while it accepts output.
    #[must_use]
    #[inline]
    pub fn open(&self) -> Option<&OpenResponse> {
        match self {
            Self::Open(open) => Some(open),
            Self::Elsewhere | Self::Detached | Self::Finished => None,
        }
    }

    /// The response, while it accepts output.
    #[inline]
    pub fn open_mut(&mut self) -> Option<&mut OpenResponse> {
        match self {
            Self::Open(open) => Some(open),
            Self::Elsewhere | Self::Detached | Self::Finished => None,
        }
    }

    /// Moves the rest of the body to this link. The head was sent over another connection, so no
    /// length can be announced.
    pub fn claim(&mut self) {
        *self = Self::Open(OpenResponse::new(HeadState::Awaited, Extent::Begun));
    }

    /// Queues the end of the response. Has no effect unless the response is open.
    pub fn finish<F>(&mut self, queue: &mut Queue, request: &Request<F>, end: End) {
        let Self::Open(open) = self else { return };
        let (id, aborted) = (request.id(), request.is_aborted());
        if let Some(length) = open.length(request) {
            queue.first(id, Record::Length(length));
        }
        let detached = end.detach && request.accepts_framing();
        if detached {
            queue.record(id, Record::Detach);
        }
        if (open.wrote_stdout || end.peer.wants_every_stdout_ended()) && !aborted {
            queue.stream(Kind::STDOUT, id, &[]);
        }
        if open.wrote_stderr {
            queue.stream(Kind::STDERR, id, &[]);
        }
        let hints = Hints {
            region: true,
            direct: Sockets::All,
            channel: end.hands_over,
            tunnel: end.peer.brings_tunnels(),
        };
        let end = EndRequest { app_status: end.app_status, protocol_status: 0 };
        queue.raw(&hints.end_request(end, id));
        *self = if detached { Self::Detached } else { Self::Finished };
    }

    /// Ends the response without queueing anything, because the link is lost.
    pub fn abandon(&mut self) {
        if let Self::Open(_) = self {
            *self = Self::Finished;
        }
    }

    /// Queues `READY` if the response is detached; `false` if it is not.
    pub fn ready(&mut self, queue: &mut Queue, request_id: u16) -> bool {
        let owed = matches!(self, Self::Detached);
        if owed {
            queue.record(request_id, Record::Ready);
            *self = Self::Finished;
        }
        owed
    }
}

impl Default for Response {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenResponse {
    fn new(head: HeadState, extent: Extent) -> Self {
        Self { head, extent, announced: 0, wrote_stdout: false, wrote_stderr: false }
    }

    /// True if the header block has been written.
    #[must_use]
    #[inline]
    pub fn has_head(&self) -> bool {
        matches!(self.head, HeadState::Written { .. })
    }

    /// True if the file that the header block names may still be sent.
    #[must_use]
    pub fn takes_named(&self) -> bool {
        matches!(self.head, HeadState::Awaited)
    }

    /// True if anything has been sent.
    #[must_use]
    #[inline]
    pub fn has_begun(&self) -> bool {
        self.extent == Extent::Begun
    }

    /// True if part of the response would have been sent with `--delivery relay`, although nothing
    /// has been sent.
    #[must_use]
    #[inline]
    pub fn is_long(&self) -> bool {
        self.extent == Extent::Long
    }

    /// Notes that the open file that the header block will name is being sent. The length of the
    /// application's own body is irrelevant then.
    pub fn sent_named(&mut self) {
        self.head = HeadState::Named;
        self.begin();
    }

    /// Queues the record that moves the response to the connection that came along with the request.
    /// Only the end of the response may follow.
    pub fn tunnel(&mut self, queue: &mut Queue, request_id: u16) {
        queue.record(request_id, Record::Tunnel);
        self.begin();
    }

    /// Notes that part of the response is being sent.
    #[inline]
    pub fn begin(&mut self) {
        self.extent = Extent::Begun;
    }

    /// Notes that the header block has been written; body bytes follow.
    pub fn wrote_head(&mut self) {
        self.head = HeadState::Written { body: 0, generated: 0 };
    }

    /// Counts `len` body bytes that have been written.
    #[inline]
    pub fn wrote_body(&mut self, len: u64) {
        if let HeadState::Written { body, .. } = &mut self.head {
            *body += len;
        }
    }

    /// Notes that the `STDOUT` stream must be ended.
    #[inline]
    pub fn uses_stdout(&mut self) {
        self.wrote_stdout = true;
    }

    /// Notes that the `STDERR` stream must be ended.
    #[inline]
    pub fn uses_stderr(&mut self) {
        self.wrote_stderr = true;
    }

    /// Notes that the application has flushed.
    #[inline]
    pub fn flushed(&mut self) {
        if let HeadState::Written { generated, .. } = &mut self.head {
            *generated = 0;
        }
    }

    /// Counts `len` bytes that the application has generated. `true`: copy them into shared memory.
    #[inline]
    pub fn generate<F>(&mut self, len: usize, request: &Request<F>) -> bool {
        let len = len as u64;
        let (in_body, so_far) = match &mut self.head {
            HeadState::Written { generated, .. } => {
                *generated += len;
                (true, *generated)
            }
            HeadState::Awaited | HeadState::Named => (false, len),
        };
        let is_long = so_far >= LEND_FROM;
        if is_long {
            self.extent = self.extent.max(Extent::Long);
        }
        // Output for the client's socket waits in the queue. The header block must not lie in
        // shared memory, because the front parses it and this process could change it meanwhile.
        is_long && in_body && request.accepts_regions() && request.client.is_front()
    }

    /// Number of bytes that may still be copied into chunks before an announcement; `lent`: number
    /// of unannounced bytes.
    #[must_use]
    #[inline]
    pub fn room_in_chunks(&self, lent: usize) -> usize {
        self.announced.clamp(ANNOUNCE_LIMIT, MAX_ANNOUNCE_LIMIT).saturating_sub(lent)
    }

    /// Counts `lent` bytes in chunks that are announced before the response has ended.
    #[inline]
    pub fn announce(&mut self, lent: usize) {
        self.announced += lent;
    }

    /// Notes that `queued` bytes wait to be sent. True if they must be sent now.
    #[inline]
    pub fn note_queued<F>(&mut self, queued: usize, client: &ClientWriter<F>) -> bool {
        if queued > FLUSH_LIMIT {
            self.extent = self.extent.max(Extent::Long);
        }
        queued > if client.is_front() { FLUSH_LIMIT } else { CLIENT_FLUSH_LIMIT }
    }

    /// The length of the whole body, if it is announced. `None` for `HEAD`, whose response has no
    /// body.
    fn length<F>(&self, request: &Request<F>) -> Option<u64> {
        match self.head {
            HeadState::Written { body, .. }
                if self.extent == Extent::Short
                    && request.accepts_framing()
                    && !request.is_head()
                    && !request.is_aborted() =>
            {
                Some(body)
            }
            _ => None,
        }
    }
}
