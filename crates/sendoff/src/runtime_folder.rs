//! The folder where a running server leaves what commands of the same user look for: the secret of `sendoff explain` and the socket
//! of `sendoff status`. `$XDG_RUNTIME_DIR/sendoff`; without that `/run/sendoff` for root and `/tmp/sendoff-UID` for others.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where files of servers may lie; the first is where a server puts its own. Only folders of our user count: in /tmp any user may have
/// made one.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
    // Under sudo it may still be the other user's.
    let of_user = of_user.map(PathBuf::from).filter(|dir| !dir.exists() || is_ours(dir));
    let of_user = of_user.map(|dir| dir.join("sendoff"));
    let of_all = if user.is_root() {
        PathBuf::from("/run/sendoff")
    } else {
        PathBuf::from(format!("/tmp/sendoff-{user}"))
    };
    of_user.into_iter().chain([of_all]).collect()
}

/// Makes the folder, for our user alone.
///
/// # Errors
/// The system refuses, or another user has made it.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if is_ours(folder) { Ok(()) } else { Err(io::Error::other("it belongs to another user")) }
}

/// Whether it is a folder of our user's, and not a link to one.
pub(crate) fn is_ours(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    folder.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user)
}
