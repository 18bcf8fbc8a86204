//! Symbolic links that may lead to whatever belongs to their own owner (Apache's `SymLinksIfOwnerMatch`).
//!
//! The path is walked name by name, and each link's owner is compared with the owner of what the walk reaches through the link.
//! The walk holds what it has checked, so a link that is replaced meanwhile leads to nothing that was not checked. Magic links
//! of `/proc` are refused before the walk (`resolve.rs`).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::refusal::{Forbidden, Refusal, place};

/// Links on one path; the kernel's own limit (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// What is left to do.
enum Step {
    /// To go on to this name.
    Name(Vec<u8>),
    /// To check that what was reached belongs to this user, the owner of a link.
    Owner(u32),
}

/// Finds `path`, which is relative to `root`, without opening the file.
///
/// # Errors
/// There is nothing, or a link leads to what belongs to another user.
pub(super) fn find(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Refusal> {
    let mut here = open(root, b".")?;
    let mut steps: VecDeque<Step> = names(path).collect();
    let mut links = 0;
    while let Some(step) = steps.pop_front() {
        match step {
            Step::Owner(link) => check_owner(&here, link)?,
            Step::Name(name) => {
                let next = open(&here, &name)?;
                let stat = fstat(&next)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                    here = next;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&next, c"", Vec::new())?.into_bytes();
                if target.starts_with(b"/") {
                    here = openat(CWD, c"/", FLAGS, Mode::empty())?;
                }
                steps.push_front(Step::Owner(stat.st_uid));
                for step in names(&target).collect::<Vec<_>>().into_iter().rev() {
                    steps.push_front(step);
                }
            }
        }
    }
    Ok(here)
}

fn check_owner(here: &OwnedFd, link: u32) -> Result<(), Refusal> {
    let owner = fstat(here)?.st_uid;
    if owner == link {
        return Ok(());
    }
    Err(Refusal::Forbidden(Forbidden::OtherOwner(place(here)?)))
}

const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(folder, name, FLAGS, Mode::empty())
}

fn names(path: &[u8]) -> impl Iterator<Item = Step> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.map(|name| Step::Name(name.to_vec()))
}
