//! All pools: the pool that a site or an application address names, and the pools that sites use.

use std::path::PathBuf;
use std::time::Duration;

use sendoff_config::{Account, Address, Bounds, Delivery, Handler, PoolConfig, Site, Workers};
use sendoff_setting_values::{At, Free, Place, similar};

use super::account::{group, with_group};
use super::context::Context;
use super::pool::pool;
use super::upstream::{UpstreamProtocol, Upstreams};
use crate::keys::{Pool, Top};

/// The pools that the configuration describes.
#[derive(Debug)]
pub(crate) struct Pools {
    all: Vec<ResolvedPool>,
    /// The number of the first pool of PHP workers.
    first_php: usize,
    /// The other named targets of application addresses.
    upstreams: Upstreams,
}

/// A pool, and what is known of it until its configuration is complete.
#[derive(Debug)]
struct ResolvedPool {
    config: PoolConfig,
    place: Place,
    /// The group that it names, with the place of the name.
    group: Option<(u32, Place)>,
    /// True if its section has an unreadable value.
    is_broken: bool,
    /// True if a site or a route refers to it.
    is_named: bool,
    /// Idle timeout of its workers, if their number varies.
    idle: Duration,
    /// The number of the pool of the site's other scripts, beside a pool with a worker script.
    twin: Option<usize>,
}

impl Pools {
    /// Resolves the sections. If no section is for PHP workers, a pool with the defaults is added.
    pub(crate) fn resolve(top: &Top, context: &mut Context<'_>) -> Self {
        let mut all: Vec<ResolvedPool> = Vec::new();
        for section in &top.pool.value.0 {
            let known = all.iter().map(|pool| (pool.config.name.as_str(), pool.place));
            let place = context.own_name("pool", &section.name, section.place, known);
            all.push(ResolvedPool::of(section, place, context));
        }
        let first_php = all.iter().position(ResolvedPool::runs_php).unwrap_or_else(|| {
            let usual = Pool::empty(Place::Default);
            all.push(ResolvedPool::of(&usual, Place::Default, context));
            all.len() - 1
        });
        let upstreams = Upstreams::resolve(top, context);
        Self { all, first_php, upstreams }
    }

    /// The pool of a site's scripts and, if the named pool (without a name, the first) has a worker
    /// script, that pool.
    pub(crate) fn of_site(
        &mut self,
        name: Option<&At<Free>>,
        context: &mut Context<'_>,
    ) -> (Option<usize>, Option<(usize, PathBuf)>) {
        let Some(number) = self.number(name, context) else { return (None, None) };
        let worker = self.all[number].config.worker.as_ref().map(|worker| worker.file.clone());
        match worker {
            Some(file) => (Some(self.twin(number)), Some((number, file))),
            None => (Some(number), None),
        }
    }

    /// The pool that runs the other scripts of sites whose pool has a worker script. It has the
    /// same settings, and no workers while no request comes.
    fn twin(&mut self, number: usize) -> usize {
        let of = &self.all[number];
        if let Some(twin) = of.twin {
            return twin;
        }
        let mut name = format!("{}-scripts", of.config.name);
        while self.all.iter().any(|known| known.config.name == name) {
            name.push('\'');
        }
        let (max, idle) = (of.config.most_workers().max(1), of.idle);
        let config = PoolConfig {
            name,
            worker: None,
            workers: Workers::Auto(Bounds { min: 0, max, idle }),
            status_path: None,
            ping_path: None,
            ..of.config.clone()
        };
        let (group, is_broken) = (of.group, of.is_broken);
        let place = Place::Default;
        let twin = self.all.len();
        self.all[number].twin = Some(twin);
        self.all.push(ResolvedPool {
            config,
            place,
            group,
            is_broken,
            is_named: true,
            idle,
            twin: None,
        });
        twin
    }

    /// The number of the pool of PHP workers with a name; without a name, the first.
    pub(crate) fn number(
        &mut self,
        name: Option<&At<Free>>,
        context: &mut Context<'_>,
    ) -> Option<usize> {
        let Some(At { value: Free(name), place }) = name else {
            self.all[self.first_php].is_named = true;
            return Some(self.first_php);
        };
        let number = self.find(name, *place, context)?;
        let found = &self.all[number];
        if !found.runs_php() {
            let says = format!("the pool \"{name}\" runs no PHP");
            context.problems.error(*place, says).other(found.place, "it has a command").help(
                format!(
                    "fastcgi = {{ \"/\" = \"pool:{name}\" }} gives its program the site's requests"
                ),
            );
            return None;
        }
        Some(number)
    }

