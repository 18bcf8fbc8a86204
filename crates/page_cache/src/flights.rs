//! One request makes a page while others wait for it.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::watch;

use super::key::Hash;

/// Time for which a key is remembered whose last page was not kept. Requests for such a key do not
/// wait for each other.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Most keys that are remembered as not kept.
const MOST_REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// A cache miss: make the page, or wait for the request that already makes it.
#[derive(Debug)]
pub enum Flight {
    /// The request makes the page. Others wait until this value is dropped.
    Make(MakePermit),
    /// The request waits until this channel is closed.
    Wait(watch::Receiver<()>),
    /// The request makes the page, as others do at the same time: the last page was not kept.
    MakeUnshared,
}

#[derive(Debug)]
pub(super) struct Flights(Mutex<FlightTable>);

#[derive(Debug)]
struct FlightTable {
    under_way: HashMap<Hash, watch::Receiver<()>>,
    not_kept: LruCache<Hash, Instant>,
}

/// The right to make a page while others wait.
#[derive(Debug)]
pub struct MakePermit {
    flights: Arc<Flights>,
    hash: Hash,
    /// Dropped with the permit, which wakes the waiting requests.
    _done: watch::Sender<()>,
    /// True if the page was kept; `None` if there was none, for example because the client has
    /// gone.
    was_kept: Option<bool>,
}

impl MakePermit {
    /// True if it is for the page that this hash stands for.
    pub(super) fn is_for(&self, hash: &Hash) -> bool {
        self.hash == *hash
    }

    /// Notes that the page has been made, and kept or not.
    pub fn ends(&mut self, was_kept: bool) {
        self.was_kept = Some(was_kept);
    }
}

impl Drop for MakePermit {
    fn drop(&mut self) {
        let mut inner = self.flights.lock();
        inner.under_way.remove(&self.hash);
        match self.was_kept {
            Some(true) => drop(inner.not_kept.pop(&self.hash)),
            Some(false) => drop(inner.not_kept.put(self.hash, Instant::now())),
            None => {}
        }
    }
}

impl Flights {
    pub(super) fn new() -> Arc<Self> {
        let not_kept = LruCache::new(MOST_REMEMBERED);
        Arc::new(Self(Mutex::new(FlightTable { under_way: HashMap::new(), not_kept })))
    }

    /// `hash` stands for the page: for its key and, as far as they are known, the request fields
    /// that the page varies with.
    pub(super) fn of(self: &Arc<Self>, hash: Hash) -> Flight {
        let mut inner = self.lock();
        if let Some(receiver) = inner.under_way.get(&hash) {
            return Flight::Wait(receiver.clone());
        }
        if inner.not_kept.get(&hash).is_some_and(|since| since.elapsed() < REMEMBERED) {
            return Flight::MakeUnshared;
        }
        let (done, receiver) = watch::channel(());
        inner.under_way.insert(hash, receiver);
        Flight::Make(MakePermit { flights: Arc::clone(self), hash, _done: done, was_kept: None })
    }

    fn lock(&self) -> MutexGuard<'_, FlightTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_makes_the_page_and_others_wait() {
        let flights = Flights::new();
        let key = [1; 20];
        let Flight::Make(mut permit) = flights.of(key) else { panic!("the first one makes it") };
        let Flight::Wait(mut waits) = flights.of(key) else { panic!("the second one waits") };
        let other = [2; 20];
        assert!(matches!(flights.of(other), Flight::Make(_)));
        permit.ends(true);
        drop(permit);
        assert!(waits.changed().await.is_err(), "the maker is gone");
        assert!(matches!(flights.of(key), Flight::Make(_)));
    }

    #[test]
    fn requests_do_not_wait_for_what_is_not_kept() {
        let flights = Flights::new();
        let key = [1; 20];
        drop(flights.of(key));
        let Flight::Make(mut permit) = flights.of(key) else { panic!("nothing was made") };
        permit.ends(false);
        drop(permit);
        assert!(matches!(flights.of(key), Flight::MakeUnshared));
    }
}
