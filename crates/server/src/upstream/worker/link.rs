//! One event loop's link to one worker: the socket, and what the events of its machine mean for the server.
//!
//! What may come when is decided in [`sendoff_link::front`]. Here is what needs a socket, files or other tasks.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sendoff_fastcgi::handover::FileId;
use sendoff_link::front::{self, Caller, ClientSocket, Ended, Front, Hangup, Output};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::claims::Claims;
use super::files::{BadFile, HandedFiles};
use super::guard::Answers;
use super::pool::{Pool, Ticket, WorkerId};
use super::region::{BadRegion, LinkRegion};
use super::register::{NewLink, Origin};
use crate::segment::{OpenFile, Segment};
use crate::upstream::cgi::RequestMessage;
use crate::upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use crate::upstream::inbox::{Event, Inbox};
use crate::upstream::script_log::{Budget, Entry, Records, ScriptLog, Severity};

#[cfg(test)]
pub(in crate::upstream) mod tests;

/// What one `recvmsg` may bring, in bytes.
const RECEIVE: usize = 64 * 1024;
/// A buffer with less room than this is replaced before the next `recvmsg`.
const RECEIVE_MIN: usize = 16 * 1024;

/// Files that a worker has released or that were recalled, and that clients are still to get: at most this many per link.
/// Guarded files count among a worker's 256 until the front has answered, so only sealed ones can come near.
const MAX_LEAVING: usize = 1024;

/// The links of one event loop.
pub type Links = RefCell<HashMap<WorkerId, Rc<Link>>>;

/// A link to a worker.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    pid: i32,
    front: RefCell<Front<Server>>,
    /// A task waits for the socket to take more.
    is_flushing: Cell<bool>,
}

/// What the machine keeps for the server.
#[derive(Debug)]
struct Server;

impl Caller for Server {
    type Received = OwnedFd;
    type Attached = Attachment;
    type Held = Work;
    type Recipient = Rc<Inbox>;
}

/// A descriptor that goes along with a request.
#[derive(Debug)]
enum Attachment {
    /// The client's socket.
    Client(OwnedFd),
    /// The file with the request body.
    Body(Rc<OwnedFd>),
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Client(socket) => socket.as_fd(),
            Self::Body(file) => file.as_fd(),
        }
    }
}

/// A request at which the worker works, perhaps behind the end of its response.
#[derive(Debug)]
struct Work {
    /// Dropped when the worker is free. `None`: the front does not give this process its requests.
    _ticket: Option<Ticket>,
    /// The request, for the log.
    label: Rc<str>,
}

/// Why the link's task ends.
#[derive(Debug)]
enum Failure {
    Ended(Hangup),
    Broken(String),
}

