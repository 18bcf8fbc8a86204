//! `settings`, `access_log`, and the fields in which proxies name clients.

use super::json::Node;
use super::listener::Forwarded;
use super::matching::is_network;
use sendoff_convert_document::Section;

/// Unit's limit of request bodies.
const DEFAULT_MAX_BODY: i64 = 8 << 20;

/// Sets the keys before the first section. Returns the media types of all sites.
pub(super) fn settings(config: &Node<'_>, top: &mut Section) -> Vec<(String, String)> {
    let settings = config.get("settings");
    let http = settings.as_ref().and_then(|settings| settings.get("http"));
    if let Some(settings) = &settings {
        settings.name_others(&["http", "listen_threads"], top);
        match settings.get("listen_threads").map(|threads| (threads.whole(), threads)) {
            Some((Some(number @ 1..=63), _)) => top.set("threads", number),
            Some((_, threads)) => threads.left_out(top, "it is no number from 1 to 63"),
            None => {}
        }
    }
    let of = |name: &str| http.as_ref().and_then(|http| http.get(name)).and_then(|it| it.whole());
    top.set("max_body", of("max_body_size").unwrap_or(DEFAULT_MAX_BODY).max(0));
    for (theirs, ours) in [
        ("header_read_timeout", "head_timeout"),
        ("body_read_timeout", "body_timeout"),
        ("send_timeout", "send_timeout"),
        ("idle_timeout", "idle_timeout"),
    ] {
        if let Some(time @ 1..) = of(theirs) {
            top.set(ours, format!("{time}s"));
        }
    }
    let Some(http) = http else { return Vec::new() };
    http.name_others(
        &[
            "max_body_size",
            "header_read_timeout",
            "body_read_timeout",
            "send_timeout",
            "idle_timeout",
            "static",
            // They change no answer.
            "body_buffer_size",
            "body_temp_path",
            "large_header_buffer_size",
            "large_header_buffers",
            "log_route",
            "server_version",
            "chunked_transform",
        ],
        top,
    );
    let mut types = Vec::new();
    let files = http.get("static");
    if let Some(files) = &files {
        files.name_others(&["mime_types"], top);
    }
    let known = files.and_then(|files| files.get("mime_types"));
    for (kind, endings) in known.iter().flat_map(Node::members) {
        for ending in endings.texts().unwrap_or_default() {
            match ending.strip_prefix('.') {
                Some(ending) if ending.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    types.push((ending.to_owned(), kind.to_owned()));
                }
                _ => endings.left_out(top, "only endings can be named"),
            }
        }
    }
    types
}

/// `access_log`.
pub(super) fn access_log(config: &Node<'_>, top: &mut Section) {
    let Some(log) = config.get("access_log") else { return };
    let path = log.text().or(log.text_of("path")).filter(|path| path.starts_with('/'));
    match path {
        Some(path) => top.set("access_log", path),
        None => log.left_out(top, "it is no path"),
    }
    for name in ["format", "if"] {
        if let Some(option) = log.get(name) {
            option.left_out(top, "lines have the combined format");
        }
    }
}

/// The statement of a listener about the proxies that name its clients.
pub(super) fn names_clients<'v>(listener: &Node<'v>) -> Option<Node<'v>> {
    listener.get("forwarded").or_else(|| listener.get("client_ip"))
}

/// The proxies that are believed, if all listeners believe the same ones.
pub(super) fn forwarded(listeners: &[(&str, Node<'_>)], top: &mut Section) -> Forwarded {
    let named: Vec<_> = listeners.iter().filter_map(|(_, node)| names_clients(node)).collect();
    let Some(first) = named.first() else { return Forwarded::Known };
    let unknown = |top: &mut Section, why: &str| {
        for node in &named {
            let text = format!("forwarded has no equal: {why}; no proxy is believed");
            top.left_out(&node.place, text);
        }
        Forwarded::Unknown
    };
    if named.len() != listeners.len() || !named.iter().all(|other| other.equals(first)) {
        return unknown(
            top,
            "trusted proxies belong to the whole server, and the listeners differ",
        );
    }
    let sources = first.get("source").and_then(|source| {
        source.texts().map(|texts| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    });
    let Some(sources) = sources.filter(|all| all.iter().all(|text| is_network(text))) else {
        return unknown(top, "its source is no list of networks");
    };
    // The older form calls it `header`.
    let client_ip = first.text_of("client_ip").or(first.text_of("header")).map(str::to_owned);
    let Some(field) = client_ip else {
        return unknown(top, "it names no field with the address of the client");
    };
    let known = ["client_ip", "header", "protocol", "source", "recursive"];
    first.name_others(&known, top);
    let is_list = field.eq_ignore_ascii_case("X-Forwarded-For");
    if let Some(protocol) = first.get("protocol")
        && !(is_list
            && protocol.text().is_some_and(|it| it.eq_ignore_ascii_case("X-Forwarded-Proto")))
    {
        protocol.left_out(top, "the scheme comes with X-Forwarded-For, in X-Forwarded-Proto");
    }
    let is_recursive = first.get("recursive").and_then(|it| it.flag()).unwrap_or(false);
    if is_list && first.get("protocol").is_none() {
        let how = if is_recursive { "alone" } else { "last" };
        top.set("proxy_field", format!("X-Forwarded-For {how}"));
    } else if is_list {
        let text = "forwarded: the client is the last address that is no trusted proxy; X-Forwarded-Proto, -Host and -Port are read, too";
        top.note(&first.place, text);
    } else {
        top.set("proxy_field", field);
    }
    top.set_list("trusted_proxies", sources.iter().map(|it| it.replace(['[', ']'], "")).collect());
    Forwarded::Known
}
