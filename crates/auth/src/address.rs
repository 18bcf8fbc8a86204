//! Addresses of clients that have sent a password recently: each makes one attempt at a time, and
//! waits after wrong ones.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use sendoff_message::request::{Endpoint, Who};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The number of addresses that are remembered; they take less than 1 MiB.
const MAX_ADDRESSES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// The pause after an address's first wrong password. It doubles with each further one, up to
/// [`LONGEST_PAUSE`].
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most attempts of one address that wait: the number of requests that a browser sends at once
/// over HTTP/2 with the same password.
pub(super) const MAX_ATTEMPTS: usize = 128;

/// The time without an attempt after which the pause starts at [`FIRST_PAUSE`] again.
const FORGIVEN_AFTER: Duration = Duration::from_secs(300);

/// The addresses. The least recently used one is forgotten first.
#[derive(Debug)]
pub(super) struct Addresses(Mutex<LruCache<Who, Arc<AddressState>>>);

impl Default for Addresses {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ADDRESSES)))
    }
}

impl Addresses {
    /// The state of a client's address.
    pub(super) fn of(&self, client: &Endpoint) -> Arc<AddressState> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.get_or_insert(Who::of(client), Arc::default))
    }
}

/// The state of one address. The table and every attempt hold a reference.
#[derive(Debug)]
pub(super) struct AddressState {
    attempts: Semaphore,
    failing: Mutex<Option<Failing>>,
}

impl Default for AddressState {
    fn default() -> Self {
        Self { attempts: Semaphore::new(1), failing: Mutex::default() }
    }
}

/// The state after wrong passwords.
#[derive(Debug, Clone, Copy)]
struct Failing {
    pause: Duration,
    last: Instant,
}

impl AddressState {
    /// Waits until no other attempt of the address is in flight. `None` if too many are waiting
    /// already.
    pub(super) async fn begin(self: &Arc<Self>) -> Option<SemaphorePermit<'_>> {
        if Arc::strong_count(self) > MAX_ATTEMPTS + 1 {
            return None;
        }
        self.attempts.acquire().await.ok()
    }

    /// The pause of the address after wrong passwords; `None` if there were none recently.
    pub(super) fn pause(&self) -> Option<Duration> {
        let failing = *self.failing();
        failing.filter(|failing| failing.last.elapsed() < FORGIVEN_AFTER).map(|f| f.pause)
    }

    /// Notes the result of an attempt.
    pub(super) fn note(&self, is_right: bool) {
        let pause = self.pause().map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        *self.failing() = (!is_right).then(|| Failing { pause, last: Instant::now() });
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_network_of_one_client_is_one_address() {
        let who = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            Who::of(&Endpoint::Ip((address, 1).into()))
        };
        assert_eq!(who("192.0.2.1"), who("::ffff:192.0.2.1"));
        assert_ne!(who("192.0.2.1"), who("192.0.2.2"));
        assert_eq!(who("2001:db8::1"), who("2001:db8::ffff:0:0:2"));
        assert_ne!(who("2001:db8::1"), who("2001:db8:0:1::1"));
    }

    #[tokio::test]
    async fn attempts_of_one_address_are_bounded() {
        let address = Arc::<AddressState>::default();
        let first = address.begin().await.unwrap();
        let waiting: Vec<_> = (0..MAX_ATTEMPTS).map(|_| Arc::clone(&address)).collect();
        let another = Arc::clone(&address);
        assert!(another.begin().await.is_none());
        drop((waiting, first));
        assert!(another.begin().await.is_some());
    }
}