impl From<front::Broken> for Failure {
    fn from(broken: front::Broken) -> Self {
        Self::Broken(broken.to_string())
    }
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
        let rules = match origin {
            Origin::Pool(_) => front::Origin::Pool,
            Origin::Channel => front::Origin::Channel,
        };
        let link = Rc::new(Self {
            socket: UnixStream::from_std(socket)?,
            pid,
            front: RefCell::new(Front::new(rules)),
            is_flushing: Cell::new(false),
        });
        if let Origin::Pool(worker) = origin {
            links.borrow_mut().insert(worker, Rc::clone(&link));
            pool.link_made(worker, event_loop);
        }
        let (pool, links) = (Arc::clone(pool), Rc::clone(links));
        let mut reader = Reader::new(&link, guard, number, claims);
        tokio::task::spawn_local(async move {
            let failure = match reader.run(&link).await {
                Ok(never) => match never {},
                Err(failure) => failure,
            };
            if let Origin::Pool(worker) = origin {
                pool.remove(worker);
                links.borrow_mut().remove(&worker);
            }
            reader.end(&link);
            link.lose(failure);
        });
        Ok(())
    }

    /// Gives the worker a request, and the socket of its `client` if the request lends it. What the socket does not take
    /// at once is sent by a task of the link's. `label` names the request in the log.
    ///
    /// # Errors
    /// The worker is gone and has not read the request, or there is no descriptor left to lend the client's socket with.
    pub fn begin(
        self: &Rc<Self>,
        ticket: Ticket,
        request: &RequestMessage,
        client: Option<BorrowedFd<'_>>,
        label: Rc<str>,
    ) -> Result<WorkerExchange, UpstreamError> {
        // In the order of their records.
        let mut attached = Vec::new();
        if let Some(client) = client.filter(|_| request.lends) {
            attached.push(Attachment::Client(client.try_clone_to_owned().map_err(no_descriptor)?));
        }
        attached.extend(request.body.clone().map(Attachment::Body));
        let socket = if request.lends { ClientSocket::Lent } else { ClientSocket::Kept };
        let request = front::Request { records: request.records.clone(), attached, client: socket };
        let work = Work { _ticket: Some(ticket), label };
        let inbox = Rc::new(Inbox::default());
        let begun = self.front.borrow_mut().begin(request, work, Rc::clone(&inbox));
        begun.map_err(|front::NotIdle| UpstreamError::died(Retry::Safe))?;
        if self.flush().is_err() {
            // The link's task finds the link closed and gives up what the machine holds, ticket and all.
            inbox.end();
            self.close();
            return Err(UpstreamError::died(Retry::Safe));
        }
        Ok(WorkerExchange { link: Rc::clone(self), inbox })
    }

    /// Sends what the socket takes; a task sends the rest. The socket is tried without asking the event loop, which learns
    /// only in its next round that a new link takes something.
    fn flush(self: &Rc<Self>) -> io::Result<()> {
        let at_once = |bytes: &[u8], attached: &[Attachment]| send(&self.socket, bytes, attached);
        if self.is_flushing.get() || self.send_with(at_once)? {
            return Ok(());
        }
        self.is_flushing.set(true);
        let link = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if link.send_rest().await.is_err() {
                // The link's task finds it closed.
                link.close();
            }
            link.is_flushing.set(false);
        });
        Ok(())
    }

    async fn send_rest(&self) -> io::Result<()> {
        let if_ready = |bytes: &[u8], attached: &[Attachment]| {
            self.socket.try_io(Interest::WRITABLE, || send(&self.socket, bytes, attached))
        };
        loop {
            self.socket.writable().await?;
            if self.send_with(if_ready)? {
                return Ok(());
            }
        }
    }

    /// Sends until the socket takes no more. Returns whether everything is sent.
    fn send_with(
        &self,
        send: impl Fn(&[u8], &[Attachment]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut front = self.front.borrow_mut();
        while let Some((bytes, attached)) = front.outbox().next() {
            match send(bytes, attached) {
                Ok(n) => front.outbox().sent(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The last thing the link's task does.
    fn lose(&self, failure: Failure) {
        let ended = match failure {
            Failure::Ended(how) => self.front.borrow_mut().ended(how),
            Failure::Broken(why) => {
                self.log_broken(&why);
                self.front.borrow_mut().broken()
            }
        };
        let Ended { recipient, held, broken } = ended;
        if let Some(broken) = broken {
            self.log_broken(&broken.to_string());
        }
        if let Some((inbox, retry)) = recipient {
            inbox.push(Event::Failed(UpstreamError::died(retry)));
        }
        drop(held);
        // The worker must notice even if the connection's task keeps the link for a while.
        self.close();
    }

    /// Ends the link, and with it the worker, once it has finished what it is at work on.
    pub(super) fn close(&self) {
        // It fails only if the worker has closed it before.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Gives up the response that goes to `inbox`: the worker is told, and what it still sends is dropped.
    fn abandon(self: &Rc<Self>, inbox: &Rc<Inbox>) {
        inbox.clear();
        let given_up = self.front.borrow_mut().give_up(|recipient| Rc::ptr_eq(recipient, inbox));
        if given_up.is_some() && self.flush().is_err() {
            self.close();
        }
    }

    /// The worker breaks the rules in a way that its records do not show: it gets no more requests.
    fn break_off(&self, why: &str) {
        self.log_broken(why);
        self.close();
    }

    fn log_broken(&self, why: &str) {
        tracing::error!(worker = self.pid, "broken worker, its link is closed: {why}");
    }

    /// Passes a part of the response on, if it is wanted.
    fn deliver(&self, event: Event) {
        if let Some(inbox) = self.front.borrow().recipient() {
            inbox.push(event);
        }
    }

    /// Where what comes now goes, if the connection's task is behind with it.
    fn full_inbox(&self) -> Option<Rc<Inbox>> {
        self.front.borrow().recipient().filter(|inbox| inbox.is_full()).cloned()
    }

    fn log(&self, Entry { severity, text }: Entry) {
        let front = self.front.borrow();
        let request = front.held().map_or("no request", |work| &*work.label);
        match severity {
            Severity::Fatal => tracing::error!(worker = self.pid, request, "{text}"),
            Severity::Other => tracing::warn!(worker = self.pid, request, "{text}"),
        }
    }
}

fn no_descriptor(error: io::Error) -> UpstreamError {
    let why = format!("it cannot be lent the client's socket: {error}");
    UpstreamError::new(UpstreamErrorKind::Server, Retry::Safe, why)
}

fn send(socket: &UnixStream, bytes: &[u8], attached: &[Attachment]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = attached.iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives on a link and does what its machine says.
struct Reader {
    buffer: BytesMut,
    descriptors: VecDeque<OwnedFd>,
    files: HandedFiles,
    /// Files of which a segment was passed on and which may be on their way to clients, also after their release.
    sent: HashMap<FileId, Weak<OpenFile>>,
    region: LinkRegion,
    log: ScriptLog,
    budget: Budget,
    claims: Rc<Claims>,
}

impl Reader {
    fn new(link: &Rc<Link>, guard: OwnedFd, number: u8, claims: &Rc<Claims>) -> Self {
        let weak = Rc::downgrade(link);
        let answers = Answers::new(guard, number, move |why| {
            if let Some(link) = weak.upgrade() {
                link.break_off(why);
            }
        });
        Self {
            buffer: BytesMut::new(),
            descriptors: VecDeque::new(),
            files: HandedFiles::new(answers),
            sent: HashMap::new(),
            region: LinkRegion::default(),
            log: ScriptLog::new(Records::Messages),
            budget: Budget::default(),
            claims: Rc::clone(claims),
        }
    }

    async fn run(&mut self, link: &Rc<Link>) -> Result<std::convert::Infallible, Failure> {
        loop {
            while let Some(inbox) = link.full_inbox() {
                inbox.room.notified().await;
            }
            self.receive(link).await?;
            loop {
                let output = link.front.borrow_mut().next(&mut self.buffer, &mut self.descriptors);
                let Some(output) = output? else { break };
                self.handle(link, output)?;
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
        match received {
            Ok(0) => Err(Failure::Ended(Hangup::Closed)),
            Ok(_) => Ok(()),
            // The worker died with something in its receive queue.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                Err(Failure::Ended(Hangup::Reset))
            }
            Err(error) => Err(Failure::Broken(format!("its link cannot be read: {error}"))),
        }
    }

    fn handle(&mut self, link: &Rc<Link>, output: Output<Server>) -> Result<(), Failure> {
        match output {
            Output::Event(event) => self.event(link, event)?,
            Output::Piece(piece) => {
                if let Some(bytes) = self.region.piece(piece)? {
                    link.deliver(Event::Piece(bytes));
                }
            }
            Output::Ended { recipient, free } => {
                self.budget.flush(|entry| link.log(entry));
                if let Some(inbox) = recipient {
                    inbox.push(Event::End);
                }
                // The worker may get its next request right here.
                drop(free);
            }
            Output::Ready(work) => drop(work),
            Output::Open(id, descriptor) => {
                self.files.open(id, descriptor)?;
                self.check_leaving(link)?;
            }
            Output::Recall(id) => self.files.recall(id),
            Output::Release(id) => self.files.release(id)?,
            Output::Region(descriptor) => self.region.announce(&descriptor)?,
            Output::Claim(secret) => {
                let claimed_on = Rc::clone(link);
                let recipient = self.claims.take(secret, move |inbox| claimed_on.abandon(inbox));
                let work = Work { _ticket: None, label: "claimed".into() };
                link.front.borrow_mut().claim(work, recipient);
                if link.flush().is_err() {
                    link.close();
                }
            }
            Output::Log { text, ends_record } => {
                let (now, log) = (Instant::now(), |entry| link.log(entry));
                self.log.push(&text, ends_record, now, &mut self.budget, log);
            }
        }
        Ok(())
    }

    fn event(&mut self, link: &Link, event: front::Event<OwnedFd>) -> Result<(), Failure> {
        link.deliver(match event {
            front::Event::Bytes(bytes) => Event::Segment(Segment::Bytes(bytes)),
            front::Event::Segment { file, offset, length } => {
                let segment = self.files.segment(file, offset, length)?;
                if let Segment::File(part) = &segment {
                    self.sent.entry(file).or_insert_with(|| Rc::downgrade(&part.file));
                }
                Event::Segment(segment)
            }
            front::Event::Length(length) => Event::Length(length),
            front::Event::Sent(sent) => Event::Sent(sent),
            front::Event::Named(file) => Event::Named(file),
            front::Event::Explanation(text) => Event::Explanation(text),
        });
        Ok(())
    }

    /// Files that the worker does not have open any more hold descriptors as long as clients are to get them.
    fn check_leaving(&mut self, link: &Link) -> Result<(), Failure> {
        let limit = MAX_LEAVING + link.front.borrow().files();
        if self.sent.len() > limit {
            self.sent.retain(|_, file| file.strong_count() > 0);
        }
        if self.sent.len() > limit {
            let why =
                format!("more than {MAX_LEAVING} files that it has released are on their way");
            return Err(Failure::Broken(why));
        }
        Ok(())
    }

    fn end(&mut self, link: &Link) {
        self.files.orphan();
        self.budget.flush(|entry| link.log(entry));
    }
}

/// One request to a worker and its response. Dropped before the last event, it gives the rest up.
#[derive(Debug)]
pub struct WorkerExchange {
    link: Rc<Link>,
    inbox: Rc<Inbox>,
}

impl WorkerExchange {
    /// What the worker has said.
    pub(in crate::upstream) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The worker breaks the rules in a way that its records do not show: it gets no more requests.
    pub(in crate::upstream) fn give_up(&self, why: &str) {
        self.link.break_off(why);
    }

    /// The process that answers, for the log.
    #[must_use]
    pub fn worker_pid(&self) -> i32 {
        self.link.pid
    }
}

impl Drop for WorkerExchange {
    fn drop(&mut self) {
        if !self.inbox.has_ended() {
            self.link.abandon(&self.inbox);
        }
    }
}
