//! Requests of one event loop that wait in the ring of a pool (`docs/handover.md` §9), and the way
//! by which a request gets to a worker.
//!
//! A worker that sleeps gets the request on its link. If none does, the request is posted in the
//! ring, and the worker that takes it there says so on its link. A request with descriptors, or
//! without a free slot, is only announced in the ring: it is sent to the worker that has taken it.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sendoff_report::at_work::Task;
use sendoff_report::workers::Described;
use sendoff_upstream::error::{Retry, UpstreamError};
use sendoff_upstream::fastcgi_request::RequestMessage;
use sendoff_upstream::inbox::{Event, Inbox};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

use super::link::{Link, LocalPool, Work, WorkerExchange};
use super::pool::{Finding, Posted, WorkerId, WorkerPermit};

/// Interval at which an event loop looks for workers that have taken its requests without having
/// sent anything: for deadlines and reports.
const LOOK: Duration = Duration::from_millis(10);

/// Notes about a request that waits.
#[derive(Debug, Clone)]
pub struct RequestNotes {
    /// The request, for the log.
    pub label: Rc<str>,
    /// The request, for `sendoff status`.
    pub task: Option<Rc<Task>>,
    /// The request, for the status page.
    pub described: Option<Arc<Described>>,
}

/// The way by which a request gets to a worker.
#[derive(Debug)]
pub enum Acquired {
    /// The caller sends it to a worker.
    Permit(SendPermit),
    /// It waits in the ring; its worker answers there.
    Posted(WorkerExchange),
}

/// The right to send one request to one worker.
#[derive(Debug)]
pub struct SendPermit {
    /// `None` once the request has been sent.
    worker: Option<WorkerPermit>,
    link: Rc<Link>,
    debt: Debt,
}

/// The message that a worker waits for if it does not get the request.
#[derive(Debug, Clone, Copy)]
enum Debt {
    None,
    /// It was taken out of its sleep, and is to look into the ring.
    Look,
    /// It has taken the announced request with this number.
    Withdrawal(u64),
}

/// A request that waits in the ring, or that a worker has taken there.
#[derive(Debug)]
pub(super) struct PostedRequest {
    number: u64,
    notes: RequestNotes,
    deadline: Option<Duration>,
    inbox: Rc<Inbox>,
    since: Instant,
    /// Its worker, once that is known.
    link: OnceCell<Rc<Link>>,
    /// When its worker took it.
    given: Cell<Option<Instant>>,
    /// Its client has left, but a worker has taken it.
    is_unwanted: Cell<bool>,
}

/// The requests of one event loop in the ring of a pool, by number.
#[derive(Debug, Default)]
pub struct PostedRequests {
    waiting: RefCell<BTreeMap<u64, Waiting>>,
    /// Notified when there is one.
    some: Notify,
}

#[derive(Debug)]
enum Waiting {
    Whole(Rc<PostedRequest>),
    /// Sent once a worker has taken it.
    Announced(oneshot::Sender<SendPermit>),
}

/// Takes an announced request back when its client leaves.
struct Announcement<'a> {
    pool: &'a LocalPool,
    number: u64,
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        // If a worker has taken it, the worker is told when it says so.
        if self.pool.shared.revoke(self.number) {
            self.pool.posted.remove(self.number);
        }
    }
}

impl PostedRequests {
    fn insert(&self, number: u64, waiting: Waiting) {
        self.waiting.borrow_mut().insert(number, waiting);
        self.some.notify_one();
    }

    fn remove(&self, number: u64) -> Option<Waiting> {
        self.waiting.borrow_mut().remove(&number)
    }

    fn whole(&self, number: u64) -> Option<Rc<PostedRequest>> {
        match self.waiting.borrow().get(&number) {
            Some(Waiting::Whole(request)) => Some(Rc::clone(request)),
            _ => None,
        }
    }
}

impl SendPermit {
    /// To send an announced request to the worker that has taken it.
    fn announced(link: &Rc<Link>, permit: WorkerPermit, number: u64) -> Self {
        let (link, debt) = (Rc::clone(link), Debt::Withdrawal(number));
        Self { worker: Some(permit), link, debt }
    }

    /// The worker's link.
    #[must_use]
    pub fn link(&self) -> &Rc<Link> {
        &self.link
    }

