//! Redirects that lead back to themselves: browsers follow about 20 redirects and give up.

use pcre2::bytes::Regex;
use sendoff_config::{Conditions, Handler, Route};
use sendoff_setting_values::HostName;

use super::context::Context;
use crate::keys;

/// Relation of a route to a request of which only the path is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concerns {
    Always,
    Never,
    /// Depends on the request's method, fields or query, or on a map.
    Perhaps,
}

impl Concerns {
    /// Evaluates the conditions for a request for a path.
    pub(super) fn of(conditions: &Conditions, path: &str) -> Self {
        let Conditions { paths, prefixes, extensions, expression, methods, headers, query, when } =
            conditions;
        let is_beneath = |prefix: &String| {
            let rest = path.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let ends = |ending: &String| name.ends_with(&ending.to_ascii_lowercase());
        let fits = (paths.is_empty() || paths.iter().any(|one| one == path))
            && (prefixes.is_empty() || prefixes.iter().any(is_beneath))
            && (extensions.is_empty() || extensions.iter().any(ends));
        if !fits {
            return Self::Never;
        }
        let matches = expression.as_ref().map(|expression| {
            let matches = Regex::new(expression).and_then(|regex| regex.is_match(path.as_bytes()));
            matches.ok()
        });
        let is_for_get = methods.is_empty() || methods.iter().any(|method| method == "GET");
        match matches {
            Some(Some(false)) => Self::Never,
            Some(None) => Self::Perhaps,
            _ if is_for_get && headers.is_empty() && query.is_empty() && when.is_empty() => {
                Self::Always
            }
            _ => Self::Perhaps,
        }
    }
}

impl Context<'_> {
    /// Warns of redirects of a site that lead back to themselves.
    pub(super) fn redirects_end(&mut self, section: &keys::Site, routes: &[Route]) {
        for (number, (route, written)) in routes.iter().zip(&section.route.value.0).enumerate() {
            let Some(Handler::Redirect { to, .. }) = &route.handler else { continue };
            let Some(redirect) = &written.redirect else { continue };
            let says = match way_back(section, routes, number, to) {
                Some(way) if way.is_empty() => {
                    "this redirect leads to itself: its own route concerns the target".to_owned()
                }
                Some(way) => {
                    let way: Vec<_> = way.iter().map(|over| &*routes[*over].origin).collect();
                    format!("this redirect leads back to itself, by way of {}", way.join(", "))
                }
                None => continue,
            };
            self.problems
                .warning(redirect.place, says)
                .help("browsers give up after some twenty redirects: an earlier route must answer the target, or a condition must exclude it");
        }
    }
}

/// The routes over which a redirect leads back to its own route; `None` if it does not, or if the
/// answer depends on more than the path.
fn way_back(section: &keys::Site, routes: &[Route], number: usize, to: &str) -> Option<Vec<usize>> {
    let conditions = &routes[number].conditions;
    let depends = !conditions.headers.is_empty()
        || !conditions.query.is_empty()
        || !conditions.when.is_empty()
        || !conditions.methods.is_empty();
    let same = ["$uri", "$path", "https://$host$uri", "https://$host$path"];
    let is_same = same.contains(&to) && (to.starts_with('$') || section.tls.is_some());
    if is_same && !depends {
        return Some(Vec::new());
    }
    let mut path = target(section, to)?;
    let mut way = Vec::new();
    loop {
        let (next, to) = redirected(routes, &path)?;
        if next == number {
            return Some(way);
        }
        if way.contains(&next) {
            return None;
        }
        way.push(next);
        path = target(section, to)?;
    }
}

/// The route that redirects requests for a path, and its target.
fn redirected<'r>(routes: &'r [Route], path: &str) -> Option<(usize, &'r str)> {
    for (number, Route { conditions, rules, handler, .. }) in routes.iter().enumerate() {
        let leads_on = rules.rewrite.is_some() || !rules.try_files.is_empty();
        let decides = handler.is_some() || leads_on || !rules.lua.is_empty();
        match (Concerns::of(conditions, path), handler) {
            (Concerns::Never, _) => {}
            (_, _) if !decides => {}
            (Concerns::Always, Some(Handler::Redirect { to, .. }))
                if !leads_on && rules.lua.is_empty() =>
            {
                return Some((number, to));
            }
            _ => return None,
        }
    }
    None
}

/// The path of the same site that a redirect leads to; `None` if it leads to another host, or if
/// the target depends on the request.
fn target(section: &keys::Site, to: &str) -> Option<String> {
    let hosts = section.hosts.as_ref();
    let is_own = |host: &str| {
        hosts.is_some_and(|hosts| {
            hosts.value.values().any(|own| matches!(own, HostName::Exact(own) if own == host))
        })
    };
    let scheme = if section.tls.is_some() { "https://" } else { "http://" };
    let local = match to.strip_prefix(scheme) {
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if !is_own(host) {
                return None;
            }
            if path.is_empty() { "/" } else { path }
        }
        None => to,
    };
    let path = local.split(['?', '#']).next().unwrap_or_default();
    let is_plain = path.starts_with('/') && !path.starts_with("//") && !path.contains(['$', '%']);
    is_plain.then(|| path.to_owned())
}
