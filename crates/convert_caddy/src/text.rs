//! Texts with placeholders.

use super::conditions::Requests;

/// The meaning of the placeholders of a directive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    /// The text for the path.
    pub(super) path: &'a str,
    /// True if the path may differ from the client's.
    pub(super) is_rewritten: bool,
    pub(super) requests: &'a Requests,
}

/// The text with Sendoff's variables.
///
/// # Errors
/// A placeholder has no equal; the placeholder.
pub(super) fn translate(text: &str, around: &Around<'_>) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some(start) = rest.find('{') {
        let is_escaped = rest[..start].ends_with('\\');
        made.push_str(&literal(&rest[..start - usize::from(is_escaped)]));
        let inner = &rest[start + 1..];
        let end = inner.find('}').filter(|end| is_placeholder(&inner[..*end]) && !is_escaped);
        match end {
            Some(end) => {
                made.push_str(&placeholder(&inner[..end], around)?);
                rest = &inner[end + 1..];
                // A name ends at the first sign that is no part of it.
                if rest.starts_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '_') {
                    return Err(format!("{{{}}} in front of a letter", &inner[..end]));
                }
            }
            None => {
                made.push('{');
                rest = inner;
            }
        }
    }
    made.push_str(&literal(rest));
    Ok(made)
}

/// A text without placeholders, for a key whose texts may have variables.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

fn is_placeholder(name: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"._-:[]?%/*".contains(&b);
    !name.is_empty() && name.bytes().all(is_part)
}

fn placeholder(name: &str, around: &Around<'_>) -> Result<String, String> {
    let unknown = || Err(format!("{{{name}}}"));
    let short = name.strip_prefix("http.request.").unwrap_or(name);
    let text = match short {
        "host" => "$host",
        "scheme" => "$scheme",
        "query" | "uri.query" => "$query",
        "remote_host" | "remote.host" => "$remote_addr",
        "path" | "uri.path" => around.path,
        "orig_uri" => "$uri",
        "uri" if !around.is_rewritten => "$uri",
        _ => {
            let group = name.strip_prefix("http.regexp.").or_else(|| name.strip_prefix("re."));
            let Some(group) = group else { return unknown() };
            let (matcher, number) = group.rsplit_once('.').unwrap_or(("", group));
            return match around.requests.group(matcher, number) {
                Some(text) => Ok(text),
                None => unknown(),
            };
        }
    };
    Ok(text.to_owned())
}
