//! A child process that is restarted when it dies, or when it is needed again.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::net::RecvFlags;
use rustix::process::Signal;
use sendoff_pool_messages::{MAX_MESSAGE, ToMaster};
use sendoff_sandbox::{AtStart, MemoryWatch};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::children::{GroupLeader, Recipe, Started};
use crate::failure::Failure;
use crate::orders::Socket;
use crate::php_start::PhpStart;

/// A child that lived shorter than this is restarted after a pause, which doubles each time.
const SHORT_LIFE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A child that is restarted when it dies.
#[derive(Debug)]
pub(crate) struct SupervisedChild {
    /// Starts the next child.
    pub(crate) recipe: Recipe,
    state: State,
    /// Pause before the next start if the child dies early.
    pause: Duration,
}

#[derive(Debug)]
enum State {
    Running {
        child: Box<GroupLeader>,
        orders: Option<Socket>,
        since: Instant,
        /// Tells whether the child was ended for want of memory.
        memory: (MemoryWatch, AtStart),
        php_start: PhpStart,
    },
    Down {
        until: Instant,
    },
    /// The child does not run, because it is not needed. The first wait for a call registers the
    /// socket with the event loop; there may be hundreds, and each wait is cut short often.
    Resting(Option<UnixStream>),
}

impl State {
    fn running(Started { child, orders, mut memory, php_start }: Started) -> Self {
        let counted = memory.process_starts();
        let (child, memory) = (Box::new(child), (memory, counted));
        Self::Running { child, orders, since: Instant::now(), memory, php_start }
    }
}

impl SupervisedChild {
    /// Starts the child, unless it runs on demand.
    ///
    /// # Errors
    /// The system refuses to start it.
    pub(crate) fn start(recipe: Recipe) -> Result<Self, Failure> {
        let state = match recipe.calls {
            None => State::running(recipe.start()?),
            Some(_) => State::Resting(None),
        };
        Ok(Self { recipe, state, pause: FIRST_PAUSE })
    }

    /// Completes when the child dies before it has become ready; returns the reason.
    pub(crate) async fn failure(&mut self) -> Failure {
        let name = &self.recipe.name;
        let (child, php_start) = match &mut self.state {
            State::Running { child, php_start, .. } => (child, php_start),
            State::Down { .. } => return Failure::System(format!("the {name} does not run")),
            State::Resting(_) => pending().await,
        };
        let ended = tokio::select! {
            biased;
            ended = child.wait() => ended,
            slow = php_start.is_too_slow() => {
                child.kill().await;
                return Failure::System(format!("the {name} {slow}"));
            }
        };
        // A child that ended with an error status has reported the error itself.
        let status = ended.as_ref().ok().and_then(ExitStatus::code);
        if let Some(code) = status.filter(|code| self.recipe.reports(*code)) {
            return Failure::Said(u8::try_from(code).unwrap_or(1));
        }
        let suspicion = self.recipe.suspicion();
        Failure::System(format!("the {name} {} before it was ready{suspicion}", how(ended)))
    }

    /// True if the child runs on demand.
    pub(crate) fn is_on_demand(&self) -> bool {
        self.recipe.calls.is_some()
    }

    /// Restarts the child whenever it dies, or whenever it is needed. Never completes; cancel safe.
    pub(crate) async fn keep(&mut self) -> Infallible {
        loop {
            match &mut self.state {
                State::Running { child, since, memory, php_start, .. } => {
                    let ended = tokio::select! {
                        biased;
                        ended = child.wait() => ended,
                        slow = php_start.is_too_slow() => {
                            let name = &self.recipe.name;
                            tracing::error!("the {name} {slow}. It is killed and started again");
                            child.kill().await;
                            self.state = State::Down { until: self.next_attempt() };
                            continue;
                        }
                    };
                    let is_done = ended.as_ref().is_ok_and(ExitStatus::success);
                    if is_done && self.recipe.calls.is_some() {
                        tracing::debug!("the {} is not needed, it has ended", self.recipe.name);
                        self.state = State::Resting(None);
                        continue;
                    }
                    let signal = ended.as_ref().ok().and_then(ExitStatusExt::signal);
                    let is_killed = signal == Some(Signal::KILL.as_raw());
                    let (memory, counted) = memory;
                    let why = if is_killed { memory.why_killed(*counted) } else { None };
                    let why = why.map_or_else(String::new, |why| format!(": {why}"));
                    let name = &self.recipe.name;
                    tracing::error!("the {name} {}{why}, it is started again", how(ended));
                    let lived = since.elapsed();
                    let until = if lived < SHORT_LIFE {
                        self.next_attempt()
                    } else {
                        self.pause = FIRST_PAUSE;
                        Instant::now()
                    };
                    self.state = State::Down { until };
                }
                State::Down { until } => {
                    sleep_until(*until).await;
                    self.state = match self.recipe.calls {
                        None => self.attempt(),
                        // Messages to a dead master are not calls: a front that still waits will
                        // call again.
                        Some(_) => State::Resting(None),
                    };
                }
                State::Resting(registered) => {
                    let Some(calls) = &self.recipe.calls else { pending().await };
                    self.state = match called(calls, registered).await {
                        Ok(()) => self.attempt(),
                        Err(error) => {
                            tracing::error!("the {} cannot be called: {error}", self.recipe.name);
                            State::Down { until: self.next_attempt() }
                        }
                    };
                }
            }
        }
    }

