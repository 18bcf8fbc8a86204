//! The location that nginx chooses for a path, as a condition of a route.
//!
//! In each block nginx takes an exact path, or else the longest prefix. It descends into that
//! location; if no expression in there matches and the prefix lacks `^~`, it asks the expressions
//! of the block, in the order of the file. So a location is not reached for the paths of a longer
//! neighbour of a location around it.
//!
//! Sendoff's routes are tried in order, and a route without a handler does not end the search. So
//! each condition excludes the paths of the locations that nginx would prefer: the conditions of
//! two locations never hold for the same path.

use super::pattern::{
    Candidate, Condition, Matcher, are_disjoint, matches, may_begin, quote, unanchored,
    without_groups,
};

/// The condition under which nginx chooses one of the locations.
pub(super) fn condition(all: &[Candidate], number: usize) -> Condition {
    if !is_reached(all, number) {
        return Condition::None;
    }
    let taken: Vec<_> = (0..all.len())
        .filter(|other| *other != number && is_reached(all, *other))
        .filter_map(|other| taken(all, number, other))
        // An option such as (?i) would hold for the alternatives behind it, too.
        .map(|other| if other.contains("(?i)") { format!("(?:{other})") } else { other })
        .collect();
    let ahead = match taken.is_empty() {
        true => String::new(),
        false => format!("(?!{})", taken.join("|")),
    };
    match &all[number].matcher {
        Matcher::Exact(path) => Condition::Path(path.clone()),
        Matcher::Named(_) => Condition::None,
        Matcher::Prefix { text, .. } if text == "/" && ahead.is_empty() => Condition::All,
        Matcher::Prefix { text, .. } if text == "/" => Condition::Match(format!("^{ahead}")),
        Matcher::Prefix { text, .. } => Condition::Match(format!("^{ahead}{}", quote(text))),
        Matcher::Expression { text, within } => {
            let inside = match within.map(|outer| prefix(&all[outer])) {
                Some(text) if text != "/" => format!("(?={})", quote(text)),
                _ => String::new(),
            };
            match ahead.is_empty() && inside.is_empty() {
                true => Condition::Match(text.clone()),
                false => Condition::Match(format!("^{ahead}{inside}{}", unanchored(text))),
            }
        }
    }
}

/// The paths that `other` takes from the location `number`, as a part of a negative look-ahead;
/// `None`: it takes none.
fn taken(all: &[Candidate], number: usize, other: usize) -> Option<String> {
    let (own, rival) = (&all[number], &all[other]);
    match (&own.matcher, &rival.matcher) {
        (Matcher::Exact(_) | Matcher::Named(_), _) | (_, Matcher::Named(_)) => None,
        (Matcher::Prefix { text, .. }, Matcher::Exact(path)) => {
            path.starts_with(text.as_str()).then(|| format!("{}$", quote(path)))
        }
        (Matcher::Expression { text, within }, Matcher::Exact(path)) => {
            let around = within.map_or("/", |outer| prefix(&all[outer]));
            let meets = path.starts_with(around) && matches(text, path);
            meets.then(|| format!("{}$", quote(path)))
        }
        (Matcher::Prefix { text, .. }, Matcher::Prefix { text: longer, .. }) => {
            let is_met = way_to(all, number).starts_with(&rival.around);
            (is_met && is_longer(longer, text)).then(|| quote(longer))
        }
        (Matcher::Prefix { text, .. }, Matcher::Expression { text: rule, .. }) => {
            let may_meet = may_begin(rule, text) && is_asked(all, number, other);
            may_meet.then(|| unanchored(&without_groups(rule)))
        }
        (Matcher::Expression { text, within }, Matcher::Prefix { text: longer, .. }) => {
            let around = within.map_or("/", |outer| prefix(&all[outer]));
            if !may_begin(text, longer) {
                return None;
            }
            if rival.around == own.around {
                return beats(rival).then(|| kept(all, other));
            }
            let is_met = own.around.starts_with(&rival.around);
            (is_met && is_longer(longer, around)).then(|| quote(longer))
        }
        (Matcher::Expression { text, .. }, Matcher::Expression { text: rule, within }) => {
            let is_same_block = rival.around == own.around;
            let precedes = match is_same_block {
                true => other < number,
                false => rival.around.starts_with(&own.around),
            };
            if !precedes || are_disjoint(text, rule) {
                return None;
            }
            let inside = within.filter(|_| !is_same_block).map(|outer| asked_within(all, outer));
            Some(inside.unwrap_or_default() + &unanchored(&without_groups(rule)))
        }
    }
}

