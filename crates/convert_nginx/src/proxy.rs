//! Applications: `proxy_pass`, `uwsgi_pass`, `scgi_pass` and `grpc_pass`.

use super::effect::set_condition;
use super::pattern::{Condition, Matcher, quote};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use super::{authorize, public, rules, units};
use sendoff_convert_document::Section;

/// An address with its port.
pub(super) fn address(word: &str) -> String {
    match word.strip_prefix("unix:") {
        Some(path) => format!("unix:{}", path.trim_end_matches(':')),
        None if word.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
            word.to_owned()
        }
        None => format!("{word}:80"),
    }
}

/// The directives that pass requests on to an application for which there is a handler.
pub(super) const PASSES: [&str; 4] = ["proxy_pass", "uwsgi_pass", "scgi_pass", "grpc_pass"];

/// Takes the directive of a location that passes its requests on.
pub(super) fn own_pass<'d>(scope: &Scope<'d>) -> Option<&'d Directive> {
    PASSES.iter().find_map(|name| scope.own(name))
}

/// The application that a directive names, in parts.
pub(super) struct Target {
    /// The scheme of Sendoff's URL.
    pub(super) scheme: &'static str,
    pub(super) address: String,
    /// The path that replaces the location's; `None`: the path stays.
    pub(super) path: Option<String>,
}

impl Target {
    /// The URL without its path.
    pub(super) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    fn has_tls(&self) -> bool {
        matches!(self.scheme, "https" | "h2s")
    }

    /// True for the protocols with parameters in place of fields.
    fn has_parameters(&self) -> bool {
        matches!(self.scheme, "uwsgi" | "scgi")
    }
}

