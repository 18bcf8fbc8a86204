//! `Options`: listings of folders, and symbolic links.

use sendoff_convert_document::{Directive, Section};
use toml::Value;

use super::sections::{Kind, Part};

/// The `Options` of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Options {
    listing: Option<bool>,
    links: Option<Links>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    Any,
    Owner,
    None,
}

/// The options of a part; `None`: it has none.
fn of(part: &Part<'_>) -> Option<Options> {
    let mut found = None;
    for directive in part.directives.iter().filter(|one| one.name == "options") {
        let is_change = directive.words.iter().all(|word| word.starts_with(['+', '-']));
        let mut own = match is_change {
            true => found.unwrap_or(Options { listing: None, links: None }),
            false => Options { listing: Some(false), links: Some(Links::None) },
        };
        for word in &directive.words {
            let is_on = !word.starts_with('-');
            match word.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str() {
                "indexes" => own.listing = Some(is_on),
                "all" => own = Options { listing: Some(is_on), links: Some(Links::Any) },
                "followsymlinks" => own.links = Some(if is_on { Links::Any } else { Links::None }),
                "symlinksifownermatch" if is_on => own.links = Some(Links::Owner),
                _ => {}
            }
        }
        found = Some(own);
    }
    found
}

/// Sets the key for symbolic links: what holds for the folder of the site.
pub(super) fn links(parts: &[Part<'_>], site: &mut Section) {
    let whole = parts.iter().filter(|part| part.area.is_all());
    let links = whole.filter_map(|part| of(part)?.links).next_back().unwrap_or(Links::Any);
    let key = match links {
        Links::Any => "any",
        Links::Owner => "owner",
        Links::None => "inside",
    };
    site.set("symlinks", key);
    for part in parts.iter().filter(|part| !part.area.is_all() && part.kind != Kind::If) {
        let Some(own) = of(part).and_then(|options| options.links) else { continue };
        if own != links
            && let Some(first) = part.directives.iter().find(|one| one.name == "options")
        {
            first.left_out(site, "a site treats all symbolic links alike");
        }
    }
}

/// Adds the routes of folders that are listed. `indexes` are the names of index files.
pub(super) fn listings(parts: &[Part<'_>], indexes: &[String], routes: &mut Vec<Section>) {
    // A listing would show the names that IndexIgnore hides; a comment names it.
    let hides = |one: &&Directive| one.name == "indexignore" && !super::known::is_known(one);
    if parts.iter().any(|part| part.directives.iter().any(hides)) {
        return;
    }
    let options: Vec<(&Part<'_>, bool)> = parts
        .iter()
        .filter(|part| part.kind != Kind::If)
        .filter_map(|part| Some((part, of(part)?.listing?)))
        .collect();
    for (number, (part, _)) in options.iter().enumerate().filter(|(_, (_, listed))| *listed) {
        let later = options[number + 1..].iter().map(|(part, _)| &part.area);
        let Some(condition) = part.area.surely_without(later) else { continue };
        let folders = condition.matching(r"((?s:.*)/)\z");
        let made = |key: &'static str, value: Value| {
            let mut route = Section::new("site.route");
            if let Some(folders) = &folders {
                route.set("match", folders.clone());
            }
            route.set(key, value);
            route
        };
        // A listing sends index files, but runs no script.
        if indexes.iter().any(|name| name.ends_with(".php")) {
            let mut tried: Vec<String> =
                indexes.iter().map(|name| format!("$1{}", name.replace('$', "$$"))).collect();
            tried.push("$1".to_owned());
            routes.push(made("try_files", tried.into()));
        }
        routes.push(made("listing", true.into()));
    }
}
