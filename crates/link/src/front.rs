//! The front's end of a link: requests go out, responses come in.
//!
//! The machine decodes the worker's records, checks them against the protocol and returns their
//! meaning. It keeps the bytes that the socket has not taken yet, so a request that is given up
//! never leaves half a record on the link.

mod broken;
mod outbox;
mod received;
mod response;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use sendoff_fastcgi::Decoder;
use sendoff_fastcgi::channel::Secret;
use sendoff_fastcgi::direct::Sent;
use sendoff_fastcgi::handover::{FileId, MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::{Header, Kind};
use sendoff_fastcgi::region::Piece;

pub use self::broken::Broken;
pub use self::outbox::Outbox;
use self::response::{AtEnd, Busy, NamedFile, ResponseProgress, Source};

/// The id of all requests that the front sends. A link carries one request at a time, so the id is
/// constant.
pub const REQUEST_ID: u16 = 1;

/// Limit on the files that a worker may have open on one link (`docs/handover.md` §2). Sendoff's
/// workers hold this number on all links together.
pub const MAX_FILES: usize = 256;

/// Maximum number of descriptors that wait for their records: the rest of one message, and all of
/// the next.
pub const MAX_WAITING_DESCRIPTORS: usize = 2 * MAX_FDS_PER_MESSAGE;

/// Types of values that the caller passes in and the machine gives back.
pub trait Caller: fmt::Debug {
    /// A descriptor received from the worker.
    type Received: fmt::Debug;
    /// A descriptor sent to the worker.
    type Attached: fmt::Debug;
    /// A value that the caller holds until the worker is free, which may be after the end of the
    /// response.
    type Held: fmt::Debug;
    /// The receiver of the response.
    type Recipient: fmt::Debug;
}

/// The way by which requests reach the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The front sends them over this link.
    Pool,
    /// The process receives them over FastCGI; on this link it claims requests and sends their
    /// bodies (§8).
    Channel,
}

/// A request as it goes over the link.
#[derive(Debug)]
pub struct Request<A> {
    /// All its records.
    pub records: Bytes,
    /// Descriptors in the order of the records that need them.
    pub attached: Vec<A>,
    /// The client's socket, if it is among the descriptors.
    pub client: ClientSocket,
}

/// The processes that have the socket of the request's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientSocket {
    /// Only the front has it.
    Kept,
    /// The worker has it as well, and may answer with `SENT`.
    Lent,
}

/// A part of a response, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<R> {
    /// Bytes of the CGI header block and the body.
    Bytes(Bytes),
    /// Bytes of an open file.
    Segment {
        /// A file that [`Output::Open`] has announced.
        file: FileId,
        /// First byte, from the start of the file.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The length of the whole body, in bytes.
    Length(u64),
    /// The worker has written the beginning of the response to the client's socket.
    Sent(Sent),
    /// The open file that the header block names.
    Named(R),
    /// Text about the next segments, for `sendoff explain`.
    Explanation(Bytes),
}

/// A message of the worker.
#[derive(Debug)]
pub enum Output<C: Caller> {
    /// A part of the response for [`Front::recipient`].
    Event(Event<C::Received>),
    /// Bytes in the shared region. They count as lent even without a recipient.
    Piece(Piece),
    /// The response has ended.
    Ended {
        /// The recipient of the response; `None` if the request was given up.
        recipient: Option<C::Recipient>,
        /// The application's status; any value but 0 is a failure.
        app_status: u32,
        /// Set if the worker is free; otherwise [`Output::Ready`] returns it.
        free: Option<C::Held>,
    },
    /// The worker has become free after it went on working beyond the end of its response.
    Ready(C::Held),
    /// A file is now known by this id.
    Open(FileId, C::Received),
    /// The file is about to change. The id may already have been released.
    Recall(FileId),
    /// The worker releases the file.
    Release(FileId),
    /// The worker's shared region.
    Region(C::Received),
    /// The body of a request follows on this link. The caller must call [`Front::claim`] before the
    /// next [`Front::next`].
    Claim(Secret),
    /// The worker has taken this request from the ring. Unless the request was given to
    /// [`Front::take`] before, the caller must give it there before the next [`Front::next`], or
    /// send it on the link if the ring only announces it.
    Taken {
        /// The number of the request.
        number: u64,
        /// When the worker took it, in nanoseconds of `CLOCK_MONOTONIC`, as it says.
        at: u64,
        /// True if the caller has given the request to [`Front::take`] before.
        is_known: bool,
    },
    /// A part of the application's log output.
    Log {
        /// The text.
        text: Bytes,
        /// True if a record ends with it.
        ends_record: bool,
    },
}

