//! All sites: the listeners of each, its hosts there, its TLS, and a name that no other site has.

use sendoff_config::Site;

use super::context::Context;
use super::hosts::Taken;
use super::listen::ListenersSoFar;
use super::pools::Pools;
use crate::keys::Top;

impl Context<'_> {
    /// Resolves the sites, and adds their listeners to `all_listeners`. `shared`: the listeners of
    /// sites that list none.
    pub(super) fn sites(
        &mut self,
        top: &Top,
        shared: &[usize],
        all_listeners: &mut ListenersSoFar,
        pools: &mut Pools,
    ) -> Vec<Site> {
        let mut hosts = Taken::default();
        let mut sites = Vec::with_capacity(top.site.value.0.len());
        for section in &top.site.value.0 {
            let listeners = match &section.listen {
                Some(list) => all_listeners.add(&list.value, self),
                None => shared.to_vec(),
            };
            let listeners = self.met_by_tls(section, listeners, all_listeners);
            if !section.broken {
                hosts.take(section, &listeners, self);
            }
            let tls = self.tls(section, top, &listeners, all_listeners);
            // QUIC asks for no certificates, so clients of other sites are not led there.
            let asks_none = tls.tls.as_ref().is_none_or(|tls| tls.clients.is_none());
            let h3 = asks_none && listeners.iter().any(|number| all_listeners.is_quic(*number));
            let first = listeners.first().copied();
            let mut site = self.site(section, top, listeners, pools);
            if let Some(site) = &mut site {
                self.redirects_end(section, &site.routes);
                if section.name.is_none()
                    && let Some(first) = first
                    && sites.iter().any(|other: &Site| other.name == site.name)
                {
                    site.name = format!("{} at {}", site.name, all_listeners.address(first));
                }
            }
            sites.extend(site.map(|site| Site {
                tls: tls.tls,
                https_port: tls.https_port,
                h3,
                ..site
            }));
        }
        sites
    }
}
