//! Responses: shares of the windows, and the order of frames.
//!
//! A stream gets a share of the connection's window, gives frames of that size, and the frames of
//! all streams leave in turn. Streams that find no share wait in order of arrival, and get one frame
//! each. A frame counts in the windows from the time at which it is given, so no frame waits for a
//! window. Bytes and frames that the transport has not taken are limited.

use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sendoff_delivery::Piece;
use sendoff_http2::hpack::NO_TABLE;
use sendoff_http2::{Code, MAX_FRAME, encode};
use sendoff_streams::STREAM_BUFFER;

use super::super::settings::{FRAMES_IN_FLIGHT, STREAM_FRAMES, in_flight};
use super::super::stream::{InFlight, OutFrame};
use super::Session;

/// The bytes that are passed to the transport at a time.
const AT_ONCE: usize = 64 * 1024;

impl Session {
    /// The bytes that may be shared out.
    fn unshared(&self) -> usize {
        let InFlight { bytes, frames } = self.in_flight;
        if bytes + self.shares >= in_flight() || frames >= FRAMES_IN_FLIGHT {
            return 0;
        }
        usize::try_from(self.window).unwrap_or(0).saturating_sub(self.shares)
    }

    /// Gives shares to the streams that wait, one frame each.
    pub(super) fn share_out(&mut self) {
        while let unshared @ 1.. = self.unshared()
            && let Some(id) = self.awaiting_share.pop_front()
        {
            let Some(stream) = self.get(id) else { continue };
            stream.output.awaits_share = false;
            let share = stream.output.wanted(MAX_FRAME).min(unshared);
            stream.output.share += share;
            stream.wake();
            self.shares += share;
        }
        if self.awaiting_share.is_empty() {
            self.awaiting_share.shrink_to(0);
        }
    }

    /// Returns a stream's share to the others.
    pub(super) fn return_share(&mut self, id: u32) {
        let Some(stream) = self.get(id) else { return };
        let share = std::mem::take(&mut stream.output.share);
        if share > 0 {
            self.shares -= share;
            self.share_out();
        }
    }

    /// The number of bytes that a stream may give now, at most `owed`.
    pub(crate) fn room(&mut self, id: u32, owed: usize) -> usize {
        if owed == 0 {
            self.return_share(id);
            return 0;
        }
        let unshared = if self.awaiting_share.is_empty() { self.unshared() } else { 0 };
        let Some(stream) = self.live(id) else { return 0 };
        let wanted = stream.output.wanted(owed);
        let more = wanted.saturating_sub(stream.output.share).min(unshared);
        stream.output.share += more;
        let room = wanted.min(stream.output.share);
        self.shares += more;
        room
    }

    /// True if a stream may give bytes. If not, the stream's task is woken when it may; it waits.
    pub(crate) fn has_room(&mut self, id: u32) -> bool {
        let can_share = self.awaiting_share.is_empty() && self.unshared() > 0;
        let Some(stream) = self.live(id) else { return false };
        let output = &mut stream.output;
        if output.is_full() {
            output.awaits_taken = true;
            return false;
        }
        if output.window <= 0 {
            self.return_share(id);
            return false;
        }
        if output.share > 0 || can_share {
            return true;
        }
        if !std::mem::replace(&mut output.awaits_share, true) {
            self.awaiting_share.push_back(id);
        }
        false
    }

    /// Appends the head of a response, or of an interim one.
    pub(crate) fn send_head(&mut self, id: u32, block: &Bytes, ends: bool) {
        self.pass_block(id, block, ends);
        if ends && let Some(stream) = self.get(id) {
            stream.output.is_complete = true;
            self.end_output(id);
        }
        self.wake();
    }

    /// Passes a field block to the output.
    fn pass_block(&mut self, id: u32, block: &Bytes, ends: bool) {
        if !std::mem::take(&mut self.resizes_table) {
            return encode::headers(id, block, ends, self.output.frames());
        }
        let mut resized = BytesMut::with_capacity(block.len() + 1);
        resized.put_u8(NO_TABLE);
        resized.put_slice(block);
        encode::headers(id, &resized, ends, self.output.frames());
    }

    /// Takes a piece of a response, at most as large as [`room`](Self::room) allowed, which becomes
    /// frames of at most `frame` bytes.
    pub(crate) fn give(&mut self, id: u32, mut piece: Piece, ends: bool, frame: usize) {
        let Some(stream) = self.live(id) else { return };
        let (len, output) = (piece.remaining(), &mut stream.output);
        let share = std::mem::take(&mut output.share);
        debug_assert!(len <= share, "a piece without room");
        output.window -= i64::try_from(len).unwrap_or(i64::MAX);
        let given = InFlight { bytes: len, frames: len.div_ceil(frame) };
        output.in_flight += given;
        output.is_complete = ends;
        let was_ready = !output.queue.is_empty();
        while piece.remaining() > frame {
            let piece = piece.split_to(frame);
            output.queue.push_back(OutFrame::Data { piece, ends: false });
        }
        output.queue.push_back(OutFrame::Data { piece, ends });
        self.window -= i64::try_from(len).unwrap_or(i64::MAX);
        self.in_flight += given;
        self.shares -= share;
        if share > len {
            self.share_out();
        }
        self.make_ready(id, was_ready);
    }

