//! The conditions of `if`.

use super::pattern::{mistake, quote};
use super::tree::Directive;
use crate::document::Section;

/// True if a condition may be about the client: what it keeps away must stay away. Other conditions
/// are about the address that is asked for.
pub(super) fn asks_client(test: &Directive) -> bool {
    const OF_ADDRESS: [&str; 12] = [
        "args",
        "content_type",
        "document_uri",
        "https",
        "is_args",
        "query_string",
        "request_method",
        "request_uri",
        "scheme",
        "server_name",
        "server_port",
        "uri",
    ];
    let subject = test.word().trim_start_matches('(').trim_end_matches(')');
    match subject.strip_prefix('$') {
        Some(name) => !OF_ADDRESS.contains(&name) && !name.starts_with("arg_"),
        // A test for a file, such as `-f`.
        None => !subject.starts_with(['-', '!']),
    }
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
    /// No file or folder is at the path.
    Missing,
    /// No file is at the path.
    NoFile,
    /// The request came without TLS.
    Http,
    Unknown,
}

/// Adds the condition of an `if` to a route.
pub(super) fn apply(test: &Directive, route: &mut Section) -> Tested {
    let text = test.words.join(" ");
    let text = text.trim().strip_prefix('(').unwrap_or(&text).trim();
    let text = text.strip_suffix(')').unwrap_or(text).trim();
    let mut words = text.splitn(3, ' ');
    let (subject, operator) = (words.next().unwrap_or_default(), words.next());
    let value = words.next().unwrap_or_default().trim();
    let value = value.trim_matches('"');
    match (subject, operator) {
        ("!-e", Some("$request_filename")) => return Tested::Missing,
        ("!-f", Some("$request_filename")) => return Tested::NoFile,
        ("$scheme", Some("=")) if value == "http" => return Tested::Http,
        ("$scheme", Some("!=")) if value == "https" => return Tested::Http,
        ("$https", Some("!=")) if value == "on" => return Tested::Http,
        ("$https", Some("=")) if value.is_empty() => return Tested::Http,
        _ => {}
    }
    let is_host = matches!(subject, "$host" | "$http_host");
    let exactly = |value: &str| match is_host {
        // nginx's variable has no port.
        true => format!("(?i)^{}(?::\\d+)?$", quote(value)),
        false => format!("^{}$", quote(value)),
    };
    let expression = match operator {
        None => None,
        Some("=") => Some(exactly(value)),
        Some("!=") => Some(format!("!{}", exactly(value))),
        Some("~") => Some(value.to_owned()),
        Some("~*") => Some(format!("(?i){value}")),
        Some("!~") => Some(format!("!{value}")),
        Some("!~*") => Some(format!("!(?i){value}")),
        Some(_) => return Tested::Unknown,
    };
    if let Some(expression) = &expression
        && mistake(expression.trim_start_matches('!')).is_some()
    {
        return Tested::Unknown;
    }
    let name = subject.trim_start_matches('$');
    if is_host {
        let Some(expression) = expression else { return Tested::Unknown };
        route.set_in("header", "Host", expression);
    } else if let Some(field) = name.strip_prefix("http_") {
        let field = field.replace('_', "-");
        match expression {
            Some(expression) => route.set_in("header", &field, expression),
            None => route.set_in("header", &field, true),
        }
    } else if let Some(parameter) = name.strip_prefix("arg_") {
        match expression {
            Some(expression) => route.set_in("query", parameter, expression),
            None => route.set_in("query", parameter, true),
        }
    } else if name == "request_method" {
        return methods(operator, value, route);
    } else {
        return Tested::Unknown;
    }
    Tested::Known
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
