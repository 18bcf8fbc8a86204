//! Turns FastCGI parameters (RFC 3875 §4.1, and additions of web servers) into a request.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Version};
use sendoff_message::request::{BadPath, Body, Endpoint, Request, Scheme, decode_path, normalise};

/// A web server's request.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    /// The request.
    pub(crate) request: Request,
    /// The script that the server has found for the path.
    pub(crate) script: Option<Vec<u8>>,
    /// The folder of the site.
    pub(crate) root: Vec<u8>,
    /// All parameters that are not fields of the request.
    pub(crate) environment: Vec<(Bytes, Bytes)>,
}

/// Fields with which servers configure how files are sent. No client has sent them, so they are
/// ignored.
const BY_SERVERS: [&str; 2] = ["x-sendfile-type", "x-accel-mapping"];

/// Reads the parameters of a request.
///
/// # Errors
/// The parameters do not form a request that scripts could answer.
pub(crate) fn read<'p>(
    parameters: impl Iterator<Item = (&'p [u8], &'p [u8])>,
) -> Result<ServerRequest, BadPath> {
    let (mut headers, mut environment) = (HeaderMap::new(), Vec::new());
    let mut field = Vec::new();
    for (name, value) in shared(parameters) {
        match name.strip_prefix(b"HTTP_") {
            Some(name) => add(&mut headers, name, value, &mut field),
            None => environment.push((name, value)),
        }
    }
    let find = |name: &[u8]| environment.iter().find(|(known, _)| known == name);
    let value = |name: &str| find(name.as_bytes()).map(|(_, value)| value.clone());
    let set = |name: &str| value(name).filter(|value| !value.is_empty());
    for (name, parameter) in [(CONTENT_TYPE, "CONTENT_TYPE"), (CONTENT_LENGTH, "CONTENT_LENGTH")] {
        if let Some(value) = set(parameter)
            && let Ok(value) = HeaderValue::from_maybe_shared(value)
        {
            headers.insert(name, value);
        }
    }
    let name = value("SCRIPT_NAME").unwrap_or_default();
    let path_info = value("PATH_INFO").unwrap_or_default();
    let path = [&name[..], &path_info].concat();
    let query = value("QUERY_STRING").unwrap_or_default();
    let uri = match set("REQUEST_URI") {
        Some(uri) => uri,
        None if query.is_empty() => path.clone().into(),
        None => [&path[..], b"?", &query].concat().into(),
    };
    let has_query = !query.is_empty() || uri.contains(&b'?');
    let path = match &path[..] {
        b"" => decode_path(uri.split(|&byte| byte == b'?').next().unwrap_or_default())?,
        path => normalise(path)?,
    };
    let end = |address: &str, port: &str| end(set(address).as_deref(), set(port).as_deref());
    let method = value("REQUEST_METHOD").unwrap_or_default();
    let method = Method::from_bytes(&method).map_err(|_| BadPath("the method is not valid"))?;
    let is_https = set("HTTPS").is_some_and(|value| value != "off")
        || set("REQUEST_SCHEME").is_some_and(|value| value == "https");
    let request = Request {
        method,
        target: uri.clone(),
        uri,
        path,
        query: has_query.then_some(query),
        host: headers
            .get(http::header::HOST)
            .map(|host| Bytes::copy_from_slice(host.as_bytes()))
            .or_else(|| set("SERVER_NAME")),
        version: match set("SERVER_PROTOCOL").as_deref() {
            Some(b"HTTP/1.0") => Version::HTTP_10,
            Some(b"HTTP/2.0" | b"HTTP/2") => Version::HTTP_2,
            Some(b"HTTP/3.0" | b"HTTP/3") => Version::HTTP_3,
            _ => Version::HTTP_11,
        },
        scheme: if is_https { Scheme::Https } else { Scheme::Http },
        tls: None,
        port: set("SERVER_PORT").and_then(|port| number(&port)),
        body: Body::default(),
        trailers: None,
        ruled: Vec::new(),
        is_internal_redirect: false,
        has_body: headers.contains_key(CONTENT_LENGTH),
        id: None,
        trace: None,
        listener: 0,
        peer: end("REMOTE_ADDR", "REMOTE_PORT"),
        via: None,
        local: end("SERVER_ADDR", "SERVER_PORT"),
        headers,
    };
    let script = set("SCRIPT_FILENAME").map(|script| script.to_vec());
    let root = set("DOCUMENT_ROOT").map_or_else(|| b"/".to_vec(), |root| root.to_vec());
    Ok(ServerRequest { request, script, root, environment })
}

