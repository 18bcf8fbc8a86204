//! A request as FastCGI records: for a worker ([`RequestMessage`]) or for another FastCGI application
//! ([`StreamedRequest`]). The crate `application_request` chooses the parameters.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sendoff_delivery::segment::FileSegment;
use sendoff_fastcgi::direct;
use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::{
    AUTHORIZER, BeginRequest, FILTER, HEADER_LEN, Header, Kind, MAX_ALIGNED_CONTENT, RESPONDER,
};
use sendoff_message::request::{Body, BodyStream};

pub use sendoff_link::front::REQUEST_ID;

/// Length of the `BEGIN_REQUEST` record.
const BEGIN_LEN: usize = HEADER_LEN + 8;

/// Length of that record and of the header of the `PARAMS` record behind it.
const BEFORE_PARAMS: usize = BEGIN_LEN + HEADER_LEN;

/// All records of a request to a worker. They may be sent again to another worker.
#[derive(Debug)]
pub struct RequestMessage {
    /// The records of the request, with a small body.
    pub records: Bytes,
    /// The file for the `BODY` record at the end.
    pub body: Option<Rc<OwnedFd>>,
    /// There is a `CLIENT` record: the client's socket is sent along.
    pub lends: bool,
    /// The longest silence of the script, if it differs from the pool's setting; zero: unlimited.
    pub deadline: Option<Duration>,
}

impl RequestMessage {
    /// Gives the script a deadline of its own.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Duration>) -> Self {
        Self { deadline, ..self }
    }
}

/// A request for a FastCGI application that is no worker on a link.
#[derive(Debug)]
pub struct StreamedRequest {
    /// The `CLIENT` record, for a connection whose application has announced that it knows the
    /// record; otherwise empty.
    pub client: Vec<u8>,
    /// The kernel encrypts bytes that are written to the client's socket.
    pub encrypted: bool,
    /// Offset of the request body in `records`.
    pub head_len: usize,
    /// All records, or the records up to a body that is read while it is sent.
    pub records: Vec<u8>,
    /// The part of the body that is not in `records` yet.
    pub body: Rest,
    /// The file of a filter, which is sent behind the body.
    pub data: Option<FileSegment>,
}

/// The part of a request body that is read while it is sent.
#[derive(Debug, Clone)]
pub enum Rest {
    /// All of it is among the records.
    Nothing,
    /// All of it is in a file, this number of bytes.
    File(Rc<OwnedFd>, u64),
    /// It is still arriving.
    Stream(BodyStream),
}

impl StreamedRequest {
    /// True if the application has bytes to read: the file of a filter, or a body. `records` always
    /// has the record that ends the body.
    pub fn has_body(&self) -> bool {
        self.data.is_some()
            || !matches!(self.body, Rest::Nothing)
            || self.records.len() > self.head_len + HEADER_LEN
    }

    /// A copy with another id, and with the `CLIENT` record if it `lends`.
    pub fn with(&self, id: u16, lends: bool) -> Self {
        let client = if lends { &self.client[..] } else { &[] };
        let (begin, rest) = self.records.split_at(BEGIN_LEN);
        let mut records = [begin, client, rest].concat();
        renumber(&mut records, id);
        Self {
            client: Vec::new(),
            encrypted: self.encrypted,
            head_len: self.head_len + client.len(),
            records,
            body: self.body.clone(),
            data: self.data.clone(),
        }
    }
}

/// Gives whole records another id.
pub fn renumber(records: &mut [u8], id: u16) {
    let mut at = 0;
    while let Some(header) = records.get_mut(at..at + HEADER_LEN) {
        header[2..4].copy_from_slice(&id.to_be_bytes());
        let content = usize::from(u16::from_be_bytes([header[4], header[5]]));
        at += HEADER_LEN + content + usize::from(header[6]);
    }
}

/// Collects the parameters of a request.
#[derive(Debug, Clone)]
pub struct RequestMessageBuilder {
    /// [`BEFORE_PARAMS`] bytes that are filled in last, and then the parameters. If one record
    /// holds the parameters, they are not copied.
    records: Vec<u8>,
    /// A `CLIENT` record.
    client: Vec<u8>,
    /// The kernel encrypts bytes that are written to the client's socket.
    encrypted: bool,
}

impl RequestMessageBuilder {
    /// A builder without parameters.
    #[must_use]
    pub fn new() -> Self {
        // Enough room for a typical browser's request.
        let mut records = Vec::with_capacity(2048);
        records.resize(BEFORE_PARAMS, 0);
        Self { records, client: Vec::new(), encrypted: false }
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &[u8], value: &[u8]) {
        params::encode(&mut self.records, name, value);
    }

    /// Lends the worker the client's socket.
    pub fn lend(&mut self, client: direct::Client<'_>) {
        self.encrypted = client.encrypted;
        client.encode(REQUEST_ID, &mut self.client);
    }

    /// Finishes the request, with a body in memory.
    #[must_use]
    pub fn with_bytes(self, body: &[u8]) -> RequestMessage {
        let lends = !self.client.is_empty();
        let mut records = self.head(RESPONDER, body.len() + 32);
        push_stream(&mut records, Kind::STDIN, body);
        RequestMessage { records: records.into(), body: None, lends, deadline: None }
    }

    /// Finishes the request, with a body of `len` bytes in a file.
    #[must_use]
    pub fn with_file(self, body: Rc<OwnedFd>, len: u64) -> RequestMessage {
        let lends = !self.client.is_empty();
        let mut records = self.head(RESPONDER, 32);
        Record::Body(len).encode(REQUEST_ID, &mut records);
        RequestMessage { records: records.into(), body: Some(body), lends, deadline: None }
    }

