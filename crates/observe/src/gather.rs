//! Collects the figures of all event loops for the metrics and the status page.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sendoff_config::Config;
use sendoff_delivery::Snapshots;
use sendoff_fleet::FleetState;
use sendoff_report::access_log::LogSender;
use sendoff_report::meters::{PoolMeter, SiteMeter};
use sendoff_report::status::Status;
use sendoff_traces::Spans;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Maximum time for the event loops to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause before the event loops are asked again, because a reload has reached only some of them.
const RELOAD_PAUSE: Duration = Duration::from_millis(5);

/// The figures of one event loop, or the sum of all.
#[derive(Debug)]
pub struct Figures {
    /// The configuration to which the numbers of sites and pools belong.
    pub config: Arc<Config>,
    /// The state of the event loops, for `sendoff status`.
    pub status: Status,
    /// Counters of sites, by the number of the site.
    pub sites: Vec<Option<Box<SiteMeter>>>,
    /// Counters of pools, by the number of the pool.
    pub pools: Vec<Option<Box<PoolMeter>>>,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.status.add(other.status);
        for (sum, other) in self.sites.iter_mut().zip(other.sites) {
            if let Some(other) = other {
                sum.get_or_insert_default().add(&other);
            }
        }
        for (sum, other) in self.pools.iter_mut().zip(other.pools) {
            if let Some(other) = other {
                sum.get_or_insert_default().add(&other);
            }
        }
    }
}

/// The channel on which an event loop sends its figures.
pub type Reply = mpsc::UnboundedSender<Figures>;

/// The sources of the metrics: the event loops, and the state that they share.
#[derive(Debug, Clone)]
pub struct Gatherer {
    /// One sender per event loop, which takes requests for figures.
    pub loops: Arc<[mpsc::UnboundedSender<Reply>]>,
    /// Copies of files, which all event loops share.
    pub snapshots: Arc<Snapshots>,
    /// The access log's writer, which counts lost lines.
    pub log: LogSender,
    /// Spans on their way to the collector.
    pub spans: Arc<Spans>,
    /// The state of the node, if it belongs to a fleet.
    pub fleet: Arc<FleetState>,
    /// When the front started.
    pub started: SystemTime,
}

impl Gatherer {
    /// The sum of the figures of all event loops; `None`: an event loop does not answer in time,
    /// and a sum without it would be too small.
    pub async fn gather(&self) -> Option<Figures> {
        timeout(PATIENCE, self.until_equal()).await.ok().flatten()
    }

    async fn until_equal(&self) -> Option<Figures> {
        loop {
            let (reply, mut said) = mpsc::unbounded_channel();
            for event_loop in &*self.loops {
                // A loop that has ended counts nothing any more.
                let _ = event_loop.send(reply.clone());
            }
            drop(reply);
            let mut sum = said.recv().await?;
            // A sum has the workers in order, each once.
            let first = std::mem::take(&mut sum.status);
            sum.status.add(first);
            let mut is_equal = true;
            while let Some(of_loop) = said.recv().await {
                is_equal &= Arc::ptr_eq(&of_loop.config, &sum.config);
                sum.add(of_loop);
            }
            if is_equal {
                return Some(sum);
            }
            sleep(RELOAD_PAUSE).await;
        }
    }
}
