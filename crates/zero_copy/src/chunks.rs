//! `X-ZeroCopy: chunked`: a body in the syntax of the chunked coding (RFC 9112 §7.1), in which a
//! chunk with the extension `file` contains the name of a file, optionally with a range.
//!
//! ```text
//!  5 CRLF hello CRLF
//!  a;file CRLF /tmp/A.htm CRLF
//!  a;file=100-199 CRLF /tmp/B.htm CRLF
//!  0 CRLF CRLF
//! ```

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_site_files::sendable::{ByPath, Denied};

use crate::part::{MAX_NAME, broken, take};

/// The longest line before a chunk, in bytes: a size, an extension and two offsets.
const MAX_LINE: usize = 80;

/// The expected part of the body.
#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// The line before a chunk. A part of it may have arrived.
    #[default]
    Line,
    /// Bytes of the body.
    Plain {
        left: u64,
    },
    /// The rest of a file's name.
    Name {
        left: u64,
        range: Range,
    },
    /// The end of a chunk's line.
    ChunkEnd,
    /// The empty line behind the last chunk.
    LastEnd,
    Ended,
}

/// A range of a file: the offset of the first byte, and of the last byte; `None`: to the end of the
/// file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Range {
    first: u64,
    last: Option<u64>,
}

/// A body in chunks. Some of them are names of files.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    state: State,
    /// The part of the current line or name that has arrived.
    part: Vec<u8>,
}

impl Chunks {
    pub(crate) fn next(
        &mut self,
        data: &mut Bytes,
        files: &impl ByPath,
    ) -> Result<Option<Segment>, Denied> {
        while !data.is_empty() {
            match &mut self.state {
                State::Line => {
                    if let Some(line) = self.line(data)? {
                        self.state = chunk(&line)?;
                    }
                }
                State::Plain { left } => {
                    let plain = take(data, *left);
                    *left -= plain.len() as u64;
                    if *left == 0 {
                        self.state = State::ChunkEnd;
                    }
                    return Ok(Some(Segment::Bytes(plain)));
                }
                State::Name { left, range } => {
                    let piece = take(data, *left);
                    *left -= piece.len() as u64;
                    self.part.extend_from_slice(&piece);
                    if *left == 0 {
                        let range = *range;
                        self.state = State::ChunkEnd;
                        let segment = file(files, &std::mem::take(&mut self.part), range)?;
                        if segment.is_some() {
                            return Ok(segment);
                        }
                    }
                }
                State::ChunkEnd => self.expect_end(data, State::Line)?,
                State::LastEnd => self.expect_end(data, State::Ended)?,
                State::Ended => return Err(broken("bytes follow the last chunk")),
            }
        }
        Ok(None)
    }

    pub(crate) fn skip(&mut self, len: u64) -> Result<(), Denied> {
        match &mut self.state {
            State::Plain { left } if *left >= len => {
                *left -= len;
                if *left == 0 {
                    self.state = State::ChunkEnd;
                }
                Ok(())
            }
            _ => Err(broken("a file was handed over where no chunk has room for it")),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::Ended
    }

    /// The line that ends in the data, without CRLF; `None`: its end has not arrived.
    fn line(&mut self, data: &mut Bytes) -> Result<Option<Vec<u8>>, Denied> {
        let end = data.iter().position(|&byte| byte == b'\n');
        let len = end.map_or(data.len(), |end| end + 1);
        if self.part.len() + len > MAX_LINE {
            return Err(broken("a line before a chunk is too long"));
        }
        self.part.extend_from_slice(&take(data, len as u64));
        if end.is_none() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.part);
        let line =
            line.strip_suffix(b"\r\n").ok_or_else(|| broken("a line does not end with CRLF"))?;
        Ok(Some(line.to_vec()))
    }

    fn expect_end(&mut self, data: &mut Bytes, next: State) -> Result<(), Denied> {
        match self.line(data)? {
            None => Ok(()),
            Some(line) if line.is_empty() => {
                self.state = next;
                Ok(())
            }
            Some(_) => Err(broken("a chunk is longer than its size")),
        }
    }
}

/// Parses the line before a chunk.
fn chunk(line: &[u8]) -> Result<State, Denied> {
    let bad = || broken(&format!("{} is no size of a chunk", line.escape_ascii()));
    let text = std::str::from_utf8(line).map_err(|_| bad())?;
    let (size, extension) = match text.split_once(';') {
        Some((size, extension)) => (size, Some(extension.trim())),
        None => (text, None),
    };
    let size = size.trim();
    let is_hex = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = u64::from_str_radix(size, 16).ok().filter(|_| is_hex).ok_or_else(bad)?;
    match (size, extension) {
        (0, None) => Ok(State::LastEnd),
        (left, None) => Ok(State::Plain { left }),
        (left, Some(extension)) => {
            let rest = extension.strip_prefix("file").ok_or_else(bad)?;
            let range = match rest {
                "" => Range::default(),
                rest => range(rest).ok_or_else(bad)?,
            };
            match left {
                1..=MAX_NAME => Ok(State::Name { left, range }),
                _ => Err(broken("a name has 1 to 4096 bytes")),
            }
        }
    }
}

