//! A URL that the head of a response names (`X-Reproxy-URL`).

use bytes::Bytes;
use http::uri::Uri;

/// The parts of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedUrl {
    /// The origin as routes name it: scheme, host and port.
    pub origin: String,
    /// Host and port as in the URL.
    pub authority: Bytes,
    /// Path and query.
    pub path: Bytes,
}

impl NamedUrl {
    /// Splits a URL; `None`: it is none, or readers may understand it differently.
    #[must_use]
    pub fn parse(url: &[u8]) -> Option<Self> {
        // A fragment is not sent, some readers take a backslash for a slash, and user information
        // before the host must not get into a log.
        if url.iter().any(|byte| b"#\\@".contains(byte) || !byte.is_ascii_graphic()) {
            return None;
        }
        let uri = Uri::try_from(url).ok()?;
        let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        // `Uri` reports no port for "host:x".
        let port = match authority.as_str().strip_prefix(uri.host()?)? {
            "" => usual,
            rest => {
                let digits = rest.strip_prefix(':')?;
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                digits.parse::<u16>().ok().filter(|_| is_number)?
            }
        };
        let origin = format!("{scheme}://{}:{port}", uri.host()?).to_ascii_lowercase();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Some(Self {
            origin,
            authority: Bytes::from(authority.to_string()),
            path: Bytes::from(path),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_in_one_way() {
        for (url, expected) in [
            ("http://a.test/x?y=z", Some(("http://a.test:80", "a.test", "/x?y=z"))),
            ("HTTPS://A.test:444/%2e", Some(("https://a.test:444", "A.test:444", "/%2e"))),
            ("http://[::1]:8/x", Some(("http://[::1]:8", "[::1]:8", "/x"))),
            ("http://a.test", Some(("http://a.test:80", "a.test", "/"))),
            ("http://a.test?x", Some(("http://a.test:80", "a.test", "/?x"))),
            ("http://a.test@b.test/", None),
            ("http://u:p@a.test/", None),
            ("http://a.test\\@b.test/", None),
            ("http://a.test:99999/", None),
            ("http://a.test:+80/", None),
            ("http://a.test:/", None),
            ("ftp://a.test:80/", None),
            ("http:///x", None),
            ("//a.test/x", None),
            ("/x", None),
            ("a.test/x", None),
            ("ftp://a.test/x", None),
            ("file:///etc/passwd", None),
            ("http://a.test/#x", None),
            ("", None),
        ] {
            let url_parts = NamedUrl::parse(url.as_bytes());
            let shown = url_parts.map(|NamedUrl { origin, authority, path }| {
                let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
                (origin, text(authority), text(path))
            });
            let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
            assert_eq!(shown, expected, "{url}");
        }
    }
}
