//! The requests that share a connection, without the I/O: gathers bytes to send, and assigns
//! received records to requests.
//!
//! ```text
//!  Free ── begin ──▶ Open(Live) ── END_REQUEST, its STDIN was sent ──────────────▶ Free
//!                       │   └───── END_REQUEST before that ──▶ Spent
//!                       └ give_up ─▶ Open(Abandoned) ── END_REQUEST ──▶ Spent
//! ```
//! A spent id is not used again on this connection. Go's `net/http/fcgi` ends an aborted request
//! twice, at once and when its handler is done, and counts a request as open until it has read the
//! end of `STDIN`, even if it has already answered.

mod answers;
mod silence;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use sendoff_fastcgi::record::{Header, Kind};
use sendoff_message::response::ResponseEnd;
use sendoff_upstream::error::{Retry, UpstreamError};
use sendoff_upstream::fastcgi_request::{StreamedRequest, renumber};
use sendoff_upstream::inbox::{Event, Inbox};
use sendoff_upstream::script_log::{Records, ScriptLog};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub(super) use self::silence::TimeoutCheck;
use crate::outgoing::Outgoing;

/// Ended requests after which a free id is used again, so that a late record for it is dropped. Ids
/// stay small, because applications may keep requests in a table (FastCGI 1.0 §3.3).
const RESTING: usize = 8;

/// Bytes that are gathered for one write; a request's own records may exceed it.
const GATHER: usize = 64 * 1024;

/// The requests of one connection.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Slot `i` belongs to id `i + 1`.
    slots: Vec<RequestSlot>,
    /// Free ids, in the order in which their requests ended.
    free: VecDeque<u16>,
    /// Distinguishes successive requests with the same id.
    serial: u64,
    live: usize,
    abandoned: usize,
    /// Live requests with an unfinished body.
    with_body: usize,
    /// Ids of requests with bytes to send, in turn.
    sending: VecDeque<u16>,
    /// Ids of requests whose clients have not sent the rest of the body yet.
    starved: Vec<u16>,
    /// Records that are sent first.
    urgent: Vec<u8>,
    /// Bytes gathered since the connection was made, and the number of them written.
    gathered: u64,
    written: u64,
    /// An inbox was full at the last check.
    may_be_stalled: bool,
    /// A client's bytes on disk exceed [`BURDEN`].
    is_burdened: bool,
    /// The application has answered on this connection.
    is_proven: bool,
}

#[derive(Debug)]
enum RequestSlot {
    Free,
    Spent,
    Open(Box<OpenRequest>),
}

#[derive(Debug)]
struct OpenRequest {
    serial: u64,
    stage: RequestStage,
    outgoing: Outgoing,
    /// Offset of its first byte in all bytes gathered for the connection; `None`: no byte was
    /// gathered.
    begins_at: Option<u64>,
    /// A part of its body is not sent yet.
    has_body: bool,
    /// The connection was idle before the request, so the application may have closed it.
    after_pause: bool,
    /// A part of the answer has arrived.
    is_heard: bool,
    /// The time at which bytes were last sent or received.
    since: Instant,
    inbox: Rc<Inbox>,
    may_be_silent: Rc<Cell<bool>>,
    log: ScriptLog,
    /// The end of the response as the application's log indicates it.
    ending: ResponseEnd,
    label: Rc<str>,
    _admitted: InFlightGuard,
}

#[derive(Debug, Clone, Copy)]
enum RequestStage {
    Live,
    /// The client has left. Bytes of the answer are dropped, and their number is counted.
    Abandoned {
        since: Instant,
        dropped: usize,
    },
}

