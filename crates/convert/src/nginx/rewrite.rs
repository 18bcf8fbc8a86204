//! The directives that nginx carries out before anything else: `if`, `return`, `rewrite`.

use super::pattern::{Condition, mistake, quote, unanchored};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use crate::document::Section;

/// Sets the conditions of a route about its path.
pub(super) fn set_condition(route: &mut Section, condition: &Condition) {
    match condition {
        Condition::All => {}
        Condition::Path(path) => route.set("path", path.clone()),
        Condition::Match(expression) => route.set("match", expression.clone()),
        Condition::None => route.set("match", "(?!)"),
    }
}

fn route(condition: &Condition) -> Section {
    let mut route = Section::new("site.route");
    set_condition(&mut route, condition);
    route
}

/// The routes for the directives of a server or of a location, in order.
pub(super) fn routes(condition: &Condition, scope: &Scope<'_>, routes: &mut Vec<Section>) {
    for directive in scope.own() {
        match &*directive.name {
            "return" => routes.push(answer(directive, route(condition), scope)),
            "rewrite" => routes.push(rewrite(directive, condition, Section::default(), scope)),
            "if" => conditional(directive, condition, scope, routes),
            _ => {}
        }
    }
}

fn conditional(
    test: &Directive,
    condition: &Condition,
    scope: &Scope<'_>,
    routes: &mut Vec<Section>,
) {
    let mut extra = Section::default();
    let understood = apply(test, &mut extra);
    for directive in test.block.iter().flatten() {
        let mut made = match (&*directive.name, understood) {
            ("return", Tested::Known) => {
                let mut made = route(condition);
                made.absorb(extra.clone());
                answer(directive, made, scope)
            }
            ("rewrite", Tested::Known) => rewrite(directive, condition, extra.clone(), scope),
            ("rewrite", Tested::Missing) => if_missing(directive, condition, scope),
            ("return", Tested::Https) if scope.get("ssl_certificate").is_some() => {
                // A site with TLS redirects.
                Section::default()
            }
            ("return", _) if matches!(directive.word(), "401" | "403" | "404" | "410" | "444") => {
                let mut made = route(condition);
                made.left_out(
                    &test.place,
                    format!("{} has no equal: every request is refused", test.text()),
                );
                made.set("deny", true);
                made
            }
            ("break", _) => Section::default(),
            (name, Tested::Known) => {
                let mut made = Section::default();
                made.left_out(&directive.place, format!("{name} within if has no equal"));
                made
            }
            _ => {
                let mut made = Section::default();
                made.left_out(&test.place, format!("{} has no equal", test.text()));
                made
            }
        };
        if made.is_empty() {
            let mut comments = Section::default();
            comments.absorb_comments(std::mem::take(&mut made));
            made = comments;
        }
        routes.push(made);
    }
}

/// The meaning of the condition of an `if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tested {
    /// It is a condition of the route.
    Known,
    /// No file or folder is at the path.
    Missing,
    /// The request came without TLS.
    Https,
    Unknown,
}

