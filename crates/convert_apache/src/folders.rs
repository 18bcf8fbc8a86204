//! Expressions for folders, as expressions for the paths behind the folder of a site.
//!
//! Apache looks for the expression in the whole name of a folder. So a match may lie behind the
//! folder of the site, begin in its name and end behind it, or lie in its name:
//!
//! ```text
//!   /srv/www/vendor/x       expression: www/(vendor|api)
//!   ───────┬──────────
//!   folder │ path           what is left for the path: ^/vendor or ^/api
//! ```

use sendoff_convert_document::expression::{matches, mistake, refers_to_groups};

use super::areas::{Area, Surely};

/// The most alternatives of an expression that are written out.
const MAX_ALTERNATIVES: usize = 64;
/// The end of a folder's name in a path.
const END: &str = r"(?:/|\z|(?<=/))";

/// The paths behind a folder, which has no slash at its end, whose folders an expression may match.
pub(super) fn behind(folder: &str, expression: &str) -> Area {
    let ignores_case = expression.starts_with("(?i)");
    let text = expression.strip_prefix("(?i)").unwrap_or(expression);
    if mistake(expression).is_some() || refers_to_groups(expression) {
        return Area::unknown();
    }
    let mut parser = Parser { rest: text };
    let Some(sequences) = parser.alternatives().filter(|_| parser.rest.is_empty()) else {
        return Area::unknown();
    };
    let mut areas: Vec<Area> = Vec::new();
    for sequence in &sequences {
        for left in left(folder, sequence, if ignores_case { "(?i)" } else { "" }) {
            let may = match (left.text.is_empty(), left.is_anchored) {
                (true, _) => String::new(),
                (false, true) => left.text,
                (false, false) => format!("(?s:.*?){}", left.text),
            };
            let may = match (may.is_empty(), ignores_case) {
                (true, _) => may,
                (false, true) => format!("(?=(?i:{may}))"),
                (false, false) => format!("(?={may})"),
            };
            let area = Area { may, surely: Surely::None };
            if !areas.contains(&area) {
                areas.push(area);
            }
        }
    }
    match areas.is_empty() {
        true => Area::none(),
        false => Area::either(&areas),
    }
}

/// A part of an expression.
#[derive(Debug, Clone)]
enum Atom {
    /// One character of the name.
    One(String),
    /// Several times the character `base`.
    Several { base: String, text: String },
    /// A group that is repeated.
    Group(String),
    /// `^`
    Begin,
    /// `$`
    End,
}

/// The rest of an expression, for the path.
struct Left {
    text: String,
    /// True if it has to match at the beginning of the path.
    is_anchored: bool,
}

/// The rests of a sequence for paths behind a folder.
fn left(folder: &str, sequence: &[Atom], case: &str) -> Vec<Left> {
    let mut all = Vec::new();
    if !matches!(sequence.first(), Some(Atom::Begin)) {
        all.push(Left { text: of_path(sequence), is_anchored: false });
    }
    let ends = |text: String| matches(&format!(r"{case}(?:{text})\z"), folder);
    for (number, atom) in sequence.iter().enumerate() {
        let before = of_folder(&sequence[..number]);
        let rest = of_path(&sequence[number + 1..]);
        // The atom ends with the folder.
        if ends(of_folder(&sequence[..=number])) {
            all.push(Left { text: rest.clone(), is_anchored: true });
        }
        // The atom goes on behind the folder.
        match atom {
            Atom::Several { base, .. } if ends(format!("{before}(?:{base})+")) => {
                all.push(Left { text: format!("(?:{base})*{rest}"), is_anchored: true });
            }
            Atom::Group(_) if ends(format!("{before}(?s:.+)")) => {
                all.push(Left { text: rest, is_anchored: false });
            }
            _ => {}
        }
    }
    // A match within the name of the folder.
    if matches(&format!("{case}{}", of_folder(sequence)), folder) {
        all.push(Left { text: String::new(), is_anchored: true });
    }
    all
}

/// The atoms as an expression for the name of the folder.
fn of_folder(atoms: &[Atom]) -> String {
    let text = |atom: &Atom| match atom {
        Atom::One(text) | Atom::Several { text, .. } | Atom::Group(text) => text.clone(),
        Atom::Begin => "^".to_owned(),
        Atom::End => r"/?\z".to_owned(),
    };
    atoms.iter().map(text).collect()
}

/// The atoms as an expression for the path.
fn of_path(atoms: &[Atom]) -> String {
    let text = |atom: &Atom| match atom {
        Atom::One(text) | Atom::Several { text, .. } | Atom::Group(text) => text.clone(),
        Atom::Begin => "(?!)".to_owned(),
        Atom::End => END.to_owned(),
    };
    atoms.iter().map(text).collect()
}

