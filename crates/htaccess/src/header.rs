//! `Header` and `RequestHeader`.

use std::time::UNIX_EPOCH;

use sendoff_apache_expression::Pattern;

use crate::budget::TooCostly;
use crate::expression::{Evaluation, Expression, Template};
use crate::head::{HeadAction, HeadChange};
use crate::limits;
use crate::problem::Problem;
use crate::state::{Context, Pass};
use crate::syntax;
use crate::text::{self, lossy};

/// A header section.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// A change of a header section.
#[derive(Debug)]
pub(crate) struct HeaderRule {
    /// `always`: also where the response is an error page.
    pub(crate) always: bool,
    action: Action,
    name: Vec<u8>,
    condition: Condition,
}

#[derive(Debug)]
enum Action {
    Set(HeaderText),
    SetIfEmpty(HeaderText),
    Append(HeaderText),
    Merge(HeaderText),
    Add(HeaderText),
    Unset,
    /// The request's fields whose names match.
    Echo(Pattern),
    Edit {
        pattern: Pattern,
        by: HeaderText,
        all: bool,
    },
}

#[derive(Debug)]
enum Condition {
    None,
    Variable { name: Vec<u8>, set: bool },
    Expression(Expression),
}

#[derive(Debug)]
enum HeaderText {
    Format(Vec<FormatPart>),
    Expression(Template),
}

#[derive(Debug)]
enum FormatPart {
    Literal(Vec<u8>),
    Variable(Vec<u8>),
    /// `%t`: the time of the request.
    Time,
}

impl FormatPart {
    fn weight(&self) -> usize {
        match self {
            Self::Literal(bytes) | Self::Variable(bytes) => 32 + bytes.len(),
            Self::Time => 32,
        }
    }
}

