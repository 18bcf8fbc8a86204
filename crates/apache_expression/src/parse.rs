//! The parser of expressions: recursive descent over bytes.

use std::sync::Arc;

use crate::limits;
use crate::network::Network;
use crate::pattern::Pattern;
use crate::{Comparison, Expression, Function, Globbing, Test, Word, is_variable, lossy};

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// A sentence that says what is not understood.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut parser = Parser { rest: text, depth: 0 };
        let expression = parser.either()?;
        parser.blanks();
        if parser.rest.is_empty() {
            Ok(expression)
        } else {
            Err(format!("{:?} is not understood in an expression", lossy(parser.rest)))
        }
    }
}

/// Parses a text with variables and groups in it: `%{NAME}`, `%{FUNCTION:TEXT}` and `$1`.
///
/// # Errors
/// A sentence that says what is not understood.
pub fn template(text: &[u8]) -> Result<Word, String> {
    let mut parser = Parser { rest: text, depth: 0 };
    parser.string(None)
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl Parser<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Takes a mark off the text, if it comes next.
    fn take(&mut self, mark: &[u8]) -> bool {
        self.blanks();
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn either(&mut self) -> Parsed<Expression> {
        let mut left = self.both()?;
        while self.take(b"||") {
            left = Expression::Or(Box::new(left), Box::new(self.both()?));
        }
        Ok(left)
    }

    fn both(&mut self) -> Parsed<Expression> {
        let mut left = self.not()?;
        while self.take(b"&&") {
            left = Expression::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expression> {
        self.depth += 1;
        if self.depth > limits::EXPRESSION_DEPTH {
            return Err("the expression is nested too deeply".to_owned());
        }
        let parsed = if self.take(b"!") {
            Expression::Not(Box::new(self.not()?))
        } else if self.take(b"(") {
            let inner = self.either()?;
            if !self.take(b")") {
                return Err("a parenthesis is not closed".to_owned());
            }
            inner
        } else {
            self.condition()?
        };
        self.depth -= 1;
        Ok(parsed)
    }

    fn condition(&mut self) -> Parsed<Expression> {
        self.blanks();
        let before = self.rest;
        match self.name().as_deref() {
            Some(b"true") => return Ok(Expression::Constant(true)),
            Some(b"false") => return Ok(Expression::Constant(false)),
            _ => self.rest = before,
        }
        if self.rest.starts_with(b"-") {
            return self.test();
        }
        let left = self.word()?;
        self.comparison(left)
    }

    /// Takes letters, digits and underscores off the text.
    fn name(&mut self) -> Option<Vec<u8>> {
        self.blanks();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = self.rest.iter().take_while(|byte| is_part(byte)).count();
        let (name, rest) = self.rest.split_at(length);
        self.rest = rest;
        (!name.is_empty()).then(|| name.to_vec())
    }

    fn test(&mut self) -> Parsed<Expression> {
        let _ = self.take(b"-");
        let name = self.name().unwrap_or_default();
        let test = match name.as_slice() {
            b"d" => Test::Folder,
            b"e" => Test::Exists,
            b"f" => Test::File,
            b"s" => Test::NotEmpty,
            b"h" | b"L" => Test::Link,
            b"x" => Test::Executable,
            b"F" => Test::AccessibleFile,
            b"U" | b"A" => Test::AccessiblePath,
            b"n" => Test::HasText,
            b"z" => Test::HasNoText,
            b"T" => Test::IsTrue,
            b"R" => Test::FromNetwork,
            _ => return Err(format!("the test -{} is unknown", lossy(&name))),
        };
        let word = self.word()?;
        Ok(match (test, &word) {
            (Test::FromNetwork, Word::Literal(text)) => {
                let client = Word::Variable(b"REMOTE_ADDR".to_vec());
                Expression::InNetwork(client, Network::parse(text)?)
            }
            (Test::FromNetwork, _) => return Err("-R wants a fixed network".to_owned()),
            _ => Expression::Test(test, word),
        })
    }

    fn comparison(&mut self, left: Word) -> Parsed<Expression> {
        for (mark, order) in [
            (&b"=="[..], Comparison::Equal),
            (b"!=", Comparison::NotEqual),
            (b"<=", Comparison::LessOrEqual),
            (b">=", Comparison::GreaterOrEqual),
        ] {
            if self.take(mark) {
                return Ok(Expression::Text(left, order, self.word()?));
            }
        }
        if self.take(b"=~") {
            return Ok(Expression::Matches(left, self.pattern()?));
        }
        if self.take(b"!~") {
            return Ok(Expression::Not(Box::new(Expression::Matches(left, self.pattern()?))));
        }
        for (mark, order) in
            [(&b"="[..], Comparison::Equal), (b"<", Comparison::Less), (b">", Comparison::Greater)]
        {
            if self.take(mark) {
                return Ok(Expression::Text(left, order, self.word()?));
            }
        }
        if self.take(b"-") {
            let name = self.name().unwrap_or_default();
            return self.named_comparison(left, &name);
        }
        match self.name().as_deref() {
            Some(b"in") => Ok(Expression::In(left, self.list()?)),
            Some(order) => {
                let Some(order) = Comparison::named(order) else {
                    return Err(format!("the operator {} is unknown", lossy(order)));
                };
                Ok(Expression::Number(left, order, self.word()?))
            }
            None => Err("a comparison is missing".to_owned()),
        }
    }

    fn named_comparison(&mut self, left: Word, name: &[u8]) -> Parsed<Expression> {
        if let Some(order) = Comparison::named(name) {
            return Ok(Expression::Number(left, order, self.word()?));
        }
        if name == b"in" {
            return Ok(Expression::In(left, self.list()?));
        }
        let globbing = match name {
            b"strmatch" => Globbing::Exact,
            b"strcmatch" => Globbing::IgnoreCase,
            b"fnmatch" => Globbing::Path,
            b"ipmatch" => {
                let Word::Literal(network) = self.word()? else {
                    return Err("-ipmatch wants a fixed network".to_owned());
                };
                return Ok(Expression::InNetwork(left, Network::parse(&network)?));
            }
            _ => return Err(format!("the operator -{} is unknown", lossy(name))),
        };
        Ok(Expression::Glob(left, self.word()?, globbing))
    }

    fn list(&mut self) -> Parsed<Vec<Word>> {
        if !self.take(b"{") {
            return Err("only lists in braces are understood behind \"in\"".to_owned());
        }
        let mut words = vec![self.word()?];
        while self.take(b",") {
            words.push(self.word()?);
        }
        if self.take(b"}") { Ok(words) } else { Err("a list is not closed".to_owned()) }
    }

    /// `/.../` or `m#...#`, and `i`, `s`, `m`, `g` behind it.
    fn pattern(&mut self) -> Parsed<Arc<Pattern>> {
        self.blanks();
        let marked = self.rest.strip_prefix(b"m").unwrap_or(self.rest);
        let Some((&mark, body)) = marked.split_first() else {
            return Err("an expression is missing behind =~".to_owned());
        };
        let is_mark = if marked.len() < self.rest.len() {
            b"/#$%^,;:_?.!'\"|-".contains(&mark)
        } else {
            mark == b'/'
        };
        if !is_mark {
            return Err("a regular expression stands between slashes or behind m".to_owned());
        }
        let end = body.iter().position(|byte| *byte == mark);
        let end = end.ok_or("a regular expression does not end")?;
        let (text, mut rest) = (&body[..end], &body[end + 1..]);
        let (mut flags, mut ignore_case) = (String::new(), false);
        while let Some((&flag, after)) = rest.split_first().filter(|(b, _)| b.is_ascii_alphabetic())
        {
            match flag {
                b'i' => ignore_case = true,
                b'm' => flags.push_str("(?m)"),
                b's' | b'g' => {}
                other => return Err(format!("the flag {} is unknown", char::from(other))),
            }
            rest = after;
        }
        self.rest = rest;
        let text = [flags.as_bytes(), text].concat();
        Ok(Arc::new(Pattern::new(&text, ignore_case)?))
    }

    /// Words joined by dots.
    fn word(&mut self) -> Parsed<Word> {
        let first = self.part()?;
        let mut parts = vec![first];
        while self.take(b".") {
            parts.push(self.part()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Word::Joined(parts) })
    }

    fn part(&mut self) -> Parsed<Word> {
        self.depth += 1;
        if self.depth > limits::EXPRESSION_DEPTH {
            return Err("the expression is nested too deeply".to_owned());
        }
        self.blanks();
        let word = match self.rest.first() {
            Some(&quote @ (b'"' | b'\'')) => {
                self.rest = &self.rest[1..];
                self.string(Some(quote))?
            }
            Some(b'%') if self.rest.get(1) == Some(&b'{') => self.variable()?,
            Some(b'$') if self.rest.get(1).is_some_and(u8::is_ascii_digit) => {
                let number = usize::from(self.rest[1] - b'0');
                self.rest = &self.rest[2..];
                Word::Group(number)
            }
            _ => self.call_or_number()?,
        };
        self.depth -= 1;
        Ok(word)
    }

    fn call_or_number(&mut self) -> Parsed<Word> {
        let Some(name) = self.name() else {
            return Err(format!("a word is missing before {:?}", lossy(self.rest)));
        };
        if name.iter().all(u8::is_ascii_digit) {
            return Ok(Word::Literal(name));
        }
        if !self.take(b"(") {
            return Err(format!("{:?} stands without quotes", lossy(&name)));
        }
        let function = Function::named(&name)
            .ok_or_else(|| format!("the function {} is not supported", lossy(&name)))?;
        let argument = self.word()?;
        if !self.take(b")") {
            return Err("the parenthesis of a function is not closed".to_owned());
        }
        Ok(Word::Call(function, Box::new(argument)))
    }

    /// `%{NAME}` or `%{FUNCTION:TEXT}`
    fn variable(&mut self) -> Parsed<Word> {
        let end = self.rest.iter().position(|byte| *byte == b'}');
        let end = end.ok_or("a variable is not closed")?;
        let inner = &self.rest[2..end];
        self.rest = &self.rest[end + 1..];
        let Some(colon) = inner.iter().position(|byte| *byte == b':') else {
            let name = inner.to_ascii_uppercase();
            if is_variable(&name) {
                return Ok(Word::Variable(name));
            }
            return Err(format!("the variable {} is unknown", lossy(inner)));
        };
        let (name, argument) = (&inner[..colon], &inner[colon + 1..]);
        let function = Function::named(name)
            .ok_or_else(|| format!("the function {} is not supported", lossy(name)))?;
        Ok(Word::Call(function, Box::new(Word::Literal(argument.to_vec()))))
    }

    /// A text up to its quote, or to the end.
    fn string(&mut self, quote: Option<u8>) -> Parsed<Word> {
        let (mut parts, mut literal) = (Vec::new(), Vec::new());
        loop {
            let Some((&byte, rest)) = self.rest.split_first() else {
                if quote.is_some() {
                    return Err("a quote is not closed".to_owned());
                }
                break;
            };
            match (byte, rest.first()) {
                (byte, _) if Some(byte) == quote => {
                    self.rest = rest;
                    break;
                }
                (b'%', Some(b'{')) => {
                    push_literal(&mut parts, &mut literal);
                    parts.push(self.variable()?);
                    continue;
                }
                (b'$', Some(digit)) if digit.is_ascii_digit() => {
                    push_literal(&mut parts, &mut literal);
                    parts.push(Word::Group(usize::from(digit - b'0')));
                    self.rest = &rest[1..];
                    continue;
                }
                (b'\\', Some(&next)) if quote.is_some() => {
                    literal.push(match next {
                        b'n' => b'\n',
                        b'r' => b'\r',
                        b't' => b'\t',
                        b'b' => 8,
                        b'f' => 12,
                        other => other,
                    });
                    self.rest = &rest[1..];
                    continue;
                }
                _ => literal.push(byte),
            }
            self.rest = rest;
        }
        push_literal(&mut parts, &mut literal);
        Ok(match parts.len() {
            0 => Word::Literal(Vec::new()),
            1 => parts.remove(0),
            _ => Word::Joined(parts),
        })
    }
}

fn push_literal(parts: &mut Vec<Word>, literal: &mut Vec<u8>) {
    if !literal.is_empty() {
        parts.push(Word::Literal(std::mem::take(literal)));
    }
}
