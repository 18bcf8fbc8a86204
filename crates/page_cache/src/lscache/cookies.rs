//! Cookies by which pages differ.

use std::borrow::Cow;

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use sendoff_message::request::variables::{ParameterName, are_read_alike, joined_cookies};
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// Cookies that scripts of statistics set in browsers. Their values change often, and no page depends
/// on them. Whole names: the session of an application may begin like one of them.
const OF_STATISTICS: [&str; 13] = [
    "__utma", "__utmb", "__utmc", "__utmt", "__utmv", "__utmz", "_clck", "_clsk", "_fbc", "_fbp",
    "_ga", "_gat", "_gid",
];

/// Google Analytics keeps its session in this cookie, with the ten characters of the measurement ID
/// behind it.
const OF_MEASUREMENT: &str = "_ga_";
const MEASUREMENT_ID: usize = 10;

/// The user of private pages, known by cookies: hashes of their names and values. Empty: the client
/// has sent none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner(Vec<u64>);

impl Owner {
    /// The client that sent these fields.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let hash = |cookie: &[u8]| {
            let bytes: [u8; 20] = Sha1::digest(cookie).into();
            bytes.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        Self(telling(fields).map(hash).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if one cookie is common. Another cookie may have changed meanwhile, and too many purged
    /// pages are better than too few.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        self.0.iter().any(|hash| other.0.contains(hash))
    }
}

/// All cookies of a request, as sent: `NAME=VALUE`, or a name alone.
fn all(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = fields.get_all(COOKIE).iter();
    let cookies = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    cookies.map(<[u8]>::trim_ascii).filter(|cookie| !cookie.is_empty())
}

/// The cookies that may tell users apart.
pub(super) fn telling(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    all(fields).filter(|cookie| !is_of_statistics(cookie))
}

fn is_of_statistics(cookie: &[u8]) -> bool {
    let name = cookie.split(|&byte| byte == b'=').next().unwrap_or_default();
    let is_of_id = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    OF_STATISTICS.iter().any(|known| name == known.as_bytes())
        || name.strip_prefix(OF_MEASUREMENT.as_bytes()).is_some_and(|id| {
            // An ID of letters alone could be a word of an application, such as `_ga_SESSIONKEY`.
            id.len() == MEASUREMENT_ID
                && id.iter().all(is_of_id)
                && id.iter().any(u8::is_ascii_digit)
        })
}

/// The values of all cookies that an application may read under this name; `None`: the client has
/// sent none. PHP takes `a.b`, `a b` and `a[b` for `a_b`, Rack decodes escapes, of two cookies
/// with one name some take the first and others the last, and Python and Perl find cookies, or
/// miss them, where white space and commas are.
pub(crate) fn value_for(fields: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let wanted = plain(name.as_bytes());
    let has_name = |cookie: &&[u8]| {
        let name = cookie.split(|&byte| byte == b'=').next().unwrap_or_default();
        let name = decoded(name);
        // PHP before 7.4.11 ends a name at the byte 0.
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let array = name.split(|&byte| byte == b'[').next().unwrap_or_default();
        plain(name) == wanted || plain(array) == wanted
    };
    let sent: Vec<_> = all(fields).filter(has_name).collect();
    let others = other_readings(fields, name, &sent);
    let values = sent.into_iter().chain(others.iter().map(|value| &value[..]));
    let values: Vec<_> = values.collect();
    (!values.is_empty()).then(|| values.join(&b";"[..]))
}

/// The values that some application reads in unusual cookies. Empty if all applications read the
/// value that was sent, or no cookie of the name.
fn other_readings(fields: &HeaderMap, name: &str, sent: &[&[u8]]) -> Vec<Vec<u8>> {
    let field = joined_cookies(fields.get_all(COOKIE).iter().map(HeaderValue::as_bytes));
    if are_read_alike(&field) {
        return Vec::new();
    }
    let mut readings = ParameterName::new(name).cookie_values(&field);
    readings.sort_unstable();
    readings.dedup();
    let value_of = |cookie: &&[u8]| cookie.iter().position(|&byte| byte == b'=').map(|at| at + 1);
    let is_as_sent = match (sent, &readings[..]) {
        ([], readings) => readings.iter().all(Vec::is_empty),
        ([cookie], [only]) => value_of(cookie).is_some_and(|at| cookie[at..] == **only),
        _ => false,
    };
    if is_as_sent { Vec::new() } else { readings }
}

