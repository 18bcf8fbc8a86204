//! Applications: `proxy_pass`, `scgi_pass`, and the upstreams.

use super::effect::set_condition;
use super::http::Outside;
use super::pattern::{Condition, Matcher, quote};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use super::units;
use crate::document::Section;

/// The section of an upstream.
pub(super) fn upstream(upstream: &Directive) -> Section {
    let mut section = Section::new("upstream");
    section.set("name", upstream.word());
    let mut hosts = Vec::new();
    for directive in upstream.block.iter().flatten() {
        match &*directive.name {
            "server" => hosts.extend(host(directive, &mut section)),
            "least_conn" | "keepalive" | "zone" | "keepalive_timeout" | "keepalive_requests" => {}
            name => {
                section.left_out(&directive.place, format!("{name} of an upstream has no equal"));
            }
        }
    }
    section.set_list("hosts", hosts);
    section
}

fn host(server: &Directive, section: &mut Section) -> Option<String> {
    let mut host = address(server.word());
    for option in server.words.iter().skip(1) {
        match option.split_once('=').map_or((option.as_str(), ""), |pair| pair) {
            ("down", _) => return None,
            ("backup", _) => host.push_str(" spare"),
            ("weight", number) => host.push_str(&format!(" weight={number}")),
            ("max_fails", number) => {
                if let Ok(number @ 1..=1000) = number.parse::<i64>() {
                    section.set("fails", number);
                }
            }
            ("fail_timeout" | "resolve", _) => {}
            _ => section.left_out(&server.place, format!("server ... {option} has no equal")),
        }
    }
    Some(host)
}

/// An address with its port.
fn address(word: &str) -> String {
    match word.strip_prefix("unix:") {
        Some(path) => format!("unix:{}", path.trim_end_matches(':')),
        None if word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            word.to_owned()
        }
        None => format!("{word}:80"),
    }
}

/// The URL of a `proxy_pass`, in parts.
struct Target {
    /// `http` or `https`.
    scheme: &'static str,
    address: String,
    /// The path that replaces the location's; `None`: the path stays.
    path: Option<String>,
}

fn target(text: &str, outside: &Outside<'_>) -> Option<Target> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = match scheme {
        "http" => "http",
        "https" => "https",
        _ => return None,
    };
    let (host, path) = match rest.strip_prefix("unix:") {
        Some(socket) => match socket.split_once(':') {
            Some((socket, path)) => (format!("unix:{socket}"), path),
            None => (format!("unix:{socket}"), ""),
        },
        None => match rest.find('/') {
            Some(slash) => (rest[..slash].to_owned(), &rest[slash..]),
            None => (rest.to_owned(), ""),
        },
    };
    if host.contains('$') || path.contains(['$', '?']) || host.is_empty() {
        return None;
    }
    let address = match () {
        () if outside.upstreams.contains(&*host) => format!("upstream:{host}"),
        () if host.starts_with("unix:") => host,
        () if scheme == "https" && !host.contains(':') => format!("{host}:443"),
        () => address(&host),
    };
    Some(Target { scheme, address, path: (!path.is_empty()).then(|| path.to_owned()) })
}

/// Makes a route that passes requests on.
pub(super) fn pass(
    directive: &Directive,
    matcher: &Matcher,
    condition: &Condition,
    scope: &Scope<'_>,
    outside: &Outside<'_>,
) -> Section {
    let mut route = Section::new("site.route");
    let Some(target) = target(directive.word(), outside) else {
        set_condition(&mut route, condition);
        return refused(route, directive);
    };
    match (&target.path, matcher) {
        (None, _) => set_condition(&mut route, condition),
        (Some(path), Matcher::Prefix { text, .. }) => {
            let ahead = match condition {
                Condition::Match(own) => own.clone(),
                _ => format!("^{}", quote(text)),
            };
            route.set(
                "match",
                format!("{ahead}{}(.*)$", if text == "/" { "/" } else { "" }).replace("^//", "^/"),
            );
            route.set("rewrite", format!("{}$1", path.replace('$', "$$")));
        }
        (Some(path), Matcher::Exact(_)) => {
            set_condition(&mut route, condition);
            route.set("rewrite", path.clone());
        }
        (Some(_), _) => {
            set_condition(&mut route, condition);
            return refused(route, directive);
        }
    }
    settings(directive, scope, outside, &mut route);
    route
}