    fn attempt(&mut self) -> State {
        match self.recipe.start() {
            Ok(started) => State::running(started),
            Err(failure) => {
                // The cause may disappear: memory becomes free, or an upgrade of the program's file
                // ends.
                tracing::error!("{failure}");
                State::Down { until: self.next_attempt() }
            }
        }
    }

    fn next_attempt(&mut self) -> Instant {
        let at = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        at
    }

    /// Completes when the child ends, or at once if it does not run.
    pub(crate) async fn ended(&mut self) {
        if let State::Running { child, .. } = &mut self.state {
            // An error means that the process no longer exists.
            let _ = child.wait().await;
        }
    }

    /// The socket for orders to the child; `None` if it does not run.
    pub(crate) fn orders(&self) -> Option<&Socket> {
        match &self.state {
            State::Running { orders, .. } => orders.as_ref(),
            State::Down { .. } | State::Resting(_) => None,
        }
    }

    /// The child's process id; `None` if it does not run.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.state {
            State::Running { child, .. } => child.id(),
            State::Down { .. } | State::Resting(_) => None,
        }
    }

    /// True if the child runs, or has ended unnoticed.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Sends a signal to the child if it runs.
    pub(crate) fn signal(&self, signal: Signal) {
        if let State::Running { child, .. } = &self.state
            && let Some(process) = child.process()
        {
            // It may have died already; `keep` will see that.
            let _ = rustix::process::kill_process(process, signal);
        }
    }

    /// Waits for the end of the child until the deadline. Returns true if it has ended.
    pub(crate) async fn ends_by(&mut self, deadline: Instant) -> bool {
        match &mut self.state {
            State::Running { child, .. } => timeout_at(deadline, child.wait()).await.is_ok(),
            State::Down { .. } | State::Resting(_) => true,
        }
    }

    /// Kills the child if it is still running at the deadline.
    pub(crate) async fn end_by(&mut self, deadline: Instant) {
        if !self.ends_by(deadline).await {
            tracing::warn!("the {} has not ended in time, it is killed", self.recipe.name);
            self.kill().await;
        }
    }

    /// Kills the child if it runs.
    pub(crate) async fn kill(&mut self) {
        if let State::Running { child, .. } = &mut self.state {
            child.kill().await;
        }
    }
}

/// Completes when the front needs workers of a pool without a master. Other messages of the front
/// concern the previous master and are discarded.
async fn called(socket: &OwnedFd, registered: &mut Option<UnixStream>) -> io::Result<()> {
    let socket = match registered {
        Some(socket) => socket,
        None => {
            // The type is for stream sockets, but this is a packet socket. It only serves to wait
            // for readability.
            let socket = std::os::unix::net::UnixStream::from(socket.try_clone()?);
            socket.set_nonblocking(true)?;
            registered.insert(UnixStream::from_std(socket)?)
        }
    };
    let mut message = [0; MAX_MESSAGE];
    loop {
        let received = socket.async_io(Interest::READABLE, || {
            Ok(rustix::net::recv(&*socket, &mut message, RecvFlags::DONTWAIT)?)
        });
        let (len, _) = received.await?;
        if let Some(ToMaster::Workers(1..)) = ToMaster::decode(&message[..len]) {
            return Ok(());
        }
    }
}

fn how(ended: io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => format!("ended ({status})"),
        Err(error) => format!("is lost: {error}"),
    }
}
