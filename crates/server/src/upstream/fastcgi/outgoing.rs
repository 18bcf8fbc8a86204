//! The records of a request, as they leave: a body in a file is read in between.

use std::io;
use std::rc::Rc;

use sendoff_fastcgi::record::{HEADER_LEN, Header, Kind};

use crate::upstream::cgi::StreamedRequest;

/// Content of a `STDIN` record made from a body in a file: what a UNIX socket takes at once.
const PIECE: u16 = 32 * 1024;

/// A request on its way out.
pub(super) struct Outgoing {
    request: Rc<StreamedRequest>,
    pub(super) id: u16,
    /// The record being sent, once the request's own are.
    chunk: Option<Vec<u8>>,
    /// Sent of the request's records or of the chunk.
    at: usize,
    /// Where the next piece of the body begins.
    body_at: u64,
    /// Bytes sent in all.
    pub(super) sent: u64,
    pub(super) ended: bool,
}

impl Outgoing {
    pub(super) fn new(request: Rc<StreamedRequest>, id: u16) -> Self {
        Self { request, id, chunk: None, at: 0, body_at: 0, sent: 0, ended: false }
    }

    /// Bytes that are missing up to the request body.
    pub(super) fn head_left(&self) -> usize {
        if self.chunk.is_some() { 0 } else { self.request.head_len.saturating_sub(self.at) }
    }

    /// What is to be sent next; nothing at the end.
    pub(super) fn bytes(&mut self) -> io::Result<&[u8]> {
        while !self.ended && self.at == self.chunk.as_ref().unwrap_or(&self.request.records).len() {
            self.next_chunk()?;
        }
        let all = self.chunk.as_ref().unwrap_or(&self.request.records);
        Ok(if self.ended { &[] } else { &all[self.at..] })
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let Some((file, len)) = &self.request.body else {
            self.ended = true;
            return Ok(());
        };
        if self.chunk.as_ref().is_some_and(|last| last.len() == HEADER_LEN) {
            self.ended = true;
            return Ok(());
        }
        let size = u16::try_from(len - self.body_at).unwrap_or(PIECE).min(PIECE);
        let mut chunk = Header::new(Kind::STDIN, self.id, size).encode().to_vec();
        let start = chunk.len();
        chunk.resize(start + usize::from(size), 0);
        let mut filled = start;
        while filled < chunk.len() {
            let offset = self.body_at + (filled - start) as u64;
            match rustix::io::pread(&**file, &mut chunk[filled..], offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.body_at += u64::from(size);
        self.chunk = Some(chunk);
        self.at = 0;
        Ok(())
    }

    pub(super) fn advance(&mut self, n: usize) {
        self.at += n;
        self.sent += n as u64;
        // Marks the end as soon as it is reached: the answer may come before the next look. That will find an error again.
        drop(self.bytes().map(<[u8]>::len));
    }
}
