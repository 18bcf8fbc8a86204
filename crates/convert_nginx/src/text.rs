//! Texts with variables: nginx's names and their counterparts.

use super::maps;
use super::scope::Scope;

/// The use of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The target of `rewrite` or `try_files`, whose query stays if the target names none.
    Path,
    /// The target of a redirect, a text, or a value.
    Value,
}

/// The deepest chain of variables that stand for each other.
const MAX_CHAIN: usize = 8;

/// The text with Sendoff's names of variables.
///
/// # Errors
/// A variable has no equal; its name.
pub(super) fn translate(text: &str, scope: &Scope<'_>, purpose: Use) -> Result<String, String> {
    let text = match purpose {
        // The query is kept apart from the path.
        Use::Path => without_query_variables(text).replace("$request_uri", "$uri"),
        // The path and the query as the client sent them.
        Use::Value => text.replace("$uri$is_args$args", "$request_uri"),
    };
    replace(&text, scope, MAX_CHAIN)
}

/// A query stays as it is if a target names none, so the variables that add it are not needed.
fn without_query_variables(text: &str) -> String {
    let kept =
        ["$is_args$args", "$is_args$query_string", "?$args", "?$query_string", "?$is_args$args"];
    let found = kept.iter().find_map(|ending| text.strip_suffix(ending));
    found.unwrap_or(text).to_owned()
}

fn replace(text: &str, scope: &Scope<'_>, depth: usize) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        result.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let (name, end) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let digit = after.starts_with(|c: char| c.is_ascii_digit());
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end =
                    if digit { 1 } else { after.find(|c| !is_name(c)).unwrap_or(after.len()) };
                (&after[..end], end)
            }
        };
        rest = &after[end..];
        let value = value(name, scope, depth)?;
        // The name must not run into the text behind it.
        let runs_on = value
            .strip_prefix('$')
            .is_some_and(|name| !name.starts_with(|c: char| c.is_ascii_digit()))
            && rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if runs_on {
            return Err(format!("${name} before a letter"));
        }
        result.push_str(&value);
    }
    result.push_str(rest);
    Ok(result)
}

fn value(name: &str, scope: &Scope<'_>, depth: usize) -> Result<String, String> {
    let ours = match name {
        "uri" | "document_uri" | "fastcgi_script_name" => "$path",
        "args" | "query_string" => "$query",
        "request_uri" => "$uri",
        "host" | "http_host" => "$host",
        "scheme" => "$scheme",
        "remote_addr" => "$remote_addr",
        "" => "$$",
        "document_root" | "realpath_root" => {
            return scope
                .peek("root")
                .map(|root| root.word().to_owned())
                .ok_or_else(|| format!("${name}"));
        }
        "server_name" => {
            return scope
                .peek("server_name")
                .map(|names| names.word())
                .filter(|name| !name.is_empty() && !name.starts_with(['~', '*', '.', '_']))
                .map(str::to_owned)
                .ok_or_else(|| format!("${name}"));
        }
        _ if name.len() == 1 && matches!(name.as_bytes()[0], b'1'..=b'9') => {
            return Ok(format!("${name}"));
        }
        _ => {
            return match scope.variable(name) {
                Some(text) if depth > 0 => replace(text, scope, depth - 1),
                _ => match maps::name(name, scope) {
                    Some(map) => Ok(format!("$map_{map}")),
                    None => Err(format!("${name}")),
                },
            };
        }
    };
    Ok(ours.to_owned())
}
