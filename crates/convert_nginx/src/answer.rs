//! The routes of one location.

use super::access::{self, Access};
use super::common::Common;
use super::effect::set_condition;
use super::folder::{self, Folder};
use super::location::{Kind, Known, Location, has_only_scripts, may_run};
use super::pattern::{Condition, Matcher};
use super::rewrite::{self, Staying};
use super::scope::Scope;
use super::server::{Main, Phases, made};
use super::tree::Directive;
use super::{named, proxy, rules, tries};
use sendoff_convert_document::Section;

/// The blocks around a location.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'s, 'd> {
    pub(super) server: &'s Scope<'d>,
    pub(super) http: &'s Scope<'d>,
    pub(super) main: Main<'s, 'd>,
}

/// Adds the routes of a location.
pub(super) fn convert(
    number: usize,
    known: &[Known<'_>],
    common: &Common,
    around: &Surroundings<'_, '_>,
    site: &mut Section,
    phases: &mut Phases,
) {
    let one = &known[number];
    let Known { location, condition, kind, .. } = one;
    let scope = &location.scope;
    if let Matcher::Named(name) = &location.candidate.matcher {
        named::routes(name, one, common, around, phases);
        return;
    }
    let is_internal = scope.get("internal").is_some();
    if is_internal {
        // nginx looks at this first. Only the path of a client is refused: rewriting, `try_files`
        // and error pages lead there.
        let mut refusal = made(|route| set_condition(route, condition));
        refusal.set("try_files", "=404");
        let path = location.directive.and_then(|directive| directive.words.last());
        for page in scope.peek_all("error_page").iter().filter(|page| page.words.last() == path) {
            let text = format!("{}: an internal page is not shown", page.text());
            refusal.left_out(&page.place, text);
        }
        phases.internal.push(refusal);
    }
    if let Some(limit) = scope.own("limit_except") {
        phases.rewriting.push(unlimited(limit, condition));
        unreached(scope);
        return;
    }
    let folder = folder::folder(number, known, around.main.root, is_internal, site, phases);
    tries::take_index(one, around.main.index);
    let fields = made(|route| {
        if common.fields.is_none() {
            rules::of_response(scope, route);
        }
        if location.directive.is_some() {
            rules::of_location(scope, route);
        }
    });
    if location.directive.is_some() && rewrites(one, &folder, &fields, around, phases) {
        return;
    }
    let mut guard = Section::new("site.route");
    if common.access.is_none() && access::rules(scope, &mut guard) == Access::Refused {
        let mut route = made(|route| set_condition(route, condition));
        route.absorb(guard);
        route.absorb(fields);
        phases.rewriting.push(route);
        unreached(scope);
        return;
    }
    if common.limits.is_none() {
        access::limits(scope, around.http, &mut guard);
    }
    let mut answer = match kind {
        Kind::Proxy => {
            let Some(pass) = proxy::own_pass(scope) else { return };
            redirect_to_folder(location, known, phases);
            proxy::pass(pass, &location.candidate.matcher, condition, scope)
        }
        _ => made(|route| set_condition(route, condition)),
    };
    let conditions = answer.clone();
    let tries = tries::of(one);
    let names = tries.texts("try_files");
    // nginx does not look whether the last one exists.
    let checks_file = names.last().is_some_and(|last| !last.contains("$path"));
    if !names.is_empty() {
        phases.access.push(with_condition(condition, guard));
        tries::add(condition, tries, &mut phases.tries);
    } else {
        match comes_before_index(one, known, around.server) {
            true => phases.access.push(with_condition(condition, guard)),
            false => answer.absorb(guard),
        }
        answer.absorb_comments(tries);
    }
    answer.absorb(fields);
    handler(one, checks_file, &folder, &mut answer);
    if is_internal {
        if folder == Folder::Accel {
            site.absorb_comments(answer);
            return;
        }
        if answer.has("proxy") {
            answer.set("internal", true);
        }
    }
    if matches!(kind, Kind::Php { script: None, .. }) && !has_only_scripts(location) {
        phases.answers.extend(no_script(condition));
    }
    if answer != conditions || *kind == Kind::Proxy {
        phases.answers.push(answer);
    }
}

/// True if the rules about access of a location come before an index file is looked for: its paths
/// may be folders, whose index file may be one of another location.
fn comes_before_index(one: &Known<'_>, known: &[Known<'_>], server: &Scope<'_>) -> bool {
    let may_be_folder = match &one.condition {
        Condition::Path(path) => path.ends_with('/'),
        Condition::None => false,
        Condition::All | Condition::Match(_) => !has_only_scripts(&one.location),
    };
    let runs_scripts = |one: &Known<'_>| matches!(one.kind, Kind::Php { .. });
    let leads_on = |directive: &Directive| match &*directive.name {
        "try_files" => !directive.words.iter().any(|word| word.contains("$uri")),
        "return" | "rewrite" => true,
        "if" => directive.block.iter().flatten().any(rewrite::is_rewriting),
        _ => false,
    };
    let mut blocks = known.iter().map(|one| one.location.scope.block()).chain([server.block()]);
    one.kind == Kind::Static
        && may_be_folder
        && (known.iter().any(runs_scripts) || blocks.any(|block| block.iter().any(leads_on)))
}

