//! The texts of routes, which contain parts of requests.

use sendoff_config::HeaderRule;
use sendoff_setting_values::{At, Change, HeaderOp, HeaderText, Map, Place, Template};

use super::Routes;
use crate::keys;

/// The texts of a route that may contain parts of requests, and their places.
pub(in crate::resolve) fn texts(section: &keys::Route) -> Vec<(&Template, Place)> {
    let headers = [&section.request_headers, &section.response_headers];
    let headers = headers.into_iter().flatten().flat_map(|map| &map.value.0);
    let headers = headers.filter_map(|(_, text)| match &text.value {
        HeaderText::Values(values) => Some(&values.0),
        HeaderText::Remove => None,
    });
    let params = section.params.iter().flat_map(|map| &map.value.0).map(|(_, text)| text);
    let tried = section.try_files.iter().flat_map(|list| &list.value.0);
    params
        .chain(headers.flatten())
        .chain(&section.respond)
        .map(|text| (&text.value, text.place))
        .chain(section.redirect.iter().map(|text| (&text.value.0, text.place)))
        .chain(section.rewrite.iter().map(|text| (&text.value.0, text.place)))
        .chain(tried.map(|text| (&text.value.0, text.place)))
        .collect()
}

/// Changes of a header section.
pub(super) fn header_rules(map: Option<&At<Map<HeaderOp, HeaderText>>>) -> Vec<HeaderRule> {
    let mut rules = Vec::new();
    for (op, text) in map.iter().flat_map(|map| &map.value.0) {
        let HeaderOp { change, name } = &op.value;
        let HeaderText::Values(values) = &text.value else {
            rules.push(HeaderRule::Remove(name.clone()));
            continue;
        };
        for (number, value) in values.values().enumerate() {
            let (name, text) = (name.clone(), value.text.clone());
            rules.push(match change {
                Change::Set if number == 0 => HeaderRule::Set(name, text),
                Change::Set | Change::Add => HeaderRule::Add(name, text),
                Change::Default => HeaderRule::Default(name, text),
            });
        }
    }
    rules
}

impl Routes<'_, '_> {
    /// Checks that the expression has the groups that texts name.
    pub(super) fn groups_exist(&mut self, section: &keys::Route) {
        let groups = section.matching.as_ref().map(|at| at.value.groups);
        // The value that could not be read may be the expression.
        if section.broken && groups.is_none() {
            return;
        }
        for (Template { group, .. }, place) in texts(section) {
            let group = *group;
            let (says, help) = match groups {
                Some(groups) if group <= groups => continue,
                None if group == 0 => continue,
                None => (
                    format!("${group} stands for a group of match, but there is no match"),
                    "add match = '...(...)...', or write $$ for a dollar sign".to_owned(),
                ),
                Some(0) => (
                    format!("${group} stands for a group, but the expression has none"),
                    "put parentheses around the part that is meant".to_owned(),
                ),
                Some(groups) => {
                    (format!("there is no group ${group}"), format!("the expression has {groups}"))
                }
            };
            let problem = self.context.problems.error(place, says);
            problem.help(help);
            if let Some(matching) = &section.matching {
                problem.other(matching.place, "the expression");
            }
        }
    }
}
