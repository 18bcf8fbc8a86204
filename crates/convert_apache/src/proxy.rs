//! Applications: `ProxyPass`, `ProxyPassMatch`, and balancers.

use sendoff_convert_document::expression::{mistake, quote};
use sendoff_convert_document::{Directive, Section};

use super::areas::beneath;
use super::sections::{Kind, Part};

/// A path that an application answers.
#[derive(Debug, Clone)]
pub(super) struct Passed<'d> {
    pub(super) path: String,
    /// `None`: this path is not passed on.
    pub(super) target: Option<String>,
    pub(super) directive: &'d Directive,
}

/// The paths that are passed on, in Apache's order: sections come first.
pub(super) fn passed<'d>(main: &'d [Directive], host: Option<&'d [Directive]>) -> Vec<Passed<'d>> {
    let mut all = Vec::new();
    for block in host.into_iter().chain([main]) {
        for section in block.iter().filter(|one| one.name == "<location") {
            for directive in section.inner().iter().filter(|one| one.name == "proxypass") {
                all.push(Passed {
                    path: section.word().to_owned(),
                    target: target(directive.word()),
                    directive,
                });
            }
        }
    }
    for block in std::iter::once(main).chain(host) {
        for directive in block.iter().filter(|one| one.name == "proxypass") {
            let word = directive.words.get(1).map_or("", String::as_str);
            all.push(Passed { path: directive.word().to_owned(), target: target(word), directive });
        }
    }
    all
}

fn target(word: &str) -> Option<String> {
    (word != "!").then(|| word.to_owned())
}

/// An application, in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Application {
    scheme: &'static str,
    host: String,
    path: String,
    upgrades: bool,
}

/// The application of a URL; `None`: it cannot be expressed.
fn application(url: &str) -> Option<Application> {
    if url.contains(['$', '{', '"', '#']) {
        return None;
    }
    let (socket, rest) = match url.strip_prefix("unix:") {
        Some(rest) => {
            let (socket, rest) = rest.split_once('|')?;
            (Some(format!("unix:{socket}")), rest)
        }
        None => (None, url),
    };
    let (scheme, rest) = rest.split_once("://")?;
    let (scheme, port, upgrades) = match scheme {
        "http" => ("http", "80", false),
        "https" => ("https", "443", false),
        "ws" => ("http", "80", true),
        "wss" => ("https", "443", true),
        "h2c" => ("h2", "80", false),
        "h2" => ("h2s", "443", false),
        "ajp" => ("ajp", "8009", false),
        "scgi" => ("scgi", "4000", false),
        "uwsgi" => ("uwsgi", "3031", false),
        "balancer" => ("http", "", false),
        _ => return None,
    };
    let (host, path) = match rest.find('/') {
        Some(slash) => (&rest[..slash], &rest[slash..]),
        None => (rest, ""),
    };
    if path.contains('?') {
        return None;
    }
    let host = match (socket, host.rsplit_once(':')) {
        (Some(socket), _) => socket,
        (None, _) if url.starts_with("balancer:") => format!("upstream:{host}"),
        (None, Some((_, number))) if number.parse::<u16>().is_ok() => host.to_owned(),
        (None, _) if host.is_empty() => return None,
        (None, _) => format!("{host}:{port}"),
    };
    Some(Application { scheme, host, path: path.to_owned(), upgrades })
}

/// The keys of a route for the target of a rule with `[P]`, and the path.
pub(super) fn passing(target: &str) -> Option<(Section, String)> {
    let start = target.find("://")? + 3;
    let slash = target[start..].find('/').map_or(target.len(), |at| start + at);
    let (host, path) = target.split_at(slash);
    let application = application(host)?;
    let mut route = Section::default();
    Settings::default().set(&application, "/", host, &mut route);
    let path = if path.is_empty() { "/" } else { path };
    Some((route, path.to_owned()))
}

/// The settings that hold for all applications of a site.
#[derive(Default)]
pub(super) struct Settings<'d> {
    preserves_host: bool,
    drops_fields: bool,
    verifies: bool,
    reverse: Vec<(&'d str, &'d str)>,
    cookie_paths: Vec<(&'d str, &'d str)>,
    cookie_domains: Vec<(&'d str, &'d str)>,
    /// The first host of each balancer.
    balancers: Vec<(&'d str, String)>,
}

/// The fields that tell an application about the client.
const FORWARDED: [&str; 5] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
];

