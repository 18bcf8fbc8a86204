//! Applications that routes pass requests on to over HTTP, SCGI, uwsgi or AJP.

use std::cmp::Reverse;

use sendoff_config::{
    GatewayProtocol, Handler, Proxy, ProxyAddress, ProxyTimeouts, ProxyTls, ProxyUrls,
};
use sendoff_setting_values::{
    At, FilePath, HostText, Map, Place, ProxyHost, ProxyScheme, ProxyUrl,
};

use super::context::{Context, unusable};
use crate::keys;

/// The schemes of applications that speak HTTP.
const WITH_HTTP: &str = "http://, https://, h2:// and h2s://";

/// The keys about TLS to an application.
pub(crate) struct TlsKeys<'k> {
    /// The section.
    pub(crate) place: Place,
    pub(crate) url: &'k ProxyUrl,
    pub(crate) name: Option<&'k At<HostText>>,
    pub(crate) roots: Option<&'k At<FilePath>>,
    pub(crate) verify: bool,
}

impl keys::Proxy {
    fn tls<'k>(&'k self, url: &'k ProxyUrl) -> TlsKeys<'k> {
        TlsKeys {
            place: self.place,
            url,
            name: self.tls_name.as_ref(),
            roots: self.roots.as_ref(),
            verify: self.verify.value,
        }
    }

    fn urls(&self) -> ProxyUrls {
        let redirects = self.redirects.as_ref();
        let paths = self.cookie_paths.as_ref();
        let domains = self.cookie_domains.iter().flat_map(|at| &at.value.0);
        ProxyUrls {
            strip_prefix: self.strip_prefix.value,
            redirects: redirects.map(|at| longest_first(&at.value, |url| &url.0, |url| &url.0)),
            cookie_paths: paths.map(|at| longest_first(&at.value, |path| &path.0, |path| &path.0)),
            cookie_domains: domains
                .map(|(old, new)| (old.value.0.clone(), new.value.0.clone()))
                .collect(),
        }
    }
}

/// Beginnings of texts with their replacements.
fn longest_first<K, V>(
    map: &Map<K, V>,
    key: impl Fn(&K) -> &String,
    value: impl Fn(&V) -> &String,
) -> Vec<(String, String)> {
    let pairs = map.0.iter();
    let mut pairs: Vec<_> =
        pairs.map(|(old, new)| (key(&old.value).clone(), value(&new.value).clone())).collect();
    pairs.sort_by_key(|(old, _)| Reverse(old.len()));
    pairs
}

/// The number of an application in the list of its site. A new application is added.
pub(crate) fn number_of(proxy: Proxy, proxies: &mut Vec<Proxy>) -> usize {
    let known = proxies.iter().position(|known| *known == proxy);
    known.unwrap_or_else(|| {
        proxies.push(proxy);
        proxies.len() - 1
    })
}

