//! The handover records and guard messages of `docs/handover.md`.

use crate::Error;
use crate::channel::Secret;
use crate::direct::{SENT_LEN, Sent};
use crate::record::{EndRequest, HEADER_LEN, Header, Kind};
use crate::region::Piece;

/// The request parameter in which the front lists the records that it accepts.
pub const ACCEPT_PARAM: &[u8] = b"SENDOFF_ACCEPT";

/// The word in [`ACCEPT_PARAM`] for `OPEN`, `SEGMENT` and the records that go with them.
pub const ACCEPT_FILE: &[u8] = b"file";

/// The word in [`ACCEPT_PARAM`] for `EXPLAIN`.
pub const ACCEPT_EXPLAIN: &[u8] = b"explain";

/// The word in [`ACCEPT_PARAM`] for `NAMED`.
pub const ACCEPT_NAMED: &[u8] = b"named";

/// The word in [`ACCEPT_PARAM`] for `TUNNEL`: one end of a connection comes along with the first byte
/// of the request.
pub const ACCEPT_TUNNEL: &[u8] = b"tunnel";

/// The request parameter for PHP workers with the `accel` table of the request's site: prefixes of
/// decoded URIs, each followed by its folder, the longest prefix first. A NUL ends each of them.
pub const ACCEL_PARAM: &[u8] = b"SENDOFF_ACCEL";

/// The longest content of an `EXPLAIN` record, in bytes.
pub const MAX_EXPLANATION: usize = 1024;
/// The word in [`ACCEPT_PARAM`] for `LENGTH`, `DETACH` and `READY` alone, which `file` includes.
pub const ACCEPT_RELAY: &[u8] = b"relay";

/// The word in [`ACCEPT_PARAM`] for `REGION` and `PIECE`.
pub const ACCEPT_REGION: &[u8] = b"region";

/// First bytes of the padding of an `END_REQUEST` that lists the capabilities of the application. A
/// front cannot send [`ACCEPT_PARAM`] to applications that it did not start: they might show it to
/// their scripts. The reserved bytes of FastCGI's record (§5.5) are not usable: php-fpm leaves old
/// bytes of its buffer in them.
const HINTS: [u8; 7] = *b"sendoff";
const HINT_REGION: u8 = 1;
const HINT_DIRECT: u8 = 2;
const HINT_CHANNEL: u8 = 4;
const HINT_ENCRYPTED: u8 = 8;
const HINT_TUNNEL: u8 = 16;

/// The clients' sockets that an application can write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Sockets {
    /// None.
    #[default]
    None,
    /// Sockets without encryption.
    Clear,
    /// Also sockets that the kernel encrypts.
    All,
}

impl Sockets {
    /// True if a socket is among them. `encrypted`: the kernel encrypts the socket.
    #[must_use]
    pub fn include(self, encrypted: bool) -> bool {
        self >= if encrypted { Self::All } else { Self::Clear }
    }

    fn bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Clear => HINT_DIRECT,
            Self::All => HINT_DIRECT | HINT_ENCRYPTED,
        }
    }
}

/// The capabilities that an application has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// It can answer with `REGION` and `PIECE`.
    pub region: bool,
    /// The clients' sockets that it can take with `CLIENT`, and give back with `SENT`.
    pub direct: Sockets,
    /// It can open links and answer on them ([`crate::channel`]).
    pub channel: bool,
    /// It can answer with `TUNNEL`.
    pub tunnel: bool,
}

impl Hints {
    /// The whole record, with the hints in its padding.
    #[must_use]
    pub fn end_request(self, end: EndRequest, request_id: u16) -> [u8; HEADER_LEN + 16] {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let mut padding = [0; HINTS.len() + 1];
        padding[..HINTS.len()].copy_from_slice(&HINTS);
        padding[HINTS.len()] = bit(self.region, HINT_REGION)
            | self.direct.bits()
            | bit(self.channel, HINT_CHANNEL)
            | bit(self.tunnel, HINT_TUNNEL);
        let header = Header { padding_len: 8, ..Header::new(Kind::END_REQUEST, request_id, 8) };
        let mut record = [0; HEADER_LEN + 16];
        record[..HEADER_LEN + 8].copy_from_slice(&end.encode(request_id));
        record[..HEADER_LEN].copy_from_slice(&header.encode());
        record[HEADER_LEN + 8..].copy_from_slice(&padding);
        record
    }

