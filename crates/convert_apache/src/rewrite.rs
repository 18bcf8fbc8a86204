//! `RewriteRule` and `RewriteCond`.
//!
//! The rules of a server see the path one after the other. A rule with `[L]` ends them: its path
//! begins with `/@apache/1` up to the last rule, and clients cannot name such paths.

use sendoff_convert_document::expression::{mistake, quote, unanchored, without_groups};
use sendoff_convert_document::{Directive, Section};

use super::proxy;
use super::tested::{Conditions, Missing, condition, either};

/// The beginning of paths that no further rule changes.
pub(super) const DONE: &str = "/@apache/1";

/// The place of rules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around<'a> {
    /// The path of the folder whose section has the rules; `None`: the server has them.
    pub(super) folder: Option<&'a str>,
    pub(super) has_tls: bool,
    pub(super) root: Option<&'a str>,
}

/// A rule with its conditions.
struct Rule<'d> {
    directive: &'d Directive,
    conditions: Vec<&'d Directive>,
    flags: Vec<(String, String)>,
}

/// The rules of a host outside of sections: its own rules, and the server's rules if the host
/// inherits them.
pub(super) fn of_server<'d>(
    main: &'d [Directive],
    host: Option<&'d [Directive]>,
) -> Vec<&'d Directive> {
    let Some(host) = host else { return main.iter().collect() };
    let has = |block: &[Directive], words: &[&str]| {
        let options = block.iter().filter(|one| one.name == "rewriteoptions");
        options
            .flat_map(|one| &one.words)
            .any(|word| words.iter().any(|known| word.eq_ignore_ascii_case(known)))
    };
    let is_down = |words: &[&str]| has(main, words) && !has(host, &["ignoreinherit"]);
    let is_before = has(host, &["inheritbefore"]) || is_down(&["inheritdownbefore"]);
    let is_behind = has(host, &["inherit"]) || is_down(&["inheritdown"]);
    // A host switches the rules on as the server does, unless it says something else.
    let engine = main.iter().filter(|one| one.name == "rewriteengine");
    let rules =
        main.iter().filter(|one| matches!(one.name.as_str(), "rewriterule" | "rewritecond"));
    match (is_before, is_behind) {
        (true, _) => engine.chain(rules).chain(host).collect(),
        (false, true) => engine.chain(host).chain(rules).collect(),
        (false, false) => engine.chain(host).collect(),
    }
}

/// True for `RewriteOptions` that only say which rules a host inherits.
pub(super) fn only_inherits(directive: &Directive) -> bool {
    let is_about = |word: &String| word.to_ascii_lowercase().contains("inherit");
    directive.name == "rewriteoptions" && directive.words.iter().all(is_about)
}

/// Adds the routes of the rules of a block. Returns true if paths get the beginning [`DONE`].
pub(super) fn routes(
    directives: &[&Directive],
    around: Around<'_>,
    site: &mut Section,
    routes: &mut Vec<Section>,
) -> bool {
    let is_on = directives
        .iter()
        .rfind(|one| one.name == "rewriteengine")
        .is_some_and(|engine| engine.word().eq_ignore_ascii_case("on"));
    let rules = rules(directives);
    if !is_on || rules.is_empty() {
        return false;
    }
    let is_odd = |rule: &&Rule<'_>| {
        const ODD: [&str; 7] = ["c", "chain", "s", "skip", "n", "next", "h"];
        rule.flags.iter().any(|(name, _)| ODD.contains(&name.as_str()))
    };
    if let Some(rule) = rules.iter().find(is_odd) {
        let mut route = Section::new("site.route");
        let path = around.folder.unwrap_or_default();
        if !path.is_empty() {
            route.set("prefix", path);
        }
        rule.directive.left_out(&mut route, "a chain or a loop of rules; every request is refused");
        route.set("deny", true);
        routes.push(route);
        return false;
    }
    let mut ordered: Vec<&Rule<'_>> = rules.iter().collect();
    if around.folder.is_some() {
        // In a folder the rules are tried again for each new path: refusals hold for all.
        ordered.sort_by_key(|rule| !rule.refuses());
    }
    for rule in ordered {
        rule.convert(around, site, routes);
    }
    let mut last = Section::new("site.route");
    last.set("match", format!(r"(?s)^{DONE}(/.*)\z"));
    last.set("rewrite", "$1");
    routes.push(last);
    true
}

