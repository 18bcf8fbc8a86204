//! Bytes that a borrower of the client's socket has framed but could not write (`docs/handover.md`
//! §7).

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_fastcgi::direct::{Rest, Sent};
use sendoff_message::Cut;
use sendoff_message::response::Framing;

/// Framed bytes of a borrower that are still to be sent unchanged.
#[derive(Debug, Default)]
pub(super) struct Framed {
    left: u64,
    /// The last of these bytes lies inside a chunk, which the front ends.
    open: bool,
}

impl Framed {
    pub(super) fn of(sent: &Sent) -> Self {
        Self { left: sent.framed, open: sent.rest == (Rest::Chunked { open: true }) }
    }

    /// Bytes that the borrower has not handed over yet.
    pub(super) fn missing(&self) -> u64 {
        self.left
    }

    /// Splits `segment` into bytes that are already framed, which are queued unchanged, and the
    /// rest, which is to be framed.
    pub(super) fn take(&mut self, segment: Segment) -> Result<(Vec<Bytes>, Option<Segment>), Cut> {
        if self.left == 0 {
            return Ok((Vec::new(), Some(segment)));
        }
        let Segment::Bytes(mut bytes) = segment else {
            return Err(Cut::application("a file in the middle of what a worker has framed"));
        };
        let now = usize::try_from(self.left).map_or(bytes.len(), |n| n.min(bytes.len()));
        self.left -= now as u64;
        let mut wire = vec![bytes.split_to(now)];
        if self.left == 0 && std::mem::take(&mut self.open) {
            wire.extend(Framing::Chunked.after_piece());
        }
        Ok((wire, (!bytes.is_empty()).then_some(Segment::Bytes(bytes))))
    }
}

/// The framing of the rest of a body that a borrower has begun.
pub(super) fn framing_of(rest: Rest) -> Framing {
    match rest {
        Rest::Length(left) => Framing::Length(left),
        Rest::Chunked { .. } => Framing::Chunked,
        Rest::Close => Framing::Close,
    }
}
