//! Limits that the nodes of a fleet share. Each node lets requests pass by itself, and takes a
//! little later the tokens that other nodes have given out. No request waits for that.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use sendoff_config::{Config, Rate, Site};
use sendoff_message::request::{LimitKey, RouteId};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Rates;

/// The most clients and values, of all routes together, that are counted for other nodes until the
/// counts are sent. Other nodes do not learn of the rest.
const MOST_COUNTS: usize = 1024;

/// The most tokens below an empty bucket. As many nodes may give out the same token before they
/// know of each other.
const MOST_OWED: u32 = 255;

/// The requests that a node has let pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SharedCount(RouteName, LimitKey, u32);

/// The name of a limited route, the same on all nodes: a hash of its site's name, its conditions
/// and its limit.
type RouteName = u64;

/// The counts for other nodes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    names: HashMap<RouteId, RouteName>,
    limits: HashMap<RouteName, (RouteId, Rate)>,
    counts: HashMap<(RouteName, LimitKey), u32>,
}

impl Shared {
    fn new(config: &Config) -> Self {
        let mut shared = Self::default();
        for site in &config.sites {
            for (id, name, rate) in limited(site) {
                shared.names.insert(id, name);
                shared.limits.insert(name, (id, rate));
            }
        }
        shared
    }

    /// Counts a request that has passed. Returns true if other nodes are to learn of it.
    pub(super) fn count(&mut self, route: RouteId, key: LimitKey) -> bool {
        let Some(name) = self.names.get(&route).filter(|_| key.is_known_elsewhere()) else {
            return false;
        };
        let has_room = self.counts.len() < MOST_COUNTS;
        match self.counts.get_mut(&(*name, key)) {
            Some(count) => *count = count.saturating_add(1),
            None if has_room => drop(self.counts.insert((*name, key), 1)),
            None => {}
        }
        true
    }
}

/// The limited routes of a site. Equal routes are told apart by their order.
fn limited(site: &Site) -> impl Iterator<Item = (RouteId, RouteName, Rate)> {
    let mut known = HashMap::<RouteName, u32>::new();
    site.routes.iter().filter_map(move |route| {
        let rate = route.rules.rate?;
        let conditions = serde_json::to_string(&route.conditions).ok()?;
        let limit = (rate.interval, rate.burst, &route.rules.limit_by);
        let name = hash(&(&site.name, conditions, limit));
        let number = known.entry(name).or_default();
        *number += 1;
        Some((RouteId::of(&route.origin), hash(&(name, *number)), rate))
    })
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Rates {
    /// Shares the limits of this configuration with other nodes; `None`: shares none.
    pub fn share(&self, config: Option<&Config>) {
        let shared = config.map(Shared::new).filter(|shared| !shared.names.is_empty());
        self.lock().shared = shared;
    }

    /// Notified when there are counts for other nodes.
    pub fn counted(&self) -> &Notify {
        &self.counted
    }

    /// Takes the counts for other nodes out, in JSON; `None`: there are none.
    pub fn take_counts(&self) -> Option<Vec<u8>> {
        let counts = std::mem::take(&mut self.lock().shared.as_mut()?.counts);
        let counts = counts.into_iter().map(|((name, key), count)| SharedCount(name, key, count));
        let counts: Vec<_> = counts.collect();
        if counts.is_empty() { None } else { serde_json::to_vec(&counts).ok() }
    }

    /// Takes the tokens that another node has given out, as its [`take_counts`](Self::take_counts)
    /// says. Limits that this node does not have are left out.
    ///
    /// # Errors
    /// A sentence: these are no counts.
    pub fn add_counts(&self, counts: &[u8]) -> Result<(), String> {
        let counts: Vec<SharedCount> =
            serde_json::from_slice(counts).map_err(|error| error.to_string())?;
        self.add(&counts);
        Ok(())
    }

    fn add(&self, counts: &[SharedCount]) {
        let now = Instant::now();
        let mut buckets = self.lock();
        for SharedCount(name, key, count) in counts {
            let limits = buckets.shared.as_ref().map(|shared| &shared.limits);
            let Some((route, rate)) = limits.and_then(|limits| limits.get(name)).copied() else {
                continue;
            };
            let full = buckets.of(*key).get_or_insert_mut((route, *key), || now);
            let most = rate.interval.saturating_mul(rate.burst.saturating_add(MOST_OWED));
            let missing = full.saturating_duration_since(now);
            let missing = missing.saturating_add(rate.interval.saturating_mul(*count)).min(most);
            *full = now.checked_add(missing).unwrap_or(*full);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sendoff_message::request::Who;

    use super::*;

    const RATE: Rate = Rate { interval: Duration::from_secs(3600), burst: 5 };
    const CLIENT: LimitKey = LimitKey::Client(Who::V4([192, 0, 2, 1]));
    const ROUTE: RouteId = RouteId(7);

    /// A node on which the route `ROUTE` has this name.
    fn node(name: RouteName) -> Rates {
        let rates = Rates::default();
        let shared = Shared {
            names: HashMap::from([(ROUTE, name)]),
            limits: HashMap::from([(name, (ROUTE, RATE))]),
            counts: HashMap::new(),
        };
        rates.lock().shared = Some(shared);
        rates
    }

    /// The number of requests that pass until one is refused.
    fn passes(rates: &Rates, key: LimitKey) -> usize {
        (0..100).take_while(|_| rates.take(&[(ROUTE, key, RATE)]).is_none()).count()
    }

    #[test]
    fn tokens_of_other_nodes_are_gone() {
        let [one, two, other] = [1, 1, 2].map(node);
        assert_eq!(one.take_counts(), None);
        assert!((0..3).all(|_| one.take(&[(ROUTE, CLIENT, RATE)]).is_none()));
        let counts = one.take_counts().unwrap();
        assert_eq!(one.take_counts(), None);
        two.add_counts(&counts).unwrap();
        other.add_counts(&counts).unwrap();
        assert_eq!(passes(&two, CLIENT), 2);
        assert_eq!(passes(&other, CLIENT), 5, "it has other limits");
        // Refused requests do not count.
        let counts = two.take_counts().unwrap();
        one.add_counts(&counts).unwrap();
        assert_eq!(passes(&one, CLIENT), 0);
        two.share(None);
        assert_eq!(two.take_counts(), None);
    }

    /// Addresses of this machine mean another client elsewhere.
    #[test]
    fn clients_of_this_machine_are_not_shared() {
        let one = node(1);
        for who in [Who::Local, Who::V4([127, 0, 0, 1]), Who::V6([0; 8])] {
            assert_eq!(passes(&one, LimitKey::Client(who)), 5);
        }
        assert_eq!(one.take_counts(), None);
        assert_eq!(passes(&one, LimitKey::of_value(b"key")), 5);
        assert!(one.take_counts().is_some());
    }

    #[test]
    fn anything_else_is_an_error() {
        let one = node(1);
        for text in ["", "{}", "[[1]]", "[[1,{\"Client\":{\"V4\":[1,2]}},1]]"] {
            assert!(one.add_counts(text.as_bytes()).is_err(), "{text}");
        }
        let most = format!("[[1,{{\"Client\":{{\"V4\":[192,0,2,1]}}}},{}]]", u32::MAX);
        one.add_counts(most.as_bytes()).unwrap();
        let owed = RATE.interval * (RATE.burst + MOST_OWED);
        let (_, wait) = one.take(&[(ROUTE, CLIENT, RATE)]).unwrap();
        assert!(wait <= owed, "{wait:?}");
        assert!(node(1).take(&[(ROUTE, CLIENT, Rate { burst: 1, ..RATE })]).is_none());
    }
}
