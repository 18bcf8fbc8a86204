//! Tags, variants and purges in the fields of a response.

use http::HeaderMap;
use sendoff_message::response::{Field, ResponseHead};

use super::control::{Audience, Control};
use super::cookies::Owner;
use super::purge::{Named, NamedPurge, PurgedAudience};
use super::request::LsCacheRequest;
use crate::freshness::is_left_to_operator;
use crate::purge::Purge;

const CONTROL: &str = "X-LiteSpeed-Cache-Control";
const TAG: &str = "X-LiteSpeed-Tag";
const VARY: &str = "X-LiteSpeed-Vary";
/// Plugins send a second field if the first one was sent too early to be changed.
const PURGES: [&str; 2] = ["X-LiteSpeed-Purge", "X-LiteSpeed-Purge2"];

/// Properties of a kept page besides its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Tags by which public purges name the page.
    pub(crate) tags: Vec<String>,
    /// Tags by which only the owner's purges name it.
    pub(crate) own_tags: Vec<String>,
    /// Empty: the page is for all clients.
    pub(crate) owner: Owner,
    /// Cookies that the page varies with.
    pub(crate) cookies: Vec<String>,
}

/// The words of a response about its page.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) control: Control,
    pub(crate) labels: Labels,
    /// The response names tags, or says that there are none.
    pub(crate) names_tags: bool,
}

impl Said {
    /// `None`: the page may not be kept. A successful response that says nothing about caches
    /// follows the `.htaccess` files.
    pub(crate) fn of(head: &ResponseHead, request: &LsCacheRequest) -> Option<Self> {
        let control = match head.has(CONTROL) {
            true => Control::parse(&values(head, CONTROL).collect::<Vec<_>>().join(",")),
            false if is_left_to_operator(head) => request.control.clone(),
            false => return None,
        };
        if control.forbids {
            return None;
        }
        let mut labels = Labels::default();
        for word in words(head, VARY) {
            match word.split_once('=') {
                Some(("cookie", name)) => labels.cookies.push(name.trim().to_owned()),
                // Requests find the variant only if `.htaccess` files give them the same value.
                Some(("value", value)) if request.control.vary.as_deref() != Some(value.trim()) => {
                    return None;
                }
                _ => {}
            }
        }
        let is_private = control.audience() == Audience::Private;
        for word in words(head, TAG) {
            let word = without(&word, "tag=").unwrap_or(&word);
            match without(word, "public:") {
                Some(tag) => labels.tags.push(tag.to_owned()),
                None if is_private => labels.own_tags.push(word.to_owned()),
                None => labels.tags.push(word.to_owned()),
            }
        }
        if is_private {
            labels.owner = request.private.as_ref()?.owner.clone();
        }
        Some(Self { control, labels, names_tags: head.has(TAG) })
    }
}

/// The purges that a response to a request with these fields orders, for a site and the host that
/// the request names.
#[must_use]
pub fn purges(head: &[Field], site: &str, host: &str, fields: &HeaderMap) -> Vec<Purge> {
    let is_purge = |field: &&Field| PURGES.iter().any(|name| field.is(name));
    let values = head.iter().filter(is_purge);
    let values = values.map(|field| String::from_utf8_lossy(field.value()).into_owned());
    let text = values.collect::<Vec<_>>().join(";");
    let mut purges: Vec<NamedPurge> = Vec::new();
    for group in text.split(';') {
        let mut purge = NamedPurge::new(site);
        for word in group.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match without(word, "tag=").unwrap_or(word) {
                "public" => {}
                "private" => purge.of = PurgedAudience::Owner(Owner::of(fields)),
                "stale" => purge.is_stale = true,
                "*" => purge.names.push(Named::All),
                url if url.starts_with('/') || url.contains("://") => {
                    purge.names.extend(Named::url(host, url));
                }
                tag => purge.names.push(Named::Tag(tag.to_owned())),
            }
        }
        // A few purges, however many groups there are: each one is written to the journal.
        let is_alike =
            |known: &&mut NamedPurge| known.of == purge.of && known.is_stale == purge.is_stale;
        match purges.iter_mut().find(is_alike) {
            Some(known) => known.names.append(&mut purge.names),
            None => purges.push(purge),
        }
    }
    purges.retain(|purge| !purge.names.is_empty());
    purges.into_iter().map(Purge::Named).collect()
}

/// The word behind this beginning, and behind blanks.
fn without<'w>(word: &'w str, beginning: &str) -> Option<&'w str> {
    word.strip_prefix(beginning).map(str::trim_start)
}

fn values<'h>(head: &'h ResponseHead, name: &'static str) -> impl Iterator<Item = String> + 'h {
    let fields = head.fields.iter().filter(move |field| field.is(name));
    fields.map(|field| String::from_utf8_lossy(field.value()).into_owned())
}

/// The words between commas, in all fields of this name.
fn words(head: &ResponseHead, name: &'static str) -> Vec<String> {
    let text = values(head, name).collect::<Vec<_>>().join(",");
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}
