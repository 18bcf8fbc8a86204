//! Ids of requests.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use http::HeaderMap;

/// The longest id that is taken from a proxy, in bytes.
const MAX_ID: usize = 128;

/// The id for a request: the value of `X-Request-Id`, if `fields` has exactly one such field and it
/// consists of harmless characters; otherwise 32 random hexadecimal digits. `fields` must come from
/// a trusted proxy; `None`: the peer is not trusted.
#[must_use]
pub fn new_id(fields: Option<&HeaderMap>) -> Rc<str> {
    fields.and_then(given).map_or_else(random, Rc::from)
}

fn given(fields: &HeaderMap) -> Option<&str> {
    let mut values = fields.get_all("x-request-id").iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "-_.~+/=:".contains(c);
    let text = value.to_str().ok()?;
    ((1..=MAX_ID).contains(&text.len()) && text.chars().all(is_harmless)).then_some(text)
}

/// 128 bits from a keyed hash of a counter. Each thread has a random key, so an id costs no system
/// call and reveals nothing about other ids.
fn random() -> Rc<str> {
    thread_local! {
        static KEY: RandomState = RandomState::new();
        static COUNTER: Cell<u64> = const { Cell::new(0) };
    }
    let number = COUNTER.get().wrapping_add(1);
    COUNTER.set(number);
    let half = |which: u8| KEY.with(|key| key.hash_one((number, which)));
    format!("{:016x}{:016x}", half(0), half(1)).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn ids_of_proxies_are_taken_if_they_are_harmless() {
        let longest = "x".repeat(MAX_ID);
        for id in ["7f3c", "Root=1-67891233-abcdef012345678912345678", "a/b+c==", &longest] {
            let mut fields = HeaderMap::new();
            fields.insert("x-request-id", id.parse().unwrap());
            assert_eq!(&*new_id(Some(&fields)), id);
            assert_ne!(&*new_id(None), id);
            fields.append("x-request-id", HeaderValue::from_static("other"));
            assert_ne!(&*new_id(Some(&fields)), id, "two fields");
        }
        let too_long = "x".repeat(MAX_ID + 1);
        for bad in ["", "a b", "a\"b", "a,b", "<a>", "a\tb", "a;b", &too_long, "\u{e4}"] {
            let mut fields = HeaderMap::new();
            fields.insert("x-request-id", HeaderValue::from_bytes(bad.as_bytes()).unwrap());
            assert_eq!(new_id(Some(&fields)).len(), 32, "{bad:?}");
        }
    }

    #[test]
    fn made_ids_are_hexadecimal_and_all_differ() {
        let all: HashSet<_> = (0..10_000).map(|_| new_id(None)).collect();
        assert_eq!(all.len(), 10_000);
        let is_hex = |id: &Rc<str>| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(all.iter().all(is_hex));
        let elsewhere = std::thread::spawn(|| new_id(None).to_string()).join().unwrap();
        assert!(!all.contains(&*elsewhere));
    }
}
