//! Lifetimes of pages (RFC 9111 §3, §4.2, RFC 5861, RFC 9213).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CACHE_CONTROL, EXPIRES, PRAGMA, SET_COOKIE, VARY};
use http::{HeaderName, StatusCode};
use sendoff_config::Keeping;
use sendoff_esi::surrogate;
use sendoff_message::response::{Field, ResponseHead};
use serde::{Deserialize, Serialize};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

use super::lscache::Control;

/// Longest lifetime of a page.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Time for which an old page stands in for an application that does not answer, unless the
/// application or the route says otherwise. A restart takes about this long. RFC 9111 §4.2.4 sets
/// no limit; Varnish has the same default (`default_grace`).
const DISCONNECTED: Duration = Duration::from_secs(10);

/// Statuses of pages that are kept if only the configuration gives a lifetime.
const KEPT_UNASKED: [StatusCode; 4] = [
    StatusCode::OK,
    StatusCode::NON_AUTHORITATIVE_INFORMATION,
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::PERMANENT_REDIRECT,
];

/// Statuses that are never kept: parts, and answers to conditions. They are complete only for the
/// request that asked for them.
const PARTS: [StatusCode; 3] =
    [StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::RANGE_NOT_SATISFIABLE];

/// Directives of `Cache-Control` that keep a page from other clients, apart from `no-store`.
const NOT_FOR_OTHERS: [&str; 2] = ["private", "no-cache"];

/// Directives that forbid keeping a page.
const FORBIDDING: [&str; 3] = ["private", "no-store", "no-cache"];

/// `Cache-Control` for shared caches that the application's operator has chosen, such as this one
/// (RFC 9213 §3).
const TARGETED: &str = "CDN-Cache-Control";

/// Statuses that this cache understands (RFC 9111 §5.2.2.3): RFC 9110 §15.1 says how they may be
/// kept.
const UNDERSTOOD: [u16; 14] =
    [200, 203, 204, 300, 301, 302, 303, 307, 308, 404, 405, 410, 414, 501];

/// Largest number of seconds in a field. A larger number counts as this one (RFC 9111 §1.2.2).
const MOST_SECONDS: u64 = 1 << 31;

/// Periods in which a page may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    /// Until then the page is used as it is.
    pub(super) fresh_until: SystemTime,
    /// Time after `fresh_until` in which the page is used while it is made anew.
    pub(super) stale_while: Duration,
    /// Time after `fresh_until` in which the page is used if the application reports a failure.
    pub(super) stale_if_error: Duration,
    /// Time after `fresh_until` in which the page is used if the application does not answer.
    #[serde(default)]
    pub(super) stale_if_silent: Duration,
}

impl Times {
    /// Seconds for which the page is still fresh; 0 if it is not.
    pub(super) fn seconds_left(&self, now: SystemTime) -> u64 {
        self.fresh_until.duration_since(now).unwrap_or_default().as_secs()
    }
}

/// Members of `Vary` of which no page can be chosen for other clients. The two fields tell
/// applications the client's address, and the request as the client sent it lacks them.
const OF_EACH_CLIENT: [&str; 3] = ["*", "forwarded", "x-forwarded-for"];

/// True if nothing in the head makes the response one for a single request.
fn can_be_kept(head: &ResponseHead) -> bool {
    // A response that sets a cookie is for one client. An incomplete head may lack the cookie.
    !head.has(SET_COOKIE.as_str())
        && !head.is_incomplete
        && !PARTS.contains(&head.status)
        && can_be_chosen(head)
}

/// As [`judge`], if the application speaks LSCache's language and has said this.
pub(super) fn judge_by(
    control: &Control,
    keeping: &Keeping,
    head: &ResponseHead,
    now: SystemTime,
) -> Option<Times> {
    // The server itself forbids to keep some responses by this field.
    let accel_expires = head.accel_expires.as_ref().map(|value| accel_expires(value, now));
    let is_forbidden = matches!(accel_expires, Some(None | Some(Duration::ZERO)));
    let fresh = control.lifetime()?;
    if !can_be_kept(head) || is_forbidden || fresh.is_zero() {
        return None;
    }
    let stale = keeping.stale.unwrap_or_default();
    Some(Times {
        fresh_until: now.checked_add(fresh.min(LONGEST))?,
        stale_while: control.max_stale().unwrap_or(stale).min(LONGEST),
        stale_if_error: stale,
        stale_if_silent: keeping.stale.unwrap_or(DISCONNECTED),
    })
}