/// Reads an expression; `None` from a method: a part is not known.
struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    /// The alternatives up to the end of a group, or of the expression, written out.
    fn alternatives(&mut self) -> Option<Vec<Vec<Atom>>> {
        let mut all = self.sequences()?;
        while let Some(rest) = self.rest.strip_prefix('|') {
            self.rest = rest;
            all.extend(self.sequences()?);
        }
        (all.len() <= MAX_ALTERNATIVES).then_some(all)
    }

    /// One alternative; its groups make several sequences of it.
    fn sequences(&mut self) -> Option<Vec<Vec<Atom>>> {
        let mut all: Vec<Vec<Atom>> = vec![Vec::new()];
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let choices = self.element()?;
            if all.len() * choices.len() > MAX_ALTERNATIVES {
                return None;
            }
            all = all
                .iter()
                .flat_map(|start| {
                    choices.iter().map(move |choice| [&start[..], &choice[..]].concat())
                })
                .collect();
        }
        Some(all)
    }

    fn element(&mut self) -> Option<Vec<Vec<Atom>>> {
        let from = self.rest;
        let one = match from.chars().next()? {
            '(' => return self.group(),
            '^' => return self.single(1, Atom::Begin),
            '$' => return self.single(1, Atom::End),
            '\\' => {
                let escaped = from[1..].chars().next()?;
                let is_known = !escaped.is_ascii_alphanumeric() || "dDwWsShH".contains(escaped);
                self.cut(is_known.then_some(1 + escaped.len_utf8())?)
            }
            '[' => self.cut(class_length(from)?),
            '*' | '+' | '?' => return None,
            sign => self.cut(sign.len_utf8()),
        };
        match self.quantifier()? {
            "" => Some(vec![vec![Atom::One(one.to_owned())]]),
            quantifier => {
                let text = format!("{one}{quantifier}");
                Some(vec![vec![Atom::Several { base: one.to_owned(), text }]])
            }
        }
    }

    /// `^` or `$`, which nothing repeats.
    fn single(&mut self, length: usize, atom: Atom) -> Option<Vec<Vec<Atom>>> {
        self.cut(length);
        self.quantifier()?.is_empty().then(|| vec![vec![atom]])
    }

    fn group(&mut self) -> Option<Vec<Vec<Atom>>> {
        let from = self.rest;
        self.cut(if from.starts_with("(?:") { 3 } else { 1 });
        if self.rest.starts_with(['?', '*']) {
            return None;
        }
        let mut inner = self.alternatives()?;
        self.rest = self.rest.strip_prefix(')')?;
        match self.quantifier()? {
            "" => Some(inner),
            "?" => {
                inner.push(Vec::new());
                Some(inner)
            }
            _ => {
                let has_borders =
                    inner.iter().flatten().any(|atom| matches!(atom, Atom::Begin | Atom::End));
                let text = from[..from.len() - self.rest.len()].to_owned();
                (!has_borders).then(|| vec![vec![Atom::Group(text)]])
            }
        }
    }

    /// The quantifier at this place; empty if there is none.
    fn quantifier(&mut self) -> Option<&'t str> {
        let length = match self.rest.chars().next() {
            Some('*' | '+' | '?') => 1,
            Some('{') => self.rest.find('}')? + 1,
            _ => return Some(""),
        };
        let is_lazy = self.rest[length..].starts_with(['?', '+']);
        Some(self.cut(length + usize::from(is_lazy)))
    }

    fn cut(&mut self, length: usize) -> &'t str {
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        text
    }
}

/// The length of the set of characters at the beginning.
fn class_length(text: &str) -> Option<usize> {
    let open = if text.starts_with("[^") { 2 } else { 1 };
    let mut signs = text[open..].char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            // A bracket that stands first is an element.
            ']' if at > 0 => return Some(open + at + 1),
            '[' => return None,
            '\\' => {
                signs.next()?;
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::behind;
    use sendoff_convert_document::expression::matches;

    #[test]
    fn a_match_may_begin_in_the_folder() {
        for (expression, path, holds) in [
            ("/srv/www/(vendor|api)", "/vendor/x", true),
            ("/srv/www/(vendor|api)", "/other/x", false),
            ("www/private", "/private/x", true),
            ("www/private", "/a/x", false),
            ("/www/data/?$", "/data/x", true),
            ("/www/data/$", "/data/x", true),
            ("/www/data/$", "/datax", false),
            ("^/srv/www/a", "/ab", true),
            ("^/srv/www/a", "/b", false),
            ("^/srv/(www|x)/a", "/a", true),
            ("^/srv/[^/]+/a", "/a", true),
            ("^/srv/.*/hidden", "/x/hidden/y", true),
            ("^/srv/.*/hidden", "/x/y", false),
            (r"(^|/)\.git", "/a/.git/x", true),
            (r"(^|/)\.git", "/a/x", false),
            (r"\.(git|svn)(/|$)", "/.svn", true),
            (r"\.(git|svn)(/|$)", "/x/y", false),
            ("(?i)WWW/Private", "/pRivate/x", true),
            ("/(www/)?private", "/private/x", true),
            ("(/[a-z]+){3}x", "/ax", true),
            ("/srv", "/any", true),
            ("/srv/www/?$", "/any", true),
            ("^/var", "/any", false),
            ("(?<!a)b", "/any", true),
        ] {
            let area = behind("/srv/www", expression);
            assert_eq!(matches(&format!("^{}", area.may), path), holds, "{expression} {path}");
        }
    }
}
