//! An application that speaks HTTP, SCGI or AJP, on one host or on those of an upstream.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::{Address, Proxy, ProxyAddress, Upstream};
use sendoff_upstream::hosts;
use sendoff_upstream::hosts::{Hosts, Rules};
use tokio::task::JoinHandle;

use super::host::{Host, Manner};

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// An application, shared by all event loops.
#[derive(Debug)]
pub struct Gateway {
    manner: Arc<Manner>,
    upstream: Option<Upstream>,
    name: String,
    hosts: Arc<Hosts<Host>>,
}

impl Gateway {
    /// An application. `upstream` is the one that `proxy` names, if it names one; its hosts are known once [`tend_gateways`] looks after
    /// it. What is wrong with the roots of TLS is said when a host is asked.
    #[must_use]
    pub fn new(proxy: Proxy, upstream: Option<Upstream>) -> Arc<Self> {
        let name = proxy.to_string();
        let manner = Arc::new(Manner::new(proxy));
        let hosts = match &upstream {
            Some(upstream) => {
                let manner = Arc::clone(&manner);
                let limit =
                    upstream.connections.and_then(|n| NonZeroUsize::new(n.try_into().ok()?));
                Hosts::new(&upstream.name, Rules::of(upstream), move |address| {
                    Arc::new(Host::new(Arc::clone(&manner), address.clone(), limit))
                })
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
        Arc::new(Self { manner, upstream, name, hosts })
    }

    /// Where it is and how it is asked.
    #[must_use]
    pub fn proxy(&self) -> &Proxy {
        &self.manner.proxy
    }

    /// The upstream that it runs on, if it does.
    #[must_use]
    pub fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_ref()
    }

    /// For the log, as the operator wrote it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it runs.
    pub fn hosts(&self) -> &Arc<Hosts<Host>> {
        &self.hosts
    }

    /// A host of it, for the log.
    pub fn name_of(&self, host: &Host) -> String {
        match &self.upstream {
            Some(_) => format!("{}, {}", self.name, host.address()),
            None => self.name.clone(),
        }
    }
}

/// Looks after the hosts of applications: closes connections that have been idle for too long, looks names up, probes. The tasks run for
/// ever on the event loop of the caller.
pub fn tend_gateways(gateways: Vec<Arc<Gateway>>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    for gateway in &gateways {
        if let Some(upstream) = &gateway.upstream {
            let probe = |host: Arc<Host>| async move { host.probe().await };
            tasks.extend(hosts::tend(&gateway.hosts, upstream, probe));
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
