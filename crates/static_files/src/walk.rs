//! A path walked name by name, with each symbolic link on the way seen.
//!
//! The walk holds what it has reached, so whatever is checked about `here` is true of what the next name is looked up in: a link or
//! folder that is replaced meanwhile leads to nothing that was not checked.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::refusal::Refusal;

/// Links on one path; the kernel's own limit (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Parts of a path and of the links on it that may be left to walk. The kernel's limit for one path is 4096 bytes.
const MAX_STEPS: usize = 8192;

const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A walk along a path.
#[derive(Debug)]
pub(super) struct Walk {
    here: OwnedFd,
    steps: VecDeque<Step>,
    links: usize,
}

/// What is left to do.
#[derive(Debug)]
enum Step {
    /// To go on to this name.
    Name(Vec<u8>),
    /// What was reached is what a link of this owner leads to.
    EndOfLink(u32),
}

/// What the walk has just passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// A folder, or the file at the end: now `here`.
    Name,
    /// The folder above the previous one: now `here`.
    Parent,
    /// A link whose target begins at the root directory: now `here`.
    AbsoluteLink,
    /// A link whose target begins in its own folder, which stays `here`.
    RelativeLink,
    /// `here` is what a link of this owner leads to.
    EndOfLink(u32),
}

impl Walk {
    /// A walk along `path`, which is relative to `root`.
    ///
    /// # Errors
    /// The root cannot be opened.
    pub(super) fn new(root: &OwnedFd, path: &[u8]) -> Result<Self, Refusal> {
        Ok(Self { here: open(root, b".")?, steps: names(path).collect(), links: 0 })
    }

    /// What has been reached.
    pub(super) fn here(&self) -> &OwnedFd {
        &self.here
    }

    /// What has been reached.
    pub(super) fn into_here(self) -> OwnedFd {
        self.here
    }

    /// Goes one step on; `None`: the end of the path is reached.
    ///
    /// # Errors
    /// There is nothing of this name, or there are too many links.
    pub(super) fn next(&mut self) -> Result<Option<Passed>, Refusal> {
        let name = match self.steps.pop_front() {
            None => return Ok(None),
            Some(Step::EndOfLink(owner)) => return Ok(Some(Passed::EndOfLink(owner))),
            Some(Step::Name(name)) => name,
        };
        let next = open(&self.here, &name)?;
        let stat = fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            self.here = next;
            return Ok(Some(if name == b".." { Passed::Parent } else { Passed::Name }));
        }
        self.links += 1;
        let target = readlinkat(&next, c"", Vec::new())?.into_bytes();
        let target_names: Vec<Step> = names(&target).collect();
        if self.links > MAX_LINKS || self.steps.len() + target_names.len() > MAX_STEPS {
            return Err(Errno::LOOP.into());
        }
        self.steps.push_front(Step::EndOfLink(stat.st_uid));
        for step in target_names.into_iter().rev() {
            self.steps.push_front(step);
        }
        if !target.starts_with(b"/") {
            return Ok(Some(Passed::RelativeLink));
        }
        self.here = openat(CWD, c"/", FLAGS, Mode::empty())?;
        Ok(Some(Passed::AbsoluteLink))
    }
}

fn open(folder: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(folder, name, FLAGS, Mode::empty())
}

fn names(path: &[u8]) -> impl Iterator<Item = Step> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.map(|name| Step::Name(name.to_vec()))
}
