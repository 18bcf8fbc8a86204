//! The routes of a block of directives.

use sendoff_convert_document::{Directive, Place, Section};

use super::conditions::{Clients, Conditions, Requests, Seen};
use super::global::Global;
use super::matcher::{Matcher, Matchers};
use super::order::{self, Rank};

/// The most routes of a site: far more than people write.
const MAX_ROUTES: usize = 5000;

/// Directives that have nothing to do with answers, or for which Sendoff does the same.
const SILENT: [&str; 7] =
    ["tracing", "log", "log_skip", "skip_log", "log_append", "log_name", "acme_server"];

/// Directives about the server of a site, which Caddy does not sort among its routes.
const NO_ROUTES: [&str; 4] = ["tls", "bind", "log", "handle_errors"];

/// The keys and routes of a site while they are made.
pub(super) struct Builder<'b> {
    pub(super) global: &'b Global,
    pub(super) site: Section,
    pub(super) routes: Vec<Section>,
    /// Pools and upstreams.
    pub(super) groups: Vec<Section>,
    /// The folder of the site.
    pub(super) root: Option<String>,
    /// The name of the site, for the names of its upstreams and files.
    pub(super) name: String,
    /// The number of files with users.
    pub(super) user_files: usize,
    pub(super) upstreams: usize,
    /// True if a block that set another folder of files was left: the folder stays.
    pub(super) has_left_folder: bool,
    /// True if a directive of the site sets a field that tells an application about the client.
    pub(super) sets_forwarded: bool,
    marks: usize,
    is_too_large: bool,
}

/// The surroundings of a directive.
#[derive(Debug, Clone)]
pub(super) struct Scope<'d> {
    pub(super) matchers: Matchers<'d>,
    /// The requests that reach the block.
    pub(super) requests: Requests,
    /// The mark of the requests that reach the block.
    pub(super) mark: Option<usize>,
    /// The folder of files.
    pub(super) root: Option<String>,
    /// The beginning that `handle_path` takes off the path before a directive answers.
    pub(super) prefix: Option<String>,
    /// The beginnings that blocks of `handle_path` around have taken off the path.
    pub(super) stripped: String,
    /// True if the path may differ from the client's.
    pub(super) is_rewritten: bool,
}

/// A directive with the requests that it is for.
pub(super) struct Step<'d> {
    pub(super) directive: &'d Directive,
    /// Its words behind the matcher.
    pub(super) words: Vec<&'d str>,
    pub(super) requests: Requests,
    pub(super) has_matcher: bool,
}

/// The requests that a block answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// All that reach it.
    All,
    /// Some may go on behind it.
    Some,
}

impl<'b> Builder<'b> {
    pub(super) fn new(global: &'b Global, name: String, root: Option<String>) -> Self {
        Self {
            global,
            site: Section::new("site"),
            routes: Vec::new(),
            groups: Vec::new(),
            root,
            name,
            user_files: 0,
            upstreams: 0,
            has_left_folder: false,
            sets_forwarded: false,
            marks: 0,
            is_too_large: false,
        }
    }

    /// True if there are more routes than a site may have. Some are missing then.
    pub(super) fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    pub(super) fn has_marks(&self) -> bool {
        self.marks > 0
    }

    pub(super) fn mark(&mut self) -> usize {
        self.marks += 1;
        self.marks
    }

    /// Converts a block, in Caddy's order or in the order of the file.
    pub(super) fn block(
        &mut self,
        block: &[Directive],
        outer: &Scope<'_>,
        order: BlockOrder,
    ) -> Answers {
        let (scope, steps) = self.steps(block, outer, order);
        let rewrites = steps.iter().filter(|step| step.directive.name == "rewrite").count();
        let mut rest = &steps[..];
        let mut scope = scope;
        while let Some((step, others)) = rest.split_first() {
            let name = order::ordered_name(&step.directive.name);
            if name == "root" && !step.has_matcher {
                scope.root = step.words.first().map(|root| (*root).to_owned());
                rest = others;
                continue;
            }
            let alike = |other: &&Step<'_>| order::ordered_name(&other.directive.name) == name;
            let length = 1 + others.iter().take_while(alike).count();
            let (group, behind) = rest.split_at(length);
            rest = behind;
            let answers = match name {
                "handle" => self.handles(group, &scope),
                "rewrite" if rewrites > 1 && length > 1 => {
                    self.rewrites(group, &scope);
                    Answers::Some
                }
                _ => self.each(group, &scope),
            };
            scope.is_rewritten |= matches!(name, "rewrite" | "uri" | "try_files" | "php_fastcgi");
            if answers == Answers::All {
                return Answers::All;
            }
            if std::mem::take(&mut self.has_left_folder) {
                scope.root = None;
            }
        }
        Answers::Some
    }

