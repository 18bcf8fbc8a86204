//! A slot for one process: it is empty, or a process runs in it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    waitid, waitpid,
};
use sendoff_sandbox::AtStart;

/// A process that ends within this time with a status other than 0 and without having answered a
/// request has failed: the next one starts after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// The same limit for a process that ends with status 0.
const SHORT_TURN: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A slot for one process.
#[derive(Debug)]
pub(super) struct Slot {
    state: State,
    /// Pause before the next start if the process dies early.
    pause: Duration,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Empty { start_at: Instant },
    Running { pid: Pid, since: Instant, has_served: bool, counted: AtStart },
}

/// The way a process has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessEnd {
    status: WaitStatus,
    /// For [`MemoryWatch::why_killed`](sendoff_sandbox::MemoryWatch::why_killed).
    pub(super) counted_at_start: AtStart,
}

impl ProcessEnd {
    pub(super) fn is_success(self) -> bool {
        self.status.exit_status() == Some(0)
    }

    pub(super) fn is_kill(self) -> bool {
        self.status.terminating_signal() == Some(Signal::KILL.as_raw())
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended ({})", ExitStatus::from_raw(self.status.as_raw()))
    }
}

impl Slot {
    /// A slot whose process may start now.
    pub(super) fn new() -> Self {
        Self { state: State::Empty { start_at: Instant::now() }, pause: FIRST_PAUSE }
    }

    /// Time of the next start; `None` while a process runs.
    pub(super) fn start_at(&self) -> Option<Instant> {
        match self.state {
            State::Empty { start_at } => Some(start_at),
            State::Running { .. } => None,
        }
    }

    pub(super) fn pid(&self) -> Option<Pid> {
        match self.state {
            State::Empty { .. } => None,
            State::Running { pid, .. } => Some(pid),
        }
    }

    pub(super) fn run(&mut self, pid: Pid, counted: AtStart) {
        self.state = State::Running { pid, since: Instant::now(), has_served: false, counted };
    }

    /// Collects the process if it has ended, and kills the rest of its process group, which would
    /// otherwise go on accepting connections. Returns the process, its end, and the pause until the
    /// next start.
    pub(super) fn reap(&mut self) -> Option<(Pid, ProcessEnd, Duration)> {
        let State::Running { pid, since, has_served, counted } = self.state else { return None };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // Its number stays reserved until it is reaped, so no other process group can have it.
        waitid(WaitId::Pid(pid), options).ok()??;
        let _none_left = kill_process_group(pid, Signal::KILL);
        let (_, status) = waitpid(Some(pid), WaitOptions::NOHANG).ok()??;
        let ended = ProcessEnd { status, counted_at_start: counted };
        let enough = if ended.is_success() { SHORT_TURN } else { SHORT_LIFE };
        let pause = if !has_served && since.elapsed() < enough {
            let pause = self.pause;
            self.back_off();
            pause
        } else {
            *self = Self::new();
            Duration::ZERO
        };
        Some((pid, ended, pause))
    }

    /// Records that the process has answered a request.
    pub(super) fn note_answer(&mut self) {
        if let State::Running { has_served, .. } = &mut self.state {
            *has_served = true;
        }
    }

    /// Cancels the pause before the next start, because a request has ended a working process.
    /// Returns false if there was no pause.
    pub(super) fn cancel_pause(&mut self) -> bool {
        let now = Instant::now();
        let is_waiting = self.start_at().is_some_and(|at| at > now);
        if is_waiting {
            self.state = State::Empty { start_at: now };
            self.pause = (self.pause / 2).max(FIRST_PAUSE);
        }
        is_waiting
    }

    /// Delays the next start by a pause, which doubles each time.
    pub(super) fn back_off(&mut self) {
        self.state = State::Empty { start_at: Instant::now() + self.pause };
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Asks the process to end. It is responsible for its own children.
    pub(super) fn terminate(&self) {
        if let Some(pid) = self.pid() {
            // The process may just have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills the process and its process group.
    pub(super) fn kill(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
