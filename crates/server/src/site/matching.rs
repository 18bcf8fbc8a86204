//! The conditions of routes.

use http::{HeaderMap, HeaderName, Method};
use pcre2::bytes::{Regex, RegexBuilder};
use percent_encoding::percent_decode;
use sendoff_config::{Clients, FieldCondition, Network};

use super::protect::has_ending;
use super::text::Groups;
use crate::request::{Endpoint, Request};

/// Steps that one match may take, so that no path keeps the event loop busy. PCRE2's own limit is 10,000,000, which is a tenth of
/// a second.
const MATCH_LIMIT: u32 = 100_000;

/// An expression could not be evaluated: the path would take too many steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooHard(pub(crate) String);

/// Compiles an expression.
///
/// # Errors
/// It is no PCRE2 expression; the error says where.
pub(super) fn compile(expression: &str) -> Result<Regex, String> {
    let limited = format!("(*LIMIT_MATCH={MATCH_LIMIT}){expression}");
    let compiled = RegexBuilder::new().dotall(true).jit_if_available(true).build(&limited);
    compiled.map_err(|error| format!("{expression:?}: {error}"))
}

/// The conditions of one route.
#[derive(Debug)]
pub(super) struct Conditions {
    paths: Vec<Vec<u8>>,
    prefixes: Vec<Vec<u8>>,
    extensions: Vec<Vec<u8>>,
    expression: Option<Regex>,
    methods: Vec<String>,
    headers: Vec<Field>,
    query: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    value: Option<Regex>,
    negated: bool,
}

impl Field {
    fn compile(condition: &FieldCondition) -> Result<Self, String> {
        let value = condition.value.as_deref().map(compile).transpose()?;
        Ok(Self { name: condition.name.clone(), value, negated: condition.negated })
    }

    /// Whether one of the values meets the condition.
    fn holds<'v>(&self, values: impl Iterator<Item = &'v [u8]>) -> Result<bool, TooHard> {
        for value in values {
            if self.value.as_ref().map_or(Ok(true), |expression| is_match(expression, value))? {
                return Ok(!self.negated);
            }
        }
        Ok(self.negated)
    }
}

/// What of a route the path of a request matched.
#[derive(Debug, Default)]
pub(super) struct Matched {
    pub(super) groups: Groups,
    /// The length of the prefix.
    pub(super) prefix: usize,
}

impl Conditions {
    pub(super) fn compile(config: &sendoff_config::Conditions) -> Result<Self, String> {
        let bytes = |texts: &[String]| texts.iter().map(|text| text.clone().into_bytes()).collect();
        let fields = |conditions: &[FieldCondition]| {
            conditions.iter().map(Field::compile).collect::<Result<_, _>>()
        };
        Ok(Self {
            paths: bytes(&config.paths),
            prefixes: bytes(&config.prefixes),
            extensions: bytes(&config.extensions),
            expression: config.expression.as_deref().map(compile).transpose()?,
            methods: config.methods.clone(),
            headers: fields(&config.headers)?,
            query: fields(&config.query)?,
        })
    }

    /// What the request matched, or `None` if a condition does not hold.
    pub(super) fn matches(&self, request: &Request) -> Result<Option<Matched>, TooHard> {
        let path = &request.path[..];
        let mut matched = Matched::default();
        if !self.paths.is_empty() && !self.paths.iter().any(|known| known == path) {
            return Ok(None);
        }
        if !self.prefixes.is_empty() {
            let Some(prefix) = self.prefixes.iter().find(|prefix| contains(prefix, path)) else {
                return Ok(None);
            };
            matched.prefix = prefix.len();
        }
        let has_ending = |ending: &Vec<u8>| has_ending(path, ending);
        if !self.extensions.is_empty() && !self.extensions.iter().any(has_ending) {
            return Ok(None);
        }
        if !self.methods.is_empty() && !self.methods.iter().any(|m| is_method(m, &request.method)) {
            return Ok(None);
        }
        for field in &self.headers {
            if !field.holds(values(&request.headers, &field.name))? {
                return Ok(None);
            }
        }
        for parameter in &self.query {
            let query = request.query.as_deref().unwrap_or_default();
            if !parameter.holds(parameters(query, parameter.name.as_bytes()))? {
                return Ok(None);
            }
        }
        if let Some(expression) = &self.expression {
            let Some(groups) = groups(expression, path)? else { return Ok(None) };
            matched.groups = groups;
        }
        Ok(Some(matched))
    }
}

