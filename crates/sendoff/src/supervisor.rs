//! The parent process: opens listeners, keeps the front and the PHP masters running, ends them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sendoff_config::Config;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};

use crate::children::{self, Recipe};
use crate::explain::Door;
use crate::failure::Failure;
use crate::listen::{Listeners, listen};
use crate::source::Source;

/// A child that lived shorter than this is started again with a pause, which doubles each time.
const SHORT_LIFE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Between two signals to a PHP master: sent at once, they would arrive as one.
const SIGNAL_GAP: Duration = Duration::from_millis(50);

/// Serves until a signal ends the server.
///
/// # Errors
/// The server cannot start.
pub(crate) fn run(source: &Source) -> Result<(), Failure> {
    let (config, warnings) = source.resolve()?;
    crate::log::start(&config.log);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let listeners = listen(&config.listen, config.front.threads)?;
    let (ready_in, ready_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map_err(Failure::system("cannot make a pipe"))?;
    // Until the server has ended.
    let (_door, secret) = Door::open(&listeners.tcp()).unzip();
    let urls = listeners.urls();
    let Listeners { of_loops, files: _files, .. } = listeners;
    let sealed = || {
        let sealed = config.seal();
        sealed.map_err(|error| Failure::System(format!("cannot store the configuration: {error}")))
    };
    let (mut masters, mut pools) = (Vec::new(), Vec::new());
    for number in 0..config.pools.len() {
        let (front, php) = pool_sockets().map_err(Failure::system("cannot make sockets"))?;
        masters.push(Recipe::php_master(&config, number, sealed()?, php)?);
        pools.push(front);
    }
    let front = Recipe::front(&config, sealed()?, of_loops, pools, ready_out, secret)?;
    let roots: Vec<_> = config.sites.iter().map(|site| site.root.display().to_string()).collect();
    let line = format!("sendoff: serving {} at {}", roots.join(", "), urls);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start an event loop"))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(Failure::system("cannot handle signals"))?;
        let front = Kept::start(front)?;
        let masters = masters.into_iter().map(Kept::start).collect::<Result<_, _>>()?;
        Supervisor { config, front, masters }.run(ready_in, &line, &mut signals).await
    })
}

/// A child that is started again when it dies.
struct Kept {
    recipe: Recipe,
    child: Child,
    started: Instant,
    /// How long the next start waits if the child lives shortly.
    pause: Duration,
}

impl Kept {
    fn start(recipe: Recipe) -> Result<Self, Failure> {
        let child = recipe.start()?;
        Ok(Self { recipe, child, started: Instant::now(), pause: FIRST_PAUSE })
    }

    /// Ends when the child dies, and says how.
    async fn death(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends when the child dies before it was of any use.
    async fn failure(&mut self) -> Failure {
        let ended = self.death().await;
        // A child that ended by itself has said why.
        if let Some(code @ 1..) = ended.as_ref().ok().and_then(ExitStatus::code) {
            return Failure::Said(u8::try_from(code).unwrap_or(1));
        }
        let name = &self.recipe.name;
        Failure::System(format!("the {name} {} before it was ready", how(ended)))
    }

    /// Starts the child again whenever it dies.
    async fn keep(&mut self) -> Infallible {
        loop {
            let how = how(self.death().await);
            tracing::error!("the {} {how}, it is started again", self.recipe.name);
            self.restart().await;
        }
    }

    async fn restart(&mut self) {
        if self.started.elapsed() < SHORT_LIFE {
            self.wait().await;
        } else {
            self.pause = FIRST_PAUSE;
        }
        loop {
            match self.recipe.start() {
                Ok(child) => {
                    self.child = child;
                    self.started = Instant::now();
                    return;
                }
                // What is missing now, memory or the program's file amid an upgrade, may be there again later.
                Err(failure) => tracing::error!("{failure}"),
            }
            self.wait().await;
        }
    }

    async fn wait(&mut self) {
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Kills the child if it has not ended by then.
    async fn end_by(&mut self, deadline: Instant) {
        if timeout_at(deadline, self.child.wait()).await.is_err() {
            tracing::warn!("the {} has not ended in time, it is killed", self.recipe.name);
            self.kill().await;
        }
    }

    async fn kill(&mut self) {
        // An error means that it is gone.
        let _ = self.child.kill().await;
    }
}

fn how(ended: io::Result<ExitStatus>) -> String {
    match ended {
        Ok(status) => format!("ended ({status})"),
        Err(error) => format!("is lost: {error}"),
    }
}

/// Runs futures side by side until the first of them ends; for ever if there is none.
async fn first_of<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> T {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        let mut polled = futures.iter_mut().map(|future| future.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

struct Supervisor {
    config: Config,
    front: Kept,
    /// One for each pool.
    masters: Vec<Kept>,
}

impl Supervisor {
    async fn run(
        mut self,
        ready: OwnedFd,
        line: &str,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let served = tokio::select! {
            failure = self.keep_running(ready, line) => match failure {
                Ok(never) => match never {},
                Err(failure) => Err(failure),
            },
            () = signals.next() => {
                tokio::select! {
                    () = self.stop() => {}
                    () = signals.next() => {}
                }
                Ok(())
            }
        };
        // What is left now is to go at once. Workers die with their master.
        self.front.kill().await;
        for master in &mut self.masters {
            master.kill().await;
        }
        served
    }

    /// Says that the server is ready, and goes on for ever. Fails if the server does not get ready.
    async fn keep_running(&mut self, ready: OwnedFd, line: &str) -> Result<Infallible, Failure> {
        let ready =
            pipe::Receiver::from_owned_fd(ready).map_err(Failure::system("cannot read a pipe"))?;
        tokio::pin!(ready);
        tokio::select! {
            biased;
            read = ready.read_u8() => {
                read.map_err(Failure::system("the front closed its pipe"))?;
            }
            failure = self.front.failure() => return Err(failure),
            failure = first_of(self.masters.iter_mut().map(Kept::failure)) => return Err(failure),
        }
        let mut stdout = io::stdout().lock();
        // The server is ready even if standard output is closed.
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        drop(stdout);
        Ok(tokio::select! {
            never = self.front.keep() => never,
            never = first_of(self.masters.iter_mut().map(Kept::keep)) => never,
        })
    }

    /// Lets the front finish its responses, then the workers their scripts, and ends in time whatever they do.
    async fn stop(&mut self) {
        let told = Instant::now();
        let kill_at = told + self.config.kill_timeout();
        // A listener kept open here would take connections that no process accepts; and workers that the master announces
        // after the end of the front must find the socket closed, or they would wait for requests for ever.
        self.front.recipe.close();
        children::signal(&self.front.child, Signal::TERM);
        self.front.end_by(kill_at).await;
        for master in &self.masters {
            children::signal(&master.child, Signal::TERM);
        }
        let kill_at = kill_at.max(Instant::now() + SIGNAL_GAP);
        let mut late = Vec::new();
        for master in &mut self.masters {
            if timeout_at(kill_at, master.child.wait()).await.is_err() {
                // A second signal makes it kill its workers.
                children::signal(&master.child, Signal::TERM);
                late.push(master);
            }
        }
        for master in late {
            master.end_by(told + self.config.shutdown_timeout).await;
        }
    }
}

/// The signals that end the server.
struct Signals {
    terminate: SignalStream,
    interrupt: SignalStream,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Where new workers are announced: the master's end and the front's. The supervisor keeps both, so that a child that is
/// started again takes the place of the one that died.
fn pool_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}
