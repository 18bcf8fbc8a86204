//! The interface of mod_magnet. `tests/tests/sites/lua.rs` compares it with lighttpd.

use std::time::Duration;

use bytes::Bytes;

use super::Sandbox;
use crate::{Body, BodyPiece, Phase, ScriptDecision};

#[test]
fn requests_are_read_and_changed() {
    let sandbox = Sandbox::new();
    for (expression, value) in [
        ("lighty.r.req_attr['uri.path']", "/a b"),
        ("lighty.env['uri.path-raw']", "/a%20b"),
        ("lighty.env['uri.query']", "c=d"),
        ("lighty.env['request.uri']", "/a%20b?c=d"),
        ("lighty.env['physical.path']", "/srv/a b"),
        (
            "lighty.env['request.remote-ip'] .. ':' .. lighty.env['request.remote-port']",
            "192.0.2.1:1234",
        ),
        ("lighty.env['nothing']", "nil"),
        ("lighty.request['X-A']", "1, 2"),
        ("lighty.r.req_header['none']", "nil"),
        ("lighty.r.req_body.len", "0"),
        ("lighty.r.req_item.http_status", "0"),
        ("lighty.RESTART_REQUEST", "99"),
    ] {
        assert_eq!(sandbox.value(expression), value, "{expression}");
    }
    let (exchange, outcome) = sandbox.run(
        "local r = lighty.r
        r.req_attr['uri.path'] = '/new'
        r.req_attr['uri.query'] = nil
        r.req_attr['request.uri'] = '/target'
        r.req_header['X-B'] = 'b'
        r.req_header['X-A'] = nil
        r.req_header['X-C'] = 'a\\nb'
        r.req_env['V'] = '1'
        r.resp_header['X-D'] = '1\\r\\nX-D: 2'
        r.resp_header['X-E'] = 'a\\r\\nX-F: b'
        r.resp_header['Content-Length'] = '5'",
    );
    assert_eq!(outcome, ScriptDecision::GoOn);
    assert_eq!(exchange.request.path, b"/new");
    assert_eq!(exchange.request.query, None);
    assert_eq!(exchange.request.target, "/target");
    let names: Vec<_> = exchange.request.headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["x-b"]);
    assert_eq!(exchange.environment, [(Bytes::from("V"), Bytes::from("1"))]);
    let field = |value| (Bytes::from("X-D"), Bytes::from_static(value));
    assert_eq!(exchange.fields, [field(b"1"), field(b"2")]);
    assert_eq!(exchange.messages.len(), 2, "{:?}", exchange.messages);
}

