//! Reloading: resolve the configuration again; if it is usable, the front takes it over, and
//! changed pools get new masters.
//!
//! Everything new is dropped if a step fails before the front has answered, and then nothing has
//! changed.

use std::collections::HashMap;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use sendoff_config::php_ini::Contents;
use sendoff_config::{Config, Listener, LogTarget};
use sendoff_control::ControlAnswer;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::state::{Supervisor, answer, credentials, first_of, pool_sockets};
use crate::children::Recipe;
use crate::failure::Failure;
use crate::listen::{Given, Listeners, listen, tcp};
use crate::log::open_target;
use crate::orders::{KeptItems, Reply, ToFront};
use crate::page_folder;
use crate::supervised::SupervisedChild;
use crate::systemd;

/// Time limit for the front, which waits for the workers of new pools, beside the longest time limit
/// for the start of PHP.
const FRONT_TIMEOUT: Duration = Duration::from_secs(90);

/// A master for a changed or new pool.
struct NewMaster {
    /// The kind of its processes, for messages.
    runs: &'static str,
    master: SupervisedChild,
    /// The front's end of its pool socket.
    front: OwnedFd,
    /// The messages that PHP printed at its start, and the name of the pool.
    said: Option<(File, String)>,
}

/// Maximum number of bytes of PHP's messages in the answer to a reload; the log has all.
const MOST_SAID: usize = 2048;

impl NewMaster {
    /// PHP's messages, each on an indented line.
    fn said(&self) -> String {
        let Some((file, pool)) = &self.said else { return String::new() };
        let mut text = [0; MOST_SAID];
        let len = file.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]);
        text.lines().map(|line| format!("\n    pool {pool}: {line}")).collect()
    }
}

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

/// An empty file in memory, for PHP's messages.
fn said_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("sendoff-said", MemfdFlags::CLOEXEC)?.into())
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

    /// Reads the current configuration, starts its new parts, and sends the order to the front.
    fn begin_reload(&self, new_workers: NewWorkers) -> Result<RunningReload, String> {
        if self.not_ready.is_some() {
            return Err("the server is not ready yet".to_owned());
        }
        let since = Instant::now();
        let (config, warnings) = self.source.resolve().map_err(|failure| failure.to_string())?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        can_change(&self.config, &config)?;
        let keys = credentials(&config)?;
        page_folder::prepare(&config);
        let php_ini = Contents::of(&config.pools);
        let may_stay = new_workers == NewWorkers::OfChangedPools && php_ini == self.php_ini;
        let sources = sources(&self.config, &config, may_stay);
        let sealed = config.seal().map_err(|e| format!("cannot store the configuration: {e}"))?;
        let copied = || sealed.try_clone().map_err(|e| format!("cannot copy a descriptor: {e}"));
        let mut new = Vec::new();
        let is_new = |number: &usize| sources[*number].is_none();
        let numbers: Vec<_> = (0..config.pools.len()).filter(is_new).collect();
        let groups = self.groups.of(numbers.iter().map(|number| &config.pools[*number]));
        for (number, group) in numbers.into_iter().zip(groups) {
            let (front, php) = pool_sockets().map_err(|e| format!("cannot make sockets: {e}"))?;
            let pool = &config.pools[number];
            let recipe = Recipe::master(&config, number, copied()?, php, group);
            let mut recipe = recipe.map_err(|failure| failure.to_string())?;
            let (mut runs, mut said) = ("program's", None);
            if pool.program.is_none() {
                let file = said_file().map_err(|e| format!("cannot make a file: {e}"))?;
                let theirs = file.try_clone().map_err(|e| format!("cannot copy a file: {e}"))?;
                recipe = recipe.telling(theirs.into());
                (runs, said) = ("PHP", Some((file, pool.name.clone())));
            }
            let mut master =
                SupervisedChild::start(recipe).map_err(|failure| failure.to_string())?;
            master.recipe.forget_said();
            new.push(NewMaster { master, front, runs, said });
        }
        let listeners = listener_sources(&self.config, &config);
        let wanted = config.listen.iter().zip(&listeners).filter(|(_, source)| source.is_none());
        let wanted: Vec<_> = wanted.map(|(listener, _)| listener.clone()).collect();
        let new_listeners = listen(&wanted, config.front.threads, &mut Given::default())
            .map_err(|failure| failure.to_string())?;
        let (logs, files) = self.logs(&config)?;
        let kept = KeptItems { pools: sources.clone(), logs, listeners: listeners.clone() };
        let pools = new.iter().map(|new| new.front.as_fd());
        let logs = files.iter().map(AsFd::as_fd);
        let number = 0..wanted.len();
        let of_loops = &new_listeners.of_loops;
        let sockets = number.flat_map(|n| of_loops.iter().map(move |of_loop| of_loop[n].as_fd()));
        let reply = self.tell_front(kept, [&sealed, &keys], pools.chain(logs).chain(sockets))?;
        let sealed = [sealed, keys];
        let php_start = config.pools.iter().map(|pool| pool.start_timeout).max();
        let limit = php_start.unwrap_or_default().saturating_add(FRONT_TIMEOUT);
        let answer = Box::pin(reply.receive(limit));
        let (clients, reopen) = (Vec::new(), false);
        Ok(RunningReload {
            since,
            front: self.front.pid(),
            config,
            sources,
            new,
            listeners,
            new_listeners,
            sealed,
            php_ini,
            answer,
            clients,
            reopen,
        })
    }

    /// For each log the number of the same log now, and the files of the new ones.
    fn logs(&self, config: &Config) -> Result<(Vec<Option<usize>>, Vec<File>), String> {
        let known = self.config.log_targets().into_iter().enumerate();
        let known: HashMap<_, _> = known.map(|(number, target)| (target, number)).collect();
        let (mut sources, mut files) = (Vec::new(), Vec::new());
        for target in config.log_targets() {
            let source = known.get(target).copied();
            if source.is_none() {
                let file = open_target(target).map_err(|error| match target {
                    LogTarget::File(path) => format!("{}: {error}", path.display()),
                    LogTarget::Stdout => format!("standard output: {error}"),
                });
                files.push(file?);
            }
            sources.push(source);
        }
        Ok((sources, files))
    }

    /// Orders the front to serve by the configuration.
    fn tell_front<'d>(
        &self,
        kept: KeptItems,
        sealed: [&'d OwnedFd; 2],
        new: impl Iterator<Item = BorrowedFd<'d>>,
    ) -> Result<Reply, String> {
        let (reply, pipe) = Reply::new().map_err(|error| format!("cannot make a pipe: {error}"))?;
        let mut descriptors = vec![pipe.as_fd()];
        sealed.into_iter().for_each(|fd| descriptors.push(fd.as_fd()));
        new.for_each(|fd| descriptors.push(fd));
        let orders = self.front.orders().ok_or("the front is being started again")?;
        orders
            .send(&ToFront::Reload(kept), &descriptors)
            .map_err(|error| format!("the front cannot be told: {error}"))?;
        Ok(reply)
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
            before.into_iter().zip(of_loops).map(|(before, new)| merged(sources, before, new));
        let listeners = listeners.collect();
        self.addresses = merged(sources, std::mem::take(&mut self.addresses), addresses);
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
        let mut before: Vec<_> = masters.zip(self.front.recipe.take_pools()).map(Some).collect();
        let mut new = new.into_iter().map(|NewMaster { master, front, .. }| (master, front));
        let (masters, pools) = sources
            .iter()
            .filter_map(|source| match source {
                Some(number) => before[*number].take(),
                None => new.next(),
            })
            .unzip();
        self.front.recipe.reconfigure(&config, sealed, listeners, pools);
        self.masters = masters;
        // The front closes the pool sockets of these masters when no request needs them any more;
        // then the masters end.
        let left = before.into_iter().flatten().map(|(master, _)| master);
        self.leaving.extend(left.filter(SupervisedChild::is_running));
        self.config = config;
    }
}

