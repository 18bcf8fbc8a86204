//! The cookies of a request as applications read them.
//!
//! Most applications separate cookies by `;` alone (RFC 6265). Others follow older rules: Python's
//! `http.cookies`, on which aiohttp and bottle rest, also ends a value at white space, and takes a
//! quoted text with its semicolons for one value; Perl's CGI separates by `,`, too; parsers of RFC
//! 2965 do both. Node's `cookie` decodes what quotation marks enclose, and `cookie-parser` reads
//! JSON behind `j:`. WebOb, on which Pyramid rests, looks for names anywhere, and passes over bytes
//! that belong to no name and no value.

use std::borrow::Cow;

use percent_encoding::percent_decode;

use super::ParameterName;
use super::decode::{form_decode, form_decode_with_numbers, trimmed, unquoted};
use super::names::{PhpName, is_space};

/// A way to find cookies.
#[derive(Debug, Clone, Copy)]
struct Splitting {
    /// The bytes that end a cookie.
    separators: &'static [u8],
    quotes: Quotes,
}

/// Quotation marks around values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    /// They are ordinary bytes.
    Plain,
    /// Separators between them belong to the value.
    Enclose,
    /// They are removed, and the value is decoded then.
    Around,
    /// They end a cookie, as brackets do; backslashes are passed over.
    Skipped,
}

/// RFC 6265: PHP, Go, Rack, Django.
const PLAIN: Splitting = Splitting { separators: b";", quotes: Quotes::Plain };

/// Other ways: Node; Werkzeug, Python, Perl's and Ruby's CGI, RFC 2965, WebOb.
const OTHERS: [Splitting; 6] = [
    Splitting { separators: b";", quotes: Quotes::Around },
    Splitting { separators: b";", quotes: Quotes::Enclose },
    Splitting { separators: b"; \t", quotes: Quotes::Enclose },
    Splitting { separators: b";,", quotes: Quotes::Plain },
    Splitting { separators: b";, \t", quotes: Quotes::Enclose },
    Splitting { separators: b";, \t\"[]", quotes: Quotes::Skipped },
];

/// A cookie as it was sent.
type Sent<'f> = (&'f [u8], &'f [u8]);

impl Splitting {
    /// The cookies of a field, without decoding.
    fn cookies(self, field: &[u8]) -> impl Iterator<Item = Sent<'_>> {
        let mut rest = field;
        std::iter::from_fn(move || {
            let (cookie, behind) = self.first(rest)?;
            rest = behind;
            Some(cookie)
        })
    }

    /// The first cookie, and the rest; `None`: there are no more.
    fn first(self, field: &[u8]) -> Option<(Sent<'_>, &[u8])> {
        let ends = |byte: &u8| self.separators.contains(byte);
        let begin = field.iter().position(|byte| !ends(byte) && !byte.is_ascii_whitespace())?;
        let field = &field[begin..];
        let end = field.iter().position(|byte| ends(byte) || *byte == b'=').unwrap_or(field.len());
        let (name, rest) = field.split_at(end);
        let name = trimmed(name);
        let Some(rest) = rest.trim_ascii_start().strip_prefix(b"=") else {
            return Some(((name, b""), rest));
        };
        let rest = rest.trim_ascii_start();
        let quoted = match self.quotes {
            Quotes::Plain | Quotes::Around | Quotes::Skipped => None,
            Quotes::Enclose => quoted(rest).filter(|&end| {
                let behind = &rest[end..];
                behind.first().is_some_and(ends)
                    || behind.trim_ascii_start().first().is_none_or(ends)
            }),
        };
        let end = quoted.or_else(|| rest.iter().position(ends)).unwrap_or(rest.len());
        let (value, rest) = rest.split_at(end);
        Some(((name, value.trim_ascii()), rest))
    }

    /// The cookies as one field: `a=1; b=2`, names and values decoded as these applications do.
    fn text(self, field: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(field.len());
        for (name, value) in self.cookies(field) {
            let value = trimmed(value);
            match self.quotes {
                Quotes::Enclose => append(&mut text, name, &unquoted(value)),
                Quotes::Plain => {
                    let name = decoded(name);
                    elements(value).for_each(|value| append(&mut text, &name, &decoded(value)));
                }
                Quotes::Skipped => append(&mut text, &unescaped(name), &unescaped(value)),
                Quotes::Around => append(&mut text, name, &read_by_node(value)),
            }
        }
        text
    }
}

