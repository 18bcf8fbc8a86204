//! The files of this repository, for tests of the text itself.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with generated files.
const LEFT_OUT: [&str; 4] = ["target", "corpus", "artifacts", "node_modules"];

/// A text file of the repository.
pub struct SourceFile {
    /// Relative to the root of the repository.
    pub path: String,
    /// The contents.
    pub text: String,
}

impl SourceFile {
    /// True if its name has one of these endings.
    pub fn has_ending(&self, endings: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, ending)| endings.contains(&ending))
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All text files, sorted by path. Hidden ones are left out.
///
/// # Panics
/// If a folder cannot be read.
pub fn files() -> Vec<SourceFile> {
    let (root, mut all) = (root(), Vec::new());
    collect(&root, &root, &mut all);
    all.sort_by(|one: &SourceFile, other| one.path.cmp(&other.path));
    all
}

fn collect(root: &Path, folder: &Path, all: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            if !LEFT_OUT.contains(&&*name) {
                collect(root, &path, all);
            }
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            all.push(SourceFile { path, text });
        }
    }
}
