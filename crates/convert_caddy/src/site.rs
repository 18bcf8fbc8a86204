//! Sites: the blocks of a Caddyfile, once for each set of addresses.

use std::collections::BTreeMap;

use sendoff_convert_document::expression::quote;
use sendoff_convert_document::{Directive, Document, Section, Unreadable, host};
use toml::Value;

use super::address::Address;
use super::body::{Answers, BlockOrder, Builder, Scope};
use super::files;
use super::forwarded;
use super::global::{self, Global, Https};
use super::matcher::Matchers;
use super::tls;
use super::tree::{SiteBlock, Tree};

/// The folder of a site that sends no files.
const NO_FILES: &str = "/srv";
/// The most sections of all sites: the time grows with their number.
const MAX_SECTIONS: usize = 20_000;

/// The addresses of a site, by host; `None`: every host.
type Hosts = BTreeMap<Option<String>, Vec<Address>>;

/// Hosts, and the addresses at which each of them listens.
type Group = (Vec<String>, Vec<Address>);

/// Converts a Caddyfile.
pub(super) fn all(tree: &Tree) -> Result<Document, Unreadable> {
    if tree.sites.is_empty() {
        let says =
            "no site in this file: a block of directives with an address in front".to_owned();
        return Err(Unreadable { place: tree.place.clone(), says });
    }
    let mut global = global::read(&tree.global, &tree.files);
    let mut document = Document::default();
    let mut listening = Listening::default();
    for block in &tree.sites {
        for (hosts, addresses) in groups(block, &global)? {
            let site = site(block, hosts, &addresses, &mut global, &mut listening)?;
            for group in site.groups {
                if !document.groups.contains(&group) {
                    document.groups.push(group);
                }
            }
            document.sites.extend(site.sections);
            if document.sites.len() > MAX_SECTIONS {
                let says = format!("the result would have more than {MAX_SECTIONS} routes");
                return Err(Unreadable { place: tree.place.clone(), says });
            }
        }
    }
    document.sites.extend(listening.others());
    document.top = global.top;
    Ok(document)
}

/// The addresses that listen, and those with a site for every host.
#[derive(Debug, Default)]
struct Listening {
    all: Vec<String>,
    for_every_host: Vec<String>,
}

impl Listening {
    /// The site for hosts that no block names: Caddy answers with an empty page.
    fn others(self) -> Vec<Section> {
        let rest: Vec<_> =
            self.all.into_iter().filter(|listen| !self.for_every_host.contains(listen)).collect();
        if rest.is_empty() {
            return Vec::new();
        }
        let mut site = Section::new("site");
        site.comment("Hosts that no block names: Caddy answers with an empty page.");
        if rest.iter().any(|listen| listen.ends_with(" tls")) {
            site.set("tls", "self-signed");
            site.set("https_redirect", false);
        }
        site.set_list("listen", rest);
        site.set("root", NO_FILES);
        site.set("php", false);
        site.set("htaccess", false);
        vec![site, empty()]
    }
}

/// A route with an empty page, which is Caddy's answer if no directive answers.
fn empty() -> Section {
    let mut route = Section::new("site.route");
    route.set("respond", "");
    route
}

/// The addresses of a block: hosts with the same ports together.
fn groups(block: &SiteBlock, global: &Global) -> Result<Vec<Group>, Unreadable> {
    let mut hosts = Hosts::new();
    for (text, place) in &block.addresses {
        let address = Address::read(text, place, global).map_err(|why| Unreadable {
            place: Some(place.clone()),
            says: format!("{text}: {why}"),
        })?;
        hosts.entry(address.host.clone()).or_default().push(address);
    }
    let ports = |addresses: &[Address]| {
        let mut ports: Vec<_> = addresses.iter().map(|one| (one.port, one.has_tls)).collect();
        ports.sort_unstable();
        ports
    };
    let mut groups: Vec<Group> = Vec::new();
    for (host, addresses) in hosts {
        let known = groups.iter_mut().find(|(hosts, known)| {
            ports(known) == ports(&addresses) && hosts.is_empty() == host.is_none()
        });
        match known {
            Some((hosts, _)) => hosts.extend(host),
            None => groups.push((host.into_iter().collect(), addresses)),
        }
    }
    Ok(groups)
}

