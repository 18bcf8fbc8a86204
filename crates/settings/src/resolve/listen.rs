//! The listeners, and the sites on each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sendoff_config::{ListenAddress, Listener, Site, SocketAccess};
use sendoff_setting_values::{At, List, Listen, ListenPlace, Place};

use super::context::Context;
use crate::keys;

/// The port of `https://` without a port.
const HTTPS_PORT: u16 = 443;

/// The listeners so far, each with the place at which it was first written.
#[derive(Debug, Default)]
pub(crate) struct ListenersSoFar(Vec<(Listener, Place)>);

impl ListenersSoFar {
    /// Adds addresses that are new. Returns the numbers of all.
    pub(crate) fn add(&mut self, list: &List<Listen>, context: &mut Context<'_>) -> Vec<usize> {
        let mut numbers = Vec::new();
        for at in &list.0 {
            self.check_https_port(at, context);
            check_h3(at, context);
            for address in addresses(at, context) {
                let quic = match &address {
                    ListenAddress::Tcp(address) if at.value.h3 => Some(*address),
                    _ => None,
                };
                let (count, known) = (self.0.len(), self.has_quic(&address));
                let number = self.number(address, at, context);
                if number < count && known != at.value.h3 {
                    self.h3_differs(number, at, context);
                }
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
                // Behind the address of TCP, whose port it shares.
                if let Some(address) = quic {
                    let number = self.number(ListenAddress::Quic(address), at, context);
                    if !numbers.contains(&number) {
                        numbers.push(number);
                    }
                }
            }
        }
        numbers
    }

    /// The address of a listener.
    pub(crate) fn address(&self, number: usize) -> &ListenAddress {
        &self.0[number].0.address
    }

    /// True if clients speak HTTP/3 at an address of TCP.
    fn has_quic(&self, address: &ListenAddress) -> bool {
        let ListenAddress::Tcp(address) = address else { return false };
        self.0.iter().any(|(known, _)| known.address == ListenAddress::Quic(*address))
    }

    fn h3_differs(&self, number: usize, at: &At<Listen>, context: &mut Context<'_>) {
        let place = self.0[number].1;
        context
            .problems
            .error(at.place, "the same address is listed with h3 and without")
            .other(place, "the other one")
            .help("a client may ask for every site of an address over one connection of HTTP/3");
    }

    /// Warns of an address without `tls` on the port at which browsers begin with TLS.
    fn check_https_port(&self, at: &At<Listen>, context: &mut Context<'_>) {
        let port = match at.value.place {
            ListenPlace::Everywhere(port)
            | ListenPlace::Host(_, port)
            | ListenPlace::Ip(_, port) => port,
            ListenPlace::Unix(_) => return,
        };
        if port == HTTPS_PORT && !at.value.tls && self.0.iter().all(|(_, place)| *place != at.place)
        {
            context
                .problems
                .warning(at.place, "browsers speak TLS on port 443, and this address does not")
                .help("write \"443 tls\"; tls of the site names its certificate");
        }
    }

    fn number(
        &mut self,
        address: ListenAddress,
        at: &At<Listen>,
        context: &mut Context<'_>,
    ) -> usize {
        let Listen { proxy_protocol, tls, .. } = at.value;
        let access = access(at, context);
        // Port 0 stands for another free port each time.
        let is_any = matches!(&address, ListenAddress::Tcp(address) | ListenAddress::Quic(address) if address.port() == 0);
        let known = self.0.iter().position(|(known, _)| !is_any && known.address == address);
        let Some(number) = known else {
            self.0.push((Listener { address, proxy_protocol, tls, access }, at.place));
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
        if known.access != access {
            context
                .problems
                .error(at.place, "the same socket has two different modes, owners or groups")
                .other(*place, "the other one")
                .help("write the same words behind the address for all of its sites");
        }
        number
    }

    /// The listener with this number.
    pub(crate) fn get(&self, number: usize) -> Option<&Listener> {
        self.0.get(number).map(|(listener, _)| listener)
    }

    /// True if the listener with this number is one for HTTP/3.
    pub(crate) fn is_quic(&self, number: usize) -> bool {
        self.get(number).is_some_and(|one| matches!(one.address, ListenAddress::Quic(_)))
    }

    /// The place at which the listener with this number was first written.
    fn place(&self, number: usize) -> Option<Place> {
        self.0.get(number).map(|(_, place)| *place)
    }

    /// The listeners that sites use; the sites' numbers are changed accordingly.
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

/// HTTP/3 is always encrypted, and its clients send no PROXY protocol header.
fn check_h3(at: &At<Listen>, context: &mut Context<'_>) {
    let Listen { h3, tls, proxy_protocol, .. } = at.value;
    if h3 && !tls {
        context
            .problems
            .error(at.place, "h3 needs tls: HTTP/3 is always encrypted")
            .help("write \"443 tls h3\"");
    }
    if h3 && proxy_protocol {
        let says =
            "h3 and proxy_protocol exclude each other: proxies speak HTTP/1.1 to this server";
        context.problems.error(at.place, says).help("remove one of the two words");
    }
}

impl Context<'_> {
    /// Warns of addresses before the first section that no site uses. `shared`: their numbers.
    pub(super) fn addresses_are_used(
        &mut self,
        top: &keys::Top,
        shared: &[usize],
        all: &ListenersSoFar,
        sites: &[Site],
    ) {
        let is_broken = top.broken || top.site.value.0.iter().any(|section| section.broken);
        // The addresses of sites that cannot be resolved are unknown.
        if is_broken || self.problems.errors() > 0 {
            return;
        }
        let mut said = Vec::new();
        for number in shared {
            let is_used = sites.iter().any(|site| site.listeners.contains(number));
            let (Some(listener), Some(place)) = (all.get(*number), all.place(*number)) else {
                continue;
            };
            // One address may stand for an IPv4 and an IPv6 listener.
            if is_used || place == Place::Default || said.contains(&place) {
                continue;
            }
            said.push(place);
            if listener.tls {
                self.problems
                    .error(place, "clients speak TLS at this address, and no site has a certificate")
                    .help("tls of [[site]] names one: tls = \"auto\", or tls = { certificate = \"fullchain.pem\", key = \"privkey.pem\" }; tls = \"self-signed\" is enough for a try");
            } else {
                self.problems
                    .warning(place, "the server does not listen on this address: every site has addresses of its own")
                    .help("remove it, or remove listen of a site");
            }
        }
    }
}

/// The permissions, owner and group of a UNIX socket.
fn access(at: &At<Listen>, context: &mut Context<'_>) -> SocketAccess {
    let sendoff_setting_values::SocketAccess { mode, owner, group } = &at.value.access;
    let usual = SocketAccess::default();
    let mut number = |name: &Option<String>, kind: &str, number: Option<u32>| {
        if let (Some(name), None) = (name, number) {
            context.problems.error(at.place, format!("there is no {kind} {name}"));
        }
        number
    };
    let machine = context.machine;
    let user = owner.as_ref().and_then(|name| machine.user(name));
    let of_group = group.as_ref().and_then(|name| machine.group(name));
    SocketAccess {
        mode: mode.unwrap_or(usual.mode),
        owner: number(owner, "user", user),
        group: number(group, "group", of_group),
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
