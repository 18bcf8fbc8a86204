//! What a configuration may ask of the machine that it is for.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sendoff_config::Account;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A socket, a device.
    Other,
}

/// The account that the server changes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The account; `None`: the server stays what it is.
    pub account: Option<Account>,
    /// What the operator should know about the choice.
    pub warning: Option<String>,
}

/// The machine. Tests have one of their own, so that messages are the same everywhere.
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

    /// What is at a path; symbolic links are followed.
    ///
    /// # Errors
    /// There is nothing, or it may not be looked at.
    fn kind(&self, path: &Path) -> io::Result<Kind>;

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

    /// Whether this process may append to the file at a path, or create it.
    ///
    /// # Errors
    /// It may not, or the folder of the file is missing.
    fn may_append(&self, path: &Path) -> io::Result<()>;

    /// Whether the file at a path can be run as a program.
    ///
    /// # Errors
    /// It is missing, is a folder, or no user may execute it.
    fn may_run(&self, path: &Path) -> io::Result<()>;

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

    /// Whether sockets can be bound to IPv6 addresses.
    fn has_ipv6(&self) -> bool;

    /// The folder for what the server keeps from one start to the next, unless the operator names one.
    fn state_folder(&self) -> PathBuf;

    /// The folder for what the server may lose: kept pages.
    fn cache_folder(&self) -> PathBuf;

    /// Processors.
    fn cores(&self) -> usize;

    /// Bytes of memory.
    fn memory(&self) -> u64;
}
