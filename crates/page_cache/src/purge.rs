//! Pages that are forgotten before their time is over: by a `PURGE` request, by `sendoff purge`, or
//! because a request may have changed them (RFC 9111 §4.4).
//!
//! A response that the application began before a purge may show the old state. Each request to the
//! application therefore notes the number of purges so far, and its response is not kept if a later
//! purge concerns it.

use std::collections::VecDeque;

use sendoff_message::request::host_name;
use serde::{Deserialize, Serialize};

use super::address::PageAddress;
use super::lscache::{Named, NamedPurge, Places, PurgeSubject};

/// Most purges that are remembered. A response that began before all of them is not kept.
const MOST_REMEMBERED: usize = 1024;

/// The pages to forget. The scheme and the port do not matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purge {
    /// All pages.
    Everything,
    /// The pages of all sites with this address.
    Page(PageAddress),
    /// The pages of all sites whose addresses begin with this one.
    Beneath(PageAddress),
    /// The pages of one site that a request or an application names.
    Named(NamedPurge),
}

/// The fragments of PHP workers that a purge concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FragmentPurge<'a> {
    /// It names pages by their addresses: none.
    Nothing,
    /// The fragments with one of these tags.
    Tags(Vec<&'a str>),
    /// All fragments.
    Everything,
}

impl Purge {
    /// The purge of the pages of a site at an address, or at all addresses with a beginning that is
    /// followed by `*`.
    pub fn of(site: &str, host: &str, uri: &[u8]) -> Self {
        Self::named(
            site,
            match uri.strip_suffix(b"*") {
                Some(beginning) => Named::Beneath(PageAddress::new(host, beginning)),
                None => Named::Address(PageAddress::new(host, uri)),
            },
        )
    }

    /// The purge of the page of a site at an address.
    pub fn page(site: &str, host: &str, uri: &[u8]) -> Self {
        Self::named(site, Named::Address(PageAddress::new(host, uri)))
    }

    fn named(site: &str, name: Named) -> Self {
        let mut purge = NamedPurge::new(site);
        purge.names.push(name);
        Self::Named(purge)
    }

    /// The purge of a URL such as `http://example.org/blog/*`, whichever site has its pages.
    ///
    /// # Errors
    /// The reason why this is not the URL of a page.
    pub fn of_url(url: &str) -> Result<Self, String> {
        let lower = url.to_ascii_lowercase();
        let scheme = ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme));
        let rest = scheme.and_then(|scheme| url.get(scheme.len()..)).ok_or_else(|| {
            format!("{url:?} is no URL: it begins with neither http:// nor https://")
        })?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, uri) = rest.split_at(end);
        let uri = uri.split('#').next().unwrap_or_default();
        if url.contains(|character: char| character.is_control() || character.is_whitespace()) {
            return Err(format!("{url:?} has characters that no URL has"));
        }
        if authority.is_empty() || authority.contains(['@', '*']) {
            return Err(format!("{url:?} names no host"));
        }
        let uri = if uri.starts_with('/') { uri.to_owned() } else { format!("/{uri}") };
        let host = host_name(authority.as_bytes());
        Ok(match uri.strip_suffix('*') {
            Some(beginning) => Self::Beneath(PageAddress::new(&host, beginning.as_bytes())),
            None => Self::Page(PageAddress::new(&host, uri.as_bytes())),
        })
    }

    /// The purge of the page of a site that a `Location` field leads to, if it is on the same host.
    pub fn of_location(site: &str, host: &str, location: &[u8]) -> Option<Self> {
        located(host, location).map(|address| Self::named(site, Named::Address(address)))
    }

    /// The form in which other processes get it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Strings, numbers and lists of them can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads that form.
    ///
    /// # Errors
    /// A sentence: this is no purge.
    pub fn decode(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| format!("it is no purge: {error}"))
    }

    /// The name of the only site that it concerns; `None`: it concerns all sites.
    #[must_use]
    pub fn site(&self) -> Option<&str> {
        match self {
            Self::Everything | Self::Page(_) | Self::Beneath(_) => None,
            Self::Named(named) => Some(named.site()),
        }
    }

    /// The fragments that it concerns.
    #[must_use]
    pub fn of_fragments(&self) -> FragmentPurge<'_> {
        match self {
            Self::Everything => FragmentPurge::Everything,
            Self::Page(_) | Self::Beneath(_) => FragmentPurge::Nothing,
            Self::Named(named) => named.of_fragments(),
        }
    }

    /// True if it leaves pages that are sent while new ones are made.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Named(named) if named.is_stale)
    }

    /// True if all pages must be looked at.
    pub(super) fn is_wide(&self) -> bool {
        match self {
            Self::Everything | Self::Beneath(_) => true,
            Self::Page(_) => false,
            Self::Named(named) => matches!(named.places(), Places::Everywhere),
        }
    }

    pub(super) fn concerns(&self, page: &PurgeSubject) -> bool {
        let address = &page.address;
        match self {
            Self::Everything => true,
            Self::Page(page) => page == address,
            Self::Beneath(PageAddress { host, uri }) => {
                *host == address.host && address.uri.starts_with(uri)
            }
            Self::Named(named) => named.concerns(page),
        }
    }
}

/// The address that a `Location` field leads to, if it is on the same host.
pub(super) fn located(host: &str, location: &[u8]) -> Option<PageAddress> {
    let location = std::str::from_utf8(location).ok()?;
    if location.starts_with('/') && !location.starts_with("//") {
        let uri = location.split('#').next().unwrap_or_default();
        return Some(PageAddress::new(host, uri.as_bytes()));
    }
    match Purge::of_url(location).ok()? {
        Purge::Page(address) if address.host == host => Some(address),
        Purge::Page(_) | Purge::Beneath(_) | Purge::Everything | Purge::Named(_) => None,
    }
}

