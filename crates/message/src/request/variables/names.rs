//! Names of parameters as applications read them: variables, and elements of arrays within them.

/// A name as PHP reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PhpName {
    pub(super) variable: Vec<u8>,
    /// The array keys after the variable; `None`: the next free key (`[]`).
    elements: Vec<Option<Vec<u8>>>,
}

/// The relation between two names with the same variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    Whole,
    /// An element of the array that the other name means.
    Element,
}

impl PhpName {
    /// Parses a name that has been decoded. `None`: PHP ignores the parameter.
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        let name = name.split(|&byte| byte == 0).next()?;
        let name = &name[name.iter().take_while(|&&byte| byte == b' ').count()..];
        let bracket = name.iter().position(|&byte| byte == b'[').unwrap_or(name.len());
        let (variable, mut rest) = name.split_at(bracket);
        if variable.is_empty() {
            return None;
        }
        let mut elements = Vec::new();
        while let Some(key) = rest.strip_prefix(b"[") {
            let blank = key.iter().take(1).filter(|&&byte| is_space(byte)).count();
            let Some(end) = key[blank..].iter().position(|&byte| byte == b']') else { break };
            let is_next = end == 0;
            elements.push((!is_next).then(|| key[..blank + end].to_vec()));
            rest = &key[blank + end + 1..];
        }
        // An unclosed bracket is an ordinary character, if it is the first bracket.
        let variable = if elements.is_empty() { name } else { variable };
        let letter = |&byte: &u8| if b" .[".contains(&byte) { b'_' } else { byte };
        Some(Self { variable: variable.iter().map(letter).collect(), elements })
    }

    /// The part of this name's value that `other` means; `None`: a different value.
    pub(super) fn contains(&self, other: &Self) -> Option<Overlap> {
        let mut pairs = self.elements.iter().zip(&other.elements);
        // The next free key is not known, so it matches every key.
        let is_beneath = self.variable == other.variable
            && self.elements.len() <= other.elements.len()
            && pairs.all(|(one, other)| one.is_none() || other.is_none() || one == other);
        let is_whole = self.elements.len() == other.elements.len();
        is_beneath.then_some(if is_whole { Overlap::Whole } else { Overlap::Element })
    }
}

/// True if Rack or qs reads the name `sent` as `name`, or as an element of it. They leave brackets
/// out: `[a]`, `]a` and `a]` are `a` for Rack 2 (`normalize_params`), and `a[` is an element of `a`
/// for qs (`splitKeyIntoSegments`).
pub(super) fn has_keys_of(sent: &[u8], name: &[u8]) -> bool {
    let (mut sent, mut named) = (keys(sent), keys(name).peekable());
    named.peek().is_some() && named.all(|key| sent.next() == Some(key))
}

/// The keys of a name that has been decoded: the texts between brackets.
fn keys(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|byte| matches!(byte, b'[' | b']')).filter(|key| !key.is_empty())
}

/// White space as C's `isspace()` defines it.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> Option<String> {
        let PhpName { variable, elements } = PhpName::of(name.as_bytes())?;
        let mut text = String::from_utf8(variable).unwrap();
        for element in elements {
            let key = element.map(|key| String::from_utf8(key).unwrap()).unwrap_or_default();
            text += &format!("[{key}]");
        }
        Some(text)
    }

    /// The expected names are the results of PHP 8.2's `parse_str()`.
    #[test]
    fn names_are_read_as_php_reads_them() {
        for (name, read) in [
            ("a", Some("a")),
            ("  a b.c", Some("a_b_c")),
            ("a\0b", Some("a")),
            ("\0a", None),
            ("", None),
            (" ", None),
            ("[a", None),
            ("[]", None),
            (".", Some("_")),
            ("a[", Some("a_")),
            ("a[b", Some("a_b")),
            ("a[b.c[d", Some("a_b_c_d")),
            ("a[]", Some("a[]")),
            ("a[ ]", Some("a[]")),
            ("a[ b]", Some("a[ b]")),
            ("a[b]x", Some("a[b]")),
            ("a[b][c", Some("a[b]")),
            ("a[b[c]d", Some("a[b[c]")),
            ("a.b[c.d][e]", Some("a_b[c.d][e]")),
            ("a[\0]", Some("a_")),
        ] {
            assert_eq!(text(name).as_deref(), read, "{name:?}");
        }
    }

    /// Rack 2.2.22 or qs 6.17.1 makes nested values with the expected keys.
    #[test]
    fn keys_stand_between_brackets() {
        for (name, expected) in [
            ("a", &["a"][..]),
            ("[a]", &["a"]),
            ("][a", &["a"]),
            ("a]", &["a"]),
            ("a]]", &["a"]),
            ("a[]", &["a"]),
            ("a[b]", &["a", "b"]),
            ("a]b", &["a", "b"]),
            ("[x][a]", &["x", "a"]),
            ("a[][b]", &["a", "b"]),
            ("a[", &["a"]),
            ("[]", &[]),
            ("", &[]),
        ] {
            let found: Vec<_> = keys(name.as_bytes()).collect();
            let expected: Vec<_> = expected.iter().map(|key| key.as_bytes()).collect();
            assert_eq!(found, expected, "{name:?}");
        }
        assert!(has_keys_of(b"[a][b]", b"a") && has_keys_of(b"[a]b", b"a[b]"));
        assert!(!has_keys_of(b"x[a]", b"a") && !has_keys_of(b"a", b"a[b]"));
        assert!(!has_keys_of(b"[]", b"[]"));
    }
}
