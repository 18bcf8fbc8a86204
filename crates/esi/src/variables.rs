//! Variables in `<esi:vars>` and in the addresses of fragments.
//!
//! Their values are a client's words. In pages they are escaped as HTML, so that they do not become
//! markup; in addresses they stay in their parts ([`address`](crate::address)).

use std::ops::Range;

use http::header::{ACCEPT_LANGUAGE, REFERER, USER_AGENT};
use memchr::memmem;
use percent_encoding::percent_encode;
use sendoff_message::request::{Request, sent_cookie};

use crate::address::{Address, Form, NOT_IN_PART};
use crate::template::{MOST_ELEMENTS, Mistake, Node};

/// Most variables of one address: each may be as long as the client's fields.
const MOST_IN_ADDRESS: usize = 32;

/// Longest variable in bytes, its default included.
const LONGEST: usize = 1024;

/// `$(NAME)`, `$(NAME{key})` or `$(NAME|default)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    subject: Subject,
    /// Stands in for an empty value.
    default: String,
}

/// The part of a request that a variable shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    /// `HTTP_HOST`
    Host,
    /// `HTTP_REFERER`
    Referer,
    /// `HTTP_USER_AGENT`
    UserAgent,
    /// `HTTP_ACCEPT_LANGUAGE{en}`: `true` or `false`
    Accepts(String),
    /// `HTTP_ACCEPT_LANGUAGE`
    Languages,
    /// `HTTP_COOKIE{name}`
    Cookie(String),
    /// `QUERY_STRING`
    Query,
    /// `QUERY_STRING{name}`
    Parameter(String),
}

/// The value of an attribute, which may contain variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    source: String,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Plain(Range<usize>),
    Variable(Variable),
}

impl Variable {
    /// Bytes on the heap, roughly.
    pub(crate) fn weight(&self) -> usize {
        let name = match &self.subject {
            Subject::Accepts(name) | Subject::Cookie(name) | Subject::Parameter(name) => name.len(),
            _ => 0,
        };
        name + self.default.len()
    }

    /// Reads the text between `$(` and `)`.
    fn parse(text: &str) -> Result<Self, String> {
        let (subject, default) = text.split_once('|').unwrap_or((text, ""));
        let default = default.trim().trim_matches('\'').to_owned();
        let (name, key) = match subject.trim().split_once('{') {
            Some((name, key)) => {
                let key = key
                    .strip_suffix('}')
                    .ok_or_else(|| format!("the variable {text:?} lacks a }}"))?;
                (name, Some(key.to_owned()))
            }
            None => (subject.trim(), None),
        };
        let subject = match (name, key) {
            ("HTTP_HOST", None) => Subject::Host,
            ("HTTP_REFERER", None) => Subject::Referer,
            ("HTTP_USER_AGENT", None) => Subject::UserAgent,
            ("HTTP_ACCEPT_LANGUAGE", None) => Subject::Languages,
            ("HTTP_ACCEPT_LANGUAGE", Some(key)) => Subject::Accepts(key),
            ("HTTP_COOKIE", Some(key)) => Subject::Cookie(key),
            ("QUERY_STRING", None) => Subject::Query,
            ("QUERY_STRING", Some(key)) => Subject::Parameter(key),
            _ => return Err(format!("there is no variable {text:?}")),
        };
        Ok(Self { subject, default })
    }

    /// The value, as HTML.
    #[must_use]
    pub fn as_html(&self, request: &Request) -> Vec<u8> {
        let mut html = Vec::new();
        for &byte in self.value(request).unwrap_or(self.default.as_bytes()) {
            match byte {
                b'&' => html.extend_from_slice(b"&amp;"),
                b'<' => html.extend_from_slice(b"&lt;"),
                b'>' => html.extend_from_slice(b"&gt;"),
                b'"' => html.extend_from_slice(b"&quot;"),
                b'\'' => html.extend_from_slice(b"&#39;"),
                // Neither text nor an attribute's end in any coding.
                0..=31 | 127 => html.push(b' '),
                _ => html.push(byte),
            }
        }
        html
    }

