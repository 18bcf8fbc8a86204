//! The files with PHP's settings.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with `php.ini` and `conf.d`; the first that exists counts.
const FOLDERS: [&str; 2] = ["/etc/php/8.2/fpm", "/etc/php/8.2/embed"];

/// The folder with `php.ini` and `conf.d`.
#[must_use]
pub fn folder() -> PathBuf {
    let found = FOLDERS.iter().find(|folder| Path::new(folder).is_dir());
    PathBuf::from(found.unwrap_or(&FOLDERS[0]))
}

/// What the files say at one moment, to be compared with another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents(Vec<(PathBuf, Vec<u8>)>);

impl Contents {
    /// Reads the files of a folder that PHP reads at its start. An unreadable file counts as missing.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let scanned = fs::read_dir(folder.join("conf.d")).into_iter().flatten().flatten();
        let scanned = scanned.map(|entry| entry.path());
        let scanned = scanned.filter(|path| path.extension().is_some_and(|e| e == "ini"));
        let paths = [folder.join("php.ini")].into_iter().chain(scanned);
        let mut files: Vec<_> =
            paths.filter_map(|path| fs::read(&path).ok().map(|text| (path, text))).collect();
        files.sort_unstable();
        Self(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_added_and_removed_files_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (ini, scanned) = (folder.path().join("php.ini"), folder.path().join("conf.d"));
        fs::create_dir(&scanned).unwrap();
        fs::write(&ini, "memory_limit=1M").unwrap();
        let read = || Contents::read(folder.path());
        let first = read();
        assert_eq!(read(), first);
        fs::write(&ini, "memory_limit=2M").unwrap();
        let second = read();
        assert_ne!(second, first);
        fs::write(scanned.join("note.txt"), "not PHP's").unwrap();
        assert_eq!(read(), second);
        fs::write(scanned.join("a.ini"), "a=1").unwrap();
        assert_ne!(read(), second);
        fs::remove_file(scanned.join("a.ini")).unwrap();
        assert_eq!(read(), second);
    }
}
