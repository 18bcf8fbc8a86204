//! Expressions for the name of a host, as expressions for the field `Host`.
//!
//! Unit and nginx compare the name in small letters, without the port and without a dot at the end.
//! The condition of a route compares the field as the client has sent it. So nothing in an
//! expression may match behind the name, and its end is the end of the name.

/// The rest of the field behind the name: a dot and a port, both optional.
pub const END: &str = r"\.?(?::\d*)?\z";

/// Escapes that keep their meaning: sets of characters, borders of words and the beginning.
const ESCAPES: &str = "dswDSWbBA";

/// The expression for the field, with `^` in front; it has to be compared without regard to case.
///
/// # Errors
/// It has a part that is not known, or capitals, which no name of a host has; the reason.
pub fn expression(text: &str) -> Result<String, String> {
    let translated = Translation { rest: text, made: String::new() }.finish()?;
    match text.strip_prefix('^') {
        Some(_) if !text.contains('|') => Ok(translated),
        _ => Ok(format!("^{}*?(?:{translated})", of_name("."))),
    }
}

/// The expression for a pattern with stars, in the form that [`expression`] returns.
pub fn wildcard(pattern: &str) -> Result<String, String> {
    let parts: Vec<_> = pattern.split('*').map(crate::expression::quote).collect();
    expression(&format!("^{}$", parts.join(".*")))
}

/// An expression for one character, for characters of the name only.
fn of_name(character: &str) -> String {
    format!("(?:(?!{END}){character})")
}

/// An expression on its way to the field.
struct Translation<'t> {
    rest: &'t str,
    made: String,
}

impl Translation<'_> {
    fn finish(mut self) -> Result<String, String> {
        while let Some(sign) = self.rest.chars().next() {
            match sign {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '$' => self.replace(1, &format!("(?={END})")),
                '.' | ':' => self.replace(1, &of_name(&sign.to_string())),
                'A'..='Z' => return Err("no name of a host has capitals".to_owned()),
                sign => self.replace(sign.len_utf8(), &sign.to_string()),
            }
        }
        Ok(self.made)
    }

    /// Writes `text` for the next `length` bytes.
    fn replace(&mut self, length: usize, text: &str) {
        self.made.push_str(text);
        self.rest = &self.rest[length..];
    }

    fn escape(&mut self) -> Result<(), String> {
        let Some(sign) = self.rest[1..].chars().next() else {
            return Err("it ends with a backslash".to_owned());
        };
        let text = match sign {
            'z' | 'Z' => format!("(?={END})"),
            'b' | 'B' | 'A' => format!("\\{sign}"),
            sign if ESCAPES.contains(sign) || sign.is_ascii_punctuation() => {
                of_name(&format!("\\{sign}"))
            }
            _ => return Err(format!("\\{sign} is not known for the name of a host")),
        };
        self.replace(1 + sign.len_utf8(), &text);
        Ok(())
    }

    fn group(&mut self) -> Result<(), String> {
        const KNOWN: [&str; 4] = ["(?:", "(?=", "(?!", "(?i)"];
        let known = KNOWN.iter().find(|start| self.rest.starts_with(**start));
        let start = match known {
            Some(start) => start,
            None if self.rest.starts_with("(?") || self.rest.starts_with("(*") => {
                return Err("this kind of group is not known for the name of a host".to_owned());
            }
            None => "(",
        };
        self.replace(start.len(), start);
        Ok(())
    }

    /// A set of characters in brackets.
    fn class(&mut self) -> Result<(), String> {
        let Some(length) = class_length(self.rest) else {
            return Err("these brackets are not known for the name of a host".to_owned());
        };
        let class = &self.rest[..length];
        let has_capitals = class.bytes().any(|byte| byte.is_ascii_uppercase());
        let has_both = class.contains("a-z") && class.contains("A-Z");
        if has_capitals && !has_both {
            return Err("no name of a host has capitals".to_owned());
        }
        self.replace(length, &of_name(class));
        Ok(())
    }
}

/// The length of the set at the beginning; `None`: it is not closed, or has sets or escapes of
/// letters within.
fn class_length(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let open = 1 + usize::from(inner.starts_with('^'));
    let mut signs = text[open..].char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            // A bracket that stands first is an element.
            ']' if at > 0 => return Some(open + at + 1),
            '[' => return None,
            '\\' => {
                let (_, escaped) = signs.next()?;
                if !escaped.is_ascii_punctuation() && !"dsw".contains(escaped) {
                    return None;
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::matches;

    #[test]
    fn nothing_behind_the_name_is_compared() {
        for (text, host, holds) in [
            (r"^c\.org$", "c.org", true),
            (r"^c\.org$", "xc.org", false),
            (r"c\.org", "xc.orgx", true),
            (r"^a.+$", "a", false),
            (r"^a.+$", "ab", true),
            (r"^[^b]+$", "a.org", true),
            (r"80", "a.org", false),
            (r"80", "a80.org", true),
            (r"(?:a|b)\z|^c", "x.b", true),
            (r"(?:a|b)\z|^c", "x.c", false),
            (r"^(?!.*8)", "a.org", true),
            (r"\d", "a.org", false),
            (r"^\W*$", "a", false),
            (r"org\.", "c.org", false),
            (r"^c\.org\b.*$", "c.org", true),
            (r"^[a-zA-Z.]+$", "c.org", true),
            (r"^[]a]$", "a", true),
            (r"^\[::1\]$", "[::1]", true),
            (r"^(a+)+x", "aab", false),
        ] {
            let made = format!("(?i){}", expression(text).unwrap());
            for behind in ["", ".", ":80", ":", ".:80"] {
                let field = format!("{}{behind}", host.to_uppercase());
                assert_eq!(matches(&made, &field), holds, "{text} {field} {made}");
            }
        }
    }

    #[test]
    fn wildcards_end_with_the_name() {
        for (pattern, host, holds) in [
            ("*8*", "a.org", false),
            ("a*8", "a.org", false),
            ("c.org.*", "c.org", false),
            ("admin.*", "admin.org", true),
            ("*.b.org", "a.b.org", true),
            ("*.b.org", "b.org", false),
            ("a*c*", "abcd", true),
        ] {
            let made = format!("(?i){}", wildcard(pattern).unwrap());
            for behind in ["", ".", ":80", ":", ".:80"] {
                let field = format!("{host}{behind}");
                assert_eq!(matches(&made, &field), holds, "{pattern} {field} {made}");
            }
        }
    }

    #[test]
    fn unknown_parts_are_mistakes() {
        for text in [
            r"\Qa",
            r"(a)\1",
            "(?<a>b)",
            "(?x)a",
            "(?s:a)",
            "(*UTF)a",
            "[[:alpha:]]",
            "[a",
            r"a\",
            r"\x41",
            "A",
            "[A-Z]",
            "[^A-Z]",
            r"\Ka",
            r"(?<=a)b",
            r"[\Q]",
            r"\p{L}",
        ] {
            assert!(expression(text).is_err(), "{text}");
        }
    }
}
