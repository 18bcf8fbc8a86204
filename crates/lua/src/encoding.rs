//! The encodings of `lighty.c`, compatible with lighttpd's functions of the same names.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

/// Base64 without padding; unused bits of the last digit are ignored.
const BASE64: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_encode_padding(false)
    .with_decode_padding_mode(DecodePaddingMode::RequireNone)
    .with_decode_allow_trailing_bits(true);
const BASE64_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, BASE64);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, BASE64);

/// Characters that `urlenc` encodes in a path.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'$')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'+')
    .add(b',')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A digest in capital hexadecimal digits; `None`: unknown algorithm.
pub(crate) fn digest(algorithm: &[u8], data: &[u8]) -> Option<String> {
    Some(match algorithm {
        b"md5" => hex(&Md5::digest(data)),
        b"sha1" => hex(&Sha1::digest(data)),
        b"sha256" => hex(&Sha256::digest(data)),
        b"sha512" => hex(&Sha512::digest(data)),
        _ => return None,
    })
}

/// A message authentication code (RFC 2104) in capital hexadecimal digits; `None`: unknown
/// algorithm.
pub(crate) fn hmac(algorithm: &[u8], key: &[u8], data: &[u8]) -> Option<String> {
    macro_rules! code {
        ($hash:ty) => {{
            let mut mac = Hmac::<$hash>::new_from_slice(key).ok()?;
            mac.update(data);
            hex(&mac.finalize().into_bytes())
        }};
    }
    Some(match algorithm {
        b"md5" => code!(Md5),
        b"sha1" => code!(Sha1),
        b"sha256" => code!(Sha256),
        b"sha512" => code!(Sha512),
        _ => return None,
    })
}

/// Compares two strings in a time that depends only on their lengths.
pub(crate) fn is_same_secret(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

/// Encodes bytes as capital hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| hex_digits(*byte));
    digits.map(char::from).collect()
}

fn hex_digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// Appends the code of a byte. `format!` takes ten times as long.
fn push_hex(to: &mut Vec<u8>, before: &[u8], byte: u8, after: &[u8]) {
    to.extend_from_slice(before);
    to.extend_from_slice(&hex_digits(byte));
    to.extend_from_slice(after);
}

/// Decodes hexadecimal digits; `None` if the text is invalid.
pub(crate) fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| pair(*high, *low)).collect()
}

fn pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Encodes bytes as base64 without padding.
pub(crate) fn base64(data: &[u8], is_url: bool) -> String {
    if is_url { BASE64_URL.encode(data) } else { BASE64_STANDARD.encode(data) }
}

/// Decodes base64 up to the first invalid character. Spaces are skipped.
pub(crate) fn from_base64(text: &[u8], is_url: bool) -> Option<Vec<u8>> {
    let (engine, others) = if is_url { (&BASE64_URL, b"-_") } else { (&BASE64_STANDARD, b"+/") };
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || others.contains(byte);
    let digits = text.iter().copied().filter(|byte| !is_space(*byte));
    let digits: Vec<u8> = digits.take_while(is_digit).collect();
    (!digits.is_empty()).then(|| engine.decode(digits).ok()).flatten()
}

/// Encodes a path with `%xx`.
pub(crate) fn url(path: &[u8]) -> Vec<u8> {
    percent_encode(path, IN_PATH).to_string().into_bytes()
}

/// Decodes `%xx` in a path. Control characters become `_`.
pub(crate) fn from_url(path: &[u8]) -> Vec<u8> {
    let mut decoded: Vec<u8> = percent_decode(path).collect();
    decoded.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b'_');
    decoded
}

/// Decodes the names and values of a query.
pub(crate) fn from_query(query: &[u8]) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    // lighttpd handles the query as a C string, which ends at a NUL.
    let query = query.split(|&byte| byte == 0).next().unwrap_or_default();
    let part = |part: &[u8]| {
        let spaced: Vec<u8> = part.iter().map(|&b| if b == b'+' { b' ' } else { b }).collect();
        from_url(&spaced)
    };
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let mut sides = pair.splitn(2, |&byte| byte == b'=');
        (part(sides.next().unwrap_or_default()), part(sides.next().unwrap_or_default()))
    })
}

