//! Connections that serve one request each.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::queue::QueueLimits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use crate::connection::{Connection, Place};

/// The most connections to a host that serve one request each, of all event loops together. All
/// requests of a full shared connection ([`settings::STREAMS`](crate::settings::STREAMS)) can be
/// repeated at once.
const CONNECTIONS: usize = 128;

/// The connections to a host that serve one request each.
#[derive(Debug)]
pub(crate) struct AloneConnections {
    free: Arc<Semaphore>,
    /// Requests that wait for a connection. Requests for shared connections are counted by
    /// themselves: neither keep the others out.
    waiting: AtomicUsize,
    limits: QueueLimits,
}

impl Default for AloneConnections {
    fn default() -> Self {
        let free = Arc::new(Semaphore::new(CONNECTIONS));
        Self { free, waiting: AtomicUsize::new(0), limits: QueueLimits::default() }
    }
}

impl AloneConnections {
    /// A place on a new connection that no other request gets a place on.
    ///
    /// # Errors
    /// The host cannot be reached, or no connection became free in time.
    pub(crate) async fn place<T: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        connect: &impl AsyncFn() -> Result<T, UpstreamError>,
    ) -> Result<Place, UpstreamError> {
        let _waiting = self.limits.enter(&self.waiting)?;
        let made = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&self.free).acquire_owned().await.ok();
            let connection = Connection::new(connect().await?, Arc::<Notify>::default(), permit);
            connection.await?.enter().ok_or_else(|| {
                let why = "a new connection takes no request";
                UpstreamError::new(UpstreamErrorKind::Overloaded, Retry::Safe, why)
            })
        };
        let late = |_| Err(UpstreamError::wait_timed_out(&self.limits));
        timeout(self.limits.wait, made).await.unwrap_or_else(late)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio::task::LocalSet;
    use tokio::time::Instant;

    use super::*;
    use crate::settings;

    #[tokio::test(start_paused = true)]
    async fn connections_are_bounded_and_serve_one_request() {
        let (connections, made) = (AloneConnections::default(), Cell::new(0));
        let peers = RefCell::new(Vec::new());
        let connect = async || -> Result<DuplexStream, UpstreamError> {
            let (ours, mut peer) = tokio::io::duplex(64 * 1024);
            peer.write_all(&settings::UNLIMITED).await.unwrap();
            peers.borrow_mut().push(peer);
            made.set(made.get() + 1);
            Ok(ours)
        };
        LocalSet::new()
            .run_until(async {
                let mut places = Vec::new();
                for _ in 0..CONNECTIONS {
                    places.push(connections.place(&connect).await.unwrap());
                }
                let begun = Instant::now();
                let full = connections.place(&connect).await.unwrap_err();
                assert_eq!(full.kind(), UpstreamErrorKind::WaitTimedOut);
                assert_eq!((begun.elapsed(), made.get()), (connections.limits.wait, CONNECTIONS));
                // A connection ends with its request, and another one may be made.
                places.pop();
                connections.place(&connect).await.unwrap();
                assert_eq!(made.get(), CONNECTIONS + 1);
            })
            .await;
    }
}