/// Bytes of the quoted text at the beginning, with its marks.
fn quoted(text: &[u8]) -> Option<usize> {
    let mut at = text.starts_with(b"\"").then_some(1)?;
    loop {
        at += match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => 2,
            _ => 1,
        };
    }
}

/// The elements of a value, which is a list for Perl's and Ruby's CGI.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b'&')
}

/// A text without its backslashes.
fn unescaped(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|&byte| byte != b'\\').collect()
}

fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    form_decode_with_numbers(text).map_or_else(|| form_decode(text), Cow::Owned)
}

/// A value as Node's `cookie` decodes it; in place of a text in JSON the text.
fn read_by_node(value: &[u8]) -> Vec<u8> {
    let bare = value.strip_prefix(b"\"").map(|rest| &rest[..rest.len().saturating_sub(1)]);
    let value: Vec<u8> = percent_decode(bare.unwrap_or(value)).collect();
    let json = value.strip_prefix(JSON).and_then(|json| serde_json::from_slice(json).ok());
    match json {
        Some(serde_json::Value::String(text)) => text.into_bytes(),
        Some(other) => other.to_string().into_bytes(),
        None => value,
    }
}

/// The mark of JSON for Express's `cookie-parser`.
const JSON: &[u8] = b"j:";

/// The beginning of a value in JSON.
const JSON_VALUE: &[u8] = b"=j:";

fn append(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if !text.is_empty() {
        text.extend_from_slice(b"; ");
    }
    text.extend_from_slice(name);
    text.push(b'=');
    text.extend_from_slice(value);
}

/// True if all applications read the same cookies, as in most requests of browsers.
#[must_use]
pub fn are_read_alike(field: &[u8]) -> bool {
    let mut last = b';';
    let has_json = || field.windows(JSON_VALUE.len()).any(|bytes| bytes == JSON_VALUE);
    field.iter().all(|&byte| {
        let before = std::mem::replace(&mut last, byte);
        let is_plain = byte.is_ascii_graphic() && !b",\"%+&[]\\".contains(&byte);
        is_plain || byte == b' ' && before == b';'
    }) && !has_json()
}

/// All `Cookie` fields as one (RFC 9113 §8.2.3), as applications get them.
pub fn joined_cookies<'f>(mut fields: impl Iterator<Item = &'f [u8]>) -> Cow<'f, [u8]> {
    let Some(first) = fields.next() else { return Cow::default() };
    let mut joined = Cow::Borrowed(first);
    for field in fields {
        let joined = joined.to_mut();
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(field);
    }
    joined
}

/// The cookies of a joined field in every reading that some application uses, written as one field:
/// `a=1; b=2`. The first is PHP's, where elements of an array have the array's name.
pub fn cookie_texts(field: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let others = (!are_read_alike(field)).then_some([PLAIN].into_iter().chain(OTHERS));
    let others = others.into_iter().flatten().map(move |splitting| splitting.text(field));
    [of_php(field)].into_iter().chain(others)
}

fn of_php(field: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    for cookie in field.split(|&byte| byte == b';') {
        let cookie = &cookie[cookie.iter().take_while(|&&byte| is_space(byte)).count()..];
        let (name, value) = super::name_and_value(cookie);
        if let Some(name) = PhpName::of(name) {
            append(&mut read, &name.variable, &Cow::from(percent_decode(value)));
        }
    }
    read
}

