//! `root` and `alias`: the folder of a location.

use super::location::{Kind, Known, Location};
use super::pattern::{Condition, Matcher, beginning, may_begin, quote};
use super::scope::Scope;
use super::server::{Phases, made};
use super::tree::Directive;
use super::{rewrite, tries};
use sendoff_convert_document::Section;

/// The folder of a location.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Folder {
    /// The site's.
    OfSite,
    /// A key of the site says it.
    Alias,
    /// Only applications name files there.
    Accel,
    /// It cannot be expressed.
    Elsewhere,
}

/// The place of the files of a location.
enum Files<'d> {
    OfSite,
    /// The files below a path of the site are in another folder.
    At {
        path: String,
        target: String,
        directive: &'d Directive,
    },
    Elsewhere(&'d Directive),
}

/// Finds the folder of a location among all, and sets the keys of the site for it.
pub(super) fn folder(
    number: usize,
    known: &[Known<'_>],
    main: &Scope<'_>,
    is_internal: bool,
    site: &mut Section,
    phases: &mut Phases,
) -> Folder {
    let Known { location, kind, .. } = &known[number];
    location.scope.own("root");
    location.scope.own("alias");
    let sends_files = matches!(kind, Kind::Static | Kind::Php { .. });
    if !sends_files && location.scope.peek("try_files").is_none() {
        return Folder::OfSite;
    }
    match files(location, known, main) {
        Files::OfSite => {
            outside_of_aliases(number, known, main, site, phases);
            Folder::OfSite
        }
        Files::At { path, target, directive } => {
            let has_slash = matches!(&location.candidate.matcher, Matcher::Prefix { text, .. } if text.ends_with('/'));
            if has_slash && !is_internal {
                exclude(&path, known, phases);
            }
            if !is_internal && may_go_on(&location.candidate.matcher, &path) {
                let text = format!(
                    "{}: a path that goes on without a slash behind {path} is not found",
                    directive.text()
                );
                site.note(&directive.place, text);
                phases.answers.push(not_found(&known[number].condition, &path, "[^/]"));
            }
            site.set_in(if is_internal { "accel" } else { "alias" }, &path, target);
            if is_internal { Folder::Accel } else { Folder::Alias }
        }
        Files::Elsewhere(directive) => {
            let text = format!("{} has no equal here: the location is refused", directive.text());
            site.left_out(&directive.place, text);
            Folder::Elsewhere
        }
    }
}

/// True if a location may have paths that go on behind the path of its folder without a slash. nginx
/// appends their rest to the name of the folder; a key `alias` does not hold for them.
fn may_go_on(matcher: &Matcher, path: &str) -> bool {
    let start = match matcher {
        Matcher::Prefix { text, .. } => Some(text.clone()),
        Matcher::Expression { text, .. } => beginning(text),
        Matcher::Exact(_) | Matcher::Named(_) => return false,
    };
    !start.is_some_and(|start| start.starts_with(&format!("{path}/")))
}

/// Refuses paths of a location that begin with a path and go on with an expression.
fn not_found(condition: &Condition, path: &str, rest: &str) -> Section {
    made(|route| {
        route.set("match", format!("^{}{}{rest}", condition.ahead(), quote(path)));
        route.set("deny", true);
        route.set("status", 404);
    })
}

/// A key `alias` holds for all paths of its folder, also if nginx chooses another location for some
/// of them, whose files are in the folder of the site.
fn outside_of_aliases(
    number: usize,
    known: &[Known<'_>],
    main: &Scope<'_>,
    site: &mut Section,
    phases: &mut Phases,
) {
    let own = &known[number];
    let block = own.location.scope.block();
    let has = |name: &str| block.iter().any(|directive| directive.name == name);
    if rewrite::returns(block) || has("deny") && !has("allow") && !has("satisfy") {
        return;
    }
    let aliases = known.iter().filter(|one| one.location.scope.peek("internal").is_none());
    for other in aliases {
        let Matcher::Prefix { .. } = &other.location.candidate.matcher else { continue };
        let sends_files = matches!(other.kind, Kind::Static | Kind::Php { .. });
        let Files::At { path, .. } = files(&other.location, known, main) else { continue };
        let folder = format!("{path}/");
        if !sends_files || own.condition == Condition::None {
            continue;
        }
        match &own.location.candidate.matcher {
            Matcher::Prefix { text, .. } if text.starts_with(&folder) => {
                let note = format!("files below {text} are not found: {path} is in another folder");
                if let Some(location) = own.location.directive {
                    site.note(&location.place, note);
                }
                phases.answers.push(not_found(&own.condition, text, ""));
            }
            Matcher::Exact(exact) if exact.starts_with(&folder) => {
                phases.answers.push(not_found(&own.condition, exact, "$"));
            }
            Matcher::Expression { text, .. }
                if other.asked_before.contains(text) && may_begin(text, &folder) =>
            {
                phases.answers.push(not_found(&own.condition, &path, "/"));
            }
            _ => {}
        }
    }
}

/// A key `alias` also holds for the path without a slash, which nginx looks up in the root: there
/// it finds nothing, unless the folder is there as well.
fn exclude(path: &str, known: &[Known<'_>], phases: &mut Phases) {
    let Some(chosen) = known.iter().find(|one| one.condition.holds(path)) else { return };
    if !matches!(chosen.kind, Kind::Static) {
        return;
    }
    let names = tries::of(chosen).texts("try_files");
    let last = names.last().cloned().unwrap_or_else(|| "=404".to_owned());
    phases.tries.insert(
        0,
        made(|route| {
            route.set("path", path);
            route.set("try_files", last);
        }),
    );
}

fn files<'d>(location: &Location<'d>, known: &[Known<'d>], main: &Scope<'d>) -> Files<'d> {
    let scope = &location.scope;
    let named = |name: &str| scope.block().iter().find(|directive| directive.name == name);
    let outer = location.candidate.around.last().map(|outer| &known[*outer].location);
    let (alias, root) = (named("alias"), scope.peek("root"));
    if alias.is_none()
        && let Some(outer) = outer
        && outer.scope.peek("root").map(Directive::word) == root.map(Directive::word)
    {
        return files(outer, known, main);
    }
    let is_of_site = |root: &Directive| Some(root.word()) == main.peek("root").map(Directive::word);
    let (path, target, directive) = match (&location.candidate.matcher, alias, root) {
        (_, None, None) => return Files::OfSite,
        (_, None, Some(root)) if is_of_site(root) => return Files::OfSite,
        (Matcher::Prefix { text, .. }, Some(alias), _)
            if text.ends_with('/') == alias.word().ends_with('/') =>
        {
            (text.as_str(), alias.word().to_owned(), alias)
        }
        (Matcher::Prefix { text, .. }, None, Some(root)) => {
            (text.as_str(), format!("{}{text}", root.word().trim_end_matches('/')), root)
        }
        (Matcher::Expression { text, within: None }, None, Some(root)) => {
            return files_of_expression(text, root, known, main);
        }
        (_, Some(directive), _) | (_, None, Some(directive)) => return Files::Elsewhere(directive),
    };
    let (path, target) = (path.trim_end_matches('/'), target.trim_end_matches('/'));
    if path.is_empty() || target.contains('$') {
        return Files::Elsewhere(directive);
    }
    Files::At { path: path.to_owned(), target: target.to_owned(), directive }
}

/// The place of the files of an expression, which is known if all its paths are below a prefix
/// whose files are in the same folder.
fn files_of_expression<'d>(
    expression: &str,
    root: &'d Directive,
    known: &[Known<'d>],
    main: &Scope<'d>,
) -> Files<'d> {
    let Some(start) = beginning(expression) else { return Files::Elsewhere(root) };
    let prefixes = known.iter().map(|one| &one.location).filter(|location| {
        matches!(&location.candidate.matcher, Matcher::Prefix { text, .. } if text != "/")
    });
    let found = prefixes.map(|location| files(location, known, main)).find(|files| match files {
        Files::At { path, target, directive } => {
            let is_below =
                start.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('/'));
            let of_root = format!("{}{path}", root.word().trim_end_matches('/'));
            directive.name == "root" && is_below && of_root == *target
        }
        _ => false,
    });
    found.unwrap_or(Files::Elsewhere(root))
}
