//! nginx' companions of `X-Accel-Redirect`: fields by which an application controls how its
//! response is sent. They apply to every response, whether it names a file or not, and do not reach
//! the client. (`X-Accel-Expires` is for the page cache.)

use std::num::NonZeroU64;

use bytes::Bytes;
use sendoff_config::is_charset;
use sendoff_http1::CgiHead;
use sendoff_message::response::ResponseHead;

/// The companion fields of one response.
#[derive(Debug, Default)]
pub struct Companions {
    /// `X-Accel-Limit-Rate`: bytes of the body per second; `None`: as fast as the client takes it.
    pub rate: Option<NonZeroU64>,
    /// `X-Accel-Buffering: no`: bytes that the client does not take wait in the application, not in
    /// a file.
    pub is_unbuffered: bool,
    /// `X-Accel-Charset`: for a media type that names none.
    charset: Option<Bytes>,
}

impl Companions {
    /// Reads the fields of a head. As in nginx, the first field of each name counts, and an invalid
    /// value has no effect.
    pub fn of(head: &CgiHead) -> Self {
        let first = |name: &[u8]| head.values(name).next();
        Self {
            rate: first(b"x-accel-limit-rate").and_then(rate),
            is_unbuffered: first(b"x-accel-buffering")
                .is_some_and(|value| value.eq_ignore_ascii_case(b"no")),
            charset: first(b"x-accel-charset")
                .filter(|value| is_charset(value))
                .map(Bytes::copy_from_slice),
        }
    }

    /// True if the response's head or rate changes.
    pub fn change_response(&self) -> bool {
        self.rate.is_some() || self.charset.is_some()
    }

    /// Adds the charset to a media type that names none.
    pub fn change(&self, head: &mut ResponseHead) {
        let Some(charset) = &self.charset else { return };
        let mut fields = head.fields.iter_mut();
        let Some(field) = fields.find(|field| field.is("Content-Type")) else { return };
        let value = field.value();
        if !has_charset(value) {
            field.set_value([value, b"; charset=", charset].concat());
        }
    }

    /// Notes about the fields for `sendoff explain`.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let rate = self.rate.map(|rate| format!("sent at {rate} bytes/s (X-Accel-Limit-Rate)"));
        let unbuffered = self
            .is_unbuffered
            .then(|| "a slow client holds the application back (X-Accel-Buffering: no)".to_owned());
        rate.into_iter().chain(unbuffered)
    }
}

/// Parses bytes per second: digits only; 0 means no limit.
fn rate(value: &[u8]) -> Option<NonZeroU64> {
    let digits = std::str::from_utf8(value).ok()?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    NonZeroU64::new(digits.parse().ok()?)
}

fn has_charset(media_type: &[u8]) -> bool {
    let name = b"charset=";
    media_type.split(|&byte| byte == b';').skip(1).map(<[u8]>::trim_ascii).any(|parameter| {
        parameter.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn companions(block: &str) -> Companions {
        Companions::of(&CgiHead::parse(&Bytes::copy_from_slice(block.as_bytes())).unwrap())
    }

    #[test]
    fn the_first_value_counts_and_nonsense_has_no_effect() {
        for (value, expected) in [
            ("1000", 1000),
            ("18446744073709551615", u64::MAX),
            ("0", 0),
            ("off", 0),
            ("", 0),
            ("+5", 0),
            ("5k", 0),
            ("-1", 0),
            ("18446744073709551616", 0),
        ] {
            let head = format!("X-Accel-Limit-Rate: {value}\nx-accel-limit-rate: 7\n\n");
            let rate = companions(&head).rate.map_or(0, NonZeroU64::get);
            assert_eq!(rate, expected, "{value:?}");
        }
        assert!(companions("X-Accel-Buffering: NO\n\n").is_unbuffered);
        for value in ["yes", "nope", ""] {
            assert!(!companions(&format!("X-Accel-Buffering: {value}\n\n")).is_unbuffered);
        }
        assert!(!companions("A: b\n\n").change_response());
    }

    #[test]
    fn a_charset_is_added_where_there_is_none() {
        for (media_type, charset, expected) in [
            ("text/plain", "utf-8", "text/plain; charset=utf-8"),
            ("image/png", "utf-8", "image/png; charset=utf-8"),
            ("text/plain;charset=koi8-r", "utf-8", "text/plain;charset=koi8-r"),
            ("text/plain; a=b; Charset=x", "utf-8", "text/plain; a=b; Charset=x"),
            ("text/plain", "utf-8; x=y", "text/plain"),
            ("text/plain", "", "text/plain"),
        ] {
            let mut head = ResponseHead::new(StatusCode::OK, None);
            head.field("content-type", media_type);
            companions(&format!("X-Accel-Charset: {charset}\n\n")).change(&mut head);
            assert_eq!(head.value("Content-Type"), Some(expected.as_bytes()), "{charset}");
        }
    }
}
