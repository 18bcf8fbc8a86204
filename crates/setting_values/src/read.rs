//! From the text of a file to its sections.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeValue};

use crate::place::Place;
use crate::problem::Problems;

/// Context for parsing a text.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The folder to which paths are relative.
    pub folder: &'a Path,
}

/// A value in a file, and its place.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The value.
    pub value: &'a DeValue<'a>,
    /// The place of the value.
    pub place: Place,
}

/// A mistake in a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The message: a sentence without a full stop.
    pub says: String,
    /// The offset of the mistake in the text, in bytes.
    pub at: Option<usize>,
    /// Advice for the operator.
    pub help: Option<String>,
}

impl Wrong {
    /// A mistake without a place in the text.
    pub(crate) fn new(says: impl Into<String>) -> Self {
        Self { says: says.into(), at: None, help: None }
    }

    /// Sets the place in the text.
    pub(crate) fn at(mut self, at: usize) -> Self {
        self.at = Some(at);
        self
    }

    /// Sets the advice.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Reads one file.
pub struct FileReader<'a> {
    file: u16,
    text: &'a str,
    folder: &'a Path,
    /// The problems found so far.
    pub problems: &'a mut Problems,
}

impl<'a> FileReader<'a> {
    /// Reads the file with this number and text.
    pub fn new(file: u16, text: &'a str, folder: &'a Path, problems: &'a mut Problems) -> Self {
        Self { file, text, folder, problems }
    }

