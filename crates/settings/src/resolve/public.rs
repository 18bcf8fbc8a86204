//! Warnings about pages with server figures that are open to every client.

use std::net::IpAddr;

use sendoff_config::{Config, Handler, Htaccess, ListenAddress, Route, Rules, Site};

use super::context::Context;
use super::redirects::Concerns;
use crate::keys::{self, Top};

impl Context<'_> {
    /// Warns of pages about the server that clients outside the operator's networks may see,
    /// because no route restricts them. They stay open, as nginx's and php-fpm's pages are.
    pub(super) fn pages_are_for_some(&mut self, top: &Top, config: &Config) {
        let sections = &top.site.value.0;
        if sections.len() != config.sites.len() || self.problems.errors() > 0 {
            return;
        }
        for (section, site) in sections.iter().zip(&config.sites) {
            if is_reached_from_outside(site, config) {
                self.metrics_are_for_some(section, site);
            }
        }
        for section in &top.pool.value.0 {
            let Some(path) = &section.status_path else { continue };
            let number = config.pools.iter().position(|pool| pool.name == section.name.value.0);
            let is_open = |site: &&Site| {
                is_reached_from_outside(site, config)
                    && runs(site, number)
                    && !is_for_some_at(site, &path.value.0)
            };
            if let Some(site) = config.sites.iter().find(is_open) {
                let says = format!(
                    "every client of site {} may see the status page of this pool, with ?full also what others ask for",
                    site.name
                );
                self.problems.warning(path.place, says).help(format!(
                    "a route says who may: [[site.route]] with path = \"{}\" and allow_from = [\"127.0.0.1\"]",
                    path.value.0
                ));
            }
        }
    }

    fn metrics_are_for_some(&mut self, section: &keys::Site, site: &Site) {
        let written = &section.route.value.0;
        for (number, (route, written)) in site.routes.iter().zip(written).enumerate() {
            let (Some(Handler::Metrics), Some(at)) = (&route.handler, &written.metrics) else {
                continue;
            };
            let path = route.conditions.paths.first().or(route.conditions.prefixes.first());
            let path = path.map_or("/", |path| &**path);
            let before = site.routes[..number].iter();
            let mut asking =
                before.filter(|one| Concerns::of(&one.conditions, path) != Concerns::Never);
            if !asks(site, &route.rules) && !asking.any(|one| asks(site, &one.rules)) {
                self.problems
                    .warning(at.place, "every client may see the metrics of the server")
                    .help("add allow_from = [\"127.0.0.1\"] or auth to the route, or give the site an address that only your monitor reaches");
            }
        }
    }
}

/// True if a route may identify the client; a Lua script counts, whatever it does.
fn asks(site: &Site, rules: &Rules) -> bool {
    let shows_certificate = site.tls.as_ref().and_then(|tls| tls.clients.as_ref());
    shows_certificate.is_some_and(|clients| clients.required)
        || rules.clients.is_some()
        || rules.auth.is_some()
        || rules.authorize.is_some()
        || !rules.lua.is_empty()
        || !site.lua_before.is_empty()
}

/// True if a rule decides who may request a path of a site.
fn is_for_some_at(site: &Site, path: &str) -> bool {
    let decides = |route: &Route| {
        Concerns::of(&route.conditions, path) != Concerns::Never
            && (asks(site, &route.rules) || matches!(route.handler, Some(Handler::Deny { .. })))
    };
    site.htaccess == Htaccess::Obeyed
        || !site.lua_before.is_empty()
        || site.routes.iter().any(decides)
}

/// True if a pool runs scripts of a site.
fn runs(site: &Site, pool: Option<usize>) -> bool {
    let by_route = |route: &Route| matches!(route.handler, Some(Handler::Php { pool: of_route, .. }) if Some(of_route) == pool);
    pool.is_some() && (site.pool == pool || site.routes.iter().any(by_route))
}

/// True if a site listens on an address that clients of other networks may reach.
fn is_reached_from_outside(site: &Site, config: &Config) -> bool {
    site.listeners.iter().filter_map(|number| config.listen.get(*number)).any(|listener| {
        match &listener.address {
            ListenAddress::Unix(_) => false,
            ListenAddress::Tcp(address) | ListenAddress::Quic(address) => match address.ip() {
                IpAddr::V4(ip) => !(ip.is_loopback() || ip.is_private() || ip.is_link_local()),
                IpAddr::V6(ip) => {
                    !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local())
                }
            },
        }
    })
}
