//! Reloading: the configuration is resolved again; if it can be used, the front takes it over and changed pools get other PHP masters.
//!
//! Until the front has answered, everything that is new is dropped if something fails, and nothing has changed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use sendoff_config::php_ini::{self, Contents};
use sendoff_config::{Accel, AccessLog, Config};
use tokio::time::Instant;

use super::{Supervisor, credentials, first_of, pool_sockets};
use crate::children::Recipe;
use crate::kept::Kept;
use crate::log::open_log;
use crate::orders::{LogTarget, Reply, ToFront};

/// How long the front may take, which waits for the workers of new pools.
const FRONT_TIMEOUT: Duration = Duration::from_secs(90);

/// A PHP master that is started for a changed or new pool.
struct NewMaster {
    master: Kept,
    /// The front's end of its pool socket.
    front: OwnedFd,
}

impl Supervisor {
    /// Serves by the configuration of now. The result is a sentence for the operator.
    pub(super) async fn reload(&mut self) -> Result<String, String> {
        let result = self.try_reload().await;
        self.last_reload = Some((Instant::now(), result.as_ref().err().cloned()));
        result.map_err(|why| format!("not reloaded, nothing has changed: {why}"))
    }

    async fn try_reload(&mut self) -> Result<String, String> {
        if self.not_ready.is_some() {
            return Err("the server is not ready yet".to_owned());
        }
        let (config, warnings) = self.source.resolve().map_err(|failure| failure.to_string())?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        can_change(&self.config, &config)?;
        let keys = credentials(&config)?;
        let php_ini = Contents::read(&php_ini::folder());
        let sources = sources(&self.config, &config, php_ini == self.php_ini);
        let sealed = || config.seal().map_err(|e| format!("cannot store the configuration: {e}"));
        let mut new = Vec::new();
        for number in (0..config.pools.len()).filter(|number| sources[*number].is_none()) {
            let (front, php) = pool_sockets().map_err(|e| format!("cannot make sockets: {e}"))?;
            let recipe = Recipe::php_master(&config, number, sealed()?, php);
            let master = recipe.and_then(Kept::start).map_err(|failure| failure.to_string())?;
            new.push(NewMaster { master, front });
        }
        self.tell_front(&config, &sources, &mut new, [&sealed()?, &keys]).await?;
        let started = new.len();
        let sealed = sealed()?;
        self.take_over(config, &sources, new, [sealed, keys]);
        self.php_ini = php_ini;
        Ok(match started {
            0 => "reloaded".to_owned(),
            1 => "reloaded, with new workers in 1 pool".to_owned(),
            _ => format!("reloaded, with new workers in {started} pools"),
        })
    }

    /// Has the front serve by the configuration, and waits until it does.
    async fn tell_front(
        &mut self,
        config: &Config,
        sources: &[Option<usize>],
        new: &mut [NewMaster],
        sealed: [&OwnedFd; 2],
    ) -> Result<(), String> {
        let (log, file) = match &config.front.access_log {
            same if *same == self.config.front.access_log => (LogTarget::Same, None),
            None => (LogTarget::Nowhere, None),
            Some(AccessLog { to: sendoff_config::LogTarget::File(path), .. }) => {
                let file = open_log(path).map_err(|e| format!("{}: {e}", path.display()))?;
                (LogTarget::File, Some(OwnedFd::from(file)))
            }
            Some(AccessLog { to: sendoff_config::LogTarget::Stdout, .. }) => {
                let stdout = rustix::stdio::stdout().try_clone_to_owned();
                (LogTarget::File, Some(stdout.map_err(|e| format!("standard output: {e}"))?))
            }
        };
        let (reply, pipe) = Reply::new().map_err(|error| format!("cannot make a pipe: {error}"))?;
        let pools: Vec<BorrowedFd<'_>> = new.iter().map(|new| new.front.as_fd()).collect();
        let sealed = sealed.map(AsFd::as_fd);
        let descriptors = std::iter::once(pipe.as_fd()).chain(sealed).chain(pools);
        let descriptors: Vec<_> = descriptors.chain(file.as_ref().map(AsFd::as_fd)).collect();
        let orders = self.front.orders().ok_or("the front is being started again")?;
        orders
            .send(&ToFront::Reload { pools: sources.to_vec(), log }, &descriptors)
            .map_err(|error| format!("the front cannot be told: {error}"))?;
        drop(descriptors);
        drop((pipe, file));
        let masters = new.iter_mut().map(|new| &mut new.master);
        tokio::select! {
            biased;
            answer = reply.receive::<Result<(), String>>(FRONT_TIMEOUT) => {
                answer.map_err(|error| format!("the front does not answer: {error}"))?
            }
            _failure = first_of(masters.map(Kept::failure)) => {
                Err("a PHP master with the new settings does not start; it has said why".to_owned())
            }
            failed = self.keep_running() => match failed {
                Ok(never) => match never {},
                Err(failure) => Err(failure.to_string()),
            },
        }
    }

    /// What is started from now on is started by the new configuration.
    fn take_over(
        &mut self,
        config: Config,
        sources: &[Option<usize>],
        new: Vec<NewMaster>,
        [sealed, keys]: [OwnedFd; 2],
    ) {
        let masters = std::mem::take(&mut self.masters).into_iter();
        let mut before: Vec<_> = masters.zip(self.front.recipe.take_pools()).map(Some).collect();
        let mut new = new.into_iter().map(|NewMaster { master, front }| (master, front));
        let (masters, pools) = sources
            .iter()
            .filter_map(|source| match source {
                Some(number) => before[*number].take(),
                None => new.next(),
            })
            .unzip();
        self.front.recipe.reconfigure(&config, sealed, keys, pools);
        self.masters = masters;
        // The front closes the sockets of these when no request needs them any more. Then they end.
        self.leaving.extend(before.into_iter().flatten().map(|(master, _)| master));
        self.config = config;
    }
}

/// Whether a running server can change from one configuration to the other.
fn can_change(from: &Config, to: &Config) -> Result<(), String> {
    let what = if from.listen != to.listen {
        "the addresses to listen on"
    } else if from.front.threads != to.front.threads {
        "the number of threads"
    } else if from.account != to.account {
        "the user"
    } else {
        return Ok(());
    };
    Err(format!("{what} cannot be changed without a restart"))
}

/// For each pool of `to` the number of the same pool in `from`, whose workers can stay.
fn sources(from: &Config, to: &Config, same_php_ini: bool) -> Vec<Option<usize>> {
    let same = |number: usize| {
        let mut known = (0..from.pools.len()).filter(|_| same_php_ini);
        known.find(|&known| {
            from.pools[known] == to.pools[number] && accel(from, known) == accel(to, number)
        })
    };
    (0..to.pools.len()).map(same).collect()
}

/// What a pool's master is told about the sites that it runs scripts of.
fn accel(config: &Config, pool: usize) -> &[Accel] {
    let site = config.sites.iter().find(|site| site.pool == Some(pool));
    site.map_or(&[], |site| &site.accel)
}
