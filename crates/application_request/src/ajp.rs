//! Requests for servlet containers that speak AJP 1.3.

use bytes::Bytes;
use http::StatusCode;
use sendoff_ajp::{Facts, ForwardRequest};
use sendoff_http1::client::HopByHop;
use sendoff_message::request::{Scheme, protocol};

use crate::target::{ProxyTarget, StrippedPrefix};
use crate::{ApplicationRequest, Unsendable, is_passed_on};

/// The first packet of a request.
pub(crate) fn head(
    asked: &ApplicationRequest<'_>,
    secret: Option<&str>,
    packet_size: usize,
) -> Result<Bytes, Unsendable> {
    let request = asked.request;
    let target = ProxyTarget::of(request, StrippedPrefix::default())?;
    let (client, local) = (request.peer.address(), request.local.address());
    let host = request.host_name();
    let tls = request.tls.as_deref();
    let certificate = tls.and_then(|tls| tls.client_certificate.as_ref());
    let user = Some(asked.user).filter(|user| !user.is_empty());
    let mut packet = ForwardRequest::new(Facts {
        method: request.method.as_str(),
        protocol: protocol(request.version).as_bytes(),
        uri: &target.path,
        query: target.query.map(|query| &query[..]),
        remote_addr: &client,
        remote_port: request.peer.port(),
        server_name: host.as_bytes(),
        server_port: request.port.unwrap_or_else(|| request.scheme.default_port()),
        local_addr: &local,
        is_https: request.scheme == Scheme::Https,
        tls_version: tls.map(|tls| tls.version.as_bytes()),
        tls_cipher: tls.map(|tls| tls.cipher.as_bytes()),
        tls_certificate: certificate.map(|certificate| certificate.pem.as_bytes()),
        remote_user: user,
        auth_type: user.map(|_| &b"Basic"[..]),
        secret: secret.map(str::as_bytes),
    });
    let hops = HopByHop::of(&request.headers);
    for (name, value) in &request.headers {
        if is_passed_on(name, &hops) {
            packet.field(name.as_str(), value.as_bytes());
        }
    }
    if request.has_body {
        packet.field("content-length", request.body.len().to_string().as_bytes());
    }
    packet.finish(packet_size).map_err(|_| {
        let why = "the head does not fit into an AJP packet of";
        let why = format!("{why} {packet_size} bytes (packet_size)");
        Unsendable::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why)
    })
}
