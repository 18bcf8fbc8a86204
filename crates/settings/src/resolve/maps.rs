//! Maps of sites, and the routes that use them.

use std::collections::HashMap;

use sendoff_config::{MapPattern, MapRow, MapSource, RequestMap};
use sendoff_setting_values::{
    At, Client, MapName, MapPattern as Pattern, MapSource as From, MapTest, MapValue, Place, Scope,
    Template, Word, similar,
};

use super::context::{Context, unusable};
use super::route::texts;
use crate::keys;

/// The most expressions of one map: each may be tried for each request, and together they may take
/// 10,000,000 steps (`site/maps/rows.rs`), a tenth of a second.
const MAX_EXPRESSIONS: usize = 1000;

/// The most values of a map in a message.
const SHOWN: usize = 8;

impl Context<'_> {
    /// The maps of a site. Its routes and its access log must name no others.
    pub(crate) fn maps(&mut self, site: &keys::Site, top: &keys::Top) -> Vec<RequestMap> {
        let sections = &site.map.value.0;
        let maps = sections.iter().filter_map(|(name, section)| self.map(name, section)).collect();
        let own = site.access_log_format.as_ref().map(|at| (at.value.resolved(), at.place));
        let logged = own.iter().flat_map(|(format, place)| {
            format.maps().map(|name| Use { name, place: *place, compared: None })
        });
        let uses: Vec<_> = site.route.value.0.iter().flat_map(uses).chain(logged).collect();
        for used in &uses {
            self.is_possible(used, sections);
        }
        // The format for all sites may name maps that only some of them have.
        let shared = top.access_log_format.value.resolved();
        for (name, section) in sections {
            let is_used = uses
                .iter()
                .map(|used| used.name)
                .chain(shared.maps())
                .any(|used| used == name.value.0);
            if !section.broken && !is_used {
                let name = &name.value.0;
                self.problems
                    .warning(section.place, format!("no route uses the map {name}"))
                    .help(format!(
                        "compare it, when = {{ {name} = \"VALUE\" }}, or write $map_{name} in a text"
                    ));
            }
        }
        maps
    }

    fn map(&mut self, name: &At<MapName>, section: &keys::RequestMap) -> Option<RequestMap> {
        let Some(from) = &section.from else {
            if !section.broken {
                self.problems
                    .error(section.place, format!("the map {} has no from", name.value.0))
                    .help("from is the part of the request that it is about: from = \"cookie:version\"");
            }
            return None;
        };
        let source = self.source(from, section)?;
        self.groups_exist(section);
        let rows = section.values.iter().flat_map(|map| &map.value.0);
        let rows = rows.map(|(pattern, value)| {
            let pattern = self.pattern(&from.value, pattern)?;
            Some(MapRow { pattern, value: value.value.0.text.clone() })
        });
        let rows: Vec<_> = rows.collect::<Vec<_>>().into_iter().flatten().collect();
        self.rows_are_possible(section, &rows);
        Some(RequestMap {
            name: name.value.0.clone(),
            source,
            rows,
            default: section.default.value.0.text.clone(),
        })
    }

    fn source(&mut self, from: &At<From>, section: &keys::RequestMap) -> Option<MapSource> {
        if let (Some(database), false) = (&section.database, from.value == From::Country) {
            self.problems
                .error(database.place, "database has a meaning only with from = \"country\"")
                .other(from.place, "this map is about another part");
        }
        Some(match &from.value {
            From::Header(name) => MapSource::Header(name.0.clone()),
            From::Cookie(name) => MapSource::Cookie(name.0.clone()),
            From::Query(name) => MapSource::Query(name.0.clone()),
            From::Client => MapSource::Client,
            From::Host => MapSource::Host,
            From::Path => MapSource::Path,
            From::Method => MapSource::Method,
            From::Scheme => MapSource::Scheme,
            From::Country => self.country(from.place, section)?,
        })
    }

    fn country(&mut self, from: Place, section: &keys::RequestMap) -> Option<MapSource> {
        let Some(database) = &section.database else {
            self.problems.error(from, "the database of countries is missing").help(
                "database names a file in MaxMind's format: database = \"/var/lib/GeoIP/GeoLite2-Country.mmdb\"",
            );
            return None;
        };
        let path = &database.value.0;
        let found = self.machine.country_database(path);
        let found = found
            .and_then(|()| self.machine.file_version(path).map_err(|error| unusable(path, &error)));
        match found {
            Ok(version) => Some(MapSource::Country { database: path.clone(), version }),
            Err(says) => {
                self.problems.error(database.place, says).help(
                    "it is a file such as GeoLite2-Country.mmdb, which geoipupdate fetches, and must be readable for the user of the server",
                );
                None
            }
        }
    }

    fn pattern(&mut self, from: &From, pattern: &At<Pattern>) -> Option<MapPattern> {
        let place = pattern.place;
        let text = match &pattern.value {
            Pattern::Expression(_) if matches!(from, From::Client | From::Country) => {
                let what = if *from == From::Client { "networks" } else { "countries" };
                self.problems
                    .error(place, format!("the rows of this map have {what}, not expressions"));
                return None;
            }
            Pattern::Expression(expression) => {
                return Some(MapPattern::Expression(expression.text.clone()));
            }
            Pattern::Text(text) => text,
        };
        match from {
            From::Client => {
                let folder = std::path::Path::new("/");
                match Client::parse(text, &Scope { folder }) {
                    Ok(client) => Some(MapPattern::Network(client.0)),
                    Err(wrong) => {
                        let problem = self.problems.error(place, wrong.says);
                        if let Some(help) = wrong.help {
                            problem.help(help);
                        }
                        None
                    }
                }
            }
            From::Country if !is_country(text) => {
                self.problems.error(place, format!("\"{text}\" is not a country")).help(
                    "a country is two letters (ISO 3166), such as DE; \"\" is an address without a known country",
                );
                None
            }
            From::Host => Some(match text.strip_prefix('*') {
                Some(ending) if ending.starts_with('.') && ending.len() > 1 => {
                    MapPattern::Beneath(ending.to_ascii_lowercase())
                }
                _ => {
                    self.host_is_bare(text, place);
                    MapPattern::Text(text.clone())
                }
            }),
            _ => Some(MapPattern::Text(text.clone())),
        }
    }

    /// Reports a host with a port or a scheme, or with a star in the middle: no request names such
    /// a host.
    fn host_is_bare(&mut self, text: &str, place: Place) {
        let has_port = text.contains(':') && !text.starts_with('[');
        if has_port || text.contains(['*', '/']) {
            self.problems
                .error(place, format!("no host has the name \"{text}\""))
                .help("a host has no scheme and no port; *.example.org stands for all names below, ~ begins an expression");
        }
    }

    /// Checks that the expression of each row has the groups that its value names.
    fn groups_exist(&mut self, section: &keys::RequestMap) {
        let default = &section.default;
        for (pattern, value) in section.values.iter().flat_map(|map| &map.value.0) {
            let groups = match &pattern.value {
                Pattern::Text(_) => 0,
                Pattern::Expression(expression) => expression.groups,
            };
            if value.value.0.group > groups {
                let says = format!("there is no group ${}", value.value.0.group);
                let problem = self.problems.error(value.place, says);
                problem.other(
                    pattern.place,
                    match groups {
                        0 => "the pattern has none; $0 is the whole".to_owned(),
                        groups => format!("the expression has {groups}"),
                    },
                );
            }
        }
        let MapValue(Template { group, text, .. }) = &default.value;
        if *group > 0 || text.replace("$$", "").contains("$0") {
            self.problems
                .error(default.place, "the default has no pattern whose groups it could contain")
                .help(
                    "name the part of the request, as $path, or add a row with the pattern '~.*'",
                );
        }
    }

    /// Reports rows that cannot be reached, and too many expressions.
    fn rows_are_possible(&mut self, section: &keys::RequestMap, rows: &[MapRow]) {
        let Some(values) = &section.values else {
            if !section.broken {
                self.problems
                    .warning(section.place, "this map has no rows, so its value is the default")
                    .help("add rows: values = { \"beta\" = \"new\" }");
            }
            return;
        };
        let expressions =
            rows.iter().filter(|row| matches!(row.pattern, MapPattern::Expression(_))).count();
        if expressions > MAX_EXPRESSIONS {
            self.problems
                .error(values.place, format!("a map may have {MAX_EXPRESSIONS} expressions"))
                .help("texts are found at once, however many there are; several words fit into one expression: '~(?i)one|two'");
        }
        let mut known: HashMap<String, Place> = HashMap::new();
        for (pattern, _) in &values.value.0 {
            let Pattern::Text(text) = &pattern.value else { continue };
            if let Some(first) = known.insert(text.to_ascii_lowercase(), pattern.place) {
                self.problems
                    .error(pattern.place, "this text stands twice in the map")
                    .other(first, "the other one; small and capital letters are the same");
            }
        }
    }

    /// Reports a map that the site does not have, and a value that its map never has.
    fn is_possible(&mut self, used: &Use<'_>, sections: &[(At<MapName>, keys::RequestMap)]) {
        let Use { name, place, compared } = *used;
        let names = || sections.iter().map(|(name, _)| &*name.value.0);
        let Some((known, section)) = sections.iter().find(|(known, _)| known.value.0 == name)
        else {
            let says = format!("this site has no map {name}");
            let help = match similar(name, names()) {
                Some(similar) => format!("did you mean {similar}?"),
                None if sections.is_empty() => {
                    format!("write [site.map.{name}] behind the keys of this [[site]]")
                }
                None => format!("it has {}", names().collect::<Vec<_>>().join(", ")),
            };
            self.problems.error(place, says).help(help);
            return;
        };
        let (Some(compared), false) = (compared, section.broken) else { return };
        let rows = section.values.iter().flat_map(|map| &map.value.0);
        let mut values: Vec<_> = rows.map(|(_, value)| &*value.value.0.text).collect();
        values.push(&section.default.value.0.text);
        // A value with a part of the request may become any text.
        if values.iter().any(|value| value.contains('$')) || values.contains(&compared) {
            return;
        }
        let help = match similar(compared, values.iter().copied()) {
            Some(similar) => format!("did you mean \"{similar}\"?"),
            None => {
                values.dedup();
                let shown: Vec<_> = values.iter().take(SHOWN).map(|v| format!("\"{v}\"")).collect();
                let more = if values.len() > SHOWN { " and others" } else { "" };
                format!("its values are {}{more}", shown.join(", "))
            }
        };
        self.problems
            .error(place, format!("the map {name} never has the value \"{compared}\""))
            .other(known.place, "the map")
            .help(help);
    }
}

fn is_country(text: &str) -> bool {
    text.is_empty() || text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The use of a map by a route.
struct Use<'s> {
    name: &'s str,
    place: Place,
    /// The value that it is compared with; `None`: any.
    compared: Option<&'s str>,
}

/// The uses of maps by a route.
fn uses(section: &keys::Route) -> Vec<Use<'_>> {
    let conditions = section.when.iter().flat_map(|map| &map.value.0);
    let compared = conditions.flat_map(|(name, tests)| {
        tests.value.0.iter().map(move |test| {
            let compared = match &test.value {
                MapTest::Is(text) | MapTest::IsNot(text) => Some(&**text),
                MapTest::Filled(_) => None,
            };
            let place = if compared.is_some() { test.place } else { name.place };
            Use { name: &name.value.0, place, compared }
        })
    });
    let texts = texts(section).into_iter().flat_map(|(text, place)| {
        text.maps.iter().map(move |name| Use { name, place, compared: None })
    });
    let limit = section.limit_by.iter();
    let limit = limit.map(|at| Use { name: &at.value.0, place: at.place, compared: None });
    compared.chain(texts).chain(limit).collect()
}
