//! The key `rate` of routes: limits of requests per client, or per value of a map.
//! (`application_response/rate_limit.rs` limits the rate of bodies.)

mod shared;

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use sendoff_config::Rate;
use sendoff_message::request::{LimitKey, RouteId};
use tokio::sync::Notify;
use tokio::time::Instant;

use shared::Shared;

/// The most clients that are remembered, of all routes together, and the most values: about 8 MiB
/// each. Beyond that, the least recently seen one is forgotten, and its bucket is full when it comes
/// back.
const MAX_BUCKETS: NonZeroUsize = NonZeroUsize::new(65_536).expect("not zero");

/// The buckets of all limits. All event loops share them.
#[derive(Debug, Default)]
pub struct Rates {
    buckets: Mutex<Buckets>,
    /// There is a count for other nodes.
    counted: Notify,
}

/// The time at which the bucket of each route and key will be full again. One client can send any
/// number of values, so values have room of their own: they make no client forgotten.
#[derive(Debug)]
struct Buckets {
    clients: LruCache<(RouteId, LimitKey), Instant>,
    values: LruCache<(RouteId, LimitKey), Instant>,
    /// Counts for other nodes of the fleet; `None`: the limits are of this node.
    shared: Option<Shared>,
}

impl Default for Buckets {
    fn default() -> Self {
        let [clients, values] = [(); 2].map(|()| LruCache::new(MAX_BUCKETS));
        Self { clients, values, shared: None }
    }
}

impl Buckets {
    fn of(&mut self, key: LimitKey) -> &mut LruCache<(RouteId, LimitKey), Instant> {
        match key {
            LimitKey::Client(_) => &mut self.clients,
            LimitKey::Value(_) => &mut self.values,
        }
    }
}

impl Rates {
    /// Takes a token for each limit that applies to a request. If a bucket is empty, returns its
    /// route and the time until its next token; if several are empty, the one with the longest
    /// time.
    pub fn take(&self, limits: &[(RouteId, LimitKey, Rate)]) -> Option<(RouteId, Duration)> {
        if limits.is_empty() {
            return None;
        }
        let now = Instant::now();
        let mut buckets = self.lock();
        let mut is_counted = false;
        let waits = limits.iter().filter_map(|(route, key, rate)| {
            let full = buckets.of(*key).get_or_insert_mut((*route, *key), || now);
            let (next, wait) = take(*rate, *full, now);
            *full = next;
            if let (None, Some(shared)) = (wait, &mut buckets.shared) {
                is_counted |= shared.count(*route, *key);
            }
            wait.map(|wait| (*route, wait))
        });
        let longest = waits.max_by_key(|(_, wait)| *wait);
        if is_counted {
            self.counted.notify_one();
        }
        longest
    }

    fn lock(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a token out of a bucket that will be full at `full`. Returns the new time at which it will
/// be full and, if the bucket is empty, the time until its next token. This is the virtual
/// scheduling algorithm of ITU-T I.371: one time replaces a number of tokens and the time at which
/// they were counted.
fn take(
    Rate { interval, burst }: Rate,
    full: Instant,
    now: Instant,
) -> (Instant, Option<Duration>) {
    let missing = full.saturating_duration_since(now);
    let most = interval * (burst - 1);
    match missing.checked_sub(most).filter(|wait| !wait.is_zero()) {
        Some(wait) => (full, Some(wait)),
        None => (now + missing + interval, None),
    }
}

#[cfg(test)]
mod tests {
    use sendoff_message::request::{Endpoint, Who};

    use super::*;

    const RATE: Rate = Rate { interval: Duration::from_millis(100), burst: 3 };
    const SLOW: Rate = Rate { interval: Duration::from_secs(3600), burst: 3 };

    #[test]
    fn a_burst_passes_then_one_per_interval() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut full = start;
        let mut waits = |at| {
            let (next, wait) = take(RATE, full, at);
            full = next;
            wait.map(|wait| wait.as_millis())
        };
        assert_eq!([0, 0, 0, 0].map(|ms| waits(after(ms))), [None, None, None, Some(100)]);
        assert_eq!([90, 100, 110].map(|ms| waits(after(ms))), [Some(10), None, Some(90)]);
        // A bucket never holds more than a burst, even after a long time.
        assert_eq!([9000; 4].map(|ms| waits(after(ms))), [None, None, None, Some(100)]);
    }

    #[test]
    fn clients_and_routes_have_buckets_of_their_own() {
        let rates = Rates::default();
        let client = |text: &str| {
            LimitKey::Client(Who::of(&Endpoint::Ip(format!("{text}:5").parse().unwrap())))
        };
        let takes = |route, key| rates.take(&[(RouteId(route), key, Rate { burst: 1, ..RATE })]);
        let passes = |route, text: &str| takes(route, client(text)).is_none();
        assert!(passes(1, "192.0.2.1") && !passes(1, "192.0.2.1"));
        assert!(passes(2, "192.0.2.1") && passes(1, "192.0.2.2"));
        // Another address of the same network counts as the same client.
        assert!(passes(1, "[2001:db8::1]") && !passes(1, "[2001:db8::2]"));
        assert!(passes(1, "[2001:db8:0:1::1]"));
        let value = |value: &[u8]| takes(1, LimitKey::of_value(value)).is_none();
        assert!(value(b"one") && value(b"two") && !value(b"one"));
        assert_eq!(rates.take(&[]), None);
    }

    #[test]
    fn values_make_no_client_forgotten() {
        let rates = Rates::default();
        let client = LimitKey::Client(Who::of(&Endpoint::Ip("192.0.2.1:5".parse().unwrap())));
        let takes = |key| rates.take(&[(RouteId(1), key, Rate { burst: 1, ..SLOW })]);
        assert!(takes(client).is_none() && takes(client).is_some());
        for number in 0..=MAX_BUCKETS.get() {
            takes(LimitKey::of_value(&number.to_le_bytes()));
        }
        assert!(takes(client).is_some());
    }
}
