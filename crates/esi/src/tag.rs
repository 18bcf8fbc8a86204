//! The next piece of markup in a page.

use std::ops::Range;

use memchr::memmem;

use crate::template::Mistake;

/// Longest tag in bytes. Addresses of fragments are shorter than request lines may be.
const LONGEST: usize = 16 * 1024;

/// Characters that stand for others in the values of attributes, as in XML and HTML.
const ENTITIES: [(&str, char); 9] = [
    ("&amp;", '&'),
    ("&#038;", '&'),
    ("&#38;", '&'),
    ("&lt;", '<'),
    ("&gt;", '>'),
    ("&quot;", '"'),
    ("&#039;", '\''),
    ("&#39;", '\''),
    ("&apos;", '\''),
];

/// A piece of markup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// Its bytes in the page.
    pub(crate) range: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `<esi:NAME …>`
    Open { name: String, attributes: Vec<(String, String)> },
    /// `<esi:NAME …/>`
    Empty { name: String, attributes: Vec<(String, String)> },
    /// `</esi:NAME>`
    Close { name: String },
    /// `<!--esi`
    Uncomment,
    /// `-->` behind `<!--esi`
    EndOfUncomment,
}

/// The first piece of markup at or behind a byte of the page. `in_comment`: the text is between
/// `<!--esi` and `-->`.
pub(crate) fn next(page: &[u8], from: usize, in_comment: bool) -> Result<Option<Tag>, Mistake> {
    let marked = marked(page, from);
    let limit = marked.unwrap_or(page.len());
    if in_comment && let Some(at) = memmem::find(&page[from..limit], b"-->") {
        let range = from + at..from + at + 3;
        return Ok(Some(Tag { range, kind: Kind::EndOfUncomment }));
    }
    marked.map(|at| read(page, at)).transpose()
}

/// The first byte of `<esi:`, `</esi:` or `<!--esi`.
fn marked(page: &[u8], from: usize) -> Option<usize> {
    // Texts have many angle brackets, and seldom the word.
    memmem::find_iter(&page[from..], b"esi").find_map(|at| {
        let (before, behind) = (&page[from..from + at], &page[from + at + 3..]);
        let len = if before.ends_with(b"<!--") && behind.first().is_none_or(u8::is_ascii_whitespace)
        {
            4
        } else if before.ends_with(b"</") && behind.starts_with(b":") {
            2
        } else if before.ends_with(b"<") && behind.starts_with(b":") {
            1
        } else {
            return None;
        };
        Some(from + at - len)
    })
}

/// Reads the markup that begins at this byte.
fn read(page: &[u8], at: usize) -> Result<Tag, Mistake> {
    let text = &page[at..page.len().min(at + LONGEST)];
    if text.starts_with(b"<!--esi") {
        return Ok(Tag { range: at..at + b"<!--esi".len(), kind: Kind::Uncomment });
    }
    let is_close = text.starts_with(b"</");
    let start = if is_close { b"</esi:".len() } else { b"<esi:".len() };
    let mut reader = Reader { text, at: start };
    let name = reader.name();
    let unfinished = || {
        let shown = String::from_utf8_lossy(&text[..text.len().min(40)]).into_owned();
        Mistake { at, why: format!("the tag {shown:?} has no end") }
    };
    if is_close {
        reader.skip_space();
        let end = reader.end().ok_or_else(unfinished)?;
        return Ok(Tag { range: at..at + end.behind, kind: Kind::Close { name } });
    }
    let mut attributes = Vec::new();
    loop {
        reader.skip_space();
        if let Some(End { behind, is_empty }) = reader.end() {
            let kind = match is_empty {
                true => Kind::Empty { name, attributes },
                false => Kind::Open { name, attributes },
            };
            return Ok(Tag { range: at..at + behind, kind });
        }
        attributes.push(reader.attribute().ok_or_else(unfinished)?);
    }
}

/// The end of a tag.
struct End {
    /// The first byte behind it.
    behind: usize,
    /// `/>`
    is_empty: bool,
}

/// Reads a tag from left to right.
struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        self.at += self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    /// A name; empty if there is none.
    fn name(&mut self) -> String {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_:".contains(byte);
        let len = self.rest().iter().take_while(is_part).count();
        let name = String::from_utf8_lossy(&self.rest()[..len]).to_ascii_lowercase();
        self.at += len;
        name
    }

    fn end(&self) -> Option<End> {
        match self.rest() {
            [b'>', ..] => Some(End { behind: self.at + 1, is_empty: false }),
            [b'/', b'>', ..] => Some(End { behind: self.at + 2, is_empty: true }),
            _ => None,
        }
    }

    /// `NAME="VALUE"`; `None`: the text is something else.
    fn attribute(&mut self) -> Option<(String, String)> {
        let name = self.name();
        self.skip_space();
        if name.is_empty() || self.rest().first() != Some(&b'=') {
            return None;
        }
        self.at += 1;
        self.skip_space();
        let quote = *self.rest().first().filter(|byte| b"\"'".contains(byte))?;
        self.at += 1;
        let len = memchr::memchr(quote, self.rest())?;
        let value = decoded(&self.rest()[..len])?;
        self.at += len + 1;
        Some((name, value))
    }
}

/// The value of an attribute without entities; `None`: it is no UTF-8.
fn decoded(value: &[u8]) -> Option<String> {
    let mut rest = std::str::from_utf8(value).ok()?;
    let mut plain = String::with_capacity(rest.len());
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity));
        let (entity, character) = known.copied().unwrap_or(("&", '&'));
        plain.push(character);
        rest = &rest[entity.len()..];
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(page: &str) -> Vec<Kind> {
        let (mut at, mut kinds) = (0, Vec::new());
        while let Some(tag) = next(page.as_bytes(), at, true).unwrap() {
            at = tag.range.end;
            kinds.push(tag.kind);
        }
        kinds
    }

    #[test]
    fn tags_are_found_among_other_text() {
        assert_eq!(kinds("esi: <esi <!--esix--x <b>desi</b> < esi:include/>"), []);
        let include = |value: &str| Kind::Empty {
            name: "include".to_owned(),
            attributes: vec![("src".to_owned(), value.to_owned())],
        };
        for (page, value) in [
            ("<esi:include src=\"/a\"/>", "/a"),
            ("x<ESI:x<esi:INCLUDE\n SRC = '/a?b=\"1\"&c' />", "/a?b=\"1\"&c"),
            ("<esi:include src='/a?b&amp;c&#038;d&nope;&'/>", "/a?b&c&d&nope;&"),
            ("<esi:include src='/>'/>", "/>"),
        ] {
            assert_eq!(kinds(page), [include(value)], "{page}");
        }
        let name = |name: &str| name.to_owned();
        let open = Kind::Open { name: name("remove"), attributes: Vec::new() };
        let all =
            [Kind::Uncomment, open, Kind::Close { name: name("remove") }, Kind::EndOfUncomment];
        assert_eq!(kinds("<!--esi <esi:remove>x</esi:remove >-->"), all);
    }

    #[test]
    fn broken_tags_are_mistakes() {
        for page in [
            "<esi:include src='/a",
            "<esi:include src=/a/>",
            "<esi:include src/>",
            "<esi:include",
            "</esi:try x>",
            "<esi:include src='\u{e4}'",
        ] {
            assert!(next(page.as_bytes(), 0, false).is_err(), "{page}");
        }
        let long = format!("<esi:include src='{}'/>", "x".repeat(LONGEST));
        assert!(next(long.as_bytes(), 0, false).is_err());
    }
}