/// Encodes a name or a value of a query.
pub(crate) fn query_part(part: &[u8], is_name: bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(part.len());
    for &byte in part {
        match byte {
            b' ' => text.push(b'+'),
            b'=' if !is_name => text.push(byte),
            b'!' | b'$' | b'(' | b')' | b'*' | b',' | b'-' | b'.' | b'/' | b':' | b'?' | b'@'
            | b'_' | b'~' => text.push(byte),
            _ if byte.is_ascii_alphanumeric() => text.push(byte),
            _ => push_hex(&mut text, b"%", byte, b""),
        }
    }
    text
}

/// Replaces the special characters of XML by references.
pub(crate) fn xml(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_control() || b"\"&'<>`".contains(&byte) {
            push_hex(&mut encoded, b"&#x", byte, b";");
        } else {
            encoded.push(byte);
        }
    }
    encoded
}

/// Encodes text as a quoted-string (RFC 9110 §5.6.4).
pub(crate) fn quoted(text: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(text.len() + 2);
    encoded.push(b'"');
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            encoded.push(b'\\');
        }
        encoded.push(byte);
    }
    encoded.push(b'"');
    encoded
}

/// Decodes a quoted-string; other text is returned unchanged.
pub(crate) fn from_quoted(text: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = text.strip_prefix(b"\"") else { return Some(text.to_vec()) };
    let mut decoded = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return (at + 1 == inner.len()).then_some(decoded),
            // A closing quotation mark must follow the escaped character.
            b'\\' if at + 2 < inner.len() => decoded.push(*bytes.next()?.1),
            b'\\' => return None,
            _ => decoded.push(byte),
        }
    }
    None
}

/// Escapes text with backslashes. `is_json`: control characters become `\u00xx`, and other
/// characters stay.
pub(crate) fn escaped(text: &[u8], is_json: bool) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(text.len());
    for &byte in text {
        let short = match byte {
            b'"' | b'\\' => Some(byte),
            8 => Some(b'b'),
            9 => Some(b't'),
            10 => Some(b'n'),
            11 if !is_json => Some(b'v'),
            12 => Some(b'f'),
            13 => Some(b'r'),
            7 if !is_json => Some(b'a'),
            _ => None,
        };
        match short {
            Some(short) => encoded.extend_from_slice(&[b'\\', short]),
            None if byte < b' ' && is_json => {
                push_hex(&mut encoded, b"\\u00", byte, b"");
            }
            None if !is_json && !(b' '..=b'~').contains(&byte) => {
                push_hex(&mut encoded, b"\\x", byte, b"");
            }
            None => encoded.push(byte),
        }
    }
    encoded
}

/// Removes backslash escapes and the surrounding quotation marks.
pub(crate) fn from_escaped(text: &[u8]) -> Vec<u8> {
    let inner = text.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\""));
    let mut rest = inner.unwrap_or(text);
    let mut decoded = Vec::with_capacity(rest.len());
    while let [byte, after @ ..] = rest {
        if *byte != b'\\' {
            decoded.push(*byte);
            rest = after;
            continue;
        }
        rest = match after {
            [] => {
                decoded.push(b'\\');
                &[]
            }
            [b'x', high, low, after @ ..] if pair(*high, *low).is_some() => {
                decoded.extend(pair(*high, *low));
                after
            }
            [b'u', a, b, c, d, after @ ..] if unicode([*a, *b, *c, *d]).is_some() => {
                let character = unicode([*a, *b, *c, *d]).unwrap_or_default();
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                after
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                decoded.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            [byte, after @ ..] => {
                decoded.push(match byte {
                    b'0' => 0,
                    b'a' => 7,
                    b'b' => 8,
                    b't' => 9,
                    b'n' => 10,
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => 13,
                    other => *other,
                });
                after
            }
        };
    }
    decoded
}

fn unicode([a, b, c, d]: [u8; 4]) -> Option<char> {
    let code = u32::from(pair(a, b)?) << 8 | u32::from(pair(c, d)?);
    char::from_u32(code)
}