/// Copies the parameters into one piece of memory.
fn shared<'p>(
    parameters: impl Iterator<Item = (&'p [u8], &'p [u8])>,
) -> impl Iterator<Item = (Bytes, Bytes)> {
    let (mut all, mut ends) = (Vec::with_capacity(2048), Vec::with_capacity(64));
    for (name, value) in parameters {
        all.extend_from_slice(name);
        let middle = all.len();
        all.extend_from_slice(value);
        ends.push((middle, all.len()));
    }
    let (all, mut begin) = (Bytes::from(all), 0);
    ends.into_iter().map(move |(middle, end)| {
        let both = (all.slice(begin..middle), all.slice(middle..end));
        begin = end;
        both
    })
}

/// Adds the field of a parameter `HTTP_NAME`. `field` is a reusable buffer for its name.
fn add(headers: &mut HeaderMap, name: &[u8], value: Bytes, field: &mut Vec<u8>) {
    field.clear();
    let own = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    field.extend(name.iter().map(own));
    let value = HeaderValue::from_maybe_shared(value);
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(field), value)
        && !BY_SERVERS.contains(&name.as_str())
    {
        headers.append(name, value);
    }
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// One end of the client's connection; a UNIX socket if there is no address.
fn end(address: Option<&[u8]>, port: Option<&[u8]>) -> Endpoint {
    let port = port.and_then(number).unwrap_or(0);
    match address.and_then(number::<IpAddr>) {
        Some(address) => Endpoint::Ip(SocketAddr::new(address, port)),
        None => Endpoint::Unix(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(parameters: &[(&str, &str)]) -> Result<ServerRequest, BadPath> {
        read(parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())))
    }

    #[test]
    fn a_request_is_what_its_parameters_say() {
        let asked = asked(&[
            ("REQUEST_METHOD", "POST"),
            ("SCRIPT_FILENAME", "/srv/a.lua"),
            ("DOCUMENT_ROOT", "/srv"),
            ("SCRIPT_NAME", "/a.lua"),
            ("PATH_INFO", "/b c"),
            ("QUERY_STRING", "x=1"),
            ("REQUEST_URI", "/a.lua/b%20c?x=1"),
            ("HTTPS", "on"),
            ("SERVER_PROTOCOL", "HTTP/1.0"),
            ("REMOTE_ADDR", "192.0.2.1"),
            ("REMOTE_PORT", "5"),
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "text/plain"),
            ("HTTP_X_SOME_THING", "y"),
            ("HTTP_HOST", "example.org:8443"),
            ("HTTP_X_SENDFILE_TYPE", "X-Sendfile"),
        ])
        .unwrap();
        let request = &asked.request;
        assert_eq!(
            (&request.path[..], request.query.as_deref()),
            (&b"/a.lua/b c"[..], Some(&b"x=1"[..]))
        );
        assert_eq!(request.uri, "/a.lua/b%20c?x=1");
        assert_eq!((request.version, request.scheme), (Version::HTTP_10, Scheme::Https));
        assert_eq!(request.peer, Endpoint::Ip("192.0.2.1:5".parse().unwrap()));
        assert_eq!(request.local, Endpoint::Unix(None));
        assert_eq!(request.headers["x-some-thing"], "y");
        assert_eq!(request.headers["content-type"], "text/plain");
        assert!(request.has_body && !request.headers.contains_key("x-sendfile-type"));
        assert_eq!(request.host.as_deref(), Some(&b"example.org:8443"[..]));
        assert_eq!(asked.script.as_deref(), Some(&b"/srv/a.lua"[..]));
        assert!(asked.environment.iter().any(|(name, _)| name == "REMOTE_PORT"));
    }

    #[test]
    fn what_a_server_leaves_out_is_made_up_for() {
        let asked = asked(&[("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/a%20b/../c?")]).unwrap();
        assert_eq!(asked.request.path, b"/c");
        assert_eq!(asked.request.query.as_deref(), Some(&b""[..]));
        assert!(asked.script.is_none() && !asked.request.has_body);
        assert_eq!(asked.root, b"/");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for parameters in [
            &[("REQUEST_METHOD", ""), ("REQUEST_URI", "/")][..],
            &[("REQUEST_METHOD", "GET"), ("REQUEST_URI", "/..")],
            &[("REQUEST_METHOD", "GET")],
            &[("REQUEST_METHOD", "GET"), ("SCRIPT_NAME", "/a/../../b")],
        ] {
            assert!(asked(parameters).is_err(), "{parameters:?}");
        }
    }
}
