//! Requests about which the application is silent, and requests that it does not abort.

use std::time::Duration;

use sendoff_upstream::error::{Retry, UpstreamError};
use sendoff_upstream::inbox::Event;
use tokio::time::Instant;

use super::{RequestSlot, RequestStage, Requests};

/// The time for which an abandoned request may continue, and the bytes that may arrive for it,
/// until the connection takes no new requests.
const ABANDONED_TIME: Duration = Duration::from_secs(5);
pub(super) const ABANDONED_BYTES: usize = 1024 * 1024;

/// The result of a check of timeouts.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::shared) enum TimeoutCheck {
    Fine,
    /// The application continues with an aborted request: the connection takes no new requests.
    Retire,
}

impl Requests {
    /// Fails live requests about which the application was silent for `patience`, and checks for
    /// requests that it does not abort.
    pub(in crate::shared) fn look(&mut self, now: Instant, patience: Duration) -> TimeoutCheck {
        let mut silent = Vec::new();
        let mut look = TimeoutCheck::Fine;
        for (id, slot) in (1..).zip(&mut self.slots) {
            let RequestSlot::Open(open) = slot else { continue };
            match open.stage {
                RequestStage::Abandoned { since, dropped } => {
                    if now.duration_since(since) > ABANDONED_TIME || dropped > ABANDONED_BYTES {
                        look = TimeoutCheck::Retire;
                    }
                }
                // No timeout while the client itself is slow.
                RequestStage::Live
                    if open.inbox.is_full()
                        || open.outgoing.is_starved()
                        || open.may_be_silent.get() =>
                {
                    open.since = now;
                }
                RequestStage::Live if now.duration_since(open.since) >= patience => silent.push(id),
                RequestStage::Live => {}
            }
        }
        let written = self.written;
        for id in silent {
            if let Some(open) = self.live_one(id) {
                // An unsent request may be stuck behind the body of another request that the
                // application does not read.
                let why = if open.begins_at.is_some_and(|at| at < written) {
                    UpstreamError::silent()
                } else {
                    UpstreamError::died(Retry::Safe)
                };
                open.inbox.finish(Event::Failed(why));
            }
            self.abandon(id, now);
        }
        look
    }

    /// The time at which the next live request will have been silent for `patience`.
    pub(in crate::shared) fn next_deadline(&self, patience: Duration) -> Option<Instant> {
        let times = self.all_live().filter_map(|(_, open)| open.since.checked_add(patience));
        times.min()
    }
}