/// The sections of a site.
struct Made {
    groups: Vec<Section>,
    sections: Vec<Section>,
}

fn site(
    block: &SiteBlock,
    hosts: Vec<String>,
    addresses: &[Address],
    global: &mut Global,
    listening: &mut Listening,
) -> Result<Made, Unreadable> {
    let mut site = Section::new("site");
    let mut top = Section::default();
    site.set_list("hosts", hosts.clone());
    listen(block, addresses, global, listening, &mut site);
    let has_tls = addresses.iter().all(|address| address.has_tls);
    let is_open = certificate(block, addresses, global, &mut site, &mut top);
    let root = root(&block.directives);
    let name = hosts.first().map_or("any", String::as_str);
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let port = addresses.first().map_or(0, |address| address.port);
    let name = match port {
        80 | 443 => name.trim_matches('-').to_owned(),
        port => format!("{}-{port}", name.trim_matches('-')),
    };
    let mut builder = Builder::new(global, name, root.clone());
    builder.site.set_list("index", files::index(&block.directives));
    if forwarded::are_set(&block.directives) {
        builder.sets_forwarded = true;
        builder.push(forwarded::defaults());
    }
    let is_mixed = has_tls != addresses.iter().any(|address| address.has_tls);
    let matchers = Matchers::new((!is_mixed).then_some(has_tls), global.proxies.clone());
    if is_open {
        let scope = Scope::new(matchers);
        if builder.block(&block.directives, &scope, BlockOrder::Caddy) == Answers::Some {
            builder.push(empty());
        }
    } else {
        builder.push(closed());
    }
    if builder.is_too_large() {
        let says = "its routes are too many".to_owned();
        return Err(Unreadable { place: addresses.first().map(|a| a.place.clone()), says });
    }
    keys(&mut site, root, &block.directives);
    let has_marks = builder.has_marks();
    site.absorb(builder.site);
    if !site.has("pool") {
        site.set("php", false);
    }
    let guards = hosts.iter().filter_map(|host| deeper(host)).chain(has_marks.then(marked));
    let sections = [vec![site], guards.collect(), builder.routes].concat();
    let groups = builder.groups;
    global.top.absorb(top);
    Ok(Made { groups, sections })
}

fn closed() -> Section {
    let mut route = Section::new("site.route");
    route.set("deny", true);
    route
}

/// The guard of paths that routes make.
fn marked() -> Section {
    let mut route = Section::new("site.route");
    route.comment("Paths below /@caddy are of the routes below; a client gets 404.");
    route.set("match", "^/@caddy(?:/|$)");
    route.set("respond", "");
    route.set("status", 404);
    route
}

/// A star stands for one part of a name in Caddy; here for several.
fn deeper(name: &str) -> Option<Section> {
    let rest = name.strip_prefix("*.")?;
    let mut route = Section::new("site.route");
    route.comment(format!("{name} stands for one more part of the name in Caddy."));
    let expression = format!(r"(?i)^[^.:]+\.[^:]*\.{}{}", quote(rest), host::END);
    route.set_in("header", "Host", Value::String(expression));
    route.set("respond", "");
    Some(route)
}

/// The folder of a block: its own, or the folder of the first block in it.
fn root(block: &[Directive]) -> Option<String> {
    let own =
        block.iter().filter(|directive| directive.name == "root").find_map(|root| {
            match &root.words[..] {
                [path] => Some(path.clone()),
                [all, path] if all == "*" => Some(path.clone()),
                _ => None,
            }
        });
    own.or_else(|| {
        let is_block =
            |inner: &&Directive| ["handle", "handle_path", "route"].contains(&&*inner.name);
        block.iter().filter(is_block).find_map(|inner| root(inner.inner()))
    })
}