    /// The context for parsing texts of this file.
    pub fn scope(&self) -> Scope<'_> {
        Scope { folder: self.folder }
    }

    /// The place of some bytes of the file.
    pub fn place(&self, span: Range<usize>) -> Place {
        let number = |at: usize| u32::try_from(at.min(self.text.len())).unwrap_or(u32::MAX);
        Place::File { file: self.file, start: number(span.start), end: number(span.end) }
    }

    /// A value and its place.
    pub fn item<'v>(&self, value: &'v Spanned<DeValue<'v>>) -> Item<'v> {
        Item { value: value.get_ref(), place: self.place(value.span()) }
    }

    /// The place of a key.
    pub fn key(&self, key: &Spanned<DeString<'_>>) -> Place {
        self.place(key.span())
    }

    /// Reports a syntax error.
    pub fn syntax(&mut self, place: Place, message: &str) {
        let place = self.visible(place);
        let marked = match place {
            Place::File { start, end, .. } => self.text.get(start as usize..end as usize),
            _ => None,
        };
        let marked = marked.unwrap_or_default().trim();
        if let Some((place, text)) = self.typographic(place) {
            let says =
                "these quotation marks are typographic, as word processors and web pages make them";
            self.problems.error(place, says).help(format!("write \"{text}\", with straight marks"));
            return;
        }
        if message.contains("duplicate key") && self.stands_before_its_section(place, marked) {
            return;
        }
        let single = "a text in single quotes keeps its backslashes: '^/\\d+$'".to_owned();
        let (says, help) = match message {
            _ if message.contains("duplicate key") => (
                "the same key stands twice in one section",
                "remove one of them; several values are a list: [\"a\", \"b\"]".to_owned(),
            ),
            _ if message.contains("string values must be quoted") => match marked {
                "" => ("the value is missing", "write KEY = VALUE".to_owned()),
                marked => without_quotes(marked),
            },
            _ if message.contains("key with no value") => match marked {
                "{" => (
                    "sections have no braces",
                    "a section begins with its name in brackets: [[site]]; its keys follow, one per line"
                        .to_owned(),
                ),
                "[" => (
                    "a key has no brackets",
                    "write a table: php_admin_value = { memory_limit = \"256M\" }".to_owned(),
                ),
                _ => ("an equals sign is missing", "write KEY = VALUE".to_owned()),
            },
            _ if message.contains("missing escaped value") => {
                ("a backslash begins an escape in double quotes", single)
            }
            _ if message.contains("basic string") || message.contains("literal string") => (
                "the quotation mark at the end is missing",
                "a text begins and ends with the same mark, in one line".to_owned(),
            ),
            _ if message.contains("unclosed array table") => {
                ("a bracket is missing", "a section begins with [[NAME]]".to_owned())
            }
            _ if message.contains("unclosed array") => {
                ("this list does not end", "a list ends with ]".to_owned())
            }
            _ if message.contains("unquoted key") && marked.starts_with(['/', ';']) => {
                ("this is not a key", "comments begin with #".to_owned())
            }
            _ => {
                self.problems.error(place, format!("this is not TOML: {message}"));
                return;
            }
        };
        self.problems.error(place, says).help(help);
    }

    /// The text in typographic quotation marks that begins at a syntax error, and the text between
    /// its marks.
    fn typographic(&self, place: Place) -> Option<(Place, String)> {
        let Place::File { start, .. } = place else { return None };
        let start = start as usize;
        let line = self.text.get(start..)?.lines().next()?;
        let inside = line.strip_prefix(TYPOGRAPHIC)?;
        let (text, len) = match inside.char_indices().find(|(_, c)| TYPOGRAPHIC.contains(c)) {
            Some((end, mark)) => {
                (&inside[..end], line.len() - inside.len() + end + mark.len_utf8())
            }
            None => (inside.trim_end(), line.trim_end().len()),
        };
        Some((self.place(start..start + len), text.to_owned()))
    }

    /// Reports `[[site.route]]` above the first `[[site]]` as a mistake in that line; the parser
    /// notices it later.
    fn stands_before_its_section(&mut self, place: Place, name: &str) -> bool {
        let Place::File { start, .. } = place else { return false };
        let above = self.text.get(..start as usize).unwrap_or_default();
        let Some(above) = above.strip_suffix("[[") else { return false };
        let Some(at) = above.find(&format!("[[{name}.")) else { return false };
        let len = above[at..].find(']').map_or(name.len(), |len| len + 2);
        let place = self.place(at..at + len);
        self.without_section(place, name);
        true
    }

    fn without_section(&mut self, place: Place, name: &str) {
        self.problems.error(place, format!("no [[{name}]] stands above this section")).help(
            format!(
                "such a section belongs to the [[{name}]] above it: write it behind the keys of that [[{name}]]"
            ),
        );
    }

    /// Adds an example of the key to the problems with its value that have no advice yet.
    pub fn give_example(&mut self, before: usize, name: &str, example: &str) {
        let sections = example.starts_with("see ");
        for problem in self.problems.0.iter_mut().skip(before).filter(|_| !sections) {
            if problem.help.is_none() {
                problem.help(format!("for example: {name} = {example}"));
            }
        }
    }

    /// The place, widened to one byte if it is empty, so that something can be marked.
    fn visible(&self, place: Place) -> Place {
        match place {
            Place::File { file, start, end } if start == end => {
                let end = self.text.len().min(start as usize + 1);
                Place::File { file, start, end: u32::try_from(end).unwrap_or(start) }
            }
            place => place,
        }
    }

    /// Reports a value of the wrong type.
    pub fn expected(&mut self, item: Item<'_>, kind: &str) {
        let found = match item.value {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let says = format!("expected {kind}");
        let found = match item.value {
            DeValue::Integer(_) if kind.starts_with("a number") => "this number is out of bounds",
            DeValue::Boolean(_) if kind.starts_with("true") => "this is false",
            _ => &format!("this is {found}"),
        };
        self.problems.error(item.place, says).label(found);
    }

    /// Reports a text that its key does not accept.
    pub(crate) fn wrong(&mut self, item: Item<'_>, wrong: Wrong) {
        let Place::File { start, end, .. } = item.place else { return };
        let place = match wrong.at {
            None => item.place,
            Some(at) => {
                let (start, end) = (start as usize, end as usize);
                let source = self.text.get(start..end).unwrap_or_default();
                let at = start + offset_in_source(source, at);
                // The quotation mark at the end is one byte.
                let width = self.text.get(at..).and_then(|rest| rest.chars().next());
                self.place(at..at + width.map_or(1, char::len_utf8))
            }
        };
        self.report(place, wrong);
    }

    /// Reports an unusable key of a table whose keys the operator chooses.
    pub fn wrong_key(&mut self, place: Place, wrong: Wrong) {
        self.report(place, wrong);
    }

    fn report(&mut self, place: Place, wrong: Wrong) {
        let problem = self.problems.error(place, wrong.says);
        if let Some(help) = wrong.help {
            problem.help(help);
        }
    }

    /// Reports `[[site.map.NAME]]` in place of `[site.map.NAME]`, or a value in place of sections
    /// with names.
    pub fn not_named_sections(&mut self, item: Item<'_>, title: &str) {
        let problem = self.problems.error(item.place, format!("expected sections {title}"));
        problem.label("not such a section").help(format!(
            "write {title} with the name that you choose, and one bracket on each side"
        ));
    }

    /// Reports `[site]` in place of `[[site]]`, or a value in place of sections.
    pub fn not_sections(&mut self, item: Item<'_>, title: &str) {
        let name = title.trim_matches(['[', ']']);
        if let Place::File { start, .. } = item.place
            && let Some(rest) = self.text.get(start as usize..)
            && rest.starts_with(&format!("{name}."))
        {
            self.without_section(item.place, name);
            return;
        }
        let problem = self.problems.error(item.place, format!("expected sections {title}"));
        problem.label("not such a section").help(format!(
            "write {title}, with two brackets on each side: there may be several of them"
        ));
    }
}

