//! A page that is kept.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rustix::fs::OFlags;
use sendoff_config::Keeping;
use sendoff_delivery::segment::{FileSegment, OpenFile, Segment};
use sendoff_message::request::Request;
use sendoff_message::response::{Field, ResponseHead};
use sendoff_static_files::conditional::{ConditionOutcome, Validators};
use sendoff_static_files::range::{ByteRange, Ranges};
use serde::{Deserialize, Serialize};

use super::LARGEST;
use super::freshness::{self, Times};
use super::key::{Hash, Key, hex};

/// Bytes of a block on most disks.
const BLOCK: u64 = 4096;

/// What is known of a page beside its body. It lies in a file of its own, in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Facts {
    /// The text of its [`Key`].
    #[serde(with = "latin1")]
    key: Vec<u8>,
    status: u16,
    reason: Option<Text>,
    fields: Vec<(Text, Text)>,
    /// The request fields that the page varies with, and what they were.
    vary: Vec<(String, Option<Text>)>,
    /// When it was made, or last found to be still valid.
    made: SystemTime,
    times: Times,
    /// The name of the file with the body, its bytes, and their CRC-32.
    pub(super) body: String,
    pub(super) len: u64,
    pub(super) crc: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Text(#[serde(with = "latin1")] Vec<u8>);

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Bytes in JSON: each as the character with its number.
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

/// A page whose time is new, because the application says that it is still valid.
#[derive(Debug)]
pub(super) enum Renewed {
    Kept(Page),
    /// The application says, too, that it may not be kept.
    ForOne(Page),
}

/// Whether a page may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// As it is.
    Fresh,
    /// While it is made anew, and if that fails.
    Stale,
    /// Only if the application fails, or says that it is still valid.
    Old,
}

/// A failure of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It says so: it answers with 500, 502, 503 or 504.
    Reported,
    /// It gives no answer that can be passed on.
    Silent,
}

/// A page that is kept. Its body is a file that nobody changes.
#[derive(Debug)]
pub struct Page {
    facts: Facts,
}

