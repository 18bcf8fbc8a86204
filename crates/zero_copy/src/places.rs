//! `X-ZeroCopy: offset/length:offset/length`: the head says where file names stand in the body.

use std::collections::VecDeque;

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_site_files::sendable::{ByPath, Denied};

use crate::part::{MAX_NAME, broken, take};

/// The positions of file names in a body.
#[derive(Debug)]
pub(crate) struct Places {
    /// Offset and length in the body, in order.
    pub(crate) names: VecDeque<(u64, u64)>,
    /// Bytes of the body consumed so far.
    at: u64,
    /// The part of the current name that has arrived.
    name: Vec<u8>,
}

impl Places {
    /// Reads the value of the field.
    pub(crate) fn parse(value: &[u8]) -> Result<Self, &'static str> {
        const BAD: &str = "an invalid X-ZeroCopy";
        let text = std::str::from_utf8(value).map_err(|_| BAD)?;
        let (mut names, mut end) = (VecDeque::new(), 0);
        for place in text.split(':') {
            let (offset, length) = place.trim().split_once('/').ok_or(BAD)?;
            let number = |digits: &str| digits.parse::<u64>().map_err(|_| BAD);
            let (offset, length) = (number(offset)?, number(length)?);
            if offset < end || length == 0 || length > MAX_NAME {
                return Err(BAD);
            }
            end = offset.checked_add(length).ok_or(BAD)?;
            names.push_back((offset, length));
        }
        Ok(Self { names, at: 0, name: Vec::new() })
    }

    pub(crate) fn next(
        &mut self,
        data: &mut Bytes,
        files: &impl ByPath,
    ) -> Result<Option<Segment>, Denied> {
        while !data.is_empty() {
            let (offset, length) = self.names.front().copied().unwrap_or((u64::MAX, 0));
            let plain = take(data, offset.saturating_sub(self.at));
            self.at += plain.len() as u64;
            if !plain.is_empty() {
                return Ok(Some(Segment::Bytes(plain)));
            }
            let piece = take(data, length - self.name.len() as u64);
            self.at += piece.len() as u64;
            self.name.extend_from_slice(&piece);
            if self.name.len() as u64 == length {
                self.names.pop_front();
                let entry = files.by_path(&std::mem::take(&mut self.name))?;
                if entry.size > 0 {
                    return Ok(Some(entry.part(0, entry.size)));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn skip(&mut self, len: u64) -> Result<(), Denied> {
        let end = self.at.saturating_add(len);
        let is_plain = self.name.is_empty() && self.names.front().is_none_or(|(at, _)| *at >= end);
        self.at = end;
        if is_plain { Ok(()) } else { Err(broken("a name lies in a file that was handed over")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZeroCopy;
    use crate::sample::site;
    use sendoff_message::response::CgiHead;

    fn head(block: &str) -> CgiHead {
        CgiHead::parse(&Bytes::copy_from_slice(block.as_bytes())).unwrap()
    }

    #[test]
    fn names_in_a_body_become_files_however_it_is_cut() {
        let (dir, sendable) = site();
        let (a, b) = (dir.path().join("root/a"), dir.path().join("more/b"));
        let body = format!("hello{}world{}bye", a.display(), b.display());
        let (a, b) = (a.as_os_str().len(), b.as_os_str().len());
        let field = format!("X-ZeroCopy:5/{a}:{}/{b}\r\n\r\n", 10 + a);
        for piece in [1, 3, 1000] {
            let mut places = ZeroCopy::announced(&head(&field)).unwrap().unwrap();
            let mut out = Vec::new();
            for piece in body.as_bytes().chunks(piece) {
                let mut piece = Bytes::copy_from_slice(piece);
                while let Some(segment) = places.next(&mut piece, &sendable).unwrap() {
                    let Segment::Bytes(bytes) = segment else {
                        panic!("small files are in memory")
                    };
                    out.extend_from_slice(&bytes);
                }
            }
            assert_eq!(String::from_utf8(out).unwrap(), "helloAworldBBbye");
            assert!(places.is_complete());
        }
    }

    #[test]
    fn places_must_be_in_order_and_apart() {
        for bad in ["", "5", "5/", "/5", "5/0", "5/10:6/1", "5/10:14/1", "-1/2", "0/5000"] {
            assert!(Places::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Places::parse(b"18446744073709551615/2").is_err());
        assert!(Places::parse(b"5/10: 15/1").is_ok());
        assert!(ZeroCopy::announced(&head("A: b\r\n\r\n")).is_none());
    }
}
