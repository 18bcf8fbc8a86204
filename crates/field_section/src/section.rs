//! The fields of requests and the rules for them (RFC 9113 §8.1 to §8.3, RFC 9114 §4.1 to §4.3).

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use FieldError::{Malformed, TooLarge};

/// An error in the fields of a message. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// The fields exceed the limit of the server, which may answer with status 431.
    TooLarge,
    /// A malformed message (RFC 9113 §8.1.1, RFC 9114 §4.1.2): the server resets the stream. The
    /// text says what is wrong.
    Malformed(&'static str),
}

/// The head of a request. What `:authority`, `Host` and `:path` may contain is checked by
/// `StreamHead`, by the rules for both versions.
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
    /// `:protocol` of Extended CONNECT (RFC 8441, RFC 9220): malformed unless the server has enabled it.
    pub protocol: Option<Bytes>,
    /// The other fields. Cookies are not joined.
    pub fields: HeaderMap,
    /// The size of all fields in bytes (RFC 9113 §6.5.2, RFC 9114 §4.2.2).
    pub size: usize,
}

/// The pseudo-header fields of requests (RFC 9113 §8.3.1, RFC 8441 §4).
const PSEUDO_FIELDS: [&[u8]; 5] = [b":method", b":scheme", b":authority", b":path", b":protocol"];

/// The size that counts for each field apart from its name and value (RFC 9113 §6.5.2, RFC 9114
/// §4.2.2).
const FIELD_OVERHEAD: usize = 32;

/// Adds up the size of fields.
#[derive(Debug)]
struct Size {
    sum: usize,
    max: usize,
}

impl Size {
    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), FieldError> {
        self.sum += name.len() + value.len() + FIELD_OVERHEAD;
        if self.sum > self.max { Err(TooLarge) } else { Ok(()) }
    }
}

/// Collects the fields of a request, in the order in which they were sent.
#[derive(Debug)]
pub struct SectionBuilder {
    pseudo: [Option<Bytes>; PSEUDO_FIELDS.len()],
    fields: HeaderMap,
    size: Size,
}

impl SectionBuilder {
    /// `max_size` limits the sum of names, values and 32 bytes for each field.
    #[must_use]
    pub fn new(max_size: usize) -> Self {
        let size = Size { sum: 0, max: max_size };
        Self { pseudo: Default::default(), fields: HeaderMap::new(), size }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// The request is malformed or too large. Further fields need not be added.
    pub fn push(&mut self, name: &Bytes, value: Bytes) -> Result<(), FieldError> {
        self.size.add(name, &value)?;
        if name.first() != Some(&b':') {
            return append(&mut self.fields, name, value);
        }
        if !self.fields.is_empty() {
            return Err(Malformed("a pseudo-header field behind another field"));
        }
        let index = PSEUDO_FIELDS.iter().position(|known| name == *known);
        let index = index.ok_or(Malformed("an unknown pseudo-header field"))?;
        // In HTTP/1.1 a blank would end the request target.
        if value.is_empty() || value.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return Err(Malformed("the value of a pseudo-header field is not valid"));
        }
        if self.pseudo[index].replace(value).is_some() {
            return Err(Malformed("a pseudo-header field is sent twice"));
        }
        Ok(())
    }

    /// The complete head.
    ///
    /// # Errors
    /// A pseudo-header field is missing, or out of place.
    pub fn finish(self) -> Result<FieldSection, FieldError> {
        let Self { pseudo: [method, scheme, authority, path, protocol], fields, size } = self;
        let method = method.ok_or(Malformed("no :method"))?;
        let method = Method::from_bytes(&method).map_err(|_| Malformed(":method is not valid"))?;
        let is_connect = method == Method::CONNECT;
        if protocol.is_some() && !is_connect {
            return Err(Malformed(":protocol without CONNECT"));
        }
        let scheme = if is_connect && protocol.is_none() {
            // RFC 9113 §8.5, RFC 9114 §4.4.
            if scheme.is_some() || path.is_some() || authority.is_none() {
                return Err(Malformed("a wrong target of CONNECT"));
            }
            Bytes::new()
        } else if path.is_none() {
            return Err(Malformed("no :path"));
        } else {
            scheme.ok_or(Malformed("no :scheme"))?
        };
        Ok(FieldSection { method, scheme, authority, path, protocol, fields, size: size.sum })
    }
}

/// Collects trailers (RFC 9113 §8.1, RFC 9114 §4.1), which have no pseudo-header fields.
#[derive(Debug)]
pub struct TrailersBuilder {
    fields: HeaderMap,
    size: Size,
}

impl TrailersBuilder {
    /// As [`SectionBuilder::new`].
    #[must_use]
    pub fn new(max_size: usize) -> Self {
        Self { fields: HeaderMap::new(), size: Size { sum: 0, max: max_size } }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// As [`SectionBuilder::push`].
    pub fn push(&mut self, name: &Bytes, value: Bytes) -> Result<(), FieldError> {
        self.size.add(name, &value)?;
        append(&mut self.fields, name, value)
    }

    /// All of the fields.
    #[must_use]
    pub fn finish(self) -> HeaderMap {
        self.fields
    }
}

/// Checks a field that is no pseudo-header field (RFC 9113 §8.2, RFC 9114
/// §4.2, RFC 9110 §5), and appends it.
fn append(fields: &mut HeaderMap, name: &Bytes, value: Bytes) -> Result<(), FieldError> {
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
    let name = HeaderName::from_lowercase(name);
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
