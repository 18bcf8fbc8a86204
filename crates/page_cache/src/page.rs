//! A page that is kept.

mod answer;
mod facts;
mod renewal;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};
use sendoff_esi::surrogate;
use sendoff_message::response::{Field, ResponseHead};

pub(super) use self::answer::is_current;
use self::facts::{COOKIE, Latin1Text, value_of};
pub(super) use self::facts::{Facts, facts};
pub(super) use self::renewal::Renewed;
use super::LARGEST;
use super::freshness::{self, Times};
use super::key::{Hash, Key, hex, site_and_address};
use super::lscache::{Labels, PurgeSubject};

/// Time for which a page is sent after a purge that asks for old pages while new ones are made.
const STALE_AFTER_PURGE: Duration = Duration::from_secs(60);

/// Block size of most disks, in bytes.
const BLOCK: u64 = 4096;

/// Fitness of a page for use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Usable as it is.
    Fresh,
    /// Usable while it is made anew, and if that fails.
    Stale,
    /// Usable only if the application fails or confirms that the page is still valid.
    Old,
}

/// A failure of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginFailure {
    /// The application reports the failure: it answers with 500, 502, 503 or 504.
    Reported,
    /// The application gives no answer that can be passed on.
    Silent,
}

/// A kept page. The file with its body never changes.
#[derive(Debug)]
pub struct Page {
    facts: Facts,
    /// The fields of its head, as they are sent, without `Age`.
    fields: Vec<Field>,
    /// The age when the page was made.
    age: Duration,
    /// The page is to be put together from fragments.
    asks_for_assembly: bool,
}

