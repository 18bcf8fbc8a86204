//! Entity tags of compressed responses.
//!
//! The tag of a compressed response is the tag `"x"` of the uncompressed one with the coding at its
//! end: `W/"x+zstd"`. It is weak, because the same page may be compressed to different bytes,
//! depending on when the script flushes. Conditions of a request contain tags as the client
//! received them; applications know only their own tags, so `W/"x+zstd"` becomes `"x"` again:
//!
//! | field | problem | treatment |
//! |---|---|---|
//! | `If-None-Match` | applications look for their own tags | translated for accepted codings |
//! | `If-Match` | the same, before the client changes a page (WebDAV) | translated |
//! | `If-Range` | ranges count uncompressed bytes, the client has others | left: no match |

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use sendoff_config::Coding;

use super::accept::Accepted;

/// The tag of a compressed response; `None` if the tag may stay, because it is weak.
pub(super) fn of_compressed(tag: &[u8], coding: Coding) -> Option<Bytes> {
    let opaque = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    Some([b"W/\"", opaque, b"+", coding.name().as_bytes(), b"\""].concat().into())
}

/// Translates the conditions of a request. Returns the previous value of `If-None-Match` if it was
/// changed.
///
/// In `If-None-Match`, tags of codings that the client does not accept stay, so that they do not
/// match: a cache lists the tags of all responses that it has stored, and sends its client the
/// stored response whose tag a 304 names (RFC 9111 §4.3.4).
pub(super) fn translate(headers: &mut HeaderMap, accepted: Accepted) -> Option<HeaderValue> {
    let mut before = None;
    for name in [IF_MATCH, IF_NONE_MATCH] {
        let is_known = |coding| name == IF_MATCH || accepted.takes(coding);
        // A list over several fields is unusual: it stays, so its tags do not match, which is safe.
        let Some(value) = headers.get_mut(&name) else { continue };
        let Some(translated) = translated(value.as_bytes(), is_known) else { continue };
        let Ok(translated) = HeaderValue::from_bytes(&translated) else { continue };
        let given = std::mem::replace(value, translated);
        if name == IF_NONE_MATCH {
            before = Some(given);
        }
    }
    before
}

/// The tag in the client's list, `asked`, for an application's `tag`, in a coding that the client
/// accepts.
pub(super) fn asked_for(tag: &[u8], asked: &HeaderValue, accepted: Accepted) -> Option<Bytes> {
    let given = asked.as_bytes();
    let codings = Coding::ALL.into_iter().filter(|coding| accepted.takes(*coding));
    let mut tags = codings.filter_map(|coding| of_compressed(tag, coding));
    tags.find(|tag| given.windows(tag.len()).any(|part| part == &tag[..]))
}

/// A list in which the tags of compressed responses are replaced, if `is_known` accepts their
/// coding; `None` if there are none.
fn translated(list: &[u8], is_known: impl Fn(Coding) -> bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(list.len());
    let mut rest = list;
    let mut changed = false;
    while let Some(open) = rest.iter().position(|&b| b == b'"') {
        let Some(len) = rest[open + 1..].iter().position(|&b| b == b'"') else { break };
        let opaque = &rest[open + 1..open + 1 + len];
        let before = &rest[..open];
        match (before.strip_suffix(b"W/"), without_coding(opaque, &is_known)) {
            (Some(before), Some(own)) => {
                changed = true;
                out.extend([before, b"\"", own, b"\""].concat());
            }
            _ => out.extend_from_slice(&rest[..open + len + 2]),
        }
        rest = &rest[open + len + 2..];
    }
    out.extend_from_slice(rest);
    changed.then_some(out)
}

fn without_coding(opaque: &[u8], is_known: impl Fn(Coding) -> bool) -> Option<&[u8]> {
    Coding::ALL
        .into_iter()
        .filter(|coding| is_known(*coding))
        .find_map(|coding| opaque.strip_suffix(coding.name().as_bytes())?.strip_suffix(b"+"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;

    #[test]
    fn tags_of_compressed_responses_become_those_of_the_application() {
        for (list, expected) in [
            (r#"W/"x+zstd""#, Some(r#""x""#)),
            (r#"W/"a,b+br", "c", W/"d+gzip""#, Some(r#""a,b", "c", "d""#)),
            (r#""x+zstd""#, None),
            (r#"W/"x""#, None),
            (r#"W/"+gzip""#, Some(r#""""#)),
            ("*", None),
            ("W/\"x+zstd", None),
            (r#"W/"x+zstd", W/"y"#, Some(r#""x", W/"y"#)),
            ("\"", None),
            ("", None),
        ] {
            let translated = translated(list.as_bytes(), |_| true);
            let translated = translated.map(|list| String::from_utf8(list).unwrap());
            assert_eq!(translated.as_deref(), expected, "{list}");
        }
    }

    #[test]
    fn tags_of_codings_that_the_client_does_not_accept_do_not_match() {
        let list = HeaderValue::from_static(r#"W/"x+gzip", W/"x+br""#);
        let mut headers = HeaderMap::new();
        headers.insert("accept-encoding", HeaderValue::from_static("br, gzip;q=0"));
        for name in [IF_MATCH, IF_NONE_MATCH] {
            headers.insert(name, list.clone());
        }
        let accepted = Accepted::of(&headers, Version::HTTP_11);
        assert_eq!(translate(&mut headers, accepted), Some(list));
        assert_eq!(headers[IF_NONE_MATCH], r#"W/"x+gzip", "x""#);
        assert_eq!(headers[IF_MATCH], r#""x", "x""#, "it is about what the client changes");
    }

    #[test]
    fn only_strong_tags_change() {
        assert_eq!(of_compressed(b"\"x\"", Coding::Gzip).unwrap(), "W/\"x+gzip\"");
        assert_eq!(of_compressed(b"W/\"x\"", Coding::Gzip), None);
        assert_eq!(of_compressed(b"x", Coding::Gzip), None);
        assert_eq!(of_compressed(b"\"", Coding::Gzip), None);
        let asked = HeaderValue::from_static("\"a\", W/\"x+br\"");
        let (all, none) = (Accepted::everything(), Accepted::default());
        assert_eq!(asked_for(b"\"x\"", &asked, all).unwrap(), "W/\"x+br\"");
        assert_eq!(asked_for(b"\"a\"", &asked, all), None);
        assert_eq!(asked_for(b"\"x\"", &asked, none), None);
    }
}
