//! A generation: the configuration and the applications that the event loops use from one reload to
//! the next. A request is served by the generation in which it began.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sendoff_auth::Auth;
use sendoff_config::{
    Address, Attachment, Config, PoolConfig, Proxy, ProxyAddress, Site, Upstream,
};
use sendoff_handlers::challenges::Challenges;
use sendoff_pool_messages::ProgramState;
use sendoff_report::access_log::LogFile;
use sendoff_report::status::{PoolStatus, ProgramStatus, WorkerStatus};
use sendoff_tls::{Credentials, SiteTls, Tickets, Vault, site_tls};
use sendoff_upstream::queue::QueueLimits;
use sendoff_upstream_fastcgi::application::{Application, ApplicationLoad};
use sendoff_upstream_fastcgi::attached::hosts_of;
use sendoff_upstream_fastcgi::attached::{Attached, attached};
use sendoff_upstream_fastcgi::channel::Channel;
use sendoff_upstream_fastcgi::program::Program;
use sendoff_upstream_gateway::Gateway;
use sendoff_upstream_worker::master::Master;
use sendoff_upstream_worker::pool::Pool;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The protocols that TLS clients may choose from (ALPN, RFC 7301), the preferred one first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// State that the event loops serve by.
#[derive(Debug, Clone)]
pub(super) struct Generation {
    pub(super) config: Arc<Config>,
    /// Indexed by the number of the site; `None` for a site without TLS.
    pub(super) tls: Arc<[Option<SiteTls>]>,
    /// The keys of session tickets for clients that show no certificate; the same in all
    /// generations.
    pub(super) tickets: Tickets,
    /// Answers to authorities that validate names; the same in all generations.
    pub(super) challenges: Arc<Challenges>,
    /// The targets of each site's attachments, indexed by the numbers of site and attachment.
    pub(super) attached: Arc<[Vec<Attached>]>,
    /// Applications of each site that speak HTTP, SCGI or AJP, indexed by the numbers of both.
    pub(super) gateways: Arc<[Vec<Arc<Gateway>>]>,
    /// The channel on which applications on this host may open links.
    pub(super) channel: Option<Channel>,
    /// The files of the configuration's log targets.
    pub(super) logs: Vec<Arc<LogFile>>,
    /// Indexed by the number of the pool in the configuration.
    pub(super) pools: Vec<PoolUse>,
    /// Credentials that clients have shown: the same in all generations.
    pub(super) auth: Arc<Auth>,
}

/// A generation's use of a pool.
#[derive(Debug, Clone)]
pub(super) struct PoolUse {
    /// The pool's place among all that the front has ever had; places are not reused.
    pub(super) place: usize,
    /// Held while a request may ask for a worker of the pool.
    pub(super) in_use: watch::Receiver<()>,
    /// The program's application, if the pool has a program.
    pub(super) application: Option<Attached>,
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
        let program = config.program.as_ref().map(|_| NewProgram::new(config, master.clone()));
        let config = Arc::new(config.clone());
        let shared = Pool::with_limits(event_loops, queue(&config));
        if program.is_none()
            && let Err(error) = shared.make_ring()
        {
            tracing::warn!(pool = &*config.name, %error, "no ring for its requests: they go over links");
        }
        Self { shared, master, config, program }
    }
}

/// Limits of the pool's queue of requests.
fn queue(config: &PoolConfig) -> QueueLimits {
    let requests = usize::try_from(config.max_waiting).unwrap_or(usize::MAX);
    QueueLimits { requests, ..QueueLimits::default() }
}

/// The program of a pool that event loops are about to take on.
#[derive(Debug, Clone)]
pub(super) struct NewProgram {
    pub(super) program: Arc<Program>,
    pub(super) application: Arc<Application>,
    /// The program as the only host of an upstream.
    pub(super) attached: Attached,
}

impl NewProgram {
    fn new(config: &PoolConfig, master: Master) -> Self {
        let program = Program::new(&config.name, master);
        let patience = config.request_timeout.unwrap_or(Duration::MAX);
        let application = Application::of_pool(Arc::clone(&program), patience, queue(config));
        let of_each = config.program.as_ref().and_then(|program| program.requests_per_process);
        let of_all = of_each.map(|each| config.processes().saturating_mul(each as usize));
        application.limit(of_all.and_then(NonZeroUsize::new));
        let attached = attached(Arc::clone(&application));
        Self { program, application, attached }
    }