/// Quotation marks of texts for people, in several languages; none of them is one of TOML's.
const TYPOGRAPHIC: [char; 11] = ['“', '”', '„', '‟', '‘', '’', '‚', '‛', '«', '»', '`'];

/// The mistake in a value without quotation marks, and the correction. If the value is right
/// without the semicolon behind it (nginx's syntax), the semicolon is the mistake.
fn without_quotes(marked: &str) -> (&'static str, String) {
    let bare = marked.trim_end_matches([';', ',']).trim_end();
    let is_value = bare.parse::<f64>().is_ok() || matches!(bare, "true" | "false");
    match bare {
        bare if is_value && bare != marked => {
            ("a value ends with its line, without a semicolon or comma", format!("write {bare}"))
        }
        bare => ("a text stands in quotation marks", format!("write \"{bare}\"")),
    }
}

/// The known word that is most like an unknown one, if it is similar enough.
pub fn similar<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const ALIKE: f64 = 0.8;
    let word = word.to_ascii_lowercase();
    let scored = known.map(|known| (strsim::jaro_winkler(&word, known), known));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= ALIKE).then_some(best.1)
}

/// The offset in the source of byte `at` of a text; the source has quotation marks and perhaps
/// escapes.
fn offset_in_source(source: &str, at: usize) -> usize {
    let quotes = ["\"\"\"", "'''", "\"", "'"];
    let Some(quote) = quotes.into_iter().find(|quote| source.starts_with(quote)) else {
        return at.min(source.len());
    };
    let mut offset = quote.len();
    if quote.len() == 3 {
        // A line break directly behind the marks is not part of the text.
        let rest = &source[offset..];
        offset += if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
    }
    let mut decoded = 0;
    while decoded < at {
        let rest = source.get(offset..).unwrap_or_default();
        let Some(first) = rest.chars().next() else { break };
        let (taken, made) = match rest.as_bytes() {
            [b'\\', kind, ..] if quote.starts_with('"') => {
                let digits = match kind {
                    b'x' => 2,
                    b'u' => 4,
                    b'U' => 8,
                    _ => 0,
                };
                let number = rest.get(2..2 + digits).unwrap_or_default();
                let number = u32::from_str_radix(number, 16).ok().and_then(char::from_u32);
                (2 + digits, number.map_or(1, char::len_utf8))
            }
            _ => (first.len_utf8(), first.len_utf8()),
        };
        offset += taken;
        decoded += made;
    }
    offset.min(source.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_texts_are_found_in_their_sources() {
        for (source, at, expected) in [
            (r#""a(b""#, 1, "(b\""),
            (r"'a\d('", 3, "('"),
            (r#""a\\d(""#, 3, "(\""),
            (r#""\u00e4(""#, 2, "(\""),
            ("\"ä(\"", 2, "(\""),
            ("'''\na('''", 1, "('''"),
            ("\"\"\"\na(\"\"\"", 1, "(\"\"\""),
        ] {
            assert_eq!(&source[offset_in_source(source, at)..], expected, "{source}");
        }
        assert_eq!(offset_in_source("\"a\"", 100), 3);
        assert_eq!(offset_in_source("8080", 2), 2);
    }

    #[test]
    fn words_that_are_alike_are_found() {
        let known = || ["listen", "root", "response_headers", "request_headers"].into_iter();
        assert_eq!(similar("lisen", known()), Some("listen"));
        assert_eq!(similar("respons_header", known()), Some("response_headers"));
        assert_eq!(similar("zebra", known()), None);
    }
}
