//! The fields that tell an application about the client: `X-Forwarded-*`, or `Forwarded` (RFC
//! 7239).

use std::net::IpAddr;

use http::HeaderName;
use sendoff_config::{ForwardedFields, ProxyFields};
use sendoff_http1::client::is_about_client;
use sendoff_message::request::{Endpoint, Request};
use sendoff_report::log_line::push_ip;

use crate::target::StrippedPrefix;

/// The description of the client for an application.
#[derive(Clone, Copy)]
pub(crate) struct AboutClient<'r> {
    pub(crate) request: &'r Request,
    /// The fields that the application gets.
    pub(crate) fields: ForwardedFields,
    /// The fields that trusted proxies write. Others come from clients.
    pub(crate) believed: &'r ProxyFields,
    pub(crate) stripped: StrippedPrefix,
}

#[cfg(test)]
impl<'r> AboutClient<'r> {
    /// Nothing is said about the client.
    pub(crate) fn none(request: &'r Request) -> Self {
        let (fields, stripped) = (ForwardedFields::Off, StrippedPrefix::default());
        Self { request, fields, believed: &ProxyFields::XForwarded, stripped }
    }
}

impl AboutClient<'_> {
    /// True if the field is replaced instead of passed on.
    pub(crate) fn replaces(self, name: &HeaderName) -> bool {
        self.fields != ForwardedFields::Off && is_about_client(name)
    }

    /// Writes the fields. A trusted proxy's list gets one more element; otherwise the list starts
    /// here.
    pub(crate) fn write(self, mut field: impl FnMut(&str, &[u8])) {
        let request = self.request;
        match self.fields {
            ForwardedFields::Off => {}
            ForwardedFields::XForwarded => {
                field("x-forwarded-for", &self.list("x-forwarded-for", &node));
                field("x-forwarded-proto", request.scheme.as_str().as_bytes());
                if let Some(host) = &request.host {
                    field("x-forwarded-host", host);
                }
                if let Some(port) = request.port {
                    field("x-forwarded-port", port.to_string().as_bytes());
                }
                let outer = self.received("x-forwarded-prefix").unwrap_or_default();
                let prefix = [&outer[..], self.stripped.encoded(request).as_bytes()].concat();
                if !prefix.is_empty() {
                    field("x-forwarded-prefix", &prefix);
                }
            }
            ForwardedFields::Forwarded => {
                let element = |endpoint: &_| element(request, endpoint);
                field("forwarded", &self.list("forwarded", &element));
            }
        }
    }

    /// The list of clients and proxies up to the peer that has connected to this server. Trusted
    /// proxies have begun it, in this field or in another one.
    fn list(self, name: &str, element: &dyn Fn(&Endpoint) -> String) -> Vec<u8> {
        let Request { peer: client, via, .. } = self.request;
        let Some(proxy) = via else { return element(client).into_bytes() };
        let earlier = match self.believed {
            believed if is_in(believed, name) => self.received(name),
            // Without a statement about the client, the proxy itself stands for it.
            _ if client == proxy => None,
            _ => Some(element(client).into_bytes()),
        };
        let last = element(proxy);
        earlier.map_or(last.clone().into_bytes(), |earlier| {
            [&earlier[..], b", ", last.as_bytes()].concat()
        })
    }

    /// The values of all fields of this name as one value; `None`: no trusted proxy has sent one.
    fn received(self, name: &str) -> Option<Vec<u8>> {
        if self.request.via.is_none() || !is_in(self.believed, name) {
            return None;
        }
        let values: Vec<_> =
            self.request.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        (!values.is_empty()).then(|| values.join(&b", "[..]))
    }
}

/// True if the field is one of those that trusted proxies write.
fn is_in(believed: &ProxyFields, name: &str) -> bool {
    match believed {
        ProxyFields::XForwarded => name != "forwarded",
        ProxyFields::Addresses { .. } => name == "x-forwarded-for",
        ProxyFields::Forwarded => name == "forwarded",
        ProxyFields::Single(_) | ProxyFields::None => false,
    }
}

fn node(endpoint: &Endpoint) -> String {
    let Some(ip) = endpoint.ip() else { return "unknown".to_owned() };
    let mut text = String::new();
    push_ip(&mut text, ip);
    text
}