/// The application of a directive; `None` if it cannot be expressed.
pub(super) fn target(pass: &Directive, scope: &Scope<'_>) -> Option<Target> {
    let (theirs, rest) = pass.word().split_once("://").unwrap_or(("", pass.word()));
    let scheme = match (&*pass.name, theirs) {
        ("proxy_pass", "http") => "http",
        ("proxy_pass", "https") => "https",
        ("grpc_pass", "" | "grpc") => "h2",
        ("grpc_pass", "grpcs") => "h2s",
        ("uwsgi_pass", "" | "uwsgi") => "uwsgi",
        ("scgi_pass", "" | "scgi") => "scgi",
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
    let has_path = pass.name == "proxy_pass" && !path.is_empty();
    if host.contains('$') || path.contains(['$', '?']) || host.is_empty() {
        return None;
    }
    if !has_path && !path.is_empty() {
        return None;
    }
    let address = match () {
        () if scope.has_upstream(&host) => format!("upstream:{host}"),
        () if host.starts_with("unix:") => host,
        () if matches!(scheme, "https" | "h2s") && !host.contains(':') => format!("{host}:443"),
        () => address(&host),
    };
    Some(Target { scheme, address, path: has_path.then(|| path.to_owned()) })
}

/// Makes a route that passes requests on.
pub(super) fn pass(
    directive: &Directive,
    matcher: &Matcher,
    condition: &Condition,
    scope: &Scope<'_>,
) -> Section {
    let mut route = Section::new("site.route");
    let Some(target) = target(directive, scope) else {
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
            if path.ends_with('/') && !text.ends_with('/') {
                let text = format!(
                    "{}: the application gets one slash where nginx sends two, for lack of one behind {text}",
                    directive.text()
                );
                route.note(&directive.place, text);
            }
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
    settings(directive, matcher, scope, &mut route);
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

/// Makes an application the handler of a route.
pub(super) fn settings(
    directive: &Directive,
    matcher: &Matcher,
    scope: &Scope<'_>,
    route: &mut Section,
) {
    let Some(target) = target(directive, scope) else {
        *route = refused(std::mem::take(route), directive);
        return;
    };
    let module = directive.name.trim_end_matches("pass");
    let named = |name: &str| format!("{module}{name}");
    let mut proxy = Section::default();
    proxy.set_in("proxy", "to", target.url());
    if target.has_parameters() {
        proxy.set_in("proxy", "forwarded", "off");
        for parameter in scope.all(&named("param")) {
            rules::application_parameter(parameter, scope, route);
        }
    } else {
        fields(&scope.all(&named("set_header")), scope, &target, &mut proxy, route);
    }
    if directive.name == "proxy_pass" {
        public::urls(directive, &target, matcher, scope, &mut proxy);
    }
    if target.has_tls() && scope.word(&named("ssl_verify")) != Some("on") {
        // nginx checks no certificates unless it is told to.
        proxy.set_in("proxy", "verify", false);
    }
    for (theirs, ours) in [("connect_timeout", "connect_timeout"), ("read_timeout", "timeout")] {
        if let Some(limit) = scope.get(&named(theirs)) {
            match units::time(limit.word()) {
                Some(time) => proxy.set_in("proxy", ours, time),
                None => route.left_out(&limit.place, format!("{} has no equal", limit.text())),
            }
        }
    }
    for hidden in scope.all(&named("hide_header")) {
        route.set_in("response_headers", hidden.word(), false);
    }
    if scope.word(&named("request_buffering")) == Some("off") {
        route.set("stream_body", true);
    }
    route.absorb(proxy);
}

/// The fields of requests to an application over HTTP.
fn fields(
    fields: &[&Directive],
    scope: &Scope<'_>,
    target: &Target,
    proxy: &mut Section,
    route: &mut Section,
) {
    let (mut host, mut names_client, mut upgrades) = (None, false, false);
    for field in fields {
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
        Some((_, "$proxy_host")) | None => {
            let host = target.address.strip_prefix("upstream:").unwrap_or("upstream");
            proxy.set_in("proxy", "host", host);
        }
        Some((field, value)) => match translate(value, scope, Use::Value) {
            Ok(value) if !value.contains('$') => proxy.set_in("proxy", "host", value),
            Ok(value) if value == "$host" => {}
            _ => route.left_out(
                &field.place,
                format!("{} has no equal: the application gets the client's Host", field.text()),
            ),
        },
    }
    // Sendoff's own fields would replace another value.
    let is_other = |field: &&&Directive| {
        let value = field.words.get(1).map_or("", String::as_str);
        let name = field.word().to_ascii_lowercase();
        is_forwarded(&name) && !is_default(&name, value)
    };
    if let Some(other) = fields.iter().find(is_other).filter(|_| names_client) {
        names_client = false;
        route.set_in("request_headers", "X-Forwarded-For", "$remote_addr");
        let text = "X-Forwarded-For: the application gets the address of the client alone";
        route.note(&other.place, text);
    }
    if !names_client {
        proxy.set_in("proxy", "forwarded", "off");
    }
    if !upgrades && matches!(target.scheme, "http" | "https") {
        proxy.set_in("proxy", "upgrade", false);
    }
    for field in fields {
        request_field(field, names_client, scope, route);
    }
}

/// True for a field beside `X-Forwarded-For` that Sendoff sets itself.
fn is_forwarded(name: &str) -> bool {
    const NAMES: [&str; 4] =
        ["x-forwarded-proto", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"];
    NAMES.contains(&name)
}

/// True for the value that Sendoff gives a field.
fn is_default(name: &str, value: &str) -> bool {
    match name {
        "x-forwarded-proto" => value == "$scheme",
        "x-forwarded-host" => matches!(value, "$host" | "$http_host"),
        "x-forwarded-port" => value == "$server_port",
        _ => false,
    }
}

fn request_field(field: &Directive, names_client: bool, scope: &Scope<'_>, route: &mut Section) {
    let (name, value) = (field.word(), field.words.get(1).map_or("", String::as_str));
    match name.to_ascii_lowercase().as_str() {
        "host" | "upgrade" | "connection" | "x-forwarded-for" | "accept-encoding" | "te" => {}
        name if names_client && is_default(name, value) => {}
        _ if value.is_empty() => route.set_in("request_headers", name, false),
        // The service sets it.
        _ if authorize::grant(field, scope).is_some() => {}
        _ => match translate(value, scope, Use::Value) {
            Ok(value) => route.set_in("request_headers", name, value),
            Err(variable) => {
                // The application trusts the field: a client must not send it.
                route.set_in("request_headers", name, false);
                let text = format!(
                    "{} {name} has no equal: {variable} is not known; the application does not get the field",
                    field.name
                );
                route.left_out(&field.place, text);
            }
        },
    }
}
