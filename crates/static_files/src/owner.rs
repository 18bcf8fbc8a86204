//! Symbolic links that may lead only to files and folders of their own owner (Apache's
//! `SymLinksIfOwnerMatch`).
//!
//! The owner of each link is compared with the owner of the file or folder that the link leads to.
//! Magic links of `/proc` are refused before the walk (`resolve.rs`).

use std::os::fd::OwnedFd;

use rustix::fs::fstat;

use super::refusal::{Forbidden, Refusal, place};
use super::walk::{Passed, Walk};

/// Finds `path`, which is relative to `root`, without opening the file.
///
/// # Errors
/// The path does not exist, or a link leads to another user's file or folder.
pub(super) fn find(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Refusal> {
    let mut walk = Walk::new(root, path)?;
    while let Some(passed) = walk.next()? {
        if let Passed::EndOfLink(owner) = passed
            && fstat(walk.here())?.st_uid != owner
        {
            return Err(Refusal::Forbidden(Forbidden::OtherOwner(place(walk.here())?)));
        }
    }
    Ok(walk.into_here())
}
