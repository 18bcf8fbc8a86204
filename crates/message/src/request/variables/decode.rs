//! Values and names in the forms in which applications decode them.

use std::borrow::Cow;

use percent_encoding::percent_decode;

/// Decodes a form's value, where `+` is a space.
pub(super) fn form_decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'+') {
        return percent_decode(text).into();
    }
    let blanks: Vec<_> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&blanks).collect())
}

/// Decodes a form's value in which `%u0061` is the character with this number, as Perl's CGI does
/// (`CGI::Util::unescape`); `None`: there is none.
pub(super) fn form_decode_with_numbers(text: &[u8]) -> Option<Vec<u8>> {
    if !text.windows(2).any(|pair| pair == b"%u") {
        return None;
    }
    let (mut decoded, mut rest, mut has_number) = (Vec::with_capacity(text.len()), text, false);
    while !rest.is_empty() {
        if let Some((character, behind)) = numbered(rest) {
            decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            (rest, has_number) = (behind, true);
            continue;
        }
        let next = rest[1..].windows(2).position(|pair| pair == b"%u");
        let (plain, behind) = rest.split_at(next.map_or(rest.len(), |at| at + 1));
        decoded.extend_from_slice(&form_decode(plain));
        rest = behind;
    }
    has_number.then_some(decoded)
}

/// The character whose number stands at the beginning of a text, and the rest.
fn numbered(text: &[u8]) -> Option<(char, &[u8])> {
    let (digits, rest) = text.strip_prefix(b"%u")?.split_at_checked(4)?;
    let number = digits
        .iter()
        .try_fold(0, |number, &digit| Some(number * 16 + char::from(digit).to_digit(16)?))?;
    Some((char::from_u32(number)?, rest))
}

/// A cookie's value without quotation marks. Python and others take them off, and decode `\"` and
/// `\101` within them (RFC 2109 §4.1).
pub(super) fn unquoted(value: &[u8]) -> Vec<u8> {
    let inner = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let Some(mut rest) = inner else { return value.to_vec() };
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((&byte, behind)) = rest.split_first() {
        (plain, rest) = match (byte, behind) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..]) => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                (plain, behind)
            }
            (b'\\', [escaped, behind @ ..]) => {
                plain.push(*escaped);
                (plain, behind)
            }
            _ => {
                plain.push(byte);
                (plain, behind)
            }
        };
    }
    plain
}

/// A text without the white space and control characters around it. Python's `strip()` and
/// JavaScript's `trim()` remove Unicode's white space, too, in UTF-8 or, if the text is not UTF-8,
/// in ISO 8859-1. PHP's `trim()` removes zeros, and Tornado makes blanks of control characters
/// first.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let Ok(text) = std::str::from_utf8(text) else {
        let is_blank = |byte: &u8| matches!(byte, 0..=b' ' | 0x7f | 0x85 | 0xa0);
        let begin = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
        let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(begin, |last| last + 1);
        return &text[begin..end];
    };
    let is_blank =
        |letter: char| letter.is_whitespace() || letter.is_control() || letter == '\u{feff}';
    text.trim_matches(is_blank).as_bytes()
}

/// A value, and what is left of it without white space around it, if that is another text: the two
/// readings of applications that strip values, and of others.
pub fn and_trimmed(value: Cow<'_, [u8]>) -> impl Iterator<Item = Cow<'_, [u8]>> {
    let inner = trimmed(&value);
    let shorter = (inner.len() < value.len()).then(|| Cow::Owned(inner.to_vec()));
    [Some(value), shorter].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_decoded_by_their_numbers() {
        for (text, expected) in [
            ("del", None),
            ("%75", None),
            ("%u", None),
            ("%u006", None),
            ("%ud800", None),
            ("%u0064el", Some("del")),
            ("x+%u00e4%75%uu%u0041", Some("x \u{e4}u%uuA")),
        ] {
            let decoded = form_decode_with_numbers(text.as_bytes());
            assert_eq!(decoded.as_deref(), expected.map(str::as_bytes), "{text}");
        }
    }

    #[test]
    fn white_space_of_every_alphabet_is_taken_off() {
        for text in [&b" a\t"[..], b"\xc2\xa0a\xe3\x80\x80", b"\xa0a\x85", b"\xef\xbb\xbfa"] {
            assert_eq!(trimmed(text), b"a", "{text:?}");
        }
        assert_eq!((trimmed(b"\xa0\x85"), trimmed(b"\xff a")), (&b""[..], &b"\xff a"[..]));
    }
}
