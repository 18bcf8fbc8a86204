//! A limit of the requests that a host gets at a time, if the operator has set one.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use sendoff_upstream::error::UpstreamError;
use sendoff_upstream::queue::QueueLimits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Permission for the requests to a host.
#[derive(Debug)]
pub(super) struct HostLimit {
    /// One permit for each request; `None`: unlimited.
    places: Option<Arc<Semaphore>>,
    waiting: AtomicUsize,
    limits: QueueLimits,
}

/// Permission for one request to a host. Dropping it admits the next request.
#[derive(Debug)]
pub(super) struct HostPermit {
    _permit: OwnedSemaphorePermit,
}

impl HostLimit {
    /// Room for `limit` requests at a time; `waiting` limits the queue.
    pub(super) fn new(limit: Option<NonZeroUsize>, waiting: QueueLimits) -> Self {
        let places = limit.map(|limit| Arc::new(Semaphore::new(limit.get())));
        Self { places, waiting: AtomicUsize::new(0), limits: waiting }
    }

    /// Waits for a place, first come, first served. `None`: there is no limit.
    pub(super) async fn enter(&self) -> Result<Option<HostPermit>, UpstreamError> {
        let Some(places) = &self.places else { return Ok(None) };
        if let Ok(permit) = Arc::clone(places).try_acquire_owned() {
            return Ok(Some(HostPermit { _permit: permit }));
        }
        let limits = &self.limits;
        let _waiting = limits.enter(&self.waiting)?;
        match timeout(limits.wait, Arc::clone(places).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Some(HostPermit { _permit: permit })),
            // The semaphore is never closed.
            Ok(Err(_)) | Err(_) => Err(UpstreamError::wait_timed_out(limits)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sendoff_upstream::error::UpstreamErrorKind;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_limit_wait_and_few_of_them() {
        let waiting = QueueLimits { requests: 1, wait: Duration::from_secs(9) };
        let room = HostLimit::new(NonZeroUsize::new(1), waiting);
        let first = room.enter().await.unwrap();
        let (second, third) = tokio::join!(room.enter(), room.enter());
        assert_eq!(second.unwrap_err().kind(), UpstreamErrorKind::WaitTimedOut);
        assert_eq!(third.unwrap_err().kind(), UpstreamErrorKind::QueueFull);
        let next = tokio::join!(room.enter(), async { drop(first) }).0;
        assert!(next.unwrap().is_some());
        let any = HostLimit::new(None, waiting);
        assert!(any.enter().await.unwrap().is_none());
    }
}
