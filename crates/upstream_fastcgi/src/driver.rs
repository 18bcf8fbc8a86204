//! One exchange with a FastCGI application, from the first byte of the request to the end of the
//! answer: the I/O for `answer.rs` and `outgoing.rs`.

mod lent_client;
mod sending;

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use sendoff_delivery::segment::Segment;
use sendoff_fastcgi::handover::{Hints, Sockets};
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::{REQUEST_ID, StreamedRequest};
use sendoff_upstream::inbox::{Event, Inbox};
use sendoff_upstream::script_log::{LogMessage, Records, ScriptLog, Severity};
use sendoff_upstream_worker::region::LinkRegion;
use tokio::io::Interest;

use super::answer::{AnswerEvent, FastCgiResponseParser, Medium, SocketHolder};
use super::connections::{ConnectionPermit, WAKE_UP};
use super::outgoing::Outgoing;
use super::peer::{Connection, KeptConnection, Last, Peer};
use super::stream::Stream;
use lent_client::LentClient;

/// The most bytes of one read.
const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next read.
const RECEIVE_MIN: usize = 16 * 1024;

/// A descriptor that goes along with the first byte of a request.
#[derive(Debug, Clone, Copy)]
pub enum SentAlong<'a> {
    /// None.
    Nothing,
    /// The client's socket, if the request lends it and the application has announced on this kept
    /// connection that it can use it.
    Client(BorrowedFd<'a>),
    /// The application's end of a connection on which it may answer. It goes over an exclusive
    /// connection.
    Tunnel(BorrowedFd<'a>),
}

/// Sends a request and receives its answer at the same time: an application may answer before it
/// has read the whole request, and block until its answer is read.
pub(super) struct Driver {
    peer: Arc<Peer>,
    permit: ConnectionPermit<KeptConnection>,
    stream: Stream,
    /// Bytes on a new connection that the peer had not read at the last check, as the kernel counts
    /// them.
    unread: u64,
    /// Time by which the process of a kept connection should have read the head of the request. The
    /// head's last byte is withheld until it has: then a request that is taken back never runs.
    /// `None`: nothing is withheld.
    read_by: Option<Instant>,
    /// The connection's writable state was cleared in the event loop.
    forgot_writable: bool,
    /// The application has announced on this connection that it can use a client's socket.
    pub(super) knows_direct: bool,
    /// The client's socket, if it was also lent to the application.
    lent: Option<LentClient>,
    /// The application's end of a connection for its answer, until it is sent.
    tunnel: Option<OwnedFd>,
    outgoing: Outgoing,
    answer: FastCgiResponseParser,
    buffer: BytesMut,
    /// Received descriptors that no record has claimed yet.
    descriptors: VecDeque<OwnedFd>,
    region: LinkRegion,
    log: ScriptLog,
    pub(super) inbox: Rc<Inbox>,
    /// The rest of the body comes on a link, which has a timeout of its own.
    pub(super) may_be_silent: Rc<Cell<bool>>,
    /// The end of the response as the application's log indicates it.
    ending: ResponseEnd,
    label: Rc<str>,
}

impl Driver {
    /// An exchange of `request` over `connection`.
    pub(super) fn new(
        peer: Arc<Peer>,
        connection: Connection,
        request: Rc<StreamedRequest>,
        along: SentAlong<'_>,
        label: Rc<str>,
    ) -> Self {
        let Connection { permit, stream, region, last } = connection;
        let takes = last.map_or(Sockets::None, |last| last.hints.direct);
        let knows_direct = takes.include(request.encrypted);
        let (client, tunnel) = match along {
            SentAlong::Nothing => (None, None),
            SentAlong::Client(client) => (Some(client), None),
            SentAlong::Tunnel(tunnel) => (None, tunnel.try_clone_to_owned().ok()),
        };
        let client = client.filter(|_| knows_direct && !request.client.is_empty());
        let lent = client.and_then(|client| LentClient::new(client).ok());
        let id = last.map_or(REQUEST_ID, |last| next_id(last.id));
        let request = if id == REQUEST_ID && lent.is_none() {
            request
        } else {
            Rc::new(request.with(id, lent.is_some()))
        };
        let medium = match stream {
            Stream::Unix(_) => Medium::Unix,
            Stream::Tcp(_) => Medium::Tcp,
        };
        let holder = if lent.is_some() { SocketHolder::Lent } else { SocketHolder::Front };
        let previous = last.map(|last| last.id);
        let mut answer = FastCgiResponseParser::new(id, previous, medium, holder);
        if tunnel.is_some() {
            answer.offer_tunnel();
        }
        Self {
            peer,
            permit,
            stream,
            unread: 0,
            read_by: None,
            forgot_writable: false,
            knows_direct,
            lent,
            tunnel,
            outgoing: Outgoing::new(request, id),
            answer,
            buffer: BytesMut::new(),
            descriptors: VecDeque::new(),
            region,
            log: ScriptLog::new(Records::Text),
            inbox: Rc::default(),
            may_be_silent: Rc::default(),
            ending: ResponseEnd::Complete,
            label,
        }
    }

    pub(super) async fn run(mut self) {
        let is_kept = self.answer.is_after_another();
        let result = self.exchange(is_kept).await;
        let (peer, label) = (Arc::clone(&self.peer), Rc::clone(&self.label));
        peer.log_budget().flush(|entry| log(&peer, &label, entry));
        let Self { permit, stream, region, outgoing, answer, buffer, .. } = self;
        let Self { inbox, descriptors, lent, .. } = self;
        drop(lent);
        inbox.push(match result {
            Ok((hints, ending)) => {
                // Bytes still in flight in either direction would be mistaken for a part of the
                // next exchange.
                let is_quiet = buffer.is_empty() && descriptors.is_empty();
                if outgoing.has_ended()
                    && is_quiet
                    && answer.is_at_boundary()
                {
                    let last = Last { id: outgoing.id, hints };
                    permit.keep(KeptConnection { parked: stream.park(), region, last });
                }
                Event::End(ending)
            }
            Err(error) => {
                if error.kind() == UpstreamErrorKind::Died && error.retry() == Retry::Unsafe {
                    peer.note_death_at_work();
                }
                if error.kind() == UpstreamErrorKind::Broken {
                    let address = &peer.address;
                    tracing::error!(%address, request = &*label, "broken FastCGI application: {error}");
                }
                Event::Failed(error)
            }
        });
    }

    async fn exchange(&mut self, is_kept: bool) -> Result<(Hints, ResponseEnd), UpstreamError> {
        if is_kept {
            self.read_by = self.stream.unread().map(|_| Instant::now() + WAKE_UP);
        }
        if is_kept || self.tunnel.is_some() {
            self.send_at_once()?;
        }
        let (mut writable, mut is_unanswered) = (true, !is_kept);
        loop {
            let sent = writable && self.send(&mut writable)?;
            let may_read = !self.inbox.is_full();
            let received = may_read && self.receive(&mut is_unanswered)?;
            if received {
                self.permit.note_taken();
                while let Some(output) =
                    self.answer.next(&mut self.buffer, &mut self.descriptors)?
                {
                    if let Some(end) = self.handle(output)? {
                        return Ok(end);
                    }
                }
            }
            if !sent && !received {
                if self.look_for_reader(false) {
                    continue;
                }
                let has_more = !self.outgoing.has_ended() && !self.outgoing.is_starved();
                let may_write = writable && (has_more || self.looks_for_reader());
                self.wait(may_read, may_write).await?;
            }
        }
    }

    /// The application has closed the connection; with `error`, if a read or write has failed. The
    /// kernel reports a reset once, so [`Stream::was_read`] does not see it any more.
    fn closed(&self, error: Option<&io::Error>) -> UpstreamError {
        let was_reset = error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset);
        let is_withheld = self.read_by.is_some();
        let were_read = !was_reset && !is_withheld && self.stream.was_read();
        self.answer.closed(self.outgoing.sent, were_read)
    }

    /// Receives bytes. `is_unanswered`: no byte has arrived on the connection yet.
    fn receive(&mut self, is_unanswered: &mut bool) -> Result<bool, UpstreamError> {
        *is_unanswered = *is_unanswered && !self.peer.note_answer(&self.stream);
        if self.buffer.capacity() - self.buffer.len() < RECEIVE_MIN {
            self.buffer.reserve(RECEIVE);
        }
        let received = self.stream.try_read(&mut self.buffer, &mut self.descriptors);
        match received {
            Ok(0) => Err(self.closed(None)),
            Ok(_) => Ok(true),
            Err(error) if is_for_later(&error) => Ok(false),
            Err(error) => Err(self.closed(Some(&error))),
        }
    }

    async fn wait(&mut self, may_read: bool, may_write: bool) -> Result<(), UpstreamError> {
        let interest = match (may_read, may_write) {
            (true, true) => Interest::READABLE | Interest::WRITABLE,
            (true, false) => Interest::READABLE,
            (false, true) => Interest::WRITABLE,
            (false, false) => {
                tokio::select! {
                    () = self.inbox.room.notified() => {}
                    () = self.outgoing.more(), if self.outgoing.is_starved() => {}
                }
                return Ok(());
            }
        };
        let is_starved = self.outgoing.is_starved();
        tokio::select! {
            // No process has the connection, and none will accept it.
            down = self.peer.down(), if !self.permit.was_taken() => Err(down),
            // The next read or write returns any error.
            _ = self.stream.ready(interest) => Ok(()),
            () = self.inbox.room.notified(), if !may_read => Ok(()),
            () = self.outgoing.more(), if is_starved => Ok(()),
            () = sleep_until(self.read_by) => match self.look_for_reader(false) {
                true => Ok(()),
                false => Err(UpstreamError::new(
                    UpstreamErrorKind::Died,
                    Retry::Safe,
                    "its process is still busy with an earlier request",
                )),
            },
            // No timeout while a slow client delays the exchange.
            () = tokio::time::sleep(self.peer.timeout), if may_read && !is_starved => {
                let is_lent = self.answer.holder() == SocketHolder::Lent;
                let is_elsewhere =
                    is_lent && self.lent.as_mut().is_some_and(LentClient::check_progress);
                if is_elsewhere || self.may_be_silent.get() {
                    Ok(())
                } else {
                    Err(UpstreamError::silent())
                }
            }
        }
    }

    /// Handles an event of the answer. At its end, returns the hints of the application and the
    /// kind of end.
    fn handle(
        &mut self,
        output: AnswerEvent<OwnedFd>,
    ) -> Result<Option<(Hints, ResponseEnd)>, UpstreamError> {
        match output {
            AnswerEvent::Bytes(bytes) => self.inbox.push(Event::Segment(Segment::Bytes(bytes))),
            AnswerEvent::Sent(sent) => self.inbox.push(Event::Sent(sent)),
            AnswerEvent::Tunnel => self.inbox.push(Event::Tunnel),
            AnswerEvent::Region(memory) => self.region.announce(&memory)?,
            AnswerEvent::Piece(piece) => {
                if let Some(bytes) = self.region.piece(piece)? {
                    self.inbox.push(Event::Piece(bytes));
                }
            }
            AnswerEvent::Explanation(text) => self.inbox.push(Event::Explanation(text)),
            AnswerEvent::Log { text, ends_record } => {
                let (peer, label) = (&self.peer, &self.label);
                let log = |entry: LogMessage| {
                    // php-fpm does not report a fatal error in its `END_REQUEST`.
                    if entry.severity == Severity::Fatal {
                        self.ending = ResponseEnd::Failed;
                    }
                    log(peer, label, entry);
                };
                let mut budget = peer.log_budget();
                self.log.push(&text, ends_record, Instant::now(), &mut budget, log);
            }
            AnswerEvent::End(hints, ending) => {
                self.peer.note_hints(hints);
                return Ok(Some((hints, self.ending.and(ending))));
            }
        }
        Ok(None)
    }
}

pub(super) fn log(peer: &Peer, request: &str, LogMessage { severity, text }: LogMessage) {
    let address = &peer.address;
    match severity {
        Severity::Fatal => tracing::error!(%address, request, "{text}"),
        Severity::Other => tracing::warn!(%address, request, "{text}"),
    }
}

/// Sleeps until `deadline`; forever if there is none.
async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

pub(super) fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The next id. It differs from the last request's, so a late record of that request is recognized.
fn next_id(last: u16) -> u16 {
    if last == REQUEST_ID { REQUEST_ID + 1 } else { REQUEST_ID }
}
