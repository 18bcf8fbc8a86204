//! The parent process: opens listeners, keeps the front and the masters of pools running, and ends
//! them.

mod certificates;
mod ending;
mod first_children;
mod reload;
mod start;
mod state;
mod successor;
mod watchdog;

use std::os::fd::RawFd;
use std::rc::Rc;

use sendoff_acme::CertificateReport;
use sendoff_config::php_ini::Contents;
use sendoff_control::{Command, Commands, ControlAnswer};
use sendoff_server::front::kernel_has_tls;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::listen::listen;
use crate::page_folder;
use crate::rights;
use crate::signals::{SignalRequest, Signals};
use crate::source::Source;
use crate::supervised::SupervisedChild;
use crate::systemd;
use crate::upgrade::{self, Predecessor};
use certificates::Certificates;
use first_children::FirstChildren;
use reload::{NewWorkers, Reloads};
use start::Start;
use state::{Supervisor, answer, credentials};
use successor::Upgrades;
use watchdog::Watchdog;

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
    let mut purges = purges.unwrap_or_default();
    purges.retain(&config);
    let children = FirstChildren::of(&config, listeners, keys, &mut purges, predecessor.is_some())?;
    let FirstChildren { front, masters, groups, ready, addresses, files, door, line } = children;
    runtime.block_on(async {
        let front = SupervisedChild::start(front)?;
        let masters = masters.into_iter().map(SupervisedChild::start).collect::<Result<_, _>>()?;
        let start = Start::new(ready);
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
                        self.answer(command, reply, reloads.since(), &certificates.reports);
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

    /// Answers a command that changes nothing about the supervisor's children.
    fn answer(
        &self,
        command: Command,
        reply: oneshot::Sender<ControlAnswer>,
        reloading: Option<Instant>,
        certificates: &[CertificateReport],
    ) {
        match command {
            Command::Purge(url) => drop(tokio::spawn(self.purge(url.as_deref(), reply))),
            Command::Warm => drop(tokio::spawn(self.warm(reply))),
            _ => drop(tokio::spawn(self.report(reloading, certificates.to_vec(), reply))),
        }
    }
}
