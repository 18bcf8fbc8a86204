//! The responder that keeps a page while a client gets it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::StatusCode;
use sendoff_config::Keeping;

use super::freshness::judge;
use super::page::{Facts, Page, facts, is_current};
use super::{Key, LARGEST};
use crate::cut::Cut;
use crate::delivery::Progress;
use crate::observe::explain::Report;
use crate::observe::log_line::Notes;
use crate::request::Request;
use crate::responder::{Fit, Lender, Responder, Room};
use crate::response::ResponseHead;
use crate::segment::Segment;

/// Bytes of files that are read at once to keep them: the event loop waits for the disk.
const READ: usize = 256 * 1024;

/// What has come of a request to the application.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client has the response, and it may be kept: this head and body.
    Whole(Box<Made>),
    /// The client has the response, and it is not kept.
    NotKept,
    /// The application says that the old page is still valid; the client has nothing yet.
    StillValid(Box<ResponseHead>),
    /// The application has failed, and the old page may stand in; the client has nothing yet.
    Failed,
}

/// A page that is complete and is to be kept.
#[derive(Debug)]
pub(crate) struct Made {
    pub(super) facts: Facts,
    pub(super) body: Vec<u8>,
}

/// What the recorder works with.
pub(crate) struct Order<'r> {
    pub(crate) key: &'r Key,
    pub(crate) keeping: &'r Keeping,
    /// As the client has sent it.
    pub(crate) request: &'r Request,
    /// The page that is to be made anew.
    pub(crate) old: Option<&'r Arc<Page>>,
    /// The application was asked whether the old page is still valid.
    pub(crate) asks: bool,
    /// What the client is told about the cache.
    pub(crate) told: &'static str,
}

enum State {
    Waiting,
    /// The client gets the response, which is kept if it becomes whole.
    Passing {
        kept: Option<Box<Made>>,
        is_whole: bool,
    },
    /// The response is not for the client.
    Swallowing(Ended),
}

/// A responder that passes a response on and keeps it. Without a client it only keeps it.
pub(crate) struct Recorder<'r, 'o> {
    client: Option<&'r mut dyn Responder>,
    order: Order<'o>,
    state: State,
    /// The client gets no body: it has it already.
    is_current: bool,
    status: Option<StatusCode>,
    generated: u64,
    /// Those of a response without a client.
    notes: Notes,
}

impl<'r, 'o> Recorder<'r, 'o> {
    pub(crate) fn new(client: Option<&'r mut dyn Responder>, order: Order<'o>) -> Self {
        let (state, notes) = (State::Waiting, Notes::default());
        Self { client, order, state, is_current: false, status: None, generated: 0, notes }
    }

    /// What has come of it, after the handler has ended.
    pub(crate) fn into_ended(self) -> Ended {
        match self.state {
            State::Swallowing(ended) => ended,
            State::Passing { kept: Some(made), is_whole: true } => Ended::Whole(made),
            State::Passing { .. } | State::Waiting => Ended::NotKept,
        }
    }

    /// What a response with this head is instead of one for the client.
    fn instead(&self, head: &ResponseHead) -> Option<Ended> {
        let old = self.order.old?;
        if self.order.asks && head.status == StatusCode::NOT_MODIFIED {
            return Some(Ended::StillValid(Box::new(head.clone())));
        }
        let has_failed = matches!(head.status.as_u16(), 500 | 502..=504);
        (has_failed && old.may_stand_in(SystemTime::now())).then_some(Ended::Failed)
    }

    fn keep(&mut self, segment: &Segment) {
        let State::Passing { kept, .. } = &mut self.state else { return };
        let Some(made) = kept else { return };
        if segment.len() > (LARGEST - made.body.len()) as u64 {
            *kept = None;
            return;
        }
        match segment {
            Segment::Bytes(bytes) => made.body.extend_from_slice(bytes),
            Segment::File(file) => {
                let mut file = file.clone();
                while file.len > 0 {
                    match file.read(READ) {
                        Ok(bytes) => made.body.extend_from_slice(&bytes),
                        // The client's response is cut by whoever sends it.
                        Err(_) => {
                            *kept = None;
                            return;
                        }
                    }
                }
            }
        }
    }

    fn gets_body(&mut self) -> Option<&mut (dyn Responder + 'r)> {
        if self.is_current || matches!(self.state, State::Swallowing(_)) {
            return None;
        }
        self.client.as_mut().map(|client| &mut **client as _)
    }
}

impl Responder for Recorder<'_, '_> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.client.as_mut().map_or(Ok(()), |client| client.interim(head))
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        self.status = Some(head.status);
        if let Some(instead) = self.instead(&head) {
            self.state = State::Swallowing(instead);
            return Ok(());
        }
        let Order { key, keeping, request, told, .. } = self.order;
        let now = SystemTime::now();
        let kept = judge(keeping, request, &head, now).map(|times| {
            let facts = facts(key, request, &head, times, now);
            Box::new(Made { facts, body: Vec::new() })
        });
        let stored = if kept.is_some() { "; stored" } else { "" };
        self.state = State::Passing { kept, is_whole: false };
        if head.status == StatusCode::OK && is_current(&head, &request.headers) {
            self.is_current = true;
            head.status = StatusCode::NOT_MODIFIED;
            (head.reason, head.length) = (None, None);
        }
        head.field("Cache-Status", format!("sendoff; {told}{stored}"));
        self.client.as_mut().map_or(Ok(()), |client| client.begin(head))
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        self.keep(&segment);
        if let Segment::Bytes(bytes) = &segment {
            self.generated += bytes.len() as u64;
        }
        self.gets_body().map_or(Ok(Fit::Whole), |client| client.push(segment))
    }

    fn end(&mut self) -> Result<u64, Cut> {
        let swallows = matches!(self.state, State::Swallowing(_));
        let missing = match self.client.as_mut().filter(|_| !swallows) {
            Some(client) => client.end()?,
            None => 0,
        };
        if let State::Passing { is_whole, .. } = &mut self.state {
            *is_whole = missing == 0;
        }
        Ok(missing)
    }

    fn room(&self) -> Room {
        let swallows = self.is_current || matches!(self.state, State::Swallowing(_));
        self.client.as_ref().filter(|_| !swallows).map_or(Room::Memory, |client| client.room())
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        if matches!(self.state, State::Swallowing(_)) {
            return Ok(Progress::Done);
        }
        self.client.as_mut().map_or(Ok(Progress::Done), |client| client.send_now())
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.client.as_mut().map_or(Poll::Ready(Ok(())), |client| client.poll_writable(cx))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.client.as_mut().map_or(Poll::Pending, |client| client.poll_gone(cx))
    }

    fn status(&self) -> Option<StatusCode> {
        self.status
    }

    fn generated(&self) -> u64 {
        self.generated
    }

    fn note_slow(&mut self) {
        if let Some(client) = &mut self.client {
            client.note_slow();
        }
    }

    fn kept_up(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.kept_up())
    }

    fn close_after(&mut self) {
        if let Some(client) = &mut self.client {
            client.close_after();
        }
    }

    /// Bytes that a borrower of the socket writes could not be kept.
    fn lender(&mut self) -> Option<&mut dyn Lender> {
        None
    }

    fn notes(&mut self) -> &mut Notes {
        match &mut self.client {
            Some(client) => client.notes(),
            None => &mut self.notes,
        }
    }

    fn report(&mut self) -> Option<&mut Report> {
        self.client.as_mut()?.report()
    }
}