/// Returns the lifetimes of a response; `None` if it may not be kept.
pub(super) fn judge(keeping: &Keeping, head: &ResponseHead, now: SystemTime) -> Option<Times> {
    if !can_be_kept(head) {
        return None;
    }
    let targeted = match Targeted::first_of(head) {
        Targeted::Missing => None,
        Targeted::Forbidding => return None,
        Targeted::Said(directives) => Some(directives),
    };
    let control = targeted.as_ref().map_or_else(|| Directives::of(head), Directives::clone);
    let fresh = match &head.accel_expires {
        Some(value) => accel_expires(value, now)?,
        None if control.forbids(head.status) => return None,
        None if targeted.is_some() => control.lifetime()?.saturating_sub(age(head, now)),
        None if is_not_for_others(head, &control) => return None,
        None if is_silent(head) => keeping.fresh.filter(|_| KEPT_UNASKED.contains(&head.status))?,
        None => {
            let lifetime = control.lifetime().or_else(|| until_expires(head, now))?;
            lifetime.saturating_sub(age(head, now))
        }
    };
    if fresh.is_zero() {
        return None;
    }
    let must_revalidate = control.has("must-revalidate") || control.has("proxy-revalidate");
    // `s-maxage` forbids old pages, too (RFC 9111 §5.2.2.10), unless the application itself allows
    // them.
    let of_route = if control.has("s-maxage") { Some(Duration::ZERO) } else { keeping.stale };
    let stale = |directive, unsaid| {
        let said = control.seconds(directive).flatten().or(of_route).unwrap_or(unsaid);
        if must_revalidate { Duration::ZERO } else { said.min(LONGEST) }
    };
    Some(Times {
        fresh_until: now.checked_add(fresh.min(LONGEST))?,
        stale_while: stale("stale-while-revalidate", Duration::ZERO),
        stale_if_error: stale("stale-if-error", Duration::ZERO),
        stale_if_silent: stale("stale-if-error", DISCONNECTED),
    })
}

/// True if the application gives no lifetime of its page.
fn is_silent(head: &ResponseHead) -> bool {
    let says = [PRAGMA, CACHE_CONTROL, EXPIRES];
    !says.iter().any(|name| head.has(name.as_str()))
}

/// True if the response leaves it to the operator how long its page is kept: it is successful, and
/// no field of it is about caches.
pub(super) fn is_left_to_operator(head: &ResponseHead) -> bool {
    head.status == StatusCode::OK && is_silent(head) && !head.has(TARGETED)
}

/// True if `Cache-Control` says that the page is not for other clients. As in nginx, the directives
/// count wherever they appear, for example before a semicolon. A field that cannot be read counts
/// as such a directive. `Pragma` counts only without `Cache-Control` (RFC 9111 §5.4).
fn is_not_for_others(head: &ResponseHead, control: &Directives) -> bool {
    let says = |name: HeaderName, word: &str| {
        let mut fields = head.fields.iter().filter(|field| field.is(name.as_str()));
        fields.any(|field| !field.value().is_ascii() || has_word(field.value(), word))
    };
    NOT_FOR_OTHERS.iter().any(|word| says(CACHE_CONTROL, word))
        || says(CACHE_CONTROL, "no-store") && !control.has("must-understand")
        || !head.has(CACHE_CONTROL.as_str()) && says(PRAGMA, "no-cache")
}

