//! Writing a response to the client's own socket, which the front sent along with the request (`docs/handover.md` §7).
//!
//! ```text
//!            CLIENT             large output                 all written, or the socket is full,
//!  Unasked ─────────▶ Offered ───────────────▶ Writing ──────── or a file comes ────────▶ SENT: the front goes on
//!                        │ anything else to be sent
//!                        └────────────────────▶ the socket is closed unused
//! ```
//! Nothing of this is decided before the queue would be sent anyway, or at the end: a response of less than 32 KiB leaves as
//! ever, with its length.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{Method, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use sendoff_fastcgi::channel::CHANNEL_FIELD;
use sendoff_fastcgi::direct::{Client, Rest, Sent};
use sendoff_fastcgi::handover::Record;
use sendoff_http1::{CgiHead, Framing, HeadEncoder, MAX_CGI_HEAD};

use crate::output::Shared;
use crate::worker::Response;
use crate::{Bad, Gone, Worker};

/// With less body than this at hand the link is as good: the front has to be told in either case.
const DIRECT_MIN: usize = 16 * 1024;

/// So much of what the socket does not take the front keeps in memory, and the worker is free. Of more it would write to
/// disk what a fast client takes in a moment, so for that the worker waits as long as it waits for the front to take it.
const FRONT_TAKES: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_millis(50);

/// Fields for the front: it does what they say, or hides them. So are all that begin with `X-Accel-`.
const FOR_THE_FRONT: [&[u8]; 4] = [b"x-sendfile", b"x-sendfile2", b"x-zerocopy", CHANNEL_FIELD];

/// Who may write to the client.
#[derive(Debug, Default)]
pub(crate) enum Direct {
    /// The front.
    #[default]
    Unasked,
    /// The worker, if it comes to that.
    Offered(Offer),
    /// The worker, which has.
    Writing(Box<Writing>),
}

/// A client's socket, nothing written to it.
#[derive(Debug)]
pub(crate) struct Offer {
    socket: OwnedFd,
    /// Content of the `CLIENT` record.
    client: Bytes,
}

/// A response that has begun on the client's socket.
#[derive(Debug)]
pub(crate) struct Writing {
    socket: OwnedFd,
    framing: Framing,
    status: u16,
    head_len: u32,
    /// The head, until it is written.
    head: Bytes,
    /// Bytes written.
    wire: u64,
    surplus: bool,
    patience: Duration,
    /// The kernel was told that more follows, and may hold back the end of what it has.
    held_back: bool,
    /// Body bytes that were queued; the buffer is kept.
    queued: Vec<u8>,
}

/// What one call writes, and how far it got.
struct Wire<'a> {
    /// Head and chunk header; queued bytes; the caller's memory; the end of the chunk and of the body.
    pieces: [&'a [u8]; 4],
    done: usize,
}

/// What the client's socket has not taken.
struct Left<'d> {
    /// What the front has to be told.
    sent: Sent,
    /// The bytes that it must send next.
    next: Vec<u8>,
    /// Those that it must send after them, in the caller's memory.
    data: &'d [u8],
}

impl Offer {
    pub(crate) fn new(socket: OwnedFd, client: Bytes) -> Result<Self, Bad> {
        Client::decode(&client)?;
        Ok(Self { socket, client })
    }