/// True if rules of a server give requests other paths of it.
pub(super) fn changes_paths(directives: &[&Directive]) -> bool {
    let is_change = |rule: &Rule<'_>| {
        let target = rule.directive.words.get(1).map_or("-", String::as_str);
        let leaves =
            target.contains("://") || rule.flag(&["r", "redirect", "p", "proxy"]).is_some();
        target != "-" && !leaves
    };
    rules(directives).iter().any(is_change)
}

/// The guard of paths that routes make.
pub(super) fn guard() -> Section {
    let mut route = Section::new("site.route");
    route.comment("Paths below /@apache are of the routes below; a client gets 404.");
    route.set("match", "^/@apache(?:/|$)");
    route.set("respond", "");
    route.set("status", 404);
    route
}

/// Sets the script that answers in a folder, beside the scripts of other folders.
fn set_front_controller(folder: &str, script: String, site: &mut Section) {
    let folder = if folder.is_empty() { "/" } else { folder };
    // Its value is a text for the whole site, or a table.
    let known = match site.texts("front_controller").is_empty() {
        false => site.take("front_controller").filter(|known| known != "off"),
        true => None,
    };
    match known {
        None if folder == "/" && !site.has("front_controller") => {
            return site.set("front_controller", script);
        }
        None => {}
        Some(known) => site.set_in("front_controller", "/", known),
    }
    site.set_in("front_controller", folder, script);
}

fn rules<'d>(directives: &[&'d Directive]) -> Vec<Rule<'d>> {
    let (mut rules, mut pending) = (Vec::new(), Vec::new());
    for directive in directives {
        match directive.name.as_str() {
            "rewritecond" => pending.push(*directive),
            "rewriterule" => rules.push(Rule {
                directive,
                conditions: std::mem::take(&mut pending),
                flags: flags(directive.words.get(2).map_or("", String::as_str)),
            }),
            _ => {}
        }
    }
    rules
}

/// The flags between brackets.
pub(super) fn flags(text: &str) -> Vec<(String, String)> {
    let text = text.trim_start_matches('[').trim_end_matches(']');
    let flags = text.split(',').map(str::trim).filter(|flag| !flag.is_empty());
    flags
        .map(|flag| match flag.split_once('=') {
            Some((name, value)) => (name.to_ascii_lowercase(), value.to_owned()),
            None => (flag.to_ascii_lowercase(), String::new()),
        })
        .collect()
}

