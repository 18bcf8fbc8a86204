//! The target of a request to an application.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{percent_decode, percent_encode};
use sendoff_config::Proxy;
use sendoff_message::request::{NOT_IN_PATH, Request, decode_path};

use crate::Unsendable;

/// The target of a request to an application.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProxyTarget<'r> {
    /// The path, percent-encoded.
    pub(crate) path: Cow<'r, [u8]>,
    pub(crate) query: Option<&'r Bytes>,
}

/// The part of a request's path in front of the path that the application knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StrippedPrefix {
    /// Bytes of the decoded path.
    len: usize,
}

impl StrippedPrefix {
    /// The prefix of the route, if it is to be stripped. `prefix`: bytes of the path that the route
    /// has matched.
    pub(crate) fn of(proxy: &Proxy, prefix: usize) -> Self {
        Self { len: if proxy.urls.strip_prefix { prefix } else { 0 } }
    }

    /// The prefix in the form for URLs; empty if nothing is stripped.
    pub(crate) fn encoded(self, request: &Request) -> String {
        let prefix = request.path.get(..self.len).unwrap_or_default();
        percent_encode(prefix, NOT_IN_PATH).to_string()
    }

    /// The rest of a path that stands for the request's path. It keeps its escapes, unless the
    /// prefix, or the end of it, is written otherwise than in the checked path: `//app/x`,
    /// `/app%2Fx`.
    fn strip<'p>(self, path: Cow<'p, [u8]>, request: &Request) -> Cow<'p, [u8]> {
        let Some((prefix, checked)) = request.path.split_at_checked(self.len) else { return path };
        if prefix.is_empty() {
            return path;
        }
        let begins_well = |rest: &[u8]| rest.starts_with(b"/") && !rest.starts_with(b"//");
        match path {
            Cow::Borrowed(path) if begins_well(behind(path, prefix)) => {
                Cow::Borrowed(behind(path, prefix))
            }
            _ if checked.is_empty() => Cow::Borrowed(b"/"),
            _ => Cow::Owned(percent_encode(checked, NOT_IN_PATH).to_string().into_bytes()),
        }
    }
}

/// The part of an encoded path behind these decoded bytes; empty if it does not begin with them.
fn behind<'p>(path: &'p [u8], decoded: &[u8]) -> &'p [u8] {
    let mut rest = path;
    for byte in decoded {
        let len = if rest.first() == Some(&b'%') { 3 } else { 1 };
        match rest.split_at_checked(len) {
            Some((sign, behind)) if percent_decode(sign).next() == Some(*byte) => rest = behind,
            _ => return &[],
        }
    }
    rest
}

impl<'r> ProxyTarget<'r> {
    /// The path as the client sent it, so that the application sees each escape. The path as the
    /// rules have seen it if rules have rewritten it, or if the client's path contains `.` or `..` or
    /// begins with `//`, behind which a reader of URLs finds a host: the application must not
    /// resolve it to a path that the rules have not checked.
    ///
    /// # Errors
    /// A servlet container would read another path than the rules did: `/..;/`; or a reader of URLs
    /// for which a backslash is a slash: `/..\`, `/\host/`.
    pub(crate) fn of(request: &'r Request, stripped: StrippedPrefix) -> Result<Self, Unsendable> {
        if request.path.split(|&byte| byte == b'/').any(is_dots_with_parameters) {
            let why = "its path has dots before a semicolon, which servlet containers resolve";
            return Err(Unsendable::new(StatusCode::BAD_REQUEST, why));
        }
        let stays = request.path.get(stripped.len..).unwrap_or_default();
        if [&request.path[..], stays].into_iter().any(is_other_with_slashes) {
            let why = "its path has a backslash beside dots or at its beginning, which some applications read as a slash";
            return Err(Unsendable::new(StatusCode::BAD_REQUEST, why));
        }
        let sent = request.uri.split(|&byte| byte == b'?').next().unwrap_or_default();
        // The rules' path has neither dots nor escapes left in it, so most paths need only be
        // compared.
        let is_plain = sent == request.path && !sent.contains(&b'%');
        let is_as_sent = is_plain
            || !sent.starts_with(b"//")
                && !sent.split(|&byte| byte == b'/').any(is_dots)
                && decode_path(sent).is_ok_and(|path| path == request.path);
        let path = match is_as_sent {
            true => Cow::Borrowed(sent),
            false => {
                Cow::Owned(percent_encode(&request.path, NOT_IN_PATH).to_string().into_bytes())
            }
        };
        Ok(Self { path: stripped.strip(path, request), query: request.query.as_ref() })
    }

