//! The value of an expression for a request.

use sendoff_apache_expression::{Expression, Function, Globbing, Groups, Test, Word};

use crate::budget::TooCostly;
use crate::limits;
use crate::request::Kind;
use crate::state::{Context, Pass};
use crate::text;
use crate::variables;

/// The evaluation of expressions for one request.
pub(crate) struct Evaluation<'a> {
    context: &'a Context<'a>,
    pass: &'a Pass,
    /// The response's fields; empty before there is a response.
    response: &'a [(Vec<u8>, Vec<u8>)],
    /// The groups of the last match.
    pub(crate) groups: Groups,
    /// The request fields that were read.
    pub(crate) vary: Vec<Vec<u8>>,
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(context: &'a Context<'a>, pass: &'a Pass) -> Self {
        Self { context, pass, response: &[], groups: Groups::default(), vary: Vec::new() }
    }

    /// Evaluates for a response with these fields.
    pub(crate) fn of_response(mut self, fields: &'a [(Vec<u8>, Vec<u8>)]) -> Self {
        self.response = fields;
        self
    }

    /// True if an expression holds.
    pub(crate) fn holds(&mut self, expression: &Expression) -> Result<bool, TooCostly> {
        self.context.budget.time()?;
        Ok(match expression {
            Expression::Constant(value) => *value,
            Expression::Not(inner) => !self.holds(inner)?,
            Expression::And(left, right) => self.holds(left)? && self.holds(right)?,
            Expression::Or(left, right) => self.holds(left)? || self.holds(right)?,
            Expression::Test(test, word) => {
                let word = self.word(word);
                self.test(*test, &word)
            }
            Expression::Text(left, order, right) => {
                order.holds(&self.word(left), &self.word(right))
            }
            Expression::Number(left, order, right) => {
                order.holds(&text::number(&self.word(left)), &text::number(&self.word(right)))
            }
            Expression::Matches(word, pattern) => {
                let groups = pattern.groups(&self.word(word), &self.context.budget)?;
                let holds = groups.is_some();
                self.groups = groups.unwrap_or_else(|| std::mem::take(&mut self.groups));
                holds
            }
            Expression::In(word, words) => {
                let word = self.word(word);
                words.iter().any(|other| self.word(other) == word)
            }
            Expression::InNetwork(word, network) => {
                let word = self.word(word);
                let address = std::str::from_utf8(&word).ok().and_then(|text| text.parse().ok());
                address.is_some_and(|address| network.contains(address))
            }
            Expression::Glob(word, pattern, globbing) => {
                let (word, pattern) = (self.word(word), self.word(pattern));
                match globbing {
                    Globbing::Exact => text::glob(&pattern, &word),
                    Globbing::IgnoreCase => {
                        text::glob(&pattern.to_ascii_lowercase(), &word.to_ascii_lowercase())
                    }
                    Globbing::Path => {
                        let segments = |path: &[u8]| -> Vec<Vec<u8>> {
                            path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect()
                        };
                        let (patterns, words) = (segments(&pattern), segments(&word));
                        patterns.len() == words.len()
                            && patterns.iter().zip(&words).all(|(p, w)| text::glob(p, w))
                    }
                }
            }
        })
    }

    /// The bytes of a word.
    pub(crate) fn word(&mut self, word: &Word) -> Vec<u8> {
        let mut bytes = match word {
            Word::Literal(bytes) => bytes.clone(),
            Word::Joined(words) => {
                let mut joined = Vec::new();
                for word in words {
                    joined.extend_from_slice(&self.word(word));
                    joined.truncate(limits::VALUE);
                }
                joined
            }
            Word::Group(number) => self.groups.get(*number).to_vec(),
            Word::Variable(name) if name == b"CONTENT_TYPE" => self.response_field(b"Content-Type"),
            Word::Variable(name) => {
                self.vary.extend(variables::field_of(name).map(<[u8]>::to_vec));
                let value = variables::named(self.context, self.pass, name);
                value.map_or_else(Vec::new, |value| value.bytes)
            }
            Word::Call(function, argument) => {
                let argument = self.word(argument);
                self.call(*function, &argument)
            }
        };
        self.context.budget.cut(&mut bytes);
        bytes
    }

    fn response_field(&self, name: &[u8]) -> Vec<u8> {
        let field = self.response.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        field.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    fn call(&mut self, function: Function, argument: &[u8]) -> Vec<u8> {
        match function {
            Function::Field | Function::FieldWithoutVary => {
                let value = variables::field(self.context, argument);
                if function == Function::Field && !argument.eq_ignore_ascii_case(b"Host") {
                    self.vary.push(argument.to_vec());
                }
                value.bytes
            }
            Function::ResponseField => self.response_field(argument),
            Function::Environment => self.pass.variables.get(argument).unwrap_or_default().to_vec(),
            Function::Empty => Vec::new(),
            Function::ToLower => argument.to_ascii_lowercase(),
            Function::ToUpper => argument.to_ascii_uppercase(),
            Function::Escape => text::escape_path(argument),
            Function::Unescape => text::unescape(argument),
            Function::Base64 => base64(argument),
            Function::FromBase64 => from_base64(argument),
        }
    }

    fn test(&self, test: Test, word: &[u8]) -> bool {
        let found = || self.context.files.look(word);
        let is = |kind| found().is_some_and(|found| found.kind == kind);
        match test {
            Test::Folder => is(Kind::Folder),
            Test::File => is(Kind::File),
            Test::Exists => found().is_some(),
            Test::NotEmpty => {
                self.context.looks_at_size();
                found().is_some_and(|f| f.kind == Kind::File && f.size > 0)
            }
            Test::Link => self.context.files.is_link(word),
            Test::Executable => found().is_some_and(|found| found.executable),
            Test::AccessibleFile => {
                is(Kind::File)
                    && path_of(self.context, self.pass, word).is_some_and(|path| {
                        self.context.look_ups.look_up(self.context, &path, self.pass).status == 200
                    })
            }
            Test::AccessiblePath => {
                self.context.look_ups.look_up(self.context, word, self.pass).status < 400
            }
            Test::HasText => !word.is_empty(),
            Test::HasNoText => word.is_empty(),
            Test::IsTrue => {
                let word = word.to_ascii_lowercase();
                !matches!(word.as_slice(), b"" | b"0" | b"off" | b"false" | b"no")
            }
            // The parser turns this test into a network.
            Test::FromNetwork => false,
        }
    }
}