impl HeaderText {
    fn parse(text: &[u8]) -> Result<Self, Problem> {
        if let Some(expression) = text.strip_prefix(b"expr=") {
            let template = Template::parse(expression).map_err(Problem::Refused)?;
            return Ok(Self::Expression(template));
        }
        let (mut parts, mut literal, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(&byte) = text.get(at) {
            at += 1;
            if byte != b'%' {
                literal.push(byte);
                continue;
            }
            let part = match text.get(at) {
                Some(b'%') => {
                    literal.push(b'%');
                    at += 1;
                    continue;
                }
                Some(b't') => FormatPart::Time,
                Some(b'{') => {
                    let end = text[at..].iter().position(|byte| *byte == b'}');
                    let end = at + end.ok_or("a variable is not closed")?;
                    let name = text[at + 1..end].to_vec();
                    at = end + 1;
                    match text.get(at) {
                        Some(b'e') => FormatPart::Variable(name),
                        Some(b's') => {
                            return Err(Problem::Ignored(
                                "TLS variables are not supported".to_owned(),
                            ));
                        }
                        _ => return Err("%{NAME} must be followed by e".into()),
                    }
                }
                Some(b'D' | b'l' | b'i' | b'b') => {
                    let why = "the server's load and times are not supported in headers";
                    return Err(Problem::Ignored(why.to_owned()));
                }
                _ => return Err("% in a header's value must be doubled".into()),
            };
            at += 1;
            if !literal.is_empty() {
                parts.push(FormatPart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(part);
        }
        parts.push(FormatPart::Literal(literal));
        Ok(Self::Format(parts))
    }

    /// The text, if it is the same for every response.
    fn literal(&self) -> Option<Vec<u8>> {
        match self {
            Self::Format(parts) => match parts.as_slice() {
                [FormatPart::Literal(literal)] if literal.len() <= limits::VALUE => {
                    Some(clean(literal.clone()))
                }
                _ => None,
            },
            Self::Expression(_) => None,
        }
    }

    fn make(&self, evaluation: &mut Evaluation<'_>, context: &Context<'_>, pass: &Pass) -> Vec<u8> {
        let parts = match self {
            Self::Expression(template) => return clean(template.expand(evaluation)),
            Self::Format(parts) => parts,
        };
        let mut made = Vec::new();
        for part in parts {
            made.truncate(limits::VALUE);
            match part {
                FormatPart::Literal(literal) => made.extend_from_slice(literal),
                FormatPart::Variable(name) => {
                    made.extend_from_slice(pass.variables.get(name).unwrap_or(b"(null)"));
                }
                FormatPart::Time => {
                    let time = context.now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    made.extend_from_slice(format!("t={}", time.as_micros()).as_bytes());
                }
            }
        }
        context.budget.cut(&mut made);
        clean(made)
    }
}

/// Replaces line ends and NUL, which would begin another field.
fn clean(mut value: Vec<u8>) -> Vec<u8> {
    for byte in &mut value {
        if matches!(byte, b'\r' | b'\n' | 0) {
            *byte = b' ';
        }
    }
    value
}

impl HeaderRule {
    /// The name of its field.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Parses the arguments of `Header`, or of `RequestHeader`.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse(of_request: bool, rest: &[u8]) -> Result<Self, Problem> {
        let words = syntax::words(rest);
        let mut words = words.into_iter().peekable();
        let mut always = false;
        let next_lower = |words: &mut std::iter::Peekable<std::vec::IntoIter<Vec<u8>>>| {
            words.next().map(|word| word.to_ascii_lowercase()).ok_or("an action is missing")
        };
        let mut action = next_lower(&mut words)?;
        if !of_request && matches!(action.as_slice(), b"always" | b"onsuccess") {
            always = action == b"always";
            action = next_lower(&mut words)?;
        }
        if action == b"unset" && words.peek().is_none() {
            return Err(Problem::Ignored("the name of a field is missing".to_owned()));
        }
        let name = words.next().ok_or("the name of a field is missing")?;
        let name = name.strip_suffix(b":").unwrap_or(&name).to_vec();
        let action = match action.as_slice() {
            b"unset" => Action::Unset,
            b"echo" if !of_request => Action::Echo(Pattern::new(&name, true)?),
            b"note" => {
                return Err(Problem::Ignored("notes for the log are not supported".to_owned()));
            }
            b"edit" | b"edit*" => {
                let pattern = words.next().ok_or("the expression to look for is missing")?;
                let by = words.next().ok_or("the text to put in is missing")?;
                let pattern = Pattern::new(&pattern, false)?;
                Action::Edit { pattern, by: HeaderText::parse(&by)?, all: action == b"edit*" }
            }
            other => {
                let value = words.next().ok_or("the value of the field is missing")?;
                let value = HeaderText::parse(&value)?;
                match other {
                    b"set" => Action::Set(value),
                    b"setifempty" => Action::SetIfEmpty(value),
                    b"append" => Action::Append(value),
                    b"merge" => Action::Merge(value),
                    b"add" => Action::Add(value),
                    _ => return Err(format!("the action {:?} is unknown", lossy(other)).into()),
                }
            }
        };
        let condition = match words.next() {
            None => Condition::None,
            Some(text) => Condition::parse(&text)?,
        };
        if words.peek().is_some() {
            return Err("there are too many words; quote the value".into());
        }
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let is_name = !name.is_empty() && name.iter().all(is_token);
        if !matches!(action, Action::Echo(_)) && !is_name {
            return Err(format!("{:?} is no name of a field", lossy(&name)).into());
        }
        Ok(Self { always, action, name, condition })
    }

    /// True for `Content-Type`, which every response has exactly once.
    pub(crate) fn is_content_type(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"Content-Type")
    }

    /// The change, if it is the same for every response.
    pub(crate) fn fixed(&self) -> Option<HeadChange> {
        let (action, text) = match &self.action {
            Action::Set(text) => (HeadAction::Set, text.literal()?),
            Action::Add(text) => (HeadAction::Add, text.literal()?),
            Action::Unset => (HeadAction::Unset, Vec::new()),
            _ => return None,
        };
        let is_fixed = matches!(self.condition, Condition::None) && !self.is_content_type();
        let (always, name) = (self.always, self.name.clone());
        is_fixed.then_some(HeadChange { always, action, name, value: text })
    }

    /// The approximate size of the rule in memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let text = |text: &HeaderText| match text {
            HeaderText::Format(parts) => parts.iter().map(FormatPart::weight).sum(),
            // The source of the expression is not kept; it was part of a line.
            HeaderText::Expression(_) => limits::LINE,
        };
        let action = match &self.action {
            Action::Set(value)
            | Action::SetIfEmpty(value)
            | Action::Append(value)
            | Action::Merge(value)
            | Action::Add(value) => text(value),
            Action::Unset => 0,
            Action::Echo(pattern) => pattern.weight(),
            Action::Edit { pattern, by, .. } => pattern.weight() + text(by),
        };
        let condition = match &self.condition {
            Condition::None => 0,
            Condition::Variable { name, .. } => name.len(),
            Condition::Expression(_) => limits::LINE,
        };
        self.name.len() + action + condition
    }

    /// True if the rule depends on the response.
    pub(crate) fn sees_response(&self) -> bool {
        let text = match &self.action {
            Action::Set(text)
            | Action::SetIfEmpty(text)
            | Action::Append(text)
            | Action::Merge(text)
            | Action::Add(text)
            | Action::Edit { by: text, .. } => Some(text),
            Action::Unset | Action::Echo(_) => None,
        };
        matches!(self.condition, Condition::Expression(_))
            || matches!(text, Some(HeaderText::Expression(_)))
    }

    /// True if the rule applies. `response` has the fields that expressions see.
    pub(crate) fn applies(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        response: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<bool, TooCostly> {
        context.budget.time()?;
        match &self.condition {
            Condition::None => Ok(true),
            Condition::Variable { name, set } => Ok(pass.variables.get(name).is_some() == *set),
            Condition::Expression(expression) => {
                Evaluation::new(context, pass).of_response(response).holds(expression)
            }
        }
    }

    /// Changes a header section.
    pub(crate) fn change(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        response: &[(Vec<u8>, Vec<u8>)],
        fields: &mut Fields,
    ) -> Result<(), TooCostly> {
        let mut evaluation = Evaluation::new(context, pass).of_response(response);
        let mut make = |text: &HeaderText| text.make(&mut evaluation, context, pass);
        let is = |(name, _): &&mut (Vec<u8>, Vec<u8>)| name.eq_ignore_ascii_case(&self.name);
        match &self.action {
            Action::Set(text) => set(fields, &self.name, make(text)),
            Action::SetIfEmpty(text) => {
                if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(&self.name)) {
                    fields.push((self.name.clone(), make(text)));
                }
            }
            Action::Append(text) => {
                let more = make(text);
                append(fields, &self.name, &more);
            }
            Action::Merge(text) => {
                let more = make(text);
                let wanted = more.trim_ascii();
                let there = fields.iter_mut().filter(is).any(|(_, value)| {
                    value.split(|byte| *byte == b',').any(|item| item.trim_ascii() == wanted)
                });
                if !there {
                    append(fields, &self.name, &more);
                }
            }
            Action::Add(text) => fields.push((self.name.clone(), make(text))),
            Action::Unset => fields.retain(|(name, _)| !name.eq_ignore_ascii_case(&self.name)),
            Action::Echo(pattern) => {
                let (mut found, mut costly) = (Vec::new(), false);
                context.fields().each(&mut |name, value| match pattern
                    .matches(name, &context.budget)
                {
                    Ok(true) => found.push((name.to_vec(), value.to_vec())),
                    Ok(false) => {}
                    Err(TooCostly) => costly = true,
                });
                if costly {
                    return Err(TooCostly);
                }
                fields.extend(found);
            }
            Action::Edit { pattern, by, all } => {
                let by = make(by);
                for (_, value) in fields.iter_mut().filter(is) {
                    let mut new = pattern.replace(value, &by, *all, &context.budget)?;
                    context.budget.cut(&mut new);
                    *value = clean(new);
                }
            }
        }
        Ok(())
    }
}

