//! `reverse_proxy`.

use sendoff_convert_document::{Directive, Section};

use super::body::{Answers, Builder, Scope, Step};
use super::fields::{Change, change, ordered, set};
use super::forwarded;
use super::text::Around;
use super::units;

/// Options that change no answer.
const SILENT: [&str; 10] = [
    "flush_interval",
    "lb_try_duration",
    "lb_try_interval",
    "lb_retries",
    "fail_duration",
    "health_timeout",
    "health_headers",
    "buffer_requests",
    "request_buffers",
    "response_buffers",
];

/// An application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) scheme: &'static str,
    pub(super) host: String,
}

/// The application of an address of Caddy; `None`: it cannot be expressed.
pub(super) fn address(text: &str) -> Option<Address> {
    if text.contains(['{', '$', '"', '#']) {
        return None;
    }
    if let Some(path) = text.strip_prefix("unix/") {
        return Some(Address { scheme: "http", host: format!("unix:{path}") });
    }
    let (scheme, rest, port) = match text.split_once("://") {
        Some(("http", rest)) => ("http", rest, "80"),
        Some(("https", rest)) => ("https", rest, "443"),
        Some(("h2c", rest)) => ("h2", rest, "80"),
        Some(_) => return None,
        None => ("http", text, "80"),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() || rest.contains('/') {
        return None;
    }
    let host = match rest.rsplit_once(':') {
        Some(("", port)) => format!("localhost:{port}"),
        Some((_, port)) if port.parse::<u16>().is_ok() => rest.to_owned(),
        Some(_) if !rest.ends_with(']') => return None,
        _ => format!("{rest}:{port}"),
    };
    Some(Address { scheme, host })
}

impl Builder<'_> {
    pub(super) fn reverse_proxy(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Answers {
        match self.proxied(step, scope) {
            Ok(section) => self.answer(step, scope, &|route, _| route.absorb(section.clone())),
            Err(why) => {
                self.refuse(step, scope, &why);
                step.answers()
            }
        }
    }

    /// The keys of a route that passes requests on.
    fn proxied(&mut self, step: &Step<'_>, scope: &Scope<'_>) -> Result<Section, String> {
        let mut addresses: Vec<Address> = Vec::new();
        let named = step.words.iter().copied();
        let options = step.directive.inner();
        let more = options.iter().filter(|option| option.name == "to");
        let more = more.flat_map(|option| option.words.iter().map(String::as_str));
        for word in named.chain(more) {
            addresses.push(address(word).ok_or_else(|| format!("the address {word}"))?);
        }
        let first = addresses.first().ok_or("it names no application")?;
        let mut scheme = first.scheme;
        if addresses.iter().any(|other| other.scheme != scheme) {
            return Err("its applications speak different protocols".to_owned());
        }
        let mut made = Section::default();
        let mut upstream = Section::new("upstream");
        let around = Around { path: "$path", is_rewritten: true, requests: &step.requests };
        let mut probe = Section::default();
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        for option in options {
            match option.name.as_str() {
                "to" => {}
                name if SILENT.contains(&name) => {}
                "lb_policy" => policy(option, &mut upstream),
                "health_uri" | "health_path" => probe.set("path", option.word()),
                "health_interval" => match units::time(option.word()) {
                    Some(time) => probe.set("every", time),
                    None => option.left_out(&mut self.site, "it is no time"),
                },
                "max_fails" => {
                    upstream.set("fails", option.word().parse::<i64>().unwrap_or(1).clamp(1, 1000));
                }
                "header_up" => ups.extend(header_up(option, &around, &mut made)?),
                "header_down" => {
                    let words: Vec<&str> = option.words.iter().map(String::as_str).collect();
                    match change(&words, &around) {
                        Ok(change) => downs.push(change),
                        Err(why) => option.left_out(&mut self.site, &why),
                    }
                }
                "trusted_proxies" => {
                    option.left_out(&mut self.site, "trusted_proxies of the server name proxies");
                }
                "transport" => scheme = transport(option, scheme, &mut made, &mut self.site)?,
                name => return Err(format!("{name} is not known")),
            }
        }
        set("request_headers", &ordered(ups), &mut made);
        set("response_headers", &ordered(downs), &mut made);
        if self.sets_forwarded {
            made.set_in("proxy", "forwarded", "off");
        }
        let to = match &addresses[..] {
            [only] if probe.is_empty() => format!("{scheme}://{}", only.host),
            several => {
                let hosts: Vec<String> = several.iter().map(|one| one.host.clone()).collect();
                self.upstream(upstream, hosts, probe, scheme)
            }
        };
        made.set_in("proxy", "to", to);
        if made.text_in("proxy", "host").as_deref() == Some("upstream")
            && made.text_in("proxy", "to").is_some_and(|to| to.contains("://upstream:"))
        {
            made.set_in("proxy", "host", first.host.clone());
            made.note(&step.directive.place, "Host: each application gets the name of the first");
        }
        // Caddy leaves the URLs of the application as they are.
        made.set_in("proxy", "redirects", toml::Table::new());
        if scope.prefix.is_some() || scope.mark.is_some() {
            made.comment("The application gets the path without the beginning that is taken off.");
        }
        Ok(made)
    }

    /// Adds the group of several hosts, and returns its URL.
    fn upstream(
        &mut self,
        mut upstream: Section,
        mut hosts: Vec<String>,
        probe: Section,
        scheme: &str,
    ) -> String {
        self.upstreams += 1;
        let name = format!("{}-{}", self.name, self.upstreams);
        if upstream.take("first").is_some() {
            hosts.iter_mut().skip(1).for_each(|host| host.push_str(" spare"));
        }
        let mut section = Section::new("upstream");
        section.set("name", name.clone());
        section.set_list("hosts", hosts);
        section.absorb(upstream);
        if !probe.is_empty() {
            for key in ["path", "every"] {
                if let [text] = &probe.texts(key)[..] {
                    section.set_in("probe", key, text.clone());
                }
            }
            if !probe.has("every") {
                section.set_in("probe", "every", "30s");
            }
        }
        self.groups.push(section);
        format!("{scheme}://upstream:{name}")
    }
}

/// `header_up NAME VALUE`: a change of the request, unless a key or a default does the same.
fn header_up(
    option: &Directive,
    around: &Around<'_>,
    made: &mut Section,
) -> Result<Option<Change>, String> {
    let words: Vec<&str> = option.words.iter().map(String::as_str).collect();
    let value = words.get(1).copied().unwrap_or_default();
    let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
    match (name.as_str(), value) {
        ("host", "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}") => {
            made.set_in("proxy", "host", "upstream");
        }
        ("host", "{host}" | "{hostport}" | "{http.request.host}" | "{http.request.hostport}") => {}
        ("host", value) if !value.is_empty() && !value.contains(['{', '$']) => {
            made.set_in("proxy", "host", value);
        }
        ("host", _) => return Err("the host that the application gets".to_owned()),
        // Sendoff names the client there, too.
        ("x-real-ip", "{remote_host}" | "{http.request.remote.host}" | "{client_ip}") => {
            return Ok(Some(("X-Real-IP".to_owned(), "$remote_addr".into())));
        }
        _ if forwarded::is_default(&words) => {}
        _ => {
            let change =
                change(&words, around).map_err(|why| format!("{}: {why}", option.text()))?;
            return Ok(Some(change));
        }
    }
    Ok(None)
}

/// `lb_policy`
fn policy(option: &Directive, upstream: &mut Section) {
    let name = option.words.get(1).map_or("", String::as_str);
    match option.word() {
        "ip_hash" | "client_ip_hash" => upstream.set("balance", "client"),
        "uri_hash" => {
            upstream.set("balance", "path");
            upstream.note(&option.place, "uri_hash: the query does not count");
        }
        "header" => upstream.set("balance", format!("header:{name}")),
        "cookie" => upstream.set("sticky", if name.is_empty() { "lb" } else { name }),
        // Taken away again where the hosts are known.
        "first" => upstream.set("first", "yes"),
        _ => {
            let text = "the host with the fewest requests gets the next one";
            upstream.note(&option.place, format!("{}: {text}", option.text()));
        }
    }
}

fn limit(inner: &Directive, key: &str, made: &mut Section, site: &mut Section) {
    match units::time(inner.word()) {
        Some(time) => made.set_in("proxy", key, time),
        None => inner.left_out(site, "it is no time"),
    }
}

/// `transport http { ... }`: the protocol.
fn transport(
    option: &Directive,
    scheme: &'static str,
    made: &mut Section,
    site: &mut Section,
) -> Result<&'static str, String> {
    if option.word() != "http" {
        return Err(format!("transport {}", option.word()));
    }
    let mut scheme = scheme;
    for inner in option.inner() {
        match inner.name.as_str() {
            "tls" => scheme = "https",
            "tls_insecure_skip_verify" => {
                scheme = "https";
                made.set_in("proxy", "verify", false);
            }
            "tls_server_name" if !inner.word().contains('{') => {
                scheme = "https";
                made.set_in("proxy", "tls_name", inner.word());
            }
            "tls_trusted_ca_certs" => {
                scheme = "https";
                made.set_in("proxy", "roots", inner.word());
            }
            "dial_timeout" => limit(inner, "connect_timeout", made, site),
            "response_header_timeout" => limit(inner, "first_byte_timeout", made, site),
            "read_timeout" => limit(inner, "timeout", made, site),
            "versions" if inner.words == ["h2c"] => scheme = "h2",
            "versions"
            | "keepalive"
            | "compression"
            | "read_buffer"
            | "write_buffer"
            | "max_conns_per_host"
            | "keepalive_idle_conns"
            | "keepalive_idle_conns_per_host"
            | "expect_continue_timeout"
            | "write_timeout"
            | "max_response_header"
            | "dial_fallback_delay"
            | "keepalive_interval" => {
                inner.left_out(site, "connections to applications are Sendoff's own");
            }
            name => return Err(format!("{name} is not known")),
        }
    }
    Ok(scheme)
}
