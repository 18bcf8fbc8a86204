//! The locations of a server, and the kinds of answers that they give.

use super::http::Outside;
use super::pattern::{Candidate, Condition, Matcher};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use crate::document::Section;

/// A location.
pub(super) struct Location<'d> {
    pub(super) candidate: Candidate,
    /// `None`: the server itself, for paths that no location matches.
    pub(super) directive: Option<&'d Directive>,
    pub(super) scope: Scope<'d>,
}

/// The answer of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file.
    Static,
    /// php-fpm, at this address. The script is at the path, or is this one.
    Php {
        address: String,
        script: Option<String>,
    },
    /// Another FastCGI application.
    FastCgi(String),
    Proxy,
    Metrics,
    /// An application for which Sendoff has no handler.
    Unknown,
}

/// All locations of a server, and the server itself if no location takes every path.
pub(super) fn collect<'d>(server: &Scope<'d>, site: &mut Section) -> Vec<Location<'d>> {
    let mut locations = Vec::new();
    inside(server, &[], &mut locations, site);
    let is_root = |location: &Location<'_>| matches!(&location.candidate.matcher, Matcher::Prefix { text, .. } if text == "/");
    if !locations.iter().any(is_root) {
        let matcher = Matcher::Prefix { text: "/".to_owned(), beats_expressions: false };
        let candidate = Candidate { matcher, around: Vec::new() };
        locations.push(Location { candidate, directive: None, scope: server.clone() });
    }
    locations
}

fn inside<'d>(
    scope: &Scope<'d>,
    around: &[usize],
    locations: &mut Vec<Location<'d>>,
    site: &mut Section,
) {
    for directive in scope.own() {
        match (&*directive.name, &directive.block) {
            ("location", Some(block)) => {
                let matcher = match matcher(directive, around.last().copied()) {
                    Ok(matcher) => matcher,
                    Err(why) => {
                        site.left_out(
                            &directive.place,
                            format!("{} has no equal: {why}", directive.text()),
                        );
                        continue;
                    }
                };
                let nests = matches!(matcher, Matcher::Prefix { .. });
                let inner = scope.inner(block);
                let number = locations.len();
                let candidate = Candidate { matcher, around: around.to_vec() };
                locations.push(Location {
                    candidate,
                    directive: Some(directive),
                    scope: inner.clone(),
                });
                if nests {
                    inside(&inner, &[around, &[number]].concat(), locations, site);
                } else if let Some(nested) = block.iter().find(|nested| nested.name == "location") {
                    site.left_out(
                        &nested.place,
                        "a location within an expression or an exact path has no equal",
                    );
                }
            }
            ("limit_except", Some(_)) => {
                site.left_out(
                    &directive.place,
                    format!(
                        "{} has no equal: write a route with method and deny",
                        directive.text()
                    ),
                );
            }
            _ => {}
        }
    }
}

fn matcher(directive: &Directive, within: Option<usize>) -> Result<Matcher, String> {
    let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
    let expression = |text: String| match super::pattern::mistake(&text) {
        None if super::pattern::refers_to_groups(&text) => {
            Err("it refers to its own groups".to_owned())
        }
        None => Ok(Matcher::Expression { text, within }),
        Some(mistake) => Err(mistake),
    };
    match words[..] {
        ["=", path] => Ok(Matcher::Exact(path.to_owned())),
        ["^~", path] => Ok(Matcher::Prefix { text: path.to_owned(), beats_expressions: true }),
        ["~", text] => expression(text.to_owned()),
        ["~*", text] => expression(format!("(?i){text}")),
        [name] if name.starts_with('@') => Ok(Matcher::Named(name[1..].to_owned())),
        [path] if path.starts_with('=') => Ok(Matcher::Exact(path[1..].to_owned())),
        [text] if text.starts_with("~*") => expression(format!("(?i){}", &text[2..])),
        [text] if text.starts_with('~') => expression(text[1..].to_owned()),
        [path] if path.starts_with("^~") => {
            Ok(Matcher::Prefix { text: path[2..].to_owned(), beats_expressions: true })
        }
        [path] if path.starts_with('/') => {
            Ok(Matcher::Prefix { text: path.to_owned(), beats_expressions: false })
        }
        _ => Err("its path does not begin with a slash".to_owned()),
    }
}

/// The answer of a location, by its own directives.
pub(super) fn kind(location: &Location<'_>, outside: &Outside<'_>) -> Kind {
    for directive in location.scope.own() {
        match &*directive.name {
            "fastcgi_pass" => return fastcgi(directive, location, outside),
            "proxy_pass" => return Kind::Proxy,
            "scgi_pass" | "uwsgi_pass" | "grpc_pass" | "memcached_pass" => return Kind::Unknown,
            "stub_status" => return Kind::Metrics,
            _ => {}
        }
    }
    Kind::Static
}

fn fastcgi(directive: &Directive, location: &Location<'_>, outside: &Outside<'_>) -> Kind {
    let mut address = directive.word().to_owned();
    if let Some(upstream) = outside
        .http
        .iter()
        .find(|upstream| upstream.name == "upstream" && upstream.word() == address)
    {
        let mut servers = upstream.block.iter().flatten().filter(|inner| inner.name == "server");
        match (servers.next(), servers.next()) {
            (Some(only), None) => address = only.word().to_owned(),
            _ => return Kind::FastCgi(format!("upstream:{address}")),
        }
    }
    if address.contains('$') {
        return Kind::Unknown;
    }
    let is_local = address.starts_with("unix:") && address.contains("php")
        || ["127.0.0.1:90", "localhost:90", "[::1]:90"]
            .iter()
            .any(|start| address.starts_with(start));
    if !is_local {
        return Kind::FastCgi(address);
    }
    let parameters = location.scope.all("fastcgi_param");
    let mut names = parameters.iter().filter(|parameter| parameter.word() == "SCRIPT_FILENAME");
    let script = names.next_back().and_then(|parameter| parameter.words.get(1)).and_then(|name| {
        let name = translate(name, &location.scope, Use::Value).ok()?;
        let root = location.scope.word("root").unwrap_or_default();
        let path = name.strip_prefix(root.trim_end_matches('/'))?;
        (path.starts_with('/') && !path.contains('$')).then(|| path.to_owned())
    });
    Kind::Php { address, script }
}

/// True if Sendoff would run a script at a path of a location that only sends files.
pub(super) fn may_run(location: &Location<'_>, condition: &Condition, tries: bool) -> bool {
    match &location.candidate.matcher {
        Matcher::Exact(path) => path.contains(".php"),
        Matcher::Named(_) => false,
        Matcher::Expression { text, .. } => super::pattern::endings(text)
            .is_none_or(|endings| endings.iter().any(|ending| ending == "php")),
        Matcher::Prefix { text, .. } => {
            let probe = |rest: &str| condition.holds(&format!("{text}{rest}"));
            probe("probe.php") || probe("/probe.php") || !tries && probe("/probe.php/x")
        }
    }
}
