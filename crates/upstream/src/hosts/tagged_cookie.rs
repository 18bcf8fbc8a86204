//! A cookie of the application that binds its clients: they get it with the tag of the host that has
//! set it in front of its value, and the application gets it back as it was (HAProxy's
//! `cookie NAME prefix`). No state is kept, so it holds after restarts and on other servers.
//!
//! ```text
//!   application  Set-Cookie: id=7       Cookie: id=7
//!   client       Set-Cookie: id=743009548c95a958~7      Cookie: id=743009548c95a958~7
//! ```

use std::borrow::Cow;

use http::header::{COOKIE, Entry};
use http::{HeaderMap, HeaderValue};
use sendoff_message::request::sent_cookies;
use sendoff_message::response::Field;

use super::wish::HostTag;

/// The mark between a tag and the value.
const MARK: u8 = b'~';

/// Digits of a tag.
const DIGITS: usize = 16;

/// The application's cookie with this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaggedCookie<'a> {
    pub(super) name: &'a str,
}

impl TaggedCookie<'_> {
    /// True if a request has it with a tag.
    pub(super) fn is_tagged(self, fields: &HeaderMap) -> bool {
        sent_cookies(fields)
            .any(|(name, value)| name == self.name.as_bytes() && tagged(value).is_some())
    }

    /// Removes the tags from a request.
    pub(super) fn remove_tags(self, fields: &mut HeaderMap) {
        if let Entry::Occupied(mut cookies) = fields.entry(COOKIE) {
            for field in cookies.iter_mut() {
                // A part of a valid value is valid.
                if let Ok(own) = HeaderValue::from_bytes(&self.without_tag(field.as_bytes())) {
                    *field = own;
                }
            }
        }
    }

    /// A `Cookie` field without tags.
    fn without_tag(self, field: &[u8]) -> Vec<u8> {
        let parts = field.split(|&byte| byte == b';').map(|part| {
            let Some(value) = self.value_at(part) else { return Cow::Borrowed(part) };
            match tagged(&part[value..]) {
                Some((_, own)) => Cow::Owned([&part[..value], own].concat()),
                None => Cow::Borrowed(part),
            }
        });
        parts.collect::<Vec<_>>().join(&b';')
    }

    /// Writes the tag in front of the values that a response gives this cookie. A cookie without a
    /// value, which a client shall forget, stays.
    pub(super) fn tag(self, tag: HostTag, fields: &mut [Field]) {
        for field in fields.iter_mut().filter(|field| field.is("Set-Cookie")) {
            let old = field.value();
            let end = old.iter().position(|&byte| byte == b';').unwrap_or(old.len());
            let Some(value) = self.value_at(&old[..end]).filter(|&value| value < end) else {
                continue;
            };
            let (before, own) = old.split_at(value);
            let new = [before, format!("{tag}~").as_bytes(), own].concat();
            field.set_value(new);
        }
    }

    /// The place of the value in `NAME=value`; `None`: it is another cookie.
    fn value_at(self, cookie: &[u8]) -> Option<usize> {
        let equals = cookie.iter().position(|&byte| byte == b'=')?;
        let is_this = cookie[..equals].trim_ascii() == self.name.as_bytes();
        let value = equals + 1;
        let blanks = cookie[value..].len() - cookie[value..].trim_ascii_start().len();
        is_this.then_some(value + blanks)
    }
}

/// The tag in front of a value, and the value behind it.
pub(super) fn tagged(value: &[u8]) -> Option<(HostTag, &[u8])> {
    let (tag, rest) = value.split_at_checked(DIGITS)?;
    Some((HostTag::parse(tag)?, rest.strip_prefix(&[MARK])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE_ID: TaggedCookie<'_> = TaggedCookie { name: "id" };

    fn own(fields: &[&str]) -> Option<Vec<String>> {
        let mut fields: HeaderMap =
            fields.iter().map(|field| (COOKIE, field.parse().unwrap())).collect();
        let is_tagged = COOKIE_ID.is_tagged(&fields);
        COOKIE_ID.remove_tags(&mut fields);
        let own = fields.get_all(COOKIE).iter().map(|field| field.to_str().unwrap().to_owned());
        is_tagged.then(|| own.collect())
    }

    #[test]
    fn the_application_gets_its_own_cookie() {
        let tag = HostTag::of("shop", &"10.0.0.1:80");
        let sent = format!("a=b;  id = {tag}~7; ID={tag}~8; id={tag}~\"9~\"");
        let theirs = format!("a=b;  id = 7; ID={tag}~8; id=\"9~\"");
        assert_eq!(own(&["x=1", &sent, "y=2"]).unwrap(), ["x=1", &theirs, "y=2"]);
        assert_eq!(own(&[&format!("id={tag}~")]).unwrap(), ["id="]);
        for plain in ["", "id", "id=7", "id=~7", "id=743009548C95A958~7", "xid=743009548c95a958~7"]
        {
            assert_eq!(own(&[plain]), None, "{plain}");
        }
        assert_eq!(own(&[&format!("id={tag}7")]), None);
    }

    #[test]
    fn clients_get_it_with_the_host() {
        let tag = HostTag::of("shop", &"10.0.0.1:80");
        for (set, expected) in [
            ("id=7; Path=/", "id=743009548c95a958~7; Path=/"),
            (" id = \"7\"", " id = 743009548c95a958~\"7\""),
            ("id=", "id="),
            ("id= ; Max-Age=0", "id= ; Max-Age=0"),
            ("other=7; id=7", "other=7; id=7"),
            ("id; id=7", "id; id=7"),
        ] {
            let mut fields = [Field::new("Set-Cookie", set), Field::new("X-Other", set)];
            COOKIE_ID.tag(tag, &mut fields);
            assert_eq!(
                fields.each_ref().map(Field::text),
                [format!("Set-Cookie: {expected}"), format!("X-Other: {set}")]
            );
            let set = String::from_utf8_lossy(fields[0].value()).into_owned();
            let sent = set.split(';').next().unwrap().trim();
            if let Some((_, value)) = sent.split_once("= ").or_else(|| sent.split_once('=')) {
                let back = tagged(value.as_bytes()).map(|(back, _)| back);
                assert_eq!(back, expected.contains('~').then_some(tag), "{set}");
            }
        }
    }
}
