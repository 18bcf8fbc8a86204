//! CPU time of a tree of server processes, from /proc.
//!
//! The time of running threads comes from `schedstat` (nanoseconds), the time of ended processes
//! from their parent's time of waited-for children (clock ticks), so a worker that was replaced
//! during a run is still counted.

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::fs;
use std::ops::Sub;
use std::time::Duration;

/// The part a process plays: the front talks to clients, a worker runs PHP or another application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Front,
    Worker,
}

/// CPU time, user and system together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(crate) front: Duration,
    pub(crate) worker: Duration,
}

impl Sub for CpuTime {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            front: self.front.saturating_sub(earlier.front),
            worker: self.worker.saturating_sub(earlier.worker),
        }
    }
}

/// One process and its role.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) role: Role,
}

/// `roots` and everything below them. A process is a worker if it or one of its ancestors runs an
/// application.
pub(crate) fn tree(roots: &[u32]) -> Result<Vec<Process>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").context("/proc is not readable")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // A process may end meanwhile; it then has no children either.
        if let Some(stat) = Stat::read(pid) {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open: Vec<Process> =
        roots.iter().map(|&pid| Process { pid, role: Role::Front }).collect();
    while let Some(mut process) = open.pop() {
        if runs_an_application(process.pid) {
            process.role = Role::Worker;
        }
        for &pid in children.get(&process.pid).into_iter().flatten() {
            open.push(Process { pid, role: process.role });
        }
        found.push(process);
    }
    Ok(found)
}

/// CPU time used so far by the processes below `roots`.
pub(crate) fn sample(roots: &[u32]) -> Result<CpuTime> {
    let tick = Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second())?;
    let mut total = CpuTime::default();
    for process in tree(roots)? {
        let Some(stat) = Stat::read(process.pid) else {
            continue;
        };
        let own = threads(process.pid).unwrap_or(tick * stat.own_ticks);
        let sum = own + tick * stat.waited_ticks;
        match process.role {
            Role::Front => total.front += sum,
            Role::Worker => total.worker += sum,
        }
    }
    Ok(total)
}

/// CPU time of the calling thread.
pub(crate) fn this_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn runs_an_application(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe"))
        .ok()
        .and_then(|exe| Some(exe.file_name()?.to_str()?.to_owned()))
        .is_some_and(|name| {
            let applications = ["php-fpm", "sendoff-php", "sendoff-lua", "responder"];
            applications.iter().any(|program| name.starts_with(program))
        })
}

/// CPU time of a process's threads; `None` if the kernel keeps no schedstat.
fn threads(pid: u32) -> Option<Duration> {
    let mut nanos = 0_u64;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        // The time of a thread that ends here is lost; it is some microseconds.
        let Ok(text) = fs::read_to_string(task.ok()?.path().join("schedstat")) else {
            continue;
        };
        nanos += text.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
    }
    (nanos > 0).then(|| Duration::from_nanos(nanos))
}

/// The fields of /proc/PID/stat that are used here (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u32,
    waited_ticks: u32,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may itself contain spaces and parentheses; the fields after it
        // start with the third.
        let after_name = &text[text.rfind(')')? + 1..];
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
        Some(Self {
            parent: number(4)?,
            own_ticks: number(14)? + number(15)?,
            waited_ticks: number(16)? + number(17)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_an_unfriendly_name() {
        let text = "7 (a) b (c)) S 42 7 7 0 -1 4194560 1 2 3 4 10 20 300 4000 20 0 1 0 99 0 0";
        assert_eq!(Stat::parse(text), Some(Stat { parent: 42, own_ticks: 30, waited_ticks: 4300 }));
        assert_eq!(Stat::parse("7 (short) S 42"), None);
    }

    #[test]
    fn own_work_is_seen() {
        let me = [std::process::id()];
        let before = sample(&me).expect("own process");
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(60) {
            std::hint::black_box(started);
        }
        let used = sample(&me).expect("own process") - before;
        assert!(used.front > Duration::ZERO, "{used:?}");
        assert_eq!(used.worker, Duration::ZERO);
    }
}