/// True if the field contains the word anywhere, in upper or lower case.
fn has_word(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// True if request fields decide which requests get the page: `Vary` contains neither `*` nor an
/// invalid field name, nor a field that the server itself sends to applications with the address of
/// each client.
fn can_be_chosen(head: &ResponseHead) -> bool {
    let is_field = |name: &String| {
        !OF_EACH_CLIENT.contains(&&**name) && HeaderName::from_bytes(name.as_bytes()).is_ok()
    };
    varies_with(head).iter().all(is_field)
}

/// Lifetime in nginx's `X-Accel-Expires`: seconds, or after `@` the end as seconds since 1970; 0:
/// the page is not kept.
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

/// Age of a response (RFC 9111 §4.2.3): the larger of its `Age` and the time since its `Date`. Of
/// several values the first counts.
pub(super) fn age(head: &ResponseHead, now: SystemTime) -> Duration {
    let said = head.value("Age").and_then(|value| {
        let first = std::str::from_utf8(value).ok()?.split(',').next()?;
        number(first.trim())
    });
    let since = date(head, "Date").and_then(|date| now.duration_since(date).ok());
    // A date has no fractions of a second, so the age has none.
    let apparent = since.map_or(0, |since| since.as_secs());
    Duration::from_secs(said.unwrap_or(0).max(apparent))
}

/// Lifetime of the page by its `Expires`. An invalid date counts as past (RFC 9111 §5.3).
fn until_expires(head: &ResponseHead, now: SystemTime) -> Option<Duration> {
    head.value("Expires")?;
    let made = date(head, "Date").unwrap_or(now);
    let left = date(head, "Expires").and_then(|end| end.duration_since(made).ok());
    Some(left.unwrap_or_default())
}

/// A date in one of the three forms of RFC 9110 §5.6.7.
fn date(head: &ResponseHead, name: &str) -> Option<SystemTime> {
    let text = std::str::from_utf8(head.value(name)?).ok()?;
    httpdate::parse_http_date(text.trim()).ok()
}

/// A number of seconds (RFC 9111 §1.2.2).
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(MOST_SECONDS))
}

/// The field for the operator's shared caches. Its directives replace `Cache-Control` and
/// `Expires`.
enum Targeted {
    /// The field is missing, empty, or not a dictionary of structured values (RFC 9213 §2.2).
    Missing,
    /// The field is not a dictionary, but contains a directive that keeps pages from others, such
    /// as `NO-STORE`, which should be in lower case.
    Forbidding,
    Said(Directives),
}

impl Targeted {
    fn of(head: &ResponseHead) -> Self {
        let fields = head.fields.iter().filter(|field| field.is(TARGETED)).map(Field::value);
        let text = fields.collect::<Vec<_>>().join(&b", "[..]);
        match Parser::new(&text).parse::<Dictionary>() {
            Ok(dictionary) => match Directives::of_dictionary(&dictionary) {
                Directives(pairs) if pairs.is_empty() => Self::Missing,
                directives => Self::Said(directives),
            },
            Err(_) if FORBIDDING.iter().any(|word| has_word(&text, word)) => Self::Forbidding,
            Err(_) => Self::Missing,
        }
    }

    /// The words for the server's own cache: RFC 9213 comes before the older field.
    fn first_of(head: &ResponseHead) -> Self {
        match Self::of(head) {
            Self::Missing => Directives::of_surrogate(head).map_or(Self::Missing, Self::Said),
            said => said,
        }
    }
}

/// The directives of `Cache-Control` or of a field like it, in lower case.
#[derive(Clone)]
struct Directives(Vec<(String, String)>);

impl Directives {
    fn of(head: &ResponseHead) -> Self {
        let fields = head.fields.iter().filter(|field| field.is(CACHE_CONTROL.as_str()));
        let texts = fields.map(|field| String::from_utf8_lossy(field.value()).to_ascii_lowercase());
        let text = texts.collect::<Vec<_>>().join(",");
        let pairs = text.split(',').map(str::trim).map(|word| match word.split_once('=') {
            Some((name, value)) => {
                (name.trim().to_owned(), value.trim().trim_matches('"').to_owned())
            }
            None => (word.to_owned(), String::new()),
        });
        Self(pairs.collect())
    }

    /// The directives in a dictionary of structured values.
    fn of_dictionary(dictionary: &Dictionary) -> Self {
        let pairs = dictionary.iter().filter_map(|(name, entry)| {
            let value = match entry {
                ListEntry::Item(Item { bare_item: BareItem::Boolean(true), .. }) => String::new(),
                ListEntry::Item(Item { bare_item: BareItem::Boolean(false), .. }) => return None,
                ListEntry::Item(Item { bare_item: BareItem::Integer(number), .. }) => {
                    number.to_string()
                }
                // Directives whose values matter have integer values; another type is invalid.
                ListEntry::Item(_) | ListEntry::InnerList(_) => "?".to_owned(),
            };
            Some((name.as_str().to_owned(), value))
        });
        Self(pairs.collect())
    }

