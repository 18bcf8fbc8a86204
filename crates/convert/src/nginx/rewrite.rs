//! The directives that nginx carries out before anything else: `if`, `return`, `rewrite`.

use super::pattern::{Condition, may_begin, mistake, quote, unanchored};
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

/// The meaning of `rewrite ... break` in a block.
#[derive(Clone, Copy)]
pub(super) enum Staying<'s> {
    /// As `last`: a server has no answer of its own.
    AsLast,
    /// The location answers: the function completes the route.
    Here(&'s dyn Fn(Section) -> Section),
}

/// Adds the routes for the directives of a server or of a location, in order.
pub(super) fn routes(
    condition: &Condition,
    scope: &Scope<'_>,
    staying: Staying<'_>,
    routes: &mut Vec<Section>,
) {
    let mut rewriting = Rewriting { condition, scope, staying, routes, ended: Vec::new() };
    let mut directives = scope.block().iter();
    while let Some(directive) = directives.next() {
        rewriting.directive(directive, directives.as_slice());
        if matches!(&*directive.name, "return" | "break") {
            // nginx carries out no further ones.
            directives.by_ref().filter(|later| is_rewriting(later)).for_each(Directive::take_whole);
        }
    }
}

fn is_rewriting(directive: &Directive) -> bool {
    matches!(&*directive.name, "return" | "rewrite" | "if" | "break" | "set")
}

/// The directives of a block that are carried out in order.
struct Rewriting<'r, 'd> {
    condition: &'r Condition,
    scope: &'r Scope<'d>,
    staying: Staying<'r>,
    routes: &'r mut Vec<Section>,
    /// The beginnings of the paths that earlier directives make, after which nginx carries out no
    /// further ones.
    ended: Vec<String>,
}

impl Rewriting<'_, '_> {
    fn directive(&mut self, directive: &Directive, later: &[Directive]) {
        match &*directive.name {
            "return" => {
                directive.take();
                let made = answer(directive, route(self.condition), self.scope);
                self.add(made, directive, "");
            }
            "rewrite" => {
                directive.take();
                self.rewrite(directive, Section::default(), later);
            }
            "if" => {
                directive.take_whole();
                self.conditional(directive, later);
            }
            "break" => directive.take(),
            _ => {}
        }
    }

    /// Adds a route, with a remark if nginx would not carry out its directive for a path that an
    /// earlier one has made.
    fn add(&mut self, mut made: Section, directive: &Directive, expression: &str) {
        let sees = |start: &String| match self.condition {
            Condition::All => may_begin(expression, start),
            Condition::None => false,
            Condition::Path(path) => path.starts_with(start.as_str()),
            Condition::Match(own) => may_begin(own, start) && may_begin(expression, start),
        };
        if self.ended.iter().any(sees) {
            let text = format!(
                "{} has no exact equal: here it may see the path of an earlier rewrite, after which nginx carries out no further one",
                directive.text()
            );
            made.left_out(&directive.place, text);
        }
        if made.is_empty() {
            let mut comments = Section::default();
            comments.absorb_comments(made);
            made = comments;
        }
        self.routes.push(made);
    }

    fn rewrite(&mut self, directive: &Directive, extra: Section, later: &[Directive]) {
        let mut made = rewrite(directive, self.condition, extra, self.scope);
        let flag = directive.words.get(2).map_or("", String::as_str);
        let target = directive.words.get(1).map_or("", String::as_str);
        let is_outermost =
            *self.condition == Condition::All && matches!(self.staying, Staying::AsLast);
        let mut ends = made.has("rewrite") && matches!(flag, "last" | "break");
        match (flag, self.staying) {
            ("break", Staying::Here(complete)) if made.has("rewrite") => {
                made = complete(made);
                ends = false;
            }
            ("", _) if made.has("rewrite") && !is_outermost && later.iter().any(is_rewriting) => {
                let text = format!(
                    "{} has no exact equal: the directives behind it see the new path only if it is still one of this location",
                    directive.text()
                );
                made.left_out(&directive.place, text);
            }
            _ => {}
        }
        self.add(made, directive, directive.word());
        if ends {
            let literal = target.split(['$', '?']).next().unwrap_or_default();
            self.ended.push(literal.to_owned());
        }
    }

