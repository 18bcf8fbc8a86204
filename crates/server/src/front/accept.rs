//! Accepts connections while there are descriptors for them.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::budget::LEAST;
use super::listener::{Accepted, Listening};
use crate::descriptors::{self, Level};
use crate::http1;
use crate::lifecycle::{Counted, Lifecycle, Stage};
use crate::request::Origin;
use crate::service::{Current, Service};

/// Pause before the next attempt when descriptors have run out and no connection is idle.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections until the front stops. When there are `most`, or descriptors are short, those that have been idle for longest are closed; if
/// none is idle, new ones wait in the backlog.
pub(super) async fn accept<S: Service + 'static>(
    listener: Listening,
    services: Rc<Current<S>>,
    lifecycle: Rc<Lifecycle>,
    most: usize,
) {
    loop {
        while is_full(lifecycle.connections(), most) {
            lifecycle.evict_idle();
            tokio::select! {
                () = lifecycle.connection_closed() => {}
                () = tokio::time::sleep(PAUSE) => {}
                () = lifecycle.reached(Stage::Draining) => return,
            }
        }
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = lifecycle.reached(Stage::Draining) => return,
        };
        match accepted {
            Ok(Some((accepted, origin))) => start(accepted, origin, &services, &lifecycle),
            Ok(None) => {}
            // The client closed the connection before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                let is_full = [Errno::MFILE, Errno::NFILE]
                    .map(|full| Some(full.raw_os_error()))
                    .contains(&error.raw_os_error());
                let evicted = is_full && lifecycle.evict_idle();
                if !evicted {
                    tracing::error!(%error, "a connection cannot be accepted; a higher limit of open files would help");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Whether another connection has to wait. A few are always taken, whatever else holds descriptors.
fn is_full(connections: usize, most: usize) -> bool {
    connections >= most || connections >= LEAST && descriptors::level() >= Level::Tight
}

fn start<S: Service + 'static>(
    accepted: Accepted,
    origin: Origin,
    services: &Rc<Current<S>>,
    lifecycle: &Rc<Lifecycle>,
) {
    let counted = Counted::new(lifecycle);
    let (services, lifecycle) = (Rc::clone(services), Rc::clone(lifecycle));
    // A task for each kind, because a task for both would be as large as the larger.
    match accepted {
        Accepted::Tcp(transport) => tokio::task::spawn_local(async move {
            let _counted = counted;
            http1::serve(transport, origin, services, lifecycle).await;
        }),
        Accepted::Unix(transport) => tokio::task::spawn_local(async move {
            let _counted = counted;
            http1::serve(transport, origin, services, lifecycle).await;
        }),
    };
}
