//! The addresses of an upstream's hosts: names are resolved before the first request, and again
//! when the answer expires.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::lookup::Lookup;
use hickory_resolver::proto::rr::RData;
use sendoff_config::{Address, UpstreamAddress, UpstreamHost};

use super::choice::Member;
use super::group::Hosts;

#[cfg(test)]
mod tests;

/// The shortest and the longest time for which an answer is used, regardless of its TTL: name
/// servers are not asked in a tight loop, and changes of `/etc/hosts`, which has no TTL, are
/// noticed.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The time until the next attempt after a failed look-up.
const AGAIN: Duration = Duration::from_secs(5);

/// The most addresses of one name that are used: the first ones.
const MAX_ADDRESSES: usize = 64;

/// The result of a look-up, and the time for which it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LookupResult {
    members: Vec<Member<Address>>,
    holds: Duration,
}

/// Resolves the names of an upstream, forever, or once if there are no names. Results stay in use
/// until a look-up succeeds again: a name server that does not answer costs no host.
pub(crate) async fn keep_resolved<T>(hosts: Arc<Hosts<T>>, of: Vec<UpstreamHost>) {
    keep(&hosts, &of, look_up).await;
}

async fn keep<T, F: Future<Output = Result<LookupResult, String>>>(
    hosts: &Hosts<T>,
    of: &[UpstreamHost],
    look_up: impl Fn(UpstreamHost) -> F,
) {
    let mut known: Vec<Option<Vec<Member<Address>>>> = vec![None; of.len()];
    let mut failures: Vec<String> = vec![String::new(); of.len()];
    loop {
        let mut holds = LONGEST;
        for (at, host) in of.iter().enumerate() {
            match look_up(host.clone()).await {
                Ok(found) => {
                    holds = holds.min(found.holds);
                    failures[at].clear();
                    let before = known[at].replace(found.members);
                    // At once, because the look-up of the next name may take long.
                    if before != known[at] {
                        hosts.set(&known.iter().flatten().flatten().cloned().collect::<Vec<_>>());
                    }
                }
                Err(why) => {
                    holds = holds.min(AGAIN);
                    // Logged once per reason instead of every few seconds.
                    if failures[at] != why {
                        tracing::warn!(upstream = hosts.name(), "{why}");
                        failures[at] = why;
                    }
                }
            }
        }
        if known.iter().all(Option::is_none) {
            hosts.set_unknown(format!("it has no host: {}", failures.join("; ")));
        }
        if of.iter().all(is_literal) {
            return;
        }
        tokio::time::sleep(holds.max(SHORTEST)).await;
    }
}

/// True if the address needs no look-up.
fn is_literal(host: &UpstreamHost) -> bool {
    match &host.address {
        UpstreamAddress::At(Address::Tcp(host_port)) => host_port.parse::<SocketAddr>().is_ok(),
        UpstreamAddress::At(Address::Unix(_) | Address::Pool(_) | Address::Upstream(_)) => true,
        UpstreamAddress::Service(_) => false,
    }
}

async fn look_up(host: UpstreamHost) -> Result<LookupResult, String> {
    let name = match &host.address {
        _ if is_literal(&host) => String::new(),
        UpstreamAddress::At(address) => address.to_string(),
        UpstreamAddress::Service(name) => name.clone(),
    };
    let failed = |why: String| format!("{name} cannot be looked up: {why}");
    let UpstreamHost { weight, rank, .. } = host;
    let member = |key| Member { key, weight, rank };
    match host.address {
        UpstreamAddress::Service(service) => {
            service_hosts(&resolver().map_err(failed)?, &service, rank).await.map_err(failed)
        }
        UpstreamAddress::At(Address::Tcp(host_port))
            if host_port.parse::<SocketAddr>().is_err() =>
        {
            let (host, port) = host_port.rsplit_once(':').unwrap_or((&host_port, ""));
            let port = port.parse().map_err(|_| failed("it has no port".to_owned()))?;
            let (addresses, holds) = addresses(host).await.map_err(failed)?;
            let members = addresses.into_iter().map(|ip| member(at(ip, port))).collect();
            Ok(LookupResult { members, holds })
        }
        UpstreamAddress::At(address) => {
            Ok(LookupResult { members: vec![member(address)], holds: LONGEST })
        }
    }
}

/// The addresses of a host, from `/etc/hosts` or the name servers in `/etc/resolv.conf`. Both files
/// are read each time.
async fn addresses(host: &str) -> Result<(Vec<IpAddr>, Duration), String> {
    match resolver() {
        Ok(resolver) => ip_addresses(&resolver, host).await,
        // No name server is configured: the C library's resolver may know other sources
        // (nsswitch.conf).
        Err(_) => {
            let found = tokio::net::lookup_host((host, 0)).await.map_err(|why| why.to_string())?;
            let mut addresses: Vec<_> = found.map(|address| address.ip()).collect();
            addresses.dedup();
            Ok((addresses, LONGEST))
        }
    }
}

fn resolver() -> Result<TokioResolver, String> {
    let mut builder = TokioResolver::builder_tokio().map_err(|why| why.to_string())?;
    builder.options_mut().ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    builder.build().map_err(|why| why.to_string())
}

async fn ip_addresses(
    resolver: &TokioResolver,
    host: &str,
) -> Result<(Vec<IpAddr>, Duration), String> {
    let found = resolver.lookup_ip(host).await.map_err(|why| why.to_string())?;
    let addresses: Vec<_> = found.iter().take(MAX_ADDRESSES).collect();
    if addresses.is_empty() {
        return Err("it has no address".to_owned());
    }
    Ok((addresses, found.valid_until().saturating_duration_since(Instant::now())))
}

/// The hosts of a service (RFC 2782). Priorities become ranks above `rank`.
async fn service_hosts(
    resolver: &TokioResolver,
    service: &str,
    rank: u16,
) -> Result<LookupResult, String> {
    let found = resolver.srv_lookup(service).await.map_err(|why| why.to_string())?;
    let mut holds = valid_for(&found);
    let (mut members, mut failure) = (Vec::new(), "it names no host".to_owned());
    for record in found.answers().iter().take(MAX_ADDRESSES) {
        let RData::SRV(srv) = &record.data else { continue };
        // The target "." means that the service does not exist.
        if srv.target.is_root() {
            continue;
        }
        match ip_addresses(resolver, &srv.target.to_ascii()).await {
            Ok((addresses, valid)) => {
                holds = holds.min(valid);
                let (weight, rank) = (srv.weight.max(1).into(), rank.saturating_add(srv.priority));
                let member = |ip| Member { key: at(ip, srv.port), weight, rank };
                members.extend(addresses.into_iter().map(member));
            }
            Err(why) => failure = format!("{}: {why}", srv.target),
        }
    }
    if members.is_empty() { Err(failure) } else { Ok(LookupResult { members, holds }) }
}

fn valid_for(found: &Lookup) -> Duration {
    found.valid_until().saturating_duration_since(Instant::now())
}

fn at(ip: IpAddr, port: u16) -> Address {
    Address::Tcp(SocketAddr::new(ip, port).to_string())
}