    /// Notes, for the status page, the request that the worker gets.
    pub fn describe(&self, request: Arc<Described>, since: Instant) {
        if let Some(worker) = &self.worker {
            worker.describe(request, since);
        }
    }

    /// Sends the request; see [`Link::begin`].
    ///
    /// # Errors
    /// The errors of [`Link::begin`].
    pub fn begin(
        mut self,
        request: &RequestMessage,
        client: Option<BorrowedFd<'_>>,
        label: Rc<str>,
    ) -> Result<WorkerExchange, UpstreamError> {
        let worker = self.worker.take().ok_or_else(|| UpstreamError::died(Retry::Safe))?;
        let begun = self.link.begin(worker, request, client, label);
        if begun.is_err() {
            self.pay();
        }
        begun
    }

    fn pay(&self) {
        match self.debt {
            Debt::None => {}
            Debt::Look => self.link.look(),
            Debt::Withdrawal(number) => self.link.withdraw(number),
        }
    }
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        if self.worker.take().is_some() {
            self.pay();
        }
    }
}

impl LocalPool {
    /// Finds a worker that sleeps, or posts the request; the oldest request is served first. A
    /// request that is dropped while it waits leaves the queue at once.
    ///
    /// # Errors
    /// The queue is full or the wait was too long (in both cases the client may try again later),
    /// or no worker can start. For a posted request its inbox has the last two.
    pub async fn acquire(
        &self,
        event_loop: usize,
        message: &RequestMessage,
        notes: &RequestNotes,
    ) -> Result<Acquired, UpstreamError> {
        if !self.shared.has_ring() {
            loop {
                let permit = self.shared.acquire(event_loop).await?;
                let Some(link) = self.link(permit.worker()) else { continue };
                let worker = Some(permit);
                return Ok(Acquired::Permit(SendPermit { worker, link, debt: Debt::None }));
            }
        }
        let since = Instant::now();
        loop {
            while let Some(permit) = self.shared.sleeper(event_loop) {
                // Otherwise the worker is lost.
                if let Some(link) = self.link(permit.worker()) {
                    let worker = Some(permit);
                    return Ok(Acquired::Permit(SendPermit { worker, link, debt: Debt::Look }));
                }
            }
            self.look(self.shared.sleeper_for_waiting());
            let is_whole = !message.lends && message.body.is_none();
            let bytes = is_whole.then_some(&message.records[..]);
            let Posted { number, is_whole, wake } = self.shared.post(event_loop, bytes)?;
            if is_whole {
                let request = Rc::new(PostedRequest {
                    number,
                    notes: notes.clone(),
                    deadline: message.deadline,
                    inbox: Rc::default(),
                    since: Instant::now(),
                    link: OnceCell::new(),
                    given: Cell::new(None),
                    is_unwanted: Cell::new(false),
                });
                self.posted.insert(number, Waiting::Whole(Rc::clone(&request)));
                self.look(wake);
                let inbox = Rc::clone(&request.inbox);
                return Ok(Acquired::Posted(WorkerExchange::posted(self.clone(), request, inbox)));
            }
            let (grant, granted) = oneshot::channel();
            self.posted.insert(number, Waiting::Announced(grant));
            let announcement = Announcement { pool: self, number };
            self.look(wake);
            let permit = tokio::time::timeout(self.shared.longest_wait(), granted).await;
            drop(announcement);
            match permit {
                Ok(Ok(permit)) => return Ok(Acquired::Permit(permit)),
                // The worker that took it has died, and has not got it.
                Ok(Err(_)) if since.elapsed() < self.shared.longest_wait() => {
                    self.shared.refusal()?;
                }
                Ok(Err(_)) | Err(_) => return Err(self.shared.why(Finding::TimedOut)),
            }
        }
    }

    /// Lets a worker look into the ring.
    fn look(&self, worker: Option<WorkerId>) {
        let mut next = worker;
        while let Some(worker) = next {
            match self.link(worker) {
                Some(link) => return link.look(),
                // It is lost: another one must do it.
                None => next = self.shared.sleeper_for_waiting(),
            }
        }
    }

