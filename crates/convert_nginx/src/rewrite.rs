//! The directives that nginx carries out before anything else: `if`, `return`, `rewrite`.

use super::effect::{answer, candidates, if_missing, leaves, rewrite, route};
use super::location::restricts;
use super::maps;
use super::pattern::{Condition, may_begin};
use super::scope::Scope;
use super::tested::{
    Tested, ambiguous, apply, asks_for_address, asks_for_file, asks_for_files, asks_for_own_file,
    is_refusal, of_path,
};
use super::tree::Directive;
use sendoff_convert_document::Section;

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
    let directives = carried_out(scope.block());
    let order = match staying {
        Staying::AsLast => directives,
        Staying::Here(_) => refusals_first(directives),
    };
    for (number, directive) in order.iter().enumerate() {
        rewriting.directive(directive, &order[number + 1..]);
    }
}

/// The directives of a block without those that nginx does not carry out, because they stand behind
/// `return` or `break`.
fn carried_out(block: &[Directive]) -> Vec<&Directive> {
    let is_end = |directive: &Directive| matches!(&*directive.name, "return" | "break");
    let end = block.iter().position(is_end).map_or(block.len(), |end| end + 1);
    let (reached, behind) = block.split_at(end);
    let (unreached, others): (Vec<_>, Vec<_>) = behind.iter().partition(|one| is_rewriting(one));
    unreached.into_iter().for_each(Directive::take_whole);
    reached.iter().chain(others).collect()
}

/// True if nginx carries out a `return` of a block for every request that no earlier directive
/// answers.
pub(super) fn returns(block: &[Directive]) -> bool {
    let mut ends = block.iter().map(|directive| &*directive.name);
    ends.find(|name| matches!(*name, "return" | "break")) == Some("return")
}

/// Puts each `if` with a refusal in front of the first rewriting without a flag: nginx carries it
/// out for the new path as well, while a route would see a path of another location.
fn refusals_first(directives: Vec<&Directive>) -> Vec<&Directive> {
    let is_without_flag = |directive: &&&Directive| {
        let inner = directive.block.iter().flatten();
        std::iter::once(**directive).chain(inner).any(goes_on)
    };
    let Some(first) = directives.iter().position(|one| is_without_flag(&one)) else {
        return directives;
    };
    let (before, after) = directives.split_at(first);
    let refuses = |directive: &&&Directive| {
        let mut inner = directive.block.iter().flatten();
        directive.name == "if"
            && inner.any(|inner| inner.name == "return" && is_refusal(inner.word()))
    };
    let moved = after.iter().filter(refuses);
    let others = after.iter().filter(|directive| !refuses(directive));
    before.iter().chain(moved).chain(others).copied().collect()
}

/// True for a `rewrite` after which nginx carries out further directives.
fn goes_on(directive: &Directive) -> bool {
    let target = directive.words.get(1).map_or("", String::as_str);
    directive.name == "rewrite" && directive.words.len() < 3 && !leaves(target)
}

/// True if directives may rewrite or answer requests behind a rewriting without a flag. Refusals
/// stand in front of it.
fn go_further(later: &[&Directive]) -> bool {
    let acts = |directive: &Directive| match &*directive.name {
        "rewrite" | "break" => true,
        "return" => !is_refusal(directive.word()),
        _ => false,
    };
    later.iter().any(|one| acts(one) || one.block.iter().flatten().any(acts))
}

fn has<'d>(mut directives: impl Iterator<Item = &'d Directive>, name: &str) -> bool {
    directives.any(|directive| directive.name == name)
}

