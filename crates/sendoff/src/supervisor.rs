//! The parent process: opens listeners, keeps the front and the masters of pools running, and ends
//! them.

mod certificates;
mod reload;
mod start;
mod state;
mod successor;
mod watchdog;

use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

use sendoff_config::php_ini::Contents;
use sendoff_control::{Command, Commands, ControlAnswer};
use sendoff_server::front::kernel_has_tls;
use sendoff_sys::master::make_room_for;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::children::Recipe;
use crate::explain::Door;
use crate::failure::Failure;
use crate::fragment_purges::Keeper;
use crate::groups::ControlGroups;
use crate::listen::{Listeners, listen, tcp};
use crate::orders::ToFront;
use crate::page_folder;
use crate::rights;
use crate::signals::{SignalRequest, Signals};
use crate::source::Source;
use crate::supervised::SupervisedChild;
use crate::systemd;
use crate::upgrade::{self, Predecessor};
use certificates::Certificates;
use reload::{NewWorkers, Reloads};
use start::Start;
use state::{Supervisor, answer, credentials, pool_sockets};
use successor::Upgrades;
use watchdog::Watchdog;

/// Descriptors that the supervisor needs without pools: listeners, pipes, sockets.
const DESCRIPTORS: usize = 256;
/// Descriptors per pool: both ends of the pool socket, the configuration, the counters of purges
/// twice, and two more to wait for calls or for a program's listening socket.
const DESCRIPTORS_PER_POOL: usize = 7;

/// Serves until a signal ends the server. `take_over`: the descriptor of the socket to the server
/// that this one replaces.
///
/// # Errors
/// The server cannot start.
pub(crate) fn run(source: Source, take_over: Option<RawFd>) -> Result<(), Failure> {
    // Before this process opens any.
    sendoff_sys::process::keep_inherited_descriptors();
    let predecessor = take_over.map(Predecessor::new).transpose()?.map(Rc::new);
    let served = serve_after(source, predecessor.clone());
    if let (Some(predecessor), Err(failure)) = (predecessor, &served) {
        predecessor.failed(failure);
    }
    served
}

fn serve_after(source: Source, predecessor: Option<Rc<Predecessor>>) -> Result<(), Failure> {
    rights::hide()?;
    // This comes first: the predecessor's messages must be read before this process reports why it
    // cannot serve.
    let taken = predecessor.as_ref().map(|predecessor| predecessor.possessions()).transpose()?;
    let (taken, purges) = taken.unzip();
    let (config, warnings) = source.resolve()?;
    crate::log::start(&config.log);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let keys = credentials(&config).map_err(Failure::Input)?;
    page_folder::prepare(&config);
    let php_ini = Contents::of(&config.pools);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start an event loop"))?;
    // From here on a signal must not end the process: it has files to remove.
    let signals = runtime.block_on(async { Signals::new() });
    let mut signals = signals.map_err(Failure::system("cannot handle signals"))?;
    let mut given = taken.unwrap_or_else(systemd::listeners);
    let listeners = listen(&config.listen, config.front.threads, &mut given)?;
    for address in given.left() {
        tracing::warn!("no site listens on {address}, which was open already: it is closed");
    }
    drop(given);
    if config.listen.iter().any(|listener| listener.tls) {
        // The kernel loads its TLS module only for root, and the front does not run as root.
        kernel_has_tls();
    }
    let (ready_in, ready_out) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(io::Error::from)
        .map_err(Failure::system("cannot make a pipe"))?;
    let (door, secret) = Door::open(&tcp(&listeners.addresses)).unzip();
    let urls = listeners.urls();
    let Listeners { of_loops, addresses, files, .. } = listeners;
    let sealed = config
        .seal()
        .map_err(|error| Failure::System(format!("cannot store the configuration: {error}")))?;
    let sealed = || sealed.try_clone().map_err(Failure::system("cannot copy a descriptor"));
    make_room_for((DESCRIPTORS + DESCRIPTORS_PER_POOL * config.pools.len()) as u64);
    let (mut masters, mut pools) = (Vec::new(), Vec::new());
    let mut purges = purges.unwrap_or_default();
    purges.retain(&config);
    let groups = ControlGroups::new(predecessor.is_some());
    for (number, group) in groups.of(config.pools.iter()).into_iter().enumerate() {
        let (front, php) = pool_sockets().map_err(Failure::system("cannot make sockets"))?;
        let counters = purges.of(Keeper::of_pool(&config.pools[number]));
        masters.push(Recipe::master(&config, number, sealed()?, php, group)?.purging(counters));
        pools.push(front);
    }
    let front = Recipe::front(&config, sealed()?, keys, of_loops, pools, ready_out, secret)?;
    let front = front.purging(purges.of(Keeper::Scripts));
    let roots: Vec<_> = config.sites.iter().map(|site| site.root.display().to_string()).collect();
    let line = format!("sendoff: serving {} at {}", roots.join(", "), urls);
    runtime.block_on(async {
        let front = SupervisedChild::start(front)?;
        let masters = masters.into_iter().map(SupervisedChild::start).collect::<Result<_, _>>()?;
        let start = Start::new(ready_in);
        let not_ready = Some(start.map_err(Failure::system("cannot read a pipe"))?);
        let (started, last_reload) = (Instant::now(), None);
        let (opens_commands, told) = oneshot::channel();
        let mut opens_commands = Some(opens_commands);
        if predecessor.is_none() {
            // Commands are for the server that serves, so a successor takes none until it does.
            opens_commands.take().map(|tell| tell.send(()));
        }
        let supervisor = Supervisor {
            config,
            addresses,
            files,
            door,
            line,
            front,
            masters,
            groups,
            purges,
            leaving: Vec::new(),
            source,
            php_ini,
            not_ready,
            predecessor,
            opens_commands,
            started,
            last_reload,
        };
        supervisor.run(&mut signals, &mut Commands::open_when(told)).await
    })
}

