//! The conditions of rewrite rules.

use sendoff_convert_document::Directive;
use sendoff_convert_document::expression::{matches, mistake, without_groups};

use super::rewrite::{Around, flags};

/// The conditions of a rule.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// Look-aheads for the path.
    pub(super) ahead: String,
    pub(super) methods: Vec<String>,
    pub(super) fields: Vec<(String, String)>,
    pub(super) missing: Vec<Missing>,
    pub(super) exists: bool,
    /// True if one never holds.
    pub(super) never: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    File,
    Folder,
}

/// The subject, the pattern and the case of a condition.
fn parts(directive: &Directive) -> (&str, &str, &str) {
    let own = flags(directive.words.get(2).map_or("", String::as_str));
    let ignores = own.iter().any(|(name, _)| name == "nc" || name == "nocase");
    let pattern = directive.words.get(1).map_or("", String::as_str);
    (directive.word(), pattern, if ignores { "(?i)" } else { "" })
}

/// Conditions of which one must hold: all about the path, or all about one field.
pub(super) fn either(directives: &[&Directive], known: &mut Conditions) -> Result<(), String> {
    let (subject, ..) = parts(directives[0]);
    let mut expressions = Vec::new();
    for directive in directives {
        let (own, pattern, case) = parts(directive);
        let is_plain =
            !pattern.starts_with(['!', '-', '=', '<', '>']) && mistake(pattern).is_none();
        if own != subject || !is_plain {
            return Err("alternatives of different kinds".to_owned());
        }
        expressions.push(match case {
            "" => format!("(?:{pattern})"),
            _ => format!("(?i:{pattern})"),
        });
    }
    let expression = format!("(?:{})", expressions.join("|"));
    match (subject, field(subject)) {
        ("%{REQUEST_URI}", _) => {
            known.ahead.push_str(&format!("(?=(?s:.*?){})", without_groups(&expression)));
        }
        (_, Some(name)) if !matches(&expression, "") => known.fields.push((name, expression)),
        _ => return Err(format!("{subject} in alternatives")),
    }
    Ok(())
}

/// The field that a variable stands for.
fn field(subject: &str) -> Option<String> {
    let name = subject.strip_prefix("%{")?.strip_suffix('}')?;
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    match name {
        "HTTP_HOST" | "SERVER_NAME" => Some("Host".to_owned()),
        "HTTP_USER_AGENT" => Some("User-Agent".to_owned()),
        "HTTP_REFERER" => Some("Referer".to_owned()),
        "HTTP_COOKIE" => Some("Cookie".to_owned()),
        "HTTP_ACCEPT" => Some("Accept".to_owned()),
        name => name.strip_prefix("HTTP:").filter(|name| is_name(name)).map(str::to_owned),
    }
}

/// Adds what a condition says.
pub(super) fn condition(
    directive: &Directive,
    around: Around<'_>,
    known: &mut Conditions,
) -> Result<(), String> {
    let (subject, pattern, case) = parts(directive);
    let (negated, bare) = match pattern.strip_prefix('!') {
        Some(bare) => (true, bare),
        None => (false, pattern),
    };
    let unknown = || Err(directive.text());
    match subject {
        "%{HTTPS}" => {
            let wants = match bare.trim_start_matches('=').to_ascii_lowercase().as_str() {
                "on" | "^on$" => !negated,
                "off" | "^off$" => negated,
                _ => return unknown(),
            };
            known.never |= wants != around.has_tls;
        }
        "%{REQUEST_SCHEME}" | "%{SERVER_PORT}" => {
            let wants = match bare.trim_matches(['^', '$', '=']) {
                "https" | "443" => !negated,
                "http" | "80" => negated,
                _ => return unknown(),
            };
            known.never |= wants != around.has_tls;
        }
        "%{REQUEST_METHOD}" => {
            let names = bare.trim_start_matches('^').trim_end_matches('$');
            let names = names.trim_start_matches('(').trim_end_matches(')');
            let is_name =
                |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
            let is_whole = bare.starts_with('^') && bare.ends_with('$');
            if negated || !is_whole || !names.split('|').all(is_name) {
                return unknown();
            }
            known.methods = names.split('|').map(str::to_owned).collect();
        }
        "%{REQUEST_URI}" if mistake(bare).is_none() && !bare.starts_with(['-', '=', '<', '>']) => {
            let text = without_groups(bare);
            let text = if case.is_empty() { format!("(?:{text})") } else { format!("(?i:{text})") };
            let sign = if negated { '!' } else { '=' };
            known.ahead.push_str(&format!("(?{sign}(?s:.*?){text})"));
        }
        _ if matches!(bare, "-f" | "-d" | "-s" | "-l" | "-F" | "-U") => {
            return files(subject, negated, bare, around, known).ok_or_else(|| directive.text());
        }
        _ => {
            let Some(name) = field(subject) else { return unknown() };
            if bare.starts_with(['-', '=', '<', '>']) || mistake(bare).is_some() {
                return unknown();
            }
            match (negated, bare) {
                (false, "^$") => return unknown(),
                (true, "^$") => known.fields.push((name, ".".to_owned())),
                // A missing field is an empty text for Apache.
                (false, bare) if matches(bare, "") && bare != "." => return unknown(),
                (true, bare) if matches(bare, "") => return unknown(),
                (false, bare) => known.fields.push((name, format!("{case}(?:{bare})"))),
                (true, bare) => known.fields.push((name, format!("!{case}(?:{bare})"))),
            }
        }
    }
    Ok(())
}

/// A condition about a file; `None`: it is not known.
fn files(
    subject: &str,
    negated: bool,
    kind: &str,
    around: Around<'_>,
    known: &mut Conditions,
) -> Option<()> {
    let is_whole = match subject {
        "%{REQUEST_FILENAME}" | "%{SCRIPT_FILENAME}" => around.folder.is_some(),
        "%{DOCUMENT_ROOT}%{REQUEST_URI}"
        | "%{DOCUMENT_ROOT}/%{REQUEST_URI}"
        | "%{DOCUMENT_ROOT}%{REQUEST_FILENAME}"
        | "%{DOCUMENT_ROOT}/%{REQUEST_FILENAME}" => true,
        text => {
            let root = around.root?;
            text.strip_prefix(root)?.trim_start_matches('/') == "%{REQUEST_URI}"
        }
    };
    if !is_whole {
        // In a server this is the path, which no file of the whole system has.
        if !matches!(subject, "%{REQUEST_FILENAME}" | "%{SCRIPT_FILENAME}") {
            return None;
        }
        known.never |= !negated;
        return Some(());
    }
    match (kind, negated) {
        ("-f" | "-s", true) => known.missing.push(Missing::File),
        ("-d", true) => known.missing.push(Missing::Folder),
        // No link without a file or a folder leads anywhere.
        ("-l", true) => {}
        ("-f" | "-s", false) => known.exists = true,
        _ => return None,
    }
    Some(())
}
