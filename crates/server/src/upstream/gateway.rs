//! FastCGI applications that somebody else has started: connections that are kept, and requests over them.
//!
//! Which request gets which connection: `connections.rs`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sendoff_fastcgi::handover::{Hints, Record};
use sendoff_fastcgi::record::{EndRequest, HEADER_LEN, Header, Kind};
use sendoff_fastcgi::{Decoder, Part};
use tokio::io::Interest;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::address::Address;
use super::cgi::{REQUEST_ID, StreamedRequest};
use super::channel::Claim;
use super::connections::{Connections, Grant, Place, WaitError};
use super::framed::{self, Framed};
use super::inbox::{Event, Inbox};
use super::region::{BadRegion, LinkRegion};
use super::stream::{Parked, Stream};
use crate::segment::Segment;

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// So long after a new connection another one may be tried although nobody has taken the first. Over UNIX sockets we see
/// whether somebody has, over TCP only that there is an answer.
const PATIENCE_UNIX: Duration = Duration::from_secs(1);
const PATIENCE_TCP: Duration = Duration::from_millis(1);

/// What one read may bring, in bytes.
const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next read.
const RECEIVE_MIN: usize = 16 * 1024;
/// Content of a `STDIN` record made from a body in a file: what a UNIX socket takes at once.
const PIECE: u16 = 32 * 1024;

/// Descriptors that may wait for the record that brings them: an application has one to send.
const MAX_WAITING_FDS: usize = 1;

/// `protocolStatus` of an `END_REQUEST` that refuses (FastCGI 1.0 §5.5).
const CANT_MPX_CONN: u8 = 1;
const OVERLOADED: u8 = 2;

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Application {
    address: Address,
    timeout: Duration,
    /// Its last answer said that it could put bytes into shared memory.
    knows_region: AtomicBool,
    /// Its last answer said that it could write to the client.
    knows_direct: AtomicBool,
    /// Its last response said that it knows the channel.
    knows_channel: AtomicBool,
    connections: Arc<Connections<Kept>>,
}

/// A kept connection that nobody uses.
#[derive(Debug)]
struct Kept {
    parked: Parked,
    region: LinkRegion,
    last: Last,
}

/// The last exchange on a connection.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    id: u16,
    hints: Hints,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectError {
    /// Others were before it.
    Waiting(WaitError),
    /// As many connections wait already as the application lets wait.
    Busy,
    /// Nobody took the connection in time.
    TimedOut,
    /// Nobody is there.
    Failed(io::Error),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(why) => write!(f, "{why}"),
            Self::Busy => f.write_str("its queue of connections is full"),
            Self::TimedOut => {
                write!(f, "it took no connection for {} s", CONNECT_TIMEOUT.as_secs())
            }
            Self::Failed(error) => write!(f, "it cannot be connected to: {error}"),
        }
    }
}

impl Application {
    /// An application at `address` that may be silent for `timeout` while it has a request.
    #[must_use]
    pub fn new(address: Address, timeout: Duration) -> Arc<Self> {
        let patience = match address {
            Address::Unix(_) => PATIENCE_UNIX,
            Address::Tcp(_) => PATIENCE_TCP,
        };
        Arc::new(Self {
            address,
            timeout,
            knows_region: AtomicBool::new(false),
            knows_direct: AtomicBool::new(false),
            knows_channel: AtomicBool::new(false),
            connections: Connections::new(patience),
        })
    }

    /// Whether `region` should be announced to it.
    #[must_use]
    pub fn knows_region(&self) -> bool {
        self.knows_region.load(Ordering::Relaxed)
    }

    /// Whether it may be lent a client's socket.
    #[must_use]
    pub fn knows_direct(&self) -> bool {
        self.knows_direct.load(Ordering::Relaxed)
    }

    /// Whether the channel should be announced to it. Others would show the parameter to their scripts.
    #[must_use]
    pub fn knows_channel(&self) -> bool {
        self.knows_channel.load(Ordering::Relaxed)
    }

