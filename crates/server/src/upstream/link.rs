//! One event loop's link to one worker: requests go out, segments come in.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sendoff_fastcgi::handover::{MAX_EXPLANATION, MAX_FDS_PER_MESSAGE, Record};
use sendoff_fastcgi::record::{EndRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, Part};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::cgi::{REQUEST_ID, RequestMessage};
use super::channel::Claims;
use super::files::{BadFile, HandedFiles};
use super::inbox::{Event, Inbox};
use super::pool::{Pool, Ticket, WorkerId};
use super::region::{BadRegion, LinkRegion};
use super::register::{NewLink, Origin};
use super::watch::{Stuck, Watch};
use crate::segment::Segment;

/// What one `recvmsg` may bring, in bytes.
const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next `recvmsg`.
const RECEIVE_MIN: usize = 16 * 1024;
/// Descriptors that may wait for their `OPEN` record: the rest of one message's and those of the next.
const MAX_WAITING_FDS: usize = 2 * MAX_FDS_PER_MESSAGE;

/// The links of one event loop.
pub type Links = RefCell<HashMap<WorkerId, Rc<Link>>>;

/// A link to a worker.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    pid: i32,
    state: RefCell<State>,
    /// That of the request at hand. Ours is always the same; a process that claims requests counts.
    request_id: Cell<u16>,
}

/// ```text
///        begin             END_REQUEST
///  Idle ───────▶ Answering ───────────▶ Idle
///                  │ DETACH, END_REQUEST   ▲ READY
///                  └────────▶ Detached ────┘       any: link closed or broken ──▶ Lost
/// ```
/// On a link that a process has opened itself, `CLAIM` takes the place of `begin`, and nothing is ever detached.
#[derive(Debug)]
enum State {
    Idle,
    Answering(Answering),
    Detached { _ticket: Ticket },
    Lost,
}

/// A request the worker is at work on.
#[derive(Debug)]
struct Answering {
    /// `None`: the worker is not ours to give work to.
    ticket: Option<Ticket>,
    inbox: Rc<Inbox>,
    /// Nobody wants the rest of the response.
    abandoned: bool,
    detached: bool,
    body_begun: bool,
    /// `NAMED` has come.
    named: bool,
    /// The worker has the client's socket, unless `body_begun`.
    lent: bool,
    /// When the script was last seen to do something.
    watch: Watch,
    log_name: Rc<str>,
}

/// Why a link can no longer be used.
#[derive(Debug)]
enum Failure {
    Closed { unread: bool },
    Broken(String),
}

impl From<BadFile> for Failure {
    fn from(BadFile(what): BadFile) -> Self {
        Self::Broken(what.to_owned())
    }
}

impl From<BadRegion> for Failure {
    fn from(BadRegion(what): BadRegion) -> Self {
        Self::Broken(what)
    }
}