    /// The directives of `Surrogate-Control` about time; `None`: there are none. `max-age=60+30`
    /// allows old pages for another 30 s. A word behind `;` names the only server that is meant.
    fn of_surrogate(head: &ResponseHead) -> Option<Self> {
        let fields = head.fields.iter().filter(|field| field.is(surrogate::CONTROL));
        let texts = fields.map(|field| String::from_utf8_lossy(field.value()).to_ascii_lowercase());
        let text = texts.collect::<Vec<_>>().join(",");
        let mut pairs = Vec::new();
        for directive in text.split(',') {
            let (said, server) = directive.split_once(';').unwrap_or((directive, "sendoff"));
            let (name, value) = said.split_once('=').unwrap_or((said, ""));
            match name.trim() {
                _ if server.trim() != "sendoff" => {}
                "no-store" => pairs.push(("no-store".to_owned(), String::new())),
                "max-age" => {
                    let (fresh, stale) = value.split_once('+').unwrap_or((value, ""));
                    let mut pair = |name: &str, value: &str| {
                        pairs.push((name.to_owned(), value.trim().to_owned()));
                    };
                    pair("max-age", fresh);
                    if !stale.is_empty() {
                        pair("stale-while-revalidate", stale);
                        pair("stale-if-error", stale);
                    }
                }
                _ => {}
            }
        }
        (!pairs.is_empty()).then_some(Self(pairs))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// The value of the directive; `Some(None)` if it is there without a number.
    fn seconds(&self, name: &str) -> Option<Option<Duration>> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(number(value).map(Duration::from_secs))
    }

    /// Lifetime of the page for a shared cache. A value that cannot be read counts as 0 (RFC 9111
    /// §4.2.1).
    fn lifetime(&self) -> Option<Duration> {
        let said = self.seconds("s-maxage").or_else(|| self.seconds("max-age"))?;
        Some(said.unwrap_or_default())
    }

    /// True if a directive forbids keeping the page.
    fn forbids(&self, status: StatusCode) -> bool {
        if self.has("must-understand") {
            // `no-store` beside `must-understand` is for caches that do not know the latter (RFC
            // 9111 §5.2.2.3).
            return !UNDERSTOOD.contains(&status.as_u16())
                || self.has("private")
                || self.has("no-cache");
        }
        FORBIDDING.iter().any(|name| self.has(name))
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
    use sendoff_config::CacheDialect;

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
        let times = judge(keeping, &head, now)?;
        Some((
            times.fresh_until.duration_since(now).unwrap(),
            times.stale_while,
            times.stale_if_error,
        ))
    }

    const HTTP: Keeping =
        Keeping { fresh: None, stale: None, cookies: false, dialect: CacheDialect::Http };
    const TIMED: Keeping = Keeping { fresh: Some(HOUR), stale: Some(HOUR), ..HTTP };

