//! The PROXY protocol: a proxy's statement about a connection, sent before the first request.

use std::fmt;
use std::net::SocketAddr;

use proxy_header::{Error, ParseConfig, Protocol, ProxyHeader};

use super::origin::Endpoint;

/// The longest header that is read, in bytes, as in nginx. The addresses of version 2 take at most
/// 232 bytes; the rest is room for additions (TLVs), which are skipped.
pub const MAX_HEADER: usize = 4096;

/// The longest header of version 1, in bytes.
const MAX_LINE: usize = 107;

/// The beginning of a connection's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announced {
    /// A part of a header.
    Incomplete,
    /// A header of `len` bytes.
    Header {
        /// The client's end, and the end that it connected to; `None`: the proxy itself made the
        /// connection, or does not know the ends.
        ends: Option<(Endpoint, Endpoint)>,
        /// Length in bytes.
        len: usize,
    },
}

/// The connection does not begin with a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoHeader;

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it does not begin with a valid PROXY protocol header")
    }
}

/// Reads a header of version 1 or 2 at the start of `bytes`. Additions (TLVs) are skipped.
///
/// # Errors
/// There is none, or it is longer than [`MAX_HEADER`].
pub fn announced(bytes: &[u8]) -> Result<Announced, NoHeader> {
    let skip_additions = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    match ProxyHeader::parse(bytes, skip_additions) {
        // The library accepts an overlong line, and one with a line feed before its CRLF.
        Ok((_, len)) if len > longest(bytes) || is_whole(&bytes[..len - 1]) => Err(NoHeader),
        Ok((header, len)) => {
            let ends = match header.proxied_address() {
                Some(ends) if ends.protocol != Protocol::Stream => return Err(NoHeader),
                Some(ends) => Some((endpoint(ends.source), endpoint(ends.destination))),
                None => None,
            };
            Ok(Announced::Header { ends, len })
        }
        Err(Error::BufferTooShort) if bytes.len() < MAX_HEADER && !is_whole(bytes) => {
            Ok(Announced::Incomplete)
        }
        Err(_) => Err(NoHeader),
    }
}

/// The longest header of the version that begins with these bytes, in bytes.
fn longest(bytes: &[u8]) -> usize {
    if bytes.first() == Some(&b'P') { MAX_LINE } else { MAX_HEADER }
}

/// True if the header is complete, so that further bytes cannot make it valid: version 1 ends with
/// a line feed, version 2 states its length.
fn is_whole(bytes: &[u8]) -> bool {
    match bytes {
        [b'P', line @ ..] => line.contains(&b'\n'),
        [b'\r', ..] => {
            let len = bytes.get(14..16).and_then(|len| len.first_chunk());
            len.is_some_and(|&len| bytes.len() >= 16 + usize::from(u16::from_be_bytes(len)))
        }
        _ => false,
    }
}

/// An IPv4-mapped IPv6 address becomes the IPv4 address, because rules for addresses are written
/// for IPv4.
fn endpoint(address: SocketAddr) -> Endpoint {
    Endpoint::Ip(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    /// A header of version 2.
    fn v2(command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[0x20 | command, family], &len, content].concat()
    }

    fn ends(peer: &str, local: &str) -> Option<(Endpoint, Endpoint)> {
        Some((Endpoint::Ip(peer.parse().unwrap()), Endpoint::Ip(local.parse().unwrap())))
    }

    /// Expects these ends of the whole header with and without further bytes, and `Incomplete` of
    /// every part of it.
    #[track_caller]
    fn expect(header: &[u8], ends: Option<(Endpoint, Endpoint)>) {
        let len = header.len();
        assert_eq!(announced(header), Ok(Announced::Header { ends: ends.clone(), len }));
        let with_request = [header, b"GET / HTTP/1.1\r\n\r\n"].concat();
        assert_eq!(announced(&with_request), Ok(Announced::Header { ends, len }));
        for end in 0..len {
            assert_eq!(announced(&header[..end]), Ok(Announced::Incomplete), "{end}");
        }
    }

    #[test]
    fn both_versions_name_the_ends() {
        let named = ends("192.0.2.1:1000", "198.51.100.2:443");
        expect(b"PROXY TCP4 192.0.2.1 198.51.100.2 1000 443\r\n", named.clone());
        let v4 = [192, 0, 2, 1, 198, 51, 100, 2, 0x03, 0xe8, 0x01, 0xbb];
        expect(&v2(1, 0x11, &v4), named.clone());
        let additions = [&v4[..], b"\x04\x00\x03abc", b"\xee\x00\x00"].concat();
        expect(&v2(1, 0x11, &additions), named);
        let named = ends("[2001:db8::1]:1", "[::1]:2");
        expect(b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n", named);
        expect(b"PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", ends("192.0.2.1:1", "[::1]:2"));
    }

    #[test]
    fn a_proxy_that_speaks_for_itself_or_does_not_know_changes_nothing() {
        expect(b"PROXY UNKNOWN\r\n", None);
        expect(b"PROXY UNKNOWN 192.0.2.1 192.0.2.2 1 2\r\n", None);
        expect(&v2(0, 0x00, b""), None);
        // The addresses of a LOCAL connection, such as a health check, must be ignored.
        expect(&v2(0, 0x11, &[1; 12]), None);
        expect(&v2(1, 0x00, b""), None);
        expect(&v2(1, 0x00, b"\x04\x00\x03abc"), None);
        expect(&v2(1, 0x31, &[b'/'; 216]), None);
    }

    #[test]
    fn hostile_headers_are_refused() {
        let mut long = b"PROXY UNKNOWN ".to_vec();
        long.resize(MAX_HEADER + 100, b'x');
        let huge = v2(1, 0x11, &[0; MAX_HEADER]);
        for bad in [
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(),
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 -2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
            b"PROXY TCP4 192.0.2.999 192.0.2.2 1 2\r\n",
            b"PROXY TCP4 ::1 ::2 1 2\r\n",
            b"PROXY TCP4 010.0.0.1 192.0.2.2 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY TCP6 fe80::1%eth0 ::2 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\rX",
            b"PROXY UNKNOWN\nX\r\n",
            b"PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
            &long,
            &huge,
            &v2(2, 0x11, &[0; 12]),
            &v2(1, 0x11, &[0; 11]),
            &v2(1, 0x21, &[0; 12]),
            &v2(1, 0x12, &[0; 12]),
            &[SIGNATURE, &[0x11, 0x11, 0, 12], &[0; 12]].concat(),
        ] {
            let shown = String::from_utf8_lossy(&bad[..bad.len().min(60)]);
            assert_eq!(announced(bad), Err(NoHeader), "{shown}");
        }
    }
}
