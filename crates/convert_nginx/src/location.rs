//! The locations of a server, and the kinds of answers that they give.

use super::http::Outside;
use super::pattern::{Candidate, Condition, Matcher, endings, matches_all_scripts};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use super::{access, proxy};
use sendoff_convert_document::Section;

/// A location.
pub(super) struct Location<'d> {
    pub(super) candidate: Candidate,
    /// `None`: the server itself, for paths that no location matches.
    pub(super) directive: Option<&'d Directive>,
    pub(super) scope: Scope<'d>,
}

/// A location, with what is known about it.
pub(super) struct Known<'d> {
    pub(super) location: Location<'d>,
    pub(super) condition: Condition,
    /// The expressions that nginx asks first, for each of its paths.
    pub(super) asked_before: Vec<String>,
    pub(super) kind: Kind,
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

/// The locations of a server.
pub(super) struct Collected<'d> {
    /// All locations, and the server itself if no location takes every path.
    pub(super) locations: Vec<Location<'d>>,
    /// A location that is missing restricts access.
    pub(super) lacks_guard: bool,
}

/// Finds the locations of a server, also those within others.
pub(super) fn collect<'d>(server: &Scope<'d>, site: &mut Section) -> Collected<'d> {
    let mut collected = Collected { locations: Vec::new(), lacks_guard: false };
    inside(server, &[], &mut collected, site);
    let is_root = |location: &Location<'_>| matches!(&location.candidate.matcher, Matcher::Prefix { text, .. } if text == "/");
    if !collected.locations.iter().any(is_root) {
        let matcher = Matcher::Prefix { text: "/".to_owned(), beats_expressions: false };
        let candidate = Candidate { matcher, around: Vec::new() };
        collected.locations.push(Location { candidate, directive: None, scope: server.clone() });
    }
    collected
}

fn inside<'d>(
    scope: &Scope<'d>,
    around: &[usize],
    collected: &mut Collected<'d>,
    site: &mut Section,
) {
    for directive in scope.block().iter().filter(|directive| directive.name == "location") {
        let Some(block) = &directive.block else { continue };
        directive.take();
        let matcher = match matcher(directive, around.last().copied()) {
            Ok(matcher) => matcher,
            Err(why) => {
                let text = format!("{} has no equal: {why}", directive.text());
                site.left_out(&directive.place, text);
                directive.take_whole();
                collected.lacks_guard |= restricts(block);
                continue;
            }
        };
        let nests = matches!(matcher, Matcher::Prefix { .. });
        let inner = scope.inner(block);
        let number = collected.locations.len();
        let candidate = Candidate { matcher, around: around.to_vec() };
        let location = Location { candidate, directive: Some(directive), scope: inner.clone() };
        collected.locations.push(location);
        if nests {
            inside(&inner, &[around, &[number]].concat(), collected, site);
            continue;
        }
        for nested in block.iter().filter(|nested| nested.name == "location") {
            let text = "a location within an expression or an exact path has no equal";
            site.left_out(&nested.place, text);
            nested.take_whole();
            collected.lacks_guard |= nested.block.as_deref().is_some_and(restricts);
        }
    }
}

/// True if the directives of a block, or of a block in it, refuse requests.
pub(super) fn restricts(block: &[Directive]) -> bool {
    block.iter().any(|directive| {
        let refuses = match &*directive.name {
            "deny" | "auth_basic" | "auth_request" | "internal" | "limit_except" => true,
            "return" => directive.word().starts_with('4'),
            _ => access::may_guard(directive),
        };
        refuses || directive.block.as_deref().is_some_and(restricts)
    })
}

pub(super) fn matcher(directive: &Directive, within: Option<usize>) -> Result<Matcher, String> {
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
    for directive in location.scope.block() {
        match &*directive.name {
            "fastcgi_pass" => return fastcgi(directive, location, outside),
            name if proxy::PASSES.contains(&name) => return Kind::Proxy,
            "memcached_pass" => return Kind::Unknown,
            "stub_status" => return Kind::Metrics,
            _ => {}
        }
    }
    Kind::Static
}

