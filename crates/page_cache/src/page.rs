//! A page that is kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rustix::fs::OFlags;
use sendoff_config::Keeping;
use sendoff_delivery::segment::Segment;
use sendoff_esi::surrogate;
use sendoff_message::lscache::is_for_cache;
use sendoff_message::request::{Request, is_conditional};
use sendoff_message::response::{Field, ResponseHead};
use sendoff_static_files::conditional::{ConditionOutcome, Validators};
use sendoff_static_files::range::Ranges;
use serde::{Deserialize, Serialize};

use super::LARGEST;
use super::freshness::{self, Times};
use super::key::{Hash, Key, hex, site_and_address};
use super::lscache::{self, Labels, LsCacheRequest, Owner, PurgeSubject};
use super::tags;

/// Stands before the name of a cookie among the request fields that a page varies with. No field has
/// such a name.
const COOKIE: &str = "cookie:";

/// Time for which a page is sent after a purge that asks for old pages while new ones are made.
const STALE_AFTER_PURGE: Duration = Duration::from_secs(60);

/// Block size of most disks, in bytes.
const BLOCK: u64 = 4096;

/// A page's properties apart from its body: a file of its own, in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Facts {
    /// The text of its [`Key`].
    #[serde(with = "latin1")]
    key: Vec<u8>,
    status: u16,
    reason: Option<Latin1Text>,
    fields: Vec<(Latin1Text, Latin1Text)>,
    /// The request fields that the page varies with, and their values in its request.
    vary: Vec<(String, Option<Latin1Text>)>,
    /// Time when the page was made or last confirmed as valid.
    made: SystemTime,
    times: Times,
    /// Tags by which public purges name the page, and by which only the owner's do.
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    own_tags: Vec<String>,
    /// The only user who gets the page; empty: all clients get it.
    #[serde(default)]
    owner: Owner,
    /// The name of the file with the body, its length in bytes, and its CRC-32.
    pub(super) body: String,
    pub(super) len: u64,
    pub(super) crc: u32,
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Latin1Text(#[serde(with = "latin1")] Vec<u8>);

impl From<&[u8]> for Latin1Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Bytes in JSON: each byte as the character with its number (ISO 8859-1).
mod latin1 {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&bytes.iter().map(|&byte| char::from(byte)).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        text.chars().map(|c| u8::try_from(c).map_err(D::Error::custom)).collect()
    }
}

