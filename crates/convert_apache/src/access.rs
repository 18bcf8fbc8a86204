//! Rules about access: `Require`, and `Order`, `Allow` and `Deny`.
//!
//! Both must let a request through. Of each, the last section that has such directives decides.

use sendoff_convert_document::{Directive, Place, Section};

use super::areas::{Area, Condition};
use super::clients::Clients;
use super::sections::{Kind, Part};
use super::users::Users;

/// The requests that a section lets through.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Everyone,
    No,
    /// Clients of these networks.
    From(Vec<String>),
    /// All clients except these networks.
    NotFrom(Vec<String>),
    /// Users with a password.
    User,
    /// Several rules that must all hold.
    All(Vec<Self>),
    Unknown(Place, String),
}

impl Rule {
    /// True if it asks for a name and a password.
    fn asks(&self) -> bool {
        match self {
            Self::User => true,
            Self::All(rules) => rules.iter().any(Self::asks),
            _ => false,
        }
    }
}

/// The addresses of `Require local`.
const LOCAL: [&str; 2] = ["127.0.0.0/8", "::1"];
/// Directives of older versions.
const COMPATIBLE: [&str; 3] = ["order", "allow", "deny"];
/// Directives about access that have no equal: what they protect stays closed.
const REFUSE: [&str; 12] = [
    "authmerging",
    "authzsendforbiddenonfailure",
    "sslrequire",
    "sslverifyclient",
    "sslusername",
    "authldapurl",
    "authformprovider",
    "authdigestprovider",
    "authtype",
    "luahookaccesschecker",
    "secruleengine",
    "sessioncookiename",
];

/// The path that sections are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// No rule changes paths: all sections see the same one.
    Same,
    /// Rules change paths: `<Location>` sees the path of the client, other sections the new one.
    Changed,
}

