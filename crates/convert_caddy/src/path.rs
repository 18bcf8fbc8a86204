//! Patterns and expressions of Caddy for paths, as expressions of a route.

use sendoff_convert_document::expression::{mistake, quote};

/// The expression for a pattern of `path`, from the beginning of the path.
///
/// # Errors
/// It cannot be expressed; the reason.
pub(super) fn pattern(text: &str) -> Result<String, String> {
    if text.contains(['%', '{', '\\']) || !text.is_ascii() {
        return Err(format!("{text} has escapes, placeholders or letters outside of ASCII"));
    }
    if text.contains("//") {
        return Err(format!("{text} has two slashes, which a path of a route never has"));
    }
    let stars = text.matches('*').count();
    let body = match (text.strip_prefix('*'), text.strip_suffix('*')) {
        _ if text == "*" => String::new(),
        (Some(rest), Some(_)) if stars == 2 => {
            format!("(?s:.*){}", quote(rest.strip_suffix('*').unwrap_or_default()))
        }
        (Some(end), None) if stars == 1 => format!(r"(?s:.*){}\z", quote(end)),
        (None, Some(start)) if stars == 1 => quote(start),
        _ => format!(r"{}\z", glob(text)?),
    };
    Ok(body)
}

/// A pattern in which stars and question marks stand for anything but slashes.
fn glob(text: &str) -> Result<String, String> {
    let mut made = String::new();
    for sign in text.chars() {
        match sign {
            '*' => made.push_str("[^/]*"),
            '?' => made.push_str("[^/]"),
            '[' | ']' => return Err(format!("{text} has a set of characters")),
            sign => made.push_str(&quote(&sign.to_string())),
        }
    }
    Ok(made)
}

/// An expression of Go for a route: `$` is the end of the text, and `.` no end of a line.
///
/// # Errors
/// It cannot be expressed; the reason.
pub(super) fn expression(text: &str) -> Result<String, String> {
    if text.contains('{') && text.contains("}") && text.contains("{http.") {
        return Err(format!("{text} has placeholders"));
    }
    let (mut made, mut in_class) = (String::new(), false);
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => {
                made.push('\\');
                match signs.next() {
                    Some('C' | 'Q' | 'E') | None => {
                        return Err(format!("{text} has a rare escape"));
                    }
                    Some(escaped) => made.push(escaped),
                }
            }
            '[' if !in_class => {
                in_class = true;
                made.push('[');
                if signs.next_if_eq(&'^').is_some() {
                    made.push('^');
                }
                if signs.next_if_eq(&']').is_some() {
                    made.push_str(r"\]");
                }
            }
            '[' if signs.peek() == Some(&':') => {
                made.push('[');
                for named in signs.by_ref() {
                    made.push(named);
                    if named == ']' {
                        break;
                    }
                }
            }
            '[' => made.push_str(r"\["),
            ']' => {
                in_class = false;
                made.push(']');
            }
            '$' if !in_class => made.push_str(r"\z"),
            '.' if !in_class => made.push_str(r"[^\n]"),
            '(' if !in_class && text_has_flags(&signs) => {
                return Err(format!("{text} has options"));
            }
            sign => made.push(sign),
        }
    }
    match mistake(&made) {
        Some(mistake) => Err(format!("{text}: {mistake}")),
        None => Ok(made),
    }
}

/// True for a group with other options than that letters are compared without regard to case.
fn text_has_flags(signs: &std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let rest: String = signs.clone().take(4).collect();
    rest.starts_with('?')
        && !["?:", "?i)", "?i:", "?P<", "?<"].iter().any(|known| rest.starts_with(known))
}