/// `=FIRST-LAST` or `=FIRST-`.
fn range(text: &str) -> Option<Range> {
    let (first, last) = text.strip_prefix('=')?.split_once('-')?;
    let number = |digits: &str| {
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    };
    let last = if last.is_empty() { None } else { Some(number(last)?) };
    Some(Range { first: number(first)?, last })
}

/// A range of the file with this name; `None` if it is empty.
fn file(files: &impl ByPath, name: &[u8], range: Range) -> Result<Option<Segment>, Denied> {
    let entry = files.by_path(name)?;
    let end = match range.last {
        Some(last) => last.checked_add(1).filter(|&end| end <= entry.size),
        None => Some(entry.size),
    };
    let end = end.filter(|&end| range.first <= end);
    let end = end.ok_or_else(|| broken(&format!("not in {}", name.escape_ascii())))?;
    Ok((range.first < end).then(|| entry.part(range.first, end - range.first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::site;
    use sendoff_site_files::sendable::Sendable;

    fn read(sendable: &Sendable, body: &[u8], piece: usize) -> Result<(String, bool), u16> {
        let (mut chunks, mut out) = (Chunks::default(), Vec::new());
        for piece in body.chunks(piece) {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(segment) =
                chunks.next(&mut piece, sendable).map_err(|denied| denied.status.as_u16())?
            {
                let Segment::Bytes(bytes) = segment else { panic!("small files are in memory") };
                out.extend_from_slice(&bytes);
            }
        }
        Ok((String::from_utf8(out).unwrap(), chunks.is_complete()))
    }

    #[test]
    fn names_in_chunks_become_files_however_the_body_is_cut() {
        let (dir, sendable) = site();
        let (a, b) = (dir.path().join("root/a"), dir.path().join("accel/d e"));
        let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
        let more = dir.path().join("more/b");
        let more = more.to_str().unwrap();
        let body = format!(
            "5\r\nhello\r\n{:x};file\r\n{a}\r\n{:X} ; file=1-1\r\n{more}\r\n{:x};file=2-\r\n{more}\r\n00003\r\nbye\r\n0\r\n\r\n",
            a.len(),
            more.len(),
            more.len()
        );
        for piece in [1, 2, 7, 1000] {
            let whole = Ok(("helloABbye".to_owned(), true));
            assert_eq!(read(&sendable, body.as_bytes(), piece), whole);
            let cut = read(&sendable, &body.as_bytes()[..body.len() - 1], piece);
            assert_eq!(cut, Ok(("helloABbye".to_owned(), false)));
            let denied = format!("{:x};file\r\n{b}\r\n", b.len());
            assert_eq!(read(&sendable, denied.as_bytes(), piece), Err(403));
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        let (dir, sendable) = site();
        let a = dir.path().join("root/a");
        let a = a.to_str().unwrap();
        let named = |what: &str| format!("{:x};{what}\r\n{a}\r\n", a.len());
        for body in [
            "x\r\n".to_owned(),
            "\r\n".to_owned(),
            "-1\r\n".to_owned(),
            "+1\r\n".to_owned(),
            "1\nx".to_owned(),
            "1\r\nxy\r\n".to_owned(),
            "0\r\nTrailer: x\r\n\r\n".to_owned(),
            "0\r\n\r\nx".to_owned(),
            "0;file\r\n\r\n".to_owned(),
            "1001;file\r\n".to_owned(),
            "10000000000000000\r\n".to_owned(),
            "1".repeat(200),
            named("files"),
            named("file="),
            named("file=1"),
            named("file=-1"),
            named("file=2-"),
            named("file=0-1"),
            named("file=0-18446744073709551615"),
        ] {
            assert_eq!(read(&sendable, body.as_bytes(), 3), Err(502), "{body:?}");
        }
    }

    #[test]
    fn handed_over_files_are_parts_of_plain_chunks() {
        let (_dir, sendable) = site();
        let mut chunks = Chunks::default();
        assert!(chunks.skip(1).is_err());
        let mut line = Bytes::from_static(b"a\r\n");
        assert!(chunks.next(&mut line, &sendable).unwrap().is_none());
        assert!(chunks.skip(11).is_err());
        chunks.skip(10).unwrap();
        let mut end = Bytes::from_static(b"\r\n0\r\n\r\n");
        assert!(chunks.next(&mut end, &sendable).unwrap().is_none());
        assert!(chunks.is_complete());
    }
}
