//! Symbolic links that may lead to whatever belongs to their own owner (Apache's `SymLinksIfOwnerMatch`).
//!
//! Each link's owner is compared with the owner of what the path reaches through the link. Magic links of `/proc` are refused before
//! the walk (`resolve.rs`).

use std::os::fd::OwnedFd;

use rustix::fs::fstat;

use super::refusal::{Forbidden, Refusal, place};
use super::walk::{Passed, Walk};

/// Finds `path`, which is relative to `root`, without opening the file.
///
/// # Errors
/// There is nothing, or a link leads to what belongs to another user.
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
