//! Texts with variables.

/// The text with Sendoff's names of variables. `path` stands for the path.
///
/// # Errors
/// A variable has no equal; its name.
pub(super) fn translate(text: &str, path: &str) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        result.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let (name, length) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
                let end = after.find(|sign| !is_name(sign)).unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        rest = &after[length..];
        let ours = match name {
            "uri" => path,
            "host" => "$host",
            "request_uri" => "$uri",
            "remote_addr" => "$remote_addr",
            "dollar" => "$$",
            _ => return Err(format!("${name}")),
        };
        // A name ends at the first sign that is no part of it.
        if rest.starts_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '_') {
            return Err(format!("${name} in front of a letter"));
        }
        result.push_str(ours);
    }
    result.push_str(rest);
    Ok(result)
}

/// A text without variables, for a key whose texts may have some.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// The folder in front of `$uri`, and true if `$uri` is there.
pub(super) fn folder(share: &str) -> Option<(&str, bool)> {
    let (root, has_uri) = match share.strip_suffix("$uri").or(share.strip_suffix("${uri}")) {
        Some(root) => (root, true),
        None => (share, false),
    };
    (root.starts_with('/') && !root.contains('$')).then_some((root, has_uri))
}
