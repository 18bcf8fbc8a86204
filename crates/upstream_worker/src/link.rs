//! One event loop's link to one worker: requests go out here, `reader.rs` receives.
//!
//! [`sendoff_link::front`] decides which records may come when.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sendoff_link::front::{self, Caller, ClientSocket, Front, Hangup, LinkEnd};
use sendoff_report::at_work::Task;
use sendoff_transport::foreign::ForeignSocket;
use sendoff_transport::lent::LentSocket;
pub use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::RequestMessage;
pub use sendoff_upstream::inbox::{Event, Inbox};
pub use sendoff_upstream::script_log::{LogMessage, Severity};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::pool::{Pool, WorkerId, WorkerPermit};
use super::posted::{PostedRequest, PostedRequests};
use super::watch::{Late, Watch};

#[cfg(test)]
pub(crate) mod tests;

/// Pause before another attempt to send a request whose descriptors the kernel has refused with
/// `ETOOMANYREFS`. The kernel does not report when it would accept them.
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(1);

/// The links of one event loop to the workers of a pool.
pub type Links = RefCell<BTreeMap<WorkerId, Rc<Link>>>;

/// One event loop's view of a pool.
#[derive(Debug, Clone)]
pub struct LocalPool {
    /// State that all event loops share.
    pub shared: Arc<Pool>,
    /// This loop's links to the pool's workers.
    pub links: Rc<Links>,
    /// This loop's requests in the ring.
    pub posted: Rc<PostedRequests>,
}

impl LocalPool {
    /// A view that has no links yet.
    #[must_use]
    pub fn new(shared: Arc<Pool>) -> Self {
        Self { shared, links: Rc::default(), posted: Rc::default() }
    }

    /// The link to a worker; `None` if it is lost.
    #[must_use]
    pub fn link(&self, worker: WorkerId) -> Option<Rc<Link>> {
        self.links.borrow().get(&worker).cloned()
    }
}

/// A link to a worker.
#[derive(Debug)]
pub struct Link {
    pub(super) socket: ForeignSocket<UnixStream>,
    pid: i32,
    pub(super) front: RefCell<Front<Server>>,
    /// A task is waiting until the socket takes more.
    is_flushing: Cell<bool>,
}

/// The types that the server attaches to the link's state machine.
#[derive(Debug)]
pub(super) struct Server;

impl Caller for Server {
    type Received = OwnedFd;
    type Attached = Attachment;
    type Held = Work;
    type Recipient = Rc<Inbox>;
}

/// A descriptor that is sent along with a request.
#[derive(Debug)]
pub(super) enum Attachment {
    /// The client's socket.
    Client(Rc<LentSocket>),
    /// The file with the request body.
    Body(Rc<OwnedFd>),
    /// A file of the ring.
    Ring(OwnedFd),
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Client(socket) => socket.as_fd(),
            Self::Body(file) => file.as_fd(),
            Self::Ring(file) => file.as_fd(),
        }
    }
}

/// A request that the worker is working on, perhaps after the end of its response.
#[derive(Debug)]
pub(super) struct Work {
    /// Dropped when the worker is free. `None` for a process that gets its requests over FastCGI.
    permit: Option<WorkerPermit>,
    /// The request, for the log.
    label: Rc<str>,
    /// The request, for the status page.
    task: OnceCell<Rc<Task>>,
    /// Longest time without output, if the request has its own deadline; zero: no limit.
    deadline: Option<Duration>,
    /// Progress of the script.
    watch: RefCell<Watch>,
}

impl Work {
    /// `client`: the socket that the worker may write to.
    pub(super) fn new(
        permit: Option<WorkerPermit>,
        label: Rc<str>,
        client: Option<Rc<LentSocket>>,
    ) -> Self {
        let (deadline, task) = (None, OnceCell::new());
        Self { permit, label, task, deadline, watch: RefCell::new(Watch::new(client)) }
    }

    pub(super) fn with_deadline(self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self }
    }
}

/// Reason for the end of a link.
#[derive(Debug)]
pub(super) enum Ending {
    Ended(Hangup),
    Broken(String),
}

impl Link {
    /// The worker's process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The request that the worker works on for this event loop, as in the log.
    #[must_use]
    pub fn request(&self) -> Option<Rc<str>> {
        self.front.borrow().held().map(|work| Rc::clone(&work.label))
    }

