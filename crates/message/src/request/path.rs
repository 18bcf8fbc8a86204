//! From the path of a request target to a path beneath the root.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode};

/// Bytes that no URI has (RFC 3986 §2).
pub const NOT_IN_URI: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Bytes of a decoded path that must be percent-encoded in a URI (RFC 3986 §3.3).
pub const NOT_IN_PATH: &AsciiSet = &NOT_IN_URI.add(b'#').add(b'%').add(b'?');

/// The reason why a path is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPath(pub &'static str);

/// Decodes `%xx`, merges slashes and resolves `.` and `..` (RFC 3986 §5.2.4). Dots are resolved
/// after decoding, because the file system sees the decoded name. The result starts with `/`; it
/// ends with `/` if the path names a folder.
///
/// # Errors
/// The path is not absolute, has a broken `%xx` or a NUL, or climbs above the root.
pub fn decode_path(path: &[u8]) -> Result<Vec<u8>, BadPath> {
    if path.first() != Some(&b'/') {
        return Err(BadPath("the path does not start with a slash"));
    }
    if !path.contains(&b'%') {
        return normalise(path);
    }
    check_escapes(path)?;
    let decoded: Vec<u8> = percent_decode(path).collect();
    normalise(&decoded)
}

/// Merges the slashes of a decoded path and resolves `.` and `..`.
///
/// # Errors
/// The path is not absolute, has a NUL, or climbs above the root.
pub fn normalise(decoded: &[u8]) -> Result<Vec<u8>, BadPath> {
    if decoded.first() != Some(&b'/') {
        return Err(BadPath("the path does not start with a slash"));
    }
    if decoded.contains(&0) {
        return Err(BadPath("the path contains a NUL"));
    }
    let mut out = Vec::with_capacity(decoded.len());
    for name in decoded[1..].split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                let parent = out.iter().rposition(|&b| b == b'/');
                out.truncate(parent.ok_or(BadPath("the path climbs above the root"))?);
            }
            name => {
                out.push(b'/');
                out.extend_from_slice(name);
            }
        }
    }
    let names_folder = [&b"/"[..], b"/.", b"/.."].iter().any(|end| decoded.ends_with(end));
    if names_folder || out.is_empty() {
        out.push(b'/');
    }
    Ok(out)
}

/// The path as servlet containers map it: without the parameters of its segments, which begin with
/// a semicolon (RFC 3986 §3.3).
#[must_use]
pub fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (number, segment) in path.split(|&byte| byte == b'/').enumerate() {
        if number > 0 {
            out.push(b'/');
        }
        let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        out.extend_from_slice(name);
    }
    out
}

/// The path as readers of URLs take it for which a backslash is a slash (WHATWG URL, "special"
/// schemes).
#[must_use]
pub fn with_slashes(path: &[u8]) -> Vec<u8> {
    path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect()
}

fn check_escapes(path: &[u8]) -> Result<(), BadPath> {
    for (at, _) in path.iter().enumerate().filter(|(_, b)| **b == b'%') {
        let digits = path.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(BadPath("the path contains a percent sign without two hexadecimal digits"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_what_the_file_system_sees() {
        for (sent, expected) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b", "/a/b"),
            ("/a/./b/../c", "/a/c"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/%61%2fb", "/a/b"),
            ("/a/%2e%2e/c", "/c"),
            ("/a%2f..%2fc", "/c"),
            ("/...", "/..."),
            ("/a\\..\\b", "/a\\..\\b"),
            ("/a%252e", "/a%2e"),
            ("/caf%C3%A9", "/café"),
        ] {
            assert_eq!(decode_path(sent.as_bytes()), Ok(expected.as_bytes().to_vec()), "{sent}");
        }
    }

    #[test]
    fn parameters_end_with_their_segment() {
        for (path, expected) in [
            ("/manager;/s.txt", "/manager/s.txt"),
            ("/;/manager", "//manager"),
            ("/a.jsp;jsessionid=1;b=2", "/a.jsp"),
            ("/a;b=/c;d/", "/a/c/"),
            ("/x/..;/y", "/x/../y"),
            ("/a", "/a"),
        ] {
            assert_eq!(without_parameters(path.as_bytes()), expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn tricks_are_refused() {
        for sent in ["", "a", "*", "/..", "/a/../..", "/%2e%2e/x", "/a%00b", "/%", "/%4", "/%zz"] {
            assert!(decode_path(sent.as_bytes()).is_err(), "{sent}");
        }
    }
}
