//! The keys of a request.

use http::header::USER_AGENT;
use sendoff_message::request::Request;
use sendoff_message::request::variables::has_one_name;

use super::control::Control;
use super::cookies::{self, Owner};
use crate::key::Key;

/// The cookie by which pages differ unless they say otherwise. Plugins put the kind of user there.
const VARY_COOKIE: &str = "_lscache_vary";

/// Most parameters of which some are left out of a key. PHP reads the first 1000 (`max_input_vars`),
/// or fewer if it is told so, and the ignored ones count.
const MOST_PARAMETERS: usize = 200;

/// The variables by which `.htaccess` files steer the cache.
const CONTROL: &str = "Cache-Control";
const VARY: &str = "Cache-Vary";
const KEY: &str = "Cache-Key-Modify";

/// A request to a site that speaks LSCache's language.
#[derive(Debug, Clone)]
pub struct LsCacheRequest {
    /// The words of `.htaccess` files.
    pub(crate) control: Control,
    /// The key of its public page.
    pub key: Key,
    /// Its private page; `None`: no cookie tells whose it would be.
    pub(crate) private: Option<PrivatePage>,
}

/// The private page of a request.
#[derive(Debug, Clone)]
pub(crate) struct PrivatePage {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
}

impl LsCacheRequest {
    /// `key` is the key of the request without cookies, and `environment` are the variables that
    /// `.htaccess` files set. `None`: they keep the request away from the cache.
    #[must_use]
    pub fn of(request: &Request, environment: &[(Vec<u8>, Vec<u8>)], key: &Key) -> Option<Self> {
        let control = Control::parse(&variable(environment, CONTROL));
        if control.forbids {
            return None;
        }
        let fields = &request.headers;
        let named = variable(environment, VARY);
        let mut names: Vec<_> = named.split(',').map(str::trim).collect();
        names.push(VARY_COOKIE);
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        let mut parts = vec![b"lscache".to_vec()];
        for name in names {
            let value = cookies::value_for(fields, name);
            parts.push(name.as_bytes().to_vec());
            // A cookie's value contains its name, so it differs from no cookie.
            parts.push(value.unwrap_or_default());
        }
        let public = key.with(&parts);
        let owner = Owner::of(fields);
        let private = (!owner.is_empty()).then(|| {
            let agent = fields.get(USER_AGENT).map_or(&b""[..], |value| value.as_bytes());
            let mut parts = vec![b"private".to_vec()];
            parts.extend([request.peer.address().into_owned(), agent.to_vec()]);
            parts.extend(cookies::telling(fields).map(<[u8]>::to_vec));
            PrivatePage { key: public.with(&parts), owner }
        });
        Some(Self { control, key: public, private })
    }

    /// The key of the client's private page.
    #[must_use]
    pub fn private_key(&self) -> Option<&Key> {
        self.private.as_ref().map(|private| &private.key)
    }
}

/// A variable of `.htaccess` files, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// The request and its variables without the parameters that pages do not differ by; `None`:
/// `.htaccess` files name none (`CacheKeyModify -qs:NAME`), or an application may read another set
/// of parameters with the ignored ones than without them.
#[must_use]
pub fn without_ignored(
    request: &Request,
    environment: &[Variable],
) -> Option<(Request, Vec<Variable>)> {
    let words = variable(environment, KEY);
    let ignored: Vec<_> = words.split(',').filter_map(|word| word.strip_prefix("-qs:")).collect();
    let count = |text: &[u8]| text.iter().filter(|&&byte| byte == b'&').count() + 1;
    let most = count(request.query.as_deref().unwrap_or_default()).max(count(&request.uri));
    if ignored.is_empty() || most > MOST_PARAMETERS {
        return None;
    }
    let is_ignored = |parameter: &&[u8]| {
        let name = parameter.split(|&byte| byte == b'=').next().unwrap_or_default();
        // Some applications read another parameter behind a semicolon, or another name.
        has_one_name(parameter)
            && ignored.iter().any(|ignored| match ignored.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning.as_bytes()),
                None => name == ignored.as_bytes(),
            })
    };
    let rest = |query: &[u8]| {
        let parameters = query.split(|&byte| byte == b'&');
        parameters.filter(|parameter| !is_ignored(parameter)).collect::<Vec<_>>().join(&b"&"[..])
    };
    let mut reduced = request.clone();
    reduced.query = request.query.as_deref().map(|query| rest(query).into());
    if let Some(at) = request.uri.iter().position(|&byte| byte == b'?') {
        let (path, query) = request.uri.split_at(at);
        let query = rest(&query[1..]);
        let mark = if query.is_empty() { &b""[..] } else { b"?" };
        reduced.uri = [path, mark, &query].concat().into();
    }
    reduced.query = reduced.query.filter(|query| !query.is_empty());
    // The query before an internal redirect, such as one to a front controller.
    let is_query = |(name, _): &&Variable| name.ends_with(b"REDIRECT_QUERY_STRING");
    let rest = environment.iter().filter(|variable| !is_query(variable)).cloned();
    Some((reduced, rest.collect()))
}

