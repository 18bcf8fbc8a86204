//! Names and values of parameters and cookies as applications read them, for the rules about them.
//!
//! PHP makes variables of them (`php_default_treat_data()`, `php_register_variable_ex()`): `?+a.b`,
//! `?a[b` and `?a_b%00c` are all `a_b`, and `a[]` is an element of the array `a`. Rack and qs leave
//! brackets out: `?[a]` is `a`. Other applications decode form data without these rules; a few also
//! separate parameters by `;`, leave `+` as it is, or drop a `?` at the beginning. A rule that
//! blocks requests must hold for every such application.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use decode::{form_decode, form_decode_with_numbers};
use names::{Overlap, PhpName, has_keys_of};

mod cookies;
mod decode;
mod names;

pub use cookies::{are_read_alike, cookie_texts, joined_cookies};
pub use decode::and_trimmed;

/// Parts of a query that all applications read: PHP stops behind the first 1000 (`max_input_vars`),
/// as qs and Node's `querystring` do.
const READ_BY_ALL: usize = 1000;

/// The name of a parameter in a rule.
#[derive(Debug)]
pub struct ParameterName {
    text: Vec<u8>,
    php: Option<PhpName>,
}

impl ParameterName {
    /// The name as the operator writes it.
    pub fn new(text: &str) -> Self {
        Self { text: text.as_bytes().to_vec(), php: PhpName::of(text.as_bytes()) }
    }

    /// All values of this parameter, in every reading that some application uses.
    pub fn any_values<'q>(&'q self, query: &'q [u8]) -> impl Iterator<Item = Cow<'q, [u8]>> + 'q {
        self.sent_values(query).flat_map(|(_, value)| {
            let decoded = percent_decode(value).into();
            let other = (decoded != value).then_some(Cow::Borrowed(value));
            let with_plus = value.contains(&b'+').then(|| form_decode(value));
            let with_numbers = form_decode_with_numbers(value).map(Cow::Owned);
            let texts = [Some(decoded), other, with_plus, with_numbers].into_iter().flatten();
            texts.flat_map(and_trimmed)
        })
    }

    /// The values of this parameter, decoded as form data, that some application reads; `None`: an
    /// element of an array, which is no text.
    pub fn decoded_values<'q>(
        &'q self,
        query: &'q [u8],
    ) -> impl Iterator<Item = Option<Cow<'q, [u8]>>> + 'q {
        self.sent_values(query).flat_map(|(name, value)| {
            let is_element = self.overlap(&form_decode(name)) == Some(Overlap::Element);
            let with_numbers = form_decode_with_numbers(value).map(Cow::Owned);
            let texts = [Some(form_decode(value)), with_numbers].into_iter().flatten();
            texts.flat_map(and_trimmed).map(Some).chain(is_element.then_some(None))
        })
    }

    /// True if some application does not find this parameter: the query has it in a spelling that
    /// others read otherwise, or not at all. Elements `a[]` count as `a`.
    pub fn may_be_missing(&self, query: &[u8]) -> bool {
        let parts = || query.split(|&byte| byte == b'&').take(READ_BY_ALL);
        let is_found = |(name, _): (&[u8], _)| self.is_usual(name);
        !parts().map(name_and_value).any(is_found)
            || !parts().map(|part| by_bracket(part).unwrap_or(name_and_value(part))).any(is_found)
    }

    /// The values of this parameter as PHP and most applications read them; `None`: an element of
    /// an array, which is no text.
    pub fn values<'q>(
        &'q self,
        query: &'q [u8],
    ) -> impl Iterator<Item = Option<Cow<'q, [u8]>>> + 'q {
        pairs(query, b"&").filter_map(|(name, value)| {
            let part = self.overlap(&form_decode(name))?;
            Some((part == Overlap::Whole).then(|| form_decode(value)))
        })
    }

    /// Names and values, as sent, that some application reads as this parameter.
    fn sent_values<'q>(
        &'q self,
        query: &'q [u8],
    ) -> impl Iterator<Item = (&'q [u8], &'q [u8])> + 'q {
        let semicolons = query.contains(&b';').then(|| pairs(query, b"&;"));
        let brackets = query.split(|&byte| byte == b'&').filter_map(by_bracket);
        // `URLSearchParams` drops a question mark at the beginning.
        let first = query.strip_prefix(b"?").and_then(|query| pairs(query, b"&").next());
        let pairs = pairs(query, b"&").chain(semicolons.into_iter().flatten()).chain(brackets);
        let pairs = pairs.chain(first);
        pairs.filter(|(name, _)| self.is(name))
    }

    /// True if some application reads `name` as this parameter.
    fn is(&self, name: &[u8]) -> bool {
        self.is_plainly(name) || has_keys_of(&form_decode(name), &self.text)
    }

    /// True if some application that does not look at brackets, or PHP, reads `name` as this one.
    fn is_plainly(&self, name: &[u8]) -> bool {
        let read = form_decode(name);
        *read == *self.text
            || percent_decode(name).eq(self.text.iter().copied())
            || self.overlap(&read).is_some()
            || form_decode_with_numbers(name).is_some_and(|read| read == self.text)
    }

    /// True if all applications read `name` as this parameter, or as an element of it.
    fn is_usual(&self, name: &[u8]) -> bool {
        let read = form_decode(name);
        let behind = read.strip_prefix(&self.text[..]);
        let is_element = || self.overlap(&read) == Some(Overlap::Element);
        behind.is_some_and(|behind| behind.is_empty() || behind.starts_with(b"[") && is_element())
    }

    /// The part of this parameter that PHP makes of a name that has been decoded.
    fn overlap(&self, read: &[u8]) -> Option<Overlap> {
        self.php.as_ref()?.contains(&PhpName::of(read)?)
    }
}

