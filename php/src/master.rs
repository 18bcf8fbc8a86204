//! The master: forks workers, replaces those that end or are stuck, ends with the front or on SIGTERM.

use std::fs::OpenOptions;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};
use sendoff_config::{Config, PoolConfig, SlowLog};
use sendoff_pool::{MAX_MESSAGE, ToMaster};
use sendoff_sandbox::MemoryWatch;
use sendoff_sys::master::{SIGNALS, Supervisor, poll_until};
use sendoff_sys::process::{Forked, SignalFd, fork};

use crate::engine::stuck_signal;
use crate::log::log;
use crate::pool;
use crate::slot::{Slot, Worker, WorkerStart};
use crate::watch::Watch;

/// The most workers that the front may ask for; it has bounds of its own, but it is not trusted with a fork bomb.
const MOST_WORKERS: u32 = 1024;

/// The signals of a program that is at fault.
const CRASHES: [Signal; 5] = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE, Signal::ABORT];

/// How long files of an application stay as they are before its workers boot: editors and package managers write several.
const SETTLING: Duration = Duration::from_millis(100);

/// How long a stuck worker may take to log its backtrace and end. One that is stopped never does.
const GRACE: Duration = Duration::from_secs(1);

/// The process in which [`Master::run`] has returned: it forks, so it may return in several.
#[derive(Debug)]
pub(crate) enum Role {
    /// The master, when all is over.
    Master,
    /// A new worker, with its sockets.
    Worker(WorkerStart),
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
    config: &'a Config,
    pool: &'a PoolConfig,
    socket: OwnedFd,
    signals: SignalFd,
    supervisor: Supervisor,
    /// Where workers ask the front for the state of the pool: the front's end, kept for the next front, and theirs.
    status: (OwnedFd, OwnedFd),
    /// As many as there should be workers, or more while some are about to end.
    slots: Vec<Slot>,
    /// Workers whose front is gone, still at work on its requests. They have no slot: others work for the new front.
    leaving: Vec<Worker>,
    /// A worker has finished a request since the master started, so PHP can work.
    has_served: bool,
    target: usize,
    /// Tells which workers were ended for want of memory.
    memory: MemoryWatch,
    /// The files of the application that the workers boot, if they are watched.
    watch: Option<Watch>,
    /// When the workers are replaced because a file has changed, unless others change until then.
    replace_at: Option<Instant>,
}

