//! Areas: the paths of a section, as expressions for the path of a request.

use sendoff_convert_document::expression::{has_alternatives, mistake, quote};

/// Paths. Where they are not known exactly, two expressions enclose them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Area {
    /// Look-aheads that hold for all paths of the area, and perhaps for others.
    pub(super) may: String,
    pub(super) surely: Surely,
}

/// Paths that are surely in an area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Surely {
    /// The area is known exactly.
    Exact,
    /// Look-aheads that hold for paths of the area only.
    Narrower(String),
    /// None is known.
    None,
}

impl Area {
    /// Every path.
    pub(super) fn all() -> Self {
        Self { may: String::new(), surely: Surely::Exact }
    }

    /// An area of which nothing is known: it may have every path.
    pub(super) fn unknown() -> Self {
        Self { may: String::new(), surely: Surely::None }
    }

    /// No path.
    pub(super) fn none() -> Self {
        Self { may: "(?!)".to_owned(), surely: Surely::Exact }
    }

    /// The paths that an expression matches, from their beginning.
    pub(super) fn exact(expression: &str) -> Self {
        Self { may: format!("(?={expression})"), surely: Surely::Exact }
    }

    /// False if both areas are folders of which none is within the other.
    pub(super) fn may_overlap(&self, other: &Self) -> bool {
        let is_within = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match (self.folder(), other.folder()) {
            (Some(one), Some(other)) => is_within(one, other) || is_within(other, one),
            _ => true,
        }
    }

    /// The path of the only folder, in its form for an expression.
    fn folder(&self) -> Option<&str> {
        let sure = self.sure()?;
        let text = self.may.strip_prefix("(?=")?.strip_suffix(r"(?:/|\z))")?;
        let is_plain = !text.contains(['(', '[', '*', '|', '?']);
        (is_plain && sure == self.may).then_some(text)
    }

    /// True for every path.
    pub(super) fn is_all(&self) -> bool {
        self.may.is_empty() && self.surely == Surely::Exact
    }

    /// Look-aheads that hold for paths of the area only; `None`: no such path is known.
    pub(super) fn sure(&self) -> Option<&str> {
        match &self.surely {
            Surely::Exact => Some(&self.may),
            Surely::Narrower(text) => Some(text),
            Surely::None => None,
        }
    }

    /// The paths in both areas.
    pub(super) fn and(&self, other: &Self) -> Self {
        let may = format!("{}{}", self.may, other.may);
        let surely = match (&self.surely, &other.surely) {
            (Surely::Exact, Surely::Exact) => Surely::Exact,
            _ => match (self.sure(), other.sure()) {
                (Some(own), Some(others)) => Surely::Narrower(format!("{own}{others}")),
                _ => Surely::None,
            },
        };
        Self { may, surely }
    }

    /// The paths in one of the areas.
    pub(super) fn either(areas: &[Self]) -> Self {
        if let [only] = areas {
            return only.clone();
        }
        let joined = |texts: Vec<&str>| match &texts[..] {
            [] => "(?!)".to_owned(),
            texts if texts.iter().any(|text| text.is_empty()) => String::new(),
            texts => format!("(?:{})", texts.join("|")),
        };
        let may = joined(areas.iter().map(|area| area.may.as_str()).collect());
        let surely = match areas.iter().all(|area| area.surely == Surely::Exact) {
            true => Surely::Exact,
            false if areas.iter().all(|area| area.surely == Surely::None) => Surely::None,
            false => Surely::Narrower(joined(areas.iter().filter_map(Self::sure).collect())),
        };
        Self { may, surely }
    }

