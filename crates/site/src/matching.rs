//! The conditions of routes.

use std::borrow::Cow;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pcre2::bytes::{Regex, RegexBuilder};
use sendoff_config::url_path::{contains, has_ending};
use sendoff_config::{Clients, FieldCondition, Network};
use sendoff_message::request::variables::{
    ParameterName, and_trimmed, cookie_texts, joined_cookies,
};
use sendoff_message::request::{Endpoint, Request};

use super::effects::CountedBy;
use super::maps::{Maps, When};
use super::text::{Captured, Groups};

/// The most steps of one match, so that no path occupies the event loop. PCRE2's own limit of
/// 10,000,000 steps takes a tenth of a second.
pub(super) const MATCH_LIMIT: u32 = 100_000;

/// An expression could not be evaluated, because the path would take too many steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TooHard(pub(crate) String);

/// Compiles an expression.
///
/// # Errors
/// It is not a valid PCRE2 expression; the error names the position.
pub(super) fn compile(expression: &str) -> Result<Regex, String> {
    compile_with(expression, MATCH_LIMIT)
}

/// Compiles an expression whose matches may take this number of steps.
///
/// # Errors
/// As [`compile`].
pub(super) fn compile_with(expression: &str, steps: u32) -> Result<Regex, String> {
    let limited = format!("(*LIMIT_MATCH={steps}){expression}");
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
    query: Vec<Parameter>,
    pub(super) when: Vec<When>,
}

/// A condition about a request field.
#[derive(Debug)]
struct Field {
    name: Option<HeaderName>,
    test: Test,
}

/// A condition about a parameter of the query.
#[derive(Debug)]
struct Parameter {
    name: ParameterName,
    test: Test,
}

#[derive(Debug)]
struct Test {
    /// `None`: any value meets the condition.
    value: Option<Regex>,
    negated: bool,
}

impl Test {
    fn compile(condition: &FieldCondition) -> Result<Self, String> {
        let value = condition.value.as_deref().map(compile).transpose()?;
        Ok(Self { value, negated: condition.negated })
    }

    fn is_met_by(&self, value: &[u8]) -> Result<bool, TooHard> {
        self.value.as_ref().map_or(Ok(true), |expression| is_match(expression, value))
    }
}

/// The readings of a request in which a condition holds: applications disagree on which of several
/// values counts, and on spellings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    Never,
    /// In some: a route applies, but an application may read the request otherwise.
    Sometimes,
    Always,
}

impl Holding {
    /// From the readings in which it holds and in which it fails. Requests always have a reading.
    fn new(holds: bool, fails: bool) -> Self {
        match (holds, fails) {
            (false, _) => Self::Never,
            (true, true) => Self::Sometimes,
            (true, false) => Self::Always,
        }
    }
}

impl Field {
    fn compile(condition: &FieldCondition) -> Result<Self, String> {
        let name = HeaderName::from_bytes(condition.name.as_bytes()).ok();
        Ok(Self { name, test: Test::compile(condition)? })
    }

    /// Of several fields, applications read one or all as one text (RFC 9110 §5.3). Some strip white
    /// space of ISO 8859-1 from it, which is a part of the value here.
    fn holding(&self, headers: &HeaderMap) -> Result<Holding, TooHard> {
        let negated = self.test.negated;
        let values = self.name.iter().flat_map(|name| headers.get_all(name));
        let values: Vec<_> = values.map(HeaderValue::as_bytes).collect();
        if values.is_empty() {
            return Ok(Holding::new(negated, !negated));
        }
        if self.name == Some(COOKIE) {
            let is_met = self.is_met_by_cookies(&values)?;
            return Ok(Holding::new(is_met != negated, is_met == negated));
        }
        let joined = (values.len() > 1).then(|| values.join(&b", "[..]));
        let (mut holds, mut fails) = (false, false);
        let values = values.into_iter().chain(joined.as_deref()).map(Cow::Borrowed);
        for value in values.flat_map(and_trimmed) {
            let is_met = self.test.is_met_by(&value)?;
            holds |= is_met != negated;
            fails |= is_met == negated;
        }
        Ok(Holding::new(holds, fails))
    }