impl<'a> Master<'a> {
    /// A master that starts its first workers when it [runs](Self::run). `socket` leads to the front.
    ///
    /// # Errors
    /// No descriptor can be had.
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
            target,
            memory,
            watch,
            replace_at,
        };
        master.announce_status();
        // The master of a pool that keeps none is started because a request waits.
        master.keep(pool.first_workers().max(1));
        Ok(master)
    }

    /// Gives the front its end of the socket on which workers ask for the state of the pool.
    fn announce_status(&self) {
        // A front that is gone needs none; the next one says when it starts.
        if let Err(error) = pool::announce_status(self.socket.as_fd(), self.status.0.as_fd())
            && !pool::has_front_ended(&error)
        {
            log(format_args!("fpm_get_status() will return false: {error}"));
        }
    }

    /// There should be `target` workers from now on. Those that are too many are the front's to end: it knows which are idle.
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

    /// Keeps workers until SIGTERM that is not the end of the supervisor, or until the front has closed the pool socket.
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
            let deadline = self.next_deadline();
            match self.wait_until(deadline)? {
                Wake::Reap => self.reap(),
                Wake::FrontGone => return self.drain(false).map(|()| Role::Master),
                // The front finishes its requests, for which it needs workers, and then closes the pool socket.
                Wake::Terminate if self.supervisor.has_just_died() => {}
                Wake::Terminate => return self.drain(true).map(|()| Role::Master),
                Wake::Time => {}
            }
        }
    }

    /// Whether the pool has no worker and should have none. The supervisor then starts another master when the front wants
    /// workers again. Every message of the front has been read: a later one stays in the socket, for the supervisor.
    fn is_idle(&mut self) -> bool {
        // No supervisor would start the next master.
        self.target == 0 && self.workers().next().is_none() && !self.supervisor.is_gone()
    }

    /// Every worker that was not reaped.
    fn workers(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.slots.iter_mut().filter_map(Slot::worker).chain(&mut self.leaving)
    }

    /// When there is something to do that no event announces.
    fn next_deadline(&mut self) -> Option<Instant> {
        let fork_at = self.slots.iter().filter_map(Slot::fork_at).min();
        let replace_at = self.replace_at;
        self.workers().filter_map(|worker| worker.kill_at()).chain(fork_at).chain(replace_at).min()
    }

    /// Forks a worker for each empty slot whose time has come. Returns its start in the worker.
    fn fill(&mut self) -> Option<WorkerStart> {
        for i in 0..self.slots.len() {
            if self.slots[i].fork_at().is_none_or(|at| at > Instant::now()) {
                continue;
            }
            match self.start_worker(i) {
                Ok(None) => {}
                Ok(Some(start)) => return Some(start),
                Err(error) => {
                    // Without a front none is needed; the socket says next that there is none.
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
        let (master, since) = (getpid(), Instant::now());
        let counted = self.memory.process_starts();
        match fork()? {
            Forked::Child => Ok(Some(WorkerStart { ends, busy, slow, status, master })),
            Forked::Parent(pid) => {
                let mut worker = Worker::new(pid, since, counted, busy, ours);
                if self.pool.worker.is_some() {
                    worker = worker.booting(front);
                    let limit = self.pool.request_timeout;
                    limit.into_iter().for_each(|limit| worker.set_deadline(since + limit));
                } else {
                    // Should this fail, the front's ends close and the worker ends by itself.
                    pool::announce(self.socket.as_fd(), pid, &front)?;
                }
                self.slots[slot].run(worker);
                Ok(None)
            }
        }
    }

    /// Gives the front the workers whose script has booted.
    fn announce_booted(&mut self) {
        for worker in self.slots.iter_mut().filter_map(Slot::worker) {
            let Some(front) = worker.take_booted() else { continue };
            // Should this fail, the front's ends close and the worker ends by itself.
            if let Err(error) = pool::announce(self.socket.as_fd(), worker.pid, &front)
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                log(format_args!("cannot give a worker to the front: {error}"));
            }
        }
    }

    /// Looks whether files of the application have changed.
    fn look_for_changes(&mut self) {
        let Some(path) = self.watch.as_mut().and_then(Watch::changed) else { return };
        if self.replace_at.is_none() {
            log(format_args!("{} has changed: the workers boot again", path.display()));
        }
        self.replace_at = Some(Instant::now() + SETTLING);
    }

    /// Replaces all workers: those at work finish their requests, and those that boot, or cannot, start anew.
    fn replace_all(&mut self) {
        for slot in &mut self.slots {
            if let Some(worker) = slot.take_if(|worker| !worker.boots()) {
                worker.signal(Signal::TERM);
                self.leaving.push(worker);
            }
            slot.boot_anew();
        }
    }

    /// Waits for a signal or a message, for the front to go, or for the time given.
    fn wait_until(&mut self, deadline: Option<Instant>) -> io::Result<Wake> {
        let mut fds = vec![
            PollFd::new(&self.signals, PollFlags::IN),
            PollFd::new(&self.socket, PollFlags::IN),
        ];
        let booting = self.slots.iter().filter_map(Slot::boot_signal);
        let watch = self.watch.as_ref().map(Watch::events);
        let booting = booting.chain(watch);
        fds.extend(booting.map(|signal| PollFd::from_borrowed_fd(signal, PollFlags::IN)));
        poll_until(&mut fds, deadline)?;
        let is_gone = fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        drop(fds);
        self.announce_booted();
        self.look_for_changes();
        // First of all: a worker that ended because there should be fewer must not be missed, and the last thing that a
        // front says may be that a worker is stuck.
        self.take_messages();
        Ok(if is_gone { Wake::FrontGone } else { self.take_signals() })
    }

    /// Does what the front has asked for.
    fn take_messages(&mut self) {
        let mut message = [0; MAX_MESSAGE];
        while let Some(message) = pool::receive(self.socket.as_fd(), &mut message) {
            match ToMaster::decode(message) {
                Some(ToMaster::FrontStarted { at }) => {
                    self.announce_status();
                    self.let_go(at);
                }
                Some(ToMaster::Workers(count)) if self.bounds().contains(&count) => {
                    self.keep(count as usize);
                }
                Some(ToMaster::Replace { pid, request }) => self.replace(pid, &request),
                Some(ToMaster::Trace { pid }) => self.trace(pid),
                // It knows by itself whether a worker has served.
                Some(ToMaster::Workers(_) | ToMaster::Served { .. } | ToMaster::DiedAtWork)
                | None => {
                    log("the front has sent a message that makes no sense");
                }
            }
        }
    }

    /// How many workers the front may ask for.
    fn bounds(&self) -> RangeInclusive<u32> {
        let may_be_none = self.pool.first_workers() == 0;
        u32::from(!may_be_none)..=MOST_WORKERS
    }

    /// A front has started `at` this time. Workers that have had requests before served another front: they end once
    /// their scripts do, and may not keep others from working for this one.
    fn let_go(&mut self, at: u64) {
        let served_before =
            |worker: &mut Worker| worker.first_request().is_some_and(|first| first < at);
        let deadline = self.pool.request_timeout.map(|timeout| Instant::now() + timeout);
        let left = self.slots.iter_mut().filter_map(|slot| slot.take_if(served_before));
        self.leaving.extend(left);
        for worker in &mut self.leaving {
            deadline.into_iter().for_each(|deadline| worker.set_deadline(deadline));
        }
        // However often the front dies, there are at most twice as many workers as there should be.
        let surplus = self.leaving.len().saturating_sub(self.target);
        self.leaving[..surplus].iter_mut().for_each(|worker| worker.set_deadline(Instant::now()));
    }

    /// The front says that a process is stuck. If it is a worker, it logs its backtrace and ends; the next one starts
    /// when it is reaped.
    fn replace(&mut self, pid: u32, request: &str) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // The front may have been slower than the worker's end. Processes that are not ours are none of its business.
        let Some(worker) = self.workers().find(|worker| Some(worker.pid) == pid) else { return };
        log(format_args!("worker {} is stuck in {request}", worker.pid.as_raw_nonzero()));
        worker.signal(stuck_signal());
        worker.set_deadline(Instant::now() + GRACE);
    }

    /// The front says that a process has worked on a request for long. If it is a worker, it writes its backtrace to the slow log,
    /// which is opened each time: it may have been renamed.
    fn trace(&mut self, pid: u32) {
        let Some(SlowLog { path, .. }) = &self.pool.slow_log else { return };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(worker) = self.workers().find(|worker| Some(worker.pid) == pid) else { return };
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        if let Err(error) = file.and_then(|file| worker.trace(file.as_fd())) {
            log(format_args!("slow log {}: {error}", path.display()));
        }
    }

    fn take_signals(&mut self) -> Wake {
        let mut wake = Wake::Time;
        while let Some(signal) = self.signals.take() {
            match signal {
                Signal::TERM => return Wake::Terminate,
                Signal::CHILD => wake = Wake::Reap,
                _ => {}
            }
        }
        wake
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let number = pid.as_raw_nonzero();
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
            self.has_served = self.has_served || self.workers().any(Worker::has_served);
            let none_has_served = !self.has_served;
            let delay = self
                .slots
                .iter_mut()
                .find_map(|slot| slot.reaped(pid, has_crashed, none_has_served));
            if has_not_booted {
                let delay = delay.unwrap_or_default();
                log(format_args!("its script has not booted: the next one starts in {delay:?}"));
                // Should this fail, requests wait, as they do for a worker that boots.
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

    /// The end of the sentence that a worker was killed by this signal.
    fn why_killed(&mut self, pid: Pid, signal: i32) -> String {
        let worker = self.workers().find(|worker| worker.pid == pid);
        let counted = worker.and_then(|worker| worker.counted_at_start());
        let Some(counted) = counted.filter(|_| signal == Signal::KILL.as_raw()) else {
            return String::new();
        };
        let Some(why) = self.memory.why_killed(counted) else { return String::new() };
        // It is a count; a front that is gone or far behind misses it.
        let _ = pool::announce_out_of_memory(self.socket.as_fd());
        format!(": {why}")
    }

    /// Lets the workers finish their requests and waits for their end. When they take too long or at a second SIGTERM
    /// they log where they are, and whatever is left then is killed.
    fn drain(mut self, mut told: bool) -> io::Result<()> {
        let deadline = Instant::now() + self.config.shutdown_timeout;
        self.reap();
        // The front will not take workers that boot: they end when they ask for a request.
        self.slots.iter_mut().filter_map(Slot::worker).for_each(Worker::forget_front);
        if told {
            // The front is still there, so links do not tell them. Otherwise no signal: it would wake a script's sleep().
            self.workers().for_each(|worker| worker.signal(Signal::TERM));
        }
        while self.workers().next().is_some() {
            let now = Instant::now();
            self.workers().for_each(|worker| worker.kill_if_late(now));
            let kill_at = self.workers().filter_map(|worker| worker.kill_at()).min();
            match self.wait_for_end(kill_at.map_or(deadline, |at| at.min(deadline)))? {
                Wake::Reap => self.reap(),
                Wake::Time if Instant::now() < deadline => {}
                // The supervisor's death closes the pool and sends a signal: that is once.
                Wake::Terminate if !told => told = true,
                Wake::Time | Wake::Terminate | Wake::FrontGone => break,
            }
        }
        self.workers().for_each(|worker| worker.signal(stuck_signal()));
        let deadline = Instant::now() + self.config.last_grace();
        while self.workers().next().is_some() && Instant::now() < deadline {
            if let Wake::Reap = self.wait_for_end(deadline)? {
                self.reap();
            }
        }
        self.workers().for_each(|worker| worker.kill());
        while wait(WaitOptions::empty()).is_ok() {}
        Ok(())
    }

    fn wait_for_end(&mut self, deadline: Instant) -> io::Result<Wake> {
        poll_until(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(deadline))?;
        Ok(self.take_signals())
    }
}