    /// The paths that may be in this area, and are surely in none of the others; as the expression
    /// of a route. `None`: there are none.
    pub(super) fn without<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Option<Condition> {
        let mut excluded: Vec<&str> = Vec::new();
        for sure in others.filter(|other| self.may_overlap(other)).filter_map(Self::sure) {
            match sure {
                "" => return None,
                "(?!)" => {}
                sure if excluded.contains(&sure) => {}
                sure => excluded.push(sure),
            }
        }
        // An area and all that is outside of it: nothing is left.
        let is_opposite = |sure: &&str| excluded.contains(&format!("(?!{sure})").as_str());
        if excluded.iter().any(is_opposite) {
            return None;
        }
        let texts: Vec<String> = excluded.iter().map(|sure| format!("(?!{sure})")).collect();
        joined(&self.may, &texts)
    }

    /// The paths that are surely in this area, and in none of the others.
    pub(super) fn surely_without<'a>(
        &self,
        others: impl Iterator<Item = &'a Self>,
    ) -> Option<Condition> {
        let texts: Vec<String> = others.map(|other| format!("(?!{})", other.may)).collect();
        joined(self.sure()?, &texts)
    }
}

/// Look-aheads for an area and others behind it; `None`: no path meets them.
fn joined(area: &str, others: &[String]) -> Option<Condition> {
    let mut text = area.to_owned();
    for other in others {
        let is_known = text.starts_with(other.as_str()) || text.ends_with(other.as_str());
        if !is_known {
            text.push_str(other);
        }
    }
    (!text.contains("(?!)")).then_some(Condition(text))
}

/// The condition of a route: look-aheads for its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition(pub(super) String);

impl Condition {
    /// The value of `match`, with an expression behind the look-aheads; `None`: every path.
    pub(super) fn matching(&self, behind: &str) -> Option<String> {
        if self.0.is_empty() && behind.is_empty() {
            return None;
        }
        // One look-ahead alone is the expression itself.
        let only = self.0.strip_prefix("(?=").and_then(|text| text.strip_suffix(')'));
        match only.filter(|text| behind.is_empty() && is_whole(text)) {
            Some(text) => Some(format!("^{text}")),
            None => Some(format!("^{}{behind}", self.0)),
        }
    }

    /// Sets the key of a route.
    pub(super) fn set(&self, route: &mut sendoff_convert_document::Section) {
        if let Some(text) = self.matching("") {
            route.set("match", text);
        }
    }
}

/// True if the text closes each of its own parentheses and no other, and has no alternatives outside
/// of them.
fn is_whole(text: &str) -> bool {
    let (mut depth, mut is_escaped) = (0_i32, false);
    for sign in text.chars() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => return false,
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => return false,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    true
}

/// The folder at a path of the site, and everything beneath it.
pub(super) fn beneath(path: &str) -> Area {
    match path.trim_end_matches('/') {
        "" => Area::all(),
        path => Area::exact(&format!(r"{}(?:/|\z)", quote(path))),
    }
}

/// A shell pattern for one part of a path.
pub(super) fn glob(text: &str) -> Option<String> {
    let mut made = String::new();
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '*' => made.push_str("[^/]*"),
            '?' => made.push_str("[^/]"),
            '[' | ']' => return None,
            '\\' => made.push_str(&quote(&signs.next()?.to_string())),
            sign => made.push_str(&quote(&sign.to_string())),
        }
    }
    Some(made)
}

/// `<Location PATH>`
pub(super) fn location(path: &str) -> Area {
    if !path.starts_with('/') {
        return Area::unknown();
    }
    if path.contains(['*', '?', '[', '\\']) {
        return match glob(path) {
            Some(expression) => Area::exact(&format!(r"{expression}\z")),
            None => Area::unknown(),
        };
    }
    match path {
        "/" => Area::all(),
        path if path.ends_with('/') => Area::exact(&quote(path)),
        path => beneath(path),
    }
}

