//! A slot for one worker: it is empty, or a worker runs in it.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Pid, Rlimit, Signal, kill_process};
use sendoff_sandbox::AtStart;

use crate::log::log;
use crate::pool::{self, Ends};

/// A worker that ends within this time without a request cannot start: its replacement waits.
const SHORT_LIFE: Duration = Duration::from_secs(1);
/// Added to the event counter by a worker after its first request (`php_sendoff.h`).
const SERVED: u64 = 1 << 62;
/// Added to the event counter when the worker script asks for its first request.
const BOOTED: u64 = 1 << 61;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The arguments of a new worker.
#[derive(Debug)]
pub(crate) struct WorkerStart {
    pub(crate) ends: Ends,
    /// An event counter, to which the worker adds the time of its first request.
    pub(crate) busy: OwnedFd,
    /// The socket on which the master sends files for backtraces, if the pool has a slow log.
    pub(crate) slow: Option<OwnedFd>,
    /// The socket on which the worker asks the front for the state of the pool.
    pub(crate) status: OwnedFd,
    /// The pipe whose lines the master logs: the worker's standard output and standard error.
    pub(crate) output: OwnedFd,
    pub(crate) master: Pid,
    /// The limit of open files that the master had at its start.
    pub(crate) open_files: Rlimit,
}

/// Reads an event counter that the worker also has, without blocking. A script may have cleared
/// `O_NONBLOCK`, and the master must not wait for a worker.
fn try_read(counter: BorrowedFd<'_>, number: &mut [u8]) -> rustix::io::Result<usize> {
    // An event counter has no position.
    const ANYWHERE: u64 = u64::MAX;
    match preadv2(counter, &mut [IoSliceMut::new(number)], ANYWHERE, ReadWriteFlags::NOWAIT) {
        // The error of Linux before 5.8.
        Err(Errno::OPNOTSUPP | Errno::SPIPE) => rustix::io::read(counter, number),
        read => read,
    }
}

/// A worker process that has not been reaped.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) pid: Pid,
    since: Instant,
    busy: OwnedFd,
    /// The other end of [`WorkerStart::slow`].
    slow: Option<OwnedFd>,
    /// Time of its first request, in nanoseconds of `CLOCK_MONOTONIC`, as of the last read of the
    /// counter.
    first_request: Option<u64>,
    /// True if it has finished a request, as of the last read of the counter.
    has_served: bool,
    /// The front's ends of its sockets while its worker script is booting; the front gets them
    /// afterwards.
    boots: Option<Ends>,
    /// Deadline; a worker that still runs then is killed.
    kill_at: Option<Instant>,
    /// True if it was killed at the deadline.
    was_late: bool,
    counted: AtStart,
}

impl Worker {
    pub(crate) fn new(
        pid: Pid,
        since: Instant,
        counted: AtStart,
        busy: OwnedFd,
        slow: Option<OwnedFd>,
    ) -> Self {
        let (first_request, has_served, boots) = (None, false, None);
        let (kill_at, was_late) = (None, false);
        Self {
            pid,
            since,
            busy,
            slow,
            first_request,
            has_served,
            boots,
            kill_at,
            was_late,
            counted,
        }
    }

    /// A worker whose script boots first. The front learns of it after that.
    pub(crate) fn booting(mut self, front: Ends) -> Self {
        self.boots = Some(front);
        self
    }

    /// True until its script asks for a request, as of the last read of the counter.
    pub(crate) fn boots(&self) -> bool {
        self.boots.is_some()
    }

    /// A descriptor that becomes readable when its script has booted; `None` if there is nothing to
    /// wait for.
    pub(crate) fn boot_signal(&self) -> Option<BorrowedFd<'_>> {
        self.boots.as_ref().map(|_| self.busy.as_fd())
    }

    /// Takes the front's ends of its sockets, once its script has booted. This cancels the deadline
    /// for booting.
    pub(crate) fn take_booted(&mut self) -> Option<Ends> {
        self.boots.as_ref()?;
        let number = self.read_counter().filter(|number| number & BOOTED != 0)?;
        self.note(number);
        self.kill_at = None;
        self.boots.take()
    }

    /// Closes the front's ends of its sockets, if it is still booting.
    pub(crate) fn forget_front(&mut self) {
        self.boots.take().into_iter().for_each(Ends::close);
    }

    /// Reads and resets the event counter; `None` if nothing was added.
    fn read_counter(&self) -> Option<u64> {
        let mut number = [0; 8];
        let is_read = try_read(self.busy.as_fd(), &mut number) == Ok(number.len());
        is_read.then(|| u64::from_ne_bytes(number))
    }

    fn note(&mut self, number: u64) {
        self.has_served |= number & SERVED != 0;
        let time = number & !(SERVED | BOOTED);
        self.first_request = Some(time).filter(|time| *time > 0).or(self.first_request);
    }

    /// Time of its first request, in nanoseconds of `CLOCK_MONOTONIC`; `None` if there was none.
    pub(crate) fn first_request(&mut self) -> Option<u64> {
        // A booting worker has no request, and its counter is left to `take_booted`.
        if !self.boots()
            && let Some(number) = self.read_counter()
        {
            self.note(number);
        }
        self.first_request
    }

    /// Reads the counter. True if it has finished a request.
    pub(crate) fn update_served(&mut self) -> bool {
        self.first_request();
        self.has_served
    }

    /// For [`MemoryWatch::why_killed`](sendoff_sandbox::MemoryWatch::why_killed); `None`: the
    /// master has killed it.
    pub(crate) fn counted_at_start(&self) -> Option<AtStart> {
        (!self.was_late).then_some(self.counted)
    }

    /// Makes it append the backtrace of its script to a file.
    ///
    /// # Errors
    /// It has ended, or it has not written the previous backtrace yet.
    pub(crate) fn trace(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.slow.as_ref().map_or(Ok(()), |slow| pool::send_file(slow.as_fd(), file))
    }

    pub(crate) fn kill_at(&self) -> Option<Instant> {
        self.kill_at
    }

    /// Sets the deadline for it to end by itself. An earlier deadline stays.
    pub(crate) fn set_deadline(&mut self, kill_at: Instant) {
        self.kill_at = Some(self.kill_at.map_or(kill_at, |before| before.min(kill_at)));
    }

    /// Kills it if its deadline has passed.
    pub(crate) fn kill_if_late(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill();
            self.kill_at = None;
            self.was_late = true;
        }
    }

    /// True if its end, on this signal if any, means that its script does not boot. A kill from
    /// outside means nothing, such as one by the kernel for lack of memory.
    pub(crate) fn has_failed_to_boot(&self, signal: Option<Signal>) -> bool {
        self.boots() && (self.was_late || signal != Some(Signal::KILL))
    }

    pub(crate) fn kill(&self) {
        log(format_args!("worker {} does not end: killed", self.pid.as_raw_nonzero()));
        self.signal(Signal::KILL);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may just have ended.
        let _ = kill_process(self.pid, signal);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.forget_front();
    }
}

