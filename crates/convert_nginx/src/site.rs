//! The keys of a site.

use super::scope::Scope;
use super::server::Main;
use super::text::{Use, translate};
use super::tls::tls;
use super::tree::Directive;
use super::tries::index;
use sendoff_convert_document::Section;

/// The root of a server that names none.
const DEFAULT_ROOT: &str = "/usr/share/nginx/html";

/// Sets the keys of the site.
pub(super) fn keys(scope: &Scope<'_>, main: &Main<'_, '_>, site: &mut Section) {
    match main.root.get("root").map(|root| (root, translate(root.word(), scope, Use::Value))) {
        Some((_, Ok(root))) if !root.contains('$') => site.set("root", root),
        Some((root, _)) => site.left_out(&root.place, format!("{} has no equal", root.text())),
        None => {
            site.comment("No root is named; this is the folder of Debian's nginx.");
            site.set("root", DEFAULT_ROOT);
        }
    }
    site.set_list("index", index(main.index));
    for index in main.index.all("index") {
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
    gzip(scope, site);
    for page in scope.all("error_page") {
        error_page(page, site);
    }
    access_log(scope, site);
    media_types(scope, site);
}

fn gzip(scope: &Scope<'_>, site: &mut Section) {
    let types = scope.all("gzip_types");
    let least = scope.word("gzip_min_length").unwrap_or("20");
    if scope.word("gzip") != Some("on") {
        return;
    }
    site.set("compress", true);
    let types: Vec<_> = types.iter().flat_map(|one| one.words.clone()).collect();
    if !types.iter().any(|kind| kind == "*") {
        let mut all = vec!["text/html".to_owned()];
        all.extend(types.into_iter().filter(|kind| kind != "text/html"));
        site.set_list("compress_types", all);
    }
    site.set("compress_min_length", least);
}

fn access_log(scope: &Scope<'_>, site: &mut Section) {
    let Some(log) = scope.only("access_log", site).filter(|log| log.word() != "off") else {
        return;
    };
    let is_file = !log.word().contains('$') && !log.word().starts_with("syslog:");
    if !is_file {
        site.left_out(&log.place, format!("{} has no equal", log.text()));
        return;
    }
    site.set("access_log", log.word());
    let mut options = log.words.iter().skip(1);
    let format = options.next().filter(|format| *format != "combined");
    if let Some(format) = format {
        site.left_out(&log.place, format!("the format {format} of access_log has no equal: access_log_format names the fields of a line"));
    }
    for option in options {
        match option.split_once('=') {
            Some(("buffer" | "flush", _)) => {}
            _ => site.left_out(&log.place, format!("access_log ... {option} has no equal")),
        }
    }
}

/// `types`. The list that nginx comes with is built in.
fn media_types(scope: &Scope<'_>, site: &mut Section) {
    for types in scope.all("types") {
        if types.place.file.ends_with("mime.types") {
            continue;
        }
        types.take_whole();
        let text = "types: the built-in types hold for all other endings";
        site.note(&types.place, text);
        for kind in types.block.iter().flatten() {
            for ending in &kind.words {
                site.set_in("media_types", ending, kind.name.clone());
            }
        }
    }
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
