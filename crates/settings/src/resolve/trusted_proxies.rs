//! The proxies whose word about clients counts.

use sendoff_config::{ProxyFields, TrustedProxies};
use sendoff_setting_values::ProxyField;

use super::context::Context;
use crate::keys::Top;

impl Context<'_> {
    pub(crate) fn trusted_proxies(&mut self, top: &Top) -> TrustedProxies {
        let networks = || top.trusted_proxies.iter().flat_map(|list| &list.value.0);
        for network in networks() {
            if network.value.0.prefix == 0 {
                self.problems
                    .warning(network.place, "every client is trusted to say who it is")
                    .help("name only the networks of your proxies");
            }
        }
        TrustedProxies {
            networks: networks().map(|network| network.value.0).collect(),
            unix: top.trust_unix.value,
            fields: match &top.proxy_field.value {
                ProxyField::XForwardedFor => ProxyFields::XForwarded,
                ProxyField::AddressesAlone => ProxyFields::Addresses { is_recursive: true },
                ProxyField::LastAddressAlone => ProxyFields::Addresses { is_recursive: false },
                ProxyField::Forwarded => ProxyFields::Forwarded,
                ProxyField::None => ProxyFields::None,
                ProxyField::Single(name) => ProxyFields::Single(name.0.to_ascii_lowercase()),
            },
        }
    }
}
