//! A response that the worker writes to the client's own socket (`docs/handover.md` §7): its framing, and what the front
//! is told of it. The caller writes.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Version};
use sendoff_fastcgi::channel::is_for_front;
use sendoff_fastcgi::direct::{Client, Rest, Sent};
use sendoff_http1::{CgiHead, Framing, HeadEncoder, MAX_CGI_HEAD};

use super::Error;

/// A body smaller than this goes over the link: the front has to be told in either case.
const DIRECT_MIN: usize = 16 * 1024;

/// Bytes that the socket has not taken and that the front keeps in memory, so that the worker is free. It would write more
/// to its disk, although a fast client may take them in a moment: for more the worker waits, up to `PATIENCE`.
pub const FRONT_TAKES: usize = 256 * 1024;

/// Time that one response may spend waiting for its client's socket.
const PATIENCE: Duration = Duration::from_millis(50);

/// Who has the client's socket. `F` is a descriptor.
///
/// ```text
///           CLIENT             large output                 all written, the socket is full,
///  Front ───────────▶ Offered ───────────────▶ Writing ─────── or a file comes: SENT ──────▶ Front
///    │                   │ other output           │
///    │                   └──▶ Front               │ the client has gone: SENT
///    └──── ABORT_REQUEST, from each state ────────┴─────────▶ Gone
/// ```
/// Every transition out of `Offered` and `Writing` closes the socket. Nothing is decided before the queue would be sent, so
/// a response below 32 KiB leaves as one message, with its length.
#[derive(Debug)]
pub enum Direct<F> {
    /// The front alone: the response goes over the link.
    Front,
    /// The worker may write to it.
    Offered(Offer<F>),
    /// The worker writes to it.
    Writing(Box<Writing<F>>),
    /// The client has gone.
    Gone,
}

impl<F> Direct<F> {
    /// Takes the state out; what is left says that the front has the socket.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Front)
    }

    /// Whether the response goes over the link.
    #[must_use]
    pub fn is_front(&self) -> bool {
        matches!(self, Self::Front)
    }

    /// Whether this worker has the socket.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self, Self::Offered(_) | Self::Writing(_))
    }
}

/// A client's socket to which nothing has been written.
#[derive(Debug)]
pub struct Offer<F> {
    socket: F,
    /// Content of the `CLIENT` record.
    client: Bytes,
}

impl<F> Offer<F> {
    /// From a `CLIENT` record and its descriptor.
    ///
    /// # Errors
    /// The content is malformed.
    pub(super) fn new(socket: F, client: Bytes) -> Result<Self, Error> {
        Client::decode(&client)?;
        Ok(Self { socket, client })
    }

    /// Begins the response that starts with `queued`, header block first, and `data`. Moves the header block and the body
    /// bytes out of `queued`. `None`, with `queued` unchanged: the body is too small, or the front must act on a field.
    #[must_use]
    pub fn begin(self, queued: &mut Vec<u8>, data: &[u8]) -> Option<Writing<F>> {
        let end = CgiHead::find_end(queued).filter(|&end| end <= MAX_CGI_HEAD)?;
        if queued.len() - end + data.len() < DIRECT_MIN {
            return None;
        }
        let head = CgiHead::parse(&Bytes::copy_from_slice(&queued[..end])).ok()?;
        if head.fields.iter().any(|(name, _)| needs_front(name)) {
            return None;
        }
        let client = Client::decode(&self.client).ok()?;
        let version = if client.http_10 { Version::HTTP_10 } else { Version::HTTP_11 };
        let framing = Framing::choose(&Method::GET, version, head.status, head.content_length);
        if framing == Framing::NoBody {
            return None;
        }
        let keep_alive = client.keep_alive && framing != Framing::Close;
        let mut out = BytesMut::with_capacity(512);
        let mut encoder = HeadEncoder::new(&mut out, head.status, head.reason.as_deref());
        // The front logs a field that cannot be sent.
        for (name, value) in head.with_common(client.fields()) {
            encoder.field(name, value).ok()?;
        }
        encoder.finish_framed(framing, head.content_length, version, keep_alive);
        let head_len = u32::try_from(out.len()).ok()?;
        queued.drain(..end);
        Some(Writing {
            socket: self.socket,
            framing,
            status: head.status.as_u16(),
            head_len,
            head: out.freeze(),
            wire: 0,
            surplus: false,
            patience: PATIENCE,
            held_back: false,
            queued: std::mem::take(queued),
        })
    }
}

/// Whether the front acts on a field or hides it.
fn needs_front(name: &[u8]) -> bool {
    is_for_front(name) || name.eq_ignore_ascii_case(b"x-zerocopy")
}

/// A response that has begun on the client's socket.
#[derive(Debug)]
pub struct Writing<F> {
    socket: F,
    framing: Framing,
    status: u16,
    head_len: u32,
    /// The head, until it is written.
    head: Bytes,
    /// Bytes written.
    wire: u64,
    /// The application has said more than it had announced.
    surplus: bool,
    /// Time left for waiting.
    pub patience: Duration,
    /// The kernel was told that more follows, and may hold back the last bytes it has.
    held_back: bool,
    /// Body bytes that were queued; the buffer is kept.
    pub queued: Vec<u8>,
}

