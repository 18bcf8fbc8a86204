//! Upstreams with several hosts.

use std::collections::HashSet;

use sendoff_config::{Sticky, Upstream};
use sendoff_setting_values::{Place, similar};

use super::context::Context;
use crate::keys::{self, Top};

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

    /// Checks that an upstream with this name exists, and counts it as used.
    pub(crate) fn exists(&mut self, name: &str, place: Place, context: &mut Context<'_>) {
        self.named.insert(name.to_owned());
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
        probe: section.probe.as_ref().map(|at| at.value.0),
    })
}

fn sticky(section: &keys::Sticky, context: &mut Context<'_>) -> Option<Sticky> {
    if section.cookie.is_none() && !section.broken {
        context
            .problems
            .error(section.place, "cookie is missing")
            .help("cookie is the name of the cookie that the server sets: cookie = \"host\"");
    }
    Some(Sticky { cookie: section.cookie.as_ref()?.value.0.clone() })
}
