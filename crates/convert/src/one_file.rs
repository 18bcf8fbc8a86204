//! A configuration in one file, for tests.

use std::io;
use std::path::{Path, PathBuf};

use crate::Files;

/// The text of the file, whatever its path.
pub(crate) struct One(pub(crate) String);

impl Files for One {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.clone())
    }

    fn matching(&self, _: &Path) -> Vec<PathBuf> {
        Vec::new()
    }
}