/// A name as PHP reads it.
fn plain(name: &[u8]) -> Vec<u8> {
    let unlike = |byte: &u8| matches!(byte, b'.' | b' ' | b'[' | b'+');
    name.trim_ascii().iter().map(|byte| if unlike(byte) { b'_' } else { *byte }).collect()
}

/// A name without `%xx`.
fn decoded(name: &[u8]) -> Cow<'_, [u8]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !name.contains(&b'%') {
        return Cow::Borrowed(name);
    }
    let (mut plain, mut rest) = (Vec::new(), name);
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = match (byte, behind) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => plain.push(high << 4 | low),
            None => plain.push(byte),
        }
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(cookies: &[&'static str]) -> HeaderMap {
        let mut all = HeaderMap::new();
        for cookie in cookies {
            all.append(COOKIE, cookie.parse().unwrap());
        }
        all
    }

    #[test]
    fn a_cookie_counts_under_every_name_that_an_application_may_read() {
        for cookie in [
            "_a_b=1",
            ".a.b=1",
            "_a b=1",
            "_a[b=1",
            "%5Fa_b=1",
            "x=2; _a_b=1",
            "_a_b[x]=1",
            "_a_b",
            "_a_b%00c=1",
        ] {
            assert!(value_for(&fields(&[cookie]), "_a_b").is_some(), "{cookie}");
        }
        for cookie in ["a_b=1", "_a_bc=1", "_A_b=1", "x=_a_b", "%"] {
            assert_eq!(value_for(&fields(&[cookie]), "_a_b"), None, "{cookie}");
        }
        let value = |cookies: &[&'static str]| value_for(&fields(cookies), "a");
        assert_ne!(value(&["a=1; a=2"]), value(&["a=2; a=1"]));
        assert_ne!(value(&["a=1"]), value(&["a=1", "a=2"]));
        assert_ne!(value(&["a="]), value(&[]));
    }

    /// Python separates cookies by white space, Perl by commas, and some end at what they cannot
    /// read.
    #[test]
    fn cookies_that_applications_separate_differently_count_in_each_reading() {
        let value = |cookie: &'static str| value_for(&fields(&[cookie]), "a");
        for cookie in ["x=1 a=2", "x=1\ta=2", "x=1,a=2"] {
            assert!(value(cookie).is_some_and(|value| value != b"a=2"), "{cookie}");
        }
        assert_ne!(value("a=1 a=2"), value("a=1"));
        for usual in ["x=%20; a=1", "x=\"q\"; a=1; y=1%2C2", "x=1+2; a=1"] {
            assert_eq!(value(usual), value("a=1"), "{usual}");
        }
        for usual in ["x=%20", "x=\"q\"", "x=1+2"] {
            assert_eq!(value(usual), None, "{usual}");
        }
    }

    #[test]
    fn an_owner_is_known_by_any_cookie_but_those_of_statistics() {
        let owner = |cookies: &[&'static str]| Owner::of(&fields(cookies));
        assert!(owner(&["s=1; theme=dark"]).may_be(&owner(&["theme=light; s=1"])));
        assert!(!owner(&["s=1"]).may_be(&owner(&["s=2"])));
        assert!(!owner(&["s=1; _ga=x"]).may_be(&owner(&["s=2; _ga=x"])));
        let of_statistics =
            "_ga=x; _ga_1AB2CD3EF4=GS1.1; _gid=1; _fbp=fb.1; _clsk=1; __utmz=1; _gat";
        assert!(owner(&[of_statistics]).is_empty() && owner(&[]).is_empty());
        for cookie in [
            "_gallery_session=1",
            "_gate=1",
            "_ga_session=1",
            "_ga_SESSIONKEY=1",
            "_ga_1AB2CD3EF=1",
            "_pk_session=1",
            "_hj=1",
            "_gid_=1",
            "__utmsession=1",
            "_fbclogin",
        ] {
            assert!(!owner(&[cookie]).is_empty(), "{cookie}");
        }
        assert!(!owner(&[]).may_be(&owner(&[])));
    }
}