/// True for a directive that nginx carries out before it looks at access.
pub(super) fn is_rewriting(directive: &Directive) -> bool {
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
    fn directive(&mut self, directive: &Directive, later: &[&Directive]) {
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

    fn rewrite(&mut self, directive: &Directive, extra: Section, later: &[&Directive]) {
        let mut made = rewrite(directive, self.condition, extra, self.scope);
        let flag = match directive.words.get(2).map_or("", String::as_str) {
            // A `break` of its own also keeps the request in the location.
            "" if has(later.iter().copied(), "break") => "break",
            flag => flag,
        };
        let goes_on = flag.is_empty() && made.has("rewrite") && !self.is_of_server();
        if goes_on && has(later.iter().copied(), "return") {
            return self.overruled(directive);
        }
        let target = directive.words.get(1).map_or("", String::as_str);
        let mut ends = made.has("rewrite") && matches!(flag, "last" | "break");
        match self.staying {
            Staying::Here(complete) if flag == "break" && made.has("rewrite") => {
                made = complete(made);
                ends = false;
            }
            Staying::Here(_) if goes_on && go_further(later) => {
                made.take("rewrite");
                made.set("deny", true);
                let text = format!(
                    "{} has no equal: other directives may follow for the new path; the request is refused",
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

    /// A rewriting behind which a `return` answers in any case.
    fn overruled(&mut self, directive: &Directive) {
        let mut comments = Section::default();
        let text = format!("{}: the return behind it answers", directive.text());
        comments.note(&directive.place, text);
        self.routes.push(comments);
    }

    /// The routes of a rewriting of paths that lead to no file.
    fn missing(
        &mut self,
        test: &Directive,
        tested: Tested,
        directive: &Directive,
        behind: &[&Directive],
    ) {
        let goes_on = goes_on(directive) && !self.is_of_server();
        if goes_on && has(behind.iter().copied(), "return") {
            return self.overruled(directive);
        }
        let stays = directive.words.get(2).is_some_and(|flag| flag == "break")
            || goes_on && has(behind.iter().copied(), "break");
        let passes = self.scope.block().iter().any(|inner| inner.name.ends_with("_pass"));
        let is_other = stays && !self.is_of_server() && (passes || has_guard(self.scope));
        if is_other || goes_on && go_further(behind) {
            let made = self.refused(test);
            return self.add(made, test, "");
        }
        self.routes.extend(if_missing(directive, self.condition, self.scope, tested));
    }

    fn is_of_server(&self) -> bool {
        matches!(self.staying, Staying::AsLast)
    }

    /// A route that refuses every request, because a condition is not understood.
    fn refused(&self, test: &Directive) -> Section {
        let mut made = route(self.condition);
        let text = format!("{} has no equal: every request is refused", test.text());
        made.left_out(&test.place, text);
        made.set("deny", true);
        made
    }

    /// A `return` or a redirect for some paths of the location.
    fn of_path(&mut self, directive: &Directive, condition: &Condition) {
        let made = match &*directive.name {
            "return" => answer(directive, route(condition), self.scope),
            _ => rewrite(directive, condition, Section::default(), self.scope),
        };
        self.add(made, directive, "");
    }

    fn conditional(&mut self, test: &Directive, later: &[&Directive]) {
        let mut extra = Section::default();
        let tested = apply(test, &mut extra);
        let has_tls = self.scope.peek("ssl_certificate").is_some();
        let tested = match tested {
            // Without TLS, every request is one of http.
            Tested::Http if !has_tls => Tested::Known,
            Tested::Unknown if maps::condition(test, self.scope, &mut extra) => Tested::Known,
            tested => tested,
        };
        let directives = carried_out(test.block.as_deref().unwrap_or_default());
        if tested == Tested::Similar {
            let text = format!("{}: unusual spellings may be compared differently", test.text());
            extra.note(&test.place, text);
        }
        // The status at the end refuses every request that no condition holds for.
        let is_refused = |later: &&Directive| later.name == "return" && is_refusal(later.word());
        let opens = !later.iter().any(is_refused);
        if tested == Tested::Similar && opens && !self.is_of_server() && has_guard(self.scope) {
            let made = self.refused(test);
            return self.add(made, test, "");
        }
        let is_guarded = !opens || has_guard(self.scope);
        if let Some(both) = ambiguous(test).filter(|_| is_guarded && !directives.is_empty()) {
            let mut made = route(self.condition);
            let text = format!("{}: several fields of which only some match get 403", test.text());
            made.note(&test.place, text);
            made.absorb(both);
            made.set("deny", true);
            self.add(made, test, "");
        }
        let of_path = of_path(test, self.condition).filter(|_| tested == Tested::Unknown);
        for (number, directive) in directives.iter().enumerate() {
            if let Some(condition) = &of_path
                && answers(directive)
            {
                self.of_path(directive, condition);
                continue;
            }
            let behind: Vec<&Directive> =
                directives[number + 1..].iter().chain(later).copied().collect();
            let mut made = Section::default();
            match (&*directive.name, tested) {
                ("return", Tested::Similar) if opens && is_refusal(directive.word()) => {
                    made = self.refused(test);
                }
                ("break", _) if !behind.iter().any(|one| is_rewriting(one)) => continue,
                ("break", Tested::Known) => {
                    made = route(self.condition);
                    made.absorb(extra.clone());
                    let text = format!(
                        "break within {} has no equal: these requests are refused",
                        test.text()
                    );
                    made.left_out(&directive.place, text);
                    made.set("deny", true);
                }
                // Conditions for what is missing do not hold either.
                ("break", Tested::Unknown) if asks_for_file(test) && ask_for_none(&behind) => {
                    continue;
                }
                ("break", _) => made = self.refused(test),
                ("return", Tested::Known | Tested::Similar) => {
                    let mut conditions = route(self.condition);
                    conditions.absorb(extra.clone());
                    made = answer(directive, conditions, self.scope);
                }
                ("rewrite", Tested::Known | Tested::Similar) => {
                    self.rewrite(directive, extra.clone(), &behind);
                    continue;
                }
                ("rewrite", Tested::Missing | Tested::NoFile) => {
                    self.missing(test, tested, directive, &behind);
                    continue;
                }
                ("return", Tested::Missing | Tested::NoFile) if is_refusal(directive.word()) => {
                    let status = format!("={}", directive.word());
                    self.routes.extend(candidates(route(self.condition), tested, status));
                    continue;
                }
                ("return", Tested::Http) if self.is_of_server() && to_https(directive) => {
                    made.note(
                        &test.place,
                        "https_redirect of the site redirects, to the host that the client named",
                    );
                }
                ("return", _) if is_refusal(directive.word()) => made = self.refused(test),
                ("return", Tested::Unknown) if asks_for_own_file(test) => made = self.refused(test),
                ("return" | "rewrite", Tested::Unknown)
                    if !(asks_for_files(test)
                        || asks_for_address(test) && is_permanent(directive)) =>
                {
                    made = self.refused(test);
                }
                (name, Tested::Known | Tested::Similar) => {
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

/// True for a `return`, and for a `rewrite` that redirects.
fn answers(directive: &Directive) -> bool {
    let target = directive.words.get(1).map_or("", String::as_str);
    let flag = directive.words.get(2).map_or("", String::as_str);
    let redirects = matches!(flag, "redirect" | "permanent") || leaves(target);
    directive.name == "return" || directive.name == "rewrite" && redirects
}

/// True if a location refuses some requests, so that it matters which of them it rewrites.
fn has_guard(scope: &Scope<'_>) -> bool {
    const RULES: [&str; 4] = ["deny", "auth_basic", "auth_request", "internal"];
    restricts(scope.block()) || RULES.iter().any(|name| scope.peek(name).is_some())
}

/// True if the rewriting directives are all for requests that lead to no file.
fn ask_for_none(directives: &[&Directive]) -> bool {
    let asks = |directive: &&&Directive| {
        directive.name == "if"
            && matches!(apply(directive, &mut Section::default()), Tested::Missing | Tested::NoFile)
    };
    directives.iter().filter(|one| is_rewriting(one)).all(|one| asks(&one))
}

/// True for a permanent redirect. It keeps no client away for a time, as a redirect to a login does:
/// clients may remember it for ever.
fn is_permanent(directive: &Directive) -> bool {
    match &*directive.name {
        "return" => matches!(directive.word(), "301" | "308"),
        _ => directive.words.get(2).is_some_and(|flag| flag == "permanent"),
    }
}

/// True if a `return` redirects to https.
fn to_https(directive: &Directive) -> bool {
    directive.words.last().is_some_and(|target| target.starts_with("https://"))
}

/// True if an `if` of the server redirects requests without TLS.
pub(super) fn redirects_to_https(scope: &Scope<'_>) -> bool {
    let redirects = |test: &&Directive| {
        let asks = test.name == "if" && apply(test, &mut Section::default()) == Tested::Http;
        asks && test.block.iter().flatten().any(to_https)
    };
    scope.block().iter().any(|directive| redirects(&directive))
}
