//! `X-ZeroCopy`: a body in which file names stand for the contents of the files (Suzumura et al.,
//! WWW 2009, section 3.2.2). The head gives the positions of the names, or, if the body is not
//! known when it begins, the body marks them (`X-ZeroCopy: chunked`).

mod chunks;
mod part;
mod places;
#[cfg(test)]
mod sample;

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_message::response::CgiHead;
use sendoff_report::explain::Remark;
use sendoff_site_files::sendable::{ByPath, Denied};

use chunks::Chunks;
use places::Places;

/// The field, in lower case.
pub const FIELD: &str = "x-zerocopy";

/// The positions of file names in a body.
#[derive(Debug)]
pub struct ZeroCopy(Names);

#[derive(Debug)]
enum Names {
    /// The head lists them.
    Places(Places),
    /// The body marks them, chunk by chunk.
    Chunks(Chunks),
}

impl ZeroCopy {
    /// The announcement in a head, if it has the field; an error for an invalid value.
    pub fn announced(head: &CgiHead) -> Option<Result<Self, &'static str>> {
        head.values(FIELD.as_bytes()).next().map(|value| match value {
            value if value.eq_ignore_ascii_case(b"chunked") => {
                Ok(Self(Names::Chunks(Chunks::default())))
            }
            value => Places::parse(value).map(|places| Self(Names::Places(places))),
        })
    }

    /// Consumes bytes of the body and returns the next segment: plain bytes, or the file that they
    /// name. `None` when `data` is used up; it may have ended inside a name.
    ///
    /// # Errors
    /// The body breaks the syntax, or names a file that may not be sent.
    pub fn next(
        &mut self,
        data: &mut Bytes,
        files: &impl ByPath,
    ) -> Result<Option<Segment>, Denied> {
        match &mut self.0 {
            Names::Places(places) => places.next(data, files),
            Names::Chunks(chunks) => chunks.next(data, files),
        }
    }

    /// Skips plain bytes of the body that have arrived in another way.
    ///
    /// # Errors
    /// A file name should be among the bytes.
    pub fn skip(&mut self, len: u64) -> Result<(), Denied> {
        match &mut self.0 {
            Names::Places(places) => places.skip(len),
            Names::Chunks(chunks) => chunks.skip(len),
        }
    }

    /// True if everything that was announced has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        match &self.0 {
            Names::Places(places) => places.names.is_empty(),
            Names::Chunks(chunks) => chunks.is_complete(),
        }
    }
}

/// The remark of `sendoff explain` about a segment.
#[must_use]
pub fn remark(segment: &Segment) -> Remark {
    let (how, what) = match segment {
        Segment::Bytes(_) => ("bytes", "between names of X-ZeroCopy, or a small file"),
        Segment::File(_) => ("file", "named in the body (X-ZeroCopy)"),
    };
    Remark { how: how.to_owned(), what: what.to_owned(), ..Remark::default() }
}
