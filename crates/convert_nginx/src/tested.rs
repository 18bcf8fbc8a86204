//! The conditions of `if`.

use super::pattern::{
    Condition, matches, mistake, quote, refers_to_groups, unanchored, without_groups,
};
use super::tree::Directive;
use sendoff_convert_document::Section;

/// True if a condition asks which files there are.
pub(super) fn asks_for_files(test: &Directive) -> bool {
    parts(test).first().is_some_and(|subject| subject.starts_with(['-', '!']))
}

/// True if a condition is about the address that is asked for, not about the client.
pub(super) fn asks_for_address(test: &Directive) -> bool {
    const ADDRESS: [&str; 9] = [
        "$args",
        "$https",
        "$is_args",
        "$query_string",
        "$request_method",
        "$request_uri",
        "$scheme",
        "$server_name",
        "$server_port",
    ];
    let subject = parts(test).first().copied().unwrap_or_default();
    ADDRESS.contains(&subject) || subject.starts_with("$arg_")
}

/// True if a condition asks for the file or folder at the path.
pub(super) fn asks_for_own_file(test: &Directive) -> bool {
    asks_for_files(test) && parts(test).get(1) == Some(&"$request_filename")
}

/// The paths of a location for which the condition of an `if` about the path holds; `None`: it is
/// about something else.
pub(super) fn of_path(test: &Directive, location: &Condition) -> Option<Condition> {
    let [subject, operator, value] = parts(test)[..] else { return None };
    if !matches!(subject, "$uri" | "$document_uri") {
        return None;
    }
    let (expression, is_negated) = match operator {
        "~" | "!~" => (value.to_owned(), operator == "!~"),
        "~*" | "!~*" => (format!("(?i){value}"), operator == "!~*"),
        "=" | "!=" => (format!("^{}$", quote(value)), operator == "!="),
        _ => return None,
    };
    let rest = match is_negated {
        true => format!("(?!{})", unanchored(&without_groups(&expression))),
        false => unanchored(&expression),
    };
    let whole = format!("^{}{rest}", location.ahead());
    let is_known = mistake(&expression).is_none() && !refers_to_groups(&expression);
    (is_known && mistake(&whole).is_none()).then_some(Condition::Match(whole))
}

/// True for the condition that a file is at the path.
pub(super) fn asks_for_file(test: &Directive) -> bool {
    parts(test) == ["-f", "$request_filename"]
}

/// True if a status refuses a request.
pub(super) fn is_refusal(status: &str) -> bool {
    status.len() == 3 && status.starts_with('4')
}

/// The meaning of the condition of an `if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tested {
    /// It is a condition of the route.
    Known,
    /// The condition of the route differs for unusual spellings, so it must not decide on access.
    Similar,
    /// No file or folder is at the path.
    Missing,
    /// No file is at the path.
    NoFile,
    /// The request came without TLS.
    Http,
    Unknown,
}

/// The subject, the operator and the value of a condition, without its parentheses.
pub(super) fn parts(test: &Directive) -> Vec<&str> {
    let mut words: Vec<&str> = test.words.iter().map(String::as_str).collect();
    if let Some(first) = words.first_mut() {
        *first = first.strip_prefix('(').unwrap_or(first);
    }
    if let Some(last) = words.last_mut() {
        *last = last.strip_suffix(')').unwrap_or(last);
    }
    // A parenthesis may stand alone. An empty value stays: it has a word of its own.
    let count = words.len();
    let is_sign = |at: usize| words[at].is_empty() && !test.words[at].is_empty();
    let from = usize::from(count > 0 && is_sign(0));
    let to = if count > from && is_sign(count - 1) { count - 1 } else { count };
    words[from..to].to_vec()
}

/// Adds the condition of an `if` to a route.
pub(super) fn apply(test: &Directive, route: &mut Section) -> Tested {
    let (subject, operator, value) = match parts(test)[..] {
        [subject] => (subject, None, ""),
        [subject, value] => (subject, Some(value), ""),
        [subject, operator, value] => (subject, Some(operator), value),
        _ => return Tested::Unknown,
    };
    match (subject, operator) {
        ("!-e", Some("$request_filename")) => return Tested::Missing,
        ("!-f", Some("$request_filename")) => return Tested::NoFile,
        ("$scheme", Some("=")) if value == "http" => return Tested::Http,
        ("$scheme", Some("!=")) if value == "https" => return Tested::Http,
        ("$https", Some("!=")) if value == "on" => return Tested::Http,
        ("$https", Some("=")) if value.is_empty() => return Tested::Http,
        ("$server_port", Some("=")) if value == "80" => return Tested::Http,
        ("$server_port", Some("!=")) if value == "443" => return Tested::Http,
        ("$request_method", operator) => return methods(operator, value, route),
        _ => {}
    }
    let Some(comparison) = Comparison::of(operator, value) else { return Tested::Unknown };
    let Some(name) = subject.strip_prefix('$') else { return Tested::Unknown };
    if name == "host" {
        return host(operator, value, &comparison, route);
    }
    if let Some(field) = name.strip_prefix("http_") {
        let field = field.replace('_', "-");
        let condition = comparison.condition();
        // Several cookies are one value for nginx; here each field is compared, too.
        let is_similar = field == "cookie" && condition.starts_with('!') && !value.is_empty();
        route.set_in("header", &field, condition);
        return if is_similar { Tested::Similar } else { Tested::Known };
    }
    if let Some(parameter) = name.strip_prefix("arg_") {
        // nginx compares the first value as it was sent, and ignores case in names.
        route.set_in("query", parameter, comparison.condition());
        return Tested::Similar;
    }
    Tested::Unknown
}

