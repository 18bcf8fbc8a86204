//! URLs and cookies of an application behind a proxy, in the form for its clients: the application
//! may be at another address and below another path than they see (`docs/gateway.md`).

use sendoff_config::{GatewayProtocol, Proxy, ProxyAddress};
use sendoff_http1::Field;
use sendoff_message::request::Request;

use crate::target::StrippedPrefix;

/// The fields of a response with URLs in them.
const WITH_URL: [&str; 2] = ["Location", "Content-Location"];

/// Replaces the URLs and cookie attributes in the fields of a response that are meaningful to the
/// application only. `prefix`: bytes of the request's path that the route has matched.
pub fn make_public(request: &Request, proxy: &Proxy, prefix: usize, fields: &mut [Field]) {
    let Some(scheme) = scheme(proxy) else { return };
    // The prefix of an internal route is none of the client's.
    let stripped = match request.is_internal_redirect {
        true => StrippedPrefix::default(),
        false => StrippedPrefix::of(proxy, prefix),
    };
    let map = UrlMap { request, proxy, scheme, prefix: stripped.encoded(request).into_bytes() };
    for field in fields {
        let new = if WITH_URL.iter().any(|name| field.is(name)) {
            map.url(field.value())
        } else if field.is("Refresh") {
            map.refresh(field.value())
        } else if field.is("Set-Cookie") {
            map.cookie(field.value())
        } else {
            None
        };
        if let Some(new) = new {
            field.set_value(new);
        }
    }
}

/// The scheme of the application's own URLs; `None`: its protocol tells it the client's URL.
fn scheme(proxy: &Proxy) -> Option<&'static str> {
    match &proxy.protocol {
        GatewayProtocol::Http { tls, .. } | GatewayProtocol::Http2 { tls, .. } => {
            Some(if tls.is_some() { "https" } else { "http" })
        }
        GatewayProtocol::Scgi | GatewayProtocol::Uwsgi | GatewayProtocol::Ajp { .. } => None,
    }
}

struct UrlMap<'r> {
    request: &'r Request,
    proxy: &'r Proxy,
    /// The scheme of the application.
    scheme: &'static str,
    /// The part of the client's paths that the application does not know; often empty.
    prefix: Vec<u8>,
}

/// The parts of a URL with a host.
struct Absolute<'u> {
    scheme: &'u [u8],
    authority: &'u [u8],
    /// Path, query and fragment.
    rest: &'u [u8],
}

impl<'u> Absolute<'u> {
    fn parse(url: &'u [u8]) -> Option<Self> {
        let colon = url.iter().position(|&byte| byte == b':')?;
        let after = url[colon..].strip_prefix(b"://")?;
        let end = after.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(after.len());
        let (authority, rest) = after.split_at(end);
        Some(Self { scheme: &url[..colon], authority, rest })
    }
}

