//! A script's view of a request, and its changes to the request.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::HOST;
use sendoff_http1::client::remove_nominated;
use sendoff_lua::{self as lua, Dictionary, Exchange, Phase, Physical};
use sendoff_message::request::{BadPath, Body, Endpoint, Request, normalise, protocol};
use sendoff_sys::file::read_exact_at;

/// Maximum size in bytes of a request body that scripts can read.
const MAX_BODY: u64 = 1 << 20;

/// Builds a script's view of a request. The request's fields are lent: [`give_back`] returns them.
pub(super) fn lend(
    request: &mut Request,
    phase: Phase,
    physical: Option<Vec<u8>>,
    root: &Rc<[u8]>,
    shared: &Arc<Dictionary>,
) -> Exchange {
    let address = |endpoint: &Endpoint| match endpoint {
        Endpoint::Ip(address) => Some(*address),
        Endpoint::Unix(_) => None,
    };
    let physical = match phase {
        Phase::Before => Physical::default(),
        Phase::Route | Phase::Response => Physical {
            path: physical,
            relative: Some(request.path.clone()),
            root: Some(Rc::clone(root)),
            path_info: None,
        },
    };
    let authority = request.host.clone().unwrap_or_default();
    // Must come first: it needs the fields, which are moved below.
    let body = body(request);
    // Fields that the script sets are the server's.
    remove_nominated(&mut request.headers);
    let request = lua::Request {
        method: request.method.clone(),
        protocol: protocol(request.version),
        scheme: Bytes::from_static(request.scheme.as_str().as_bytes()),
        server_name: authority.clone(),
        authority,
        target: request.uri.clone(),
        original_target: request.target.clone(),
        path: request.path.clone(),
        query: request.query.clone(),
        remote: address(&request.peer),
        local: address(&request.local),
        headers: std::mem::take(&mut request.headers),
        set: Vec::new(),
        body,
    };
    Exchange::new(phase, request, physical, Arc::clone(shared))
}

/// The body, if it has been read.
fn body(request: &Request) -> lua::Body {
    match &request.body {
        Body::Memory(bytes) if bytes.is_empty() && request.has_body => {
            lua::Body::Pending { length: announced(request), is_wanted: false }
        }
        Body::Memory(bytes) => lua::Body::Received(bytes.clone()),
        // Scripts run before it is known that the body is streamed.
        Body::Stream(_) => lua::Body::Pending { length: announced(request), is_wanted: false },
        Body::File { len, .. } if *len > MAX_BODY => lua::Body::Large(*len),
        Body::File { descriptor, len } => match read(descriptor.as_fd(), *len) {
            Ok(bytes) => lua::Body::Received(bytes),
            Err(_) => lua::Body::Large(*len),
        },
    }
}

fn announced(request: &Request) -> Option<u64> {
    let length = request.headers.get(http::header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

fn read(file: impl AsFd, len: u64) -> std::io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    read_exact_at(file, &mut bytes, 0)?;
    Ok(bytes.into())
}

/// Applies a script's changes to the request. Returns the file system path if the script has chosen
/// another one.
pub(super) fn give_back(
    exchange: &mut Exchange,
    request: &mut Request,
    before: &Before,
) -> Result<Option<Vec<u8>>, BadPath> {
    let lua::Request { target, path, query, authority, headers, set, body, .. } =
        &mut exchange.request;
    request.headers = std::mem::take(headers);
    set.iter().for_each(|name| request.rule(name));
    request.query = query.take();
    if *authority != before.authority
        && let Ok(value) = HeaderValue::from_maybe_shared(authority.clone())
        && !authority.is_empty()
    {
        request.host = Some(authority.clone());
        request.headers.insert(HOST, value);
    }
    request.uri = target.clone();
    if let lua::Body::Received(bytes) = body
        && request.has_body
    {
        request.body = Body::Memory(bytes.clone());
    }
    if *path != request.path && exchange.phase == Phase::Before {
        request.path = normalise(path)?;
    }
    let physical = exchange.physical.path.take();
    Ok(physical.filter(|path| before.physical.as_ref() != Some(path)))
}

/// The state of an exchange before a script has run.
#[derive(Debug)]
pub(super) struct Before {
    authority: Bytes,
    physical: Option<Vec<u8>>,
}

impl Before {
    pub(super) fn of(exchange: &Exchange) -> Self {
        Self {
            authority: exchange.request.authority.clone(),
            physical: exchange.physical.path.clone(),
        }
    }
}
