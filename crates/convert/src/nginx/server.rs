//! A `server`: the keys of its site, and its routes in the order in which nginx does its work:
//! rewriting, access, `try_files`, index files, and then the answer.

use super::http::{Outside, real_ip_header};
use super::location::{Collected, Kind, Location, collect, kind, may_run};
use super::pattern::{Candidate, Condition, Matcher, condition, quote, unanchored, without_groups};
use super::rewrite::{self, set_condition};
use super::scope::Scope;
use super::text::{Use, translate};
use super::tree::Directive;
use super::{access, known, proxy, rules};
use crate::document::Section;

/// Directives that a location has or inherits, and that other modules convert.
const INHERITED: &[&str] = &[
    "access_log",
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "client_max_body_size",
    "deny",
    "disable_symlinks",
    "error_page",
    "expires",
    "fastcgi_hide_header",
    "gzip",
    "gzip_min_length",
    "gzip_types",
    "index",
    "limit_conn",
    "limit_req",
    "proxy_connect_timeout",
    "proxy_hide_header",
    "proxy_read_timeout",
    "proxy_request_buffering",
    "proxy_set_header",
    "proxy_ssl_verify",
    "root",
    "satisfy",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_protocols",
    "ssl_verify_client",
    "proxy_ssl_server_name",
];

/// Directives of servers and locations that do not pass on to inner blocks.
const OWN: &[&str] = &[
    "alias",
    "if",
    "internal",
    "limit_except",
    "listen",
    "location",
    "proxy_pass",
    "return",
    "rewrite",
    "server_name",
    "stub_status",
    "try_files",
    "break",
];

/// True if locations inherit the directive.
pub(super) fn inherits(name: &str) -> bool {
    INHERITED.contains(&name)
}

/// The routes of a server, in the order of nginx's work.
#[derive(Default)]
struct Phases {
    rewriting: Vec<Section>,
    access: Vec<Section>,
    tries: Vec<Section>,
    named: Vec<Section>,
    answers: Vec<Section>,
}

/// A location, with what is known about it.
struct Known<'d> {
    location: Location<'d>,
    condition: Condition,
    kind: Kind,
}

/// Makes the sections of a site.
pub(super) fn convert(
    server: &Directive,
    outside: &Outside<'_>,
    groups: &mut Vec<Section>,
) -> Vec<Section> {
    let Some(block) = &server.block else { return Vec::new() };
    let http = Scope::new(&outside.http);
    let scope = http.inner(block);
    let mut site = Section::new("site");
    outside.listeners.set(server, &mut site);
    let Collected { locations, lacks_guard } = collect(&scope, &mut site);
    let candidates: Vec<Candidate> = locations.iter().map(|l| l.candidate.clone()).collect();
    let known: Vec<_> = locations
        .into_iter()
        .enumerate()
        .map(|(number, location)| {
            let kind = kind(&location, outside);
            Known { condition: condition(&candidates, number), kind, location }
        })
        .collect();
    let main = main_scope(&known, &scope);
    keys(&scope, main, &mut site);
    let own_pool = pool(&known, groups, &mut site);
    if let Some(pool) = own_pool {
        site.set("pool", pool);
    }
    let mut phases = Phases::default();
    rewrite::routes(&Condition::All, &scope, &mut phases.rewriting);
    let is_answered = scope.own().iter().any(|directive| directive.name == "return");
    let mut sections = Vec::new();
    if lacks_guard {
        sections.push(made(|route| {
            route.comment(
                "A location that cannot be expressed restricts access: every request is refused.",
            );
            route.set("deny", true);
        }));
    }
    if is_answered {
        let mut fields = Section::new("site.route");
        rules::of_response(&scope, &mut fields);
        sections.push(fields);
    } else {
        let common = Common::of(&known, &scope, &http);
        sections.push(common.section());
        let is_taken =
            |path: &str| known.iter().any(|one| one.condition == Condition::Path(path.to_owned()));
        for one in &known {
            convert_location(one, &is_taken, &common, outside, main, &mut site, &mut phases);
        }
    }
    leftovers(&scope, &mut site);
    let index = index_route(&known, &phases, main);
    let Phases { rewriting, access, tries, named, answers } = phases;
    let ordered = [rewriting, access, tries, named, index.into_iter().collect(), answers];
    sections.extend(ordered.into_iter().flatten());
    [vec![site], sections].concat()
}

