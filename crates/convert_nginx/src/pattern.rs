//! Locations: their comparisons with a path, and the conditions of routes.

pub(super) use sendoff_convert_document::expression::{
    beginning, has_alternatives, matches, mistake, quote, refers_to_groups, split_ahead,
    unanchored, without_groups,
};

/// The comparison of a location with a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Matcher {
    /// `= /path`
    Exact(String),
    /// `/path`; with `^~` no expression is tried for its paths.
    Prefix { text: String, beats_expressions: bool },
    /// `~ expression`, and `~*` with `(?i)` in front. `within` is the location around it.
    Expression { text: String, within: Option<usize> },
    /// `@name`, to which only other directives lead.
    Named(String),
}

/// A location among the others of its server.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) matcher: Matcher,
    /// The locations around it, outermost first.
    pub(super) around: Vec<usize>,
}

/// The condition of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// Every path.
    All,
    Path(String),
    Match(String),
    /// No path of a client.
    None,
}

impl Condition {
    /// True if the condition holds for a path.
    pub(super) fn holds(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Path(own) => own == path,
            Self::Match(expression) => matches(expression, path),
        }
    }

    /// The condition as an expression for all paths, to which another can be appended: it consumes
    /// nothing.
    pub(super) fn ahead(&self) -> String {
        match self {
            Self::All => String::new(),
            Self::None => "(?!)".to_owned(),
            Self::Path(path) => format!("(?={}$)", quote(path)),
            Self::Match(expression) => format!("(?={})", unanchored(&without_groups(expression))),
        }
    }
}

/// False if no path that begins with `prefix` can match the expression.
pub(super) fn may_begin(expression: &str, prefix: &str) -> bool {
    beginning(expression).is_none_or(|own| prefix.starts_with(&own) || own.starts_with(prefix))
}

/// The endings that an expression of the form `\.(css|js)$` names.
pub(super) fn endings(expression: &str) -> Option<Vec<String>> {
    let rest = expression.strip_prefix("(?i)").unwrap_or(expression);
    let rest = rest.strip_prefix('^').unwrap_or(rest);
    let rest = rest.strip_prefix(".*").or_else(|| rest.strip_prefix(".+")).unwrap_or(rest);
    let rest = rest.strip_prefix("\\.")?.strip_suffix('$')?;
    let names = match rest.strip_prefix('(') {
        Some(group) => group.strip_prefix("?:").unwrap_or(group).strip_suffix(')')?,
        None => rest,
    };
    let mut endings = Vec::new();
    for name in names.split('|') {
        // `jpe?g` stands for two endings.
        match name.split_once('?') {
            Some((head, tail)) => {
                let (last, _) = head.char_indices().next_back()?;
                endings.push(format!("{}{tail}", &head[..last]));
                endings.push(format!("{head}{tail}"));
            }
            None => endings.push(name.to_owned()),
        }
    }
    let is_plain = |ending: &String| {
        !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    endings.iter().all(is_plain).then(|| endings.iter().map(|e| e.to_ascii_lowercase()).collect())
}

/// True if an expression matches every path of a script, `/a/b.php`; with `has_info` also
/// `/a/b.php/more`. False if that is not known.
pub(super) fn matches_all_scripts(expression: &str, has_info: bool) -> bool {
    const STARTS: [&str; 16] = [
        "", ".", ".*", ".+", "/.*", "/.+", "[^/]", "[^/]+", "[^/]*", "^.*", "^.+", "^/.*", "^/.+",
        "^.*?", "^.+?", "^/.+?",
    ];
    const ENDS_OF_ALL: [&str; 14] = [
        "",
        "(/|$)",
        "($|/)",
        "(?:/|$)",
        "(?:$|/)",
        "(/.*)?$",
        "(?:/.*)?$",
        "(/.*|$)",
        "(.*)$",
        ".*$",
        ")",
        ")(/|$)",
        ")(/.*)?$",
        ")(.*)$",
    ];
    const ENDS_OF_SCRIPTS: [&str; 5] = ["$", ")$", "/?$", "(/.+)?$", ")(/.+)?$"];
    let rest = expression.strip_prefix("(?i)").unwrap_or(expression);
    if has_alternatives(rest) {
        let ahead = format!("^(?={rest})");
        let alternatives = split_ahead(&ahead, "(?=").map(|(alternatives, _)| alternatives);
        return alternatives
            .unwrap_or_default()
            .iter()
            .any(|one| matches_all_scripts(one, has_info));
    }
    if !has_info && endings(rest).is_some_and(|endings| endings.iter().any(|one| one == "php")) {
        return !rest.starts_with('^') || rest.starts_with("^.");
    }
    let Some((start, end)) = rest.split_once(r"\.php").or_else(|| rest.split_once("[.]php")) else {
        return false;
    };
    STARTS.contains(&&*start.replace(['(', ')'], ""))
        && (ENDS_OF_ALL.contains(&end) || !has_info && ENDS_OF_SCRIPTS.contains(&end))
}

/// True if no path can match both expressions. False if that is not known.
pub(super) fn are_disjoint(one: &str, other: &str) -> bool {
    if let (Some(one), Some(other)) = (endings(one), endings(other)) {
        return !one.iter().any(|ending| other.contains(ending));
    }
    match (beginning(one), beginning(other)) {
        (Some(one), Some(other)) => !one.starts_with(&other) && !other.starts_with(&one),
        _ => false,
    }
}