    /// True if an application may read cookies that meet the condition. A negated condition holds
    /// if no application does: it mostly opens something to requests without a cookie, such as the
    /// caches between server and client, and a client may leave out any cookie.
    fn is_met_by_cookies(&self, fields: &[&[u8]]) -> Result<bool, TooHard> {
        for field in fields {
            if self.test.is_met_by(field)? {
                return Ok(true);
            }
        }
        let joined = joined_cookies(fields.iter().copied());
        let mut known = vec![joined.to_vec()];
        if fields.len() > 1 && self.test.is_met_by(&joined)? {
            return Ok(true);
        }
        for text in cookie_texts(&joined) {
            if known.contains(&text) {
                continue;
            }
            if self.test.is_met_by(&text)? {
                return Ok(true);
            }
            known.push(text);
        }
        Ok(false)
    }
}

impl Parameter {
    fn compile(condition: &FieldCondition) -> Result<Self, String> {
        Ok(Self { name: ParameterName::new(&condition.name), test: Test::compile(condition)? })
    }

    fn holding(&self, query: &[u8]) -> Result<Holding, TooHard> {
        let (met, missed) = (|| self.is_met_by(query), || self.is_missed_by(query));
        Ok(match self.test.negated {
            false if met()? => Holding::new(true, missed()?),
            true if missed()? => Holding::new(true, met()?),
            _ => Holding::Never,
        })
    }

