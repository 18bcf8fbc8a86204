//! The questions that a configuration has to the machine that it is for.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sendoff_config::{Account, FileVersion, PhpApi, PhpBuild};

/// The kind of file at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// Anything else, such as a socket or a device.
    Other,
}

/// The account that the server changes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The account; `None`: the server keeps its current account.
    pub account: Option<Account>,
    /// A warning for the operator about the choice.
    pub warning: Option<String>,
}

/// The machine. Tests implement it themselves, so that messages are the same everywhere.
pub trait Machine {
    /// Reads a regular file as text.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The files whose paths match a pattern with `*` and `?`, in alphabetical order.
    ///
    /// # Errors
    /// The pattern is wrong: a sentence.
    fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String>;

    /// The kind of the file at a path, after symbolic links.
    ///
    /// # Errors
    /// There is nothing at the path, or this process may not look at it.
    fn kind(&self, path: &Path) -> io::Result<FileKind>;

    /// The path without symbolic links.
    ///
    /// # Errors
    /// There is nothing at it.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// The account to change to: of the user, or of the owner of `root`.
    ///
    /// # Errors
    /// A sentence: there is no such user, or only root could change to it.
    fn account(&self, user: Option<&str>, root: &Path) -> Result<Chosen, String>;

    /// The number of a user.
    fn user(&self, name: &str) -> Option<u32>;

    /// The number of a group.
    fn group(&self, name: &str) -> Option<u32>;

    /// Checks that this process may append to the file at a path, or create it.
    ///
    /// # Errors
    /// It may not, or the folder of the file is missing.
    fn may_append(&self, path: &Path) -> io::Result<()>;

    /// Checks that the file at a path can be run as a program.
    ///
    /// # Errors
    /// It is missing, is a folder, or no user may execute it.
    fn may_run(&self, path: &Path) -> io::Result<()>;

    /// The build of a PHP program; `None` if the file is no PHP program.
    ///
    /// # Errors
    /// It cannot be read.
    fn php_build(&self, path: &Path) -> io::Result<Option<PhpBuild>>;

    /// The version of a file.
    ///
    /// # Errors
    /// There is nothing at the path, or this process may not look at it.
    fn file_version(&self, path: &Path) -> io::Result<FileVersion>;

    /// Checks that a file is a database of countries in MaxMind's format.
    ///
    /// # Errors
    /// A sentence: it cannot be read, or is not such a database.
    fn country_database(&self, path: &Path) -> Result<(), String>;

    /// True if the module for stock PHP programs with this API is installed.
    fn has_php_module(&self, api: PhpApi) -> bool;

    /// True if PHP workers need no other program, because `sendoff-php` is installed.
    fn has_own_php(&self) -> bool;

    /// The number of a group that workers of the pool can be given.
    ///
    /// # Errors
    /// A sentence: there is no such group, or only root could change to it.
    fn worker_group(&self, name: &str) -> Result<u32, String>;

    /// The addresses of a host.
    ///
    /// # Errors
    /// It has none.
    fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;

    /// True if sockets can be bound to IPv6 addresses.
    fn has_ipv6(&self) -> bool;

    /// The folder for files that the server keeps across restarts, unless the operator names one.
    fn state_folder(&self) -> PathBuf;

    /// The folder for files that the server may lose: cached pages.
    fn cache_folder(&self) -> PathBuf;

    /// The number of processors.
    fn cores(&self) -> usize;

    /// The machine's memory, in bytes.
    fn memory(&self) -> u64;
}