    /// Takes the fields behind a body, which end the stream.
    pub(crate) fn give_trailers(&mut self, id: u32, block: Bytes) {
        let Some(stream) = self.live(id) else { return };
        let was_ready = !stream.output.queue.is_empty();
        stream.output.queue.push_back(OutFrame::Trailers(block));
        stream.output.is_complete = true;
        self.make_ready(id, was_ready);
    }

    fn make_ready(&mut self, id: u32, was_ready: bool) {
        if !was_ready {
            self.ready.push_back(id);
        }
        self.wake();
    }

    /// Passes the next frame to the output; false if no stream has one.
    pub(super) fn pass_next(&mut self) -> bool {
        let Some(id) = self.ready.pop_front() else { return false };
        let Ok(place) = self.place(id) else { return true };
        let queue = &mut self.streams[place].output.queue;
        let frame = queue.pop_front();
        if !queue.is_empty() {
            self.ready.push_back(id);
        }
        let ends = match frame {
            Some(OutFrame::Data { piece, ends }) => {
                encode::data_header(id, piece.remaining(), ends, self.output.frames());
                self.output.push(id, piece);
                ends
            }
            Some(OutFrame::Trailers(block)) => {
                self.pass_block(id, &block, true);
                true
            }
            None => false,
        };
        if ends {
            self.end_output(id);
        }
        true
    }

    /// Notes that the last frame of a response has been passed to the output.
    fn end_output(&mut self, id: u32) {
        let Some(stream) = self.get(id) else { return };
        stream.output.has_ended = true;
        if stream.input.is_unwanted && !stream.input.has_ended {
            // The rest of the request is not needed (RFC 9113 §8.1).
            self.reset(id, Code::NO_ERROR);
        }
        self.tidy(id);
    }

    /// Fills in the bytes to be sent next; returns the number of slices.
    pub(crate) fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        while self.output.len() < AT_ONCE && self.pass_next() {}
        self.output.slices(slices)
    }

    /// Notes that the transport has taken bytes.
    pub(crate) fn take(&mut self, bytes: usize) {
        let Self { output, streams, .. } = self;
        let mut all = InFlight::default();
        output.advance(bytes, |id, taken| {
            all += taken;
            let Ok(place) = streams.binary_search_by_key(&id, |stream| stream.id) else { return };
            let stream = &mut streams[place];
            stream.output.in_flight -= taken;
            if stream.output.awaits_taken && stream.output.is_half_empty() {
                stream.output.awaits_taken = false;
                stream.wake();
            }
        });
        self.land(all);
    }

    /// Notes that these frames are no longer in flight.
    pub(super) fn land(&mut self, landed: InFlight) {
        self.in_flight -= landed;
        let InFlight { bytes, frames } = self.in_flight;
        // Not after each frame, so that a woken stream can give several.
        let is_half_empty = bytes <= in_flight() / 2 && frames <= FRAMES_IN_FLIGHT / 2;
        if landed.bytes > 0 && is_half_empty {
            self.share_out();
            for stream in &mut self.streams {
                if std::mem::take(&mut stream.output.awaits_taken) {
                    stream.wake();
                }
            }
        }
    }

    /// True if the transport has taken all bytes of responses.
    pub(crate) fn is_taken(&self) -> bool {
        self.in_flight.bytes == 0
    }

    /// Lets one direction of a stream go. `is_body`: the task does not want the rest of the request.
    pub(crate) fn let_go(&mut self, id: u32, is_body: bool) {
        let Some(stream) = self.get(id) else { return };
        stream.handles -= 1;
        if is_body {
            stream.input.is_unwanted = true;
            stream.input.body = BytesMut::new();
            let held = std::mem::take(&mut stream.input.held);
            let is_answered = stream.output.has_ended && !stream.input.has_ended;
            self.give_back(held);
            if is_answered {
                self.reset(id, Code::NO_ERROR);
            }
            if !self.output.is_empty() {
                self.wake();
            }
        } else if !stream.output.is_complete {
            self.reset(id, Code::INTERNAL_ERROR);
            self.wake();
        }
        self.tidy(id);
    }
}

impl super::super::stream::Outgoing {
    /// The part of `owed` that the stream's own limits allow.
    fn wanted(&self, owed: usize) -> usize {
        if self.is_full() {
            return 0;
        }
        let window = usize::try_from(self.window).unwrap_or(0);
        owed.min(window).min(STREAM_BUFFER - self.in_flight.bytes)
    }

    /// True if no more may be given until the transport has taken some.
    fn is_full(&self) -> bool {
        self.in_flight.bytes >= STREAM_BUFFER || self.in_flight.frames >= STREAM_FRAMES
    }

    fn is_half_empty(&self) -> bool {
        self.in_flight.bytes <= STREAM_BUFFER / 2 && self.in_flight.frames <= STREAM_FRAMES / 2
    }
}
