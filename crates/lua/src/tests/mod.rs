mod fragments;
mod interface;
mod patterns;
mod sandbox;
mod wait;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use crate::{
    Body, BodyPiece, Exchange, Limits, Machine, Phase, Physical, Request, Runtime, Script,
    ScriptDecision, Stat,
};

/// A machine without files; the test advances its clock.
#[derive(Debug, Default)]
pub(super) struct Bare {
    now: Cell<Duration>,
}

impl Machine for Bare {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        (path == b"/file").then(|| Stat {
            mode: 0o100_644,
            inode: 7,
            size: 3,
            uid: 1,
            gid: 2,
            accessed: (1, 2),
            modified: (3, 4),
            changed: (5, 6),
            content_type: Some(Bytes::from_static(b"text/plain")),
            etag: None,
        })
    }

    fn list(&self, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        (path == b"/").then(|| vec![b"file".to_vec(), b"other".to_vec()])
    }

    fn link(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn now(&self) -> Duration {
        self.now.get()
    }

    fn random(&self) -> u32 {
        4
    }
}

pub(super) struct Sandbox {
    pub(super) runtime: Runtime,
    machine: Rc<Bare>,
    shared: std::sync::Arc<crate::Dictionary>,
}

fn cpu_time() -> Duration {
    thread_local!(static START: Instant = Instant::now());
    START.with(|start| start.elapsed() + Duration::from_secs(1))
}

/// A clock that goes on by a millisecond with each look at it.
pub(super) fn looks() -> Duration {
    thread_local!(static LOOKS: Cell<u64> = const { Cell::new(1) });
    Duration::from_millis(LOOKS.replace(LOOKS.get() + 1))
}

impl Sandbox {
    pub(super) fn new() -> Self {
        // Test machines are busy, and this clock is the wall clock.
        Self::with(Limits { time: Duration::from_secs(2), ..Limits::default() })
    }

    pub(super) fn with(limits: Limits) -> Self {
        Self::with_clock(limits, cpu_time)
    }

    pub(super) fn with_clock(limits: Limits, cpu_time: fn() -> Duration) -> Self {
        let machine = Rc::<Bare>::default();
        let shown: Rc<dyn Machine> = Rc::clone(&machine) as Rc<dyn Machine>;
        let runtime = Runtime::new(limits, &shown, cpu_time).unwrap();
        Self { runtime, machine, shared: std::sync::Arc::default() }
    }

    pub(super) fn pass(&self, time: Duration) {
        self.machine.now.set(self.machine.now.get() + time);
    }

    pub(super) fn exchange(&self, phase: Phase) -> Exchange {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("1"));
        headers.append("x-a", HeaderValue::from_static("2"));
        let request = Request {
            method: Method::GET,
            protocol: "HTTP/1.1",
            scheme: Bytes::from_static(b"http"),
            authority: Bytes::from_static(b"example.org:8080"),
            server_name: Bytes::from_static(b"example.org"),
            target: Bytes::from_static(b"/a%20b?c=d"),
            original_target: Bytes::from_static(b"/a%20b?c=d"),
            path: b"/a b".to_vec(),
            query: Some(Bytes::from_static(b"c=d")),
            remote: Some("192.0.2.1:1234".parse().unwrap()),
            local: Some("192.0.2.2:80".parse().unwrap()),
            headers,
            set: Vec::new(),
            body: Body::Received(Bytes::new()),
        };
        let physical = Physical {
            path: Some(b"/srv/a b".to_vec()),
            relative: Some(b"/a b".to_vec()),
            root: Some((*b"/srv").into()),
            path_info: None,
        };
        Exchange::new(phase, request, physical, std::sync::Arc::clone(&self.shared))
    }

    pub(super) fn compile(&self, source: &str) -> Script {
        self.runtime.compile("/scripts/test.lua", source.as_bytes()).unwrap()
    }

    pub(super) fn run(&self, source: &str) -> (Exchange, ScriptDecision) {
        self.runtime.run(&self.compile(source), self.exchange(Phase::Route))
    }

    /// The text of a script's answer.
    pub(super) fn answer(&self, source: &str) -> String {
        let (exchange, outcome) = self.run(source);
        assert_eq!(outcome, ScriptDecision::Answer(200), "{source}");
        text(&exchange)
    }

    /// The value of an expression as text.
    pub(super) fn value(&self, expression: &str) -> String {
        self.answer(&format!("lighty.content = {{ tostring({expression}) }} return 200"))
    }

    /// The message of a script's failure.
    pub(super) fn failure(&self, source: &str) -> String {
        match self.run(source).1 {
            ScriptDecision::Failed(why) => why,
            other => panic!("{source} gives {other:?}"),
        }
    }
}

/// The body that a script has made.
fn text(exchange: &Exchange) -> String {
    let pieces = exchange.content.iter().flatten();
    let texts = pieces.map(|piece| match piece {
        BodyPiece::Text(text) => String::from_utf8_lossy(text).into_owned(),
        BodyPiece::File { path, offset, len } => {
            format!("[{} {offset} {len:?}]", path.escape_ascii())
        }
    });
    texts.collect()
}
