//! Applications that decide whether clients may make requests.

use sendoff_config::{
    Authorizer, FastCgiAuthorizer, ForwardedFields, GatewayProtocol, HttpAuthorizer, Proxy,
    ProxyAddress, ProxyTimeouts, ProxyUrls,
};
use sendoff_setting_values::{AppAddress, At, AuthorityUrl, FieldName, Place, ProxyScheme};

use super::proxy::{TlsKeys, number_of};
use super::route::Routes;
use crate::keys;

/// Request fields that the server itself obeys or writes, so that an answer cannot set them.
const NOT_COPIED: [&str; 13] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Routes<'_, '_> {
    pub(super) fn authorizer(&mut self, section: &keys::Authorize) -> Option<Authorizer> {
        match (&section.fastcgi, &section.url) {
            (Some(fastcgi), None) => self.fastcgi_authorizer(section, fastcgi),
            (None, Some(url)) => self.http_authorizer(section, url),
            (Some(_), Some(url)) => {
                self.context
                    .problems
                    .error(url.place, "a route asks one application, not fastcgi and url")
                    .help("write two routes: both are asked, in their order");
                None
            }
            (None, None) => {
                if !section.broken {
                    self.context.problems.error(section.place, "url or fastcgi is missing").help(
                        "name a web service, url = \"http://127.0.0.1:9091/verify\", or a FastCGI application, fastcgi = \"unix:/run/authorizer.sock\"",
                    );
                }
                None
            }
        }
    }

    fn fastcgi_authorizer(
        &mut self,
        section: &keys::Authorize,
        fastcgi: &At<AppAddress>,
    ) -> Option<Authorizer> {
        let given = |place: Place| Some(place).filter(|place| *place != Place::Default);
        for (key, place) in [
            ("copy_headers", section.copy_headers.as_ref().map(|at| at.place)),
            ("user", section.user.as_ref().map(|at| at.place)),
            ("host", given(section.host.place)),
            ("timeout", given(section.timeout.place)),
            ("tls_name", section.tls_name.as_ref().map(|at| at.place)),
            ("roots", section.roots.as_ref().map(|at| at.place)),
            ("verify", given(section.verify.place)),
        ] {
            if let Some(place) = place {
                self.context
                    .problems
                    .error(place, format!("{key} has a meaning only beside url"))
                    .help(match key {
                        "copy_headers" | "user" => {
                            "a FastCGI authorizer sets parameters by fields Variable-NAME"
                        }
                        "timeout" => "the site's fastcgi_timeout is the limit",
                        _ => "remove it",
                    });
            }
        }
        let At { value: AppAddress(address), place } = fastcgi;
        let application = self.attach(address, *place);
        let script = section.script.as_ref().map(|at| at.value.0.clone());
        Some(Authorizer::FastCgi(FastCgiAuthorizer { application, script }))
    }

    fn http_authorizer(
        &mut self,
        section: &keys::Authorize,
        url: &At<AuthorityUrl>,
    ) -> Option<Authorizer> {
        if let Some(script) = &section.script {
            let says = "script has a meaning only beside fastcgi";
            self.context.problems.error(script.place, says).help("remove script");
        }
        let AuthorityUrl { server, target } = &url.value;
        if let ProxyAddress::Upstream(name) = &server.address {
            self.pools.upstream(name, (&server.scheme).into(), url.place, self.context);
            self.context.upstream_has_host(&section.host);
        }
        let keys = TlsKeys {
            place: section.place,
            url: server,
            name: section.tls_name.as_ref(),
            roots: section.roots.as_ref(),
            verify: section.verify.value,
        };
        let is_tls = matches!(server.scheme, ProxyScheme::Https | ProxyScheme::H2s);
        let tls = self.context.upstream_tls(&keys, is_tls);
        let host = (&section.host.value).into();
        let protocol = match server.scheme {
            ProxyScheme::H2 | ProxyScheme::H2s => {
                GatewayProtocol::Http2 { host, tls, upgrade: false, grpc_web: false }
            }
            _ => GatewayProtocol::Http { host, tls, upgrade: false, bare_line_feeds: false },
        };
        let timeout = section.timeout.value.0;
        let proxy = Proxy {
            address: server.address.clone(),
            protocol,
            forwarded: ForwardedFields::XForwarded,
            proxy_protocol: false,
            timeouts: ProxyTimeouts {
                connect: timeout.min(ProxyTimeouts::default().connect),
                first_byte: timeout,
                silence: timeout,
                total: Some(timeout),
                ..ProxyTimeouts::default()
            },
            urls: ProxyUrls::default(),
        };
        let copied: Vec<_> = section.copy_headers.iter().flat_map(|list| &list.value.0).collect();
        let user = section.user.as_ref();
        for name in copied.iter().copied().chain(user) {
            self.may_be_copied(name);
        }
        Some(Authorizer::Http(HttpAuthorizer {
            proxy: number_of(proxy, &mut self.proxies),
            target: target.clone(),
            copy_headers: copied.iter().map(|name| name.value.0.to_ascii_lowercase()).collect(),
            user: user.map(|name| name.value.0.to_ascii_lowercase()),
            timeout,
        }))
    }

    /// Reports a field that an answer cannot set in requests.
    fn may_be_copied(&mut self, name: &At<FieldName>) {
        let At { value: FieldName(name), place } = name;
        if NOT_COPIED.contains(&&*name.to_ascii_lowercase()) {
            let says = format!("{name} is a field that the server writes itself");
            self.context.problems.error(*place, says).help("remove it from the list");
        } else if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            let says = format!("{name} has characters that no field of a request has here");
            self.context
                .problems
                .error(*place, says)
                .help("names consist of letters, digits and - (http.md)");
        }
    }
}
