//! Redirects of index files: Apache looks for the index file of a folder by a request of its own, to
//! which redirects apply as well.

use sendoff_convert_document::Section;
use sendoff_convert_document::expression::{beginning, quote, split_ahead};

use super::areas;

/// The ends of expressions for everything that begins with a text.
const OPEN: [&str; 8] =
    ["", ".*", "(.*)", "(.*)$", r"((?s:.*))\z", r"((?s:/.*)?)\z", r"(?:/|\z)", "(?s:.*)"];
/// The ends of expressions for one path.
const WHOLE: [&str; 2] = ["$", r"\z"];

/// The route to the index file, and the redirects again, if one of them may concern an index file
/// without concerning its folder. `names` are the names of index files.
pub(super) fn routes(
    names: &[String],
    elsewhere: &[String],
    redirects: &[Section],
) -> Vec<Section> {
    let proxied: String =
        elsewhere.iter().map(|path| format!("(?!{})", areas::beneath(path).may)).collect();
    let concerns = |route: &&Section| {
        let expressions = route.texts("match");
        let redirects = route.has("redirect");
        let may = |name: &String| expressions.iter().any(|one| may_concern(one, name, &proxied));
        redirects && names.iter().any(may)
    };
    let again: Vec<Section> = redirects.iter().filter(concerns).cloned().collect();
    if again.is_empty() {
        return again;
    }
    let mut index = Section::new("site.route");
    index.comment("Redirects also concern the index file of a folder.");
    index.set("match", format!(r"^{proxied}(?!/@apache/)((?s:.*)/)\z"));
    let mut tried: Vec<String> =
        names.iter().map(|name| format!("$1{}", name.replace('$', "$$"))).collect();
    tried.push("$1".to_owned());
    index.set("try_files", tried);
    [vec![index], again].concat()
}

/// True if an expression may match the index file of a folder, although it does not match the folder.
fn may_concern(expression: &str, name: &str, proxied: &str) -> bool {
    let own = match expression.strip_prefix('^').and_then(|rest| rest.strip_prefix(proxied)) {
        Some(rest) => format!("^{rest}"),
        None => expression.to_owned(),
    };
    // The area of a section.
    let own = match split_ahead(&own, "(?=") {
        Some((inner, "")) if inner.len() == 1 => format!("^{}", inner[0]),
        _ => own,
    };
    let start = beginning(&own).unwrap_or_default();
    let path = format!("/{name}");
    let behind = own.strip_prefix('^').and_then(|rest| rest.strip_prefix(quote(&start).as_str()));
    match behind {
        Some(end) if WHOLE.contains(&end) => start.ends_with(&path),
        // The slash belongs to the folder.
        Some(end) if OPEN.contains(&end) => {
            let mut parts = path.char_indices().map(|(at, sign)| &path[..at + sign.len_utf8()]);
            parts.any(|part| part != "/" && start.ends_with(part))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::may_concern;

    #[test]
    fn redirects_of_index_files() {
        for (expression, may) in [
            (r"index\.html$", true),
            (r"^/a/index\.html$", true),
            (r"^/a/other\.html$", false),
            (r"^/old/((?s:.*))\z", false),
            (r"^/old((?s:/.*)?)\z", false),
            (r"^/index\.html((?s:/.*)?)\z", true),
            ("^(.*)$", false),
            ("^/(a|b)", true),
            (r"^(?=/b(?:/|\z))", false),
            (r"^(?=(?s:.*)/[^/]*?(?:\.html(?:/|\z)))", true),
            ("^(?:^/b/index)", true),
        ] {
            assert_eq!(may_concern(expression, "index.html", ""), may, "{expression}");
        }
    }
}
