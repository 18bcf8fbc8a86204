//! Clients' addresses that have shown a password lately: each makes one attempt at a time, and waits after wrong ones.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lru::LruCache;
use sendoff_message::request::{Endpoint, Who};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Addresses that are remembered: less than 1 MiB.
const MAX_ADDRESSES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// How long an address waits after its first wrong password. The time doubles with each further one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Attempts of one address that may wait: as many as the requests that a browser sends at once over HTTP/2, which show the same
/// password.
pub(super) const MAX_ATTEMPTS: usize = 128;

/// After this time without an attempt the pause begins anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(300);

/// The addresses, least recently used ones forgotten.
#[derive(Debug)]
pub(super) struct Addresses(Mutex<LruCache<Who, Arc<Address>>>);

impl Default for Addresses {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ADDRESSES)))
    }
}

impl Addresses {
    /// What is known about a client's address.
    pub(super) fn of(&self, client: &Endpoint) -> Arc<Address> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.get_or_insert(Who::of(client), Arc::default))
    }
}

/// One address. Every attempt holds the value, and the table does.
#[derive(Debug)]
pub(super) struct Address {
    attempts: Semaphore,
    failing: Mutex<Option<Failing>>,
}

impl Default for Address {
    fn default() -> Self {
        Self { attempts: Semaphore::new(1), failing: Mutex::default() }
    }
}

/// Its last attempts were wrong.
#[derive(Debug, Clone, Copy)]
struct Failing {
    pause: Duration,
    last: Instant,
}

impl Address {
    /// Waits until no other attempt of the address is under way. `None`: too many wait already.
    pub(super) async fn begin(self: &Arc<Self>) -> Option<SemaphorePermit<'_>> {
        if Arc::strong_count(self) > MAX_ATTEMPTS + 1 {
            return None;
        }
        self.attempts.acquire().await.ok()
    }

    /// How long the address must wait after its wrong passwords; `None`: there were none lately.
    pub(super) fn pause(&self) -> Option<Duration> {
        let failing = *self.failing();
        failing.filter(|failing| failing.last.elapsed() < FORGIVEN_AFTER).map(|f| f.pause)
    }

    /// Notes how an attempt has ended.
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
        let address = Arc::<Address>::default();
        let first = address.begin().await.unwrap();
        let waiting: Vec<_> = (0..MAX_ATTEMPTS).map(|_| Arc::clone(&address)).collect();
        let another = Arc::clone(&address);
        assert!(another.begin().await.is_none());
        drop((waiting, first));
        assert!(another.begin().await.is_some());
    }
}
