//! One end of a FastCGI connection: requests out, records in.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::BytesMut;
use sendoff_fastcgi::record::{BeginRequest, EndRequest, Header, Kind};
use sendoff_fastcgi::{Decoder, RecordPart, params};

/// Far longer than any step takes; a test that reaches it fails.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Default)]
pub struct Request {
    pub params: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// GET of a script, with the parameters that nginx sends for it.
    pub fn new(script: &str) -> Self {
        let (root, name) = script.rsplit_once('/').unwrap();
        let name = format!("/{name}");
        let params = [
            ("QUERY_STRING", ""),
            ("REQUEST_METHOD", "GET"),
            ("CONTENT_TYPE", ""),
            ("CONTENT_LENGTH", ""),
            ("SCRIPT_FILENAME", script),
            ("SCRIPT_NAME", &name),
            ("REQUEST_URI", &name),
            ("DOCUMENT_URI", &name),
            ("DOCUMENT_ROOT", root),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("REQUEST_SCHEME", "http"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_SOFTWARE", "test/1"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REMOTE_PORT", "50000"),
            ("SERVER_ADDR", "127.0.0.1"),
            ("SERVER_PORT", "80"),
            ("SERVER_NAME", "localhost"),
            ("REDIRECT_STATUS", "200"),
            ("HTTP_HOST", "localhost"),
        ];
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self { params: params.map(own).to_vec(), body: Vec::new() }
    }

    /// Sets a parameter; an existing one keeps its position.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        match self.params.iter_mut().find(|(known, _)| known == name) {
            Some(param) => param.1 = value.to_owned(),
            None => self.params.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.params.retain(|(known, _)| known != name);
        self
    }

    pub fn query(self, query: &str) -> Self {
        self.with("QUERY_STRING", query)
    }

    pub fn post(mut self, content_type: &str, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self.with("REQUEST_METHOD", "POST")
            .with("CONTENT_TYPE", content_type)
            .with("CONTENT_LENGTH", &body.len().to_string())
    }

    fn encode(&self, id: u16) -> Vec<u8> {
        let mut stream = Vec::new();
        for (name, value) in &self.params {
            params::encode(&mut stream, name.as_bytes(), value.as_bytes());
        }
        let mut wire = BeginRequest { keep_conn: true }.encode(id).to_vec();
        for (kind, data) in [(Kind::PARAMS, &stream), (Kind::STDIN, &self.body)] {
            for piece in data.chunks(60_000).chain([&[][..]]) {
                let len = u16::try_from(piece.len()).unwrap();
                wire.extend_from_slice(&Header::new(kind, id, len).encode());
                wire.extend_from_slice(piece);
            }
        }
        wire
    }
}

/// A response, by streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub app_status: u32,
    /// Handover records before END_REQUEST.
    pub handover: Vec<Kind>,
}

impl Response {
    pub fn head(&self) -> String {
        self.split().0
    }

    pub fn body(&self) -> String {
        self.split().1
    }

    fn split(&self) -> (String, String) {
        let text = String::from_utf8_lossy(&self.stdout);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        (head.to_owned(), body.to_owned())
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

pub struct Link {
    stream: UnixStream,
    decoder: Decoder,
    buf: BytesMut,
    /// Descriptors that came along and belong to no record yet, oldest first.
    pub fds: VecDeque<OwnedFd>,
    id: u16,
}

impl Link {
    pub fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let (decoder, buf, fds) = (Decoder::default(), BytesMut::new(), VecDeque::new());
        Self { stream, decoder, buf, fds, id: 0 }
    }

    pub fn from_fd(fd: OwnedFd) -> Self {
        Self::new(fd.into())
    }

    pub fn send(&mut self, request: &Request) {
        self.id += 1;
        // A dead worker is detected at the next read.
        let _ = self.stream.write_all(&request.encode(self.id));
    }

    pub fn abort(&mut self) {
        self.stream.write_all(&Header::new(Kind::ABORT_REQUEST, self.id, 0).encode()).unwrap();
    }

    /// The next part; `None` when the worker has closed the link.
    pub fn part(&mut self) -> Option<RecordPart> {
        loop {
            if let Some(part) = self.decoder.next(&mut self.buf).unwrap() {
                return Some(part);
            }
            self.buf.reserve(65_536);
            let (buf, fds) = (&mut self.buf, &mut self.fds);
            match sendoff_sys::fdpass::receive(self.stream.as_fd(), buf, fds) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("nothing from the worker: {e}"),
            }
        }
    }

    /// Everything up to END_REQUEST; `None` if the worker closed the link before it.
    pub fn response(&mut self) -> Option<Response> {
        let mut response = Response::default();
        loop {
            match self.part()? {
                RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                    response.stdout.extend(&data);
                }
                RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                    response.stderr.extend(&data);
                }
                RecordPart::Record { kind: Kind::END_REQUEST, content, request_id, .. } => {
                    assert_eq!(request_id, self.id);
                    response.app_status = EndRequest::decode(&content).unwrap().app_status;
                    return Some(response);
                }
                RecordPart::Record { kind, .. } => response.handover.push(kind),
                RecordPart::EndOfStream { .. } | RecordPart::Stream { .. } => {}
            }
        }
    }

    /// The contents of each STDERR record up to END_REQUEST.
    pub fn log_entries(&mut self) -> Vec<String> {
        let (mut entries, mut is_whole) = (Vec::<String>::new(), true);
        loop {
            match self.part().expect("the worker closed the link") {
                RecordPart::Stream { kind: Kind::STDERR, data, .. } => {
                    let text = String::from_utf8_lossy(&data);
                    match entries.last_mut().filter(|_| !is_whole) {
                        Some(entry) => entry.push_str(&text),
                        None => entries.push(text.into_owned()),
                    }
                    is_whole = !self.decoder.is_inside_content();
                }
                RecordPart::Record { kind: Kind::END_REQUEST, .. } => return entries,
                _ => {}
            }
        }
    }

    pub fn ask(&mut self, request: &Request) -> Response {
        self.send(request);
        self.response().expect("the worker closed the link")
    }

    /// Reads STDOUT until it contains this text.
    pub fn read_until(&mut self, text: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(text) {
            match self.part().expect("the worker closed the link") {
                RecordPart::Stream { kind: Kind::STDOUT, data, .. } => {
                    seen.push_str(&String::from_utf8_lossy(&data));
                }
                RecordPart::Record { kind: Kind::END_REQUEST, .. } => {
                    panic!("the response ended without {text:?}: {seen:?}")
                }
                _ => {}
            }
        }
        seen
    }
}
