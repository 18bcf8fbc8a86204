//! Conditions of a route, made of matchers.

use std::collections::BTreeMap;

use sendoff_convert_document::expression::unanchored;
use sendoff_convert_document::{Place, Section};
use toml::Value;

/// The most lists of conditions that one matcher may stand for: more would fill the result.
const MAX_ALTERNATIVES: usize = 64;

/// A test of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathTest {
    /// The expression, from the beginning of the path.
    pub(super) expression: String,
    pub(super) case: Case,
    /// True if the expression must not match.
    pub(super) is_negated: bool,
}

/// The comparison of letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Ignored,
    Exact,
}

impl PathTest {
    fn ahead(&self) -> String {
        let sign = if self.is_negated { '!' } else { '=' };
        match self.case {
            Case::Ignored => format!("(?{sign}(?i:{}))", self.expression),
            Case::Exact => format!("(?{sign}{})", self.expression),
        }
    }
}

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Conditions {
    pub(super) paths: Vec<PathTest>,
    /// `None`: all.
    pub(super) methods: Option<Vec<String>>,
    pub(super) fields: BTreeMap<String, Vec<Value>>,
    pub(super) parameters: BTreeMap<String, Vec<Value>>,
    /// The expression whose groups the texts of the route name, with the name of its matcher.
    pub(super) groups: Option<(String, String)>,
}

/// The addresses of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Clients {
    Everyone,
    From(Vec<String>),
    /// All but these.
    NotFrom(Vec<String>),
}

/// The requests that a directive is for.
#[derive(Debug, Clone)]
pub(super) struct Requests {
    /// One of them must hold. Empty: no request is meant.
    pub(super) alternatives: Vec<Conditions>,
    pub(super) clients: Clients,
    /// A condition that cannot be expressed; the reason. Without it, the alternatives hold for more
    /// requests than are meant, and for all that are.
    pub(super) unknown: Option<(Place, String)>,
}

/// The path that a route sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen<'s> {
    /// The path as it is.
    Whole,
    /// The path as it is, as a group: a name may follow it.
    Grouped,
    /// The path without this beginning.
    Without(&'s str),
}

impl Conditions {
    fn and(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.paths.extend(other.paths.iter().cloned());
        for (own, others) in
            [(&mut both.fields, &other.fields), (&mut both.parameters, &other.parameters)]
        {
            for (name, values) in others {
                own.entry(name.clone()).or_default().extend(values.iter().cloned());
            }
        }
        both.methods = match (both.methods.take(), &other.methods) {
            (Some(own), Some(others)) => {
                let both: Vec<_> = own.into_iter().filter(|name| others.contains(name)).collect();
                if both.is_empty() {
                    return None;
                }
                Some(both)
            }
            (own, others) => own.or_else(|| others.clone()),
        };
        both.groups = both.groups.take().or_else(|| other.groups.clone());
        Some(both)
    }

    /// For each parameter: the conditions under which one application reads it as they say and
    /// another does not. Caddy reads parameters in one way alone.
    pub(super) fn ambiguous(&self) -> Vec<Self> {
        let opposite = |value: &Value| match value {
            Value::String(text) => Value::String(format!("!{text}")),
            _ => Value::Boolean(false),
        };
        let names = self.parameters.iter();
        let ambiguous = names.map(|(name, values)| {
            let mut one = self.clone();
            one.parameters.entry(name.clone()).or_default().extend(values.iter().map(opposite));
            one
        });
        ambiguous.collect()
    }

