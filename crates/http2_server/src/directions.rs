//! The two directions of a stream, as its task has them.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use sendoff_delivery::Piece;
use sendoff_http2::{Code, MAX_FRAME};
use sendoff_message::Cut;
use sendoff_message::response::{ResponseHead, Trailers};
use sendoff_streams::{RequestBody, ResponseSender, StreamGone};

use super::fields;
use super::session::Shared;

/// The body of a request.
pub(super) struct Body {
    session: Shared,
    id: u32,
}

impl Body {
    pub(super) fn new(session: &Shared, id: u32) -> Self {
        Self { session: Rc::clone(session), id }
    }
}

impl RequestBody for Body {
    fn is_end(&self) -> bool {
        let mut session = self.session.borrow_mut();
        session
            .live(self.id)
            .is_some_and(|stream| stream.input.has_ended && stream.input.body.is_empty())
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamGone>> {
        let mut session = self.session.borrow_mut();
        let Some(stream) = session.live(self.id) else { return Poll::Ready(Err(StreamGone)) };
        let input = &mut stream.input;
        if !input.body.is_empty() {
            let part = input.body.len().min(MAX_FRAME);
            return Poll::Ready(Ok(Some(input.body.split_to(part).freeze())));
        }
        if input.has_ended {
            return Poll::Ready(Ok(None));
        }
        stream.wait(cx);
        Poll::Pending
    }

    fn take_trailers(&mut self) -> Option<Trailers> {
        self.session.borrow_mut().live(self.id)?.input.trailers.take()
    }

    fn release(&mut self, bytes: usize) {
        self.session.borrow_mut().release(self.id, bytes);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.session.borrow_mut().let_go(self.id, true);
    }
}

/// The sending direction. Given bytes count as in flight until the transport has taken them.
pub(super) struct Sender {
    session: Shared,
    id: u32,
    /// The most bytes of a DATA frame.
    frame: usize,
}

impl Sender {
    pub(super) fn new(session: &Shared, id: u32, frame: usize) -> Self {
        Self { session: Rc::clone(session), id, frame }
    }

    fn send_head(&mut self, block: &Bytes, ends: bool) -> Result<(), Cut> {
        let mut session = self.session.borrow_mut();
        if session.live(self.id).is_none() {
            return Err(Cut::client_gone());
        }
        session.send_head(self.id, block, ends);
        Ok(())
    }
}

impl ResponseSender for Sender {
    /// The field block.
    type Head = Bytes;

    fn encode(head: ResponseHead, invalid: &mut dyn FnMut(&[u8])) -> Bytes {
        fields::response(&head, invalid)
    }

    fn interim(&mut self, head: Bytes) -> Result<(), Cut> {
        self.send_head(&head, false)
    }

    fn head(&mut self, head: Bytes, ends: bool) -> Result<(), Cut> {
        self.send_head(&head, ends)
    }

    fn room(&mut self, owed: usize) -> usize {
        let room = self.session.borrow_mut().room(self.id, owed);
        // Whole frames, if it is more than one.
        if room > self.frame { room - room % self.frame } else { room }
    }

    /// The connection's task sends all that was given.
    fn has_rest(&self) -> bool {
        false
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        let mut session = self.session.borrow_mut();
        match session.live(self.id) {
            None => return Poll::Ready(Err(Cut::client_gone())),
            Some(stream) if stream.output.is_complete => return Poll::Ready(Ok(())),
            Some(stream) => stream.wait(cx),
        }
        if session.has_room(self.id) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn give(&mut self, piece: Piece, ends: bool) -> Result<(), Cut> {
        debug_assert!(ends || piece.has_remaining(), "a frame without a purpose");
        let mut session = self.session.borrow_mut();
        if session.live(self.id).is_none() {
            return Err(Cut::client_gone());
        }
        session.give(self.id, piece, ends, self.frame);
        Ok(())
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        let mut session = self.session.borrow_mut();
        if session.live(self.id).is_none() {
            return Err(Cut::client_gone());
        }
        session.give_trailers(self.id, fields::trailers(&trailers));
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.session.borrow_mut().live(self.id).map_or(0, |stream| stream.output.in_flight.bytes)
    }

    /// The connection's task sends them.
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        Poll::Ready(Ok(()))
    }

    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut session = self.session.borrow_mut();
        if session.is_taken() {
            return Poll::Ready(());
        }
        let Some(stream) = session.live(self.id) else { return Poll::Ready(()) };
        stream.output.awaits_taken = true;
        stream.wait(cx);
        Poll::Pending
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.session.borrow_mut().live(self.id) {
            None => Poll::Ready(()),
            Some(stream) => {
                stream.wait(cx);
                Poll::Pending
            }
        }
    }

    fn reset(&mut self) {
        let mut session = self.session.borrow_mut();
        session.reset(self.id, Code::INTERNAL_ERROR);
        session.wake();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.session.borrow_mut().let_go(self.id, false);
    }
}