/// The route with Apache's values of the fields that tell an application about the client, if a
/// section sets one of them: Sendoff's own would replace it.
pub(super) fn forwarded(parts: &[Part<'_>]) -> Option<Section> {
    let is_set = |one: &&Directive| {
        let names = one.words.iter().map(|word| word.trim_end_matches(':').to_ascii_lowercase());
        one.name == "requestheader" && names.take(3).any(|name| FORWARDED.contains(&&*name))
    };
    parts.iter().flat_map(|part| part.directives.iter().copied()).find(|one| is_set(one))?;
    let mut route = Section::new("site.route");
    route.comment("The fields that Apache sends to applications; routes below change them.");
    for (name, value) in [("X-Forwarded-For", "$remote_addr"), ("X-Forwarded-Host", "$host")] {
        route.set_in("request_headers", name, value);
    }
    Some(route)
}

impl<'d> Settings<'d> {
    pub(super) fn of(parts: &[Part<'d>], blocks: [&'d [Directive]; 2]) -> Self {
        let last = |name: &str| {
            let mut all = parts.iter().flat_map(|part| &part.directives);
            all.rfind(|one| one.name == name).map(|one| one.word().to_ascii_lowercase())
        };
        let pairs = |name: &str| {
            let mut all = Vec::new();
            for part in parts {
                for directive in part.directives.iter().filter(|one| one.name == name) {
                    match &directive.words[..] {
                        [one, other, ..] => all.push((one.as_str(), other.as_str())),
                        // The path of the section is the path of the directive.
                        [one] => all.push(("", one.as_str())),
                        [] => {}
                    }
                }
            }
            all
        };
        Self {
            preserves_host: last("proxypreservehost").as_deref() == Some("on"),
            drops_fields: last("proxyaddheaders").as_deref() == Some("off")
                || forwarded(parts).is_some(),
            verifies: last("sslproxyverify").as_deref() == Some("require"),
            reverse: pairs("proxypassreverse"),
            cookie_paths: pairs("proxypassreversecookiepath"),
            cookie_domains: pairs("proxypassreversecookiedomain"),
            balancers: blocks.into_iter().flatten().filter_map(first_member).collect(),
        }
    }

    fn set(&self, application: &Application, path: &str, url: &str, route: &mut Section) {
        route.set_in("proxy", "to", format!("{}://{}", application.scheme, application.host));
        let is_http = !matches!(application.scheme, "ajp" | "scgi" | "uwsgi");
        if !is_http {
            return;
        }
        if !self.preserves_host {
            let name = application.host.strip_prefix("upstream:");
            let member = self.balancers.iter().find(|(known, _)| Some(*known) == name);
            match member {
                Some((_, host)) => {
                    route.comment("Each application of the group gets the name of the first.");
                    route.set_in("proxy", "host", host.clone());
                }
                None => route.set_in("proxy", "host", "upstream"),
            }
        }
        if self.drops_fields {
            route.set_in("proxy", "forwarded", "off");
        }
        if matches!(application.scheme, "https" | "h2s") && !self.verifies {
            // Apache checks no certificates unless it is told to.
            route.set_in("proxy", "verify", false);
        }
        if matches!(application.scheme, "http" | "https") && !application.upgrades {
            route.set_in("proxy", "upgrade", false);
        }
        let mut redirects = toml::Table::new();
        for (ours, theirs) in &self.reverse {
            let ours = if ours.is_empty() { path } else { ours };
            if theirs.starts_with("http") && theirs.contains("://") && url_of(theirs) == url_of(url)
            {
                redirects.insert((*theirs).to_owned(), ours.to_owned().into());
            }
        }
        route.set_in("proxy", "redirects", redirects);
        for (key, pairs) in
            [("cookie_domains", &self.cookie_domains), ("cookie_paths", &self.cookie_paths)]
        {
            let table: toml::Table = pairs
                .iter()
                .map(|(from, to)| ((*from).to_owned(), (*to).to_owned().into()))
                .collect();
            if !table.is_empty() {
                route.set_in("proxy", key, table);
            }
        }
    }
}

/// The name of a balancer and the host of its first application.
fn first_member(section: &Directive) -> Option<(&str, String)> {
    let name = section.word().strip_prefix("balancer://")?.trim_end_matches('/');
    let mut members = section.inner().iter().filter(|one| one.name == "balancermember");
    let host = members.find_map(|member| application(member.word()))?.host;
    (section.name == "<proxy" && !host.starts_with("unix:")).then_some((name, host))
}

/// The scheme and the host of a URL.
fn url_of(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url, |slash| &url[..start + slash])
}

