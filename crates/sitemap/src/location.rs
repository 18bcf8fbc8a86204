//! An address in a sitemap.

use std::fmt;

use http::Uri;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// The longest address in bytes; the protocol allows 2,048.
const LONGEST: usize = 8 * 1024;

/// Bytes that are escaped, in addition to all that are not ASCII: sitemaps contain addresses as
/// people write them.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`');

/// The address of a page or of a sitemap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// True for `https`, false for `http`.
    pub is_https: bool,
    /// The host as written, with the port if one is named.
    pub authority: String,
    /// Path and query, which begin with a slash.
    pub uri: String,
}

impl Location {
    /// Parses a URL; `None`: it is none of http or https, names a user, or has control characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > LONGEST || text.contains(char::is_control) {
            return None;
        }
        let text = text.split('#').next().unwrap_or_default();
        let uri: Uri = percent_encode(text.as_bytes(), ESCAPED).to_string().parse().ok()?;
        let is_https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str();
        let uri = uri.path_and_query()?.as_str();
        let is_plain = !authority.is_empty() && !authority.contains('@') && uri.starts_with('/');
        is_plain.then(|| Self { is_https, authority: authority.to_owned(), uri: uri.to_owned() })
    }

    /// The address that a `Location` field of a response from here leads to: a URL, or a path.
    #[must_use]
    pub fn join(&self, target: &str) -> Option<Self> {
        match target.strip_prefix('/') {
            Some(rest) if !rest.starts_with(['/', '\\']) => {
                Self::parse(&format!("{}://{}{target}", self.scheme(), self.authority))
            }
            _ => Self::parse(target),
        }
    }

    fn scheme(&self) -> &'static str {
        if self.is_https { "https" } else { "http" }
    }

    /// The port, also if the scheme implies it.
    #[must_use]
    pub fn port(&self) -> u16 {
        let named = self.authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        named.unwrap_or(if self.is_https { 443 } else { 80 })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority, self.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, shown) in [
            ("https://a.test/x?y=1&z", Some("https://a.test/x?y=1&z")),
            (" http://a.test:81/x#part\n", Some("http://a.test:81/x")),
            ("http://a.test", Some("http://a.test/")),
            ("https://a.test/gr\u{fc}n und rot", Some("https://a.test/gr%C3%BCn%20und%20rot")),
            ("https://[::1]:8443/", Some("https://[::1]:8443/")),
            ("ftp://a.test/", None),
            ("https://me@a.test/", None),
            ("/x", None),
            ("", None),
            ("http://a.test/\0", None),
            ("http://a.test/a\nb", None),
            ("https:///x", None),
            ("javascript:alert(1)", None),
        ] {
            assert_eq!(Location::parse(text).map(|at| at.to_string()).as_deref(), shown, "{text}");
        }
        assert_eq!(Location::parse(&format!("http://a.test/{}", "a".repeat(LONGEST))), None);
    }

    #[test]
    fn redirects_lead_to_paths_and_urls() {
        let from = Location::parse("https://a.test:1/s.xml").unwrap();
        for (target, to) in [
            ("/t.xml", Some("https://a.test:1/t.xml")),
            ("http://b.test/", Some("http://b.test/")),
            ("//b.test/", None),
            ("t.xml", None),
        ] {
            assert_eq!(from.join(target).map(|at| at.to_string()).as_deref(), to, "{target}");
        }
    }

    #[test]
    fn the_scheme_implies_a_port() {
        for (url, port) in
            [("http://a/", 80), ("https://a/", 443), ("https://a:1/", 1), ("http://[::1]/", 80)]
        {
            assert_eq!(Location::parse(url).unwrap().port(), port, "{url}");
        }
    }
}
