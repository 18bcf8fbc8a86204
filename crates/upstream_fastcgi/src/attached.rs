//! The attachment of a site: one FastCGI application, or the hosts of an upstream, which are one
//! application each.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::{Address, Upstream};
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;
use sendoff_upstream::hosts;
use sendoff_upstream::hosts::{HealthRules, Hosts, Placement, ProbeKind};
use sendoff_upstream::queue::QueueLimits;
use tokio::task::JoinHandle;

use super::application::Application;

/// The pause between two sweeps of idle connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// An attachment of a site.
pub type Attached = Arc<Hosts<Application>>;

/// The attachment of a single application.
pub fn attached(application: Arc<Application>) -> Attached {
    let address = application.address().clone();
    Hosts::single(application, address)
}

/// An upstream. `timeout` is a host's longest silence during a request. The hosts become known once
/// [`tend`] runs.
pub fn hosts_of(upstream: &Upstream, timeout: Duration) -> Attached {
    let limit = upstream.connections.and_then(|n| NonZeroUsize::new(n.try_into().ok()?));
    Hosts::new(
        &upstream.name,
        HealthRules::of(upstream),
        Placement::of(upstream),
        move |address: &Address| {
            let limits = QueueLimits::default();
            let application = Application::with_limits(address.clone(), timeout, limits);
            application.limit(limit);
            application
        },
    )
}

/// Closes connections that have been idle for too long; while descriptors are scarce, all idle
/// ones. Runs forever.
pub async fn sweep(attached: Vec<Attached>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let are_scarce = descriptors::level() >= Level::Scarce;
        attached.iter().flat_map(|hosts| hosts.all()).for_each(|host| host.close_old(are_scarce));
    }
}

/// Keeps the list of an upstream's hosts and their states up to date. The tasks run forever on the
/// event loop of the caller.
pub fn tend(attached: &Attached, upstream: &Upstream) -> Vec<JoinHandle<()>> {
    let probe = |host: Arc<Application>| async move { host.probe().await };
    hosts::tend(attached, upstream, ProbeKind::Connection, probe)
}
