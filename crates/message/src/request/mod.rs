//! A request, independent of its protocol, for the router and the handlers.

mod body;
mod cookies;
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

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Version};

use sendoff_http1::Trailers;
use sendoff_http1::client::claim;
use sendoff_traces::RequestTrace;

pub use body::{Body, BodyStore, NOT_STORED, not_stored};
pub use cookies::{is_only_cookie, may_be_read_in_part, sent_cookie, sent_cookies};
pub use id::new_id;
pub use origin::{Endpoint, Origin, Scheme, TLS_13, TlsFacts};
pub use path::{
    BadPath, NOT_IN_PATH, NOT_IN_URI, decode_path, normalise, with_slashes, without_parameters,
};
pub use route::RouteId;
pub use stream::BodyStream;
pub use stream::{Arrived, BodyReader, BodyWriter};
pub use who::{LimitKey, Who};

/// The fields with which a client asks for a part of a page or states a condition (RFC 9110 §13.1,
/// §14.2).
pub const CONDITIONS: [HeaderName; 6] = [
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// True if one of the [`CONDITIONS`] is among the fields. A look at each field costs less than a
/// search for each of the names.
pub fn is_conditional(fields: &HeaderMap) -> bool {
    static NAMES: [HeaderName; 6] = CONDITIONS;
    fields.keys().any(|name| NAMES.contains(name))
}

/// One request. The connection that receives it fills it in, and adds the body once the route is
/// known.
///
/// The byte strings share the memory they were received in.
#[derive(Debug, Clone)]
pub struct Request {
    /// Any token, case-sensitive; never `CONNECT`.
    pub method: Method,
    /// The request target as the client sent it, for logs.
    pub target: Bytes,
    /// Path and query as sent, still percent-encoded, in origin form: `/a%20b?c=d`. `*` in a
    /// request about the server as a whole (`OPTIONS *`). Becomes `REQUEST_URI`.
    pub uri: Bytes,
    /// The path, decoded and normalised by [`decode_path`]. Starts with `/`; exactly `/` if `uri`
    /// is `*`.
    pub path: Vec<u8>,
    /// The query: everything after the first `?` in `uri`, as sent; `None` without a `?`.
    pub query: Option<Bytes>,
    /// The authority that the client asked for, `host` or `host:port`, as sent or as stated by a
    /// trusted proxy; valid and not empty. `None` only in HTTP/1.0.
    pub host: Option<Bytes>,
    /// All fields, `Host` included. Names consist of letters, digits and `-`. Fields with other
    /// names are dropped on reception, because CGI maps different names to the same variable
    /// (`X.Real.IP` and `X-Real-IP` both become `HTTP_X_REAL_IP`).
    pub headers: HeaderMap,
    /// The protocol version that the request is answered in.
    pub version: Version,
    /// The scheme with which the client reached this server, or the trusted proxy in front of it.
    pub scheme: Scheme,
    /// The results of the TLS handshake with the peer; `None` without TLS.
    pub tls: Option<Rc<TlsFacts>>,
    /// The port that the client asked for, for `SERVER_PORT`; `None` on a UNIX socket, unless a
    /// trusted proxy states the port.
    pub port: Option<u16>,
    /// The body, complete or still arriving. Empty until it has been read, or if the handler does
    /// not use it.
    pub body: Body,
    /// True if the request has a body, even of 0 bytes (`Content-Length: 0`).
    pub has_body: bool,
    /// The fields behind the body, if it is complete and has some. A body that is still arriving
    /// tells its reader.
    pub trailers: Option<Trailers>,
    /// Names of the fields that rules of the server have set or removed, in any order.
    pub ruled: Vec<HeaderName>,
    /// True if an application redirected the request internally (`X-Accel-Redirect`,
    /// `X-Reproxy-URL`).
    pub is_internal_redirect: bool,
    /// Its id, if ids are on: printable ASCII.
    pub id: Option<Rc<str>>,
    /// Its place in its trace; `None`: requests are not traced, or it is a part of another request.
    pub trace: Option<Rc<RequestTrace>>,
    /// The listener that accepted the connection, as in [`Origin::listener`].
    pub listener: usize,
    /// The client's end of its connection, even if the client is connected to a trusted proxy.
    pub peer: Endpoint,
    /// The trusted proxy that passed the request on; `None`: the client is connected to this
    /// server.
    pub via: Option<Endpoint>,
    /// The server's end of the connection.
    pub local: Endpoint,
}

impl Request {
    /// True if the request is about the server as a whole instead of a resource (`OPTIONS *`, RFC
    /// 9110 §9.3.7). It has no route.
    #[must_use]
    pub fn is_about_server(&self) -> bool {
        self.uri == "*"
    }

    /// Other paths that an application may derive from the request: servlet containers drop the
    /// parameters of path segments, some before and some after decoding the path; browsers' and
    /// Node's `URL` take a backslash for a slash. `is_rewritten`: the application does not see the
    /// path as sent.
    ///
    /// # Errors
    /// Such a path climbs above the root.
    pub fn other_readings(&self, is_rewritten: bool) -> Result<Vec<Vec<u8>>, BadPath> {
        let sent = self.uri.split(|&byte| byte == b'?').next().unwrap_or_default();
        let mut paths = Vec::new();
        if self.path.contains(&b';') {
            paths.push(normalise(&without_parameters(&self.path))?);
        }
        if sent.contains(&b';') && !is_rewritten {
            paths.push(decode_path(&without_parameters(sent))?);
        }
        if self.path.contains(&b'\\') {
            let slashed = with_slashes(&self.path);
            paths.push(normalise(&without_parameters(&slashed))?);
            paths.push(normalise(&slashed)?);
        }
        paths.retain(|path| *path != self.path);
        paths.dedup();
        Ok(paths)
    }

    /// Notes that a rule of the server sets or removes this field. The client can then neither take
    /// it away by `Connection` nor send it behind the body.
    pub fn rule(&mut self, name: &HeaderName) {
        claim(&mut self.headers, name);
        if !self.ruled.contains(name) {
            self.ruled.push(name.clone());
        }
    }

    /// The request without its body and the fields behind it.
    #[must_use]
    pub fn without_body(&self) -> Self {
        Self { body: Body::default(), has_body: false, trailers: None, ..self.clone() }
    }

    /// The request as a part of itself, such as a question to an authorizer: callees have its span
    /// as their parent, and the call has none.
    #[must_use]
    pub fn as_part(&self) -> Cow<'_, Self> {
        match self.trace {
            Some(_) => Cow::Owned(Self { trace: None, ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }

    /// The request for the access log: without its body, with the fields that `is_logged` names, and
    /// in memory of its own, so that a request that lasts for hours does not keep the buffer in
    /// which it was received.
    #[must_use]
    pub fn for_log(&self, is_logged: impl Fn(&HeaderName) -> bool) -> Self {
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let logged = || self.headers.iter().filter(|(name, _)| is_logged(name));
        let mut headers = HeaderMap::with_capacity(logged().count());
        for (name, value) in logged() {
            // The value was a valid one.
            if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                headers.append(name, value);
            }
        }
        Self {
            target: own(&self.target),
            uri: own(&self.uri),
            query: self.query.as_ref().map(own),
            host: self.host.as_ref().map(own),
            headers,
            ruled: Vec::new(),
            ..self.without_body()
        }
    }

    /// Restarts the processing of the request: path and query are derived from `uri` again, without
    /// the changes of rules.
    ///
    /// # Errors
    /// The path cannot be decoded.
    pub fn restart(&mut self) -> Result<(), BadPath> {
        let path = self.asked_path()?;
        let query = self.uri.splitn(2, |&byte| byte == b'?').nth(1);
        (self.path, self.query) = (path, query.map(|query| self.uri.slice_ref(query)));
        Ok(())
    }

    /// The path of `uri`, without the changes of rules.
    ///
    /// # Errors
    /// The path cannot be decoded.
    pub fn asked_path(&self) -> Result<Vec<u8>, BadPath> {
        decode_path(self.uri.split(|&byte| byte == b'?').next().unwrap_or_default())
    }

    /// Method and target, with the request's id if it has one: the request's name in log lines.
    #[must_use]
    pub fn shown(&self) -> String {
        // Every request needs its name, so the code avoids `format!`, which takes twice as long.
        let (method, target) = (self.method.as_str(), String::from_utf8_lossy(&self.target));
        match &self.id {
            Some(id) => [method, " ", &target, " [", id, "]"].concat(),
            None => [method, " ", &target].concat(),
        }
    }

    /// The host that the client asked for, in lower case, without port and trailing dot; the local
    /// address if the client named none.
    #[must_use]
    pub fn host_name(&self) -> String {
        let Some(host) = &self.host else {
            return String::from_utf8_lossy(&self.local.address()).into_owned();
        };
        host_name(host)
    }
}

/// The request line as the request's name in log lines, with its id if it has one. A request that
/// was not understood has only its line.
pub fn named(line: &impl fmt::Display, request: Option<&Request>) -> String {
    match request.and_then(|request| request.id.as_deref()) {
        Some(id) => format!("{line} [{id}]"),
        None => line.to_string(),
    }
}

/// The host of an authority, in lower case, without port and trailing dot.
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