    /// Reads the padding of an `END_REQUEST` record. Padding of any other form means no hints.
    #[must_use]
    pub fn of(padding: &[u8]) -> Self {
        let Some(&[hints]) = padding.strip_prefix(&HINTS) else { return Self::default() };
        let all = [Sockets::None, Sockets::Clear, Sockets::All];
        let others = HINT_REGION | HINT_CHANNEL | HINT_TUNNEL;
        let of_sockets = Sockets::All.bits();
        match all.into_iter().find(|sockets| sockets.bits() == hints & of_sockets) {
            Some(direct) if hints & !(of_sockets | others) == 0 => Self {
                region: hints & HINT_REGION != 0,
                direct,
                channel: hints & HINT_CHANNEL != 0,
                tunnel: hints & HINT_TUNNEL != 0,
            },
            _ => Self::default(),
        }
    }
}

/// The word in [`ACCEPT_PARAM`] for the channel: the body may be answered on a link that the
/// application opens itself.
pub const ACCEPT_CHANNEL: &[u8] = b"channel";

/// The most descriptors in one `sendmsg` (the kernel's own limit, `SCM_MAX_FD`, is 253).
pub const MAX_FDS_PER_MESSAGE: usize = 64;

/// The id of an open file on the links of one worker; never reused in a worker's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A handover record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A file has this id from now on; its descriptor comes with the record.
    Open(FileId),
    /// `length` bytes of the body are in the file, from `offset` on.
    Segment {
        /// An id opened on this link.
        file: FileId,
        /// First byte, from the start of the file.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The length of the whole body in bytes.
    Length(u64),
    /// The worker continues to work after `END_REQUEST`.
    Detach,
    /// A detached worker takes requests again.
    Ready,
    /// The file is about to change: the front copies the bytes that are not sent yet, and answers
    /// when it no longer needs the file.
    Recall(FileId),
    /// The worker no longer needs the file: the front answers when it has sent the last segment.
    Release(FileId),
    /// The request body is this number of bytes from the start of a file, whose descriptor comes
    /// with the record.
    Body(u64),
    /// The worker's shared memory for this link; its descriptor comes with the record.
    Region,
    /// Bytes of the body in that memory.
    Piece(Piece),
    /// The file that the header block names; its descriptor comes with the record.
    Named,
    /// The application answers in HTTP/1.1, on the connection that came along with the request.
    Tunnel,
    /// The worker has written to the client's socket that `CLIENT` brought, and writes no more.
    Sent(Sent),
    /// The rest of the body of the request with this claim follows on this link, under the id of
    /// this record.
    Claim(Secret),
    /// The pool's ring, with this seat for the worker; the descriptors of the requests and of the
    /// claims come with the record.
    Ring(u16),
    /// The worker looks into the ring.
    Look,
    /// The response to a request from the ring begins, or the worker asks for a request that the
    /// ring only announces.
    Taken {
        /// The number of the request.
        number: u64,
        /// When the worker took it, in nanoseconds of `CLOCK_MONOTONIC`.
        at: u64,
    },
    /// The response to the request from the ring with this number is not wanted any more.
    Abandon(u64),
}

/// A whole record of the longest kind: header and the content of `SENT`.
pub const MAX_RECORD_LEN: usize = HEADER_LEN + SENT_LEN;

impl Record {
    /// Bytes that [`Self::encode`] appends.
    #[must_use]
    pub fn wire_len(self) -> usize {
        HEADER_LEN
            + match self {
                Self::Open(_) | Self::Recall(_) | Self::Release(_) => 4,
                Self::Segment { .. } => 24,
                Self::Ring(_) => 4,
                Self::Length(_) | Self::Body(_) | Self::Abandon(_) => 8,
                Self::Detach
                | Self::Ready
                | Self::Named
                | Self::Tunnel
                | Self::Region
                | Self::Look => 0,
                Self::Piece(_) | Self::Claim(_) | Self::Taken { .. } => 16,
                Self::Sent(_) => SENT_LEN,
            }
    }

