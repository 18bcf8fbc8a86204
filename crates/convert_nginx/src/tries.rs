//! `try_files`, and index files.

use super::answer::with_condition;
use super::location::{Kind, Known, has_only_scripts};
use super::pattern::{Condition, Matcher, quote, unanchored, without_groups};
use super::scope::Scope;
use super::server::Phases;
use super::text::{Use, translate};
use super::tree::Directive;
use sendoff_convert_document::Section;

/// The rule for `try_files` of a location.
pub(super) fn of(one: &Known<'_>) -> Section {
    let scope = &one.location.scope;
    let mut section = Section::default();
    let Some(directive) = scope.own("try_files") else {
        return section;
    };
    // A script that does not exist is not found in any case. A path info belongs to the path, but
    // not to the name of the script.
    let splits = scope.peek("fastcgi_split_path_info").is_some();
    let is_usual = directive.words.iter().all(|word| match word.as_str() {
        "$fastcgi_script_name" => splits || has_no_path_info(one),
        "$uri" | "$document_uri" => has_no_path_info(one),
        word => word == "=404",
    });
    if matches!(one.kind, Kind::Php { .. }) && is_usual {
        return section;
    }
    let mut candidates = Vec::new();
    for word in &directive.words {
        match candidate(word, scope) {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => {
                let text = format!("{word} of try_files has no equal: {why}");
                section.left_out(&directive.place, text);
            }
        }
    }
    if directive.words.last().is_some_and(|last| candidate(last, scope).is_err()) {
        candidates.push("=404".to_owned());
    }
    section.set_list("try_files", candidates);
    section
}

/// True if the paths of a location end with a script.
fn has_no_path_info(one: &Known<'_>) -> bool {
    has_only_scripts(&one.location)
        && match &one.location.candidate.matcher {
            Matcher::Exact(_) => true,
            Matcher::Expression { text, .. } => text.ends_with(".php$") || text.ends_with("]php$"),
            Matcher::Prefix { .. } | Matcher::Named(_) => false,
        }
}

fn candidate(word: &str, scope: &Scope<'_>) -> Result<String, String> {
    if let Some(name) = word.strip_prefix('@') {
        return Ok(format!("/@{name}$path"));
    }
    match translate(word, scope, Use::Path) {
        Ok(text) if text.starts_with(['/', '$', '=']) => Ok(text),
        Ok(_) => Err("it does not begin with a slash".to_owned()),
        Err(variable) => Err(format!("{variable} is not known")),
    }
}

/// Adds the routes of `try_files`. For nginx a path that ends with a slash names no file. So if
/// the list has `$path` without `$path/`, such paths get a route of their own, whose list lacks
/// `$path`.
pub(super) fn add(condition: &Condition, mut tries: Section, routes: &mut Vec<Section>) {
    let names = tries.texts("try_files");
    let names_files_only = names.iter().any(|name| name == "$path")
        && !names.iter().any(|name| name == "$path/" || name.contains("$1"));
    let others = names.into_iter().filter(|name| name != "$path").collect();
    let ahead = match condition {
        Condition::Path(path) => {
            if names_files_only && path.ends_with('/') {
                tries.take("try_files");
                tries.set_list("try_files", others);
            }
            return routes.push(with_condition(condition, tries));
        }
        condition => condition.ahead(),
    };
    if !names_files_only {
        return routes.push(with_condition(condition, tries));
    }
    let start = if ahead.is_empty() { String::new() } else { format!("^{ahead}.*") };
    let mut of_folders = Section::new("site.route");
    of_folders.set("match", format!("{start}/$"));
    of_folders.set_list("try_files", others);
    let mut of_files = Section::new("site.route");
    of_files.set("match", format!("{start}[^/]$"));
    of_files.absorb(std::mem::take(&mut tries));
    routes.extend([of_folders, of_files]);
}

/// The route that leads from a folder to its index file, if a location has rules for that file.
/// `is_asked` tells that rewriting may concern the file.
pub(super) fn index_route(
    known: &[Known<'_>],
    phases: &Phases,
    names: &[String],
    is_asked: bool,
) -> Option<Section> {
    let runs = known.iter().any(|one| matches!(one.kind, Kind::Php { .. }));
    let is_needed =
        phases.answers.iter().any(|route| !route.has("proxy") && !route.has("redirect"));
    let names_script = names.iter().any(|name| name.ends_with(".php"));
    if !(is_asked || runs && is_needed && names_script) {
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

/// Takes the `index` of a location if it says what the site says, or if the location sends no
/// files.
pub(super) fn take_index(one: &Known<'_>, main: &Scope<'_>) {
    let scope = &one.location.scope;
    let sends_files = matches!(one.kind, Kind::Static | Kind::Php { .. });
    if !sends_files || names(&scope.peek_all("index")) == names(&main.peek_all("index")) {
        scope.all("index");
    }
}

/// The names of index files.
pub(super) fn index(scope: &Scope<'_>) -> Vec<String> {
    names(&scope.all("index"))
}

fn names(directives: &[&Directive]) -> Vec<String> {
    let names: Vec<_> = directives
        .iter()
        .flat_map(|one| one.words.clone())
        .filter(|name| !name.contains(['/', '$']))
        .collect();
    if names.is_empty() { vec!["index.html".to_owned()] } else { names }
}
