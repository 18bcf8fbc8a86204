//! Patterns of Unit, as expressions.
//!
//! A text matches a list if no pattern with `!` matches it, and one of the others does (if there are
//! any).

use sendoff_convert_document::expression::{mistake, quote};

/// The texts that patterns are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    Path,
    Host,
    /// A value whose letters have no case.
    Field,
    Parameter,
    /// The value of a cookie, which ends at a semicolon.
    Cookie,
}

impl Subject {
    fn any(self) -> &'static str {
        match self {
            Self::Cookie => "[^;]*",
            _ => "(?s:.*)",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Self::Cookie => "\\s*(?:;|\\z)",
            Self::Host => sendoff_convert_document::host::END,
            _ => "\\z",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Host | Self::Field => "(?i)",
            _ => "",
        }
    }
}

/// An expression for a text, to be used behind its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    /// The expression, as an assertion that consumes nothing.
    pub(super) ahead: String,
    /// The expression if it stands alone, with an anchor where it needs one.
    pub(super) alone: String,
    /// The texts, if only whole texts match.
    pub(super) exact: Option<Vec<String>>,
}

/// The expression for a list of patterns.
///
/// # Errors
/// A pattern cannot be expressed; the reason.
pub(super) fn test(patterns: &[&str], subject: Subject) -> Result<Test, String> {
    let test = made(patterns, subject)?;
    // An expression such as `\Qa` goes on behind its end.
    match mistake(&test.alone).or(mistake(&test.ahead)) {
        None => Ok(test),
        Some(wrong) => Err(wrong),
    }
}

fn made(patterns: &[&str], subject: Subject) -> Result<Test, String> {
    let option = subject.option();
    if let [single] = patterns
        && !single.starts_with('!')
    {
        let alone = one(single, subject)?;
        let ahead = format!("(?={option}{})", unanchored(&alone, subject));
        return Ok(Test {
            ahead,
            alone: format!("{option}{alone}"),
            exact: exact(patterns, subject),
        });
    }
    let (negative, positive): (Vec<&str>, Vec<&str>) =
        patterns.iter().partition(|pattern| pattern.starts_with('!'));
    let patterns: Vec<&str> = negative.into_iter().chain(positive).collect();
    let mut whole: Option<String> = None;
    for pattern in patterns.iter().rev() {
        let is_negative = pattern.starts_with('!');
        let body = unanchored(&one(pattern.trim_start_matches('!'), subject)?, subject);
        whole = Some(match (is_negative, whole) {
            (false, None) => format!("(?={body})"),
            (true, None) => format!("(?!{body})"),
            (false, Some(rest)) => format!("(?:(?={body})|{rest})"),
            (true, Some(rest)) => format!("(?!{body}){rest}"),
        });
    }
    // An empty list matches everything.
    let whole = whole.unwrap_or_default();
    let ahead = match option {
        "" => whole.clone(),
        _ => format!("(?:{option}{whole})"),
    };
    Ok(Test { alone: format!("{option}^{whole}"), ahead, exact: exact(&patterns, subject) })
}

/// The expression for one pattern: with `^` if it holds for the beginning.
fn one(pattern: &str, subject: Subject) -> Result<String, String> {
    if let Some(expression) = pattern.strip_prefix('~') {
        if subject == Subject::Cookie {
            return Err("an expression for a cookie is not known".to_owned());
        }
        if let Some(wrong) = mistake(expression) {
            return Err(wrong);
        }
        return match subject {
            Subject::Host => sendoff_convert_document::host::expression(expression),
            // Unit compares the letters of an expression as they are.
            Subject::Field => Ok(format!("(?-i:{expression})")),
            _ => Ok(format!("(?:{expression})")),
        };
    }
    if subject == Subject::Host && pattern.trim_start_matches('*').contains('*') {
        return sendoff_convert_document::host::wildcard(pattern);
    }
    // A star may be part of a decoded text.
    let parts: Vec<_> =
        pattern.split('*').map(|part| part_of(part, subject)).collect::<Result<_, _>>()?;
    let starts_open = pattern.starts_with('*');
    let mut text = parts.join(subject.any());
    if starts_open && subject != Subject::Cookie {
        text = text.strip_prefix(subject.any()).unwrap_or(&text).to_owned();
    }
    let is_open = pattern.ends_with('*');
    if is_open && subject != Subject::Cookie {
        text = text.strip_suffix(subject.any()).unwrap_or(&text).to_owned();
    }
    let end = match (is_open, subject) {
        (true, Subject::Cookie) => subject.end(),
        (true, _) => "",
        (false, _) => subject.end(),
    };
    let start = if starts_open && subject != Subject::Cookie { "" } else { "^" };
    Ok(format!("{start}{text}{end}"))
}

/// The expression, to be tried from the beginning of the text.
fn unanchored(expression: &str, subject: Subject) -> String {
    match expression.strip_prefix('^') {
        Some(rest) => rest.to_owned(),
        None => format!("{}{expression}", subject.any()),
    }
}

/// A part of a pattern between two stars, as an expression.
fn part_of(part: &str, subject: Subject) -> Result<String, String> {
    Ok(quote(&decoded(part, subject)?))
}

/// The text that a part of a pattern stands for.
fn decoded(text: &str, subject: Subject) -> Result<String, String> {
    let text = match subject {
        Subject::Path => text.to_owned(),
        Subject::Parameter => text.replace('+', " "),
        _ => return Ok(text.to_owned()),
    };
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("a % without two digits behind it")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "its bytes are not UTF-8".to_owned())
}

/// The texts of a list without stars, expressions and negations.
pub(super) fn exact(patterns: &[&str], subject: Subject) -> Option<Vec<String>> {
    let is_plain = |pattern: &&&str| !pattern.starts_with(['!', '~']) && !pattern.contains('*');
    if patterns.is_empty() || !patterns.iter().all(|pattern| is_plain(&pattern)) {
        return None;
    }
    patterns.iter().map(|pattern| decoded(pattern, subject).ok()).collect()
}

/// True if the expression matches the text.
pub(super) fn holds(expression: &str, text: &str) -> bool {
    sendoff_convert_document::expression::matches(expression, text)
}
