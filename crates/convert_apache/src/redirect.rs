//! `Redirect` and `RedirectMatch`, outside of sections about paths: they come before access.

use sendoff_convert_document::expression::{mistake, quote};
use sendoff_convert_document::{Directive, Section};

use super::sections::{Kind, Part};

/// The routes of the redirects of these parts.
pub(super) fn routes(parts: &[Part<'_>], elsewhere: &[String]) -> Vec<Section> {
    const NAMES: [&str; 4] = ["redirect", "redirectpermanent", "redirecttemp", "redirectmatch"];
    let mut routes = Vec::new();
    for part in parts {
        for directive in part.directives.iter().filter(|one| NAMES.contains(&one.name.as_str())) {
            match part.kind {
                Kind::Server => routes.push(redirect(directive, elsewhere)),
                _ => routes.push(of_section(directive, part)),
            }
        }
    }
    routes
}

/// The status that stands in front of the words, and the words behind it.
fn status(directive: &Directive) -> (i64, &[String]) {
    let default = if directive.name == "redirectpermanent" { 301 } else { 302 };
    let words = &directive.words[..];
    let Some((first, rest)) = words.split_first() else { return (default, words) };
    let named = match first.to_ascii_lowercase().as_str() {
        "permanent" => Some(301),
        "temp" => Some(302),
        "seeother" => Some(303),
        "gone" => Some(410),
        code => code.parse().ok().filter(|code| (300..600).contains(code)),
    };
    match named {
        Some(status)
            if directive.name.ends_with("redirect") || directive.name.ends_with("match") =>
        {
            (status, rest)
        }
        _ => (default, words),
    }
}

/// The expression for the paths of a redirect, and the text for its target.
fn parts<'d>(directive: &'d Directive, words: &'d [String]) -> Option<(String, &'d str)> {
    let from = words.first()?;
    let target = words.get(1).map_or("", String::as_str);
    let expression = match directive.name.as_str() {
        "redirectmatch" => {
            if mistake(from).is_some() {
                return None;
            }
            from.clone()
        }
        _ if !from.starts_with('/') => return None,
        _ if from.ends_with('/') => format!(r"^{}((?s:.*))\z", quote(from)),
        _ => format!(r"^{}((?s:/.*)?)\z", quote(from)),
    };
    Some((expression, target))
}

fn redirect(directive: &Directive, elsewhere: &[String]) -> Section {
    let mut route = Section::new("site.route");
    let (status, words) = status(directive);
    let Some((expression, target)) = parts(directive, words) else {
        return refused(directive, route);
    };
    // Applications of ProxyPass come first.
    let proxied: String =
        elsewhere.iter().map(|path| format!("(?!{})", super::areas::beneath(path).may)).collect();
    let expression = match (proxied.is_empty(), expression.strip_prefix('^')) {
        (true, _) => expression,
        (false, Some(rest)) if !expression.contains('|') => format!("^{proxied}{rest}"),
        (false, _) => format!("^{proxied}(?s:.*?)(?:{expression})"),
    };
    if status >= 400 {
        route.set("match", expression);
        route.set("deny", true);
        if status != 403 {
            match status {
                404 | 410 => route.set("status", status),
                _ => {
                    route
                        .note(&directive.place, format!("{}: the status is 403", directive.text()));
                }
            }
        }
        return route;
    }
    let Some(target) = translated(directive, target) else { return refused(directive, route) };
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return refused(directive, route);
    }
    match directive.word_is_root(words) && target.ends_with('/') && target.contains("://") {
        // The whole path and the query follow.
        true => route.set("redirect", format!("{}$uri", target.trim_end_matches('/'))),
        false => {
            route.set("match", expression);
            let rest = if directive.name == "redirectmatch" { "" } else { "$1" };
            let text = "without a query, a ? stays at the end of the target";
            route.note(&directive.place, format!("{}: {text}", directive.text()));
            route.set("redirect", format!("{target}{rest}?$query"));
        }
    }
    route.set("status", status);
    route
}

trait OfRoot {
    fn word_is_root(&self, words: &[String]) -> bool;
}

impl OfRoot for Directive {
    /// True for a redirect of every path.
    fn word_is_root(&self, words: &[String]) -> bool {
        self.name != "redirectmatch" && words.first().is_some_and(|path| path == "/")
    }
}

/// A redirect within a section: everything there, behind the rules about access.
fn of_section(directive: &Directive, part: &Part<'_>) -> Section {
    let mut route = Section::new("site.route");
    let Some(condition) = part.area.without(std::iter::empty()) else { return route };
    let (status, words) = status(directive);
    condition.set(&mut route);
    match words {
        [target] if matches!(status, 301 | 302 | 303 | 307 | 308) => {
            match translated(directive, target) {
                Some(target) => {
                    route.set("redirect", target);
                    route.set("status", status);
                }
                None => return refused(directive, route),
            }
        }
        [] if status >= 400 => {
            route.set("deny", true);
            if matches!(status, 404 | 410) {
                route.set("status", status);
            }
        }
        _ => return refused(directive, route),
    }
    route
}

/// A target without variables other than groups.
fn translated(directive: &Directive, target: &str) -> Option<String> {
    if !(target.starts_with('/') || target.contains("://")) || target.contains('%') {
        return None;
    }
    match directive.name == "redirectmatch" {
        true => Some(target.to_owned()).filter(|target| !target.contains("$$")),
        false => Some(target.replace('$', "$$")),
    }
}

fn refused(directive: &Directive, mut route: Section) -> Section {
    directive.left_out(&mut route, "its requests are refused");
    route.set("deny", true);
    route
}
