//! The front's end of a link: requests go out, responses come in.
//!
//! The machine decodes the worker's records, checks them against the protocol and returns their
//! meaning. It keeps the bytes that the socket has not taken yet, so a request that is given up
//! never leaves half a record on the link.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use bytes::{Bytes, BytesMut};
use sendoff_fastcgi::channel::Secret;
use sendoff_fastcgi::direct::Sent;
use sendoff_fastcgi::handover::{FileId, MAX_EXPLANATION, MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::{EndRequest, Header, Kind};
use sendoff_fastcgi::region::Piece;
use sendoff_fastcgi::{Decoder, RecordPart};

mod outbox;

/// A record that belongs to no request.
fn encoded(record: Record) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(record.wire_len());
    record.encode(0, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests;

pub use self::outbox::Outbox;

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

/// A violation of the protocol by the worker. The link cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// A record that is malformed.
    Malformed(sendoff_fastcgi::Error),
    /// A record of this type is not allowed in this state.
    OutOfPlace(Kind),
    /// A record that needs a descriptor came without one.
    NoDescriptor(Kind),
    /// More descriptors arrived than records need.
    TooManyDescriptors,
    /// More than [`MAX_FILES`] files are open.
    TooManyFiles,
    /// `OPEN` of a file id that is already open, or another record with a file id that is not open.
    WrongFile(Kind),
    /// An `EXPLAIN` record that is too long.
    LongExplanation,
    /// The worker refused the request.
    Refused,
    /// The link ended inside a record.
    Cut,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "it sent a {error}"),
            Self::OutOfPlace(kind) => write!(f, "a record of type {} out of place", kind.0),
            Self::NoDescriptor(kind) => {
                write!(f, "a record of type {} came without its descriptor", kind.0)
            }
            Self::TooManyDescriptors => f.write_str("it sent descriptors that no record claims"),
            Self::TooManyFiles => write!(f, "it opened more than {MAX_FILES} files"),
            Self::WrongFile(kind) => {
                write!(f, "a record of type {} with a file id that cannot be", kind.0)
            }
            Self::LongExplanation => f.write_str("an explanation that is too long"),
            Self::Refused => f.write_str("it refused the request"),
            Self::Cut => f.write_str("it closed the link inside a record"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<sendoff_fastcgi::Error> for Broken {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Malformed(error)
    }
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

/// A request that has been, or is being, sent to the worker.
#[derive(Debug)]
struct Busy<C: Caller> {
    held: C::Held,
    source: Source,
    /// `None`: the request was given up, and the rest of the response is dropped.
    recipient: Option<C::Recipient>,
    progress: ResponseProgress,
    at_end: AtEnd,
}

/// The way by which the worker has got a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Over this link, or over FastCGI.
    Sent,
    /// From the ring.
    Ring {
        number: u64,
        /// The record `TAKEN` has come.
        is_taken: bool,
    },
}

/// The progress of a response.
///
/// ```text
///             LENGTH              anything else
///  Nothing ───────────▶ Length ─────────────────▶ Body
///     │          anything but LENGTH               ▲
///     └────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy)]
enum ResponseProgress {
    Nothing(ClientSocket),
    Length(ClientSocket),
    Body(NamedFile),
}

impl ResponseProgress {
    /// True if the client's socket was lent and not given back.
    fn is_lent(self) -> bool {
        matches!(self, Self::Nothing(ClientSocket::Lent) | Self::Length(ClientSocket::Lent))
    }
}

/// State of the `NAMED` record, which is allowed once.
#[derive(Debug, Clone, Copy)]
enum NamedFile {
    Absent,
    Present,
}

/// State of the link after `END_REQUEST`.
#[derive(Debug, Clone, Copy)]
enum AtEnd {
    Idle,
    Detached,
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

    /// The worker's next message; `None` until more has been `received`. Descriptors are taken from
    /// the front of `descriptors`.
    ///
    /// # Errors
    /// The worker has violated the protocol: call [`Self::broken`] next.
    pub fn next(
        &mut self,
        received: &mut BytesMut,
        descriptors: &mut VecDeque<C::Received>,
    ) -> Result<Option<Output<C>>, Broken> {
        if descriptors.len() > MAX_WAITING_DESCRIPTORS {
            return Err(Broken::TooManyDescriptors);
        }
        while let Some(part) = self.decoder.next(received)? {
            if let Some(output) = self.part(part, descriptors)? {
                return Ok(Some(output));
            }
        }
        Ok(None)
    }

    fn part(
        &mut self,
        part: RecordPart,
        descriptors: &mut VecDeque<C::Received>,
    ) -> Result<Option<Output<C>>, Broken> {
        let (RecordPart::Stream { kind, request_id, .. }
        | RecordPart::EndOfStream { kind, request_id }
        | RecordPart::Record { kind, request_id, .. }) = part;
        let expected = match kind {
            // A worker may write to the log before its first request.
            Kind::STDERR => request_id,
            Kind::RECALL | Kind::RELEASE => 0,
            Kind::CLAIM if request_id != 0 => request_id,
            _ => self.request_id,
        };
        if request_id != expected {
            return Err(Broken::OutOfPlace(kind));
        }
        match part {
            RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                self.busy(kind)?.body();
                Ok(Some(Output::Event(Event::Bytes(data))))
            }
            RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                let ends_record = !self.decoder.is_inside_content();
                Ok(Some(Output::Log { text: data, ends_record }))
            }
            RecordPart::EndOfStream { kind: Kind::STDOUT | Kind::STDERR, .. } => Ok(None),
            RecordPart::Stream { .. } | RecordPart::EndOfStream { .. } => {
                Err(Broken::OutOfPlace(kind))
            }
            RecordPart::Record { kind: Kind::END_REQUEST, content, .. } => {
                self.end_request(&content).map(Some)
            }
            RecordPart::Record { kind: Kind::EXPLAIN, content, .. } => {
                if content.len() > MAX_EXPLANATION {
                    return Err(Broken::LongExplanation);
                }
                self.busy(kind)?.body();
                Ok(Some(Output::Event(Event::Explanation(content))))
            }
            RecordPart::Record { kind, content, .. } => match Record::decode(kind, &content)? {
                Some(record) => self.record(kind, request_id, record, descriptors),
                None => Err(Broken::OutOfPlace(kind)),
            },
        }
    }

    fn record(
        &mut self,
        kind: Kind,
        request_id: u16,
        record: Record,
        descriptors: &mut VecDeque<C::Received>,
    ) -> Result<Option<Output<C>>, Broken> {
        let mut descriptor = || descriptors.pop_front().ok_or(Broken::NoDescriptor(kind));
        Ok(Some(match record {
            Record::Open(id) => {
                if self.files.len() == MAX_FILES {
                    return Err(Broken::TooManyFiles);
                }
                if !self.files.insert(id) {
                    return Err(Broken::WrongFile(kind));
                }
                Output::Open(id, descriptor()?)
            }
            Record::Segment { file, offset, length } => {
                if !self.files.contains(&file) {
                    return Err(Broken::WrongFile(kind));
                }
                self.busy(kind)?.body();
                Output::Event(Event::Segment { file, offset, length })
            }
            Record::Recall(id) => {
                self.files.remove(&id);
                Output::Recall(id)
            }
            Record::Release(id) => {
                if !self.files.remove(&id) {
                    return Err(Broken::WrongFile(kind));
                }
                Output::Release(id)
            }
            Record::Length(length) => {
                self.busy(kind)?.length()?;
                Output::Event(Event::Length(length))
            }
            Record::Sent(sent) => {
                self.busy(kind)?.sent()?;
                Output::Event(Event::Sent(sent))
            }
            Record::Named => {
                let descriptor = descriptor()?;
                self.busy(kind)?.named()?;
                Output::Event(Event::Named(descriptor))
            }
            Record::Region => {
                let descriptor = descriptor()?;
                self.busy(kind)?;
                Output::Region(descriptor)
            }
            Record::Piece(piece) => {
                self.busy(kind)?.body();
                Output::Piece(piece)
            }
            Record::Detach => {
                if self.origin == Origin::Channel {
                    return Err(Broken::OutOfPlace(kind));
                }
                self.busy(kind)?.at_end = AtEnd::Detached;
                return Ok(None);
            }
            Record::Ready => match std::mem::replace(&mut self.state, State::Idle) {
                State::Detached(held) => Output::Ready(held),
                before => {
                    self.state = before;
                    return Err(Broken::OutOfPlace(kind));
                }
            },
            Record::Claim(secret) => {
                if self.origin != Origin::Channel || !matches!(self.state, State::Idle) {
                    return Err(Broken::OutOfPlace(kind));
                }
                self.request_id = request_id;
                Output::Claim(secret)
            }
            Record::Taken { number, at } => self.taken(number, at)?,
            // Only FastCGI connections bring tunnels.
            Record::Tunnel
            | Record::Body(_)
            | Record::Ring(_)
            | Record::Look
            | Record::Abandon(_) => {
                return Err(Broken::OutOfPlace(kind));
            }
        }))
    }

    fn taken(&mut self, number: u64, at: u64) -> Result<Output<C>, Broken> {
        let is_known = match &mut self.state {
            State::Idle if self.origin == Origin::Pool => false,
            State::Busy(Busy { source: Source::Ring { number: known, is_taken }, .. })
                if *known == number && !*is_taken =>
            {
                *is_taken = true;
                true
            }
            _ => return Err(Broken::OutOfPlace(Kind::TAKEN)),
        };
        Ok(Output::Taken { number, at, is_known })
    }

    fn end_request(&mut self, content: &[u8]) -> Result<Output<C>, Broken> {
        let EndRequest { app_status, protocol_status } = EndRequest::decode(content)?;
        if protocol_status != 0 {
            return Err(Broken::Refused);
        }
        self.busy(Kind::END_REQUEST)?;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Busy(Busy { held, recipient, at_end: AtEnd::Idle, .. }) => {
                Ok(Output::Ended { recipient, app_status, free: Some(held) })
            }
            State::Busy(Busy { held, recipient, at_end: AtEnd::Detached, .. }) => {
                self.state = State::Detached(held);
                Ok(Output::Ended { recipient, app_status, free: None })
            }
            before => {
                self.state = before;
                Err(Broken::OutOfPlace(Kind::END_REQUEST))
            }
        }
    }

    /// The current request; an error if there is none, because a record of this type belongs to
    /// one.
    fn busy(&mut self, kind: Kind) -> Result<&mut Busy<C>, Broken> {
        match &mut self.state {
            State::Busy(Busy { source: Source::Ring { is_taken: false, .. }, .. }) => {
                Err(Broken::OutOfPlace(kind))
            }
            State::Busy(busy) => Ok(busy),
            _ => Err(Broken::OutOfPlace(kind)),
        }
    }
}

impl<C: Caller> Busy<C> {
    /// Notes a part of the response after which neither `LENGTH` nor `SENT` is allowed.
    fn body(&mut self) {
        if !matches!(self.progress, ResponseProgress::Body(_)) {
            self.progress = ResponseProgress::Body(NamedFile::Absent);
        }
    }

    fn length(&mut self) -> Result<(), Broken> {
        match self.progress {
            ResponseProgress::Nothing(client) => {
                self.progress = ResponseProgress::Length(client);
                Ok(())
            }
            _ => Err(Broken::OutOfPlace(Kind::LENGTH)),
        }
    }

    fn sent(&mut self) -> Result<(), Broken> {
        if !self.progress.is_lent() {
            return Err(Broken::OutOfPlace(Kind::SENT));
        }
        self.body();
        Ok(())
    }

    fn named(&mut self) -> Result<(), Broken> {
        match self.progress {
            ResponseProgress::Body(NamedFile::Present) => Err(Broken::OutOfPlace(Kind::NAMED)),
            _ => {
                self.progress = ResponseProgress::Body(NamedFile::Present);
                Ok(())
            }
        }
    }
}