/// Adds the routes that pass requests on.
pub(super) fn routes(
    passed: &[Passed<'_>],
    parts: &[Part<'_>],
    settings: &Settings<'_>,
    routes: &mut Vec<Section>,
) {
    let mut kept: Vec<String> = Vec::new();
    for one in passed {
        let own = match one.path.ends_with('/') {
            true => format!("(?={})", quote(&one.path)),
            false => beneath(&one.path).may,
        };
        let Some(url) = &one.target else {
            kept.push(own);
            continue;
        };
        let others: String = kept.iter().map(|may| format!("(?!{may})")).collect();
        routes.push(route(one, url, &others, settings));
    }
    for part in parts {
        for directive in part.directives.iter().filter(|one| one.name == "proxypassmatch") {
            if part.kind == Kind::Server && super::php::is_php(directive) {
                continue;
            }
            routes.push(by_expression(directive, settings));
        }
    }
}

/// The route of a `ProxyPass`.
fn route(one: &Passed<'_>, url: &str, others: &str, settings: &Settings<'_>) -> Section {
    let mut route = Section::new("site.route");
    let path = one.path.as_str();
    if !path.starts_with('/') {
        return refused(one.directive, route);
    }
    let Some(mut application) = application(url) else {
        route.set("match", format!("^{}{}", beneath(path).may, others));
        return refused(one.directive, route);
    };
    for option in one.directive.words.iter().skip(2) {
        match option.split_once('=') {
            Some(("timeout", seconds)) if seconds.parse::<u32>().is_ok_and(|s| s > 0) => {
                route.set_in("proxy", "timeout", format!("{seconds}s"));
            }
            Some(("connectiontimeout", seconds)) if seconds.parse::<u32>().is_ok_and(|s| s > 0) => {
                route.set_in("proxy", "connect_timeout", format!("{seconds}s"));
            }
            Some(("secret", secret)) if application.scheme == "ajp" => {
                route.set_in("proxy", "secret", secret);
            }
            Some(("upgrade", kind)) => application.upgrades = kind != "NONE",
            Some((
                "retry" | "keepalive" | "max" | "min" | "smax" | "acquire" | "ttl" | "ping"
                | "disablereuse" | "enablereuse" | "flushpackets" | "flushwait" | "iobuffersize"
                | "responsefieldsize" | "receivebuffersize" | "status" | "route" | "redirect"
                | "loadfactor" | "lbset",
                _,
            )) => {}
            _ => {
                let text = format!("ProxyPass ... {option} has no equal");
                route.left_out(&one.directive.place, text);
            }
        }
    }
    let has_change = path != "/" || !matches!(application.path.as_str(), "" | "/");
    let own = path.trim_end_matches('/');
    let target = application.path.replace('$', "$$");
    match has_change && target.trim_end_matches('/') != own.trim_end_matches('/') {
        true => {
            let (behind, target) = match (path.ends_with('/'), target.as_str()) {
                (true, "") => ("/((?s:.*))", "/$1".to_owned()),
                (true, target) => ("/((?s:.*))", format!("{target}$1")),
                (false, target) if target.is_empty() || target.ends_with('/') => {
                    ("(?:/((?s:.*)))?", format!("{}/$1", target.trim_end_matches('/')))
                }
                (false, target) => ("((?s:/.*)?)", format!("{target}$1")),
            };
            route.set("match", format!(r"^{others}{}{behind}\z", quote(own)));
            route.set("rewrite", target);
        }
        false => {
            let text = match own {
                "" => others.to_owned(),
                own if path.ends_with('/') => format!("{others}{}/", quote(own)),
                own => format!(r"{others}{}(?:/|\z)", quote(own)),
            };
            if !text.is_empty() {
                route.set("match", format!("^{text}"));
            }
        }
    }
    settings.set(&application, path, url, &mut route);
    route
}

/// The route of a `ProxyPassMatch`: the URL has groups, or the path follows it.
fn by_expression(directive: &Directive, settings: &Settings<'_>) -> Section {
    let mut route = Section::new("site.route");
    let url = directive.words.get(1).map_or("", String::as_str);
    if mistake(directive.word()).is_some() {
        return refused(directive, route);
    }
    route.set("match", directive.word());
    let start = url.find("://").map_or(0, |at| at + 3);
    let slash = url[start..].find('/').map_or(url.len(), |at| start + at);
    let (host, path) = url.split_at(slash);
    match application(host) {
        Some(application) if path.starts_with('/') && path.contains('$') => {
            route.set("rewrite", path);
            settings.set(&application, "/", url, &mut route);
            route
        }
        _ => refused(directive, route),
    }
}

fn refused(directive: &Directive, mut route: Section) -> Section {
    directive.left_out(&mut route, "its requests are refused");
    route.set("deny", true);
    route
}

/// The groups of hosts, of `<Proxy balancer://NAME>`.
pub(super) fn balancers(blocks: &[&[Directive]], groups: &mut Vec<Section>) {
    for section in blocks.iter().flat_map(|block| block.iter()) {
        let Some(name) = section.word().strip_prefix("balancer://") else { continue };
        if section.name != "<proxy" {
            continue;
        }
        let mut group = Section::new("upstream");
        group.set("name", name.trim_end_matches('/'));
        let mut hosts = Vec::new();
        for directive in section.inner() {
            match directive.name.as_str() {
                "balancermember" => match application(directive.word()) {
                    Some(one) if matches!(one.path.as_str(), "" | "/") && one.scheme == "http" => {
                        let mut host = one.host;
                        for option in directive.words.iter().skip(1) {
                            match option.split_once('=') {
                                Some(("loadfactor", number)) => {
                                    host.push_str(&format!(" weight={number}"));
                                }
                                Some(("status", "+H")) => host.push_str(" spare"),
                                Some(("retry" | "route" | "timeout" | "connectiontimeout", _)) => {}
                                _ => directive.left_out(&mut group, "an option of it"),
                            }
                        }
                        hosts.push(host);
                    }
                    _ => directive.left_out(&mut group, "its host is left out"),
                },
                "proxyset" => {
                    let text = "the host with the fewest requests gets the next one";
                    group.note(&directive.place, format!("{}: {text}", directive.text()));
                }
                _ if super::known::is_known(directive) => {}
                _ => directive.left_out(&mut group, "a balancer has no such key"),
            }
        }
        group.set_list("hosts", hosts);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
}
