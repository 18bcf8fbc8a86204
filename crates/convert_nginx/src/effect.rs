//! The routes of a single `return` or `rewrite`.

use super::pattern::{Condition, mistake, unanchored};
use super::scope::Scope;
use super::tested::Tested;
use super::text::{Use, translate};
use super::tree::Directive;
use sendoff_convert_document::Section;

/// Sets the conditions of a route about its path.
pub(super) fn set_condition(route: &mut Section, condition: &Condition) {
    match condition {
        Condition::All => {}
        Condition::Path(path) => route.set("path", path.clone()),
        Condition::Match(expression) => route.set("match", expression.clone()),
        Condition::None => route.set("match", "(?!)"),
    }
}

/// A route with these conditions.
pub(super) fn route(condition: &Condition) -> Section {
    let mut route = Section::new("site.route");
    set_condition(&mut route, condition);
    route
}

/// The route for `return`.
pub(super) fn answer(directive: &Directive, mut route: Section, scope: &Scope<'_>) -> Section {
    let (first, text) = (directive.word(), directive.words.get(1));
    let code = first.parse::<u16>().ok();
    let unknown = |mut route: Section, variable: String| {
        route.left_out(
            &directive.place,
            format!(
                "{} has no equal: {variable} is not known; the request is refused",
                directive.text()
            ),
        );
        route.set("deny", true);
        route
    };
    match (code, text) {
        (None, _) | (Some(301 | 302 | 303 | 307 | 308), Some(_)) => {
            let target = if code.is_none() { first } else { text.map_or("", String::as_str) };
            match translate(target, scope, Use::Value) {
                Ok(target) if target.starts_with(['/', '$']) || target.contains("://") => {
                    if target.contains("$query") {
                        route.note(
                            &directive.place,
                            "without a query, a ? stays at the end of the target",
                        );
                    }
                    route.set("redirect", target);
                    route.set("status", i64::from(code.unwrap_or(302)));
                    route
                }
                Ok(target) => unknown(route, format!("the target {target}")),
                Err(variable) => unknown(route, variable),
            }
        }
        (Some(444), _) => {
            let text = "return 444: the client gets 403, nginx closes the connection";
            route.note(&directive.place, text);
            route.set("deny", true);
            route
        }
        // A refusal also holds for a path that rewriting or an index file leads to.
        (Some(code @ 400..=499), text) => {
            // An error page of `deny` has no other status than these.
            if !matches!(code, 403 | 404 | 410) {
                route.set("try_files", format!("={code}"));
            }
            route.set("deny", true);
            if matches!(code, 404 | 410) {
                route.set("status", i64::from(code));
            }
            if text.is_some_and(|text| !text.is_empty()) {
                let text = format!("{}: the error page has another text", directive.text());
                route.left_out(&directive.place, text);
            }
            route
        }
        (Some(code @ 200..=599), text) => {
            match translate(text.map_or("", String::as_str), scope, Use::Value) {
                Ok(text) => {
                    route.set("respond", text);
                    if code != 200 {
                        route.set("status", i64::from(code));
                    }
                    route.set(
                        "content_type",
                        scope.peek("default_type").map(Directive::word).unwrap_or("text/plain"),
                    );
                    route
                }
                Err(variable) => unknown(route, variable),
            }
        }
        _ => unknown(route, format!("the status {first}")),
    }
}

/// The route for `rewrite`, with further conditions.
pub(super) fn rewrite(
    directive: &Directive,
    condition: &Condition,
    extra: Section,
    scope: &Scope<'_>,
) -> Section {
    let mut route = Section::new("site.route");
    let (expression, target) =
        (directive.word(), directive.words.get(1).map_or("", String::as_str));
    let flag = directive.words.get(2).map_or("", String::as_str);
    let combined = match condition.ahead() {
        ahead if ahead.is_empty() => expression.to_owned(),
        ahead => format!("^{ahead}{}", unanchored(expression)),
    };
    let leaves = matches!(flag, "redirect" | "permanent") || leaves(target);
    let keeps_query = !target.ends_with('?');
    let target = target.strip_suffix('?').unwrap_or(target);
    let purpose = if leaves { Use::Value } else { Use::Path };
    let translated = translate(target, scope, purpose);
    let wrong = mistake(&combined).map(|_| "the expression".to_owned());
    match (translated, wrong) {
        (Ok(target), None) if leaves => {
            route.set("match", combined);
            route.absorb(extra);
            let target = match (keeps_query, target.contains('?') || target.ends_with("$uri")) {
                (true, false) => {
                    route.note(
                        &directive.place,
                        "without a query, a ? stays at the end of the target",
                    );
                    format!("{target}?$query")
                }
                _ => target,
            };
            route.set("redirect", target);
            route.set("status", if flag == "permanent" { 301 } else { 302 });
        }
        (Ok(target), None) if target.starts_with(['/', '$']) => {
            route.set("match", combined);
            route.absorb(extra);
            let target = match (keeps_query, target.contains('?')) {
                (true, true) => {
                    let text = "without a query, an & stays at the end of the new query";
                    route.note(&directive.place, text);
                    format!("{target}&$query")
                }
                (false, false) => format!("{target}?"),
                _ => target,
            };
            route.set("rewrite", target);
        }
        (target, wrong) => {
            let why = target.err().or(wrong.clone()).map(|why| format!(": {why} is not known"));
            let text = format!(
                "{} has no equal{}; its requests are refused",
                directive.text(),
                why.unwrap_or_default()
            );
            route.left_out(&directive.place, text);
            match wrong {
                None => route.set("match", combined),
                Some(_) => set_condition(&mut route, condition),
            }
            route.absorb(extra);
            route.set("deny", true);
        }
    }
    route
}

/// True for a target of `rewrite` that the client is redirected to.
pub(super) fn leaves(target: &str) -> bool {
    ["http://", "https://", "$scheme"].iter().any(|start| target.starts_with(start))
}

/// `if (!-e $request_filename) { rewrite ... }`: the target answers where nothing exists.
pub(super) fn if_missing(
    directive: &Directive,
    condition: &Condition,
    scope: &Scope<'_>,
    tested: Tested,
) -> Vec<Section> {
    let mut route = rewrite(directive, condition, Section::default(), scope);
    let Some(target) = route.take("rewrite") else {
        let mut comments = Section::default();
        let text = format!("{} where no file exists has no equal", directive.text());
        comments.left_out(&directive.place, text);
        return vec![comments];
    };
    candidates(route, tested, target)
}

/// The routes for a path that leads to no file: a target, or a status. For `-f` a folder is no
/// file, so paths with a slash at their end get a route of their own.
pub(super) fn candidates(mut route: Section, tested: Tested, target: String) -> Vec<Section> {
    let mut routes = Vec::new();
    let mut names = vec!["$path".to_owned()];
    if tested == Tested::NoFile {
        let mut of_folders = route.clone();
        let is_of_folder = match (route.texts("path").first(), route.texts("match").first()) {
            (Some(path), _) => path.ends_with('/'),
            (None, Some(expression)) => {
                of_folders.set("match", format!("^(?=.*/$){}", unanchored(expression)));
                true
            }
            (None, None) => {
                of_folders.set("match", "/$");
                true
            }
        };
        if is_of_folder {
            of_folders.set_list("try_files", vec![target.clone()]);
            routes.push(of_folders);
        }
    } else {
        names.push("$path/".to_owned());
    }
    names.push(target);
    route.set_list("try_files", names);
    routes.push(route);
    routes
}
