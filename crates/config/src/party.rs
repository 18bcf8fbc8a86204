//! Parties: the owners of the processes that answer the requests of a listener.

use crate::config::Config;
use crate::route::Handler;
use crate::site::{Address, Site};

/// The owner of processes that answer requests. Processes of one user are not protected from each
/// other (`docs/security.md`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Party {
    /// The user with this number, who has the pools; `None`: the supervisor's user.
    User(Option<u32>),
    /// A FastCGI application that was started elsewhere, by an unknown user.
    Application(Address),
}

impl Config {
    /// The party whose processes, apart from the front, answer all requests of a listener; `None`
    /// if there are several.
    #[must_use]
    pub fn sole_party(&self, listener: usize) -> Option<Party> {
        let sites = self.sites.iter().filter(|site| site.listeners.contains(&listener));
        let mut sole = None;
        for site in sites {
            // Applications that speak HTTP, SCGI, uwsgi or AJP are never lent a connection, so each is
            // another party.
            if !site.proxies.is_empty() {
                return None;
            }
            for party in self.parties(site) {
                if *sole.get_or_insert_with(|| party.clone()) != party {
                    return None;
                }
            }
        }
        sole
    }

    /// The parties of a site, without its proxied applications.
    fn parties<'c>(&'c self, site: &'c Site) -> impl Iterator<Item = Party> + 'c {
        let worker = site.worker.as_ref().map(|worker| worker.pool);
        let of_routes = site.routes.iter().filter_map(|route| match route.handler {
            Some(Handler::Php { pool, .. }) => Some(pool),
            _ => None,
        });
        let pools = site.pool.into_iter().chain(worker).chain(of_routes);
        let pools = pools.filter_map(|number| self.pools.get(number));
        let applications = site.fastcgi.iter().map(|attachment| match &attachment.address {
            Address::Pool(name) => {
                let pool = self.pools.iter().find(|pool| pool.name == *name);
                Party::User(pool.and_then(|pool| pool.account).map(|account| account.uid))
            }
            address => Party::Application(address.clone()),
        });
        pools.map(|pool| Party::User(pool.account.map(|account| account.uid))).chain(applications)
    }
}