fn fastcgi(directive: &Directive, location: &Location<'_>, outside: &Outside<'_>) -> Kind {
    directive.take();
    let named = directive.word();
    let mut address = named.to_owned();
    let mut upstreams = outside.http.iter().filter(|inner| inner.name == "upstream");
    if let Some(upstream) = upstreams.find(|upstream| upstream.word() == named) {
        let mut servers = upstream.block.iter().flatten().filter(|inner| inner.name == "server");
        address = match (servers.next(), servers.next()) {
            (Some(only), None) => only.word().to_owned(),
            _ => format!("upstream:{named}"),
        };
    }
    if address.contains('$') {
        return Kind::Unknown;
    }
    if !is_php(&address) && !runs_php(outside.http, named, false) {
        return Kind::FastCgi(address);
    }
    let parameters = location.scope.all("fastcgi_param");
    let mut names = parameters.iter().filter(|parameter| parameter.word() == "SCRIPT_FILENAME");
    let script = names.next_back().and_then(|parameter| parameter.words.get(1)).and_then(|name| {
        let name = translate(name, &location.scope, Use::Value).ok()?;
        let root = location.scope.peek("root").map(Directive::word).unwrap_or_default();
        let path = name.strip_prefix(root.trim_end_matches('/'))?;
        (path.starts_with('/') && !path.contains('$')).then(|| path.to_owned())
    });
    Kind::Php { address, script }
}

/// True for an address that looks like php-fpm's.
fn is_php(address: &str) -> bool {
    const PORTS: [&str; 3] = ["127.0.0.1:90", "localhost:90", "[::1]:90"];
    address.starts_with("unix:") && address.contains("php")
        || PORTS.iter().any(|start| address.starts_with(start))
}

/// True if a location of the blocks passes scripts of PHP to this application. `is_around` tells
/// that a location around them is one for scripts.
fn runs_php(blocks: &[Directive], application: &str, is_around: bool) -> bool {
    let names_script = |directive: &Directive| {
        matches!(&*directive.name, "fastcgi_index" | "fastcgi_param" | "fastcgi_split_path_info")
            && directive.words.iter().any(|word| word.contains(".php") || word.contains(r"\.php"))
    };
    let is_here = blocks
        .iter()
        .any(|directive| directive.name == "fastcgi_pass" && directive.word() == application);
    if is_here && (is_around || blocks.iter().any(names_script)) {
        return true;
    }
    blocks.iter().any(|directive| {
        let is_for_scripts = directive.name == "location"
            && directive.words.last().is_some_and(|words| words.contains("php"));
        let block = directive.block.as_deref().unwrap_or_default();
        runs_php(block, application, is_for_scripts)
    })
}

/// True if all paths of a location are paths of scripts, with or without a path info.
pub(super) fn has_only_scripts(location: &Location<'_>) -> bool {
    const ENDS: [&str; 8] =
        ["$", "/", "(/|$)", "($|/)", "(?:/|$)", "(?:$|/)", "(/.*)?$", "(/.*|$)"];
    match &location.candidate.matcher {
        Matcher::Exact(path) => path.ends_with(".php"),
        Matcher::Prefix { text, .. } => text.ends_with(".php/"),
        Matcher::Named(_) => true,
        Matcher::Expression { text, .. } => {
            let found = text.rsplit_once(r"\.php").or_else(|| text.rsplit_once("[.]php"));
            found.is_some_and(|(start, end)| {
                let is_whole = super::pattern::mistake(start).is_none()
                    && !super::pattern::has_alternatives(text);
                is_whole && !start.contains("(?i)") && !start.ends_with('\\') && ENDS.contains(&end)
            })
        }
    }
}

/// True if Sendoff may run a script at a path of a location that only sends files, because no other
/// location surely takes all scripts. `checks_file` tells that a file is at each path.
pub(super) fn may_run(one: &Known<'_>, checks_file: bool) -> bool {
    // Without a check, a script may have any path info.
    let has_info = !checks_file;
    let is_taken = |rule: &String| matches_all_scripts(rule, has_info);
    match &one.location.candidate.matcher {
        Matcher::Exact(path) => path.contains(".php") || path.ends_with('/'),
        Matcher::Named(_) => false,
        _ if one.condition == Condition::None || one.asked_before.iter().any(is_taken) => false,
        Matcher::Expression { text, .. } => {
            has_info || endings(text).is_none_or(|endings| endings.iter().any(|one| one == "php"))
        }
        Matcher::Prefix { .. } => true,
    }
}
