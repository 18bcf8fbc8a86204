//! A response that the worker writes to the client's own socket (`docs/handover.md` §7): its
//! framing, and the records that tell the front about it. The caller does the writing.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, Version};
use sendoff_fastcgi::channel::is_for_front;
use sendoff_fastcgi::direct::{Client, MAX_RECORDS, Rest, Sent};
use sendoff_http1::{CgiHead, Framing, HeadEncoder, MAX_CGI_HEAD};

use super::Error;

/// A smaller body, in bytes, goes over the link, since the front needs a message about the response
/// in both cases.
const DIRECT_MIN: usize = 16 * 1024;

/// Maximum number of unsent bytes that the front takes over in memory, so that the worker is free.
/// The front would write more to its disk, although a fast client may accept them in a moment; so
/// the worker waits, up to `PATIENCE`.
pub const FRONT_TAKES: usize = 256 * 1024;

/// Maximum number of bytes in a TLS record.
const RECORD: u64 = 1 << 14;

/// Total time that the worker may wait for the client's socket during one response.
const PATIENCE: Duration = Duration::from_millis(50);

/// Which process writes to the client's socket. `F` is the type of descriptors.
///
/// ```text
///           CLIENT             large output                 all written, the socket is full,
///  Front ───────────▶ Offered ───────────────▶ Writing ─────── or a file comes: SENT ──────▶ Front
///    │                   │ other output           │
///    │                   └──▶ Front               │ the client has gone: SENT
///    └──── ABORT_REQUEST, from each state ────────┴─────────▶ Gone
/// ```
/// Every transition out of `Offered` and `Writing` closes the socket. The decision is made when the
/// queue would be sent, so a response below 32 KiB leaves as one message, with its length.
#[derive(Debug)]
pub enum ClientWriter<F> {
    /// The front alone writes to it: the response goes over the link.
    Front,
    /// The worker has the socket, and has not written to it.
    Offered(Offer<F>),
    /// The worker writes to it.
    Writing(Box<Writing<F>>),
    /// The client has closed the connection.
    Gone,
}

impl<F> ClientWriter<F> {
    /// Takes the state and leaves [`ClientWriter::Front`].
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::Front)
    }

    /// True if the response goes over the link.
    #[must_use]
    pub fn is_front(&self) -> bool {
        matches!(self, Self::Front)
    }

    /// True if this worker has the socket.
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

    /// Begins the response that consists of `queued`, header block first, and `data`. Moves the
    /// header block and the body bytes out of `queued`. `None`, with `queued` unchanged: the body
    /// is too small, or the front must act on a header field.
    #[must_use]
    pub fn begin(self, queued: &mut Vec<u8>, data: &[u8]) -> Option<Writing<F>> {
        let end = CgiHead::find_end(queued).filter(|&end| end <= MAX_CGI_HEAD)?;
        if queued.len() - end + data.len() < DIRECT_MIN {
            return None;
        }
        let head = CgiHead::parse(&Bytes::copy_from_slice(&queued[..end])).ok()?;
        let is_interim = head.status.is_informational();
        // The front logs dropped fields.
        let is_bad = head.is_incomplete();
        if is_interim || is_bad || head.fields.iter().any(|field| needs_front(field.name())) {
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
        // If a field cannot be sent, the response goes to the front, which logs it.
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
            records: client.encrypted.then_some(0),
            patience: PATIENCE,
            held_back: false,
            queued: std::mem::take(queued),
        })
    }
}

/// True if the front acts on the field or hides it.
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
    /// The head; empty once it is written.
    head: Bytes,
    /// Bytes written.
    wire: u64,
    /// True if the application has written more bytes than it had announced.
    surplus: bool,
    /// If the kernel encrypts: an upper bound on the number of TLS records of the response.
    records: Option<u64>,
    /// The rest of `PATIENCE`.
    pub patience: Duration,
    /// The last write had `MSG_MORE`, so the kernel may hold back its last bytes.
    held_back: bool,
    /// Queued body bytes; the buffer is reused.
    pub queued: Vec<u8>,
}

/// The bytes of one write, and the number of them that the socket has taken.
#[derive(Debug)]
pub struct Wire<'d> {
    /// The head and the chunk header.
    before: BytesMut,
    queued: Vec<u8>,
    /// Bytes of `queued` that belong to the body.
    queued_len: usize,
    /// Body bytes in the caller's memory.
    data: &'d [u8],
    /// The end of the chunk and, with the last bytes, of the body.
    after: Vec<u8>,
    done: usize,
    /// Number of system calls that have written something.
    sends: u64,
    is_last: bool,
    more_follows: bool,
}

/// The bytes that the client's socket has not taken.
#[derive(Debug)]
pub struct Unsent<'d> {
    /// The content of the record for the front.
    pub sent: Sent,
    /// Bytes that the front must send next.
    pub next: Vec<u8>,
    /// Bytes that the front must send after `next`, in the caller's memory.
    pub data: &'d [u8],
}

impl<F> Writing<F> {
    /// The client's socket.
    #[must_use]
    pub fn socket(&self) -> &F {
        &self.socket
    }

