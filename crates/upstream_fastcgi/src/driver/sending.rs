//! Sending of the request, and the search for the process that reads it: until one has begun to, the
//! request can go elsewhere.

use std::os::fd::AsFd;

use sendoff_upstream::error::UpstreamError;
use tokio::io::Interest;

use super::{Driver, is_for_later};
use crate::stream::Stream;

impl Driver {
    /// Sends as much of the request as the connection takes, with the descriptor that goes along.
    pub(super) fn send_at_once(&mut self) -> Result<(), UpstreamError> {
        let tunnel = self.tunnel.take();
        let lent = self.lent.as_ref().map(|lent| lent.socket.as_fd());
        let descriptor = lent.or(tunnel.as_ref().map(AsFd::as_fd));
        let may_send = self.may_send();
        let Ok(bytes) = self.outgoing.bytes() else { return Ok(()) };
        match self.stream.write_at_once(&bytes[..bytes.len().min(may_send)], descriptor) {
            Ok(n) => self.outgoing.advance(n),
            // The descriptor must be sent with the first byte.
            Err(error) if descriptor.is_some() => return Err(self.closed(Some(&error))),
            Err(_found_again) => {}
        }
        Ok(())
    }

    /// Sends as much as the connection takes. Sets `open` to false when the peer stops reading; it
    /// may still have answered.
    pub(super) fn send(&mut self, open: &mut bool) -> Result<bool, UpstreamError> {
        let may_send = self.may_send();
        let bytes = self.outgoing.bytes()?;
        let bytes = &bytes[..bytes.len().min(may_send)];
        if bytes.is_empty() {
            return Ok(false);
        }
        let written = match self.stream.try_write(bytes) {
            // The peer may have read everything before the state was cleared; the event loop then
            // never reports the connection as writable.
            Err(error) if is_for_later(&error) && std::mem::take(&mut self.forgot_writable) => {
                self.stream.write_at_once(bytes, None)
            }
            written => written,
        };
        match written {
            Ok(n) => {
                self.outgoing.advance(n);
                let _is_found = self.look_for_reader(true);
                Ok(true)
            }
            Err(error) if is_for_later(&error) => Ok(false),
            Err(_) => {
                *open = false;
                self.outgoing.give_up();
                Ok(true)
            }
        }
    }

    /// The most bytes of the current buffer that may be sent now.
    fn may_send(&self) -> usize {
        match self.outgoing.head_left() {
            head if self.read_by.is_some() => head.saturating_sub(1),
            // On a new connection, the head is sent by itself: an application may leave the body
            // unread until it has begun to work.
            head if head > 0 && self.looks_for_reader() => head,
            _ => usize::MAX,
        }
    }

    /// True while the process that reads the request is not found yet. Over TCP the kernel cannot
    /// tell.
    pub(super) fn looks_for_reader(&self) -> bool {
        let is_new = !self.permit.was_taken() && matches!(self.stream, Stream::Unix(_));
        is_new || self.read_by.is_some()
    }

    /// Checks if a process has begun to read the request, and returns true if it has just been
    /// found. `wrote`: a part of the request was sent since the last check.
    pub(super) fn look_for_reader(&mut self, wrote: bool) -> bool {
        if !self.looks_for_reader() {
            return false;
        }
        if !wrote {
            // Cleared before the check, so that a read after the check makes the connection
            // writable again.
            self.stream.forget(Interest::WRITABLE);
            self.forgot_writable = true;
        }
        let Some(unread) = self.stream.unread() else { return false };
        let is_found = match self.read_by {
            Some(_) => unread == 0,
            None => unread < self.unread || (wrote && unread == self.unread),
        };
        self.unread = unread;
        if is_found {
            self.permit.note_taken();
            self.read_by = None;
        }
        is_found
    }
}
