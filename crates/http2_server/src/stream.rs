//! One stream of a connection (RFC 9113 §5.1).

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::task::{Context, Waker};

use bytes::{Buf, Bytes, BytesMut};
use sendoff_delivery::Piece;
use sendoff_message::response::Trailers;

use super::settings::STREAM_WINDOW;

/// A stream, from its HEADERS until both directions have ended and its task has let it go.
///
/// ```text
///   open ── the client's END_STREAM ──▶ half-closed ── END_STREAM has been sent ──▶ closed
///    └── RST_STREAM of either side ───────────────────────────────────────────────────▲
/// ```
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) input: Input,
    pub(super) output: Outgoing,
    /// One side has sent `RST_STREAM`.
    pub(super) is_reset: bool,
    /// The directions that the stream's task still has: 2, 1 or 0.
    pub(super) handles: u8,
    /// The stream's task, if it waits.
    waker: Option<Waker>,
}

/// The client's direction.
#[derive(Debug)]
pub(super) struct Input {
    /// Bytes of the body that the task has not taken yet.
    pub(super) body: BytesMut,
    /// The client has ended its direction.
    pub(super) has_ended: bool,
    /// No task wants the rest of the body.
    pub(super) is_unwanted: bool,
    /// Bytes that the client may still send.
    pub(super) window: u32,
    /// Bytes of the body whose place in the windows has not been given back.
    pub(super) held: u32,
    /// Bytes that have been given back, but not announced to the client.
    pub(super) released: u32,
    /// Bytes of the body that its announced length still lacks; `None` without such a length.
    pub(super) missing: Option<u64>,
    /// The fields behind the body.
    pub(super) trailers: Option<Trailers>,
}

/// This server's direction.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Frames that wait for their turn. They count in the windows already.
    pub(super) queue: VecDeque<OutFrame>,
    /// Bytes that the client takes; below zero after a smaller initial window (RFC 9113 §6.9.2).
    pub(super) window: i64,
    /// A share of the connection's window.
    pub(super) share: usize,
    /// DATA frames that were given and that the transport has not taken.
    pub(super) in_flight: InFlight,
    /// The last frame has been given.
    pub(super) is_complete: bool,
    /// The last frame has been passed to the output.
    pub(super) has_ended: bool,
    /// The stream is among those that wait for a share.
    pub(super) awaits_share: bool,
    /// The stream waits until fewer of its bytes, or of the connection's, are in flight.
    pub(super) awaits_taken: bool,
}

/// Numbers of DATA frames with contents, and of bytes of these contents.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InFlight {
    pub(super) bytes: usize,
    pub(super) frames: usize,
}

impl AddAssign for InFlight {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.frames += more.frames;
    }
}

impl SubAssign for InFlight {
    fn sub_assign(&mut self, less: Self) {
        self.bytes -= less.bytes;
        self.frames -= less.frames;
    }
}

/// A frame of a response behind its head.
#[derive(Debug)]
pub(super) enum OutFrame {
    Data { piece: Piece, ends: bool },
    Trailers(Bytes),
}

impl Stream {
    /// A stream whose HEADERS have come. `window`: bytes of the response that the client takes.
    pub(super) fn new(id: u32, has_ended: bool, window: i64) -> Self {
        let input = Input {
            body: BytesMut::new(),
            has_ended,
            is_unwanted: false,
            window: STREAM_WINDOW,
            held: 0,
            released: 0,
            missing: None,
            trailers: None,
        };
        let output = Outgoing {
            queue: VecDeque::new(),
            window,
            share: 0,
            in_flight: InFlight::default(),
            is_complete: false,
            has_ended: false,
            awaits_share: false,
            awaits_taken: false,
        };
        Self { id, input, output, is_reset: false, handles: 2, waker: None }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_reset || self.input.has_ended && self.output.has_ended
    }

    /// Wakes the stream's task at the next change.
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        self.waker.get_or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

impl Input {
    /// Counts bytes of the body against its announced length; false if they differ (RFC 9113
    /// §8.1.1).
    pub(super) fn count(&mut self, bytes: usize, ends: bool) -> bool {
        let Some(missing) = &mut self.missing else { return true };
        let Some(left) = missing.checked_sub(bytes as u64) else { return false };
        *missing = left;
        left == 0 || !ends
    }

    /// Keeps the contents of a frame of `size` bytes for the stream's task, if it wants them.
    /// Returns the number of bytes that are kept; padding is not.
    pub(super) fn keep(&mut self, data: &[u8], size: u32) -> u32 {
        self.window -= size;
        if self.is_unwanted {
            return 0;
        }
        self.body.extend_from_slice(data);
        let held = u32::try_from(data.len()).unwrap_or(size);
        self.held += held;
        self.released += size - held;
        held
    }
}

impl Outgoing {
    /// Drops the frames that wait, and returns them as numbers.
    pub(super) fn clear(&mut self) -> InFlight {
        let mut dropped = InFlight::default();
        for frame in std::mem::take(&mut self.queue) {
            if let OutFrame::Data { piece, .. } = frame
                && piece.has_remaining()
            {
                dropped += InFlight { bytes: piece.remaining(), frames: 1 };
            }
        }
        self.in_flight -= dropped;
        dropped
    }
}