    /// The directives of a block, in order, and their surroundings.
    pub(super) fn steps<'d>(
        &mut self,
        block: &'d [Directive],
        outer: &Scope<'d>,
        order: BlockOrder,
    ) -> (Scope<'d>, Vec<Step<'d>>) {
        let mut scope = outer.clone();
        scope.matchers = outer.matchers.with(block);
        let mut ranked = Vec::new();
        for directive in block.iter().filter(|inner| !inner.name.starts_with('@')) {
            let Matcher { requests, path_length, is_there, words } = match directive.name.as_str() {
                "tls" | "bind" | "log" | "handle_errors" | "try_files" => scope.matchers.none(),
                _ => scope.matchers.of(directive),
            };
            let place = self.global.order.place(&directive.name).unwrap_or_default();
            let mut requests = outer.requests.and(&requests);
            if outer.mark.is_some() || outer.prefix.is_some() {
                // The rest of the path is the first group.
                requests.forget_groups();
            }
            let step = Step {
                directive,
                words: directive.words[words..].iter().map(String::as_str).collect(),
                requests,
                has_matcher: is_there,
            };
            ranked.push((Rank { place, path: path_length, has_matcher: is_there }, step));
        }
        if order == BlockOrder::Caddy {
            // Directives that are no routes take no part in the sort.
            let (mut others, mut routes): (Vec<_>, Vec<_>) = ranked
                .into_iter()
                .partition(|(_, step)| NO_ROUTES.contains(&&*step.directive.name));
            super::sort::sort(&mut routes);
            others.append(&mut routes);
            ranked = others;
        }
        (scope, ranked.into_iter().map(|(_, step)| step).collect())
    }

    fn each(&mut self, group: &[Step<'_>], scope: &Scope<'_>) -> Answers {
        let mut answers = Answers::Some;
        for step in group {
            answers = self.step(step, scope);
            if answers == Answers::All {
                break;
            }
        }
        answers
    }

    /// Converts one directive.
    fn step(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        match step.directive.name.as_str() {
            "tls" | "bind" => {}
            name if SILENT.contains(&name) => {}
            "root" => self.refuse(step, scope, "a folder for some requests"),
            "header" => self.header(step, scope),
            "request_header" => self.request_header(step, scope),
            "request_body" => self.request_body(step, scope),
            "encode" => self.encode(step, scope),
            "redir" => return self.redir(step, scope),
            "rewrite" => self.rewrite(step, scope, None),
            "uri" => self.uri(step, scope),
            "try_files" => self.try_files(step, scope),
            "basicauth" | "basic_auth" => self.basic_auth(step, scope),
            "forward_auth" => self.forward_auth(step, scope),
            "route" => return self.route(step, scope),
            "respond" => return self.respond(step, scope),
            "error" => return self.error(step, scope),
            "abort" => return self.abort(step, scope),
            "metrics" => return self.metrics(step, scope),
            "reverse_proxy" => return self.reverse_proxy(step, scope),
            "php_fastcgi" => return self.php_fastcgi(step, scope),
            "file_server" => return self.file_server(step, scope),
            "handle_errors" | "templates" | "push" | "map" | "vars" | "fs" | "intercept" => {
                let text = format!("{} has no equal", step.directive.text());
                self.site.left_out(&step.directive.place, text);
            }
            _ => self.refuse(step, scope, "the directive is unknown"),
        }
        Answers::Some
    }

    /// Notes what a block leaves behind for the requests that it does not answer.
    pub(super) fn left(&mut self, step: &Step<'_>, scope: &Scope<'_>) {
        self.has_left_folder |= sets_root(step, scope);
    }

    /// Adds a route for each list of conditions. The function gets the text for the path. If a
    /// condition cannot be expressed, the routes refuse instead.
    pub(super) fn add(
        &mut self,
        requests: &Requests,
        mark: Option<usize>,
        seen: Seen<'_>,
        fill: &dyn Fn(&mut Section, &str),
    ) {
        for one in &requests.alternatives {
            let mut route = Section::new("site.route");
            let path = one.set(mark, seen, &mut route);
            match (&requests.unknown, &requests.clients) {
                (Some((place, why)), _) => {
                    route.left_out(place, format!("{why} has no equal; the requests are refused"));
                    route.set("deny", true);
                }
                (None, Clients::From(networks)) if networks.is_empty() => {
                    route.comment("Two conditions about addresses have no equal here.");
                    route.set("deny", true);
                }
                (None, clients) => {
                    match clients {
                        Clients::Everyone => {}
                        Clients::From(networks) => route.set_list("allow_from", networks.clone()),
                        Clients::NotFrom(networks) => route.set_list("deny_from", networks.clone()),
                    }
                    fill(&mut route, &path);
                }
            }
            self.push(route);
        }
    }

    pub(super) fn push(&mut self, route: Section) {
        if self.routes.len() >= MAX_ROUTES {
            self.is_too_large = true;
            return;
        }
        self.routes.push(route);
    }

    /// Adds the routes of a rule, which answer nothing.
    pub(super) fn rule(
        &mut self,
        step: &Step<'_>,
        scope: &Scope<'_>,
        fill: &dyn Fn(&mut Section, &str),
    ) {
        self.add(&step.requests, scope.mark, Seen::Whole, fill);
    }

    /// Adds the routes that answer. They see the path without a mark.
    pub(super) fn answer(
        &mut self,
        step: &Step<'_>,
        scope: &Scope<'_>,
        fill: &dyn Fn(&mut Section, &str),
    ) -> Answers {
        let seen = scope.seen();
        let is_changed = scope.mark.is_some() || seen != Seen::Whole;
        if step.requests.clients != Clients::Everyone && step.requests.unknown.is_none() {
            let text = format!(
                "{}: other clients are refused, where Caddy tries what follows",
                step.directive.text()
            );
            self.site.note(&step.directive.place, text);
        }
        if step.requests.unknown.is_none() {
            let alternatives = step.requests.alternatives.iter();
            let ambiguous = Requests {
                alternatives: alternatives.flat_map(Conditions::ambiguous).collect(),
                ..Requests::all()
            };
            self.add(&ambiguous, scope.mark, seen, &|route, _| {
                route.comment("Applications read the parameter in different ways.");
                route.set("deny", true);
            });
        }
        self.add(&step.requests, scope.mark, seen, &|route, path| {
            if is_changed {
                route.set("rewrite", path);
            }
            fill(route, path);
        });
        step.answers()
    }

    /// Refuses the requests of a directive that cannot be expressed.
    pub(super) fn refuse(&mut self, step: &Step<'_>, scope: &Scope<'_>, why: &str) {
        let directive = step.directive;
        let text = format!("{} has no equal: {why}; its requests are refused", directive.text());
        self.refuse_at(&step.requests, scope, &directive.place, &text);
    }

    pub(super) fn refuse_at(
        &mut self,
        requests: &Requests,
        scope: &Scope<'_>,
        place: &Place,
        text: &str,
    ) {
        // The clients are unknown too: all are refused.
        let everyone = Requests { clients: Clients::Everyone, ..requests.clone() };
        self.add(&everyone, scope.mark, Seen::Whole, &|route, _| {
            route.left_out(place, text);
            route.set("deny", true);
        });
    }
}

