//! How long a page may be kept (RFC 9111 §3, §4.2, RFC 5861).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{AGE, AUTHORIZATION, CACHE_CONTROL, PRAGMA, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_cache_semantics::{CacheOptions, CachePolicy, RequestLike, ResponseLike};
use sendoff_config::Keeping;
use serde::{Deserialize, Serialize};

use crate::request::Request;
use crate::response::{Field, ResponseHead};

/// No page is kept for longer.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Pages with these statuses are kept if only the configuration says how long.
const KEPT_UNASKED: [StatusCode; 4] = [
    StatusCode::OK,
    StatusCode::NON_AUTHORITATIVE_INFORMATION,
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::PERMANENT_REDIRECT,
];

/// Never kept: parts, and answers to conditions. They are whole for the request alone that asked for them.
const PARTS: [StatusCode; 3] =
    [StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::RANGE_NOT_SATISFIABLE];

/// Words of `Cache-Control` with which a page is not for others.
const NOT_FOR_OTHERS: [&str; 3] = ["private", "no-store", "no-cache"];

/// For how long a page may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    /// Until then it is used as it is.
    pub(super) fresh_until: SystemTime,
    /// So long afterwards it is used while it is made anew.
    pub(super) stale_while: Duration,
    /// So long afterwards it is used if the application fails.
    pub(super) stale_if_error: Duration,
}

/// Judges whether a response may be kept; `None`: it may not.
pub(super) fn judge(
    keeping: &Keeping,
    request: &Request,
    head: &ResponseHead,
    now: SystemTime,
) -> Option<Times> {
    let fields = fields(head);
    // To whom a cookie was given is no matter of the page.
    if fields.contains_key(SET_COOKIE) || PARTS.contains(&head.status) || !can_be_chosen(head) {
        return None;
    }
    let response = Response { status: head.status, fields: &fields };
    // A guess from `Last-Modified` would be about files, not about what scripts make.
    let options = CacheOptions {
        cache_heuristic: 0.0,
        immutable_min_time_to_live: Duration::ZERO,
        ..CacheOptions::default()
    };
    let policy = CachePolicy::new_options(&Asked::by(request), &response, now, options);
    let control = Directives::of(&fields);
    let fresh = match &head.accel_expires {
        Some(value) => accel_expires(value, now)?,
        None if is_not_for_others(&fields) => return None,
        None if is_silent(&fields) => {
            let kept = KEPT_UNASKED.contains(&head.status) && policy.is_storable();
            keeping.fresh.filter(|_| kept)?
        }
        None if policy.is_storable() => policy.time_to_live(now),
        None => return None,
    };
    if fresh.is_zero() {
        return None;
    }
    let must_revalidate = control.has("must-revalidate") || control.has("proxy-revalidate");
    // It forbids old pages, too (RFC 9111 §5.2.2.10), but the application may say itself that it does not mean that.
    let unsaid = if control.has("s-maxage") { Duration::ZERO } else { keeping.stale };
    let stale = |directive| {
        let said = control.seconds(directive).unwrap_or(unsaid);
        if must_revalidate { Duration::ZERO } else { said.min(LONGEST) }
    };
    Some(Times {
        fresh_until: now.checked_add(fresh.min(LONGEST))?,
        stale_while: stale("stale-while-revalidate"),
        stale_if_error: stale("stale-if-error"),
    })
}

/// Whether the application says nothing about how long its page is fresh.
fn is_silent(fields: &HeaderMap) -> bool {
    let says = ["pragma", "cache-control", "expires"];
    !says.iter().any(|name| fields.contains_key(*name))
}

/// Whether `Cache-Control` says that the page is not for others. As in nginx, the words count wherever they stand, for example in front
/// of a semicolon. What cannot be read may say it, too.
fn is_not_for_others(fields: &HeaderMap) -> bool {
    fields.get_all(CACHE_CONTROL).iter().any(|value| match value.to_str() {
        Ok(text) => NOT_FOR_OTHERS.iter().any(|word| text.contains(word)),
        Err(_) => true,
    })
}

/// Whether request fields say which requests get the page: `Vary` has neither `*` nor what is no name of a field.
fn can_be_chosen(head: &ResponseHead) -> bool {
    let is_field = |name: &String| name != "*" && HeaderName::from_bytes(name.as_bytes()).is_ok();
    varies_with(head).iter().all(is_field)
}