/// Returns an error if a running server cannot change from one configuration to the other.
fn can_change(from: &Config, to: &Config) -> Result<(), String> {
    let what = if from.front.threads != to.front.threads {
        "the number of threads"
    } else if from.account != to.account {
        "the user"
    } else {
        return Ok(());
    };
    Err(format!("{what} cannot be changed without a restart"))
}

/// For each listener of `to`, the number of the listener in `from` with the same address, whose
/// sockets can stay.
fn listener_sources(from: &Config, to: &Config) -> Vec<Option<usize>> {
    let mut left: Vec<_> = from.listen.iter().enumerate().collect();
    let same = |listener: &Listener| {
        let at = left.iter().position(|(_, known)| known.address == listener.address)?;
        Some(left.swap_remove(at).0)
    };
    to.listen.iter().map(same).collect()
}

/// Merges kept and new items, in the order of `sources`.
fn merged<T>(sources: &[Option<usize>], before: Vec<T>, new: Vec<T>) -> Vec<T> {
    let mut before: Vec<_> = before.into_iter().map(Some).collect();
    let mut new = new.into_iter();
    let one = |source: &Option<usize>| match source {
        Some(number) => before.get_mut(*number).and_then(Option::take),
        None => new.next(),
    };
    sources.iter().filter_map(one).collect()
}

/// For each pool of `to`, the number of the same pool in `from`, whose workers can stay. Workers
/// that have booted an application are replaced, because its files may have changed.
fn sources(from: &Config, to: &Config, may_stay: bool) -> Vec<Option<usize>> {
    let same = |number: usize| {
        let mut known = (0..from.pools.len()).filter(|_| may_stay);
        known.find(|&known| {
            from.pools[known] == to.pools[number] && to.pools[number].worker.is_none()
        })
    };
    (0..to.pools.len()).map(same).collect()
}
