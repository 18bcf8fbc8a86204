//! From the bytes of a page to its elements.

use std::ops::Range;

use memchr::memmem;

use crate::tag::{self, Kind, Tag};
use crate::template::{Attempt, DEEPEST, Include, MOST_ELEMENTS, Mistake, Node, OnError, Template};
use crate::variables::{Text, split};

/// Most bytes of a name that a message shows. Names are ASCII.
const SHOWN: usize = 40;

/// Attributes of an element.
type Attributes = Vec<(String, String)>;

/// The element that ends with the text that is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Page,
    /// `<!--esi`
    Uncomment,
    Element(&'static str),
}

/// The way in which text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Plain,
    /// In `<esi:vars>`.
    Variables,
}

/// Reads a page from its first byte to its last.
pub(crate) struct Parser<'p> {
    page: &'p [u8],
    at: usize,
    depth: usize,
    elements: usize,
    includes: usize,
    /// Open `<!--esi`.
    uncommented: usize,
}

impl<'p> Parser<'p> {
    pub(crate) fn new(page: &'p [u8]) -> Self {
        Self { page, at: 0, depth: 0, elements: 0, includes: 0, uncommented: 0 }
    }

    /// The whole page.
    pub(crate) fn page(mut self) -> Result<Template, Mistake> {
        let nodes = self.contents(Within::Page, Reading::Plain)?;
        Ok(Template { nodes, includes: self.includes })
    }

    /// The next piece of markup, and the text in front of it.
    fn next(&mut self) -> Result<(Range<usize>, Option<Tag>), Mistake> {
        let tag = tag::next(self.page, self.at, self.uncommented > 0)?;
        let end = tag.as_ref().map_or(self.page.len(), |tag| tag.range.start);
        let text = self.at..end;
        self.at = tag.as_ref().map_or(end, |tag| tag.range.end);
        if tag.is_some() {
            self.elements += 1;
        }
        if self.elements > MOST_ELEMENTS {
            let why = format!("the page has more than {MOST_ELEMENTS} pieces of markup");
            return Err(Mistake { at: end, why });
        }
        Ok((text, tag))
    }

    /// The parts of an element, up to its end.
    fn contents(&mut self, within: Within, reading: Reading) -> Result<Vec<Node>, Mistake> {
        let (start, mut nodes) = (self.at, Vec::new());
        self.depth += 1;
        if self.depth > DEEPEST {
            let why = format!("elements lie more than {DEEPEST} deep in one another");
            return Err(Mistake { at: start, why });
        }
        loop {
            let (text, tag) = self.next()?;
            self.text(text, reading, &mut nodes)?;
            let Some(Tag { range, kind }) = tag else { break };
            let at = range.start;
            match kind {
                Kind::Close { name } if within.is(&name) => {
                    self.depth -= 1;
                    return Ok(nodes);
                }
                Kind::EndOfUncomment if within == Within::Uncomment => {
                    self.depth -= 1;
                    return Ok(nodes);
                }
                Kind::Close { name } => {
                    let name = &name[..name.len().min(SHOWN)];
                    return Err(Mistake { at, why: format!("</esi:{name}> ends no element here") });
                }
                Kind::EndOfUncomment => {
                    let why = "--> ends <!--esi within an element".to_owned();
                    return Err(Mistake { at, why });
                }
                Kind::Uncomment => {
                    self.uncommented += 1;
                    nodes.extend(self.contents(Within::Uncomment, reading)?);
                    self.uncommented -= 1;
                }
                Kind::Open { name, attributes } => {
                    self.element(at, &name, attributes, reading, &mut nodes)?;
                }
                Kind::Empty { name, attributes } => {
                    self.empty(at, &name, attributes, &mut nodes)?;
                }
            }
        }
        self.depth -= 1;
        let why = match within {
            Within::Page => return Ok(nodes),
            Within::Uncomment => "<!--esi has no end".to_owned(),
            Within::Element(name) => format!("<esi:{name}> has no end"),
        };
        Err(Mistake { at: start, why })
    }