impl Page {
    pub(super) fn new(facts: Facts) -> Self {
        let fields = facts.fields.iter();
        let fields = fields.map(|(name, value)| Field::shared(name.0.clone(), value.0.clone()));
        let (fields, age) = (fields.collect(), Duration::ZERO);
        let mut page = Self { fields, age, facts, asks_for_assembly: false };
        let head = page.stored_head();
        page.age = freshness::age(&head, page.facts.made);
        page.asks_for_assembly = surrogate::asks(&head);
        page.fields.retain(|field| !field.is("Age"));
        page
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn key(&self) -> Key {
        Key::of_text(self.facts.key.clone())
    }

    /// The name of the file with its facts. Pages that replace each other have the same name.
    pub(super) fn name(&self) -> String {
        hex(&self.variant())
    }

    /// Hash of its key and of the values of the request fields that it varies with.
    fn variant(&self) -> Hash {
        let vary = self.facts.vary.iter();
        self.hash_with(vary.map(|(name, value)| (&**name, value.clone())))
    }

    /// Hash of the page that a request with these fields would get if that page varied with the
    /// same fields as this one.
    pub(super) fn variant_for(&self, fields: &HeaderMap) -> Hash {
        let vary = self.facts.vary.iter();
        self.hash_with(vary.map(|(name, _)| (&**name, value_of(fields, name))))
    }

    fn hash_with<'a>(&self, vary: impl Iterator<Item = (&'a str, Option<Latin1Text>)>) -> Hash {
        let mut text = self.facts.key.clone();
        for (name, value) in vary {
            text.extend_from_slice(name.as_bytes());
            text.push(0);
            text.extend_from_slice(value.as_ref().map_or(b"\0", |value| &value.0));
            text.push(0);
        }
        Key::of_text(text).hash()
    }

    /// Bytes on disk, roughly. The facts take blocks of their own, and clients choose the length of
    /// the key.
    pub(super) fn size(&self) -> u64 {
        let Facts { key, fields, vary, len, .. } = &self.facts;
        let fields = fields.iter().map(|(name, value)| name.0.len() + value.0.len());
        let vary = vary
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, |value| value.0.len()));
        let tags = self.facts.tags.iter().chain(&self.facts.own_tags).map(String::len);
        let facts = key.len() + fields.sum::<usize>() + vary.sum::<usize>() + tags.sum::<usize>();
        len + (facts as u64 / BLOCK + 1) * BLOCK
    }

    /// The page, as purges know it.
    pub(super) fn purge_subject(&self) -> PurgeSubject {
        let Facts { key, tags, own_tags, owner, .. } = &self.facts;
        let (site, address) = site_and_address(key);
        let (tags, own_tags, owner) = (tags.clone(), own_tags.clone(), owner.clone());
        let labels = Labels { tags, own_tags, owner, cookies: self.cookies() };
        PurgeSubject { site: site.to_vec(), address, labels }
    }

    /// True if only one user gets the page.
    pub fn is_private(&self) -> bool {
        !self.facts.owner.is_empty()
    }

    /// True if the page is to be put together from fragments.
    pub fn asks_for_assembly(&self) -> bool {
        self.asks_for_assembly
    }

    /// The name of the file with its body. No other page has had it, apart from this page with
    /// other lifetimes.
    pub fn body_name(&self) -> &str {
        &self.facts.body
    }

    /// Its age in seconds, which its head states.
    pub fn age(&self, now: SystemTime) -> u64 {
        let age = now.duration_since(self.facts.made).unwrap_or_default();
        age.saturating_add(self.age).as_secs()
    }

    /// The cookies that the page varies with.
    pub(super) fn cookies(&self) -> Vec<String> {
        let names = self.facts.vary.iter().filter_map(|(name, _)| name.strip_prefix(COOKIE));
        names.map(str::to_owned).collect()
    }

    /// The page as one whose time is over, and which may still be sent while it is made anew.
    pub(super) fn as_stale(&self, now: SystemTime) -> Self {
        let mut facts = self.facts.clone();
        let Times { fresh_until, stale_while, .. } = &mut facts.times;
        *fresh_until = now.min(*fresh_until);
        *stale_while = STALE_AFTER_PURGE.max(*stale_while);
        Self::new(facts)
    }

    pub(super) fn made(&self) -> SystemTime {
        self.facts.made
    }

    pub(super) fn is_for(&self, key: &Key, fields: &HeaderMap) -> bool {
        let matches =
            |(name, value): &(String, Option<Latin1Text>)| value_of(fields, name) == *value;
        self.facts.key == key.text() && self.facts.vary.iter().all(matches)
    }

    /// Returns how the page may be used at this time.
    pub fn validity(&self, now: SystemTime) -> Validity {
        let Times { fresh_until, stale_while, .. } = self.facts.times;
        match now.duration_since(fresh_until) {
            // The clock may have been set back to before the page was made.
            Err(_) if now >= self.facts.made => Validity::Fresh,
            Ok(since) if since < stale_while => Validity::Stale,
            _ => Validity::Old,
        }
    }

    /// True if the page may be used although the application has failed.
    pub fn may_stand_in(&self, failure: OriginFailure, now: SystemTime) -> bool {
        let Times { fresh_until, stale_if_error, stale_if_silent, .. } = self.facts.times;
        let stale = match failure {
            OriginFailure::Reported => stale_if_error,
            OriginFailure::Silent => stale_if_silent,
        };
        now.duration_since(fresh_until).unwrap_or_default() < stale
    }

    /// Seconds for which the page is still fresh; 0 if it is not.
    pub fn seconds_left(&self, now: SystemTime) -> u64 {
        self.facts.times.seconds_left(now)
    }

    /// True if this server can have made a page with these facts.
    pub(super) fn is_possible(&self) -> bool {
        let Facts { status, len, .. } = self.facts;
        (200..=599).contains(&status) && len <= LARGEST as u64
    }

    /// The head as the application sent it, without `Age`.
    pub fn stored_head(&self) -> ResponseHead {
        let status = StatusCode::from_u16(self.facts.status).unwrap_or(StatusCode::OK);
        let mut head = ResponseHead::new(status, Some(self.facts.len));
        head.reason = self.facts.reason.as_ref().map(|reason| reason.0.clone().into());
        head.fields.extend(self.fields.iter().cloned());
        head
    }
}
