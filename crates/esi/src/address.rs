//! An address that is put together from the text of a page and values of a client.
//!
//! A value stays in its part: it ends no segment of the path, leaves none that is resolved (an empty
//! one or a dot segment), and adds no parameter and no fragment. The server decodes a path before it
//! resolves segments, so encoded slashes and dots count as well.

use std::ops::Range;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use sendoff_message::request::NOT_IN_URI;

/// The characters that are escaped in values: all that could end a part of an address.
pub(crate) const NOT_IN_PART: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// As [`NOT_IN_PART`], without the signs of escapes and of a blank in a query.
const NOT_IN_ESCAPED_PART: &AsciiSet = &NOT_IN_PART.remove(b'%').remove(b'+');

/// The characters that are escaped in a whole query: all that no query has.
const NOT_IN_QUERY: &AsciiSet = &NOT_IN_URI.add(b'#').add(b'\'');

/// The form in which a client has sent a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Any bytes.
    Plain,
    /// A part of an address, with escapes.
    Escaped,
    /// A whole query. Behind a question mark or an ampersand it may add its parameters.
    Query,
    /// A host, with or without a port.
    Host,
}

/// The address so far.
#[derive(Debug, Default)]
pub(crate) struct Address {
    text: String,
    /// The places of values in the path.
    in_path: Vec<Range<usize>>,
}

impl Address {
    /// Appends text of the page.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Appends a value of the client.
    ///
    /// # Errors
    /// The value would lead out of its part.
    pub(crate) fn push_value(&mut self, value: &[u8], form: Form) -> Result<(), String> {
        if self.text.contains('?') {
            let adds_parameters = form == Form::Query && self.text.ends_with(['?', '&']);
            let set = if adds_parameters { NOT_IN_QUERY } else { NOT_IN_ESCAPED_PART };
            self.push_escaped(value, form, set);
            return Ok(());
        }
        if form == Form::Host && is_authority(&self.text) {
            if value.iter().any(|byte| b"/\\?#".contains(byte)) {
                return Err(leaves(value));
            }
            // `target` compares it with the page's own.
            self.text.push_str(&String::from_utf8_lossy(value));
            return Ok(());
        }
        if ends_within_escape(&self.text) {
            return Err("a value stands within an escape of its address".to_owned());
        }
        let is_separator = |byte: u8| matches!(byte, b'/' | b'\\');
        if value.iter().copied().any(is_separator) || percent_decode(value).any(is_separator) {
            return Err(leaves(value));
        }
        let start = self.text.len();
        self.push_escaped(value, form, NOT_IN_ESCAPED_PART);
        self.in_path.push(start..self.text.len());
        Ok(())
    }

    /// Appends a value with all characters of `set` escaped. Escapes of the client stay.
    fn push_escaped(&mut self, value: &[u8], form: Form, set: &'static AsciiSet) {
        if form == Form::Plain {
            return self.text.extend(percent_encode(value, NOT_IN_PART));
        }
        let mut rest = value;
        while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
            self.text.extend(percent_encode(&rest[..at], set));
            let is_escape = rest.get(at + 1..at + 3).is_some_and(is_hexadecimal);
            self.text.push_str(if is_escape { "%" } else { "%25" });
            rest = &rest[at + 1..];
        }
        self.text.extend(percent_encode(rest, set));
    }

    /// The whole address.
    ///
    /// # Errors
    /// A segment of the path is empty or a dot segment because of a value.
    pub(crate) fn finish(self) -> Result<String, String> {
        let end = self.text.find(['?', '#']).unwrap_or(self.text.len());
        let path = &self.text[..end];
        for value in self.in_path {
            let start = path[..value.start.min(end)].rfind('/').map_or(0, |slash| slash + 1);
            let (segment, is_last) = match path[start..].split_once('/') {
                Some((segment, _)) => (segment, false),
                None => (&path[start..], true),
            };
            let decoded: Vec<u8> = percent_decode(segment.as_bytes()).collect();
            // Some applications drop parameters of a segment (`..;x`).
            let name = decoded.split(|&byte| byte == b';').next().unwrap_or_default();
            let is_empty = name.is_empty() && value.start == start && !is_last;
            if is_empty || matches!(name, b"." | b"..") {
                return Err(leaves(&decoded));
            }
        }
        Ok(self.text)
    }
}

fn leaves(value: &[u8]) -> String {
    format!("the value \"{}\" would lead out of its part of the address", value.escape_ascii())
}

fn is_hexadecimal(digits: &[u8]) -> bool {
    digits.iter().all(u8::is_ascii_hexdigit)
}