impl Page {
    pub(super) fn new(facts: Facts) -> Self {
        Self { facts }
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn key(&self) -> Key {
        Key::of_text(self.facts.key.clone())
    }

    /// The name of the file with its facts: the same for pages that replace each other.
    pub(super) fn name(&self) -> String {
        hex(&self.variant())
    }

    /// Twenty bytes for its key and the request fields that it varies with.
    fn variant(&self) -> Hash {
        let vary = self.facts.vary.iter();
        self.hash_with(vary.map(|(name, value)| (&**name, value.clone())))
    }

    /// The same for the page that a request with these fields would get if it varies with the same fields as this one.
    pub(super) fn variant_for(&self, fields: &HeaderMap) -> Hash {
        let vary = self.facts.vary.iter();
        self.hash_with(vary.map(|(name, _)| (&**name, value_of(fields, name))))
    }

    fn hash_with<'a>(&self, vary: impl Iterator<Item = (&'a str, Option<Text>)>) -> Hash {
        let mut text = self.facts.key.clone();
        for (name, value) in vary {
            text.extend_from_slice(name.as_bytes());
            text.push(0);
            text.extend_from_slice(value.as_ref().map_or(b"\0", |value| &value.0));
            text.push(0);
        }
        Key::of_text(text).hash()
    }

    /// Bytes on disk, roughly: its facts take blocks of their own. Clients choose how long its key is.
    pub(super) fn size(&self) -> u64 {
        let Facts { key, fields, vary, len, .. } = &self.facts;
        let fields = fields.iter().map(|(name, value)| name.0.len() + value.0.len());
        let vary = vary
            .iter()
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, |value| value.0.len()));
        let facts = key.len() + fields.sum::<usize>() + vary.sum::<usize>();
        len + (facts as u64 / BLOCK + 1) * BLOCK
    }

    pub(super) fn made(&self) -> SystemTime {
        self.facts.made
    }

    pub(super) fn is_for(&self, key: &Key, fields: &HeaderMap) -> bool {
        let matches = |(name, value): &(String, Option<Text>)| value_of(fields, name) == *value;
        self.facts.key == key.text() && self.facts.vary.iter().all(matches)
    }

    /// Whether the page may be sent at this time.
    pub fn validity(&self, now: SystemTime) -> Validity {
        let Times { fresh_until, stale_while, .. } = self.facts.times;
        match now.duration_since(fresh_until) {
            // The clock may have been set back behind the moment in which the page was made.
            Err(_) if now >= self.facts.made => Validity::Fresh,
            Ok(since) if since < stale_while => Validity::Stale,
            _ => Validity::Old,
        }
    }

    /// Whether it may be used although the application has failed.
    pub fn may_stand_in(&self, failure: Failure, now: SystemTime) -> bool {
        let Times { fresh_until, stale_if_error, stale_if_silent, .. } = self.facts.times;
        let stale = match failure {
            Failure::Reported => stale_if_error,
            Failure::Silent => stale_if_silent,
        };
        now.duration_since(fresh_until).unwrap_or_default() < stale
    }

    /// Seconds for which it is fresh; 0 if it is not.
    pub fn seconds_left(&self, now: SystemTime) -> u64 {
        self.facts.times.seconds_left(now)
    }

    /// Asks the application in `request` whether the page is still valid. Returns false if the page has nothing to ask with.
    pub fn ask_in(&self, request: &mut HeaderMap) -> bool {
        let value = |name| HeaderValue::from_bytes(self.value(name)?).ok();
        let (tag, date) = (value("ETag"), value("Last-Modified"));
        let can_ask = tag.is_some() || date.is_some();
        request.extend(tag.map(|tag| (IF_NONE_MATCH, tag)));
        request.extend(date.map(|date| (IF_MODIFIED_SINCE, date)));
        can_ask
    }

    /// Whether a response 304 with this head is about this page: what it names of `ETag` and `Last-Modified` is the page's (RFC 9111
    /// §4.3.4). Tags are compared weakly, because nginx weakens that of a page that it compresses, and not that of the 304.
    pub(super) fn is_meant_by(&self, said: &ResponseHead) -> bool {
        match (said.value("ETag"), said.value("Last-Modified")) {
            (Some(tag), _) => self.value("ETag").map(opaque) == Some(opaque(tag)),
            (None, Some(date)) => self.value("Last-Modified") == Some(date),
            // It answers a question about this page alone.
            (None, None) => true,
        }
    }

    /// The page after the application has said, with this head of a response 304, that it is still valid (RFC 9111 §4.3.4).
    pub(super) fn still_valid(
        &self,
        keeping: &Keeping,
        said: &ResponseHead,
        now: SystemTime,
    ) -> Renewed {
        let mut head = self.stored_head();
        let is_new = |name: &[u8]| said.fields.iter().any(|new| new.is(name));
        // The page is as old as the answer that it is still valid.
        let is_age = |field: &Field| field.is("Age") || field.is("Date");
        head.fields.retain(|field| !is_age(field) && !is_new(field.name()));
        head.fields.extend(said.fields.iter().cloned());
        head.accel_expires.clone_from(&said.accel_expires);
        let times = freshness::judge(keeping, &head, now);
        let mut facts = Facts { made: now, fields: texts(&head), ..self.facts.clone() };
        // For which requests the page is under new names is not known.
        let varies = self.facts.vary.iter().map(|(name, _)| name);
        match times.filter(|_| freshness::varies_with(&head).iter().eq(varies)) {
            Some(times) => {
                facts.times = times;
                Renewed::Kept(Self { facts })
            }
            None => Renewed::ForOne(Self { facts }),
        }
    }

    /// Whether its facts may be those of a page that this server has made.
    pub(super) fn is_possible(&self) -> bool {
        let Facts { status, len, .. } = self.facts;
        (200..=599).contains(&status) && len <= LARGEST as u64
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.facts.fields.iter();
        let (_, value) = fields.find(|(known, _)| known.0.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(&value.0)
    }

    /// The head as the application has made it.
    fn stored_head(&self) -> ResponseHead {
        let status = StatusCode::from_u16(self.facts.status).unwrap_or(StatusCode::OK);
        let mut head = ResponseHead::new(status, Some(self.facts.len));
        head.reason = self.facts.reason.as_ref().map(|reason| reason.0.clone().into());
        head.fields.extend(self.facts.fields.iter().map(|(name, value)| {
            Field::Own(Bytes::copy_from_slice(&name.0), Bytes::copy_from_slice(&value.0))
        }));
        head
    }

    /// What a client gets: a head, and the body unless it has it already or asks for a part.
    ///
    /// # Errors
    /// The file with the body is gone.
    pub fn answer(
        &self,
        folder: &Path,
        request: &Request,
        now: SystemTime,
    ) -> io::Result<(ResponseHead, Option<Segment>)> {
        let mut head = self.stored_head();
        let age = now.duration_since(self.facts.made).unwrap_or_default();
        let age = age.saturating_add(freshness::age(&head, self.facts.made));
        head.fields.retain(|field| !field.is("Age"));
        head.field("Age", age.as_secs().to_string());
        if head.status == StatusCode::OK && is_current(&head, &request.headers) {
            head.status = StatusCode::NOT_MODIFIED;
            (head.reason, head.length) = (None, None);
            return Ok((head, None));
        }
        let (file, len) = open(&folder.join(&self.facts.body))?;
        if len != self.facts.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file = OwnedFd::from(file);
        let mut segment = FileSegment { file: OpenFile::new(file), offset: 0, len: self.facts.len };
        if head.status == StatusCode::OK
            && let Some(ByteRange { first, len }) = self.range(&head, request, now)
        {
            head.status = StatusCode::PARTIAL_CONTENT;
            (head.reason, head.length) = (None, Some(len));
            head.field("Content-Range", ByteRange { first, len }.content_range(self.facts.len));
            (segment.offset, segment.len) = (first, len);
        }
        Ok((head, Some(Segment::File(segment))))
    }

    /// The one range that the client asks for. Who asks for several gets the whole (RFC 9110 §14.2 allows it), and so does HEAD.
    fn range(&self, head: &ResponseHead, request: &Request, now: SystemTime) -> Option<ByteRange> {
        if request.method != Method::GET {
            return None;
        }
        // A weak tag does not say that the bytes are the same (§13.1.5).
        let strong = head.value("ETag").filter(|tag| !tag.starts_with(b"W/")).unwrap_or_default();
        let validators = Validators { etag: strong, ..validators(head) };
        let value = validators.range(&request.headers, now)?;
        match Ranges::parse(value, self.facts.len) {
            Ranges::One(range) => Some(range),
            Ranges::Whole | Ranges::Unsatisfiable | Ranges::Several(_) => None,
        }
    }
}

