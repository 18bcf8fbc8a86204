//! A filter that changes the head of the response.

use std::task::{Context, Poll};

use http::StatusCode;
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_message::Cut;
use sendoff_message::response::{ResponseEnd, ResponseHead, Trailers};

use crate::client::Client;
use crate::sink::{Fit, Room, Sink};

/// Changes of the head of a response; a function that concerns no trailers is one.
pub trait HeadRules {
    /// Changes a head.
    fn change(&mut self, head: &mut ResponseHead);

    /// True if the rules set or remove fields of this name, so such a field may not follow behind
    /// the body. The name is in lower case.
    fn concern(&self, _name: &str) -> bool {
        false
    }
}

impl<F: FnMut(&mut ResponseHead)> HeadRules for F {
    fn change(&mut self, head: &mut ResponseHead) {
        self(head);
    }
}

/// A filter that changes the head, drops trailers that the rules concern, and passes everything else
/// on.
pub struct HeadFilter<'r, R> {
    next: &'r mut dyn Sink,
    rules: R,
}

impl<'r, F: FnMut(&mut ResponseHead)> HeadFilter<'r, F> {
    /// A filter that changes heads by `change`, as [`with_rules`](Self::with_rules).
    pub fn new(next: &'r mut dyn Sink, lends: bool, change: F) -> Self {
        Self::with_rules(next, lends, change)
    }
}

impl<'r, R: HeadRules> HeadFilter<'r, R> {
    /// A filter that changes heads by these rules. `lends`: the client's socket may still be lent,
    /// although a borrower writes the head without the change.
    pub fn with_rules(next: &'r mut dyn Sink, lends: bool, rules: R) -> Self {
        if !lends {
            next.client().withhold_socket();
        }
        Self { next, rules }
    }
}

impl<R: HeadRules> Sink for HeadFilter<'_, R> {
    /// Rules change or remove fields of an interim response as well, but fields that they add are
    /// only for the final response.
    fn interim(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        let names: Vec<_> = head.fields.iter().map(|field| field.name().to_vec()).collect();
        let (status, reason) = (head.status, head.reason.take());
        // Rules may apply only to successful responses, and an interim response announces one.
        head.status = StatusCode::OK;
        self.rules.change(&mut head);
        head.fields.retain(|field| names.iter().any(|own| field.is(own)));
        (head.status, head.reason) = (status, reason);
        self.next.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        self.rules.change(&mut head);
        self.next.begin(head)
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        self.next.push(segment)
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        let names = trailers.fields().keys();
        let dropped: Vec<_> =
            names.filter(|name| self.rules.concern(name.as_str())).cloned().collect();
        trailers.without(&dropped).map_or(Ok(()), |trailers| self.next.trailers(trailers))
    }

    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut> {
        self.next.end(ending)
    }

    fn room(&self) -> Room {
        self.next.room()
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        self.next.send_now()
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.next.poll_writable(cx)
    }

    fn client(&mut self) -> &mut dyn Client {
        self.next.client()
    }
}
