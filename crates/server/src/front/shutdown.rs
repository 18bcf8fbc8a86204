//! The end of a front: its event loops drain, then are cut, and the last purges, spans and log lines
//! leave.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sendoff_exchange::lifecycle::Stage;
use sendoff_report::access_log::LogWriter;
use tokio::sync::{mpsc, watch};

use super::exporter::Exporter;
use super::fleet::Membership;
use super::orders::Orders;
use super::running::{Means, RunningFront, ShutdownMode};

/// The most time in which the collector gets the last spans when the front ends.
const MOST_FOR_SPANS: Duration = Duration::from_secs(5);

/// The most time in which the other nodes of a fleet get the last purges when the front ends.
const MOST_FOR_PURGES: Duration = Duration::from_secs(2);

/// The least time for either.
const LEAST_AT_END: Duration = Duration::from_millis(250);

/// Ends all event loops.
#[derive(Debug, Clone)]
pub(super) struct Stopper(watch::Sender<Stage>);

impl Stopper {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(Stage::Serving))
    }

    /// The stage in which event loops are to be.
    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.0.subscribe()
    }

    /// Tells all event loops to take no more requests.
    pub(super) fn drain(&self) {
        self.0.send_if_modified(|stage| {
            let was_serving = *stage == Stage::Serving;
            if was_serving {
                *stage = Stage::Draining;
            }
            was_serving
        });
    }

    /// Tells all event loops to cut the remaining responses.
    fn cut(&self) {
        self.0.send_replace(Stage::Cutting);
    }
}

impl RunningFront {
    /// Follows orders until one of them ends the front, or the pool socket of a pool in use is
    /// closed (`lost`). Then stops the event loops: the first one drops this future when it has
    /// ended. `end_by`: set to the time at which a drain is over.
    pub(super) async fn follow_to_the_end(
        self: Rc<Self>,
        orders: &mut impl Orders,
        mut lost: mpsc::UnboundedReceiver<io::Result<()>>,
        stopper: &Stopper,
        end_by: &Cell<Option<Instant>>,
    ) -> io::Result<Infallible> {
        let mut is_over = false;
        tokio::select! {
            end = self.follow(orders) => is_over = end == ShutdownMode::Cut,
            // The supervisor has gone, or workers can no longer be announced.
            Some(result) = lost.recv() => {
                tracing::info!(?result, "the pool socket is closed, the front stops");
            }
        }
        stopper.drain();
        if !is_over {
            let drain_timeout = self.config().drain_timeout();
            end_by.set(Some(Instant::now() + drain_timeout));
            tokio::select! {
                () = tokio::time::sleep(drain_timeout) => {}
                () = self.told_to_cut(orders) => {}
            }
        }
        stopper.cut();
        pending().await
    }

    /// Waits until a draining front is ordered to end at once.
    async fn told_to_cut(self: &Rc<Self>, orders: &mut impl Orders) {
        while self.follow(orders).await != ShutdownMode::Cut {}
    }
}

/// Work that is left once all event loops have ended.
pub(super) struct LastWork {
    fleet: Rc<Membership>,
    exporter: Rc<Exporter>,
    log: Rc<LogWriter>,
}

impl LastWork {
    pub(super) fn of(Means { fleet, exporter, log, .. }: &Means) -> Self {
        let (fleet, exporter) = (Rc::clone(fleet), Rc::clone(exporter));
        Self { fleet, exporter, log: Rc::clone(log) }
    }

    /// Sends the last purges and spans, until `end_by` if there is time left, and writes the last
    /// lines of access logs.
    pub(super) fn finish(self, end_by: Option<Instant>) {
        // Beyond that time, the reserve before the supervisor kills the front is left.
        let left = || {
            let left = end_by.map(|end| end.saturating_duration_since(Instant::now()));
            left.unwrap_or_default()
        };
        self.fleet.finish(left().clamp(LEAST_AT_END, MOST_FOR_PURGES));
        self.exporter.finish(left().clamp(LEAST_AT_END, MOST_FOR_SPANS));
        if let Some(log) = Rc::into_inner(self.log) {
            log.finish();
        }
    }
}