/// True if all applications find the same name in a part of a query between two `&`.
pub fn has_one_name(part: &[u8]) -> bool {
    !part.contains(&b';') && by_bracket(part).is_none()
}

/// Splits a query into names and values, without decoding them.
fn pairs<'q>(
    query: &'q [u8],
    separators: &'static [u8],
) -> impl Iterator<Item = (&'q [u8], &'q [u8])> {
    query
        .split(|byte| separators.contains(byte))
        .filter(|pair| !pair.is_empty())
        .map(name_and_value)
}

fn name_and_value(pair: &[u8]) -> (&[u8], &[u8]) {
    let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
    (&pair[..end], pair.get(end + 1..).unwrap_or_default())
}

/// Splits a part of a query at its first `]=`, as qs does; `None`: that is its first `=`, or qs
/// finds none.
fn by_bracket(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let first = part.iter().position(|&byte| byte == b'=')?;
    let is_closed = |at: &usize| {
        let last = &part[at.saturating_sub(b"%5d".len())..*at];
        part[*at] == b'=' && (last.ends_with(b"]") || last.eq_ignore_ascii_case(b"%5d"))
    };
    let at = (first..part.len()).find(is_closed).filter(|at| *at > first)?;
    Some((&part[..at], &part[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_whoever_reads_it() {
        let found = |name, query: &str| -> Vec<String> {
            let name = ParameterName::new(name);
            let values = name.any_values(query.as_bytes());
            values.map(|value| String::from_utf8(value.into_owned()).unwrap()).collect()
        };
        assert_eq!(found("a", "a=1&ab=2&a&xa=3&a=&%61=4"), ["1", "", "", "4"]);
        assert_eq!(found("a", ""), [""; 0]);
        assert_eq!(found("a", "+a=1&a%00=2&a[]=3&a[x][y]=4&a[=5"), ["1", "2", "3", "4", "5"]);
        assert_eq!(found("a", "a=%31&a=x+%2B"), ["1", "%31", "x++", "x+%2B", "x +"]);
        assert_eq!(found("a", "b=1;a=2"), ["2"]);
        assert_eq!(found("a.b", "a.b=1&a_b=2&a[b=3&a]b=4"), ["1", "2", "3"]);
        assert_eq!(found("a[b]", "a=1&a[b]=2&a[]=3&a[c]=4&a[b][c]=5"), ["2", "3", "5"]);
        // Rack and qs leave brackets out, and qs looks for the end of a name at brackets.
        assert_eq!(found("a", "[a]=1&a]=2&]a=3&%5Ba%5d=4&[x][a]=5&x[a]=6"), ["1", "2", "3", "4"]);
        assert_eq!(found("a", "a[=]=1&x=2]=3"), ["]=1", "1"]);
        assert_eq!(found("a", "?a=1&?a=2"), ["1"]);
        assert_eq!(found("a", "%u0061=%u0064el"), ["%u0064el", "del"]);
    }

    /// Each query is one for which programs differ on `a`, as their own sources say.
    #[test]
    fn a_parameter_is_missing_if_an_application_does_not_find_it() {
        let is_missing = |query: &str| ParameterName::new("a").may_be_missing(query.as_bytes());
        for query in ["a", "a=1", "x&a=1;b", "%61=1", "a[]=1", "a[b]=1", "+a=1&a=2"] {
            assert!(!is_missing(query), "{query}");
        }
        for query in ["", "b=1", "x;a=1", "[a]=1", "a]=1", "+a=1", "a%00=1", "a=x]=1", "a[=1"] {
            assert!(is_missing(query), "{query}");
        }
        assert!(!is_missing(&("&".repeat(READ_BY_ALL - 1) + "a")));
        assert!(is_missing(&("&".repeat(READ_BY_ALL) + "a")));
    }

    #[test]
    fn a_part_of_a_query_may_have_two_names() {
        assert!(has_one_name(b"a=b=c") && has_one_name(b"a[]=b") && has_one_name(b"a]=b]=c"));
        for part in ["a;b", "a=;b", "a=x]=c", "a=%5D=c"] {
            assert!(!has_one_name(part.as_bytes()), "{part}");
        }
    }

    #[test]
    fn values_are_texts_or_elements() {
        let name = ParameterName::new("a");
        let query = b"a=1+%2b&A=2&a[]=3&[a]=4&;a=5";
        let values: Vec<_> = name.values(query).collect();
        assert_eq!(values, [Some(b"1 +"[..].into()), None]);
        let decoded: Vec<_> = name.decoded_values(&query[..query.len() - 5]).collect();
        let some = |text: &'static [u8]| Some(text.into());
        assert_eq!(decoded, [some(b"1 +"), some(b"3"), None, some(b"4")]);
    }
}