#[test]
fn digests_are_those_of_the_standards() {
    let sandbox = Sandbox::new();
    // RFC 2202 §2; lighttpd 1.4.69 returns another value.
    let code =
        sandbox.value("lighty.c.hmac('md5', 'Jefe', 'what do ya want for nothing?'):lower()");
    assert_eq!(code, "750c783e6ab0b503eaa86e310a5db738");
    let digest = sandbox.value("lighty.c.md('sha256', 'abc'):lower()");
    assert_eq!(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

#[test]
fn bodies_are_strings_and_ranges_of_files() {
    let sandbox = Sandbox::new();
    let body = sandbox.answer(
        "lighty.content = { 'a', 1, { filename = '/f' }, { filename = '/g', offset = 2, length = 5 }, { filename = '/h', offset = 5, length = 5 } }
        return 200",
    );
    assert_eq!(body, "a1[/f 0 None][/g 2 Some(3)]", "the older interface takes length for the end");
    let body = sandbox.answer(
        "local b = lighty.r.resp_body
        b.add('gone')
        b.set({ 'a', { filename = '/g', offset = 2, length = 5 } })
        b:add('z')
        return 200",
    );
    assert_eq!(body, "a[/g 2 Some(5)]z");
    let (exchange, outcome) =
        sandbox.run("lighty.content = { 'a', { filename = 5 }, 'b' } return 404");
    assert_eq!(outcome, ScriptDecision::Answer(404));
    assert_eq!(exchange.content, Some(vec![BodyPiece::Text(Bytes::from("a"))]));
    assert_eq!(exchange.messages.len(), 1);
}

#[test]
fn statuses_decide() {
    let sandbox = Sandbox::new();
    for (source, expected) in [
        ("", ScriptDecision::GoOn),
        ("return 0", ScriptDecision::GoOn),
        ("return lighty.RESTART_REQUEST", ScriptDecision::Restart),
        ("return 403", ScriptDecision::Answer(403)),
        ("return 302.0", ScriptDecision::Answer(302)),
        ("return 'x'", ScriptDecision::GoOn),
        ("return 103", ScriptDecision::GoOn),
        (
            "return lighty.stat('/file')['http-response-send-file']",
            ScriptDecision::File(b"/file".to_vec()),
        ),
    ] {
        assert_eq!(sandbox.run(source).1, expected, "{source}");
    }
}

#[test]
fn the_body_is_asked_for() {
    let sandbox = Sandbox::new();
    let script = sandbox.compile(
        "if not lighty.r.req_body.collect then return 0 end
        lighty.content = { lighty.r.req_body.get, '!' } return 200",
    );
    let mut exchange = sandbox.exchange(Phase::Before);
    exchange.request.body = Body::Pending { length: Some(3), is_wanted: false };
    let (exchange, _) = sandbox.runtime.run(&script, exchange);
    assert!(matches!(exchange.request.body, Body::Pending { is_wanted: true, .. }));
    let mut exchange = sandbox.exchange(Phase::Before);
    exchange.request.body = Body::Received(Bytes::from("abc"));
    let (exchange, outcome) = sandbox.runtime.run(&script, exchange);
    assert_eq!(outcome, ScriptDecision::Answer(200));
    assert_eq!(exchange.content.unwrap().len(), 2);
}

#[test]
fn the_dictionary_forgets_in_time() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.value("sendoff.shared.set('k', 'v', 10)"), "true");
    assert_eq!(sandbox.value("sendoff.shared.incr('n', 2, 5)"), "2");
    assert_eq!(sandbox.value("sendoff.shared.incr('n')"), "3");
    assert_eq!(sandbox.value("sendoff.shared.add('k', 'w')"), "false");
    assert_eq!(sandbox.value("sendoff.shared.incr('k')"), "nil");
    sandbox.pass(Duration::from_secs(6));
    assert_eq!(sandbox.value("sendoff.shared.get('k')"), "v");
    assert_eq!(sandbox.value("sendoff.shared.get('n')"), "nil");
    sandbox.pass(Duration::from_secs(6));
    assert_eq!(sandbox.value("sendoff.shared.get('k')"), "nil");
    assert_eq!(sandbox.value("sendoff.shared.add('k', true)"), "true");
    assert_eq!(sandbox.value("sendoff.shared.get('k')"), "true");
    for seconds in ["0", "-1", "-math.huge"] {
        sandbox.value(&format!("sendoff.shared.set('gone', 'v', {seconds})"));
        assert_eq!(sandbox.value("sendoff.shared.get('gone')"), "nil", "{seconds}");
        let twice = format!(
            "sendoff.shared.incr('gone', 5, {seconds}) + sendoff.shared.incr('gone', 5, {seconds})"
        );
        assert_eq!(sandbox.value(&twice), "10", "{seconds}");
    }
    assert!(sandbox.failure("sendoff.shared.set('t', 1, 0/0)").contains("not a number"));
    sandbox.value("sendoff.shared.set('much', math.maxinteger, math.huge)");
    assert_eq!(sandbox.value("sendoff.shared.incr('much')"), i64::MAX.to_string());
    sandbox.value("sendoff.shared.set('little', math.mininteger, 1e300)");
    assert_eq!(sandbox.value("sendoff.shared.incr('little', -1)"), i64::MIN.to_string());
    sandbox.run("lighty.status['c'] = lighty.status['c'] + 1");
    assert_eq!(sandbox.value("lighty.status['c']"), "1");
    assert!(sandbox.failure("sendoff.shared.set('t', {})").contains("a table cannot be shared"));
}

#[test]
fn a_full_dictionary_drops_what_was_used_least_recently() {
    let dictionary = crate::Dictionary::default();
    let value = || crate::Stored::Text(vec![0; 100_000].into());
    for number in 0..100_u32 {
        assert!(dictionary.set(&number.to_be_bytes(), value(), None));
        assert!(dictionary.get(&0_u32.to_be_bytes(), Duration::ZERO).is_some());
    }
    let kept = (0..100_u32).filter(|n| dictionary.get(&n.to_be_bytes(), Duration::ZERO).is_some());
    assert_eq!(kept.count(), crate::DICTIONARY_BYTES / 100_100);
    let large = crate::Stored::Text(vec![0; crate::DICTIONARY_BYTES].into());
    assert!(!dictionary.set(b"large", large, None));
}

