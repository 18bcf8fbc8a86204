//! Out of memory: on the machine, or in the server's control group.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::group::{Group, MemoryEvents, PoolGroup};

/// Handicap of a worker when the kernel chooses a process to kill, in thousandths of the memory
/// (`oom_score_adj` in proc(5)).
const SOONER: i32 = 200;
/// The kernel's largest value.
const MOST: i32 = 1000;

/// Has the kernel kill this process, and the processes that it starts, before others if there is no
/// memory left: a dead worker costs one request, a dead front all of them. After a change of user
/// the process may not do this any more.
pub fn prefer_when_out_of_memory() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(now) = now {
        // Without /proc the kernel chooses by size alone.
        let _ = fs::write(FILE, now.saturating_add(SOONER).min(MOST).to_string());
    }
}

/// Longest time between the kernel's count of a killed process and the parent's notice of its end.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// Tells a pool's master which of its processes the kernel has killed for want of memory.
///
/// The kernel does not tell a parent why a child got SIGKILL. It counts the processes that it
/// kills, in each control group or on the whole machine, so the watch only knows that the count has
/// risen while the child ran. Each counted kill explains one death, if the death is noticed within
/// [`NOTICED_WITHIN`] after the count was seen to rise.
#[derive(Debug)]
pub struct MemoryWatch {
    counter: Counter,
    seen: MemoryEvents,
    /// Counted kills up to this number no longer explain a death.
    explained: u64,
    /// The others explain deaths until this time.
    until: Instant,
    /// The limit of the group was reached at the last rise of the count.
    is_limit: bool,
}

/// The count of kills when a process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtStart(u64);

/// Source of the kernel's count.
#[derive(Debug)]
enum Counter {
    /// The control group that the server has made for the pool.
    Pool(Group),
    /// The control group that the process was started in.
    Own(Group),
    /// The whole machine; the file is `/proc/vmstat`.
    Machine(PathBuf),
}

impl Counter {
    fn read(&self) -> Option<MemoryEvents> {
        match self {
            Self::Pool(group) | Self::Own(group) => group.events(),
            Self::Machine(file) => Some(MemoryEvents::parse(&fs::read_to_string(file).ok()?)),
        }
    }
}

/// The place that had no memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfMemory {
    /// The pool's control group: its processes have reached their limit.
    InPool,
    /// The machine, or a control group above the process.
    OnMachine,
    /// The machine: the kernel has killed some process for want of memory, perhaps another one.
    Perhaps,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InPool => "the processes of the pool have used up their total_memory",
            Self::OnMachine => {
                "the kernel had no memory left (journalctl -k names the process that it ended)"
            }
            Self::Perhaps => {
                "perhaps the kernel had no memory left: it has ended a process of this machine for that, and journalctl -k names the process"
            }
        })
    }
}

impl MemoryWatch {
    /// Watches the pool's group, if its memory is counted; otherwise the group of this process;
    /// otherwise the machine.
    #[must_use]
    pub fn new(pool: Option<PoolGroup>) -> Self {
        let pool = pool.map(PoolGroup::into_group).filter(Group::counts_memory).map(Counter::Pool);
        let own = || Group::own().filter(Group::counts_memory).map(Counter::Own);
        let machine = || Counter::Machine(PathBuf::from("/proc/vmstat"));
        Self::of(pool.or_else(own).unwrap_or_else(machine))
    }

    fn of(counter: Counter) -> Self {
        let seen = counter.read().unwrap_or_default();
        Self { counter, seen, explained: seen.ended, until: Instant::now(), is_limit: false }
    }

    /// Must be called when a process starts.
    pub fn process_starts(&mut self) -> AtStart {
        self.look();
        AtStart(self.seen.ended)
    }

    /// Must be called when a process has ended. Kills counted by now explain only deaths that are
    /// noticed soon.
    pub fn process_ended(&mut self) {
        self.look();
    }

    /// Tells whether a process that has just ended by SIGKILL was killed for want of memory.
    /// `start`: the count when it started. `None` if the kernel has counted no unexplained kill
    /// since then.
    pub fn why_killed(&mut self, start: AtStart) -> Option<OutOfMemory> {
        self.look();
        let from = self.explained.max(start.0);
        if self.seen.ended <= from {
            return None;
        }
        // Several processes may die at the same time; each explains one count.
        self.explained = from + 1;
        Some(match self.counter {
            Counter::Machine(_) => OutOfMemory::Perhaps,
            Counter::Pool(_) if self.is_limit => OutOfMemory::InPool,
            Counter::Pool(_) | Counter::Own(_) => OutOfMemory::OnMachine,
        })
    }

    fn look(&mut self) {
        let now = Instant::now();
        if self.until <= now {
            self.explained = self.seen.ended;
            self.is_limit = false;
        }
        let Some(events) = self.counter.read() else { return };
        if events.ended > self.seen.ended {
            self.until = now + NOTICED_WITHIN;
            self.is_limit |= events.limit_reached > self.seen.limit_reached;
        }
        self.seen = events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct CountedGroup {
        folder: tempfile::TempDir,
    }

    impl CountedGroup {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn count(&self, oom: u64, ended: u64) {
            let text = format!("oom {oom}\noom_kill {ended}\n");
            fs::write(self.folder.path().join("memory.events"), text).unwrap();
        }

        fn group(&self) -> Group {
            Group::at(fs::File::open(self.folder.path()).unwrap().into())
        }

        fn machine(&self) -> Counter {
            Counter::Machine(self.folder.path().join("memory.events"))
        }
    }

    #[test]
    fn each_process_that_was_ended_is_explained_and_no_other() {
        let counted = CountedGroup::new();
        counted.count(3, 3);
        let mut watch = MemoryWatch::of(Counter::Pool(counted.group()));
        let start = watch.process_starts();
        assert_eq!(watch.why_killed(start), None);
        counted.count(4, 5);
        assert_eq!(watch.why_killed(start), Some(OutOfMemory::InPool));
        assert_eq!(watch.why_killed(start), Some(OutOfMemory::InPool));
        assert_eq!(watch.why_killed(start), None);
        watch.until = Instant::now();
        counted.count(4, 6);
        assert_eq!(watch.why_killed(start), Some(OutOfMemory::OnMachine));
        assert_eq!(watch.why_killed(start), None);
        // The pool has no limit.
        let mut watch = MemoryWatch::of(Counter::Own(counted.group()));
        let start = watch.process_starts();
        counted.count(5, 7);
        assert_eq!(watch.why_killed(start), Some(OutOfMemory::OnMachine));
    }

    #[test]
    fn an_end_that_was_counted_before_a_process_started_does_not_explain_its_death() {
        let counted = CountedGroup::new();
        counted.count(0, 1);
        let mut watch = MemoryWatch::of(counted.machine());
        let old = watch.process_starts();
        counted.count(0, 2);
        let young = watch.process_starts();
        assert_eq!(watch.why_killed(young), None);
        assert_eq!(watch.why_killed(old), Some(OutOfMemory::Perhaps));
        assert_eq!(watch.why_killed(old), None);
    }

    #[test]
    fn an_end_that_was_seen_at_an_earlier_death_explains_none_later() {
        let counted = CountedGroup::new();
        counted.count(0, 0);
        let mut watch = MemoryWatch::of(counted.machine());
        let start = watch.process_starts();
        counted.count(0, 3);
        watch.process_ended();
        assert_eq!(watch.why_killed(start), Some(OutOfMemory::Perhaps), "soon after");
        watch.until = Instant::now();
        assert_eq!(watch.why_killed(start), None);
    }
}
