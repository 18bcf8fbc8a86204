//! The master of a pool with a program: starts its processes, replaces processes that end, and ends
//! with the front or on SIGTERM.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getpgid, getpid, setpgid};
use sendoff_config::{Config, PoolConfig, Program};
use sendoff_pool_messages::{MAX_MESSAGE, OUT_OF_MEMORY, ProgramState, ToMaster};
use sendoff_sandbox::MemoryWatch;
use sendoff_sys::fragments::Fragments;
use sendoff_sys::master::{SIGNALS, Supervisor};
use sendoff_sys::output::{OutputStream, Outputs, output_pipe};
use sendoff_sys::process::{Forked, SignalFd, fork};

use super::output::PoolLog;
use super::process::{Standard, become_program, environment};
use super::slot::{ProcessEnd, Slot};
use super::socket::PoolListener;

/// Requests wait for a process whose start is due within this time; otherwise they are refused.
const WORTH_WAITING: Duration = Duration::from_millis(500);

/// Maximum time between the end of a process and the front's message that a request has ended one.
const SAME_MOMENT: Duration = Duration::from_secs(1);

/// Pause before another attempt to inform a front that has not read its messages.
const TELL_AGAIN: Duration = Duration::from_millis(100);

/// Makes the memory of fragments. `None`: there is none, so fragments are made each time.
fn fragments(pool: &PoolConfig, size: u64, purges: Option<OwnedFd>) -> Option<[OwnedFd; 2]> {
    let make = |size| Fragments::purged_by(purges, size);
    let made = usize::try_from(size).map_err(io::Error::other).and_then(make);
    let made = made.inspect_err(|error| {
        tracing::error!(pool = pool.name, %error, "no memory for fragments, which are not kept");
    });
    made.ok().map(|(_, descriptors)| descriptors)
}

/// The process in which [`Master::run`] has returned: it forks, so it returns in several processes.
#[derive(Debug)]
pub(super) enum Role<'a> {
    /// The master, after all processes have ended.
    Master,
    /// A new process, which must become the program.
    Process(ProcessStart<'a>),
}

/// The arguments of a new process.
#[derive(Debug)]
pub(super) struct ProcessStart<'a> {
    pool: &'a PoolConfig,
    program: &'a Program,
    environment: Vec<(OsString, OsString)>,
    standard: Standard,
    fragments: Option<[OwnedFd; 2]>,
    master: Pid,
}

impl ProcessStart<'_> {
    /// Executes the program in this process.
    ///
    /// # Errors
    /// The system refuses it; the process must end.
    pub(super) fn run(self) -> io::Result<Infallible> {
        let Self { pool, program, environment, standard, fragments, master } = self;
        become_program(pool, program, environment, &standard, fragments.as_ref(), master)
    }
}

/// The reason why waiting ended.
enum Wake {
    FrontGone,
    Terminate,
    Other,
}

/// The end of a process that is not logged yet, because the front may still report that a request
/// was the cause: then the pause is cancelled.
#[derive(Debug)]
struct UnloggedEnd {
    slot: usize,
    process: Pid,
    ended: ProcessEnd,
    why: String,
    pause: Duration,
    log_at: Instant,
}

#[derive(Debug)]
pub(super) struct Master<'a> {
    config: &'a Config,
    pool: &'a PoolConfig,
    program: &'a Program,
    listener: PoolListener,
    /// The pool socket, whose other end the front has.
    socket: OwnedFd,
    signals: SignalFd,
    supervisor: Supervisor,
    slots: Vec<Slot>,
    outputs: Outputs<PoolLog<'a>>,
    /// The memory of fragments, and the counters by which the front purges them.
    fragments: Option<[OwnedFd; 2]>,
    /// Detects that the kernel has killed a process for lack of memory.
    memory: MemoryWatch,
    /// True after a process has answered a request since the master started, so the program works.
    has_served: bool,
    /// Times of the front's messages that a request has ended a process. Each excuses one end.
    ended_by_request: VecDeque<Instant>,
    /// Ends that are logged once their cause is known or the pause is over.
    unlogged: Vec<UnloggedEnd>,
    /// Description of the latest end of a process.
    last_end: Option<String>,
    /// The state last sent to the front; `None` if it must be sent.
    told: Option<ProgramState>,
    /// Time of the next attempt to inform the front; set after it has not read its messages.
    tell_at: Option<Instant>,
}

