//! The records of a request on their way to the application. A body that lies in a file or is still
//! arriving is read piece by piece.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use sendoff_delivery::segment::FileSegment;
use sendoff_fastcgi::record::{HEADER_LEN, Header, Kind};
use sendoff_message::request::{Arrived, BodyReader};
use sendoff_sys::file::read_exact_at;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::fastcgi_request::{Rest, StreamedRequest};

/// Bytes of a body in a file per `STDIN` record: the number that a UNIX socket accepts at once.
const PIECE: u16 = 32 * 1024;

/// The sending side of a request.
#[derive(Debug)]
pub(super) struct Outgoing {
    request: Rc<StreamedRequest>,
    pub(super) id: u16,
    part: Part,
    /// The record that is being sent; `None`: the request's own records are.
    record: Option<Vec<u8>>,
    /// Bytes sent of the current buffer (the request's records, or `record`).
    at: usize,
    /// Offset of the next piece of the body.
    body_at: u64,
    /// The reader of a body that is still arriving. `None`: there is none, another exchange has it,
    /// or the application takes no more.
    reader: Option<BodyReader>,
    /// Bytes sent in all.
    pub(super) sent: u64,
}

/// The part of the request to which the record that is being sent belongs.
#[derive(Debug)]
enum Part {
    /// The request's own records.
    Head,
    /// The body behind them.
    Body,
    /// The file of a filter; what is left of it.
    Filter(FileSegment),
    /// No further record follows.
    Last,
    /// All bytes have been sent.
    Ended,
}

/// The successor of a record.
enum NextRecord {
    Record(Vec<u8>),
    /// The client has not sent the bytes yet.
    Later,
    Nothing,
}

impl Outgoing {
    pub(super) fn new(request: Rc<StreamedRequest>, id: u16) -> Self {
        let reader = match &request.body {
            Rest::Stream(stream) => stream.reader(),
            Rest::Nothing | Rest::File(..) => None,
        };
        Self { request, id, part: Part::Head, record: None, at: 0, body_at: 0, reader, sent: 0 }
    }

    /// True once all bytes have been sent.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.part, Part::Ended)
    }

    /// Unsent bytes before the request body.
    pub(super) fn head_left(&self) -> usize {
        if self.record.is_some() { 0 } else { self.request.head_len.saturating_sub(self.at) }
    }

    /// The next bytes to send; empty at the end, and while the client has not sent more.
    pub(super) fn bytes(&mut self) -> Result<&[u8], UpstreamError> {
        while !self.has_ended() && self.at == self.current().len() {
            match self.next()? {
                NextRecord::Record(record) => (self.record, self.at) = (Some(record), 0),
                NextRecord::Later => break,
                NextRecord::Nothing => self.part = Part::Ended,
            }
        }
        let at = self.at;
        Ok(if self.has_ended() { &[] } else { &self.current()[at..] })
    }

    fn current(&self) -> &Vec<u8> {
        self.record.as_ref().unwrap_or(&self.request.records)
    }

    /// The record after the current one. After an error, the next call repeats it.
    fn next(&mut self) -> Result<NextRecord, UpstreamError> {
        if let Part::Head = self.part {
            self.part = match self.request.body {
                Rest::Nothing => self.after_body(),
                Rest::File(..) | Rest::Stream(_) => Part::Body,
            };
        }
        match &mut self.part {
            Part::Body => {
                let next = self.next_of_body()?;
                // A record without content ends the stream.
                if matches!(&next, NextRecord::Record(record) if record.len() == HEADER_LEN) {
                    self.part = self.after_body();
                }
                Ok(next)
            }
            Part::Filter(data) => {
                let piece = data.read(usize::from(PIECE)).map_err(|error| {
                    let why = format!("the file for the filter cannot be read: {error}");
                    UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, why)
                })?;
                if piece.is_empty() {
                    self.part = Part::Last;
                }
                Ok(NextRecord::Record(record(Kind::DATA, self.id, &piece)))
            }
            Part::Head | Part::Last | Part::Ended => Ok(NextRecord::Nothing),
        }
    }

    fn after_body(&self) -> Part {
        self.request.data.clone().map_or(Part::Last, Part::Filter)
    }

    fn next_of_body(&mut self) -> Result<NextRecord, UpstreamError> {
        match &self.request.body {
            Rest::Nothing => Ok(NextRecord::Nothing),
            Rest::File(file, len) => {
                let size = u16::try_from(len - self.body_at).unwrap_or(PIECE).min(PIECE);
                let record = read(file, self.body_at, size, self.id)
                    .map_err(|error| UpstreamError::unreadable_body(&error))?;
                self.body_at += u64::from(size);
                Ok(NextRecord::Record(record))
            }
            Rest::Stream(_) => match &mut self.reader {
                Some(reader) => arrived(reader, self.id),
                None => Err(UpstreamError::spent_body()),
            },
        }
    }

    /// True if the sender waits for the client.
    pub(super) fn is_starved(&self) -> bool {
        self.reader.is_some() && !self.has_ended() && self.at == self.current().len()
    }

    /// Waits until the client has sent more.
    pub(super) async fn more(&self) {
        poll_fn(|cx| self.poll_more(cx)).await;
    }

    /// Ready when the client has sent more.
    pub(super) fn poll_more(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.reader.as_ref().map_or(Poll::Pending, |reader| reader.poll_arrived(cx))
    }

    /// Drops the rest of the body, because the application takes no more.
    pub(super) fn give_up(&mut self) {
        self.reader = None;
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.at += n;
        self.sent += n as u64;
        // Notes the end as soon as it is reached, because the answer may come before the next call.
        // The next call repeats an error.
        drop(self.bytes().map(<[u8]>::len));
    }
}

/// A record with `size` bytes of a file.
fn read(file: &OwnedFd, at: u64, size: u16, id: u16) -> io::Result<Vec<u8>> {
    let mut record = Header::new(Kind::STDIN, id, size).encode().to_vec();
    let start = record.len();
    record.resize(start + usize::from(size), 0);
    read_exact_at(file, &mut record[start..], at)?;
    Ok(record)
}

/// A record with the bytes of a body that have arrived.
fn arrived(reader: &mut BodyReader, id: u16) -> Result<NextRecord, UpstreamError> {
    let bytes = match reader.take(usize::from(PIECE)) {
        Arrived::Nothing => return Ok(NextRecord::Later),
        Arrived::Failed(status) => return Err(UpstreamError::of_body(status)),
        Arrived::Bytes(bytes) => bytes,
        Arrived::End => bytes::Bytes::new(),
    };
    Ok(NextRecord::Record(record(Kind::STDIN, id, &bytes)))
}

/// A record with at most `PIECE` bytes.
fn record(kind: Kind, id: u16, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap_or(PIECE);
    let mut record = Header::new(kind, id, len).encode().to_vec();
    record.extend_from_slice(content);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body that the front has stored and can no longer read is no fault of the application.
    #[test]
    fn an_unreadable_stored_body_is_the_servers_fault() {
        let stored = tempfile::tempfile().unwrap();
        let request = StreamedRequest {
            client: Vec::new(),
            encrypted: false,
            head_len: 1,
            records: vec![0],
            body: Rest::File(Rc::new(stored.into()), 10),
            data: None,
        };
        let mut outgoing = Outgoing::new(Rc::new(request), 1);
        outgoing.advance(1);
        assert_eq!(outgoing.bytes().unwrap_err().kind(), UpstreamErrorKind::Server);
    }
}