    fn conditional(&mut self, test: &Directive, later: &[Directive]) {
        let mut extra = Section::default();
        let tested = apply(test, &mut extra);
        let has_tls = self.scope.peek("ssl_certificate").is_some();
        let tested = match tested {
            // Without TLS, every request is one of http.
            Tested::Http if !has_tls => Tested::Known,
            tested => tested,
        };
        for directive in test.block.iter().flatten() {
            let mut made = Section::default();
            match (&*directive.name, tested) {
                ("return", Tested::Known) => {
                    let mut conditions = route(self.condition);
                    conditions.absorb(extra.clone());
                    made = answer(directive, conditions, self.scope);
                }
                ("rewrite", Tested::Known) => {
                    self.rewrite(directive, extra.clone(), later);
                    continue;
                }
                ("rewrite", Tested::Missing | Tested::NoFile) => {
                    made = if_missing(directive, self.condition, self.scope, tested);
                }
                ("return", Tested::Missing) if is_refusal(directive.word()) => {
                    made = route(self.condition);
                    let status = format!("={}", directive.word());
                    made.set_list(
                        "try_files",
                        vec!["$path".to_owned(), "$path/".to_owned(), status],
                    );
                }
                ("return", Tested::Http) if to_https(directive) => {
                    made.note(&test.place, "https_redirect of the site redirects");
                }
                ("return", _) if is_refusal(directive.word()) => {
                    made = route(self.condition);
                    let text = format!("{} has no equal: every request is refused", test.text());
                    made.left_out(&test.place, text);
                    made.set("deny", true);
                }
                (name, Tested::Known) => {
                    made.left_out(&directive.place, format!("{name} within if has no equal"));
                }
                (name, _) => made.left_out(
                    &directive.place,
                    format!("{name} within {} has no equal", test.text()),
                ),
            }
            self.add(made, directive, "");
        }
    }
}

/// True if a status refuses a request.
fn is_refusal(status: &str) -> bool {
    status.len() == 3 && status.starts_with('4')
}

/// True if a `return` redirects to the same address with https.
fn to_https(directive: &Directive) -> bool {
    let target = directive.words.last().map_or("", String::as_str);
    matches!(
        target,
        "https://$host$request_uri"
            | "https://$http_host$request_uri"
            | "https://$server_name$request_uri"
    )
}

/// True if an `if` of the server redirects requests without TLS.
pub(super) fn redirects_to_https(scope: &Scope<'_>) -> bool {
    let redirects = |test: &&Directive| {
        let asks = test.name == "if" && apply(test, &mut Section::default()) == Tested::Http;
        asks && test.block.iter().flatten().any(to_https)
    };
    scope.block().iter().any(|directive| redirects(&directive))
}

/// The meaning of the condition of an `if`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tested {
    /// It is a condition of the route.
    Known,
    /// No file or folder is at the path.
    Missing,
    /// No file is at the path.
    NoFile,
    /// The request came without TLS.
    Http,
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
        ("!-e", Some("$request_filename")) => return Tested::Missing,
        ("!-f", Some("$request_filename")) => return Tested::NoFile,
        ("$scheme", Some("=")) if value == "http" => return Tested::Http,
        ("$scheme", Some("!=")) if value == "https" => return Tested::Http,
        ("$https", Some("!=")) if value == "on" => return Tested::Http,
        ("$https", Some("=")) if value.is_empty() => return Tested::Http,
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
            let text = "return 444: the client gets 403, nginx closes the connection";
            route.note(&directive.place, text);
            route.set("deny", true);
            route
        }
        (Some(403), None) => {
            route.set("deny", true);
            route
        }
        (Some(code @ (404 | 410)), None) => {
            route.set("deny", true);
            route.set("status", i64::from(code));
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
fn if_missing(
    directive: &Directive,
    condition: &Condition,
    scope: &Scope<'_>,
    tested: Tested,
) -> Section {
    let mut route = rewrite(directive, condition, Section::default(), scope);
    let Some(target) = route.take("rewrite") else {
        let mut comments = Section::default();
        let text = format!("{} where no file exists has no equal", directive.text());
        comments.left_out(&directive.place, text);
        return comments;
    };
    let mut candidates = vec!["$path".to_owned()];
    match tested {
        Tested::NoFile => {
            let text =
                "if (!-f ...): here a path with a slash at its end that leads to a folder stays";
            route.left_out(&directive.place, text);
        }
        _ => candidates.push("$path/".to_owned()),
    }
    candidates.push(target);
    route.set_list("try_files", candidates);
    route
}
