//! HTTP messages as the scenarios write and read them.

use std::fmt::Write;

/// A request to be written. `Host: example.test` and, with a body, `Content-Length` are added.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, ...
    pub method: String,
    target: String,
    version: &'static str,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// A request without a body. The target is sent as it stands.
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            version: "HTTP/1.1",
            headers: Vec::new(),
            body: None,
        }
    }

    /// `GET target`.
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// `POST target` with a body.
    pub fn post(target: &str, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut request = Self::new("POST", target).header("Content-Type", content_type);
        request.body = Some(body.into());
        request
    }

    /// A file upload as a browser sends it, with one ordinary field `note` before it.
    pub fn upload(target: &str, field: &str, name: &str, contents: &[u8]) -> Self {
        let mut body = format!(
            "--limit\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\na note\r\n\
             --limit\r\nContent-Disposition: form-data; name=\"{field}\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(contents);
        body.extend_from_slice(b"\r\n--limit--\r\n");
        Self::post(target, "multipart/form-data; boundary=limit", body)
    }

    /// Adds a header. A `Host` replaces the default one.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Makes it a request of HTTP/1.0.
    #[must_use]
    pub fn http10(mut self) -> Self {
        self.version = "HTTP/1.0";
        self
    }

    /// The request target: path and query.
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Its fields, without those that are added.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Its body.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        self.body.as_deref()
    }

    /// The request's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} {}\r\n", self.method, self.target, self.version);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("Host: example.test\r\n");
        }
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if let Some(body) = &self.body {
            write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Head {
    /// `HTTP/1.1`
    pub version: String,
    /// 200, 404, ...
    pub status: u16,
    /// The reason phrase.
    pub reason: String,
    /// Names as they were sent.
    pub headers: Vec<(String, String)>,
}

/// Framing of a response's body: the rule that gives its length (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body: HEAD, 1xx, 204, 304.
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The connection ends with the body.
    Close,
}

impl Head {
    /// Parses the lines before the empty line, strictly.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let mut lines = text.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        let mut parts = status_line.splitn(3, ' ');
        let version = parts.next().unwrap_or_default();
        let status = parts.next().and_then(|digits| digits.parse().ok());
        let Some(status) = status else {
            return Err(format!("no status line: {status_line:?}"));
        };
        // nginx leaves out the space if it knows no reason phrase.
        let reason = parts.next().unwrap_or_default();
        if version != "HTTP/1.1" && version != "HTTP/1.0" {
            return Err(format!("odd version: {status_line:?}"));
        }
        let mut headers = Vec::new();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                return Err(format!("no header: {line:?}"));
            };
            let odd =
                name.is_empty() || name.contains(|c: char| c.is_whitespace() || !c.is_ascii());
            if odd || line.contains(['\r', '\n', '\0']) {
                return Err(format!("malformed header: {line:?}"));
            }
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        Ok(Self { version: version.into(), status, reason: reason.into(), headers })
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a header, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let same = move |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.headers.iter().filter(same).map(|(_, value)| value.as_str())
    }

    /// The framing of the body in a response to a request by `method`.
    pub fn framing(&self, method: &str) -> Result<Framing, String> {
        let lengths: Vec<_> = self.all("content-length").collect();
        let codings: Vec<_> = self.all("transfer-encoding").collect();
        if method == "HEAD" || self.status < 200 || self.status == 204 || self.status == 304 {
            if !codings.is_empty() && (self.status < 200 || self.status == 204) {
                return Err(format!("a {} with Transfer-Encoding", self.status));
            }
            return Ok(Framing::None);
        }
        match (lengths.as_slice(), codings.as_slice()) {
            ([], []) => Ok(Framing::Close),
            ([], ["chunked"]) => Ok(Framing::Chunked),
            ([length], []) => {
                length.parse().map(Framing::Length).map_err(|_| format!("Content-Length: {length}"))
            }
            _ => Err(format!("ambiguous framing: {:?}", self.headers)),
        }
    }

    /// True if the server closes the connection after this response.
    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status and headers.
    pub head: Head,
    /// The framing of the body.
    pub framing: Framing,
    /// The body, chunked coding removed.
    pub body: Vec<u8>,
    /// The fields behind the body, names as they were sent.
    pub trailers: Vec<(String, String)>,
}

impl Response {
    /// A response without a head, to be filled.
    pub(crate) fn empty() -> Self {
        let (version, reason) = (String::new(), String::new());
        let head = Head { version, status: 0, reason, headers: Vec::new() };
        Self { head, framing: Framing::None, body: Vec::new(), trailers: Vec::new() }
    }

    /// The trailers as `name: value`.
    pub fn trailer_lines(&self) -> Vec<String> {
        self.trailers.iter().map(|(name, value)| format!("{name}: {value}")).collect()
    }

    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// True if the response came over HTTP/2 or HTTP/3, which have no reason phrases and no framing.
    pub fn is_multiplexed(&self) -> bool {
        matches!(&*self.head.version, "HTTP/2" | "HTTP/3")
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body of a response that has this status.
    ///
    /// # Panics
    /// If the status differs.
    #[track_caller]
    pub fn expect(&self, status: u16) -> &[u8] {
        let shown = String::from_utf8_lossy(&self.body[..self.body.len().min(500)]);
        assert_eq!(self.head.status, status, "{:?}\n{shown}", self.head);
        &self.body
    }
}
