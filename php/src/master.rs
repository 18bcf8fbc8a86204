//! The master: forks workers, replaces workers that end or are stuck, and ends with the front or on
//! SIGTERM.

use std::fs::OpenOptions;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::process::{Pid, Rlimit, Signal, WaitOptions, getpid, wait};
use sendoff_config::{Config, PoolConfig, SlowLog};
use sendoff_pool_messages::{MAX_MESSAGE, ToMaster};
use sendoff_sandbox::MemoryWatch;
use sendoff_sys::master::{SIGNALS, Supervisor, make_room_for};
use sendoff_sys::output::{OutputStream, Outputs, output_pipe};
use sendoff_sys::process::{Forked, SignalFd, fork};

use crate::engine::stuck_signal;
use crate::log::{WorkerLog, log};
use crate::pool;
use crate::purges::counters;
use crate::slot::{Slot, Worker, WorkerStart};
use crate::watch::Watch;

/// Maximum number of workers that the front may request. The front has limits of its own, but must
/// not be able to start a fork bomb.
const MOST_WORKERS: u32 = 1024;

/// Descriptors of the master beside the ones of its workers, with pipes of processes that
/// workers have left.
const DESCRIPTORS: u64 = 256;

/// Descriptors for each worker, apart from the sockets for the front's event loops, which the master
/// has until the worker's script has booted: its pipe, its event counter, the socket of the slow log,
/// and the guard.
const DESCRIPTORS_PER_WORKER: u64 = 4;

/// Signals that indicate a defect in the program.
const CRASHES: [Signal; 5] = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABORT];

/// Time without changes to an application's files before its workers boot: editors and package
/// managers write several files.
const SETTLING: Duration = Duration::from_millis(100);

/// Time for a stuck worker to log its backtrace and end. A stopped worker (SIGSTOP) does neither.
const GRACE: Duration = Duration::from_secs(1);

/// The process in which [`Master::run`] has returned: it forks, so it may return in several
/// processes.
#[derive(Debug)]
pub(crate) enum Role {
    /// The master, after all workers have ended.
    Master,
    /// A new worker, with its sockets.
    Worker(WorkerStart),
}

/// The reason why waiting ended. The end of a worker is no reason of its own: after each wait the
/// master reaps. One signal must not hide another that came with it.
enum Wake {
    FrontGone,
    Terminate,
    Other,
}

#[derive(Debug)]
pub(crate) struct Master<'a> {
    config: &'a Config,
    pool: &'a PoolConfig,
    socket: OwnedFd,
    signals: SignalFd,
    supervisor: Supervisor,
    /// The socket on which workers ask for the state of the pool: the front's end, kept for the
    /// next front, and the workers' end.
    status: (OwnedFd, OwnedFd),
    /// One slot per wanted worker, and more while surplus workers are ending.
    slots: Vec<Slot>,
    /// Workers of a previous front that still process its requests. They have no slot: other
    /// workers serve the new front.
    leaving: Vec<Worker>,
    /// Lines that workers print.
    outputs: Outputs<WorkerLog<'a>>,
    /// True after a worker has finished a request since the master started, so PHP works.
    has_served: bool,
    target: usize,
    /// Detects that the kernel has killed a worker for lack of memory.
    memory: MemoryWatch,
    /// Watches the files of the application that the workers boot; `None` if the pool does not ask
    /// for it.
    watch: Option<Watch>,
    /// Time at which the workers are replaced after a changed file; a further change postpones it.
    replace_at: Option<Instant>,
    /// The limit of open files at the start of this process, for its workers.
    open_files: Rlimit,
}

