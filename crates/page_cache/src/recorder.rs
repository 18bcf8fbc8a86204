//! The filter that keeps a page while a client gets it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::{Method, StatusCode};
use sendoff_config::Keeping;
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::{Client, Lender};
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{ResponseEnd, ResponseHead, Trailers};
use sendoff_report::explain::Report;
use sendoff_report::log_line::Notes;

use super::LARGEST;
use super::flights::{Flight, MakePermit};
use super::freshness::{Times, judge, judge_by};
use super::key::Key;
use super::lscache::{Labels, LsCacheRequest, Said};
use super::page::{OriginFailure, Page, facts, is_current};
use super::purge::PurgeCount;
use super::recording::Recording;
use super::store::PageCache;
use super::tags;

/// Bytes of a file that are read at a time to keep them: the event loop waits for the disk.
const READ: usize = 256 * 1024;

/// Most cookies that the pages with one key vary with. Names add up, because each page counts for
/// all.
const MOST_COOKIES: usize = 32;

/// Outcome of a request to the application.
#[derive(Debug)]
pub enum ApplicationOutcome {
    /// The client has got the response, or no response has begun. Keeping has been decided.
    Passed,
    /// The application says that the old page is still valid. The client has got nothing yet, and
    /// other requests still wait.
    StillValid(Box<ResponseHead>, Option<MakePermit>),
    /// The application says that some other page is still valid. The client has got nothing yet,
    /// and other requests still wait.
    OtherPage(Option<MakePermit>),
    /// The application has failed, and the old page may stand in. The client has got nothing yet.
    Failed,
}

/// Settings of a recorder.
pub struct RecordingContext<'r> {
    /// The cache that gets the page.
    pub cache: &'r Arc<PageCache>,
    /// Most bytes of all kept pages.
    pub limit: u64,
    /// The key of the request.
    pub key: &'r Key,
    /// Noted before the old page was looked up.
    pub begun: PurgeCount,
    /// Lifetimes of pages, set by the route.
    pub keeping: &'r Keeping,
    /// The request, if the site speaks LSCache's language.
    pub lscache: Option<&'r LsCacheRequest>,
    /// The request as the client sent it.
    pub request: &'r Request,
    /// The old page that is made anew.
    pub old: Option<&'r Arc<Page>>,
    /// The application was asked whether the old page is still valid.
    pub asks: bool,
    /// The cache status that the client is told.
    pub told: &'static str,
}

enum State {
    Waiting,
    /// The client gets the response. It is kept if it is complete, has the announced length, and
    /// the application ends it without an error.
    Passing {
        kept: Option<Box<Recording>>,
        length: Option<u64>,
    },
    /// The response is not for the client.
    Swallowing(Instead),
}

/// A page that may be kept.
struct Judged<'o> {
    key: &'o Key,
    times: Times,
    labels: Labels,
}

/// Meaning of a response that is not for the client.
enum Instead {
    StillValid(Box<ResponseHead>),
    OtherPage,
    Failed,
}

/// A filter that passes a response on and keeps it.
pub struct Recorder<'r, 'o> {
    next: &'r mut dyn Sink,
    order: RecordingContext<'o>,
    /// Other requests wait for it. It is dropped as soon as the page is kept, or known not to be
    /// kept, without waiting for a slow client.
    permit: Option<MakePermit>,
    state: State,
    /// The client gets no body: its copy is current.
    is_current: bool,
    /// The end of the response for the client, if it has left while its page is being kept: the
    /// page is made to its end for others, as nginx does.
    lost: Option<Cut>,
}

impl<'r, 'o> Recorder<'r, 'o> {
    /// Records a handler's response on its way to `next`. The client's socket is not lent: bytes
    /// that a worker wrote to it could not be kept.
    pub fn new(
        next: &'r mut dyn Sink,
        order: RecordingContext<'o>,
        permit: Option<MakePermit>,
    ) -> Self {
        next.client().withhold_socket();
        Self { next, order, permit, state: State::Waiting, is_current: false, lost: None }
    }

