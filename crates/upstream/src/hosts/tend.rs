//! The background tasks for the hosts of an upstream.

use std::sync::Arc;

use sendoff_config::Upstream;
use tokio::task::JoinHandle;

use super::choice::HealthRules;
use super::group::Hosts;
use super::names::keep_resolved;
use super::probe::{ProbeKind, keep_probing};
use crate::error::UpstreamError;

impl HealthRules {
    /// The rules that the configuration sets for an upstream.
    pub fn of(upstream: &Upstream) -> Self {
        let Upstream { fails, retry_after: pause, slow_start, .. } = *upstream;
        Self { fails, pause, slow_start }
    }
}

/// Starts the tasks that resolve the names of an upstream's hosts and probe the hosts; `probe`
/// checks a host. The tasks run forever on the event loop of the caller.
pub fn tend<T, F>(
    hosts: &Arc<Hosts<T>>,
    upstream: &Upstream,
    kind: ProbeKind,
    probe: impl Fn(Arc<T>) -> F + 'static,
) -> Vec<JoinHandle<()>>
where
    T: Send + Sync + 'static,
    F: Future<Output = Result<(), UpstreamError>> + 'static,
{
    let names = keep_resolved(Arc::clone(hosts), upstream.hosts.clone());
    let mut tasks = vec![tokio::task::spawn_local(names)];
    if let Some(settings) = &upstream.probe {
        let probes = keep_probing(Arc::clone(hosts), settings.every, kind, probe);
        tasks.push(tokio::task::spawn_local(probes));
    }
    tasks
}
