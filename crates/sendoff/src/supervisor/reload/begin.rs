//! The beginning of a reload: new parts are started, and the front is told.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use sendoff_config::php_ini::Contents;
use sendoff_config::{Config, LogTarget};
use tokio::time::Instant;

use super::change::{can_change, kept_listeners, kept_pools};
use super::{NewWorkers, RunningReload};
use crate::children::Recipe;
use crate::fragment_purges::Keeper;
use crate::listen::{Given, listen};
use crate::log::open_target;
use crate::orders::{KeptItems, Reply, ToFront};
use crate::page_folder;
use crate::supervised::SupervisedChild;
use crate::supervisor::state::{Supervisor, credentials, pool_sockets};

/// Time limit for the front, which waits for the workers of new pools, beside the longest time limit
/// for the start of PHP.
const FRONT_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum number of bytes of PHP's messages in the answer to a reload; the log has all.
const MOST_SAID: usize = 2048;

/// A master for a changed or new pool.
pub(super) struct NewMaster {
    /// The kind of its processes, for messages.
    pub(super) runs: &'static str,
    pub(super) master: SupervisedChild,
    /// The front's end of its pool socket.
    pub(super) front: OwnedFd,
    /// The messages that PHP printed at its start, and the name of the pool.
    said: Option<(File, String)>,
}

impl NewMaster {
    /// PHP's messages, each on an indented line.
    pub(super) fn said(&self) -> String {
        let Some((file, pool)) = &self.said else { return String::new() };
        let mut text = [0; MOST_SAID];
        let len = file.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..len]);
        text.lines().map(|line| format!("\n    pool {pool}: {line}")).collect()
    }
}

impl Supervisor {
    /// Reads the current configuration, starts its new parts, and sends the order to the front.
    pub(super) fn begin_reload(
        &mut self,
        new_workers: NewWorkers,
    ) -> Result<RunningReload, String> {
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
        let sources = kept_pools(&self.config, &config, may_stay);
        let sealed = config.seal().map_err(|e| format!("cannot store the configuration: {e}"))?;
        let new = self.new_masters(&config, &sources, &sealed)?;
        let listeners = kept_listeners(&self.config, &config);
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

    /// Starts the masters of the pools that are not kept.
    fn new_masters(
        &mut self,
        config: &Config,
        sources: &[Option<usize>],
        sealed: &OwnedFd,
    ) -> Result<Vec<NewMaster>, String> {
        let copied = || sealed.try_clone().map_err(|e| format!("cannot copy a descriptor: {e}"));
        let mut new = Vec::new();
        let is_new = |number: &usize| sources[*number].is_none();
        let numbers: Vec<_> = (0..config.pools.len()).filter(is_new).collect();
        let groups = self.groups.of(numbers.iter().map(|number| &config.pools[*number]));
        for (number, group) in numbers.into_iter().zip(groups) {
            let (front, php) = pool_sockets().map_err(|e| format!("cannot make sockets: {e}"))?;
            let pool = &config.pools[number];
            let recipe = Recipe::master(config, number, copied()?, php, group);
            let recipe = recipe.map_err(|failure| failure.to_string())?;
            let mut recipe = recipe.purging(self.purges.of(Keeper::of_pool(pool)));
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
        Ok(new)
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
}

/// An empty file in memory, for PHP's messages.
fn said_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("sendoff-said", MemfdFlags::CLOEXEC)?.into())
}
