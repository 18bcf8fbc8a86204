//! The reasons why a path cannot be served.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::CWD;
use rustix::io::Errno;

/// The reason why a path cannot be served.
#[derive(Debug)]
pub enum Refusal {
    /// The path does not exist.
    NotFound,
    /// The path exists and must not be served.
    Forbidden(Forbidden),
    /// A system call failed, or the file changes faster than it can be read.
    Failed(io::Error),
}

/// The reason why a path must not be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forbidden {
    /// A system call refuses it.
    Denied(Errno),
    /// A symbolic link leads to this place outside the root.
    Outside(PathBuf),
    /// A symbolic link leads to this place, which belongs to another owner than the link.
    OtherOwner(PathBuf),
    /// It is neither a regular file nor a directory, or a directory in place of a file.
    NoFile,
    /// The root was removed, or another folder has taken its name.
    RootReplaced,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("it is not there"),
            Self::Forbidden(why) => why.fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for Forbidden {
    /// Writes the reason, and the key and the option that would allow the path, if there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(errno) => {
                write!(
                    f,
                    "{}: may the server's user read it (user, --user)?",
                    io::Error::from(*errno)
                )
            }
            Self::Outside(place) => {
                let (shown, folder) = (place.display(), place.parent().unwrap_or(place).display());
                write!(
                    f,
                    "it leads to {shown}; --follow-symlinks-into {folder}, or follow_symlinks_into of the site, would allow it"
                )
            }
            Self::OtherOwner(place) => {
                let (shown, folder) = (place.display(), place.parent().unwrap_or(place).display());
                write!(
                    f,
                    "a symbolic link leads to {shown}, which belongs to another user than the link; --follow-symlinks-into {folder}, or follow_symlinks_into of the site, would allow it"
                )
            }
            Self::NoFile => f.write_str("it is no regular file"),
            Self::RootReplaced => {
                f.write_str("the root is not the folder that it was at the start")
            }
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL => Self::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV => {
                Self::Forbidden(Forbidden::Denied(errno))
            }
            other => Self::Failed(other.into()),
        }
    }
}

/// The name of an open file in `/proc`.
pub(super) fn proc_path(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// The path of an open file, as the kernel reports it.
pub fn place(descriptor: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = rustix::fs::readlinkat(CWD, proc_path(descriptor), Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(link.into_bytes())))
}