    /// Sets the keys of a route, and returns the text for the path. Behind a mark, the path is the
    /// first group.
    pub(super) fn set(&self, mark: Option<usize>, seen: Seen<'_>, route: &mut Section) -> String {
        let ahead: String = self.paths.iter().map(PathTest::ahead).collect();
        let start = match mark {
            Some(number) => format!("(?s)^/@caddy/{number}"),
            None => "^".to_owned(),
        };
        let (expression, path) = match (seen, mark, &self.paths[..]) {
            (Seen::Without(prefix), _, _) => {
                let prefix = sendoff_convert_document::expression::quote(prefix);
                (Some(format!(r"{start}{ahead}(?i:{prefix})/?((?s:.*))\z")), "/$1")
            }
            (_, Some(_), _) => (Some(format!(r"{start}{ahead}(/.*)\z")), "$1"),
            (Seen::Grouped, None, _) => (Some(format!(r"{start}{ahead}((?s:.*))\z")), "$1"),
            (Seen::Whole, None, []) => (None, "$path"),
            (Seen::Whole, None, [only]) if !only.is_negated && self.groups.is_none() => {
                let case = if only.case == Case::Ignored { "(?i)" } else { "" };
                (Some(format!("{case}^{}", only.expression)), "$path")
            }
            (Seen::Whole, None, [_]) if self.groups.is_some() => {
                (self.groups.as_ref().map(|(_, text)| text.clone()), "$path")
            }
            (Seen::Whole, None, _) => {
                let grouped = self.groups.as_ref().map(|(_, text)| unanchored(text));
                (Some(format!("^{ahead}{}", grouped.unwrap_or_default())), "$path")
            }
        };
        if let Some(expression) = expression {
            route.set("match", expression);
        }
        if let Some(methods) = &self.methods {
            route.set_list("method", methods.clone());
        }
        for (key, tests) in [("header", &self.fields), ("query", &self.parameters)] {
            for (name, values) in tests {
                match &values[..] {
                    [one] => route.set_in(key, name, one.clone()),
                    several => route.set_in(key, name, several.to_vec()),
                }
            }
        }
        path.to_owned()
    }
}

impl Requests {
    /// All requests.
    pub(super) fn all() -> Self {
        Self {
            alternatives: vec![Conditions::default()],
            clients: Clients::Everyone,
            unknown: None,
        }
    }

    pub(super) fn refuse(&mut self, place: &Place, why: impl Into<String>) {
        self.unknown.get_or_insert((place.clone(), why.into()));
    }

    /// True if every request is meant.
    pub(super) fn is_all(&self) -> bool {
        self.unknown.is_none()
            && self.clients == Clients::Everyone
            && self.alternatives.iter().any(|one| *one == Conditions::default())
    }

    /// The requests that are meant by both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.unknown = both.unknown.or_else(|| other.unknown.clone());
        match (&self.clients, &other.clients) {
            (_, Clients::Everyone) => {}
            (Clients::Everyone, clients) => both.clients = clients.clone(),
            _ => {
                let place =
                    other.unknown.as_ref().or(self.unknown.as_ref()).map(|(p, _)| p.clone());
                both.clients = Clients::From(Vec::new());
                if let Some(place) = place {
                    both.refuse(&place, "two matchers compare addresses");
                }
            }
        }
        if self.alternatives.len().saturating_mul(other.alternatives.len()) > MAX_ALTERNATIVES {
            // The first alone matches more requests than both together.
            let place = both.unknown.take().map(|(place, _)| place);
            if let Some(place) = place {
                both.refuse(&place, "these are too many combinations");
            } else {
                both.clients = Clients::From(Vec::new());
            }
            return both;
        }
        both.alternatives = self
            .alternatives
            .iter()
            .flat_map(|one| other.alternatives.iter().filter_map(move |other| one.and(other)))
            .collect();
        both
    }

    /// Restricts the requests by a test of their path.
    pub(super) fn with_path(self, test: &PathTest) -> Self {
        let mut restricted = self.unmarked_by(test);
        restricted.forget_groups();
        restricted
    }

    /// As [`Requests::with_path`]; texts may still name the groups of the other test.
    pub(super) fn unmarked_by(mut self, test: &PathTest) -> Self {
        for one in &mut self.alternatives {
            one.paths.push(test.clone());
        }
        self
    }

    /// Texts cannot name the groups of an expression, because the route has others.
    pub(super) fn forget_groups(&mut self) {
        self.alternatives.iter_mut().for_each(|one| one.groups = None);
    }

    /// The text of the group of an expression; `None`: there is no group of this name.
    pub(super) fn group(&self, name: &str, number: &str) -> Option<String> {
        let is_digit = number.len() == 1 && number.bytes().all(|b| (b'1'..=b'9').contains(&b));
        let [only] = &self.alternatives[..] else { return None };
        let (own, text) = only.groups.as_ref().filter(|_| only.paths.len() == 1)?;
        let has_options =
            text.starts_with("(?") && !text.starts_with("(?:") && !text.starts_with("(?P<");
        if has_options {
            return None;
        }
        (is_digit && (own == name || name.is_empty())).then(|| format!("${number}"))
    }
}
