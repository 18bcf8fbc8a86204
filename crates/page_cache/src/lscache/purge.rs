//! The pages that `X-LiteSpeed-Purge` names.

use memchr::memmem;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::cookies::Owner;
use super::fields::Labels;
use crate::address::PageAddress;
use crate::key::Hash;
use crate::purge::{FragmentPurge, located};

/// A purge that an application or a request has ordered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPurge {
    /// The name of its site: no other site's pages are concerned.
    site: String,
    pub(super) of: PurgedAudience,
    pub(crate) names: Vec<Named>,
    /// Old pages are sent while new ones are made.
    pub(crate) is_stale: bool,
}

/// The pages among which a purge names some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum PurgedAudience {
    /// Pages for all, and private pages by their public tags.
    Public,
    /// The private pages of this user.
    Owner(Owner),
}

/// Pages by one of their properties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Named {
    All,
    Tag(String),
    Address(PageAddress),
    /// The pages whose addresses begin with this one.
    Beneath(PageAddress),
    /// The pages whose addresses contain this text.
    Containing(Vec<u8>),
    /// The pages whose addresses contain all of these texts.
    AddressWith(Vec<String>),
    /// The pages with a tag that contains all of these texts.
    TagWith(Vec<String>),
}

impl Named {
    /// The pages at a path, or at a URL of the same host.
    pub(super) fn url(host: &str, url: &str) -> Option<Self> {
        located(host, url.as_bytes()).map(Self::Address)
    }
}

/// A page, as far as purges know it.
#[derive(Debug)]
pub(crate) struct PurgeSubject {
    pub(crate) site: Vec<u8>,
    pub(crate) address: PageAddress,
    pub(crate) labels: Labels,
}

/// Entries of the index under which the pages stand that a purge may concern.
pub(crate) enum Places {
    /// All pages are to be looked at.
    Everywhere,
    /// Hashes of tags, and hashes of addresses.
    At { tags: Vec<Hash>, addresses: Vec<Hash> },
}

impl NamedPurge {
    /// The name of the site whose pages are concerned.
    pub(crate) fn site(&self) -> &str {
        &self.site
    }

    pub(crate) fn new(site: &str) -> Self {
        let of = PurgedAudience::Public;
        Self { site: site.to_owned(), of, names: Vec::new(), is_stale: false }
    }

    pub(crate) fn concerns(&self, page: &PurgeSubject) -> bool {
        let labels = &page.labels;
        let is_private = !labels.owner.is_empty();
        let is_of_audience = match &self.of {
            PurgedAudience::Public => true,
            PurgedAudience::Owner(owner) => is_private && labels.owner.may_be(owner),
        };
        let own = match &self.of {
            PurgedAudience::Public => &[][..],
            PurgedAudience::Owner(_) => &labels.own_tags,
        };
        let tags = || labels.tags.iter().chain(own);
        let names = |named: &Named| match named {
            Named::All => true,
            Named::Tag(tag) => tags().any(|known| known == tag),
            Named::TagWith(texts) => tags().any(|tag| contains(tag.as_bytes(), texts)),
            Named::Address(address) => *address == page.address,
            Named::Beneath(PageAddress { host, uri }) => {
                *host == page.address.host && page.address.uri.starts_with(uri)
            }
            Named::Containing(text) => page.address.contains(text),
            Named::AddressWith(texts) => contains(&page.address.uri, texts),
        };
        page.site == self.site.as_bytes() && is_of_audience && self.names.iter().any(names)
    }

    /// The hash of the only page that it may concern in its site; `None`: it may concern several, or
    /// makes it old instead of purging it.
    pub(crate) fn only_page(&self) -> Option<Hash> {
        match (&self.of, &self.names[..]) {
            (PurgedAudience::Public, [Named::Address(address)]) if !self.is_stale => {
                Some(page_hash(self.site.as_bytes(), address))
            }
            _ => None,
        }
    }