/// True if a block sets another folder of files.
fn sets_root(step: &Step<'_>, scope: &Scope<'_>) -> bool {
    fn any(block: &[Directive], own: Option<&String>) -> bool {
        block.iter().any(|inner| {
            let is_other = inner.words.iter().any(|word| word != "*" && Some(word) != own);
            inner.name == "root" && is_other || any(inner.inner(), own)
        })
    }
    any(step.directive.inner(), scope.root.as_ref())
}

/// The order in which the directives of a block are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockOrder {
    Caddy,
    File,
}

impl Step<'_> {
    /// The first word behind the matcher.
    pub(super) fn word(&self) -> &str {
        self.words.first().copied().unwrap_or_default()
    }

    /// The requests that a handler answers: all of the block if there is no matcher.
    pub(super) fn answers(&self) -> Answers {
        if self.has_matcher { Answers::Some } else { Answers::All }
    }
}

impl Scope<'_> {
    pub(super) fn new(matchers: Matchers<'_>) -> Scope<'_> {
        Scope {
            matchers,
            requests: Requests::all(),
            mark: None,
            root: None,
            prefix: None,
            stripped: String::new(),
            is_rewritten: false,
        }
    }

    /// The path that a directive which answers sees.
    pub(super) fn seen(&self) -> Seen<'_> {
        match &self.prefix {
            Some(prefix) => Seen::Without(prefix),
            None => Seen::Whole,
        }
    }
}