    /// Returns the outcome, after the handler has ended without an error.
    pub fn into_ended(mut self) -> ApplicationOutcome {
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Swallowing(Instead::StillValid(said)) => {
                ApplicationOutcome::StillValid(said, self.permit)
            }
            State::Swallowing(Instead::OtherPage) => ApplicationOutcome::OtherPage(self.permit),
            State::Swallowing(Instead::Failed) => ApplicationOutcome::Failed,
            State::Passing { .. } | State::Waiting => {
                self.give_up();
                ApplicationOutcome::Passed
            }
        }
    }

    /// Gives up keeping the page: other requests need not wait for it.
    fn give_up(&mut self) {
        if let State::Passing { kept, .. } = &mut self.state {
            *kept = None;
        }
        self.release();
    }

    /// The lifetimes and the key of the page; `None`: it may not be kept.
    fn judge(&self, head: &ResponseHead, now: SystemTime) -> Option<Judged<'o>> {
        let RecordingContext { cache, key, keeping, lscache, .. } = self.order;
        let Some(request) = lscache else {
            let times = judge(keeping, head, now)?;
            let tags = tags::of(head).unwrap_or_default();
            return Some(Judged { key, times, labels: Labels { tags, ..Labels::default() } });
        };
        let Said { control, mut labels, .. } = Said::of(head, request)?;
        let times = judge_by(&control, keeping, head, now)?;
        let key = match labels.owner.is_empty() {
            true => key,
            false => request.private_key()?,
        };
        cache.add_cookies(key, &mut labels.cookies);
        if labels.cookies.len() > MOST_COOKIES {
            return None;
        }
        Some(Judged { key, times, labels })
    }

    /// Lets other clients' requests go on, because the page will not be theirs. Requests of this
    /// client for the private page with this key wait.
    fn make_own(&mut self, key: &Key) {
        let cache = self.order.cache;
        let own = cache.flight_hash(key, &self.order.request.headers);
        if self.permit.as_ref().is_some_and(|permit| permit.is_for(&own)) {
            return;
        }
        self.release();
        if let Flight::Make(permit) = cache.fly(key, &self.order.request.headers) {
            self.permit = Some(permit);
        }
    }

    /// Lets other requests go on.
    fn release(&mut self) {
        if let Some(mut permit) = self.permit.take() {
            permit.ends(false);
        }
    }

    /// Gives up keeping the page, and forgets the old one: the application has answered with
    /// another.
    fn supersede(&mut self) {
        self.give_up();
        if let Some(old) = self.order.old {
            self.order.cache.drop_up_to(old, &self.order.request.headers);
        }
    }

    /// The meaning of a response with this head, if it is not for the client.
    fn instead(&self, head: &ResponseHead) -> Option<Instead> {
        let old = self.order.old?;
        if self.order.asks && head.status == StatusCode::NOT_MODIFIED {
            return Some(match old.is_meant_by(head) {
                true => Instead::StillValid(Box::new(head.clone())),
                false => Instead::OtherPage,
            });
        }
        let has_failed = matches!(head.status.as_u16(), 500 | 502..=504);
        let stands_in = has_failed && old.may_stand_in(OriginFailure::Reported, SystemTime::now());
        stands_in.then_some(Instead::Failed)
    }

    fn keep(&mut self, segment: &Segment) {
        let State::Passing { kept: Some(recording), .. } = &mut self.state else { return };
        if segment.len() > LARGEST as u64 - recording.len() {
            return self.supersede();
        }
        let kept = match segment {
            Segment::Bytes(bytes) => recording.push(bytes),
            Segment::File(file) => {
                let mut file = file.clone();
                let mut kept = Ok(());
                while file.len > 0 && kept.is_ok() {
                    // If the file cannot be read, the sender of the response notices it, too, and
                    // cuts it.
                    kept = file.read(READ).and_then(|bytes| recording.push(&bytes));
                }
                kept
            }
        };
        if let Err(error) = kept {
            let request = self.order.request.shown();
            tracing::debug!(request, %error, "a page is not kept");
            self.supersede();
        }
    }

    /// True if the response goes to no client: it is not for the client, or the client has left.
    fn has_no_client(&self) -> bool {
        self.lost.is_some() || matches!(self.state, State::Swallowing(_))
    }

    /// True if the client gets no body, or nothing at all.
    fn swallows(&self) -> bool {
        self.is_current || self.has_no_client()
    }

    /// True if the response is being kept.
    fn keeps(&self) -> bool {
        matches!(self.state, State::Passing { kept: Some(_), .. })
    }

    /// Goes on without the client if the page is being kept; otherwise fails with its cut.
    fn without_client<T>(&mut self, result: Result<T, Cut>, instead: T) -> Result<T, Cut> {
        match result {
            Err(cut) if self.keeps() => {
                self.lost.get_or_insert(cut);
                Ok(instead)
            }
            result => result,
        }
    }

    /// Fails with the client's cut if the client has left, and its page is not kept after all.
    fn fail_if_unwanted(&mut self) -> Result<(), Cut> {
        let is_kept = self.keeps();
        match self.lost.take_if(|_| !is_kept) {
            Some(cut) => Err(cut),
            None => Ok(()),
        }
    }
}