impl UrlMap<'_> {
    /// The client's URL for one of the application; `None`: the same.
    fn url(&self, url: &[u8]) -> Option<Vec<u8>> {
        if let Some(redirects) = &self.proxy.urls.redirects {
            return replace_start(redirects, url);
        }
        if url.starts_with(b"/") && !url.starts_with(b"//") {
            return self.below_prefix(url);
        }
        let Absolute { scheme, authority, rest } = Absolute::parse(url)?;
        if scheme.eq_ignore_ascii_case(self.scheme.as_bytes()) && self.is_application(authority) {
            let slash = if rest.starts_with(b"/") { "" } else { "/" };
            let path = [slash.as_bytes(), rest].concat();
            return Some(self.below_prefix(&path).unwrap_or(path));
        }
        let is_of_client =
            self.request.host.as_ref().is_some_and(|host| host.eq_ignore_ascii_case(authority));
        let path = if rest.starts_with(b"/") { rest } else { b"/" };
        let below = self.below_prefix(path).filter(|_| is_of_client)?;
        let host = [scheme, b"://", authority, &below];
        Some(if path == rest { host.concat() } else { [&host.concat(), rest].concat() })
    }

    /// The path with the prefix in front of it; `None`: it has the prefix, or there is none.
    fn below_prefix(&self, path: &[u8]) -> Option<Vec<u8>> {
        let has_prefix = path
            .strip_prefix(&self.prefix[..])
            .is_some_and(|rest| rest.first().is_none_or(|byte| b"/?#".contains(byte)));
        (!has_prefix).then(|| [&self.prefix[..], path].concat())
    }

    /// True for the host and the port of the application's address.
    fn is_application(&self, authority: &[u8]) -> bool {
        let ProxyAddress::Tcp(address) = &self.proxy.address else { return false };
        let port = if self.scheme == "https" { ":443" } else { ":80" };
        let is = |address: &str| authority.eq_ignore_ascii_case(address.as_bytes());
        is(address) || address.strip_suffix(port).is_some_and(is)
    }

    /// `5; url=/next` (HTML, "Shared declarative refresh steps").
    fn refresh(&self, value: &[u8]) -> Option<Vec<u8>> {
        let at = value.windows(4).position(|word| word.eq_ignore_ascii_case(b"url="))? + 4;
        let quote = usize::from(value.get(at).is_some_and(|byte| b"'\"".contains(byte)));
        let (before, url) = value.split_at(at + quote);
        Some([before, &self.url(url)?].concat())
    }

    /// `Set-Cookie` (RFC 6265 §5.2). Attributes that stay are the same byte by byte.
    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut new = Vec::with_capacity(value.len() + self.prefix.len());
        let mut is_changed = false;
        for (number, part) in value.split(|&byte| byte == b';').enumerate() {
            let change = if number == 0 { CookieChange::None } else { self.attribute(part) };
            is_changed |= !matches!(change, CookieChange::None);
            let written = match &change {
                CookieChange::None => part,
                CookieChange::New(part) => part,
                CookieChange::Removed => continue,
            };
            if number > 0 {
                new.push(b';');
            }
            new.extend_from_slice(written);
        }
        is_changed.then_some(new)
    }

    fn attribute(&self, part: &[u8]) -> CookieChange {
        let Some(equals) = part.iter().position(|&byte| byte == b'=') else {
            return CookieChange::None;
        };
        let (name, value) = (&part[..equals], part[equals + 1..].trim_ascii());
        let is = |known: &str| name.trim_ascii().eq_ignore_ascii_case(known.as_bytes());
        let new = if is("path") {
            self.cookie_path(value)
        } else if is("domain") {
            self.cookie_domain(value).map(|domain| domain.as_bytes().to_vec())
        } else {
            None
        };
        match new {
            None => CookieChange::None,
            Some(new) if new.is_empty() => CookieChange::Removed,
            Some(new) => CookieChange::New([name, b"=", &new].concat()),
        }
    }

    fn cookie_path(&self, path: &[u8]) -> Option<Vec<u8>> {
        if let Some(paths) = &self.proxy.urls.cookie_paths {
            return replace_start(paths, path);
        }
        // A cookie for `/shop/` would not be sent with `/shop`.
        let whole = if path == b"/" { &b""[..] } else { path };
        self.below_prefix(path).filter(|_| path.starts_with(b"/"))?;
        Some([&self.prefix, whole].concat())
    }

    fn cookie_domain(&self, domain: &[u8]) -> Option<&str> {
        let domain = domain.strip_prefix(b".").unwrap_or(domain);
        let mut domains = self.proxy.urls.cookie_domains.iter();
        let known = domains.find(|(known, _)| domain.eq_ignore_ascii_case(known.as_bytes()));
        known.map(|(_, new)| &**new)
    }
}

/// The change of an attribute of a cookie.
enum CookieChange {
    None,
    New(Vec<u8>),
    Removed,
}

/// The text with another beginning, by the first pair that fits.
fn replace_start(pairs: &[(String, String)], text: &[u8]) -> Option<Vec<u8>> {
    pairs.iter().find_map(|(old, new)| {
        let rest = text.strip_prefix(old.as_bytes())?;
        Some([new.as_bytes(), rest].concat())
    })
}

#[cfg(test)]
mod tests {
    use sendoff_config::{ForwardedFields, ProxyHost, ProxyTimeouts, ProxyUrls};
    use sendoff_message::request::sample::request;

    use super::*;

    fn proxy(urls: ProxyUrls) -> Proxy {
        Proxy {
            address: ProxyAddress::Tcp("app.test:80".to_owned()),
            protocol: GatewayProtocol::Http {
                host: ProxyHost::Client,
                tls: None,
                upgrade: true,
                bare_line_feeds: false,
            },
            forwarded: ForwardedFields::Off,
            proxy_protocol: false,
            timeouts: ProxyTimeouts::default(),
            urls,
        }
    }

    fn stripped() -> ProxyUrls {
        ProxyUrls { strip_prefix: true, ..ProxyUrls::default() }
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect()
    }

