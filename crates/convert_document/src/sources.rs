//! The files of one configuration, with limits on their number and size.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::{Files, Part, Place, Unreadable};

/// The deepest nesting of includes and blocks, so that they need little stack.
pub const MAX_DEPTH: usize = 32;
/// The most files that one configuration may consist of.
const MAX_FILES: usize = 1000;
/// The most bytes of all files together: far more than people write, and little to hold.
const MAX_BYTES: usize = 16 << 20;
/// The most directives: the time grows with the square of the number of locations.
const MAX_DIRECTIVES: usize = 20_000;

/// Reads the files of one configuration.
pub struct Sources<'f> {
    files: &'f dyn Files,
    /// The files that are being read, from the outermost.
    open: Vec<PathBuf>,
    /// All files that were read.
    all: Vec<PathBuf>,
    files_read: usize,
    bytes: usize,
    directives: usize,
}

/// The text of a file.
#[derive(Debug)]
pub struct Source {
    /// The text, without a byte order mark.
    pub text: String,
    /// The name of the file, for places.
    pub file: Rc<str>,
}

impl Source {
    /// A line of the file.
    #[must_use]
    pub fn line(&self, number: usize) -> Place {
        Place { file: Rc::clone(&self.file), part: Part::Line(number) }
    }
}

impl<'f> Sources<'f> {
    /// No file is read yet.
    #[must_use]
    pub fn new(files: &'f dyn Files) -> Self {
        Self { files, open: Vec::new(), all: Vec::new(), files_read: 0, bytes: 0, directives: 0 }
    }

    /// Reads a file that the directive at `from` includes. [`Sources::close`] ends it.
    ///
    /// # Errors
    /// The file cannot be read, includes itself, or is one too many.
    pub fn open(
        &mut self,
        path: &Path,
        from: Option<&Place>,
        depth: usize,
    ) -> Result<Source, Unreadable> {
        let name = path.display();
        let unreadable = |says: String| Unreadable { place: from.cloned(), says };
        if self.open.iter().any(|open| open == path) {
            return Err(unreadable(format!("{name} includes itself")));
        }
        self.files_read += 1;
        if depth > MAX_DEPTH || self.files_read > MAX_FILES {
            return Err(unreadable(format!("{name}: these are too many includes")));
        }
        let text = self.files.read(path).map_err(|error| unreadable(format!("{name}: {error}")))?;
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return Err(unreadable(format!(
                "{name}: with this file, the configuration has more than {MAX_BYTES} bytes"
            )));
        }
        self.open.push(path.to_owned());
        if !self.all.iter().any(|known| known == path) {
            self.all.push(path.to_owned());
        }
        let text = text.trim_start_matches('\u{feff}').to_owned();
        Ok(Source { text, file: name.to_string().into() })
    }

    /// Ends the file that was opened last.
    pub fn close(&mut self) {
        self.open.pop();
    }

    /// All files that were read, each once.
    #[must_use]
    pub fn all(&self) -> &[PathBuf] {
        &self.all
    }

    /// The file that is being read.
    #[must_use]
    pub fn current(&self) -> Option<&Path> {
        self.open.last().map(PathBuf::as_path)
    }

    /// The files that a pattern names; the path itself if it is no pattern.
    #[must_use]
    pub fn named(&self, pattern: &Path) -> Vec<PathBuf> {
        match pattern.to_string_lossy().contains(['*', '?', '[']) {
            true => self.files.matching(pattern),
            false => vec![pattern.to_owned()],
        }
    }

    /// Counts a directive.
    ///
    /// # Errors
    /// These are too many directives.
    pub fn count(&mut self, place: &Place) -> Result<(), Unreadable> {
        self.directives += 1;
        if self.directives > MAX_DIRECTIVES {
            let says = format!("the configuration has more than {MAX_DIRECTIVES} directives");
            return Err(Unreadable { place: Some(place.clone()), says });
        }
        Ok(())
    }
}
