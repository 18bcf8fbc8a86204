//! Bytes and descriptors for a worker that wait for its socket.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

/// Bytes that the socket has not taken yet, in order, and their descriptors.
#[derive(Debug)]
pub struct Outbox<A>(VecDeque<Message<A>>);

#[derive(Debug)]
struct Message<A> {
    bytes: Bytes,
    /// Sent with the first byte; empty afterwards.
    attached: Vec<A>,
}

impl<A> Default for Outbox<A> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<A> Outbox<A> {
    pub(super) fn push(&mut self, bytes: Bytes, attached: Vec<A>) {
        if !bytes.is_empty() {
            self.0.push_back(Message { bytes, attached });
        }
    }

    /// True if these bytes are the last message, and none of them has been sent.
    pub(super) fn ends_with(&self, bytes: &[u8]) -> bool {
        self.0.back().is_some_and(|last| last.bytes == bytes)
    }

    /// True if everything has been sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes and descriptors for the next `sendmsg`; the descriptors belong to the first byte.
    #[must_use]
    pub fn next(&self) -> Option<(&[u8], &[A])> {
        self.0.front().map(|message| (&message.bytes[..], &message.attached[..]))
    }

    /// Records that the socket has taken `n` of the bytes that [`Self::next`] returned, and the
    /// descriptors unless `n` is 0.
    pub fn sent(&mut self, n: usize) {
        let Some(message) = self.0.front_mut().filter(|_| n > 0) else { return };
        message.attached = Vec::new();
        message.bytes.advance(n.min(message.bytes.len()));
        if message.bytes.is_empty() {
            self.0.pop_front();
        }
    }
}
