//! Byte strings: Apache's operations on paths and words.

/// A byte string as text for people.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Several byte strings as one.
pub(crate) fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The position of `needle` in `text`.
pub(crate) fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return Some(0);
    }
    text.windows(needle.len()).position(|window| window == needle)
}

/// True if a text begins with a prefix, without regard to case.
pub(crate) fn starts_with_ignore_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// The number at the beginning of a text, as C's `atoi` reads it.
pub(crate) fn number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits
        .fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if negative { -value } else { value }
}

/// Escapes every byte that a path may not contain as `%xx`, with lower-case digits as Apache writes
/// them.
pub(crate) fn escape_path(path: &[u8]) -> Vec<u8> {
    escape(path, b"$-_.+!*'(),:;@&=/~")
}

/// Escapes every byte except letters, digits and `kept` as `%xx`.
pub(crate) fn escape(text: &[u8], kept: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            escaped.push(byte);
        } else {
            escaped.extend_from_slice(format!("%{byte:02x}").as_bytes());
        }
    }
    escaped
}

fn hex(pair: &[u8]) -> Option<u8> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let (high, low) = (digit(pair.first()?)?, digit(pair.get(1)?)?);
    u8::try_from(high * 16 + low).ok()
}

/// Decodes `%xx`; a `%` without two digits stays.
pub(crate) fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut decoded, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(&byte) = text.get(at) {
        match hex(text.get(at + 1..at + 3).unwrap_or_default()) {
            Some(value) if byte == b'%' => {
                decoded.push(value);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// The reason why a path is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadPath {
    /// `%` without two digits, or a path that leaves the site: 400.
    Malformed,
    /// An encoded slash or zero: 404.
    Hidden,
}

/// Decodes the path of an internal redirect, and removes `.`, `..` and repeated slashes.
pub(crate) fn decode_path(path: &[u8]) -> Result<Vec<u8>, BadPath> {
    let (mut decoded, mut at) = (Vec::with_capacity(path.len()), 0);
    while let Some(&byte) = path.get(at) {
        if byte == b'%' {
            let value = hex(path.get(at + 1..at + 3).unwrap_or_default());
            match value.ok_or(BadPath::Malformed)? {
                0 | b'/' => return Err(BadPath::Hidden),
                value => decoded.push(value),
            }
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    normalise(&decoded)
}

/// Removes `.`, `..` and repeated slashes from a path, which must begin with a slash.
fn normalise(path: &[u8]) -> Result<Vec<u8>, BadPath> {
    if path.first() != Some(&b'/') {
        return Err(BadPath::Malformed);
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut folder = false;
    for segment in path.split(|byte| *byte == b'/') {
        folder = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop().ok_or(BadPath::Malformed)?;
            }
            segment => kept.push(segment),
        }
    }
    let mut normal = Vec::with_capacity(path.len());
    for segment in kept {
        normal.push(b'/');
        normal.extend_from_slice(segment);
    }
    if folder {
        normal.push(b'/');
    }
    Ok(normal)
}

/// True if a shell pattern (`*`, `?`, `[...]`, `\` before a character) matches the whole name.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    // The position to continue from after a star has matched one byte more.
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(b'?') => Some(p + 1),
            Some(b'[') => class(&pattern[p..], name[n])
                .and_then(|(length, is_in)| is_in.then_some(p + length)),
            Some(b'\\') if pattern.get(p + 1) == Some(&name[n]) => Some(p + 2),
            Some(byte) if *byte == name[n] => Some(p + 1),
            _ => None,
        };
        match (step, star) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((after, taken))) => {
                star = Some((after, taken + 1));
                (p, n) = (after, taken + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p.min(pattern.len())..].iter().all(|byte| *byte == b'*')
}

/// The length of a bracket expression, and true if it contains a byte; `None` if it does not end.
fn class(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let end = start + 1 + pattern.get(start + 1..)?.iter().position(|byte| *byte == b']')?;
    let (members, mut at, mut found) = (&pattern[start..end], 0, false);
    while let Some(&low) = members.get(at) {
        match (members.get(at + 1), members.get(at + 2)) {
            (Some(b'-'), Some(&high)) => {
                found |= (low..=high).contains(&byte);
                at += 3;
            }
            _ => {
                found |= low == byte;
                at += 1;
            }
        }
    }
    Some((end + 1, found != negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_and_normalised() {
        let decoded = |path: &str| decode_path(path.as_bytes()).map(|path| lossy(&path));
        assert_eq!(decoded("/a//b/./c/../d%20e/"), Ok("/a/b/d e/".to_owned()));
        assert_eq!(decoded("/a/.."), Ok("/".to_owned()));
        assert_eq!(decoded("/../etc"), Err(BadPath::Malformed));
        assert_eq!(decoded("/a%2fb"), Err(BadPath::Hidden));
        assert_eq!(decoded("/%zz"), Err(BadPath::Malformed));
        assert_eq!(decoded("a"), Err(BadPath::Malformed));
    }

    #[test]
    fn globs() {
        for (pattern, name, expected) in [
            ("*.php", "a.php", true),
            ("*.php", "a.php5", false),
            ("?.txt", "a.txt", true),
            ("[a-c]*", "bx", true),
            ("[!a-c]*", "bx", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[", "[", false),
            ("*a*b*", "xxaxxbx", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn numbers_as_in_c() {
        assert_eq!(number(b" -12x"), -12);
        assert_eq!(number(b"x"), 0);
        assert_eq!(number(b"99999999999999999999"), i64::MAX);
    }
}
