//! Paths that nginx looks at again: it carries out the rewriting of their location, too.
//!
//! A route that redirects or answers concerns the path that it sees. So the routes for rewriting
//! stand a second time behind those that lead to such a path, if their conditions may hold for it.
//! Refusals need no second route: they hold for every path that a request is led to.

use sendoff_convert_document::Section;

use super::pattern::{
    beginning, endings, matches, matches_all_scripts, may_begin, quote, split_ahead, unanchored,
};
use super::server::Phases;

/// A path that nginx looks at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lead {
    Path(String),
    /// Paths that begin with this text.
    Below(String),
    /// A path, with this text behind it.
    Behind(String),
    /// A folder, with the name of its index file behind it.
    Index(String),
}

/// The routes for the paths that `try_files`, named locations and rewriting lead to.
pub(super) fn behind_tries(phases: &Phases, of_server: &[Section]) -> Vec<Section> {
    let tried: Vec<Lead> = leads(&phases.tries, "try_files");
    let named = leads(&phases.named, "rewrite");
    let mut routes = again_of_server(of_server, &tried);
    for (number, route) in phases.rewriting.iter().enumerate().filter(|(_, one)| is_gate(one)) {
        // Later routes have already led the request there.
        let later = &phases.rewriting[number + 1..];
        let rewritten = [leads(later, "rewrite"), leads(later, "try_files")].concat();
        let mut all = tried.iter().chain(&named).chain(&rewritten);
        if all.any(|lead| may_hold(route, lead)) {
            routes.push(again(route));
        }
    }
    let all = [tried, named, leads(&phases.rewriting, "rewrite")].concat();
    routes.extend(again_of_tries(phases, &all));
    with_named(routes, phases)
}

/// The routes for index files with these names.
pub(super) fn behind_index(
    phases: &Phases,
    of_server: &[Section],
    names: &[String],
) -> Vec<Section> {
    let leads: Vec<_> = names.iter().map(|name| Lead::Index(name.clone())).collect();
    let concerns = |route: &&Section| leads.iter().any(|lead| may_hold(route, lead));
    let mut routes = again_of_server(of_server, &leads);
    let gates = phases.rewriting.iter().filter(|route| is_gate(route));
    routes.extend(gates.filter(concerns).map(again));
    routes.extend(again_of_tries(phases, &leads));
    with_named(routes, phases)
}

fn again_of_server(of_server: &[Section], leads: &[Lead]) -> Vec<Section> {
    let gates = of_server.iter().filter(|route| is_gate(route));
    let made = gates.filter_map(|route| {
        let concerned: Vec<_> = leads.iter().filter(|lead| may_hold(route, lead)).collect();
        match route.has("rewrite") {
            _ if concerned.is_empty() => None,
            // A client's path was rewritten before; it must not be twice.
            true => rewritten_again(route, &concerned),
            false => Some(again(route)),
        }
    });
    made.collect()
}

/// A route that rewrites, for these paths alone.
fn rewritten_again(route: &Section, leads: &[&Lead]) -> Option<Section> {
    let ends = leads.iter().filter_map(|lead| match lead {
        Lead::Path(path) => Some(format!("{}$", quote(path))),
        Lead::Index(name) => Some(format!(".*/{}$", quote(name))),
        Lead::Below(_) | Lead::Behind(_) => None,
    });
    let ends: Vec<_> = ends.collect();
    let mut rest = again(route);
    let expression = rest.take("match").filter(|_| !ends.is_empty())?;
    let mut made = Section::new("site.route");
    made.set("match", format!("^(?={}){}", ends.join("|"), unanchored(&expression)));
    made.absorb(rest);
    Some(made)
}

/// The routes of `try_files` without the path itself: the path exists where it was tried.
fn again_of_tries<'p>(phases: &'p Phases, leads: &[Lead]) -> impl Iterator<Item = Section> + 'p {
    let leads = leads.to_vec();
    let concerns = move |route: &&Section| leads.iter().any(|lead| may_hold(route, lead));
    let is_fixed = |route: &&Section| {
        let names = route.texts("try_files");
        !names.is_empty() && names.iter().all(|name| !name.contains('$') || name.starts_with("/@"))
    };
    phases.tries.iter().filter(is_fixed).filter(concerns).map(again)
}

/// The routes, and behind them the named locations if one of them leads there.
fn with_named(routes: Vec<Section>, phases: &Phases) -> Vec<Section> {
    let leads =
        |route: &Section| route.texts("try_files").iter().any(|name| name.starts_with("/@"));
    let named = if routes.iter().any(leads) { &phases.named[..] } else { &[] };
    [&routes, named].concat()
}

/// The route, for the path that another one has made.
fn again(route: &Section) -> Section {
    let mut made = Section::new("site.route");
    made.comment("This route again, for paths that the ones above lead to:");
    let mut route = route.clone();
    // `sendoff check` would say that no request reaches a second route for the same path.
    if let Some(path) = route.take("path") {
        made.set("match", format!("^{}$", quote(&path)));
    }
    made.absorb(route);
    made
}

/// True for a route that answers by more than a refusal, or leads on.
fn is_gate(route: &Section) -> bool {
    let acts = ["redirect", "respond", "rewrite"].iter().any(|key| route.has(key));
    acts && !route.has("deny")
}

