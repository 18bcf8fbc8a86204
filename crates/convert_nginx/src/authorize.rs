//! `auth_request`: a web service decides about requests.

use super::pattern::{Condition, Matcher};
use super::proxy::{Target, target};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use super::{location, units};
use sendoff_convert_document::Section;

/// Fields of the question that Sendoff sets itself, with nginx's variables for their values.
const OWN_FIELDS: [(&str, &[&str]); 15] = [
    ("accept-encoding", &[""]),
    ("connection", &["", "close", "keep-alive"]),
    ("content-length", &[""]),
    ("content-type", &[""]),
    ("x-forwarded-for", &["$remote_addr", "$proxy_add_x_forwarded_for"]),
    ("x-forwarded-host", &["$host", "$http_host"]),
    ("x-forwarded-method", &["$request_method"]),
    ("x-forwarded-port", &["$server_port"]),
    ("x-forwarded-proto", &["$scheme"]),
    ("x-forwarded-uri", &["$request_uri"]),
    ("x-original-method", &["$request_method"]),
    ("x-original-uri", &["$request_uri"]),
    ("x-original-url", &["$scheme://$http_host$request_uri", "$scheme://$host$request_uri"]),
    // A location for the question passes no upgrade on.
    ("upgrade", &["", "$http_upgrade"]),
    ("te", &[""]),
];

/// Sets the service that is asked about each request.
///
/// # Errors
/// The question cannot be expressed; the reason.
pub(super) fn set(asked: &Directive, scope: &Scope<'_>, route: &mut Section) -> Result<(), String> {
    let path = asked.word();
    let place =
        scope.found_location(path, is_chosen).ok_or("no location is named like its path")?;
    let own = |name: &str| place.block().iter().find(|directive| directive.name == name);
    if let Some(other) = place.block().iter().find(|directive| {
        matches!(&*directive.name, "return" | "rewrite" | "if" | "try_files")
            || directive.name.ends_with("_lua_block")
    }) {
        return Err(format!("its location has {}", other.name));
    }
    let pass = own("proxy_pass").ok_or("its location has no proxy_pass")?;
    let service = target(pass, &place).ok_or_else(|| format!("{} is not known", pass.text()))?;
    if place.peek("proxy_pass_request_headers").is_some_and(|passes| passes.word() == "off") {
        return Err("proxy_pass_request_headers off is not known".to_owned());
    }
    let url = format!("{}{}", url(&service), service.path.as_deref().unwrap_or(path));
    let mut table = Section::default();
    table.set_in("authorize", "url", url);
    let mut host = "upstream".to_owned();
    let mut fields = Section::default();
    for field in place.peek_all("proxy_set_header") {
        let (name, value) = (field.word(), field.words.get(1).map_or("", String::as_str));
        match (&*name.to_ascii_lowercase(), value) {
            ("host", "$host" | "$http_host") => "client".clone_into(&mut host),
            ("host", "$proxy_host") => {}
            ("host", text) if !text.is_empty() && !text.contains('$') => {
                text.clone_into(&mut host);
            }
            ("x-real-ip", "$remote_addr") => {
                fields.set_in("request_headers", name, "$remote_addr");
            }
            (lower, value) if is_own(lower, value) => {}
            _ => return Err(format!("{} is not known", field.text())),
        }
    }
    if host != "client" {
        table.set_in("authorize", "host", host);
    }
    if let Some(limit) = place.peek("proxy_read_timeout").and_then(|it| units::time(it.word())) {
        table.set_in("authorize", "timeout", limit);
    }
    if service.scheme == "https"
        && place.peek("proxy_ssl_verify").is_none_or(|verify| verify.word() != "on")
    {
        table.set_in("authorize", "verify", false);
    }
    granted(scope, &mut table);
    route.absorb(table);
    route.absorb(fields);
    Ok(())
}

/// The URL of the service; a colon stands between a socket and the path.
fn url(service: &Target) -> String {
    let colon = if service.address.starts_with("unix:") { ":" } else { "" };
    format!("{}{colon}", service.url())
}

fn is_own(name: &str, value: &str) -> bool {
    OWN_FIELDS.iter().any(|(own, values)| *own == name && values.contains(&value))
}

/// True if nginx chooses this location for the path, whatever other locations there are.
fn is_chosen(candidate: &Directive, others: &[Directive], path: &str) -> bool {
    match location::matcher(candidate, None) {
        Ok(Matcher::Exact(own)) => own == path,
        Ok(Matcher::Prefix { text, beats_expressions: true }) => text == path,
        Ok(Matcher::Prefix { text, beats_expressions: false }) => {
            text == path
                && !others.iter().filter(|other| other.name == "location").any(|other| {
                    match location::matcher(other, None) {
                        Ok(Matcher::Expression { text, .. }) => Condition::Match(text).holds(path),
                        Ok(Matcher::Exact(own)) => own == path,
                        Ok(_) => false,
                        Err(_) => true,
                    }
                })
        }
        _ => false,
    }
}

/// Names the fields of an answer that become fields of the request.
fn granted(scope: &Scope<'_>, table: &mut Section) {
    const TO_APPLICATIONS: [&str; 5] =
        ["proxy_set_header", "grpc_set_header", "fastcgi_param", "uwsgi_param", "scgi_param"];
    let mut names: Vec<String> = Vec::new();
    for directive in TO_APPLICATIONS.iter().flat_map(|name| scope.peek_all(name)) {
        match grant(directive, scope) {
            Some(Grant::Field(name)) if !names.contains(&name) => names.push(name),
            Some(Grant::User(field)) => table.set_in("authorize", "user", field),
            _ => {}
        }
    }
    if !names.is_empty() {
        table.set_in("authorize", "copy_headers", names);
    }
}

/// The use of a field in which a service describes the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// It becomes a field of the request with the same name.
    Field(String),
    /// It becomes `REMOTE_USER`.
    User(String),
}

/// The use that a `..._set_header` or `..._param` makes of a variable of `auth_request_set`.
pub(super) fn grant(directive: &Directive, scope: &Scope<'_>) -> Option<Grant> {
    let asks = scope.peek("auth_request").is_some_and(|asked| asked.word() != "off");
    let (name, value) = (directive.word(), directive.words.get(1)?);
    let sets = scope.peek_all("auth_request_set");
    let set = sets.iter().rev().find(|set| set.word() == value)?;
    let field = set.words.get(1)?.strip_prefix("$upstream_http_")?.replace('_', "-");
    if !asks || translate(&field, scope, Use::Value).as_ref() != Ok(&field) {
        return None;
    }
    let becomes = match directive.name.ends_with("_param") {
        true if name == "REMOTE_USER" => return Some(Grant::User(field)),
        true => name.strip_prefix("HTTP_")?.replace('_', "-"),
        false => name.to_owned(),
    };
    becomes.eq_ignore_ascii_case(&field).then_some(Grant::Field(becomes))
}