/// Adds the condition of an `if` to a route.
fn apply(test: &Directive, route: &mut Section) -> Tested {
    let text = test.words.join(" ");
    let text = text.trim().strip_prefix('(').unwrap_or(&text).trim();
    let text = text.strip_suffix(')').unwrap_or(text).trim();
    let mut words = text.splitn(3, ' ');
    let (subject, operator) = (words.next().unwrap_or_default(), words.next());
    let value = words.next().unwrap_or_default().trim();
    let value = value.trim_matches('"');
    match (subject, operator) {
        ("!-e" | "!-f", Some("$request_filename")) => return Tested::Missing,
        ("$scheme", Some("=")) if value == "http" => return Tested::Https,
        ("$scheme", Some("!=")) if value == "https" => return Tested::Https,
        ("$https", Some("=" | "!=")) => return Tested::Https,
        _ => {}
    }
    let is_host = matches!(subject, "$host" | "$http_host");
    let exactly = |value: &str| match is_host {
        // nginx's variable has no port.
        true => format!("(?i)^{}(?::\\d+)?$", quote(value)),
        false => format!("^{}$", quote(value)),
    };
    let expression = match operator {
        None => None,
        Some("=") => Some(exactly(value)),
        Some("!=") => Some(format!("!{}", exactly(value))),
        Some("~") => Some(value.to_owned()),
        Some("~*") => Some(format!("(?i){value}")),
        Some("!~") => Some(format!("!{value}")),
        Some("!~*") => Some(format!("!(?i){value}")),
        Some(_) => return Tested::Unknown,
    };
    if let Some(expression) = &expression
        && mistake(expression.trim_start_matches('!')).is_some()
    {
        return Tested::Unknown;
    }
    let name = subject.trim_start_matches('$');
    if is_host {
        let Some(expression) = expression else { return Tested::Unknown };
        route.set_in("header", "Host", expression);
    } else if let Some(field) = name.strip_prefix("http_") {
        let field = field.replace('_', "-");
        match expression {
            Some(expression) => route.set_in("header", &field, expression),
            None => route.set_in("header", &field, true),
        }
    } else if let Some(parameter) = name.strip_prefix("arg_") {
        match expression {
            Some(expression) => route.set_in("query", parameter, expression),
            None => route.set_in("query", parameter, true),
        }
    } else if name == "request_method" {
        return methods(operator, value, route);
    } else {
        return Tested::Unknown;
    }
    Tested::Known
}

fn methods(operator: Option<&str>, value: &str, route: &mut Section) -> Tested {
    let names = match operator {
        Some("=") => value,
        Some("~") => {
            let bare = value.strip_prefix("^(").and_then(|bare| bare.strip_suffix(")$"));
            match bare.or_else(|| value.strip_prefix('^').and_then(|bare| bare.strip_suffix('$'))) {
                Some(names) => names,
                None => return Tested::Unknown,
            }
        }
        _ => return Tested::Unknown,
    };
    let names: Vec<_> = names.split('|').map(str::to_owned).collect();
    // `GET` stands for HEAD, too, which nginx distinguishes.
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_uppercase());
    if !names.iter().all(is_plain)
        || names.iter().any(|name| name == "GET") != names.iter().any(|name| name == "HEAD")
    {
        return Tested::Unknown;
    }
    route.set_list("method", names);
    Tested::Known
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
            route.note(
                &directive.place,
                "return 444: the client gets 400, nginx closes the connection",
            );
            route.set("deny", true);
            route.set("status", 400);
            route
        }
        (Some(code @ 400..=599), None) => {
            route.set("deny", true);
            if code != 403 {
                route.set("status", i64::from(code));
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
                    route.set("content_type", scope.word("default_type").unwrap_or("text/plain"));
                    route
                }
                Err(variable) => unknown(route, variable),
            }
        }
        _ => unknown(route, format!("the status {first}")),
    }
}

/// The route for `rewrite`, with further conditions.
fn rewrite(
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
    let leaves = matches!(flag, "redirect" | "permanent")
        || target.starts_with("http://")
        || target.starts_with("https://")
        || target.starts_with("$scheme");
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
                (true, true) => format!("{target}&$query"),
                (false, false) => format!("{target}?"),
                _ => target,
            };
            route.set("rewrite", target);
            if flag.is_empty() && !matches!(condition, Condition::All) {
                route.note(&directive.place, "rewrite without a flag: the other locations apply to the new path, as with \"last\"");
            }
        }
        (Err(why), _) | (Ok(_), Some(why)) => {
            route.left_out(
                &directive.place,
                format!("{} has no equal: {why} is not known", directive.text()),
            );
        }
        (Ok(_), None) => {
            route.left_out(&directive.place, format!("{} has no equal", directive.text()));
        }
    }
    route
}

/// `if (!-e $request_filename) { rewrite ... }`: the target answers where nothing exists.
fn if_missing(directive: &Directive, condition: &Condition, scope: &Scope<'_>) -> Section {
    let mut route = rewrite(directive, condition, Section::default(), scope);
    if let Some(target) = route.take("rewrite") {
        let candidates = vec!["$path".to_owned(), "$path/".to_owned(), target];
        route.set_list("try_files", candidates);
    } else if route.has("redirect") {
        let mut comments = Section::default();
        comments.left_out(
            &directive.place,
            format!("{} where no file exists has no equal", directive.text()),
        );
        return comments;
    }
    route
}
