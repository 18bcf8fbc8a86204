//! What happens when the machine, or the server's control group, has no memory left.

use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use crate::group::PoolGroup;

/// How much sooner the kernel ends a worker than a process of its size, in thousandths of the memory (`oom_score_adj` in proc(5)).
const SOONER: i32 = 200;
/// The kernel's largest value.
const MOST: i32 = 1000;

/// Has the kernel end this process, and what it starts, sooner than others if there is no memory left: a worker costs one request, the
/// front would cost all. A change of user takes the right to do so.
pub fn prefer_when_out_of_memory() {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now = fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    if let Some(now) = now {
        // Without /proc the kernel chooses by size alone.
        let _ = fs::write(FILE, now.saturating_add(SOONER).min(MOST).to_string());
    }
}

/// How long after the kernel has counted that it ends a process its parent may learn of the end.
const NOTICED_WITHIN: Duration = Duration::from_secs(5);

/// Tells the master of a pool which of its processes the kernel has ended because there was no memory left.
#[derive(Debug)]
pub struct MemoryWatch {
    group: Option<PoolGroup>,
    /// Without a group whose memory is counted: how many processes of the machine had been ended at the last look.
    machine: Option<u64>,
    /// Ends in the group that no process has explained yet, why they happened, and until when they count.
    pending: Option<(u64, OutOfMemory, Instant)>,
}

/// Where there was no memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutOfMemory {
    /// In the control group of the pool: its processes have reached their limit.
    InPool,
    /// On the machine, or in a control group that the server did not make.
    OnMachine,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InPool => "the processes of the pool have used up their total_memory",
            Self::OnMachine => {
                "the kernel had no memory left (journalctl -k names the process that it ended)"
            }
        })
    }
}

impl MemoryWatch {
    /// Watches from now on: the group that this process has entered, if it has.
    #[must_use]
    pub fn new(group: Option<PoolGroup>) -> Self {
        let group = group.filter(PoolGroup::counts_memory);
        Self { group, machine: ended_out_of_memory(), pending: None }
    }

    /// A process of the pool was ended by SIGKILL just now: whether that was for want of memory, as far as the kernel has ended a process
    /// for that since the last call.
    pub fn why_killed(&mut self) -> Option<OutOfMemory> {
        let Some(group) = &mut self.group else {
            let before = std::mem::replace(&mut self.machine, ended_out_of_memory());
            return (self.machine? > before?).then_some(OutOfMemory::OnMachine);
        };
        let (news, now) = (group.news(), Instant::now());
        let known = self.pending.take().filter(|(_, _, until)| *until > now);
        let (mut ended, mut why) =
            known.map_or((0, OutOfMemory::OnMachine), |(n, why, _)| (n, why));
        if news.limit_reached > 0 {
            why = OutOfMemory::InPool;
        }
        // Several may end at the same time, and each asks for itself.
        ended += news.ended;
        let left = ended.checked_sub(1)?;
        self.pending = (left > 0).then_some((left, why, now + NOTICED_WITHIN));
        Some(why)
    }
}

/// How many processes the kernel has ended since the machine started because there was no memory left, also in a control group; `None`:
/// it does not say.
fn ended_out_of_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_that_was_ended_is_explained_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let events = |oom: u64, ended: u64| {
            let text = format!("oom {oom}\noom_kill {ended}\n");
            fs::write(folder.path().join("memory.events"), text).unwrap();
        };
        fs::write(folder.path().join("cgroup.procs"), "").unwrap();
        events(3, 3);
        let opened = fs::File::open(folder.path()).unwrap();
        let mut watch = MemoryWatch::new(Some(PoolGroup::enter(opened.into()).unwrap()));
        assert_eq!(watch.why_killed(), None);
        events(4, 5);
        assert_eq!(watch.why_killed(), Some(OutOfMemory::InPool));
        assert_eq!(watch.why_killed(), Some(OutOfMemory::InPool));
        assert_eq!(watch.why_killed(), None);
        events(4, 6);
        assert_eq!(watch.why_killed(), Some(OutOfMemory::OnMachine));
        assert_eq!(watch.why_killed(), None);
    }
}
