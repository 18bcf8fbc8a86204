//! What happens when the machine, or the server's control group, has no memory left.

use std::fs;

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

/// How many processes the kernel has ended since the machine started because there was no memory left, also in a control group; `None`:
/// it does not say.
#[must_use]
pub fn ended_out_of_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/vmstat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}
