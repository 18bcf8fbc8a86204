//! The frames of the client's control stream, and SETTINGS in both directions.

use bytes::{Buf, BytesMut};

use super::{CANCEL_PUSH, GOAWAY, Header, MAX_PUSH_ID, SETTINGS, available};
use crate::{Code, varint};

/// The largest payload of a known frame in bytes. SETTINGS of real clients have less than 100.
pub const MAX_PAYLOAD: usize = 16 << 10;

/// Decodes the frames of the client's control stream (RFC 9114 §6.2.1), behind its
/// [`StreamType`](crate::StreamType).
#[derive(Debug, Default)]
pub struct ControlDecoder {
    has_settings: bool,
    max_push_id: u64,
    goaway: Option<u64>,
    /// Missing bytes of a frame of an unknown type.
    unknown: u64,
}

/// A frame of the control stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// SETTINGS (RFC 9114 §7.2.4): the first frame, and only the first.
    Settings(Settings),
    /// GOAWAY (RFC 9114 §7.2.6) with a push id, never higher than before.
    GoAway(u64),
    /// MAX_PUSH_ID (RFC 9114 §7.2.7), never lower than before.
    MaxPushId(u64),
    /// CANCEL_PUSH (RFC 9114 §7.2.3). For a push that was never promised, the server closes the
    /// connection with [`Code::ID_ERROR`].
    CancelPush(u64),
    /// The decoder needs more bytes. The caller appends them to what is left in the buffer.
    NeedMore,
}

impl ControlDecoder {
    /// Takes the next frame from the front of `buf`. Frames of unknown types are skipped. When the
    /// decoder needs more, at most a frame header and [`MAX_PAYLOAD`] bytes are left in `buf`.
    ///
    /// # Errors
    /// The code with which the server closes the connection.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Control, Code> {
        loop {
            let size = available(buf, self.unknown);
            buf.advance(size);
            self.unknown -= size as u64;
            // If the unknown frame is cut, the buffer is empty now.
            let Some(header) = Header::decode(buf) else { return Ok(Control::NeedMore) };
            match header.kind {
                SETTINGS if self.has_settings => return Err(Code::FRAME_UNEXPECTED),
                SETTINGS => {}
                _ if !self.has_settings => return Err(Code::MISSING_SETTINGS),
                CANCEL_PUSH | GOAWAY | MAX_PUSH_ID => {}
                _ if header.is_known() => return Err(Code::FRAME_UNEXPECTED),
                _ => {
                    buf.advance(header.size);
                    self.unknown = header.length;
                    continue;
                }
            }
            let length = usize::try_from(header.length).ok().filter(|n| *n <= MAX_PAYLOAD);
            let end = header.size + length.ok_or(Code::EXCESSIVE_LOAD)?;
            let Some(payload) = buf.get(header.size..end) else { return Ok(Control::NeedMore) };
            let control = self.decode(header.kind, payload)?;
            buf.advance(end);
            return Ok(control);
        }
    }

    fn decode(&mut self, kind: u64, payload: &[u8]) -> Result<Control, Code> {
        if kind == SETTINGS {
            let settings = Settings::decode(payload)?;
            self.has_settings = true;
            return Ok(Control::Settings(settings));
        }
        // The payloads of the other frames are one integer.
        let integer = varint::decode(payload).filter(|(_, size)| *size == payload.len());
        let (id, _) = integer.ok_or(Code::FRAME_ERROR)?;
        match kind {
            CANCEL_PUSH => return Ok(Control::CancelPush(id)),
            MAX_PUSH_ID if id >= self.max_push_id => self.max_push_id = id,
            // RFC 9114 §5.2.
            GOAWAY if self.goaway.is_none_or(|before| id <= before) => self.goaway = Some(id),
            _ => return Err(Code::ID_ERROR),
        }
        Ok(if kind == GOAWAY { Control::GoAway(id) } else { Control::MaxPushId(id) })
    }
}

// RFC 9114 §7.2.4.1, RFC 9204 §5, RFC 9220 §5.
const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const QPACK_BLOCKED_STREAMS: u64 = 0x7;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// A reserved identifier, `0x1f * N + 0x21` (RFC 9114 §7.2.4.1). A client that does not ignore
/// unknown settings fails now, not when there is a new setting.
const RESERVED: u64 = 0x1f * 73 + 0x21;

/// The settings of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// SETTINGS_MAX_FIELD_SECTION_SIZE: the largest field section that the client accepts, counted
    /// as in RFC 9114 §4.2.2. `None` means no limit.
    pub max_field_section_size: Option<u64>,
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY (RFC 9204 §5) in bytes.
    pub qpack_max_table_capacity: u64,
    /// SETTINGS_QPACK_BLOCKED_STREAMS (RFC 9204 §5).
    pub qpack_blocked_streams: u64,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220 §3).
    pub enable_connect_protocol: bool,
}

impl Settings {
    /// Decodes the payload of a frame. Settings with unknown identifiers are ignored.
    pub(super) fn decode(mut payload: &[u8]) -> Result<Self, Code> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        while !payload.is_empty() {
            let (id, id_size) = varint::decode(payload).ok_or(Code::FRAME_ERROR)?;
            let (value, size) = varint::decode(&payload[id_size..]).ok_or(Code::FRAME_ERROR)?;
            payload = &payload[id_size + size..];
            seen.push(id);
            match id {
                QPACK_MAX_TABLE_CAPACITY => settings.qpack_max_table_capacity = value,
                MAX_FIELD_SECTION_SIZE => settings.max_field_section_size = Some(value),
                QPACK_BLOCKED_STREAMS => settings.qpack_blocked_streams = value,
                ENABLE_CONNECT_PROTOCOL if value <= 1 => {
                    settings.enable_connect_protocol = value == 1;
                }
                // 2 to 5 are settings of HTTP/2 only.
                ENABLE_CONNECT_PROTOCOL | 0x2..=0x5 => return Err(Code::SETTINGS_ERROR),
                _ => {}
            }
        }
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Code::SETTINGS_ERROR);
        }
        Ok(settings)
    }
}

/// Appends the server's SETTINGS frame (RFC 9114 §7.2.4): the limit of a field section as
/// [`decode`](crate::qpack::decode) counts it, no dynamic table, and Extended CONNECT (RFC 9220) if
/// enabled. It is the first frame of the control stream.
pub fn settings(max_field_section_size: u64, enable_connect_protocol: bool, out: &mut BytesMut) {
    let settings = [
        (QPACK_MAX_TABLE_CAPACITY, 0),
        (MAX_FIELD_SECTION_SIZE, max_field_section_size),
        (QPACK_BLOCKED_STREAMS, 0),
        (ENABLE_CONNECT_PROTOCOL, u64::from(enable_connect_protocol)),
        (RESERVED, 0),
    ];
    let mut payload = BytesMut::new();
    for integer in settings.into_iter().flat_map(|(id, value)| [id, value]) {
        varint::encode(integer, &mut payload);
    }
    varint::encode(SETTINGS, out);
    varint::encode(payload.len() as u64, out);
    out.extend_from_slice(&payload);
}
