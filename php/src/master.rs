//! The master: forks workers, replaces those that end, ends with the front or on SIGTERM.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use sendoff_sys::process::{Forked, SignalFd, fork};

use crate::pool::{self, Ends};
use crate::{Options, log};

/// How long workers may take to finish their requests when the master ends.
const DRAIN: Duration = Duration::from_secs(30);

/// A worker that ends sooner, and without a request, cannot start: its replacement waits.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// As what [`Master::run`] returned: it forks, so it may return in several processes.
#[derive(Debug)]
pub(crate) enum Role {
    /// The master, when all is over.
    Master,
    /// A new worker, with its sockets.
    Worker(WorkerStart),
}

/// What a worker starts with.
#[derive(Debug)]
pub(crate) struct WorkerStart {
    pub(crate) ends: Ends,
    /// To be raised at the first request.
    pub(crate) busy: OwnedFd,
    pub(crate) master: Pid,
}

/// A place for one worker.
#[derive(Debug)]
struct Slot {
    state: State,
    /// How long the next replacement waits if this worker cannot start.
    delay: Duration,
}

#[derive(Debug)]
enum State {
    Empty { fork_at: Instant },
    Running { pid: Pid, since: Instant, busy: OwnedFd },
}

/// Why waiting ended.
enum Wake {
    Reap,
    FrontGone,
    Terminate,
    Time,
}

#[derive(Debug)]
pub(crate) struct Master<'a> {
    options: &'a Options,
    pool: OwnedFd,
    signals: SignalFd,
    /// As many as there should be workers, or more while some are about to end.
    slots: Vec<Slot>,
    target: usize,
}

impl<'a> Master<'a> {
    pub(crate) fn new(options: &'a Options, pool: OwnedFd) -> io::Result<Self> {
        let signals = SignalFd::new(&[Signal::TERM, Signal::INT, Signal::CHILD])?;
        let mut master = Self { options, pool, signals, slots: Vec::new(), target: 0 };
        master.keep(options.workers.into());
        Ok(master)
    }

    /// There should be `target` workers from now on. Those that are too many are the front's to end: it knows which are idle.
    fn keep(&mut self, target: usize) {
        self.target = target;
        while self.slots.len() < target {
            let state = State::Empty { fork_at: Instant::now() };
            self.slots.push(Slot { state, delay: FIRST_DELAY });
        }
        self.drop_empty_slots();
    }

