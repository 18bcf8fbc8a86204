//! If requests may share connections of an application: by its answer when it was asked for its
//! values (`values.rs`), and by its behaviour since.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::values::{Asking, Values};

/// The ways in which an application refuses a request on a shared connection (`protocolStatus`,
/// FastCGI 1.0 §5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SharingRefusal {
    /// Its connections cannot be shared, despite its values (`FCGI_CANT_MPX_CONN`).
    CannotShare,
    /// It refuses further requests for now (`FCGI_OVERLOADED`).
    Overloaded,
}

/// Facts about an application, for all event loops.
#[derive(Debug, Default)]
pub(super) struct ApplicationFacts {
    asking: Mutex<Asking>,
    multiplexes: AtomicBool,
    /// True once connections could be shared.
    has_multiplexed: AtomicBool,
    /// The application takes a limited number of connections, so event loops may have to wait for
    /// each other's.
    is_limited: AtomicBool,
    /// Notified when an event loop waits for a connection.
    pub(super) wanted: Notify,
    /// A permit for each request that the application takes at a time, if it has reported the
    /// number.
    admission: Mutex<Option<Admission>>,
}

#[derive(Debug)]
struct Admission {
    requests: NonZeroUsize,
    permits: Arc<Semaphore>,
}

impl ApplicationFacts {
    /// True if requests may share connections.
    pub(super) fn multiplexes(&self) -> bool {
        self.multiplexes.load(Ordering::Relaxed)
    }

    /// True if it is time to ask the application for its values; it then counts as asked.
    pub(super) fn begin_asking(&self) -> bool {
        self.asking().begin(Instant::now())
    }

    /// Prevents the question: the configuration has the number of connections.
    pub(super) fn skip_asking(&self) {
        *self.asking() = Asking::Asked;
    }

    /// Notes its answer: the values decide if requests may share connections, and how many.
    pub(super) fn note_answer(&self, values: Values) {
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

    /// Notes that the application did not answer the question for its values. If it has multiplexed
    /// before, it may be restarting and is asked again.
    pub(super) fn note_no_answer(&self) {
        if self.has_multiplexed.load(Ordering::Relaxed) {
            *self.asking() = Asking::Answered(Instant::now());
        }
    }

    /// True if event loops may have to wait for each other's connections.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Permits for the requests that share connections; `None`: the number is unlimited.
    pub(super) fn permits(&self) -> Option<Arc<Semaphore>> {
        let admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        admission.as_ref().map(|admission| Arc::clone(&admission.permits))
    }

    /// Notes that it has closed a shared connection. It may have been replaced by another
    /// application, so it is asked again.
    pub(super) fn note_lost(&self) {
        if self.multiplexes.swap(false, Ordering::Relaxed) {
            *self.asking() = Asking::NotYet;
        }
    }

    /// Notes that it has refused a request on a shared connection.
    pub(super) fn note_refusal(&self, refusal: SharingRefusal) {
        self.multiplexes.store(false, Ordering::Relaxed);
        *self.asking() = match refusal {
            SharingRefusal::CannotShare => Asking::Asked,
            SharingRefusal::Overloaded => Asking::Answered(Instant::now()),
        };
    }

    fn asking(&self) -> MutexGuard<'_, Asking> {
        // A panic elsewhere leaves the value consistent.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