    /// Appends the whole record.
    pub fn encode(self, request_id: u16, out: &mut Vec<u8>) {
        let mut start = |kind, id, len| out.extend_from_slice(&Header::new(kind, id, len).encode());
        match self {
            Self::Open(file) => {
                start(Kind::OPEN, request_id, 4);
                out.extend_from_slice(&file.0.to_be_bytes());
            }
            Self::Segment { file, offset, length } => {
                start(Kind::SEGMENT, request_id, 24);
                out.extend_from_slice(&file.0.to_be_bytes());
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
            }
            Self::Length(length) => {
                start(Kind::LENGTH, request_id, 8);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Self::Detach => start(Kind::DETACH, request_id, 0),
            Self::Ready => start(Kind::READY, request_id, 0),
            Self::Named => start(Kind::NAMED, request_id, 0),
            Self::Tunnel => start(Kind::TUNNEL, request_id, 0),
            Self::Recall(file) => {
                start(Kind::RECALL, 0, 4);
                out.extend_from_slice(&file.0.to_be_bytes());
            }
            Self::Release(file) => {
                start(Kind::RELEASE, 0, 4);
                out.extend_from_slice(&file.0.to_be_bytes());
            }
            Self::Body(length) => {
                start(Kind::BODY, request_id, 8);
                out.extend_from_slice(&length.to_be_bytes());
            }
            Self::Region => start(Kind::REGION, request_id, 0),
            Self::Piece(piece) => {
                start(Kind::PIECE, request_id, 16);
                piece.encode(out);
            }
            Self::Sent(sent) => {
                start(Kind::SENT, request_id, 32);
                sent.encode(out);
            }
            Self::Claim(secret) => {
                start(Kind::CLAIM, request_id, 16);
                out.extend_from_slice(&secret.0);
            }
            Self::Ring(seat) => {
                start(Kind::RING, 0, 4);
                out.extend_from_slice(&u32::from(seat).to_be_bytes());
            }
            Self::Look => start(Kind::LOOK, 0, 0),
            Self::Taken { number, at } => {
                start(Kind::TAKEN, request_id, 16);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&at.to_be_bytes());
            }
            Self::Abandon(number) => {
                start(Kind::ABANDON, 0, 8);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Reads a record's content; `None` if the kind is not a handover record.
    ///
    /// # Errors
    /// The content does not have the length of its kind.
    pub fn decode(kind: Kind, content: &[u8]) -> Result<Option<Self>, Error> {
        let wrong = || Error::ContentLength { kind: kind.0, len: content.len() };
        let id =
            || content.try_into().map(|raw| FileId(u32::from_be_bytes(raw))).map_err(|_| wrong());
        let length = || content.try_into().map(u64::from_be_bytes).map_err(|_| wrong());
        let empty = |record| if content.is_empty() { Ok(record) } else { Err(wrong()) };
        Ok(Some(match kind {
            Kind::OPEN => Self::Open(id()?),
            Kind::SEGMENT => {
                let raw: &[u8; 24] = content.try_into().map_err(|_| wrong())?;
                let (file, rest) = raw.split_first_chunk::<4>().ok_or_else(wrong)?;
                let (offset, length) = rest[4..].split_first_chunk::<8>().ok_or_else(wrong)?;
                Self::Segment {
                    file: FileId(u32::from_be_bytes(*file)),
                    offset: u64::from_be_bytes(*offset),
                    length: length.try_into().map(u64::from_be_bytes).map_err(|_| wrong())?,
                }
            }
            Kind::LENGTH => Self::Length(length()?),
            Kind::DETACH => empty(Self::Detach)?,
            Kind::READY => empty(Self::Ready)?,
            Kind::RECALL => Self::Recall(id()?),
            Kind::RELEASE => Self::Release(id()?),
            Kind::BODY => Self::Body(length()?),
            Kind::REGION => empty(Self::Region)?,
            Kind::PIECE => Self::Piece(Piece::decode(content)?),
            Kind::NAMED => empty(Self::Named)?,
            Kind::TUNNEL => empty(Self::Tunnel)?,
            Kind::SENT => Self::Sent(Sent::decode(content).ok_or_else(wrong)?),
            Kind::CLAIM => Self::Claim(Secret(content.try_into().map_err(|_| wrong())?)),
            Kind::RING => {
                let seat = content.try_into().map(u32::from_be_bytes).map_err(|_| wrong())?;
                Self::Ring(u16::try_from(seat).map_err(|_| wrong())?)
            }
            Kind::LOOK => empty(Self::Look)?,
            Kind::TAKEN => {
                let raw: &[u8; 16] = content.try_into().map_err(|_| wrong())?;
                let (number, at) = raw.split_first_chunk::<8>().ok_or_else(wrong)?;
                let at = at.try_into().map(u64::from_be_bytes).map_err(|_| wrong())?;
                Self::Taken { number: u64::from_be_bytes(*number), at }
            }
            Kind::ABANDON => Self::Abandon(length()?),
            _ => return Ok(None),
        }))
    }
}

/// The front's answer on the guard socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardMessage {
    /// The kind of the answer.
    pub answer: GuardAnswer,
    /// The worker's number for the link.
    pub link: u8,
    /// The file.
    pub file: FileId,
}

/// The two answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardAnswer {
    /// To `RECALL`: the front no longer needs the file's contents.
    Recalled,
    /// To `RELEASE`: the front no longer needs the file's contents.
    Released,
}

/// Bytes in a guard message.
pub const GUARD_MESSAGE_LEN: usize = 8;

impl GuardMessage {
    /// The message as it goes over the wire.
    #[must_use]
    pub fn encode(self) -> [u8; GUARD_MESSAGE_LEN] {
        let id = self.file.0.to_be_bytes();
        let kind = match self.answer {
            GuardAnswer::Recalled => 1,
            GuardAnswer::Released => 2,
        };
        [kind, self.link, 0, 0, id[0], id[1], id[2], id[3]]
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message is not 8 bytes long, or of an unknown kind.
    pub fn decode(raw: &[u8]) -> Result<Self, Error> {
        let raw: [u8; GUARD_MESSAGE_LEN] = raw.try_into().map_err(|_| Error::GuardMessage)?;
        let answer = match raw[0] {
            1 => GuardAnswer::Recalled,
            2 => GuardAnswer::Released,
            _ => return Err(Error::GuardMessage),
        };
        let file = FileId(u32::from_be_bytes([raw[4], raw[5], raw[6], raw[7]]));
        Ok(Self { answer, link: raw[1], file })
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::{Decoder, RecordPart};

    #[test]
    fn records_survive_the_round_trip_and_other_lengths_are_refused() {
        let file = FileId(0x0102_0304);
        for record in [
            Record::Open(file),
            Record::Segment { file, offset: 1 << 40, length: 77 },
            Record::Length(u64::MAX),
            Record::Detach,
            Record::Ready,
            Record::Recall(file),
            Record::Release(file),
            Record::Body(5),
            Record::Region,
            Record::Piece(Piece { chunk: 1, last: true, offset: 2, length: 3 }),
            Record::Named,
            Record::Tunnel,
            Record::Claim(Secret([8; 16])),
            Record::Ring(0x0102),
            Record::Look,
            Record::Taken { number: 1 << 40, at: 5 },
            Record::Abandon(1 << 41),
        ] {
            let mut wire = Vec::new();
            record.encode(3, &mut wire);
            assert_eq!(record.wire_len(), wire.len());
            let header = Header::decode(wire[..8].try_into().unwrap()).unwrap();
            assert_eq!(usize::from(header.content_len), wire.len() - 8);
            assert_eq!(Record::decode(header.kind, &wire[8..]), Ok(Some(record)));
            wire.push(0);
            assert!(Record::decode(header.kind, &wire[8..]).is_err(), "{record:?}");
        }
        assert_eq!(Record::decode(Kind::STDOUT, b"x"), Ok(None));
    }

    #[test]
    fn hints_survive_the_round_trip_and_nonsense_hints_at_nothing() {
        let end = EndRequest { app_status: 7, protocol_status: 0 };
        let all = [Sockets::None, Sockets::Clear, Sockets::All];
        let both = [false, true].into_iter();
        let each = both
            .clone()
            .flat_map(|region| both.clone().map(move |channel| (region, channel)))
            .flat_map(|(region, channel)| {
                both.clone().map(move |tunnel| (region, channel, tunnel))
            });
        for (direct, (region, channel, tunnel)) in
            all.into_iter().flat_map(|d| each.clone().map(move |e| (d, e)))
        {
            let hints = Hints { region, direct, channel, tunnel };
            let record = hints.end_request(end, 9);
            let mut buf = BytesMut::from(&record[..]);
            let part = Decoder::default().next(&mut buf).unwrap();
            let Some(RecordPart::Record { kind, request_id, content, padding }) = part else {
                panic!("{part:?}")
            };
            assert_eq!((kind, request_id), (Kind::END_REQUEST, 9));
            assert_eq!(EndRequest::decode(&content), Ok(end));
            assert_eq!(Hints::of(&padding), hints);
        }
        let nonsense = [
            &b""[..],
            b"\x03",
            b"sendoff",
            b"sendofg\x03",
            b"sendoff\x08",
            b"sendoff\x20",
            b"sendoff\x03\x03",
        ];
        for padding in nonsense {
            assert_eq!(Hints::of(padding), Hints::default(), "{padding:?}");
        }
    }

    #[test]
    fn guard_messages_survive_the_round_trip() {
        let message = GuardMessage { answer: GuardAnswer::Released, link: 3, file: FileId(9) };
        assert_eq!(GuardMessage::decode(&message.encode()), Ok(message));
        assert!(GuardMessage::decode(&[9; 8]).is_err());
        assert!(GuardMessage::decode(&[1; 7]).is_err());
    }
}
