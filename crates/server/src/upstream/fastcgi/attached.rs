//! What a site is attached to: one FastCGI application, or the hosts of an upstream, each of which is one.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::{Address, Upstream};
use tokio::task::JoinHandle;

use super::application::Application;
use crate::descriptors::{self, Level};
use crate::observe::status::{HostStatus, UpstreamStatus};
use crate::upstream::hosts::{Hosts, Rules, keep_probing, keep_resolved};
use crate::upstream::queue::QueueLimits;

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// An attachment of a site.
pub(crate) type Attached = Arc<Hosts<Application>>;

/// An application alone.
pub(crate) fn attached(application: Arc<Application>) -> Attached {
    let address = application.address().clone();
    Hosts::single(application, address)
}

impl Hosts<Application> {
    /// An upstream. Its hosts may be silent for `timeout` while they have a request. They are known once [`tend`] looks after it.
    pub(crate) fn of_upstream(upstream: &Upstream, timeout: Duration) -> Attached {
        let rules = Rules {
            fails: upstream.fails,
            pause: upstream.retry_after,
            slow_start: upstream.slow_start,
        };
        let limit = upstream.connections.and_then(|n| NonZeroUsize::new(n.try_into().ok()?));
        Self::new(&upstream.name, rules, move |address: &Address| {
            let limits = QueueLimits::default();
            let application = Application::with_limits(address.clone(), timeout, limits);
            application.limit(limit);
            application
        })
    }
}

/// What `sendoff status` says of the upstreams that sites are attached to, each once.
pub(crate) fn upstreams_status(attached: &[Vec<Attached>]) -> Vec<UpstreamStatus> {
    let mut all: Vec<UpstreamStatus> = Vec::new();
    for hosts in attached.iter().flatten().filter(|hosts| !hosts.name().is_empty()) {
        if !all.iter().any(|known| known.name == hosts.name()) {
            all.push(UpstreamStatus { name: hosts.name().to_owned(), hosts: hosts_status(hosts) });
        }
    }
    all
}

fn hosts_status(hosts: &Hosts<Application>) -> Vec<HostStatus> {
    let states = hosts.states().into_iter().map(|(state, application)| HostStatus {
        address: state.member.key.to_string(),
        weight: state.member.weight,
        rank: state.member.rank,
        busy: state.in_flight,
        requests: application.load().requests,
        failures: state.failures,
        down_for: state.down_for.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
    });
    states.collect()
}

/// Closes connections that have been idle for too long, for ever; while descriptors are scarce, all that are idle.
pub(crate) async fn sweep(attached: Vec<Attached>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let are_scarce = descriptors::level() >= Level::Scarce;
        attached.iter().flat_map(|hosts| hosts.all()).for_each(|host| host.close_old(are_scarce));
    }
}

/// Looks the names of an upstream up, and after its hosts. The tasks run for ever on the event loop of the caller.
pub(crate) fn tend(hosts: &Attached, upstream: &Upstream) -> Vec<JoinHandle<()>> {
    let names = keep_resolved(Arc::clone(hosts), upstream.hosts.clone());
    let mut tasks = vec![tokio::task::spawn_local(names)];
    if let Some(interval) = upstream.probe {
        let probe = |host: Arc<Application>| async move { host.probe().await };
        let probes = keep_probing(Arc::clone(hosts), interval, probe);
        tasks.push(tokio::task::spawn_local(probes));
    }
    tasks
}