    /// Begins the response that `queued`, head first, and `data` are the beginning of; the head is taken out of `queued`.
    /// `None` if it is too small or says something that is for the front to act on.
    fn begin(self, queued: &mut Vec<u8>, data: &[u8]) -> Option<Writing> {
        let end = CgiHead::find_end(queued).filter(|&end| end <= MAX_CGI_HEAD)?;
        if queued.len() - end + data.len() < DIRECT_MIN {
            return None;
        }
        let head = CgiHead::parse(&Bytes::copy_from_slice(&queued[..end])).ok()?;
        let is_for_front = |name: &[u8]| {
            FOR_THE_FRONT.iter().any(|field| name.eq_ignore_ascii_case(field))
                || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
        };
        if head.fields.iter().any(|(name, _)| is_for_front(name)) {
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
        queued.drain(..end);
        Some(Writing {
            socket: self.socket,
            framing,
            status: head.status.as_u16(),
            head_len: u32::try_from(out.len()).ok()?,
            head: out.freeze(),
            wire: 0,
            surplus: false,
            patience: PATIENCE,
            held_back: false,
            queued: Vec::new(),
        })
    }
}

impl Writing {
    /// Writes `self.queued` and `data`, and with `last` the end of the body. `None`: the socket has taken all of it.
    fn write<'d>(
        &mut self,
        shared: &Shared,
        data: &'d [u8],
        last: bool,
    ) -> rustix::io::Result<Option<Left<'d>>> {
        let buffer = std::mem::take(&mut self.queued);
        let all = buffer.len() + data.len();
        let taken = usize::try_from(self.framing.take(all as u64)).unwrap_or(all);
        self.surplus |= taken < all;
        let queued = &buffer[..taken.min(buffer.len())];
        let data = &data[..taken - queued.len()];
        let (mut before, mut after) = (BytesMut::from(std::mem::take(&mut self.head)), Vec::new());
        if taken > 0 {
            before.extend(self.framing.before_piece(taken as u64));
            after.extend(self.framing.after_piece());
        }
        after.extend(self.framing.end().filter(|_| last));
        let after = after.concat();
        let mut wire = Wire { pieces: [&before, queued, data, &after], done: 0 };
        // The end of the body travels with the last of its bytes instead of waking the client once more. Without a flush the
        // kernel holds back what fills no packet for 200 ms at most.
        self.held_back = !last && matches!(self.framing, Framing::Chunked | Framing::Length(1..));
        let more = if self.held_back { SendFlags::MORE } else { SendFlags::empty() };
        let result = wire.write(shared, &self.socket, more, &mut self.patience);
        self.wire += wire.done as u64;
        result?;
        let left = wire.left();
        if left == 0 {
            self.queued = buffer;
            self.queued.clear();
            return Ok(None);
        }
        let complete = last && left <= after.len();
        let open = left > after.len() && taken > 0;
        let framed = if open { left - after.len() } else { left };
        let sent = self.sent(framed as u64, open, complete);
        let [before, queued, later, after] = wire.rest();
        let mut next = [before, queued].concat();
        if !open {
            next.extend_from_slice(after);
        }
        Ok(Some(Left { sent, next, data: &data[data.len() - later.len()..] }))
    }

    /// Lets the kernel hold nothing back (tcp(7): setting `TCP_NODELAY` flushes).
    fn push(&mut self) {
        if std::mem::take(&mut self.held_back) {
            // On a connection that is gone it fails, as the next write will.
            let _gone = set_tcp_nodelay(&self.socket, true);
        }
    }

    /// `open`: a chunk is under way behind the `framed` bytes; `complete`: they end the body.
    fn sent(&self, framed: u64, open: bool, complete: bool) -> Sent {
        let rest = match self.framing {
            Framing::Chunked if complete => Rest::Length(0),
            Framing::Chunked => Rest::Chunked { open },
            Framing::Length(left) => Rest::Length(left),
            Framing::Close | Framing::NoBody => Rest::Close,
        };
        let (wire, head, status) = (self.wire, self.head_len, self.status);
        Sent { wire, head, framed, rest, status, gone: false, surplus: self.surplus }
    }
}

impl<'a> Wire<'a> {
    fn left(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum::<usize>() - self.done
    }

    fn rest(&self) -> [&'a [u8]; 4] {
        let mut done = self.done;
        self.pieces.map(|piece| {
            let (_, rest) = piece.split_at(done.min(piece.len()));
            done -= piece.len() - rest.len();
            rest
        })
    }

    /// Writes until the socket is full; waits only for what would be too much for the front.
    fn write(
        &mut self,
        shared: &Shared,
        socket: &OwnedFd,
        more: SendFlags,
        patience: &mut Duration,
    ) -> rustix::io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more;
        while self.left() > 0 {
            shared.lock().look_after_pause(&shared.links);
            let vectors = self.rest().map(IoSlice::new);
            match sendmsg(socket, &vectors, &mut SendAncillaryBuffer::default(), flags) {
                Ok(n) => self.done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.left() <= FRONT_TAKES || patience.is_zero() => break,
                Err(Errno::AGAIN) => wait(socket, patience)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits until the socket takes more, and takes the time from `patience`.
fn wait(socket: &OwnedFd, patience: &mut Duration) -> rustix::io::Result<()> {
    let since = Instant::now();
    let nanos = patience.subsec_nanos();
    let timeout = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: nanos.into() };
    let polled = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&timeout));
    *patience = patience.saturating_sub(since.elapsed());
    match polled {
        Ok(0) => *patience = Duration::ZERO,
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

impl Worker {
    /// Gives the client what is queued and `data`, if it is the worker's to give. Returns what of `data` has to go over the
    /// link, behind what is queued then.
    ///
    /// # Errors
    /// The client has gone.
    pub(crate) fn write_to_client<'d>(&mut self, data: &'d [u8]) -> Result<&'d [u8], Gone> {
        if matches!(self.request.direct, Direct::Offered(_)) {
            self.begin_direct(data);
        }
        self.go_on_direct(data, false)
    }

