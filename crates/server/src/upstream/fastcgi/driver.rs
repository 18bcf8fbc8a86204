//! One exchange with a FastCGI application, from the first byte of the request to the end of the answer.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sendoff_fastcgi::handover::{Hints, Record};
use sendoff_fastcgi::record::{EndRequest, Kind};
use sendoff_fastcgi::{Decoder, Part};
use tokio::io::Interest;

use super::connections::Place;
use super::outgoing::Outgoing;
use super::peer::{Connection, Kept, Last, Peer};
use super::stream::Stream;
use crate::segment::Segment;
use crate::upstream::cgi::{REQUEST_ID, StreamedRequest};
use crate::upstream::inbox::{Event, Inbox};
use crate::upstream::worker::region::{BadRegion, LinkRegion};

/// What one read may bring, in bytes.
const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next read.
const RECEIVE_MIN: usize = 16 * 1024;
/// Descriptors that may wait for the record that brings them: an application has one to send.
const MAX_WAITING_FDS: usize = 1;

/// `protocolStatus` of an `END_REQUEST` that refuses (FastCGI 1.0 §5.5).
const CANT_MPX_CONN: u8 = 1;
const OVERLOADED: u8 = 2;

/// Sends a request and receives its answer at the same time: an application may answer before it has read everything,
/// and wait for its answer to be taken.
pub(super) struct Driver {
    peer: Arc<Peer>,
    place: Place<Kept>,
    stream: Stream,
    /// What of a new connection's bytes nobody had read when we looked last, in the kernel's counting.
    unread: u64,
    /// The request before this one on a kept connection, which the peer may have closed meanwhile.
    previous: Option<u16>,
    /// Whoever is at the other end knows what to do with a client's socket.
    pub(super) knows_direct: bool,
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
    pub(super) inbox: Rc<Inbox>,
    /// The rest of the body comes on a link, which has a clock of its own.
    pub(super) may_be_silent: Rc<Cell<bool>>,
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
    /// A `request` over a `connection`. The socket of its `client` goes along if the request lends it and whoever is at
    /// the other end of a kept connection knows what to do with it.
    pub(super) fn new(
        peer: Arc<Peer>,
        connection: Connection,
        request: Rc<StreamedRequest>,
        client: Option<BorrowedFd<'_>>,
        log_name: Rc<str>,
    ) -> Self {
        let Connection { place, stream, region, last } = connection;
        let knows_direct = last.is_some_and(|last| last.hints.direct);
        let client = client.filter(|_| knows_direct && !request.client.is_empty());
        let lent = client.and_then(|client| Lent::new(client).ok());
        let id = last.map_or(REQUEST_ID, |last| next_id(last.id));
        let request = if id == REQUEST_ID && lent.is_none() {
            request
        } else {
            Rc::new(request.with(id, lent.is_some()))
        };
        Self {
            peer,
            place,
            stream,
            unread: 0,
            previous: last.map(|last| last.id),
            knows_direct,
            lent,
            hints: Hints::default(),
            outgoing: Outgoing::new(request, id),
            decoder: Decoder::default(),
            buffer: BytesMut::new(),
            descriptors: VecDeque::new(),
            region,
            inbox: Rc::default(),
            may_be_silent: Rc::default(),
            log_name,
        }
    }

    pub(super) async fn run(mut self) {
        let mut heard = false;
        let result = self.exchange(&mut heard).await;
        let Self { peer, place, stream, region, outgoing, decoder, buffer, .. } = self;
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
                let address = &peer.address;
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
            () = tokio::time::sleep(self.peer.timeout), if may_read => {
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
            Part::Record { kind: Kind::END_REQUEST, content, padding, .. } => {
                if matches!(self.stream, Stream::Unix(_)) {
                    self.hints = Hints::of(&padding);
                }
                self.peer.note_hints(self.hints);
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
        let (address, request) = (&self.peer.address, &*self.log_name);
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
