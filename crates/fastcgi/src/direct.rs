//! `CLIENT` and `SENT`: a worker that writes its response to the client itself (`docs/handover.md`
//! §7).

use crate::Error;
use crate::record::{Header, Kind, MAX_CONTENT};

/// The word in `SENDOFF_ACCEPT` for requests that bring the client's socket along.
pub const ACCEPT_DIRECT: &[u8] = b"direct";

const HTTP_10: u8 = 1;
const KEEP_ALIVE: u8 = 2;
const ENCRYPTED: u8 = 4;

/// The most TLS records that a borrower may write to one client's socket before it gives the socket
/// back: a key may encrypt only a limited number (RFC 8446 §5.5), and only the front knows the
/// number of earlier records.
pub const MAX_RECORDS: u64 = 1 << 20;

/// Content of `CLIENT`: facts about the client and the connection that the head of a response
/// depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// The client speaks HTTP/1.0, which has no chunked coding.
    pub http_10: bool,
    /// Another request may follow on the connection, if the framing of the response allows it.
    pub keep_alive: bool,
    /// The kernel encrypts the bytes that are written to the socket (kTLS).
    pub encrypted: bool,
    /// Field lines, each ended by CRLF, for the response unless the application has set these
    /// fields.
    pub fields: &'a [u8],
}

impl<'a> Client<'a> {
    /// Appends the whole record. Field lines that do not fit into one record are a mistake of the
    /// caller, and left out.
    pub fn encode(self, request_id: u16, out: &mut Vec<u8>) {
        let fields = if self.fields.len() < MAX_CONTENT { self.fields } else { &[] };
        let len = u16::try_from(1 + fields.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&Header::new(Kind::CLIENT, request_id, len).encode());
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let (version, keep) = (bit(self.http_10, HTTP_10), bit(self.keep_alive, KEEP_ALIVE));
        out.push(version | keep | bit(self.encrypted, ENCRYPTED));
        out.extend_from_slice(fields);
    }

    /// Reads a record's content.
    ///
    /// # Errors
    /// It is empty or has flags that this version does not know.
    pub fn decode(content: &'a [u8]) -> Result<Self, Error> {
        match content.split_first() {
            Some((&flags, fields)) if flags & !(HTTP_10 | KEEP_ALIVE | ENCRYPTED) == 0 => {
                Ok(Self {
                    http_10: flags & HTTP_10 != 0,
                    keep_alive: flags & KEEP_ALIVE != 0,
                    encrypted: flags & ENCRYPTED != 0,
                    fields,
                })
            }
            _ => Err(Error::ContentLength { kind: Kind::CLIENT.0, len: content.len() }),
        }
    }

    /// Names and values of the field lines.
    pub fn fields(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.fields.split(|&b| b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&b| b == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }
}

/// The framing of the rest of a response whose beginning the client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// The number of missing body bytes; 0: the response is complete.
    Length(u64),
    /// Further chunks, and the last chunk.
    Chunked {
        /// A chunk has begun: its end belongs behind the bytes that are already framed.
        open: bool,
    },
    /// The end of the connection.
    Close,
}

/// Content of `SENT`: the progress of the worker's response. The front continues from there and
/// owns the socket again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Bytes written to the socket, head included.
    pub wire: u64,
    /// Length of the head in bytes; the end of the head may not be written yet.
    pub head: u32,
    /// Number of the following `STDOUT` bytes that are already framed.
    pub framed: u64,
    /// The framing of the bytes behind them.
    pub rest: Rest,
    /// The status in the head.
    pub status: u16,
    /// The client has closed the connection.
    pub gone: bool,
    /// The application has sent more than its announced length.
    pub surplus: bool,
}

/// Bytes of its content.
pub(crate) const SENT_LEN: usize = 32;

const GONE: u8 = 1;
const SURPLUS: u8 = 2;

impl Sent {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let (rest, left) = match self.rest {
            Rest::Length(left) => (0, left),
            Rest::Chunked { open: false } => (1, 0),
            Rest::Chunked { open: true } => (2, 0),
            Rest::Close => (3, 0),
        };
        out.extend_from_slice(&self.wire.to_be_bytes());
        out.extend_from_slice(&self.framed.to_be_bytes());
        out.extend_from_slice(&left.to_be_bytes());
        out.extend_from_slice(&self.head.to_be_bytes());
        out.extend_from_slice(&self.status.to_be_bytes());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.extend_from_slice(&[rest, flag(self.gone, GONE) | flag(self.surplus, SURPLUS)]);
    }

    pub(crate) fn decode(content: &[u8]) -> Option<Self> {
        let raw: &[u8; SENT_LEN] = content.try_into().ok()?;
        let long = |at: usize| Some(u64::from_be_bytes(*raw[at..].first_chunk()?));
        let rest = match (raw[30], long(16)?) {
            (0, left) => Rest::Length(left),
            (1, 0) => Rest::Chunked { open: false },
            (2, 0) => Rest::Chunked { open: true },
            (3, 0) => Rest::Close,
            _ => return None,
        };
        let flags = raw[31];
        (flags & !(GONE | SURPLUS) == 0).then_some(Self {
            wire: long(0)?,
            framed: long(8)?,
            rest,
            head: u32::from_be_bytes(*raw[24..].first_chunk()?),
            status: u16::from_be_bytes([raw[28], raw[29]]),
            gone: flags & GONE != 0,
            surplus: flags & SURPLUS != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::Record;

    #[test]
    fn what_the_front_tells_about_a_client_survives_the_round_trip() {
        let fields = b"A: b\r\nC-D:  e:f \r\n";
        let client = Client { http_10: true, keep_alive: true, encrypted: true, fields };
        let mut wire = Vec::new();
        client.encode(1, &mut wire);
        assert_eq!(usize::from(u16::from_be_bytes([wire[4], wire[5]])), wire.len() - 8);
        let decoded = Client::decode(&wire[8..]).unwrap();
        assert_eq!(decoded, client);
        let fields: Vec<_> = decoded.fields().collect();
        assert_eq!(fields, [(&b"A"[..], &b"b"[..]), (b"C-D", b"e:f")]);
        for (flags, http_10, keep_alive, encrypted) in
            [(1, true, false, false), (2, false, true, false), (4, false, false, true)]
        {
            let expected = Client { http_10, keep_alive, encrypted, fields: b"" };
            assert_eq!(Client::decode(&[flags]), Ok(expected));
        }
        assert!(Client::decode(b"").is_err() && Client::decode(&[8]).is_err());
    }

    #[test]
    fn how_far_a_worker_got_survives_the_round_trip_and_nonsense_is_refused() {
        let sent = Sent {
            wire: u64::MAX,
            head: 0x0102_0304,
            framed: 77,
            rest: Rest::Chunked { open: true },
            status: 404,
            gone: true,
            surplus: false,
        };
        for rest in [Rest::Length(5), Rest::Chunked { open: false }, sent.rest, Rest::Close] {
            let (mut wire, sent) = (Vec::new(), Sent { rest, ..sent });
            Record::Sent(sent).encode(1, &mut wire);
            assert_eq!(Record::decode(Kind::SENT, &wire[8..]), Ok(Some(Record::Sent(sent))));
            for (at, wrong) in [(8 + 30, 9), (8 + 31, 0x80)] {
                let mut wire = wire.clone();
                wire[at] = wrong;
                assert!(Record::decode(Kind::SENT, &wire[8..]).is_err());
            }
        }
    }
}