impl ParameterName {
    /// All values of the cookie with this name in a joined field, in every reading that some
    /// application uses. The empty value, if an application does not find the cookie.
    pub fn cookie_values(&self, field: &[u8]) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        for (_, value) in self.cookies(PLAIN, field) {
            let (bare, percent) = (trimmed(value), percent_decode(value).collect());
            values.extend([value.to_vec(), percent, unquoted(value), bare.to_vec()]);
            values.extend(value.contains(&b'+').then(|| form_decode(value).into()));
        }
        if are_read_alike(field) {
            return values;
        }
        for splitting in OTHERS {
            let mut is_missing = true;
            for (_, value) in self.cookies(splitting, field) {
                is_missing = false;
                match splitting.quotes {
                    Quotes::Enclose => values.extend([value.to_vec(), unquoted(value)]),
                    Quotes::Plain => values.extend(elements(value).map(|one| decoded(one).into())),
                    Quotes::Skipped => values.push(unescaped(value)),
                    Quotes::Around => values.push(read_by_node(value)),
                }
            }
            values.extend(is_missing.then(Vec::new));
        }
        values
    }

    fn cookies<'f>(&self, splitting: Splitting, field: &'f [u8]) -> impl Iterator<Item = Sent<'f>> {
        let is_it = move |name: &[u8]| match splitting.quotes {
            Quotes::Skipped => self.is_plainly(&unescaped(name)),
            Quotes::Plain | Quotes::Enclose | Quotes::Around => self.is_plainly(name),
        };
        splitting.cookies(field).filter(move |(name, _)| is_it(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(texts: impl IntoIterator<Item = Vec<u8>>) -> Vec<String> {
        texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn cookies_are_read_as_php_reads_them() {
        for (field, read) in [
            ("a=1; b=2", "a=1; b=2"),
            ("a.b=1;\tc d=2;e[f]=3;g[h=4", "a_b=1; c_d=2; e=3; g_h=4"),
            ("a; =1; ;b=%41+%zz; %61=1", "a=; b=A+%zz; %61=1"),
            ("", ""),
        ] {
            assert_eq!(strings(cookie_texts(field.as_bytes()).take(1)), [read], "{field:?}");
        }
        let fields = || [&b"a=1"[..], b"b=2"].into_iter();
        assert_eq!(&*joined_cookies(fields()), b"a=1; b=2");
        assert_eq!(&*joined_cookies(fields().take(0)), b"");
    }

    #[test]
    fn older_applications_split_cookies_elsewhere() {
        for (field, reading) in [
            ("x=1 role=evil", "x=1; role=evil"),
            ("x=1\trole = evil y", "x=1; role=evil; y="),
            ("x=1,role=evil", "x=1; role=evil"),
            ("x=1, ro%6ce=%65vil", "x=1; role=evil"),
            ("x=1; role=\"\\145vil\"", "x=1; role=evil"),
            ("x=\"1;2\" role=evil", "x=1;2; role=evil"),
            ("x=1; \u{a0}role=evil\u{a0}", "x=1; role=evil"),
            ("x=1; role=\"%65vil\"", "x=1; role=evil"),
            ("x=1; role=j%3A%22evil%22", "x=1; role=evil"),
            ("x=1; [role=\\evil\"", "x=1; role=evil"),
            ("x=1; role=y&%65vil", "x=1; role=y; role=evil"),
        ] {
            let read = strings(cookie_texts(field.as_bytes()));
            assert!(read.iter().any(|read| read == reading), "{field:?}: {read:?}");
        }
        assert_eq!(strings(cookie_texts(b"a=1; b=2;c=3")).len(), 1, "all read it alike");
    }

    #[test]
    fn a_cookie_is_found_whoever_reads_it() {
        let name = ParameterName::new("role");
        let values = |field: &str| strings(name.cookie_values(field.as_bytes()));
        for field in [
            "role=evil",
            "x=1 role=evil",
            "x=1\trole=evil",
            "x=1,role=evil",
            "x=1, role=\"evil\"",
            "x={\"a\": 1} role=evil",
            "role=evil x",
            "role=evil,x",
            "role=evil&x",
            "role=%u0065vil",
            "role = evil",
            "ro%6ce=evil",
            "x=\"\\\"; \" role=evil",
            "\u{a0}role\u{3000}=\u{a0}evil",
            "x=\"y; role=evil",
            "x=\"y\"z role=evil",
            "role=\"%65vil\"",
            "role=\"evil|",
            "role=j:\"evil\"",
            "role=j%3a%22ev\\u0069l%22",
            "x=1; [role=evil",
            "\\role=evil",
            "\"role=evil",
            "role=\\evil",
            "role=evil]",
            "role=x&evil",
        ] {
            assert!(
                values(field).iter().any(|value| value == "evil"),
                "{field}: {:?}",
                values(field)
            );
        }
        let others = values("x=role; y=1 role; xrole=1; role2=1");
        assert!(others.iter().all(String::is_empty), "{others:?}");
        assert!(values("x=\"; role=good; \"").iter().any(String::is_empty), "Python reads x alone");
        assert!(values("role=good; x={\"a\": 1, \"b\": 2}").iter().all(|value| value == "good"));
    }

    /// An unclosed mark costs no more than the way to the next one.
    #[test]
    fn many_marks_are_read_at_once() {
        let field = b"role=\"x\\ ".repeat(20_000);
        let began = std::time::Instant::now();
        assert!(!ParameterName::new("role").cookie_values(&field).is_empty());
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }
}
