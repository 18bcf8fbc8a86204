//! Request lines.

use bytes::Bytes;
use http::{Method, Version};

use crate::RequestError;

const BAD_LINE: RequestError = RequestError::Malformed("the request line is not valid");

/// `method SP request-target SP HTTP-version` (RFC 9112 §3), taken apart.
pub(crate) struct RequestLine {
    pub(crate) method: Method,
    pub(crate) target: Bytes,
    pub(crate) version: Version,
}

impl RequestLine {
    /// Parses a line without its line ending.
    ///
    /// `httparse` would refuse a target that is not UTF-8, which clients send and nginx and Apache
    /// accept, and minor versions above 1, so this function parses the line itself.
    pub(crate) fn parse(line: &Bytes) -> Result<Self, RequestError> {
        let mut words = line.split(|b| *b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(BAD_LINE);
        };
        let method = Method::from_bytes(method)
            .map_err(|_| RequestError::Malformed("the method is not a token"))?;
        check_method(&method)?;
        if target.is_empty() || target.iter().any(u8::is_ascii_control) {
            return Err(BAD_LINE);
        }
        Ok(Self { method, target: line.slice_ref(target), version: parse_version(version)? })
    }
}

/// Refuses methods with lower-case letters. Methods are case-sensitive (RFC 9110 §9.1), and no
/// registered one has lower-case letters. Some applications take `post` for `POST`, but rules for
/// `POST` would not match it; nginx refuses it, too.
pub(crate) fn check_method(method: &Method) -> Result<(), RequestError> {
    if method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err(RequestError::Malformed("the method has small letters"));
    }
    Ok(())
}

/// The version for the response: a recipient treats a higher minor version as its own highest one
/// (RFC 9110 §6.2).
fn parse_version(word: &[u8]) -> Result<Version, RequestError> {
    match word {
        b"HTTP/1.0" => Ok(Version::HTTP_10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            if *major == b'1' {
                Ok(Version::HTTP_11)
            } else {
                Err(RequestError::UnsupportedVersion)
            }
        }
        _ => Err(RequestError::Malformed("the protocol version is not valid")),
    }
}