/// The scope whose `root` is the folder of the site. In many files it stands in `location /`.
fn main_scope<'k, 'd>(known: &'k [Known<'d>], server: &'k Scope<'d>) -> &'k Scope<'d> {
    let of_root = known.iter().find(|one| {
        matches!(&one.location.candidate.matcher, Matcher::Prefix { text, .. } if text == "/")
    });
    match of_root {
        Some(one) if one.location.scope.get("root").is_some() => &one.location.scope,
        _ => server,
    }
}

/// The rules that hold for all locations alike. They become one route without conditions.
struct Common {
    fields: Option<Section>,
    limits: Option<Section>,
    access: Option<Section>,
}

impl Common {
    fn of(known: &[Known<'_>], server: &Scope<'_>, http: &Scope<'_>) -> Self {
        let mut served =
            known.iter().filter(|one| !matches!(one.location.candidate.matcher, Matcher::Named(_)));
        let fields = made(|route| rules::of_response(server, route));
        let limits = made(|route| access::limits(server, http, route));
        let rules = made(|route| {
            access::rules(server, route);
        });
        let all = |equal: &dyn Fn(&Known<'_>) -> bool| served.clone().all(equal);
        let same_fields =
            all(&|one| made(|route| rules::of_response(&one.location.scope, route)) == fields);
        let same_limits =
            all(&|one| made(|route| access::limits(&one.location.scope, http, route)) == limits);
        let same_access = served.all(|one| {
            made(|route| {
                access::rules(&one.location.scope, route);
            }) == rules
        });
        Self {
            fields: same_fields.then_some(fields),
            limits: same_limits.then_some(limits),
            access: same_access.then_some(rules),
        }
    }

    fn section(&self) -> Section {
        let mut route = Section::new("site.route");
        for part in [&self.access, &self.limits, &self.fields].into_iter().flatten() {
            route.absorb(part.clone());
        }
        route
    }
}

/// The section that a function fills.
fn made(fill: impl FnOnce(&mut Section)) -> Section {
    let mut section = Section::new("site.route");
    fill(&mut section);
    section
}

fn convert_location(
    one: &Known<'_>,
    is_taken: &dyn Fn(&str) -> bool,
    common: &Common,
    outside: &Outside<'_>,
    main: &Scope<'_>,
    site: &mut Section,
    phases: &mut Phases,
) {
    let Known { location, condition, kind } = one;
    let scope = &location.scope;
    let http = Scope::new(&outside.http);
    if let Matcher::Named(name) = &location.candidate.matcher {
        named(name, one, outside, phases);
        return;
    }
    let fields = made(|route| {
        if common.fields.is_none() {
            rules::of_response(scope, route);
        }
    });
    if location.directive.is_some() {
        leftovers(scope, site);
        rewrite::routes(condition, scope, &mut phases.rewriting);
        if scope.own().iter().any(|directive| directive.name == "return") {
            // The fields of the answer stand in its route.
            if let Some(route) = phases.rewriting.last_mut() {
                route.absorb(fields);
                rules::of_log(scope, route);
            }
            return;
        }
    }
    let mut guard = Section::new("site.route");
    let mut denies = false;
    if common.access.is_none() {
        denies = access::rules(scope, &mut guard);
    }
    if denies {
        let mut route = made(|route| set_condition(route, condition));
        route.absorb(guard);
        phases.rewriting.push(route);
        return;
    }
    if common.limits.is_none() {
        access::limits(scope, &http, &mut guard);
    }
    let is_internal = scope.own().iter().any(|directive| directive.name == "internal");
    let folder = folder(location, main, is_internal, site);
    let mut answer = match kind {
        Kind::Proxy => {
            let pass = scope.own().iter().find(|directive| directive.name == "proxy_pass");
            let Some(pass) = pass else { return };
            redirect_to_folder(location, is_taken, phases);
            proxy::pass(pass, &location.candidate.matcher, condition, scope, outside)
        }
        _ => made(|route| set_condition(route, condition)),
    };
    let conditions = answer.clone();
    let tries = tries(one);
    let has_tries = tries.has("try_files");
    if has_tries {
        phases.access.push(with_condition(condition, guard));
        add_tries(condition, tries, &mut phases.tries);
    } else {
        answer.absorb(guard);
        answer.absorb_comments(tries.clone());
    }
    answer.absorb(fields);
    if location.directive.is_some() {
        rules::of_log(scope, &mut answer);
    }
    if is_internal {
        match kind {
            // The front controller is reached by `try_files` only.
            Kind::Php { .. } => {
                let mut refusal = made(|route| set_condition(route, condition));
                refusal.set("try_files", vec!["=404".to_owned()]);
                phases.access.insert(0, refusal);
            }
            _ if matches!(folder, Folder::Accel) => return,
            _ => answer.set("internal", true),
        }
    }
    handler(one, has_tries, &folder, &mut answer);
    if answer != conditions || *kind == Kind::Proxy {
        phases.answers.push(answer);
    }
}

/// Adds the routes of `try_files`. For nginx the path of a folder is no file, even with its slash:
/// where the list does not name folders, such paths have a route without the candidate.
fn add_tries(condition: &Condition, mut tries: Section, routes: &mut Vec<Section>) {
    let names = tries.texts("try_files");
    let names_files_only = names.iter().any(|name| name == "$path")
        && !names.iter().any(|name| name == "$path/" || name.contains("$1"));
    let ahead = match condition {
        Condition::Path(_) => return routes.push(with_condition(condition, tries)),
        condition => condition.ahead(),
    };
    if !names_files_only {
        return routes.push(with_condition(condition, tries));
    }
    let start = if ahead.is_empty() { String::new() } else { format!("^{ahead}.*") };
    let others = names.into_iter().filter(|name| name != "$path").collect();
    let mut of_folders = Section::new("site.route");
    of_folders.set("match", format!("{start}/$"));
    of_folders.set_list("try_files", others);
    let mut of_files = Section::new("site.route");
    of_files.set("match", format!("{start}[^/]$"));
    of_files.absorb(std::mem::take(&mut tries));
    routes.extend([of_folders, of_files]);
}

fn with_condition(condition: &Condition, section: Section) -> Section {
    if section.is_empty() {
        let mut comments = Section::default();
        comments.absorb_comments(section);
        return comments;
    }
    let mut route = made(|route| set_condition(route, condition));
    route.absorb(section);
    route
}

/// Sets the handler of a location that is not a proxy.
fn handler(one: &Known<'_>, tries: bool, folder: &Folder, answer: &mut Section) {
    let scope = &one.location.scope;
    let own = |name: &str| scope.own().iter().find(|directive| directive.name == name);
    match &one.kind {
        Kind::Proxy => {}
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
            answer.set("fastcgi", address.clone());
        }
        Kind::Metrics => {
            answer.set("metrics", true);
            if let Some(status) = own("stub_status") {
                answer.note(
                    &status.place,
                    "stub_status: the metrics are in the format of Prometheus",
                );
            }
        }
        Kind::Unknown => {
            for pass in scope.own().iter().filter(|directive| directive.name.ends_with("_pass")) {
                answer.left_out(
                    &pass.place,
                    format!("{} has no equal: the request is refused", pass.text()),
                );
            }
            answer.set("deny", true);
            answer.set("status", 501);
        }
        Kind::Static if matches!(folder, Folder::Elsewhere) => {
            answer.set("deny", true);
            answer.set("status", 501);
        }
        Kind::Static => {
            // nginx sends a script as a text here; a handler for files refuses it.
            if !answer.has("internal") && may_run(&one.location, &one.condition, tries) {
                answer.set("static", true);
            }
        }
    }
}

/// The folder of a location.
enum Folder {
    /// The site's.
    OfSite,
    /// A key of the site says it.
    Alias,
    /// Only applications name files there.
    Accel,
    /// It cannot be expressed.
    Elsewhere,
}

fn folder(
    location: &Location<'_>,
    main: &Scope<'_>,
    is_internal: bool,
    site: &mut Section,
) -> Folder {
    let own = |name: &str| location.scope.own().iter().find(|directive| directive.name == name);
    let (path, target, directive) = match (&location.candidate.matcher, own("alias"), own("root")) {
        (_, None, None) => return Folder::OfSite,
        (_, None, Some(root)) if Some(root.word()) == main.word("root") => return Folder::OfSite,
        (Matcher::Prefix { text, .. }, Some(alias), _)
            if text.ends_with('/') == alias.word().ends_with('/') =>
        {
            (text.as_str(), alias.word().to_owned(), alias)
        }
        (Matcher::Prefix { text, .. }, None, Some(root)) => {
            (text.as_str(), format!("{}{text}", root.word().trim_end_matches('/')), root)
        }
        (_, alias, root) => {
            if let Some(directive) = alias.or(root) {
                site.left_out(
                    &directive.place,
                    format!("{} has no equal here: the location is refused", directive.text()),
                );
            }
            return Folder::Elsewhere;
        }
    };
    let (path, target) = (path.trim_end_matches('/'), target.trim_end_matches('/'));
    if path.is_empty() || target.contains('$') {
        site.left_out(
            &directive.place,
            format!("{} has no equal here: the location is refused", directive.text()),
        );
        return Folder::Elsewhere;
    }
    let key = if is_internal { "accel" } else { "alias" };
    site.set_in(key, path, target);
    if is_internal { Folder::Accel } else { Folder::Alias }
}

/// nginx redirects the path of a proxied folder without its slash.
fn redirect_to_folder(
    location: &Location<'_>,
    is_taken: impl Fn(&str) -> bool,
    phases: &mut Phases,
) {
    if let Matcher::Prefix { text, .. } = &location.candidate.matcher
        && let Some(path) =
            text.strip_suffix('/').filter(|path| !path.is_empty() && !is_taken(path))
    {
        phases.rewriting.push(made(|route| {
            route.set("path", path);
            route.set("redirect", text.clone());
            route.set("status", 301);
        }));
    }
}

/// The rule for `try_files`.
fn tries(one: &Known<'_>) -> Section {
    let scope = &one.location.scope;
    let mut section = Section::default();
    let Some(directive) = scope.own().iter().find(|directive| directive.name == "try_files") else {
        return section;
    };
    // A script that does not exist is not found in any case.
    let is_usual = directive.words.iter().all(|word| {
        matches!(word.as_str(), "$uri" | "$fastcgi_script_name" | "$document_uri" | "=404")
    });
    if matches!(one.kind, Kind::Php { .. }) && is_usual {
        return section;
    }
    let mut candidates = Vec::new();
    for word in &directive.words {
        if let Some(name) = word.strip_prefix('@') {
            candidates.push(format!("/@{name}$path"));
            continue;
        }
        match translate(word, scope, Use::Path) {
            Ok(text) if text.starts_with(['/', '$', '=']) => candidates.push(text),
            Ok(_) => section.left_out(
                &directive.place,
                format!("{word} of try_files has no equal: it does not begin with a slash"),
            ),
            Err(variable) => section.left_out(
                &directive.place,
                format!("{word} of try_files has no equal: {variable} is not known"),
            ),
        }
    }
    section.set_list("try_files", candidates);
    section
}

/// The routes of a named location: `try_files` leads to the path behind its name.
fn named(name: &str, one: &Known<'_>, outside: &Outside<'_>, phases: &mut Phases) {
    let scope = &one.location.scope;
    let inside = Condition::Match(format!("^/@{}(/.*)$", quote(name)));
    // Only `try_files` leads there: a client must not get around the rules of other locations.
    phases.rewriting.push(made(|route| {
        route.comment(format!(
            "Paths below /@{name} stand for location @{name}; a client gets 404."
        ));
        route.set("match", format!("^/@{}(?:/|$)", quote(name)));
        route.set("try_files", "=404");
    }));
    for directive in scope.own() {
        match &*directive.name {
            "rewrite" => {
                let expression = directive.word();
                let target = directive.words.get(1).map_or("", String::as_str);
                let mut route = Section::new("site.route");
                match translate(target, scope, Use::Path) {
                    Ok(target) if target.starts_with(['/', '$']) && !target.contains("$path") => {
                        route.set("match", format!("^/@{}{}", quote(name), unanchored(expression)));
                        let adds_query = target.contains('?') && !target.ends_with('?');
                        route.set(
                            "rewrite",
                            if adds_query { format!("{target}&$query") } else { target },
                        );
                    }
                    _ => route
                        .left_out(&directive.place, format!("{} has no equal", directive.text())),
                }
                phases.named.push(route);
            }
            "return" => {
                let route = made(|route| set_condition(route, &inside));
                phases.named.push(rewrite::answer(directive, route, scope));
            }
            "proxy_pass" => {
                let mut route = proxy::pass(
                    directive,
                    &one.location.candidate.matcher,
                    &inside,
                    scope,
                    outside,
                );
                route.set("rewrite", "$1");
                phases.named.push(route);
            }
            "fastcgi_pass" => {
                let mut route = made(|route| set_condition(route, &inside));
                match &one.kind {
                    Kind::Php { script: Some(script), .. } => route.set("rewrite", script.clone()),
                    _ => {
                        route.left_out(
                            &directive.place,
                            "fastcgi_pass of a named location has no equal: the request is refused",
                        );
                        route.set("deny", true);
                        route.set("status", 501);
                    }
                }
                phases.named.push(route);
            }
            other if known::needs_nothing(other) || inherits(other) => {}
            other => {
                let mut route = Section::default();
                route.left_out(
                    &directive.place,
                    format!("{other} of a named location has no equal"),
                );
                phases.named.push(route);
            }
        }
    }
}

/// The route that leads from a folder to its index file, if a location has rules for that file.
fn index_route(known: &[Known<'_>], phases: &Phases, main: &Scope<'_>) -> Option<Section> {
    let names = index(main);
    let runs = known.iter().any(|one| matches!(one.kind, Kind::Php { .. }));
    let is_needed =
        phases.answers.iter().any(|route| !route.has("proxy") && !route.has("redirect"));
    if !runs || !is_needed || !names.iter().any(|name| name.ends_with(".php")) {
        return None;
    }
    let others: Vec<_> = known
        .iter()
        .filter(|one| !matches!(one.kind, Kind::Static | Kind::Php { .. }))
        .filter_map(|one| match &one.location.candidate.matcher {
            Matcher::Exact(path) if path.ends_with('/') => Some(format!("{}$", quote(path))),
            Matcher::Prefix { text, .. } => Some(quote(text)),
            Matcher::Expression { text, .. } => Some(unanchored(&without_groups(text))),
            _ => None,
        })
        .collect();
    let ahead = if others.is_empty() { String::new() } else { format!("(?!{})", others.join("|")) };
    let mut route = Section::new("site.route");
    route.set("match", format!("^{ahead}(.*/)$"));
    let mut candidates: Vec<_> = names.iter().map(|name| format!("$1{name}")).collect();
    candidates.push("$1".to_owned());
    route.set_list("try_files", candidates);
    Some(route)
}

/// The names of index files.
fn index(scope: &Scope<'_>) -> Vec<String> {
    let names: Vec<_> = scope
        .all("index")
        .iter()
        .flat_map(|one| one.words.clone())
        .filter(|name| !name.contains(['/', '$']))
        .collect();
    if names.is_empty() { vec!["index.html".to_owned()] } else { names }
}

/// The keys of the site.
fn keys(scope: &Scope<'_>, main: &Scope<'_>, site: &mut Section) {
    if let Some(root) = main.get("root") {
        match translate(root.word(), scope, Use::Value) {
            Ok(root) if !root.contains('$') => site.set("root", root),
            _ => site.left_out(&root.place, format!("{} has no equal", root.text())),
        }
    }
    site.set_list("index", index(main));
    for index in main.all("index") {
        for name in index.words.iter().filter(|name| name.contains(['/', '$'])) {
            site.left_out(&index.place, format!("index {name} has no equal: a name has no slash"));
        }
    }
    site.set("front_controller", "off");
    site.set("htaccess", false);
    match scope.word("disable_symlinks") {
        Some("if_not_owner") => {}
        Some("on") => site.set("symlinks", "inside"),
        _ => site.set("symlinks", "any"),
    }
    tls(scope, site);
    if scope.word("gzip") == Some("on") {
        site.set("compress", true);
        let types: Vec<_> =
            scope.all("gzip_types").iter().flat_map(|one| one.words.clone()).collect();
        if !types.iter().any(|kind| kind == "*") {
            let mut all = vec!["text/html".to_owned()];
            all.extend(types.into_iter().filter(|kind| kind != "text/html"));
            site.set_list("compress_types", all);
        }
        site.set("compress_min_length", scope.word("gzip_min_length").unwrap_or("20"));
    }
    for page in scope.all("error_page") {
        error_page(page, site);
    }
    if let Some(log) = scope.get("access_log")
        && log.word() != "off"
    {
        match (
            log.word().contains('$') || log.word().starts_with("syslog:"),
            log.words.get(1).map(String::as_str),
        ) {
            (false, None | Some("combined")) => site.set("access_log", log.word()),
            (false, Some(format)) => {
                site.set("access_log", log.word());
                site.left_out(&log.place, format!("the format {format} of access_log has no equal: access_log_format names the fields of a line"));
            }
            (true, _) => site.left_out(&log.place, format!("{} has no equal", log.text())),
        }
    }
}

fn tls(scope: &Scope<'_>, site: &mut Section) {
    let (Some(certificate), Some(key)) =
        (scope.word("ssl_certificate"), scope.word("ssl_certificate_key"))
    else {
        return;
    };
    let speaks_tls = scope.own().iter().any(|listen| {
        listen.name == "listen"
            && listen.words.iter().any(|word| matches!(word.as_str(), "ssl" | "quic"))
    });
    if !speaks_tls {
        return;
    }
    site.set_in("tls", "certificate", certificate);
    site.set_in("tls", "key", key);
    if let Some(protocols) = scope.get("ssl_protocols") {
        if protocols.words.iter().all(|word| word == "TLSv1.3") {
            site.set_in("tls", "oldest", "1.3");
        } else if protocols
            .words
            .iter()
            .any(|word| matches!(word.as_str(), "TLSv1" | "TLSv1.1" | "SSLv3"))
        {
            site.note(&protocols.place, "ssl_protocols: TLS 1.2 is the oldest version here");
        }
    }
    if let (Some(issuers), Some("on" | "optional")) =
        (scope.word("ssl_client_certificate"), scope.word("ssl_verify_client"))
    {
        site.set_in("tls", "client_issuers", issuers);
        let asked =
            if scope.word("ssl_verify_client") == Some("on") { "required" } else { "optional" };
        site.set_in("tls", "client_certificates", asked);
    }
    // The servers that nginx has for requests without TLS say what becomes of them.
    site.set("https_redirect", false);
}

fn error_page(page: &Directive, site: &mut Section) {
    let Some((target, codes)) = page.words.split_last() else { return };
    let is_plain = target.starts_with('/')
        && !target.contains(['$', '?'])
        && !codes.iter().any(|code| code.starts_with('='));
    if !is_plain {
        site.left_out(&page.place, format!("{} has no equal", page.text()));
        return;
    }
    for code in codes {
        match code.parse::<u16>() {
            Ok(400..=599) => site.set_in("error_pages", code, target.clone()),
            _ => site.left_out(&page.place, format!("error_page {code} has no equal")),
        }
    }
}

/// The pool of the site, in place of its php-fpm.
fn pool(known: &[Known<'_>], groups: &mut Vec<Section>, site: &mut Section) -> Option<String> {
    let mut addresses = known.iter().filter_map(|one| match &one.kind {
        Kind::Php { address, .. } => Some((address, one.location.directive)),
        _ => None,
    });
    let (address, _) = addresses.next()?;
    for (other, location) in addresses {
        if let Some(location) = location.filter(|_| other != address) {
            let text = format!(
                "a second php-fpm ({other}) has no equal here: the scripts run in the pool of {address}"
            );
            site.left_out(&location.place, text);
        }
    }
    let name: String = address
        .trim_start_matches("unix:")
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".sock")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect();
    let mut section = Section::new("pool");
    section.comment(format!(
        "In place of php-fpm at {address}: its user and its settings are in its file in pool.d."
    ));
    section.set("name", name.clone());
    if !groups.contains(&section) {
        groups.push(section);
    }
    Some(name)
}

/// Names the directives of a block that have no equal.
fn leftovers(scope: &Scope<'_>, site: &mut Section) {
    for directive in scope.own() {
        let name = &*directive.name;
        match name {
            "real_ip_header" => real_ip_header(directive, site),
            "set_real_ip_from" => site.left_out(&directive.place, "set_real_ip_from within a server has no equal: write trusted_proxies before the first section"),
            "real_ip_recursive" => {}
            "autoindex" if directive.word() == "off" => {}
            _ if name.ends_with("_pass") || OWN.contains(&name) || inherits(name) || known::needs_nothing(name) => {}
            _ => site.left_out(&directive.place, format!("{} has no equal", directive.text())),
        }
    }
}
