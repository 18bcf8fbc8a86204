//! The URL of a web service that decides about requests.

use sendoff_config::ProxyAddress;

use crate::proxy::{ProxyScheme, ProxyUrl};
use crate::read::{Scope, Wrong};
use crate::value::Word;

/// The address of a web service and the target of the questions to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityUrl {
    /// The address; the protocol is HTTP/1.1 or HTTP/2.
    pub server: ProxyUrl,
    /// Path and query, in origin form.
    pub target: String,
}

impl Word for AuthorityUrl {
    const KIND: &'static str = "a URL such as \"http://127.0.0.1:9091/api/verify\", \"http://unix:/run/auth.sock:/verify\" or \"https://auth.internal/verify\"";

    fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Wrong> {
        let start = text.find("://").map_or(0, |at| at + 3);
        let rest = &text[start..];
        let (server, target) = match rest.strip_prefix("unix:") {
            Some(path) => match path.find(":/") {
                Some(colon) => (start + "unix:".len() + colon, &path[colon + 1..]),
                None => (text.len(), "/"),
            },
            None => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (start + end, if end == rest.len() { "/" } else { &rest[end..] })
            }
        };
        let server = ProxyUrl::parse(&text[..server], scope)?;
        if !matches!(
            server.scheme,
            ProxyScheme::Http | ProxyScheme::Https | ProxyScheme::H2 | ProxyScheme::H2s
        ) {
            return Err(Wrong::new("questions are asked over HTTP")
                .at(0)
                .help("write http://, https://, h2:// or h2s://"));
        }
        let target = match target.starts_with('?') {
            true => format!("/{target}"),
            false => target.to_owned(),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte);
        if !target.bytes().all(is_plain) {
            return Err(Wrong::new(format!("\"{target}\" is not the path of a URL"))
                .help("write other characters percent-encoded; a fragment (#) is not sent"));
        }
        Ok(Self { server, target })
    }

    fn text(&self) -> String {
        let colon = if matches!(self.server.address, ProxyAddress::Unix(_)) { ":" } else { "" };
        format!("{}{colon}{}", self.server.text(), self.target)
    }
}