    /// Remembers whether it says so in its responses. Over TCP no descriptors pass, whatever it says.
    pub fn says_it_knows_channel(&self, knows: bool) {
        let knows = knows && matches!(self.address, Address::Unix(_));
        self.knows_channel.store(knows, Ordering::Relaxed);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Gives the application a request, over a kept connection only if `repeatable`: the request may then be lost with a
    /// connection that closes at this moment, and must be sent again. The socket of its `client` goes along if the request
    /// lends it and whoever is at the other end of a kept connection knows what to do with it.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn begin(
        self: &Arc<Self>,
        request: Rc<StreamedRequest>,
        repeatable: bool,
        client: Option<BorrowedFd<'_>>,
        log_name: Rc<str>,
    ) -> Result<Exchange, ConnectError> {
        let (place, stream, region, last) = self.connection(repeatable).await?;
        let knows_direct = last.is_some_and(|last| last.hints.direct);
        let client = client.filter(|_| knows_direct && !request.client.is_empty());
        let lent = client.and_then(|client| Lent::new(client).ok());
        let id = last.map_or(REQUEST_ID, |last| next_id(last.id));
        let request = if id == REQUEST_ID && lent.is_none() {
            request
        } else {
            Rc::new(request.with(id, lent.is_some()))
        };
        let previous = last.map(|last| last.id);
        let inbox = Rc::new(Inbox::default());
        let may_be_silent = Rc::new(Cell::new(false));
        let driver = Driver {
            application: Arc::clone(self),
            place,
            stream,
            unread: 0,
            previous,
            lent,
            hints: Hints::default(),
            outgoing: Outgoing::new(request, id),
            decoder: Decoder::default(),
            buffer: BytesMut::new(),
            descriptors: VecDeque::new(),
            region,
            inbox: Rc::clone(&inbox),
            may_be_silent: Rc::clone(&may_be_silent),
            log_name,
        };
        let task = tokio::task::spawn_local(driver.run()).abort_handle();
        let application = Arc::clone(self);
        Ok(Exchange { application, inbox, may_be_silent, framed: RefCell::default(), task })
    }

    /// A connection, and the last exchange on it if it is not new.
    async fn connection(
        &self,
        repeatable: bool,
    ) -> Result<(Place<Kept>, Stream, LinkRegion, Option<Last>), ConnectError> {
        loop {
            match self.connections.acquire(repeatable).await.map_err(ConnectError::Waiting)? {
                Grant::Kept(place, Kept { parked, region, last }) => {
                    if parked.is_quiet()
                        && let Ok(stream) = parked.resume()
                    {
                        return Ok((place, stream, region, Some(last)));
                    }
                }
                Grant::New(place) => {
                    let connected = self.connect().await;
                    if matches!(connected, Err(ConnectError::Busy)) {
                        place.back_off();
                    }
                    return Ok((place, connected?, LinkRegion::default(), None));
                }
            }
        }
    }

    async fn connect(&self) -> Result<Stream, ConnectError> {
        match timeout(CONNECT_TIMEOUT, Stream::connect(&self.address)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Err(ConnectError::Busy),
            Ok(Err(error)) => Err(ConnectError::Failed(error)),
            Err(_) => Err(ConnectError::TimedOut),
        }
    }
}

/// Closes connections that have been idle for too long, for ever.
pub async fn sweep(applications: Arc<[Arc<Application>]>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        applications.iter().for_each(|application| {
            application.connections.close_old(|kept| kept.parked.is_quiet());
        });
    }
}

/// One request and its answer. Dropped before the last event, it closes the connection.
#[derive(Debug)]
pub struct Exchange {
    application: Arc<Application>,
    inbox: Rc<Inbox>,
    /// The rest of the body comes elsewhere.
    may_be_silent: Rc<Cell<bool>>,
    framed: RefCell<Option<Framed>>,
    task: AbortHandle,
}

impl Exchange {
    /// The body is framed and may move to a link; `rest` is what of it came with the header block.
    pub fn expect_frames(&mut self, claim: Rc<Claim>, rest: Bytes) {
        *self.framed.get_mut() = Some(Framed::new(claim, rest));
    }

    pub(super) fn try_next(&self) -> Option<Event> {
        let mut framed = self.framed.borrow_mut();
        let Some(framed) = &mut *framed else { return self.inbox.take() };
        let event = framed::try_next(framed, &self.inbox);
        self.may_be_silent.set(framed.has_moved());
        event
    }

    pub(super) async fn next(&self) -> Event {
        let silence = self.application.timeout;
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            let source = |framed: &Framed| (framed.source(&self.inbox), framed.patience(silence));
            let Some((source, patience)) = self.framed.borrow().as_ref().map(source) else {
                return self.inbox.next().await;
            };
            let event = framed::next(&source, patience).await;
            let mut framed = self.framed.borrow_mut();
            let Some(framed) = &mut *framed else { continue };
            let meaning = match (event, patience) {
                (Some(event), _) => framed.take(event),
                (None, Some(patience)) => framed.too_long(patience, silence),
                (None, None) => None,
            };
            if let Some(event) = meaning {
                return event;
            }
        }
    }

    /// Where the application listens.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.application.address()
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.inbox.has_ended() {
            self.task.abort();
        }
    }
}

