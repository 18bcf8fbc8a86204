//! From sections to the resolved configuration: fills in defaults, looks up names and files, and
//! reports contradictions.

mod account;
mod authorize;
mod context;
mod fleet;
mod folders;
mod front;
mod host;
mod hosts;
mod listen;
mod logs;
mod maps;
mod paths;
mod pool;
mod pools;
mod program;
mod proxy;
mod public;
mod redirects;
mod route;
mod site;
mod sites;
mod tls;
mod traces;
mod trusted_proxies;
mod upstream;

use std::cell::OnceCell;

use sendoff_config::Config;
use sendoff_setting_values::{Problems, Sources};

use listen::ListenersSoFar;
use pools::Pools;

pub(crate) use context::{Context, unusable};

use crate::keys::Top;
use crate::machine::Machine;

/// Resolves the sections of the files or of a command line. `None`: there are errors in `problems`.
pub fn resolve(
    top: &Top,
    sources: &Sources,
    machine: &dyn Machine,
    problems: &mut Problems,
) -> Option<Config> {
    let mut context = Context { machine, sources, problems, found_host: OnceCell::new() };
    let config = context.config(top);
    if let Some(config) = &config {
        context.pages_are_for_some(top, config);
    }
    context.problems.sort();
    config.filter(|_| context.problems.errors() == 0)
}

impl Context<'_> {
    fn config(&mut self, top: &Top) -> Option<Config> {
        if top.site.value.0.is_empty() && !top.broken && self.problems.errors() == 0 {
            self.problems
                .error(top.place, "there is no site in the configuration")
                .help("a site begins with [[site]] and needs a root");
        }
        self.bodies_are_possible(Some(&top.max_body));
        let mut listeners = ListenersSoFar::default();
        let shared = listeners.add(&top.listen.value, self);
        let mut pools = Pools::resolve(top, self);
        let mut sites = self.sites(top, &shared, &mut listeners, &mut pools);
        self.addresses_are_used(top, &shared, &listeners, &sites);
        let listen = listeners.used(&mut sites);
        let account = sites.first().and_then(|first| self.server_account(top, &first.root));
        let front = self.front(top, &sites);
        let trusted_proxies = self.trusted_proxies(top);
        self.levels_exist(&top.log);
        Some(Config {
            log: top.log.value.0.clone(),
            listen,
            trusted_proxies,
            account,
            state: match &top.state {
                Some(path) => path.value.0.clone(),
                None => self.machine.state_folder(),
            },
            acme: self.acme(top, &sites),
            tls: tls::algorithms(top),
            traces: self.traces(top),
            fleet: self.fleet(top),
            drain_delay: top.drain_delay.value.0,
            shutdown_timeout: top.shutdown_timeout.value.0,
            front,
            upstreams: pools.upstreams().used(self),
            pools: pools.used(account, &mut sites, self),
            sites,
        })
    }
}
