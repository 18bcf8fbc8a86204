//! The framed body of `docs/handover.md` §8: a body in `STDOUT` that can continue on a link.

use bytes::{Buf, Bytes};

/// The frame header after which the rest of the body comes on a link.
const MOVED: u32 = u32::MAX;

/// The last frame of a body that continues on a link.
pub const MOVED_FRAME: [u8; 4] = MOVED.to_be_bytes();

/// The next part of a framed body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Body bytes.
    Bytes(Bytes),
    /// The rest of the body comes on a link.
    Moved,
}

/// The error of bytes behind [`Frame::Moved`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Surplus;

/// Decodes a framed body: `[length u32][bytes]...`, with `[0xffffffff]` at the end if it continues
/// on a link.
#[derive(Debug, Default)]
pub struct Frames {
    waiting: Bytes,
    /// The received part of a frame header.
    head: [u8; 4],
    head_len: usize,
    /// Bytes left of the current frame.
    left: u32,
    moved: bool,
}

impl Frames {
    /// Passes received bytes in; [`Self::take`] must have returned `None` before.
    ///
    /// # Errors
    /// The body has moved, so no bytes may follow.
    pub fn push(&mut self, received: Bytes) -> Result<(), Surplus> {
        debug_assert!(self.waiting.is_empty());
        if self.moved && !received.is_empty() {
            return Err(Surplus);
        }
        self.waiting = received;
        Ok(())
    }

    /// The next part; `None` if more bytes are needed.
    ///
    /// # Errors
    /// There are bytes behind the end of the moved body.
    pub fn take(&mut self) -> Result<Option<Frame>, Surplus> {
        while !self.waiting.is_empty() {
            if self.moved {
                return Err(Surplus);
            }
            if self.left > 0 {
                let now = self.waiting.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= u32::try_from(now).unwrap_or(self.left);
                return Ok(Some(Frame::Bytes(self.waiting.split_to(now))));
            }
            let now = (self.head.len() - self.head_len).min(self.waiting.len());
            self.waiting.copy_to_slice(&mut self.head[self.head_len..self.head_len + now]);
            self.head_len += now;
            if self.head_len == self.head.len() {
                self.head_len = 0;
                match u32::from_be_bytes(self.head) {
                    MOVED => self.moved = true,
                    length => self.left = length,
                }
                if self.moved {
                    return Ok(Some(Frame::Moved));
                }
            }
        }
        Ok(None)
    }

    /// True between two frames, where the body may end.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.left == 0 && self.head_len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(wire: &[u8], piece: usize) -> Result<(Vec<u8>, bool, bool), Surplus> {
        let (mut frames, mut body, mut moved) = (Frames::default(), Vec::new(), false);
        for piece in wire.chunks(piece) {
            frames.push(Bytes::copy_from_slice(piece))?;
            while let Some(frame) = frames.take()? {
                match frame {
                    Frame::Bytes(bytes) => body.extend_from_slice(&bytes),
                    Frame::Moved => moved = true,
                }
            }
        }
        Ok((body, moved, frames.is_whole()))
    }

    #[test]
    fn however_it_is_cut_the_same_body_comes_out() {
        let wire = b"\0\0\0\x05hello\0\0\0\0\0\0\0\x01!\xff\xff\xff\xff";
        for piece in 1..=wire.len() {
            assert_eq!(read(wire, piece), Ok((b"hello!".to_vec(), true, true)));
        }
    }

    #[test]
    fn a_cut_frame_is_no_end_and_nothing_follows_a_move() {
        for cut in [1, 3, 4, 8] {
            assert!(!read(&b"\0\0\0\x05hello"[..cut], 100).unwrap().2, "{cut}");
        }
        for piece in [4, 100] {
            assert_eq!(read(b"\xff\xff\xff\xffx", piece), Err(Surplus));
        }
    }
}
