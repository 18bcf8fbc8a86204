//! The extensions that the PHP of the scenarios loads. Each start of PHP with all that are installed
//! costs twice the time of a start with those that scripts of the scenarios use.

use sendoff_config::PHP_VERSION;
use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io};

/// The environment variable with the folders whose files PHP reads after php.ini.
pub(crate) const SCANNED: &str = "PHP_INI_SCAN_DIR";

/// Test programs whose PHP has all installed extensions: they compare the surroundings of scripts,
/// run applications, or follow the documents.
const PROGRAMS_WITH_ALL: [&str; 4] = ["apps", "convert", "php", "project"];

/// The extensions that scripts of the other test programs use.
const USED: [&str; 9] =
    ["apcu", "ctype", "ffi", "fileinfo", "iconv", "mbstring", "opcache", "posix", "tokenizer"];

/// The folder for [`SCANNED`] in the environment of servers; `None`: PHP reads the distribution's.
pub(crate) fn folder() -> Option<&'static Path> {
    static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
    MADE.get_or_init(|| if has_all() { None } else { make() }).as_deref()
}

/// True if this program's PHP has all extensions, or the caller of the program says which.
fn has_all() -> bool {
    let us = env::current_exe().unwrap();
    let us = us.file_stem().unwrap().to_string_lossy().into_owned();
    // Cargo appends a hash.
    let name = us.rsplit_once('-').map_or(&*us, |(name, _)| name);
    env::var_os(SCANNED).is_some() || PROGRAMS_WITH_ALL.contains(&name)
}

/// Links to the distribution's files, in the folder of the test programs.
fn make() -> Option<PathBuf> {
    let folder = env::current_exe().unwrap().with_file_name(format!("php{PHP_VERSION}-extensions"));
    let files = fs::read_dir(format!("/etc/php/{PHP_VERSION}/fpm/conf.d")).ok()?;
    fs::create_dir_all(&folder).unwrap();
    for file in files.map(|file| file.unwrap()).filter(|file| is_used(&file.file_name())) {
        match symlink(file.path(), folder.join(file.file_name())) {
            // Other test programs make the same links.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.unwrap(),
        }
    }
    Some(folder)
}

/// True for names such as `20-posix.ini`.
fn is_used(file: &OsStr) -> bool {
    let name = file.to_str().and_then(|name| name.strip_suffix(".ini")?.split_once('-'));
    name.is_some_and(|(_, name)| USED.contains(&name))
}
