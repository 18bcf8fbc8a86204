//! From bytes of a client to frames (RFC 9113 §4, §6).

use std::borrow::Cow;

use crate::{Code, ConnectionError, FRAME_HEADER, Frame, MAX_FRAME, Settings, flag, kind};

/// The most CONTINUATION frames of a field block (CVE-2024-27316). Clients fill their frames.
const MOST_CONTINUATIONS: u32 = 16;

/// A field block whose end has not come.
#[derive(Debug)]
struct Unfinished {
    stream: u32,
    ends: bool,
    block: Vec<u8>,
    continuations: u32,
}

/// Splits the bytes of a connection behind the preface into frames.
#[derive(Debug)]
pub struct FrameDecoder {
    unfinished: Option<Box<Unfinished>>,
    /// The first frame is SETTINGS (RFC 9113 §3.4).
    awaits_settings: bool,
    /// The most bytes of an encoded field block.
    max_block: usize,
}

impl FrameDecoder {
    /// A connection. `max_block` limits the bytes of an encoded field block.
    #[must_use]
    pub const fn new(max_block: usize) -> Self {
        Self { unfinished: None, awaits_settings: true, max_block }
    }

    /// The frame at the beginning of `bytes`, and its size with its header; `None` if the rest of
    /// the frame is missing.
    ///
    /// # Errors
    /// The connection ends.
    pub fn next<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<Option<(Frame<'a>, usize)>, ConnectionError> {
        let Some((header, rest)) = bytes.split_first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        if std::mem::take(&mut self.awaits_settings)
            && (kind != kind::SETTINGS || flags & flag::ACK != 0)
        {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        if len > MAX_FRAME {
            return Err(ConnectionError::size("a frame is too large"));
        }
        let Some(payload) = rest.get(..len) else { return Ok(None) };
        let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
        let frame = self.frame(kind, flags, stream, payload)?;
        Ok(Some((frame, FRAME_HEADER + len)))
    }

    fn frame<'a>(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &'a [u8],
    ) -> Result<Frame<'a>, ConnectionError> {
        if self.unfinished.is_some() || kind == kind::CONTINUATION {
            return self.continuation(kind, flags, stream, payload);
        }
        let on_stream = || match stream {
            0 => Err(ConnectionError::protocol("a frame without a stream")),
            _ => Ok(()),
        };
        let on_connection = || match stream {
            0 => Ok(()),
            _ => Err(ConnectionError::protocol("a frame of the connection on a stream")),
        };
        let has_flag = |flag| flags & flag != 0;
        match kind {
            kind::DATA => {
                on_stream()?;
                let (data, ends) = (unpadded(payload, flags)?, has_flag(flag::END_STREAM));
                let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                Ok(Frame::Data { stream, data, size, ends })
            }
            kind::HEADERS => {
                on_stream()?;
                self.headers(flags, stream, unpadded(payload, flags)?)
            }
            kind::PRIORITY => {
                on_stream()?;
                let code = match payload.first_chunk() {
                    Some(parent) if payload.len() == 5 && depends(*parent, stream) => {
                        Code::PROTOCOL_ERROR
                    }
                    Some(_) if payload.len() == 5 => return Ok(Frame::Ignored),
                    _ => Code::FRAME_SIZE_ERROR,
                };
                Ok(Frame::Malformed { stream, code })
            }
            kind::RST_STREAM => {
                on_stream()?;
                exact::<4>(payload)?;
                Ok(Frame::RstStream { stream })
            }
            kind::SETTINGS => {
                on_connection()?;
                match (has_flag(flag::ACK), payload) {
                    (true, []) => Ok(Frame::SettingsAck),
                    (true, _) => Err(ConnectionError::size("an acknowledgement with settings")),
                    (false, _) => Ok(Frame::Settings(Settings::decode(payload)?)),
                }
            }
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE of a client")),
            kind::PING => {
                on_connection()?;
                let payload = exact(payload)?;
                Ok(if has_flag(flag::ACK) { Frame::PingAck(payload) } else { Frame::Ping(payload) })
            }
            kind::GOAWAY => {
                on_connection()?;
                if payload.len() < 8 {
                    return Err(ConnectionError::size("GOAWAY is too short"));
                }
                Ok(Frame::GoAway)
            }
            kind::WINDOW_UPDATE => {
                let increment = u32::from_be_bytes(exact(payload)?) & (u32::MAX >> 1);
                let code = Code::PROTOCOL_ERROR;
                match (stream, increment) {
                    (0, 0) => Err(ConnectionError::protocol("WINDOW_UPDATE by nothing")),
                    (_, 0) => Ok(Frame::Malformed { stream, code }),
                    _ => Ok(Frame::WindowUpdate { stream, increment }),
                }
            }
            // RFC 9113 §5.5.
            _ => Ok(Frame::Ignored),
        }
    }

    /// HEADERS without its padding (RFC 9113 §6.2).
    fn headers<'a>(
        &mut self,
        flags: u8,
        stream: u32,
        payload: &'a [u8],
    ) -> Result<Frame<'a>, ConnectionError> {
        let mut block = payload;
        if flags & flag::PRIORITY != 0 {
            let short = ConnectionError::size("HEADERS is too short");
            let ([parent @ .., _], rest) = payload.split_first_chunk::<5>().ok_or(short)?;
            if depends(*parent, stream) {
                return Err(ConnectionError::protocol("a stream that depends on itself"));
            }
            block = rest;
        }
        let ends = flags & flag::END_STREAM != 0;
        if flags & flag::END_HEADERS != 0 {
            return Ok(Frame::Headers { stream, block: Cow::Borrowed(block), ends });
        }
        let block = block.to_vec();
        self.unfinished = Some(Box::new(Unfinished { stream, ends, block, continuations: 0 }));
        Ok(Frame::Ignored)
    }

    /// A frame behind HEADERS without an end, which must be CONTINUATION (RFC 9113 §6.10).
    fn continuation(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<Frame<'static>, ConnectionError> {
        let out_of_place = ConnectionError::protocol("CONTINUATION is out of place");
        let unfinished = self.unfinished.as_mut().ok_or(out_of_place)?;
        if kind != kind::CONTINUATION || stream != unfinished.stream {
            return Err(ConnectionError::protocol("a field block has no end"));
        }
        unfinished.block.extend_from_slice(payload);
        unfinished.continuations += 1;
        let is_large = unfinished.block.len() > self.max_block;
        if is_large || unfinished.continuations > MOST_CONTINUATIONS {
            let code = Code::ENHANCE_YOUR_CALM;
            return Err(ConnectionError::new(code, "a field block is too large"));
        }
        if flags & flag::END_HEADERS == 0 {
            return Ok(Frame::Ignored);
        }
        let Unfinished { stream, ends, block, .. } = *self.unfinished.take().ok_or(out_of_place)?;
        Ok(Frame::Headers { stream, block: Cow::Owned(block), ends })
    }
}

/// True if a stream depends on itself, which RFC 7540 §5.3.1 forbade. Priorities are ignored
/// otherwise.
fn depends(parent: [u8; 4], stream: u32) -> bool {
    u32::from_be_bytes(parent) & (u32::MAX >> 1) == stream
}

/// The payload of DATA or HEADERS without padding (RFC 9113 §6.1).
fn unpadded(payload: &[u8], flags: u8) -> Result<&[u8], ConnectionError> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let short = ConnectionError::size("a padded frame without a length");
    let (padding, rest) = payload.split_first().ok_or(short)?;
    let end = rest.len().checked_sub(usize::from(*padding));
    let end = end.ok_or(ConnectionError::protocol("more padding than bytes"))?;
    Ok(&rest[..end])
}

fn exact<const N: usize>(payload: &[u8]) -> Result<[u8; N], ConnectionError> {
    payload.try_into().map_err(|_| ConnectionError::size("a frame of a wrong size"))
}