/// Adds the routes of `if`, `return` and `rewrite`. Returns true if they answer every request.
fn rewrites(
    one: &Known<'_>,
    folder: &Folder,
    fields: &Section,
    around: &Surroundings<'_, '_>,
    phases: &mut Phases,
) -> bool {
    let scope = &one.location.scope;
    let stay = |mut route: Section| {
        access::rules(scope, &mut route);
        access::limits(scope, around.http, &mut route);
        route.absorb(fields.clone());
        stays(one, folder, &mut route);
        if route.has("proxy") && scope.peek("internal").is_some() {
            route.set("internal", true);
        }
        route
    };
    let mut made = Vec::new();
    rewrite::routes(&one.condition, scope, Staying::Here(&stay), &mut made);
    for route in &mut made {
        if ["redirect", "respond", "deny"].iter().any(|key| route.has(key)) {
            route.absorb(fields.clone());
        }
    }
    phases.rewriting.extend(made);
    let returns = rewrite::returns(scope.block());
    if returns {
        unreached(scope);
    }
    returns
}

/// Sets the handler of a path that `rewrite ... break` has made: the location keeps the request.
fn stays(one: &Known<'_>, folder: &Folder, route: &mut Section) {
    let scope = &one.location.scope;
    let refuse = |route: &mut Section, why: &str| {
        if let Some(rewrite) = scope.peek("rewrite").or(one.location.directive) {
            let text = format!("rewrite ... break {why} has no equal: the request is refused");
            route.left_out(&rewrite.place, text);
        }
        route.set("deny", true);
    };
    if route.has("deny") {
        return;
    }
    if scope.own("try_files").is_some() {
        return refuse(route, "in front of try_files");
    }
    match (&one.kind, proxy::own_pass(scope)) {
        (Kind::Proxy, Some(pass)) => {
            proxy::settings(pass, &one.location.candidate.matcher, scope, route);
        }
        _ if *folder != Folder::OfSite => refuse(route, "in another folder"),
        (Kind::Php { script: None, .. }, _) => {
            if !names_script(route.texts("rewrite").first().map_or("", String::as_str)) {
                return refuse(route, "to a path that may be no script");
            }
            rules::of_scripts(scope, route);
            route.set("php", true);
        }
        (Kind::Static, _) => route.set("static", true),
        _ => handler(one, false, folder, route),
    }
}

/// True if the target of a rewrite is a script, with or without a path info.
fn names_script(target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let found = path.find(".php").map(|at| path.split_at(at + ".php".len()));
    found.is_some_and(|(script, rest)| {
        !script.contains('$') && (rest.is_empty() || rest.starts_with('/'))
    })
}

/// The refusal of the files in a location for scripts: php-fpm runs scripts only.
fn no_script(condition: &Condition) -> Option<Section> {
    let mut route = match condition {
        Condition::Path(path) if path.ends_with('/') => return None,
        Condition::Path(_) => made(|route| set_condition(route, condition)),
        condition => made(|route| {
            let ahead = condition.ahead();
            route.set("match", format!(r"^{ahead}(?!.*\.php(?:/|$))(?!.*/$)"));
        }),
    };
    route.set("deny", true);
    Some(route)
}