/// `<LocationMatch EXPRESSION>`: found anywhere in the path.
pub(super) fn matching(expression: &str) -> Area {
    if mistake(expression).is_some() || has_references(expression) {
        return Area::unknown();
    }
    let text = format!("(?:{})", expression.replace("(?i)", ""));
    let text = if expression.contains("(?i)") { format!("(?i:{text})") } else { text };
    Area {
        may: format!("(?=(?s:.*?){text})"),
        surely: match !expression.contains('$') || is_one_ending(expression) {
            true => {
                let text = text.replace("$)", r"\z)");
                Surely::Narrower(format!("(?=(?s:.*?)(?-s:{text}))"))
            }
            false => Surely::None,
        },
    }
    .anchored(expression)
}

impl Area {
    /// With `^` at its beginning, an expression without alternatives is for the beginning.
    fn anchored(self, expression: &str) -> Self {
        let begins = expression.trim_start_matches("(?i)").starts_with('^');
        match begins && !expression.contains('|') {
            true => Self {
                may: self.may.replacen("(?s:.*?)", "", 1),
                surely: match self.surely {
                    Surely::Narrower(text) => Surely::Narrower(text.replacen("(?s:.*?)", "", 1)),
                    other => other,
                },
            },
            false => self,
        }
    }
}

fn has_references(expression: &str) -> bool {
    sendoff_convert_document::expression::refers_to_groups(expression)
}

/// `<Files NAME>`: the last part of a path, in front of a path info.
pub(super) fn file(name: &str) -> Area {
    match glob(name) {
        Some(expression) => Area {
            may: format!(r"(?=(?s:.*)/{expression}(?:/|\z))"),
            surely: Surely::Narrower(format!(r"(?=(?s:.*)/{expression}\z)")),
        },
        None => Area::unknown(),
    }
}

/// `<FilesMatch EXPRESSION>`
pub(super) fn file_matching(expression: &str) -> Area {
    if mistake(expression).is_some() || has_references(expression) {
        return Area::unknown();
    }
    let Some(name) = of_name(expression) else { return Area::unknown() };
    let may = name.replace('$', r"(?:/|\z)");
    let surely = match name.contains('$') && is_one_ending(expression) {
        true => Surely::Narrower(format!("(?={})", name.replace('$', r"\z"))),
        false => Surely::None,
    };
    Area { may: format!("(?={may})"), surely }
}

/// True if a `$` in the expression, if it has one, is the end of the whole expression.
fn is_one_ending(expression: &str) -> bool {
    let bare = expression.strip_suffix('$').unwrap_or(expression);
    !bare.contains('$') && !bare.ends_with('\\') && !has_alternatives(expression)
}

/// The expression for the name of a file as one for a path: no sign of it is a slash. A `$` stays.
fn of_name(expression: &str) -> Option<String> {
    let (case, text) = match expression.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", expression),
    };
    let mut made = String::new();
    let mut signs = text.chars().peekable();
    let mut in_class = false;
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => {
                let escaped = signs.next()?;
                // The set of all other signs would have the slash.
                if matches!(escaped, 'D' | 'S' | 'W') || escaped == '$' {
                    return None;
                }
                made.extend(['\\', escaped]);
            }
            '[' if !in_class => {
                in_class = true;
                made.push('[');
                if signs.next_if_eq(&'^').is_some() {
                    made.push_str("^/");
                }
            }
            ']' => {
                in_class = false;
                made.push(']');
            }
            '$' if in_class => return None,
            '.' if !in_class => made.push_str("[^/]"),
            '^' if !in_class && !made.is_empty() => {
                // Behind a bracket or a bar, it is the beginning of the name.
                if !made.ends_with(['(', '|', ':']) {
                    return None;
                }
                made.push_str("(?<=/)");
            }
            sign => made.push(sign),
        }
    }
    Some(
        match made.strip_prefix('^') {
            Some(rest) if !made.contains('|') || is_whole(rest) => format!("(?s:.*)/{case}{rest}"),
            _ => format!("(?s:.*)/[^/]*?{case}(?:{made})"),
        }
        .replace("(?i)(?:", "(?i:"),
    )
    .map(|text| match text.contains("(?i)") {
        // The rest of the look-ahead ignores case, too.
        true => format!("(?:{text})"),
        false => text,
    })
}
