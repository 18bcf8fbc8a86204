//! From a request head to a request, for every protocol.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::HeaderValue;
use http::header::HOST;
use sendoff_config::TrustedProxies;
use sendoff_http1::{BodyFraming, Head};

use super::forwarded::Forwarded;
use super::{BadPath, Body, Endpoint, Origin, Request, decode_path, new_id};

/// The request with this head, without its body. `proxies`: the peer is one of these proxies, so
/// its statements about the client count; `None`: the peer is not trusted. `ids`: the request gets
/// an id.
///
/// # Errors
/// The path cannot be decoded.
pub fn request(
    head: Head,
    origin: &Origin,
    proxies: Option<&TrustedProxies>,
    ids: bool,
) -> Result<Request, BadPath> {
    let target = head.target;
    let path = if target.is_asterisk() { b"/".to_vec() } else { decode_path(&target.path())? };
    let mut request = Request {
        method: head.method,
        target: target.raw().clone(),
        uri: target.uri().clone(),
        path,
        query: target.query(),
        host: head.host,
        headers: head.headers,
        version: head.version,
        scheme: origin.scheme,
        tls: origin.tls.clone(),
        port: origin.local.port(),
        body: Body::default(),
        has_body: head.framing != BodyFraming::None,
        trailers: None,
        ruled: Vec::new(),
        is_internal_redirect: false,
        id: None,
        trace: None,
        listener: origin.listener,
        peer: origin.peer.clone(),
        via: proxies.map(|_| origin.peer.clone()),
        local: origin.local.clone(),
    };
    request.id = ids.then(|| new_id(proxies.map(|_| &request.headers)));
    if let Some(proxies) = proxies {
        let told = Forwarded::read(&request.headers, proxies);
        take_word(&mut request, told);
    }
    Ok(request)
}

/// Applies the statements of a trusted proxy. The fields stay as they are, except for `Host`, from
/// which applications learn their own name.
fn take_word(request: &mut Request, told: Forwarded) {
    if let Some(complaint) = told.complaint
        && is_time_to_complain()
    {
        let proxy = &request.peer;
        tracing::warn!(%proxy, request = request.shown(), "a trusted proxy is not understood: {complaint}");
    }
    request.port = told.server_port(request.host.as_deref()).or(request.port);
    if let Some(client) = told.client {
        request.peer = Endpoint::Ip(client);
    }
    if let Some(scheme) = told.scheme {
        request.scheme = scheme;
    }
    if let Some(host) = told.host
        && let Ok(value) = HeaderValue::from_maybe_shared(host.clone())
    {
        request.headers.insert(HOST, value);
        request.host = Some(host);
    }
}

/// True at most once a minute, because a proxy repeats its mistake with every request.
fn is_time_to_complain() -> bool {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let minute = now.map_or(0, |since| since.as_secs() / 60);
    LAST.swap(minute, Ordering::Relaxed) != minute
}
