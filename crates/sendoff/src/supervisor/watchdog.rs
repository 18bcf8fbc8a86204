//! systemd's watchdog: the supervisor sends it a sign of life as long as the front answers.

use std::os::fd::AsFd;
use std::time::Duration;

use sendoff_report::status::Status;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::state::Supervisor;
use crate::orders::{Reply, ToFront};
use crate::systemd;

/// Time limit for the front to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Interval of the signs of life; `None` if systemd expects none.
pub(super) struct Watchdog(Option<Interval>);

impl Watchdog {
    /// Must be called inside an event loop.
    pub(super) fn new() -> Self {
        Self(systemd::watchdog().filter(|every| !every.is_zero()).map(|every| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        }))
    }

    /// Waits for the next sign of life; forever if systemd expects none.
    pub(super) async fn tick(&mut self) {
        match &mut self.0 {
            Some(ticks) => drop(ticks.tick().await),
            None => std::future::pending().await,
        }
    }
}

impl Supervisor {
    /// Tells systemd that the server is alive, if all event loops of the front answer. A front that
    /// does not run counts as alive: the supervisor restarts it, so the service need not be
    /// restarted.
    pub(super) fn report_to_systemd(&self) -> impl Future<Output = ()> + use<> {
        let asked = self.front.orders().map(|orders| {
            let (status, pipe) = Reply::new()?;
            orders.send(&ToFront::Status, &[pipe.as_fd()])?;
            std::io::Result::Ok(status)
        });
        async move {
            let answered = match asked {
                None => Ok(()),
                Some(Ok(status)) => status.receive::<Status>(PATIENCE).await.map(drop),
                Some(Err(error)) => Err(error),
            };
            match answered {
                Ok(()) => systemd::alive(),
                Err(error) => {
                    tracing::error!(%error, "the front does not answer");
                    systemd::status("the front does not answer");
                }
            }
        }
    }
}