    /// More about that request, if it was noted.
    #[must_use]
    pub fn task(&self) -> Option<Rc<Task>> {
        self.front.borrow().held().and_then(|work| work.task.get().cloned())
    }

    /// Notes more about the request that the worker was just given.
    pub fn note_task(&self, task: &Rc<Task>) {
        if let Some(work) = self.front.borrow().held() {
            // The cell is full only if the task was noted before.
            let _ = work.task.set(Rc::clone(task));
        }
        task.note_worker(self.pid);
    }

    pub(super) fn new(socket: UnixStream, pid: i32, rules: front::Origin) -> Rc<Self> {
        let front = RefCell::new(Front::new(rules));
        let socket = ForeignSocket::new(socket);
        Rc::new(Self { socket, pid, front, is_flushing: Cell::new(false) })
    }

    /// Gives the worker a request, and the socket of its `client` if the request lends it. A task
    /// of the link sends the bytes for which the socket has no room. `label` names the request in
    /// the log.
    ///
    /// # Errors
    /// The worker is gone and has not read the request, or there is no free descriptor to lend the
    /// client's socket with.
    pub fn begin(
        self: &Rc<Self>,
        permit: WorkerPermit,
        request: &RequestMessage,
        client: Option<BorrowedFd<'_>>,
        label: Rc<str>,
    ) -> Result<WorkerExchange, UpstreamError> {
        // Descriptors go in the order of their records.
        let mut lent = None;
        if let Some(client) = client.filter(|_| request.lends) {
            lent = Some(Rc::new(LentSocket::of(client).map_err(no_descriptor)?));
        }
        let body = request.body.clone().map(Attachment::Body);
        let attached = lent.clone().map(Attachment::Client).into_iter().chain(body).collect();
        let client = if request.lends { ClientSocket::Lent } else { ClientSocket::Kept };
        let records = request.records.clone();
        let deadline = request.deadline;
        let work = Work::new(Some(permit), label, lent).with_deadline(deadline);
        let inbox = Rc::new(Inbox::default());
        let begun = self.front.borrow_mut().begin(
            front::Request { records, attached, client },
            work,
            Rc::clone(&inbox),
        );
        begun.map_err(|front::NotIdle| UpstreamError::died(Retry::Safe))?;
        if self.flush().is_err() {
            // The link's task finds the link closed and drops the machine's state, including the
            // permit.
            self.close();
            return Err(UpstreamError::died(Retry::Safe));
        }
        Ok(WorkerExchange { place: Place::Link(Rc::clone(self)), inbox })
    }

    /// True if the link takes a request now.
    pub(super) fn is_idle(&self) -> bool {
        self.front.borrow().is_idle()
    }

    /// Notes that the worker has taken a request from the ring; see [`Front::take`].
    pub(super) fn take(
        self: &Rc<Self>,
        number: u64,
        is_announced: bool,
        work: Work,
        inbox: Option<Rc<Inbox>>,
    ) {
        // The callers have checked that the link is idle.
        let _idle = self.front.borrow_mut().take(number, is_announced, work, inbox);
        self.flush_or_close();
    }

    /// Gives the worker a seat in the ring.
    pub(super) fn pass_ring(self: &Rc<Self>, seat: u16, files: [OwnedFd; 2]) {
        let files = files.map(Attachment::Ring).into();
        self.front.borrow_mut().pass_ring(seat, files);
        self.flush_or_close();
    }

    /// Lets the worker look into the ring.
    pub(super) fn look(self: &Rc<Self>) {
        self.front.borrow_mut().look();
        self.flush_or_close();
    }

    /// Tells the worker that a request will not come which it has taken from the ring.
    pub(super) fn withdraw(self: &Rc<Self>, number: u64) {
        self.front.borrow_mut().withdraw(number);
        self.flush_or_close();
    }

    fn flush_or_close(self: &Rc<Self>) {
        if self.flush().is_err() {
            // The link's task finds the link closed.
            self.close();
        }
    }