/// nginx's word about how long a page is fresh: seconds, or behind `@` the second since 1970 in which it ends; 0: it is not kept.
fn accel_expires(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.strip_prefix('@') {
        Some(second) => {
            let end = UNIX_EPOCH.checked_add(Duration::from_secs(second.parse().ok()?))?;
            end.duration_since(now).ok()
        }
        None => Some(Duration::from_secs(text.parse().ok()?)),
    }
}

/// The fields of a head that are valid. The words of `Cache-Control` and `Pragma` are in small letters, as the library expects them.
/// An `Age` that no cache can have sent is left out: it would be added to times.
fn fields(head: &ResponseHead) -> HeaderMap {
    let mut all = HeaderMap::new();
    for field in &head.fields {
        let Ok(name) = HeaderName::from_bytes(field.name()) else { continue };
        let value = if [CACHE_CONTROL, PRAGMA].contains(&name) {
            HeaderValue::from_bytes(&field.value().to_ascii_lowercase())
        } else {
            HeaderValue::from_bytes(field.value())
        };
        if let Ok(value) = value {
            all.append(name, value);
        }
    }
    let age = all.get(AGE).and_then(|age| age.to_str().ok()?.parse::<u32>().ok());
    if age.is_none() {
        all.remove(AGE);
    }
    all
}

/// The directives of `Cache-Control`.
struct Directives(String);

impl Directives {
    fn of(fields: &HeaderMap) -> Self {
        let values = fields.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
        Self(values.collect::<Vec<_>>().join(","))
    }

    fn each(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split(',').map(str::trim).map(|word| match word.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim().trim_matches('"')),
            None => (word, ""),
        })
    }

    fn has(&self, name: &str) -> bool {
        self.each().any(|(known, _)| known == name)
    }

    fn seconds(&self, name: &str) -> Option<Duration> {
        let (_, value) = self.each().find(|(known, _)| *known == name)?;
        value.parse().ok().map(Duration::from_secs)
    }
}

/// A request as the library sees it. What it says about caches is left out: a client may not make the application work.
struct Asked(HeaderMap);

impl Asked {
    fn by(request: &Request) -> Self {
        let mut fields = HeaderMap::new();
        if let Some(value) = request.headers.get(AUTHORIZATION) {
            fields.insert(AUTHORIZATION, value.clone());
        }
        Self(fields)
    }
}

impl RequestLike for Asked {
    fn uri(&self) -> Uri {
        Uri::default()
    }

    fn is_same_uri(&self, other: &Uri) -> bool {
        *other == Uri::default()
    }

    fn method(&self) -> &Method {
        &Method::GET
    }

    fn headers(&self) -> &HeaderMap {
        &self.0
    }
}

struct Response<'a> {
    status: StatusCode,
    fields: &'a HeaderMap,
}

impl ResponseLike for Response<'_> {
    fn status(&self) -> StatusCode {
        self.status
    }

    fn headers(&self) -> &HeaderMap {
        self.fields
    }
}

