//! The pools of PHP workers.

use std::time::Duration;

use sendoff_config::{Account, Bounds, Delivery, Handler, PoolConfig, Site, Workers};

use super::Context;
use crate::keys::{Pool, Top};
use crate::machine::Machine;
use crate::place::{At, Place};
use crate::read::similar;
use crate::words::{Count, Free};

/// With `workers = "auto"`, workers for each core that are kept while no request comes.
const FEWEST_PER_CORE: usize = 2;
/// With `workers = "auto"`, bytes of the machine's memory for each worker that may exist. A forked worker shares most of
/// its memory; what frameworks allocate in a request is 10 to 40 MB, and PHP should not take more than a quarter.
const MEMORY_PER_WORKER: u64 = 4 * 32 * 1024 * 1024;
const MOST_WORKERS: usize = 256;

/// The pools that the configuration describes.
#[derive(Debug)]
pub(crate) struct Pools {
    all: Vec<(PoolConfig, Place)>,
    /// Whether a site or a route refers to it.
    is_named: Vec<bool>,
}

impl Pools {
    /// Resolves the sections; without any there is one pool with the defaults.
    pub(crate) fn resolve(top: &Top, context: &mut Context<'_>) -> Self {
        let mut all: Vec<(PoolConfig, Place)> = Vec::new();
        for section in &top.pool.value.0 {
            let name = &section.name.value.0;
            let place = match section.name.place {
                Place::Default => section.place,
                place => place,
            };
            if let Some((_, first)) = all.iter().find(|(known, _)| known.name == *name) {
                context
                    .problems
                    .error(place, format!("two pools have the name \"{name}\""))
                    .other(*first, "the other one")
                    .help("give each [[pool]] a name of its own");
            }
            all.push((pool(section, context.machine), place));
        }
        if all.is_empty() {
            all.push((pool(&Pool::empty(Place::Default), context.machine), Place::Default));
        }
        Self { is_named: vec![false; all.len()], all }
    }

    /// The number of the pool with a name; without a name, the first.
    pub(crate) fn number(
        &mut self,
        name: Option<&At<Free>>,
        context: &mut Context<'_>,
    ) -> Option<usize> {
        let Some(At { value: Free(name), place }) = name else {
            self.is_named[0] = true;
            return Some(0);
        };
        let found = self.all.iter().position(|(known, _)| known.name == *name);
        if let Some(number) = found {
            self.is_named[number] = true;
        }
        if found.is_none() {
            let problem = context.problems.error(*place, format!("there is no pool \"{name}\""));
            let names = || self.all.iter().map(|(pool, _)| pool.name.as_str());
            match similar(name, names()) {
                Some(similar) => problem.help(format!("did you mean \"{similar}\"?")),
                None if self.all[0].1 == Place::Default => problem
                    .help(format!("a pool begins with [[pool]] and has a name: name = \"{name}\"")),
                None => problem.help(format!(
                    "the pools of this configuration are {}",
                    names().collect::<Vec<_>>().join(", ")
                )),
            };
        }
        found
    }

    /// Whether FastCGI applications of a site with this pool may open links and hand files over on them.
    pub(crate) fn allows_channel(&self, number: usize, delivery: Delivery) -> bool {
        let snapshot = self.all.get(number).map(|(pool, _)| pool.snapshot);
        delivery.accepts_files() && snapshot == Some(sendoff_config::Snapshot::Lease)
    }

    /// The pools that sites have, whose workers run as `account`, and the sites' numbers for them.
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
        for (next, number) in numbers.iter_mut().flatten().enumerate() {
            *number = next;
        }
        for number in references(sites) {
            *number = numbers[*number].unwrap_or_default();
        }
        for ((pool, place), is_named) in self.all.iter().zip(&self.is_named) {
            if !is_named && *place != Place::Default && context.problems.errors() == 0 {
                let says = format!("no site uses the pool \"{}\"", pool.name);
                context.problems.warning(*place, says).help(format!(
                    "sites use the first pool unless they say pool = \"{}\"",
                    pool.name
                ));
            }
        }
        let used = self.all.into_iter().zip(numbers).filter(|(_, number)| number.is_some());
        used.map(|((pool, _), _)| PoolConfig { account, ..pool }).collect()
    }
}

/// The numbers of pools in sites and their routes.
fn references(sites: &mut [Site]) -> impl Iterator<Item = &mut usize> {
    sites.iter_mut().flat_map(|site| {
        let of_routes = site.routes.iter_mut().filter_map(|route| match &mut route.handler {
            Some(Handler::Php { pool, .. }) => Some(pool),
            _ => None,
        });
        site.pool.iter_mut().chain(of_routes)
    })
}

fn pool(section: &Pool, machine: &dyn Machine) -> PoolConfig {
    let settings = section.php_ini.value.0.iter();
    let workers = match section.workers.value {
        Count::Fixed(count) => Workers::Fixed(count),
        Count::Auto => Workers::Auto(bounds(section.worker_idle_timeout.value.0, machine)),
        Count::OnDemand => {
            let bounds = bounds(section.worker_idle_timeout.value.0, machine);
            Workers::Auto(Bounds { min: 0, ..bounds })
        }
    };
    PoolConfig {
        php_ini: settings
            .flat_map(|(name, values)| values.iter().map(|value| format!("{}={value}", name.value)))
            .collect(),
        max_requests: section.max_requests.value.0,
        request_timeout: Some(section.request_timeout.value.0).filter(|time| !time.is_zero()),
        snapshot: section.snapshot.value.into(),
        ..PoolConfig::new(&section.name.value.0, workers)
    }
}

/// Between which numbers of workers `auto` chooses on this machine.
fn bounds(idle: Duration, machine: &dyn Machine) -> Bounds {
    let min = FEWEST_PER_CORE * machine.cores();
    let by_memory = usize::try_from(machine.memory() / MEMORY_PER_WORKER).unwrap_or(usize::MAX);
    Bounds { min, max: by_memory.min(MOST_WORKERS).max(min), idle }
}