/// Whether a folder contains a path, or is it.
pub(super) fn contains(folder: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn is_method(name: &str, method: &Method) -> bool {
    name == method.as_str() || (name == "GET" && method == Method::HEAD)
}

fn values<'m>(headers: &'m HeaderMap, name: &str) -> impl Iterator<Item = &'m [u8]> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok();
    let all = name.map(|name| headers.get_all(name).into_iter());
    all.into_iter().flatten().map(http::HeaderValue::as_bytes)
}

/// The values of a parameter, as they stand in the query string. Names are compared decoded, as PHP reads them.
fn parameters<'q>(query: &'q [u8], name: &[u8]) -> impl Iterator<Item = &'q [u8]> {
    query.split(|&b| b == b'&').filter_map(move |pair| {
        let end = pair.iter().position(|&b| b == b'=').unwrap_or(pair.len());
        let is_named = percent_decode(&pair[..end]).eq(name.iter().copied());
        is_named.then(|| pair.get(end + 1..).unwrap_or_default())
    })
}

fn is_match(expression: &Regex, subject: &[u8]) -> Result<bool, TooHard> {
    expression.is_match(subject).map_err(|error| too_hard(expression, &error))
}

/// The groups of the first match.
fn groups(expression: &Regex, subject: &[u8]) -> Result<Option<Groups>, TooHard> {
    let captures = expression.captures(subject).map_err(|error| too_hard(expression, &error))?;
    Ok(captures.map(|captures| {
        let range = |number| captures.get(number).map(|group| group.start()..group.end());
        let ranges = (0..captures.len().min(10)).map(range).collect();
        Groups { subject: subject.to_vec(), ranges }
    }))
}

fn too_hard(expression: &Regex, error: &pcre2::Error) -> TooHard {
    TooHard(format!("the expression {:?} cannot be evaluated: {error}", expression.as_str()))
}

/// Whether a client may ask. The longest network that contains its address decides; a client on a UNIX socket has none.
pub(super) fn may_ask(clients: &Clients, client: &Endpoint) -> bool {
    let Endpoint::Ip(address) = client else { return clients.otherwise };
    let address = address.ip().to_canonical();
    let longest = |networks: &[Network]| {
        let containing = networks.iter().filter(|network| network.contains(address));
        containing.map(|network| network.prefix).max()
    };
    match (longest(&clients.allow), longest(&clients.deny)) {
        (Some(allow), Some(deny)) => allow > deny,
        (Some(_), None) => true,
        (None, Some(_)) => false,
        (None, None) => clients.otherwise,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(text: &str) -> Network {
        let (address, prefix) = text.split_once('/').unwrap();
        Network { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    fn client(address: &str) -> Endpoint {
        let address: IpAddr = address.parse().unwrap();
        Endpoint::Ip((address, 1).into())
    }

    #[test]
    fn the_longest_network_decides() {
        let clients = Clients {
            allow: vec![network("10.1.0.0/16"), network("2001:db8::/32")],
            deny: vec![network("10.0.0.0/8"), network("10.1.2.0/24"), network("0.0.0.0/0")],
            otherwise: false,
        };
        for (address, may) in [
            ("10.1.1.1", true),
            ("10.1.2.3", false),
            ("10.2.0.1", false),
            ("192.0.2.1", false),
            ("::ffff:10.1.1.1", true),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(may_ask(&clients, &client(address)), may, "{address}");
        }
        let open = Clients { allow: vec![], deny: vec![network("192.0.2.0/24")], otherwise: true };
        assert!(may_ask(&open, &client("192.0.3.1")));
        assert!(!may_ask(&open, &client("192.0.2.1")));
    }

    #[test]
    fn an_expression_that_takes_too_long_is_an_error_and_no_mismatch() {
        let expression = compile("^(a+)+$").unwrap();
        let path = [b"/".to_vec(), b"a".repeat(5000), b"!".to_vec()].concat();
        assert!(is_match(&expression, &path[1..]).is_err());
        assert!(compile("(").is_err());
    }

    #[test]
    fn parameters_are_found_by_their_whole_name() {
        let found = |query: &'static str| -> Vec<_> {
            parameters(query.as_bytes(), b"a").map(|value| str::from_utf8(value).unwrap()).collect()
        };
        assert_eq!(found("a=1&ab=2&a&xa=3&a=&%61=4"), ["1", "", "", "4"]);
        assert!(found("").is_empty());
    }
}
