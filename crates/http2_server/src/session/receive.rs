//! Frames of the client.

use bytes::Bytes;
use sendoff_field_section::{FieldError, FieldSection, SectionBuilder, TrailersBuilder};
use sendoff_http2::hpack::{Decoder, HpackError};
use sendoff_http2::{Code, ConnectionError, Frame, encode};
use sendoff_message::response::Trailers;

use super::super::settings::{RESET_UNSEEN, STREAMS, max_fields};
use super::super::stream::Stream;
use super::{Farewell, LEAVING, Session};

/// A request.
#[derive(Debug)]
pub(crate) struct NewStream {
    pub(crate) id: u32,
    /// The head; `None` if it exceeds the limit.
    pub(crate) head: Option<FieldSection>,
    /// The request has no body.
    pub(crate) ends: bool,
}

/// The consequence of a frame for the connection's task.
#[derive(Debug)]
pub(crate) enum Received {
    Nothing,
    Request(Box<NewStream>),
    /// The client makes requests although it was told to go.
    Refused,
}

const DECODING: ConnectionError =
    ConnectionError { code: Code::COMPRESSION_ERROR, why: "a field block cannot be decoded" };

pub(super) const IDLE: ConnectionError =
    ConnectionError { code: Code::PROTOCOL_ERROR, why: "a frame on a stream that is not open" };

impl Session {
    /// Acts upon a frame. `refuses`: further requests are refused.
    pub(crate) fn receive(
        &mut self,
        frame: Frame<'_>,
        decoder: &mut Decoder,
        refuses: bool,
    ) -> Result<Received, ConnectionError> {
        match frame {
            Frame::Headers { stream, block, ends } => {
                return self.headers(stream, &block, ends, decoder, refuses);
            }
            Frame::Data { stream, data, size, ends } => self.data(stream, data, size, ends)?,
            Frame::RstStream { stream } => self.client_resets(stream)?,
            Frame::Settings(settings) => self.settings(settings)?,
            Frame::Ping(payload) => encode::ping(true, payload, self.output.frames()),
            Frame::PingAck(LEAVING) => self.leave_finally(),
            Frame::GoAway => self.client_leaves = true,
            Frame::WindowUpdate { stream, increment } => self.window_update(stream, increment)?,
            Frame::Malformed { stream, code } if self.is_idle(stream) => {
                return Err(ConnectionError::new(code, "a frame on a stream that is not open"));
            }
            Frame::Malformed { stream, code } => self.refuse(stream, code)?,
            Frame::PingAck(_) | Frame::SettingsAck | Frame::Ignored => {}
        }
        Ok(Received::Nothing)
    }

    /// True if the client has not opened the stream. Streams with even numbers are the server's,
    /// which opens none.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    /// An error if the client knows that this stream, which has been forgotten, was closed (RFC 9113
    /// §5.1).
    fn check_closed(&self, id: u32) -> Result<(), ConnectionError> {
        if self.is_idle(id) {
            return Err(IDLE);
        }
        if self.farewell != Farewell::Open || self.reset.contains(&id) {
            return Ok(());
        }
        Err(ConnectionError::new(Code::STREAM_CLOSED, "a frame on a closed stream"))
    }

    fn headers(
        &mut self,
        id: u32,
        block: &[u8],
        ends: bool,
        decoder: &mut Decoder,
        refuses: bool,
    ) -> Result<Received, ConnectionError> {
        if self.place(id).is_ok() {
            self.trailers(id, block, ends, decoder)?;
            return Ok(Received::Nothing);
        }
        // The block is decoded in any case: later ones refer to it.
        let head = head(block, decoder).map_err(|HpackError| DECODING)?;
        if id <= self.last || id.is_multiple_of(2) {
            self.check_closed(id)?;
            return Ok(Received::Nothing);
        }
        self.last = id;
        if self.farewell == Farewell::Final {
            return Ok(Received::Nothing);
        }
        if refuses {
            // The client may repeat the request on another connection (RFC 9113 §8.7).
            self.reset(id, Code::REFUSED_STREAM);
            return Ok(Received::Refused);
        }
        if self.streams.iter().filter(|stream| !stream.is_closed()).count() >= STREAMS {
            self.refuse(id, Code::REFUSED_STREAM)?;
            return Ok(Received::Nothing);
        }
        let head = match head {
            Ok(head) => Some(head),
            Err(FieldError::TooLarge) => None,
            Err(FieldError::Malformed(why)) => {
                tracing::info!("a malformed HTTP/2 request: {why}");
                self.refuse(id, Code::PROTOCOL_ERROR)?;
                return Ok(Received::Nothing);
            }
        };
        self.streams.push(Stream::new(id, ends, self.initial_window));
        Ok(Received::Request(Box::new(NewStream { id, head, ends })))
    }