impl From<sendoff_fastcgi::Error> for Failure {
    fn from(error: sendoff_fastcgi::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Link {
    /// Makes the link, starts its task and tells the pool.
    ///
    /// # Errors
    /// The socket could not be registered with the event loop.
    pub fn start(
        new: NewLink,
        event_loop: usize,
        pool: &Arc<Pool>,
        links: &Rc<Links>,
        claims: &Rc<Claims>,
    ) -> io::Result<()> {
        let NewLink { origin, pid, number, socket, guard } = new;
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let link = Rc::new(Self {
            socket: UnixStream::from_std(socket)?,
            pid,
            state: RefCell::new(State::Idle),
            request_id: Cell::new(REQUEST_ID),
        });
        if let Origin::Pool(worker) = origin {
            links.borrow_mut().insert(worker, Rc::clone(&link));
            pool.link_made(worker, event_loop);
        }
        let (pool, links) = (Arc::clone(pool), Rc::clone(links));
        let claims = (origin == Origin::Channel).then(|| Rc::clone(claims));
        tokio::task::spawn_local(async move {
            let mut reader = Reader {
                decoder: Decoder::default(),
                buffer: BytesMut::new(),
                descriptors: VecDeque::new(),
                files: HandedFiles::new(guard, number),
                region: LinkRegion::default(),
                claims,
            };
            let failure = match reader.run(&link).await {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            if let Origin::Pool(worker) = origin {
                pool.remove(worker);
                links.borrow_mut().remove(&worker);
            }
            reader.files.orphan();
            link.lose(failure);
        });
        Ok(())
    }

    /// Gives the worker a request, and the socket of its `client` if the request lends it.
    ///
    /// # Errors
    /// The worker is gone and has not read it: try another one.
    pub async fn begin(
        self: &Rc<Self>,
        ticket: Ticket,
        request: &RequestMessage,
        client: Option<BorrowedFd<'_>>,
        log_name: Rc<str>,
    ) -> io::Result<Exchange> {
        if !matches!(*self.state.borrow(), State::Idle) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let inbox = Rc::new(Inbox::default());
        *self.state.borrow_mut() = State::Answering(Answering {
            ticket: Some(ticket),
            inbox: Rc::clone(&inbox),
            abandoned: false,
            detached: false,
            body_begun: false,
            named: false,
            lent: request.lends,
            watch: Watch::new(client.filter(|_| request.lends)),
            log_name,
        });
        let exchange = Exchange { link: Rc::clone(self), inbox };
        // In the order of their records.
        let client = client.filter(|_| request.lends);
        let descriptors: Vec<_> =
            client.into_iter().chain(request.body.as_ref().map(|body| body.as_fd())).collect();
        if let Err(error) = self.send(&request.records, &descriptors).await {
            // Half a request may be on the link: its task finds it closed and gives it up, ticket and all.
            self.close();
            exchange.inbox.end();
            return Err(error);
        }
        Ok(exchange)
    }

    async fn send(&self, mut bytes: &[u8], mut descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        while !bytes.is_empty() {
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !descriptors.is_empty() {
                    control.push(SendAncillaryMessage::ScmRights(descriptors));
                }
                Ok(sendmsg(
                    &self.socket,
                    &[IoSlice::new(bytes)],
                    &mut control,
                    SendFlags::NOSIGNAL,
                )?)
            });
            match sent {
                Ok(n) => {
                    bytes = &bytes[n..];
                    descriptors = &[];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The last thing the link's task does.
    fn lose(&self, failure: Failure) {
        let before = std::mem::replace(&mut *self.state.borrow_mut(), State::Lost);
        let has_expired =
            matches!(&before, State::Answering(answering) if answering.watch.has_expired());
        let unread = match failure {
            Failure::Closed { unread } => unread,
            Failure::Broken(why) => {
                // A worker that is killed at its deadline may leave half a record.
                if !has_expired {
                    tracing::error!(worker = self.pid, "broken worker, its link is closed: {why}");
                }
                false
            }
        };
        if let State::Answering(answering) = before
            && !answering.abandoned
        {
            let last = if has_expired { Event::TimedOut } else { Event::Lost { unread } };
            answering.inbox.push(last);
        }
        // The worker must notice even if the connection's task keeps the link for a while.
        self.close();
    }

    /// Ends the link, and with it the worker, once it has finished what it is at work on.
    pub(super) fn close(&self) {
        // It fails only if the worker has closed it before.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Stops caring for the response in `inbox`: the worker is told, and what it still sends is dropped.
    pub(super) fn abandon(&self, inbox: &Rc<Inbox>) {
        inbox.clear();
        if let State::Answering(answering) = &mut *self.state.borrow_mut()
            && Rc::ptr_eq(&answering.inbox, inbox)
        {
            answering.abandoned = true;
            answering.watch.forget_client();
            self.abort();
        }
    }

    /// Looks after the script that has a request of ours. If it has just become stuck, its request ends; the caller
    /// takes the worker out of the pool and has it replaced.
    pub(super) fn expire(&self, now: Instant, limit: Duration) -> Option<Stuck> {
        let mut state = self.state.borrow_mut();
        let State::Answering(answering) = &mut *state else { return None };
        // A process that has claimed a request has its deadline where the request went.
        answering.ticket.as_ref()?;
        let waits_for_client = !answering.abandoned && answering.inbox.is_full();
        if !answering.watch.expires(now, limit, waits_for_client) {
            return None;
        }
        // A worker that may write to the client could do so beside our answer. The request then ends with the worker's
        // death, which closes the link.
        if answering.abandoned || !answering.lent || answering.body_begun {
            if !std::mem::replace(&mut answering.abandoned, true) {
                answering.inbox.push(Event::TimedOut);
            }
            self.close();
        }
        Some(Stuck { pid: self.pid, request: Rc::clone(&answering.log_name) })
    }

    fn abort(&self) {
        let abort = Header::new(Kind::ABORT_REQUEST, self.request_id.get(), 0).encode();
        // If even 8 bytes do not fit now, the worker finds out at the end of its response.
        drop(self.socket.try_write(&abort));
    }

    /// `CLAIM`: the body of a request that went elsewhere follows.
    fn claimed(self: &Rc<Self>, request_id: u16, inbox: Option<Rc<Inbox>>) -> Result<(), Failure> {
        if !matches!(*self.state.borrow(), State::Idle) {
            return Err(out_of_place(Kind::CLAIM));
        }
        self.request_id.set(request_id);
        let abandoned = inbox.is_none();
        *self.state.borrow_mut() = State::Answering(Answering {
            ticket: None,
            inbox: inbox.unwrap_or_default(),
            abandoned,
            detached: false,
            named: false,
            lent: false,
            watch: Watch::new(None),
            body_begun: true,
            log_name: "claimed".into(),
        });
        if abandoned {
            self.abort();
        }
        Ok(())
    }

    /// Where what comes now goes, if the connection's task is behind with it.
    fn full_inbox(&self) -> Option<Rc<Inbox>> {
        match &*self.state.borrow() {
            State::Answering(answering) if answering.inbox.is_full() => {
                Some(Rc::clone(&answering.inbox))
            }
            _ => None,
        }
    }
}

/// Reads a link and gives every part to whom it concerns.
struct Reader {
    decoder: Decoder,
    buffer: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    files: HandedFiles,
    region: LinkRegion,
    /// What may be claimed here; `None` on the link of a worker of ours.
    claims: Option<Rc<Claims>>,
}

impl Reader {
    async fn run(&mut self, link: &Rc<Link>) -> Result<std::convert::Infallible, Failure> {
        loop {
            while let Some(inbox) = link.full_inbox() {
                inbox.room.notified().await;
            }
            self.receive(link).await?;
            while let Some(part) = self.decoder.next(&mut self.buffer)? {
                self.handle(link, part)?;
            }
        }
    }

    async fn receive(&mut self, link: &Link) -> Result<(), Failure> {
        if self.buffer.capacity() - self.buffer.len() < RECEIVE_MIN {
            self.buffer.reserve(RECEIVE);
        }
        let received = link.socket.async_io(Interest::READABLE, || {
            sendoff_sys::fdpass::receive(
                link.socket.as_fd(),
                &mut self.buffer,
                &mut self.descriptors,
            )
        });
        let received = received.await;
        if self.descriptors.is_empty() && self.buffer.len() < self.buffer.capacity() {
            // A short read has emptied the socket (unless it stopped at descriptors): forget that it was readable
            // instead of asking once more. Bytes that arrive meanwhile are a new event.
            let _ = link
                .socket
                .try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
        if self.descriptors.len() > MAX_WAITING_FDS {
            return Err(Failure::Broken("it sent descriptors that no record claims".to_owned()));
        }
        match received {
            Ok(0) if self.decoder.at_boundary() => Err(Failure::Closed { unread: false }),
            Ok(0) => Err(Failure::Broken("it closed the link inside a record".to_owned())),
            Ok(_) => Ok(()),
            // It died with something in its receive queue. Only a request that was not begun counts as unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                let unread = match &*link.state.borrow() {
                    State::Answering(answering) => !answering.abandoned && !answering.body_begun,
                    _ => false,
                };
                Err(Failure::Closed { unread })
            }
            Err(error) => Err(Failure::Broken(format!("its link cannot be read: {error}"))),
        }
    }

    fn handle(&mut self, link: &Rc<Link>, part: Part) -> Result<(), Failure> {
        let (Part::Stream { kind, request_id, .. }
        | Part::EndOfStream { kind, request_id }
        | Part::Record { kind, request_id, .. }) = part;
        let expected = match kind {
            // A worker may have something to say before its first request.
            Kind::STDERR => request_id,
            Kind::RECALL | Kind::RELEASE => 0,
            Kind::CLAIM if request_id != 0 => request_id,
            _ => link.request_id.get(),
        };
        if request_id != expected {
            return Err(out_of_place(kind));
        }
        match part {
            Part::Stream { kind: Kind::STDOUT, data, .. } => stdout(link, data),
            Part::Stream { kind: Kind::STDERR, data, .. } => {
                log_stderr(link, &data);
                Ok(())
            }
            Part::EndOfStream { kind: Kind::STDOUT | Kind::STDERR, .. } => Ok(()),
            Part::Record { kind: Kind::END_REQUEST, content, .. } => end_request(link, &content),
            Part::Record { kind: Kind::EXPLAIN, content, .. } => {
                if content.len() > MAX_EXPLANATION {
                    return Err(Failure::Broken("an explanation that is too long".to_owned()));
                }
                answering(link, Kind::EXPLAIN, |answering| {
                    answering.body_begun = true;
                    Some(Event::Explanation(content))
                })
            }
            Part::Record { kind, content, .. } => match Record::decode(kind, &content)? {
                Some(Record::Claim(secret)) => {
                    let claims = self.claims.as_ref().ok_or_else(|| out_of_place(kind))?;
                    link.claimed(request_id, claims.take(secret, link))
                }
                Some(record) => self.handover(link, record),
                None => Err(out_of_place(kind)),
            },
            Part::Stream { kind, .. } | Part::EndOfStream { kind, .. } => Err(out_of_place(kind)),
        }
    }

    fn handover(&mut self, link: &Link, record: Record) -> Result<(), Failure> {
        match record {
            Record::Open(id) => {
                let missing = || Failure::Broken("it announced a file and sent none".to_owned());
                let descriptor = self.descriptors.pop_front().ok_or_else(missing)?;
                self.files.open(id, descriptor)?;
            }
            Record::Segment { file, offset, length } => {
                let segment = self.files.segment(file, offset, length)?;
                answering(link, Kind::SEGMENT, |answering| {
                    answering.body_begun = true;
                    Some(Event::Segment(segment))
                })?;
            }
            Record::Length(length) => {
                let mut late = false;
                answering(link, Kind::LENGTH, |answering| {
                    late = answering.body_begun;
                    (!late).then_some(Event::Length(length))
                })?;
                if late {
                    return Err(out_of_place(Kind::LENGTH));
                }
            }
            Record::Detach => answering(link, Kind::DETACH, |answering| {
                answering.detached = true;
                None
            })?,
            Record::Ready => {
                let mut state = link.state.borrow_mut();
                if !matches!(*state, State::Detached { .. }) {
                    return Err(out_of_place(Kind::READY));
                }
                let before = std::mem::replace(&mut *state, State::Idle);
                drop(state);
                drop(before);
            }
            Record::Recall(id) => self.files.recall(id),
            Record::Release(id) => self.files.release(id)?,
            Record::Named => {
                let missing = || Failure::Broken("it named a file and sent none".to_owned());
                let descriptor = self.descriptors.pop_front().ok_or_else(missing)?;
                let mut again = false;
                answering(link, Kind::NAMED, |answering| {
                    answering.body_begun = true;
                    again = std::mem::replace(&mut answering.named, true);
                    Some(Event::Named(descriptor))
                })?;
                if again {
                    return Err(out_of_place(Kind::NAMED));
                }
            }
            Record::Region => {
                let missing = || Failure::Broken("it announced a region and sent none".to_owned());
                let descriptor = self.descriptors.pop_front().ok_or_else(missing)?;
                self.region.announce(&descriptor)?;
                answering(link, Kind::REGION, |_| None)?;
            }
            Record::Piece(piece) => {
                let piece = self.region.piece(piece)?;
                answering(link, Kind::PIECE, |answering| {
                    answering.body_begun = true;
                    piece.map(Event::Piece)
                })?;
            }
            Record::Body(_) => return Err(out_of_place(Kind::BODY)),
            Record::Sent(sent) => {
                let mut misplaced = false;
                answering(link, Kind::SENT, |answering| {
                    misplaced = answering.body_begun || !answering.lent;
                    answering.body_begun = true;
                    (!misplaced).then_some(Event::Sent(sent))
                })?;
                if misplaced {
                    return Err(out_of_place(Kind::SENT));
                }
            }
            Record::Claim(_) => return Err(out_of_place(Kind::CLAIM)),
        }
        Ok(())
    }
}

/// Passes a record on that belongs to a response, if one is under way.
fn answering(
    link: &Link,
    kind: Kind,
    pass: impl FnOnce(&mut Answering) -> Option<Event>,
) -> Result<(), Failure> {
    let State::Answering(answering) = &mut *link.state.borrow_mut() else {
        return Err(out_of_place(kind));
    };
    let event = pass(answering);
    if answering.abandoned {
        return Ok(());
    }
    answering.watch.spoke();
    if answering.body_begun {
        answering.watch.forget_client();
    }
    if let Some(event) = event {
        answering.inbox.push(event);
    }
    Ok(())
}

fn stdout(link: &Link, data: Bytes) -> Result<(), Failure> {
    answering(link, Kind::STDOUT, |answering| {
        answering.body_begun = true;
        Some(Event::Segment(Segment::Bytes(data)))
    })
}

fn end_request(link: &Link, content: &[u8]) -> Result<(), Failure> {
    let end = EndRequest::decode(content)?;
    if end.protocol_status != 0 {
        return Err(Failure::Broken("it refused the request".to_owned()));
    }
    let mut state = link.state.borrow_mut();
    let State::Answering(Answering { ticket, inbox, abandoned, detached, .. }) =
        std::mem::replace(&mut *state, State::Idle)
    else {
        return Err(out_of_place(Kind::END_REQUEST));
    };
    let free = match ticket {
        Some(ticket) if detached => {
            *state = State::Detached { _ticket: ticket };
            None
        }
        other => other,
    };
    drop(state);
    if !abandoned {
        inbox.push(Event::End);
    }
    // The worker may get its next request right here.
    drop(free);
    Ok(())
}

fn out_of_place(kind: Kind) -> Failure {
    Failure::Broken(format!("a record of type {} out of place", kind.0))
}

fn log_stderr(link: &Link, data: &[u8]) {
    let state = link.state.borrow();
    let request = match &*state {
        State::Answering(answering) => &*answering.log_name,
        _ => "no request",
    };
    for line in String::from_utf8_lossy(data).lines().filter(|line| !line.trim().is_empty()) {
        tracing::warn!(worker = link.pid, request, "{line}");
    }
}

/// One request and its answer. Dropped before the last event, it abandons the rest.
#[derive(Debug)]
pub struct Exchange {
    link: Rc<Link>,
    inbox: Rc<Inbox>,
}

impl Exchange {
    /// What it has said.
    pub(super) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The worker breaks the rules in a way that its records do not show: it gets no more requests.
    pub(super) fn give_up(&self, why: &str) {
        tracing::error!(worker = self.link.pid, "broken worker, its link is closed: {why}");
        self.link.close();
    }

    /// The process that answers, for the log.
    #[must_use]
    pub fn worker_pid(&self) -> i32 {
        self.link.pid
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.inbox.has_ended() {
            self.link.abandon(&self.inbox);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use sendoff_fastcgi::channel::Secret;
    use sendoff_fastcgi::direct::{self, Rest, Sent};
    use sendoff_fastcgi::handover::FileId;
    use sendoff_fastcgi::region::Piece;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::RequestMessageBuilder;
    use super::super::inbox::INBOX_EVENTS;
    use super::*;

    /// A link whose worker is played by the test, with the worker's end.
    pub(in crate::upstream) fn link() -> (Arc<Pool>, Rc<Links>, UnixStream) {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (guard, _) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pool, links) = (Pool::new(1), Rc::new(Links::default()));
        let new = NewLink {
            origin: Origin::Pool(WorkerId(0)),
            pid: 1,
            number: 0,
            socket: ours.into(),
            guard: guard.into(),
        };
        Link::start(new, 0, &pool, &links, &Rc::default()).unwrap();
        (pool, links, UnixStream::from_std(theirs).unwrap())
    }

    pub(in crate::upstream) async fn begin(pool: &Arc<Pool>, links: &Links) -> Exchange {
        let request = RequestMessageBuilder::new().with_bytes(b"");
        begin_with(pool, links, &request, None).await
    }

    async fn begin_with(
        pool: &Arc<Pool>,
        links: &Links,
        request: &RequestMessage,
        client: Option<BorrowedFd<'_>>,
    ) -> Exchange {
        let ticket = pool.acquire(0).await.unwrap();
        let link = Rc::clone(&links.borrow()[&ticket.worker()]);
        link.begin(ticket, request, client, "GET /".into()).await.unwrap()
    }

    pub(in crate::upstream) fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let test = async { tokio::time::timeout(Duration::from_secs(20), test).await };
        tokio::task::LocalSet::new().block_on(&runtime, test).expect("it hangs");
    }

    fn stdout(request_id: u16, text: &[u8]) -> Vec<u8> {
        let len = u16::try_from(text.len()).unwrap();
        [&Header::new(Kind::STDOUT, request_id, len).encode(), text].concat()
    }

    #[test]
    fn records_out_of_place_break_the_link() {
        let record = |record: Record, id| {
            let mut wire = Vec::new();
            record.encode(id, &mut wire);
            wire
        };
        let late_length = [stdout(1, b"x"), record(Record::Length(5), 1)].concat();
        for lie in [
            stdout(2, b"x"),
            stdout(0, b"x"),
            record(Record::Ready, 1),
            record(Record::Body(1), 1),
            record(Record::Claim(Secret([0; 16])), 1),
            record(Record::Open(FileId(1)), 1),
            record(Record::Release(FileId(9)), 0),
            record(Record::Named, 1),
            [&Header::new(Kind::EXPLAIN, 1, 1025).encode()[..], &[b'x'; 1025]].concat(),
            record(Record::Region, 1),
            record(Record::Piece(Piece { chunk: 0, last: true, offset: 0, length: 0 }), 1),
            // Without a socket to have sent it to.
            record(Record::Sent(SENT), 1),
            late_length,
            EndRequest { app_status: 0, protocol_status: 1 }.encode(1).to_vec(),
            EndRequest { app_status: 0, protocol_status: 0 }.encode(2).to_vec(),
            Header::new(Kind::STDIN, 1, 0).encode().to_vec(),
            b"HTTP/1.1".to_vec(),
        ] {
            run(async {
                let (pool, links, mut worker) = link();
                let exchange = begin(&pool, &links).await;
                worker.write_all(&lie).await.unwrap();
                while !matches!(exchange.inbox.next().await, Event::Lost { unread: false }) {}
                assert!(links.borrow().is_empty() && pool.workers() == 0, "{lie:?}");
                let mut rest = Vec::new();
                worker.read_to_end(&mut rest).await.unwrap();
            });
        }
    }

    const SENT: Sent = Sent {
        wire: 100,
        head: 50,
        framed: 0,
        rest: Rest::Length(0),
        status: 200,
        gone: false,
        surplus: false,
    };

    /// The socket goes with the request, before the body's descriptor; and it is given back once, at the beginning.
    #[test]
    fn a_lent_socket_is_given_back_once() {
        let mut sent = Vec::new();
        Record::Sent(SENT).encode(1, &mut sent);
        let mut length = Vec::new();
        Record::Length(5).encode(1, &mut length);
        let mut client = Vec::new();
        direct::Client { http_10: false, keep_alive: true, fields: b"" }.encode(1, &mut client);
        for lie in [&sent, &length, &client] {
            run(async {
                let (pool, links, mut worker) = link();
                let mut request = RequestMessageBuilder::new();
                request.lend(direct::Client { http_10: false, keep_alive: true, fields: b"" });
                let (socket, _end) = std::os::unix::net::UnixStream::pair().unwrap();
                let body = std::fs::File::open("/dev/null").unwrap();
                let request = request.with_file(Rc::new(body.into()), 0);
                let exchange = begin_with(&pool, &links, &request, Some(socket.as_fd())).await;
                let (mut buffer, mut fds) = (BytesMut::with_capacity(1000), VecDeque::new());
                sendoff_sys::fdpass::receive(worker.as_fd(), &mut buffer, &mut fds).unwrap();
                let is_socket = |fd: &OwnedFd| rustix::net::getsockname(fd).is_ok();
                assert_eq!(fds.iter().map(is_socket).collect::<Vec<_>>(), [true, false]);
                assert_eq!(buffer[..16 + client.len()][16..], client);
                worker.write_all(&sent).await.unwrap();
                assert!(matches!(exchange.inbox.next().await, Event::Sent(SENT)));
                worker.write_all(&stdout(1, b"more")).await.unwrap();
                assert!(matches!(exchange.inbox.next().await, Event::Segment(_)));
                worker.write_all(lie).await.unwrap();
                assert!(matches!(exchange.inbox.next().await, Event::Lost { unread: false }));
                assert_eq!(pool.workers(), 0);
            });
        }
    }

    #[test]
    fn descriptors_that_nobody_claims_break_the_link() {
        run(async {
            let (pool, links, worker) = link();
            let exchange = begin(&pool, &links).await;
            let fds = [worker.as_fd(); MAX_FDS_PER_MESSAGE];
            let piece = stdout(1, b"x");
            for _ in 0..3 {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                control.push(SendAncillaryMessage::ScmRights(&fds));
                let flags = SendFlags::NOSIGNAL;
                sendmsg(&worker, &[IoSlice::new(&piece)], &mut control, flags).unwrap();
            }
            while !matches!(exchange.inbox.next().await, Event::Lost { unread: false }) {}
        });
    }

    /// One file is named by a header block; a worker that goes on would fill the front with descriptors.
    #[test]
    fn a_second_named_file_breaks_the_link() {
        run(async {
            let (pool, links, worker) = link();
            let exchange = begin(&pool, &links).await;
            let mut records = Vec::new();
            Record::Named.encode(1, &mut records);
            Record::Named.encode(1, &mut records);
            let fds = [worker.as_fd(), worker.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&fds));
            sendmsg(&worker, &[IoSlice::new(&records)], &mut control, SendFlags::NOSIGNAL).unwrap();
            assert!(matches!(exchange.inbox.next().await, Event::Named(_)));
            while !matches!(exchange.inbox.next().await, Event::Lost { unread: false }) {}
        });
    }

    /// Segments hold no bytes, but a script could name files for ever.
    #[test]
    fn a_worker_waits_when_many_segments_lie_around() {
        run(async {
            let (pool, links, worker) = link();
            let exchange = begin(&pool, &links).await;
            let file = std::fs::File::open("/proc/self/exe").unwrap();
            let (mut open, mut segment) = (Vec::new(), Vec::new());
            Record::Open(FileId(1)).encode(1, &mut open);
            let named = Record::Segment { file: FileId(1), offset: 0, length: 1 };
            (0..100).for_each(|_| named.encode(1, &mut segment));
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = [file.as_fd()];
            control.push(SendAncillaryMessage::ScmRights(&fds));
            sendmsg(&worker, &[IoSlice::new(&open)], &mut control, SendFlags::NOSIGNAL).unwrap();
            let mut written = 0;
            // A link that is not read is full at some point: then nothing is taken for a while.
            let quiet = Duration::from_millis(200);
            while let Ok(ready) = tokio::time::timeout(quiet, worker.writable()).await {
                ready.unwrap();
                written += worker.try_write(&segment).unwrap_or(0);
                assert!(written < 10 << 20, "the front takes everything");
            }
            assert!(exchange.inbox.len() < 2 * INBOX_EVENTS + RECEIVE / 32);
            // All of it comes through in the end, and it is the room in the inbox that lets it.
            for _ in 0..written / 32 {
                assert!(matches!(exchange.inbox.next().await, Event::Segment(Segment::File(_))));
            }
        });
    }

    /// A request that cannot be sent costs the link, not the place in the pool.
    #[test]
    fn a_link_that_takes_no_request_is_given_up() {
        run(async {
            let (pool, links, worker) = link();
            let ticket = pool.acquire(0).await.unwrap();
            let link = Rc::clone(&links.borrow()[&ticket.worker()]);
            rustix::net::shutdown(&link.socket, rustix::net::Shutdown::Write).unwrap();
            let request = RequestMessageBuilder::new().with_bytes(b"");
            assert!(link.begin(ticket, &request, None, "GET /".into()).await.is_err());
            while pool.workers() > 0 {
                tokio::task::yield_now().await;
            }
            assert!(links.borrow().is_empty());
            drop(worker);
        });
    }
}
