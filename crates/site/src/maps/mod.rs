//! Maps: values that a site derives from a request by tables (docs/maps.md).
//!
//! A map reads the request as it is when a route is tried, as the conditions of the route do. So a
//! route that protects a path by the value of a map also protects it from requests that rules lead
//! there.

mod countries;
mod rows;
mod source;

use std::io;
use std::rc::Rc;

use sendoff_config::{MapCondition, MapTest, RequestMap};
use sendoff_message::request::Request;

pub use countries::check as check_countries;
use rows::Rows;
use source::Source;

use crate::matching::TooHard;
use crate::text::{Captured, Groups, MapNames, Text, Use};

/// The most readings of one request beside the first: each may try all expressions of a map.
const MAX_READINGS: usize = 16;

/// The maps of a site, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Maps(Vec<CompiledMap>);

#[derive(Debug)]
struct CompiledMap {
    name: String,
    source: Source,
    rows: Rows,
    default: Rc<Row>,
    /// Its value may differ between clients that ask for the same address.
    tells_clients_apart: bool,
}

/// A row of a map, or its default.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The pattern, as the operator wrote it; `None`: the default.
    pattern: Option<Box<str>>,
    value: Text,
}

/// The value of a map for a request.
#[derive(Debug)]
pub(crate) struct Mapped {
    row: Rc<Row>,
    /// The part of the text that the pattern matched.
    captured: Captured,
}

impl Mapped {
    /// The text of the value, and the captured parts that it names.
    pub(crate) fn text(&self) -> (&Text, &Captured) {
        (&self.row.value, &self.captured)
    }

    /// The value as it is compared.
    pub(crate) fn value(&self, request: &Request) -> Vec<u8> {
        self.row.value.render(request, &self.captured, Use::Plain)
    }
}

impl Maps {
    /// Compiles the maps of a site.
    ///
    /// # Errors
    /// An expression is not valid, or a database cannot be read. The error names the map.
    pub(crate) fn compile(maps: &[RequestMap]) -> io::Result<Self> {
        maps.iter().map(CompiledMap::compile).collect::<Result<_, _>>().map(Self)
    }

    /// The value of the map with this number.
    pub(crate) fn value(&self, number: usize, request: &Request) -> Result<Mapped, TooHard> {
        let map = self.0.get(number);
        map.map_or_else(|| Ok(Mapped::empty()), |map| map.value(request))
    }

    /// The values for the other readings of the part that the map is about, without repetitions.
    pub(crate) fn other_values(
        &self,
        number: usize,
        request: &Request,
    ) -> Result<Vec<Mapped>, TooHard> {
        self.0.get(number).map_or_else(|| Ok(Vec::new()), |map| map.other_values(request))
    }

    /// True if the map with this number may have different values for clients that ask for the same
    /// address.
    pub(crate) fn tell_clients_apart(&self, number: usize) -> bool {
        self.0.get(number).is_some_and(|map| map.tells_clients_apart)
    }

    /// The name of the map with this number.
    pub(crate) fn name(&self, number: usize) -> &str {
        self.0.get(number).map_or("", |map| &map.name)
    }

    /// One line for each map, for `sendoff explain`.
    pub(crate) fn explain(&self, request: &Request) -> Vec<String> {
        self.0.iter().map(|map| map.explain(request)).collect()
    }
}

impl MapNames for Maps {
    fn number(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|map| map.name == name)
    }
}

impl Mapped {
    fn empty() -> Self {
        let row = Rc::new(Row { pattern: None, value: Text::default() });
        Self { row, captured: Captured::default() }
    }
}

impl CompiledMap {
    fn compile(map: &RequestMap) -> io::Result<Self> {
        let named = |error: String| io::Error::other(format!("map {}: {error}", map.name));
        let default = Rc::new(Row { pattern: None, value: Text::of_map(&map.default) });
        let source = Source::compile(&map.source).map_err(named)?;
        let mut values = map.rows.iter().map(|row| &row.value).chain([&map.default]);
        Ok(Self {
            name: map.name.clone(),
            tells_clients_apart: source.is_about_client()
                || values.any(|value| Text::of_map(value).shows_client(&Maps::default())),
            source,
            rows: Rows::compile(&map.rows).map_err(named)?,
            default,
        })
    }

    fn value(&self, request: &Request) -> Result<Mapped, TooHard> {
        match self.source.read(request) {
            source::Part::Text(text) => self.of_text(&text),
            source::Part::Address(address) => Ok(self.mapped(self.rows.of_address(address))),
        }
    }

    fn other_values(&self, request: &Request) -> Result<Vec<Mapped>, TooHard> {
        let readings = self.source.other_readings(request);
        if readings.len() > MAX_READINGS {
            let shown = self.source.shown();
            return Err(TooHard(format!("map {}: the request has {shown} too often", self.name)));
        }
        readings.iter().map(|text| self.of_text(text)).collect()
    }

    fn of_text(&self, text: &[u8]) -> Result<Mapped, TooHard> {
        let found = self.rows.of_text(text);
        let named = |TooHard(why)| TooHard(format!("map {}: {why}", self.name));
        found.map(|found| self.mapped(found)).map_err(named)
    }

    fn mapped(&self, found: Option<(Rc<Row>, Groups)>) -> Mapped {
        let (row, groups) = found.unwrap_or_else(|| (Rc::clone(&self.default), Groups::default()));
        Mapped { row, captured: Captured::of_value(groups) }
    }

    fn explain(&self, request: &Request) -> String {
        let Self { name, source, .. } = self;
        let shown = match source.read(request) {
            source::Part::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            source::Part::Address(Some(address)) => address.to_string(),
            source::Part::Address(None) => String::new(),
        };
        match self.value(request) {
            Err(TooHard(why)) => why,
            Ok(mapped) => {
                let value = String::from_utf8_lossy(&mapped.value(request)).into_owned();
                let by = match &mapped.row.pattern {
                    Some(pattern) => format!("row {pattern:?}"),
                    None => "no row, so the default".to_owned(),
                };
                let others = self.explain_others(request);
                format!("map {name} is {value:?}: {} is {shown:?}, {by}{others}", source.shown())
            }
        }
    }

    fn explain_others(&self, request: &Request) -> String {
        match self.other_values(request).as_deref() {
            Err(TooHard(why)) => format!("; {why}"),
            Ok([]) => String::new(),
            Ok(others) => {
                let text = |mapped: &Mapped| {
                    format!("{:?}", String::from_utf8_lossy(&mapped.value(request)))
                };
                let others = others.iter().map(text).collect::<Vec<_>>().join(", ");
                format!("; in other readings {others}")
            }
        }
    }
}

/// A condition of a route on the value of a map.
#[derive(Debug)]
pub(crate) struct When {
    pub(crate) map: usize,
    tests: Vec<MapTest>,
}

impl When {
    /// # Errors
    /// The site has no such map.
    pub(crate) fn compile(condition: &MapCondition, maps: &Maps) -> Result<Self, String> {
        let MapCondition { map: name, tests } = condition;
        let map = maps.number(name).ok_or_else(|| format!("there is no map {name}"))?;
        Ok(Self { map, tests: tests.clone() })
    }

    /// True if one of the tests holds for a value.
    pub(crate) fn holds(&self, mapped: &Mapped, request: &Request) -> bool {
        let value = mapped.value(request);
        self.tests.iter().any(|test| match test {
            MapTest::Is(text) => value == text.as_bytes(),
            MapTest::IsNot(text) => value != text.as_bytes(),
            MapTest::Filled => !value.is_empty(),
            MapTest::Empty => value.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests;
