//! The cookies of a request as they were sent (RFC 6265 §4.2).

use http::HeaderMap;
use http::header::COOKIE;

/// The names and values of all `Cookie` fields, in their order, without decoding.
pub fn sent_cookies(fields: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let fields = fields.get_all(COOKIE).iter();
    fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b';')).filter_map(|cookie| {
        let end = cookie.iter().position(|&byte| byte == b'=')?;
        Some((cookie[..end].trim_ascii(), cookie[end + 1..].trim_ascii()))
    })
}

/// The value of the first cookie with this name.
#[must_use]
pub fn sent_cookie<'r>(fields: &'r HeaderMap, name: &str) -> Option<&'r [u8]> {
    sent_cookies(fields).find(|(sent, _)| *sent == name.as_bytes()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cookie_of_a_name_counts() {
        let mut fields = HeaderMap::new();
        assert_eq!(sent_cookie(&fields, "a"), None);
        for value in ["x; b=1;a=\"2=3\" ; =4;A=5", "a=6; c"] {
            fields.append(COOKIE, value.parse().unwrap());
        }
        assert_eq!(sent_cookie(&fields, "a"), Some(&b"\"2=3\""[..]));
        assert_eq!(sent_cookie(&fields, "c"), None);
        assert_eq!(sent_cookies(&fields).count(), 5);
    }
}
