//! A filter that changes the head of the response.

use std::task::{Context, Poll};

use http::StatusCode;
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_message::Cut;
use sendoff_message::response::{ResponseEnd, ResponseHead, Trailers};

use crate::client::Client;
use crate::sink::{Fit, Room, Sink};

/// A filter that changes the head and passes everything else on.
pub struct HeadFilter<'r, F> {
    next: &'r mut dyn Sink,
    change: F,
}

impl<'r, F: FnMut(&mut ResponseHead)> HeadFilter<'r, F> {
    /// A filter that changes heads by `change`. `lends`: the client's socket may still be lent,
    /// although a borrower writes the head without the change.
    pub fn new(next: &'r mut dyn Sink, lends: bool, change: F) -> Self {
        if !lends {
            next.client().withhold_socket();
        }
        Self { next, change }
    }
}

impl<F: FnMut(&mut ResponseHead)> Sink for HeadFilter<'_, F> {
    /// Rules change or remove fields of an interim response as well, but fields that they add are
    /// only for the final response.
    fn interim(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        let names: Vec<_> = head.fields.iter().map(|field| field.name().to_vec()).collect();
        let (status, reason) = (head.status, head.reason.take());
        // Rules may apply only to successful responses, and an interim response announces one.
        head.status = StatusCode::OK;
        (self.change)(&mut head);
        head.fields.retain(|field| names.iter().any(|own| field.is(own)));
        (head.status, head.reason) = (status, reason);
        self.next.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        (self.change)(&mut head);
        self.next.begin(head)
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        self.next.push(segment)
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        self.next.trailers(trailers)
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