    fn drop_empty_slots(&mut self) {
        let mut surplus = self.slots.len().saturating_sub(self.target);
        self.slots.retain(|slot| {
            let goes = surplus > 0 && matches!(slot.state, State::Empty { .. });
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Keeps workers until SIGTERM, or until the front has closed the pool socket.
    pub(crate) fn run(mut self) -> io::Result<Role> {
        loop {
            if let Some(worker) = self.fill()? {
                self.signals.unblock();
                return Ok(Role::Worker(worker));
            }
            match self.wait_until(self.next_fork())? {
                Wake::Reap => self.reap(),
                Wake::FrontGone => return self.drain(false).map(|()| Role::Master),
                Wake::Terminate => return self.drain(true).map(|()| Role::Master),
                Wake::Time => {}
            }
        }
    }

    fn next_fork(&self) -> Option<Instant> {
        let fork_at = |slot: &Slot| match slot.state {
            State::Empty { fork_at } => Some(fork_at),
            State::Running { .. } => None,
        };
        self.slots.iter().filter_map(fork_at).min()
    }

    /// Forks a worker for each empty slot whose time has come. Returns its start in the worker.
    fn fill(&mut self) -> io::Result<Option<WorkerStart>> {
        for i in 0..self.slots.len() {
            let State::Empty { fork_at } = self.slots[i].state else { continue };
            if fork_at > Instant::now() {
                continue;
            }
            match self.start_worker() {
                Ok((Some(start), _)) => return Ok(Some(start)),
                Ok((None, running)) => self.slots[i].state = running,
                Err(e) => {
                    log(format_args!("cannot start a worker: {e}"));
                    self.slots[i].back_off();
                }
            }
        }
        Ok(None)
    }

    fn start_worker(&self) -> io::Result<(Option<WorkerStart>, State)> {
        let (front, ends) = pool::sockets(self.options.links)?;
        let busy = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (master, since) = (getpid(), Instant::now());
        match fork()? {
            Forked::Child => {
                let start = WorkerStart { ends, busy, master };
                Ok((Some(start), State::Empty { fork_at: since }))
            }
            Forked::Parent(pid) => {
                // Should this fail, the front's ends close and the worker ends by itself.
                pool::announce(self.pool.as_fd(), pid, &front)?;
                Ok((None, State::Running { pid, since, busy }))
            }
        }
    }

    /// Waits for a signal, for the front to go, or for the time given.
    fn wait_until(&mut self, deadline: Option<Instant>) -> io::Result<Wake> {
        let mut fds =
            [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.pool, PollFlags::IN)];
        poll_until(&mut fds, deadline)?;
        if fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(Wake::FrontGone);
        }
        // Before a worker that ended because there should be fewer is missed.
        while let Some(target) = pool::wanted_workers(self.pool.as_fd()) {
            self.keep(target);
        }
        Ok(self.take_signals())
    }

    fn take_signals(&mut self) -> Wake {
        let mut wake = Wake::Time;
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::TERM => return Wake::Terminate,
                Signal::CHILD => wake = Wake::Reap,
                // An interrupt from a terminal reaches the supervisor too, which says what to do.
                _ => {}
            }
        }
        wake
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(signal) = status.terminating_signal() {
                log(format_args!(
                    "worker {pid} was killed by signal {signal}",
                    pid = pid.as_raw_nonzero()
                ));
            } else if status.exit_status() != Some(0) {
                let status = status.exit_status().unwrap_or_default();
                log(format_args!(
                    "worker {pid} ended with status {status}",
                    pid = pid.as_raw_nonzero()
                ));
            }
            for slot in &mut self.slots {
                slot.reaped(pid);
            }
        }
        self.drop_empty_slots();
    }

    /// Waits for the workers to end; kills them when they take too long or at a second SIGTERM.
    fn drain(mut self, mut told: bool) -> io::Result<()> {
        let deadline = Instant::now() + DRAIN;
        self.reap();
        while self.running().next().is_some() {
            poll_until(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(deadline))?;
            match self.take_signals() {
                Wake::Reap => self.reap(),
                Wake::Time if Instant::now() < deadline => {}
                // The supervisor's death closes the pool and sends a signal: that is once.
                Wake::Terminate if !told => told = true,
                Wake::Time | Wake::Terminate | Wake::FrontGone => break,
            }
        }
        for pid in self.running() {
            log(format_args!("worker {} does not end: killed", pid.as_raw_nonzero()));
            // It may just have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
        while wait(WaitOptions::empty()).is_ok() {}
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = Pid> {
        self.slots.iter().filter_map(|slot| match slot.state {
            State::Running { pid, .. } => Some(pid),
            State::Empty { .. } => None,
        })
    }
}

/// Polls until something is ready or the time has come; either may be early.
fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

impl Slot {
    fn reaped(&mut self, ended: Pid) {
        let State::Running { pid, since, busy } = &self.state else { return };
        if *pid != ended {
            return;
        }
        let was_busy = rustix::io::read(busy, &mut [0; 8]).is_ok();
        if was_busy || since.elapsed() >= SHORT_LIFE {
            self.state = State::Empty { fork_at: Instant::now() };
            self.delay = FIRST_DELAY;
        } else {
            self.back_off();
        }
    }

    fn back_off(&mut self) {
        self.state = State::Empty { fork_at: Instant::now() + self.delay };
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }
}
