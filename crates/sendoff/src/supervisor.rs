//! The parent process: opens listeners, keeps the front and the PHP masters running, ends them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sendoff_config::{AccessLog, Config};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::children::Recipe;
use crate::configure::{configure, log_filter};
use crate::explain::Door;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::listen::{Listeners, listen};
use crate::log::open_log;
use crate::options::Serve;
use crate::orders::ToFront;
use crate::signals::{Asked, Signals};

/// Between two signals to a PHP master: sent at once, they would arrive as one.
const SIGNAL_GAP: Duration = Duration::from_millis(50);

/// How long a front may take to cut its responses and to write the last lines of the access log.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// Serves until a signal ends the server.
///
/// # Errors
/// The server cannot start.
pub(crate) fn run(serve: Serve) -> Result<(), Failure> {
    let filter = log_filter();
    crate::log::start(&filter);
    let config = configure(serve, filter)?;
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
        let served = self.serve(ready, line, signals).await;
        // What is left now is to go at once. Workers die with their master.
        self.front.kill().await;
        for master in &mut self.masters {
            master.kill().await;
        }
        served
    }

    /// Serves until a signal ends the server. Fails if the server does not get ready.
    async fn serve(
        &mut self,
        ready: OwnedFd,
        line: &str,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let ready =
            pipe::Receiver::from_owned_fd(ready).map_err(Failure::system("cannot read a pipe"))?;
        let mut not_ready = Some(ready);
        loop {
            let asked = tokio::select! {
                failed = self.keep_running(&mut not_ready, line) => match failed? {},
                asked = signals.next() => asked,
            };
            match asked {
                Asked::Drain => {
                    tokio::select! {
                        () = self.drain() => {}
                        () = end_at_once(signals) => self.cut().await,
                    }
                    return Ok(());
                }
                Asked::Cut => {
                    self.cut().await;
                    return Ok(());
                }
                Asked::Reopen => self.reopen_logs(),
                Asked::Reload => tracing::warn!("SIGHUP: nothing can be reloaded yet"),
                Asked::Upgrade => {
                    tracing::warn!("SIGUSR2: the program cannot be replaced while it runs");
                }
            }
        }
    }

    /// Says that the server is ready, and goes on for ever. Fails if the server does not get ready. A call that is dropped
    /// forgets nothing. `not_ready`: what the front writes to when it is ready, until it has.
    async fn keep_running(
        &mut self,
        not_ready: &mut Option<pipe::Receiver>,
        line: &str,
    ) -> Result<Infallible, Failure> {
        if let Some(ready) = not_ready {
            tokio::select! {
                biased;
                read = ready.read_u8() => {
                    read.map_err(Failure::system("the front closed its pipe"))?;
                }
                failure = self.front.failure() => return Err(failure),
                failure = first_of(self.masters.iter_mut().map(Kept::failure)) => return Err(failure),
            }
            *not_ready = None;
            let mut stdout = io::stdout().lock();
            // The server is ready even if standard output is closed.
            let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        }
        Ok(tokio::select! {
            never = self.front.keep() => never,
            never = first_of(self.masters.iter_mut().map(Kept::keep)) => never,
        })
    }

    /// Gives the front a descriptor of the access log's file of now. The front could not open it: the folder may be root's.
    fn reopen_logs(&self) {
        let Some(AccessLog::File(path)) = &self.config.front.access_log else { return };
        match open_log(path) {
            Ok(file) => {
                // A front that does not run opens the file at its start.
                let Some(orders) = self.front.orders() else { return };
                match orders.send(&ToFront::ReopenLog, &[file.as_fd()]) {
                    Ok(()) => tracing::info!("{} was opened again", path.display()),
                    Err(error) => {
                        tracing::error!(%error, "the front cannot be told of the new log");
                    }
                }
            }
            Err(error) => {
                tracing::error!("{}: {error}: lines still go to the old file", path.display());
            }
        }
    }

    /// Lets the front finish its responses, then the workers their scripts, and ends in time whatever they do.
    async fn drain(&mut self) {
        let told = Instant::now();
        let kill_at = told + self.config.kill_timeout();
        // A listener kept open here would take connections that no process accepts; and workers that the master announces
        // after the end of the front must find the socket closed, or they would wait for requests for ever.
        self.front.recipe.close();
        self.front.signal(Signal::TERM);
        self.front.end_by(kill_at).await;
        for master in &self.masters {
            master.signal(Signal::TERM);
        }
        let kill_at = kill_at.max(Instant::now() + SIGNAL_GAP);
        let mut late = Vec::new();
        for master in &mut self.masters {
            if !master.ends_by(kill_at).await {
                // A second signal makes it kill its workers.
                master.signal(Signal::TERM);
                late.push(master);
            }
        }
        for master in late {
            master.end_by(told + self.config.shutdown_timeout).await;
        }
    }

    /// Ends the front at once. It cuts its responses and writes the last lines of the access log.
    async fn cut(&mut self) {
        self.front.recipe.close();
        self.front.signal(Signal::INT);
        self.front.end_by(Instant::now() + CUT_GRACE).await;
    }
}

/// Waits for a signal that ends a server which is ending already.
async fn end_at_once(signals: &mut Signals) {
    while !matches!(signals.next().await, Asked::Drain | Asked::Cut) {}
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
