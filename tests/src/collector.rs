//! A collector of traces: it takes OTLP over HTTP, in JSON, and keeps the spans.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value as Json;

use crate::LIMIT;

/// A span as the collector has got it.
#[derive(Debug, Clone)]
pub struct Span {
    /// The id of its trace.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// The id of the span that it is a part of; empty: none.
    pub parent: String,
    /// The name.
    pub name: String,
    /// The role, by its number: 1 internal, 2 server, 3 client.
    pub kind: u64,
    /// Nanoseconds since 1970.
    pub start: u64,
    /// The same.
    pub end: u64,
    /// Attributes as texts.
    pub attributes: BTreeMap<String, String>,
    /// It has ended with an error.
    pub is_error: bool,
    /// The value of `tracestate`.
    pub state: String,
    /// The name of the service.
    pub service: String,
}

impl Span {
    /// An attribute; empty: there is none.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", |value| value)
    }
}

/// The collector's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// It takes all spans.
    Ok,
    /// It answers with this status, and keeps no spans.
    Status(u16),
    /// It reads requests, and answers nothing.
    Nothing,
}

/// A running collector. Its threads end with the process.
pub struct Collector {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    kept: Mutex<Kept>,
    changed: Condvar,
}

struct Kept {
    answers: Answers,
    /// The heads of all requests.
    heads: Vec<String>,
    spans: Vec<Span>,
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector {
    /// Listens on a free port.
    ///
    /// # Panics
    /// If that is impossible.
    pub fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let (collector, shared) = Self::new(url, answers);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), Arc::clone(&shared));
            }
        });
        collector
    }

    /// Listens on a socket with this path.
    ///
    /// # Panics
    /// If that is impossible.
    pub fn at(path: &Path, answers: Answers) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        let (collector, shared) = Self::new(Self::url_of(path), answers);
        thread::spawn(move || {
            for stream in listener.incoming() {
                serve(stream.unwrap(), Arc::clone(&shared));
            }
        });
        collector
    }

    /// The URL of a collector on this socket.
    pub fn url_of(path: &Path) -> String {
        format!("http://unix:{}:/v1/traces", path.display())
    }

    fn new(url: String, answers: Answers) -> (Self, Arc<Shared>) {
        let kept = Mutex::new(Kept { answers, heads: Vec::new(), spans: Vec::new() });
        let shared = Arc::new(Shared { kept, changed: Condvar::new() });
        (Self { url, shared: Arc::clone(&shared) }, shared)
    }

    /// The value of `endpoint`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Changes the answers to further requests.
    pub fn answer(&self, answers: Answers) {
        self.shared.kept().answers = answers;
    }

    /// All spans so far.
    pub fn spans(&self) -> Vec<Span> {
        self.shared.kept().spans.clone()
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.shared.kept().heads.clone()
    }

    /// Waits for a request, whatever the answer.
    ///
    /// # Panics
    /// If there is none in time.
    pub fn await_request(&self, number: usize) {
        self.await_that("a request", |kept| kept.heads.len() >= number);
    }

    /// Waits until a trace has this many spans, which are returned in the order of their beginnings.
    ///
    /// # Panics
    /// If they do not come in time, or there are more.
    pub fn await_trace(&self, trace: &str, count: usize) -> Vec<Span> {
        let of = |kept: &Kept| {
            let mut spans = kept.spans.clone();
            spans.retain(|span| span.trace == trace);
            spans
        };
        self.await_that(&format!("{count} spans of {trace}"), |kept| of(kept).len() >= count);
        let mut spans = of(&self.shared.kept());
        spans.sort_by_key(|span| (span.start, span.kind != 2));
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }

    fn await_that(&self, what: &str, is_so: impl Fn(&Kept) -> bool) {
        let kept = self.shared.kept();
        let (kept, late) = self
            .shared
            .changed
            .wait_timeout_while(kept, LIMIT, |kept| !is_so(kept))
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!late.timed_out(), "waited in vain for {what}: {:#?}", kept.spans);
    }
}

/// Answers the requests on a connection, in a thread of its own.
fn serve(mut stream: impl Read + Write + Send + 'static, shared: Arc<Shared>) {
    thread::spawn(move || {
        while let Some((head, body)) = read(&mut stream) {
            let answers = {
                let mut kept = shared.kept();
                if kept.answers == Answers::Ok {
                    kept.spans.extend(spans(&serde_json::from_slice(&body).expect("JSON")));
                }
                kept.heads.push(head);
                kept.answers
            };
            shared.changed.notify_all();
            let status = match answers {
                Answers::Ok => 200,
                Answers::Status(status) => status,
                Answers::Nothing => continue,
            };
            let wire = format!(
                "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
            );
            if stream.write_all(wire.as_bytes()).is_err() {
                return;
            }
        }
    });
}

/// The next request: its head and its body; `None` at the end of the connection.
fn read(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// The spans of an `ExportTraceServiceRequest`.
fn spans(request: &Json) -> Vec<Span> {
    let list = |json: &Json, name: &str| json[name].as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for of_resource in list(request, "resourceSpans") {
        let service = attributes(&of_resource["resource"])["service.name"].clone();
        for of_scope in list(&of_resource, "scopeSpans") {
            all.extend(list(&of_scope, "spans").iter().map(|span| read_span(span, &service)));
        }
    }
    all
}

fn read_span(span: &Json, service: &str) -> Span {
    let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
    Span {
        trace: text("traceId"),
        id: text("spanId"),
        parent: text("parentSpanId"),
        name: text("name"),
        kind: span["kind"].as_u64().unwrap(),
        start: text("startTimeUnixNano").parse().unwrap(),
        end: text("endTimeUnixNano").parse().unwrap(),
        attributes: attributes(span),
        is_error: span["status"]["code"] == 2,
        state: text("traceState"),
        service: service.to_owned(),
    }
}

fn attributes(of: &Json) -> BTreeMap<String, String> {
    let all = of["attributes"].as_array().unwrap().iter();
    let read = |attribute: &Json| {
        let value = attribute["value"].as_object().unwrap().values().next().unwrap();
        (attribute["key"].as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned())
    };
    all.map(read).collect()
}
