//! Routes, for what is counted by route.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A route, by a number that no other route has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteId(pub u64);

impl RouteId {
    /// The number of the route that is written there: the same on all event loops, and after a reload that leaves it where it is.
    pub fn of(origin: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        origin.hash(&mut hasher);
        Self(hasher.finish())
    }
}
