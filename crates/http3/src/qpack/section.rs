//! The fields of requests and the rules for them (RFC 9114 §4.1.2, §4.2, §4.3).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::QpackError::{self, Malformed, TooLarge};
use super::lines::{Line, Lines};

/// The head of a request. What `:authority`, `Host` and `:path` may contain is checked where the
/// heads of HTTP/2 are, by the rules for both versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldSection {
    /// `:method`.
    pub method: Method,
    /// `:scheme`; empty for CONNECT without `:protocol`.
    pub scheme: Bytes,
    /// `:authority`, not empty.
    pub authority: Option<Bytes>,
    /// `:path`, not empty; `None` for CONNECT without `:protocol`.
    pub path: Option<Bytes>,
    /// `:protocol` of Extended CONNECT (RFC 9220): malformed unless the server has enabled it.
    pub protocol: Option<Bytes>,
    /// The other fields. Cookies are not joined.
    pub fields: HeaderMap,
    /// The size of all fields in bytes (RFC 9114 §4.2.2).
    pub size: usize,
}

/// The pseudo-header fields of requests (RFC 9114 §4.3.1, RFC 8441 §4).
const PSEUDO_FIELDS: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];

/// Decodes the head of a request, or returns the first error in it. `max_size` limits the sum of
/// names, values and 32 bytes for each field (RFC 9114 §4.2.2).
pub fn decode(section: &[u8], max_size: usize) -> Result<FieldSection, QpackError> {
    let mut lines = Lines::new(section, max_size)?;
    let mut pseudo = [const { None }; PSEUDO_FIELDS.len()];
    let mut fields = HeaderMap::new();
    while let Some((name, value)) = lines.next_line()? {
        if name.first() != Some(&b':') {
            append(&mut fields, (name, value))?;
            continue;
        }
        if !fields.is_empty() {
            return Err(Malformed("a pseudo-header field behind another field"));
        }
        let index = PSEUDO_FIELDS.iter().position(|known| name == *known);
        let index = index.ok_or(Malformed("an unknown pseudo-header field"))?;
        // In HTTP/1.1 a blank would end the request target.
        if value.is_empty() || value.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err(Malformed("the value of a pseudo-header field is not valid"));
        }
        if pseudo[index].replace(value).is_some() {
            return Err(Malformed("a pseudo-header field is sent twice"));
        }
    }
    let [method, scheme, authority, path, protocol] = pseudo;
    let method = method.ok_or(Malformed("no :method"))?;
    let method = Method::from_bytes(&method).map_err(|_| Malformed(":method is not valid"))?;
    let is_connect = method == Method::CONNECT;
    if protocol.is_some() && !is_connect {
        return Err(Malformed(":protocol without CONNECT"));
    }
    let scheme = if is_connect && protocol.is_none() {
        // RFC 9114 §4.4.
        if scheme.is_some() || path.is_some() || authority.is_none() {
            return Err(Malformed("a wrong target of CONNECT"));
        }
        Bytes::new()
    } else if path.is_none() {
        return Err(Malformed("no :path"));
    } else {
        scheme.ok_or(Malformed("no :scheme"))?
    };
    Ok(FieldSection { method, scheme, authority, path, protocol, fields, size: lines.size })
}

/// Decodes trailers (RFC 9114 §4.1), which have no pseudo-header fields, as [`decode`] does.
pub fn trailers(section: &[u8], max_size: usize) -> Result<HeaderMap, QpackError> {
    let mut lines = Lines::new(section, max_size)?;
    let mut fields = HeaderMap::new();
    while let Some(line) = lines.next_line()? {
        append(&mut fields, line)?;
    }
    Ok(fields)
}

/// Checks a field that is no pseudo-header field (RFC 9114 §4.2, RFC 9110 §5), and appends it.
fn append(fields: &mut HeaderMap, (name, value): Line) -> Result<(), QpackError> {
    match &name[..] {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            return Err(Malformed("a field of the connection"));
        }
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
            return Err(Malformed("TE is not \"trailers\""));
        }
        [b':', ..] => return Err(Malformed("a pseudo-header field in trailers")),
        name if !name.iter().all(is_lower_case_token) => {
            return Err(Malformed("a field name is not valid"));
        }
        _ => {}
    }
    if let [b' ' | b'\t', ..] | [.., b' ' | b'\t'] = value[..] {
        return Err(Malformed("a field value begins or ends with a blank"));
    }
    let name = HeaderName::from_lowercase(&name);
    let name = name.map_err(|_| Malformed("a field name is not valid"))?;
    // Refuses all control characters except for tabs.
    let value = HeaderValue::from_maybe_shared(value);
    let value = value.map_err(|_| Malformed("a field value is not valid"))?;
    // Fails at some 24,000 different names.
    fields.try_append(name, value).map_err(|_| TooLarge)?;
    Ok(())
}

/// True for `tchar` (RFC 9110 §5.6.2) except for upper-case letters. `HeaderName` would accept
/// quotation marks, too.
const fn is_lower_case_token(byte: &u8) -> bool {
    matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9')
        || matches!(byte, b'^'..=b'z' | b'|' | b'~')
}