    /// True if a write without data would send anything.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.head.is_empty() || !self.queued.is_empty()
    }

    /// True if the kernel encrypts the output.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.records.is_some()
    }

    /// True if the worker has used up its TLS records ([`MAX_RECORDS`]): the socket must be given
    /// back.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.records.is_some_and(|records| records >= MAX_RECORDS)
    }

    /// True if the body ends with the connection, so that after an orderly close the response would
    /// look complete.
    #[must_use]
    pub fn is_ended_by_close(&self) -> bool {
        self.framing == Framing::Close
    }

    /// True if the kernel may hold back bytes. Clears the flag: the caller makes the kernel send
    /// them.
    pub fn take_held_back(&mut self) -> bool {
        std::mem::take(&mut self.held_back)
    }

    /// Frames `self.queued` and `data`, and with `is_last` the end of the body. Give the result to
    /// [`Self::wrote`].
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
        // With `MSG_MORE` the end of the body is sent in one packet with its last bytes, and does
        // not wake the client again. Without a flush the kernel holds back a partial packet for at
        // most 200 ms, but a partial TLS record forever.
        let more_follows = self.records.is_none()
            && !is_last
            && matches!(self.framing, Framing::Chunked | Framing::Length(1..));
        self.held_back = more_follows;
        let after = after.concat();
        Wire { before, queued, queued_len, data, after, done: 0, sends: 0, is_last, more_follows }
    }

    /// Takes back the result of a write; `wire` knows the bytes that the socket took. `None`: it
    /// took all of them.
    pub fn wrote<'d>(&mut self, wire: Wire<'d>) -> Option<Unsent<'d>> {
        self.wire += wire.done as u64;
        if let Some(records) = &mut self.records {
            *records += wire.done as u64 / RECORD + wire.sends;
        }
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

    /// `is_open`: a chunk has begun after the `framed` bytes; `is_complete`: they end the body.
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

    /// Record for the front: the worker has written the whole response.
    #[must_use]
    pub fn sent_whole(&self) -> Sent {
        self.sent(0, false, true)
    }

    /// Record for the front: the front continues where this worker stopped.
    #[must_use]
    pub fn sent_so_far(&self) -> Sent {
        self.sent(0, false, false)
    }

    /// Record for the front: the client has closed the connection. `wire` is the write that failed.
    #[must_use]
    pub fn sent_until_gone(&mut self, wire: &Wire<'_>) -> Sent {
        self.wire += wire.done as u64;
        Sent { gone: true, ..self.sent_so_far() }
    }
}

impl<'d> Wire<'d> {
    /// Number of bytes that the socket has not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len()).sum::<usize>() - self.done
    }

    fn pieces(&self) -> [&[u8]; 4] {
        [&self.before, &self.queued[..self.queued_len], self.data, &self.after]
    }

    /// The bytes for the next write, in four pieces.
    #[must_use]
    pub fn rest(&self) -> [&[u8]; 4] {
        let mut done = self.done;
        self.pieces().map(|piece| {
            let (_, rest) = piece.split_at(done.min(piece.len()));
            done -= piece.len() - rest.len();
            rest
        })
    }

    /// Records that the socket has taken `n` bytes of [`Self::rest`].
    pub fn advance(&mut self, n: usize) {
        self.done += n;
        self.sends += 1;
    }

    /// True if more of the response follows soon, so that the write may set `MSG_MORE`.
    #[must_use]
    pub fn more_follows(&self) -> bool {
        self.more_follows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response of 100,000 bytes that has begun on a client's socket.
    fn begun(encrypted: bool) -> Writing<()> {
        let mut client = Vec::new();
        Client { http_10: false, keep_alive: true, encrypted, fields: b"" }.encode(1, &mut client);
        let offer = Offer::new((), Bytes::from(client).slice(8..)).unwrap();
        let mut head = b"Content-Length: 100000\r\n\r\n".to_vec();
        offer.begin(&mut head, &[b'x'; DIRECT_MIN]).unwrap()
    }

    /// The socket takes `data` in pieces of `at_once` bytes.
    fn write(writing: &mut Writing<()>, data: &[u8], at_once: usize) -> Option<u64> {
        let mut wire = writing.frame(data, false);
        while wire.left() > 0 {
            wire.advance(at_once.min(wire.left()));
        }
        assert!(writing.wrote(wire).is_none());
        writing.records
    }

    #[test]
    fn no_record_is_left_open() {
        for encrypted in [false, true] {
            let mut writing = begun(encrypted);
            assert_eq!(writing.frame(b"more follows", false).more_follows(), !encrypted);
            assert_eq!(writing.take_held_back(), !encrypted);
        }
    }

    #[test]
    fn records_are_counted_up_to_their_limit() {
        let mut writing = begun(true);
        let head = u64::from(writing.head_len);
        // Each write ends a record, even a small one.
        assert_eq!(write(&mut writing, b"one", usize::MAX), Some(1 + (head + 3) / RECORD));
        assert_eq!(write(&mut writing, &[b'x'; 40_000], usize::MAX), Some(4));
        assert_eq!(write(&mut writing, b"byte", 1), Some(8));
        writing.records = Some(MAX_RECORDS - 1);
        assert!(!writing.is_used_up());
        write(&mut writing, b"x", 1);
        assert!(writing.is_used_up());
        let mut clear = begun(false);
        assert_eq!(write(&mut clear, b"one", 1), None);
        assert!(!clear.is_used_up());
    }
}
