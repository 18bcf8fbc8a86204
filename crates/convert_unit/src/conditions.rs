//! Conditions that hold together, and the keys of a route for them.

use std::collections::BTreeMap;

use super::pattern::{Test, holds};
use super::repeated::{Part, Repeated};
use sendoff_convert_document::Section;

/// The most lists of conditions that one step may stand for: more would fill the result.
const MAX_ALTERNATIVES: usize = 64;

/// Lists of patterns, by the name that they are for.
type Tests = BTreeMap<String, Vec<Repeated>>;

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    paths: Vec<Test>,
    fields: Tests,
    parameters: Tests,
    /// The expression for the field `Host`.
    hosts: Vec<Test>,
    methods: Option<Vec<String>>,
}

/// The kind of path that a route is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Any,
    /// It ends with a slash. It is the first group of the expression.
    Folder,
    /// It ends without a slash.
    File,
    /// No earlier route has given it a mark.
    Unmarked,
}

impl Conditions {
    pub(super) fn add_path(&mut self, test: Test) {
        self.paths.push(test);
    }

    pub(super) fn add_host(&mut self, test: Test) {
        self.hosts.push(test);
    }

    pub(super) fn add_field(&mut self, name: &str, test: Repeated) {
        self.fields.entry(name.to_owned()).or_default().push(test);
    }

    pub(super) fn add_parameter(&mut self, name: &str, test: Repeated) {
        self.parameters.entry(name.to_owned()).or_default().push(test);
    }

    /// Conditions for the requests that would meet these but for a further value of one name. In
    /// Unit they do not meet them.
    pub(super) fn ambiguous(&self) -> Vec<Self> {
        let mut all = Vec::new();
        let tables: [fn(&mut Self) -> &mut Tests; 2] =
            [|own| &mut own.fields, |own| &mut own.parameters];
        for table in tables {
            let mut own = self.clone();
            for (name, tests) in table(&mut own).clone() {
                for (number, test) in tests.into_iter().enumerate() {
                    let mut further = self.clone();
                    if let Some(tests) = table(&mut further).get_mut(&name) {
                        tests[number].one.push(test.other);
                    }
                    all.push(further);
                }
            }
        }
        all
    }

    /// Restricts the methods. Returns false if none is left.
    pub(super) fn set_methods(&mut self, methods: Vec<String>) -> bool {
        let methods = match self.methods.take() {
            Some(known) => known.into_iter().filter(|method| methods.contains(method)).collect(),
            None => methods,
        };
        let is_possible = !methods.is_empty();
        self.methods = Some(methods);
        is_possible
    }

    /// Both lists of conditions together; `None`: they exclude each other.
    fn and(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.paths.extend(other.paths.iter().cloned());
        both.hosts.extend(other.hosts.iter().cloned());
        for (own, others) in
            [(&mut both.fields, &other.fields), (&mut both.parameters, &other.parameters)]
        {
            for (name, tests) in others {
                own.entry(name.clone()).or_default().extend(tests.iter().cloned());
            }
        }
        match &other.methods {
            Some(methods) if !both.set_methods(methods.clone()) => None,
            _ => Some(both),
        }
    }

    /// The condition for the field `Host`. For Unit a missing field is an empty name; only a
    /// condition with `!` holds for it.
    fn host(&self) -> Option<String> {
        let ahead: String = self.hosts.iter().map(|test| test.ahead.as_str()).collect();
        let has_empty = self.hosts.iter().all(|test| holds(&test.alone, ""));
        match &self.hosts[..] {
            [] => None,
            _ if has_empty => Some(format!("!^(?!{ahead})")),
            [one] => Some(one.alone.clone()),
            _ => Some(format!("^{ahead}")),
        }
    }

    /// The keys of a route.
    pub(super) fn set(&self, shape: Shape, route: &mut Section) {
        match (shape, &self.paths[..]) {
            (Shape::Any, []) => {}
            (Shape::Any, [Test { exact: Some(paths), .. }])
                if paths.iter().all(|path| path.starts_with('/')) =>
            {
                route.set_list("path", paths.clone());
            }
            (Shape::Any, [one]) => route.set("match", one.alone.clone()),
            (shape, paths) => {
                let mut text = "^".to_owned();
                text.push_str(match shape {
                    Shape::Any => "",
                    Shape::Unmarked => "(?!/@unit/)",
                    Shape::Folder => r"(?=((?s:.*)/)\z)",
                    // The route for folders may have made a path below /@unit.
                    Shape::File => r"(?!/@unit/)(?=(?s:.*)[^/]\z)",
                });
                text.extend(paths.iter().map(|test| test.ahead.as_str()));
                route.set("match", text);
            }
        }
        if let Some(text) = self.host() {
            route.set_in("header", "Host", text);
        }
        for (key, tests) in [("header", &self.fields), ("query", &self.parameters)] {
            for (name, tests) in tests {
                let mut parts: Vec<Part> = tests.iter().flat_map(|test| test.one.clone()).collect();
                match parts.len() {
                    1 => route.set_in(key, name, parts.remove(0)),
                    _ => route.set_in(key, name, parts),
                }
            }
        }
        if let Some(methods) = &self.methods {
            route.set_list("method", methods.clone());
        }
    }
}

/// All combinations of two lists of alternatives; `None`: they are too many.
pub(super) fn both(one: &[Conditions], other: &[Conditions]) -> Option<Vec<Conditions>> {
    if one.len().saturating_mul(other.len()) > MAX_ALTERNATIVES {
        return None;
    }
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    Some(pairs.filter_map(|(one, other)| one.and(other)).collect())
}
