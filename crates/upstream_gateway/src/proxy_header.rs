//! The header of the PROXY protocol, version 2, that begins a new connection if the application is
//! configured to expect it.

use std::net::SocketAddr;

use proxy_header::{ProxiedAddress, ProxyHeader};
use sendoff_message::request::{Endpoint, Request};

/// The header that names the client of a request. It has no addresses if the client came over a
/// UNIX socket; `None`: the request is this server's own.
pub(super) fn header(request: Option<&Request>) -> Vec<u8> {
    let header = match request.map(|request| (&request.peer, &request.local)) {
        Some((Endpoint::Ip(client), Endpoint::Ip(local))) => {
            let (source, destination) = of_one_family(*client, *local);
            ProxyHeader::with_address(ProxiedAddress::stream(source, destination))
        }
        _ => ProxyHeader::with_local(),
    };
    let mut bytes = Vec::with_capacity(64);
    // The header has no additions, and only these could be too large.
    if header.encode_v2(&mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

/// Both addresses of a header must have the same family. They may differ, because a trusted proxy
/// may report an IPv6 client over an IPv4 connection.
fn of_one_family(client: SocketAddr, local: SocketAddr) -> (SocketAddr, SocketAddr) {
    let mapped = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        v6 @ SocketAddr::V6(_) => v6,
    };
    if client.is_ipv4() == local.is_ipv4() {
        (client, local)
    } else {
        (mapped(client), mapped(local))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sendoff_message::request::proxy_protocol::{Announced, announced};
    use sendoff_message::request::sample::request;

    #[test]
    fn both_ends_are_named_in_one_family() {
        for (client, local, expected) in [
            ("192.0.2.1:5", "192.0.2.9:80", "192.0.2.1:5"),
            ("[2001:db8::1]:5", "[::1]:80", "[2001:db8::1]:5"),
            ("[2001:db8::1]:5", "192.0.2.9:80", "[2001:db8::1]:5"),
        ] {
            let mut request = request(None);
            request.peer = Endpoint::Ip(client.parse().unwrap());
            request.local = Endpoint::Ip(local.parse().unwrap());
            let header = header(Some(&request));
            let Ok(Announced::Header { ends: Some((source, _)), len }) = announced(&header) else {
                panic!("{client}: {header:?}")
            };
            assert_eq!((source.to_string(), len), (expected.to_owned(), header.len()));
        }
    }
}
