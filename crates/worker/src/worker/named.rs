//! The open file that a header block names (`docs/handover.md`, `NAMED`).

use std::os::fd::{AsFd, OwnedFd};

use sendoff_fastcgi::handover::Record;
use sendoff_link::worker::Request;

use super::Worker;
use crate::Gone;

impl Worker {
    /// True if the front accepts files that header blocks name.
    #[must_use]
    pub fn takes_named(&self) -> bool {
        self.requests.running().is_some_and(Request::accepts_named)
    }

    /// Sends the file that the next header block names. Has no effect if the front does not accept
    /// it, or if the block has been written.
    ///
    /// # Errors
    /// The client has gone.
    pub fn named(&mut self, file: OwnedFd) -> Result<(), Gone> {
        let takes = self.response.open().is_some_and(|open| open.takes_named());
        if !self.takes_named() || !takes {
            return Ok(());
        }
        if self.is_closed() {
            return Err(Gone);
        }
        let (Some(request), Some(open)) = (self.requests.running(), self.response.open_mut())
        else {
            return Err(Gone);
        };
        open.sent_named();
        let mut record = Vec::new();
        Record::Named.encode(request.id(), &mut record);
        let shared = &self.shared;
        shared.send_with_descriptor(shared.lock(), &record, file.as_fd()).map(drop)
    }
}
