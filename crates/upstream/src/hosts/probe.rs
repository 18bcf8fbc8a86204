//! Checks hosts independently of requests: a dead host is noticed without a failed request, and a
//! host that is back gets requests before its pause is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::choice::HealthEvidence;
use super::group::Hosts;
use crate::error::UpstreamError;

/// The meaning of a probe's success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// The host accepts connections. A request must show if it answers.
    Connection,
    /// The host answers a request as it should. It counts as up, or as down, whatever it answers to
    /// other requests.
    Answer,
}

/// Probes every host once per `interval`, forever. `probe` must end in bounded time.
pub(crate) async fn keep_probing<T, F>(
    hosts: Arc<Hosts<T>>,
    interval: Duration,
    kind: ProbeKind,
    probe: impl Fn(Arc<T>) -> F,
) where
    T: Send + Sync + 'static,
    F: Future<Output = Result<(), UpstreamError>> + 'static,
{
    loop {
        tokio::time::sleep(interval).await;
        // All at the same time, so that a silent host does not delay the others.
        let mut probes = JoinSet::new();
        for (id, host) in hosts.with_ids() {
            let asked = probe(host);
            probes.spawn_local(async move { (id, asked.await) });
        }
        while let Some(probed) = probes.join_next().await {
            match probed {
                Ok((id, result)) if kind == ProbeKind::Answer => hosts.check(id, result),
                Ok((id, Ok(()))) => hosts.note_reachable(id),
                Ok((id, Err(why))) => hosts.judge(id, HealthEvidence::Bad, &why),
                // Only a panic has this result.
                Err(_) => {}
            }
        }
    }
}
