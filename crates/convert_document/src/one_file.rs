//! A configuration in one file, for tests.

use std::io;
use std::path::{Path, PathBuf};

use crate::Files;

/// The text of the file, whatever its path.
#[derive(Debug)]
pub struct OneFile(pub String);

impl Files for OneFile {
    fn read(&self, _: &Path) -> io::Result<String> {
        Ok(self.0.clone())
    }

    fn matching(&self, _: &Path) -> Vec<PathBuf> {
        Vec::new()
    }
}