/// The bytes of one write, and how many of them have left.
#[derive(Debug)]
pub struct Wire<'d> {
    /// The head and the chunk header.
    before: BytesMut,
    queued: Vec<u8>,
    /// Bytes of `queued` that belong to the body.
    queued_len: usize,
    /// Body bytes in the caller's memory.
    data: &'d [u8],
    /// The end of the chunk, and of the body.
    after: Vec<u8>,
    done: usize,
    is_last: bool,
    more_follows: bool,
}

/// What the client's socket has not taken.
#[derive(Debug)]
pub struct Unsent<'d> {
    /// What the front has to be told.
    pub sent: Sent,
    /// Bytes that it must send next.
    pub next: Vec<u8>,
    /// Bytes that it must send after them, in the caller's memory.
    pub data: &'d [u8],
}

impl<F> Writing<F> {
    /// The client's socket.
    #[must_use]
    pub fn socket(&self) -> &F {
        &self.socket
    }

    /// Whether a write without data would send anything.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.head.is_empty() || !self.queued.is_empty()
    }

    /// Whether the end of the connection ends the body, so that a regular end would look like a whole response.
    #[must_use]
    pub fn is_ended_by_close(&self) -> bool {
        self.framing == Framing::Close
    }

    /// Whether the kernel may hold back bytes; from now on it is told not to.
    pub fn take_held_back(&mut self) -> bool {
        std::mem::take(&mut self.held_back)
    }

    /// Frames `self.queued` and `data`, and with `is_last` the end of the body. Give the result to [`Self::wrote`].
    pub fn frame<'d>(&mut self, data: &'d [u8], is_last: bool) -> Wire<'d> {
        let queued = std::mem::take(&mut self.queued);
        let all = queued.len() + data.len();
        let taken = usize::try_from(self.framing.take(all as u64)).unwrap_or(all);
        self.surplus |= taken < all;
        let queued_len = taken.min(queued.len());
        let data = &data[..taken - queued_len];
        let (mut before, mut after) = (BytesMut::from(std::mem::take(&mut self.head)), Vec::new());
        if taken > 0 {
            before.extend(self.framing.before_piece(taken as u64));
            after.extend(self.framing.after_piece());
        }
        after.extend(self.framing.end().filter(|_| is_last));
        // The end of the body travels with its last bytes instead of waking the client once more. Without a flush the
        // kernel holds back a partial packet for 200 ms at most.
        let more_follows =
            !is_last && matches!(self.framing, Framing::Chunked | Framing::Length(1..));
        self.held_back = more_follows;
        let after = after.concat();
        Wire { before, queued, queued_len, data, after, done: 0, is_last, more_follows }
    }

    /// `wire` was written as far as the socket took it. `None`: all of it.
    pub fn wrote<'d>(&mut self, wire: Wire<'d>) -> Option<Unsent<'d>> {
        self.wire += wire.done as u64;
        let left = wire.left();
        if left == 0 {
            self.queued = wire.queued;
            self.queued.clear();
            return None;
        }
        let has_body = wire.queued_len + wire.data.len() > 0;
        let is_complete = wire.is_last && left <= wire.after.len();
        let is_open = left > wire.after.len() && has_body;
        let framed = if is_open { left - wire.after.len() } else { left };
        let sent = self.sent(framed as u64, is_open, is_complete);
        let [before, queued, later, after] = wire.rest();
        let mut next = [before, queued].concat();
        if !is_open {
            next.extend_from_slice(after);
        }
        Some(Unsent { sent, next, data: &wire.data[wire.data.len() - later.len()..] })
    }

    /// `is_open`: a chunk is under way behind the `framed` bytes; `is_complete`: they end the body.
    fn sent(&self, framed: u64, is_open: bool, is_complete: bool) -> Sent {
        let rest = match self.framing {
            Framing::Chunked if is_complete => Rest::Length(0),
            Framing::Chunked => Rest::Chunked { open: is_open },
            Framing::Length(left) => Rest::Length(left),
            Framing::Close | Framing::NoBody => Rest::Close,
        };
        let (wire, head, status) = (self.wire, self.head_len, self.status);
        Sent { wire, head, framed, rest, status, gone: false, surplus: self.surplus }
    }

    /// For the front: the whole response has been written.
    #[must_use]
    pub fn sent_whole(&self) -> Sent {
        self.sent(0, false, true)
    }

    /// For the front: it goes on where this worker stopped.
    #[must_use]
    pub fn sent_so_far(&self) -> Sent {
        self.sent(0, false, false)
    }

    /// For the front: the client has gone. `wire` is the write that failed.
    #[must_use]
    pub fn sent_until_gone(&mut self, wire: &Wire<'_>) -> Sent {
        self.wire += wire.done as u64;
        Sent { gone: true, ..self.sent_so_far() }
    }
}

impl<'d> Wire<'d> {
    /// Bytes that have not left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len()).sum::<usize>() - self.done
    }

    fn pieces(&self) -> [&[u8]; 4] {
        [&self.before, &self.queued[..self.queued_len], self.data, &self.after]
    }

    /// What the next write takes, in four pieces.
    #[must_use]
    pub fn rest(&self) -> [&[u8]; 4] {
        let mut done = self.done;
        self.pieces().map(|piece| {
            let (_, rest) = piece.split_at(done.min(piece.len()));
            done -= piece.len() - rest.len();
            rest
        })
    }

    /// `n` bytes of the rest have left.
    pub fn advance(&mut self, n: usize) {
        self.done += n;
    }

    /// Whether more of the response follows soon (`MSG_MORE`).
    #[must_use]
    pub fn more_follows(&self) -> bool {
        self.more_follows
    }
}