    /// The value of a field in a response to `/shop/x` of `www.test`.
    fn public(urls: &ProxyUrls, name: &'static str, value: &'static str) -> String {
        let mut asked = request(Some("www.test"));
        asked.uri = "/shop/x".into();
        asked.restart().unwrap();
        let mut fields = [Field::new(name, value)];
        make_public(&asked, &proxy(urls.clone()), "/shop".len(), &mut fields);
        String::from_utf8_lossy(fields[0].value()).into_owned()
    }

    #[test]
    fn urls_of_the_application_become_the_clients() {
        for (value, plain, below) in [
            ("/login", "/login", "/shop/login"),
            ("/", "/", "/shop/"),
            ("/shop/login", "/shop/login", "/shop/login"),
            ("/shop?a", "/shop?a", "/shop?a"),
            ("/shopping", "/shopping", "/shop/shopping"),
            ("login?a=/", "login?a=/", "login?a=/"),
            ("//cdn.test/a", "//cdn.test/a", "//cdn.test/a"),
            ("http://app.test/a?b#c", "/a?b#c", "/shop/a?b#c"),
            ("HTTP://App.test:80/a", "/a", "/shop/a"),
            ("http://app.test", "/", "/shop/"),
            ("http://app.test?a", "/?a", "/shop/?a"),
            ("https://app.test/a", "https://app.test/a", "https://app.test/a"),
            ("http://app.test:81/a", "http://app.test:81/a", "http://app.test:81/a"),
            ("http://app.test.evil/a", "http://app.test.evil/a", "http://app.test.evil/a"),
            ("https://www.test/a", "https://www.test/a", "https://www.test/shop/a"),
            ("https://www.test", "https://www.test", "https://www.test/shop/"),
            ("https://www.test?a", "https://www.test?a", "https://www.test/shop/?a"),
            ("https://other.test/a", "https://other.test/a", "https://other.test/a"),
            ("", "", ""),
        ] {
            for name in WITH_URL {
                assert_eq!(public(&ProxyUrls::default(), name, value), plain);
                assert_eq!(public(&stripped(), name, value), below);
            }
        }
        assert_eq!(public(&stripped(), "Refresh", "5; URL='/a'"), "5; URL='/shop/a'");
        assert_eq!(public(&stripped(), "refresh", "0;url=http://app.test/"), "0;url=/shop/");
        assert_eq!(public(&stripped(), "Refresh", "5"), "5");
        assert_eq!(public(&stripped(), "Link", "</a>"), "</a>");
    }

    #[test]
    fn given_redirects_are_the_only_ones() {
        let redirects = pairs(&[("http://in.test/app/", "/"), ("http://in.test/", "/other/")]);
        let urls = ProxyUrls { redirects: Some(redirects), ..stripped() };
        assert_eq!(public(&urls, "Location", "http://in.test/app/a"), "/a");
        assert_eq!(public(&urls, "Location", "http://in.test/a"), "/other/a");
        assert_eq!(public(&urls, "Location", "http://app.test/a"), "http://app.test/a");
    }

    #[test]
    fn cookies_are_for_the_clients_path_and_host() {
        for (value, expected) in [
            ("a=b; Path=/; HttpOnly", "a=b; Path=/shop; HttpOnly"),
            ("a=b;path=/x", "a=b;path=/shop/x"),
            ("a=b; Path=/shop/x", "a=b; Path=/shop/x"),
            ("a=b; Path=x; Secure", "a=b; Path=x; Secure"),
            ("path=/; Max-Age=1", "path=/; Max-Age=1"),
            ("a=b", "a=b"),
        ] {
            assert_eq!(public(&stripped(), "Set-Cookie", value), expected);
            assert_eq!(public(&ProxyUrls::default(), "Set-Cookie", value), value);
        }
        let urls = ProxyUrls {
            cookie_paths: Some(pairs(&[("/app", "/shop"), ("/", "/all/")])),
            cookie_domains: pairs(&[("in.test", "www.test"), ("app.test", "")]),
            ..ProxyUrls::default()
        };
        for (value, expected) in [
            ("a=b; Domain=.IN.test; Path=/app/x", "a=b; Domain=www.test; Path=/shop/x"),
            ("a=b; domain=app.test; path=/x", "a=b; path=/all/x"),
            ("a=b; Domain=not-in.test", "a=b; Domain=not-in.test"),
        ] {
            assert_eq!(public(&urls, "Set-Cookie", value), expected);
        }
    }
}
