//! No two sites answer for the same host on the same listener.

use std::collections::HashMap;

use sendoff_setting_values::{HostName, Place, Word};

use super::context::Context;
use crate::keys::Site;

/// The hosts that sites have, by listener; "" is every other host.
#[derive(Debug, Default)]
pub(crate) struct Taken(HashMap<(usize, String), Place>);

impl Taken {
    /// Adds the hosts of a site; reports hosts that another site has taken.
    pub(crate) fn take(&mut self, site: &Site, listeners: &[usize], context: &mut Context<'_>) {
        let none = vec![(String::new(), site.place)];
        let hosts = site.hosts.as_ref().map_or(none, |hosts| {
            hosts.value.0.iter().map(|at| (HostName::text(&at.value), at.place)).collect()
        });
        for (host, place) in hosts {
            let double = listeners.iter().find_map(|listener| {
                self.0.insert((*listener, host.clone()), place).filter(|first| *first != place)
            });
            let Some(first) = double else { continue };
            if host.is_empty() {
                context
                    .problems
                    .error(place, "two sites without hosts have the same address")
                    .label("this site would never answer")
                    .other(first, "the other one")
                    .help("give one of them hosts, or another listen");
            } else {
                context
                    .problems
                    .error(place, format!("two sites answer for {host} at the same address"))
                    .label("this one would never answer")
                    .other(first, "the other one")
                    .help("remove one, or give the sites different addresses with listen");
            }
        }
    }
}
