//! Looks after hosts also while they have no requests: one that is gone costs no request to find out, and one that is back
//! gets requests again before its pause is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::choice::Verdict;
use super::group::Hosts;
use crate::error::UpstreamError;

/// Asks every host each `interval` whether it is there, for ever. `probe` ends in bounded time.
pub(crate) async fn keep_probing<T, F>(
    hosts: Arc<Hosts<T>>,
    interval: Duration,
    probe: impl Fn(Arc<T>) -> F,
) where
    T: Send + Sync + 'static,
    F: Future<Output = Result<(), UpstreamError>> + 'static,
{
    loop {
        tokio::time::sleep(interval).await;
        // At the same time: a host that does not answer does not delay the others.
        let mut probes = JoinSet::new();
        for (id, host) in hosts.with_ids() {
            let asked = probe(host);
            probes.spawn_local(async move { (id, asked.await) });
        }
        while let Some(probed) = probes.join_next().await {
            match probed {
                Ok((id, Ok(()))) => hosts.can_be_reached(id),
                Ok((id, Err(why))) => hosts.judge(id, Verdict::Bad, &why),
                // Only a panic ends it otherwise.
                Err(_) => {}
            }
        }
    }
}
