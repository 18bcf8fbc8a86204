//! Transfer of the configuration to other processes: an unnamed file whose bytes are final.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use sendoff_sys::memfd;

use crate::config::Config;
use crate::error::Error;

/// Size limit of a configuration, in bytes. A command line is far below it: `ARG_MAX` is usually 2
/// MiB.
const MAX_LEN: u64 = 64 << 20;

impl Config {
    /// Writes the configuration to a file that exists in memory only and that no process can change
    /// afterwards. Children inherit the descriptor if its close-on-exec flag is cleared.
    ///
    /// # Errors
    /// The system has no descriptor or memory for the file.
    pub fn seal(&self) -> Result<OwnedFd, Error> {
        let text = serde_json::to_vec_pretty(self).map_err(Error::Foreign)?;
        let file = memfd::sealed(c"sendoff-config", text.len() as u64, |file| {
            File::from(file.try_clone_to_owned()?).write_all(&text)
        })?;
        Ok(file)
    }

    /// Reads the file that [`seal`](Self::seal) wrote, from its beginning, without the descriptor's
    /// offset: the offset is shared by all processes that inherited the file, and a child that is
    /// started again reads the file again.
    ///
    /// # Errors
    /// The descriptor cannot be read, or does not hold a configuration.
    pub fn read(file: OwnedFd) -> Result<Self, Error> {
        let file = File::from(file);
        let len = file.metadata()?.len().min(MAX_LEN);
        let mut text = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut text, 0)?;
        serde_json::from_slice(&text).map_err(Error::Foreign)
    }
}
