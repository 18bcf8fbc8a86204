//! The address of a sitemap.

use http::Uri;

use crate::read::{Scope, Wrong};
use crate::value::Word;

/// A path of the site, or a URL of the site if the host is to be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SitemapAddress(pub String);

impl SitemapAddress {
    /// True if the address names a host.
    #[must_use]
    pub fn names_host(&self) -> bool {
        !self.0.starts_with('/')
    }
}

impl Word for SitemapAddress {
    const KIND: &'static str =
        "a path of the site or a URL: \"/sitemap.xml\", \"https://example.org/sitemap.xml\"";

    fn parse(text: &str, _: &Scope<'_>) -> Result<Self, Wrong> {
        let wrong = |says: String| Err(Wrong::new(says).help(format!("expected {}", Self::KIND)));
        let Ok(uri) = text.parse::<Uri>() else {
            return wrong(format!("\"{text}\" is not an address"));
        };
        if text.contains('#') {
            return wrong(
                "a part of a page is not requested: remove # and the text behind it".into(),
            );
        }
        let is_url = matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if !is_url && (!text.starts_with('/') || text.starts_with("//")) {
            return wrong(format!("\"{text}\" is neither a path nor a URL of http or https"));
        }
        Ok(Self(text.to_owned()))
    }

    fn text(&self) -> String {
        self.0.clone()
    }
}
