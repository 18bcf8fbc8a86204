//! One event loop's link to one worker: requests go out here, `reader.rs` receives.
//!
//! What may come when is decided in [`sendoff_link::front`].

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
use sendoff_link::front::{self, Caller, ClientSocket, Ended, Front, Hangup};
use sendoff_report::at_work::Task;
use sendoff_transport::lent::LentSocket;
use sendoff_upstream::cgi::RequestMessage;
pub use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
pub use sendoff_upstream::inbox::{Event, Inbox};
pub use sendoff_upstream::script_log::{Entry, Severity};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::pool::{Pool, Ticket, WorkerId};
use super::watch::{Late, Watch};

#[cfg(test)]
pub(crate) mod tests;

/// Pause before a request is sent again whose descriptors the kernel has refused with `ETOOMANYREFS`: it does not say when it
/// would take them.
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(1);

/// The links of one event loop to the workers of a pool.
pub type Links = RefCell<BTreeMap<WorkerId, Rc<Link>>>;

/// A pool as one event loop has it.
#[derive(Debug, Clone)]
pub struct LocalPool {
    /// What the event loops share.
    pub shared: Arc<Pool>,
    /// The loop's links to its workers.
    pub links: Rc<Links>,
}

impl LocalPool {
    /// Without links.
    #[must_use]
    pub fn new(shared: Arc<Pool>) -> Self {
        Self { shared, links: Rc::default() }
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
    pub(super) socket: UnixStream,
    pid: i32,
    pub(super) front: RefCell<Front<Server>>,
    /// A task waits for the socket to take more.
    is_flushing: Cell<bool>,
}

/// What the machine keeps for the server.
#[derive(Debug)]
pub(super) struct Server;

impl Caller for Server {
    type Received = OwnedFd;
    type Attached = Attachment;
    type Held = Work;
    type Recipient = Rc<Inbox>;
}

/// A descriptor that goes along with a request.
#[derive(Debug)]
pub(super) enum Attachment {
    /// The client's socket.
    Client(Rc<LentSocket>),
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
pub(super) struct Work {
    /// Dropped when the worker is free. `None`: the front does not give this process its requests.
    ticket: Option<Ticket>,
    /// The request, for the log.
    label: Rc<str>,
    /// The request, for the status.
    task: OnceCell<Rc<Task>>,
    /// How long the script may send nothing, if the request has its own deadline; zero: for ever.
    deadline: Option<Duration>,
    /// When the script was last seen to do something.
    watch: RefCell<Watch>,
}

impl Work {
    /// `client`: the socket that the worker may write to.
    pub(super) fn new(
        ticket: Option<Ticket>,
        label: Rc<str>,
        client: Option<Rc<LentSocket>>,
    ) -> Self {
        let (deadline, task) = (None, OnceCell::new());
        Self { ticket, label, task, deadline, watch: RefCell::new(Watch::new(client)) }
    }
}

/// How a link ends.
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

    /// More about that request, if it was told.
    #[must_use]
    pub fn task(&self) -> Option<Rc<Task>> {
        self.front.borrow().held().and_then(|work| work.task.get().cloned())
    }

    /// Tells more about the request that the worker was just given.
    pub fn note_task(&self, task: &Rc<Task>) {
        if let Some(work) = self.front.borrow().held() {
            // There is one only if it was told before.
            let _ = work.task.set(Rc::clone(task));
        }
        task.is_with(self.pid);
    }

    pub(super) fn new(socket: UnixStream, pid: i32, rules: front::Origin) -> Rc<Self> {
        let front = RefCell::new(Front::new(rules));
        Rc::new(Self { socket, pid, front, is_flushing: Cell::new(false) })
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
        let mut lent = None;
        if let Some(client) = client.filter(|_| request.lends) {
            lent = Some(Rc::new(LentSocket::of(client).map_err(no_descriptor)?));
        }
        let body = request.body.clone().map(Attachment::Body);
        let attached = lent.clone().map(Attachment::Client).into_iter().chain(body).collect();
        let client = if request.lends { ClientSocket::Lent } else { ClientSocket::Kept };
        let records = request.records.clone();
        let deadline = request.deadline;
        let work = Work { deadline, ..Work::new(Some(ticket), label, lent) };
        let inbox = Rc::new(Inbox::default());
        let begun = self.front.borrow_mut().begin(
            front::Request { records, attached, client },
            work,
            Rc::clone(&inbox),
        );
        begun.map_err(|front::NotIdle| UpstreamError::died(Retry::Safe))?;
        if self.flush().is_err() {
            // The link's task finds the link closed and gives up what the machine holds, ticket and all.
            self.close();
            return Err(UpstreamError::died(Retry::Safe));
        }
        Ok(WorkerExchange { link: Rc::clone(self), inbox })
    }

