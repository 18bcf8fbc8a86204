//! Events of a response between the task that receives them and the task of the client's connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::task::{Poll, Waker};

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_delivery::{Spool, Spooled};
use sendoff_fastcgi::direct::Sent;
use sendoff_http1::CgiHead;
use sendoff_message::response::ResponseEnd;
use tokio::sync::Notify;

use super::error::{Retry, UpstreamError, UpstreamErrorKind};

/// Bytes that may wait for the connection's task before the upstream is no longer read.
const INBOX_LIMIT: usize = 256 * 1024;
/// Events that may wait before the upstream is no longer read: those that bring files have no bytes in memory.
pub const INBOX_EVENTS: usize = 1024;

/// Bytes that are read from the disk at a time.
const PIECE: usize = 64 * 1024;

/// A part of a response, in order.
#[derive(Debug)]
pub enum Event {
    /// The whole body will have this many bytes. At most once, before any segment.
    Length(u64),
    /// The upstream has written the beginning of the response to the client; what follows are body segments. Comes first,
    /// if at all.
    Sent(Sent),
    /// The open file that the header block names. At most once.
    Named(OwnedFd),
    /// About the segments that follow, for `sendoff explain`.
    Explanation(Bytes),
    /// The CGI header block and then the body; or the body alone, behind a [`Head`](Self::Head).
    Segment(Segment),
    /// A response head, from upstreams whose protocol has one of its own; an interim one, if its status is 1xx.
    Head(CgiHead),
    /// The upstream has changed to another protocol, which the client has offered. Nothing follows.
    Switch(CgiHead),
    /// Bytes of the body that the worker can still change: they go to the kernel, or are copied before they are looked at.
    Piece(Bytes),
    /// The response has ended.
    End(ResponseEnd),
    /// There is no rest of the response, and why.
    Failed(UpstreamError),
}

impl Event {
    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::End(_) | Self::Failed(_) | Self::Switch(_))
    }

    /// Bytes in memory.
    fn len(&self) -> usize {
        match self {
            Self::Segment(Segment::Bytes(bytes)) | Self::Piece(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

/// Events of one response that the connection's task has not yet taken. The inbox outlives the upstream's work on the
/// request: the worker may be at its next request before the connection's task has looked.
#[derive(Debug, Default)]
pub struct Inbox {
    events: RefCell<VecDeque<Event>>,
    /// Bytes in memory among them.
    bytes: Cell<usize>,
    /// The last event was taken.
    ended: Cell<bool>,
    /// The connection's task, if it waits for an event.
    reader: RefCell<Option<Waker>>,
    /// For the upstream's task: the inbox has room again.
    pub room: Notify,
    /// The same for a task that looks after many inboxes.
    room_waker: RefCell<Option<Waker>>,
    /// What comes after the events.
    backlog: RefCell<Option<Backlog>>,
}

/// Bytes on disk, from a task that cannot wait for this one client: others share its connection.
#[derive(Debug, Default)]
struct Backlog {
    spool: Spool,
    /// Bytes of it that were taken.
    taken: u64,
    /// How the response has ended.
    last: Option<Event>,
}

/// Why bytes cannot be stored for a client that does not take them.
#[derive(Debug)]
pub enum NotStored {
    /// As many as may be wait already.
    Full,
    /// The temporary file cannot grow.
    NoDisk,
}

impl Backlog {
    /// The next event; `None`: nothing is there yet.
    fn next(&mut self) -> io::Result<Option<Event>> {
        let bytes = match self.spool.read(self.taken) {
            None => return Ok(self.last.take()),
            Some(Spooled::InMemory(bytes)) => Bytes::copy_from_slice(bytes),
            Some(Spooled::InFile(file, rest)) => {
                let mut bytes =
                    vec![0; usize::try_from(rest).map_or(PIECE, |rest| rest.min(PIECE))];
                file.read_exact_at(&mut bytes, self.taken)?;
                bytes.into()
            }
        };
        self.taken += bytes.len() as u64;
        Ok(Some(Event::Segment(Segment::Bytes(bytes))))
    }

    fn is_empty(&self) -> bool {
        self.taken == self.spool.stored() && self.last.is_none()
    }
}

impl Inbox {
    /// Adds an event behind the others.
    pub fn push(&self, event: Event) {
        self.bytes.set(self.bytes.get() + event.len());
        self.events.borrow_mut().push_back(event);
        self.wake_reader();
    }

    /// Has the connection's task look again.
    pub fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// The first event, if there is one.
    pub fn take(&self) -> Option<Event> {
        let was_full = self.is_full();
        let queued = self.events.borrow_mut().pop_front();
        let event = match queued {
            Some(event) => {
                self.bytes.set(self.bytes.get() - event.len());
                event
            }
            None => self.take_stored()?,
        };
        // The upstream's task waits only while the inbox is full.
        if was_full && !self.is_full() {
            self.room.notify_one();
            if let Some(waker) = self.room_waker.take() {
                waker.wake();
            }
        }
        self.ended.set(event.is_last());
        Some(event)
    }

    fn take_stored(&self) -> Option<Event> {
        let mut backlog = self.backlog.borrow_mut();
        let stored = backlog.as_mut()?;
        let event = stored.next().unwrap_or_else(|error| {
            let why = format!("what waits for its client cannot be read: {error}");
            let error = UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, why);
            Some(Event::Failed(error))
        });
        if stored.is_empty() || event.as_ref().is_some_and(Event::is_last) {
            *backlog = None;
        }
        event
    }

    /// Stores bytes on disk, behind everything that waits. Meant for a full inbox.
    pub fn store(&self, bytes: &[u8]) -> Result<(), NotStored> {
        let mut backlog = self.backlog.borrow_mut();
        let backlog = backlog.get_or_insert_default();
        if backlog.spool.is_stuck() {
            return Err(NotStored::NoDisk);
        }
        if backlog.spool.is_full() {
            return Err(NotStored::Full);
        }
        backlog.spool.append(bytes);
        self.wake_reader();
        Ok(())
    }

    /// Bytes on disk, or about to be.
    pub fn stored(&self) -> u64 {
        self.backlog.borrow().as_ref().map_or(0, |backlog| backlog.spool.stored() - backlog.taken)
    }

    /// Adds the last event, behind everything that waits.
    pub fn finish(&self, last: Event) {
        match &mut *self.backlog.borrow_mut() {
            Some(backlog) => backlog.last = Some(last),
            None => return self.push(last),
        }
        self.wake_reader();
    }

    /// Has a task look again when there is room.
    pub fn wake_for_room(&self, waker: &Waker) {
        *self.room_waker.borrow_mut() = Some(waker.clone());
    }

    /// Waits for the first event.
    pub async fn next(&self) -> Event {
        poll_fn(|cx| {
            if let Some(event) = self.take() {
                return Poll::Ready(event);
            }
            *self.reader.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Whether the connection's task knows how it ended, so that nothing is left to abandon.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// True while the upstream is not to be read.
    pub fn is_full(&self) -> bool {
        self.bytes.get() > INBOX_LIMIT
            || self.events.borrow().len() > INBOX_EVENTS
            || self.backlog.borrow().is_some()
    }

    /// Drops all events that wait.
    pub fn clear(&self) {
        self.events.borrow_mut().clear();
        *self.backlog.borrow_mut() = None;
        self.bytes.set(0);
        self.room.notify_one();
    }

    /// Events that wait.
    pub fn waiting(&self) -> usize {
        self.events.borrow().len()
    }
}
