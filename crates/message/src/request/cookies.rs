//! The cookies of a request as they were sent (RFC 6265 §4.2).

use http::HeaderMap;
use http::header::COOKIE;

/// Most cookies, and most bytes of them, that all applications read alike. PHP reads the first 1000
/// (`max_input_vars`), or fewer if it is told so. Chrome sends at most 180 for one host, and nginx
/// refuses fields above 8 KiB.
const READ_ALIKE: usize = 200;
const READ_ALIKE_BYTES: usize = 8 << 10;

/// True if an application may read a part of the cookies: there are too many, or they are too long.
#[must_use]
pub fn may_be_read_in_part(fields: &HeaderMap) -> bool {
    let (mut cookies, mut bytes) = (0, 0);
    for field in fields.get_all(COOKIE) {
        let field = field.as_bytes();
        bytes += field.len();
        cookies += 1 + field.iter().filter(|&&byte| byte == b';').count();
    }
    cookies > READ_ALIKE || bytes > READ_ALIKE_BYTES
}

/// The names and values of all `Cookie` fields, in their order, without decoding.
pub fn sent_cookies(fields: &HeaderMap) -> impl Iterator<Item = (&[u8], &[u8])> {
    let fields = fields.get_all(COOKIE).iter();
    fields.flat_map(|field| field.as_bytes().split(|&byte| byte == b';')).filter_map(|cookie| {
        let end = cookie.iter().position(|&byte| byte == b'=')?;
        Some((cookie[..end].trim_ascii(), cookie[end + 1..].trim_ascii()))
    })
}

/// True if every application reads no other cookie than the one with this name, which binds the
/// client to a host.
#[must_use]
pub fn is_only_cookie(fields: &HeaderMap, name: &str) -> bool {
    let mut parts = fields
        .get_all(COOKIE)
        .iter()
        .flat_map(|field| field.as_bytes().split(|&byte| byte == b';'));
    parts.all(|part| {
        let part = part.strip_prefix(b" ").unwrap_or(part);
        let value = part.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
        value.is_some_and(is_tag)
    })
}

/// True for a value as the server makes it for a host: 16 hexadecimal digits.
fn is_tag(value: &[u8]) -> bool {
    value.len() == 16 && value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
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
    fn many_or_long_cookies_may_be_read_in_part() {
        let is_risky = |fields: &[String]| {
            let values = fields.iter().map(|field| (COOKIE, field.parse().unwrap()));
            may_be_read_in_part(&values.collect())
        };
        assert!(!is_risky(&[]) && !is_risky(&["a=b; ".repeat(READ_ALIKE - 1) + "a=b"]));
        assert!(is_risky(&[";".repeat(READ_ALIKE)]));
        assert!(is_risky(&vec!["a=b".to_owned(); READ_ALIKE + 1]));
        assert!(!is_risky(&["x".repeat(READ_ALIKE_BYTES)]));
        assert!(is_risky(&["x".repeat(READ_ALIKE_BYTES), "y".to_owned()]));
    }

    #[test]
    fn another_cookie_is_one_however_it_is_written() {
        let is_only = |fields: &[&str]| {
            let values = fields.iter().map(|field| (COOKIE, field.parse().unwrap()));
            is_only_cookie(&values.collect(), "node")
        };
        let (own, two) = ("node=0123456789abcdef", "node=0123456789abcdef; node=fedcba9876543210");
        assert!(is_only(&[]) && is_only(&[own]) && is_only(&[two]));
        let ends = ["; a=b", "; a", " a=b", ",a=b", ";", "0"].map(|end| format!("{own}{end}"));
        let short = ["a", "node", "node=", "node=x", "node=0123456789ABCDEF", ""];
        for other in ends.iter().map(String::as_str).chain(short) {
            assert!(!is_only(&[other]) && !is_only(&[own, other]), "{other}");
        }
    }

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
