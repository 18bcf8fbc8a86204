//! Which listeners there are, and which sites have them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sendoff_config::{ListenAddress, Listener, Site};

use super::context::Context;
use crate::place::{At, Place};
use crate::value::List;
use crate::words::{Listen, ListenPlace};

/// The listeners so far, and where each was first written.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<(Listener, Place)>);

impl Listeners {
    /// Adds addresses, unless they are there. Returns their numbers.
    pub(crate) fn add(&mut self, list: &List<Listen>, context: &mut Context<'_>) -> Vec<usize> {
        let mut numbers = Vec::new();
        for at in &list.0 {
            for address in addresses(at, context) {
                let number = self.number(address, at, context);
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
        }
        numbers
    }

    fn number(
        &mut self,
        address: ListenAddress,
        at: &At<Listen>,
        context: &mut Context<'_>,
    ) -> usize {
        let Listen { proxy_protocol, tls, .. } = at.value;
        // Port 0 is another free port each time.
        let is_any = matches!(&address, ListenAddress::Tcp(address) if address.port() == 0);
        let known = self.0.iter().position(|(known, _)| !is_any && known.address == address);
        let Some(number) = known else {
            self.0.push((Listener { address, proxy_protocol, tls }, at.place));
            return self.0.len() - 1;
        };
        let (known, place) = &self.0[number];
        if known.proxy_protocol != proxy_protocol {
            context
                .problems
                .error(at.place, "the same address is listed with proxy_protocol and without")
                .other(*place, "the other one")
                .help("an address has one or the other for all of its sites");
        }
        if known.tls != tls {
            context
                .problems
                .error(at.place, "the same address is listed with tls and without")
                .other(*place, "the other one")
                .help("clients either speak TLS at an address, or they do not");
        }
        number
    }

    /// The listener with this number.
    pub(crate) fn get(&self, number: usize) -> Option<&Listener> {
        self.0.get(number).map(|(listener, _)| listener)
    }

    /// The listeners that a site has, and the sites' numbers for them.
    pub(crate) fn used(self, sites: &mut [Site]) -> Vec<Listener> {
        let mut is_used = vec![false; self.0.len()];
        for number in sites.iter().flat_map(|site| &site.listeners) {
            is_used[*number] = true;
        }
        let mut numbers = Vec::with_capacity(is_used.len());
        let mut next = 0;
        for used in &is_used {
            numbers.push(next);
            next += usize::from(*used);
        }
        for number in sites.iter_mut().flat_map(|site| &mut site.listeners) {
            *number = numbers[*number];
        }
        let listeners = self.0.into_iter().zip(is_used);
        listeners.filter(|(_, used)| *used).map(|((listener, _), _)| listener).collect()
    }
}

fn addresses(at: &At<Listen>, context: &mut Context<'_>) -> Vec<ListenAddress> {
    let ipv6 = context.machine.has_ipv6();
    let both = |v4: Ipv4Addr, v6: Ipv6Addr, port| {
        let second = (ipv6 && port != 0).then_some(IpAddr::V6(v6));
        let ips = std::iter::once(IpAddr::V4(v4)).chain(second);
        ips.map(|ip| ListenAddress::Tcp(SocketAddr::new(ip, port))).collect()
    };
    match &at.value.place {
        ListenPlace::Unix(path) => vec![ListenAddress::Unix(path.clone())],
        ListenPlace::Ip(ip, port) => vec![ListenAddress::Tcp(SocketAddr::new(*ip, *port))],
        ListenPlace::Everywhere(port) => both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, *port),
        ListenPlace::Host(host, port) if host == "localhost" => {
            both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, *port)
        }
        ListenPlace::Host(host, port) => match context.machine.addresses(host) {
            Ok(ips) => {
                ips.into_iter().map(|ip| ListenAddress::Tcp(SocketAddr::new(ip, *port))).collect()
            }
            Err(error) => {
                let says = format!("{host} has no address: {error}");
                context.problems.error(at.place, says).help(
                    "listen wants an address of this machine; the names of sites go into hosts",
                );
                Vec::new()
            }
        },
    }
}