    /// Appends the value to an address, or the default, which is text of the page.
    ///
    /// # Errors
    /// The value would lead out of its part of the address.
    fn append_to(&self, address: &mut Address, request: &Request) -> Result<(), String> {
        let form = match self.subject {
            Subject::Host => Form::Host,
            Subject::Query => Form::Query,
            Subject::Parameter(_) => Form::Escaped,
            _ => Form::Plain,
        };
        match self.value(request) {
            None if self.default.is_empty() => address.push_value(b"", form),
            None if form == Form::Plain => {
                let default = percent_encode(self.default.as_bytes(), NOT_IN_PART);
                address.push_text(&default.to_string());
                Ok(())
            }
            None => {
                address.push_text(&self.default);
                Ok(())
            }
            Some(value) => address.push_value(value, form),
        }
    }

    /// `None`: the value is empty, and the default stands in.
    fn value<'r>(&self, request: &'r Request) -> Option<&'r [u8]> {
        let field = |name| request.headers.get(name).map_or(&b""[..], |value| value.as_bytes());
        let query = request.query.as_deref().unwrap_or_default();
        let value = match &self.subject {
            Subject::Host => request.host.as_deref().unwrap_or_default(),
            Subject::Referer => field(REFERER),
            Subject::UserAgent => field(USER_AGENT),
            Subject::Languages => field(ACCEPT_LANGUAGE),
            Subject::Accepts(language) if accepts(field(ACCEPT_LANGUAGE), language) => b"true",
            Subject::Accepts(_) => b"false",
            Subject::Cookie(name) => sent_cookie(&request.headers, name).unwrap_or_default(),
            Subject::Query => query,
            Subject::Parameter(name) => parameter(query, name).unwrap_or_default(),
        };
        Some(value).filter(|value| !value.is_empty())
    }
}

/// True if `Accept-Language` lists the language.
fn accepts(field: &[u8], language: &str) -> bool {
    let mut ranges = field.split(|&byte| byte == b',');
    ranges.any(|range| {
        let name = range.split(|&byte| byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(language.as_bytes())
    })
}

/// The value of the first parameter of this name, as sent.
fn parameter<'q>(query: &'q [u8], name: &str) -> Option<&'q [u8]> {
    query.split(|&byte| byte == b'&').find_map(|pair| {
        let value = pair.strip_prefix(name.as_bytes())?;
        if value.is_empty() { Some(value) } else { value.strip_prefix(b"=") }
    })
}

impl Text {
    /// Reads the value of an attribute.
    ///
    /// # Errors
    /// A variable is unknown.
    pub(crate) fn parse(source: &str) -> Result<Self, String> {
        let (mut pieces, mut at) = (Vec::new(), 0);
        while let Some(found) = find(source.as_bytes(), at)? {
            pieces.push(Piece::Plain(at..found.range.start));
            at = found.range.end;
            pieces.push(Piece::Variable(found.variable));
            if pieces.len() > 2 * MOST_IN_ADDRESS {
                return Err(format!("an address has more than {MOST_IN_ADDRESS} variables"));
            }
        }
        pieces.push(Piece::Plain(at..source.len()));
        Ok(Self { source: source.to_owned(), pieces })
    }

    /// The text as it stands in the page.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Bytes on the heap, roughly.
    pub(crate) fn weight(&self) -> usize {
        let variables = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Plain(_) => None,
            Piece::Variable(variable) => Some(variable.weight()),
        });
        self.source.len() + size_of_val(&self.pieces[..]) + variables.sum::<usize>()
    }

    /// The address, if it is the same for all requests.
    #[must_use]
    pub fn fixed(&self) -> Option<&str> {
        let is_fixed = !self.pieces.iter().any(|piece| matches!(piece, Piece::Variable(_)));
        is_fixed.then_some(&self.source)
    }

    /// The address for this request.
    ///
    /// # Errors
    /// The value of a variable would lead out of its part of the address.
    pub fn address(&self, request: &Request) -> Result<String, String> {
        let mut address = Address::default();
        for piece in &self.pieces {
            match piece {
                Piece::Plain(range) => address.push_text(&self.source[range.clone()]),
                Piece::Variable(variable) => variable.append_to(&mut address, request)?,
            }
        }
        address.finish()
    }
}

/// A variable in a text.
struct Found {
    range: Range<usize>,
    variable: Variable,
}

/// The first variable at or behind a byte of the text.
fn find(text: &[u8], from: usize) -> Result<Option<Found>, String> {
    let Some(at) = memmem::find(&text[from..], b"$(") else { return Ok(None) };
    let start = from + at;
    let name = &text[start + 2..text.len().min(start + 2 + LONGEST)];
    let unfinished = || format!("a variable has no end within {LONGEST} bytes");
    let len = memchr::memchr(b')', name).ok_or_else(unfinished)?;
    let name =
        std::str::from_utf8(&name[..len]).map_err(|_| "a variable is no UTF-8".to_owned())?;
    Ok(Some(Found { range: start..start + 3 + len, variable: Variable::parse(name)? }))
}