impl Rule<'_> {
    fn flag(&self, names: &[&str]) -> Option<&str> {
        let found = self.flags.iter().find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.as_str())
    }

    fn refuses(&self) -> bool {
        self.flag(&["f", "forbidden", "g", "gone"]).is_some()
            || self.flag(&["r", "redirect"]).is_some_and(|code| code.starts_with(['4', '5']))
    }

    fn convert(&self, around: Around<'_>, site: &mut Section, routes: &mut Vec<Section>) {
        let conditions = match self.known(around) {
            Ok(conditions) => conditions,
            Err(why) => return self.refuse(around, &why, &Conditions::default(), routes),
        };
        if conditions.never {
            let text = format!("{}: its conditions never hold here", self.directive.text());
            return site.note(&self.directive.place, text);
        }
        for name in ["e", "env", "co", "cookie"] {
            if self.flag(&[name]).is_some() {
                let text =
                    format!("{}: its variable or cookie has no equal", self.directive.text());
                site.left_out(&self.directive.place, text);
            }
        }
        if let Some(script) = self.front_controller(around, &conditions, site) {
            return set_front_controller(around.folder.unwrap_or_default(), script, site);
        }
        match self.expression(around, &conditions) {
            Some(expression) => self.answer(around, &expression, &conditions, routes),
            None => self.refuse(around, "its expression is not known", &conditions, routes),
        }
    }

    /// The script that answers in a folder for all paths that lead to no file; `None`: this is
    /// another rule, or no scripts run.
    fn front_controller(
        &self,
        around: Around<'_>,
        conditions: &Conditions,
        site: &Section,
    ) -> Option<String> {
        const ALL: [&str; 6] = [".", "^", ".*", "^.*$", "^(.*)$", "(.*)"];
        let is_plain = conditions.ahead.is_empty()
            && conditions.methods.is_empty()
            && conditions.fields.is_empty()
            && !conditions.exists;
        let is_missing = [Missing::File, Missing::Folder];
        let is_missing = is_missing.iter().all(|kind| conditions.missing.contains(kind));
        let has_other_flags = self
            .flags
            .iter()
            .any(|(name, _)| !["l", "last", "end", "pt", "qsa", "nc"].contains(&name.as_str()));
        if !is_plain || !is_missing || has_other_flags || !ALL.contains(&self.directive.word()) {
            return None;
        }
        let text = self.directive.words.get(1)?;
        let script = self.target(text, around, false).filter(|_| around.folder.is_some())?;
        let is_script = script.starts_with('/') && script.ends_with(".php");
        (is_script && !script.contains('$') && site.has("pool")).then_some(script)
    }

    /// The expression for the path, with the conditions in front.
    fn expression(&self, around: Around<'_>, conditions: &Conditions) -> Option<String> {
        let pattern = self.directive.word();
        let case = if self.flag(&["nc", "nocase"]).is_some() { "(?i)" } else { "" };
        let (negated, pattern) = match pattern.strip_prefix('!') {
            Some(pattern) => (true, pattern),
            None => (false, pattern),
        };
        if mistake(pattern).is_some() {
            return None;
        }
        let ahead = format!("(?!/@apache/){}", conditions.ahead);
        let start = around.folder.map(|folder| quote(folder.trim_end_matches('/')) + "/");
        let start = start.unwrap_or_default();
        let own = match negated {
            true => format!("(?!{})", unanchored(&without_groups(pattern))),
            false => format!("(?:{})", unanchored(pattern)),
        };
        let own = match (negated, pattern.contains('|')) {
            (false, false) => unanchored(pattern),
            _ => own,
        };
        Some(format!("{case}^{ahead}{start}{own}"))
    }

    fn answer(
        &self,
        around: Around<'_>,
        expression: &str,
        conditions: &Conditions,
        routes: &mut Vec<Section>,
    ) {
        let mut route = Section::new("site.route");
        route.set("match", expression);
        if !conditions.methods.is_empty() {
            route.set_list("method", conditions.methods.clone());
        }
        for (name, value) in &conditions.fields {
            route.add_in("header", name, value.clone());
        }
        if self.refuses() {
            if !conditions.missing.is_empty() || conditions.exists {
                return self.refuse(around, "a condition about a file", conditions, routes);
            }
            route.set("deny", true);
            if self.flag(&["g", "gone"]).is_some() {
                route.set("status", 410);
            } else if self.flag(&["r", "redirect"]) == Some("404") {
                route.set("status", 404);
            }
            return routes.push(route);
        }
        let text = self.directive.words.get(1).map_or("", String::as_str);
        let ends = self.flag(&["l", "last", "end", "pt", "passthrough"]).is_some();
        if text == "-" {
            match (ends, conditions.exists, conditions.missing.is_empty()) {
                (false, ..) => {}
                (true, false, true) => {
                    route.set("rewrite", format!("{DONE}$path"));
                    routes.push(route);
                }
                (true, true, true) => {
                    route.set_list(
                        "try_files",
                        vec![format!("{DONE}$path"), format!("{DONE}$path/"), "$path".to_owned()],
                    );
                    routes.push(route);
                }
                _ => self.refuse(around, "an exception for missing files", conditions, routes),
            }
            return;
        }
        let code = self.flag(&["r", "redirect"]);
        let target = self.target(text, around, code.is_some());
        match target {
            Some(target) if self.flag(&["p", "proxy"]).is_some() => {
                match proxy::passing(&target).filter(|_| conditions.missing.is_empty()) {
                    Some((proxied, path)) => {
                        route.set("rewrite", path);
                        route.absorb(proxied);
                        routes.push(route);
                    }
                    None => self.refuse(around, "its application is not known", conditions, routes),
                }
            }
            Some(target) if code.is_some() || target.contains("://") => {
                self.redirect(around, &target, code.unwrap_or_default(), conditions, route, routes);
            }
            Some(target) if target.starts_with('/') => {
                self.change(&target, ends, around, conditions, route, routes);
            }
            _ => self.refuse(around, "its target is not known", conditions, routes),
        }
    }

    fn redirect(
        &self,
        around: Around<'_>,
        target: &str,
        code: &str,
        conditions: &Conditions,
        mut route: Section,
        routes: &mut Vec<Section>,
    ) {
        let status = match code.to_ascii_lowercase().as_str() {
            "" | "temp" => 302,
            "permanent" => 301,
            "seeother" => 303,
            code => code.parse().unwrap_or(0),
        };
        let is_known = matches!(status, 301 | 302 | 303 | 307 | 308);
        if !is_known || !conditions.missing.is_empty() || conditions.exists {
            return self.refuse(
                around,
                "its status, or a condition about a file",
                conditions,
                routes,
            );
        }
        let is_whole =
            matches!(self.directive.word(), "^(.*)$" | "^/(.*)$" | "^/?(.*)$" | "(.*)" | "^(.*)");
        let whole = target.strip_suffix("/$1").or(target.strip_suffix("$1")).filter(|_| is_whole);
        let all = target.strip_suffix("$path").or(whole);
        match all {
            Some(start) if !target.contains('?') => {
                route.set("redirect", format!("{}$uri", start.trim_end_matches('/')));
            }
            _ => {
                let target = match target.split_once('?') {
                    Some((path, "")) => path.to_owned(),
                    Some(_) if self.flag(&["qsa", "qsappend"]).is_some() => {
                        format!("{target}&$query")
                    }
                    Some(_) => target.to_owned(),
                    None if self.flag(&["qsd", "qsdiscard"]).is_some() => target.to_owned(),
                    None => {
                        let text = "without a query, a ? stays at the end of the target";
                        route.note(&self.directive.place, text);
                        format!("{target}?$query")
                    }
                };
                route.set("redirect", target);
            }
        }
        route.set("status", status);
        routes.push(route);
    }

    /// Another path within the site.
    fn change(
        &self,
        target: &str,
        ends: bool,
        around: Around<'_>,
        conditions: &Conditions,
        mut route: Section,
        routes: &mut Vec<Section>,
    ) {
        let target = match target.split_once('?') {
            Some(_) if self.flag(&["qsa", "qsappend"]).is_some() => format!("{target}&$query"),
            None if self.flag(&["qsd", "qsdiscard"]).is_some() => format!("{target}?"),
            _ => target.to_owned(),
        };
        let target =
            if ends || around.folder.is_some() { format!("{DONE}{target}") } else { target };
        if conditions.exists {
            return self.refuse(
                around,
                "a condition about a file that is there",
                conditions,
                routes,
            );
        }
        match &conditions.missing[..] {
            [] => route.set("rewrite", target),
            missing => {
                let mut names = vec!["$path".to_owned()];
                if missing.contains(&Missing::Folder) {
                    names.push("$path/".to_owned());
                }
                if !missing.contains(&Missing::File) {
                    return self.refuse(
                        around,
                        "a condition about folders alone",
                        conditions,
                        routes,
                    );
                }
                names.push(target);
                route.set_list("try_files", names);
            }
        }
        routes.push(route);
    }

    /// The substitution with Sendoff's variables; `None`: a variable is not known.
    fn target(&self, text: &str, around: Around<'_>, is_redirect: bool) -> Option<String> {
        let (mut made, mut rest) = (String::new(), text);
        while let Some(at) = rest.find(['%', '$', '\\']) {
            made.push_str(&rest[..at]);
            let found = &rest[at..];
            let next = found[1..].chars().next();
            match (found.as_bytes()[0], next) {
                (b'$', Some('0')) if around.folder.is_none() => made.push_str("$path"),
                (b'$', Some(digit @ '1'..='9')) => made.extend(['$', digit]),
                (b'\\', Some(sign @ ('%' | '$' | '?' | '&' | '.' | '-' | '/'))) => match sign {
                    '$' => made.push_str("$$"),
                    sign => made.push(sign),
                },
                (b'%', Some('{')) => {
                    let end = found.find('}')?;
                    made.push_str(match &found[2..end] {
                        "HTTP_HOST" | "SERVER_NAME" => "$host",
                        "REQUEST_URI" => "$path",
                        "QUERY_STRING" => "$query",
                        "REQUEST_SCHEME" => "$scheme",
                        "REMOTE_ADDR" => "$remote_addr",
                        "DOCUMENT_ROOT" if made.is_empty() && !is_redirect => "",
                        _ => return None,
                    });
                    rest = &found[end + 1..];
                    if rest.starts_with(|sign: char| sign.is_ascii_alphanumeric() || sign == '_') {
                        return None;
                    }
                    continue;
                }
                _ => return None,
            }
            rest = &found[1 + next.map_or(0, char::len_utf8)..];
        }
        made.push_str(rest);
        let is_whole = made.starts_with(['/', '$']) || made.contains("://");
        match around.folder {
            Some(folder) if !is_whole => Some(format!("{}/{made}", folder.trim_end_matches('/'))),
            _ if made.starts_with("$host") => None,
            _ => Some(made),
        }
    }

    /// Refuses the requests that the rule may be for.
    fn refuse(
        &self,
        around: Around<'_>,
        why: &str,
        conditions: &Conditions,
        routes: &mut Vec<Section>,
    ) {
        let mut route = Section::new("site.route");
        let text = format!("{}: {why}; its requests are refused", self.directive.text());
        route.left_out(&self.directive.place, text);
        match self.expression(around, conditions) {
            Some(expression) => {
                route.set("match", expression);
                for (name, value) in &conditions.fields {
                    route.add_in("header", name, value.clone());
                }
            }
            None => {
                if let Some(folder) = around.folder.filter(|folder| !folder.is_empty()) {
                    route.set("prefix", folder);
                }
            }
        }
        route.set("deny", true);
        routes.push(route);
    }

    /// The conditions, if all can be expressed.
    fn known(&self, around: Around<'_>) -> Result<Conditions, String> {
        let mut known = Conditions::default();
        let mut alternatives: Vec<&Directive> = Vec::new();
        for directive in &self.conditions {
            alternatives.push(directive);
            let own = flags(directive.words.get(2).map_or("", String::as_str));
            if own.iter().any(|(name, _)| name == "or" || name == "ornext") {
                continue;
            }
            match &alternatives[..] {
                [only] => condition(only, around, &mut known)?,
                several => either(several, &mut known)?,
            }
            alternatives.clear();
        }
        match alternatives.is_empty() {
            true => Ok(known),
            false => Err("an alternative without an end".to_owned()),
        }
    }
}
