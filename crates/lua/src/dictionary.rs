//! A dictionary shared by all scripts of a site, across requests and event loops.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use lru::LruCache;

/// Maximum number of bytes of keys and values; beyond it the least recently used entries are
/// dropped.
pub const DICTIONARY_BYTES: usize = 4 << 20;

/// Maximum number of entries.
const ENTRIES: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Memory of an entry in addition to its key and its value, in bytes.
const OVERHEAD: usize = 96;

/// A value of the dictionary.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// A string.
    Text(Bytes),
    /// An integer.
    Integer(i64),
    /// A number.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

impl Stored {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Integer(_) | Self::Number(_) | Self::Boolean(_) => 0,
        }
    }
}

/// A bounded dictionary with expiry.
#[derive(Debug)]
pub struct Dictionary(Mutex<Entries>);

#[derive(Debug)]
struct Entries {
    map: LruCache<Box<[u8]>, DictionaryEntry>,
    bytes: usize,
}

#[derive(Debug)]
struct DictionaryEntry {
    value: Stored,
    /// Time of expiry, by the caller's clock.
    until: Option<Duration>,
}

impl Default for Dictionary {
    fn default() -> Self {
        Self(Mutex::new(Entries { map: LruCache::new(ENTRIES), bytes: 0 }))
    }
}

impl Dictionary {
    /// The value of a key at the time `now`; `None` if there is none or it has expired.
    pub fn get(&self, key: &[u8], now: Duration) -> Option<Stored> {
        self.with(|entries| entries.current(key, now).map(|entry| entry.value.clone()))
    }

    /// Stores a value, which expires at the time `until`. Returns false if it is too large for the
    /// dictionary.
    pub fn set(&self, key: &[u8], value: Stored, until: Option<Duration>) -> bool {
        self.with(|entries| entries.insert(key, DictionaryEntry { value, until }))
    }

    /// Stores a value unless the key has one. Returns true if it was stored.
    pub fn add(&self, key: &[u8], value: Stored, until: Option<Duration>, now: Duration) -> bool {
        self.with(|entries| {
            entries.current(key, now).is_none()
                && entries.insert(key, DictionaryEntry { value, until })
        })
    }

    /// Adds to an integer, which starts as 0 and then expires at `until`. The result saturates at
    /// the smallest and the largest integer, so a counter stays beyond a limit that it has passed.
    /// Returns the sum; `None`: the value is no integer.
    pub(crate) fn increase(
        &self,
        key: &[u8],
        by: i64,
        until: Option<Duration>,
        now: Duration,
    ) -> Option<i64> {
        self.with(|entries| match entries.current(key, now) {
            Some(DictionaryEntry { value: Stored::Integer(value), .. }) => {
                *value = value.saturating_add(by);
                Some(*value)
            }
            Some(_) => None,
            None => {
                entries.insert(key, DictionaryEntry { value: Stored::Integer(by), until });
                Some(by)
            }
        })
    }

    /// Removes a key.
    pub fn remove(&self, key: &[u8]) {
        self.with(|entries| entries.remove(key));
    }

    fn with<T>(&self, act: impl FnOnce(&mut Entries) -> T) -> T {
        // A panic leaves at worst a wrong count of bytes.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Entries {
    fn current(&mut self, key: &[u8], now: Duration) -> Option<&mut DictionaryEntry> {
        let has_expired =
            self.map.peek(key).is_some_and(|entry| entry.until.is_some_and(|until| until <= now));
        if has_expired {
            self.remove(key);
        }
        self.map.get_mut(key)
    }

    fn insert(&mut self, key: &[u8], entry: DictionaryEntry) -> bool {
        self.remove(key);
        let cost = cost(key, &entry);
        if cost > DICTIONARY_BYTES {
            return false;
        }
        self.bytes += cost;
        if let Some((key, evicted)) = self.map.push(key.into(), entry) {
            self.bytes -= self::cost(&key, &evicted);
        }
        while self.bytes > DICTIONARY_BYTES {
            let Some((key, evicted)) = self.map.pop_lru() else { break };
            self.bytes -= self::cost(&key, &evicted);
        }
        true
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(removed) = self.map.pop(key) {
            self.bytes -= cost(key, &removed);
        }
    }
}

fn cost(key: &[u8], entry: &DictionaryEntry) -> usize {
    key.len() + entry.value.len() + OVERHEAD
}
