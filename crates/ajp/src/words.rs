//! Numbers that stand for methods and field names.

/// The methods, from 1 on.
const METHODS: [&str; 27] = [
    "OPTIONS",
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "TRACE",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "ACL",
    "REPORT",
    "VERSION-CONTROL",
    "CHECKIN",
    "CHECKOUT",
    "UNCHECKOUT",
    "SEARCH",
    "MKWORKSPACE",
    "UPDATE",
    "LABEL",
    "MERGE",
    "BASELINE-CONTROL",
    "MKACTIVITY",
];

/// For a method without a number: its name is sent as an attribute.
pub(crate) const OTHER_METHOD: u8 = 0xff;

/// Names of request fields, from `0xa001` on.
const REQUEST_FIELDS: [&str; 14] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "authorization",
    "connection",
    "content-type",
    "content-length",
    "cookie",
    "cookie2",
    "host",
    "pragma",
    "referer",
    "user-agent",
];

/// Names of response fields, from `0xa001` on.
const RESPONSE_FIELDS: [&str; 11] = [
    "Content-Type",
    "Content-Language",
    "Content-Length",
    "Date",
    "Last-Modified",
    "Location",
    "Set-Cookie",
    "Set-Cookie2",
    "Servlet-Engine",
    "Status",
    "WWW-Authenticate",
];

/// The first byte of a number that stands for a name; the length of a name never begins with it.
pub(crate) const CODED: u8 = 0xa0;

pub(crate) fn method(name: &str) -> u8 {
    position(&METHODS, name).unwrap_or(OTHER_METHOD)
}

/// The second byte of the number for a field's name, which is in lower case.
pub(crate) fn request_field(name: &str) -> Option<u8> {
    position(&REQUEST_FIELDS, name)
}

/// The name for the second byte of its number.
pub(crate) fn response_field(number: u8) -> Option<&'static str> {
    RESPONSE_FIELDS.get(usize::from(number).checked_sub(1)?).copied()
}

fn position(words: &[&str], wanted: &str) -> Option<u8> {
    let at = words.iter().position(|word| *word == wanted)?;
    u8::try_from(at + 1).ok()
}
