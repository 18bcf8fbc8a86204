//! The keys of a site.

use std::collections::HashSet;

use sendoff_convert_document::{Directive, Section};

use super::known::MANY;
use super::sections::{Kind, Part, named};

/// The formats that Sendoff's combined format has the fields of.
const FORMATS: [&str; 4] = ["combined", "common", "vhost_combined", ""];

/// Sets keys for which the server and the folder of the site count.
pub(super) fn set(
    parts: &[Part<'_>],
    root: Option<&str>,
    site: &mut Section,
    has_php: bool,
) -> Vec<String> {
    let index = index(parts, site);
    site.set_list("index", index.clone());
    front_controller(parts, site, has_php);
    htaccess(parts, root, site);
    super::options::links(parts, site);
    error_pages(parts, site);
    access_log(parts, site);
    bodies(parts, site);
    index
}

/// `DirectoryIndex`: names of the site.
fn index(parts: &[Part<'_>], site: &mut Section) -> Vec<String> {
    let mut names: Vec<String> = vec!["index.html".to_owned()];
    for (part, directive) in named(parts, &["directoryindex"]) {
        let own: Vec<String> = directive
            .words
            .iter()
            .filter(|name| !name.contains(['/', '$']) && *name != "disabled")
            .cloned()
            .collect();
        let is_known = !own.is_empty() && own.len() == directive.words.len();
        match part.area.is_all() {
            true if !own.is_empty() => names.clone_from(&own),
            _ if own == names => {}
            _ => directive.left_out(site, "a site has one list of index files"),
        }
        if part.area.is_all() && !is_known {
            directive.left_out(site, "an index file is a name without a slash");
        }
    }
    names
}

/// `FallbackResource`
fn front_controller(parts: &[Part<'_>], site: &mut Section, has_php: bool) {
    let mut scripts = toml::Table::new();
    for (part, directive) in named(parts, &["fallbackresource"]) {
        let script = directive.word();
        if script == "disabled" {
            scripts.remove(part.folder.as_deref().filter(|f| !f.is_empty()).unwrap_or("/"));
            continue;
        }
        let folder = match &part.folder {
            Some(folder) if !folder.is_empty() => Some(folder.as_str()),
            Some(_) => Some("/"),
            None => part.area.is_all().then_some("/"),
        };
        match folder {
            Some(folder) if script.starts_with('/') && script.ends_with(".php") && has_php => {
                scripts.insert(folder.to_owned(), script.to_owned().into());
            }
            _ => directive.left_out(site, "only a script of a folder answers for missing files"),
        }
    }
    let only = scripts.get("/").filter(|_| scripts.len() == 1).cloned();
    match only {
        Some(script) => site.set("front_controller", script),
        None if scripts.is_empty() => site.set("front_controller", "off"),
        None => site.set("front_controller", scripts),
    }
}

/// Refuses the folders of a site without index files: a site has at least one name.
pub(super) fn no_index(parts: &[Part<'_>], routes: &mut Vec<Section>) {
    let last = named(parts, &["directoryindex"]).filter(|(part, _)| part.area.is_all()).last();
    let Some((_, directive)) = last.filter(|(_, one)| one.word() == "disabled") else { return };
    let mut route = Section::new("site.route");
    directive.left_out(&mut route, "folders are refused");
    route.set("match", r"/\z");
    route.set("deny", true);
    routes.push(route);
}

/// Refuses the whole site if its `.htaccess` files have another name: they are not read.
pub(super) fn other_access_files(
    blocks: [&[Directive]; 2],
    parts: &[Part<'_>],
    routes: &mut Vec<Section>,
) {
    let named =
        |block: &[Directive]| block.iter().rfind(|one| one.name == "accessfilename").cloned();
    let Some(directive) = blocks.into_iter().rev().find_map(named) else { return };
    let is_read = super::sections::named(parts, &["allowoverride", "allowoverridelist"])
        .any(|(_, one)| !one.word().eq_ignore_ascii_case("none"));
    let is_other = directive.words.iter().any(|name| name != ".htaccess");
    if is_other && is_read {
        let mut route = Section::new("site.route");
        let text = "these files are not read, and may refuse requests: every request is refused";
        directive.left_out(&mut route, text);
        route.set("deny", true);
        routes.push(route);
    }
}

/// `AllowOverride`
fn htaccess(parts: &[Part<'_>], root: Option<&str>, site: &mut Section) {
    let parts_of_root =
        root.map_or(0, |root| root.split('/').filter(|one| !one.is_empty()).count());
    let is_list = |one: &Directive| !one.word().eq_ignore_ascii_case("none");
    let lists = named(parts, &["allowoverridelist"]).any(|(_, one)| is_list(one));
    let mut is_on = lists;
    let mut part_of: Vec<&Directive> = Vec::new();
    for (part, directive) in named(parts, &["allowoverride"]) {
        let own = !directive.word().eq_ignore_ascii_case("none");
        match part.area.is_all() {
            true => is_on = own || lists,
            false if own => part_of.push(directive),
            false if is_on => directive.left_out(site, ".htaccess files hold for the whole site"),
            false => {}
        }
        if own && matches!(part.kind, Kind::Directory(depth) if depth < parts_of_root) {
            let text = "files above the site's folder are not read; `sendoff check` names them";
            site.note(&directive.place, format!("{}: {text}", directive.text()));
        }
        if own && !directive.word().eq_ignore_ascii_case("all") {
            let text = format!("{}: .htaccess files may have all directives", directive.text());
            site.note(&directive.place, text);
        }
    }
    for directive in &part_of {
        if !is_on {
            let text = format!("{}: .htaccess files hold for the whole site", directive.text());
            site.note(&directive.place, text);
        }
    }
    site.set("htaccess", is_on || !part_of.is_empty());
}

/// `ErrorDocument`
fn error_pages(parts: &[Part<'_>], site: &mut Section) {
    for (part, directive) in named(parts, &["errordocument"]) {
        let [code, document, ..] = &directive.words[..] else { continue };
        let is_code = code.parse::<u16>().is_ok_and(|code| (400..600).contains(&code));
        let is_path = document.starts_with('/') && !document.contains(['?', '%']);
        match part.area.is_all() && is_code && is_path && directive.words.len() == 2 {
            true => site.set_in("error_pages", code, document.clone()),
            false => directive.left_out(site, "only a path of the site can be its page"),
        }
    }
}

/// `CustomLog`
fn access_log(parts: &[Part<'_>], site: &mut Section) {
    let logs: Vec<&Directive> = named(parts, &["customlog"]).map(|(_, log)| log).collect();
    let Some((last, others)) = logs.split_last() else { return };
    for other in others {
        other.left_out(site, "a site has one log");
    }
    let path = last.word();
    let format = last.words.get(1).map_or("", String::as_str);
    if path.starts_with('|') || path.contains('$') || last.words.len() > 2 {
        return last.left_out(site, "a program, or a condition of a log");
    }
    site.set("access_log", path);
    if !FORMATS.contains(&format) {
        let text = format!(
            "the format {format} of CustomLog has no equal: access_log_format names the fields of a line"
        );
        site.left_out(&last.place, text);
    }
}

/// `AddType` and `AddOutputFilterByType`
fn bodies(parts: &[Part<'_>], site: &mut Section) {
    let mut types: Vec<String> = Vec::new();
    for part in parts {
        for directive in &part.directives {
            let words = &directive.words[..];
            match directive.name.as_str() {
                "addtype" if super::php::is_php(directive) => {}
                "addtype" => {
                    let endings = words.iter().skip(1);
                    let endings = endings.map(|ending| ending.trim_start_matches('.'));
                    for ending in endings {
                        let is_plain = ending.bytes().all(|b| b.is_ascii_alphanumeric());
                        match part.area.is_all() && is_plain && !ending.is_empty() {
                            true => site.set_in("media_types", ending, directive.word()),
                            false => directive.left_out(site, "an ending, or a type of some paths"),
                        }
                    }
                }
                "addoutputfilterbytype" => match directive.word() {
                    "DEFLATE" | "BROTLI_COMPRESS" => {
                        types.extend(words.iter().skip(1).cloned());
                    }
                    _ => directive.left_out(site, "no filter is like it"),
                },
                _ => {}
            }
        }
    }
    types.sort();
    types.dedup();
    if !types.is_empty() {
        site.set("compress", true);
        site.set_list("compress_types", types);
    }
}

/// Names the directives of a site that no part of the converter knows.
pub(super) fn name_unknown(parts: &[Part<'_>], routes: &mut Vec<Section>, site: &mut Section) {
    let mut named = HashSet::new();
    for part in parts {
        for directive in part.directives.iter().filter(|one| !super::known::is_known(one)) {
            if MANY.contains(&&*directive.name) {
                if named.insert(&*directive.name) {
                    let text = format!("{} has no equal, here and behind", directive.name);
                    site.note(&directive.place, text);
                }
                continue;
            }
            if part.kind == Kind::Server && super::rewrite::only_inherits(directive) {
                continue;
            }
            // The sizes of lines and fields have limits of their own.
            let is_size = directive.name.starts_with("limitrequest");
            if is_size || !guards(directive) {
                directive.left_out(site, "no key is like it");
                continue;
            }
            let Some(condition) = part.area.without(std::iter::empty()) else { continue };
            let mut route = Section::new("site.route");
            condition.set(&mut route);
            directive.left_out(&mut route, "it may be about access; the requests are refused");
            route.set("deny", true);
            routes.push(route);
        }
        if part.kind == Kind::If {
            for directive in part.directives.iter().filter(|one| one.name.starts_with("rewrite")) {
                directive.left_out(site, "the condition of its section is not understood");
            }
        }
    }
}

/// True for an unknown directive whose name says that it may be about access.
pub(super) fn guards(directive: &Directive) -> bool {
    const WORDS: [&str; 15] = [
        "auth",
        "deny",
        "allow",
        "limit",
        "access",
        "sec",
        "qs_",
        "evasive",
        "dos",
        "session",
        "oidc",
        "mellon",
        "revocation",
        "ocspenable",
        "shib",
    ];
    let name = directive.name.as_str();
    WORDS.iter().any(|word| name.contains(word))
}
