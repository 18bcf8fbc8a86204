//! The server's changes to every response head before the protocol writes it. Filters run in this
//! order:
//!
//! 1. rules of the site's routes: header fields, fields that Lua scripts have set, `Cache-Control`;
//! 2. rules of `.htaccess` files (`site/htaccess/mod.rs`);
//! 3. Lua scripts on the response head (`lua_host/scripts.rs`);
//! 4. `Strict-Transport-Security`, under TLS;
//! 5. the common fields, `Server` and `Date`;
//! 6. changes by compression (`compress/policy.rs`), which sees media types and `Cache-Control` as
//!    the rules have left them.
//!
//! A filter is a function on [`ResponseHead`], called by a
//! [`HeadFilter`](sendoff_exchange::head_filter::HeadFilter) around the protocol's sink. A filter that also changes
//! the body is a sink of its own, such as `compress/compressed.rs` and the table of
//! `handlers/dispatch/explain.rs`.

use std::sync::LazyLock;
use std::time::SystemTime;

use bytes::Bytes;
use sendoff_config::Cache;
use sendoff_message::Clock;
use sendoff_message::response::{Field, ResponseHead};
use sendoff_site::effects::Effects;

/// The name of the server.
static SERVER: LazyLock<Field> = LazyLock::new(|| Field::shared("Server", "sendoff"));

/// Media types that get a route's charset: nginx's `charset_types`, and JavaScript's newer name (RFC
/// 9239).
const TEXTS: [&str; 7] = [
    "text/html",
    "text/xml",
    "text/plain",
    "text/vnd.wap.wml",
    "application/javascript",
    "application/rss+xml",
    "text/javascript",
];

/// Applies the rules of the site's routes.
pub(crate) fn apply(head: &mut ResponseHead, effects: &Effects) {
    effects.response_headers.iter().for_each(|changes| changes.apply(&mut head.fields));
    set_fields(head, &effects.lua.fields);
    if let Some(cache) = &effects.cache {
        tell_caches(head, cache);
    }
    if let Some(charset) = &effects.charset {
        add_charset(head, charset, |media_type| media_type.starts_with(b"text/"));
    }
    if let Some(charset) = &effects.default_charset {
        let is_text = |media_type: &[u8]| {
            TEXTS.iter().any(|text| media_type.eq_ignore_ascii_case(text.as_bytes()))
        };
        add_charset(head, charset, is_text);
    }
}

/// Sets fields. Several of them may have the same name.
fn set_fields(head: &mut ResponseHead, fields: &[(Bytes, Bytes)]) {
    if !fields.is_empty() {
        head.fields.retain(|field| !fields.iter().any(|(set, _)| field.is(set)));
        let own = fields.iter().map(|(name, value)| Field::Own(name.clone(), value.clone()));
        head.fields.extend(own);
    }
}

/// Adds the common fields in front of all others. `hides_server`: a rule has removed `Server`, so
/// the server does not add its own.
pub(crate) fn common(head: &mut ResponseHead, clock: &Clock, hides_server: bool) {
    if !head.has("Date") {
        head.fields.insert(0, clock.date());
    }
    if !hides_server && !head.has("Server") {
        head.fields.insert(0, SERVER.clone());
    }
}

/// Adds a field unless it is there.
pub(crate) fn set_default(head: &mut ResponseHead, name: &'static str, value: &Bytes) {
    if !head.has(name) {
        head.field(name, value.clone());
    }
}

/// Adds the charset to a media type that names none, if `is_text` says so.
fn add_charset(head: &mut ResponseHead, charset: &[u8], is_text: impl Fn(&[u8]) -> bool) {
    let Some(field) = head.fields.iter_mut().find(|field| field.is("Content-Type")) else { return };
    let value = field.value();
    if !value.contains(&b';') && is_text(value.trim_ascii()) {
        field.set_value([value, b"; charset=", charset].concat());
    }
}

/// Adds `Cache-Control` and `Expires` (RFC 9111 §5) to a successful response that has neither.
fn tell_caches(head: &mut ResponseHead, cache: &Cache) {
    let is_success = head.status.is_success() || head.status == http::StatusCode::NOT_MODIFIED;
    if !is_success || head.has("Cache-Control") || head.has("Expires") {
        return;
    }
    let age = cache.max_age.map(|age| format!("max-age={}", age.as_secs()));
    let directives: Vec<String> = age.into_iter().chain(cache.directives.iter().cloned()).collect();
    if !directives.is_empty() {
        head.field("Cache-Control", directives.join(", "));
    }
    let expires = cache.max_age.and_then(|age| SystemTime::now().checked_add(age));
    if let Some(expires) = expires {
        head.field("Expires", httpdate::fmt_http_date(expires));
    }
}

/// The common fields as lines, for a worker that writes the head itself.
pub(crate) fn common_lines(clock: &Clock) -> Vec<u8> {
    let (server, date) = (&*SERVER, clock.date());
    let [end, colon]: [&[u8]; 2] = [b"\r\n", b": "];
    [server.name(), colon, server.value(), end, date.name(), colon, date.value(), end].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;

    use super::*;

    fn fields(head: &ResponseHead) -> Vec<String> {
        head.fields.iter().map(Field::text).collect()
    }

    fn head(status: u16) -> ResponseHead {
        let mut head = ResponseHead::new(StatusCode::from_u16(status).unwrap(), None);
        head.field("X-A", "1");
        head.field("x-a", "2");
        head
    }

    #[test]
    fn a_route_names_the_charset_of_texts_without_one() {
        let mut effects = Effects::default();
        effects.default_charset = Some("utf-8".into());
        for (media_type, expected) in [
            ("text/html", "text/html; charset=utf-8"),
            ("Text/Plain", "Text/Plain; charset=utf-8"),
            ("application/rss+xml", "application/rss+xml; charset=utf-8"),
            ("text/html; charset=iso-8859-1", "text/html; charset=iso-8859-1"),
            ("text/css", "text/css"),
            ("application/json", "application/json"),
        ] {
            let mut head = ResponseHead::new(StatusCode::OK, None);
            head.field("Content-Type", media_type);
            apply(&mut head, &effects);
            assert_eq!(fields(&head), [format!("Content-Type: {expected}")]);
        }
    }

    #[test]
    fn caches_are_told_about_successes_unless_the_application_did() {
        let cache = Cache {
            max_age: Some(Duration::from_secs(60)),
            directives: vec!["public".to_owned(), "immutable".to_owned()],
        };
        let mut told = head(200);
        tell_caches(&mut told, &cache);
        let all = fields(&told);
        assert!(
            all.contains(&"Cache-Control: max-age=60, public, immutable".to_owned()),
            "{all:?}"
        );
        assert!(all.iter().any(|field| field.starts_with("Expires: ")), "{all:?}");
        let mut missing = head(404);
        tell_caches(&mut missing, &cache);
        assert_eq!(fields(&missing).len(), 2);
        let mut own = head(200);
        own.field("cache-control", "no-store");
        tell_caches(&mut own, &cache);
        assert_eq!(fields(&own).len(), 3);
    }
}
