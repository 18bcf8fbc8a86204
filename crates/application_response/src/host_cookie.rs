//! The cookie that binds a client to a host of an upstream (`docs/upstreams.md`).
//!
//! The handler of a request adds it to [`ResponseHead::client_cookies`]. It becomes a field behind
//! the page cache, so it is never a part of a kept page.

use bytes::Bytes;
use sendoff_message::request::{Request, Scheme};
use sendoff_message::response::ResponseHead;
use sendoff_upstream::hosts::HostCookie;

/// The value of `Set-Cookie` for a host. The cookie lasts until the browser ends; no script can
/// read it, and a client that got it over TLS sends it over TLS alone.
pub fn set_cookie(cookie: &HostCookie<'_>, request: &Request) -> Bytes {
    let secure = if request.scheme == Scheme::Https { "; Secure" } else { "" };
    format!("{}={cookie}; Path=/; HttpOnly; SameSite=Lax{secure}", cookie.name).into()
}

/// Makes fields of the cookies for this client alone. Shared caches between here and the client
/// must not keep such a response.
pub fn add_cookies(head: &mut ResponseHead) {
    let cookies = std::mem::take(&mut head.client_cookies);
    if cookies.is_empty() {
        return;
    }
    for cookie in cookies {
        head.field("Set-Cookie", cookie);
    }
    make_private(head);
}

/// Adds `private` to `Cache-Control`, unless shared caches may not keep the response anyway.
fn make_private(head: &mut ResponseHead) {
    let mut directives: Vec<Vec<u8>> = Vec::new();
    for field in head.fields.iter().filter(|field| field.is("Cache-Control")) {
        let of_field = field.value().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        directives.extend(of_field.filter(|directive| !directive.is_empty()).map(<[u8]>::to_vec));
    }
    let is = |directive: &[u8], name: &str| directive.eq_ignore_ascii_case(name.as_bytes());
    if directives.iter().any(|directive| is(directive, "private") || is(directive, "no-store")) {
        return;
    }
    directives.retain(|directive| !is(directive, "public"));
    directives.push(b"private".to_vec());
    head.fields.retain(|field| !field.is("Cache-Control"));
    head.field("Cache-Control", directives.join(&b", "[..]));
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use sendoff_message::response::Field;

    use super::*;

    #[test]
    fn shared_caches_keep_no_response_with_the_cookie() {
        for (said, expected) in [
            (&[][..], "private"),
            (&["public, max-age=60"], "max-age=60, private"),
            (&["max-age=60", "Public"], "max-age=60, private"),
            (&["no-store"], "no-store"),
            (&["PRIVATE, max-age=60"], "PRIVATE, max-age=60"),
            (&["private=\"x, y\""], "private=\"x, y\", private"),
        ] {
            let mut head = ResponseHead::new(StatusCode::OK, None);
            said.iter().for_each(|value| head.field("Cache-Control", *value));
            add_cookies(&mut head);
            assert_eq!(head.fields.len(), said.len(), "nothing changes without a cookie");
            head.client_cookies.push("a=b".into());
            add_cookies(&mut head);
            let fields: Vec<_> = head.fields.iter().map(Field::text).collect();
            assert_eq!(fields.iter().filter(|field| *field == "Set-Cookie: a=b").count(), 1);
            let caching = head.value("Cache-Control").unwrap();
            assert_eq!(String::from_utf8_lossy(caching), expected);
            assert!(head.client_cookies.is_empty());
        }
    }
}
