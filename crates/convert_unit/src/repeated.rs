//! Conditions for fields, arguments and cookies, which a request may have several times.
//!
//! In Unit every value must match. The condition of a route holds if one value does, so a route in
//! front of it refuses the requests whose values differ.

use super::pattern::{Subject, Test, test};

/// A condition of a route for a field or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    There,
    Text(String),
}

impl Part {
    /// One of the values matches the expression.
    fn matches(expression: &str) -> Self {
        match expression.starts_with('!') {
            // It would negate.
            true => Self::Text(format!("\\{expression}")),
            false => Self::Text(expression.to_owned()),
        }
    }

    /// One of the values does not match the expression.
    fn differs(expression: &str) -> Self {
        Self::Text(format!("!{expression}"))
    }
}

impl From<Part> for toml::Value {
    fn from(part: Part) -> Self {
        match part {
            Part::There => Self::Boolean(true),
            Part::Text(text) => Self::String(text),
        }
    }
}

/// A list of patterns for every value of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repeated {
    /// One value matches.
    pub(super) one: Vec<Part>,
    /// Together with `one`: another value does not match.
    pub(super) other: Part,
}

impl Repeated {
    /// The patterns of a field.
    ///
    /// # Errors
    /// A pattern cannot be expressed; the reason.
    pub(super) fn field(name: &str, patterns: &[&str]) -> Result<Self, String> {
        let test = test(patterns, Subject::Field)?;
        let other = match name.eq_ignore_ascii_case("cookie") {
            // A route compares all `Cookie` fields as one value, and its `!` holds for none.
            true => Part::matches(&opposite(&test)),
            false => Part::differs(&test.alone),
        };
        Ok(Self { one: vec![Part::matches(&test.alone)], other })
    }

    /// The patterns of an argument. A route compares the encoded value, too, for which a pattern
    /// with `!` would hold. A condition with `!` compares the decoded value alone.
    ///
    /// # Errors
    /// A pattern cannot be expressed; the reason.
    pub(super) fn argument(patterns: &[&str]) -> Result<Self, String> {
        let all = test(patterns, Subject::Parameter)?;
        let negated: Vec<&str> =
            patterns.iter().filter_map(|pattern| pattern.strip_prefix('!')).collect();
        let one = match negated.len() {
            0 => vec![Part::matches(&all.alone)],
            count => {
                let refused = match count == patterns.len() {
                    true => test(&negated, Subject::Parameter)?.alone,
                    false => opposite(&all),
                };
                vec![Part::There, Part::differs(&refused)]
            }
        };
        Ok(Self { one, other: Part::differs(&all.alone) })
    }

    /// The patterns of a cookie.
    ///
    /// # Errors
    /// A pattern cannot be expressed; the reason.
    pub(super) fn cookie(name: &str, patterns: &[&str]) -> Result<Self, String> {
        let test = test(patterns, Subject::Cookie)?;
        // The value begins behind the name.
        let start = format!(r"(?:^|;)\s*{}=", sendoff_convert_document::expression::quote(name));
        let one = Part::matches(&format!("{start}{}", test.ahead));
        Ok(Self { one: vec![one], other: Part::matches(&format!("{start}(?!{})", test.ahead)) })
    }
}

/// The expression for all values that a list of patterns does not match.
fn opposite(test: &Test) -> String {
    format!("^(?!{})", test.ahead)
}
