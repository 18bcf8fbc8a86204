//! Names and values of parameters and cookies as applications read them, for the rules about them.
//!
//! PHP makes variables of them (`php_default_treat_data()`, `php_register_variable_ex()`): `?+a.b`,
//! `?a[b` and `?a_b%00c` are all `a_b`, and `a[]` is an element of the array `a`. Other
//! applications decode form data without these rules; a few also separate parameters by `;`, or
//! leave `+` as it is. A rule that blocks requests must hold for every such application.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// A name as PHP reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PhpName {
    variable: Vec<u8>,
    /// The array keys after the variable; `None`: the next free key (`[]`).
    elements: Vec<Option<Vec<u8>>>,
}

/// The relation between two names with the same variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    Whole,
    /// An element of the array that the other name means.
    Element,
}

impl PhpName {
    /// Parses a name that has been decoded. `None`: PHP ignores the parameter.
    fn of(name: &[u8]) -> Option<Self> {
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
    fn contains(&self, other: &Self) -> Option<Overlap> {
        let mut pairs = self.elements.iter().zip(&other.elements);
        // The next free key is not known, so it matches every key.
        let is_beneath = self.variable == other.variable
            && self.elements.len() <= other.elements.len()
            && pairs.all(|(one, other)| one.is_none() || other.is_none() || one == other);
        let is_whole = self.elements.len() == other.elements.len();
        is_beneath.then_some(if is_whole { Overlap::Whole } else { Overlap::Element })
    }
}

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
        let semicolons = query.contains(&b';').then(|| pairs(query, b"&;"));
        let pairs = pairs(query, b"&").chain(semicolons.into_iter().flatten());
        pairs.filter(|(name, _)| self.is(name)).flat_map(|(_, value)| {
            let decoded = percent_decode(value).into();
            let other = (decoded != value).then_some(Cow::Borrowed(value));
            let with_plus = value.contains(&b'+').then(|| form_decode(value));
            [Some(decoded), other, with_plus].into_iter().flatten()
        })
    }

    /// All values of the cookie with this name, in every reading that some application uses.
    pub fn cookie_values<'f>(
        &self,
        fields: impl Iterator<Item = &'f [u8]>,
    ) -> impl Iterator<Item = Vec<u8>> {
        let cookies = fields.flat_map(|field| pairs(field, b";"));
        let named = cookies.filter(|(name, _)| self.is(name.trim_ascii()));
        named.flat_map(|(_, value)| {
            let value = value.trim_ascii();
            let readings = [value.to_vec(), percent_decode(value).collect(), unquoted(value)];
            readings.into_iter().chain(value.contains(&b'+').then(|| form_decode(value).into()))
        })
    }

    /// The values of this parameter as PHP and most applications read them; `None`: an element of
    /// an array, which is no text.
    pub fn values<'q>(
        &'q self,
        query: &'q [u8],
    ) -> impl Iterator<Item = Option<Cow<'q, [u8]>>> + 'q {
        pairs(query, b"&").filter_map(|(name, value)| {
            let part = self.php.as_ref()?.contains(&PhpName::of(&form_decode(name))?)?;
            Some((part == Overlap::Whole).then(|| form_decode(value)))
        })
    }

    /// True if some application reads `name` as this parameter.
    fn is(&self, name: &[u8]) -> bool {
        let read = form_decode(name);
        let is_php = || self.php.as_ref()?.contains(&PhpName::of(&read)?);
        *read == *self.text
            || percent_decode(name).eq(self.text.iter().copied())
            || is_php().is_some()
    }
}

/// The cookies of all `Cookie` fields as PHP reads them, written as one field: `a=1; b=2`. Elements
/// of an array have the array's name.
pub fn cookies<'f>(fields: impl Iterator<Item = &'f [u8]>) -> Vec<u8> {
    let mut read = Vec::new();
    for cookie in fields.flat_map(|field| field.split(|&byte| byte == b';')) {
        let cookie = &cookie[cookie.iter().take_while(|&&byte| is_space(byte)).count()..];
        let (name, value) = name_and_value(cookie);
        let Some(name) = PhpName::of(name) else { continue };
        if !read.is_empty() {
            read.extend_from_slice(b"; ");
        }
        read.extend_from_slice(&name.variable);
        read.push(b'=');
        read.extend(percent_decode(value));
    }
    read
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

/// Decodes a form's value, where `+` is a space.
fn form_decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return percent_decode(text).into();
    }
    let blanks: Vec<_> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&blanks).collect())
}

/// A cookie's value without quotation marks. Python and others take them off, and decode `\"` and
/// `\101` within them (RFC 2109 §4.1).
fn unquoted(value: &[u8]) -> Vec<u8> {
    let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let Some(mut rest) = inner else { return value.to_vec() };
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((&byte, behind)) = rest.split_first() {
        (plain, rest) = match (byte, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                (plain, behind)
            }
            (b'\\', [escaped, behind @ ..]) => {
                plain.push(*escaped);
                (plain, behind)
            }
            _ => {
                plain.push(byte);
                (plain, behind)
            }
        };
    }
    plain
}

/// White space as C's `isspace()` defines it.
fn is_space(byte: u8) -> bool {
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

    #[test]
    fn a_parameter_is_found_whoever_reads_it() {
        let found = |name, query: &str| -> Vec<String> {
            let name = ParameterName::new(name);
            let values = name.any_values(query.as_bytes());
            values.map(|value| String::from_utf8(value.into_owned()).unwrap()).collect()
        };
        assert_eq!(found("a", "a=1&ab=2&a&xa=3&a=&%61=4"), ["1", "", "", "4"]);
        assert_eq!(found("a", ""), [""; 0]);
        assert_eq!(found("a", "+a=1&a%00=2&a[]=3&a[x][y]=4&a[=5"), ["1", "2", "3", "4"]);
        assert_eq!(found("a", "a=%31&a=x+%2B"), ["1", "%31", "x++", "x+%2B", "x +"]);
        assert_eq!(found("a", "b=1;a=2"), ["2"]);
        assert_eq!(found("a.b", "a.b=1&a_b=2&a[b=3"), ["1", "2", "3"]);
        assert_eq!(found("a[b]", "a=1&a[b]=2&a[]=3&a[c]=4&a[b][c]=5"), ["2", "3", "5"]);
    }

    #[test]
    fn values_are_texts_or_elements() {
        let name = ParameterName::new("a");
        let values: Vec<_> = name.values(b"a=1+%2b&A=2&a[]=3&;a=4").collect();
        assert_eq!(values, [Some(b"1 +"[..].into()), None]);
    }

    #[test]
    fn cookies_are_read_as_php_reads_them() {
        for (field, read) in [
            ("a=1; b=2", "a=1; b=2"),
            ("a.b=1;\tc d=2;e[f]=3;g[h=4", "a_b=1; c_d=2; e=3; g_h=4"),
            ("a; =1; ;b=%41+%zz; %61=1", "a=; b=A+%zz; %61=1"),
            ("", ""),
        ] {
            let cookies = cookies([field.as_bytes()].into_iter());
            assert_eq!(String::from_utf8(cookies).unwrap(), read, "{field:?}");
        }
        assert_eq!(cookies([&b"a=1"[..], b"b=2"].into_iter()), b"a=1; b=2");
    }
}
