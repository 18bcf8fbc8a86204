//! The record header and the fixed bodies of §3.3, §5 and §8.

use crate::Error;

/// Bytes in a record header (§3.3).
pub const HEADER_LEN: usize = 8;

/// The longest content one record can carry, in bytes.
pub const MAX_CONTENT: usize = 65_535;

/// The longest content of a sent record: the largest multiple of 8 that fits, so that no padding is
/// needed (§3.3).
pub const MAX_ALIGNED_CONTENT: usize = 65_528;

/// Record types: FastCGI's own (§8) and, from 128, the handover records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Kind(pub u8);

#[allow(missing_docs, reason = "the names are the specification's own")]
impl Kind {
    pub const BEGIN_REQUEST: Self = Self(1);
    pub const ABORT_REQUEST: Self = Self(2);
    pub const END_REQUEST: Self = Self(3);
    pub const PARAMS: Self = Self(4);
    pub const STDIN: Self = Self(5);
    pub const STDOUT: Self = Self(6);
    pub const STDERR: Self = Self(7);
    pub const DATA: Self = Self(8);
    pub const GET_VALUES: Self = Self(9);
    pub const GET_VALUES_RESULT: Self = Self(10);
    pub const UNKNOWN_TYPE: Self = Self(11);
    pub const OPEN: Self = Self(128);
    pub const SEGMENT: Self = Self(129);
    pub const LENGTH: Self = Self(130);
    pub const DETACH: Self = Self(131);
    pub const READY: Self = Self(132);
    pub const RECALL: Self = Self(133);
    pub const RELEASE: Self = Self(134);
    pub const BODY: Self = Self(135);
    pub const REGION: Self = Self(136);
    pub const PIECE: Self = Self(137);
    pub const CLAIM: Self = Self(138);
    pub const CLIENT: Self = Self(139);
    pub const SENT: Self = Self(140);
    pub const EXPLAIN: Self = Self(141);
    pub const NAMED: Self = Self(142);
    pub const RING: Self = Self(143);
    pub const LOOK: Self = Self(144);
    pub const TAKEN: Self = Self(145);
    pub const ABANDON: Self = Self(146);
    /// The application answers on the connection that came along with the request.
    pub const TUNNEL: Self = Self(147);

    /// True if records of this type are pieces of a stream (§3.3), whose record boundaries have no
    /// meaning.
    #[must_use]
    pub fn is_stream(self) -> bool {
        matches!(self, Self::PARAMS | Self::STDIN | Self::STDOUT | Self::STDERR | Self::DATA)
    }
}

/// A record header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type of the record.
    pub kind: Kind,
    /// The request it belongs to; 0 for management records.
    pub request_id: u16,
    /// Bytes of content that follow the header.
    pub content_len: u16,
    /// Bytes of padding that follow the content.
    pub padding_len: u8,
}

impl Header {
    /// A header without padding.
    #[must_use]
    pub fn new(kind: Kind, request_id: u16, content_len: u16) -> Self {
        Self { kind, request_id, content_len, padding_len: 0 }
    }

    /// The header as it goes over the wire.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let id = self.request_id.to_be_bytes();
        let len = self.content_len.to_be_bytes();
        [1, self.kind.0, id[0], id[1], len[0], len[1], self.padding_len, 0]
    }

    /// Reads a header.
    ///
    /// # Errors
    /// The version is not 1.
    pub fn decode(raw: [u8; HEADER_LEN]) -> Result<Self, Error> {
        if raw[0] != 1 {
            return Err(Error::Version(raw[0]));
        }
        Ok(Self {
            kind: Kind(raw[1]),
            request_id: u16::from_be_bytes([raw[2], raw[3]]),
            content_len: u16::from_be_bytes([raw[4], raw[5]]),
            padding_len: raw[6],
        })
    }
}

/// The flags of a `BEGIN_REQUEST` record (§5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginRequest {
    /// `FCGI_KEEP_CONN`: the application must not close the connection after the response.
    pub keep_conn: bool,
}

/// The role number of a responder (§6.2).
pub const RESPONDER: u16 = 1;

/// The role number of an authorizer (§6.3).
pub const AUTHORIZER: u16 = 2;

/// The role number of a filter (§6.4).
pub const FILTER: u16 = 3;

impl BeginRequest {
    /// The whole record, to a responder.
    #[must_use]
    pub fn encode(self, request_id: u16) -> [u8; 16] {
        self.encode_for(RESPONDER, request_id)
    }

    /// The whole record, to an application in the role with this number.
    #[must_use]
    pub fn encode_for(self, role: u16, request_id: u16) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&Header::new(Kind::BEGIN_REQUEST, request_id, 8).encode());
        out[8..10].copy_from_slice(&role.to_be_bytes());
        out[10] = u8::from(self.keep_conn);
        out
    }

    /// Reads the record's content: the role and the flags.
    ///
    /// # Errors
    /// The content is not 8 bytes long.
    pub fn decode(content: &[u8]) -> Result<(u16, Self), Error> {
        let body: [u8; 8] = content.try_into().map_err(|_| Error::ContentLength {
            kind: Kind::BEGIN_REQUEST.0,
            len: content.len(),
        })?;
        Ok((u16::from_be_bytes([body[0], body[1]]), Self { keep_conn: body[2] & 1 != 0 }))
    }
}

/// The result of a request (§5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// The exit status that a CGI program would have returned from `main`.
    pub app_status: u32,
    /// 0 is `FCGI_REQUEST_COMPLETE`; the others are refusals.
    pub protocol_status: u8,
}

impl EndRequest {
    /// The whole record.
    #[must_use]
    pub fn encode(self, request_id: u16) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&Header::new(Kind::END_REQUEST, request_id, 8).encode());
        out[8..12].copy_from_slice(&self.app_status.to_be_bytes());
        out[12] = self.protocol_status;
        out
    }

    /// Reads the record's content.
    ///
    /// # Errors
    /// The content is not 8 bytes long.
    pub fn decode(content: &[u8]) -> Result<Self, Error> {
        let body: [u8; 8] = content
            .try_into()
            .map_err(|_| Error::ContentLength { kind: Kind::END_REQUEST.0, len: content.len() })?;
        Ok(Self {
            app_status: u32::from_be_bytes([body[0], body[1], body[2], body[3]]),
            protocol_status: body[4],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_the_round_trip() {
        let header =
            Header { kind: Kind::STDOUT, request_id: 0xabcd, content_len: 0x1234, padding_len: 7 };
        assert_eq!(header.encode(), [1, 6, 0xab, 0xcd, 0x12, 0x34, 7, 0]);
        assert_eq!(Header::decode(header.encode()), Ok(header));
    }

    #[test]
    fn another_version_is_refused() {
        assert_eq!(Header::decode([2, 6, 0, 1, 0, 0, 0, 0]), Err(Error::Version(2)));
    }

    #[test]
    fn fixed_bodies_of_another_length_are_refused() {
        assert!(BeginRequest::decode(&[0; 7]).is_err());
        assert!(EndRequest::decode(&[0; 9]).is_err());
        let begin = BeginRequest { keep_conn: true }.encode(1);
        assert_eq!(
            BeginRequest::decode(&begin[8..]),
            Ok((RESPONDER, BeginRequest { keep_conn: true }))
        );
        let begin = BeginRequest { keep_conn: false }.encode_for(AUTHORIZER, 1);
        assert_eq!(
            BeginRequest::decode(&begin[8..]),
            Ok((AUTHORIZER, BeginRequest { keep_conn: false }))
        );
    }
}