/// Appends text of `<esi:vars>` in parts, with at most `most` variables. Returns their number.
pub(crate) fn split(
    page: &[u8],
    range: Range<usize>,
    most: usize,
    nodes: &mut Vec<Node>,
) -> Result<usize, Mistake> {
    let (text, first) = (&page[..range.end], range.start);
    let (mut at, mut count) = (first, 0);
    while let Some(found) = find(text, at).map_err(|why| Mistake { at, why })? {
        if at < found.range.start {
            nodes.push(Node::Text(at..found.range.start));
        }
        at = found.range.end;
        nodes.push(Node::Variable(found.variable));
        count += 1;
        if count > most {
            let why = format!("the page has more than {MOST_ELEMENTS} variables and elements");
            return Err(Mistake { at, why });
        }
    }
    if at < range.end {
        nodes.push(Node::Text(at..range.end));
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;
    use sendoff_message::request::sample::request;

    use super::*;

    fn asked() -> Request {
        let mut asked = request(Some("a.test:81"));
        asked.query = Some("a=1&b=%2F&c&d=<".into());
        for (name, value) in [
            (COOKIE, "user=<b>&\"'; other=x/y?z"),
            (ACCEPT_LANGUAGE, "de, en-GB;q=0.5"),
            (REFERER, "http://evil.test/"),
        ] {
            asked.headers.insert(name, value.parse().unwrap());
        }
        asked
    }

    #[test]
    fn values_are_text_and_no_markup() {
        let html = |text: &str| {
            let html = Variable::parse(text).unwrap().as_html(&asked());
            String::from_utf8(html).unwrap()
        };
        for (text, value) in [
            ("HTTP_HOST", "a.test:81"),
            ("HTTP_COOKIE{user}", "&lt;b&gt;&amp;&quot;&#39;"),
            ("HTTP_COOKIE{none}", ""),
            ("HTTP_COOKIE{none}|'a b'", "a b"),
            ("HTTP_COOKIE{none}|guest", "guest"),
            ("QUERY_STRING{a}|x", "1"),
            ("QUERY_STRING{b}", "%2F"),
            ("QUERY_STRING{c}|x", "x"),
            ("QUERY_STRING{d}", "&lt;"),
            ("HTTP_ACCEPT_LANGUAGE{en-gb}", "true"),
            ("HTTP_ACCEPT_LANGUAGE{fr}", "false"),
            ("HTTP_USER_AGENT", ""),
        ] {
            assert_eq!(html(text), value, "{text}");
        }
        for text in ["HTTP_COOKIE", "PATH", "", "HTTP_COOKIE{a", "HTTP_HOST{a}"] {
            assert!(Variable::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn values_stay_within_their_part_of_an_address() {
        let address = |text: &str| Text::parse(text).unwrap().address(&asked()).ok();
        for (text, value) in [
            ("/x", Some("/x")),
            ("http://$(HTTP_HOST)/x", Some("http://a.test:81/x")),
            ("/x?u=$(HTTP_COOKIE{other})&b=2", Some("/x?u=x%2Fy%3Fz&b=2")),
            ("$(HTTP_REFERER)", None),
            ("/x?u=$(HTTP_REFERER)", Some("/x?u=http%3A%2F%2Fevil.test%2F")),
            ("/x?$(QUERY_STRING)", Some("/x?a=1&b=%2F&c&d=%3C")),
            ("/x?u=$(QUERY_STRING)", Some("/x?u=a%3D1%26b%3D%2F%26c%26d%3D%3C")),
            ("/$(QUERY_STRING{a})$(QUERY_STRING{none}|'y/z?')", Some("/1y/z?")),
            ("/$(HTTP_COOKIE{none}|'y z')", Some("/y%20z")),
            ("/x$(QUERY_STRING{b})", None),
            ("/$(HTTP_COOKIE{other})/x", None),
            ("$(QUERY_STRING{none})/x", None),
        ] {
            assert_eq!(address(text).as_deref(), value, "{text}");
        }
        assert!(Text::parse("/$(HTTP_HOST").is_err());
        assert!(Text::parse(&"$(HTTP_HOST)".repeat(MOST_IN_ADDRESS + 1)).is_err());
    }
}