fn keys(site: &mut Section, root: Option<String>, directives: &[Directive]) {
    match root {
        Some(root) if !root.contains('{') => site.set("root", root),
        _ => site.set("root", NO_FILES),
    }
    site.set("front_controller", "off");
    site.set("htaccess", false);
    site.set("symlinks", "any");
    for log in directives.iter().filter(|directive| directive.name == "log") {
        access_log(log, site);
    }
}

/// `log { output file PATH, format FORMAT }`
fn access_log(log: &Directive, site: &mut Section) {
    let mut output = "-".to_owned();
    for option in log.inner() {
        match (option.name.as_str(), &option.words[..]) {
            ("output", [kind, path]) if kind == "file" => output.clone_from(path),
            ("output", [kind]) if kind == "stdout" || kind == "stderr" => {
                "-".clone_into(&mut output);
            }
            ("output", [kind]) if kind == "discard" => "off".clone_into(&mut output),
            ("format", [kind]) if kind == "json" => {}
            ("format", [kind]) if kind == "console" => {
                site.note(&option.place, "log: lines have the combined format");
                site.set("access_log_format", "combined");
            }
            _ => option.left_out(site, "access_log_format names the fields of a line"),
        }
    }
    if site.has("access_log") {
        return log.left_out(site, "a site has one log");
    }
    site.set("access_log", output);
    if !site.has("access_log_format") {
        site.note(&log.place, "log: the fields have other names than Caddy's");
        site.set("access_log_format", "json");
    }
}

fn listen(
    block: &SiteBlock,
    addresses: &[Address],
    global: &Global,
    listening: &mut Listening,
    site: &mut Section,
) {
    let mut binds: Vec<&str> = block
        .directives
        .iter()
        .filter(|directive| directive.name == "bind")
        .flat_map(|bind| bind.words.iter().map(String::as_str))
        .collect();
    if binds.is_empty() {
        binds = global.binds.iter().map(String::as_str).collect();
    }
    let mut listen: Vec<String> = Vec::new();
    let hosts: Vec<Option<&str>> = match &binds[..] {
        [] => vec![None],
        binds => binds.iter().map(|bind| Some(*bind)).collect(),
    };
    for bind in &hosts {
        listen.extend(addresses.iter().map(|address| address.listen(*bind)));
        let redirects = addresses.iter().all(|one| one.has_tls && one.port == global.https_port);
        if redirects && global.https == Https::On {
            let plain = Address { has_tls: false, port: global.http_port, ..addresses[0].clone() };
            listen.push(plain.listen(*bind));
        }
    }
    let is_named = addresses.iter().any(|address| address.host.is_some());
    let mut own: Vec<String> = Vec::new();
    for listen in listen {
        if !own.contains(&listen) {
            own.push(listen);
        }
    }
    for listen in &own {
        let known = if is_named { &mut listening.all } else { &mut listening.for_every_host };
        if !known.contains(listen) {
            known.push(listen.clone());
        }
    }
    site.set_list("listen", own);
    let has_tls = addresses.iter().any(|address| address.has_tls);
    let is_mixed = has_tls && addresses.iter().any(|address| !address.has_tls);
    if is_mixed || has_tls && global.https != Https::On {
        site.set("https_redirect", false);
    }
}

/// Sets the certificate. Returns false if the site has to be closed.
fn certificate(
    block: &SiteBlock,
    addresses: &[Address],
    global: &Global,
    site: &mut Section,
    top: &mut Section,
) -> bool {
    if !addresses.iter().any(|address| address.has_tls) {
        return true;
    }
    let mut made = Section::new("site");
    let mut is_open = true;
    for directive in block.directives.iter().filter(|directive| directive.name == "tls") {
        is_open &= tls::tls(directive, &mut made, top);
    }
    let names_certificate = made.texts("tls").is_empty() && made.has_in("tls", "certificate");
    if !names_certificate {
        let is_internal = global.has_local_certificates
            || addresses.iter().all(Address::is_internal)
            || addresses.iter().any(|address| address.host.is_none());
        let kind = if is_internal { "self-signed" } else { "auto" };
        made.set_in("tls", "certificate", kind);
    }
    site.absorb(made);
    is_open
}