impl Supervisor {
    async fn run(mut self, signals: &mut Signals, commands: &mut Commands) -> Result<(), Failure> {
        let served = self.serve(signals, commands).await;
        // The grace time is over. Workers die with their master.
        self.front.kill().await;
        for master in self.masters.iter_mut().chain(&mut self.leaving) {
            master.kill().await;
        }
        served
    }

    /// Serves until a signal or a command ends the server. Fails if the server does not become
    /// ready.
    async fn serve(
        &mut self,
        signals: &mut Signals,
        commands: &mut Commands,
    ) -> Result<(), Failure> {
        let mut reloads = Reloads::default();
        let mut upgrades = Upgrades::default();
        let mut watchdog = Watchdog::new();
        let mut certificates = Certificates::start(&self.config)?;
        loop {
            let (asked, reply) = tokio::select! {
                failed = self.keep_running() => match failed? {},
                asked = signals.next() => (asked, None),
                (command, reply) = commands.next() => match SignalRequest::of(&command) {
                    Some(asked) => (asked, Some(reply)),
                    None => {
                        match command {
                            Command::Purge(url) => {
                                tokio::spawn(self.purge(url.as_deref(), reply));
                            }
                            Command::Warm => {
                                tokio::spawn(self.warm(reply));
                            }
                            _ => {
                                let certificates = certificates.reports.clone();
                                tokio::spawn(self.report(reloads.since(), certificates, reply));
                            }
                        }
                        continue;
                    }
                },
                () = watchdog.tick() => {
                    tokio::spawn(self.report_to_systemd());
                    continue;
                }
                taken = upgrades.decided() => {
                    if upgrades.finish(taken, self) {
                        *commands = Commands::closed();
                        drop((reloads, certificates));
                        self.end(SignalRequest::Drain, signals, commands).await;
                        return Ok(());
                    }
                    continue;
                }
                decided = reloads.decided() => {
                    reloads.finish(decided, self);
                    certificates.follow(&self.config);
                    continue;
                }
                // No certificates are passed to the front during a reload, which brings its own.
                said = certificates.said(), if reloads.since().is_none() => {
                    certificates.hear(said, &mut self.front);
                    continue;
                }
            };
            let done = match asked {
                SignalRequest::Drain | SignalRequest::Cut => {
                    // New masters of a running reload are dropped. The connection of the command's
                    // client is closed.
                    drop((reloads, upgrades, certificates));
                    systemd::stopping();
                    let asked = self.leave(asked, signals, commands).await;
                    self.end(asked, signals, commands).await;
                    return Ok(());
                }
                SignalRequest::Reopen => {
                    reloads.reopen();
                    self.reopen_logs()
                }
                SignalRequest::Reload => {
                    reloads.ask(NewWorkers::OfChangedPools, reply, self);
                    continue;
                }
                SignalRequest::Renew if !upgrade::is_another_there() => {
                    reloads.ask(NewWorkers::OfAllPools, reply, self);
                    continue;
                }
                SignalRequest::Upgrade | SignalRequest::Renew => {
                    upgrades.ask(reply, self, reloads.since().is_some());
                    continue;
                }
            };
            answer(reply, done);
        }
    }

    /// Asks load balancers to stop sending requests, if the configuration grants time for that.
    /// Returns the way to end the server.
    async fn leave(
        &mut self,
        asked: SignalRequest,
        signals: &mut Signals,
        commands: &mut Commands,
    ) -> SignalRequest {
        let delay = self.config.drain_delay;
        if asked == SignalRequest::Cut || delay.is_zero() {
            return asked;
        }
        if let Some(orders) = self.front.orders()
            && let Err(error) = orders.send(&ToFront::Leave, &[])
        {
            tracing::warn!(%error, "load balancers are not told of the end: the front takes no order");
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => asked,
            () = end_at_once(signals, commands) => SignalRequest::Cut,
            _failed = self.keep_running() => asked,
        }
    }

    /// Ends the front and, if there is time, the PHP masters.
    async fn end(&mut self, asked: SignalRequest, signals: &mut Signals, commands: &mut Commands) {
        if asked == SignalRequest::Drain {
            tokio::select! {
                () = self.drain() => return,
                () = end_at_once(signals, commands) => {}
            }
        }
        self.cut().await;
    }
}

/// Waits for a signal or a command that ends the draining server at once.
async fn end_at_once(signals: &mut Signals, commands: &mut Commands) {
    loop {
        let asked = tokio::select! {
            asked = signals.next() => Some(asked),
            (command, reply) = commands.next() => {
                let asked = SignalRequest::of(&command);
                if !matches!(asked, Some(SignalRequest::Drain | SignalRequest::Cut)) {
                    let _ = reply.send(ControlAnswer::Failed("the server is ending".to_owned()));
                }
                asked
            }
        };
        if matches!(asked, Some(SignalRequest::Drain | SignalRequest::Cut)) {
            return;
        }
    }
}