/// A slot for one worker.
#[derive(Debug)]
pub(crate) struct Slot {
    state: State,
    /// Pause before the next replacement if this worker cannot start.
    delay: Duration,
}

#[derive(Debug)]
enum State {
    Empty { fork_at: Instant },
    Running(Worker),
}

impl Slot {
    /// A slot whose worker may start now.
    pub(crate) fn new() -> Self {
        Self { state: State::Empty { fork_at: Instant::now() }, delay: FIRST_DELAY }
    }

    /// Time of the next start; `None` while a worker runs.
    pub(crate) fn fork_at(&self) -> Option<Instant> {
        match self.state {
            State::Empty { fork_at } => Some(fork_at),
            State::Running(_) => None,
        }
    }

    pub(crate) fn worker(&mut self) -> Option<&mut Worker> {
        match &mut self.state {
            State::Empty { .. } => None,
            State::Running(worker) => Some(worker),
        }
    }

    /// See [`Worker::boot_signal`].
    pub(crate) fn boot_signal(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Empty { .. } => None,
            State::Running(worker) => worker.boot_signal(),
        }
    }

    pub(crate) fn run(&mut self, worker: Worker) {
        self.state = State::Running(worker);
    }

    /// Takes the worker out if `condition` is true for it. Its replacement may start at once.
    pub(crate) fn take_if(
        &mut self,
        condition: impl FnOnce(&mut Worker) -> bool,
    ) -> Option<Worker> {
        if !condition(self.worker()?) {
            return None;
        }
        match std::mem::replace(self, Self::new()).state {
            State::Running(worker) => Some(worker),
            State::Empty { .. } => None,
        }
    }

    /// Kills a worker that is booting. The next worker starts at once, even if the slot was in a
    /// pause.
    pub(crate) fn boot_anew(&mut self) {
        self.delay = FIRST_DELAY;
        match &mut self.state {
            State::Empty { .. } => *self = Self::new(),
            State::Running(worker) if worker.boots() => {
                // Its end must not count as a failure.
                worker.forget_front();
                worker.signal(Signal::KILL);
            }
            State::Running(_) => {}
        }
    }

    /// Handles the end of process `pid`. If it was the worker of this slot, the next one starts at
    /// once, unless the worker could not start, or crashed in its first request while
    /// `none_has_served` (no worker has finished a request): then the next one starts after a
    /// pause, which is returned.
    pub(crate) fn reaped(
        &mut self,
        pid: Pid,
        has_crashed: bool,
        none_has_served: bool,
    ) -> Option<Duration> {
        let worker = self.worker().filter(|worker| worker.pid == pid)?;
        let has_worked = !worker.boots()
            && (worker.first_request().is_some() || worker.since.elapsed() >= SHORT_LIFE);
        if has_worked && !(has_crashed && none_has_served) {
            *self = Self::new();
            return None;
        }
        let delay = self.delay;
        self.back_off();
        Some(delay)
    }

    /// Delays the next worker by a pause, which doubles each time.
    pub(crate) fn back_off(&mut self) {
        self.state = State::Empty { fork_at: Instant::now() + self.delay };
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    #[test]
    fn a_counter_without_o_nonblock_is_not_waited_for() {
        let counter = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut number = [0; 8];
        assert_eq!(try_read(counter.as_fd(), &mut number), Err(Errno::AGAIN));
        rustix::io::write(&counter, &SERVED.to_ne_bytes()).unwrap();
        assert_eq!(try_read(counter.as_fd(), &mut number), Ok(8));
        assert_eq!(u64::from_ne_bytes(number), SERVED);
    }
}
