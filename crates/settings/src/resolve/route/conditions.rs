//! The conditions of routes, and routes that no request reaches.

use sendoff_config::{Conditions, FieldCondition, MapCondition, Route};
use sendoff_setting_values::{At, FieldTest, List, Map, MapName, MapTest, Place, Word};

use super::Routes;
use crate::keys;

/// The conditions of a route.
pub(super) fn conditions(section: &keys::Route) -> Conditions {
    fn list<T>(at: Option<&At<List<T>>>, text: impl Fn(&T) -> String) -> Vec<String> {
        at.iter().flat_map(|at| at.value.values()).map(text).collect()
    }
    fn fields<K: Word>(map: Option<&At<Map<K, List<FieldTest>>>>) -> Vec<FieldCondition> {
        let pairs = map.iter().flat_map(|map| &map.value.0);
        let tests =
            pairs.flat_map(|(name, tests)| tests.value.values().map(move |test| (name, test)));
        tests.map(|(name, test)| field(name.value.text(), test)).collect()
    }
    Conditions {
        paths: list(section.path.as_ref(), |path| path.0.clone()),
        prefixes: list(section.prefix.as_ref(), |prefix| prefix.0.clone()),
        extensions: list(section.extension.as_ref(), |ending| ending.0.clone()),
        expression: section.matching.as_ref().map(|at| at.value.text.clone()),
        methods: list(section.method.as_ref(), |method| method.0.clone()),
        headers: fields(section.header.as_ref()),
        query: fields(section.query.as_ref()),
        when: section.when.iter().flat_map(|map| &map.value.0).map(map_condition).collect(),
    }
}

fn field(name: String, test: &FieldTest) -> FieldCondition {
    match test {
        FieldTest::There(there) => FieldCondition { name, value: None, negated: !there },
        FieldTest::Matches(expression, matches) => {
            let value = Some(expression.text.clone());
            FieldCondition { name, value, negated: !matches }
        }
    }
}

fn map_condition((name, tests): &(At<MapName>, At<List<MapTest>>)) -> MapCondition {
    let tests = tests.value.values().map(|test| match test {
        MapTest::Is(text) => sendoff_config::MapTest::Is(text.clone()),
        MapTest::IsNot(text) => sendoff_config::MapTest::IsNot(text.clone()),
        MapTest::Filled(true) => sendoff_config::MapTest::Filled,
        MapTest::Filled(false) => sendoff_config::MapTest::Empty,
    });
    MapCondition { map: name.value.0.clone(), tests: tests.collect() }
}

impl Routes<'_, '_> {
    /// Warns of routes that no request can reach, because an earlier route answers all of their
    /// requests.
    pub(super) fn reachable(&mut self, sections: &[keys::Route], routes: &[Route]) {
        let mut answering: Vec<(&Conditions, Place)> = Vec::new();
        let mut end: Option<Place> = None;
        for (section, route) in sections.iter().zip(routes) {
            let before = end.or_else(|| {
                let concerned = &route.conditions;
                let found = answering.iter().find(|(earlier, _)| covers(earlier, concerned));
                found.map(|(_, place)| *place)
            });
            if let Some(place) = before {
                self.context
                    .problems
                    .warning(section.place, "no request reaches this route")
                    .other(place, "this one answers before it")
                    .help("the first route that concerns a request answers it: move this one up");
            }
            if route.handler.is_none() || section.broken {
                continue;
            }
            if route.conditions == Conditions::default() {
                end = end.or(Some(section.place));
            } else if is_by_path_alone(&route.conditions) {
                answering.push((&route.conditions, section.place));
            }
        }
    }
}

/// True if all conditions are paths or all are prefixes.
fn is_by_path_alone(conditions: &Conditions) -> bool {
    let paths = conditions.paths.clone();
    let prefixes = conditions.prefixes.clone();
    // One of both: if both are given, both must hold.
    paths.is_empty() != prefixes.is_empty()
        && *conditions == Conditions { paths, prefixes, ..Conditions::default() }
}

/// True if every request that fulfils `other` also fulfils `earlier`, whose conditions are paths
/// alone.
fn covers(earlier: &Conditions, other: &Conditions) -> bool {
    let holds = |path: &String| {
        earlier.paths.contains(path)
            || earlier.prefixes.iter().any(|prefix| {
                path.strip_prefix(prefix.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    };
    if !other.paths.is_empty() {
        return other.paths.iter().all(holds);
    }
    !other.prefixes.is_empty() && earlier.paths.is_empty() && other.prefixes.iter().all(holds)
}
