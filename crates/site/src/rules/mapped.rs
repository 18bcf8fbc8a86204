//! Maps in routes: the values that a route needs, and the values on which a page depends.

use std::collections::BTreeSet;

use sendoff_message::request::{LimitKey, Request};

use super::{Candidate, CompiledHandler, CompiledRoute, CompiledRoutes, HeadChanges, Rewrite};
use super::{TextChange, UsedMaps};
use crate::effects::{CountedBy, Effects};
use crate::maps::Maps;
use crate::matching::{Matched, TooHard};
use crate::text::{MapNames, Text};

impl CompiledRoute {
    /// The maps that the texts of the route contain.
    pub(super) fn used_maps(&self) -> UsedMaps {
        let handler = match &self.handler {
            Some(CompiledHandler::Redirect { to, .. }) => Some(to),
            Some(CompiledHandler::Respond { body, .. }) => Some(body),
            _ => None,
        };
        let others = self.texts().chain(handler).flat_map(Text::maps);
        let for_application: Vec<_> =
            self.request_headers.iter().map(TextChange::text).flat_map(Text::maps).collect();
        let in_texts = distinct(for_application.iter().copied().chain(others).chain(self.limit_by));
        let conditions = self.conditions.when.iter().map(|when| when.map);
        let conditions = conditions.filter(|_| self.changes_request());
        UsedMaps { of_page: distinct(conditions.chain(for_application)), in_texts }
    }

    /// True if it may change the request for the application. Its scripts may change anything.
    fn changes_request(&self) -> bool {
        !self.request_headers.is_empty() || !self.lua.is_empty()
    }

    /// The texts by which it changes the path, parameters and the response, whatever its handler is.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Text> {
        let rewrites =
            self.rewrite.iter().chain(self.try_files.iter().filter_map(|one| match one {
                Candidate::Path(rewrite) => Some(rewrite),
                Candidate::Status(_) => None,
            }));
        let rewrites = rewrites.flat_map(|Rewrite { path, query }| [Some(path), query.as_ref()]);
        let response = match &self.response_headers {
            HeadChanges::Rendered(changes) => &changes[..],
            HeadChanges::None | HeadChanges::Fixed(_) => &[],
        };
        rewrites
            .flatten()
            .chain(response.iter().map(TextChange::text))
            .chain(self.params.iter().map(|(_, text)| text))
    }

    /// Adds the limits of the route. Requests for which the map that they are counted by has no
    /// value are not limited.
    pub(super) fn limit(&self, matched: &Matched, effects: &mut Effects) {
        effects.limit(self.id, &matched.counted_by, self.rate, self.concurrency);
    }

    /// The requests with which the limits of the route count this one: applications may read
    /// another value than the first, so each counts.
    fn counted_by(&self, request: &Request, maps: &Maps) -> Result<CountedBy, TooHard> {
        let Some(number) = self.limit_by else { return Ok(CountedBy::Client) };
        let first = maps.value(number, request)?;
        let others = maps.other_values(number, request)?;
        let values = [&first].into_iter().chain(&others).map(|mapped| mapped.value(request));
        let values: BTreeSet<_> = values.filter(|value| !value.is_empty()).collect();
        Ok(CountedBy::Values(values.iter().map(|value| LimitKey::of_value(value)).collect()))
    }

    /// The matched parts of a request with the values of the maps that the texts need.
    pub(super) fn with_maps(
        &self,
        mut matched: Matched,
        request: &Request,
        maps: &Maps,
    ) -> Result<Matched, TooHard> {
        for &number in &self.maps.in_texts {
            let known = &mut matched.captured.maps;
            if known.iter().all(|(one, _)| *one != number) {
                known.push((number, maps.value(number, request)?));
            }
        }
        matched.counted_by = self.counted_by(request, maps)?;
        Ok(matched)
    }

    /// Notes the conditions and the values of maps by which the pages of applications differ.
    pub(super) fn note_page(
        &self,
        maps: &Maps,
        request: &Request,
        matched: &Matched,
        effects: &mut Effects,
    ) {
        effects.is_ambiguous |= matched.is_ambiguous;
        if self.changes_request() && self.conditions.are_about_fields() {
            // Clients for whom the conditions do not hold get another page.
            effects.mapped.push((self.origin.clone(), Vec::new()));
        }
        for number in &self.maps.of_page {
            if let Some(mapped) = matched.captured.map(*number) {
                let value = (maps.name(*number).to_owned(), mapped.value(request));
                if !effects.mapped.contains(&value) {
                    effects.mapped.push(value);
                }
            }
        }
    }
}

impl CompiledRoutes {
    /// Names and values of the maps with these numbers. A map that cannot be evaluated has none.
    pub(crate) fn map_values(
        &self,
        numbers: &[usize],
        request: &Request,
    ) -> Vec<(String, Vec<u8>)> {
        let value = |number: &usize| {
            let mapped = self.maps.value(*number, request).ok()?;
            Some((self.maps.name(*number).to_owned(), mapped.value(request)))
        };
        numbers.iter().filter_map(value).collect()
    }
}

/// The number of the map by whose value requests are counted.
pub(super) fn limit_by(name: &str, maps: &Maps) -> Result<usize, String> {
    maps.number(name).ok_or_else(|| format!("there is no map {name}"))
}

fn distinct(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut numbers: Vec<_> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