/// The refusal of a location with `limit_except`, which holds before the location's rewriting.
fn unlimited(limit: &Directive, condition: &Condition) -> Section {
    limit.take_whole();
    let mut route = made(|route| set_condition(route, condition));
    let text = format!("{} has no equal: every request is refused", limit.text());
    route.left_out(&limit.place, text);
    route.set("deny", true);
    route
}

/// Takes the directives of the module that passes requests on, here in vain.
pub(super) fn take_module(pass: &Directive, scope: &Scope<'_>) {
    let module = pass.name.trim_end_matches("pass");
    let own = scope.block().iter().filter(|directive| directive.name.starts_with(module));
    own.for_each(Directive::take);
}

/// Directives of a location that never gets to its own answer.
fn unreached(scope: &Scope<'_>) {
    const LIVE: [&str; 3] = ["location", "error_page", "if"];
    for directive in scope.block().iter().filter(|inner| !LIVE.contains(&inner.name.as_str())) {
        directive.take_whole();
    }
}

/// The section as a route with a condition; without keys, only its comments.
pub(super) fn with_condition(condition: &Condition, section: Section) -> Section {
    if section.is_empty() {
        let mut comments = Section::default();
        comments.absorb_comments(section);
        return comments;
    }
    let mut route = made(|route| set_condition(route, condition));
    route.absorb(section);
    route
}

/// Sets the handler of a location that is not a proxy. `checks_file` tells that `try_files` makes
/// sure of a file at the path.
fn handler(one: &Known<'_>, checks_file: bool, folder: &Folder, answer: &mut Section) {
    let scope = &one.location.scope;
    match &one.kind {
        Kind::Proxy => {}
        Kind::Static | Kind::Php { .. } if *folder == Folder::Elsewhere => {
            answer.set("deny", true);
        }
        Kind::Php { script, .. } => {
            rules::of_scripts(scope, answer);
            if let Some(script) = script {
                if scope
                    .all("fastcgi_param")
                    .iter()
                    .any(|parameter| parameter.word() == "SCRIPT_NAME")
                {
                    answer.set_in("params", "SCRIPT_NAME", "$path");
                }
                answer.set("php", script.clone());
            }
        }
        Kind::FastCgi(address) => {
            rules::of_scripts(scope, answer);
            rules::file_of_application(scope, answer);
            answer.set("fastcgi", address.clone());
        }
        Kind::Metrics => {
            answer.set("metrics", true);
            if let Some(status) = scope.own("stub_status") {
                answer.note(
                    &status.place,
                    "stub_status: the metrics are in the format of Prometheus",
                );
            }
        }
        Kind::Unknown => {
            for pass in scope.block().iter().filter(|directive| directive.name.ends_with("_pass")) {
                take_module(pass, scope);
                answer.left_out(
                    &pass.place,
                    format!("{} has no equal: the request is refused", pass.text()),
                );
            }
            answer.set("deny", true);
        }
        Kind::Static => {
            if let Some(list) = scope.peek("autoindex").filter(|list| list.word() == "on") {
                scope.all("autoindex");
                let text = "autoindex: hidden files, scripts and what routes deny are not listed";
                answer.note(&list.place, text);
                answer.set("listing", true);
                return;
            }
            // nginx sends a script as a text here; a handler for files refuses it.
            if may_run(one, checks_file) {
                answer.set("static", true);
            }
        }
    }
}

/// nginx redirects the path of a proxied folder without its slash.
fn redirect_to_folder(location: &Location<'_>, known: &[Known<'_>], phases: &mut Phases) {
    let Matcher::Prefix { text, .. } = &location.candidate.matcher else { return };
    let Some(path) = text.strip_suffix('/').filter(|path| !path.is_empty()) else { return };
    if known.iter().any(|one| one.condition == Condition::Path(path.to_owned())) {
        return;
    }
    phases.rewriting.push(made(|route| {
        route.set("path", path);
        route.set("redirect", text.clone());
        route.set("status", 301);
    }));
}
