//! A request, independent of its protocol: what the router and the handlers work with.

mod body;
pub mod forwarded;
mod id;
mod origin;
mod path;
pub mod proxy_protocol;
pub mod received;
mod route;
#[cfg(any(test, feature = "sample"))]
pub mod sample;
mod stream;
pub mod variables;
mod who;

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, Method, Version};

pub use body::{Body, BodyStore, NOT_STORED, not_stored};
pub use id::new_id;
pub use origin::{Endpoint, Origin, Scheme, TLS_13, TlsFacts};
pub use path::{BadPath, NOT_IN_PATH, decode_path, normalise, without_parameters};
pub use route::RouteId;
pub use stream::BodyStream;
pub use stream::{Arrived, BodyReader, BodyWriter};
pub use who::Who;

/// The fields in which a client says which part of a page it wants, and on which condition (RFC 9110 §13.1, §14.2).
pub const CONDITIONS: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// One request. The connection that receives it fills it in, and adds the body when the route is known.
///
/// The byte strings share the memory they were received in.
#[derive(Debug, Clone)]
pub struct Request {
    /// Any token, case-sensitive; never `CONNECT`.
    pub method: Method,
    /// The request target as the client sent it, for logs.
    pub target: Bytes,
    /// Path and query as sent, still percent-encoded, in origin form: `/a%20b?c=d`. `*` in a request about the server as a
    /// whole (`OPTIONS *`). This is `REQUEST_URI`.
    pub uri: Bytes,
    /// The path, decoded and normalised by [`decode_path`]. Starts with `/`; just that where `uri` is `*`.
    pub path: Vec<u8>,
    /// What follows the first `?` in `uri`, as sent; `None` without one.
    pub query: Option<Bytes>,
    /// The authority that the client asked, `host` or `host:port`, as sent, or as a trusted proxy says; valid and not empty. `None`
    /// only in HTTP/1.0.
    pub host: Option<Bytes>,
    /// All fields, `Host` included. Names consist of letters, digits and `-`: other fields are dropped on reception, because
    /// CGI would turn their names into those of different fields (`X.Real.IP` and `X-Real-IP` both become `HTTP_X_REAL_IP`).
    pub headers: HeaderMap,
    /// The protocol version that the request is answered in.
    pub version: Version,
    /// How the client reached this server, or the trusted proxy before it.
    pub scheme: Scheme,
    /// What the TLS handshake with the peer has shown, if the connection has TLS.
    pub tls: Option<Rc<TlsFacts>>,
    /// The port that the client asked, for `SERVER_PORT`; `None` on a UNIX socket, unless a trusted proxy tells.
    pub port: Option<u16>,
    /// The body, complete or still arriving; empty until it has been read, and if the handler does not use it.
    pub body: Body,
    /// Whether the request has a body, which may be of 0 bytes (`Content-Length: 0`).
    pub has_body: bool,
    /// Whether an application has led it here, and no client (`X-Accel-Redirect`, `X-Reproxy-URL`).
    pub is_led: bool,
    /// Its id, if ids are on: printable ASCII.
    pub id: Option<Rc<str>>,
    /// The number of the listener that accepted the connection, in `Config::listen`.
    pub listener: usize,
    /// The client's end of its connection; the client may be connected to a trusted proxy.
    pub peer: Endpoint,
    /// The trusted proxy that has passed the request on, if one has.
    pub via: Option<Endpoint>,
    /// The end of the connection at this server.
    pub local: Endpoint,
}

impl Request {
    /// Whether the request concerns the server as a whole and no resource (`OPTIONS *`, RFC 9110 §9.3.7). It has no route.
    #[must_use]
    pub fn is_about_server(&self) -> bool {
        self.uri == "*"
    }

    /// Other paths that an application may read in the request: servlet containers drop the parameters of segments, those as they were
    /// sent, and others those of the decoded path. `is_rewritten`: the path as it was sent does not reach the application.
    ///
    /// # Errors
    /// Such a path climbs above the root.
    pub fn read_without_parameters(&self, is_rewritten: bool) -> Result<Vec<Vec<u8>>, BadPath> {
        let sent = self.uri.split(|&byte| byte == b'?').next().unwrap_or_default();
        let mut paths = Vec::new();
        if self.path.contains(&b';') {
            paths.push(normalise(&without_parameters(&self.path))?);
        }
        if sent.contains(&b';') && !is_rewritten {
            paths.push(decode_path(&without_parameters(sent))?);
        }
        paths.retain(|path| *path != self.path);
        paths.dedup();
        Ok(paths)
    }

    /// Begins the request again: path and query are those of `uri`, whatever rules have made of them.
    ///
    /// # Errors
    /// The path cannot be decoded.
    pub fn restart(&mut self) -> Result<(), BadPath> {
        let mut sides = self.uri.splitn(2, |&byte| byte == b'?');
        let path = decode_path(sides.next().unwrap_or_default())?;
        let query = sides.next().map(|query| self.uri.slice_ref(query));
        (self.path, self.query) = (path, query);
        Ok(())
    }

    /// Method and target, with its id if it has one: how log lines name it.
    #[must_use]
    pub fn shown(&self) -> String {
        // Each request is given its name, so this does without `format!`, which takes twice as long.
        let (method, target) = (self.method.as_str(), String::from_utf8_lossy(&self.target));
        match &self.id {
            Some(id) => [method, " ", &target, " [", id, "]"].concat(),
            None => [method, " ", &target].concat(),
        }
    }

    /// The host that the client asked for, in lower case, without its port and without the dot that may end a name; the local
    /// address if it named none.
    #[must_use]
    pub fn host_name(&self) -> String {
        let Some(host) = &self.host else {
            return String::from_utf8_lossy(&self.local.address()).into_owned();
        };
        host_name(host)
    }
}

/// The request line as log lines name a request: with its id, if it has one. A request that was not understood has only its line.
pub fn named(line: &impl fmt::Display, request: Option<&Request>) -> String {
    match request.and_then(|request| request.id.as_deref()) {
        Some(id) => format!("{line} [{id}]"),
        None => line.to_string(),
    }
}

/// The host of an authority, in lower case, without the port and without the dot that may end a name.
pub fn host_name(authority: &[u8]) -> String {
    let after_brackets = authority.iter().rposition(|&b| b == b']').unwrap_or(0);
    let colon = authority[after_brackets..].iter().position(|&b| b == b':');
    let name = colon.map_or(authority, |colon| &authority[..after_brackets + colon]);
    let name = name.strip_suffix(b".").unwrap_or(name);
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

/// A protocol version as nginx writes it, in `SERVER_PROTOCOL` and in logs.
#[must_use]
pub fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests {
    use super::sample::request;

    #[test]
    fn host_names_have_no_port() {
        for (host, name) in [
            (Some("Example.ORG:8080"), "example.org"),
            (Some("example.org"), "example.org"),
            (Some("example.org.:80"), "example.org"),
            (Some("[::1]:80"), "[::1]"),
            (Some("[::1]"), "[::1]"),
            (None, "127.0.0.1"),
        ] {
            assert_eq!(request(host).host_name(), name, "{host:?}");
        }
    }
}