/// The expressions that nginx asks before it chooses a location, for each path of the location.
pub(super) fn asked_before(all: &[Candidate], number: usize) -> Vec<String> {
    let own = &all[number];
    let precedes = |other: &usize| match own.matcher {
        Matcher::Prefix { .. } => is_asked(all, number, *other),
        Matcher::Expression { .. } => *other < number && all[*other].around == own.around,
        Matcher::Exact(_) | Matcher::Named(_) => false,
    };
    let texts = (0..all.len()).filter(precedes).filter_map(|other| match &all[other].matcher {
        Matcher::Expression { text, .. } => Some(text.clone()),
        _ => None,
    });
    texts.collect()
}

/// True if nginx asks the expression `other` for all paths of a prefix.
fn is_asked(all: &[Candidate], number: usize, other: usize) -> bool {
    let (way, around) = (way_to(all, number), &all[other].around);
    way.starts_with(around) && way.get(around.len()).is_none_or(|at| !beats(&all[*at]))
}

/// False if nginx gets to a longer neighbour of a location around this one for all of its paths.
fn is_reached(all: &[Candidate], number: usize) -> bool {
    let own = &all[number];
    let (path, is_exact) = match &own.matcher {
        Matcher::Exact(path) => (path, true),
        Matcher::Prefix { text, .. } => (text, false),
        Matcher::Expression { .. } | Matcher::Named(_) => {
            return own.around.last().is_none_or(|outer| is_reached(all, *outer));
        }
    };
    let is_missed = |around: &usize| {
        let (here, text) = (&all[*around], prefix(&all[*around]));
        all.iter().filter(|other| other.around == here.around).any(|other| match &other.matcher {
            Matcher::Prefix { text: longer, .. } => {
                is_longer(longer, text) && path.starts_with(longer.as_str())
            }
            Matcher::Exact(exact) => is_exact && exact == path,
            _ => false,
        })
    };
    !own.around.iter().any(is_missed)
}

/// The locations that nginx descends into up to this one, itself included.
fn way_to(all: &[Candidate], number: usize) -> Vec<usize> {
    [&all[number].around[..], &[number]].concat()
}

/// A look-ahead for the paths for which nginx asks the expressions in the location `outer`; empty
/// for all paths.
fn asked_within(all: &[Candidate], outer: usize) -> String {
    let (text, way) = (prefix(&all[outer]), way_to(all, outer));
    let others: Vec<_> = (0..all.len())
        .filter(|other| is_longer(prefix(&all[*other]), text))
        .filter_map(|other| {
            let around = &all[other].around;
            if *around == way {
                return beats(&all[other]).then(|| kept(all, other));
            }
            way.starts_with(around).then(|| quote(prefix(&all[other])))
        })
        .collect();
    match (others.is_empty(), text) {
        (true, "/") => String::new(),
        (true, text) => format!("(?={})", quote(text)),
        (false, "/") => format!("(?!{})", others.join("|")),
        (false, text) => format!("(?=(?!{}){})", others.join("|"), quote(text)),
    }
}

/// The paths for which nginx asks no expression of the block around a location with `^~`. Longer
/// neighbours without `^~` give theirs back to the expressions.
fn kept(all: &[Candidate], number: usize) -> String {
    let text = prefix(&all[number]);
    let neighbours = all.iter().filter(|other| other.around == all[number].around && !beats(other));
    let back: Vec<_> = neighbours
        .filter_map(|other| prefix(other).strip_prefix(text).filter(|rest| !rest.is_empty()))
        .map(quote)
        .collect();
    match back.is_empty() {
        true => quote(text),
        false => format!("{}(?!{})", quote(text), back.join("|")),
    }
}

/// The text of a prefix; empty for other locations.
fn prefix(candidate: &Candidate) -> &str {
    match &candidate.matcher {
        Matcher::Prefix { text, .. } => text,
        _ => "",
    }
}

fn is_longer(longer: &str, text: &str) -> bool {
    longer.len() > text.len() && longer.starts_with(text)
}

fn beats(candidate: &Candidate) -> bool {
    matches!(candidate.matcher, Matcher::Prefix { beats_expressions: true, .. })
}
