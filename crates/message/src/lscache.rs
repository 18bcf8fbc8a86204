//! Fields between LSCache's plugins and the page cache (`docs/lscache.md`).

/// A cookie for every client that gets the page, sent as `Set-Cookie`.
pub const COOKIE: &str = "LSC-Cookie";

/// Beginnings of the names of fields between applications and the cache, in lower case.
const FOR_CACHE: [&[u8]; 3] = [b"x-litespeed-", b"x-lscache", b"x-lsadc-"];

/// True if the field is between applications and the cache: clients neither get nor send it.
/// Applications take `_` for `-`.
#[must_use]
pub fn is_for_cache(name: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    let is_of = |beginning: &&[u8]| {
        name.get(..beginning.len())
            .is_some_and(|start| start.iter().map(plain).eq(beginning.iter().copied()))
    };
    FOR_CACHE.iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_known_in_any_spelling() {
        for name in ["X-LiteSpeed-Tag", "x-litespeed-purge2", "X_LSCACHE", "X-LSCACHE-Vary-Value"] {
            assert!(is_for_cache(name.as_bytes()), "{name}");
        }
        for name in ["X-Lite", "Cache-Control", "LSC-Cookie", ""] {
            assert!(!is_for_cache(name.as_bytes()), "{name}");
        }
    }
}
