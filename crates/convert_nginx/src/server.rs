//! A `server`: its site, and the routes in the order of nginx's phases: rewriting, access,
//! `try_files`, index files, and then the answer.

use super::access;
use super::answer::{self, Surroundings};
use super::choice::{asked_before, condition};
use super::common::Common;
use super::http::Outside;
use super::leftover::name_untaken;
use super::location::{Collected, Known, collect, kind};
use super::pattern::{Candidate, Condition, Matcher};
use super::rewrite::{self, Staying};
use super::scope::Scope;
use super::tree::Directive;
use super::{again, maps, pool, rules, site, tries};
use sendoff_convert_document::Section;

/// The routes of a server, in the order of nginx's phases.
#[derive(Default)]
pub(super) struct Phases {
    /// The refusals of internal locations, which concern the path that a client names.
    pub(super) internal: Vec<Section>,
    pub(super) rewriting: Vec<Section>,
    pub(super) access: Vec<Section>,
    pub(super) tries: Vec<Section>,
    pub(super) named: Vec<Section>,
    pub(super) answers: Vec<Section>,
}

/// The section of a route that a function fills.
pub(super) fn made(fill: impl FnOnce(&mut Section)) -> Section {
    let mut section = Section::new("site.route");
    fill(&mut section);
    section
}

/// Makes the sections of the site of the server with this number.
pub(super) fn convert(
    number: usize,
    server: &Directive,
    outside: &Outside<'_>,
    groups: &mut Vec<Section>,
) -> Vec<Section> {
    let Some(block) = &server.block else { return Vec::new() };
    server.take();
    let http = Scope::new(outside.http);
    let scope = http.inner(block);
    let mut site = Section::new("site");
    outside.listeners.set(number, server, &mut site);
    let Collected { locations, lacks_guard } = collect(&scope, &mut site);
    let candidates: Vec<Candidate> = locations.iter().map(|l| l.candidate.clone()).collect();
    let known: Vec<_> = locations
        .into_iter()
        .enumerate()
        .map(|(number, location)| {
            let kind = kind(&location, outside);
            let condition = condition(&candidates, number);
            let asked_before = asked_before(&candidates, number);
            Known { location, condition, asked_before, kind }
        })
        .collect();
    let main = Main::of(&known, &scope);
    site::keys(&scope, &main, &mut site);
    let sections = if rewrite::returns(block) {
        returned(&scope, &mut site)
    } else {
        if let Some(pool) = pool::pool(&known, groups, &mut site) {
            site.set("pool", pool);
        }
        let around = Surroundings { server: &scope, http: &http, main };
        routes(&known, &around, lacks_guard, &mut site)
    };
    let closed = access::handshake(&scope).map(|reason| {
        made(|route| {
            let text = format!("{} has no equal: every request is refused", reason.text());
            route.left_out(&reason.place, text);
            route.set("deny", true);
        })
    });
    let mut sections = [closed.into_iter().collect(), sections].concat();
    // A group of an `if`, of a table, or of another location.
    for route in sections.iter_mut().filter(|route| route.names_missing_group()) {
        route.refuse("A group such as $1 has no equal here: the requests are refused.");
    }
    name_untaken(block, &mut site);
    let maps = maps::sections(&http, &sections);
    [vec![site], maps, sections].concat()
}

/// The routes of a server whose own `return` answers. Its locations are never reached.
fn returned(scope: &Scope<'_>, site: &mut Section) -> Vec<Section> {
    let mut sections = vec![made(|route| rules::of_response(scope, route))];
    rewrite::routes(&Condition::All, scope, Staying::AsLast, &mut sections);
    for location in scope.block().iter().filter(|inner| inner.name == "location") {
        location.take_whole();
        let text = format!("{} is not reached: the return of the server answers", location.text());
        site.note(&location.place, text);
    }
    sections
}

fn routes(
    known: &[Known<'_>],
    around: &Surroundings<'_, '_>,
    lacks_guard: bool,
    site: &mut Section,
) -> Vec<Section> {
    let mut phases = Phases::default();
    let common = Common::of(known, around.server, around.http);
    let mut sections = Vec::new();
    if lacks_guard {
        sections.push(made(|route| {
            let text =
                "A location that cannot be expressed restricts access: every request is refused.";
            route.comment(text);
            route.set("deny", true);
        }));
    }
    sections.extend(common.fields.clone());
    let mut of_server = Vec::new();
    rewrite::routes(&Condition::All, around.server, Staying::AsLast, &mut of_server);
    for number in 0..known.len() {
        answer::convert(number, known, &common, around, site, &mut phases);
    }
    let names = tries::index(around.main.index);
    let again = again::behind_tries(&phases, &of_server);
    let again_for_index = again::behind_index(&phases, &of_server, &names);
    let index = tries::index_route(known, &phases, &names, !again_for_index.is_empty());
    let Phases { internal, rewriting, access, tries, named, answers } = phases;
    sections.extend(internal);
    sections.extend(of_server);
    sections.extend(rewriting);
    sections.push(made(|route| {
        for part in [common.access, common.limits].into_iter().flatten() {
            route.absorb(part);
        }
    }));
    let index = index.into_iter().collect();
    let ordered = [access, tries, named, again, index, again_for_index, answers];
    sections.extend(ordered.into_iter().flatten());
    sections
}

/// The scopes that speak for the site. In many files these directives stand in `location /`.
#[derive(Clone, Copy)]
pub(super) struct Main<'s, 'd> {
    /// Its `root` is the folder of the site.
    pub(super) root: &'s Scope<'d>,
    /// Its `index` names the index files of the site.
    pub(super) index: &'s Scope<'d>,
}

impl<'s, 'd> Main<'s, 'd> {
    fn of(known: &'s [Known<'d>], server: &'s Scope<'d>) -> Self {
        let mut all = known.iter().map(|one| &one.location);
        let of_all = all.find(|location| {
            matches!(&location.candidate.matcher, Matcher::Prefix { text, .. } if text == "/")
        });
        let Some(scope) = of_all.map(|location| &location.scope) else {
            return Self { root: server, index: server };
        };
        let has_root = scope.peek("root").is_some();
        Self {
            root: if has_root { scope } else { server },
            index: if server.peek("index").is_none() { scope } else { server },
        }
    }
}
