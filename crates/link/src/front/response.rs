//! The request under way, the progress of its response, and the records that are allowed in it.

use sendoff_fastcgi::record::Kind;

use super::{Broken, Caller, ClientSocket};

/// A request that has been, or is being, sent to the worker.
#[derive(Debug)]
pub(super) struct Busy<C: Caller> {
    pub(super) held: C::Held,
    pub(super) source: Source,
    /// `None`: the request was given up, and the rest of the response is dropped.
    pub(super) recipient: Option<C::Recipient>,
    pub(super) progress: ResponseProgress,
    pub(super) at_end: AtEnd,
}

/// The way by which the worker has got a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Over this link, or over FastCGI.
    Sent,
    /// From the ring.
    Ring {
        number: u64,
        /// The record `TAKEN` has come.
        is_taken: bool,
    },
}

/// The progress of a response.
///
/// ```text
///             LENGTH              anything else
///  Nothing ───────────▶ Length ─────────────────▶ Body
///     │          anything but LENGTH               ▲
///     └────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponseProgress {
    Nothing(ClientSocket),
    Length(ClientSocket),
    Body(NamedFile),
}

impl ResponseProgress {
    /// True if the client's socket was lent and not given back.
    pub(super) fn is_lent(self) -> bool {
        matches!(self, Self::Nothing(ClientSocket::Lent) | Self::Length(ClientSocket::Lent))
    }
}

/// State of the `NAMED` record, which is allowed once.
#[derive(Debug, Clone, Copy)]
pub(super) enum NamedFile {
    Absent,
    Present,
}

/// State of the link after `END_REQUEST`.
#[derive(Debug, Clone, Copy)]
pub(super) enum AtEnd {
    Idle,
    Detached,
}

impl<C: Caller> Busy<C> {
    /// Notes a part of the response after which neither `LENGTH` nor `SENT` is allowed.
    pub(super) fn body(&mut self) {
        if !matches!(self.progress, ResponseProgress::Body(_)) {
            self.progress = ResponseProgress::Body(NamedFile::Absent);
        }
    }

    pub(super) fn length(&mut self) -> Result<(), Broken> {
        match self.progress {
            ResponseProgress::Nothing(client) => {
                self.progress = ResponseProgress::Length(client);
                Ok(())
            }
            _ => Err(Broken::OutOfPlace(Kind::LENGTH)),
        }
    }

    pub(super) fn sent(&mut self) -> Result<(), Broken> {
        if !self.progress.is_lent() {
            return Err(Broken::OutOfPlace(Kind::SENT));
        }
        self.body();
        Ok(())
    }

    pub(super) fn named(&mut self) -> Result<(), Broken> {
        match self.progress {
            ResponseProgress::Body(NamedFile::Present) => Err(Broken::OutOfPlace(Kind::NAMED)),
            _ => {
                self.progress = ResponseProgress::Body(NamedFile::Present);
                Ok(())
            }
        }
    }
}
