//! The place of one process: it is empty, or a process runs in it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process, kill_process_group,
    waitid, waitpid,
};
use sendoff_sandbox::AtStart;

/// A process that ends sooner, other than with status 0, and without an answer, could not do its work: the next one starts after a pause.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// The same for a process that ends with status 0.
const SHORT_TURN: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A place for one process.
#[derive(Debug)]
pub(super) struct Slot {
    state: State,
    /// How long the next start waits if the process lives shortly.
    pause: Duration,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Empty { start_at: Instant },
    Running { pid: Pid, since: Instant, has_served: bool, counted: AtStart },
}

/// How a process has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    status: WaitStatus,
    /// For [`MemoryWatch::why_killed`](sendoff_sandbox::MemoryWatch::why_killed).
    pub(super) counted_at_start: AtStart,
}

impl Ended {
    pub(super) fn is_success(self) -> bool {
        self.status.exit_status() == Some(0)
    }

    pub(super) fn is_kill(self) -> bool {
        self.status.terminating_signal() == Some(Signal::KILL.as_raw())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ended ({})", ExitStatus::from_raw(self.status.as_raw()))
    }
}

impl Slot {
    /// A place for a process that may start now.
    pub(super) fn new() -> Self {
        Self { state: State::Empty { start_at: Instant::now() }, pause: FIRST_PAUSE }
    }

    /// When the next process may start here; `None` while one runs.
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

    /// Looks whether the process has ended, and ends those that it has started in its process group: they would go on taking
    /// connections. Returns the process, how it ended, and the pause until the next start.
    pub(super) fn reap(&mut self) -> Option<(Pid, Ended, Duration)> {
        let State::Running { pid, since, has_served, counted } = self.state else { return None };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // Until it is reaped, no other process group can have its number.
        waitid(WaitId::Pid(pid), options).ok()??;
        let _none_left = kill_process_group(pid, Signal::KILL);
        let (_, status) = waitpid(Some(pid), WaitOptions::NOHANG).ok()??;
        let ended = Ended { status, counted_at_start: counted };
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

    /// The process has answered a request.
    pub(super) fn note_answer(&mut self) {
        if let State::Running { has_served, .. } = &mut self.state {
            *has_served = true;
        }
    }

    /// The next process need not wait: the last one could do its work, which a request has ended. Returns false if there is no pause.
    pub(super) fn excuse(&mut self) -> bool {
        let now = Instant::now();
        let is_waiting = self.start_at().is_some_and(|at| at > now);
        if is_waiting {
            self.state = State::Empty { start_at: now };
            self.pause = (self.pause / 2).max(FIRST_PAUSE);
        }
        is_waiting
    }

    /// The next process starts after a pause, which doubles each time.
    pub(super) fn back_off(&mut self) {
        self.state = State::Empty { start_at: Instant::now() + self.pause };
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Asks the process to end. Those that it has started are its to end.
    pub(super) fn terminate(&self) {
        if let Some(pid) = self.pid() {
            // It may just have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Ends the process and those that it has started.
    pub(super) fn kill(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
