//! The words and lines of a Caddyfile.

use std::rc::Rc;

use sendoff_convert_document::sources::Source;
use sendoff_convert_document::{Part, Place, Unreadable};

/// A word.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) place: Place,
    /// True if it stands in quotation marks: it is no brace then.
    is_quoted: bool,
    /// True if it is the first word of its line.
    pub(super) begins_line: bool,
}

impl Token {
    /// The same word with another text.
    pub(super) fn with(&self, text: String) -> Self {
        Self { text, ..self.clone() }
    }

    /// True if the word is this brace.
    pub(super) fn is_brace(&self, brace: &str) -> bool {
        !self.is_quoted && self.text == brace
    }
}

/// The words of a file.
///
/// # Errors
/// A quotation mark is not closed, or an environment variable has no value in the file.
pub(super) fn tokens(source: &Source) -> Result<Vec<Token>, Unreadable> {
    let mut reader = Reader { rest: &source.text, line: 1, file: Rc::clone(&source.file) };
    let mut tokens = Vec::new();
    let mut begins_line = true;
    loop {
        begins_line |= reader.skip_blanks();
        let place = reader.place();
        let Some(next) = reader.peek() else { return Ok(tokens) };
        let (text, is_quoted) = match next {
            '"' | '`' => (reader.quoted(next)?, true),
            _ if reader.rest.starts_with("<<") => match reader.heredoc()? {
                Some(text) => (text, true),
                None => (reader.bare(), false),
            },
            _ => (reader.bare(), false),
        };
        let text = with_defaults(&text, &place)?;
        tokens.push(Token { text, place, is_quoted, begins_line });
        begins_line = false;
    }
}

/// The text with the defaults of environment variables, `{$NAME:default}`.
fn with_defaults(text: &str, place: &Place) -> Result<String, Unreadable> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("{$") {
        let Some(end) = rest[start..].find('}').map(|length| start + length) else { break };
        let variable = &rest[start + 2..end];
        let Some((_, default)) = variable.split_once(':') else {
            let says = format!(
                "{{${variable}}} is an environment variable: write its value into the file, or a default: {{${variable}:value}}"
            );
            return Err(Unreadable { place: Some(place.clone()), says });
        };
        made.push_str(&rest[..start]);
        made.push_str(default);
        rest = &rest[end + 1..];
    }
    made.push_str(rest);
    Ok(made)
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
    file: Rc<str>,
}

impl Reader<'_> {
    fn place(&self) -> Place {
        Place { file: Rc::clone(&self.file), part: Part::Line(self.line) }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let taken = self.peek()?;
        self.rest = &self.rest[taken.len_utf8()..];
        self.line += usize::from(taken == '\n');
        Some(taken)
    }

    /// Skips blanks and comments. Returns true if a line has ended; a backslash at its end joins
    /// the next line to it.
    fn skip_blanks(&mut self) -> bool {
        let mut has_ended = false;
        loop {
            let joined = ["\\\n", "\\\r\n"].iter().find(|end| self.rest.starts_with(**end));
            match self.peek() {
                _ if joined.is_some() => while self.take() != Some('\n') {},
                Some(blank) if blank.is_whitespace() => {
                    has_ended |= blank == '\n';
                    self.take();
                }
                Some('#') => {
                    while !matches!(self.peek(), None | Some('\n')) {
                        self.take();
                    }
                }
                _ => return has_ended,
            }
        }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(next) = self.peek().filter(|next| !next.is_whitespace()) {
            if ["\\\n", "\\\r\n"].iter().any(|end| self.rest.starts_with(end)) {
                break;
            }
            self.take();
            word.push(next);
        }
        word
    }

    /// A word in quotation marks. In double ones a backslash escapes a quotation mark.
    fn quoted(&mut self, quote: char) -> Result<String, Unreadable> {
        let begun = self.place();
        self.take();
        let mut word = String::new();
        while let Some(taken) = self.take() {
            match taken {
                taken if taken == quote => return Ok(word),
                '\\' if quote == '"' && self.peek() == Some('"') => word.extend(self.take()),
                taken => word.push(taken),
            }
        }
        Err(Unreadable { place: Some(begun), says: "a quotation mark is not closed".to_owned() })
    }

    /// A text of several lines between `<<NAME` and `NAME`; `None`: this is no such text.
    fn heredoc(&mut self) -> Result<Option<String>, Unreadable> {
        let Some((first, lines)) = self.rest.split_once('\n') else { return Ok(None) };
        let name = first[2..].trim_end_matches('\r');
        let is_name = |sign: char| sign.is_ascii_alphanumeric() || "-_".contains(sign);
        if name.is_empty() || !name.chars().all(is_name) {
            return Ok(None);
        }
        let (mut text, mut length) = (Vec::new(), first.len() + 1);
        for line in lines.split_inclusive('\n') {
            let trimmed = line.trim_start();
            if trimmed.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_name)) {
                let indent = &line[..line.len() - trimmed.len()];
                length += indent.len() + name.len();
                for _ in 0..self.rest[..length].chars().count() {
                    self.take();
                }
                let lines: Vec<&str> = text
                    .iter()
                    .map(|line: &&str| line.strip_prefix(indent).unwrap_or(line))
                    .collect();
                return Ok(Some(lines.join("\n")));
            }
            text.push(line.trim_end_matches(['\r', '\n']));
            length += line.len();
        }
        Err(Unreadable { place: Some(self.place()), says: format!("<<{name} has no end") })
    }
}