    /// Finishes the request for a FastCGI application. A large or still arriving body is read while
    /// it is sent.
    #[must_use]
    pub fn streamed(self, body: &Body) -> StreamedRequest {
        self.with_role(RESPONDER, body)
    }

    /// Finishes the request for a FastCGI application that filters the file `data`, which was last
    /// changed at the given time (FastCGI 1.0 §6.4).
    #[must_use]
    pub fn filtered(
        mut self,
        body: &Body,
        data: FileSegment,
        modified: SystemTime,
    ) -> StreamedRequest {
        let modified = modified.duration_since(SystemTime::UNIX_EPOCH);
        let modified = modified.map_or(0, |since| since.as_secs());
        self.param(b"FCGI_DATA_LAST_MOD", modified.to_string().as_bytes());
        self.param(b"FCGI_DATA_LENGTH", data.len.to_string().as_bytes());
        StreamedRequest { data: Some(data), ..self.with_role(FILTER, body) }
    }

    fn with_role(mut self, role: u16, body: &Body) -> StreamedRequest {
        let (client, encrypted) = (std::mem::take(&mut self.client), self.encrypted);
        let mut records = self.head(role, 32);
        let head_len = records.len();
        let body = match body {
            Body::Memory(bytes) => {
                push_stream(&mut records, Kind::STDIN, bytes);
                Rest::Nothing
            }
            Body::File { descriptor, len } => Rest::File(Rc::clone(descriptor), *len),
            Body::Stream(stream) => Rest::Stream(stream.clone()),
        };
        StreamedRequest { client, encrypted, head_len, records, body, data: None }
    }

    /// Finishes the request to an authorizer: the parameters (FastCGI 1.0 §6.3) and the end of an
    /// empty body. The specification has no body here, but a program on libfcgi that reads one
    /// would wait for its end.
    #[must_use]
    pub fn question(self) -> StreamedRequest {
        let mut records = self.head(AUTHORIZER, 32);
        let (client, head_len) = (Vec::new(), records.len());
        push_stream(&mut records, Kind::STDIN, b"");
        let body = Rest::Nothing;
        StreamedRequest { client, encrypted: false, head_len, records, body, data: None }
    }

    /// The records up to the end of the parameters, with room for `more` bytes.
    fn head(self, role: u16, more: usize) -> Vec<u8> {
        let Self { mut records, client, .. } = self;
        let begin = BeginRequest { keep_conn: true }.encode_for(role, REQUEST_ID);
        let len = records.len() - BEFORE_PARAMS;
        // An empty stream consists only of its end record.
        let is_one_record = client.is_empty() && (1..=MAX_ALIGNED_CONTENT).contains(&len);
        if let Some(len) = u16::try_from(len).ok().filter(|_| is_one_record) {
            records.reserve(more + HEADER_LEN);
            records[..BEGIN_LEN].copy_from_slice(&begin);
            let header = Header::new(Kind::PARAMS, REQUEST_ID, len).encode();
            records[BEGIN_LEN..BEFORE_PARAMS].copy_from_slice(&header);
            records.extend_from_slice(&Header::new(Kind::PARAMS, REQUEST_ID, 0).encode());
            return records;
        }
        let mut all = Vec::with_capacity(records.len() + client.len() + more + 64);
        all.extend_from_slice(&begin);
        all.extend_from_slice(&client);
        push_stream(&mut all, Kind::PARAMS, &records[BEFORE_PARAMS..]);
        all
    }
}

impl Default for RequestMessageBuilder {
    fn default() -> Self {
        Self::new()
    }
}

fn push_stream(records: &mut Vec<u8>, kind: Kind, content: &[u8]) {
    for piece in content.chunks(MAX_ALIGNED_CONTENT) {
        let len = u16::try_from(piece.len()).unwrap_or(u16::MAX);
        records.extend_from_slice(&Header::new(kind, REQUEST_ID, len).encode());
        records.extend_from_slice(piece);
    }
    records.extend_from_slice(&Header::new(kind, REQUEST_ID, 0).encode());
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use sendoff_fastcgi::{Decoder, RecordPart};

    use super::*;

    fn parts(records: &[u8]) -> Vec<(Kind, u16, usize)> {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::from(records));
        let mut all = Vec::new();
        while let Some(part) = decoder.next(&mut buffer).unwrap() {
            all.push(match part {
                RecordPart::Stream { kind, request_id, data } => (kind, request_id, data.len()),
                RecordPart::EndOfStream { kind, request_id } => (kind, request_id, 0),
                RecordPart::Record { kind, request_id, content, .. } => {
                    (kind, request_id, content.len())
                }
            });
        }
        assert!(buffer.is_empty() && decoder.at_boundary());
        all
    }

    #[test]
    fn every_record_gets_the_other_id_and_nothing_else_changes() {
        let mut builder = RequestMessageBuilder::new();
        builder.param(b"LONG", &[b'x'; 100_000]);
        let request = builder.streamed(&Body::Memory(vec![0; 200_000].into()));
        let changed = parts(&request.with(7, false).records);
        assert!(changed.iter().all(|&(_, id, _)| id == 7));
        let back = changed.into_iter().map(|(kind, _, len)| (kind, REQUEST_ID, len));
        assert_eq!(back.collect::<Vec<_>>(), parts(&request.records));
    }
}