    /// Path and query.
    pub(crate) fn whole(&self) -> Cow<'_, [u8]> {
        match self.query {
            Some(query) => Cow::Owned([&self.path, &b"?"[..], query].concat()),
            None => Cow::Borrowed(&self.path),
        }
    }
}

/// True if a segment as sent means `.` or `..`, also behind an encoded slash.
fn is_dots(segment: &[u8]) -> bool {
    let segment: Cow<'_, [u8]> = percent_decode(segment).into();
    segment.split(|&byte| byte == b'/').any(are_dots)
}

/// True for the names of the folder itself and of the folder around it.
fn are_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// True if a decoded path leads elsewhere for a reader that takes a backslash for a slash, as
/// browsers and Node's `URL` do (WHATWG URL, "special" schemes).
fn is_other_with_slashes(path: &[u8]) -> bool {
    let is_slash = |byte: &u8| matches!(byte, b'/' | b'\\');
    path.contains(&b'\\') && (path.starts_with(b"/\\") || path.split(is_slash).any(are_dots))
}

/// True if a decoded segment means `.` or `..` to a reader that drops everything after a semicolon.
fn is_dots_with_parameters(segment: &[u8]) -> bool {
    let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
    segment.contains(&b';') && are_dots(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::sample::request;

    #[test]
    fn the_application_is_asked_for_what_the_rules_have_seen() {
        for (sent, rewritten, expected) in [
            ("/a%20b?c=%20", None, "/a%20b?c=%20"),
            ("/a%2Fb", None, "/a%2Fb"),
            ("/a//b", None, "/a//b"),
            ("/x/../a%20b", None, "/a%20b"),
            ("/x/%2e%2E/a", None, "/a"),
            ("/x%2f..%2fa", None, "/a"),
            ("/./a", None, "/a"),
            ("/a;b=c", None, "/a;b=c"),
            ("/a\\b\\", None, "/a\\b\\"),
            ("/a//b%20c", None, "/a//b%20c"),
            ("//host/a%2Fb", None, "/host/a/b"),
            ("/a", Some("/new \u{e4}"), "/new%20%C3%A4"),
            ("/a?b", Some("/%2e"), "/%252e?b"),
        ] {
            let mut request = request(None);
            request.uri = sent.into();
            request.restart().unwrap();
            if let Some(path) = rewritten {
                request.path = path.into();
            }
            let target = ProxyTarget::of(&request, StrippedPrefix::default()).unwrap();
            assert_eq!(String::from_utf8_lossy(&target.whole()), expected, "{sent}");
        }
    }

    #[test]
    fn the_prefix_is_taken_off_as_the_client_has_written_it() {
        for (sent, expected) in [
            ("/a b/c%2Fd?e", "/c%2Fd?e"),
            ("/a%20b/c", "/c"),
            ("/%61%20b", "/"),
            ("/a b/?e", "/?e"),
            ("/x/../a%20b/c d", "/c%20d"),
            ("/a%20b//c%2Fd", "/c/d"),
            ("//a%20b/c%3F", "/c%3F"),
            ("///a%20b", "/"),
            ("/%2fa%20b/c", "/c"),
            ("/a%20b%2fc", "/c"),
            ("/a%20b/%2e%2e/a%20b/c", "/c"),
        ] {
            let mut request = request(None);
            request.uri = sent.into();
            request.restart().unwrap();
            let prefix = StrippedPrefix { len: "/a b".len() };
            let target = ProxyTarget::of(&request, prefix).unwrap();
            assert_eq!(String::from_utf8_lossy(&target.whole()), expected, "{sent}");
            assert_eq!(prefix.encoded(&request), "/a%20b");
        }
    }

    #[test]
    fn a_backslash_behind_the_prefix_is_at_the_beginning() {
        for sent in ["/app/\\x/manager", "/app/%5cx", "/app//\\x"] {
            let mut request = request(None);
            request.uri = sent.into();
            request.restart().unwrap();
            assert!(ProxyTarget::of(&request, StrippedPrefix::default()).is_ok(), "{sent}");
            let prefix = StrippedPrefix { len: "/app".len() };
            let refused = ProxyTarget::of(&request, prefix).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{sent}");
        }
    }

    #[test]
    fn paths_that_applications_read_in_another_way_are_refused() {
        for path in ["/..;/admin", "/a/..;x=y/b", "/.;/a", "/%2e%2e;/a", "/..%3b/a"]
            .into_iter()
            .chain(["/a/..\\b", "/a\\..\\b", "/a\\.", "/\\host/b", "/%5chost/b"])
        {
            let mut request = request(None);
            request.uri = path.into();
            request.restart().unwrap();
            assert_eq!(
                ProxyTarget::of(&request, StrippedPrefix::default()).unwrap_err().status,
                StatusCode::BAD_REQUEST,
                "{path}"
            );
        }
    }
}
