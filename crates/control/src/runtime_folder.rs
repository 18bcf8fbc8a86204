//! The folder with the files by which commands of the same user reach a running server: the secret
//! of `sendoff explain` and the control socket. It is `$XDG_RUNTIME_DIR/sendoff`, or without that
//! variable `/run/sendoff` for root and `/tmp/sendoff-UID` for others.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Folders that may contain files of servers; a server puts its own into the first one. Only
/// folders of our own user count: any user may create one in /tmp.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    // Under sudo the variable may still name the other user's folder.
    let of_user = of_user.map(PathBuf::from).filter(|dir| !dir.exists() || is_ours(dir));
    let of_user = of_user.map(|dir| dir.join("sendoff"));
    let of_all = if user.is_root() {
        PathBuf::from("/run/sendoff")
    } else {
        PathBuf::from(format!("/tmp/sendoff-{user}"))
    };
    of_user.into_iter().chain([of_all]).collect()
}

/// Makes the folder, accessible only by our user.
///
/// # Errors
/// The system refuses it, or another user owns the folder.
pub fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if is_ours(folder) { Ok(()) } else { Err(io::Error::other("it belongs to another user")) }
}

/// True for a folder that our user owns, and false for a symbolic link.
#[must_use]
pub fn is_ours(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user)
}
