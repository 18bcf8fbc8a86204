//! What an application has said of itself, and what it has shown since: whether requests may share connections to it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::values::{Asking, Values};

/// How an application has refused a request that shares a connection (`protocolStatus`, FastCGI 1.0 §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Its connections cannot be shared, whatever it has said (`FCGI_CANT_MPX_CONN`).
    CannotShare,
    /// Not now (`FCGI_OVERLOADED`).
    Overloaded,
}

/// What is known of an application, for all event loops.
#[derive(Debug, Default)]
pub(super) struct Known {
    asking: Mutex<Asking>,
    multiplexes: AtomicBool,
    /// They could at some time.
    has_multiplexed: AtomicBool,
    /// It takes a certain number of connections, so that event loops may have to wait for each other's.
    is_limited: AtomicBool,
    /// An event loop waits for a connection.
    pub(super) wanted: Notify,
    /// A permit for each request that it takes at a time, if it has said how many.
    admission: Mutex<Option<Admission>>,
}

#[derive(Debug)]
struct Admission {
    requests: NonZeroUsize,
    permits: Arc<Semaphore>,
}

impl Known {
    /// Whether requests may share connections.
    pub(super) fn multiplexes(&self) -> bool {
        self.multiplexes.load(Ordering::Relaxed)
    }

    /// Whether it is to be asked now; from then on it counts as asked.
    pub(super) fn begin_asking(&self) -> bool {
        self.asking().begin(Instant::now())
    }

    /// It is not asked: what there is to know is in the configuration.
    pub(super) fn is_configured(&self) {
        *self.asking() = Asking::Asked;
    }

    pub(super) fn has_answered(&self, values: Values) {
        *self.asking() = Asking::Answered(Instant::now());
        let mut admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        if values.requests != admission.as_ref().map(|admission| admission.requests) {
            *admission = values.requests.map(|requests| {
                let permits = requests.get().min(Semaphore::MAX_PERMITS);
                Admission { requests, permits: Arc::new(Semaphore::new(permits)) }
            });
        }
        drop(admission);
        self.is_limited.store(values.connections.is_some(), Ordering::Relaxed);
        self.multiplexes.store(values.multiplexes, Ordering::Relaxed);
        self.has_multiplexed.fetch_or(values.multiplexes, Ordering::Relaxed);
    }

    /// The application did not answer the question for its values. If it has multiplexed before, it may be restarting and is asked again.
    pub(super) fn has_not_answered(&self) {
        if self.has_multiplexed.load(Ordering::Relaxed) {
            *self.asking() = Asking::Answered(Instant::now());
        }
    }

    /// Whether event loops may have to wait for each other's connections.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Permits for the requests that share connections; `None`: any number.
    pub(super) fn permits(&self) -> Option<Arc<Semaphore>> {
        let admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        admission.as_ref().map(|admission| Arc::clone(&admission.permits))
    }

    /// It has closed a connection that requests shared: it may be another application when it is reached again.
    pub(super) fn is_lost(&self) {
        if self.multiplexes.swap(false, Ordering::Relaxed) {
            *self.asking() = Asking::NotYet;
        }
    }

    /// It has refused a request that shared a connection.
    pub(super) fn has_refused(&self, refusal: Refusal) {
        self.multiplexes.store(false, Ordering::Relaxed);
        *self.asking() = match refusal {
            Refusal::CannotShare => Asking::Asked,
            Refusal::Overloaded => Asking::Answered(Instant::now()),
        };
    }

    fn asking(&self) -> MutexGuard<'_, Asking> {
        // A panic elsewhere leaves it as it was.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
