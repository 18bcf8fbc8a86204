//! `RewriteCond`: its text and its test.

use sendoff_apache_expression::{Comparison, Groups, Pattern};

use super::flags;
use super::substitution::{Expanded, Filling, Substitution};
use crate::budget::TooCostly;
use crate::expression::{Evaluation, Expression, path_of};
use crate::problem::Problem;
use crate::request::Kind;
use crate::state::{Context, Pass};
use crate::syntax::raw_word;
use crate::text::{self, lossy};

/// A `RewriteCond`.
#[derive(Debug)]
pub(crate) struct Condition {
    input: Substitution,
    check: ConditionTest,
    negated: bool,
    ignore_case: bool,
    /// The `OR` flag: this condition or the next one must hold.
    pub(super) or_next: bool,
    /// The `NV` flag: the fields that the condition reads are not added to `Vary`.
    no_vary: bool,
}

#[derive(Debug)]
enum ConditionTest {
    Matches(Pattern),
    File(FileTest),
    Number(Comparison, i64),
    Text(Comparison, Vec<u8>),
    Expression(Expression),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileTest {
    File,
    NotEmpty,
    Link,
    Folder,
    Executable,
    AccessibleFile,
    AccessiblePath,
}

/// The result of a condition.
pub(super) struct Checked {
    pub(super) holds: bool,
    /// New `%1` to `%9`.
    pub(super) groups: Option<Groups>,
    pub(super) fields: Vec<Vec<u8>>,
}

impl Condition {
    /// Parses the arguments of a `RewriteCond`.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse(mut rest: &[u8]) -> Result<Self, Problem> {
        let input = raw_word(&mut rest).ok_or("RewriteCond wants a text and a condition")?;
        let check = raw_word(&mut rest).ok_or("RewriteCond wants a condition behind the text")?;
        let (mut ignore_case, mut or_next, mut no_vary) = (false, false, false);
        if !rest.trim_ascii().is_empty() {
            let given = raw_word(&mut rest).unwrap_or_default();
            for (name, _) in flags::split(given)? {
                match name.to_ascii_uppercase().as_slice() {
                    b"NC" | b"NOCASE" => ignore_case = true,
                    b"OR" | b"ORNEXT" => or_next = true,
                    b"NV" | b"NOVARY" => no_vary = true,
                    _ => {
                        let name = lossy(&name);
                        return Err(format!("RewriteCond has no flag {name:?}").into());
                    }
                }
            }
        }
        let (negated, check) = match check.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, check),
        };
        let (input, check) = if input.eq_ignore_ascii_case(b"expr") {
            let expression = Expression::parse(check).map_err(Problem::Refused)?;
            (Substitution::parse(b"")?, ConditionTest::Expression(expression))
        } else {
            (Substitution::parse(input)?, ConditionTest::parse(check, ignore_case)?)
        };
        Ok(Self { input, check, negated, ignore_case, or_next, no_vary })
    }

    /// Tests the condition.
    pub(super) fn check(
        &self,
        context: &Context<'_>,
        pass: &Pass,
        filling: &Filling<'_>,
    ) -> Result<Checked, TooCostly> {
        let Expanded { bytes: input, mut fields, .. } = self.input.expand(context, pass, filling);
        let mut groups = None;
        let holds = match &self.check {
            ConditionTest::Matches(pattern) if self.negated => {
                pattern.matches(&input, &context.budget)?
            }
            ConditionTest::Matches(pattern) => {
                groups = pattern.groups(&input, &context.budget)?;
                groups.is_some()
            }
            ConditionTest::File(test) => test.holds(context, pass, &input),
            ConditionTest::Number(order, number) => order.holds(&text::number(&input), number),
            ConditionTest::Text(order, text) => self.compare(*order, &input, text),
            ConditionTest::Expression(expression) => {
                let mut evaluation = Evaluation::new(context, pass);
                let holds = evaluation.holds(expression)?;
                fields.append(&mut evaluation.vary);
                groups = (holds && !self.negated).then(|| std::mem::take(&mut evaluation.groups));
                holds
            }
        };
        if self.no_vary {
            fields.clear();
        }
        Ok(Checked { holds: holds != self.negated, groups, fields })
    }

    /// Texts of different lengths compare by length.
    fn compare(&self, order: Comparison, input: &[u8], text: &[u8]) -> bool {
        if self.ignore_case && order == Comparison::Equal {
            return input.eq_ignore_ascii_case(text);
        }
        order.holds(&(input.len(), input), &(text.len(), text))
    }
}

impl ConditionTest {
    fn parse(text: &[u8], ignore_case: bool) -> Result<Self, Problem> {
        if let [b'-', rest @ ..] = text {
            if let Some(test) = FileTest::parse(rest) {
                return Ok(Self::File(test));
            }
            if let Some((order, number)) = number_test(rest) {
                return Ok(Self::Number(order, text::number(number)));
            }
        }
        let (order, rest) = match text {
            [b'>', b'=', rest @ ..] => (Comparison::GreaterOrEqual, rest),
            [b'<', b'=', rest @ ..] => (Comparison::LessOrEqual, rest),
            [b'>', rest @ ..] if !rest.is_empty() => (Comparison::Greater, rest),
            [b'<', rest @ ..] if !rest.is_empty() => (Comparison::Less, rest),
            [b'=', b'"', b'"'] => (Comparison::Equal, &b""[..]),
            [b'=', rest @ ..] if !rest.is_empty() => (Comparison::Equal, rest),
            _ => return Ok(Self::Matches(Pattern::new(text, ignore_case)?)),
        };
        Ok(Self::Text(order, rest.to_vec()))
    }
}

fn number_test(text: &[u8]) -> Option<(Comparison, &[u8])> {
    let order = Comparison::named(&text.get(..2)?.to_ascii_lowercase())?;
    Some((order, &text[2..]))
}

impl FileTest {
    fn parse(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"f" => Self::File,
            b"s" => Self::NotEmpty,
            b"l" | b"L" | b"h" => Self::Link,
            b"d" => Self::Folder,
            b"x" => Self::Executable,
            b"F" => Self::AccessibleFile,
            b"U" => Self::AccessiblePath,
            _ => return None,
        })
    }

    fn holds(self, context: &Context<'_>, pass: &Pass, path: &[u8]) -> bool {
        // Only `-U` takes a path of the site; files have absolute ones.
        if path.is_empty() {
            return false;
        }
        let found = || context.files.look(path);
        match self {
            Self::File => found().is_some_and(|found| found.kind == Kind::File),
            Self::Folder => found().is_some_and(|found| found.kind == Kind::Folder),
            Self::NotEmpty => {
                context.looks_at_size();
                found().is_some_and(|found| found.kind == Kind::File && found.size > 0)
            }
            Self::Executable => found().is_some_and(|found| found.executable),
            Self::Link => context.files.is_link(path),
            Self::AccessibleFile => {
                let site_path = path_of(context, pass, path);
                found().is_some_and(|found| found.kind == Kind::File)
                    && site_path.is_some_and(|path| {
                        context.look_ups.look_up(context, &path, pass).status == 200
                    })
            }
            Self::AccessiblePath => context.look_ups.look_up(context, path, pass).status < 400,
        }
    }
}