/// The way in which the worker's end of the link was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hangup {
    /// In an orderly way: the worker had read everything that was sent to it.
    Closed,
    /// The worker never read some of the bytes that were sent to it (`ECONNRESET`).
    Reset,
}

/// The state of the link at its end.
#[derive(Debug)]
pub struct LinkEnd<C: Caller> {
    /// The recipient of the response under way, and whether another worker may get the request.
    pub recipient: Option<(C::Recipient, Retry)>,
    /// The value that the caller held for the request.
    pub held: Option<C::Held>,
    /// The protocol violation, if the worker closed the link in the wrong place.
    pub broken: Option<Broken>,
}

/// The safety of giving a request to another worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The worker has not read the whole request, so the application has not begun.
    Safe,
    /// The application may have begun.
    Unsafe,
}

/// The state machine. See the diagram above `State`.
#[derive(Debug)]
pub struct Front<C: Caller> {
    origin: Origin,
    decoder: Decoder,
    outbox: Outbox<C::Attached>,
    /// Id of the current request; constant on pool links, chosen by the process on links that it
    /// opened.
    request_id: u16,
    files: HashSet<FileId>,
    state: State<C>,
}

/// ```text
///          begin()           END_REQUEST
///  Idle ───────────▶ Busy ─────────────────▶ Idle
///   ▲                 │ DETACH, END_REQUEST
///   │      READY      ▼
///   └───────────── Detached                    any: ended() ──▶ Over
/// ```
/// For a request from the ring, `TAKEN` or the caller's look at the ring, and [`Front::take`], take
/// the place of `begin()`.
///
/// On a link that a process has opened itself, `CLAIM` takes the place of `begin()`, and `DETACH`
/// does not occur.
#[derive(Debug)]
enum State<C: Caller> {
    Idle,
    Busy(Busy<C>),
    Detached(C::Held),
    Over,
}

/// The link accepts no request now: one is in progress, or the link has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotIdle;