/// Sends a request and receives its answer at the same time: an application may answer before it has read everything,
/// and wait for its answer to be taken.
struct Driver {
    application: Arc<Application>,
    place: Place<Kept>,
    stream: Stream,
    /// What of a new connection's bytes nobody had read when we looked last, in the kernel's counting.
    unread: u64,
    /// The request before this one on a kept connection, which the peer may have closed meanwhile.
    previous: Option<u16>,
    /// The client's socket, which the application has, too.
    lent: Option<Lent>,
    /// What the application said at the end.
    hints: Hints,
    outgoing: Outgoing,
    decoder: Decoder,
    buffer: BytesMut,
    /// Those that no record has claimed yet.
    descriptors: VecDeque<OwnedFd>,
    region: LinkRegion,
    inbox: Rc<Inbox>,
    /// The rest of the body comes on a link, which has a clock of its own.
    may_be_silent: Rc<Cell<bool>>,
    log_name: Rc<str>,
}

/// How an exchange ends before its time.
enum Failure {
    Closed,
    TimedOut,
    Busy(&'static str),
    Broken(String),
}

impl From<sendoff_fastcgi::Error> for Failure {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<BadRegion> for Failure {
    fn from(BadRegion(what): BadRegion) -> Self {
        Self::Broken(what)
    }
}

impl Driver {
    async fn run(mut self) {
        let mut heard = false;
        let result = self.exchange(&mut heard).await;
        let Self { application, place, stream, region, outgoing, decoder, buffer, .. } = self;
        let Self { inbox, log_name, descriptors, previous, hints, lent, .. } = self;
        drop(lent);
        let kept = previous.is_some();
        inbox.push(match result {
            Ok(()) => {
                // What else may be on its way in either direction would be taken for the next request's.
                let is_quiet = buffer.is_empty() && descriptors.is_empty();
                if outgoing.ended
                    && is_quiet
                    && decoder.at_boundary()
                    && let Ok(parked) = stream.park()
                {
                    let last = Last { id: outgoing.id, hints };
                    place.keep(Kept { parked, region, last });
                }
                Event::End
            }
            Err(Failure::Closed) => {
                Event::Lost { unread: !heard && (kept || outgoing.sent == 0) }
            }
            Err(Failure::TimedOut) => Event::TimedOut,
            Err(Failure::Busy(why)) => Event::Busy(why),
            Err(Failure::Broken(why)) => {
                let address = &application.address;
                tracing::error!(%address, request = &*log_name, "broken FastCGI application: {why}");
                Event::Lost { unread: false }
            }
        });
    }

    async fn exchange(&mut self, heard: &mut bool) -> Result<(), Failure> {
        if self.previous.is_some() {
            self.send_at_once()?;
        }
        let mut writable = true;
        loop {
            let sent = writable && self.send(&mut writable)?;
            let may_read = !self.inbox.is_full();
            let received = may_read && self.receive()?;
            if received {
                *heard = true;
                self.place.is_taken();
                while let Some(part) = self.decoder.next(&mut self.buffer)? {
                    if self.handle(part)? {
                        return Ok(());
                    }
                }
            }
            if !sent && !received {
                self.look_for_reader(false);
                let may_write = writable && (!self.outgoing.ended || self.looks_for_reader());
                self.wait(may_read, may_write).await?;
            }
        }
    }

    /// Sends what a kept connection takes of the request, and what is lent along with it.
    fn send_at_once(&mut self) -> Result<(), Failure> {
        let descriptor = self.lent.as_ref().map(|lent| lent.socket.as_fd());
        let Ok(bytes) = self.outgoing.bytes() else { return Ok(()) };
        match self.stream.write_at_once(bytes, descriptor) {
            Ok(n) => self.outgoing.advance(n),
            // The descriptor must go along with the first byte.
            Err(_) if descriptor.is_some() => return Err(Failure::Closed),
            Err(_found_again) => {}
        }
        Ok(())
    }