/// The path of the site that leads to a file.
pub(crate) fn path_of(context: &Context<'_>, pass: &Pass, file: &[u8]) -> Option<Vec<u8>> {
    let beneath = |folder: &[u8]| file.strip_prefix(folder).filter(|rest| rest.starts_with(b"/"));
    if let Some(rest) = beneath(context.site.root) {
        return Some(rest.to_vec());
    }
    beneath(&pass.folder).map(|rest| [&pass.prefix, rest].concat())
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() * 4 / 3 + 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| usize::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = ALPHABET[bits >> (18 - 6 * index) & 63];
            text.push(if index <= chunk.len() { digit } else { b'=' });
        }
    }
    text
}

/// Decodes up to the first byte that is no digit.
fn from_base64(text: &[u8]) -> Vec<u8> {
    let digits = text.iter().map_while(|byte| ALPHABET.iter().position(|digit| digit == byte));
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_usize, 0);
    for digit in digits {
        bits = (bits << 6 | digit) & 0xFFFF;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 255).unwrap_or_default());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_there_and_back() {
        for (bytes, text) in
            [(&b""[..], &b""[..]), (b"a", b"YQ=="), (b"ab", b"YWI="), (b"abc", b"YWJj")]
        {
            assert_eq!(base64(bytes), text);
            assert_eq!(from_base64(text), bytes);
        }
    }
}