/// The paths that the values of a key lead to.
fn leads(routes: &[Section], key: &str) -> Vec<Lead> {
    const HANDLERS: [&str; 5] = ["deny", "static", "php", "fastcgi", "proxy"];
    let leads_on = |route: &&Section| !HANDLERS.iter().any(|key| route.has(key));
    let values = routes.iter().filter(leads_on).flat_map(|route| route.texts(key));
    let mut leads: Vec<Lead> = Vec::new();
    for lead in values.filter_map(|value| lead(&value)) {
        if !leads.contains(&lead) {
            leads.push(lead);
        }
    }
    leads
}

/// The path that a value leads to; `None`: a status, or the path itself.
fn lead(value: &str) -> Option<Lead> {
    let path = value.split('?').next().unwrap_or_default();
    if path.starts_with(['=']) || path.starts_with("/@") || matches!(path, "$path" | "$path/") {
        return None;
    }
    match (path.split_once('$'), path.strip_prefix("$path")) {
        (None, _) => Some(Lead::Path(path.to_owned())),
        (_, Some(rest)) if !rest.contains(['$', '/']) => Some(Lead::Behind(rest.to_owned())),
        (Some((start, _)), _) => Some(Lead::Below(start.to_owned())),
    }
}

/// True if the conditions of a route about the path may hold for a path that a request is led to,
/// although they did not hold for the path before. A route for every path has seen the request.
fn may_hold(route: &Section, lead: &Lead) -> bool {
    if let [path] = &route.texts("path")[..] {
        return match lead {
            Lead::Path(own) => own == path,
            Lead::Below(start) => path.starts_with(start.as_str()),
            Lead::Behind(end) => path.ends_with(end.as_str()),
            Lead::Index(name) => path.ends_with(&format!("/{name}")),
        };
    }
    let [expression] = &route.texts("match")[..] else { return false };
    match lead {
        Lead::Path(path) => matches(expression, path),
        Lead::Below(start) => match split_ahead(expression, "(?!") {
            Some((_, rest)) => may_begin(&format!("^{rest}"), start),
            None => may_begin(expression, start),
        },
        Lead::Behind(end) => holding(expression, end, false) == Holding::Perhaps,
        Lead::Index(name) => holding(expression, &format!("/{name}"), true) == Holding::Perhaps,
    }
}

/// The paths with a text behind them for which an expression holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holding {
    Never,
    /// If it holds, then also for the path without the text.
    Before,
    Perhaps,
}

/// `of_folder` tells that the path without the text is a folder's.
fn holding(expression: &str, text: &str, of_folder: bool) -> Holding {
    if let Some((inner, rest)) = split_ahead(expression, "(?=")
        && let [inner] = inner[..]
    {
        let inner = holding(&format!("^{inner}"), text, of_folder);
        let rest = holding(&format!("^{rest}"), text, of_folder);
        return match (inner, rest) {
            (Holding::Never, _) | (_, Holding::Never) => Holding::Never,
            (Holding::Before, Holding::Before) => Holding::Before,
            _ => Holding::Perhaps,
        };
    }
    let (excluded, rest) = match split_ahead(expression, "(?!") {
        Some((excluded, rest)) => (excluded, format!("^{rest}")),
        None => (Vec::new(), expression.to_owned()),
    };
    if excluded.iter().any(|one| matches_all(one, text)) {
        return Holding::Never;
    }
    let own = rest.strip_prefix("^.*?").unwrap_or(&rest);
    let has_ending = endings(own).is_none_or(|endings| endings.iter().any(|one| ends(text, one)));
    if !has_ending || rest.ends_with("/$") && !text.ends_with('/') {
        return Holding::Never;
    }
    let start = beginning(&rest).unwrap_or_default();
    let behind = rest.strip_prefix('^').and_then(|rest| rest.strip_prefix(quote(&start).as_str()));
    let is_open = matches!(behind, Some("" | ".*" | ".*?" | ".*$" | "(.*)" | "(.*)$"));
    // The slash of an index file belongs to its folder.
    let mut parts = text.char_indices().map(|(at, sign)| &text[..at + sign.len_utf8()]);
    let is_before = !parts.any(|part| start.ends_with(part) && !(of_folder && part == "/"));
    let keeps = |one: &&str| stays_excluded(one, of_folder);
    match is_open && is_before && excluded.iter().all(keeps) {
        true => Holding::Before,
        false => Holding::Perhaps,
    }
}

/// True if an alternative of a negative look-ahead that matches a path surely matches it with a text
/// behind it, too, or matches no folder if the path is one.
fn stays_excluded(alternative: &str, of_folder: bool) -> bool {
    let own = alternative.strip_prefix(".*?").unwrap_or(alternative);
    let is_literal =
        |text: &str| quote(&beginning(&format!("^{text}")).unwrap_or_default()) == text;
    let is_of_file =
        alternative.strip_suffix('$').is_some_and(|path| !path.ends_with('/') && is_literal(path));
    is_literal(alternative) || of_folder && (is_of_file || endings(own).is_some())
}

/// True if an alternative of a look-ahead surely matches every path with this text at its end.
fn matches_all(alternative: &str, text: &str) -> bool {
    let inner = alternative.strip_prefix("(?:").and_then(|one| one.strip_suffix(')'));
    let alternative = inner.filter(|one| one.contains("(?i)")).unwrap_or(alternative);
    match alternative.strip_prefix(".*?") {
        Some(own) => {
            text.ends_with(".php") && matches_all_scripts(own, false)
                || !own.starts_with('^')
                    && endings(own).is_some_and(|all| all.iter().any(|one| ends(text, one)))
        }
        None => text.ends_with(".php") && matches_all_scripts(&format!("^{alternative}"), false),
    }
}

fn ends(text: &str, ending: &str) -> bool {
    text.strip_suffix(ending).is_some_and(|start| start.ends_with('.'))
}
