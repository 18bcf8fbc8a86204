//! Reloading: resolve the configuration again; if it is usable, the front takes it over, and
//! changed pools get new masters.
//!
//! Everything new is dropped if a step fails before the front has answered, and then nothing has
//! changed, except that new folders and log files stay.

mod begin;
mod change;

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use sendoff_config::Config;
use sendoff_config::php_ini::Contents;
use sendoff_control::ControlAnswer;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::begin::NewMaster;
use self::change::merged;
use super::state::{Supervisor, answer, first_of};
use crate::failure::Failure;
use crate::listen::{Listeners, tcp};
use crate::supervised::SupervisedChild;
use crate::systemd;

/// A running reload: the front has the order.
struct RunningReload {
    since: Instant,
    /// The front that has the order.
    front: Option<u32>,
    config: Config,
    /// For each pool of the new configuration, the number of the same pool in the current
    /// configuration; `None` if the pool is new.
    sources: Vec<Option<usize>>,
    /// The masters of the new pools, in the order of the configuration.
    new: Vec<NewMaster>,
    /// The same as `sources`, for listeners.
    listeners: Vec<Option<usize>>,
    /// The new listeners, in the order of the configuration.
    new_listeners: Listeners,
    /// The configuration and the credentials for the next front.
    sealed: [OwnedFd; 2],
    php_ini: Contents,
    /// The front's answer.
    answer: FrontAnswer,
    /// Clients waiting for the end of the reload.
    clients: Vec<Client>,
    /// True if the logs were reopened since the reload began: the front may have files that were
    /// opened before.
    reopen: bool,
}

/// The answer that the front will give.
type FrontAnswer = Pin<Box<dyn Future<Output = io::Result<Result<(), String>>>>>;

/// The channel to the client that waits for the result of its command.
type Client = oneshot::Sender<ControlAnswer>;

/// The pools that get new workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NewWorkers {
    OfChangedPools,
    OfAllPools,
}

/// The running reload, and the next one. All requests during a reload lead to one further reload,
/// which reads the configuration after the last of them.
#[derive(Default)]
pub(super) struct Reloads {
    running: Option<RunningReload>,
    /// The clients of the next reload; `None` if none was requested.
    next: Option<(NewWorkers, Vec<Client>)>,
}

impl Reloads {
    /// The start of the running reload.
    pub(super) fn since(&self) -> Option<Instant> {
        self.running.as_ref().map(|running| running.since)
    }

    /// Starts a reload, or schedules one after the running reload.
    pub(super) fn ask(
        &mut self,
        new: NewWorkers,
        client: Option<Client>,
        supervisor: &mut Supervisor,
    ) {
        if self.running.is_some() {
            let (next, clients) = self.next.get_or_insert((new, Vec::new()));
            *next = (*next).max(new);
            clients.extend(client);
        } else {
            self.start(new, Vec::from_iter(client), supervisor);
        }
    }

    fn start(&mut self, new: NewWorkers, clients: Vec<Client>, supervisor: &mut Supervisor) {
        systemd::reloading();
        match supervisor.begin_reload(new) {
            Ok(running) => self.running = Some(RunningReload { clients, ..running }),
            Err(why) => supervisor.reloaded(Err(why), clients),
        }
    }

    /// Notes that the logs are being reopened.
    pub(super) fn reopen(&mut self) {
        if let Some(running) = &mut self.running {
            running.reopen = true;
        }
    }

    /// Waits until the result of the reload is known; forever if none is running. Cancel safe.
    pub(super) async fn decided(&mut self) -> Result<(), String> {
        let Some(RunningReload { answer, new, .. }) = &mut self.running else {
            return pending().await;
        };
        let failures = new.iter_mut().map(|NewMaster { master, runs, .. }| async move {
            match master.failure().await {
                Failure::Said(_) => {
                    format!("a {runs} master with the new settings does not start; it has said why")
                }
                failure => failure.to_string(),
            }
        });
        tokio::select! {
            biased;
            answer = answer => {
                answer.map_err(|error| format!("the front does not answer: {error}"))?
            }
            why = first_of(failures) => Err(why),
        }
    }

