//! `X-ZeroCopy`: a body in which file names stand where the contents of the files belong (Suzumura et al., WWW 2009, section 3.2.2). The
//! head says where they stand, or, if the body is not known when it begins, the body does (`X-ZeroCopy: chunked`).

mod chunks;
mod part;
mod places;
#[cfg(test)]
mod sample;

use bytes::Bytes;
use sendoff_delivery::segment::Segment;
use sendoff_message::response::CgiHead;
use sendoff_report::explain::Remark;
use sendoff_site::sendable::{ByPath, Denied};

use chunks::Chunks;
use places::Places;

/// The field, in lower case.
pub(crate) const FIELD: &str = "x-zerocopy";

/// Where file names stand in a body.
#[derive(Debug)]
pub(crate) enum ZeroCopy {
    /// The head says where.
    Places(Places),
    /// The body says it, chunk by chunk.
    Chunks(Chunks),
}

impl ZeroCopy {
    /// What a head announces, if it has the field.
    pub(crate) fn announced(head: &CgiHead) -> Option<Result<Self, &'static str>> {
        head.values(FIELD.as_bytes()).next().map(|value| match &value[..] {
            value if value.eq_ignore_ascii_case(b"chunked") => Ok(Self::Chunks(Chunks::default())),
            value => Places::parse(value).map(Self::Places),
        })
    }

    /// Consumes bytes of the body and returns the next segment: plain bytes, or the file that they name. `None` when `data` is
    /// used up; it may have ended inside a name.
    pub(crate) fn next(
        &mut self,
        data: &mut Bytes,
        files: &impl ByPath,
    ) -> Result<Option<Segment>, Denied> {
        match self {
            Self::Places(places) => places.next(data, files),
            Self::Chunks(chunks) => chunks.next(data, files),
        }
    }

    /// Passes over plain bytes of the body that have come in another way.
    ///
    /// # Errors
    /// A name should be among them.
    pub(crate) fn skip(&mut self, len: u64) -> Result<(), Denied> {
        match self {
            Self::Places(places) => places.skip(len),
            Self::Chunks(chunks) => chunks.skip(len),
        }
    }

    /// Whether everything that was announced has come.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Places(places) => places.names.is_empty(),
            Self::Chunks(chunks) => chunks.is_complete(),
        }
    }
}

/// What `sendoff explain` says about a segment.
pub(crate) fn remark(segment: &Segment) -> Remark {
    let (how, what) = match segment {
        Segment::Bytes(_) => ("bytes", "between names of X-ZeroCopy, or a small file"),
        Segment::File(_) => ("file", "named in the body (X-ZeroCopy)"),
    };
    Remark { how: how.to_owned(), what: what.to_owned(), ..Remark::default() }
}