/// The request fields that the response varies with, in small letters (RFC 9110 §12.5.5).
pub(super) fn varies_with(head: &ResponseHead) -> Vec<String> {
    let values = head.fields.iter().filter(|field| field.is(VARY.as_str())).map(Field::value);
    let names: Vec<u8> = values.collect::<Vec<_>>().join(&b","[..]);
    let names = String::from_utf8_lossy(&names).to_ascii_lowercase();
    let mut names: Vec<_> = names.split(',').map(|name| name.trim().to_owned()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::request;

    const HOUR: Duration = Duration::from_secs(3600);

    fn judged(
        keeping: &Keeping,
        status: u16,
        fields: &[(&'static str, &'static str)],
    ) -> Option<(Duration, Duration, Duration)> {
        let mut head = ResponseHead::new(StatusCode::from_u16(status).unwrap(), None);
        for (name, value) in fields {
            head.field(name, *value);
        }
        head.accel_expires = head.take("X-Accel-Expires");
        let now = SystemTime::now();
        let times = judge(keeping, &request(None), &head, now)?;
        Some((
            times.fresh_until.duration_since(now).unwrap(),
            times.stale_while,
            times.stale_if_error,
        ))
    }

    const HTTP: Keeping = Keeping { fresh: None, stale: Duration::ZERO, cookies: false };
    const TIMED: Keeping = Keeping { fresh: Some(HOUR), stale: HOUR, cookies: false };

    #[test]
    fn what_the_application_says_comes_first() {
        let seconds = Duration::from_secs;
        for (fields, fresh) in [
            (&[("Cache-Control", "max-age=60")][..], 60),
            (&[("Cache-Control", "max-age=60, s-maxage=10")], 10),
            (&[("Cache-Control", "public, max-age=60"), ("Age", "50")], 10),
            (&[("Cache-Control", "max-age=60"), ("Age", "99999999999999999999")], 60),
            (&[("X-Accel-Expires", "30"), ("Cache-Control", "no-store")], 30),
            (&[("Cache-Control", "max-age=99999999999")], LONGEST.as_secs()),
        ] {
            for keeping in [&HTTP, &TIMED] {
                let (judged, _, _) = judged(keeping, 200, fields).unwrap();
                assert_eq!(judged, seconds(fresh), "{fields:?}");
            }
        }
    }

    #[test]
    fn what_is_not_for_others_is_not_kept() {
        for fields in [
            &[("Cache-Control", "private, max-age=60")][..],
            &[("Cache-Control", "no-store")],
            &[("Cache-Control", "no-cache, max-age=60")],
            &[("Cache-Control", "Private, max-age=60")],
            &[("Cache-Control", "max-age=60, No-Store")],
            &[
                ("Cache-Control", "private; max-age=60"),
                ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT"),
            ],
            &[("Cache-Control", "private, x=\u{e9}"), ("Cache-Control", "max-age=60")],
            &[("Cache-Control", "immutable")],
            &[("Pragma", "No-Cache"), ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT")],
            &[("Cache-Control", "max-age=0")],
            &[("Cache-Control", "max-age=-1")],
            &[("Expires", "0")],
            &[("Expires", "Thu, 19 Nov 1981 08:52:00 GMT")],
            &[("Pragma", "no-cache")],
            &[("Set-Cookie", "a=b"), ("Cache-Control", "public, max-age=60")],
            &[("Vary", "Accept, *"), ("Cache-Control", "max-age=60")],
            &[("X-Accel-Expires", "0"), ("Cache-Control", "max-age=60")],
            &[("X-Accel-Expires", "soon")],
            &[("X-Accel-Expires", "-1")],
            &[("Vary", "Cookie;Accept"), ("Cache-Control", "max-age=60")],
        ] {
            assert_eq!(judged(&TIMED, 200, fields), None, "{fields:?}");
        }
    }

    #[test]
    fn a_time_of_the_configuration_is_for_pages_without_one() {
        assert_eq!(judged(&TIMED, 200, &[]), Some((HOUR, HOUR, HOUR)));
        assert_eq!(judged(&TIMED, 301, &[]).map(|times| times.0), Some(HOUR));
        assert_eq!(judged(&HTTP, 200, &[]), None);
        for status in [201, 206, 302, 400, 403, 404, 500, 503] {
            assert_eq!(judged(&TIMED, status, &[]), None, "{status}");
        }
        assert!(judged(&HTTP, 404, &[("Cache-Control", "max-age=5")]).is_some());
        for status in [206, 304, 416] {
            assert!(judged(&HTTP, status, &[("Cache-Control", "max-age=5")]).is_none());
            assert!(judged(&HTTP, status, &[("X-Accel-Expires", "5")]).is_none());
        }
    }

    #[test]
    fn old_pages_are_used_as_long_as_the_application_allows() {
        let stale =
            |control| judged(&TIMED, 200, &[("Cache-Control", control)]).map(|(_, w, e)| (w, e));
        let seconds = Duration::from_secs;
        assert_eq!(stale("max-age=5"), Some((HOUR, HOUR)));
        assert_eq!(stale("max-age=5, must-revalidate"), Some((Duration::ZERO, Duration::ZERO)));
        assert_eq!(stale("s-maxage=5"), Some((Duration::ZERO, Duration::ZERO)));
        let said = stale("s-maxage=5, stale-while-revalidate=7");
        assert_eq!(said, Some((seconds(7), Duration::ZERO)));
        assert_eq!(stale("max-age=5, stale-while-revalidate=7"), Some((seconds(7), HOUR)));
        assert_eq!(stale("max-age=5, stale-if-error=\"8\""), Some((HOUR, seconds(8))));
    }

    #[test]
    fn names_in_vary_are_a_set() {
        let mut head = ResponseHead::new(StatusCode::OK, None);
        head.field("Vary", "Accept-Encoding,  Accept");
        head.field("vary", "ACCEPT,");
        assert_eq!(varies_with(&head), ["accept", "accept-encoding"]);
    }
}
