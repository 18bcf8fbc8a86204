//! Listeners, as sites: one for each host that steps name, and one for all other hosts.

use super::application;
use super::builder::{Builder, Folders};
use super::json::Node;
use super::matching::Around;
use super::pattern::{Subject, exact};
use super::settings::names_clients;
use sendoff_convert_document::{Document, Section, Unreadable};

/// The folder of a site that sends no files.
const NO_FILES: &str = "/srv";
/// The folder in which Unit's packages keep certificates.
const CERTIFICATES: &str = "/var/lib/unit/certs";
/// The most sections of all sites: the time grows with their number.
const MAX_SECTIONS: usize = 20_000;
/// The most hosts of a listener that get a site of their own.
const MAX_HOSTS: usize = 500;

/// True if the options of the PROXY fields can be expressed for all listeners alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarded {
    Known,
    Unknown,
}

/// Adds the sites of the listeners with the same settings.
pub(super) fn convert(
    config: &Node<'_>,
    addresses: &[(&str, Node<'_>)],
    forwarded: Forwarded,
    document: &mut Document,
) -> Result<(), Unreadable> {
    let Some((_, listener)) = addresses.first() else { return Ok(()) };
    let known = ["pass", "tls", "forwarded", "backlog", "threads", "application"];
    let mut remarks = Section::default();
    listener.name_others(&known, &mut remarks);
    let tls = listener.get("tls");
    let mut listen = Vec::new();
    for (address, node) in addresses {
        match listened(address) {
            Some(address) if tls.is_some() => listen.push(format!("{address} tls")),
            Some(address) => listen.push(address),
            None => remarks.left_out(&node.place, "the address cannot be listened at"),
        }
    }
    if listen.is_empty() {
        document.rest.absorb_comments(remarks);
        return Ok(());
    }
    let hosts = hosts(config, listener);
    let mut made: Vec<(Vec<String>, Vec<Section>)> = Vec::new();
    let mut number = document.sites.len();
    for host in hosts.iter().map(Some).chain([None]) {
        let around = Around {
            has_tls: tls.is_some(),
            listener: addresses[0].0,
            host: host.map(String::as_str),
            hosts: &hosts,
            knows_clients: forwarded == Forwarded::Known || names_clients(listener).is_none(),
            has_forwarded_scheme: listener
                .get("forwarded")
                .is_some_and(|forwarded| forwarded.get("protocol").is_some()),
        };
        let sections = site(config, listener, around, document)?;
        let own: Vec<String> = host.cloned().into_iter().collect();
        match made.iter_mut().find(|(hosts, known)| !hosts.is_empty() && *known == sections) {
            Some((hosts, _)) if host.is_some() => hosts.extend(own),
            _ => {
                number += sections.len();
                made.push((own, sections));
            }
        }
        if number > MAX_SECTIONS {
            let says = format!("the result would have more than {MAX_SECTIONS} routes");
            return Err(Unreadable { place: Some(listener.place.clone()), says });
        }
    }
    for (hosts, sections) in made {
        let mut sections = sections.into_iter();
        let mut site = Section::new("site");
        site.absorb_comments(std::mem::take(&mut remarks));
        site.set_list("hosts", hosts);
        site.set_list("listen", listen.clone());
        if let Some(tls) = &tls {
            certificate(tls, &mut site);
        }
        site.absorb(sections.next().unwrap_or_default());
        document.sites.push(site);
        document.sites.extend(sections);
    }
    Ok(())
}

/// The address in Sendoff's form.
fn listened(address: &str) -> Option<String> {
    match address.strip_prefix("*:") {
        Some(port) if port.parse::<u16>().is_ok() => Some(format!("0.0.0.0:{port}")),
        Some(_) => None,
        None if address.starts_with("unix:/") => Some(address.to_owned()),
        None if address.rsplit_once(':').is_some_and(|(host, port)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.parse::<std::net::IpAddr>().is_ok() && port.parse::<u16>().is_ok()
        }) =>
        {
            Some(address.to_owned())
        }
        None => None,
    }
}

/// The hosts that the steps of a listener name in full.
fn hosts(config: &Node<'_>, listener: &Node<'_>) -> Vec<String> {
    let routes = config.get("routes");
    let steps = match listener.text_of("pass").unwrap_or_default().strip_prefix("routes") {
        Some("") => routes,
        Some(name) => routes.and_then(|routes| routes.get(name.trim_start_matches('/'))),
        None => None,
    };
    let mut hosts: Vec<String> = Vec::new();
    for step in steps.iter().filter(|steps| steps.is_array()).flat_map(Node::elements) {
        let host = step.get("match").and_then(|test| test.get("host"));
        let texts = host.as_ref().and_then(Node::texts).unwrap_or_default();
        for text in texts {
            let Some(names) = exact(&[text.trim_start_matches('!')], Subject::Host) else {
                continue;
            };
            let is_host = |name: &String| {
                !name.is_empty()
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
            };
            for name in names.iter().map(|name| name.to_ascii_lowercase()).filter(is_host) {
                if !hosts.contains(&name) && hosts.len() < MAX_HOSTS {
                    hosts.push(name);
                }
            }
        }
    }
    hosts
}

/// The section of a site and its routes, for one host.
fn site(
    config: &Node<'_>,
    listener: &Node<'_>,
    around: Around<'_>,
    document: &mut Document,
) -> Result<Vec<Section>, Unreadable> {
    let Some(pass) = listener.get("pass") else {
        document.rest.left_out(&listener.place, "the listener has no pass");
        return Ok(vec![Section::default(), refusal()]);
    };
    if let Some(command) = checks_certificates(listener) {
        let text = format!("{} asks for client certificates, and has no equal", command.shown());
        document.rest.left_out(&command.place, format!("{text}: all requests are refused"));
        return Ok(vec![Section::default(), refusal()]);
    }
    // The first attempt finds the folders.
    let mut first = Builder::new(config, around, Folders::default());
    first.pass(&pass);
    let share = first.shares.first();
    let (php, root, index) = match first.php.take() {
        Some((name, root, index)) => (Some(name), root, index),
        None => (None, share.map(|(root, _)| root.clone()), None),
    };
    let index = index.or(share.map(|(_, index)| index.clone()));
    let root = root.map(|root| if root.is_empty() { "/".to_owned() } else { root });
    let folders = Folders { root: root.clone(), index: index.clone(), php: php.clone() };
    let mut builder = Builder::new(config, around, folders);
    builder.pass(&pass);
    if first.is_too_large() || builder.is_too_large() {
        let says = "its routes lead to each other on too many ways".to_owned();
        return Err(Unreadable { place: Some(listener.place.clone()), says });
    }
    let mut site = Section::default();
    site.set("root", root.unwrap_or_else(|| NO_FILES.to_owned()));
    if let Some(index) = index {
        site.set("index", index);
    }
    site.set("front_controller", "off");
    site.set("htaccess", false);
    if !builder.site.has("symlinks") {
        site.set("symlinks", "any");
    }
    match &php {
        Some(name) => site.set("pool", application::name(name)),
        None => site.set("php", false),
    }
    if around.has_tls || listener.get("forwarded").is_some() {
        site.set("https_redirect", false);
    }
    let has_marks = builder.has_marks();
    site.absorb(builder.site);
    for program in builder.programs {
        if !document.groups.contains(&program.pool) {
            document.groups.push(program.pool);
        }
    }
    if let Some(name) = php
        && let Some(app) = config.get("applications").and_then(|all| all.get(&name))
    {
        let pool = application::php(&name, &app);
        if !document.groups.contains(&pool) {
            document.groups.push(pool);
        }
    }
    let guard = has_marks.then(|| {
        let mut route = Section::new("site.route");
        route.comment("Paths below /@unit are of the routes below; a client gets 404.");
        route.set("match", "^/@unit(?:/|$)");
        super::builder::error(404, &mut route);
        route
    });
    Ok([vec![site], guard.into_iter().collect(), builder.routes].concat())
}

fn refusal() -> Section {
    let mut route = Section::new("site.route");
    super::builder::error(404, &mut route);
    route
}

/// The command of OpenSSL by which a listener checks the certificates of clients.
fn checks_certificates<'n>(listener: &Node<'n>) -> Option<Node<'n>> {
    let commands = listener.get("tls")?.get("conf_commands")?;
    let is_check = |name: &str| name.to_ascii_lowercase().contains("verify");
    commands.members().into_iter().find(|(name, _)| is_check(name)).map(|(_, node)| node)
}

/// The certificate of a listener.
fn certificate(tls: &Node<'_>, site: &mut Section) {
    tls.name_others(&["certificate", "session"], site);
    let certificate = tls.get("certificate");
    let names = certificate.as_ref().and_then(Node::texts).unwrap_or_default();
    let Some(name) = names.first() else { return };
    if names.len() > 1 {
        let text = "tls: the first certificate is in use; a site has one";
        site.left_out(&tls.place, text);
    }
    let path = format!("{CERTIFICATES}/{}", name.replace('/', "%2F"));
    site.note(&tls.place, format!("tls: the bundle, with its key, is a file of Unit's: {path}"));
    site.set_in("tls", "certificate", path.clone());
    site.set_in("tls", "key", path);
}
