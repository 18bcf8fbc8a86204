//! Scripts of PHP: the pool that runs them, and its settings.

use sendoff_convert_document::{Directive, Section};

use super::sections::Part;

/// True for a directive that has scripts of PHP run.
pub(super) fn is_php(directive: &Directive) -> bool {
    let text = directive.words.join(" ").to_ascii_lowercase();
    match directive.name.as_str() {
        "sethandler" | "addhandler" | "addtype" | "forcetype" => {
            text.contains("x-httpd-php") && !text.contains("php-source")
                || text.contains("fcgi://") && text.starts_with("proxy:")
        }
        "proxypassmatch" => {
            text.contains("fcgi://") && (text.contains(r"\.php") || text.contains("[.]php"))
        }
        _ => false,
    }
}

/// The address of php-fpm that a directive names.
fn address(directive: &Directive) -> Option<String> {
    let text = directive.words.last()?;
    let text = text.strip_prefix("proxy:").unwrap_or(text);
    match text.strip_prefix("unix:") {
        Some(rest) => Some(format!("unix:{}", rest.split('|').next().unwrap_or_default())),
        None => {
            let host = text.strip_prefix("fcgi://")?;
            Some(host.split('/').next().unwrap_or_default().to_owned())
        }
    }
}

/// Sets the keys about scripts. `is_whole` tells that all handlers are known.
pub(super) fn keys(
    parts: &[Part<'_>],
    is_whole: bool,
    name: &str,
    site: &mut Section,
    groups: &mut Vec<Section>,
) -> bool {
    let handlers: Vec<(&Part<'_>, &Directive)> = parts
        .iter()
        .flat_map(|part| part.directives.iter().map(move |one| (part, *one)))
        .filter(|(_, one)| is_php(one))
        .collect();
    let mentions = |one: &&Directive| {
        one.name.starts_with("php_")
            || one.words.iter().any(|word| word.to_ascii_lowercase().contains("php"))
    };
    let is_mentioned = parts.iter().flat_map(|part| &part.directives).any(mentions);
    if handlers.is_empty() && (is_whole || !is_mentioned) {
        site.set("php", false);
        return false;
    }
    if handlers.is_empty() {
        site.comment("The file names no handler of PHP: scripts run in the pool.");
    }
    let folders: Vec<String> = handlers
        .iter()
        .filter_map(|(part, _)| part.folder.clone())
        .filter(|f| !f.is_empty())
        .collect();
    if !folders.is_empty() && folders.len() == handlers.len() {
        site.set_list("php_only", folders.iter().map(|folder| format!("{folder}/")).collect());
    }
    let mut pool = Section::new("pool");
    let address = handlers.iter().find_map(|(_, handler)| address(handler));
    let from_address = address.as_deref().map(sendoff_convert_document::pool::name_of);
    settings(parts, &mut pool, site);
    let own: String = match (pool.is_empty(), from_address) {
        (true, Some(name)) => name,
        (true, None) => "php".to_owned(),
        (false, _) => name.to_owned(),
    };
    if let Some(address) = &address {
        pool.comment(format!(
            "In place of php-fpm at {address}: its user and its settings are in its file in pool.d."
        ));
    }
    pool.set("name", own.clone());
    if !groups.contains(&pool) {
        groups.push(pool);
    }
    site.set("pool", own);
    true
}

/// `php_value` and its like.
fn settings(parts: &[Part<'_>], pool: &mut Section, site: &mut Section) {
    for part in parts {
        for directive in part.directives.iter().filter(|one| one.name.starts_with("php_")) {
            let [name, value @ ..] = &directive.words[..] else { continue };
            let key = match directive.name.as_str() {
                "php_admin_value" | "php_admin_flag" => "php_admin_value",
                _ => "php_value",
            };
            let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
            match part.area.is_all() && is_plain && !name.eq_ignore_ascii_case("engine") {
                true => pool.set_in(key, name, value.join(" ")),
                false if name.eq_ignore_ascii_case("engine") => {}
                false => directive.left_out(site, "settings of PHP belong to a pool"),
            }
        }
    }
}
