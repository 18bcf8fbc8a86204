//! The server's variables: `%{NAME}` in rewrite rules, expressions and headers.

use std::net::IpAddr;
use std::time::UNIX_EPOCH;

use crate::state::{Context, Pass};
use crate::text;

/// A variable and the request field that it depends on.
pub(crate) struct Value {
    pub(crate) bytes: Vec<u8>,
    pub(crate) field: Option<Vec<u8>>,
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), field: None }
    }
}

/// The fields that have variables of their own.
const FIELDS: [(&str, &str); 7] = [
    ("HTTP_USER_AGENT", "User-Agent"),
    ("HTTP_REFERER", "Referer"),
    ("HTTP_COOKIE", "Cookie"),
    ("HTTP_FORWARDED", "Forwarded"),
    ("HTTP_HOST", "Host"),
    ("HTTP_PROXY_CONNECTION", "Proxy-Connection"),
    ("HTTP_ACCEPT", "Accept"),
];

/// A request field, on which the response then depends.
pub(crate) fn field(context: &Context<'_>, name: &[u8]) -> Value {
    match context.field(name) {
        // `Vary` never names `Host`: it is part of the URI (RFC 9110 section 12.5.5).
        Some(value) => {
            let field = (!name.eq_ignore_ascii_case(b"Host")).then(|| name.to_vec());
            Value { bytes: value.into_owned(), field }
        }
        None => Value { bytes: Vec::new(), field: None },
    }
}

/// The request field that a variable stands for.
pub(crate) fn field_of(variable: &[u8]) -> Option<&'static [u8]> {
    let field = FIELDS.iter().find(|(name, _)| name.as_bytes() == variable);
    field.map(|(_, field)| field.as_bytes()).filter(|field| *field != b"Host")
}

/// An address as text; an IPv4 address within IPv6 is shown as IPv4.
pub(crate) fn address(address: IpAddr) -> Vec<u8> {
    address.to_canonical().to_string().into_bytes()
}

/// The value of a variable by its name; `None` if there is no such variable.
pub(crate) fn named(context: &Context<'_>, pass: &Pass, name: &[u8]) -> Option<Value> {
    let request = context.request;
    let name = std::str::from_utf8(name).ok()?;
    if let Some((_, header)) = FIELDS.iter().find(|(variable, _)| *variable == name) {
        return Some(field(context, header.as_bytes()));
    }
    let bytes: Vec<u8> = match name {
        "REQUEST_URI" => pass.path.clone(),
        "DOCUMENT_URI" => pass.path.clone(),
        "REQUEST_FILENAME" | "SCRIPT_FILENAME" => pass.file.clone(),
        "QUERY_STRING" => pass.query.clone().unwrap_or_default(),
        "REQUEST_METHOD" => request.method.to_vec(),
        "REQUEST_SCHEME" => scheme(context).to_vec(),
        "PATH_INFO" => pass.path_info.clone(),
        "THE_REQUEST" => {
            text::concat(&[request.method, b" ", request.target, b" ", request.protocol])
        }
        "SERVER_NAME" => request.host.to_vec(),
        "SERVER_PORT" => port(context).to_string().into_bytes(),
        "SERVER_ADDR" => address(request.server.ip()),
        "SERVER_PROTOCOL" => request.protocol.to_vec(),
        "SERVER_SOFTWARE" => context.site.software.to_vec(),
        "SERVER_ADMIN" => context.site.admin.to_vec(),
        "REMOTE_ADDR" | "CONN_REMOTE_ADDR" => address(context.client()),
        // Names of clients are not looked up.
        "REMOTE_HOST" => address(context.client()),
        "REMOTE_PORT" => context.client_port().to_string().into_bytes(),
        "REMOTE_USER" => pass.user.clone().unwrap_or_default(),
        "REMOTE_IDENT" | "HANDLER" => Vec::new(),
        "AUTH_TYPE" if pass.user.is_some() => b"Basic".to_vec(),
        "AUTH_TYPE" => Vec::new(),
        "DOCUMENT_ROOT" => context.site.root.to_vec(),
        "CONTEXT_PREFIX" => pass.prefix.clone(),
        "CONTEXT_DOCUMENT_ROOT" => pass.folder.clone(),
        "HTTPS" => if request.https { &b"on"[..] } else { b"off" }.to_vec(),
        "IS_SUBREQ" => if pass.depth > 0 { &b"true"[..] } else { b"false" }.to_vec(),
        "IPV6" => {
            let is_ipv6 = matches!(context.client().to_canonical(), IpAddr::V6(_));
            if is_ipv6 { &b"on"[..] } else { b"off" }.to_vec()
        }
        "API_VERSION" => b"20120211:131".to_vec(),
        "REQUEST_STATUS" => {
            if pass.status == 0 {
                Vec::new()
            } else {
                pass.status.to_string().into_bytes()
            }
        }
        _ => return time(context, name),
    };
    Some(Value { bytes, field: None })
}

/// `http` or `https`.
pub(crate) fn scheme(context: &Context<'_>) -> &'static [u8] {
    if context.request.https { b"https" } else { b"http" }
}

/// The port that the client named, or the scheme's usual one.
fn port(context: &Context<'_>) -> u16 {
    context.request.port.unwrap_or(if context.request.https { 443 } else { 80 })
}

/// Scheme, host and, unless it is the usual one, port: the prefix of the site's URIs.
pub(crate) fn origin(context: &Context<'_>) -> Vec<u8> {
    let usual = if context.request.https { 443 } else { 80 };
    let mut origin = text::concat(&[scheme(context), b"://", context.request.host]);
    if port(context) != usual {
        origin.extend_from_slice(format!(":{}", port(context)).as_bytes());
    }
    origin
}

/// Variables of the time, in UTC.
fn time(context: &Context<'_>, name: &str) -> Option<Value> {
    let part = name.strip_prefix("TIME")?;
    let seconds = context.now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let value = match part {
        "" => format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}"),
        "_YEAR" => format!("{year:04}"),
        "_MON" => format!("{month:02}"),
        "_DAY" => format!("{day:02}"),
        "_HOUR" => format!("{hour:02}"),
        "_MIN" => format!("{minute:02}"),
        "_SEC" => format!("{second:02}"),
        // 1970 began on a Thursday.
        "_WDAY" => ((days + 4) % 7).to_string(),
        _ => return None,
    };
    Some(Value { bytes: value.into_bytes(), field: None })
}

/// Year, month and day of a number of days since 1970.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    // Whole 400-year cycles are skipped, so that no clock value makes the loop long.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(20_779), (2026, 11, 22));
        assert_eq!(date(16_435), (2014, 12, 31));
    }
}