    /// Sends what the connection takes. `open` becomes false when the peer takes no more: it may have answered all the
    /// same.
    fn send(&mut self, open: &mut bool) -> Result<bool, Failure> {
        // In two pieces: of the second one an application may read nothing before it has worked.
        let head = if self.looks_for_reader() { self.outgoing.head_left() } else { 0 };
        let bytes = match self.outgoing.bytes() {
            Ok([]) => return Ok(false),
            Ok(bytes) => bytes,
            Err(error) => {
                return Err(Failure::Broken(format!("the request body cannot be read: {error}")));
            }
        };
        let bytes = if head > 0 { &bytes[..head] } else { bytes };
        match self.stream.try_write(bytes) {
            Ok(n) => {
                self.outgoing.advance(n);
                self.look_for_reader(true);
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(false),
            Err(_) => {
                *open = false;
                Ok(true)
            }
        }
    }

    fn looks_for_reader(&self) -> bool {
        !self.place.was_taken() && matches!(self.stream, Stream::Unix(_))
    }

    /// Notes whether a process has a new connection. `wrote`: something of the request was sent since the last look.
    fn look_for_reader(&mut self, wrote: bool) {
        if !self.looks_for_reader() {
            return;
        }
        if !wrote {
            // Before the look: what is read behind it counts as news.
            self.stream.forget_writable();
        }
        let Some(unread) = self.stream.unread() else { return };
        if unread < self.unread || (wrote && unread == self.unread) {
            self.place.is_taken();
        }
        self.unread = unread;
    }

    fn receive(&mut self) -> Result<bool, Failure> {
        if self.buffer.capacity() - self.buffer.len() < RECEIVE_MIN {
            self.buffer.reserve(RECEIVE);
        }
        let received = self.stream.try_read(&mut self.buffer, &mut self.descriptors);
        if self.descriptors.len() > MAX_WAITING_FDS {
            return Err(Failure::Broken("it sent descriptors that no record claims".to_owned()));
        }
        match received {
            Ok(0) => Err(Failure::Closed),
            Ok(_) => Ok(true),
            Err(error) if is_for_later(&error) => Ok(false),
            Err(_) => Err(Failure::Closed),
        }
    }

    async fn wait(&mut self, may_read: bool, may_write: bool) -> Result<(), Failure> {
        let interest = match (may_read, may_write) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => {
                self.inbox.room.notified().await;
                return Ok(());
            }
        };
        tokio::select! {
            // An error is found again by whoever reads.
            _ = self.stream.ready(interest) => Ok(()),
            () = self.inbox.room.notified(), if !may_read => Ok(()),
            // While the client is slow, it is not the application that takes its time.
            () = tokio::time::sleep(self.application.timeout), if may_read => {
                let is_elsewhere = self.lent.as_mut().is_some_and(Lent::has_moved);
                if is_elsewhere || self.may_be_silent.get() { Ok(()) } else { Err(Failure::TimedOut) }
            }
        }
    }

    /// Passes a part on; true at the end of the answer.
    fn handle(&mut self, part: Part) -> Result<bool, Failure> {
        let (Part::Stream { kind, request_id, .. }
        | Part::EndOfStream { kind, request_id }
        | Part::Record { kind, request_id, .. }) = part;
        // php-fpm writes what a script says after fastcgi_finish_request() behind the end of its response.
        if Some(request_id) == self.previous {
            return Ok(false);
        }
        if request_id != self.outgoing.id {
            return Err(Failure::Broken(format!("a record of type {} out of place", kind.0)));
        }
        match part {
            Part::Stream { kind: Kind::STDOUT, data, .. } => {
                self.gives_back();
                self.inbox.push(Event::Segment(Segment::Bytes(data)));
            }
            Part::Stream { kind: Kind::STDERR, data, .. } => self.log(&data),
            Part::EndOfStream { kind: Kind::STDOUT | Kind::STDERR, .. } => {}
            Part::Record { kind: Kind::END_REQUEST, content, .. } => {
                if matches!(self.stream, Stream::Unix(_)) {
                    self.hints = Hints::of(&content);
                }
                let Hints { region, direct } = self.hints;
                self.application.knows_region.store(region, Ordering::Relaxed);
                self.application.knows_direct.store(direct, Ordering::Relaxed);
                return end(&content);
            }
            Part::Record { kind: Kind::REGION, content, .. } => {
                Record::decode(Kind::REGION, &content)?;
                let missing = || Failure::Broken("it announced a region and sent none".to_owned());
                self.region.announce(&self.descriptors.pop_front().ok_or_else(missing)?)?;
            }
            Part::Record { kind: Kind::SENT, content, .. } => {
                let lent = self.lent.as_ref().is_some_and(|lent| !lent.is_back);
                match Record::decode(Kind::SENT, &content)? {
                    Some(Record::Sent(sent)) if lent => {
                        self.gives_back();
                        self.inbox.push(Event::Sent(sent));
                    }
                    _ => return Err(Failure::Broken("a SENT record out of place".to_owned())),
                }
            }
            Part::Record { kind: Kind::PIECE, content, .. } => {
                self.gives_back();
                if let Some(Record::Piece(piece)) = Record::decode(Kind::PIECE, &content)?
                    && let Some(bytes) = self.region.piece(piece)?
                {
                    self.inbox.push(Event::Piece(bytes));
                }
            }
            _ => return Err(Failure::Broken(format!("a record of type {} out of place", kind.0))),
        }
        Ok(false)
    }

