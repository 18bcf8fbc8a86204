//! A walk along a path, name by name, that reports each symbolic link.
//!
//! The walk holds a descriptor of the place that it has reached, and looks the next name up in
//! exactly that place. So a check of `here` stays valid even if a link or folder is replaced in the
//! meantime.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::refusal::Refusal;

/// The most links on one path, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The most names of a path, and of the links on it, that may be left to walk. The kernel's limit
/// for one path is 4096 bytes.
const MAX_STEPS: usize = 8192;

const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A walk along a path.
#[derive(Debug)]
pub(super) struct Walk {
    here: OwnedFd,
    steps: VecDeque<Step>,
    links: usize,
}

/// A step of the walk.
#[derive(Debug)]
enum Step {
    /// Goes on to this name.
    Name(Vec<u8>),
    /// Reports that the target of a link of this owner was reached.
    EndOfLink(u32),
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// A folder, or the file at the end of the path: now `here`.
    Name,
    /// The parent folder: now `here`.
    Parent,
    /// A link with an absolute target: `here` is now the root directory of the file system.
    AbsoluteLink,
    /// A link with a relative target: its folder stays `here`.
    RelativeLink,
    /// `here` is the target of a link of this owner.
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

    /// The place that the walk has reached.
    pub(super) fn here(&self) -> &OwnedFd {
        &self.here
    }

    /// The place that the walk has reached.
    pub(super) fn into_here(self) -> OwnedFd {
        self.here
    }

    /// Takes the next step; `None`: the end of the path is reached.
    ///
    /// # Errors
    /// The name does not exist, or there are too many links.
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