impl Context<'_> {
    /// The handler of a route that passes requests on. The application is added to `proxies` if it
    /// is new.
    pub(crate) fn proxy(
        &mut self,
        section: &keys::Proxy,
        proxies: &mut Vec<Proxy>,
    ) -> Option<Handler> {
        let Some(At { value: url, .. }) = &section.to else {
            if !section.broken {
                self.problems
                    .error(section.place, "to is missing")
                    .help("to is the URL of the application: to = \"http://127.0.0.1:8080\"");
            }
            return None;
        };
        self.keys_fit(section, url.scheme);
        let is_upstream = matches!(url.address, ProxyAddress::Upstream(_));
        if is_upstream {
            self.upstream_has_host(&section.host);
        }
        let timeout = section.timeout.value.0;
        let proxy = Proxy {
            address: url.address.clone(),
            protocol: self.protocol(section, url),
            forwarded: section.forwarded.value.into(),
            proxy_protocol: section.proxy_protocol.value,
            timeouts: ProxyTimeouts {
                connect: section.connect_timeout.value.0,
                first_byte: section.first_byte_timeout.as_ref().map_or(timeout, |at| at.value.0),
                silence: timeout,
                total: section.total_timeout.as_ref().map(|at| at.value.0),
                tunnel: section.tunnel_timeout.value.0,
            },
            urls: section.urls(),
        };
        Some(Handler::Proxy { proxy: number_of(proxy, proxies) })
    }

    /// Reports a host of requests to an upstream that is not a name.
    pub(crate) fn upstream_has_host(&mut self, host: &At<ProxyHost>) {
        if host.value == ProxyHost::Upstream {
            self.problems
                .error(host.place, "an upstream has several hosts, so requests need a name for it")
                .help("write the name that the applications expect: host = \"shop.internal\"");
        }
    }

    fn protocol(&mut self, section: &keys::Proxy, url: &ProxyUrl) -> GatewayProtocol {
        match url.scheme {
            ProxyScheme::Scgi => GatewayProtocol::Scgi,
            ProxyScheme::Uwsgi => GatewayProtocol::Uwsgi,
            ProxyScheme::Ajp => GatewayProtocol::Ajp {
                secret: section.secret.as_ref().map(|secret| secret.value.0.clone()),
                packet_size: usize::try_from(section.packet_size.value.0).unwrap_or(usize::MAX),
            },
            ProxyScheme::Http | ProxyScheme::Https => GatewayProtocol::Http {
                host: (&section.host.value).into(),
                tls: self.upstream_tls(&section.tls(url), url.scheme == ProxyScheme::Https),
                upgrade: section.upgrade.value,
                bare_line_feeds: section.bare_line_feeds.value,
            },
            ProxyScheme::H2 | ProxyScheme::H2s => GatewayProtocol::Http2 {
                host: (&section.host.value).into(),
                tls: self.upstream_tls(&section.tls(url), url.scheme == ProxyScheme::H2s),
                upgrade: section.upgrade.value,
                grpc_web: section.grpc_web.value,
            },
        }
    }

    /// TLS to an application; `None` if its URL says that there is none.
    pub(crate) fn upstream_tls(&mut self, keys: &TlsKeys<'_>, is_tls: bool) -> Option<ProxyTls> {
        if !is_tls {
            return None;
        }
        let url = keys.url;
        let named = keys.name.map(|name| &*name.value.0);
        if named.or(url.host()).is_none() {
            let what = match &url.address {
                ProxyAddress::Upstream(_) => "an upstream",
                ProxyAddress::Unix(_) | ProxyAddress::Tcp(_) => "a socket",
            };
            self.problems
                .error(keys.place, format!("{what} has no name that a certificate could have"))
                .help("tls_name is the name that the certificate of the application has");
        }
        if let Some(At { value: path, place }) = keys.roots
            && let Err(error) = self.machine.read(&path.0)
        {
            self.problems.error(*place, unusable(&path.0, &error));
        }
        Some(ProxyTls {
            server_name: named.or(url.host()).unwrap_or_default().to_owned(),
            roots: keys.roots.map(|path| path.value.0.clone()),
            verify: keys.verify,
        })
    }

    /// Reports keys that have a meaning only for another protocol.
    fn keys_fit(&mut self, section: &keys::Proxy, scheme: ProxyScheme) {
        let is_http1 = matches!(scheme, ProxyScheme::Http | ProxyScheme::Https);
        let is_http2 = matches!(scheme, ProxyScheme::H2 | ProxyScheme::H2s);
        let given = |place: Place| Some(place).filter(|place| *place != Place::Default);
        let has_tls = matches!(scheme, ProxyScheme::Https | ProxyScheme::H2s);
        let of_ajp = scheme == ProxyScheme::Ajp;
        for (key, place, fits, where_) in [
            ("host", given(section.host.place), is_http1 || is_http2, WITH_HTTP),
            (
                "strip_prefix",
                given(section.strip_prefix.place),
                is_http1 || is_http2,
                "http://, https://, h2:// and h2s://: the other protocols name the prefix in SCRIPT_NAME, or not at all",
            ),
            ("upgrade", given(section.upgrade.place), is_http1 || is_http2, WITH_HTTP),
            ("grpc_web", given(section.grpc_web.place), is_http2, "h2:// and h2s://"),
            (
                "bare_line_feeds",
                given(section.bare_line_feeds.place),
                is_http1,
                "http:// and https://",
            ),
            (
                "tunnel_timeout",
                given(section.tunnel_timeout.place),
                is_http1 || is_http2,
                WITH_HTTP,
            ),
            (
                "tls_name",
                section.tls_name.as_ref().map(|at| at.place),
                has_tls,
                "https:// and h2s://",
            ),
            ("roots", section.roots.as_ref().map(|at| at.place), has_tls, "https:// and h2s://"),
            ("verify", given(section.verify.place), has_tls, "https:// and h2s://"),
            (
                "proxy_protocol",
                given(section.proxy_protocol.place),
                !is_http2,
                "other protocols: connections of HTTP/2 serve many clients",
            ),
            (
                "redirects",
                section.redirects.as_ref().map(|at| at.place),
                is_http1 || is_http2,
                WITH_HTTP,
            ),
            (
                "cookie_paths",
                section.cookie_paths.as_ref().map(|at| at.place),
                is_http1 || is_http2,
                WITH_HTTP,
            ),
            (
                "cookie_domains",
                section.cookie_domains.as_ref().map(|at| at.place),
                is_http1 || is_http2,
                WITH_HTTP,
            ),
            ("secret", section.secret.as_ref().map(|at| at.place), of_ajp, "ajp://"),
            ("packet_size", given(section.packet_size.place), of_ajp, "ajp://"),
        ] {
            if let Some(place) = place.filter(|_| !fits) {
                self.problems
                    .error(place, format!("{key} has a meaning only with {where_}"))
                    .help(format!("remove {key}"));
            }
        }
    }
}
