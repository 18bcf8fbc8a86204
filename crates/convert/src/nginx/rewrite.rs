//! The directives that nginx carries out before anything else: `if`, `return`, `rewrite`.

use super::effect::{answer, if_missing, rewrite, route, set_candidates};
use super::pattern::{Condition, may_begin};
use super::scope::Scope;
use super::tested::{Tested, apply, asks_client, is_refusal};
use super::tree::Directive;
use crate::document::Section;

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
        let mut ends = made.has("rewrite") && matches!(flag, "last" | "break");
        match (flag, self.staying) {
            ("break", Staying::Here(complete)) if made.has("rewrite") => {
                made = complete(made);
                ends = false;
            }
            ("", _)
                if made.has("rewrite")
                    && !self.is_of_server()
                    && later.iter().any(is_rewriting) =>
            {
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
                ("return", Tested::Missing | Tested::NoFile) if is_refusal(directive.word()) => {
                    made = route(self.condition);
                    let status = format!("={}", directive.word());
                    set_candidates(&mut made, tested, status, directive);
                }
                ("return", Tested::Http) if self.is_of_server() && to_https(directive) => {
                    made.note(&test.place, "https_redirect of the site redirects");
                }
                ("return", _) if is_refusal(directive.word()) || asks_client(test) => {
                    made = self.refused(test);
                }
                ("rewrite", Tested::Unknown) if asks_client(test) => made = self.refused(test),
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