    /// Sends what the socket takes; a task sends the rest. The socket is tried without asking the event loop, which learns
    /// only in its next round that a new link takes something.
    pub(super) fn flush(self: &Rc<Self>) -> io::Result<()> {
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
                Err(error) if has_too_many_in_flight(&error) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The last thing the link's task does.
    pub(super) fn lose(&self, ending: Ending) {
        let (ended, why) = match ending {
            Ending::Ended(how) => (self.front.borrow_mut().ended(how), None),
            Ending::Broken(why) => (self.front.borrow_mut().broken(), Some(why)),
        };
        let Ended { recipient, held, broken } = ended;
        let why = why.or_else(|| broken.map(|broken| broken.to_string()));
        // A worker that is killed at its deadline may leave half a record.
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

    /// Ends the link, and with it the worker, once it has finished what it is at work on.
    pub fn close(&self) {
        // It fails only if the worker has closed it before.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Gives up the response that goes to `inbox`: the worker is told, and what it still sends is dropped.
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
        // Not the request's fault; but its response is what the worker broke.
        let request = held.map_or("no request", |work| &*work.label);
        tracing::error!(worker = self.pid, request, "broken worker, its link is closed: {why}");
    }

    /// Passes a part of the response on, if it is wanted.
    pub(super) fn deliver(&self, event: Event) {
        let front = self.front.borrow();
        let Some(inbox) = front.recipient() else { return };
        if let Some(work) = front.held() {
            work.watch.borrow_mut().spoke(front.may_write_to_client());
        }
        inbox.push(event);
    }

    /// Looks at the script that has a request of the front's: whether it has just become slow.
    pub(super) fn becomes_slow(&self, now: Instant, limit: Duration) -> Option<Late> {
        let front = self.front.borrow();
        let work = front.held().filter(|work| work.ticket.is_some())?;
        let is_slow = work.watch.borrow_mut().becomes_slow(now, limit);
        is_slow.then(|| Late { pid: self.pid, request: Rc::clone(&work.label) })
    }

    /// Looks after the script that has a request of the front's. If it has just become stuck, its request ends; the caller
    /// takes the worker out of the pool and has it replaced. `limit` holds for requests without a deadline of their own.
    pub(super) fn expire(
        self: &Rc<Self>,
        now: Instant,
        limit: Option<Duration>,
    ) -> Option<(Late, Duration)> {
        let front = self.front.borrow();
        // What follows `fastcgi_finish_request()` has no deadline. A process that has claimed a request has its deadline
        // where the request went.
        let work = front.held().filter(|work| front.is_answering() && work.ticket.is_some())?;
        let limit = work.deadline.or(limit).filter(|limit| !limit.is_zero())?;
        let inbox = front.recipient().cloned();
        let waits_for_client = inbox.as_ref().is_some_and(|inbox| inbox.is_full());
        if !work.watch.borrow_mut().expires(now, limit, waits_for_client) {
            return None;
        }
        let stuck = Late { pid: self.pid, request: Rc::clone(&work.label) };
        let may_write_to_client = front.may_write_to_client();
        drop(front);
        // A worker that may write to the client could do so beside an error page. The request then ends with the worker's
        // death, which closes the link.
        if inbox.is_none() || !may_write_to_client {
            if let Some(inbox) = inbox {
                self.front.borrow_mut().give_up(|_| true);
                inbox.push(Event::Failed(UpstreamError::silent()));
            }
            self.close();
        }
        Some((stuck, limit))
    }

    /// Where what comes now goes, if the connection's task is behind with it.
    pub(super) fn full_inbox(&self) -> Option<Rc<Inbox>> {
        self.front.borrow().recipient().filter(|inbox| inbox.is_full()).cloned()
    }

    pub(super) fn log(&self, Entry { severity, text }: Entry) {
        let front = self.front.borrow();
        let request = front.held().map_or("no request", |work| &*work.label);
        match severity {
            Severity::Fatal => tracing::error!(worker = self.pid, request, "{text}"),
            Severity::Other => tracing::warn!(worker = self.pid, request, "{text}"),
        }
    }
}

/// Whether the processes of this user have as many descriptors in flight as one process may have open.
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
    // An application that has opened the link may have kept this end, too.
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// One request to a worker and its response. Dropped before the last event, it gives the rest up.
#[derive(Debug)]
pub struct WorkerExchange {
    link: Rc<Link>,
    inbox: Rc<Inbox>,
}

impl WorkerExchange {
    /// What the worker has said.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// The worker breaks the rules in a way that its records do not show: it gets no more requests.
    pub fn give_up(&self, why: &str) {
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