/// The value of a variable, without regard to case. Each internal redirect, such as one to a front
/// controller, puts `REDIRECT_` before the names.
fn variable(environment: &[(Vec<u8>, Vec<u8>)], name: &str) -> String {
    let is_it = |known: &[u8]| {
        let mut known = known;
        while let Some(before) = known.strip_prefix(b"REDIRECT_") {
            known = before;
        }
        known.eq_ignore_ascii_case(name.as_bytes())
    };
    let values = environment.iter().filter(|(known, _)| is_it(known));
    let values = values.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    values.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use http::header::COOKIE;
    use sendoff_message::request::sample::request;
    use sendoff_site::effects::Effects;

    use super::*;

    fn asked(cookie: &'static str, environment: &[(&str, &str)]) -> Option<LsCacheRequest> {
        let mut request = request(Some("a.test"));
        if !cookie.is_empty() {
            request.headers.insert(COOKIE, cookie.parse().unwrap());
        }
        let key = Key::new("site", &request, &[b"/a"], &Effects::default());
        let owned =
            |(name, value): &(&str, &str)| (name.as_bytes().into(), value.as_bytes().into());
        let environment: Vec<_> = environment.iter().map(owned).collect();
        LsCacheRequest::of(&request, &environment, &key)
    }

    #[test]
    fn public_pages_differ_by_the_cookies_that_vary_and_private_ones_by_all() {
        let of = |cookie| asked(cookie, &[]).unwrap();
        assert_eq!(of("a=1").key, of("").key);
        assert_ne!(of("_lscache_vary=1").key, of("").key);
        assert_ne!(of(".lscache_vary=1").key, of("").key);
        let currency = |cookie| asked(cookie, &[("cache-vary", ",currency")]).unwrap().key;
        assert_ne!(currency("currency=EUR"), currency("currency=USD"));
        assert_eq!(currency("a=1"), currency("a=2"));
        assert!(of("").private_key().is_none() && of("_ga=1").private_key().is_none());
        assert_ne!(of("s=1").private_key(), of("s=2").private_key());
        assert_ne!(of("s=1").private_key(), of("s=1; a=1").private_key());
        assert_eq!(of("s=1").private_key(), of("s=1; _ga=1").private_key());
        assert!(asked("", &[("Cache-Control", "no-autoflush,no-cache")]).is_none());
    }

    #[test]
    fn parameters_that_make_no_difference_are_left_out() {
        let mut request = request(Some("a.test"));
        let mut reduced = |query: &str| {
            request.uri = format!("/a?{query}").into();
            request.query = Some(query.to_owned().into());
            let words = (b"Cache-Key-Modify".to_vec(), b"-qs:fbclid,-qs:utm*".to_vec());
            let (reduced, _) = without_ignored(&request, &[words])?;
            let query = reduced.query.as_deref().map(<[u8]>::to_vec);
            let uri = String::from_utf8(reduced.uri.to_vec()).unwrap();
            assert_eq!(query.is_some(), uri.contains('?'));
            Some(uri)
        };
        assert_eq!(reduced("fbclid=1&b=2&utm_x=3").unwrap(), "/a?b=2");
        assert_eq!(reduced("fbclid=1").unwrap(), "/a");
        assert_eq!(reduced("fbclidx=1&xutm=2").unwrap(), "/a?fbclidx=1&xutm=2");
        assert_eq!(reduced("utm_x=1;b=2").unwrap(), "/a?utm_x=1;b=2");
        assert_eq!(reduced("fbclid=[b]=2").unwrap(), "/a?fbclid=[b]=2");
        let many = |count| "utm_x=1&".repeat(count - 1) + "b=2";
        assert_eq!(reduced(&many(MOST_PARAMETERS)).unwrap(), "/a?b=2");
        assert_eq!(reduced(&many(MOST_PARAMETERS + 1)), None);
    }
}
