//! The files and folders that a user may write to. If the user may write to a file, or to a folder
//! on the way to it, then the user, or an attacker who controls a script that runs as the user,
//! decides the contents of the file.
//!
//! The answer is computed from permission bits and POSIX access control lists (acl(5)), as the
//! kernel would for a process of that user. The server itself runs as another user, so it cannot
//! use access(2).

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, Stat, fstat, getxattr};
use rustix::io::Errno;

use super::refusal::{Refusal, place, proc_path};
use super::walk::{Passed, Walk};

/// A user with all groups of its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritingUser {
    /// The user's id.
    pub uid: u32,
    /// The ids of its groups.
    pub groups: Vec<u32>,
}

/// The first file or folder on the way from `root` to `path`, both included, that the writer may
/// write to. Symbolic links are followed, and the folders on the way to their targets count as
/// well; for an absolute link they begin at the root directory of the file system. Folders outside
/// of `root` count only if the link does not lead back into it.
///
/// # Errors
/// The file or an access control list cannot be read.
pub(super) fn on_the_way(
    root: &OwnedFd,
    path: &[u8],
    writer: &WritingUser,
) -> Result<Option<PathBuf>, Refusal> {
    let identity = |descriptor: &OwnedFd| fstat(descriptor).map(|stat| (stat.st_dev, stat.st_ino));
    let root_identity = identity(root)?;
    let mut walk = Walk::new(root, path)?;
    if writer.may_write(walk.here())? {
        return Ok(Some(place(walk.here())?));
    }
    let mut is_inside = true;
    // The first writable place since a link has left the root.
    let mut outside: Option<PathBuf> = None;
    let mut was_root = true;
    while let Some(passed) = walk.next()? {
        match passed {
            Passed::RelativeLink | Passed::EndOfLink(_) => continue,
            Passed::AbsoluteLink => {
                if outside.is_some() {
                    return Ok(outside);
                }
                is_inside = false;
            }
            Passed::Parent => is_inside &= !was_root,
            Passed::Name => {}
        }
        was_root = identity(walk.here())? == root_identity;
        if was_root {
            (is_inside, outside) = (true, None);
        } else if outside.is_none() && writer.may_write(walk.here())? {
            let place = place(walk.here())?;
            if is_inside {
                return Ok(Some(place));
            }
            outside = Some(place);
        }
    }
    Ok(outside)
}

impl WritingUser {
    fn may_write(&self, file: &OwnedFd) -> Result<bool, Refusal> {
        let stat = fstat(file)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        // The group bit is the mask of an access control list. Without it, the list allows no more
        // than the other bits.
        let list = if mode.contains(Mode::WGRP) { access_list(file)? } else { None };
        Ok(self.may(&stat, mode, list.as_deref()))
    }

    /// The check of acl(5), "Access check algorithm".
    fn may(&self, stat: &Stat, mode: Mode, list: Option<&[u8]>) -> bool {
        if self.uid == 0 {
            return true;
        }
        if stat.st_uid == self.uid {
            return mode.contains(Mode::WUSR);
        }
        let is_member = self.groups.contains(&stat.st_gid);
        match list.map(Entries::parse) {
            None if is_member => mode.contains(Mode::WGRP),
            None => mode.contains(Mode::WOTH),
            // A list that cannot be parsed may allow anything.
            Some(None) => true,
            Some(Some(entries)) => self.is_allowed_by(&entries, is_member),
        }
    }

    fn is_allowed_by(&self, entries: &Entries, is_member: bool) -> bool {
        let has = |tag| entries.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.writes);
        let mask = has(MASK).unwrap_or(true);
        let mut named = entries.0.iter().filter(|entry| entry.tag == USER && entry.id == self.uid);
        if let Some(user) = named.next() {
            return user.writes && mask;
        }
        let mut groups = entries.0.iter().filter(|entry| match entry.tag {
            OWNING_GROUP => is_member,
            GROUP => self.groups.contains(&entry.id),
            _ => false,
        });
        match groups.next() {
            Some(first) => (first.writes || groups.any(|group| group.writes)) && mask,
            None => has(OTHER).unwrap_or(true),
        }
    }
}

/// Kinds of entries (`linux/posix_acl.h`).
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The permission bit of an entry that allows writing.
const WRITE: u16 = 2;

/// The version of the attribute's format (`linux/posix_acl_xattr.h`).
const VERSION: u32 = 2;
const NAME: &str = "system.posix_acl_access";