/// True if a response with this status says what the page is now, or that there is none. False if it
/// only says that the application cannot answer at the moment.
fn answers_for_the_page(status: StatusCode) -> bool {
    let is_refusal = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    !status.is_server_error() && !is_refusal
}

impl Sink for Recorder<'_, '_> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.next.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        if let Some(instead) = self.instead(&head) {
            self.state = State::Swallowing(instead);
            return Ok(());
        }
        let RecordingContext { cache, limit, request, told, .. } = self.order;
        let now = SystemTime::now();
        let is_short = head.length.is_none_or(|length| length <= LARGEST as u64);
        // It would be recorded for as long as the application likes.
        let is_stream =
            head.value("Content-Type").is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        let may_end = is_short && !is_stream;
        let judged = may_end.then(|| self.judge(&head, now)).flatten();
        let times = judged.as_ref().map(|judged| judged.times);
        // A response to HEAD has no body to keep.
        let kept = judged.filter(|_| request.method == Method::GET).map(|judged| {
            let Judged { key, times, labels } = judged;
            if !labels.owner.is_empty() {
                self.make_own(key);
            }
            let facts = facts(key, request, &head, times, labels, now);
            Box::new(Recording::new(cache, facts, limit))
        });
        let is_kept = kept.is_some();
        // The head does not say that the page is stored (RFC 9211 §2.5): that is known only at the
        // end of the body.
        let outcome = match times.filter(|_| is_kept) {
            Some(times) => format!("; ttl={}", times.seconds_left(now)),
            None if head.is_incomplete => "; detail=invalid-field".to_owned(),
            None => String::new(),
        };
        self.state = State::Passing { kept, length: head.length };
        if times.is_none() && answers_for_the_page(head.status) {
            self.supersede();
        } else if !is_kept {
            self.give_up();
        }
        if head.status == StatusCode::OK && is_current(&head, &request.headers) {
            self.is_current = true;
            head.status = StatusCode::NOT_MODIFIED;
            (head.reason, head.length) = (None, None);
        }
        head.field("Cache-Status", format!("sendoff; {told}{outcome}"));
        self.next.begin(head)
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        self.keep(&segment);
        self.fail_if_unwanted()?;
        if self.swallows() {
            return Ok(Fit::Whole);
        }
        let pushed = self.next.push(segment);
        self.without_client(pushed, Fit::Whole)
    }

    /// A page with trailers is not kept, because kept pages have none.
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        self.supersede();
        self.fail_if_unwanted()?;
        if self.swallows() { Ok(()) } else { self.next.trailers(trailers) }
    }

    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut> {
        let missing = if self.has_no_client() { 0 } else { self.next.end(ending)? };
        if let State::Passing { kept, length } = &mut self.state
            && let Some(recording) = kept.take()
        {
            // A client that gets no body does not notice missing bytes.
            let has_all = length.map(|length| length == recording.len());
            let is_whole = match ending {
                ResponseEnd::Complete => has_all.unwrap_or(true),
                ResponseEnd::Closed => has_all.unwrap_or(false),
                ResponseEnd::Failed => false,
            };
            if missing == 0 && is_whole {
                recording.finish(self.order.begun, self.permit.take());
            } else {
                self.give_up();
            }
        }
        self.fail_if_unwanted()?;
        Ok(missing)
    }

    fn room(&self) -> Room {
        if self.swallows() { Room::Memory } else { self.next.room() }
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        self.fail_if_unwanted()?;
        if self.has_no_client() {
            return Ok(Progress::Done);
        }
        let sent = self.next.send_now();
        self.without_client(sent, Progress::Done)
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let ready = std::task::ready!(self.next.poll_writable(cx));
        Poll::Ready(self.without_client(ready, ()))
    }

    fn client(&mut self) -> &mut dyn Client {
        self
    }
}

/// The client of the response, which is not seen to leave while its page is being kept.
impl Client for Recorder<'_, '_> {
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(self.next.client().poll_gone(cx));
        if self.keeps() {
            self.lost.get_or_insert_with(Cut::client_gone);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn notes(&mut self) -> &mut Notes {
        self.next.client().notes()
    }

    fn report(&mut self) -> Option<&mut Report> {
        self.next.client().report()
    }

    fn note_slow(&mut self) {
        self.next.client().note_slow();
    }

    fn close_after(&mut self) {
        self.next.client().close_after();
    }

    fn withhold_socket(&mut self) {
        self.next.client().withhold_socket();
    }

    fn kept_up(&mut self) -> bool {
        self.next.client().kept_up()
    }

    fn lender(&mut self) -> Option<&mut dyn Lender> {
        self.next.client().lender()
    }

    fn may_switch(&mut self) -> bool {
        self.next.client().may_switch()
    }
}