    /// Notes the announced length of a body, from which the body must not differ (RFC 9113 §8.1.1):
    /// a server behind this one would take the difference for another request. Returns false if the
    /// request has ended without its body.
    pub(crate) fn expect_length(&mut self, id: u32, length: u64) -> Result<bool, ConnectionError> {
        let Some(stream) = self.get(id) else { return Ok(false) };
        stream.input.missing = Some(length);
        let is_cut = stream.input.has_ended && length > 0;
        if is_cut {
            self.refuse(id, Code::PROTOCOL_ERROR)?;
        }
        Ok(!is_cut)
    }

    /// Fields behind a body (RFC 9113 §8.1).
    fn trailers(
        &mut self,
        id: u32,
        block: &[u8],
        ends: bool,
        decoder: &mut Decoder,
    ) -> Result<(), ConnectionError> {
        let mut fields = TrailersBuilder::new(max_fields());
        let mut is_valid = ends;
        let push = |name: Bytes, value| is_valid = is_valid && fields.push(&name, value).is_ok();
        decoder.decode(block, push).map_err(|HpackError| DECODING)?;
        let Some(stream) = self.get(id).filter(|stream| !stream.is_reset) else {
            return self.check_closed(id);
        };
        if stream.input.has_ended {
            return self.refuse(id, Code::STREAM_CLOSED);
        }
        if !is_valid || !stream.input.count(0, true) {
            return self.refuse(id, Code::PROTOCOL_ERROR);
        }
        stream.input.trailers = Trailers::of_request(fields.finish());
        self.end_input(id);
        Ok(())
    }

    fn end_input(&mut self, id: u32) {
        if let Some(stream) = self.get(id) {
            stream.input.has_ended = true;
            stream.wake();
        }
        self.tidy(id);
    }

    /// A part of a body. All of its bytes count for the windows (RFC 9113 §6.9.1), on streams that
    /// have ended, too.
    fn data(&mut self, id: u32, data: &[u8], size: u32, ends: bool) -> Result<(), ConnectionError> {
        let too_much = "more bytes than the window of the connection";
        let too_much = ConnectionError::new(Code::FLOW_CONTROL_ERROR, too_much);
        self.input_window = self.input_window.checked_sub(size).ok_or(too_much)?;
        let Some(stream) = self.get(id).filter(|stream| !stream.is_reset) else {
            self.give_back(size);
            return self.check_closed(id);
        };
        let input = &mut stream.input;
        let error = if input.has_ended {
            Code::STREAM_CLOSED
        } else if size > input.window {
            Code::FLOW_CONTROL_ERROR
        } else if !input.count(data.len(), ends) {
            Code::PROTOCOL_ERROR
        } else {
            let rest = size - input.keep(data, size);
            stream.wake();
            self.give_back(rest);
            if ends {
                self.end_input(id);
            }
            return Ok(());
        };
        self.give_back(size);
        self.refuse(id, error)
    }

    fn client_resets(&mut self, id: u32) -> Result<(), ConnectionError> {
        if self.is_idle(id) {
            return Err(IDLE);
        }
        if id > self.last_seen && self.place(id).is_ok() {
            self.reset_unseen += 1;
            if self.reset_unseen > RESET_UNSEEN {
                let why = "too many requests are given up at once";
                return Err(ConnectionError::new(Code::ENHANCE_YOUR_CALM, why));
            }
        }
        self.drop_stream(id);
        Ok(())
    }
}

/// The head in a field block, or the first error in it.
fn head(
    block: &[u8],
    decoder: &mut Decoder,
) -> Result<Result<FieldSection, FieldError>, HpackError> {
    let mut fields = SectionBuilder::new(max_fields());
    let mut result = Ok(());
    decoder.decode(block, |name, value| {
        if result.is_ok() {
            result = fields.push(&name, value);
        }
    })?;
    Ok(result.and_then(|()| fields.finish()))
}