    #[test]
    fn what_the_application_says_comes_first() {
        let seconds = Duration::from_secs;
        for (fields, fresh) in [
            (&[("Cache-Control", "max-age=60")][..], 60),
            (&[("Cache-Control", "max-age=60, s-maxage=10")], 10),
            (&[("Cache-Control", "public, max-age=60"), ("Age", "50")], 10),
            (&[("Cache-Control", "max-age=60"), ("Age", "-50")], 60),
            (&[("Cache-Control", "max-age=60"), ("Age", "50.0")], 60),
            (&[("Cache-Control", "max-age=60"), ("Age", "50, 0")], 10),
            (&[("Cache-Control", "max-age=60"), ("Age", "0, 50")], 60),
            (&[("Cache-Control", "max-age=60"), ("Age", "50"), ("Age", "0")], 10),
            (&[("Cache-Control", "max-age=60, proxy-revalidate")], 60),
            (&[("Cache-Control", "max-age=60, no-store, must-understand")], 60),
            (&[("CDN-Cache-Control", "max-age=60")], 60),
            (&[("CDN-Cache-Control", "foo, max-age=60"), ("Cache-Control", "no-store")], 60),
            (&[("CDN-Cache-Control", "max-age=60"), ("Expires", "0"), ("Age", "20")], 40),
            (&[("CDN-Cache-Control", "max-age=9"), ("CDN-Cache-Control", "s-maxage=60")], 60),
            (&[("CDN-Cache-Control", "max-age=5, &&"), ("Cache-Control", "max-age=60")], 60),
            (&[("CDN-Cache-Control", ""), ("Cache-Control", "max-age=60")], 60),
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
    fn dates_have_three_forms() {
        for end in [
            "Thu, 18 Aug 2050 02:01:18 GMT",
            "Thursday, 18-Aug-50 02:01:18 GMT",
            "Thu Aug 18 02:01:18 2050",
        ] {
            let made = [("Date", "Thu, 18 Aug 2050 02:00:18 GMT"), ("Expires", end)];
            assert_eq!(judged(&HTTP, 200, &made).map(|times| times.0.as_secs()), Some(60), "{end}");
            let undated = [("Date", "foo"), ("Expires", end)];
            assert!(judged(&HTTP, 200, &undated).is_some(), "{end}");
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
            &[("Expires", "Thu, 18  Aug  2050 02:01:18 GMT")],
            &[("Expires", "Thu, 18 Aug 50 02:01:18 GMT")],
            &[("Expires", "Thu, 18 Aug 2050 02:01:18 UTC")],
            &[("Expires", "Thu, 18-Aug-2050 02:01:18 GMT")],
            &[
                ("Expires", "Fri, 01 Jan 2100 00:00:00 GMT"),
                ("Date", "Sat, 02 Jan 2100 00:00:00 GMT"),
            ],
            &[("Cache-Control", "max-age=60"), ("Age", "99999999999999999999")],
            &[("Cache-Control", "max-age=60"), ("Date", "Thu, 19 Nov 1981 08:52:00 GMT")],
            &[("Cache-Control", "max-age=1.5")],
            &[("CDN-Cache-Control", "private"), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "no-cache, max-age=60")],
            &[("CDN-Cache-Control", "no-store"), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "max-age=0"), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "max-age=\"60\""), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "max-age=60"), ("Age", "70")],
            &[("CDN-Cache-Control", "max-age=60, &&"), ("Cache-Control", "no-store")],
            &[("CDN-Cache-Control", "max-age=60"), ("Set-Cookie", "a=b")],
            &[("CDN-Cache-Control", "NO-STORE"), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "max-age=60, Private"), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "no-cache; &&"), ("Cache-Control", "max-age=60")],
            &[("CDN-Cache-Control", "no-store, x=\u{e9}"), ("Cache-Control", "max-age=60")],
            &[
                ("CDN-Cache-Control", "max-age=60"),
                ("CDN-Cache-Control", "No-Store"),
                ("Cache-Control", "max-age=60"),
            ],
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
        for status in [204, 299, 302, 400, 404, 499, 500, 502, 503, 504, 599] {
            assert!(judged(&HTTP, status, &[("Cache-Control", "max-age=5")]).is_some(), "{status}");
        }
        let understood = &[("Cache-Control", "max-age=5, no-store, must-understand")];
        assert!(
            judged(&HTTP, 404, understood).is_some() && judged(&HTTP, 599, understood).is_none()
        );
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
    fn an_old_page_stands_in_for_no_answer_for_a_while() {
        let never = Keeping { stale: Some(Duration::ZERO), ..HTTP };
        for (keeping, control, seconds) in [
            (HTTP, "max-age=5", 10),
            (HTTP, "max-age=5, stale-while-revalidate=7", 10),
            (HTTP, "max-age=5, stale-if-error=7", 7),
            (HTTP, "max-age=5, stale-if-error=0", 0),
            (HTTP, "max-age=5, must-revalidate", 0),
            (HTTP, "max-age=5, proxy-revalidate", 0),
            (HTTP, "s-maxage=5", 0),
            (HTTP, "s-maxage=5, stale-if-error=7", 7),
            (TIMED, "max-age=5", HOUR.as_secs()),
            (never, "max-age=5", 0),
        ] {
            let mut head = ResponseHead::new(StatusCode::OK, None);
            head.field("Cache-Control", control);
            let times = judge(&keeping, &head, SystemTime::now()).unwrap();
            assert_eq!(times.stale_if_silent.as_secs(), seconds, "{keeping:?} {control}");
        }
    }

    #[test]
    fn names_in_vary_are_a_set() {
        let mut head = ResponseHead::new(StatusCode::OK, None);
        head.field("Vary", "Accept-Encoding,  Accept");
        head.field("vary", "ACCEPT,");
        assert_eq!(varies_with(&head), ["accept", "accept-encoding"]);
    }
}