/// True if the text ends with a percent sign that lacks digits, to which a value would add them.
fn ends_within_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let tail = &bytes[bytes.len().saturating_sub(2)..];
    tail.contains(&b'%')
}

/// True if the text ends in the authority of a URL.
fn is_authority(text: &str) -> bool {
    let behind = text.split_once("//");
    behind.is_some_and(|(scheme, host)| {
        (scheme.is_empty() || scheme.ends_with(':')) && !host.contains('/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(before: &str, value: &str, form: Form, behind: &str) -> Option<String> {
        let mut address = Address::default();
        address.push_text(before);
        address.push_value(value.as_bytes(), form).ok()?;
        address.push_text(behind);
        address.finish().ok()
    }

    #[test]
    fn a_value_stays_in_its_segment() {
        for (value, escaped, plain) in [
            ("7", Some("7"), Some("7")),
            ("a b\"<#", Some("a%20b%22%3C%23"), Some("a%20b%22%3C%23")),
            ("a?b=1&c;d", Some("a%3Fb%3D1%26c%3Bd"), Some("a%3Fb%3D1%26c%3Bd")),
            ("a%20b+c", Some("a%20b+c"), Some("a%2520b%2Bc")),
            ("%zz%2", Some("%25zz%252"), Some("%25zz%252")),
            ("..a", Some("..a"), Some("..a")),
            ("", None, None),
            (";x", None, None),
            ("..", None, None),
            (".", None, None),
            ("..;x", None, None),
            ("%2e%2E", None, Some("%252e%252E")),
            (".%2e%3bx", None, Some(".%252e%253bx")),
            ("../s.txt?", None, None),
            ("..%2fs.txt", None, None),
            ("a\\b", None, None),
            ("a%5Cb", None, None),
            ("//evil.test/", None, None),
        ] {
            let within = |form| address("/user/", value, form, "/card.php");
            let expected =
                |value: Option<&str>| value.map(|value| format!("/user/{value}/card.php"));
            assert_eq!(within(Form::Escaped), expected(escaped), "{value}");
            assert_eq!(within(Form::Query), expected(escaped), "{value}");
            assert_eq!(within(Form::Plain), expected(plain), "{value}");
        }
        // What stands around a value counts, too.
        for (before, value, behind) in [
            ("/a/.", ".", "/b"),
            ("/a/%2e", ".", "/b"),
            ("/a/", ".", ".?x/y"),
            ("/a/.", ".", "#/"),
            ("/a/", ".", "%2e"),
            ("/a%2", "f..", "/b"),
            ("/a%", "2f..", "/b"),
            ("", "", "/b"),
        ] {
            assert_eq!(
                address(before, value, Form::Escaped, behind),
                None,
                "{before}{value}{behind}"
            );
        }
    }

    #[test]
    fn an_empty_value_may_end_the_path() {
        for behind in ["", "?a/b", "#/"] {
            let expected = Some(format!("/cart/{behind}"));
            assert_eq!(address("/cart/", "", Form::Plain, behind), expected);
        }
        assert_eq!(address("/a-", "", Form::Plain, "/b").as_deref(), Some("/a-/b"));
    }

    #[test]
    fn a_value_adds_no_parameter() {
        for (form, before, value, expected) in [
            (Form::Escaped, "/x?a=", "1&b=../%26;c#d?", "1%26b%3D..%2F%26%3Bc%23d%3F"),
            (Form::Plain, "/x?a=", "1&b=../%26+", "1%26b%3D..%2F%2526%2B"),
            (Form::Host, "/x?a=", "a.test:81", "a.test%3A81"),
            (Form::Query, "/x?a=", "b=1&c", "b%3D1%26c"),
            (Form::Query, "/x?", "b=1&c=<%2F#", "b=1&c=%3C%2F%23"),
            (Form::Query, "/x?a&", "b=1", "b=1"),
        ] {
            let expected = format!("{before}{expected}&z");
            assert_eq!(address(before, value, form, "&z"), Some(expected), "{value}");
        }
    }

    #[test]
    fn a_host_ends_before_the_path() {
        for (before, value, expected) in [
            ("http://", "a.test:81", Some("http://a.test:81/x")),
            ("//", "a.test", Some("//a.test/x")),
            ("//", "a.test/y", None),
            ("//", "a.test?", None),
            ("/y//", "a.test:1", Some("/y//a.test%3A1/x")),
        ] {
            assert_eq!(address(before, value, Form::Host, "/x").as_deref(), expected, "{value}");
        }
    }
}