fn element(request: &Request, endpoint: &Endpoint) -> String {
    let node = match endpoint.ip() {
        Some(IpAddr::V6(ip)) => format!("\"[{ip}]\""),
        _ => node(endpoint),
    };
    let proto = request.scheme.as_str();
    match &request.host {
        // Quoted, because a host may contain a colon, which a token cannot.
        Some(host) => {
            format!("for={node};proto={proto};host=\"{}\"", String::from_utf8_lossy(host))
        }
        None => format!("for={node};proto={proto}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    fn about(request: &Request, fields: ForwardedFields) -> AboutClient<'_> {
        AboutClient { fields, ..AboutClient::none(request) }
    }

    fn told(about: AboutClient<'_>) -> String {
        let mut all = Vec::new();
        about.write(|name: &str, value: &[u8]| {
            all.push(format!("{name}: {}", String::from_utf8_lossy(value)));
        });
        all.join("\n")
    }

    #[test]
    fn what_a_client_says_about_itself_is_replaced() {
        let mut request = request(Some("a.test:81"));
        request.headers.insert("x-forwarded-for", "6.6.6.6".parse().unwrap());
        request.headers.insert("forwarded", "for=6.6.6.6".parse().unwrap());
        assert_eq!(
            told(about(&request, ForwardedFields::XForwarded)),
            "x-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\nx-forwarded-host: a.test:81\nx-forwarded-port: 80"
        );
        assert_eq!(
            told(about(&request, ForwardedFields::Forwarded)),
            "forwarded: for=127.0.0.1;proto=http;host=\"a.test:81\""
        );
        assert_eq!(told(about(&request, ForwardedFields::Off)), "");
        let name = HeaderName::from_static("x-forwarded-for");
        assert!(about(&request, ForwardedFields::Forwarded).replaces(&name));
        assert!(!about(&request, ForwardedFields::Off).replaces(&name));
    }

    #[test]
    fn a_trusted_proxy_is_one_more_element() {
        let mut request = request(None);
        request.headers.append("x-forwarded-for", "192.0.2.7".parse().unwrap());
        request.headers.append("x-forwarded-for", "10.0.0.2".parse().unwrap());
        request.headers.append("forwarded", "for=192.0.2.7".parse().unwrap());
        request.via = Some(Endpoint::Ip("[2001:db8::1]:5".parse().unwrap()));
        let told = |how| {
            let believed = match how {
                ForwardedFields::Forwarded => &ProxyFields::Forwarded,
                _ => &ProxyFields::XForwarded,
            };
            told(AboutClient { believed, ..about(&request, how) })
        };
        assert!(
            told(ForwardedFields::XForwarded)
                .starts_with("x-forwarded-for: 192.0.2.7, 10.0.0.2, 2001:db8::1\n")
        );
        assert_eq!(
            told(ForwardedFields::Forwarded),
            "forwarded: for=192.0.2.7, for=\"[2001:db8::1]\";proto=http"
        );
    }

    /// A proxy that names the client in one field passes others on as the client has sent them.
    #[test]
    fn a_list_that_no_trusted_proxy_has_begun_is_not_believed() {
        let mut request = request(None);
        request.headers.insert("x-forwarded-for", "3.3.3.3".parse().unwrap());
        request.headers.insert("x-forwarded-prefix", "/evil".parse().unwrap());
        request.headers.insert("forwarded", "for=4.4.4.4".parse().unwrap());
        request.peer = Endpoint::Ip("192.0.2.9:0".parse().unwrap());
        request.via = Some(Endpoint::Ip("10.0.0.2:5".parse().unwrap()));
        let (own, single) = (ProxyFields::Forwarded, ProxyFields::Single("cf".to_owned()));
        let addresses = ProxyFields::Addresses { is_recursive: true };
        let x =
            AboutClient { believed: &addresses, ..about(&request, ForwardedFields::XForwarded) };
        assert_eq!(
            told(x),
            "x-forwarded-for: 3.3.3.3, 10.0.0.2\nx-forwarded-proto: http\nx-forwarded-port: 80"
        );
        for believed in [&own, &single] {
            let x = AboutClient { believed, ..about(&request, ForwardedFields::XForwarded) };
            assert_eq!(
                told(x),
                "x-forwarded-for: 192.0.2.9, 10.0.0.2\nx-forwarded-proto: http\nx-forwarded-port: 80"
            );
        }
        for believed in [&ProxyFields::XForwarded, &single] {
            let standard = AboutClient { believed, ..about(&request, ForwardedFields::Forwarded) };
            let expected = "forwarded: for=192.0.2.9;proto=http, for=10.0.0.2;proto=http";
            assert_eq!(told(standard), expected);
        }
        let standard =
            AboutClient { believed: &own, ..about(&request, ForwardedFields::Forwarded) };
        assert_eq!(told(standard), "forwarded: for=4.4.4.4, for=10.0.0.2;proto=http");
    }
}
