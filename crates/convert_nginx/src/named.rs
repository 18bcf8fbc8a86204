//! Named locations: `try_files` leads to the path behind their names.

use super::answer::{Surroundings, take_module, with_condition};
use super::common::Common;
use super::effect::{answer, set_condition};
use super::location::{Kind, Known};
use super::pattern::{Condition, quote, unanchored};
use super::rewrite::is_rewriting;
use super::server::{Phases, made};
use super::text::{Use, translate};
use super::tree::Directive;
use super::{access, proxy, rules};
use sendoff_convert_document::Section;

/// Adds the routes of a named location.
pub(super) fn routes(
    name: &str,
    one: &Known<'_>,
    common: &Common,
    around: &Surroundings<'_, '_>,
    phases: &mut Phases,
) {
    // Only `try_files` leads there: a client must not get around the rules of other locations.
    phases.rewriting.push(made(|route| {
        route.comment(format!(
            "Paths below /@{name} stand for location @{name}; a client gets 404."
        ));
        route.set("match", format!("^/@{}(?:/|$)", quote(name)));
        route.set("try_files", "=404");
    }));
    let scope = &one.location.scope;
    let named = Named { prefix: format!("^/@{}", quote(name)), one };
    let guard = made(|route| {
        if common.access.is_none() {
            access::rules(scope, route);
        }
        if common.limits.is_none() {
            access::limits(scope, around.http, route);
        }
        if common.fields.is_none() {
            rules::of_response(scope, route);
        }
        rules::of_location(scope, route);
    });
    phases.named.push(with_condition(&named.inside(), guard));
    // An application answers behind all rewriting, wherever it stands.
    let is_pass = |directive: &&Directive| directive.name.ends_with("_pass");
    let (passes, others): (Vec<_>, Vec<_>) = scope.block().iter().partition(is_pass);
    let ordered = others.into_iter().chain(passes);
    phases.named.extend(ordered.filter_map(|directive| named.directive(directive)));
}

/// A named location.
struct Named<'n, 'd> {
    /// The beginning of an expression for its paths.
    prefix: String,
    one: &'n Known<'d>,
}

impl Named<'_, '_> {
    /// The condition for its paths. The first group is the path behind the name.
    fn inside(&self) -> Condition {
        Condition::Match(format!("{}(/.*)$", self.prefix))
    }

    /// The route of a directive that rewrites or answers.
    fn directive(&self, directive: &Directive) -> Option<Section> {
        let scope = &self.one.location.scope;
        let mut route = made(|route| set_condition(route, &self.inside()));
        match &*directive.name {
            "rewrite" => route = self.rewrite(directive),
            "return" => route = answer(directive, route, scope),
            "if" if directive.block.iter().flatten().any(is_rewriting) => {
                let text = format!("{} has no equal: every request is refused", directive.text());
                route.left_out(&directive.place, text);
                route.set("deny", true);
            }
            "if" | "break" => {
                route = Section::default();
                let text = format!("{} of a named location has no equal", directive.text());
                route.left_out(&directive.place, text);
            }
            name if proxy::PASSES.contains(&name) => {
                let matcher = &self.one.location.candidate.matcher;
                route = proxy::pass(directive, matcher, &self.inside(), scope);
                route.set("rewrite", "$1");
            }
            "fastcgi_pass" => match &self.one.kind {
                Kind::Php { script: Some(script), .. } => {
                    rules::of_scripts(scope, &mut route);
                    route.set("rewrite", script.clone());
                }
                _ => self.refuse(&mut route, directive),
            },
            name if name.ends_with("_pass") => self.refuse(&mut route, directive),
            _ => return None,
        }
        directive.take_whole();
        Some(route)
    }

    fn rewrite(&self, directive: &Directive) -> Section {
        let scope = &self.one.location.scope;
        let expression = directive.word();
        let [_, target, flags @ ..] = &directive.words[..] else { return Section::default() };
        let mut route = Section::new("site.route");
        let stays = flags.iter().any(|flag| flag == "break");
        match translate(target, scope, Use::Path) {
            Ok(target) if target.starts_with(['/', '$']) && !target.contains("$path") && !stays => {
                route.set("match", format!("{}{}", self.prefix, unanchored(expression)));
                let adds_query = target.contains('?') && !target.ends_with('?');
                route.set("rewrite", if adds_query { format!("{target}&$query") } else { target });
                return route;
            }
            _ => {
                set_condition(&mut route, &self.inside());
                self.refuse(&mut route, directive);
            }
        }
        route
    }

    fn refuse(&self, route: &mut Section, directive: &Directive) {
        if directive.name.ends_with("_pass") {
            take_module(directive, &self.one.location.scope);
        }
        let text = format!(
            "{} of a named location has no equal: the request is refused",
            directive.text()
        );
        route.left_out(&directive.place, text);
        route.set("deny", true);
    }
}