/// Counts a request that the application works on or is about to get, until dropped.
#[derive(Debug)]
pub(super) struct InFlightGuard {
    busy: Arc<AtomicUsize>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl InFlightGuard {
    pub(super) fn new(busy: &Arc<AtomicUsize>, permit: Option<OwnedSemaphorePermit>) -> Self {
        busy.fetch_add(1, Ordering::Relaxed);
        Self { busy: Arc::clone(busy), _permit: permit }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A key of a request that is unique on its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestKey {
    id: u16,
    serial: u64,
}

/// The handles of a request that has begun.
pub(crate) struct RequestHandles {
    pub(super) key: RequestKey,
    pub(crate) inbox: Rc<Inbox>,
    pub(crate) may_be_silent: Rc<Cell<bool>>,
}

impl Requests {
    /// True if one more request can begin.
    pub(super) fn has_room(&self) -> bool {
        !self.is_burdened && (!self.free.is_empty() || self.slots.len() < usize::from(u16::MAX))
    }

    /// The number of requests with a waiting client.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// True if the application has ended all requests.
    pub(super) fn is_idle(&self) -> bool {
        self.live + self.abandoned == 0
    }

    /// True if a request on this connection may delay others: the application may read a body
    /// slowly, or the client a response.
    pub(super) fn is_blocked(&self) -> bool {
        self.with_body > 0 || self.may_be_stalled
    }

    /// Adds a request. `None`: all ids are taken.
    pub(super) fn begin(
        &mut self,
        request: Rc<StreamedRequest>,
        label: Rc<str>,
        admitted: InFlightGuard,
        now: Instant,
    ) -> Option<RequestHandles> {
        let after_pause = self.is_idle() && self.is_proven;
        let id = self.next_id()?;
        self.serial += 1;
        self.live += 1;
        let has_body = request.has_body();
        self.with_body += usize::from(has_body);
        let open = OpenRequest {
            serial: self.serial,
            stage: RequestStage::Live,
            outgoing: Outgoing::new(request, id),
            begins_at: None,
            has_body,
            after_pause,
            is_heard: false,
            since: now,
            inbox: Rc::default(),
            may_be_silent: Rc::default(),
            log: ScriptLog::new(Records::Text),
            ending: ResponseEnd::Complete,
            label,
            _admitted: admitted,
        };
        let key = RequestKey { id, serial: self.serial };
        let (inbox, may_be_silent) = (Rc::clone(&open.inbox), Rc::clone(&open.may_be_silent));
        self.slots[usize::from(id) - 1] = RequestSlot::Open(Box::new(open));
        self.sending.push_back(id);
        Some(RequestHandles { key, inbox, may_be_silent })
    }

    fn next_id(&mut self) -> Option<u16> {
        if self.free.len() <= RESTING
            && let Ok(id) = u16::try_from(self.slots.len() + 1)
        {
            self.slots.push(RequestSlot::Free);
            return Some(id);
        }
        self.free.pop_front()
    }

    fn slot(&mut self, id: u16) -> Option<&mut RequestSlot> {
        self.slots.get_mut(usize::from(id).checked_sub(1)?)
    }

    fn live_one(&mut self, id: u16) -> Option<&mut OpenRequest> {
        match self.slot(id) {
            Some(RequestSlot::Open(open)) if matches!(open.stage, RequestStage::Live) => Some(open),
            _ => None,
        }
    }

    fn all_live(&self) -> impl Iterator<Item = (u16, &OpenRequest)> {
        (1..).zip(&self.slots).filter_map(|(id, slot)| match slot {
            RequestSlot::Open(open) if matches!(open.stage, RequestStage::Live) => {
                Some((id, &**open))
            }
            _ => None,
        })
    }

    /// True if there are records to send.
    pub(super) fn has_to_send(&self) -> bool {
        !self.urgent.is_empty() || !self.sending.is_empty()
    }

    /// Appends whole records of the requests in turn.
    pub(super) fn gather(&mut self, out: &mut Vec<u8>, now: Instant) {
        let before = out.len();
        out.append(&mut self.urgent);
        while out.len() - before < GATHER {
            let Some(id) = self.sending.pop_front() else { break };
            let at = self.gathered + (out.len() - before) as u64;
            let Some(open) = self.live_one(id) else { continue };
            let bytes = match open.outgoing.bytes() {
                Ok(bytes) => bytes,
                Err(error) => {
                    open.inbox.finish(Event::Failed(error));
                    self.abandon(id, now);
                    continue;
                }
            };
            let (start, len) = (out.len(), bytes.len());
            out.extend_from_slice(bytes);
            renumber(&mut out[start..], id);
            open.begins_at.get_or_insert(at);
            open.since = now;
            open.outgoing.advance(len);
            if open.outgoing.has_ended() {
                continue;
            }
            if open.outgoing.is_starved() {
                self.starved.push(id);
            } else {
                self.sending.push_back(id);
            }
        }
        out.append(&mut self.urgent);
        self.gathered += (out.len() - before) as u64;
    }

    /// Notes that this number of gathered bytes was written.
    pub(super) fn wrote(&mut self, n: usize) {
        self.written += n as u64;
    }

    fn is_sent(&self, open: &OpenRequest) -> bool {
        open.begins_at.is_some_and(|at| at < self.written)
    }

    /// Removes a request from the counts of its stage.
    fn left(&mut self, open: &OpenRequest) {
        match open.stage {
            RequestStage::Live => {
                self.live -= 1;
                self.with_body -= usize::from(open.has_body);
            }
            RequestStage::Abandoned { .. } => self.abandoned -= 1,
        }
    }

    /// Gives up a request, because its client has left.
    pub(super) fn give_up(&mut self, RequestKey { id, serial }: RequestKey, now: Instant) {
        if self.live_one(id).is_some_and(|open| open.serial == serial) {
            self.abandon(id, now);
        }
    }

    /// Abandons a live request, which has no client any more.
    fn abandon(&mut self, id: u16, now: Instant) {
        let Some(slot) = self.slot(id) else { return };
        let RequestSlot::Open(mut open) = std::mem::replace(slot, RequestSlot::Free) else {
            return;
        };
        self.left(&open);
        self.starved.retain(|starved| *starved != id);
        if open.begins_at.is_none() {
            // The application does not know the request.
            self.sending.retain(|sending| *sending != id);
            self.free.push_back(id);
            return;
        }
        self.urgent.extend_from_slice(&Header::new(Kind::ABORT_REQUEST, id, 0).encode());
        open.outgoing.give_up();
        open.stage = RequestStage::Abandoned { since: now, dropped: 0 };
        self.abandoned += 1;
        self.slots[usize::from(id) - 1] = RequestSlot::Open(open);
    }

    /// True if the connection is to be read: a client's inbox has room, or no client is left.
    pub(super) fn may_read(&mut self) -> bool {
        if !self.may_be_stalled {
            return true;
        }
        let all = self.all_live().map(|(_, open)| open.inbox.is_full());
        let (full, live) =
            all.fold((0, 0), |(full, live), is_full| (full + usize::from(is_full), live + 1));
        self.may_be_stalled = full > 0;
        full < live || live == 0
    }

    /// Ready when a client has sent more of a body or, if the connection is not read, when a client
    /// has taken bytes.
    pub(super) fn poll_clients(&mut self, cx: &mut Context<'_>, is_read: bool) -> Poll<()> {
        let (mut is_ready, now) = (false, Instant::now());
        for id in std::mem::take(&mut self.starved) {
            let Some(open) = self.live_one(id) else { continue };
            if open.outgoing.poll_more(cx).is_ready() {
                open.since = now;
                self.sending.push_back(id);
                is_ready = true;
            } else {
                self.starved.push(id);
            }
        }
        is_ready |= !is_read && self.has_room_or_waits(cx.waker());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_room_or_waits(&self, waker: &Waker) -> bool {
        self.all_live().any(|(_, open)| {
            open.inbox.wake_for_room(waker);
            !open.inbox.is_full()
        })
    }

    /// Fails all requests, because the connection is gone or unusable. `why` goes to requests whose
    /// answer has begun.
    pub(super) fn fail(&mut self, why: &UpstreamError) {
        for slot in std::mem::take(&mut self.slots) {
            let RequestSlot::Open(open) = slot else { continue };
            if !matches!(open.stage, RequestStage::Live) {
                continue;
            }
            let is_unread = !self.is_sent(&open) || open.after_pause;
            let error = match (open.is_heard, is_unread) {
                (true, _) => why.clone(),
                (false, true) => UpstreamError::died(Retry::Safe),
                (false, false) => UpstreamError::died(Retry::Unsafe),
            };
            open.inbox.finish(Event::Failed(error));
        }
        *self = Self::default();
    }

    /// The application has stopped reading: fails requests without a sent byte, and sends no further
    /// bytes of the others.
    pub(super) fn fail_unsent(&mut self, now: Instant) {
        let unsent = self.all_live().filter(|(_, open)| !self.is_sent(open)).map(|(id, _)| id);
        for id in unsent.collect::<Vec<_>>() {
            if let Some(open) = self.live_one(id) {
                open.inbox.finish(Event::Failed(UpstreamError::died(Retry::Safe)));
            }
            self.abandon(id, now);
        }
        for slot in &mut self.slots {
            if let RequestSlot::Open(open) = slot {
                open.outgoing.give_up();
            }
        }
    }
}
