//! URLs and cookies in responses of applications: `proxy_redirect`, `proxy_cookie_path` and
//! `proxy_cookie_domain`.

use toml::Table;

use super::pattern::Matcher;
use super::proxy::Target;
use super::scope::Scope;
use super::tree::Directive;
use sendoff_convert_document::Section;

/// The beginnings of URLs that lead to the host that the client named: a path says the same.
const OWN_HOSTS: [&str; 6] = [
    "$scheme://$host:$server_port/",
    "$scheme://$http_host/",
    "$scheme://$host/",
    "http://$host:$server_port/",
    "https://$host/",
    "http://$host/",
];

/// Adds the rules for URLs and cookies to the table of an application.
pub(super) fn urls(
    pass: &Directive,
    target: &Target,
    matcher: &Matcher,
    scope: &Scope<'_>,
    proxy: &mut Section,
) {
    let (redirects, is_off) = redirects(pass, target, matcher, scope, proxy);
    if !redirects.is_empty() || is_off {
        proxy.set_in("proxy", "redirects", redirects);
    }
    let (mut paths, mut domains) = (Table::new(), Table::new());
    for rule in scope.all("proxy_cookie_path") {
        match &rule.words[..] {
            [off] if off == "off" => {}
            [from, to] if from.starts_with('/') && to.starts_with('/') && is_plain(to) => {
                add(&mut paths, from, to);
            }
            _ => no_equal(rule, proxy),
        }
    }
    for rule in scope.all("proxy_cookie_domain") {
        match &rule.words[..] {
            [off] if off == "off" => {}
            [from, to] if is_plain(from) && is_plain(to) => {
                add(&mut domains, from.trim_start_matches('.'), to.trim_start_matches('.'));
            }
            _ => no_equal(rule, proxy),
        }
    }
    for (key, table) in [("cookie_paths", paths), ("cookie_domains", domains)] {
        if !table.is_empty() {
            proxy.set_in("proxy", key, table);
        }
    }
}

/// The rules of `proxy_redirect`; true if there shall be none.
fn redirects(
    pass: &Directive,
    target: &Target,
    matcher: &Matcher,
    scope: &Scope<'_>,
    proxy: &mut Section,
) -> (Table, bool) {
    let rules = scope.all("proxy_redirect");
    let mut table = Table::new();
    if rules.iter().any(|rule| rule.word() == "off") {
        return (table, true);
    }
    let is_default = rules.is_empty() || rules.iter().any(|rule| rule.word() == "default");
    let others = || rules.iter().filter(|rule| rule.word() != "default");
    match (&target.path, matcher) {
        _ if !is_default => {}
        (Some(_), Matcher::Prefix { text, .. } | Matcher::Exact(text)) => {
            add(&mut table, pass.word(), text);
        }
        // Without other rules, the address of the application becomes the client's anyway.
        (None, _) if others().next().is_some() => {
            add(&mut table, &format!("{}/", pass.word()), "/");
        }
        _ => {}
    }
    for rule in others() {
        match &rule.words[..] {
            [from, to] if is_start(from) && is_start(&on_site(to)) => {
                add(&mut table, from, &on_site(to));
            }
            _ => no_equal(rule, proxy),
        }
    }
    (table, false)
}

/// Adds a replacement, if no earlier one is for the same text.
fn add(table: &mut Table, from: &str, to: &str) {
    if !table.contains_key(from) {
        table.insert(from.to_owned(), to.into());
    }
}

/// The URL, as a path if it is one of the client's host.
fn on_site(url: &str) -> String {
    let rest = OWN_HOSTS.iter().find_map(|start| url.strip_prefix(start));
    rest.map_or_else(|| url.to_owned(), |rest| format!("/{rest}"))
}

/// True for the beginning of a URL without variables.
fn is_start(text: &str) -> bool {
    (text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://"))
        && is_plain(text)
}

/// True for a text that is no expression and has no variables and no further attributes.
fn is_plain(text: &str) -> bool {
    !text.starts_with('~') && !text.contains(['$', ';', ' ']) && !text.contains(char::is_control)
}

fn no_equal(rule: &Directive, proxy: &mut Section) {
    proxy.left_out(&rule.place, format!("{} has no equal", rule.text()));
}