    /// Ends the running reload, and starts the next one.
    pub(super) fn finish(&mut self, decided: Result<(), String>, supervisor: &mut Supervisor) {
        if let Some(running) = self.running.take() {
            running.finish(decided, supervisor);
        }
        if let Some((new, clients)) = self.next.take() {
            self.start(new, clients, supervisor);
        }
    }
}

impl RunningReload {
    fn finish(self, decided: Result<(), String>, supervisor: &mut Supervisor) {
        let Self { config, sources, new, sealed, php_ini, clients, reopen, .. } = self;
        let Self { listeners, new_listeners, .. } = self;
        let started = new.len();
        let said: String = new.iter().map(NewMaster::said).collect();
        // The order may be lost with its front: a front that was restarted since then has the old
        // configuration, and a front that starts later gets the new one.
        let is_another = supervisor.front.pid().is_some_and(|pid| Some(pid) != self.front);
        let decided = match decided {
            Ok(()) if is_another => Err("the front was started again meanwhile".to_owned()),
            decided => decided,
        };
        let done = decided.map(|()| {
            let listeners = supervisor.take_over_listeners(&config, &listeners, new_listeners);
            supervisor.take_over(config, &sources, new, listeners, sealed);
            supervisor.php_ini = php_ini;
            match started {
                0 => "reloaded".to_owned(),
                1 => format!("reloaded, with new workers in 1 pool{said}"),
                _ => format!("reloaded, with new workers in {started} pools{said}"),
            }
        });
        supervisor.reloaded(done, clients);
        if reopen {
            answer([], supervisor.reopen_logs());
        }
    }
}

impl Supervisor {
    /// Records the end of a reload, and answers its clients.
    fn reloaded(&mut self, done: Result<String, String>, clients: Vec<Client>) {
        self.last_reload = Some((Instant::now(), done.as_ref().err().cloned()));
        let done = done.map_err(|why| format!("not reloaded, nothing has changed: {why}"));
        systemd::ready(&self.line);
        answer(clients, done);
    }

    /// Arranges the listeners for the next front, and closes those that the configuration no longer
    /// has.
    fn take_over_listeners(
        &mut self,
        config: &Config,
        sources: &[Option<usize>],
        new: Listeners,
    ) -> Vec<Vec<OwnedFd>> {
        let Listeners { of_loops, addresses, files, .. } = new;
        let before = self.front.recipe.take_listeners();
        let listeners =
            before.into_iter().zip(of_loops).map(|(before, new)| merged(sources, before, new).0);
        let listeners = listeners.collect();
        self.addresses = merged(sources, std::mem::take(&mut self.addresses), addresses).0;
        self.files.extend(files);
        self.files
            .retain(|file| config.listen.iter().any(|listener| file.is_of(&listener.address)));
        if let Some(door) = &mut self.door {
            door.moved(&tcp(&self.addresses));
        }
        listeners
    }

    /// Makes this configuration the one for all processes that start from now on.
    fn take_over(
        &mut self,
        config: Config,
        sources: &[Option<usize>],
        new: Vec<NewMaster>,
        listeners: Vec<Vec<OwnedFd>>,
        sealed: [OwnedFd; 2],
    ) {
        let masters = std::mem::take(&mut self.masters).into_iter();
        let before = masters.zip(self.front.recipe.take_pools()).collect();
        let new = new.into_iter().map(|NewMaster { master, front, .. }| (master, front)).collect();
        let (all, left) = merged(sources, before, new);
        let (masters, pools) = all.into_iter().unzip();
        self.front.recipe.reconfigure(&config, sealed, listeners, pools);
        self.masters = masters;
        // The front closes the pool sockets of these masters when no request needs them any more;
        // then the masters end.
        let left = left.into_iter().map(|(master, _)| master);
        self.leaving.extend(left.filter(SupervisedChild::is_running));
        self.purges.retain(&config);
        self.config = config;
    }
}
