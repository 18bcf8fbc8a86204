//! The outer blocks: the keys before the first section, upstreams, and the sites.

use std::collections::HashSet;

use super::listen::Listeners;
use super::scope::Scope;
use super::tree::Directive;
use super::{known, listen, proxy, server, units};
use crate::Unreadable;
use crate::document::{Document, Section};

/// nginx's limit of request bodies.
const DEFAULT_MAX_BODY: &str = "1M";

/// The configuration around the servers.
pub(super) struct Outside<'d> {
    /// The directives of `http`.
    pub(super) http: Vec<Directive>,
    /// The upstreams by name.
    pub(super) upstreams: HashSet<&'d str>,
    pub(super) listeners: Listeners,
}

/// Converts the whole tree.
pub(super) fn convert(tree: &[Directive]) -> Result<Document, Unreadable> {
    let mut document = Document::default();
    let inner = tree.iter().filter(|directive| directive.name == "http");
    let http: Vec<Directive> =
        inner.flat_map(|http| http.block.iter().flatten()).cloned().collect();
    let is_snippet = http.is_empty();
    let http = if is_snippet { tree.to_vec() } else { http };
    let servers: Vec<_> = http.iter().filter(|directive| directive.name == "server").collect();
    if servers.is_empty() {
        let says = "no server block in this file: name nginx.conf, or a file of sites-available";
        return Err(Unreadable {
            place: tree.first().map(|first| first.place.clone()),
            says: says.into(),
        });
    }
    if !is_snippet {
        main(tree, &mut document.top);
    }
    outer(&http, &mut document.top);
    let upstreams: Vec<_> = http.iter().filter(|directive| directive.name == "upstream").collect();
    let outside = Outside {
        upstreams: upstreams.iter().map(|upstream| upstream.word()).collect(),
        listeners: Listeners::of(&servers),
        http: http.clone(),
    };
    let mut sites: Vec<_> = servers
        .iter()
        .map(|server| {
            (listen::is_default(server), server::convert(server, &outside, &mut document.groups))
        })
        .collect();
    // The first site at an address answers for hosts that no site names.
    sites.sort_by_key(|(is_default, _)| !is_default);
    document.sites = sites.into_iter().flat_map(|(_, sections)| sections).collect();
    for upstream in &upstreams {
        let is_used = document.sites.iter().any(|section| section.mentions(upstream.word()));
        if is_used {
            document.groups.push(proxy::upstream(upstream));
        }
    }
    Ok(document)
}

/// The directives outside of `http`.
fn main(tree: &[Directive], top: &mut Section) {
    for directive in tree {
        match (&*directive.name, directive.word()) {
            ("http", _) | ("worker_processes", "auto") => {}
            ("user", user) => top.set("user", user),
            ("worker_processes", number) => match number.parse::<i64>() {
                Ok(number @ 1..=63) => top.set("threads", number),
                _ => top.left_out(&directive.place, format!("{} has no equal", directive.text())),
            },
            (name, _) if known::needs_nothing(name) => {}
            _ => top.left_out(&directive.place, format!("{} has no equal", directive.text())),
        }
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
    if scope.get("client_max_body_size").is_none() {
        top.set("max_body", DEFAULT_MAX_BODY);
    }
    for directive in http {
        let time = TIMES.iter().find(|(theirs, _)| *theirs == directive.name);
        match (&*directive.name, time) {
            (_, Some((_, ours))) => match units::time(directive.word()) {
                Some(time) if time != "0s" => top.set(ours, time),
                _ => top.left_out(&directive.place, format!("{} has no equal", directive.text())),
            },
            ("set_real_ip_from", _) => {
                let all = scope.all("set_real_ip_from");
                let networks = all.iter().map(|one| one.word().to_owned()).collect();
                top.set_list("trusted_proxies", networks);
            }
            ("real_ip_header", _) => real_ip_header(directive, top),
            ("real_ip_recursive", _) => {}
            // Where they are used, rules say what they mean.
            ("map" | "limit_req_zone" | "limit_conn_zone" | "server" | "upstream", _) => {}
            (name, _) if known::needs_nothing(name) || server::inherits(name) => {}
            _ => top.left_out(&directive.place, format!("{} has no equal", directive.text())),
        }
    }
}

pub(super) fn real_ip_header(directive: &Directive, section: &mut Section) {
    match directive.word() {
        "X-Forwarded-For" | "X-Real-IP" | "proxy_protocol" => {}
        other => section.left_out(
            &directive.place,
            format!("real_ip_header {other} has no equal: proxies name the client in X-Forwarded-For or Forwarded"),
        ),
    }
}
