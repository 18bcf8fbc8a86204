//! Takes in a page that asks for assembly; every other response passes.

use std::task::{Context as TaskContext, Poll};

use http::{Method, StatusCode, Version};
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_esi::body::Body;
use sendoff_esi::head::forget_template;
use sendoff_esi::surrogate;
use sendoff_exchange::client::Client;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::request::{Request, is_conditional};
use sendoff_message::response::{Framing, ResponseEnd, ResponseHead, Trailers};

use super::assembly::Budget;
use crate::context::Context;

/// A page that asks for assembly.
pub(super) struct TakenPage {
    pub(super) head: ResponseHead,
    pub(super) body: Body,
    pub(super) ending: ResponseEnd,
}

/// The outcome of a request for a page.
pub(super) enum Captured {
    /// The client has got the response, or none has begun.
    Nothing,
    /// The response is a part of a page, or confirms the client's copy of it. The client has got
    /// nothing.
    Part,
    /// The page cannot be read, for this reason. The client has got nothing.
    Unfit(String),
    /// The client has got nothing.
    Page(TakenPage),
}

enum State {
    Passing,
    Dropping(Captured),
    Taking { head: Box<ResponseHead>, body: Body, framing: Framing, ending: ResponseEnd },
}

/// The filter.
pub(super) struct Capture<'r, 'c> {
    next: &'r mut dyn Sink,
    budget: &'c Budget,
    state: State,
    request: &'c Request,
    speaks_lscache: bool,
}

impl<'r, 'c> Capture<'r, 'c> {
    /// The client's socket is not lent: bytes that a worker wrote to it could not be read.
    pub(super) fn new(next: &'r mut dyn Sink, context: &Context<'c>, budget: &'c Budget) -> Self {
        next.client().withhold_socket();
        let Context { request, site, .. } = *context;
        Self { next, budget, state: State::Passing, request, speaks_lscache: site.speaks_lscache() }
    }

    pub(super) fn into_captured(self) -> Captured {
        match self.state {
            State::Passing => Captured::Nothing,
            State::Dropping(captured) => captured,
            State::Taking { head, body, ending, .. } => {
                Captured::Page(TakenPage { head: *head, body, ending })
            }
        }
    }

    fn asks(&self, head: &ResponseHead) -> bool {
        surrogate::asks(head) || self.speaks_lscache && surrogate::asks_as_plugin(head)
    }

    /// True if the response depends on a condition or a range that the client has sent, and the
    /// page may be requested again without it.
    fn is_part(&self, head: &ResponseHead) -> bool {
        let Request { method, headers, .. } = self.request;
        matches!(*method, Method::GET | Method::HEAD)
            && is_conditional(headers)
            && match head.status {
                StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED => self.asks(head),
                // The range may exceed only the length of the page without its fragments.
                StatusCode::RANGE_NOT_SATISFIABLE => true,
                _ => false,
            }
    }

    /// The treatment of a response with this head.
    fn judge(&self, head: &ResponseHead) -> State {
        if self.is_part(head) {
            return State::Dropping(Captured::Part);
        }
        let (method, status) = (&self.request.method, head.status);
        let framing = Framing::choose(method, Version::HTTP_11, status, head.length);
        if !self.asks(head) || framing == Framing::NoBody {
            return State::Passing;
        }
        if head.has("Content-Encoding") {
            let why = "it is compressed although it was asked for without compression";
            return State::Dropping(Captured::Unfit(why.to_owned()));
        }
        let (body, ending) = (Body::default(), ResponseEnd::Complete);
        State::Taking { head: Box::new(head.clone()), body, framing, ending }
    }
}

impl Sink for Capture<'_, '_> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.next.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        self.state = self.judge(&head);
        if !matches!(self.state, State::Passing) {
            return Ok(());
        }
        if self.asks(&head) && self.request.method == Method::HEAD {
            // The length of the assembled page is not known without its parts.
            forget_template(&mut head);
        }
        head.fields.retain(|field| !field.is(surrogate::CONTROL));
        self.next.begin(head)
    }

    fn push(&mut self, mut segment: Segment) -> Result<Fit, Cut> {
        match &mut self.state {
            State::Passing => self.next.push(segment),
            State::Dropping(_) => Ok(Fit::Whole),
            State::Taking { body, framing, .. } => {
                let fit = Fit::of(&mut segment, framing);
                body.push(self.budget.take(segment).map_err(Cut::application)?);
                Ok(fit)
            }
        }
    }

    /// Fields behind the body of a page with markup are about its text, so they are dropped.
    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        match self.state {
            State::Passing => self.next.trailers(trailers),
            State::Dropping(_) | State::Taking { .. } => Ok(()),
        }
    }

    fn end(&mut self, end: ResponseEnd) -> Result<u64, Cut> {
        match &mut self.state {
            State::Passing => self.next.end(end),
            State::Dropping(_) => Ok(0),
            State::Taking { framing, ending, .. } => {
                *ending = end;
                Ok(framing.missing())
            }
        }
    }

    fn room(&self) -> Room {
        match self.state {
            State::Passing => self.next.room(),
            State::Dropping(_) | State::Taking { .. } => Room::Memory,
        }
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        match self.state {
            State::Passing => self.next.send_now(),
            State::Dropping(_) | State::Taking { .. } => Ok(Progress::Done),
        }
    }

    fn poll_writable(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Cut>> {
        match self.state {
            State::Passing => self.next.poll_writable(cx),
            State::Dropping(_) | State::Taking { .. } => Poll::Ready(Ok(())),
        }
    }

    fn client(&mut self) -> &mut dyn Client {
        self.next.client()
    }
}
