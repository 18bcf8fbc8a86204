//! The servers that share the work of an application.

use super::proxy::address;
use super::tree::Directive;
use sendoff_convert_document::Section;

/// The section of an upstream.
pub(super) fn section(upstream: &Directive) -> Section {
    let mut section = Section::new("upstream");
    section.set("name", upstream.word());
    let mut hosts = Vec::new();
    for directive in upstream.block.iter().flatten() {
        match &*directive.name {
            "server" => hosts.extend(host(directive, &mut section)),
            "ip_hash" => {
                section.set("balance", "client");
                let text = "ip_hash: clients are spread over the hosts in another way";
                section.note(&directive.place, text);
            }
            "hash" => hash(directive, &mut section),
            "sticky" => sticky(directive, &mut section),
            "random" | "least_conn" | "keepalive" | "zone" | "keepalive_timeout"
            | "keepalive_requests" => {}
            name => {
                section.left_out(&directive.place, format!("{name} of an upstream has no equal"));
            }
        }
    }
    section.set_list("hosts", hosts);
    section
}

/// `hash KEY`.
fn hash(directive: &Directive, section: &mut Section) {
    let name = |prefix: &str| {
        let name = directive.word().strip_prefix(prefix)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!name.is_empty() && name.bytes().all(is_plain)).then(|| name.to_owned())
    };
    let balance = match directive.word() {
        "$remote_addr" | "$binary_remote_addr" => "client".to_owned(),
        "$uri" | "$document_uri" => "path".to_owned(),
        "$request_uri" => {
            let text = "hash $request_uri: the query does not count";
            section.note(&directive.place, text);
            "path".to_owned()
        }
        _ => match (name("$cookie_"), name("$http_")) {
            (Some(cookie), _) => format!("cookie:{cookie}"),
            (_, Some(field)) => format!("header:{}", field.replace('_', "-")),
            _ => {
                let text = format!(
                    "{} has no equal: the host with the fewest requests gets the next one",
                    directive.text()
                );
                return section.left_out(&directive.place, text);
            }
        },
    };
    section.set("balance", balance);
}

/// `sticky cookie NAME`, with options.
fn sticky(directive: &Directive, section: &mut Section) {
    let [kind, name, options @ ..] = &directive.words[..] else { return };
    if kind != "cookie" {
        let text = format!(
            "{} has no equal: only a cookie of the server can be expressed",
            directive.text()
        );
        return section.left_out(&directive.place, text);
    }
    section.set("sticky", name.clone());
    for option in options {
        if !matches!(option.as_str(), "path=/" | "httponly" | "secure" | "samesite=lax") {
            let text = format!("sticky ... {option} has no equal");
            section.left_out(&directive.place, text);
        }
    }
}

fn host(server: &Directive, section: &mut Section) -> Option<String> {
    let mut host = address(server.word());
    for option in server.words.iter().skip(1) {
        match option.split_once('=').map_or((option.as_str(), ""), |pair| pair) {
            ("down", _) => return None,
            ("backup", _) => host.push_str(" spare"),
            ("weight", number) => host.push_str(&format!(" weight={number}")),
            ("max_fails", number) => {
                if let Ok(number @ 1..=1000) = number.parse::<i64>() {
                    section.set("fails", number);
                }
            }
            ("fail_timeout" | "resolve", _) => {}
            _ => section.left_out(&server.place, format!("server ... {option} has no equal")),
        }
    }
    Some(host)
}
