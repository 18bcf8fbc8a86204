//! The current connections of each client, and its requests on routes that limit them. All event
//! loops share these counts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sendoff_message::request::{LimitKey, RouteId, Who};

/// Counts per key; a key with the count 0 takes no memory. Counts have 32 bits, which makes 16
/// bytes together with a client's address.
#[derive(Debug)]
struct Counts<K>(Mutex<HashMap<K, u32>>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Counts<K> {
    fn all(&self) -> MutexGuard<'_, HashMap<K, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, unless the count has reached `most`. Returns true if it was added.
    fn add(&self, key: K, most: u64) -> bool {
        match self.all().entry(key) {
            Entry::Occupied(count) if u64::from(*count.get()) >= most => false,
            Entry::Vacant(_) if most == 0 => false,
            entry => {
                let count = entry.or_default();
                *count = count.saturating_add(1);
                true
            }
        }
    }

    /// True if [`add`](Self::add) would add one now.
    fn has_room(&self, key: &K, most: u64) -> bool {
        self.all().get(key).map_or(0, |count| u64::from(*count)) < most
    }

    fn remove(&self, key: K) {
        if let Entry::Occupied(mut count) = self.all().entry(key) {
            match count.get() {
                0 | 1 => drop(count.remove()),
                more => *count.get_mut() = more - 1,
            }
        }
    }
}

/// The connections of the whole front.
#[derive(Debug)]
pub struct Connections {
    /// The number of connections for which there are enough descriptors.
    places: u64,
    count: AtomicU64,
    /// Connections before their first response.
    starting: AtomicUsize,
    /// A connection waits to be accepted on an event loop that has no idle connection to close.
    is_wanted: AtomicBool,
    of_clients: Counts<Who>,
}

impl Connections {
    /// Counters for a front with enough descriptors for this number of connections.
    pub fn new(places: u64) -> Self {
        let (count, is_wanted) = (AtomicU64::new(0), AtomicBool::new(false));
        let starting = AtomicUsize::new(0);
        Self { places, count, starting, is_wanted, of_clients: Counts::default() }
    }

    /// The number of connections for which there are enough descriptors.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// The current number of connections.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Connections before their first response.
    pub fn starting(&self) -> usize {
        self.starting.load(Ordering::Relaxed)
    }

    /// The first response of a connection begins, or it ends without one.
    pub(crate) fn note_started(&self) {
        self.starting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks other event loops to close an idle connection.
    pub fn want_room(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// True if an event loop should close an idle connection. Only one event loop gets this answer
    /// per request for room.
    pub(crate) fn take_wish(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) && self.is_wanted.swap(false, Ordering::Relaxed)
    }

    /// Counts an accepted connection.
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.starting.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the connection as this client's as well; false if the client has reached `most`.
    pub(crate) fn count_for(&self, who: Who, most: u64) -> bool {
        self.of_clients.add(who, most)
    }

    /// True if the client has fewer connections than `most`.
    pub fn has_room_for(&self, who: Who, most: u64) -> bool {
        self.of_clients.has_room(&who, most)
    }

    /// Notes that a connection has ended; `None`: it was not counted for a client.
    pub(crate) fn end(&self, who: Option<Who>) {
        if let Some(who) = who {
            self.of_clients.remove(who);
        }
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The requests in flight on routes that limit them.
#[derive(Debug, Default)]
pub struct RequestCounts(Counts<(RouteId, LimitKey)>);

impl RequestCounts {
    /// Counts a request on a route; `None`: the requests of the key have reached `most` there.
    pub fn begin(
        self: &Arc<Self>,
        route: RouteId,
        key: LimitKey,
        most: u32,
    ) -> Option<RequestPermit> {
        let key = (route, key);
        self.0.add(key, most.into()).then(|| RequestPermit { requests: Arc::clone(self), key })
    }
}

/// Counts a request on a route until dropped.
#[derive(Debug)]
pub struct RequestPermit {
    requests: Arc<RequestCounts>,
    key: (RouteId, LimitKey),
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        self.requests.0.remove(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Who = Who::V4([192, 0, 2, 1]);
    const OTHER: Who = Who::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 1]);

    #[test]
    fn a_client_has_as_many_connections_as_it_may() {
        let connections = Connections::new(4);
        (0..4).for_each(|_| connections.begin());
        let taken = [ONE, ONE, ONE, OTHER].map(|who| connections.count_for(who, 2));
        assert_eq!((taken, connections.count()), ([true, true, false, true], 4));
        assert!(!connections.has_room_for(ONE, 2) && connections.has_room_for(OTHER, 2));
        connections.end(Some(ONE));
        assert!(connections.has_room_for(ONE, 2));
        assert!(connections.count_for(ONE, 2) && !connections.count_for(ONE, 2));
        for who in [Some(ONE), Some(ONE), Some(OTHER)] {
            connections.end(who);
        }
        assert_eq!((connections.count(), connections.of_clients.all().len()), (0, 0));
    }

    #[test]
    fn routes_count_the_requests_of_each_client() {
        let requests = Arc::<RequestCounts>::default();
        let begin = |route, who| requests.begin(RouteId(route), LimitKey::Client(who), 1);
        let first = begin(1, ONE).unwrap();
        assert!(begin(1, ONE).is_none());
        assert!(begin(2, ONE).is_some() && begin(1, OTHER).is_some());
        drop(first);
        assert!(begin(1, ONE).is_some());
        assert_eq!(requests.0.all().len(), 0);
    }

    #[test]
    fn clients_take_little_room() {
        assert_eq!((size_of::<(Who, u32)>(), size_of::<Option<Who>>()), (16, size_of::<Who>()));
    }
}
