//! Variables for scripts and other directives: `SetEnv`, `SetEnvIf` and their like.

use sendoff_apache_expression::{Groups, Pattern, fill};

use crate::budget::TooCostly;
use crate::expression::{Evaluation, Expression};
use crate::problem::Problem;
use crate::state::{Context, Pass};
use crate::syntax;
use crate::text;
use crate::variables;

/// `SetEnv`, `UnsetEnv`
#[derive(Debug)]
pub(crate) enum Fixed {
    Set(Vec<u8>, Vec<u8>),
    Unset(Vec<u8>),
}

/// `SetEnvIf`, `SetEnvIfExpr`, `BrowserMatch`
#[derive(Debug)]
pub(crate) struct Conditional {
    subject: Subject,
    changes: Vec<Change>,
}

/// A variable and its value; `None` removes the variable.
type Change = (Vec<u8>, Option<Vec<u8>>);

#[derive(Debug)]
enum Subject {
    Attribute(Attribute, Pattern),
    /// A request field, or else a variable.
    Field(Vec<u8>, Pattern),
    /// The fields whose names match.
    Fields(Pattern, Pattern),
    Expression(Expression),
}

#[derive(Debug, Clone, Copy)]
enum Attribute {
    RemoteHost,
    RemoteAddr,
    ServerAddr,
    Method,
    Protocol,
    Uri,
}

impl Conditional {
    /// Parses `ATTRIBUTE EXPRESSION [!]NAME[=VALUE]...`
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse(mut rest: &[u8], ignore_case: bool) -> Result<Self, Problem> {
        let attribute = syntax::word(&mut rest).ok_or("an attribute of the request is missing")?;
        Self::parse_with(&attribute, rest, ignore_case)
    }

    /// Parses the text behind the attribute.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse_with(
        attribute: &[u8],
        mut rest: &[u8],
        ignore_case: bool,
    ) -> Result<Self, Problem> {
        let pattern = syntax::word(&mut rest).ok_or("an expression is missing")?;
        let pattern = Pattern::new(&pattern, ignore_case)?;
        let lower = attribute.to_ascii_lowercase();
        let attribute_of = match lower.as_slice() {
            b"remote_host" => Some(Attribute::RemoteHost),
            b"remote_addr" => Some(Attribute::RemoteAddr),
            b"server_addr" => Some(Attribute::ServerAddr),
            b"request_method" => Some(Attribute::Method),
            b"request_protocol" => Some(Attribute::Protocol),
            b"request_uri" => Some(Attribute::Uri),
            _ => None,
        };
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let subject = match attribute_of {
            Some(attribute) => Subject::Attribute(attribute, pattern),
            None if attribute.iter().all(is_plain) => Subject::Field(attribute.to_vec(), pattern),
            None => Subject::Fields(Pattern::new(attribute, true)?, pattern),
        };
        Ok(Self { subject, changes: changes(rest)? })
    }

    /// Parses the arguments of `SetEnvIfExpr`.
    ///
    /// # Errors
    /// It is not understood.
    pub(crate) fn parse_expression(mut rest: &[u8]) -> Result<Self, Problem> {
        let expression = syntax::word(&mut rest).ok_or("an expression is missing")?;
        let expression = Expression::parse(&expression).map_err(Problem::Refused)?;
        Ok(Self { subject: Subject::Expression(expression), changes: changes(rest)? })
    }

    /// Changes the variables of a request that matches.
    pub(crate) fn apply(&self, context: &Context<'_>, pass: &mut Pass) -> Result<(), TooCostly> {
        let Some(groups) = self.matches(context, pass)? else { return Ok(()) };
        for (name, value) in &self.changes {
            match value {
                Some(value) if self.has_groups() => {
                    let mut value = fill(value, &groups);
                    context.budget.cut(&mut value);
                    pass.variables.set(name, value);
                }
                Some(value) => pass.variables.set(name, value.clone()),
                None => pass.variables.remove(name),
            }
        }
        Ok(())
    }

    /// True if values may refer to groups; without groups, Apache takes values literally.
    fn has_groups(&self) -> bool {
        match &self.subject {
            Subject::Attribute(_, pattern)
            | Subject::Field(_, pattern)
            | Subject::Fields(_, pattern) => pattern.has_groups(),
            Subject::Expression(_) => true,
        }
    }

    fn matches(&self, context: &Context<'_>, pass: &Pass) -> Result<Option<Groups>, TooCostly> {
        let request = context.request;
        match &self.subject {
            Subject::Attribute(attribute, pattern) => {
                let value = match attribute {
                    Attribute::RemoteHost | Attribute::RemoteAddr => {
                        variables::address(context.client())
                    }
                    Attribute::ServerAddr => variables::address(request.server.ip()),
                    Attribute::Method => request.method.to_vec(),
                    Attribute::Protocol => request.protocol.to_vec(),
                    Attribute::Uri => pass.path.clone(),
                };
                pattern.groups(&value, &context.budget)
            }
            Subject::Field(name, pattern) => {
                let field = context.field(name);
                let value = field.as_deref().or_else(|| pass.variables.get(name));
                pattern.groups(value.unwrap_or_default(), &context.budget)
            }
            Subject::Fields(names, pattern) => {
                let mut found: Result<Option<Groups>, TooCostly> = Ok(None);
                let mut any = false;
                context.fields().each(&mut |name, value| {
                    if matches!(found, Ok(None)) {
                        found = names.matches(name, &context.budget).and_then(|is| {
                            any |= is;
                            if is { pattern.groups(value, &context.budget) } else { Ok(None) }
                        });
                    }
                });
                if any { found } else { found.and_then(|_| pattern.groups(b"", &context.budget)) }
            }
            Subject::Expression(expression) => {
                let mut evaluation = Evaluation::new(context, pass);
                let holds = evaluation.holds(expression)?;
                Ok(holds.then_some(evaluation.groups))
            }
        }
    }
}

/// `NAME`, `NAME=VALUE`, `!NAME`
fn changes(rest: &[u8]) -> Result<Vec<Change>, Problem> {
    let change = |word: Vec<u8>| {
        if let Some(name) = word.strip_prefix(b"!") {
            return (name.to_vec(), None);
        }
        match text::find(&word, b"=") {
            Some(at) => (word[..at].to_vec(), Some(word[at + 1..].to_vec())),
            None => (word, Some(b"1".to_vec())),
        }
    };
    let changes: Vec<_> = syntax::words(rest).into_iter().map(change).collect();
    if changes.is_empty() { Err("a variable to set is missing".into()) } else { Ok(changes) }
}