    /// The fragments that it concerns. Fragments have only tags, which are not compared with
    /// expressions: those concern all fragments.
    pub(crate) fn of_fragments(&self) -> FragmentPurge<'_> {
        let mut tags = Vec::new();
        for named in &self.names {
            match named {
                Named::All | Named::TagWith(_) => return FragmentPurge::Everything,
                Named::Tag(tag) => tags.push(tag.as_str()),
                Named::Address(_)
                | Named::Beneath(_)
                | Named::Containing(_)
                | Named::AddressWith(_) => {}
            }
        }
        if tags.is_empty() { FragmentPurge::Nothing } else { FragmentPurge::Tags(tags) }
    }

    pub(crate) fn places(&self) -> Places {
        let (mut tags, mut addresses) = (Vec::new(), Vec::new());
        for named in &self.names {
            match named {
                Named::All
                | Named::Beneath(_)
                | Named::Containing(_)
                | Named::AddressWith(_)
                | Named::TagWith(_) => return Places::Everywhere,
                Named::Tag(tag) => tags.push(tag_hash(self.site.as_bytes(), tag)),
                Named::Address(address) => addresses.push(address.hash()),
            }
        }
        Places::At { tags, addresses }
    }
}

impl PurgeSubject {
    /// The hash of the address in its site.
    pub(crate) fn page_hash(&self) -> Hash {
        page_hash(&self.site, &self.address)
    }

    /// Hashes of all tags.
    pub(crate) fn tag_hashes(&self) -> impl Iterator<Item = Hash> {
        let Labels { tags, own_tags, .. } = &self.labels;
        tags.iter().chain(own_tags).map(|tag| tag_hash(&self.site, tag))
    }
}

fn page_hash(site: &[u8], address: &PageAddress) -> Hash {
    let hash = Sha1::new().chain_update((site.len() as u64).to_le_bytes());
    hash.chain_update(site).chain_update(address.hash()).finalize().into()
}

/// True if a text contains all of these.
fn contains(text: &[u8], parts: &[String]) -> bool {
    parts.iter().all(|part| memmem::find(text, part.as_bytes()).is_some())
}

fn tag_hash(site: &[u8], tag: &str) -> Hash {
    let hash = Sha1::new().chain_update((site.len() as u64).to_le_bytes());
    hash.chain_update(site).chain_update(tag).finalize().into()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::COOKIE;
    use sendoff_message::response::Field;

    use super::super::fields::purges;
    use super::*;

    fn asked(cookie: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    fn page(tags: &[&str], own: &[&str], cookie: Option<&'static str>) -> PurgeSubject {
        let texts = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        let owner = cookie.map(|cookie| Owner::of(&asked(cookie))).unwrap_or_default();
        let labels = Labels { tags: texts(tags), own_tags: texts(own), owner, cookies: Vec::new() };
        PurgeSubject { site: b"s".into(), address: PageAddress::new("a.test", b"/x"), labels }
    }

    #[test]
    fn a_purge_concerns_what_it_names() {
        let public = page(&["T", "T_P.1"], &[], None);
        let private = page(&["T"], &["cart"], Some("s=1"));
        let concern = |value: &'static str, page: &PurgeSubject| {
            let head = [Field::new("x-litespeed-purge", value)];
            let purges = purges(&head, "s", "a.test", &asked("s=1; b=2"));
            purges.iter().any(|purge| purge.concerns(page))
        };
        for (value, of_public, of_private) in [
            ("*", true, true),
            ("public,*", true, true),
            ("private,*", false, true),
            ("private, tag=*", false, true),
            ("tag=T_P.1", true, false),
            ("public,stale,T_P.1,T_P.2", true, false),
            ("tag=cart", false, false),
            ("private,cart", false, true),
            ("public,other;private,cart", false, true),
            ("T", true, true),
            ("/x", true, true),
            ("private, /x", false, true),
            ("http://a.test/x", true, true),
            ("http://b.test/x", false, false),
            ("/y", false, false),
            ("", false, false),
            ("public", false, false),
        ] {
            assert_eq!(concern(value, &public), of_public, "{value}");
            assert_eq!(concern(value, &private), of_private, "{value}");
        }
        let of_other = page(&["T"], &["cart"], Some("s=2"));
        assert!(!concern("private,*", &of_other));
        let mut elsewhere = public;
        elsewhere.site = b"other".into();
        assert!(!concern("*", &elsewhere));
    }
}