impl<'a> Master<'a> {
    /// A master; [`run`](Self::run) starts its processes.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn new(
        config: &'a Config,
        pool: &'a PoolConfig,
        program: &'a Program,
        listener: PoolListener,
        socket: OwnedFd,
        purges: Option<OwnedFd>,
        memory: MemoryWatch,
    ) -> io::Result<Self> {
        let fragments = program.fragments.and_then(|size| fragments(pool, size, purges));
        Ok(Self {
            fragments,
            config,
            pool,
            program,
            listener,
            socket,
            signals: SignalFd::new(&SIGNALS)?,
            supervisor: Supervisor::of_this_process(),
            slots: (0..pool.processes()).map(|_| Slot::new()).collect(),
            outputs: Outputs::new(PoolLog { pool: &pool.name }),
            memory,
            has_served: false,
            ended_by_request: VecDeque::new(),
            unlogged: Vec::new(),
            last_end: None,
            told: None,
            tell_at: None,
        })
    }

    /// Keeps processes until the front has closed the pool socket, or until a SIGTERM that is not
    /// due to the supervisor's death.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(super) fn run(mut self) -> io::Result<Role<'a>> {
        loop {
            self.log_due_ends();
            if let Some(start) = self.fill() {
                return Ok(Role::Process(start));
            }
            self.tell();
            let start_at = self.slots.iter().filter_map(Slot::start_at).min();
            let flush_at = self.outputs.flush(Instant::now());
            let log_at = self.unlogged.iter().map(|end| end.log_at).min();
            let due = [start_at, self.tell_at, flush_at, log_at];
            let wake = self.wait_until(due.into_iter().flatten().min())?;
            self.reap();
            let told = match wake {
                Wake::Other => continue,
                // The front finishes its requests, which need processes, and then closes the pool
                // socket.
                Wake::Terminate if self.supervisor.notice_death() => continue,
                Wake::FrontGone => 0,
                Wake::Terminate => 1,
            };
            return self.drain(told).map(|()| Role::Master);
        }
    }

    /// Starts a process in each empty slot whose start is due. In a new process, returns what it
    /// has to execute.
    fn fill(&mut self) -> Option<ProcessStart<'a>> {
        for number in 0..self.slots.len() {
            if self.slots[number].start_at().is_none_or(|at| at > Instant::now()) {
                continue;
            }
            match self.start(number) {
                Ok(None) => {}
                Ok(Some(start)) => return Some(start),
                Err(error) => {
                    let pool = &*self.pool.name;
                    tracing::error!(pool, "no process of its program can be started: {error}");
                    self.last_end = Some(format!("could not be started: {error}"));
                    self.slots[number].back_off();
                }
            }
        }
        None
    }

    fn start(&mut self, number: usize) -> io::Result<Option<ProcessStart<'a>>> {
        let (out, output) = output_pipe()?;
        let (err, error) = output_pipe()?;
        let listener = self.listener.socket.try_clone()?;
        let (master, counted) = (getpid(), self.memory.process_starts());
        let fragments = match &self.fragments {
            Some([memory, counters]) => Some([memory.try_clone()?, counters.try_clone()?]),
            None => None,
        };
        match fork()? {
            Forked::Child => Ok(Some(ProcessStart {
                pool: self.pool,
                program: self.program,
                environment: environment(self.pool),
                standard: Standard { listener, output, error },
                fragments,
                master,
            })),
            Forked::Parent(pid) => {
                // The child makes the same call: the first of the two calls counts. Both may fail
                // once the child has executed the program.
                let _ = setpgid(Some(pid), Some(pid));
                self.slots[number].run(pid, counted);
                self.outputs.add(pid, OutputStream::Output, out);
                self.outputs.add(pid, OutputStream::Error, err);
                let (pool, process) = (&*self.pool.name, pid.as_raw_nonzero());
                tracing::debug!(pool, process, "a process of its program was started");
                Ok(None)
            }
        }
    }

    /// The present state of the processes.
    fn state(&self) -> ProgramState {
        let pids = self.slots.iter().filter_map(Slot::pid);
        let processes: Vec<_> = pids.map(|pid| pid.as_raw_nonzero().get().unsigned_abs()).collect();
        let soon = Instant::now() + WORTH_WAITING;
        let is_down = self.slots.iter().all(|slot| slot.start_at().is_some_and(|at| at > soon));
        ProgramState { processes, down: self.last_end.clone().filter(|_| is_down) }
    }

    /// Sends the state of the processes to the front if it has changed.
    fn tell(&mut self) {
        let state = self.state();
        if self.told.as_ref() == Some(&state) {
            return;
        }
        let inode = Some(self.listener.inode.as_fd());
        let counters = self.fragments.as_ref().map(|[_, counters]| counters.as_fd());
        let fds: Vec<_> = inode.into_iter().chain(counters).collect();
        let rights = SendAncillaryMessage::ScmRights(&fds);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(rights);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.socket, &[IoSlice::new(&state.encode())], &mut control, flags);
        match sent {
            Ok(_) => (self.told, self.tell_at) = (Some(state), None),
            // A front that has ended needs nothing: the next front sends `FrontStarted` and is
            // informed then.
            Err(_) => self.tell_at = Some(Instant::now() + TELL_AGAIN),
        }
    }

    /// Waits for a signal, a message, a line of output, the end of the front, or the deadline.
    fn wait_until(&mut self, deadline: Option<Instant>) -> io::Result<Wake> {
        let events = self.outputs.wait(&[self.signals.as_fd(), self.socket.as_fd()], deadline)?;
        self.take_messages();
        if events[1].intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(Wake::FrontGone);
        }
        let mut wake = Wake::Other;
        while let Some(signal) = self.signals.take() {
            if signal == Signal::TERM {
                wake = Wake::Terminate;
            }
        }
        Ok(wake)
    }

    /// Reads the front's messages. A new front must get the state of the processes; any front
    /// reports which of them answer requests.
    fn take_messages(&mut self) {
        let mut message = [0; MAX_MESSAGE];
        while let Ok((received @ 1.., _)) =
            rustix::net::recv(&self.socket, &mut message[..], RecvFlags::DONTWAIT)
        {
            match ToMaster::decode(&message[..received]) {
                Some(ToMaster::FrontStarted { .. }) => self.told = None,
                Some(ToMaster::Served { pid }) => self.note_answer(pid),
                Some(ToMaster::DiedAtWork) => self.note_death_at_work(),
                _ => tracing::error!("the front has sent a message that makes no sense"),
            }
        }
    }

    /// Records that a process, or a member of its process group, has answered a request.
    fn note_answer(&mut self, pid: u32) {
        self.has_served = true;
        // The process may have ended since.
        let group = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let group = group.and_then(|pid| getpgid(Some(pid)).ok());
        if let Some(slot) =
            self.slots.iter_mut().find(|slot| group.is_some() && slot.pid() == group)
        {
            slot.note_answer();
        }
    }

    /// Records that a request has ended a working process. If the master already knows about that
    /// end, the next process starts at once.
    fn note_death_at_work(&mut self) {
        if !self.has_served {
            return;
        }
        if let Some(slot) = self.slots.iter_mut().position(Slot::cancel_pause) {
            match self.unlogged.iter().position(|end| end.slot == slot) {
                Some(at) => {
                    let end = self.unlogged.remove(at);
                    self.log_end(&UnloggedEnd { pause: Duration::ZERO, ..end });
                }
                None => {
                    let pool = &*self.pool.name;
                    tracing::info!(pool, "a request has ended it, another one is started at once");
                }
            }
        } else {
            self.ended_by_request.push_back(Instant::now());
            let surplus = self.ended_by_request.len().saturating_sub(self.slots.len());
            self.ended_by_request.drain(..surplus);
        }
    }

    /// Collects the processes that have ended.
    fn reap(&mut self) {
        for number in 0..self.slots.len() {
            let Some((pid, ended, mut pause)) = self.slots[number].reap() else { continue };
            self.ended_by_request.retain(|at| at.elapsed() < SAME_MOMENT);
            if !pause.is_zero() && self.ended_by_request.pop_front().is_some() {
                self.slots[number].cancel_pause();
                pause = Duration::ZERO;
            }
            self.outputs.process_ended(pid);
            self.memory.process_ended();
            self.report(number, pid, ended, pause);
        }
    }

    /// Tells the front and the log about an end.
    fn report(&mut self, slot: usize, process: Pid, ended: ProcessEnd, pause: Duration) {
        let mut why = String::new();
        if ended.is_kill()
            && let Some(cause) = self.memory.why_killed(ended.counted_at_start)
        {
            why = format!(": {cause}");
            // The message only counts; a front that has ended or is far behind misses it.
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&self.socket, &OUT_OF_MEMORY, flags);
        }
        self.last_end = Some(format!("{ended}{why}"));
        let log_at = Instant::now() + pause.min(SAME_MOMENT);
        let end = UnloggedEnd { slot, process, ended, why, pause, log_at };
        // Before the first answer no request counts as a cause.
        if self.has_served && !pause.is_zero() {
            self.unlogged.push(end);
        } else {
            self.log_end(&end);
        }
    }

    /// Logs the ends whose pause is over, or whose cause the front does not know.
    fn log_due_ends(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.unlogged.extract_if(.., |end| end.log_at <= now).collect();
        due.iter().for_each(|end| self.log_end(end));
    }

    fn log_end(&self, end: &UnloggedEnd) {
        let UnloggedEnd { process, ended, why, pause, .. } = end;
        let (pool, process) = (&*self.pool.name, process.as_raw_nonzero());
        let file = self.program.file.display();
        let next = match *pause {
            Duration::ZERO => "another one is started".to_owned(),
            pause => format!("another one is started after {pause:?}"),
        };
        if ended.is_success() && pause.is_zero() {
            tracing::info!(pool, process, "{file} {ended}, {next}");
        } else {
            tracing::error!(pool, process, "{file} {ended}{why}, {next}");
        }
    }

    /// Asks the processes to end and waits for them; kills them after the time limit, or at a
    /// further SIGTERM. `told`: number of SIGTERMs so far.
    fn drain(mut self, mut told: u32) -> io::Result<()> {
        for UnloggedEnd { process, ended, why, .. } in std::mem::take(&mut self.unlogged) {
            let (pool, process) = (&*self.pool.name, process.as_raw_nonzero());
            tracing::error!(pool, process, "{} {ended}{why}", self.program.file.display());
        }
        let mut deadline = Some(Instant::now() + self.config.shutdown_timeout);
        self.slots.iter().for_each(Slot::terminate);
        while self.slots.iter().any(|slot| slot.pid().is_some()) {
            self.outputs.wait(&[self.signals.as_fd()], deadline)?;
            while let Some(signal) = self.signals.take() {
                // The supervisor's death closes the pool and sends a signal, which together count
                // once.
                told += u32::from(signal == Signal::TERM);
            }
            for number in 0..self.slots.len() {
                if let Some((pid, ..)) = self.slots[number].reap() {
                    self.outputs.process_ended(pid);
                }
            }
            if deadline.take_if(|at| *at <= Instant::now() || told > 1).is_some() {
                self.kill();
            }
        }
        Ok(())
    }

    fn kill(&self) {
        for slot in &self.slots {
            let Some(pid) = slot.pid() else { continue };
            let (pool, process) = (&*self.pool.name, pid.as_raw_nonzero());
            tracing::warn!(pool, process, "a process has not ended in time, it is killed");
            slot.kill();
        }
    }
}