    /// The application does not write to the client from here on.
    fn gives_back(&mut self) {
        if let Some(lent) = &mut self.lent {
            lent.is_back = true;
        }
    }

    fn log(&self, data: &Bytes) {
        let (address, request) = (&self.application.address, &*self.log_name);
        for line in String::from_utf8_lossy(data).lines().filter(|line| !line.trim().is_empty()) {
            tracing::warn!(%address, request, "{line}");
        }
    }
}

/// A client's socket that an application has been lent.
struct Lent {
    socket: OwnedFd,
    /// What it had been given to send when we looked last.
    written: Option<u64>,
    is_back: bool,
}

impl Lent {
    fn new(client: BorrowedFd<'_>) -> io::Result<Self> {
        let socket = client.try_clone_to_owned()?;
        let written = sendoff_sys::tcp::written(client).ok();
        Ok(Self { socket, written, is_back: false })
    }

    /// Whether something was written since the last look: an application at work there may be silent here.
    fn has_moved(&mut self) -> bool {
        let written = sendoff_sys::tcp::written(self.socket.as_fd()).ok();
        let before = std::mem::replace(&mut self.written, written);
        !self.is_back && before != written
    }
}

fn end(content: &[u8]) -> Result<bool, Failure> {
    match EndRequest::decode(content)?.protocol_status {
        0 => Ok(true),
        CANT_MPX_CONN => Err(Failure::Busy("it takes one request at a time (CANT_MPX_CONN)")),
        OVERLOADED => Err(Failure::Busy("it is overloaded")),
        status => Err(Failure::Broken(format!("it refused the request, status {status}"))),
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Not the last request's, so that what comes late for that one is not taken for this one's.
fn next_id(last: u16) -> u16 {
    if last == REQUEST_ID { REQUEST_ID + 1 } else { REQUEST_ID }
}

/// A request on its way out.
struct Outgoing {
    request: Rc<StreamedRequest>,
    id: u16,
    /// The record being sent, once the request's own are.
    chunk: Option<Vec<u8>>,
    /// Sent of the request's records or of the chunk.
    at: usize,
    /// Where the next piece of the body begins.
    body_at: u64,
    /// Bytes sent in all.
    sent: u64,
    ended: bool,
}

impl Outgoing {
    fn new(request: Rc<StreamedRequest>, id: u16) -> Self {
        Self { request, id, chunk: None, at: 0, body_at: 0, sent: 0, ended: false }
    }

    /// Bytes that are missing up to the request body.
    fn head_left(&self) -> usize {
        if self.chunk.is_some() { 0 } else { self.request.head_len.saturating_sub(self.at) }
    }

    /// What is to be sent next; nothing at the end.
    fn bytes(&mut self) -> io::Result<&[u8]> {
        while !self.ended && self.at == self.chunk.as_ref().unwrap_or(&self.request.records).len() {
            self.next_chunk()?;
        }
        let all = self.chunk.as_ref().unwrap_or(&self.request.records);
        Ok(if self.ended { &[] } else { &all[self.at..] })
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let Some((file, len)) = &self.request.body else {
            self.ended = true;
            return Ok(());
        };
        if self.chunk.as_ref().is_some_and(|last| last.len() == HEADER_LEN) {
            self.ended = true;
            return Ok(());
        }
        let size = u16::try_from(len - self.body_at).unwrap_or(PIECE).min(PIECE);
        let mut chunk = Header::new(Kind::STDIN, self.id, size).encode().to_vec();
        let start = chunk.len();
        chunk.resize(start + usize::from(size), 0);
        let mut filled = start;
        while filled < chunk.len() {
            let offset = self.body_at + (filled - start) as u64;
            match rustix::io::pread(&**file, &mut chunk[filled..], offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.body_at += u64::from(size);
        self.chunk = Some(chunk);
        self.at = 0;
        Ok(())
    }

    fn advance(&mut self, n: usize) {
        self.at += n;
        self.sent += n as u64;
        // Marks the end as soon as it is reached: the answer may come before the next look. That will find an error again.
        drop(self.bytes().map(<[u8]>::len));
    }
}
