//! Ids of routes, for counters per route.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The id of a route, a hash of the place where the route is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(pub u64);

impl RouteId {
    /// The id of the route written at `origin`: the same on all event loops, and after a reload
    /// that does not move the route.
    pub fn of(origin: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        origin.hash(&mut hasher);
        Self(hasher.finish())
    }
}
