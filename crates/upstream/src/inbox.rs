//! The queue of a response's events, between the task that receives them and the task of the
//! client's connection.

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
use sendoff_http1::{CgiHead, Trailers};
use sendoff_message::response::ResponseEnd;
use tokio::sync::Notify;

use super::error::{Retry, UpstreamError, UpstreamErrorKind};

/// Bytes in the queue above which the upstream is not read (back-pressure).
const INBOX_LIMIT: usize = 256 * 1024;
/// Events in the queue above which the upstream is not read: events with files have no bytes in
/// memory.
pub const INBOX_EVENTS: usize = 1024;

/// Bytes that are read from the disk at once.
const PIECE: usize = 64 * 1024;

/// A part of a response, in order.
#[derive(Debug)]
pub enum Event {
    /// The whole body will have this many bytes. At most once, before any segment.
    Length(u64),
    /// The upstream has written the beginning of the response to the client; the following segments
    /// are all body. Can only be the first event.
    Sent(Sent),
    /// The response comes on the connection that was sent along with the request, in HTTP/1.1; only
    /// the end follows here. Can only be the first event.
    Tunnel,
    /// The open file that the header block names. At most once.
    Named(OwnedFd),
    /// A remark about the following segments, for `sendoff explain`.
    Explanation(Bytes),
    /// The CGI header block and then the body; or the body alone, behind a [`Head`](Self::Head).
    Segment(Segment),
    /// A response head, from upstreams with a protocol that has heads of its own; interim if its
    /// status is 1xx.
    Head(CgiHead),
    /// The upstream has switched to another protocol, which the client has offered. This is the
    /// last event.
    Switch(CgiHead),
    /// Bytes of the body in memory that the worker can still change: they are passed to the kernel,
    /// or copied before they are parsed.
    Piece(Bytes),
    /// The fields behind the body. At most once, behind all segments.
    Trailers(Trailers),
    /// The response has ended.
    End(ResponseEnd),
    /// The rest of the response will not come, for this reason.
    Failed(UpstreamError),
}

impl Event {
    /// True if no event can follow.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::End(_) | Self::Failed(_) | Self::Switch(_))
    }

    /// Bytes that the event holds in memory.
    fn len(&self) -> usize {
        match self {
            Self::Segment(Segment::Bytes(bytes)) | Self::Piece(bytes) => bytes.len(),
            _ => 0,
        }
    }
}

/// Events of one response that the connection's task has not taken yet. The inbox may outlive the
/// upstream's work: a worker may be at its next request before the connection's task looks.
#[derive(Debug, Default)]
pub struct Inbox {
    events: RefCell<VecDeque<Event>>,
    /// Bytes that the events hold in memory.
    bytes: Cell<usize>,
    /// The last event was taken.
    ended: Cell<bool>,
    /// The connection's task, if it waits for an event.
    reader: RefCell<Option<Waker>>,
    /// Notifies the upstream's task that the inbox has room again.
    pub room: Notify,
    /// The same, for a task that serves many inboxes.
    room_waker: RefCell<Option<Waker>>,
    /// Bytes on disk that follow the events.
    backlog: RefCell<Option<Backlog>>,
}

/// Bytes on disk, from a task that cannot wait for this client because other requests share its
/// connection.
#[derive(Debug, Default)]
struct Backlog {
    spool: Spool,
    /// Bytes of it that were taken.
    taken: u64,
    /// The last event, which follows the bytes.
    last: Option<Event>,
}

/// The reason why bytes cannot be stored for a slow client.
#[derive(Debug)]
pub enum NotStored {
    /// The spool has reached its limit.
    Full,
    /// The temporary file cannot grow.
    NoDisk,
}

impl Backlog {
    /// The next event; `None`: there is none yet.
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
    /// Appends an event.
    pub fn push(&self, event: Event) {
        self.bytes.set(self.bytes.get() + event.len());
        self.events.borrow_mut().push_back(event);
        self.wake_reader();
    }

    /// Wakes the connection's task.
    pub fn wake_reader(&self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Takes the first event, if there is one.
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

    /// Appends bytes on disk. Meant for a full inbox.
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

    /// Bytes that were stored and not taken yet.
    pub fn stored(&self) -> u64 {
        self.backlog.borrow().as_ref().map_or(0, |backlog| backlog.spool.stored() - backlog.taken)
    }

    /// Appends the last event.
    pub fn finish(&self, last: Event) {
        match &mut *self.backlog.borrow_mut() {
            Some(backlog) => backlog.last = Some(last),
            None => return self.push(last),
        }
        self.wake_reader();
    }

    /// Registers a task that is woken once there is room.
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

    /// True once the connection's task has taken the last event, so that no work is left to
    /// abandon.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// True if the upstream must not be read.
    pub fn is_full(&self) -> bool {
        self.bytes.get() > INBOX_LIMIT
            || self.events.borrow().len() > INBOX_EVENTS
            || self.backlog.borrow().is_some()
    }

    /// Drops all queued events.
    pub fn clear(&self) {
        self.events.borrow_mut().clear();
        *self.backlog.borrow_mut() = None;
        self.bytes.set(0);
        self.room.notify_one();
    }

    /// The number of queued events.
    pub fn waiting(&self) -> usize {
        self.events.borrow().len()
    }
}
