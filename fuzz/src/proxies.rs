//! The promise: data that a client sends before the additions of trusted proxies have no effect,
//! and a PROXY protocol header gives the same result however it is cut.

use http::{HeaderMap, HeaderName, HeaderValue};
use sendoff_config::{ProxyFields, TrustedProxies};
use sendoff_message::request::forwarded::Forwarded;
use sendoff_message::request::proxy_protocol::{Announced, MAX_HEADER, announced};

/// Additions of two proxies, the second of which is our peer.
const ADDED: [(&str, &[u8], ProxyFields); 2] = [
    ("x-forwarded-for", b"203.0.113.9, 10.0.0.2", ProxyFields::XForwarded),
    (
        "forwarded",
        b"for=203.0.113.9;proto=https;host=\"a:8443\", for=\"10.0.0.2:80\"",
        ProxyFields::Forwarded,
    ),
];

fn read(name: &str, lines: &[&[u8]], fields: &ProxyFields) -> Option<Forwarded> {
    let mut proxies = TrustedProxies { fields: fields.clone(), ..TrustedProxies::default() };
    proxies.add("10.0.0.0/8").ok()?;
    let name: HeaderName = name.parse().ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(&name, HeaderValue::from_bytes(line).ok()?);
    }
    Some(Forwarded::read(&headers, &proxies))
}

fn header(bytes: &[u8]) {
    let whole = announced(bytes);
    let Ok(Announced::Header { len, .. }) = whole else { return };
    assert!(len <= bytes.len().min(MAX_HEADER));
    for end in 0..len {
        assert_eq!(announced(&bytes[..end]), Ok(Announced::Incomplete), "{end} of {len}");
    }
    assert_eq!(announced(&bytes[..len]), whole);
}

/// Checks the promise for bytes from a client or a proxy.
///
/// # Panics
/// The promise is broken.
pub fn check(input: &[u8]) {
    header(input);
    for (name, added, fields) in &ADDED {
        let expected = read(name, &[added], fields);
        let joined = [input, b",", added].concat();
        for lines in [&[&joined[..]][..], &[input, added]] {
            let told = read(name, lines, fields);
            assert!(told.is_none() || told == expected, "{told:?}");
        }
        // Without a trusted end the result may be anything valid.
        if let Some(Forwarded { host: Some(host), .. }) = read(name, &[input], fields) {
            assert!(sendoff_http1::is_host(&host));
        }
    }
}

/// Inputs to start from.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let inputs: [&[u8]; 7] = [
        b"PROXY TCP4 192.0.2.1 198.51.100.2 1000 443\r\nGET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
        b"PROXY UNKNOWN 1 2 3\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12\xcb\0\x71\x09\xc0\0\x02\x01\x12\x67\x20\xfb\x04\0\x03abc",
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
        b"6.6.6.6, [2001:db8::9]:80, unknown, _hidden",
        b"for=6.6.6.6;proto=https, for=\"[::1]:80\";host=\"a\\\"b,c;d\"",
    ];
    inputs.map(<[u8]>::to_vec).to_vec()
}

/// Strings that inputs are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"\"",
    b"\\",
    b",",
    b";",
    b"for=",
    b"host=",
    b"proto=https",
    b"10.0.0.1",
    b"unknown",
    b"_x",
    b"[::1]",
    b"PROXY ",
    b"TCP4 ",
    b"UNKNOWN",
    b"\r\n",
    b"\r\n\r\n\0\r\nQUIT\n",
    b"\x21\x11\0\x0c",
];