    /// State of the pool's processes.
    pub(super) fn status(&self) -> PoolStatus {
        let ProgramState { mut processes, down } = self.program.state();
        processes.sort_unstable();
        let pids = processes.into_iter().filter_map(|pid| i32::try_from(pid).ok());
        let workers = pids.map(|pid| WorkerStatus { pid, request: None, at_work: None }).collect();
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
    /// The targets of all sites' attachments, each once, with its upstream if it is one.
    pub(super) fn unique_attached(&self) -> Vec<(Attached, Option<Upstream>)> {
        let mut all: Vec<(Attached, Option<Upstream>)> = Vec::new();
        for (site, attached) in self.config.sites.iter().zip(&*self.attached) {
            for (attachment, hosts) in site.fastcgi.iter().zip(attached) {
                if !all.iter().any(|(known, _)| Arc::ptr_eq(known, hosts)) {
                    let upstream = upstream(&self.config, &attachment.address);
                    all.push((Arc::clone(hosts), upstream.cloned()));
                }
            }
        }
        all
    }

    /// The applications that speak HTTP, SCGI or AJP, each once.
    pub(super) fn unique_gateways(&self) -> Vec<Arc<Gateway>> {
        let mut all: Vec<Arc<Gateway>> = Vec::new();
        for gateway in self.gateways.iter().flatten() {
            if !all.iter().any(|known| Arc::ptr_eq(known, gateway)) {
                all.push(Arc::clone(gateway));
            }
        }
        all
    }

    /// The targets of the attachments of another configuration, which has these pools. Unchanged
    /// targets keep their connections, and what is known about their hosts.
    pub(super) fn attached_for(&self, config: &Config, pools: &[PoolUse]) -> Arc<[Vec<Attached>]> {
        let known = self.config.sites.iter().zip(&*self.attached);
        let known = known.flat_map(|(site, attached)| {
            let places = site.fastcgi.iter().map(|attachment| {
                let address = &attachment.address;
                (address, site.fastcgi_timeout, upstream(&self.config, address))
            });
            places.zip(attached.iter().cloned())
        });
        attached_of(config, pools, known.collect())
    }
}

/// The properties that distinguish two attachments: address, longest silence, and the upstream, if
/// it is one.
type AttachmentKey<'c> = (&'c Address, Duration, Option<&'c Upstream>);

fn upstream<'c>(config: &'c Config, address: &Address) -> Option<&'c Upstream> {
    let Address::Upstream(name) = address else { return None };
    config.upstreams.iter().find(|upstream| upstream.name == *name)
}

/// Returns the target of each attachment of each site. Attachments to the same pool, or to the same
/// address with the same time limit, share a target, and with it the connections. `known`: targets
/// that exist already.
pub(super) fn attached_of<'c>(
    config: &'c Config,
    pools: &[PoolUse],
    mut known: HashMap<AttachmentKey<'c>, Attached>,
) -> Arc<[Vec<Attached>]> {
    let of_pool = |name: &String| {
        let (_, used) = config.pools.iter().zip(pools).find(|(pool, _)| pool.name == *name)?;
        used.application.clone()
    };
    let mut all = Vec::with_capacity(config.sites.len());
    for Site { fastcgi, fastcgi_timeout, .. } in &config.sites {
        let leads_to = |attachment: &'c Attachment| {
            let address = &attachment.address;
            let upstream = upstream(config, address);
            let application = match address {
                Address::Pool(name) => of_pool(name),
                Address::Unix(_) | Address::Tcp(_) | Address::Upstream(_) => None,
            };
            if let Some(application) = application {
                return application;
            }
            let new = || match upstream {
                Some(upstream) => hosts_of(upstream, *fastcgi_timeout),
                None => attached(Application::new(address.clone(), *fastcgi_timeout)),
            };
            Arc::clone(known.entry((address, *fastcgi_timeout, upstream)).or_insert_with(new))
        };
        all.push(fastcgi.iter().map(leads_to).collect());
    }
    all.into()
}

/// Returns the applications of each site that speak HTTP, SCGI or AJP. Routes with equal settings
/// share an application, and with it the connections. Applications in `known` (from the
/// previous generation) are used again.
pub(super) fn gateways(config: &Config, known: &[Vec<Arc<Gateway>>]) -> Arc<[Vec<Arc<Gateway>>]> {
    let mut all: Vec<_> = known.iter().flatten().cloned().collect();
    let mut gateway = |proxy: &Proxy| {
        let upstream = match &proxy.address {
            ProxyAddress::Upstream(name) => config.upstreams.iter().find(|of| of.name == *name),
            ProxyAddress::Unix(_) | ProxyAddress::Tcp(_) => None,
        };
        let is_same = |known: &Gateway| known.proxy() == proxy && known.upstream() == upstream;
        if let Some(known) = all.iter().find(|known| is_same(known)) {
            return Arc::clone(known);
        }
        let new = Gateway::new(proxy.clone(), upstream.cloned());
        all.push(Arc::clone(&new));
        new
    };
    config.sites.iter().map(|site| site.proxies.iter().map(&mut gateway).collect()).collect()
}

/// Returns the TLS configuration of each site.
///
/// # Errors
/// A sentence: the credentials of a site cannot be used.
pub(super) fn tls_of_sites(
    config: &Config,
    vault: &Vault,
    tickets: &Tickets,
) -> Result<Arc<[Option<SiteTls>]>, String> {
    let of_site = |(number, site): (usize, &Site)| {
        let Some(tls) = &site.tls else { return Ok(None) };
        let credentials = vault.sites.get(number).and_then(Option::as_ref);
        let credentials = credentials.ok_or("they are missing");
        credentials
            .map_err(str::to_owned)
            .and_then(|credentials| site_tls(credentials, tls, &config.tls, tickets, PROTOCOLS))
            .map(Some)
            .map_err(|why| format!("the credentials of site {}: {why}", site.name))
    };
    config.sites.iter().enumerate().map(of_site).collect()
}

/// Returns the TLS configurations with other certificates for sites that have one in `vault`.
///
/// # Errors
/// A sentence: a certificate cannot be used.
pub(super) fn tls_replaced(
    before: &Generation,
    vault: &Vault,
    tickets: &Tickets,
) -> Result<Arc<[Option<SiteTls>]>, String> {
    let algorithms = &before.config.tls;
    let sites = before.config.sites.iter().zip(&vault.sites).zip(&*before.tls);
    let of_site = |((site, credentials), tls): ((&Site, &Option<Credentials>), _)| match (
        &site.tls,
        credentials,
    ) {
        (Some(tls), Some(credentials)) => {
            site_tls(credentials, tls, algorithms, tickets, PROTOCOLS)
                .map(Some)
                .map_err(|why| format!("the certificate of site {}: {why}", site.name))
        }
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
