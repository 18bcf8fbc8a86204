//! The open file that a header block names (`docs/handover.md`, `NAMED`).

use std::os::fd::{AsFd, OwnedFd};

use sendoff_fastcgi::handover::Record;

use super::Worker;
use crate::Gone;

impl Worker {
    /// Whether the front takes the files that header blocks name.
    #[must_use]
    pub fn takes_named(&self) -> bool {
        self.request.takes_named
    }

    /// Sends the file that the header block names, which comes next. Nothing happens if the front does not take it, or the
    /// block has been written.
    ///
    /// # Errors
    /// The client has gone.
    pub fn named(&mut self, file: OwnedFd) -> Result<(), Gone> {
        if !self.request.takes_named || self.response.named || self.response.body.is_some() {
            return Ok(());
        }
        if self.is_closed() {
            return Err(Gone);
        }
        self.response.named = true;
        // The length of the application's own body matters to nobody now.
        self.response.begun = true;
        let mut record = Vec::new();
        Record::Named.encode(self.request.id, &mut record);
        let shared = &self.shared;
        shared.send_with_descriptor(shared.lock(), &record, file.as_fd()).map(drop)
    }
}
