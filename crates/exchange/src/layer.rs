//! A responder around another one that changes the head of the response.

use std::task::{Context, Poll};

use http::StatusCode;
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;

use crate::passed_on;
use crate::responder::{Fit, Lender, Responder, Room, Tunnel};

/// A responder that changes the head and passes everything else on.
pub struct Layer<'r, F> {
    client: &'r mut dyn Responder,
    change: F,
    /// Whether the client's socket may be lent all the same: its borrower writes the head without the change.
    lends: bool,
}

impl<'r, F: FnMut(&mut ResponseHead)> Layer<'r, F> {
    /// Answers to `client`, with heads changed by `change`.
    pub fn new(client: &'r mut dyn Responder, lends: bool, change: F) -> Self {
        Self { client, change, lends }
    }
}

impl<F: FnMut(&mut ResponseHead)> Responder for Layer<'_, F> {
    /// Rules that change or remove a field do so here, too; what they add is for the final response.
    fn interim(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        let names: Vec<_> = head.fields.iter().map(|field| field.name().to_vec()).collect();
        let (status, reason) = (head.status, head.reason.take());
        // Rules may be about successful responses only, which this one announces.
        head.status = StatusCode::OK;
        (self.change)(&mut head);
        head.fields.retain(|field| names.iter().any(|own| field.is(own)));
        (head.status, head.reason) = (status, reason);
        self.client.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        (self.change)(&mut head);
        self.client.begin(head)
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        self.client.push(segment)
    }

    fn end(&mut self) -> Result<u64, Cut> {
        self.client.end()
    }

    fn room(&self) -> Room {
        self.client.room()
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        self.client.send_now()
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.client.poll_writable(cx)
    }

    fn status(&self) -> Option<StatusCode> {
        self.client.status()
    }

    fn generated(&self) -> u64 {
        self.client.generated()
    }

    fn kept_up(&self) -> bool {
        self.client.kept_up()
    }

    fn lender(&mut self) -> Option<&mut dyn Lender> {
        if self.lends { self.client.lender() } else { None }
    }

    fn tunnel(&mut self) -> Option<&mut dyn Tunnel> {
        self.client.tunnel()
    }

    passed_on!();
}
