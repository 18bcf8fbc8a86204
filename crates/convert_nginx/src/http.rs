//! The outer blocks: the keys before the first section, upstreams, and the sites.

use super::leftover::name_untaken;
use super::listen::Listeners;
use super::scope::Scope;
use super::tree::Directive;
use super::{listen, server, units, upstream};
use sendoff_convert_document::{Document, Section, Unreadable};

/// nginx's limit of request bodies.
const DEFAULT_MAX_BODY: &str = "1M";

/// The configuration around the servers.
pub(super) struct Outside<'d> {
    /// The directives of `http`.
    pub(super) http: &'d [Directive],
    pub(super) listeners: Listeners,
}

/// Converts the whole tree.
pub(super) fn convert(tree: &[Directive]) -> Result<Document, Unreadable> {
    let mut document = Document::default();
    let mut blocks = tree.iter().filter(|directive| directive.name == "http");
    let (block, second) = (blocks.next(), blocks.next());
    if let Some(second) = second {
        let says = "a second http block: nginx takes one only".to_owned();
        return Err(Unreadable { place: Some(second.place.clone()), says });
    }
    let http = block.map_or(tree, |http| http.block.as_deref().unwrap_or_default());
    let servers: Vec<_> = http.iter().filter(|directive| directive.name == "server").collect();
    if servers.is_empty() {
        let says = "no server block in this file: name nginx.conf, or a file of sites-available";
        return Err(Unreadable {
            place: tree.first().map(|first| first.place.clone()),
            says: says.into(),
        });
    }
    if let Some(block) = block {
        block.take();
        main(tree, &mut document.top);
    }
    outer(http, &mut document.top);
    let upstreams: Vec<_> = http.iter().filter(|directive| directive.name == "upstream").collect();
    let outside = Outside { listeners: Listeners::of(&servers), http };
    let mut sites: Vec<_> = servers
        .iter()
        .enumerate()
        .map(|(number, server)| {
            let sections = server::convert(number, server, &outside, &mut document.groups);
            (listen::is_default(server), sections)
        })
        .collect();
    // The first site at an address answers for hosts that no site names.
    sites.sort_by_key(|(is_default, _)| !is_default);
    document.sites = sites.into_iter().flat_map(|(_, sections)| sections).collect();
    for upstream in &upstreams {
        upstream.take();
        let is_used = document.sites.iter().any(|section| section.mentions(upstream.word()));
        if is_used {
            document.groups.push(upstream::section(upstream));
        }
    }
    name_untaken(http, &mut document.top);
    if block.is_some() {
        name_untaken(tree, &mut document.top);
    }
    Ok(document)
}

/// The directives outside of `http`.
fn main(tree: &[Directive], top: &mut Section) {
    for directive in tree {
        match (&*directive.name, directive.word()) {
            ("user", user) => top.set("user", user),
            ("worker_processes", "auto") => {}
            ("worker_processes", number) => match number.parse::<i64>() {
                Ok(number @ 1..=63) => top.set("threads", number),
                _ => continue,
            },
            _ => continue,
        }
        directive.take();
    }
}

/// The directives of `http`, apart from those that locations inherit.
fn outer(http: &[Directive], top: &mut Section) {
    const TIMES: [(&str, &str); 4] = [
        ("keepalive_timeout", "idle_timeout"),
        ("client_header_timeout", "head_timeout"),
        ("client_body_timeout", "body_timeout"),
        ("send_timeout", "send_timeout"),
    ];
    let scope = Scope::new(http);
    if scope.peek("client_max_body_size").is_none() {
        top.set("max_body", DEFAULT_MAX_BODY);
    }
    for (theirs, ours) in TIMES {
        let time = scope.peek(theirs).and_then(|directive| units::time(directive.word()));
        if let Some(time) = time.filter(|time| time != "0s") {
            scope.all(theirs);
            top.set(ours, time);
        }
    }
    let networks = scope.all("set_real_ip_from");
    let sockets = networks.iter().any(|one| one.word() == "unix:");
    if sockets {
        top.set("trust_unix", true);
    }
    let words = networks.iter().map(|one| one.word().to_owned());
    top.set_list("trusted_proxies", words.filter(|word| word != "unix:").collect());
    real_ip(&scope, !networks.is_empty(), top);
}

/// `real_ip_header`, and the way through several proxies.
fn real_ip(scope: &Scope<'_>, is_trusting: bool, top: &mut Section) {
    let (header, recursive) = (scope.get("real_ip_header"), scope.get("real_ip_recursive"));
    if !is_trusting {
        for directive in header.into_iter().chain(recursive) {
            let text = format!("{} has no effect without set_real_ip_from", directive.text());
            top.note(&directive.place, text);
        }
        return;
    }
    let field = header.map_or(DEFAULT_FIELD, Directive::word);
    let is_recursive = recursive.is_some_and(|recursive| recursive.word() == "on");
    match field {
        // nginx reads no other field of a proxy: a client's own X-Forwarded-Host chooses no site.
        "X-Forwarded-For" if is_recursive => top.set("proxy_field", "X-Forwarded-For alone"),
        "X-Forwarded-For" => top.set("proxy_field", "X-Forwarded-For last"),
        // The header of the PROXY protocol names the client without a key.
        "proxy_protocol" => top.set("proxy_field", "none"),
        field => top.set("proxy_field", field),
    }
}

/// The field in which nginx finds the client's address without `real_ip_header`.
const DEFAULT_FIELD: &str = "X-Real-IP";
