//! The question to the application whether a page is still valid, and the page after its answer
//! (RFC 9111 §4.3).

use std::time::SystemTime;

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};
use sendoff_config::Keeping;
use sendoff_message::response::{Field, ResponseHead};

use super::Page;
use super::answer::{only_tag, opaque, values};
use super::facts::{COOKIE, Facts, texts};
use crate::freshness::{self, Times};
use crate::lscache::{self, LsCacheRequest};
use crate::tags;

/// A page with new lifetimes, because the application has confirmed that it is still valid.
#[derive(Debug)]
pub(crate) enum Renewed {
    Kept(Page),
    /// The page may not be kept any longer, or its `Vary` has changed: it is for this client only.
    ForOne(Page),
}

impl Page {
    /// Adds the conditions to `request` that ask the application whether the page is still valid.
    /// Returns false if the page has no validators.
    pub fn ask_in(&self, request: &mut HeaderMap) -> bool {
        let tag = self.tag().and_then(|tag| HeaderValue::from_bytes(tag).ok());
        let date = self.value("Last-Modified").and_then(|date| HeaderValue::from_bytes(date).ok());
        let can_ask = tag.is_some() || date.is_some();
        request.extend(tag.map(|tag| (IF_NONE_MATCH, tag)));
        request.extend(date.map(|date| (IF_MODIFIED_SINCE, date)));
        can_ask
    }

    /// True if a response 304 with this head is about this page: `ETag` and `Last-Modified`, as far
    /// as the head has them, are the page's (RFC 9111 §4.3.4). Tags are compared weakly, because
    /// nginx weakens the tag of a page that it compresses, but not the tag of the 304. Of several
    /// `ETag` fields none is a tag, so a 304 with them is about no page.
    pub(crate) fn is_meant_by(&self, said: &ResponseHead) -> bool {
        if said.has("ETag") {
            let tag = only_tag(values(said, "ETag"));
            return tag.is_some_and(|tag| self.tag().map(opaque) == Some(opaque(tag)));
        }
        // Without validators: the question was about this page alone.
        said.value("Last-Modified").is_none_or(|date| self.value("Last-Modified") == Some(date))
    }

    /// Returns the page, updated by the head of a 304 response that confirms it (RFC 9111 §4.3.4).
    pub(crate) fn still_valid(
        &self,
        keeping: &Keeping,
        lscache: Option<&LsCacheRequest>,
        said: &ResponseHead,
        now: SystemTime,
    ) -> Renewed {
        let mut head = self.stored_head();
        let news = || said.fields.iter().filter(|new| !is_of_body(new));
        let is_new = |name: &[u8]| news().any(|new| new.is(name));
        // The page becomes as old as the confirmation.
        let is_age = |field: &Field| field.is("Age") || field.is("Date");
        head.fields.retain(|field| !is_age(field) && !is_new(field.name()));
        head.fields.extend(news().cloned());
        head.accel_expires.clone_from(&said.accel_expires);
        head.is_incomplete = said.is_incomplete;
        let mut facts = Facts { made: now, fields: texts(&head), ..self.facts.clone() };
        let times = match lscache {
            Some(request) => facts.relabel(keeping, request, &head, now),
            None => {
                if let Some(tags) = tags::of(said) {
                    facts.tags = tags;
                }
                freshness::judge(keeping, &head, now)
            }
        };
        // If the fields in `Vary` have changed, the requests that the page is for are unknown.
        let varies = self.facts.vary.iter().map(|(name, _)| name);
        let varies = varies.filter(|name| !name.starts_with(COOKIE));
        match times.filter(|_| freshness::varies_with(&head).iter().eq(varies)) {
            Some(times) => {
                facts.times = times;
                Renewed::Kept(Self::new(facts))
            }
            None => Renewed::ForOne(Self::new(facts)),
        }
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.facts.fields.iter();
        let (_, value) = fields.find(|(known, _)| known.0.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(&value.0)
    }

    fn tag(&self) -> Option<&[u8]> {
        let fields = self.facts.fields.iter();
        let tags = fields.filter(|(name, _)| name.0.eq_ignore_ascii_case(b"ETag"));
        only_tag(tags.map(|(_, value)| &*value.0))
    }
}

impl Facts {
    /// Takes over the tags that a confirmation of the page names. Returns the new lifetimes; `None`:
    /// the page may not be kept, or is for others than it was.
    fn relabel(
        &mut self,
        keeping: &Keeping,
        request: &LsCacheRequest,
        head: &ResponseHead,
        now: SystemTime,
    ) -> Option<Times> {
        let lscache::Said { control, labels, names_tags } = lscache::Said::of(head, request)?;
        let differs_by = |name: &String| {
            let name = format!("{COOKIE}{name}");
            self.vary.iter().any(|(known, _)| *known == name)
        };
        if labels.owner != self.owner || !labels.cookies.iter().all(differs_by) {
            return None;
        }
        if names_tags {
            (self.tags, self.own_tags) = (labels.tags, labels.own_tags);
        }
        freshness::judge_by(&control, keeping, head, now)
    }
}

/// Fields of a 304 that must not change a kept page, because they describe the bytes of its body (RFC
/// 9111 §3.2 allows to omit them). A weak tag does not become a strong one.
fn is_of_body(field: &Field) -> bool {
    ["Content-Encoding", "Content-Range", "ETag"].iter().any(|name| field.is(name))
}
