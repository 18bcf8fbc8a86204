//! What a site is attached to: one FastCGI application, or the hosts of an upstream, each of which is one.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use sendoff_config::{Address, Upstream};
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;
use sendoff_upstream::hosts;
use sendoff_upstream::hosts::{Hosts, Rules};
use sendoff_upstream::queue::QueueLimits;
use tokio::task::JoinHandle;

use super::application::Application;

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// An attachment of a site.
pub type Attached = Arc<Hosts<Application>>;

/// An application alone.
pub fn attached(application: Arc<Application>) -> Attached {
    let address = application.address().clone();
    Hosts::single(application, address)
}

/// An upstream. Its hosts may be silent for `timeout` while they have a request. They are known once [`tend`] looks after it.
pub fn hosts_of(upstream: &Upstream, timeout: Duration) -> Attached {
    let limit = upstream.connections.and_then(|n| NonZeroUsize::new(n.try_into().ok()?));
    Hosts::new(&upstream.name, Rules::of(upstream), move |address: &Address| {
        let limits = QueueLimits::default();
        let application = Application::with_limits(address.clone(), timeout, limits);
        application.limit(limit);
        application
    })
}

/// Closes connections that have been idle for too long, for ever; while descriptors are scarce, all that are idle.
pub async fn sweep(attached: Vec<Attached>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let are_scarce = descriptors::level() >= Level::Scarce;
        attached.iter().flat_map(|hosts| hosts.all()).for_each(|host| host.close_old(are_scarce));
    }
}

/// Looks after the hosts of an upstream. The tasks run for ever on the event loop of the caller.
pub fn tend(attached: &Attached, upstream: &Upstream) -> Vec<JoinHandle<()>> {
    hosts::tend(attached, upstream, |host: Arc<Application>| async move { host.probe().await })
}