    /// Sends as much as the socket takes; a task sends the rest. The first attempt does not ask the
    /// event loop, which would report a new link as writable only in its next round.
    pub(super) fn flush(self: &Rc<Self>) -> io::Result<()> {
        let at_once = |bytes: &[u8], attached: &[Attachment]| send(&self.socket, bytes, attached);
        if self.is_flushing.get() || self.send_with(at_once)? {
            return Ok(());
        }
        self.is_flushing.set(true);
        let link = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if link.send_rest().await.is_err() {
                // The link's task finds the link closed.
                link.close();
            }
            link.is_flushing.set(false);
        });
        Ok(())
    }

    async fn send_rest(&self) -> io::Result<()> {
        let is_refused = Cell::new(false);
        let if_ready = |bytes: &[u8], attached: &[Attachment]| {
            let sent = || send(&self.socket, bytes, attached);
            let sent = self.socket.try_io(Interest::WRITABLE, sent);
            sent.inspect_err(|error| is_refused.set(has_too_many_in_flight(error)))
        };
        loop {
            self.socket.writable().await?;
            if self.send_with(if_ready)? {
                return Ok(());
            }
            if is_refused.take() {
                tokio::time::sleep(IN_FLIGHT_PAUSE).await;
            }
        }
    }

    /// Sends until the socket takes no more. Returns true if everything is sent.
    fn send_with(
        &self,
        send: impl Fn(&[u8], &[Attachment]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut front = self.front.borrow_mut();
        while let Some((bytes, attached)) = front.outbox().next() {
            match send(bytes, attached) {
                Ok(n) => front.outbox().sent(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if has_too_many_in_flight(&error) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Ends the link. The last call of the link's task.
    pub(super) fn lose(&self, ending: Ending) {
        let (ended, why) = match ending {
            Ending::Ended(how) => (self.front.borrow_mut().ended(how), None),
            Ending::Broken(why) => (self.front.borrow_mut().broken(), Some(why)),
        };
        let LinkEnd { recipient, held, broken } = ended;
        let why = why.or_else(|| broken.map(|broken| broken.to_string()));
        // A worker that is killed at its deadline may leave a half-written record.
        let is_late = held.as_ref().is_some_and(|work| work.watch.borrow().has_expired());
        if let Some(why) = why.as_ref().filter(|_| !is_late) {
            self.log_broken(why, held.as_ref());
        }
        if let Some((inbox, retry)) = recipient {
            inbox.push(Event::Failed(match why {
                _ if is_late => UpstreamError::silent(),
                Some(why) => UpstreamError::broken(why),
                None => UpstreamError::died(retry),
            }));
        }
        drop(held);
        // The worker must notice even if the connection's task keeps the link for a while.
        self.close();
    }

    /// Closes the link. The worker finishes its current request and then ends.
    pub fn close(&self) {
        // Fails only if the worker has closed the link before.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Gives up the response that goes to `inbox`: the worker is told, and its further output is
    /// dropped.
    pub(super) fn abandon(self: &Rc<Self>, inbox: &Rc<Inbox>) {
        inbox.clear();
        let given_up = self.front.borrow_mut().give_up(|recipient| Rc::ptr_eq(recipient, inbox));
        if given_up.is_some() && self.flush().is_err() {
            self.close();
        }
    }

    /// The worker breaks the rules in a way that its records do not show: it gets no more requests.
    pub(super) fn break_off(&self, why: &str) {
        self.log_broken(why, self.front.borrow().held());
        self.close();
    }

    fn log_broken(&self, why: &str, held: Option<&Work>) {
        // The request is not at fault, but the log names it because the worker broke its response.
        let request = held.map_or("no request", |work| &*work.label);
        tracing::error!(worker = self.pid, request, "broken worker, its link is closed: {why}");
    }

    /// Passes a part of the response on, if the response is still wanted.
    pub(super) fn deliver(&self, event: Event) {
        let front = self.front.borrow();
        let Some(inbox) = front.recipient() else { return };
        if let Some(work) = front.held() {
            work.watch.borrow_mut().spoke(front.may_write_to_client());
        }
        inbox.push(event);
    }

    /// Checks the script that works on a request of the front's. Returns it when it has just become
    /// slow.
    pub(super) fn becomes_slow(&self, now: Instant, limit: Duration) -> Option<Late> {
        let front = self.front.borrow();
        let work = front.held().filter(|work| work.permit.is_some())?;
        let is_slow = work.watch.borrow_mut().becomes_slow(now, limit);
        is_slow.then(|| Late { pid: self.pid, request: Rc::clone(&work.label) })
    }

    /// Checks the script that works on a request of the front's. If it has just become stuck, its
    /// request ends; the caller takes the worker out of the pool and has it replaced. `limit` holds
    /// for requests without their own deadline.
    pub(super) fn expire(
        self: &Rc<Self>,
        now: Instant,
        limit: Option<Duration>,
    ) -> Option<(Late, Duration)> {
        let front = self.front.borrow();
        // After `fastcgi_finish_request()` a script has no deadline. A claimed request has its
        // deadline on the FastCGI connection that carried it.
        let work = front.held().filter(|work| front.is_answering() && work.permit.is_some())?;
        let limit = work.deadline.or(limit).filter(|limit| !limit.is_zero())?;
        let inbox = front.recipient().cloned();
        let waits_for_client = inbox.as_ref().is_some_and(|inbox| inbox.is_full());
        if !work.watch.borrow_mut().expires(now, limit, waits_for_client) {
            return None;
        }
        let stuck = Late { pid: self.pid, request: Rc::clone(&work.label) };
        let may_write_to_client = front.may_write_to_client();
        drop(front);
        // A worker that may write to the client could write into an error page. Its request ends
        // with the worker's death, which closes the link.
        if inbox.is_none() || !may_write_to_client {
            if let Some(inbox) = inbox {
                self.front.borrow_mut().give_up(|_| true);
                inbox.push(Event::Failed(UpstreamError::silent()));
            }
            self.close();
        }
        Some((stuck, limit))
    }

    /// The inbox of the current response, if the connection's task is behind with it.
    pub(super) fn full_inbox(&self) -> Option<Rc<Inbox>> {
        self.front.borrow().recipient().filter(|inbox| inbox.is_full()).cloned()
    }

    pub(super) fn log(&self, LogMessage { severity, text }: LogMessage) {
        let front = self.front.borrow();
        let request = front.held().map_or("no request", |work| &*work.label);
        match severity {
            Severity::Fatal => tracing::error!(worker = self.pid, request, "{text}"),
            Severity::Other => tracing::warn!(worker = self.pid, request, "{text}"),
        }
    }
}

/// True if the user's processes have as many descriptors in flight as one process may have open
/// (`ETOOMANYREFS`, unix(7)).
fn has_too_many_in_flight(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
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
    // The application that opened the link may hold this end, too, and clear its `O_NONBLOCK`:
    // hence `DONTWAIT`.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// One request to a worker and its response. Dropping it before the last event gives the rest of
/// the response up.
#[derive(Debug)]
pub struct WorkerExchange {
    place: Place,
    inbox: Rc<Inbox>,
}

/// The place of a request.
#[derive(Debug)]
enum Place {
    /// It was sent to a worker.
    Link(Rc<Link>),
    /// It was posted in the ring.
    Ring(LocalPool, Rc<PostedRequest>),
}

impl WorkerExchange {
    pub(super) fn posted(pool: LocalPool, request: Rc<PostedRequest>, inbox: Rc<Inbox>) -> Self {
        Self { place: Place::Ring(pool, request), inbox }
    }

    /// The worker's response.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The link of the worker that has the request; `None` while it waits in the ring.
    pub fn link(&self) -> Option<&Rc<Link>> {
        match &self.place {
            Place::Link(link) => Some(link),
            Place::Ring(_, request) => request.link(),
        }
    }

    /// When the worker took the request from the ring, if it did and that is known.
    #[must_use]
    pub fn taken_at(&self) -> Option<Instant> {
        match &self.place {
            Place::Link(_) => None,
            Place::Ring(_, request) => request.given(),
        }
    }

    /// Takes the request back if it still waits in the ring: no worker reads it then, and no event
    /// follows. Returns false if a worker has it.
    #[must_use]
    pub fn withdraw(&self) -> bool {
        match (&self.place, self.link()) {
            (Place::Ring(pool, request), None) => pool.withdraw(request),
            (Place::Ring(..), Some(_)) | (Place::Link(_), _) => false,
        }
    }

    /// The worker breaks the rules in a way that its records do not show: it gets no more requests.
    pub fn give_up(&self, why: &str) {
        if let Some(link) = self.link() {
            link.break_off(why);
        }
    }

    /// Process id of the worker that answers, for the log; `None` while the request waits.
    #[must_use]
    pub fn worker_pid(&self) -> Option<i32> {
        self.link().map(|link| link.pid)
    }
}

impl Drop for WorkerExchange {
    fn drop(&mut self) {
        if self.inbox.has_ended() {
            return;
        }
        match (&self.place, self.link()) {
            (_, Some(link)) => link.abandon(&self.inbox),
            (Place::Ring(pool, request), None) => pool.give_up(request),
            (Place::Link(_), None) => {}
        }
    }
}
