//! The control group of a pool (cgroups(7), version 2), as the pool's master sees it.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};

/// The file that says what happened when the group had no memory left.
const EVENTS: &str = "memory.events";

/// The largest such file: a name and a number in each of its few lines.
const MAX_EVENTS: u64 = 4096;

/// What the kernel counts in [`EVENTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryEvents {
    /// How often the group's limit left no way but to end a process (`oom`).
    pub limit_reached: u64,
    /// Processes of the group that were ended because there was no memory left, in the group or on the machine (`oom_kill`).
    pub ended: u64,
}

impl MemoryEvents {
    /// Reads the text of the file. What it does not name is 0: kernels differ in what they count.
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

/// The control group that this process has entered.
#[derive(Debug)]
pub struct PoolGroup {
    folder: OwnedFd,
    /// What had happened when it was looked at last.
    known: MemoryEvents,
}

impl PoolGroup {
    /// Moves this process into the group whose folder is given; what it starts from now on is in the group, too.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn enter(folder: OwnedFd) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let processes = openat(&folder, "cgroup.procs", flags, Mode::empty())?;
        std::fs::File::from(processes).write_all(b"0")?;
        let mut group = Self { folder, known: MemoryEvents::default() };
        // The group may be older than this process.
        group.known = group.events();
        Ok(group)
    }

    /// Whether the kernel counts the memory of the group.
    #[must_use]
    pub fn counts_memory(&self) -> bool {
        statat(&self.folder, EVENTS, AtFlags::empty()).is_ok()
    }

    /// What has happened since the last call.
    pub fn news(&mut self) -> MemoryEvents {
        let now = self.events();
        let before = std::mem::replace(&mut self.known, now);
        MemoryEvents {
            limit_reached: now.limit_reached.saturating_sub(before.limit_reached),
            ended: now.ended.saturating_sub(before.ended),
        }
    }

    /// What has happened in the group; nothing, if its memory is not counted.
    fn events(&self) -> MemoryEvents {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(file) = openat(&self.folder, EVENTS, flags, Mode::empty()) else {
            return MemoryEvents::default();
        };
        let mut text = String::new();
        match std::fs::File::from(file).take(MAX_EVENTS).read_to_string(&mut text) {
            Ok(_) => MemoryEvents::parse(&text),
            Err(_) => self.known,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn events_are_counted_from_one_look_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let events = |oom: u64, ended: u64| {
            let text =
                format!("low 0\nhigh 0\nmax 812\noom {oom}\noom_kill {ended}\noom_group_kill 9\n");
            fs::write(folder.path().join(EVENTS), text).unwrap();
        };
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        events(1, 2);
        let opened = fs::File::open(folder.path()).unwrap();
        let mut group = PoolGroup::enter(opened.into()).unwrap();
        assert_eq!(fs::read(folder.path().join("cgroup.procs")).unwrap(), b"0");
        assert_eq!(group.news(), MemoryEvents::default());
        events(4, 7);
        assert_eq!(group.news(), MemoryEvents { limit_reached: 3, ended: 5 });
        assert_eq!(group.news(), MemoryEvents::default());
        fs::remove_file(folder.path().join(EVENTS)).unwrap();
        assert_eq!(group.news(), MemoryEvents::default());
        assert_eq!(MemoryEvents::parse("oom_kill x\noom\n"), MemoryEvents::default());
    }
}