impl<'a> Master<'a> {
    /// A master; [`run`](Self::run) starts its first workers. `socket` leads to the front.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(
        config: &'a Config,
        pool: &'a PoolConfig,
        socket: OwnedFd,
        memory: MemoryWatch,
    ) -> io::Result<Self> {
        let signals = SignalFd::new(&SIGNALS)?;
        let (slots, leaving) = (Vec::new(), Vec::new());
        let status = pool::status_sockets()?;
        let watched = pool.worker.as_ref().map(|worker| &worker.watch);
        let watched = watched.filter(|folders| !folders.is_empty());
        let watch = watched.map(|folders| Watch::new(folders)).transpose()?;
        let (target, replace_at) = (0, None);
        let per_worker = DESCRIPTORS_PER_WORKER + u64::from(config.front.threads);
        let open_files = make_room_for(DESCRIPTORS + u64::from(MOST_WORKERS) * per_worker);
        let mut master = Self {
            config,
            pool,
            socket,
            signals,
            supervisor: Supervisor::of_this_process(),
            status,
            slots,
            has_served: false,
            leaving,
            outputs: Outputs::new(WorkerLog { pool: &pool.name }),
            target,
            memory,
            watch,
            replace_at,
            open_files,
        };
        master.announce_pool();
        // The master of a pool with zero idle workers is started because a request waits.
        master.keep(pool.first_workers().max(1));
        Ok(master)
    }

    /// Gives the front its end of the socket on which workers ask for the state of the pool, and the
    /// counters by which it purges fragments.
    fn announce_pool(&self) {
        // A front that has ended needs none; the next one announces itself.
        if let Err(error) =
            pool::announce_pool(self.socket.as_fd(), self.status.0.as_fd(), counters())
            && !pool::has_front_ended(&error)
        {
            log(format_args!(
                "fpm_get_status() will return false, and the front cannot purge fragments: {error}"
            ));
        }
    }

    /// Sets the number of workers. The front ends surplus workers: it knows which are idle.
    fn keep(&mut self, target: usize) {
        self.target = target;
        self.slots.resize_with(self.slots.len().max(target), Slot::new);
        self.drop_empty_slots();
    }

    fn drop_empty_slots(&mut self) {
        let mut surplus = self.slots.len().saturating_sub(self.target);
        self.slots.retain(|slot| {
            let goes = surplus > 0 && slot.fork_at().is_some();
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Keeps workers until the front has closed the pool socket, or until a SIGTERM that is not due
    /// to the supervisor's death.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(crate) fn run(mut self) -> io::Result<Role> {
        loop {
            self.take_messages();
            if self.is_idle() {
                return Ok(Role::Master);
            }
            if let Some(worker) = self.fill() {
                self.signals.unblock();
                return Ok(Role::Worker(worker));
            }
            let now = Instant::now();
            self.workers().for_each(|worker| worker.kill_if_late(now));
            if self.replace_at.take_if(|at| *at <= now).is_some() {
                self.replace_all();
            }
            let deadline = self.next_deadline(now);
            let wake = self.wait_until(deadline)?;
            self.reap();
            match wake {
                Wake::FrontGone => return self.drain(false).map(|()| Role::Master),
                // The front finishes its requests, which need workers, and then closes the pool
                // socket.
                Wake::Terminate if self.supervisor.notice_death() => {}
                Wake::Terminate => return self.drain(true).map(|()| Role::Master),
                Wake::Other => {}
            }
        }
    }

    /// True if the pool has no worker and needs none, and no process that a script has started can
    /// print. The supervisor then starts another master when the front wants workers again. Every
    /// message of the front has been read by now; a later one stays in the socket for the
    /// supervisor.
    fn is_idle(&mut self) -> bool {
        let is_empty = self.workers().next().is_none() && self.outputs.is_empty();
        // After the supervisor's death there would be no next master.
        self.target == 0 && is_empty && !self.supervisor.is_gone()
    }

    /// Every worker that has not been reaped.
    fn workers(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.slots.iter_mut().filter_map(Slot::worker).chain(&mut self.leaving)
    }

    /// The next time at which something is due that no event announces.
    fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let flush_at = self.outputs.flush(now);
        let fork_at = self.slots.iter().filter_map(Slot::fork_at).min();
        let replace_at = self.replace_at;
        let due = fork_at.into_iter().chain(replace_at).chain(flush_at);
        self.workers().filter_map(|worker| worker.kill_at()).chain(due).min()
    }

    /// Forks a worker for each empty slot whose start is due. In a new worker, returns its
    /// arguments.
    fn fill(&mut self) -> Option<WorkerStart> {
        for i in 0..self.slots.len() {
            if self.slots[i].fork_at().is_none_or(|at| at > Instant::now()) {
                continue;
            }
            match self.start_worker(i) {
                Ok(None) => {}
                Ok(Some(start)) => return Some(start),
                Err(error) => {
                    // A front that has ended needs no worker; the socket reports its end next.
                    if !pool::has_front_ended(&error) {
                        log(format_args!("cannot start a worker: {error}"));
                    }
                    self.slots[i].back_off();
                }
            }
        }
        None
    }

    fn start_worker(&mut self, slot: usize) -> io::Result<Option<WorkerStart>> {
        let (front, ends) = pool::sockets(self.config.front.threads)?;
        let busy = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let slow = self.pool.slow_log.as_ref().map(|_| pool::file_sockets()).transpose()?;
        let (ours, slow) = slow.unzip();
        let status = self.status.1.try_clone()?;
        let (printed, output) = output_pipe()?;
        let (master, since, open_files) = (getpid(), Instant::now(), self.open_files);
        let counted = self.memory.process_starts();
        match fork()? {
            Forked::Child => {
                Ok(Some(WorkerStart { ends, busy, slow, status, output, master, open_files }))
            }
            Forked::Parent(pid) => {
                self.outputs.add(pid, OutputStream::Error, printed);
                let mut worker = Worker::new(pid, since, counted, busy, ours);
                if self.pool.worker.is_some() {
                    worker = worker.booting(front);
                    let limit = self.pool.request_timeout;
                    limit.into_iter().for_each(|limit| worker.set_deadline(since + limit));
                } else {
                    // If this fails, the front's ends close and the worker ends by itself.
                    pool::announce(self.socket.as_fd(), pid, front)?;
                }
                self.slots[slot].run(worker);
                Ok(None)
            }
        }
    }

    /// Sends the workers whose script has booted to the front.
    fn announce_booted(&mut self) {
        for worker in self.slots.iter_mut().filter_map(Slot::worker) {
            let Some(front) = worker.take_booted() else { continue };
            // If this fails, the front's ends close and the worker ends by itself.
            if let Err(error) = pool::announce(self.socket.as_fd(), worker.pid, front)
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                log(format_args!("cannot give a worker to the front: {error}"));
            }
        }
    }

    /// Checks whether files of the application have changed.
    fn look_for_changes(&mut self) {
        let Some(path) = self.watch.as_mut().and_then(Watch::changed) else { return };
        if self.replace_at.is_none() {
            log(format_args!("{} has changed: the workers boot again", path.display()));
        }
        self.replace_at = Some(Instant::now() + SETTLING);
    }

    /// Replaces all workers: busy workers finish their requests; workers that are booting or cannot
    /// boot are restarted.
    fn replace_all(&mut self) {
        for slot in &mut self.slots {
            if let Some(worker) = slot.take_if(|worker| !worker.boots()) {
                worker.signal(Signal::TERM);
                self.leaving.push(worker);
            }
            slot.boot_anew();
        }
    }

    /// Waits for a signal, a message, a line of output, the end of the front, or the deadline.
    fn wait_until(&mut self, deadline: Option<Instant>) -> io::Result<Wake> {
        let mut fds = vec![self.signals.as_fd(), self.socket.as_fd()];
        fds.extend(self.slots.iter().filter_map(Slot::boot_signal));
        fds.extend(self.watch.as_ref().map(Watch::events));
        let events = self.outputs.wait(&fds, deadline)?;
        let is_gone = events[1].intersects(PollFlags::HUP | PollFlags::ERR);
        self.announce_booted();
        self.look_for_changes();
        // This comes first: a worker that ended because fewer are wanted must not count as lost,
        // and the front's last message may be that a worker is stuck.
        self.take_messages();
        Ok(match is_gone {
            true => Wake::FrontGone,
            false if self.take_terminate() => Wake::Terminate,
            false => Wake::Other,
        })
    }

    /// Carries out the front's messages.
    fn take_messages(&mut self) {
        let mut message = [0; MAX_MESSAGE];
        while let Some(message) = pool::receive(self.socket.as_fd(), &mut message) {
            match ToMaster::decode(message) {
                Some(ToMaster::FrontStarted { at }) => {
                    self.announce_pool();
                    self.let_go(at);
                }
                Some(ToMaster::Workers(count)) if self.bounds().contains(&count) => {
                    self.keep(count as usize);
                }
                Some(ToMaster::Replace { pid, request }) => self.replace(pid, &request),
                Some(ToMaster::Trace { pid }) => self.trace(pid),
                // A number of workers out of bounds, or a message for masters of programs: this
                // master sees by itself whether a worker has served.
                Some(ToMaster::Workers(_) | ToMaster::Served { .. } | ToMaster::DiedAtWork)
                | None => {
                    log("the front has sent a message that makes no sense");
                }
            }
        }
    }

    /// The numbers of workers that the front may request.
    fn bounds(&self) -> RangeInclusive<u32> {
        let may_be_none = self.pool.first_workers() == 0;
        u32::from(!may_be_none)..=MOST_WORKERS
    }

    /// A front has started `at` this time. Workers with earlier requests served another front: they
    /// end once their scripts do, and must not take the place of workers for the new front.
    fn let_go(&mut self, at: u64) {
        let served_before =
            |worker: &mut Worker| worker.first_request().is_some_and(|first| first < at);
        let deadline = self.pool.request_timeout.map(|timeout| Instant::now() + timeout);
        let left = self.slots.iter_mut().filter_map(|slot| slot.take_if(served_before));
        self.leaving.extend(left);
        for worker in &mut self.leaving {
            deadline.into_iter().for_each(|deadline| worker.set_deadline(deadline));
        }
        // Limits the workers to twice the target, even if the front dies again and again.
        let surplus = self.leaving.len().saturating_sub(self.target);
        self.leaving[..surplus].iter_mut().for_each(|worker| worker.set_deadline(Instant::now()));
    }

    /// The front reports that a process is stuck. If it is a worker, it logs its backtrace and
    /// ends; the next one starts when it is reaped.
    fn replace(&mut self, pid: u32, request: &str) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // The worker may have ended before the front's message arrived. Only workers of this master
        // are killed.
        let Some(worker) = self.workers().find(|worker| Some(worker.pid) == pid) else { return };
        log(format_args!("worker {} is stuck in {request}", worker.pid.as_raw_nonzero()));
        worker.signal(stuck_signal());
        worker.set_deadline(Instant::now() + GRACE);
    }

    /// The front reports that a process has been busy with a request for long. If it is a worker,
    /// it writes its backtrace to the slow log. The file is opened each time, because it may have
    /// been renamed.
    fn trace(&mut self, pid: u32) {
        let Some(SlowLog { path, .. }) = &self.pool.slow_log else { return };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(worker) = self.workers().find(|worker| Some(worker.pid) == pid) else { return };
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        if let Err(error) = file.and_then(|file| worker.trace(file.as_fd())) {
            log(format_args!("slow log {}: {error}", path.display()));
        }
    }

    /// Takes the signals that have come, up to a SIGTERM. Returns true if it is one.
    fn take_terminate(&mut self) -> bool {
        std::iter::from_fn(|| self.signals.take()).any(|signal| signal == Signal::TERM)
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let number = pid.as_raw_nonzero();
            self.outputs.process_ended(pid);
            self.memory.process_ended();
            if let Some(signal) = status.terminating_signal() {
                let why = self.why_killed(pid, signal);
                log(format_args!("worker {number} was killed by signal {signal}{why}"));
            } else if status.exit_status() != Some(0) {
                let status = status.exit_status().unwrap_or_default();
                log(format_args!("worker {number} ended with status {status}"));
            }
            let signal = status.terminating_signal().and_then(Signal::from_named_raw);
            let mut workers = self.slots.iter_mut().filter_map(Slot::worker);
            let has_not_booted =
                workers.any(|worker| worker.pid == pid && worker.has_failed_to_boot(signal));
            let has_crashed = signal.is_some_and(|signal| CRASHES.contains(&signal));
            self.has_served = self.has_served || self.workers().any(Worker::update_served);
            let none_has_served = !self.has_served;
            let delay = self
                .slots
                .iter_mut()
                .find_map(|slot| slot.reaped(pid, has_crashed, none_has_served));
            if has_not_booted {
                let delay = delay.unwrap_or_default();
                log(format_args!("its script has not booted: the next one starts in {delay:?}"));
                // If this fails, requests wait, as for a worker that is booting.
                let _ = pool::announce_failure(self.socket.as_fd());
            } else if let Some(delay) = delay.filter(|_| has_crashed) {
                log(format_args!(
                    "it crashed in its first request: the next one starts in {delay:?}"
                ));
            }
            self.leaving.retain(|worker| worker.pid != pid);
        }
        self.drop_empty_slots();
    }

    /// The end of the log line about a worker that this signal has killed.
    fn why_killed(&mut self, pid: Pid, signal: i32) -> String {
        let worker = self.workers().find(|worker| worker.pid == pid);
        let counted = worker.and_then(|worker| worker.counted_at_start());
        let Some(counted) = counted.filter(|_| signal == Signal::KILL.as_raw()) else {
            return String::new();
        };
        let Some(why) = self.memory.why_killed(counted) else { return String::new() };
        // The message only counts; a front that has ended or is far behind misses it.
        let _ = pool::announce_out_of_memory(self.socket.as_fd());
        format!(": {why}")
    }

    /// Lets the workers finish their requests and waits for their end. After the time limit or at a
    /// second SIGTERM the workers log their backtraces, and the remaining ones are killed.
    fn drain(mut self, mut told: bool) -> io::Result<()> {
        let deadline = Instant::now() + self.config.shutdown_timeout;
        // The front will not accept workers that are booting: they end when they ask for a request.
        self.slots.iter_mut().filter_map(Slot::worker).for_each(Worker::forget_front);
        if told {
            // The front is still there, so the links stay open and do not end the workers.
            // Otherwise there is no signal: it would interrupt a script's sleep().
            self.workers().for_each(|worker| worker.signal(Signal::TERM));
        }
        while self.workers().next().is_some() {
            let now = Instant::now();
            self.workers().for_each(|worker| worker.kill_if_late(now));
            let kill_at = self.workers().filter_map(|worker| worker.kill_at()).min();
            match self.wait_for_end(kill_at.map_or(deadline, |at| at.min(deadline)))? {
                false if Instant::now() < deadline => {}
                // The supervisor's death closes the pool and sends a signal, which together count
                // once.
                true if !told => told = true,
                _ => break,
            }
        }
        self.workers().for_each(|worker| worker.signal(stuck_signal()));
        let deadline = Instant::now() + self.config.last_grace();
        while self.workers().next().is_some() && Instant::now() < deadline {
            self.wait_for_end(deadline)?;
        }
        self.workers().for_each(|worker| worker.kill());
        while let Ok(Some((pid, _))) = wait(WaitOptions::empty()) {
            self.outputs.process_ended(pid);
        }
        Ok(())
    }

    /// Waits for the end of a worker, for a signal, or for the deadline, and reaps. Returns true
    /// after a SIGTERM.
    fn wait_for_end(&mut self, deadline: Instant) -> io::Result<bool> {
        self.outputs.wait(&[self.signals.as_fd()], Some(deadline))?;
        let is_told = self.take_terminate();
        self.reap();
        Ok(is_told)
    }
}
