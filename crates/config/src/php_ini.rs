//! The version of PHP, and the files with its settings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{HostProgram, PoolConfig};

/// The PHP version that this build is for, such as `8.4`.
pub const PHP_VERSION: &str = env!("SENDOFF_PHP_VERSION");

/// The folder with `php.ini` and `conf.d`: php-fpm's, or libphp's if there is no php-fpm.
#[must_use]
pub fn folder() -> PathBuf {
    let [fpm, embed] = ["fpm", "embed"].map(|sapi| format!("/etc/php/{PHP_VERSION}/{sapi}"));
    PathBuf::from(if Path::new(&fpm).is_dir() || !Path::new(&embed).is_dir() { fpm } else { embed })
}

/// The folder with php-fpm's `php.ini` and `conf.d`, of a version, in Debian.
#[must_use]
pub fn fpm_folder(version: &str) -> PathBuf {
    format!("/etc/php/{version}/fpm").into()
}

/// The folders of all pools.
fn folders(pools: &[PoolConfig]) -> BTreeSet<PathBuf> {
    let version = |host: &HostProgram| host.api.version().map(fpm_folder);
    let of_pool = |pool: &PoolConfig| pool.host.as_ref().map_or_else(|| Some(folder()), version);
    pools.iter().filter_map(of_pool).collect()
}

/// The contents of the files at one moment, for a comparison with a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents(Vec<(PathBuf, Vec<u8>)>);

impl Contents {
    /// Reads the files that PHP reads at its start for these pools. An unreadable file counts as
    /// missing.
    #[must_use]
    pub fn of(pools: &[PoolConfig]) -> Self {
        Self(folders(pools).iter().flat_map(|folder| Self::read(folder).0).collect())
    }

    fn read(folder: &Path) -> Self {
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
