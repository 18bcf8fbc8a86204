//! The fields that tell an application about the client: `X-Forwarded-*`, or `Forwarded` (RFC
//! 7239).

use std::net::IpAddr;

use http::HeaderName;
use sendoff_config::ForwardedFields;
use sendoff_http1::client::is_about_client;
use sendoff_message::request::{Endpoint, Request};
use sendoff_report::log_line::push_ip;

use crate::target::StrippedPrefix;

/// True if the field is replaced instead of passed on.
pub(crate) fn replaces(fields: ForwardedFields, name: &HeaderName) -> bool {
    fields != ForwardedFields::Off && is_about_client(name)
}

/// Writes the fields about the client. A trusted proxy's field gets one more element; without a
/// trusted proxy the field starts here.
pub(crate) fn fields(
    fields: ForwardedFields,
    request: &Request,
    stripped: StrippedPrefix,
    mut field: impl FnMut(&str, &[u8]),
) {
    match fields {
        ForwardedFields::Off => {}
        ForwardedFields::XForwarded => {
            let earlier = chain(request, "x-forwarded-for");
            let nearest = node(nearest(request));
            let all = earlier.map(|chain| [&chain[..], b", ", nearest.as_bytes()].concat());
            field("x-forwarded-for", all.as_deref().unwrap_or(nearest.as_bytes()));
            field("x-forwarded-proto", request.scheme.as_str().as_bytes());
            if let Some(host) = &request.host {
                field("x-forwarded-host", host);
            }
            if let Some(port) = request.port {
                field("x-forwarded-port", port.to_string().as_bytes());
            }
            let outer = chain(request, "x-forwarded-prefix").unwrap_or_default();
            let prefix = [&outer[..], stripped.encoded(request).as_bytes()].concat();
            if !prefix.is_empty() {
                field("x-forwarded-prefix", &prefix);
            }
        }
        ForwardedFields::Forwarded => {
            let chain = chain(request, "forwarded");
            let element = element(request);
            let all = chain.map(|chain| [&chain[..], b", ", element.as_bytes()].concat());
            field("forwarded", all.as_deref().unwrap_or(element.as_bytes()));
        }
    }
}

/// The peer that has connected to this server: the trusted proxy if there is one, else the client.
fn nearest(request: &Request) -> &Endpoint {
    request.via.as_ref().unwrap_or(&request.peer)
}

fn node(endpoint: &Endpoint) -> String {
    let Some(ip) = endpoint.ip() else { return "unknown".to_owned() };
    let mut text = String::new();
    push_ip(&mut text, ip);
    text
}

fn element(request: &Request) -> String {
    let nearest = nearest(request);
    let node = match nearest.ip() {
        Some(IpAddr::V6(ip)) => format!("\"[{ip}]\""),
        _ => node(nearest),
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

/// The values of all fields of this name as one value; `None`: no trusted proxy has sent one.
fn chain(request: &Request, name: &str) -> Option<Vec<u8>> {
    request.via.as_ref()?;
    let values: Vec<_> =
        request.headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
    (!values.is_empty()).then(|| values.join(&b", "[..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    fn told(how: ForwardedFields, request: &Request) -> String {
        let mut all = Vec::new();
        let note = |name: &str, value: &[u8]| {
            all.push(format!("{name}: {}", String::from_utf8_lossy(value)));
        };
        fields(how, request, StrippedPrefix::default(), note);
        all.join("\n")
    }

    #[test]
    fn what_a_client_says_about_itself_is_replaced() {
        let mut request = request(Some("a.test:81"));
        request.headers.insert("x-forwarded-for", "6.6.6.6".parse().unwrap());
        request.headers.insert("forwarded", "for=6.6.6.6".parse().unwrap());
        assert_eq!(
            told(ForwardedFields::XForwarded, &request),
            "x-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\nx-forwarded-host: a.test:81\nx-forwarded-port: 80"
        );
        assert_eq!(
            told(ForwardedFields::Forwarded, &request),
            "forwarded: for=127.0.0.1;proto=http;host=\"a.test:81\""
        );
        assert_eq!(told(ForwardedFields::Off, &request), "");
        let name = HeaderName::from_static("x-forwarded-for");
        assert!(replaces(ForwardedFields::Forwarded, &name));
        assert!(!replaces(ForwardedFields::Off, &name));
    }

    #[test]
    fn a_trusted_proxy_is_one_more_element() {
        let mut request = request(None);
        request.headers.append("x-forwarded-for", "192.0.2.7".parse().unwrap());
        request.headers.append("x-forwarded-for", "10.0.0.2".parse().unwrap());
        request.headers.append("forwarded", "for=192.0.2.7".parse().unwrap());
        request.via = Some(Endpoint::Ip("[2001:db8::1]:5".parse().unwrap()));
        let told = |how| told(how, &request);
        assert!(
            told(ForwardedFields::XForwarded)
                .starts_with("x-forwarded-for: 192.0.2.7, 10.0.0.2, 2001:db8::1\n")
        );
        assert_eq!(
            told(ForwardedFields::Forwarded),
            "forwarded: for=192.0.2.7, for=\"[2001:db8::1]\";proto=http"
        );
    }
}
