//! An application that speaks HTTP, SCGI, uwsgi or AJP, on one host or on the hosts of an upstream.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::{Address, Proxy, ProxyAddress, Upstream};
use sendoff_upstream::hosts;
use sendoff_upstream::hosts::{HealthRules, Hosts, Placement, ProbeKind};
use tokio::task::JoinHandle;

use super::host::{Host, Manner};

/// The pause between two sweeps of idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Gateway {
    manner: Arc<Manner>,
    upstream: Option<Upstream>,
    name: String,
    /// A hash of the settings that change requests or responses.
    form: u64,
    hosts: Arc<Hosts<Host>>,
}

impl Gateway {
    /// An application. `upstream` is the upstream that `proxy` names, if it names one; its hosts
    /// become known once [`tend_gateways`] runs. An error in the root certificates of TLS is
    /// reported when a host is connected to.
    #[must_use]
    pub fn new(proxy: Proxy, upstream: Option<Upstream>) -> Arc<Self> {
        let (name, form) = (proxy.to_string(), form(&proxy));
        let manner = Arc::new(Manner::new(proxy));
        let hosts = match &upstream {
            Some(upstream) => {
                let manner = Arc::clone(&manner);
                let limit =
                    upstream.connections.and_then(|n| NonZeroUsize::new(n.try_into().ok()?));
                Hosts::new(
                    &upstream.name,
                    HealthRules::of(upstream),
                    Placement::of(upstream),
                    move |address| Arc::new(Host::new(Arc::clone(&manner), address.clone(), limit)),
                )
            }
            None => {
                let address = match &manner.proxy.address {
                    ProxyAddress::Unix(path) => Address::Unix(path.clone()),
                    ProxyAddress::Tcp(host_port) => Address::Tcp(host_port.clone()),
                    ProxyAddress::Upstream(name) => Address::Upstream(name.clone()),
                };
                let host = Host::new(Arc::clone(&manner), address.clone(), None);
                Hosts::single(Arc::new(host), address)
            }
        };
        Arc::new(Self { manner, upstream, name, form, hosts })
    }

    /// The address, the protocol and the settings of the application.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.manner.proxy
    }

    /// The upstream whose hosts run the application, if there is one.
    #[must_use]
    pub fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_ref()
    }

    /// The name for the log, as the operator wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A hash of the settings that change requests or responses. Applications with one name and
    /// different hashes, such as the same address with different `Host` fields, make different
    /// pages.
    #[must_use]
    pub fn form(&self) -> u64 {
        self.form
    }

    /// The hosts that run the application.
    pub fn hosts(&self) -> &Arc<Hosts<Host>> {
        &self.hosts
    }

    /// The name of one of its hosts, for the log.
    pub fn name_of(&self, host: &Host) -> String {
        match &self.upstream {
            Some(_) => format!("{}, {}", self.name, host.address()),
            None => self.name.clone(),
        }
    }
}

fn form(proxy: &Proxy) -> u64 {
    let Proxy { address, protocol, forwarded, proxy_protocol, timeouts: _, urls } = proxy;
    let mut hasher = DefaultHasher::new();
    (address, protocol, forwarded, proxy_protocol, urls).hash(&mut hasher);
    hasher.finish()
}

/// Starts the background tasks for the hosts of applications: they close connections that have been
/// idle for too long, resolve names and probe hosts. The tasks run forever on the event loop of the
/// caller.
pub fn tend_gateways(gateways: Vec<Arc<Gateway>>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for gateway in &gateways {
        if let Some(upstream) = &gateway.upstream {
            let check = upstream.probe.as_ref().and_then(|probe| probe.request.clone());
            let kind = if check.is_some() { ProbeKind::Answer } else { ProbeKind::Connection };
            let check = Rc::new(check);
            let probe = move |host: Arc<Host>| {
                let check = Rc::clone(&check);
                async move {
                    match &*check {
                        Some(check) => host.check(check).await,
                        None => host.probe().await,
                    }
                }
            };
            tasks.extend(hosts::tend(&gateway.hosts, upstream, kind, probe));
        }
    }
    if !gateways.is_empty() {
        tasks.push(tokio::task::spawn_local(sweep(gateways)));
    }
    tasks
}

async fn sweep(gateways: Vec<Arc<Gateway>>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        gateways.iter().flat_map(|gateway| gateway.hosts.all()).for_each(|host| host.close_old());
    }
}
