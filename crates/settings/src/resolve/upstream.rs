//! Upstreams with several hosts.

use std::collections::HashSet;

use sendoff_config::{GrpcCheck, HostCheck, HttpCheck, Probe, Sticky, Upstream};
use sendoff_setting_values::{Place, ProxyScheme, similar};

use super::context::Context;
use crate::keys::{self, Top};

/// The protocol of an application on an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// Another one, by which no host can be checked.
    Other,
}

impl UpstreamProtocol {
    fn can_send(self, check: &HostCheck) -> bool {
        match check {
            HostCheck::Http(_) => self != Self::Other,
            HostCheck::Grpc(_) => self == Self::Http2,
        }
    }
}

impl From<&ProxyScheme> for UpstreamProtocol {
    fn from(scheme: &ProxyScheme) -> Self {
        match scheme {
            ProxyScheme::Http | ProxyScheme::Https => Self::Http1,
            ProxyScheme::H2 | ProxyScheme::H2s => Self::Http2,
            _ => Self::Other,
        }
    }
}

/// The upstreams that the configuration describes.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    all: Vec<(Upstream, Place)>,
    /// The names that sites and routes refer to.
    named: HashSet<String>,
}

impl Upstreams {
    /// Resolves the sections.
    pub(crate) fn resolve(top: &Top, context: &mut Context<'_>) -> Self {
        let mut all: Vec<(Upstream, Place)> = Vec::new();
        for section in &top.upstream.value.0 {
            let known = all.iter().map(|(upstream, place)| (upstream.name.as_str(), *place));
            let place = context.own_name("upstream", &section.name, section.place, known);
            all.extend(upstream(section, context).map(|upstream| (upstream, place)));
        }
        Self { all, named: HashSet::new() }
    }

    /// Checks that an upstream with this name exists, and that it can be checked over the protocol
    /// of its application. Counts it as used.
    pub(crate) fn exists(
        &mut self,
        name: &str,
        protocol: UpstreamProtocol,
        place: Place,
        context: &mut Context<'_>,
    ) {
        self.named.insert(name.to_owned());
        let found = self.all.iter().find(|(upstream, _)| upstream.name == name);
        let check = found.and_then(|(upstream, _)| upstream.probe.as_ref()?.request.as_ref());
        if let Some(check) = check.filter(|check| !protocol.can_send(check)) {
            let (what, key) = match check {
                HostCheck::Http(HttpCheck { path, .. }) => {
                    (format!("GET {path} over HTTP"), "path")
                }
                HostCheck::Grpc(_) => ("gRPC over HTTP/2".to_owned(), "grpc"),
            };
            let says = format!(
                "the hosts of \"{name}\" are checked by {what}, which this application does not speak"
            );
            let help =
                format!("remove {key} from probe, so that hosts are checked by a connection");
            context.problems.error(place, says).help(help);
        }
        let names = || self.all.iter().map(|(upstream, _)| upstream.name.as_str());
        if names().any(|known| known == name) || context.problems.errors() > 0 {
            return;
        }
        let problem = context.problems.error(place, format!("there is no upstream \"{name}\""));
        match similar(name, names()) {
            Some(similar) => problem.help(format!("did you mean \"{similar}\"?")),
            None => problem.help(format!(
                "an upstream begins with [[upstream]] and has a name: name = \"{name}\""
            )),
        };
    }

    /// The upstreams that sites use. Warns of the others.
    pub(crate) fn used(self, context: &mut Context<'_>) -> Vec<Upstream> {
        let (used, unused): (Vec<_>, Vec<_>) =
            self.all.into_iter().partition(|(upstream, _)| self.named.contains(&upstream.name));
        for (upstream, place) in unused {
            if context.problems.errors() == 0 {
                let name = upstream.name;
                let says = format!("no site uses the upstream \"{name}\"");
                let help = format!(
                    "fastcgi = \"upstream:{name}\" or proxy = \"http://upstream:{name}\" in a route gives it requests"
                );
                context.problems.warning(place, says).help(help);
            }
        }
        used.into_iter().map(|(upstream, _)| upstream).collect()
    }
}

fn upstream(section: &keys::Upstream, context: &mut Context<'_>) -> Option<Upstream> {
    let hosts: Vec<_> =
        section.hosts.iter().flat_map(|list| list.value.values()).map(|h| h.0.clone()).collect();
    if hosts.is_empty() {
        if !section.broken {
            context
                .problems
                .error(section.place, "this upstream has no hosts")
                .help("hosts is the list of them: hosts = [\"app1:9000\", \"app2:9000\"]");
        }
        return None;
    }
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Some(Upstream {
        name: section.name.value.0.clone(),
        hosts,
        balance: section.balance.value.0.clone(),
        sticky: section.sticky.as_ref().and_then(|at| sticky(&at.value.0, context)),
        connections: section.connections.as_ref().map(|at| number(at.value.0)),
        fails: number(section.fails.value.0),
        retry_after: section.retry_after.value.0,
        slow_start: section.slow_start.value.0,
        probe: section.probe.as_ref().map(|at| probe(&at.value.0, context)),
    })
}

fn probe(section: &keys::Probe, context: &mut Context<'_>) -> Probe {
    let host = section.host.as_ref().map(|at| at.value.0.clone());
    if let (Some(_), Some(grpc)) = (&section.path, &section.grpc) {
        context
            .problems
            .error(grpc.place, "a host is checked by a GET request or by gRPC, not by both")
            .help("remove path or grpc");
    }
    let request = match (&section.path, &section.grpc) {
        (Some(path), _) => Some(HostCheck::Http(HttpCheck {
            path: path.value.0.clone(),
            host,
            status: section.status.as_ref().and_then(|at| u16::try_from(at.value.0).ok()),
            body: section.body.as_ref().map(|at| at.value.0.clone()),
        })),
        (None, Some(service)) => {
            Some(HostCheck::Grpc(GrpcCheck { service: service.value.0.clone(), host }))
        }
        (None, None) => None,
    };
    let has_path = section.path.is_some();
    for (key, place, fits, with) in [
        ("host", section.host.as_ref().map(|at| at.place), request.is_some(), "path or grpc"),
        ("status", section.status.as_ref().map(|at| at.place), has_path, "path"),
        ("body", section.body.as_ref().map(|at| at.place), has_path, "path"),
    ] {
        if let Some(place) = place.filter(|_| !fits && !section.broken) {
            context
                .problems
                .error(place, format!("{key} has a meaning only with {with}"))
                .help("path is the path of the request that checks a host: path = \"/health\"");
        }
    }
    Probe { every: section.every.value.0, request }
}

fn sticky(section: &keys::Sticky, context: &mut Context<'_>) -> Option<Sticky> {
    match (&section.cookie, &section.application) {
        (Some(cookie), None) => Some(Sticky::OfServer(cookie.value.0.clone())),
        (None, Some(cookie)) => Some(Sticky::OfApplication(cookie.value.0.clone())),
        (Some(_), Some(application)) => {
            context
                .problems
                .error(application.place, "a host is in one cookie, not in two")
                .help("remove cookie or application");
            None
        }
        (None, None) if section.broken => None,
        (None, None) => {
            context
                .problems
                .error(section.place, "cookie is missing")
                .help("cookie is the name of the cookie that the server sets: cookie = \"host\"");
            None
        }
    }
}