/// Opens a file of the folder. Returns its length, too. Scripts of the same user can put anything there: a pipe must not stop the caller,
/// and a link leads nowhere.
///
/// # Errors
/// It cannot be opened, or is no regular file.
pub(super) fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let data = file.metadata()?;
    if data.is_file() { Ok((file, data.len())) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The facts of a page that has just been made.
pub(super) fn facts(
    key: &Key,
    request: &Request,
    head: &ResponseHead,
    times: Times,
    now: SystemTime,
) -> Facts {
    let vary = freshness::varies_with(head).into_iter();
    let vary = vary.map(|name| {
        let value = value_of(&request.headers, &name);
        (name, value)
    });
    Facts {
        key: key.text().to_vec(),
        status: head.status.as_u16(),
        reason: head.reason.as_deref().map(Text::from),
        fields: texts(head),
        vary: vary.collect(),
        made: now,
        times,
        body: String::new(),
        len: 0,
        crc: 0,
    }
}

fn texts(head: &ResponseHead) -> Vec<(Text, Text)> {
    head.fields.iter().map(|field| (field.name().into(), field.value().into())).collect()
}

/// The values of a request field, in one line; `None`: it is missing.
fn value_of(fields: &HeaderMap, name: &str) -> Option<Text> {
    let values: Vec<_> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| Text(values.join(&b", "[..])))
}

/// Whether a client's copy of a response with this head is current, so that 304 answers it.
pub(super) fn is_current(head: &ResponseHead, fields: &HeaderMap) -> bool {
    let has_conditions =
        fields.contains_key(IF_NONE_MATCH) || fields.contains_key(IF_MODIFIED_SINCE);
    has_conditions
        && !fields.contains_key(IF_UNMODIFIED_SINCE)
        && validators(head).evaluate(fields) == ConditionOutcome::NotModified
}

/// A tag without the mark of weak ones.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// The validators of a response; those that it does not have match nothing.
fn validators(head: &ResponseHead) -> Validators<'_> {
    let tag = head.value("ETag").unwrap_or_default();
    let date = head.value("Last-Modified").and_then(|date| std::str::from_utf8(date).ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let never = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
    Validators { etag: opaque(tag), modified: date.unwrap_or(never) }
}
