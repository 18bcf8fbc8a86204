//! Texts of rewrite rules: `$1`, `%1`, `%{NAME}`.

use sendoff_apache_expression::Groups;

use crate::limits;
use crate::problem::Problem;
use crate::state::{Context, Pass};
use crate::text::{self, lossy};
use crate::variables;

/// A text that is evaluated for each request.
#[derive(Debug)]
pub(crate) struct Substitution(Vec<SubstitutionPart>);

#[derive(Debug)]
enum SubstitutionPart {
    Literal(Vec<u8>),
    /// `$1`
    OfRule(usize),
    /// `%1`
    OfCondition(usize),
    Variable(Vec<u8>),
    /// `%{HTTP:NAME}`
    Field(Vec<u8>),
    /// `%{ENV:NAME}`
    Environment(Vec<u8>),
    /// `%{LA-U:NAME}`, `%{LA-F:NAME}`: the value that the variable has after all rules.
    LookAhead(Vec<u8>),
}

/// The values of groups, and their escaping in a text.
pub(super) struct Filling<'a> {
    pub(super) of_rule: &'a Groups,
    pub(super) of_condition: &'a Groups,
    pub(super) escape: Option<Escape<'a>>,
}

/// `[B]`: bytes of groups become `%xx`.
#[derive(Clone, Copy)]
pub(super) struct Escape<'a> {
    /// The bytes to escape; empty: all but letters, digits and the underscore.
    pub(super) only: &'a [u8],
    /// Bytes that are never escaped.
    pub(super) never: &'a [u8],
    /// Escapes a blank as `%20` instead of `+`.
    pub(super) no_plus: bool,
}

impl Escape<'_> {
    fn apply(&self, text: &[u8]) -> Vec<u8> {
        let mut escaped = Vec::with_capacity(text.len());
        for &byte in text {
            let plain = byte.is_ascii_alphanumeric()
                || byte == b'_'
                || self.never.contains(&byte)
                || !(self.only.is_empty() || self.only.contains(&byte));
            if plain {
                escaped.push(byte);
            } else if byte == b' ' && !self.no_plus {
                escaped.push(b'+');
            } else {
                escaped.extend_from_slice(format!("%{byte:02x}").as_bytes());
            }
        }
        escaped
    }
}

/// An evaluated text and the inputs that it was made of.
pub(super) struct Expanded {
    pub(super) bytes: Vec<u8>,
    /// The request fields that it depends on.
    pub(super) fields: Vec<Vec<u8>>,
    /// A group added a question mark to the path.
    pub(super) query_by_group: bool,
}