    /// Appends text.
    fn text(
        &mut self,
        range: Range<usize>,
        reading: Reading,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Mistake> {
        match reading {
            Reading::Plain if range.is_empty() => {}
            Reading::Plain => nodes.push(Node::Text(range)),
            Reading::Variables => {
                let left = MOST_ELEMENTS.saturating_sub(self.elements);
                self.elements += split(self.page, range, left, nodes)?;
            }
        }
        Ok(())
    }

    /// Reads an element that has contents.
    fn element(
        &mut self,
        at: usize,
        name: &str,
        attributes: Attributes,
        reading: Reading,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Mistake> {
        match name {
            "remove" => self.skip(at, b"</esi:remove>"),
            "inline" => self.skip(at, b"</esi:inline>"),
            "vars" => {
                nodes.extend(self.contents(Within::Element("vars"), Reading::Variables)?);
                Ok(())
            }
            "try" => {
                nodes.push(Node::Try(self.attempt(at, reading)?));
                Ok(())
            }
            "include" | "comment" => {
                // Rewriting HTML makes `<esi:include …></esi:include>` of `<esi:include …/>`.
                let close = format!("</esi:{name}>");
                if self.page[self.at..].trim_ascii_start().starts_with(close.as_bytes()) {
                    self.skip(at, close.as_bytes())?;
                }
                self.empty(at, name, attributes, nodes)
            }
            _ => Err(unknown(at, name)),
        }
    }

    /// Reads an element without contents.
    fn empty(
        &mut self,
        at: usize,
        name: &str,
        attributes: Attributes,
        nodes: &mut Vec<Node>,
    ) -> Result<(), Mistake> {
        match name {
            "include" => {
                nodes.push(Node::Include(include(at, self.includes, attributes)?));
                self.includes += 1;
            }
            "comment" | "remove" | "inline" | "vars" => {}
            _ => return Err(unknown(at, name)),
        }
        Ok(())
    }

    /// Leaves out everything up to the end of an element.
    fn skip(&mut self, at: usize, close: &[u8]) -> Result<(), Mistake> {
        let Some(len) = memmem::find(&self.page[self.at..], close) else {
            let why = format!("{} is missing", String::from_utf8_lossy(close));
            return Err(Mistake { at, why });
        };
        self.at += len + close.len();
        Ok(())
    }

    /// Reads the two parts of `<esi:try>`. Text around them is left out.
    fn attempt(&mut self, at: usize, reading: Reading) -> Result<Attempt, Mistake> {
        let (mut attempt, mut except) = (None, None);
        loop {
            let (_, tag) = self.next()?;
            let place = tag.as_ref().map_or(at, |tag| tag.range.start);
            match tag.map(|tag| tag.kind) {
                Some(Kind::Open { name, .. }) if name == "attempt" && attempt.is_none() => {
                    attempt = Some(self.contents(Within::Element("attempt"), reading)?);
                }
                Some(Kind::Open { name, .. }) if name == "except" && except.is_none() => {
                    except = Some(self.contents(Within::Element("except"), reading)?);
                }
                Some(Kind::Empty { name, .. }) if name == "comment" => {}
                Some(Kind::Close { name }) if name == "try" => {
                    let attempt = attempt.ok_or_else(|| Mistake {
                        at,
                        why: "<esi:try> has no <esi:attempt>".to_owned(),
                    })?;
                    return Ok(Attempt { attempt, except: except.unwrap_or_default() });
                }
                _ => {
                    let why = "<esi:try> may contain one <esi:attempt> and one <esi:except>";
                    return Err(Mistake { at: place, why: why.to_owned() });
                }
            }
        }
    }
}

impl Within {
    fn is(self, name: &str) -> bool {
        matches!(self, Self::Element(own) if own == name)
    }
}

/// Attributes that have no effect, such as `cache-control` of LSCache's plugins, are ignored: the
/// response with the fragment says the same.
fn include(at: usize, number: usize, attributes: Attributes) -> Result<Include, Mistake> {
    let (mut src, mut alt, mut on_error) = (None, None, OnError::Fail);
    for (name, value) in attributes {
        match name.as_str() {
            "src" => src = Some(Text::parse(&value).map_err(|why| Mistake { at, why })?),
            "alt" => alt = Some(Text::parse(&value).map_err(|why| Mistake { at, why })?),
            "onerror" if value.eq_ignore_ascii_case("continue") => on_error = OnError::Continue,
            _ => {}
        }
    }
    let src = src.ok_or_else(|| Mistake { at, why: "<esi:include> has no src".to_owned() })?;
    Ok(Include { number, src, alt, on_error })
}

fn unknown(at: usize, name: &str) -> Mistake {
    let why = match name {
        "choose" | "when" | "otherwise" => format!("<esi:{name}> is not supported"),
        "attempt" | "except" => format!("<esi:{name}> is not within <esi:try>"),
        _ => format!("there is no element <esi:{}>", &name[..name.len().min(SHOWN)]),
    };
    Mistake { at, why }
}

#[cfg(test)]
mod tests {
    use crate::Template;
    use crate::template::{Node, OnError};

    use super::*;

    /// The page as text: includes as `[src|alt!]`, tries as `{attempt?except}`.
    fn shown(page: &str) -> Result<String, Mistake> {
        fn of(page: &str, nodes: &[Node]) -> String {
            let one = |node: &Node| match node {
                Node::Text(range) => page[range.clone()].to_owned(),
                Node::Variable(variable) => format!("{variable:?}"),
                Node::Include(Include { src, alt, on_error, .. }) => {
                    let alt = alt.as_ref().map(|alt| format!("|{}", alt.source()));
                    let mark = if *on_error == OnError::Continue { "!" } else { "" };
                    format!("[{}{}{mark}]", src.source(), alt.unwrap_or_default())
                }
                Node::Try(Attempt { attempt, except }) => {
                    format!("{{{}?{}}}", of(page, attempt), of(page, except))
                }
            };
            nodes.iter().map(one).collect()
        }
        Ok(of(page, &Template::parse(page.as_bytes())?.nodes))
    }

    #[test]
    fn a_page_becomes_its_parts() {
        for (page, parts) in [
            ("", ""),
            ("a<b>c", "a<b>c"),
            ("a<esi:include src='/x'/>b", "a[/x]b"),
            ("<esi:include src='/x' alt=\"/y\" onerror='continue' as-var='1'/>", "[/x|/y!]"),
            ("<esi:include src='/x'></esi:include>b", "[/x]b"),
            ("<esi:include src='/x'>b", "[/x]b"),
            ("a<esi:remove><esi:include src='/x'/></esi:remove>b", "ab"),
            ("a<esi:comment text='x'/>b", "ab"),
            ("a<!--esi <esi:include src='/x'/>-->b<!-- c -->", "a [/x]b<!-- c -->"),
            ("<esi:inline name='/x' cache-control='private'>secret</esi:inline>b", "b"),
            (
                "a<esi:try> <esi:attempt>b<esi:include src='/x'/></esi:attempt>\n<esi:except>c</esi:except> </esi:try>d",
                "a{b[/x]?c}d",
            ),
            ("<esi:try><esi:attempt>a</esi:attempt></esi:try>", "{a?}"),
        ] {
            assert_eq!(shown(page).as_deref(), Ok(parts), "{page}");
        }
    }

    #[test]
    fn mistakes_name_their_places() {
        for (page, at, why) in [
            ("ab<esi:include/>", 2, "has no src"),
            ("<esi:choose></esi:choose>", 0, "not supported"),
            ("<esi:nothing/>", 0, "no element"),
            ("a</esi:try>", 1, "ends no element"),
            ("<esi:try></esi:try>", 0, "no <esi:attempt>"),
            ("<esi:try><esi:attempt>", 22, "has no end"),
            ("<esi:try>", 0, "one <esi:attempt>"),
            ("<esi:remove>", 0, "is missing"),
            ("a<!--esi b", 8, "has no end"),
            ("<esi:vars>-->", 10, "has no end"),
            ("<!--esi <esi:vars>--></esi:vars>", 18, "within an element"),
            ("<esi:attempt>a</esi:attempt>", 0, "not within"),
        ] {
            let mistake = shown(page).unwrap_err();
            assert_eq!(mistake.at, at, "{page}: {mistake}");
            assert!(mistake.why.contains(why), "{page}: {mistake}");
        }
    }

    #[test]
    fn bombs_are_mistakes() {
        let deep = "<esi:try><esi:attempt>".repeat(100_000);
        assert!(shown(&deep).unwrap_err().why.contains("deep"));
        assert!(shown(&"<!--esi ".repeat(100_000)).unwrap_err().why.contains("deep"));
        let many = "<esi:comment text=''/>".repeat(MOST_ELEMENTS + 1);
        assert!(shown(&many).unwrap_err().why.contains("more than"));
        let variables = format!("<esi:vars>{}</esi:vars>", "$(HTTP_HOST)".repeat(MOST_ELEMENTS));
        assert!(shown(&variables).unwrap_err().why.contains("more than"));
        let spread = "<esi:vars>$(HTTP_HOST)$(HTTP_HOST)</esi:vars>".repeat(MOST_ELEMENTS / 3);
        assert!(shown(&spread).unwrap_err().why.contains("more than"));
        let tries = "<esi:try><esi:attempt></esi:attempt></esi:try>".repeat(MOST_ELEMENTS / 4);
        assert!(shown(&tries).is_ok());
    }
}