/// Simplifies a file system path: removes empty parts, `.` and `..`.
pub(crate) fn simplified(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut last: &[u8] = b"";
    let mut is_absolute = path.starts_with(b"/");
    for part in path.split(|&byte| byte == b'/') {
        last = part;
        match part {
            b"" | b"." => {}
            b".." => {
                // As in lighttpd, a removed part leaves its slash behind.
                is_absolute |= parts.pop().is_some() && parts.is_empty();
            }
            _ => parts.push(part),
        }
    }
    let is_folder = matches!(last, b"" | b"." | b"..") && !parts.is_empty();
    let mut simple = if is_absolute { b"/".to_vec() } else { Vec::new() };
    simple.extend_from_slice(&parts.join(&b'/'));
    if is_folder {
        simple.push(b'/');
    }
    simple
}

/// Normalises the `%xx` of a path and a query: unreserved characters are decoded, the other ones
/// get capital digits.
pub(crate) fn normalised(uri: &[u8]) -> Vec<u8> {
    let mut sides = uri.splitn(2, |&byte| byte == b'?');
    let (path, query) = (sides.next().unwrap_or_default(), sides.next());
    let path = simplified(&reencoded(path, |byte| byte == b'/'));
    let Some(query) = query else { return path };
    let query = reencoded(query, |_| false);
    let query = String::from_utf8_lossy(&query).replace("%20", "+");
    [&path[..], b"?", query.as_bytes()].concat()
}

/// Decodes and encodes `%xx`. `also` selects reserved characters to decode.
fn reencoded(text: &[u8], also: impl Fn(u8) -> bool) -> Vec<u8> {
    let is_unreserved =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || also(byte);
    let needs_code = |byte: u8| !(b'!'..=b'~').contains(&byte) || b"\"#<>[\\]^`{|}".contains(&byte);
    let mut encoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        let code = match after {
            [high, low, ..] if *byte == b'%' => pair(*high, *low),
            _ => None,
        };
        match code {
            Some(decoded) if is_unreserved(decoded) => encoded.push(decoded),
            Some(decoded) => push_hex(&mut encoded, b"%", decoded, b""),
            None if *byte == b'%' || needs_code(*byte) => {
                push_hex(&mut encoded, b"%", *byte, b"");
            }
            None => encoded.push(*byte),
        }
        rest = if code.is_some() { &after[2..] } else { after };
    }
    encoded
}

/// Splits a `Cookie` field into names and values.
pub(crate) fn cookies(field: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = until_nul(field);
    loop {
        rest = skip(rest, |b| is_space(b) || b == b';');
        if rest.is_empty() {
            return found;
        }
        let name;
        (name, rest) = token(rest, |b| is_space(b) || matches!(b, b'=' | b';'));
        rest = skip(rest, is_space);
        let mut value = Vec::new();
        if let Some(after) = rest.strip_prefix(b"=") {
            rest = skip(after, is_space);
            if rest.starts_with(b"\"") {
                (value, rest) = quoted_string(rest);
            } else {
                let text;
                (text, rest) = token(rest, |b| is_space(b) || matches!(b, b'=' | b';'));
                value = text.to_vec();
            }
        }
        found.push((name.to_vec(), value));
        rest = skip(rest, |b| b != b';');
    }
}

/// Splits a field into words, quoted-strings and separators.
pub(crate) fn tokens(field: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = until_nul(field);
    loop {
        rest = skip(rest, is_space);
        let Some(&first) = rest.first() else { return found };
        if matches!(first, b',' | b';' | b'=') {
            found.push(vec![first]);
            rest = &rest[1..];
        } else if first == b'"' {
            let text;
            (text, rest) = quoted_string(rest);
            found.push(text);
        } else {
            let text;
            (text, rest) = token(rest, |b| is_space(b) || matches!(b, b',' | b';' | b'='));
            found.push(text.to_vec());
        }
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

fn skip(text: &[u8], is_skipped: impl Fn(u8) -> bool) -> &[u8] {
    token(text, |byte| !is_skipped(byte)).1
}

/// Splits the text before the first byte for which `ends` is true.
fn token(text: &[u8], ends: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| ends(byte)).unwrap_or(text.len());
    text.split_at(end)
}

/// Splits off a quoted-string at the start, with its quotation marks and escapes. A missing closing
/// mark is added.
fn quoted_string(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return (text[..=at].to_vec(), &text[at + 1..]),
            b'\\' if at + 1 < text.len() => at += 2,
            b'\\' => return ([text, b"\\\""].concat(), b""),
            _ => at += 1,
        }
    }
    ([text, b"\""].concat(), b"")
}
