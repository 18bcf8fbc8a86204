//! Bodies in memory. To open, look at, read and close the file of a small page took as long as the
//! rest of the response.

use bytes::Bytes;
use lru::LruCache;
use sendoff_delivery::segment::SMALL;

/// The longest body that stays in memory. Longer ones are sent by `sendfile`, which is as cheap.
pub(super) const MOST: u64 = SMALL;

/// Bytes of all bodies in memory.
const ALL: usize = 32 << 20;

/// The short bodies that clients have got lately, by the names of their files, which are used once.
#[derive(Debug)]
pub(super) struct Bodies {
    by_file: LruCache<String, Bytes>,
    len: usize,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { by_file: LruCache::unbounded(), len: 0 }
    }
}

impl Bodies {
    pub(super) fn get(&mut self, file: &str) -> Option<Bytes> {
        self.by_file.get(file).cloned()
    }

    pub(super) fn insert(&mut self, file: String, body: Bytes) {
        self.len += body.len();
        if let Some(before) = self.by_file.put(file, body) {
            self.len -= before.len();
        }
        while self.len > ALL
            && let Some((_, oldest)) = self.by_file.pop_lru()
        {
            self.len -= oldest.len();
        }
    }

    pub(super) fn remove(&mut self, file: &str) {
        if let Some(body) = self.by_file.pop(file) {
            self.len -= body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_bodies_go_first() {
        let mut bodies = Bodies::default();
        let body = Bytes::from(vec![0; 1 << 20]);
        for number in 0..33 {
            bodies.insert(number.to_string(), body.clone());
            assert!(bodies.get("0").is_some());
        }
        assert_eq!((bodies.len, bodies.by_file.len()), (ALL, 32));
        assert_eq!(bodies.get("1"), None);
        bodies.insert("0".to_owned(), Bytes::from_static(b"shorter"));
        bodies.remove("2");
        bodies.remove("2");
        assert_eq!(bodies.len, ALL - (2 << 20) + b"shorter".len());
    }
}