/// Replaces all fields of a name, at the place of the first.
pub(crate) fn set(fields: &mut Fields, name: &[u8], value: Vec<u8>) {
    let is = |known: &[u8]| known.eq_ignore_ascii_case(name);
    let Some(first) = fields.iter().position(|(known, _)| is(known)) else {
        fields.push((name.to_vec(), value));
        return;
    };
    let mut index = 0;
    fields.retain(|(known, _)| {
        index += 1;
        index - 1 <= first || !is(known)
    });
    fields[first] = (name.to_vec(), value);
}

/// Adds a value behind a comma to the first field of a name.
pub(crate) fn append(fields: &mut Fields, name: &[u8], more: &[u8]) {
    match fields.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, value)) if value.len() + more.len() > limits::VALUE => {}
        Some((_, value)) => {
            value.extend_from_slice(b", ");
            value.extend_from_slice(more);
        }
        None => fields.push((name.to_vec(), more.to_vec())),
    }
}

impl Condition {
    fn parse(text: &[u8]) -> Result<Self, Problem> {
        if let Some(name) = text.strip_prefix(b"env=!") {
            return Ok(Self::Variable { name: name.to_vec(), set: false });
        }
        if let Some(name) = text.strip_prefix(b"env=") {
            return Ok(Self::Variable { name: name.to_vec(), set: true });
        }
        if let Some(expression) = text.strip_prefix(b"expr=") {
            return Expression::parse(expression).map(Self::Expression).map_err(Problem::Refused);
        }
        if text::starts_with_ignore_case(text, b"early") {
            let why = "\"early\" has no effect in .htaccess files".to_owned();
            return Err(Problem::Ignored(why));
        }
        Err(format!("the condition {:?} is not understood; quote the value", lossy(text)).into())
    }
}
