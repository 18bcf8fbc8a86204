//! Regular expressions (PCRE2) as texts: their mistakes, and expressions made of others.

use pcre2::bytes::RegexBuilder;

/// True if the expression matches in the path; an expression that is not valid matches everywhere.
#[must_use]
pub fn matches(expression: &str, path: &str) -> bool {
    match RegexBuilder::new().dotall(true).build(expression) {
        Ok(compiled) => compiled.is_match(path.as_bytes()).unwrap_or(true),
        Err(_) => true,
    }
}

/// The mistake in an expression, if there is one.
#[must_use]
pub fn mistake(expression: &str) -> Option<String> {
    RegexBuilder::new().build(expression).err().map(|error| error.to_string())
}

/// The expression, to be tried from the beginning of the path.
#[must_use]
pub fn unanchored(expression: &str) -> String {
    match expression.strip_prefix('^') {
        Some(rest) if !has_alternatives(expression) => rest.to_owned(),
        _ if has_alternatives(expression) => format!(".*?(?:{expression})"),
        _ => format!(".*?{expression}"),
    }
}

/// The characters of an expression outside of brackets, each with its place and its depth in
/// parentheses. An escaped character is yielded as a backslash.
fn signs(expression: &str) -> Vec<(usize, char, usize)> {
    let (mut signs, mut depth, mut in_class) = (Vec::new(), 0_usize, false);
    let mut characters = expression.char_indices();
    while let Some((at, sign)) = characters.next() {
        match sign {
            '\\' => {
                characters.next();
                if !in_class {
                    signs.push((at, '\\', depth));
                }
            }
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => {
                in_class = true;
                signs.push((at, '[', depth));
                // A bracket that stands first is an element of the class.
                let rest = &expression[at + 1..];
                if rest.starts_with(']') {
                    characters.next();
                } else if rest.starts_with("^]") {
                    characters.next();
                    characters.next();
                }
            }
            '(' => {
                signs.push((at, '(', depth));
                depth += 1;
            }
            ')' => {
                depth = depth.saturating_sub(1);
                signs.push((at, ')', depth));
            }
            sign => signs.push((at, sign, depth)),
        }
    }
    signs
}

/// True if the expression has alternatives outside of all groups.
#[must_use]
pub fn has_alternatives(expression: &str) -> bool {
    signs(expression).iter().any(|(_, sign, depth)| *sign == '|' && *depth == 0)
}

/// The number of groups in an expression.
#[must_use]
pub fn groups(expression: &str) -> usize {
    RegexBuilder::new().build(expression).map_or(0, |compiled| compiled.captures_len() - 1)
}

/// The alternatives of the look-ahead of this kind, `(?!` or `(?=`, with which the expression begins
/// behind `^`, and the rest of the expression.
#[must_use]
pub fn split_ahead<'e>(expression: &'e str, kind: &str) -> Option<(Vec<&'e str>, &'e str)> {
    let text = expression.strip_prefix('^')?;
    text.starts_with(kind).then_some(())?;
    let signs = signs(text);
    let end = signs.iter().find(|(_, sign, depth)| *sign == ')' && *depth == 0)?.0;
    let mut from = kind.len();
    let mut alternatives = Vec::new();
    for (at, ..) in
        signs.iter().filter(|(at, sign, depth)| *sign == '|' && *depth == 1 && *at < end)
    {
        alternatives.push(&text[from..*at]);
        from = at + 1;
    }
    alternatives.push(&text[from..end]);
    Some((alternatives, &text[end + 1..]))
}

/// The expression with groups that are not counted, so that it does not shift the numbers of
/// another expression's groups.
#[must_use]
pub fn without_groups(expression: &str) -> String {
    let mut text = String::new();
    let mut from = 0;
    for (at, sign, _) in signs(expression) {
        let rest = &expression[at..];
        let is_named =
            rest.starts_with("(?<") && !rest.starts_with("(?<=") && !rest.starts_with("(?<!");
        let is_named = is_named || rest.starts_with("(?P<");
        if sign != '(' || rest.starts_with("(?") && !is_named {
            continue;
        }
        text.push_str(&expression[from..at]);
        text.push_str("(?:");
        from = at
            + match is_named {
                true => rest.find('>').map_or(1, |end| end + 1),
                false => 1,
            };
    }
    text.push_str(&expression[from..]);
    text
}

/// True if an expression refers to its own groups, which `without_groups` would break.
#[must_use]
pub fn refers_to_groups(expression: &str) -> bool {
    expression
        .as_bytes()
        .windows(2)
        .any(|pair| pair[0] == b'\\' && (matches!(pair[1], b'1'..=b'9' | b'k' | b'g')))
}

/// A text as an expression that matches only the text.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::new();
    for sign in text.chars() {
        if r"\.+*?()|[]{}^$#".contains(sign) {
            quoted.push('\\');
        }
        quoted.push(sign);
    }
    quoted
}

/// The characters with which every match begins, if the expression is for the beginning of a path.
#[must_use]
pub fn beginning(expression: &str) -> Option<String> {
    let rest = expression.strip_prefix('^')?;
    if has_alternatives(expression) {
        return None;
    }
    let mut text = String::new();
    let mut characters = rest.chars().peekable();
    while let Some(next) = characters.next() {
        let literal = match next {
            '\\' => match characters.next() {
                Some(escaped) if !escaped.is_ascii_alphanumeric() => escaped,
                _ => break,
            },
            '.' | '[' | '(' | ')' | '$' | '|' | '^' | '?' | '*' | '+' | '{' => break,
            next => next,
        };
        if matches!(characters.peek(), Some('?' | '*' | '{')) {
            break;
        }
        text.push(literal);
    }
    Some(text)
}
