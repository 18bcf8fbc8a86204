//! Places of settings.

use std::path::PathBuf;
use std::sync::Arc;

/// The place of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// No place: the value is the default.
    Default,
    /// In a file: its number in [`Sources`], and the bytes from `start` to `end`.
    File {
        /// The number of the file.
        file: u16,
        /// The first byte.
        start: u32,
        /// The byte after the last.
        end: u32,
    },
    /// By an option of the command line.
    Option(&'static str),
}

/// A value and its place. Equality ignores the place.
#[derive(Debug, Clone, Copy)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// The place at which the value was set.
    pub place: Place,
}

impl<T> At<T> {
    /// A value that an option of the command line sets.
    pub fn option(option: &'static str, value: T) -> Self {
        Self { value, place: Place::Option(option) }
    }

    /// A value that is the default.
    pub fn default(value: T) -> Self {
        Self { value, place: Place::Default }
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// The files that were read.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<Source>,
}

/// A file that was read.
#[derive(Debug)]
pub struct Source {
    /// The path of the file; for a preset, its name.
    pub path: PathBuf,
    /// The text of the file.
    pub text: Arc<str>,
    /// The offsets at which lines begin.
    lines: Vec<usize>,
}

impl Sources {
    /// Files beyond this number are refused: a pattern in `include` that names them all is a
    /// mistake.
    const MAX_FILES: usize = 10_000;

    /// Adds a file. Returns its number.
    pub fn add(&mut self, path: PathBuf, text: String) -> u16 {
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(after).collect();
        self.files.push(Source { path, text: text.into(), lines });
        u16::try_from(self.files.len() - 1).unwrap_or(u16::MAX)
    }

    /// The file with a number.
    #[must_use]
    pub fn get(&self, number: u16) -> Option<&Source> {
        self.files.get(usize::from(number))
    }

    /// True if no further file is read.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.files.len() >= Self::MAX_FILES
    }

    /// A place for people: `sendoff.toml:14`, with the path relative to the folder of the first
    /// file, or the option.
    #[must_use]
    pub fn show(&self, place: Place) -> String {
        match place {
            Place::Default => "the default".to_owned(),
            Place::Option(option) => option.to_owned(),
            Place::File { file, start, .. } => {
                let Some(source) = self.get(file) else { return String::new() };
                let folder = self.files.first().and_then(|first| first.path.parent());
                let path = folder.and_then(|folder| source.path.strip_prefix(folder).ok());
                let path = path.unwrap_or(&source.path).display();
                let line = source.lines.partition_point(|begin| *begin <= start as usize);
                format!("{path}:{line}")
            }
        }
    }
}