#[test]
fn json_goes_both_ways() {
    let sandbox = Sandbox::new();
    for text in
        ["null", "true", "1", "-2.5", "\"a\\u0000\\n\"", "[1,[2,\"x\"],{}]", "{\"a\":[null]}"]
    {
        let script = format!(
            "local j = sendoff.json lighty.content = {{ j.encode(j.decode([=[{text}]=])) }} return 200"
        );
        assert_eq!(sandbox.answer(&script), text);
    }
    for text in ["", "[1", "nul", "[1]x", "\"\\ud800\""] {
        assert!(
            sandbox.failure(&format!("sendoff.json.decode([=[{text}]=])")).contains("json: "),
            "{text}"
        );
    }
    for (table, text) in [
        ("{}", "{}"),
        ("{ 1, 2 }", "[1,2]"),
        ("{ 1, nil, 3 }", "[1,null,3]"),
        ("{ [1] = 1, [3] = 3 }", "[1,null,3]"),
        ("{ [4] = 4, [1] = 1 }", "[1,null,null,4]"),
        ("{ [2] = 2 }", r#"{"2":2}"#),
        ("{ 1, sendoff.json.null, 3 }", "[1,null,3]"),
    ] {
        assert_eq!(sandbox.value(&format!("sendoff.json.encode({table})")), text, "{table}");
    }
    // The order of an object's members is not fixed.
    for (table, members) in [
        ("{ 1, 2, a = 3 }", &[r#""1":1"#, r#""2":2"#, r#""a":3"#][..]),
        ("{ 1, [-1] = 2 }", &[r#""1":1"#, r#""-1":2"#]),
        ("{ 1, [5] = 2 }", &[r#""1":1"#, r#""5":2"#]),
        ("{ 1, [1000000000] = 2 }", &[r#""1":1"#, r#""1000000000":2"#]),
        ("{ 1, [math.maxinteger] = 2 }", &[r#""1":1"#, r#""9223372036854775807":2"#]),
    ] {
        let object = sandbox.value(&format!("sendoff.json.encode({table})"));
        let inner = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap();
        let mut found: Vec<_> = inner.split(',').collect();
        found.sort_unstable();
        let mut members = members.to_vec();
        members.sort_unstable();
        assert_eq!(found, members, "{table}");
    }
    let why = sandbox.failure("sendoff.json.encode({ 1, [1.5] = 2 })");
    assert!(why.contains("a number cannot be a key"), "{why}");
    assert!(sandbox.failure("sendoff.json.encode(print)").contains("a function has no JSON form"));
    let deep = sandbox.failure("sendoff.json.decode(('['):rep(100000))");
    assert!(deep.contains("recursion limit"), "{deep}");
}

#[test]
fn responses_are_changed() {
    let sandbox = Sandbox::new();
    let script = sandbox.compile(
        "local h = lighty.r.resp_header
        h['X-Status'] = lighty.r.req_item.http_status
        h['Server'] = nil
        h['X-Body'] = tostring(lighty.r.resp_body.len)",
    );
    let mut exchange = sandbox.exchange(Phase::Response);
    exchange.status = 404;
    exchange.fields = vec![(Bytes::from("server"), Bytes::from("x"))];
    let (exchange, outcome) = sandbox.runtime.run(&script, exchange);
    assert_eq!(outcome, ScriptDecision::GoOn);
    let names: Vec<_> = exchange.fields.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, [&b"X-Status"[..], b"X-Body"]);
}

#[test]
fn the_place_of_an_answer_is_noted_if_it_is_explained() {
    let sandbox = Sandbox::new();
    for (source, place) in [
        ("\nlighty.content = { 'a' } return 200", Some("/scripts/test.lua:2")),
        ("\n\nlighty.content[1] = 'a' return 200", Some("/scripts/test.lua:3")),
        (
            "local function f()\nlighty.r.resp_body.set('a') end f() return 200",
            Some("/scripts/test.lua:2"),
        ),
        ("\nreturn lighty.stat('/file')['http-response-send-file']", Some("/scripts/test.lua:2")),
        ("\nlighty.content = { 'a' } return 200 --subrequest", Some("/scripts/test.lua:2")),
        ("return 200", None),
    ] {
        for is_explained in [true, false] {
            let mut exchange = sandbox.exchange(Phase::Route);
            exchange.is_explained = is_explained;
            let (exchange, _) = sandbox.runtime.run(&sandbox.compile(source), exchange);
            assert_eq!(exchange.place.as_deref(), place.filter(|_| is_explained), "{source}");
        }
    }
}

#[test]
fn a_thrown_error_keeps_its_text() {
    let sandbox = Sandbox::new();
    for (call, text) in [
        ("('a'):gsub('a', function() error('text', 0) end)", "text"),
        ("('a'):gsub('a', function() error('text') end)", "/scripts/test.lua:1: text"),
        (
            "('a'):gsub('a', function() ('b'):gsub('b', function() error('text', 0) end) end)",
            "text",
        ),
        (
            "('a'):gsub('a', setmetatable({}, { __index = function() error('text', 0) end }))",
            "text",
        ),
        (
            "('a'):gsub('a', function()\nsendoff.json.encode(print) end)",
            "/scripts/test.lua:2: json: a function has no JSON form",
        ),
        ("table.sort({ 2, 1 }, function() error('text', 0) end)", "text"),
        ("error('a\\nstack traceback: b', 0)", "a\nstack traceback: b"),
        (
            "('a'):gsub('a', function() error('a\\nstack traceback: b', 0) end)",
            "a\nstack traceback: b",
        ),
    ] {
        let script = format!("(function() return select(2, pcall(function() {call} end)) end)()");
        assert_eq!(sandbox.value(&script), text, "{call}");
    }
}

#[test]
fn errors_that_are_caught_are_strings() {
    let sandbox = Sandbox::new();
    let caught = |call: &str| {
        sandbox
            .value(&format!("(function() local ok, e = {call} return type(e) .. ' ' .. e end)()"))
    };
    for call in [
        "pcall(function() lighty.stat({}) end)",
        "xpcall(function() lighty.stat({}) end, function(e) return e end)",
        "coroutine.resume(coroutine.create(function() lighty.stat({}) end))",
        "pcall(coroutine.wrap(function() lighty.stat({}) end))",
        "pcall(function() sendoff.json.decode('{') end)",
    ] {
        let value = caught(call);
        assert!(value.starts_with("string /scripts/test.lua:1: "), "{call}: {value}");
    }
}

/// Functions that are written anew take the same arguments as the library's, with the same errors.
#[test]
fn tables_are_changed_as_by_the_library() {
    let (sandbox, library) = (Sandbox::new(), mlua::Lua::new());
    for call in [
        "table.insert(t, 'x')",
        "table.insert(t, 1, 'x')",
        "table.insert(t, 2.0, 'x')",
        "table.insert(t, '2', 'x')",
        "table.insert(t, '0x4', 'x')",
        "table.insert(t, 1.5, 'x')",
        "table.insert(t, 'one', 'x')",
        "table.insert(t, {}, 'x')",
        "table.insert(t, 5, 'x')",
        "table.insert(t)",
        "table.remove(t)",
        "table.remove(t, '1')",
        "table.remove(t, 1.5)",
        "table.remove(t, 7)",
        "table.move(t, '1', 2.0, 3)",
        "table.move(t, 1, 2, true)",
        "table.concat(t, ',', '2', 3.0)",
        "table.concat(t, ',', 1.5)",
        "table.unpack(t, '2', 3)",
        "table.unpack(t, 1, 2.5)",
    ] {
        let source = format!(
            "local t = {{ 'a', 'b', 'c' }} local got = {{ pcall(function() return {call} end) }} \
             local text = '' for _, list in ipairs {{ got, t }} do \
             for _, value in ipairs(list) do text = text .. tostring(value):gsub('^.-:1: ', '') .. ' ' end end \
             text = text:gsub('table: 0x%x+', 'table') return text"
        );
        let expected: String = library.load(&source).eval().unwrap();
        let script = source.replace("return text", "lighty.content = { text } return 200");
        assert_eq!(sandbox.answer(&script), expected, "{call}");
    }
}
