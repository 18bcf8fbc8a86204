//! Traces of requests.

use std::time::Duration;

use sendoff_config::{
    ForwardedFields, GatewayProtocol, Proxy, ProxyHost, ProxyTimeouts, ProxyUrls, Traces,
};
use sendoff_setting_values::At;

use super::context::Context;
use super::proxy::TlsKeys;
use crate::keys::{self, Top};

/// Time limit of a request to the collector.
const LIMIT: Duration = Duration::from_secs(10);

/// Fields that the server writes itself in requests to the collector.
const OWN_FIELDS: [&str; 5] =
    ["connection", "content-length", "content-type", "host", "transfer-encoding"];

impl Context<'_> {
    /// The traces that the configuration asks for.
    pub(crate) fn traces(&mut self, top: &Top) -> Option<Traces> {
        let section = &top.traces.as_ref()?.value.0;
        let Some(At { value: endpoint, .. }) = &section.endpoint else {
            if !section.broken {
                self.problems.error(section.place, "endpoint is missing").help(
                    "endpoint is the URL of the collector: endpoint = \"http://127.0.0.1:4318/v1/traces\"",
                );
            }
            return None;
        };
        let is_tls = endpoint.is_tls();
        if let Some(roots) = section.roots.as_ref().filter(|_| !is_tls) {
            let says = "roots has a meaning only with https://";
            self.problems.error(roots.place, says).help("remove roots");
        }
        let keys = TlsKeys {
            place: section.place,
            url: &endpoint.server,
            name: None,
            roots: section.roots.as_ref(),
            verify: true,
        };
        let collector = Proxy {
            address: endpoint.server.address.clone(),
            protocol: GatewayProtocol::Http {
                host: ProxyHost::Upstream,
                tls: self.upstream_tls(&keys, is_tls),
                upgrade: false,
                bare_line_feeds: false,
            },
            forwarded: ForwardedFields::Off,
            proxy_protocol: false,
            timeouts: ProxyTimeouts {
                first_byte: LIMIT,
                silence: LIMIT,
                total: Some(LIMIT),
                ..ProxyTimeouts::default()
            },
            urls: ProxyUrls::default(),
        };
        Some(Traces {
            collector,
            target: endpoint.target.clone(),
            headers: self.collector_headers(section),
            per_million: section.sample.value.0,
            most_per_second: u32::try_from(section.limit.value.0).unwrap_or(u32::MAX),
            service_name: section.service_name.value.0.clone(),
        })
    }

    fn collector_headers(&mut self, section: &keys::Traces) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for (name, value) in section.headers.iter().flat_map(|map| &map.value.0) {
            let At { value: name, place } = name;
            if OWN_FIELDS.contains(&&*name.0.to_ascii_lowercase()) {
                let says = format!("{} is a field that the server writes itself", name.0);
                self.problems.error(*place, says).help("remove it");
            }
            all.push((name.0.clone(), value.value.0.clone()));
        }
        all
    }
}