impl Substitution {
    /// Parses a text.
    ///
    /// # Errors
    /// It names something that is not supported.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Problem> {
        let (mut parts, mut literal, mut at) = (Vec::new(), Vec::new(), 0);
        while let Some(&byte) = text.get(at) {
            let next = text.get(at + 1).copied();
            let part = match (byte, next) {
                (b'\\', Some(next)) => {
                    literal.push(next);
                    at += 2;
                    continue;
                }
                (b'$', Some(digit)) if digit.is_ascii_digit() => {
                    SubstitutionPart::OfRule(usize::from(digit - b'0'))
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => {
                    SubstitutionPart::OfCondition(usize::from(digit - b'0'))
                }
                (b'$', Some(b'{')) => {
                    let why = "maps (${...}) are declared in Apache's own configuration, not here";
                    return Err(Problem::Refused(why.to_owned()));
                }
                (b'%', Some(b'{')) if closing(&text[at + 1..]).is_some() => {
                    let end = at + 1 + closing(&text[at + 1..]).unwrap_or_default();
                    let part = variable(&text[at + 2..end])?;
                    if !literal.is_empty() {
                        parts.push(SubstitutionPart::Literal(std::mem::take(&mut literal)));
                    }
                    parts.push(part);
                    at = end + 1;
                    continue;
                }
                _ => {
                    literal.push(byte);
                    at += 1;
                    continue;
                }
            };
            if !literal.is_empty() {
                parts.push(SubstitutionPart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(part);
            at += 2;
        }
        if !literal.is_empty() {
            parts.push(SubstitutionPart::Literal(literal));
        }
        Ok(Self(parts))
    }

    /// The text for a request.
    pub(super) fn expand(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        filling: &Filling<'_>,
    ) -> Expanded {
        let mut expanded =
            Expanded { bytes: Vec::new(), fields: Vec::new(), query_by_group: false };
        let escaped = |group: &[u8]| match filling.escape {
            Some(escape) => escape.apply(group),
            None => group.to_vec(),
        };
        let mut in_query = false;
        for part in &self.0 {
            let bytes = match part {
                SubstitutionPart::Literal(literal) => {
                    in_query |= literal.contains(&b'?');
                    literal.clone()
                }
                SubstitutionPart::OfRule(number) => escaped(filling.of_rule.get(*number)),
                SubstitutionPart::OfCondition(number) => escaped(filling.of_condition.get(*number)),
                SubstitutionPart::Variable(name) => {
                    let value = variables::named(context, pass, name);
                    value.map_or_else(Vec::new, |value| {
                        expanded.fields.extend(value.field);
                        value.bytes
                    })
                }
                SubstitutionPart::Field(name) => {
                    let value = variables::field(context, name);
                    expanded.fields.extend(value.field);
                    value.bytes
                }
                SubstitutionPart::Environment(name) => {
                    pass.variables.get(name).unwrap_or_default().to_vec()
                }
                SubstitutionPart::LookAhead(name) => look_ahead(context, pass, name),
            };
            let is_group =
                matches!(part, SubstitutionPart::OfRule(_) | SubstitutionPart::OfCondition(_));
            expanded.query_by_group |= is_group && !in_query && bytes.contains(&b'?');
            expanded.bytes.extend_from_slice(&bytes);
            if expanded.bytes.len() > limits::VALUE {
                break;
            }
        }
        context.budget.cut(&mut expanded.bytes);
        expanded
    }
}

fn look_ahead(context: &Context<'_>, pass: &Pass, name: &[u8]) -> Vec<u8> {
    let ahead = context.look_ups.look_up(context, &pass.path, pass);
    match name.split(|byte| *byte == b':').collect::<Vec<_>>().as_slice() {
        [b"ENV", variable] => ahead.pass.variables.get(variable).unwrap_or_default().to_vec(),
        _ => variables::named(context, &ahead.pass, name).map_or_else(Vec::new, |v| v.bytes),
    }
}

/// The position of the brace that closes the brace at the beginning.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn variable(name: &[u8]) -> Result<SubstitutionPart, Problem> {
    let Some(colon) = name.iter().position(|byte| *byte == b':') else {
        return Ok(SubstitutionPart::Variable(name.to_vec()));
    };
    let (kind, rest) = (&name[..colon], &name[colon + 1..]);
    let is = |word: &[u8]| kind.eq_ignore_ascii_case(word);
    if is(b"HTTP") {
        Ok(SubstitutionPart::Field(rest.to_vec()))
    } else if is(b"ENV") {
        Ok(SubstitutionPart::Environment(rest.to_vec()))
    } else if is(b"LA-U") || is(b"LA-F") {
        Ok(SubstitutionPart::LookAhead(rest.to_vec()))
    } else if is(b"SSL") && rest.eq_ignore_ascii_case(b"HTTPS") {
        Ok(SubstitutionPart::Variable(b"HTTPS".to_vec()))
    } else {
        let why = format!("the variable %{{{}}} is not supported", lossy(name));
        Err(Problem::Refused(why))
    }
}

/// Moves the query from a rewritten path to the request.
pub(super) struct QueryChange {
    pub(super) append: bool,
    pub(super) discard: bool,
    pub(super) last_mark: bool,
}

impl QueryChange {
    /// Splits a text at its question mark and combines the part behind it with the previous query.
    pub(super) fn apply(&self, text: &mut Vec<u8>, query: &mut Option<Vec<u8>>) {
        if self.discard {
            *query = None;
        }
        let is_mark = |byte: &u8| *byte == b'?';
        let mark = if self.last_mark {
            text.iter().rposition(is_mark)
        } else {
            text.iter().position(is_mark)
        };
        let Some(mark) = mark else { return };
        let mut new = text.split_off(mark).split_off(1);
        if self.append {
            let old = query.take().unwrap_or_default();
            new = if new.is_empty() { old } else { text::concat(&[&new, b"&", &old]) };
        }
        if new.last() == Some(&b'&') {
            new.pop();
        }
        *query = (!new.is_empty()).then_some(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let changed = |text: &str, query: &str, append, discard| {
            let mut path = text.as_bytes().to_vec();
            let mut query = Some(query.as_bytes().to_vec());
            QueryChange { append, discard, last_mark: false }.apply(&mut path, &mut query);
            (lossy(&path), query.map(|query| lossy(&query)))
        };
        let some = |path: &str, query: &str| (path.to_owned(), Some(query.to_owned()));
        assert_eq!(changed("a", "b=1", false, false), some("a", "b=1"));
        assert_eq!(changed("a?c=2", "b=1", false, false), some("a", "c=2"));
        assert_eq!(changed("a?c=2", "b=1", true, false), some("a", "c=2&b=1"));
        assert_eq!(changed("a?", "b=1", true, false), some("a", "b=1"));
        assert_eq!(changed("a?", "b=1", false, false), ("a".to_owned(), None));
        assert_eq!(changed("a", "b=1", false, true), ("a".to_owned(), None));
    }

    #[test]
    fn escaped_groups() {
        let all = Escape { only: b"", never: b"", no_plus: false };
        assert_eq!(all.apply(b"a b/_?"), b"a+b%2f_%3f");
        let some = Escape { only: b"?", never: b"", no_plus: true };
        assert_eq!(some.apply(b"a b?"), b"a b%3f");
    }
}
