//! Locations: which one nginx chooses for a path, as a condition of a route.
//!
//! nginx asks in this order: an exact path; the longest prefix, if it has `^~`; the expressions, in
//! the order of the file; the longest prefix. Sendoff's routes are tried in order, and a route
//! without a handler does not end the search. So each condition excludes the paths of the locations
//! that nginx would prefer: the conditions of two locations never hold for the same path.

pub(super) use sendoff_convert_document::expression::{
    has_alternatives, matches, mistake, quote, refers_to_groups, unanchored, without_groups,
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

/// The condition under which nginx chooses one of the locations.
pub(super) fn condition(all: &[Candidate], number: usize) -> Condition {
    let own = &all[number];
    let excluded: Vec<_> = (0..all.len())
        .filter(|other| *other != number)
        .filter_map(|other| excluded(all, number, other))
        // An option such as (?i) would hold for the alternatives behind it, too.
        .map(|other| if other.contains("(?i)") { format!("(?:{other})") } else { other })
        .collect();
    let ahead = match excluded.is_empty() {
        true => String::new(),
        false => format!("(?!{})", excluded.join("|")),
    };
    match &own.matcher {
        Matcher::Exact(path) => Condition::Path(path.clone()),
        Matcher::Named(_) => Condition::None,
        Matcher::Prefix { text, .. } if text == "/" && ahead.is_empty() => Condition::All,
        Matcher::Prefix { text, .. } if text == "/" => Condition::Match(format!("^{ahead}")),
        Matcher::Prefix { text, .. } => Condition::Match(format!("^{ahead}{}", quote(text))),
        Matcher::Expression { text, within } => {
            let inside = within.map(|outer| match &all[outer].matcher {
                Matcher::Prefix { text, .. } if text != "/" => format!("(?={})", quote(text)),
                _ => String::new(),
            });
            let inside = inside.unwrap_or_default();
            match ahead.is_empty() && inside.is_empty() {
                true => Condition::Match(text.clone()),
                false => Condition::Match(format!("^{ahead}{inside}{}", unanchored(text))),
            }
        }
    }
}

/// The paths that `other` takes from the location `number`, as a part of a negative look-ahead;
/// `None`: it takes none.
fn excluded(all: &[Candidate], number: usize, other: usize) -> Option<String> {
    let (own, rival) = (&all[number], &all[other]);
    match (&own.matcher, &rival.matcher) {
        (Matcher::Exact(_) | Matcher::Named(_), _) | (_, Matcher::Named(_)) => None,
        (Matcher::Prefix { text, .. }, Matcher::Exact(path)) => {
            path.starts_with(text.as_str()).then(|| format!("{}$", quote(path)))
        }
        (Matcher::Expression { text, .. }, Matcher::Exact(path)) => {
            matches(text, path).then(|| format!("{}$", quote(path)))
        }
        (Matcher::Prefix { text, .. }, Matcher::Prefix { text: longer, .. }) => {
            (longer.len() > text.len() && longer.starts_with(text.as_str())).then(|| quote(longer))
        }
        (Matcher::Prefix { text, .. }, Matcher::Expression { text: rule, within }) => {
            let is_asked = match within {
                Some(outer) if *outer == number => true,
                Some(outer) => own.around.contains(outer) && !is_kept(all, number, *within),
                None => !is_kept(all, number, None),
            };
            let may_meet = may_begin(rule, text);
            (is_asked && may_meet).then(|| unanchored(&without_groups(rule)))
        }
        (Matcher::Expression { text, within }, Matcher::Prefix { text: prefix, .. }) => {
            // A prefix takes paths from an expression only if no expression is asked for them.
            let takes = match within {
                // A longer prefix outside of the location around the expression.
                Some(outer) => match &all[*outer].matcher {
                    Matcher::Prefix { text: around, .. } => {
                        prefix.len() > around.len()
                            && prefix.starts_with(around.as_str())
                            && (!rival.around.contains(outer) || is_kept(all, other, *within))
                    }
                    _ => false,
                },
                None => is_kept(all, other, None),
            };
            (takes && may_begin(text, prefix)).then(|| {
                // Longer prefixes without `^~` give the paths back to the expressions.
                let back: Vec<_> = all
                    .iter()
                    .filter(|inner| within.is_none() && !inner.around.contains(&other))
                    .filter_map(|inner| match &inner.matcher {
                        Matcher::Prefix { text: longer, beats_expressions: false } => {
                            longer.strip_prefix(prefix.as_str()).filter(|rest| !rest.is_empty())
                        }
                        _ => None,
                    })
                    .map(quote)
                    .collect();
                match back.is_empty() {
                    true => quote(prefix),
                    false => format!("{}(?!{})", quote(prefix), back.join("|")),
                }
            })
        }
        (
            Matcher::Expression { text, within },
            Matcher::Expression { text: earlier, within: theirs },
        ) => {
            let precedes = match (within, theirs) {
                (None, Some(_)) => true,
                (Some(_), None) => false,
                _ => other < number,
            };
            if !precedes || are_disjoint(text, earlier) {
                return None;
            }
            let inside = theirs.and_then(|outer| match &all[outer].matcher {
                Matcher::Prefix { text, .. } => Some(format!("(?={})", quote(text))),
                _ => None,
            });
            Some(inside.unwrap_or_default() + &unanchored(&without_groups(earlier)))
        }
    }
}

/// True if nginx asks no expression of a block for a location, because the block's own location
/// that leads there has `^~`. `within` is the location that the block belongs to.
fn is_kept(all: &[Candidate], number: usize, within: Option<usize>) -> bool {
    let around = &all[number].around;
    let after = match within {
        None => 0,
        Some(outer) => around.iter().position(|one| *one == outer).map_or(0, |at| at + 1),
    };
    beats(&all[around.get(after).copied().unwrap_or(number)])
}

fn beats(candidate: &Candidate) -> bool {
    matches!(candidate.matcher, Matcher::Prefix { beats_expressions: true, .. })
}

/// The characters with which every match begins, if the expression is for the beginning of a path.
pub(super) fn beginning(expression: &str) -> Option<String> {
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

/// True if no path can match both expressions. False if that is not known.
fn are_disjoint(one: &str, other: &str) -> bool {
    if let (Some(one), Some(other)) = (endings(one), endings(other)) {
        return !one.iter().any(|ending| other.contains(ending));
    }
    match (beginning(one), beginning(other)) {
        (Some(one), Some(other)) => !one.starts_with(&other) && !other.starts_with(&one),
        _ => false,
    }
}