/// The size limit of an extended attribute in bytes (`linux/limits.h`).
const MAX_LIST: usize = 64 * 1024;

/// An access control list.
#[derive(Debug, PartialEq, Eq)]
struct Entries(Vec<AclEntry>);

#[derive(Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    writes: bool,
    /// The id of a named user or group.
    id: u32,
}

impl Entries {
    /// Parses the attribute. Numbers are little-endian: a version, and for each entry its tag, its
    /// permissions and an id.
    fn parse(attribute: &[u8]) -> Option<Self> {
        let (version, entries) = attribute.split_first_chunk()?;
        let (entries, rest) = entries.as_chunks::<8>();
        (u32::from_le_bytes(*version) == VERSION && rest.is_empty()).then(|| {
            let entry = |&[t0, t1, p0, p1, id @ ..]: &[u8; 8]| AclEntry {
                tag: u16::from_le_bytes([t0, t1]),
                writes: u16::from_le_bytes([p0, p1]) & WRITE != 0,
                id: u32::from_le_bytes(id),
            };
            Self(entries.iter().map(entry).collect())
        })
    }
}

/// The access control list of a file, if it has one.
fn access_list(file: &OwnedFd) -> Result<Option<Vec<u8>>, Refusal> {
    let mut list = vec![0; MAX_LIST];
    // Through `/proc`, because the file is not open for reading.
    match getxattr(proc_path(file), NAME, &mut list[..]) {
        Ok(length) => {
            list.truncate(length);
            Ok(Some(list))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = u32::MAX;

    /// A list in the kernel's format.
    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let bytes = entries.iter().flat_map(|(tag, permissions, id)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        });
        VERSION.to_le_bytes().into_iter().chain(bytes).collect()
    }

    fn may(mode: u32, list: Option<&[u8]>) -> bool {
        let writer = WritingUser { uid: 33, groups: vec![33, 50] };
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_gid) = (1000, 50);
        writer.may(&stat, Mode::from_raw_mode(mode), list)
    }

    #[test]
    fn permission_bits_count_for_the_class_of_the_user() {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_gid) = (1000, 50);
        for (uid, groups, mode, expected) in [
            (1000, vec![1000], 0o755, true),
            (1000, vec![50], 0o575, false),
            (33, vec![33, 50], 0o775, true),
            (33, vec![33, 50], 0o757, false),
            (33, vec![33], 0o775, false),
            (33, vec![33], 0o757, true),
            (0, vec![0], 0o555, true),
        ] {
            let writer = WritingUser { uid, groups };
            let may = writer.may(&stat, Mode::from_raw_mode(mode), None);
            assert_eq!(may, expected, "{writer:?} {mode:o}");
        }
    }

    #[test]
    fn lists_are_read_as_the_kernel_does() {
        let (owner, other) = ((1, 7, NONE), (OTHER, 5, NONE));
        let with = |entries: &[(u16, u16, u32)]| {
            may(0o775, Some(&list(&[&[owner], entries, &[other]].concat())))
        };
        let group = |permissions| (OWNING_GROUP, permissions, NONE);
        let mask = |permissions| (MASK, permissions, NONE);
        assert!(with(&[(USER, 7, 33), group(5), mask(7)]), "a named user");
        assert!(!with(&[(USER, 7, 33), group(5), mask(5)]), "and the mask");
        assert!(!with(&[(USER, 5, 33), group(7), mask(7)]), "who counts before its groups");
        assert!(!with(&[(USER, 7, 34), group(5), mask(7)]), "another user");
        assert!(with(&[group(7), mask(7)]), "the owning group");
        assert!(!with(&[group(7), mask(5)]));
        assert!(with(&[group(5), (GROUP, 7, 33), mask(7)]), "one of the groups suffices");
        assert!(!with(&[group(5), (GROUP, 7, 34), mask(7)]));
        let others = |groups: &[(u16, u16, u32)]| {
            let all = [&[owner], groups, &[mask(7), (OTHER, 7, NONE)]].concat();
            may(0o777, Some(&list(&all)))
        };
        assert!(!others(&[group(5)]), "a member is no other");
        assert!(may(0o777, Some(b"\x03\0\0\0")), "another version may allow anything");
        assert!(may(0o777, Some(b"\x02\0\0\0\x01")));
        let empty = list(&[]);
        assert!(may(0o777, Some(&empty)));
    }
}