    /// The application wants the client to have what was written.
    pub(crate) fn push_to_client(&mut self) {
        if let Direct::Writing(writing) = &mut self.request.direct {
            writing.push();
        }
    }

    /// The end of the response: whatever becomes of it, the client's socket is closed here.
    pub(crate) fn end_direct(&mut self) {
        if self.shared.lock().lost {
            // Output was refused: what the client has must not get an end.
            return self.cut_client();
        }
        // It is large, and all of it is still here.
        if self.response.length_is_open
            && !self.request.aborted
            && matches!(self.request.direct, Direct::Offered(_))
        {
            self.begin_direct(&[]);
        }
        if matches!(self.request.direct, Direct::Writing(_)) && !self.request.aborted {
            // The front is told if the client has gone.
            let _gone = self.go_on_direct(&[], true);
        }
        if let Direct::Writing(writing) = std::mem::take(&mut self.request.direct)
            && !self.request.aborted
        {
            let sent = writing.sent(0, false, true);
            // Before the front can know.
            drop(writing);
            self.shared.lock().queue.first(self.request.id, Record::Sent(sent));
        }
    }

    /// Nobody goes on with the response.
    pub(crate) fn cut_client(&mut self) {
        if let Direct::Writing(writing) = std::mem::take(&mut self.request.direct)
            && writing.framing == Framing::Close
        {
            // A regular end of the connection would be that of the body.
            let _gone = set_socket_linger(&writing.socket, Some(Duration::ZERO));
        }
    }

    fn begin_direct(&mut self, data: &[u8]) {
        let mut state = self.shared.lock();
        let mut queued = Vec::new();
        let only_bytes = state.queue.take_stdout(&mut queued);
        if only_bytes && queued.is_empty() && data.is_empty() {
            return;
        }
        let Direct::Offered(offer) = std::mem::take(&mut self.request.direct) else { return };
        let Response { body, begun, .. } = self.response;
        let may = only_bytes && body.is_some() && !begun && !self.request.is_head;
        let writing = if may { offer.begin(&mut queued, data) } else { None };
        if let Some(mut writing) = writing {
            writing.queued = queued;
            self.request.direct = Direct::Writing(Box::new(writing));
            self.response.begun = true;
        } else {
            state.queue.stdout(self.request.id, &queued);
        }
    }

    fn go_on_direct<'d>(&mut self, data: &'d [u8], last: bool) -> Result<&'d [u8], Gone> {
        let Direct::Writing(writing) = &mut self.request.direct else { return Ok(data) };
        let id = self.request.id;
        let mut state = self.shared.lock();
        if !state.queue.take_stdout(&mut writing.queued) {
            // The front sends files.
            let sent = writing.sent(0, false, false);
            self.request.direct = Direct::Unasked;
            state.queue.first(id, Record::Sent(sent));
            return Ok(data);
        }
        drop(state);
        if !last && writing.head.is_empty() && writing.queued.is_empty() && data.is_empty() {
            return Ok(data);
        }
        let result = writing.write(&self.shared, data, last);
        match result {
            Ok(None) => Ok(&[]),
            Ok(Some(Left { sent, next, data })) => {
                // The socket is closed before the front can know.
                self.request.direct = Direct::Unasked;
                let mut state = self.shared.lock();
                state.queue.first(id, Record::Sent(sent));
                state.queue.stdout(id, &next);
                Ok(data)
            }
            Err(_) => {
                let sent = Sent { gone: true, ..writing.sent(0, false, false) };
                self.request.direct = Direct::Unasked;
                self.request.aborted = true;
                let mut state = self.shared.lock();
                state.queue.first(id, Record::Sent(sent));
                let _lost_is_noted = self.shared.flush(state);
                Err(Gone)
            }
        }
    }
}
