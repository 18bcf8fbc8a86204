//! The frames that a client sends on a request stream.

use bytes::{Buf, Bytes, BytesMut};

use super::{DATA, Error, HEADERS, Header, available};
use crate::Code;

/// Divides the bytes of a request stream into the parts of a request (RFC 9114 §4.1).
///
/// ```text
///              HEADERS                   HEADERS
///  AwaitsHead ────────▶ Content (DATA*) ────────▶ Complete
/// ```
#[derive(Debug)]
pub struct RequestDecoder {
    max_section: usize,
    progress: Progress,
    payload: Payload,
    /// True if the last call has left a part of a frame header in the buffer.
    has_partial_header: bool,
    skipped: u64,
}

/// The parts that have been read.
#[derive(Debug, Clone, Copy)]
enum Progress {
    AwaitsHead,
    Content,
    Complete,
}

/// The rest of the current frame.
#[derive(Debug, Clone, Copy)]
enum Payload {
    /// The next bytes are a frame header.
    None,
    /// Missing bytes of a DATA frame.
    Data(u64),
    /// Length of a HEADERS frame. The payload stays in the buffer until it is complete.
    Section(usize),
    /// Missing bytes of a frame of an unknown type.
    Unknown(u64),
}

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestPart {
    /// The encoded field section of the request's head, for [`decode`](crate::qpack::decode).
    Head(Bytes),
    /// A piece of the content, not empty. A DATA frame may arrive as several pieces.
    Data(Bytes),
    /// The encoded field section of the trailers, for [`trailers`](crate::qpack::trailers).
    Trailers(Bytes),
    /// The decoder needs more bytes. The caller appends them to what is left in the buffer.
    NeedMore,
}

impl RequestDecoder {
    /// A decoder for a new stream. `max_section` limits the bytes of each encoded field section.
    #[must_use]
    pub const fn new(max_section: usize) -> Self {
        let (progress, payload) = (Progress::AwaitsHead, Payload::None);
        Self { max_section, progress, payload, has_partial_header: false, skipped: 0 }
    }

    /// Takes the next part from the front of `buf`, without a copy. When the decoder needs more, a
    /// part of a frame header or at most `max_section` bytes are left in `buf`. Fails with
    /// [`Error::SectionTooLarge`] as soon as the length of the section is known.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<RequestPart, Error> {
        loop {
            match self.payload {
                Payload::None => {
                    let header = Header::decode(buf);
                    self.has_partial_header = header.is_none() && !buf.is_empty();
                    let Some(header) = header else { break };
                    self.payload = self.begin(&header)?;
                    buf.advance(header.size);
                    if matches!(self.payload, Payload::Data(0) | Payload::Unknown(_)) {
                        self.skipped += header.size as u64;
                    }
                }
                Payload::Data(0) | Payload::Unknown(0) => self.payload = Payload::None,
                Payload::Data(_) | Payload::Unknown(_) if buf.is_empty() => break,
                Payload::Section(length) if buf.len() < length => break,
                Payload::Data(left) => {
                    let data = buf.split_to(available(buf, left)).freeze();
                    self.payload = Payload::Data(left - data.len() as u64);
                    return Ok(RequestPart::Data(data));
                }
                Payload::Unknown(left) => {
                    let size = available(buf, left);
                    buf.advance(size);
                    self.payload = Payload::Unknown(left - size as u64);
                    self.skipped += size as u64;
                }
                Payload::Section(length) => {
                    let section = buf.split_to(length).freeze();
                    self.payload = Payload::None;
                    if matches!(self.progress, Progress::AwaitsHead) {
                        self.progress = Progress::Content;
                        return Ok(RequestPart::Head(section));
                    }
                    self.progress = Progress::Complete;
                    return Ok(RequestPart::Trailers(section));
                }
            }
        }
        Ok(RequestPart::NeedMore)
    }

    /// The payload of the frame with this header, if the frame is allowed here.
    fn begin(&self, header: &Header) -> Result<Payload, Error> {
        match (header.kind, self.progress) {
            (DATA, Progress::Content) => Ok(Payload::Data(header.length)),
            (HEADERS, Progress::AwaitsHead | Progress::Content) => {
                let length = usize::try_from(header.length).ok().filter(|n| *n <= self.max_section);
                length.map(Payload::Section).ok_or(Error::SectionTooLarge)
            }
            _ if header.is_known() => Err(Error::Connection(Code::FRAME_UNEXPECTED)),
            _ => Ok(Payload::Unknown(header.length)),
        }
    }

    /// True if the stream may end here. Otherwise its end cuts a frame, which is
    /// [`Code::FRAME_ERROR`] (RFC 9114 §7.1). Valid after [`RequestPart::NeedMore`].
    #[must_use]
    pub const fn is_at_boundary(&self) -> bool {
        matches!(self.payload, Payload::None) && !self.has_partial_header
    }

    /// Received bytes that are no part of the request: frames of unknown types, with their headers,
    /// and headers of empty DATA frames. Without a limit, a client could send them for ever.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }
}