/// The condition for requests with several fields of one name, of which only some meet the
/// condition of an `if`: nginx compares one of them, or all as one value.
pub(super) fn ambiguous(test: &Directive) -> Option<Section> {
    let [subject, operator @ ..] = &parts(test)[..] else { return None };
    let field = subject.strip_prefix("$http_")?.replace('_', "-");
    // All cookies are one value for both servers.
    if field == "cookie" {
        return None;
    }
    let value = operator.get(1).copied().unwrap_or_default();
    let condition = Comparison::of(operator.first().copied(), value)?.condition();
    let other = match condition.strip_prefix('!') {
        Some(expression) => expression.to_owned(),
        None => format!("!{condition}"),
    };
    let mut both = Section::default();
    both.set_in("header", &field, vec![condition, other]);
    Some(both)
}

/// A comparison of a value with an expression.
pub(super) struct Comparison {
    expression: String,
    /// The expression must not match.
    is_negated: bool,
}

impl Comparison {
    pub(super) fn of(operator: Option<&str>, value: &str) -> Option<Self> {
        let (expression, is_negated) = match operator {
            // Neither empty nor 0.
            None => ("^(?!0$).".to_owned(), false),
            Some("=") => (format!("^{}$", quote(value)), false),
            Some("!=") => (format!("^{}$", quote(value)), true),
            Some("~") => (value.to_owned(), false),
            Some("~*") => (format!("(?i){value}"), false),
            Some("!~") => (value.to_owned(), true),
            Some("!~*") => (format!("(?i){value}"), true),
            Some(_) => return None,
        };
        mistake(&expression).is_none().then_some(Self { expression, is_negated })
    }

    /// True if it holds for a value.
    pub(super) fn holds(&self, value: &str) -> bool {
        matches(&self.expression, value) != self.is_negated
    }

    /// The condition of a route. For nginx, what is absent is empty; a condition of a route holds
    /// for what is absent if it is negated. So a comparison that treats them differently is written
    /// as the opposite of its opposite.
    fn condition(&self) -> String {
        let holds_for_absent = matches(&self.expression, "") != self.is_negated;
        let opposite = || format!("^(?!{})", unanchored(&self.expression));
        match (self.is_negated, holds_for_absent) {
            // An exclamation mark at the beginning would negate.
            (false, false) if self.expression.starts_with('!') => format!("\\{}", self.expression),
            (false, false) => self.expression.clone(),
            (true, true) => format!("!{}", self.expression),
            (false, true) => format!("!{}", opposite()),
            (true, false) => opposite(),
        }
    }
}

/// Adds a condition about `$host`: the field without its port and a dot at its end, in small
/// letters.
fn host(
    operator: Option<&str>,
    value: &str,
    comparison: &Comparison,
    route: &mut Section,
) -> Tested {
    let exact = || format!("(?i)^{}{}", quote(value), sendoff_convert_document::host::END);
    let has_capitals = value.bytes().any(|byte| byte.is_ascii_uppercase());
    let translated = sendoff_convert_document::host::expression(value);
    let (expression, tested) = match (operator, translated) {
        (None, _) => (comparison.condition(), Tested::Known),
        (Some("="), _) => (exact(), Tested::Known),
        (Some("!="), _) if has_capitals => return Tested::Unknown,
        (Some("!="), _) => (format!("!{}", exact()), Tested::Known),
        (Some("~" | "~*"), Ok(translated)) => (format!("(?i){translated}"), Tested::Known),
        (Some("!~" | "!~*"), Ok(translated)) => (format!("!(?i){translated}"), Tested::Known),
        _ => (comparison.condition(), Tested::Similar),
    };
    route.set_in("header", "Host", expression);
    tested
}

fn methods(operator: Option<&str>, value: &str, route: &mut Section) -> Tested {
    let names = match operator {
        Some("=") => value,
        Some("~") => {
            let bare = value.strip_prefix("^(").and_then(|bare| bare.strip_suffix(")$"));
            match bare.or_else(|| value.strip_prefix('^').and_then(|bare| bare.strip_suffix('$'))) {
                Some(names) => names,
                None => return Tested::Unknown,
            }
        }
        _ => return Tested::Unknown,
    };
    let names: Vec<_> = names.split('|').map(str::to_owned).collect();
    // `GET` stands for HEAD, too, which nginx distinguishes.
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_uppercase());
    if !names.iter().all(is_plain)
        || names.iter().any(|name| name == "GET") != names.iter().any(|name| name == "HEAD")
    {
        return Tested::Unknown;
    }
    route.set_list("method", names);
    Tested::Known
}
