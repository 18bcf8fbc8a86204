//! A generation: what the event loops serve by from one reload to the next. A request is served by the generation in which it began.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use sendoff_config::{Address, Attachment, Config, PoolConfig, Proxy, Site};
use sendoff_pool::ProgramState;
use sendoff_tls::{Credentials, Tickets, Vault, server_config};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::auth::Auth;
use crate::challenges::Challenges;
use crate::observe::access_log::LogFile;
use crate::observe::status::{PoolStatus, ProgramStatus, WorkerStatus};
use crate::upstream::{Application, ApplicationLoad, Channel, Gateway, Master, Pool, Program};

/// The protocols that clients may choose from under TLS (ALPN, RFC 7301), the preferred one first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// What the event loops serve by.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    pub(super) config: Arc<Config>,
    /// By the number of the site; `None`: it does not speak TLS.
    pub(super) tls: Arc<[Option<Arc<ServerConfig>>]>,
    /// What authorities are answered that check names; the same in all generations.
    pub(super) challenges: Arc<Challenges>,
    /// Those of each site, by the numbers of both.
    pub(super) applications: Arc<[Vec<Arc<Application>>]>,
    /// Applications that speak HTTP, SCGI or AJP, of each site, by the numbers of both.
    pub(super) gateways: Arc<[Vec<Arc<Gateway>>]>,
    /// Where applications on this host may open links.
    pub(super) channel: Option<Channel>,
    /// Those of the configuration's log targets.
    pub(super) logs: Vec<Arc<LogFile>>,
    /// By the number of the pool in the configuration.
    pub(super) pools: Vec<PoolUse>,
    /// What clients have shown: the same in all generations.
    pub(super) auth: Arc<Auth>,
}

/// A generation's use of a pool.
#[derive(Debug, Clone)]
pub(super) struct PoolUse {
    /// The pool's place among all that the front ever had: places are not used again.
    pub(super) place: usize,
    /// Held as long as a request may ask for a worker of the pool.
    pub(super) in_use: watch::Receiver<()>,
    /// Where its program takes requests, if it has one.
    pub(super) application: Option<Arc<Application>>,
}

/// A pool that event loops are about to take on.
#[derive(Debug, Clone)]
pub(super) struct NewPool {
    pub(super) shared: Arc<Pool>,
    pub(super) master: Master,
    pub(super) config: Arc<PoolConfig>,
    pub(super) program: Option<NewProgram>,
}

impl NewPool {
    /// A pool for this many event loops.
    pub(super) fn new(config: &PoolConfig, event_loops: usize, master: Master) -> Self {
        let program = config.program.as_ref().map(|_| NewProgram::new(config));
        let config = Arc::new(config.clone());
        Self { shared: Pool::new(event_loops), master, config, program }
    }
}

/// The program of a pool that event loops are about to take on.
#[derive(Debug, Clone)]
pub(super) struct NewProgram {
    pub(super) program: Arc<Program>,
    pub(super) application: Arc<Application>,
}

impl NewProgram {
    fn new(config: &PoolConfig) -> Self {
        let program = Program::new(&config.name);
        let patience = config.request_timeout.unwrap_or(Duration::MAX);
        let application = Application::of_pool(Arc::clone(&program), patience);
        Self { program, application }
    }

    /// What its processes do.
    pub(super) fn status(&self) -> PoolStatus {
        let ProgramState { mut processes, down } = self.program.state();
        processes.sort_unstable();
        let pids = processes.into_iter().filter_map(|pid| i32::try_from(pid).ok());
        let workers = pids.map(|pid| WorkerStatus { pid, request: None }).collect();
        let ApplicationLoad { waiting, busy, requests } = self.application.load();
        PoolStatus {
            waiting,
            requests,
            workers,
            program: Some(ProgramStatus { busy, down }),
            ..PoolStatus::default()
        }
    }
}

impl Generation {
    /// Every application once.
    pub(super) fn unique_applications(&self) -> Arc<[Arc<Application>]> {
        let mut all: Vec<Arc<Application>> = Vec::new();
        for application in self.applications.iter().flatten() {
            if !all.iter().any(|known| Arc::ptr_eq(known, application)) {
                all.push(Arc::clone(application));
            }
        }
        all.into()
    }