    /// Checks that the address of an application names an existing pool with a program, or an
    /// existing upstream.
    pub(crate) fn program(&mut self, address: &Address, place: Place, context: &mut Context<'_>) {
        let name = match address {
            Address::Pool(name) => name,
            Address::Upstream(name) => {
                return self.upstreams.exists(name, UpstreamProtocol::Other, place, context);
            }
            Address::Unix(_) | Address::Tcp(_) => return,
        };
        let Some(number) = self.find(name, place, context) else { return };
        let found = &self.all[number];
        // The unreadable value may be the command.
        if found.runs_php() && !found.is_broken {
            context
                .problems
                .error(place, format!("the pool \"{name}\" has no command"))
                .other(found.place, "its workers run PHP")
                .help(format!(
                    "write php = true and pool = \"{name}\", or give the pool a command"
                ));
        }
    }

    /// The number of the pool with a name, which counts as used from then on.
    fn find(&mut self, name: &str, place: Place, context: &mut Context<'_>) -> Option<usize> {
        let found = self.all.iter().position(|known| known.config.name == *name);
        if let Some(number) = found {
            self.all[number].is_named = true;
            return found;
        }
        let problem = context.problems.error(place, format!("there is no pool \"{name}\""));
        let listed = || self.all.iter().filter(|pool| pool.place != Place::Default);
        let names = || listed().map(|pool| pool.config.name.as_str());
        match similar(name, names()) {
            Some(similar) => problem.help(format!("did you mean \"{similar}\"?")),
            None if listed().next().is_none() => problem
                .help(format!("a pool begins with [[pool]] and has a name: name = \"{name}\"")),
            None => problem.help(format!(
                "the pools of this configuration are {}",
                names().collect::<Vec<_>>().join(", ")
            )),
        };
        None
    }

    /// True if FastCGI applications of a site with this pool may open links and hand over files on
    /// them.
    pub(crate) fn allows_channel(&self, number: usize, delivery: Delivery) -> bool {
        let snapshot = self.all.get(number).map(|pool| pool.config.snapshot);
        delivery.accepts_files() && snapshot == Some(sendoff_config::Snapshot::Lease)
    }

    /// Checks that an upstream with this name exists.
    pub(crate) fn upstream(
        &mut self,
        name: &str,
        protocol: UpstreamProtocol,
        place: Place,
        context: &mut Context<'_>,
    ) {
        self.upstreams.exists(name, protocol, place, context);
    }

    /// The upstreams.
    pub(crate) fn upstreams(&mut self) -> Upstreams {
        std::mem::take(&mut self.upstreams)
    }

    /// The pools that sites use; the sites' numbers are changed accordingly. Workers run as
    /// `account` unless their pool has a user of its own.
    pub(crate) fn used(
        self,
        account: Option<Account>,
        sites: &mut [Site],
        context: &mut Context<'_>,
    ) -> Vec<PoolConfig> {
        let mut numbers: Vec<Option<usize>> = vec![None; self.all.len()];
        for number in references(sites) {
            numbers[*number] = Some(0);
        }
        for attached in sites.iter().flat_map(|site| &site.fastcgi) {
            let Address::Pool(name) = &attached.address else { continue };
            let number = self.all.iter().position(|pool| pool.config.name == *name);
            number.into_iter().for_each(|number| numbers[number] = Some(0));
        }
        for (next, number) in numbers.iter_mut().flatten().enumerate() {
            *number = next;
        }
        for number in references(sites) {
            *number = numbers[*number].unwrap_or_default();
        }
        for ResolvedPool { config: pool, place, is_named, .. } in &self.all {
            if !is_named && *place != Place::Default && context.problems.errors() == 0 {
                let says = format!("no site uses the pool \"{}\"", pool.name);
                context.problems.warning(*place, says).help(match &pool.program {
                    None => {
                        format!("sites use the first pool unless they say pool = \"{}\"", pool.name)
                    }
                    Some(_) => format!(
                        "fastcgi = \"pool:{}\" in a route gives its program requests",
                        pool.name
                    ),
                });
            }
        }
        let used = self.all.into_iter().zip(numbers).filter(|(_, number)| number.is_some());
        used.map(|(ResolvedPool { config, group, .. }, _)| {
            let account = config.account.or(account);
            PoolConfig { account: account.map(|user| with_group(user, group, context)), ..config }
        })
        .collect()
    }
}

impl ResolvedPool {
    fn of(section: &Pool, place: Place, context: &mut Context<'_>) -> Self {
        Self {
            config: pool(section, context),
            place,
            group: section.group.as_ref().and_then(|name| group(name, context)),
            is_broken: section.broken,
            is_named: false,
            idle: section.worker_idle_timeout.value.0,
            twin: None,
        }
    }

    fn runs_php(&self) -> bool {
        self.config.program.is_none()
    }
}

/// The numbers of pools in sites and their routes.
fn references(sites: &mut [Site]) -> impl Iterator<Item = &mut usize> {
    sites.iter_mut().flat_map(|site| {
        let of_routes = site.routes.iter_mut().filter_map(|route| match &mut route.handler {
            Some(Handler::Php { pool, .. }) => Some(pool),
            _ => None,
        });
        let worker = site.worker.iter_mut().map(|worker| &mut worker.pool);
        site.pool.iter_mut().chain(worker).chain(of_routes)
    })
}