fn refused(mut route: Section, directive: &Directive) -> Section {
    route.left_out(
        &directive.place,
        format!("{} has no equal: the request is refused", directive.text()),
    );
    route.set("deny", true);
    route
}

/// Makes an application the handler of a route. The path stays.
pub(super) fn settings(
    directive: &Directive,
    scope: &Scope<'_>,
    outside: &Outside<'_>,
    route: &mut Section,
) {
    let Some(Target { scheme, address, .. }) = target(directive.word(), outside) else {
        *route = refused(std::mem::take(route), directive);
        return;
    };
    let mut proxy = Section::default();
    proxy.set_in("proxy", "to", format!("{scheme}://{address}"));
    let (mut host, mut names_client, mut upgrades) = (None, false, false);
    let fields = scope.all("proxy_set_header");
    for field in &fields {
        let value = field.words.get(1).map_or("", String::as_str);
        match field.word().to_ascii_lowercase().as_str() {
            "host" => host = Some((field, value)),
            "x-forwarded-for" => {
                names_client = true;
                let text =
                    "X-Forwarded-For: the application also gets X-Forwarded-Proto, -Host and -Port";
                route.note(&field.place, text);
            }
            "upgrade" => upgrades = true,
            _ => {}
        }
    }
    match host {
        Some((_, "$host" | "$http_host")) => {}
        Some((_, "$proxy_host")) | None => proxy.set_in("proxy", "host", "upstream"),
        Some((field, value)) => match translate(value, scope, Use::Value) {
            Ok(value) if !value.contains('$') => proxy.set_in("proxy", "host", value),
            Ok(value) if value == "$host" => {}
            _ => route.left_out(
                &field.place,
                format!("{} has no equal: the application gets the client's Host", field.text()),
            ),
        },
    }
    if !names_client {
        proxy.set_in("proxy", "forwarded", "off");
    }
    if !upgrades {
        proxy.set_in("proxy", "upgrade", false);
    }
    if scheme == "https" && scope.word("proxy_ssl_verify") != Some("on") {
        // nginx checks no certificates unless it is told to.
        proxy.set_in("proxy", "verify", false);
    }
    for (theirs, ours) in
        [("proxy_connect_timeout", "connect_timeout"), ("proxy_read_timeout", "timeout")]
    {
        if let Some(limit) = scope.get(theirs) {
            match units::time(limit.word()) {
                Some(time) => proxy.set_in("proxy", ours, time),
                None => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
            }
        }
    }
    for field in fields {
        request_field(field, names_client, scope, route);
    }
    for hidden in scope.all("proxy_hide_header") {
        route.set_in("response_headers", hidden.word(), false);
    }
    if scope.word("proxy_request_buffering") == Some("off") {
        route.set("stream_body", true);
    }
    route.absorb(proxy);
}

fn request_field(field: &Directive, names_client: bool, scope: &Scope<'_>, route: &mut Section) {
    let (name, value) = (field.word(), field.words.get(1).map_or("", String::as_str));
    match name.to_ascii_lowercase().as_str() {
        "host" | "upgrade" | "connection" | "x-forwarded-for" | "accept-encoding" => {}
        "x-forwarded-proto" if names_client && value == "$scheme" => {}
        "x-forwarded-host" if names_client && matches!(value, "$host" | "$http_host") => {}
        "x-forwarded-port" if names_client && value == "$server_port" => {}
        _ if value.is_empty() => route.set_in("request_headers", name, false),
        _ => match translate(value, scope, Use::Value) {
            Ok(value) => route.set_in("request_headers", name, value),
            Err(variable) => route.left_out(
                &field.place,
                format!("proxy_set_header {name} has no equal: {variable} is not known"),
            ),
        },
    }
}
