//! Figures of a running event loop for `sendoff status` and the metrics.

use std::rc::Rc;
use std::sync::Arc;

use sendoff_observe::gather::{Figures, Reply};
use sendoff_observe::upstreams::upstreams_status;
use sendoff_report::limits::Limit;
use sendoff_report::status::{Encryption, PoolStatus, Status, WorkerStatus};
use sendoff_report::workers::PoolReport;
use sendoff_transport::kernel_has_tls;
use sendoff_upstream_worker::link::{Link, LocalPool};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::running_loop::RunningLoop;

impl RunningLoop {
    /// State of the loop.
    pub(super) fn status(&self) -> Status {
        let now = Instant::now();
        let worker = |link: &Rc<Link>| WorkerStatus {
            pid: link.pid(),
            request: link.request().map(|request| request.to_string()),
            at_work: link.task().map(|task| task.status(now)),
        };
        let places = self.places.borrow();
        let pool = |pool: &LocalPool| {
            let place = places.iter().find(|place| Arc::ptr_eq(&place.pool.shared, &pool.shared));
            match place.and_then(|place| place.program.as_ref()) {
                Some(program) => {
                    let out_of_memory = pool.shared.report().out_of_memory;
                    PoolStatus { out_of_memory, ..program.status() }
                }
                None => {
                    let PoolReport {
                        waiting,
                        requests,
                        limit_reached,
                        slow,
                        out_of_memory,
                        php,
                        ..
                    } = pool.shared.report();
                    let workers = pool.links.borrow().values().map(worker).collect();
                    let program = None;
                    PoolStatus {
                        waiting,
                        requests,
                        limit_reached,
                        slow,
                        out_of_memory,
                        workers,
                        program,
                        php,
                    }
                }
            }
        };
        let services = self.services.get();
        Status {
            connections: self.lifecycle.connections(),
            idle_connections: self.lifecycle.idle_connections(),
            tls: match services.tls.iter().any(Option::is_some) {
                false => Encryption::None,
                true if kernel_has_tls() => Encryption::ByKernel(self.lifecycle.by_kernel()),
                true => Encryption::ByServer,
            },
            refused: services.meters.refused(),
            sites: services.meters.site_statuses(),
            pools: services.pools.iter().map(pool).collect(),
            upstreams: upstreams_status(&services.attached, &services.gateways),
            limits: Limit::met(),
            requests: services.at_work.status(),
            warming: self.warming.status(),
            fleet: services.gatherer.fleet.status(),
        }
    }

    /// Reports the loop's counters each time that metrics are requested.
    pub(super) async fn report(self: Rc<Self>, mut asked: mpsc::UnboundedReceiver<Reply>) {
        while let Some(reply) = asked.recv().await {
            let services = self.services.get();
            let figures = Figures {
                config: Arc::clone(&services.config),
                status: self.status(),
                sites: services.meters.sites(),
                pools: services.meters.pools(),
            };
            // Fails if the client that asked for the metrics has left.
            let _ = reply.send(figures);
        }
    }
}