/// The number of purges when the application was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeCount(u64);

/// The last purges.
#[derive(Debug, Default)]
pub(super) struct Purges {
    count: u64,
    recent: VecDeque<Purge>,
}

impl Purges {
    pub(super) fn so_far(&self) -> PurgeCount {
        PurgeCount(self.count)
    }

    pub(super) fn note(&mut self, purge: Purge) {
        self.count += 1;
        self.recent.push_back(purge);
        if self.recent.len() > MOST_REMEMBERED {
            self.recent.pop_front();
        }
    }

    /// True if a response that was begun then must not be kept.
    pub(super) fn concern(&self, page: &PurgeSubject, PurgeCount(begun): PurgeCount) -> bool {
        let later = usize::try_from(self.count - begun).unwrap_or(usize::MAX);
        later > self.recent.len()
            || self.recent.iter().rev().take(later).any(|purge| purge.concerns(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lscache::Labels;

    fn address(uri: &str) -> PageAddress {
        PageAddress::new("a.test", uri.as_bytes())
    }

    fn page(uri: &str) -> PurgeSubject {
        PurgeSubject { site: Vec::new(), address: address(uri), labels: Labels::default() }
    }

    #[test]
    fn an_url_names_pages_however_it_is_written() {
        let concerns = |url: &str, uri| Purge::of_url(url).unwrap().concerns(&page(uri));
        for (url, uri) in [
            ("http://a.test/x", "/x"),
            ("HTTPS://A.test.:8443/x#part", "/x"),
            ("http://a.test", "/"),
            ("http://a.test?q", "/?q"),
            ("http://a.test/%78", "/x"),
            ("http://a.test/x", "//y/../%78"),
            ("http://a.test/*", "/x?q"),
            ("http://a.test/x*", "/xy"),
            ("http://a.test/x?a=1*", "/x?a=12"),
        ] {
            assert!(concerns(url, uri), "{url} {uri}");
        }
        for (url, uri) in [
            ("http://a.test/x", "/x?q"),
            ("http://a.test/x", "/X"),
            ("http://b.test/x", "/x"),
            ("http://b.test/*", "/x"),
            ("http://a.test/x/*", "/x"),
        ] {
            assert!(!concerns(url, uri), "{url} {uri}");
        }
        for url in [
            "/x",
            "a.test/x",
            "ftp://a.test/",
            "http:///x",
            "http://a@b/",
            "http://*/x",
            "http://a/x y",
        ] {
            assert!(Purge::of_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_location_is_one_of_the_same_host() {
        let leads = |location: &str| Purge::of_location("s", "a.test", location.as_bytes());
        let to_x = Some(Purge::page("s", "a.test", b"/x"));
        for location in ["/x", "/x#c1", "http://a.test/x", "https://A.TEST:1/x#c1"] {
            assert_eq!(leads(location), to_x, "{location}");
        }
        for location in ["//b.test/x", "http://b.test/x", "x", "", "http://a.test/*"] {
            assert_eq!(leads(location), None, "{location}");
        }
    }

    #[test]
    fn a_request_purges_pages_of_its_site_only() {
        let of = |site: &str, uri| PurgeSubject { site: site.into(), ..page(uri) };
        for (purge, uri, is_named) in [
            (Purge::page("s", "a.test", b"/x"), "/x", true),
            (Purge::page("s", "a.test", b"/x*"), "/xy", false),
            (Purge::of("s", "a.test", b"/x*"), "/xy", true),
            (Purge::of("s", "a.test", b"/x*"), "/y", false),
            (Purge::of("s", "b.test", b"/*"), "/x", false),
        ] {
            assert_eq!(purge.concerns(&of("s", uri)), is_named, "{purge:?}");
            assert!(!purge.concerns(&of("other", uri)), "{purge:?}");
        }
        assert!(Purge::of_url("http://a.test/x").unwrap().concerns(&of("other", "/x")));
    }

    #[test]
    fn fragments_are_purged_by_tags_and_by_purges_of_everything() {
        let of = |names| {
            let mut purge = NamedPurge::new("s");
            purge.names = names;
            Purge::Named(purge)
        };
        let tag = || Named::Tag("post-1".to_owned());
        let page = || Named::Address(address("/x"));
        let pattern = || Named::TagWith(vec!["post".to_owned()]);
        for (purge, concerned) in [
            (Purge::Everything, FragmentPurge::Everything),
            (Purge::Page(address("/x")), FragmentPurge::Nothing),
            (Purge::Beneath(address("/")), FragmentPurge::Nothing),
            (of(vec![page()]), FragmentPurge::Nothing),
            (of(vec![page(), tag()]), FragmentPurge::Tags(vec!["post-1"])),
            (of(vec![tag(), pattern()]), FragmentPurge::Everything),
            (of(vec![Named::All]), FragmentPurge::Everything),
        ] {
            assert_eq!(purge.of_fragments(), concerned, "{purge:?}");
        }
    }

    #[test]
    fn what_was_begun_before_a_purge_is_forgotten() {
        let mut purges = Purges::default();
        let before = purges.so_far();
        assert!(!purges.concern(&page("/x"), before));
        purges.note(Purge::Page(address("/x")));
        assert!(purges.concern(&page("/x"), before));
        assert!(!purges.concern(&page("/y"), before));
        assert!(!purges.concern(&page("/x"), purges.so_far()));
        // Older purges are forgotten.
        (0..MOST_REMEMBERED).for_each(|_| purges.note(Purge::Page(address("/z"))));
        assert!(purges.concern(&page("/y"), before));
    }
}