    /// True if an application may read a value that meets the condition.
    fn is_met_by(&self, query: &[u8]) -> Result<bool, TooHard> {
        for value in self.name.any_values(query) {
            if self.test.is_met_by(&value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if an application may read another value, or none. Values that are not decoded do not
    /// count, or every `%` and `+` of a browser would make another value.
    fn is_missed_by(&self, query: &[u8]) -> Result<bool, TooHard> {
        if self.name.may_be_missing(query) {
            return Ok(true);
        }
        for value in self.name.decoded_values(query) {
            let is_met = match value {
                Some(value) => self.test.is_met_by(&value)?,
                // An array has no value that an expression could match.
                None => self.test.value.is_none(),
            };
            if !is_met {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The parts of the request that a route has matched.
#[derive(Debug, Default)]
pub(super) struct Matched {
    pub(super) captured: Captured,
    /// The length of the matched prefix.
    pub(super) prefix: usize,
    /// A condition holds in some readings of the request only.
    pub(super) is_ambiguous: bool,
    /// The requests with which limits count this one.
    pub(super) counted_by: CountedBy,
}

impl Conditions {
    pub(super) fn compile(
        config: &sendoff_config::Conditions,
        maps: &Maps,
    ) -> Result<Self, String> {
        let bytes = |texts: &[String]| texts.iter().map(|text| text.clone().into_bytes()).collect();
        Ok(Self {
            paths: bytes(&config.paths),
            prefixes: bytes(&config.prefixes),
            extensions: bytes(&config.extensions),
            expression: config.expression.as_deref().map(compile).transpose()?,
            methods: config.methods.clone(),
            headers: config.headers.iter().map(Field::compile).collect::<Result<_, _>>()?,
            query: config.query.iter().map(Parameter::compile).collect::<Result<_, _>>()?,
            when: config
                .when
                .iter()
                .map(|when| When::compile(when, maps))
                .collect::<Result<_, _>>()?,
        })
    }

    /// True if the conditions may hold for requests by GET for this path.
    pub(super) fn may_hold_at(&self, path: &[u8]) -> bool {
        let paths = || self.paths.is_empty() || self.paths.iter().any(|known| known == path);
        let prefixes =
            || self.prefixes.is_empty() || self.prefixes.iter().any(|one| contains(one, path));
        let extensions = || {
            self.extensions.is_empty() || self.extensions.iter().any(|one| has_ending(path, one))
        };
        let method = || {
            self.methods.is_empty() || self.methods.iter().any(|one| is_method(one, &Method::GET))
        };
        let expression = || {
            let expression = self.expression.as_ref();
            // An error refuses the request.
            expression.is_none_or(|expression| is_match(expression, path).unwrap_or(true))
        };
        paths() && prefixes() && extensions() && method() && expression()
    }

    /// True if they depend on more than the address and the method.
    pub(super) fn depend_on_client(&self) -> bool {
        !self.headers.is_empty() || !self.when.is_empty()
    }

    /// True if one is about the path.
    pub(super) fn are_about_paths(&self) -> bool {
        let Self { paths, prefixes, extensions, expression, .. } = self;
        let lists = [paths, prefixes, extensions];
        lists.iter().any(|list| !list.is_empty()) || expression.is_some()
    }

    /// True if they hold for requests with some fields only.
    pub(super) fn are_about_fields(&self) -> bool {
        !self.headers.is_empty()
    }

    /// True if they hold for some clients only, at the same address.
    pub(super) fn tell_clients_apart(&self, maps: &Maps) -> bool {
        self.are_about_fields() || self.when.iter().any(|when| maps.tell_clients_apart(when.map))
    }

    /// The matched parts of the request; `None`: a condition does not hold.
    pub(super) fn matches(
        &self,
        request: &Request,
        maps: &Maps,
    ) -> Result<Option<Matched>, TooHard> {
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
        let query = request.query.as_deref().unwrap_or_default();
        let of_fields = self.headers.iter().map(|field| field.holding(&request.headers));
        for holding in of_fields.chain(self.query.iter().map(|one| one.holding(query))) {
            match holding? {
                Holding::Never => return Ok(None),
                Holding::Sometimes => matched.is_ambiguous = true,
                Holding::Always => {}
            }
        }
        if let Some(expression) = &self.expression {
            let Some(groups) = groups(expression, path)? else { return Ok(None) };
            matched.captured.groups = groups;
        }
        for when in &self.when {
            let mapped = maps.value(when.map, request)?;
            let others = maps.other_values(when.map, request)?;
            let all = [&mapped].into_iter().chain(&others);
            let holding = all.filter(|mapped| when.holds(mapped, request)).count();
            if holding == 0 {
                return Ok(None);
            }
            matched.is_ambiguous |= holding <= others.len();
            matched.captured.maps.push((when.map, mapped));
        }
        Ok(Some(matched))
    }
}

fn is_method(name: &str, method: &Method) -> bool {
    name == method.as_str() || (name == "GET" && method == Method::HEAD)
}

fn is_match(expression: &Regex, subject: &[u8]) -> Result<bool, TooHard> {
    expression.is_match(subject).map_err(|error| too_hard(expression, &error))
}

/// The groups of the first match.
pub(super) fn groups(expression: &Regex, subject: &[u8]) -> Result<Option<Groups>, TooHard> {
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

/// True if a client has access. The longest network that contains its address decides; a client on
/// a UNIX socket has no address.
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

    fn condition(name: &str, value: Option<&str>, negated: bool) -> FieldCondition {
        FieldCondition { name: name.into(), value: value.map(str::to_owned), negated }
    }

    /// The letters say in which readings a condition holds: none, some, all.
    #[test]
    fn of_several_values_and_readings_one_is_enough() {
        let holds = |value: Option<&str>, negated, query: &str| {
            let parameter = Parameter::compile(&condition("a", value, negated)).unwrap();
            match parameter.holding(query.as_bytes()).unwrap() {
                Holding::Never => 'n',
                Holding::Sometimes => 's',
                Holding::Always => 'a',
            }
        };
        for (query, expected) in [
            // `^1$`, `!^1$`, present, missing.
            ("a=1", "anan"),
            ("a=%31", "anan"),
            ("+a=1", "ssss"),
            ("a=1&a=2", "ssan"),
            ("a=2&a=1", "ssan"),
            ("a[]=1", "ssan"),
            ("a=2", "naan"),
            ("a=1%00", "ssan"),
            ("a=+1", "ssan"),
            ("a=%c2%a01%01", "ssan"),
            ("a=1+1", "naan"),
            ("a", "naan"),
            ("b=1", "nana"),
            ("", "nana"),
            ("[a]=1", "ssss"),
            ("a]=1", "ssss"),
            ("]a=1", "ssss"),
            ("a=1&[a]=2", "ssan"),
            ("a=1&x;a=2", "ssan"),
            ("a=1;a=2", "ssan"),
            ("a=1&a=%u0031", "ssan"),
            ("x;a=1", "ssss"),
            ("a=1&ab=2&[x][a]=3", "anan"),
        ] {
            let tests = [(Some("^1$"), false), (Some("^1$"), true), (None, false), (None, true)];
            let found: String =
                tests.map(|(value, negated)| holds(value, negated, query)).iter().collect();
            assert_eq!(found, expected, "{query}");
        }
    }

    #[test]
    fn of_several_fields_one_or_all_count() {
        let holding = |value: &str, negated, fields: &[&'static str]| {
            let field = Field::compile(&condition("x-debug", Some(value), negated)).unwrap();
            let name = || HeaderName::from_static("x-debug");
            let fields = fields.iter().map(|text| (name(), text.parse().unwrap()));
            field.holding(&fields.collect()).unwrap()
        };
        assert_eq!(holding("^1$", false, &["1"]), Holding::Always);
        assert_eq!(holding("^1$", true, &["1"]), Holding::Never);
        for fields in [["1", "2"], ["2", "1"], ["1", "1"]] {
            assert_eq!(holding("^1$", false, &fields), Holding::Sometimes, "{fields:?}");
            assert_eq!(holding("^1$", true, &fields), Holding::Sometimes, "{fields:?}");
        }
        assert_eq!(holding("^1, 2$", false, &["1", "2"]), Holding::Sometimes);
        assert_eq!(holding("^[1-9, ]+$", false, &["1", "2"]), Holding::Always);
        assert_eq!(holding("^1$", false, &[]), Holding::Never);
        assert_eq!(holding("^1$", true, &[]), Holding::Always);
        let blank = HeaderValue::from_bytes(b"\xa01\x85").unwrap();
        let field = Field::compile(&condition("x-debug", Some("^1$"), false)).unwrap();
        let headers = [(HeaderName::from_static("x-debug"), blank)].into_iter().collect();
        assert_eq!(field.holding(&headers).unwrap(), Holding::Sometimes);
    }

    #[test]
    fn cookies_are_compared_as_sent_and_as_applications_read_them() {
        let holds = |value: &str, negated, cookies: &[&'static str]| {
            let field = Field::compile(&condition("Cookie", Some(value), negated)).unwrap();
            let fields = cookies.iter().map(|text| (COOKIE, text.parse().unwrap()));
            field.holding(&fields.collect()).unwrap() != Holding::Never
        };
        for cookies in [&["a_b=1"][..], &["a.b=1"], &["x=y;\ta[b=1"], &["a b"], &["x=y", "a.b=1"]] {
            assert!(holds("(?:^|; )a_b=", false, cookies), "{cookies:?}");
            assert!(!holds("(?:^|; )a_b=", true, cookies), "{cookies:?}");
        }
        assert!(holds("a[.]b=%41", false, &["a.b=%41"]));
        assert!(holds("x=y; a=1", false, &["x=y", "a=1"]));
        for cookie in ["x=1 a=evil", "x=1\ta=evil", "x=1,a=evil", "a=\"evil\"", "x=1;a = evil"] {
            assert!(holds("(?:^|; )a=evil(?:;|$)", false, &[cookie]), "{cookie}");
            assert!(!holds("(?:^|; )a=evil(?:;|$)", true, &[cookie]), "{cookie}");
        }
        assert!(holds("^$", true, &[]) && !holds("^$", false, &[]));
    }
}
