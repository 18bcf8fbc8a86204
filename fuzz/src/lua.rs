//! The promise: every Lua script ends, leaves the state clean for the next one, and makes only
//! bounded and well-formed changes to an exchange.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use sendoff_lua::{
    Body, BodyPiece, Dictionary, Exchange, Limits, Machine, Phase, Physical, Reply, Request,
    Runtime, ScriptDecision, Stat, Step,
};

/// Limits of the scripts: small, so that many scripts run.
const LIMITS: Limits =
    Limits { instructions: 50_000, time: Duration::from_secs(5), memory: 1 << 20, output: 1 << 16 };

/// Time limit of a run on a busy machine; a longer run breaks the promise.
const LONGEST: Duration = Duration::from_secs(20);

/// Strings that scripts are likely to contain.
pub const WORDS: &[&[u8]] = &[
    b"while true do ",
    b" end ",
    b"pcall(",
    b"xpcall(",
    b"coroutine.wrap(",
    b"coroutine.yield(",
    b"coroutine.close(",
    b"coroutine.running()",
    b"setmetatable({}, { __gc = ",
    b"__index",
    b"__newindex",
    b"__close",
    b"__len",
    b"__tostring",
    b"__pairs",
    b"__mode",
    b"local x <close> = ",
    b"(('x'):rep(1000000))",
    b":rep(1 << 40)",
    b":gsub('.-.-b', ",
    b":find('(.-)(.-)%1')",
    b"string.format(",
    b"string.dump(",
    b"string.pack('s', ",
    b"load(",
    b"\x1bLua\x54",
    b"error(",
    b"error()",
    b"goto a ",
    b"::a::",
    b"table.sort(",
    b"table.concat(",
    b"table.move(",
    b"table.unpack({}, 1, 1 << 20)",
    b"collectgarbage()",
    b"rawset(",
    b"getmetatable('')",
    b"_G",
    b"_ENV",
    b"require",
    b"debug",
    b"io",
    b"lighty.content",
    b"lighty.header",
    b"lighty.r.resp_body.set(",
    b"lighty.r.req_header",
    b"lighty.env['physical.path']",
    b"lighty.r.resp_header['X']",
    b"lighty.stat('/file')",
    b"lighty.c.md('sha512', ",
    b"lighty.c.urldec_query(",
    b"sendoff.shared.set(",
    b"sendoff.json.decode(",
    b"sendoff.json.encode(",
    b"sendoff.subrequest('/')",
    b"sendoff.subrequest { path = ",
    b"function() ",
    b"return ",
    b"200",
    b"99",
    b" = ",
    b")",
    b"}",
    b"{",
];

/// Scripts to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "lighty.header['X-A'] = 'b' lighty.content = { 'a', { filename = '/file', offset = 1, length = 2 }, 3 } return 200",
        "local a = sendoff.subrequest { path = '/a', headers = { ['X-A'] = 'b' }, body = 'c' } lighty.content = { a.body, a.headers['x-a'] } return 200",
        "local t = {} for i = 1, 100 do t[i] = ('x'):rep(i) end table.sort(t, function(a, b) return #a > #b end) return table.concat(t)",
        "local f = coroutine.wrap(function() local x <close> = setmetatable({}, { __close = function() error('thrown') end }) coroutine.yield(sendoff.subrequest('/')) end) f() f()",
        "while true do pcall(function() local s = 'x' while true do s = s .. s end end) end",
        "return sendoff.json.encode(sendoff.json.decode('{\"a\":[1,2,{}]}'))",
        "lighty.content = { (('abc'):gsub('%w', function(c) return c:upper() .. lighty.c.hexenc(c) end)) } return 200",
        "for k, v in pairs(lighty.request) do lighty.r.resp_header[k] = v end lighty.r.req_attr['uri.path'] = '/x' return lighty.RESTART_REQUEST",
        "local ok, e = xpcall(error, function(e) return setmetatable({}, { __tostring = function() return ('x'):rep(100) end }) end) print(e) error(e)",
        "sendoff.shared.set('k', 'v', 1) sendoff.shared.incr('n') return load('return ' .. sendoff.shared.get('n'))() + 200",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}

#[derive(Debug)]
struct Bare;

