//! `match` of a step.

use sendoff_convert_document::network;

use super::conditions::{Conditions, both};
use super::json::Node;
use super::pattern::{Subject, test};
use super::repeated::Repeated;

/// The listener and the host for which steps are converted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    /// True if the listener speaks TLS.
    pub(super) has_tls: bool,
    /// The listener's address, as it is written.
    pub(super) listener: &'a str,
    /// The host of the site; `None`: all that no other site has.
    pub(super) host: Option<&'a str>,
    /// The hosts of all sites of the listener.
    pub(super) hosts: &'a [String],
    /// True if the addresses of clients are those that Unit compares.
    pub(super) knows_clients: bool,
    /// True if a field may change the scheme.
    pub(super) has_forwarded_scheme: bool,
}

/// The requests of a step.
#[derive(Debug)]
pub(super) struct Matched {
    /// One of them must hold. Empty: no request is meant.
    pub(super) alternatives: Vec<Conditions>,
    pub(super) clients: Clients,
    /// A condition that cannot be expressed; the reason.
    pub(super) unknown: Option<(sendoff_convert_document::Place, String)>,
}

/// The addresses of the clients of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Clients {
    Everyone,
    From(Vec<String>),
    /// All but these.
    NotFrom(Vec<String>),
}

impl Matched {
    fn everything() -> Self {
        Self {
            alternatives: vec![Conditions::default()],
            clients: Clients::Everyone,
            unknown: None,
        }
    }

    fn never(&mut self) {
        self.alternatives.clear();
    }

    fn all(&mut self, change: impl Fn(&mut Conditions)) {
        self.alternatives.iter_mut().for_each(change);
    }

    pub(super) fn refuse(&mut self, node: &Node<'_>, why: impl Into<String>) {
        let why = format!("{} has no equal: {}", node.shown(), why.into());
        self.unknown.get_or_insert((node.place.clone(), why));
    }
}

/// Reads the `match` of a step.
pub(super) fn matched(step: &Node<'_>, around: &Around<'_>) -> Matched {
    let mut matched = Matched::everything();
    for (name, node) in step.get("match").iter().flat_map(Node::members) {
        match name {
            "uri" => uri(&node, &mut matched),
            "host" => host(&node, around, &mut matched),
            "method" => method(&node, &mut matched),
            "scheme" => scheme(&node, around, &mut matched),
            "source" => source(&node, around, &mut matched),
            "destination" => destination(&node, around, &mut matched),
            "headers" | "arguments" | "cookies" => table(name, &node, &mut matched),
            _ => matched.refuse(&node, "no condition is like it"),
        }
    }
    matched
}

fn uri(node: &Node<'_>, matched: &mut Matched) {
    match patterns(node, Subject::Path) {
        Ok(test) => matched.all(|conditions| conditions.add_path(test.clone())),
        Err(why) => matched.refuse(node, why),
    }
}

fn patterns(node: &Node<'_>, subject: Subject) -> Result<super::pattern::Test, String> {
    test(&node.texts().ok_or("it is no list of texts")?, subject)
}

fn host(node: &Node<'_>, around: &Around<'_>, matched: &mut Matched) {
    let Some(texts) = node.texts() else { return matched.refuse(node, "it is no list of texts") };
    let lower: Vec<_> = texts.iter().map(|text| lowered(text)).collect();
    let texts: Vec<&str> = lower.iter().map(String::as_str).collect();
    match (test(&texts, Subject::Host), around.host) {
        (Err(why), _) => matched.refuse(node, why),
        (Ok(test), Some(host)) => {
            if !super::pattern::holds(&test.alone, host) {
                matched.never();
            }
        }
        (Ok(test), None) => {
            let names = super::pattern::exact(&texts, Subject::Host);
            if names.is_some_and(|names| names.iter().all(|name| around.hosts.contains(name))) {
                return matched.never();
            }
            matched.all(|conditions| conditions.add_host(test.clone()));
        }
    }
}

/// The pattern in small letters, unless it is an expression.
fn lowered(text: &str) -> String {
    match text.trim_start_matches('!').starts_with('~') {
        true => text.to_owned(),
        false => text.to_ascii_lowercase(),
    }
}