    /// Handles the record `TAKEN` for a request that was not known to be with the worker.
    /// `false`: the worker has not taken it.
    pub(super) fn taken(
        &self,
        link: &Rc<Link>,
        worker: WorkerId,
        event_loop: usize,
        number: u64,
        at: u64,
    ) -> bool {
        let Some(permit) = self.shared.taken(number, worker, event_loop) else { return false };
        match self.posted.remove(number) {
            Some(Waiting::Whole(request)) => {
                request.given.set(Some(instant(at).clamp(request.since, Instant::now())));
                request.begins(link, permit, true);
            }
            Some(Waiting::Announced(grant)) => {
                // If its client has just left, the worker is told.
                drop(grant.send(SendPermit::announced(link, permit, number)));
            }
            None => drop(SendPermit::announced(link, permit, number)),
        }
        true
    }

    /// Handles the end of a link: the requests that the worker had taken end with it.
    pub(super) fn link_ended(&self, worker: WorkerId, event_loop: usize) {
        for number in self.shared.link_ended(worker, event_loop) {
            // For an announced request, its task asks for another worker.
            if let Some(Waiting::Whole(request)) = self.posted.remove(number) {
                request.inbox.push(Event::Failed(UpstreamError::died(Retry::Unsafe)));
            }
        }
        self.look(self.shared.sleeper_for_waiting());
    }

    /// Gives a request up that waits in the ring, or that a worker has taken there.
    pub(super) fn give_up(&self, request: &PostedRequest) {
        request.inbox.clear();
        if !self.withdraw(request) {
            request.is_unwanted.set(true);
        }
    }

    /// Takes a request out of the ring. Returns false if a worker has taken it before.
    pub(super) fn withdraw(&self, request: &PostedRequest) -> bool {
        let is_revoked = self.shared.revoke(request.number);
        if is_revoked {
            self.posted.remove(request.number);
        }
        is_revoked
    }

    /// Looks after the requests in the ring. Runs on each event loop and never returns.
    pub async fn attend(self, event_loop: usize) {
        loop {
            while self.posted.waiting.borrow().is_empty() {
                self.posted.some.notified().await;
            }
            sleep(LOOK).await;
            for (number, finding) in self.shared.examine(event_loop) {
                self.found(event_loop, number, finding);
            }
            self.look(self.shared.sleeper_for_waiting());
        }
    }

    fn found(&self, event_loop: usize, number: u64, finding: Finding) {
        if let Finding::Claimed(worker) = finding {
            let (Some(request), Some(link)) = (self.posted.whole(number), self.link(worker)) else {
                return;
            };
            // A worker may be ahead of what the front has read from its link.
            if link.is_idle()
                && let Some(permit) = self.shared.adopt(number, worker, event_loop)
            {
                self.posted.remove(number);
                request.given.set(Some(Instant::now()));
                request.begins(&link, permit, false);
            }
            return;
        }
        if finding == Finding::Overwritten {
            tracing::error!("a worker has damaged the ring of its pool");
        }
        // An announced request learns of it when its sender is dropped.
        if let Some(Waiting::Whole(request)) = self.posted.remove(number) {
            request.inbox.push(Event::Failed(self.shared.why(finding)));
        }
    }
}

impl PostedRequest {
    pub(super) fn link(&self) -> Option<&Rc<Link>> {
        self.link.get()
    }

    /// When a worker took it, if that is known.
    pub(super) fn given(&self) -> Option<Instant> {
        self.given.get()
    }

    fn begins(&self, link: &Rc<Link>, permit: WorkerPermit, is_announced: bool) {
        let RequestNotes { label, task, described } = &self.notes;
        if let Some(described) = described {
            permit.describe(Arc::clone(described), self.given.get().unwrap_or(self.since));
        }
        let work = Work::new(Some(permit), Rc::clone(label), None).with_deadline(self.deadline);
        let inbox = (!self.is_unwanted.get()).then(|| Rc::clone(&self.inbox));
        link.take(self.number, is_announced, work, inbox);
        if let Some(task) = task.as_ref().filter(|_| !self.is_unwanted.get()) {
            link.note_task(task);
        }
        // It is empty: a request gets one worker.
        let _ = self.link.set(Rc::clone(link));
    }
}

/// The instant at which `CLOCK_MONOTONIC` had this value; now for a value in the future.
fn instant(nanoseconds: u64) -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.try_into().unwrap_or(0));
    let age = now.saturating_sub(Duration::from_nanos(nanoseconds));
    let instant = Instant::now();
    instant.checked_sub(age).unwrap_or(instant)
}
