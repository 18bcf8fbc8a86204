//! The facts about a page, and their form on disk.

use std::time::SystemTime;

use http::{HeaderMap, HeaderValue};
use sendoff_esi::surrogate;
use sendoff_message::lscache::is_for_cache;
use sendoff_message::request::Request;
use sendoff_message::response::ResponseHead;
use serde::{Deserialize, Serialize};

use crate::freshness::{self, Times};
use crate::key::Key;
use crate::lscache::{self, Labels, Owner};

/// Stands before the name of a cookie among the request fields that a page varies with. No field has
/// such a name.
pub(super) const COOKIE: &str = "cookie:";

/// A page's properties apart from its body: a file of its own, in JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The text of its [`Key`].
    #[serde(with = "latin1")]
    pub(super) key: Vec<u8>,
    pub(super) status: u16,
    pub(super) reason: Option<Latin1Text>,
    pub(super) fields: Vec<(Latin1Text, Latin1Text)>,
    /// The request fields that the page varies with, and their values in its request.
    pub(super) vary: Vec<(String, Option<Latin1Text>)>,
    /// Time when the page was made or last confirmed as valid.
    pub(super) made: SystemTime,
    pub(super) times: Times,
    /// Tags by which public purges name the page, and by which only the owner's do.
    #[serde(default)]
    pub(super) tags: Vec<String>,
    #[serde(default)]
    pub(super) own_tags: Vec<String>,
    /// The only user who gets the page; empty: all clients get it.
    #[serde(default)]
    pub(super) owner: Owner,
    /// The name of the file with the body, its length in bytes, and its CRC-32.
    pub(crate) body: String,
    pub(crate) len: u64,
    pub(crate) crc: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Latin1Text(#[serde(with = "latin1")] pub(super) Vec<u8>);

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

/// The facts of a page that is being made; the recording adds the file's name and checksum.
pub(crate) fn facts(
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

pub(super) fn texts(head: &ResponseHead) -> Vec<(Latin1Text, Latin1Text)> {
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
pub(super) fn value_of(fields: &HeaderMap, name: &str) -> Option<Latin1Text> {
    if let Some(cookie) = name.strip_prefix(COOKIE) {
        return lscache::value_for(fields, cookie).map(Latin1Text);
    }
    let values: Vec<_> = fields.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| Latin1Text(values.join(&b", "[..])))
}
