//! The requests of one event loop that applications are to answer, for `sendoff status`. Each
//! request costs a map entry; the texts are made when the status is asked for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Method;
use sendoff_message::request::{Endpoint, Request};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The most requests of one event loop that the status describes: the oldest ones.
const MOST_DESCRIBED: usize = 1000;

/// The number of the next request of any event loop.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its body is still arriving.
    ReadingBody,
    /// It waits for a worker, or for a connection to an application.
    Waiting,
    /// A worker or an application has it, and its response has not begun.
    Running,
    /// Its response has begun.
    Sending,
    /// Its response has ended, and its worker still works on it (`fastcgi_finish_request()`).
    AfterResponse,
}

/// A request that an application is to answer, or answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Its number, unique in this front process.
    pub number: u64,
    /// Method and target, with its id if it has one.
    pub request: String,
    /// The name of its site.
    pub site: String,
    /// The host that the client asked for.
    pub host: Option<String>,
    /// The client's address.
    pub client: String,
    /// Milliseconds since its head was complete.
    pub age: u64,
    /// Its progress.
    pub phase: Phase,
    /// The process of the worker that has it.
    pub worker: Option<i32>,
}

/// The requests of one event loop by number, the oldest first.
#[derive(Debug, Default)]
pub struct AtWork(RefCell<BTreeMap<u64, Rc<Task>>>);

/// A request, from the end of its head to the end of its response. A worker that continues after
/// the response keeps it.
#[derive(Debug)]
pub struct Task {
    number: u64,
    since: Instant,
    site: String,
    method: Method,
    target: Bytes,
    id: Option<Rc<str>>,
    host: Option<Bytes>,
    client: Endpoint,
    phase: Cell<Phase>,
    worker: Cell<Option<i32>>,
}

/// Keeps a request in the list until dropped.
#[derive(Debug)]
pub struct AtWorkGuard {
    list: Rc<AtWork>,
    task: Rc<Task>,
}

impl AtWork {
    /// Lists a request of the site with this name until the returned value is dropped.
    pub fn list(self: &Rc<Self>, request: &Request, site: &str) -> AtWorkGuard {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let phase = if request.has_body { Phase::ReadingBody } else { Phase::Waiting };
        let task = Rc::new(Task {
            number,
            since: Instant::now(),
            site: site.to_owned(),
            method: request.method.clone(),
            target: request.target.clone(),
            id: request.id.clone(),
            host: request.host.clone(),
            client: request.peer.clone(),
            phase: Cell::new(phase),
            worker: Cell::new(None),
        });
        self.0.borrow_mut().insert(number, Rc::clone(&task));
        AtWorkGuard { list: Rc::clone(self), task }
    }

    /// The oldest requests.
    pub fn status(&self) -> Vec<RequestStatus> {
        let now = Instant::now();
        self.0.borrow().values().take(MOST_DESCRIBED).map(|task| task.status(now)).collect()
    }
}

impl Task {
    /// Notes the progress of the request.
    pub fn note_phase(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Notes that a worker has the request.
    pub fn note_worker(&self, worker: i32) {
        self.phase.set(Phase::Running);
        self.worker.set(Some(worker));
    }

    /// Describes the request; its age is counted up to `now`.
    pub fn status(&self, now: Instant) -> RequestStatus {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let id = self.id.as_ref().map_or_else(String::new, |id| format!(" [{id}]"));
        let age = now.saturating_duration_since(self.since);
        RequestStatus {
            number: self.number,
            request: format!("{} {}{id}", self.method, text(&self.target)),
            site: self.site.clone(),
            host: self.host.as_deref().map(text),
            client: text(&self.client.address()),
            age: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            phase: self.phase.get(),
            worker: self.worker.get(),
        }
    }
}

impl AtWorkGuard {
    /// Describes the request from memory of its own from now on, so that a request that lasts for
    /// hours does not keep the buffer in which it was received.
    pub fn detach(&mut self) {
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let Task { number, since, site, method, id, client, phase, worker, .. } = &*self.task;
        self.task = Rc::new(Task {
            number: *number,
            since: *since,
            site: site.clone(),
            method: method.clone(),
            target: own(&self.task.target),
            id: id.clone(),
            host: self.task.host.as_ref().map(own),
            client: client.clone(),
            phase: phase.clone(),
            worker: worker.clone(),
        });
        self.list.0.borrow_mut().insert(self.task.number, Rc::clone(&self.task));
    }

    /// The request.
    pub fn task(&self) -> &Rc<Task> {
        &self.task
    }
}

impl Drop for AtWorkGuard {
    fn drop(&mut self) {
        self.task.note_phase(Phase::AfterResponse);
        self.list.0.borrow_mut().remove(&self.task.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    #[test]
    fn requests_are_listed_by_age_until_their_responses_end() {
        let list = Rc::<AtWork>::default();
        let mut first = list.list(&request(Some("a.test")), "shop");
        let mut with_body = request(None);
        with_body.has_body = true;
        let second = list.list(&with_body, "blog");
        first.task().note_worker(7);
        let [one, two] = &*list.status() else { panic!("two requests") };
        assert_eq!((&*one.site, one.phase, one.worker), ("shop", Phase::Running, Some(7)));
        assert_eq!((&*one.request, &*one.client), ("GET /", "127.0.0.1"));
        assert_eq!(one.host.as_deref(), Some("a.test"));
        assert_eq!((two.phase, two.worker), (Phase::ReadingBody, None));
        first.detach();
        let [one, _] = &*list.status() else { panic!("two requests") };
        assert_eq!((&*one.request, one.host.as_deref()), ("GET /", Some("a.test")));
        assert_eq!((one.phase, one.worker), (Phase::Running, Some(7)));
        // The worker may go on.
        let task = Rc::clone(first.task());
        drop(first);
        assert_eq!(list.status().len(), 1);
        assert_eq!(task.status(Instant::now()).phase, Phase::AfterResponse);
        drop(second);
        assert!(list.status().is_empty());
    }
}
