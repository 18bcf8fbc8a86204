//! The upstreams in `sendoff status`.

use std::sync::Arc;

use sendoff_report::status::{HostStatus, UpstreamStatus};
use sendoff_upstream::hosts::Hosts;
use sendoff_upstream_fastcgi::application::Application;
use sendoff_upstream_fastcgi::attached::Attached;
use sendoff_upstream_gateway::{Gateway, GatewayHost};

/// The status of each upstream that sites use, once: if several applications share an upstream, its
/// hosts show the requests of all of them.
pub fn upstreams_status(
    attached: &[Vec<Attached>],
    gateways: &[Vec<Arc<Gateway>>],
) -> Vec<UpstreamStatus> {
    let mut all: Vec<UpstreamStatus> = Vec::new();
    for hosts in unique(attached).into_iter().filter(|hosts| !hosts.name().is_empty()) {
        let requests = |application: &Application| application.load().requests;
        add(&mut all, hosts.name(), hosts_status(hosts, requests));
    }
    for gateway in unique(gateways).into_iter().filter(|gateway| gateway.upstream().is_some()) {
        let hosts = gateway.hosts();
        add(&mut all, hosts.name(), hosts_status(hosts, GatewayHost::requests));
    }
    all
}

fn unique<T>(of_sites: &[Vec<Arc<T>>]) -> Vec<&Arc<T>> {
    let mut all: Vec<&Arc<T>> = Vec::new();
    for one in of_sites.iter().flatten() {
        if !all.iter().any(|known| Arc::ptr_eq(known, one)) {
            all.push(one);
        }
    }
    all
}

fn hosts_status<T>(hosts: &Hosts<T>, requests: impl Fn(&T) -> u64) -> Vec<HostStatus> {
    let states = hosts.states().into_iter().map(|(state, host)| HostStatus {
        address: state.member.key.to_string(),
        weight: state.member.weight,
        rank: state.member.rank,
        busy: state.in_flight,
        requests: requests(&host),
        failures: state.failures,
        down_for: state.down_for.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        awaits_check: state.awaits_check,
        why: state.why,
    });
    states.collect()
}

fn add(all: &mut Vec<UpstreamStatus>, name: &str, hosts: Vec<HostStatus>) {
    let Some(known) = all.iter_mut().find(|known| known.name == name) else {
        all.push(UpstreamStatus { name: name.to_owned(), hosts });
        return;
    };
    for host in hosts {
        match known.hosts.iter_mut().find(|known| known.address == host.address) {
            Some(known) => {
                known.busy += host.busy;
                known.requests += host.requests;
                known.failures = known.failures.max(host.failures);
                // A host that is down for one of the applications counts as down.
                known.down_for = known.down_for.max(host.down_for);
                known.awaits_check |= host.awaits_check;
                if known.why.is_empty() {
                    known.why = host.why;
                }
            }
            None => known.hosts.push(host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_on_one_upstream_are_shown_together() {
        let host = |address: &str, busy, down_for| HostStatus {
            address: address.to_owned(),
            weight: 1,
            rank: 0,
            busy,
            requests: 3,
            failures: 0,
            down_for,
            awaits_check: false,
            why: String::new(),
        };
        let mut all = Vec::new();
        add(&mut all, "shop", vec![host("a:1", 1, None)]);
        add(&mut all, "shop", vec![host("a:1", 2, Some(5)), host("b:1", 0, None)]);
        add(&mut all, "blog", vec![]);
        assert_eq!((all.len(), all[0].hosts.len()), (2, 2));
        let HostStatus { busy, requests, down_for, .. } = all[0].hosts[0];
        assert_eq!((busy, requests, down_for), (3, 6, Some(5)));
    }
}