fn method(node: &Node<'_>, matched: &mut Matched) {
    let names = node.texts().and_then(|texts| super::pattern::exact(&texts, Subject::Field));
    let Some(names) = names else {
        return matched.refuse(node, "a route names the methods that it is for");
    };
    let names: Vec<_> = names.iter().map(|name| name.to_ascii_uppercase()).collect();
    let is_name = |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphabetic());
    if !names.iter().all(is_name) {
        return matched.refuse(node, "it is no method");
    }
    if names.iter().any(|name| name == "HEAD") && !names.iter().any(|name| name == "GET") {
        return matched.refuse(node, "HEAD stands for itself only beside GET");
    }
    matched.alternatives.retain_mut(|conditions| conditions.set_methods(names.clone()));
}

fn scheme(node: &Node<'_>, around: &Around<'_>, matched: &mut Matched) {
    if around.has_forwarded_scheme {
        return matched.refuse(node, "a proxy names the scheme of the client");
    }
    let own = if around.has_tls { "https" } else { "http" };
    match node.text() {
        Some(text) if text.eq_ignore_ascii_case(own) => {}
        Some(_) => matched.never(),
        None => matched.refuse(node, "it is no scheme"),
    }
}

fn source(node: &Node<'_>, around: &Around<'_>, matched: &mut Matched) {
    if !around.knows_clients {
        return matched.refuse(node, "the addresses of clients are not those that proxies name");
    }
    let Some(texts) = node.texts() else { return matched.refuse(node, "it is no list of texts") };
    let is_negative = texts.first().is_some_and(|text| text.starts_with('!'));
    let mut networks = Vec::new();
    for text in texts {
        match (text.strip_prefix('!').unwrap_or(text), text.starts_with('!')) {
            (network, negative) if negative == is_negative && is_network(network) => {
                networks.push(network.trim_matches(['[', ']']).to_owned());
            }
            (network, negative) if negative == is_negative && network.starts_with('[') => {
                match network.split_once("]/") {
                    Some((address, bits)) if is_network(&format!("{}/{bits}", &address[1..])) => {
                        networks.push(format!("{}/{bits}", &address[1..]));
                    }
                    _ => return matched.refuse(node, "only networks can be named"),
                }
            }
            _ => return matched.refuse(node, "only a list of networks can be named"),
        }
    }
    matched.clients = match is_negative {
        true => Clients::NotFrom(networks),
        false => Clients::From(networks),
    };
}

/// True for an address, and for a network with the length of its prefix. Addresses may stand in
/// brackets.
pub(super) fn is_network(text: &str) -> bool {
    let (address, prefix) = text.split_at(text.find('/').unwrap_or(text.len()));
    network::is_network(&format!("{}{prefix}", address.trim_matches(['[', ']'])))
}

fn destination(node: &Node<'_>, around: &Around<'_>, matched: &mut Matched) {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    let own = port(around.listener);
    let Some(texts) = node.texts() else { return matched.refuse(node, "it is no list of texts") };
    if texts.iter().any(|text| !text.starts_with("*:") || text.contains('-')) || own.is_none() {
        return matched.refuse(node, "only a port of the listener can be compared");
    }
    if !texts.iter().any(|text| port(text) == own) {
        matched.never();
    }
}

/// `headers`, `arguments` and `cookies`: of an array, one element must hold.
fn table(name: &str, node: &Node<'_>, matched: &mut Matched) {
    let mut alternatives = Vec::new();
    for element in node.elements() {
        let mut conditions = Conditions::default();
        for (key, value) in element.members() {
            if let Err(why) = entry(name, key, &value, &mut conditions) {
                return matched.refuse(&value, why);
            }
        }
        alternatives.push(conditions);
    }
    match both(&matched.alternatives, &alternatives) {
        Some(both) => matched.alternatives = both,
        None => matched.refuse(node, "these are too many combinations"),
    }
}

fn entry(
    table: &str,
    key: &str,
    value: &Node<'_>,
    conditions: &mut Conditions,
) -> Result<(), String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    if !is_name(key) || value.elements().is_empty() {
        return Err("its name has other characters than letters and digits".to_owned());
    }
    let texts = value.texts().ok_or("it is no list of texts")?;
    match table {
        "headers" if key.eq_ignore_ascii_case("host") => {
            return Err("the field Host is compared by host".to_owned());
        }
        "headers" => {
            let name = field_name(key);
            conditions.add_field(&name, Repeated::field(&name, &texts)?);
        }
        "arguments" => conditions.add_parameter(key, Repeated::argument(&texts)?),
        _ => conditions.add_field("Cookie", Repeated::cookie(key, &texts)?),
    }
    Ok(())
}

/// The name of a field in its usual spelling: Unit reads an underscore as a dash.
fn field_name(key: &str) -> String {
    let words = key.split(['-', '_']).map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
    });
    words.collect::<Vec<_>>().join("-")
}
