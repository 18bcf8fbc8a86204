//! The records in a stream of bytes.

use bytes::{Buf, Bytes, BytesMut};

use crate::Error;
use crate::record::{HEADER_LEN, Header, Kind};

/// A record, or a piece of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordPart {
    /// Bytes of a stream (`Kind::is_stream`), passed on as they arrive; never empty.
    Stream {
        /// The kind of the stream.
        kind: Kind,
        /// The request it belongs to.
        request_id: u16,
        /// The bytes, shared with the buffer they were received in.
        data: Bytes,
    },
    /// The empty record that ends a stream (§3.3).
    EndOfStream {
        /// The kind of the stream.
        kind: Kind,
        /// The request it belongs to.
        request_id: u16,
    },
    /// Any other record, complete.
    Record {
        /// Its type, known or not.
        kind: Kind,
        /// The request it belongs to; 0 for management records.
        request_id: u16,
        /// Its content.
        content: Bytes,
        /// Its padding.
        padding: Bytes,
    },
}

/// Splits a byte stream into records, for either role.
///
/// ```text
///            8 bytes there       a stream's content all passed on
///  Header ──────────────────▶ Content ─────────────────────▶ Padding ──▶ Header
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    #[default]
    Header,
    Content {
        header: Header,
        left: usize,
    },
    Padding {
        left: usize,
    },
}

impl Decoder {
    /// Takes the next part out of `buf`; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The peer does not speak FastCGI 1. The stream cannot be resumed.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<RecordPart>, Error> {
        loop {
            match self.state {
                State::Header => {
                    let Some(raw) = buf.first_chunk::<HEADER_LEN>() else { return Ok(None) };
                    let header = Header::decode(*raw)?;
                    buf.advance(HEADER_LEN);
                    self.state = State::Content { header, left: usize::from(header.content_len) };
                    if header.kind.is_stream() && header.content_len == 0 {
                        self.state = State::Padding { left: usize::from(header.padding_len) };
                        let Header { kind, request_id, .. } = header;
                        return Ok(Some(RecordPart::EndOfStream { kind, request_id }));
                    }
                }
                State::Content { header, left } => return Ok(self.content(header, left, buf)),
                State::Padding { left } => {
                    let skipped = left.min(buf.len());
                    buf.advance(skipped);
                    if skipped < left {
                        self.state = State::Padding { left: left - skipped };
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
            }
        }
    }

    fn content(&mut self, header: Header, left: usize, buf: &mut BytesMut) -> Option<RecordPart> {
        let Header { kind, request_id, .. } = header;
        let padding_len = usize::from(header.padding_len);
        if !kind.is_stream() {
            if buf.len() < left + padding_len {
                return None;
            }
            let content = buf.split_to(left).freeze();
            let padding = buf.split_to(padding_len).freeze();
            self.state = State::Header;
            return Some(RecordPart::Record { kind, request_id, content, padding });
        }
        let take = left.min(buf.len());
        if take == 0 {
            return None;
        }
        let data = buf.split_to(take).freeze();
        self.state = if take < left {
            State::Content { header, left: left - take }
        } else {
            State::Padding { left: padding_len }
        };
        Some(RecordPart::Stream { kind, request_id, data })
    }

    /// True while content of the current record is missing.
    #[must_use]
    pub fn is_inside_content(&self) -> bool {
        matches!(self.state, State::Content { .. })
    }

    /// True between two records, where a peer may close the stream.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        matches!(self.state, State::Header | State::Padding { left: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::EndRequest;

    fn response() -> Vec<u8> {
        let mut wire =
            Header { padding_len: 3, ..Header::new(Kind::STDOUT, 7, 5) }.encode().to_vec();
        wire.extend_from_slice(b"hello\0\0\0");
        wire.extend_from_slice(&Header::new(Kind::STDOUT, 7, 0).encode());
        wire.extend_from_slice(&EndRequest { app_status: 9, protocol_status: 0 }.encode(7));
        wire
    }

    /// The decoded bytes are the same for every split of the input.
    #[test]
    fn any_split_gives_the_same_response() {
        let wire = response();
        for cut in 0..=wire.len() {
            let (mut decoder, mut buf) = (Decoder::default(), BytesMut::new());
            let (mut body, mut ended, mut end) = (Vec::new(), false, None);
            for piece in [&wire[..cut], &wire[cut..]] {
                buf.extend_from_slice(piece);
                while let Some(part) = decoder.next(&mut buf).unwrap() {
                    match part {
                        RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                            body.extend_from_slice(&data);
                        }
                        RecordPart::EndOfStream { kind: Kind::STDOUT, .. } => ended = true,
                        RecordPart::Record { kind: Kind::END_REQUEST, content, .. } => {
                            end = Some(EndRequest::decode(&content).unwrap());
                        }
                        other => panic!("unexpected {other:?}"),
                    }
                }
            }
            assert_eq!((&body[..], ended), (&b"hello"[..], true), "cut at {cut}");
            assert_eq!(end, Some(EndRequest { app_status: 9, protocol_status: 0 }));
            assert!(decoder.at_boundary());
        }
    }

    #[test]
    fn stream_bytes_do_not_wait_for_their_record() {
        let mut buf = BytesMut::from(&response()[..10]);
        let part = Decoder::default().next(&mut buf).unwrap();
        assert_eq!(
            part,
            Some(RecordPart::Stream {
                kind: Kind::STDOUT,
                request_id: 7,
                data: Bytes::from_static(b"he")
            })
        );
    }
}