/// A page with new lifetimes, because the application has confirmed that it is still valid.
#[derive(Debug)]
pub(super) enum Renewed {
    Kept(Page),
    /// The page may not be kept any longer, or its `Vary` has changed: it is for this client only.
    ForOne(Page),
}

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
    pub(super) fn is_meant_by(&self, said: &ResponseHead) -> bool {
        if said.has("ETag") {
            let tag = only_tag(values(said, "ETag"));
            return tag.is_some_and(|tag| self.tag().map(opaque) == Some(opaque(tag)));
        }
        // Without validators: the question was about this page alone.
        said.value("Last-Modified").is_none_or(|date| self.value("Last-Modified") == Some(date))
    }

    /// Returns the page, updated by the head of a 304 response that confirms it (RFC 9111 §4.3.4).
    pub(super) fn still_valid(
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

    /// True if this server can have made a page with these facts.
    pub(super) fn is_possible(&self) -> bool {
        let Facts { status, len, .. } = self.facts;
        (200..=599).contains(&status) && len <= LARGEST as u64
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

    /// The head as the application sent it, without `Age`.
    pub fn stored_head(&self) -> ResponseHead {
        let status = StatusCode::from_u16(self.facts.status).unwrap_or(StatusCode::OK);
        let mut head = ResponseHead::new(status, Some(self.facts.len));
        head.reason = self.facts.reason.as_ref().map(|reason| reason.0.clone().into());
        head.fields.extend(self.fields.iter().cloned());
        head
    }

    /// The answer to a client: the head, and the body unless the client has it already or asks for
    /// a part.
    ///
    /// # Errors
    /// The errors of `body`, which returns the whole body.
    pub(super) fn answer(
        &self,
        body: impl FnOnce() -> io::Result<Segment>,
        request: &Request,
        now: SystemTime,
    ) -> io::Result<(ResponseHead, Option<Segment>)> {
        let mut head = self.stored_head();
        head.field("Age", self.age(now).to_string());
        if !is_conditional(&request.headers) {
            return Ok((head, Some(body()?)));
        }
        if head.status == StatusCode::OK && is_current(&head, &request.headers) {
            head.status = StatusCode::NOT_MODIFIED;
            (head.reason, head.length) = (None, None);
            return Ok((head, None));
        }
        let mut body = body()?;
        match self.ranges(&head, request, now) {
            Ranges::One(range) => {
                head.status = StatusCode::PARTIAL_CONTENT;
                (head.reason, head.length) = (None, Some(range.len));
                head.fields.retain(|field| !field.is("Content-Range"));
                head.field("Content-Range", range.content_range(self.facts.len));
                if range.first > 0 {
                    body = body.split_off(range.first);
                }
                body.truncate(range.len);
            }
            Ranges::Unsatisfiable => {
                let mut head = ResponseHead::new(StatusCode::RANGE_NOT_SATISFIABLE, Some(0));
                head.field("Content-Range", format!("bytes */{}", self.facts.len));
                return Ok((head, None));
            }
            // RFC 9110 §14.2 allows to ignore the field.
            Ranges::Whole | Ranges::Several(_) => {}
        }
        Ok((head, Some(body)))
    }

    /// The ranges that the client asks for.
    fn ranges(&self, head: &ResponseHead, request: &Request, now: SystemTime) -> Ranges {
        if request.method != Method::GET || head.status != StatusCode::OK {
            return Ranges::Whole;
        }
        // A weak tag does not promise identical bytes (§13.1.5).
        let strong = only_tag(values(head, "ETag")).filter(|tag| !tag.starts_with(b"W/"));
        let strong = strong.unwrap_or_default();
        let validators = Validators { etag: strong, ..validators(head) };
        let value = validators.range(&request.headers, now);
        value.map_or(Ranges::Whole, |value| Ranges::parse(value, self.facts.len))
    }
}

/// Opens a file of the folder. Also returns its length. Scripts of the same user can put anything
/// there: `O_NONBLOCK` keeps a pipe from blocking the caller, and `O_NOFOLLOW` refuses links.
///
/// # Errors
/// The file cannot be opened or is not a regular file.
pub(super) fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if data.is_file() { Ok((file, data.len())) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The facts of a page that is being made; the recording adds the file's name and checksum.
pub(super) fn facts(
    key: &Key,
    request: &Request,
    head: &ResponseHead,
    times: Times,
    labels: Labels,
    now: SystemTime,
) -> Facts {
    let Labels { tags, own_tags, owner, cookies } = labels;
    let vary = freshness::varies_with(head).into_iter();
    let vary = vary.chain(cookies.iter().map(|name| format!("{COOKIE}{name}")));
    let vary = vary.map(|name| {
        let value = value_of(&request.headers, &name);
        (name, value)
    });
    Facts {
        key: key.text().to_vec(),
        status: head.status.as_u16(),
        reason: head.reason.as_deref().map(Latin1Text::from),
        fields: texts(head),
        vary: vary.collect(),
        made: now,
        times,
        tags,
        own_tags,
        owner,
        body: String::new(),
        len: 0,
        crc: 0,
    }
}

fn texts(head: &ResponseHead) -> Vec<(Latin1Text, Latin1Text)> {
    let fields = head.fields.iter().filter(|field| !is_for_cache(field.name()));
    let mut texts: Vec<_> =
        fields.map(|field| (field.name().into(), field.value().into())).collect();
    if surrogate::asks_as_plugin(head) {
        // The plugin's field, which is not kept, has said it.
        texts.push((surrogate::CONTROL.as_bytes().into(), surrogate::ASSEMBLE.as_bytes().into()));
    }
    texts
}

/// The values of a request field, joined into one line, or of a cookie; `None` if it is missing.
fn value_of(fields: &HeaderMap, name: &str) -> Option<Latin1Text> {
    if let Some(cookie) = name.strip_prefix(COOKIE) {
        return lscache::value_for(fields, cookie).map(Latin1Text);
    }
    let values: Vec<_> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| Latin1Text(values.join(&b", "[..])))
}

/// True if the client's copy of a response with this head is current, so that 304 answers the
/// request.
pub(super) fn is_current(head: &ResponseHead, fields: &HeaderMap) -> bool {
    let has_conditions =
        fields.contains_key(IF_NONE_MATCH) || fields.contains_key(IF_MODIFIED_SINCE);
    has_conditions
        && !fields.contains_key(IF_UNMODIFIED_SINCE)
        && validators(head).evaluate(fields) == ConditionOutcome::NotModified
}

/// Fields of a 304 that must not change a kept page, because they describe the bytes of its body (RFC
/// 9111 §3.2 allows to omit them). A weak tag does not become a strong one.
fn is_of_body(field: &Field) -> bool {
    ["Content-Encoding", "Content-Range", "ETag"].iter().any(|name| field.is(name))
}

fn values<'h>(head: &'h ResponseHead, name: &str) -> impl Iterator<Item = &'h [u8]> {
    head.fields.iter().filter(move |field| field.is(name)).map(Field::value)
}

/// The tag in the `ETag` fields of a response. The field has a single value (RFC 9110 §8.8.3), so
/// several fields, or a list in one, are no tag (§5.3: they are one field with a list).
fn only_tag<'h>(mut fields: impl Iterator<Item = &'h [u8]>) -> Option<&'h [u8]> {
    let tag = fields.next().filter(|_| fields.next().is_none())?;
    let is_one = match opaque(tag) {
        [b'"', inner @ .., b'"'] => !inner.contains(&b'"'),
        bare => !bare.iter().any(|byte| matches!(byte, b'"' | b',')),
    };
    is_one.then_some(tag)
}

/// A tag without the `W/` of weak tags.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The validators of a response; a missing one matches nothing.
fn validators(head: &ResponseHead) -> Validators<'_> {
    let tag = only_tag(values(head, "ETag")).unwrap_or_default();
    let date = head.value("Last-Modified").and_then(|date| std::str::from_utf8(date).ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let never = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    Validators { etag: opaque(tag), modified: date.unwrap_or(never) }
}