impl Machine for Bare {
    fn stat(&self, path: &[u8]) -> Option<Stat> {
        (path == b"/file").then(|| Stat { mode: 0o100_644, size: 3, ..Stat::default() })
    }

    fn list(&self, _: &[u8]) -> Option<Vec<Vec<u8>>> {
        None
    }

    fn link(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn now(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn random(&self) -> u32 {
        4
    }
}

fn time() -> Duration {
    thread_local!(static START: Instant = Instant::now());
    START.with(|start| start.elapsed() + Duration::from_secs(1))
}

fn exchange(shared: &Arc<Dictionary>) -> Exchange {
    let mut headers = HeaderMap::new();
    headers.insert("x-a", HeaderValue::from_static("1"));
    let request = Request {
        method: Method::GET,
        protocol: "HTTP/1.1",
        scheme: Bytes::from_static(b"http"),
        authority: Bytes::from_static(b"example.org"),
        server_name: Bytes::from_static(b"example.org"),
        target: Bytes::from_static(b"/a?b"),
        original_target: Bytes::from_static(b"/a?b"),
        path: b"/a".to_vec(),
        query: Some(Bytes::from_static(b"b")),
        remote: None,
        local: None,
        headers,
        set: Vec::new(),
        body: Body::Received(Bytes::from_static(b"body")),
    };
    Exchange::new(Phase::Route, request, Physical::default(), Arc::clone(shared))
}

/// Runs a script, and answers its subrequests.
fn run(
    runtime: &Runtime,
    name: &str,
    source: &[u8],
    shared: &Arc<Dictionary>,
) -> Option<(Exchange, ScriptDecision)> {
    let script = runtime.compile(name, source).ok()?;
    let mut step = runtime.start(&script, exchange(shared));
    loop {
        match step {
            Step::Done(exchange, outcome) => return Some((*exchange, outcome)),
            Step::Waits(mut waiting) => {
                let fields = vec![(Bytes::from_static(b"X-A"), Bytes::from_static(b"1"))];
                let answer =
                    waiting.wish().map(|wish| Reply { status: 200, fields, body: wish.body });
                step = runtime.go_on(*waiting, answer);
            }
        }
    }
}

fn is_well_formed(fields: &[(Bytes, Bytes)]) -> bool {
    fields.len() <= 128
        && fields.iter().all(|(name, value)| {
            !name.is_empty()
                && !name.contains(&b':')
                && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
        })
}

/// Checks the promise for a script.
///
/// # Panics
/// The promise is broken.
pub fn check(source: &[u8]) {
    // One state for all scripts, as in an event loop.
    thread_local!(static RUNTIME: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) });
    let runtime = RUNTIME.with_borrow_mut(|kept| {
        let new = || {
            let machine: Rc<dyn Machine> = Rc::new(Bare);
            Rc::new(Runtime::new(LIMITS, &machine, time).expect("there is memory"))
        };
        Rc::clone(kept.get_or_insert_with(new))
    });
    let shared = Arc::default();
    let began = Instant::now();
    if let Some((exchange, outcome)) = run(&runtime, "/fuzz.lua", source, &shared) {
        assert!(is_well_formed(&exchange.fields), "{:?}", exchange.fields);
        let texts = exchange.content.iter().flatten().map(|piece| match piece {
            BodyPiece::Text(text) => text.len(),
            BodyPiece::File { path, .. } => path.len(),
        });
        assert!(texts.sum::<usize>() <= LIMITS.output, "more output than is allowed");
        if let ScriptDecision::Failed(why) = outcome {
            assert!(!why.contains(char::is_control), "{why:?}");
        }
    }
    assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    // The next script must find everything in order, and no data of this one.
    let probe = b"local n = 0 for _ in pairs(_G) do n = n + 1 end
        assert(n == 1 and rawget(string, 'x') == nil and lighty.header['X-A'] == nil)
        assert(#('x'):rep(300000) == 300000 and ('a'):upper() == 'A' and type(coroutine.wrap(print)) == 'function')
        lighty.content = { tostring(lighty.env['uri.path']) } return 200";
    let answered = run(&runtime, "/probe.lua", probe, &shared);
    let Some((exchange, ScriptDecision::Answer(200))) = answered else {
        panic!("the next script fails: {answered:?}")
    };
    assert_eq!(exchange.content, Some(vec![BodyPiece::Text(Bytes::from_static(b"/a"))]));
}