    /// The applications of another configuration, which has these pools. Those that stay keep their connections.
    pub(super) fn applications_for(
        &self,
        config: &Config,
        pools: &[PoolUse],
    ) -> Arc<[Vec<Arc<Application>>]> {
        let known = self.config.sites.iter().zip(&*self.applications);
        let known = known.flat_map(|(site, applications)| {
            let addresses = site.fastcgi.iter().map(|attachment| &attachment.address);
            addresses
                .map(|address| (address, site.fastcgi_timeout))
                .zip(applications.iter().cloned())
        });
        applications(config, pools, known.collect())
    }
}

/// One for each attachment of each site. Attachments to the same pool, or to the same address with the same time limit, share it,
/// and with it the connections. `known`: those that exist already, by their addresses.
pub(super) fn applications<'c>(
    config: &'c Config,
    pools: &[PoolUse],
    mut known: HashMap<(&'c Address, Duration), Arc<Application>>,
) -> Arc<[Vec<Arc<Application>>]> {
    let of_pool = |name: &String| {
        let (_, used) = config.pools.iter().zip(pools).find(|(pool, _)| pool.name == *name)?;
        used.application.clone()
    };
    let mut all = Vec::with_capacity(config.sites.len());
    for Site { fastcgi, fastcgi_timeout, .. } in &config.sites {
        let application = |attachment: &'c Attachment| {
            let address = &attachment.address;
            if let Address::Pool(name) = address
                && let Some(application) = of_pool(name)
            {
                return application;
            }
            let new = || Application::new(address.clone(), *fastcgi_timeout);
            Arc::clone(known.entry((address, *fastcgi_timeout)).or_insert_with(new))
        };
        all.push(fastcgi.iter().map(application).collect());
    }
    all.into()
}

/// The applications that speak HTTP, SCGI or AJP, of each site. Routes that ask in the same way share one, and with it the connections;
/// so do generations, if `known` are those of the one before.
pub(super) fn gateways(config: &Config, known: &[Vec<Arc<Gateway>>]) -> Arc<[Vec<Arc<Gateway>>]> {
    let mut all: Vec<_> = known.iter().flatten().cloned().collect();
    let mut gateway = |proxy: &Proxy| {
        if let Some(known) = all.iter().find(|known| known.proxy() == proxy) {
            return Arc::clone(known);
        }
        let new = Gateway::new(proxy.clone());
        all.push(Arc::clone(&new));
        new
    };
    config.sites.iter().map(|site| site.proxies.iter().map(&mut gateway).collect()).collect()
}

/// What rustls needs to meet the clients of each site.
///
/// # Errors
/// A sentence: the credentials of a site cannot be used.
pub(super) fn tls_of_sites(
    config: &Config,
    vault: &Vault,
    tickets: &Tickets,
) -> Result<Arc<[Option<Arc<ServerConfig>>]>, String> {
    let of_site = |(number, site): (usize, &Site)| {
        let Some(tls) = &site.tls else { return Ok(None) };
        let credentials = vault.0.get(number).and_then(Option::as_ref);
        let credentials = credentials.ok_or("they are missing");
        credentials
            .map_err(str::to_owned)
            .and_then(|credentials| server_config(credentials, tls, tickets, PROTOCOLS))
            .map(Some)
            .map_err(|why| format!("the credentials of site {}: {why}", site.name))
    };
    config.sites.iter().enumerate().map(of_site).collect()
}

/// The same with other certificates for sites that have one in `vault`.
///
/// # Errors
/// A sentence: one of them cannot be used.
pub(super) fn tls_replaced(
    before: &Generation,
    vault: &Vault,
    tickets: &Tickets,
) -> Result<Arc<[Option<Arc<ServerConfig>>]>, String> {
    let sites = before.config.sites.iter().zip(&vault.0).zip(&*before.tls);
    let of_site = |((site, credentials), tls): ((&Site, &Option<Credentials>), _)| match (
        &site.tls,
        credentials,
    ) {
        (Some(tls), Some(credentials)) => server_config(credentials, tls, tickets, PROTOCOLS)
            .map(Some)
            .map_err(|why| format!("the certificate of site {}: {why}", site.name)),
        _ => Ok(Option::clone(tls)),
    };
    let replaced: Result<Arc<[_]>, _> = sites.map(of_site).collect();
    replaced.and_then(|replaced| match replaced.len() == before.tls.len() {
        true => Ok(replaced),
        false => Err("the certificates are those of another configuration".to_owned()),
    })
}

/// Tasks that end when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Tasks(pub(super) Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
