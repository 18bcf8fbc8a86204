//! The records of a request, as they leave: a body in a file, or one that is still arriving, is read in between.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

use sendoff_delivery::segment::FileSegment;
use sendoff_fastcgi::record::{HEADER_LEN, Header, Kind};
use sendoff_message::request::{Arrived, BodyReader};
use sendoff_upstream::cgi::{Rest, StreamedRequest};
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};

/// Content of a `STDIN` record made from a body in a file: what a UNIX socket takes at once.
const PIECE: u16 = 32 * 1024;

/// A request on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    request: Rc<StreamedRequest>,
    pub(super) id: u16,
    /// The record being sent, once the request's own are.
    chunk: Option<Vec<u8>>,
    /// Bytes sent of the current buffer: the request's records, then the chunk.
    at: usize,
    /// Where the next piece of the body begins.
    body_at: u64,
    /// The end of the body was among what is sent.
    body_ended: bool,
    /// What is left of the file of a filter.
    data: Option<FileSegment>,
    /// Of a body that is still arriving. `None`: another exchange has it, or the application takes no more.
    reader: Option<BodyReader>,
    /// Bytes sent in all.
    pub(super) sent: u64,
    pub(super) ended: bool,
}

/// What follows a record.
enum Next {
    Record(Vec<u8>),
    /// The client has not sent it yet.
    Later,
    Nothing,
}

impl Outgoing {
    pub(super) fn new(request: Rc<StreamedRequest>, id: u16) -> Self {
        let reader = match &request.body {
            Rest::Stream(stream) => stream.reader(),
            Rest::Nothing | Rest::File(..) => None,
        };
        let data = request.data.clone();
        Self {
            request,
            id,
            chunk: None,
            at: 0,
            body_at: 0,
            body_ended: false,
            data,
            reader,
            sent: 0,
            ended: false,
        }
    }

    /// Bytes that are missing up to the request body.
    pub(super) fn head_left(&self) -> usize {
        if self.chunk.is_some() { 0 } else { self.request.head_len.saturating_sub(self.at) }
    }

    /// What is to be sent next; nothing at the end, and while the client is waited for.
    pub(super) fn bytes(&mut self) -> Result<&[u8], UpstreamError> {
        while !self.ended && self.at == self.current().len() {
            match self.next()? {
                Next::Record(record) => (self.chunk, self.at) = (Some(record), 0),
                Next::Later => break,
                Next::Nothing => self.ended = true,
            }
        }
        let at = self.at;
        Ok(if self.ended { &[] } else { &self.current()[at..] })
    }

    fn current(&self) -> &Vec<u8> {
        self.chunk.as_ref().unwrap_or(&self.request.records)
    }

    fn next(&mut self) -> Result<Next, UpstreamError> {
        if !self.body_ended {
            match self.next_of_body()? {
                Next::Nothing => self.body_ended = true,
                other => return Ok(other),
            }
        }
        let Some(data) = &mut self.data else { return Ok(Next::Nothing) };
        let piece = data.read(usize::from(PIECE)).map_err(|error| {
            let why = format!("the file for the filter cannot be read: {error}");
            UpstreamError::new(UpstreamErrorKind::Server, Retry::Unsafe, why)
        })?;
        if piece.is_empty() {
            self.data = None;
        }
        Ok(Next::Record(record(Kind::DATA, self.id, &piece)))
    }

    fn next_of_body(&mut self) -> Result<Next, UpstreamError> {
        // A record without content is the end of a stream.
        if self.chunk.as_ref().is_some_and(|last| last.len() == HEADER_LEN) {
            return Ok(Next::Nothing);
        }
        match &self.request.body {
            Rest::Nothing => Ok(Next::Nothing),
            Rest::File(file, len) => {
                let size = u16::try_from(len - self.body_at).unwrap_or(PIECE).min(PIECE);
                let record = read(file, self.body_at, size, self.id).map_err(|error| {
                    UpstreamError::broken(format!("the request body cannot be read: {error}"))
                })?;
                self.body_at += u64::from(size);
                Ok(Next::Record(record))
            }
            Rest::Stream(_) => match &mut self.reader {
                Some(reader) => arrived(reader, self.id),
                None => {
                    let why = "the request body was passed on already, while it arrived";
                    let kind = UpstreamErrorKind::Server;
                    Err(UpstreamError::new(kind, Retry::Unsafe, why))
                }
            },
        }
    }

    /// Whether it is the client that is waited for.
    pub(super) fn is_starved(&self) -> bool {
        self.reader.is_some() && !self.ended && self.at == self.current().len()
    }

    /// Waits until the client has sent more.
    pub(super) async fn more(&self) {
        poll_fn(|cx| self.poll_more(cx)).await;
    }

    /// Ready when the client has sent more.
    pub(super) fn poll_more(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.reader.as_ref().map_or(Poll::Pending, |reader| reader.poll_arrived(cx))
    }

    /// The application takes no more.
    pub(super) fn give_up(&mut self) {
        self.reader = None;
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.at += n;
        self.sent += n as u64;
        // Marks the end as soon as it is reached: the answer may come before the next look. That will find an error again.
        drop(self.bytes().map(<[u8]>::len));
    }
}

/// A record with `size` bytes of a file.
fn read(file: &OwnedFd, at: u64, size: u16, id: u16) -> io::Result<Vec<u8>> {
    let mut record = Header::new(Kind::STDIN, id, size).encode().to_vec();
    let start = record.len();
    record.resize(start + usize::from(size), 0);
    let mut filled = start;
    while filled < record.len() {
        let offset = at + (filled - start) as u64;
        match rustix::io::pread(file, &mut record[filled..], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(record)
}

/// A record with what has come of a body.
fn arrived(reader: &mut BodyReader, id: u16) -> Result<Next, UpstreamError> {
    let bytes = match reader.take(usize::from(PIECE)) {
        Arrived::Nothing => return Ok(Next::Later),
        Arrived::Failed(status) => return Err(UpstreamError::of_body(status)),
        Arrived::Bytes(bytes) => bytes,
        Arrived::End => bytes::Bytes::new(),
    };
    Ok(Next::Record(record(Kind::STDIN, id, &bytes)))
}

/// A record with at most `PIECE` bytes.
fn record(kind: Kind, id: u16, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap_or(PIECE);
    let mut record = Header::new(kind, id, len).encode().to_vec();
    record.extend_from_slice(content);
    record
}