impl<C: Caller> Front<C> {
    /// A link without a request.
    #[must_use]
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            decoder: Decoder::default(),
            outbox: Outbox::default(),
            request_id: REQUEST_ID,
            files: HashSet::new(),
            state: State::Idle,
        }
    }

    /// Sends a request to the worker: its bytes are in [`Self::outbox`] afterwards.
    ///
    /// # Errors
    /// The link accepts no request now; the arguments are dropped.
    pub fn begin(
        &mut self,
        request: Request<C::Attached>,
        held: C::Held,
        recipient: C::Recipient,
    ) -> Result<(), NotIdle> {
        if !matches!(self.state, State::Idle) || self.origin != Origin::Pool {
            return Err(NotIdle);
        }
        self.outbox.push(request.records, request.attached);
        let progress = ResponseProgress::Nothing(request.client);
        let (source, recipient, at_end) = (Source::Sent, Some(recipient), AtEnd::Idle);
        self.state = State::Busy(Busy { held, source, recipient, progress, at_end });
        Ok(())
    }

    /// Notes that the worker has taken a request from the ring. Without a recipient it tells the
    /// worker that the response is not wanted. `is_announced`: the worker has sent `TAKEN`;
    /// otherwise the ring says that it has taken the request, and `TAKEN` must come first.
    ///
    /// # Errors
    /// The link has a request; the arguments are dropped.
    pub fn take(
        &mut self,
        number: u64,
        is_announced: bool,
        held: C::Held,
        recipient: Option<C::Recipient>,
    ) -> Result<(), NotIdle> {
        if !self.is_idle() {
            return Err(NotIdle);
        }
        let is_wanted = recipient.is_some();
        let source = Source::Ring { number, is_taken: is_announced };
        let progress = ResponseProgress::Nothing(ClientSocket::Kept);
        self.state = State::Busy(Busy { held, source, recipient, progress, at_end: AtEnd::Idle });
        if !is_wanted {
            self.abort();
        }
        Ok(())
    }

    /// True if the link takes a request now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle) && self.origin == Origin::Pool
    }

    /// Gives the worker a seat in the ring, with the descriptors of the requests and the claims.
    pub fn pass_ring(&mut self, seat: u16, descriptors: Vec<C::Attached>) {
        self.tell(Record::Ring(seat), descriptors);
    }

    /// Tells a worker that waits for a request from the ring that its client has left.
    pub fn withdraw(&mut self, number: u64) {
        self.tell(Record::Abandon(number), Vec::new());
    }

    /// Lets the worker look into the ring. It is asleep.
    pub fn look(&mut self) {
        // A worker that does not read its link can fall asleep any number of times.
        if !self.outbox.ends_with(&encoded(Record::Look)) {
            self.tell(Record::Look, Vec::new());
        }
    }

    fn tell(&mut self, record: Record, descriptors: Vec<C::Attached>) {
        self.outbox.push(encoded(record).into(), descriptors);
    }

    /// Answers [`Output::Claim`]; without a recipient it tells the process that the response is not
    /// wanted.
    pub fn claim(&mut self, held: C::Held, recipient: Option<C::Recipient>) {
        let is_wanted = recipient.is_some();
        let progress = ResponseProgress::Body(NamedFile::Absent);
        let (source, at_end) = (Source::Sent, AtEnd::Idle);
        self.state = State::Busy(Busy { held, source, recipient, progress, at_end });
        if !is_wanted {
            self.abort();
        }
    }

    /// Gives the request up if `is_it` recognises its recipient. The abort is sent after all queued
    /// bytes; the worker's records up to `END_REQUEST` are dropped.
    pub fn give_up(&mut self, is_it: impl FnOnce(&C::Recipient) -> bool) -> Option<C::Recipient> {
        let State::Busy(Busy { recipient, .. }) = &mut self.state else { return None };
        if !recipient.as_ref().is_some_and(is_it) {
            return None;
        }
        let recipient = recipient.take();
        self.abort();
        recipient
    }

    fn abort(&mut self) {
        // An abort on the link could come when the worker has ended the request and has taken
        // another one from the ring.
        if let State::Busy(Busy { source: Source::Ring { number, .. }, .. }) = self.state {
            return self.tell(Record::Abandon(number), Vec::new());
        }
        let abort = Header::new(Kind::ABORT_REQUEST, self.request_id, 0).encode();
        self.outbox.push(Bytes::copy_from_slice(&abort), Vec::new());
    }

    /// The bytes and descriptors to be sent.
    pub fn outbox(&mut self) -> &mut Outbox<C::Attached> {
        &mut self.outbox
    }

    /// The recipient of the current events.
    pub fn recipient(&self) -> Option<&C::Recipient> {
        match &self.state {
            State::Busy(busy) => busy.recipient.as_ref(),
            _ => None,
        }
    }

    /// The value that the caller holds for the current request, even if its response has ended.
    pub fn held(&self) -> Option<&C::Held> {
        match &self.state {
            State::Busy(Busy { held, .. }) | State::Detached(held) => Some(held),
            State::Idle | State::Over => None,
        }
    }

    /// True if a response is in progress; false while the worker goes on after its end.
    #[must_use]
    pub fn is_answering(&self) -> bool {
        matches!(self.state, State::Busy(_))
    }

    /// True if the worker may write to the client's socket: it was lent and not given back.
    #[must_use]
    pub fn may_write_to_client(&self) -> bool {
        let State::Busy(Busy { progress, .. }) = &self.state else { return false };
        progress.is_lent()
    }

    /// Number of files that are open on the link.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Ends the link after the worker's end was closed.
    pub fn ended(&mut self, how: Hangup) -> LinkEnd<C> {
        let is_cut = how == Hangup::Closed && !self.decoder.at_boundary();
        let is_unread = how == Hangup::Reset || !self.outbox.is_empty();
        self.end(is_unread && !is_cut, is_cut.then_some(Broken::Cut))
    }

    /// Ends the link after an error; further records of the worker are ignored.
    pub fn broken(&mut self) -> LinkEnd<C> {
        self.end(false, None)
    }

    fn end(&mut self, is_unread: bool, broken: Option<Broken>) -> LinkEnd<C> {
        let (held, recipient) = match std::mem::replace(&mut self.state, State::Over) {
            State::Busy(Busy { held, source, recipient, progress, .. }) => {
                let is_safe = is_unread
                    && source == Source::Sent
                    && matches!(progress, ResponseProgress::Nothing(_));
                let retry = if is_safe { Retry::Safe } else { Retry::Unsafe };
                (Some(held), recipient.map(|recipient| (recipient, retry)))
            }
            State::Detached(held) => (Some(held), None),
            State::Idle | State::Over => (None, None),
        };
        LinkEnd { recipient, held, broken }
    }
}

/// A record that belongs to no request.
fn encoded(record: Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.wire_len());
    record.encode(0, &mut bytes);
    bytes
}