/// Adds the routes of `<Location>`, which stand before the rules that change paths.
pub(super) fn of_locations(parts: &[Part<'_>], clients: Clients, routes: &mut Vec<Section>) {
    let all: Vec<Part<'_>> =
        parts.iter().filter(|part| part.kind == Kind::Location).cloned().collect();
    chain(&all, parts, Rules::Required, clients, routes);
    chain(&all, parts, Rules::Compatible, clients, routes);
}

/// Adds the routes that refuse.
pub(super) fn routes(
    parts: &[Part<'_>],
    has_tls: bool,
    compared: Compared,
    clients: Clients,
    routes: &mut Vec<Section>,
) {
    // A folder that is closed stays closed, even if a <Location> opens it for direct requests.
    let is_seen = |part: &&Part<'_>| compared == Compared::Same || part.kind != Kind::Location;
    let seen: Vec<Part<'_>> = parts.iter().filter(is_seen).cloned().collect();
    chain(&seen, parts, Rules::Required, clients, routes);
    chain(&seen, parts, Rules::Compatible, clients, routes);
    for part in parts {
        let is_guard = |one: &&&Directive| restricts(one) || may_refuse(one);
        let guard = part.directives.iter().find(is_guard).filter(|_| part.kind == Kind::If);
        if let Some(guard) = guard {
            let text = "its section has a condition that is not understood";
            refuse_for(part, guard, text, routes);
        }
        for directive in &part.directives {
            methods(directive, part, parts, clients, routes);
            if directive.name == "sslrequiressl" && !has_tls {
                refuse_for(part, directive, "this site speaks no TLS", routes);
            }
            let is_of_server = part.kind == Kind::Server && directive.name == "sslverifyclient";
            if is_refused(directive) && !is_of_server {
                refuse_for(part, directive, "every request is refused", routes);
            }
        }
    }
}

fn is_refused(directive: &Directive) -> bool {
    let word = directive.word();
    match directive.name.as_str() {
        "authtype" => !matches!(&*word.to_ascii_lowercase(), "basic" | "none"),
        "authmerging" | "sslverifyclient" => {
            !word.eq_ignore_ascii_case("off") && !word.eq_ignore_ascii_case("none")
        }
        "authzsendforbiddenonfailure" => false,
        name => REFUSE.contains(&name),
    }
}

/// True for a directive that may refuse requests which others let through.
pub(super) fn may_refuse(directive: &Directive) -> bool {
    let text = directive.words.join(" ").to_ascii_lowercase();
    match directive.name.as_str() {
        "require" => text != "all granted",
        "allow" | "order" | "satisfy" => false,
        "rewriterule" => directive.words.get(2).is_some_and(|flags| {
            let flags = super::rewrite::flags(flags);
            flags.iter().any(|(name, _)| matches!(name.as_str(), "f" | "forbidden" | "g" | "gone"))
        }),
        "redirect" | "redirectmatch" => ["403", "404", "410", "gone"]
            .iter()
            .any(|word| directive.word().eq_ignore_ascii_case(word)),
        name if super::users::NAMES.contains(&name) => false,
        _ => {
            let is_unknown = !super::known::is_known(directive);
            restricts(directive) || is_unknown && super::keys::guards(directive)
        }
    }
}

/// True for a directive that may refuse requests.
fn restricts(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    matches!(
        name,
        "require"
            | "<requireall"
            | "<requireany"
            | "<requirenone"
            | "deny"
            | "order"
            | "sslrequiressl"
    ) || super::users::NAMES.contains(&name)
        || REFUSE.contains(&name)
}

/// The kinds of rules, which both must let a request through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rules {
    /// `Require`
    Required,
    /// `Order`, `Allow` and `Deny`
    Compatible,
}

impl Rules {
    /// The rule of one section.
    fn of(self, part: &Part<'_>) -> Option<Rule> {
        match self {
            Self::Required => required(part),
            Self::Compatible => compatible(part),
        }
    }
}

/// The routes of rules of which the last that a path has decides.
fn chain(
    parts: &[Part<'_>],
    all: &[Part<'_>],
    kind: Rules,
    clients: Clients,
    routes: &mut Vec<Section>,
) {
    let rules: Vec<(&Part<'_>, Rule)> = parts
        .iter()
        .filter(|part| part.kind != Kind::If)
        .filter_map(|part| Some((part, kind.of(part)?)))
        .collect();
    for (number, (part, rule)) in rules.iter().enumerate() {
        let later: Vec<&Area> = rules[number + 1..].iter().map(|(part, _)| &part.area).collect();
        let zones = if rule.asks() { Users::zones(part, all) } else { Vec::new() };
        let own = later.iter().copied().chain(zones.iter().map(|zone| &zone.area));
        if let Some(condition) = part.area.without(own) {
            routes.extend(route(&condition, rule, Users::of(part, all), clients));
        }
        // Sections within this one whose users are others.
        for (number, zone) in zones.iter().enumerate() {
            let others = zones[number + 1..].iter().map(|zone| &zone.area);
            let others = later.iter().copied().chain(others);
            if let Some(condition) = part.area.and(&zone.area).without(others) {
                routes.extend(route(&condition, rule, zone.users.clone(), clients));
            }
        }
    }
}

/// The route of a rule; `None`: everyone is let through.
fn route(
    condition: &Condition,
    rule: &Rule,
    users: Users<'_>,
    clients: Clients,
) -> Option<Section> {
    let mut route = Section::new("site.route");
    condition.set(&mut route);
    let mut rest = vec![rule];
    let mut has_rule = false;
    while let Some(rule) = rest.pop() {
        has_rule |= *rule != Rule::Everyone;
        match rule {
            Rule::Everyone => {}
            Rule::No => route.set("deny", true),
            Rule::From(networks) if clients.are_judged_alike(networks) => {
                route.set_list("allow_from", networks.clone());
            }
            Rule::NotFrom(networks) if !clients.are_unknown() => {
                route.set_list("deny_from", networks.clone());
            }
            Rule::From(_) | Rule::NotFrom(_) => {
                let text = "a rule about addresses, of which Apache may see others: every request is refused";
                match users.place() {
                    Some(place) => route.left_out(place, text),
                    None => route.comment(text),
                }
                route.set("deny", true);
            }
            Rule::All(rules) => rest.extend(rules),
            Rule::User => users.set(&mut route),
            Rule::Unknown(place, why) => {
                route.left_out(place, format!("{why} has no equal: every request is refused"));
                route.set("deny", true);
            }
        }
    }
    has_rule.then_some(route)
}

fn refuse_for(part: &Part<'_>, directive: &Directive, why: &str, routes: &mut Vec<Section>) {
    let Some(condition) = part.area.without(std::iter::empty()) else { return };
    let mut route = Section::new("site.route");
    condition.set(&mut route);
    directive.left_out(&mut route, why);
    route.set("deny", true);
    routes.push(route);
}

/// `Require` and its sections, of one part.
fn required(part: &Part<'_>) -> Option<Rule> {
    let own: Vec<&Directive> = part
        .directives
        .iter()
        .copied()
        .filter(|one| one.name == "require" || one.name.starts_with("<require"))
        .collect();
    if own.is_empty() {
        return None;
    }
    // `Satisfy any` would let through what one of both allows. Here both have to.
    Some(any(&own))
}

fn of(directive: &Directive) -> Rule {
    let inner: Vec<&Directive> = directive.inner().iter().collect();
    match directive.name.as_str() {
        "<requireany" => any(&inner),
        "<requireall" => all(&inner),
        "require" => require(directive),
        _ => unknown(directive),
    }
}

fn unknown(directive: &Directive) -> Rule {
    Rule::Unknown(directive.place.clone(), directive.text())
}

/// One of them must hold. What is not known lets nothing through.
fn any(directives: &[&Directive]) -> Rule {
    let rules: Vec<Rule> = directives.iter().map(|one| of(one)).collect();
    if rules.contains(&Rule::Everyone) {
        return Rule::Everyone;
    }
    let mut networks = Vec::new();
    let mut others: Vec<&Rule> = Vec::new();
    for rule in &rules {
        match rule {
            Rule::From(own) => networks.extend(own.iter().cloned()),
            Rule::No => {}
            other if others.contains(&other) => {}
            other => others.push(other),
        }
    }
    let known: Vec<&&Rule> =
        others.iter().filter(|rule| !matches!(rule, Rule::Unknown(..))).collect();
    match (&networks[..], &known[..]) {
        ([], []) => others.first().map_or(Rule::No, |rule| (*rule).clone()),
        ([], [only]) => (**only).clone(),
        (_, []) => Rule::From(networks),
        // One of both would be enough in Apache; here both must hold.
        (_, [Rule::User]) => Rule::All(vec![Rule::From(networks), Rule::User]),
        _ => directives.first().map_or(Rule::No, |one| unknown(one)),
    }
}

/// All of them must hold.
fn all(directives: &[&Directive]) -> Rule {
    let rules: Vec<Rule> = directives.iter().map(|one| of(one)).collect();
    let count = |test: fn(&Rule) -> bool| rules.iter().filter(|rule| test(rule)).count();
    let is_known = count(|rule| matches!(rule, Rule::From(_))) <= 1
        && count(|rule| matches!(rule, Rule::All(_))) == 0;
    if let Some(first) = rules.iter().find(|rule| matches!(rule, Rule::Unknown(..) | Rule::No)) {
        return first.clone();
    }
    if !is_known {
        return directives.first().map_or(Rule::No, |one| unknown(one));
    }
    let denied: Vec<String> = rules
        .iter()
        .filter_map(|rule| match rule {
            Rule::NotFrom(networks) => Some(networks.clone()),
            _ => None,
        })
        .flatten()
        .collect();
    let mut kept: Vec<Rule> = rules
        .into_iter()
        .filter(|rule| !matches!(rule, Rule::NotFrom(_) | Rule::Everyone))
        .collect();
    let restricts = kept.iter().any(|rule| matches!(rule, Rule::From(_)));
    match (denied.is_empty(), restricts) {
        // The longest network decides here, and in Apache any that is denied.
        (false, true) => return directives.first().map_or(Rule::No, |one| unknown(one)),
        (false, false) => kept.push(Rule::NotFrom(denied)),
        (true, _) => {}
    }
    match kept.len() {
        0 => Rule::Everyone,
        _ => Rule::All(kept),
    }
}

/// `Require WORD...`
fn require(directive: &Directive) -> Rule {
    let words: Vec<String> = directive.words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match &words[..] {
        ["all", "granted"] | ["not", "all", "denied"] => Rule::Everyone,
        ["all", "denied"] | ["not", "all", "granted"] => Rule::No,
        ["local"] => Rule::From(LOCAL.map(str::to_owned).to_vec()),
        ["valid-user"] => Rule::User,
        ["ip", networks @ ..] => match self::networks(networks) {
            Some(networks) => Rule::From(networks),
            None => unknown(directive),
        },
        ["not", "ip", networks @ ..] => match self::networks(networks) {
            Some(networks) => Rule::NotFrom(networks),
            None => unknown(directive),
        },
        _ => unknown(directive),
    }
}

/// Networks in Sendoff's form; `None`: a word is none, or there is none.
fn networks(words: &[&str]) -> Option<Vec<String>> {
    let all: Option<Vec<String>> = words.iter().map(|word| network(word)).collect();
    all.filter(|all| !all.is_empty())
}

/// `10.1`, `10.1.2.3`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0` and addresses of IPv6.
fn network(word: &str) -> Option<String> {
    use std::net::{IpAddr, Ipv4Addr};
    let (address, mask) = word.split_once('/').map_or((word, None), |(a, m)| (a, Some(m)));
    if let Ok(address) = address.parse::<IpAddr>() {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        return match (mask, mask.and_then(|mask| mask.parse::<Ipv4Addr>().ok())) {
            (None, _) => Some(address.to_string()),
            (Some(_), Some(mask)) if address.is_ipv4() => {
                let (mask, ones) = (u32::from(mask), u32::from(mask).leading_ones());
                (mask.count_ones() == ones).then(|| format!("{address}/{ones}"))
            }
            (Some(mask), _) => {
                let mask: u8 = mask.parse().ok()?;
                (mask <= bits).then(|| format!("{address}/{mask}"))
            }
        };
    }
    // The first parts of an address.
    let parts: Option<Vec<u8>> =
        address.trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
    let parts = parts.filter(|parts| (1..4).contains(&parts.len()) && mask.is_none())?;
    let mut whole = [0; 4];
    whole[..parts.len()].copy_from_slice(&parts);
    Some(format!("{}/{}", Ipv4Addr::from(whole), parts.len() * 8))
}

/// `Order`, `Allow` and `Deny` of one part.
fn compatible(part: &Part<'_>) -> Option<Rule> {
    let own: Vec<&Directive> = part
        .directives
        .iter()
        .copied()
        .filter(|one| COMPATIBLE.contains(&one.name.as_str()))
        .collect();
    let first = own.first()?;
    let order = own.iter().rev().find(|one| one.name == "order");
    let order =
        order.map_or("deny,allow".to_owned(), |one| one.words.concat().to_ascii_lowercase());
    let words = |name: &str| -> Vec<&str> {
        let named = own.iter().filter(|one| one.name == name);
        named.flat_map(|one| one.words.iter().skip(1).map(String::as_str)).collect()
    };
    let (allow, deny) = (words("allow"), words("deny"));
    let is_all = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case("all"));
    // A name that is no network allows nothing.
    let allowed: Vec<String> = allow.iter().filter_map(|word| network(word)).collect();
    let denied: Option<Vec<String>> = deny
        .iter()
        .filter(|word| !word.eq_ignore_ascii_case("none"))
        .map(|word| network(word))
        .collect();
    let rule = match order.as_str() {
        "deny,allow" if is_all(&allow) => Rule::Everyone,
        "deny,allow" if is_all(&deny) && allowed.is_empty() => Rule::No,
        "deny,allow" if is_all(&deny) => Rule::From(allowed),
        "deny,allow" if deny.is_empty() => Rule::Everyone,
        "deny,allow" => denied.map_or_else(|| unknown(first), Rule::NotFrom),
        "allow,deny" if is_all(&deny) => Rule::No,
        "allow,deny" if is_all(&allow) && deny.is_empty() => Rule::Everyone,
        "allow,deny" if is_all(&allow) => denied.map_or_else(|| unknown(first), Rule::NotFrom),
        "allow,deny" | "mutual-failure" if deny.is_empty() && allowed.is_empty() => Rule::No,
        "allow,deny" | "mutual-failure" if deny.is_empty() => Rule::From(allowed),
        _ => unknown(first),
    };
    Some(rule)
}

/// `<Limit>` and `<LimitExcept>`: rules for methods.
fn methods(
    directive: &Directive,
    part: &Part<'_>,
    parts: &[Part<'_>],
    clients: Clients,
    routes: &mut Vec<Section>,
) {
    let inner: Vec<&Directive> = directive.inner().iter().collect();
    let is_limit = match directive.name.as_str() {
        "<limit" => true,
        "<limitexcept" => false,
        _ => return,
    };
    let own = Part { directives: inner, ..part.clone() };
    let rules = [required(&own), compatible(&own)];
    for rule in rules.into_iter().flatten().filter(|rule| *rule != Rule::Everyone) {
        if !is_limit {
            refuse_for(part, directive, "the methods that it leaves out cannot be named", routes);
            continue;
        }
        let Some(condition) = part.area.without(std::iter::empty()) else { continue };
        if let Some(mut route) = route(&condition, &rule, Users::of(part, parts), clients) {
            let names = directive.words.iter().map(|word| word.to_ascii_uppercase());
            route.set_list("method", names.collect());
            routes.push(route);
        }
    }
}
