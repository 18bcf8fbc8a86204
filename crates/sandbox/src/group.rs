//! The control group of a pool (cgroups(7), version 2), as the pool's master sees it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};

/// The file with the group's memory events.
const EVENTS: &str = "memory.events";

/// Largest size of the file, in bytes: each of its few lines is a name and a number.
const MAX_EVENTS: u64 = 4096;

/// Counters of the kernel in [`EVENTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// Times that the group's limit forced the kernel to kill a process (`oom`).
    pub limit_reached: u64,
    /// Processes of the group that were killed for want of memory, in the group or on the machine
    /// (`oom_kill`).
    pub ended: u64,
}

impl MemoryEvents {
    /// Parses the text of the file. Missing counters are 0: kernels differ in the events that they
    /// count.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let count = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let number = lines.find(|(known, _)| *known == name).map(|(_, number)| number.trim());
            number.and_then(|number| number.parse().ok()).unwrap_or_default()
        };
        Self { limit_reached: count("oom"), ended: count("oom_kill") }
    }
}

/// A control group whose memory events may be counted.
#[derive(Debug)]
pub(crate) struct Group {
    folder: OwnedFd,
}

impl Group {
    pub(crate) fn at(folder: OwnedFd) -> Self {
        Self { folder }
    }

    /// The group of this process.
    pub(crate) fn own() -> Option<Self> {
        Some(Self::at(File::open(own_group().ok()?).ok()?.into()))
    }

    /// True if the kernel counts the memory of the group.
    pub(crate) fn counts_memory(&self) -> bool {
        statat(&self.folder, EVENTS, AtFlags::empty()).is_ok()
    }

    /// Counters since the group was made; `None` if the kernel does not report them.
    pub(crate) fn events(&self) -> Option<MemoryEvents> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.folder, EVENTS, flags, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(file).take(MAX_EVENTS).read_to_string(&mut text).ok()?;
        Some(MemoryEvents::parse(&text))
    }
}

/// The control group of a pool.
#[derive(Debug)]
pub struct PoolGroup(Group);

impl PoolGroup {
    /// Moves this process into the group with this folder; processes that it starts are in the
    /// group, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(folder: OwnedFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let processes = openat(&folder, "cgroup.procs", flags, Mode::empty())?;
        File::from(processes).write_all(b"0")?;
        Ok(Self::of_child(folder))
    }

    /// The group with this folder, which a child of this process enters.
    #[must_use]
    pub fn of_child(folder: OwnedFd) -> Self {
        Self(Group::at(folder))
    }

    pub(crate) fn into_group(self) -> Group {
        self.0
    }
}

/// The folder of this process's control group (version 2).
///
/// # Errors
/// A sentence: there is no such group.
pub fn own_group() -> Result<PathBuf, String> {
    let unread = |file: &'static str| move |error| format!("{file} cannot be read: {error}");
    let mounts =
        fs::read_to_string("/proc/self/mountinfo").map_err(unread("/proc/self/mountinfo"))?;
    let own = fs::read_to_string("/proc/self/cgroup").map_err(unread("/proc/self/cgroup"))?;
    let folder = folder_of(&mounts, &own);
    folder.ok_or_else(|| {
        "the control groups of version 2 that this process belongs to are not mounted".to_owned()
    })
}

/// The folder of a process's control group of version 2. `mounts`: its mountinfo
/// (proc_pid_mountinfo(5)); `groups`: its `cgroup` file.
fn folder_of(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let inside = group.strip_prefix(unescaped(root)).ok()?;
        let is_below = !inside.components().any(|part| part.as_os_str() == "..");
        (system.starts_with("cgroup2 ") && is_below).then(|| match inside {
            // `join` with an empty path would add a slash.
            inside if inside.as_os_str().is_empty() => PathBuf::from(unescaped(at)),
            inside => Path::new(&unescaped(at)).join(inside),
        })
    })
}

/// A path of mountinfo, in which some characters are written as octal numbers.
fn unescaped(path: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_is_found_beneath_its_mount() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let hybrid = "41 31 0:37 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      42 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let part = "30 23 0:26 /docker/1 /sys/my\\040groups rw - cgroup2 cgroup2 rw\n";
        let is = |mounts, groups, folder: Option<&str>| {
            assert_eq!(folder_of(mounts, groups), folder.map(PathBuf::from), "{groups}");
        };
        is(
            v2,
            "0::/system.slice/sendoff.service\n",
            Some("/sys/fs/cgroup/system.slice/sendoff.service"),
        );
        is(v2, "0::/\n", Some("/sys/fs/cgroup"));
        is(v2, "9:memory:/x\n", None);
        is(v2, "0::/../outside\n", None);
        is(hybrid, "4:memory:/y\n0::/x\n", Some("/sys/fs/cgroup/unified/x"));
        is(part, "0::/docker/1/a\n", Some("/sys/my groups/a"));
        is(part, "0::/docker/12\n", None);
        is("", "0::/\n", None);
    }

    #[test]
    fn events_are_read_and_what_is_not_named_is_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        let opened = || File::open(folder.path()).unwrap();
        let group = PoolGroup::enter(opened().into()).unwrap().into_group();
        assert_eq!(fs::read(folder.path().join("cgroup.procs")).unwrap(), b"0");
        assert!(!group.counts_memory() && group.events().is_none());
        let text = "low 0\nhigh 0\nmax 812\noom 4\noom_kill 7\noom_group_kill 9\n";
        fs::write(folder.path().join(EVENTS), text).unwrap();
        assert!(group.counts_memory());
        assert_eq!(group.events(), Some(MemoryEvents { limit_reached: 4, ended: 7 }));
        assert_eq!(MemoryEvents::parse("oom_kill x\noom\n"), MemoryEvents::default());
    }
}
