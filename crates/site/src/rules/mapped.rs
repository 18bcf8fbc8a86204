//! Maps in routes: the values that a route needs.

use std::collections::BTreeSet;

use sendoff_message::request::{LimitKey, Request};

use super::CompiledRoutes;
use super::changes::{HeadChanges, TextChange};
use super::handler::{Candidate, CompiledHandler, Rewrite};
use super::route::CompiledRoute;
use crate::effects::{CountedBy, Effects};
use crate::maps::Maps;
use crate::matching::{Matched, TooHard};
use crate::text::{MapNames, Text};

impl CompiledRoute {
    /// The maps that the texts of the route contain, and the map by which it counts requests.
    pub(super) fn used_maps(&self) -> Vec<usize> {
        let handler = match &self.handler {
            Some(CompiledHandler::Redirect { to, .. }) => Some(to),
            Some(CompiledHandler::Respond { body, .. }) => Some(body),
            _ => None,
        };
        let texts = self.request_headers.iter().map(TextChange::text).chain(self.texts());
        let used = texts.chain(handler).flat_map(Text::maps).chain(self.limit_by);
        used.collect::<BTreeSet<_>>().into_iter().collect()
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
        for &number in &self.maps {
            let known = &mut matched.captured.maps;
            if known.iter().all(|(one, _)| *one != number) {
                known.push((number, maps.value(number, request)?));
            }
        }
        matched.counted_by = self.counted_by(request, maps)?;
        Ok(matched)
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
