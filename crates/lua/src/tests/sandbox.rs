//! Scripts that try to escape, to run forever, or to use up memory.

use std::time::{Duration, Instant};

use super::{Sandbox, looks};
use crate::{Limits, ScriptDecision};

#[test]
fn what_reaches_the_machine_is_not_there() {
    let sandbox = Sandbox::new();
    for name in [
        "io",
        "debug",
        "package",
        "require",
        "dofile",
        "loadfile",
        "loadstring",
        "os.execute",
        "os.getenv",
        "os.exit",
        "os.remove",
        "os.rename",
        "os.tmpname",
        "os.setlocale",
        "string.dump",
        "warn",
    ] {
        assert_eq!(sandbox.value(name), "nil", "{name}");
    }
}

#[test]
fn nothing_of_a_run_is_left_for_the_next() {
    let sandbox = Sandbox::new();
    for attempt in [
        "x = 1",
        "_G.x = 1",
        "_ENV.x = 1",
        "rawset(_G, 'x', 1)",
        "pcall(rawset, string, 'x', 1)",
        "pcall(function() string.x = 1 end)",
        "pcall(function() lighty.x = 1 end)",
        "pcall(function() lighty.r.x = 1 end)",
        "pcall(function() lighty.c.x = 1 end)",
        "pcall(rawset, lighty, 'x', 1)",
        "pcall(function() getmetatable('').__index.x = 1 end)",
        "pcall(function() getmetatable(_G).__index.x = 1 end)",
        "pcall(function() getmetatable(string).__index.x = 1 end)",
        "pcall(setmetatable, string, { __index = { x = 1 } })",
        "pcall(setmetatable, _G, { __index = { x = 1 } })",
        "pcall(table.insert, table, 1)",
        "pcall(table.move, { 1 }, 1, 1, 1, math)",
        "load('x = 1')()",
        "load('_G.x = 1')()",
        "for _, t in pairs { string, table, math, lighty } do pcall(function() t.x = 1 end) end",
        "local f, t = pairs(string) if t then t.x = 1 end",
        "package = nil sendoff.x = sendoff",
    ] {
        let (_, outcome) = sandbox.run(attempt);
        drop(outcome);
        let seen = sandbox.value(
            "tostring(x) .. tostring(string.x) .. tostring(('').x) .. tostring(lighty.x) .. tostring(lighty.r.x) .. tostring(table[1])",
        );
        assert_eq!(seen, "nilnilnilnilnilnil", "{attempt}");
        assert_eq!(sandbox.value("math[1]"), "nil", "{attempt}");
    }
    // The names of functions do not change either.
    let (_, outcome) =
        sandbox.run("pcall(rawset, lighty.c, 'time', 1) string = nil tostring = nil return 200");
    assert_eq!(outcome, ScriptDecision::Answer(200));
    assert_eq!(sandbox.value("type(lighty.c.time) .. type(string)"), "functiontable");
}

#[test]
fn finalizers_cannot_wait_for_another_request() {
    let sandbox = Sandbox::new();
    let why = sandbox.failure("setmetatable({}, { __gc = function() end })");
    assert_eq!(why, "/scripts/test.lua:1: __gc is not available to scripts in the server");
}

#[test]
fn a_loaded_text_is_a_chunk() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.value("load('return 5', 'n', 't', 7)()"), "5");
    assert_eq!(sandbox.value("load('y = 5 return _G == _ENV, y')()"), "true");
    for text in ["return 5 end, function() return 6", "return 5 end or function()", "end"] {
        let refused = format!("select(2, load('{text}', '=n'))");
        assert!(sandbox.value(&refused).starts_with("n:1: "), "{text}");
    }
    assert_eq!(sandbox.value("select(2, load('if', '=n'))"), "n:1: unexpected symbol near <eof>");
}

#[test]
fn bytecode_is_not_loaded() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.value("load('\\27Lua')"), "nil");
    assert!(sandbox.runtime.compile("x", b"\x1bLua\x54").is_err());
    assert_eq!(sandbox.value("load('return 1 + ...')(2)"), "3");
    assert_eq!(sandbox.value("load('return y', 'n', 't', { y = 5 })()"), "5");
}

#[test]
fn errors_have_a_file_and_a_line() {
    let sandbox = Sandbox::new();
    for (source, why) in [
        ("\n\nerror('no')", "/scripts/test.lua:3: no"),
        (
            "\nlocal x = nil + 1",
            "/scripts/test.lua:2: attempt to perform arithmetic on a nil value",
        ),
        (
            "\n\nlighty.r.req_item.nothing = 1",
            "/scripts/test.lua:3: r.req_item['nothing'] invalid or read-only",
        ),
        (
            "\nlighty.env['nothing'] = 'x'",
            "/scripts/test.lua:2: couldn't store 'nothing' in r.req_attr[]",
        ),
        ("lighty.stat('/file').nothing()", "/scripts/test.lua:1: stat[\"field\"] invalid: nothing"),
        ("\nstring.find('a', '[')", "/scripts/test.lua:2: malformed pattern (missing ']')"),
        ("error({})", "/scripts/test.lua"),
        ("string.rep(1)", "/scripts/test.lua:1: bad argument #2"),
    ] {
        let got = sandbox.failure(source);
        assert!(got.starts_with(why), "{source}: {got}");
        assert!(!got.contains('\n'), "{got}");
    }
    let why = sandbox.runtime.compile("/scripts/x.lua", b"\n\nif").unwrap_err();
    assert!(why.starts_with("/scripts/x.lua:3: "), "{why}");
}

/// A script unchanged, and with a comment that makes the runtime treat it as a waiting script and
/// run it in a coroutine.
fn both_ways(source: &str) -> [String; 2] {
    [source.to_owned(), format!("{source} --subrequest")]
}

/// Scripts that would run forever.
const ENDLESS: &[&str] = &[
    "while true do end",
    "repeat until false",
    "local function f() return f() end f()",
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(error) end",
    "local function f() while true do pcall(f) end end f()",
    "xpcall(function() while true do end end, function() while true do end end)",
    "while true do xpcall(error, function() while true do end end) end",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "while true do pcall(coroutine.wrap(function() while true do end end)) end",
    "while true do local c <close> = setmetatable({}, { __close = function() while true do end end }) error() end",
    "('a'):rep(100000):find('.-.-.-b')",
    "('a'):rep(100000):match('(.-)(.-)(.-)(.-)b')",
    "for _ in ('a'):rep(100000):gmatch('.-.-.-b') do end",
    "('a'):rep(100000):gsub('.-.-.-b', '')",
    "('a'):rep(30):find(('a?'):rep(30) .. ('a'):rep(30) .. 'b')",
    "('('):rep(100000):find('%b()%b()%b()')  ; while true do ('('):rep(100000):find('%b()') end",
    "while true do (''):rep(1 << 60) end",
    "while true do pcall(string.rep, 'x', 1 << 40) end",
    "table.concat({}, '', 1, 1 << 60)",
    "table.insert(setmetatable({}, { __len = function() return 1 << 60 end }), 1, 1)",
    "table.remove(setmetatable({}, { __len = function() return 1 << 60 end }), 1)",
    "table.move({}, 1, 1 << 60, 2)",
    "table.sort(setmetatable({}, { __len = function() return 1 << 30 end }), math.type)",
    "local t = {} for i = 1, 100000 do t[i] = i % 7 end table.sort(t, function() return true end)",
    "while true do pcall(table.unpack, {}, 1, 900000) end",
    "while true do pcall(table.unpack, {}, '1', 900000) end",
    "while true do lighty.c.md('sha512', ('x'):rep(1000000)) end",
    "while true do lighty.c.urlenc(('x'):rep(1000000)) end",
    "while true do sendoff.json.decode('[' .. ('1,'):rep(100000) .. '1]') end",
    "while true do load('return ' .. ('1 + '):rep(10000) .. '1') end",
    "while true do lighty.c.readdir('/') end",
    "while true do lighty.stat('/file') end",
    "while true do print('x') end",
    "while true do lighty.r.resp_header['X'] = 'y' end",
    "coroutine.wrap(function() local c <close> = setmetatable({}, { __close = function() while true do end end }) while true do end end)()",
    "local co = coroutine.create(function() local c <close> = setmetatable({}, { __close = function() while true do end end }) error() end) coroutine.resume(co) coroutine.close(co)",
    "error(setmetatable({}, { __tostring = function() while true do end end }))",
    "print(setmetatable({}, { __tostring = function() while true do end end }))",
    "goto there ::there:: goto there",
    "setmetatable(_ENV, nil) while true do end",
    "local t = setmetatable({}, { __index = function(t, k) return t[k + 1] end }) return t[1]",
    "local co = coroutine.create(function() while true do coroutine.yield() end end) while true do coroutine.resume(co) end",
    "local t = setmetatable({}, { __eq = function() while true do end end }) return t == setmetatable({}, getmetatable(t))",
    "for _ in pairs(setmetatable({}, { __pairs = function() while true do end end })) do end",
    "load('while true do end', '@/scripts/test.lua')()",
    "local resume, create = coroutine.resume, coroutine.create local function f(n) if n > 0 then resume(create(f), n - 1) resume(create(f), n - 1) end end resume(create(f), 60)",
    "local co = coroutine.create(function() local c <close> = setmetatable({}, { __close = function() while true do end end }) while true do end end) local d <close> = setmetatable({}, { __close = function() coroutine.close(co) end }) coroutine.resume(co)",
    "while true do utf8.len(('x'):rep(4000000)) end",
    "local s = ('x'):rep(100000) while true do pcall(string.upper, s) end",
];

#[test]
fn a_script_that_would_take_for_ever_ends() {
    let sandbox = Sandbox::new();
    for source in ENDLESS.iter().flat_map(|source| both_ways(source)) {
        let source = &*source;
        let began = Instant::now();
        let why = sandbox.failure(source);
        assert!(why.starts_with("/scripts/test.lua"), "{source}: {why}");
        assert!(began.elapsed() < Duration::from_secs(20), "{source}: {:?}", began.elapsed());
        assert_eq!(sandbox.value("1 + 1"), "2", "after {source}");
    }
}

/// The signal that starts the counting of instructions may come at any time: within a run, between
/// two runs, on each thread.
#[test]
fn runs_are_watched_after_others_and_on_each_thread() {
    let loops = || {
        let sandbox = Sandbox::new();
        for _ in 0..3 {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(30) {
                assert_eq!(sandbox.value("1 + 1"), "2");
            }
            for source in both_ways("while true do end") {
                assert!(sandbox.failure(&source).contains("the script takes more than"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(loops);
        }
    });
}

/// No signal starts the counting in a coroutine.
#[test]
fn coroutines_count_from_the_beginning() {
    let sandbox = Sandbox::new();
    for source in [
        "local co = coroutine.create(function() for i = 1, 3000000 do end end) coroutine.resume(co)",
        "coroutine.wrap(function() for i = 1, 3000000 do end end)()",
        "local f = coroutine.wrap(function() while true do coroutine.yield() for i = 1, 3000000 do end end end) f() f()",
        "coroutine.wrap(function() coroutine.wrap(function() for i = 1, 3000000 do end end)() end)()",
        "for i = 1, 3000000 do end --subrequest",
    ] {
        let why = sandbox.failure(source);
        assert_eq!(why, "/scripts/test.lua:1: the script takes more than 2000000 steps");
    }
}

/// The signal arrives even if the program that has started the server had it blocked.
#[test]
fn a_blocked_signal_comes_all_the_same() {
    let ran = std::process::Command::new("env")
        .arg("--block-signal=VTALRM")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "tests::sandbox::runs_are_watched_after_others_and_on_each_thread"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

/// Without a timer, because of a system limit, a script still cannot loop.
#[test]
fn without_a_timer_all_instructions_are_counted() {
    let ran = std::process::Command::new("prlimit")
        .arg("--sigpending=0")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "tests::sandbox::all_instructions_are_counted", "--ignored"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "holds where there are no timers: without_a_timer_all_instructions_are_counted runs it there"]
fn all_instructions_are_counted() {
    let sandbox = Sandbox::new();
    for source in both_ways("for i = 1, 2000100 do end") {
        for _ in 0..20 {
            assert!(sandbox.failure(&source).contains("the script takes more than 2000000 steps"));
            assert_eq!(sandbox.value("1 + 1"), "2");
        }
    }
}

/// Scripts that would use up memory.
const GREEDY: &[&str] = &[
    "local s = 'x' while true do s = s .. s end",
    "local t = {} while true do t[#t + 1] = {} end",
    "local t = {} for i = 1, 1 << 40 do t[i] = ('x'):rep(1000) .. i end",
    "return ('x'):rep(1 << 30)",
    "return ('x'):rep(1 << 62, 'yyyyyyyyyyyyyy')",
    "local function f(...) return f(1, ...) end f()",
    "local function f() return 1 + f() end f()",
    "local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
    "return ('x'):rep(1000000):gsub('x', ('y'):rep(1000))",
    "return ('x'):rep(1000000):gsub('.*', ('%0'):rep(1000))",
    "return string.format('%s', ('x'):rep(5000000)):rep(2)",
    "local t = {} for i = 1, 100000 do t[i] = ('x'):rep(1000) end return table.concat(t)",
    "while true do lighty.r.resp_body.add(('x'):rep(100000)) end",
    "while true do lighty.r.req_env['x' .. tostring({})] = 'y' end",
    "for i = 1, 100000 do lighty.r.req_header['x-' .. i] = 'y' end",
    "local t = {} for i = 1, 100000 do t[i] = 'x' end lighty.r.resp_body.set(t)",
    "return sendoff.json.decode('[' .. ('[],'):rep(1000000) .. '1]')",
    "local t = {} t[1] = t return sendoff.json.encode(t)",
    "return string.pack('s', ('x'):rep(4000000)) .. string.pack('c9000000', '')",
    "local s = ('x'):rep(4000000) lighty.header['X'] = s lighty.header['Y'] = s lighty.header['Z'] = s",
    "local s = ('x'):rep(1000000) for i = 1, 100 do print(s) end",
];

#[test]
fn a_script_that_would_take_all_memory_ends() {
    let sandbox = Sandbox::new();
    for source in GREEDY.iter().flat_map(|source| both_ways(source)) {
        let source = &*source;
        let began = Instant::now();
        let why = sandbox.failure(source);
        assert!(why.starts_with("/scripts/test.lua"), "{source}: {why}");
        assert!(began.elapsed() < Duration::from_secs(20), "{source}: {:?}", began.elapsed());
        assert_eq!(sandbox.value("('x'):rep(3000000):len()"), "3000000", "after {source}");
    }
}

#[test]
fn fields_and_messages_are_bounded() {
    let sandbox = Sandbox::new();
    let (exchange, outcome) =
        sandbox.run("for i = 1, 10000 do lighty.r.resp_header['X-' .. i] = 'y' print(i) end");
    assert_eq!(outcome, ScriptDecision::GoOn);
    assert!(exchange.fields.len() <= 128 && exchange.messages.len() <= 32);
}

#[test]
fn processor_time_is_limited() {
    let limits =
        Limits { time: Duration::from_millis(20), instructions: u64::MAX, ..Limits::default() };
    let sandbox = Sandbox::with(limits);
    for source in
        ["while true do end", "local s = ('x'):rep(1000000) while true do local t = s .. s end"]
    {
        let began = Instant::now();
        let why = sandbox.failure(source);
        assert_eq!(why, "/scripts/test.lua:1: the script takes more than 20 ms", "{source}");
        assert!(began.elapsed() < Duration::from_secs(5), "{source}: {:?}", began.elapsed());
    }
}

/// Calls of one library function that would take long.
const LONG_CALLS: &[&str] = &[
    "('x'):rep(4000000):gsub('x', 'y')",
    "('x'):rep(1000000):gsub('x', '%0')",
    "('x'):rep(1000000):gsub('', 'y')",
    "('x'):rep(1000000):gsub('x', {})",
    "('x'):rep(1000000):gsub('x', string.len)",
    "('x'):rep(1000000):gsub('x', tostring)",
    "for _ in ('x'):rep(1000000):gmatch('x') do end",
    "('x'):rep(1000000):find('y-z')",
    "('a'):rep(20000):find('.-.-.-b')",
    "('('):rep(100000):find('%b()')",
    "('x'):rep(100000):match('(x*)%1y')",
    "sendoff.json.decode('[' .. ('1,'):rep(100000) .. '1]')",
    "sendoff.json.encode(table.pack(('x'):rep(100000):byte(1, -1)))",
    "lighty.c.urldec_query(('a&'):rep(100000))",
    "lighty.c.cookie_tokens(('a;'):rep(100000))",
    "lighty.c.header_tokens(('a,'):rep(50000))",
    "local s, t = ('x'):rep(1000000), {} for i = 1, 1000 do t[i] = s end table.sort(t, lighty.c.secret_eq)",
    "local t = {} for i = 1, 2000 do t[i] = ('x'):rep(2000) .. i end table.sort(t) while true do table.sort(t) end",
    "local t = {} for i = 1, 100000 do t[i] = 'x' end for i = 1, 1000 do t = setmetatable({}, { __index = t }) end table.concat(t, '', 1, 100000)",
    "local t = {} for i = 1, 100000 do t[i] = 'x' end for i = 1, 1000 do t = setmetatable({}, { __index = t }) end table.unpack(t, 1, 100000)",
];

/// Each look advances this test's clock, so that no slow machine can make it pass.
#[test]
fn long_work_of_one_call_looks_at_the_clock() {
    let limits = Limits { instructions: u64::MAX, ..Limits::default() };
    for source in LONG_CALLS.iter().flat_map(|source| both_ways(source)) {
        let why = Sandbox::with_clock(limits, looks).failure(&source);
        assert!(why.ends_with(": the script takes more than 50 ms"), "{source}: {why}");
    }
}

/// Calls with a long string `s`; 100 instructions make many of them.
const HEAVY_CALLS: &[&str] = &[
    "s:upper()",
    "s:lower()",
    "s:reverse()",
    "s:byte(1, 100000)",
    "('%s'):format(s)",
    "('%q'):format(s)",
    "string.pack('z', s)",
    "string.unpack('c1000000', s)",
    "utf8.len(s)",
    "utf8.offset(s, 900000)",
    "utf8.codepoint(s, 1, 100000)",
    "lighty.c.xmlenc(s)",
    "lighty.c.md('sha512', s)",
    "lighty.c.secret_eq(s, s)",
    "s:rep(2)",
    "s:find('y', 1, true)",
];

#[test]
fn heavy_calls_in_a_coroutine_are_checked_one_by_one() {
    let limits = Limits { instructions: u64::MAX, ..Limits::default() };
    for call in HEAVY_CALLS {
        let sandbox = Sandbox::with_clock(limits, looks);
        let source = format!(
            "local s = ('x'):rep(1000000)
            coroutine.wrap(function() while true do sendoff.shared.incr('calls') local _ = {call} end end)()"
        );
        let why = sandbox.failure(&source);
        assert!(why.ends_with(": the script takes more than 50 ms"), "{call}: {why}");
        let calls: u32 = sandbox.value("sendoff.shared.get('calls')").parse().unwrap();
        assert!(calls <= 60, "{call}: {calls} calls");
    }
}

#[test]
fn what_cannot_be_interrupted_is_bounded() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.value("load('repeat ' .. ('break '):rep(20000) .. 'until true')"), "nil");
    assert!(sandbox.failure("os.date(('%c'):rep(100000))").contains("format too long"));
    sandbox.failure(
        "local most = 0
        local function f(n)
            if n > most then most = n sendoff.shared.set('depth', n) end
            while true do pcall(f, n + 1) end
        end
        coroutine.wrap(f)(1)",
    );
    let depth: u32 = sandbox.value("sendoff.shared.get('depth')").parse().unwrap();
    assert!((100..200).contains(&depth), "{depth}");
    assert_eq!(sandbox.value("select('#', table.unpack({}, 1, 5))"), "5");
    assert_eq!(sandbox.value("select('#', table.unpack({ 1, 2, 3 }))"), "3");
}

/// Places from which a script can throw.
const CALLBACKS: &[&str] = &[
    "('a'):gsub('a', function() error('thrown') end)",
    "('a'):gsub('a', setmetatable({}, { __index = function() error('thrown') end }))",
    "table.sort({ 3, 1, 2 }, function() error('thrown') end)",
    "table.concat(setmetatable({}, { __len = function() error('thrown') end }))",
    "tostring(setmetatable({}, { __tostring = function() error('thrown') end }))",
    "print(setmetatable({}, { __tostring = function() error('thrown') end }))",
    "for _ in pairs(setmetatable({}, { __pairs = function() error('thrown') end })) do end",
    "local x <close> = setmetatable({}, { __close = function() error('thrown') end })",
    "coroutine.wrap(function() error('thrown') end)()",
    "return setmetatable({}, { __index = function() error('thrown') end }).x",
    "lighty.r.resp_body.set(setmetatable({}, { __index = function() error('thrown') end })) error('thrown')",
    "xpcall(error, function() error('thrown') end) error('thrown')",
    "load('error(\"thrown\")')()",
];

#[test]
fn an_error_may_come_from_anywhere() {
    let sandbox = Sandbox::new();
    for source in CALLBACKS.iter().flat_map(|source| both_ways(source)) {
        let source = &*source;
        assert!(sandbox.failure(source).contains("thrown"), "{source}");
        assert_eq!(sandbox.value("1 + 1"), "2", "after {source}");
    }
}

#[test]
fn functions_call_one_another_only_so_deep() {
    let thread = std::thread::Builder::new().stack_size(crate::STACK);
    thread.spawn(call_deeply).unwrap().join().unwrap();
}

fn call_deeply() {
    let sandbox = Sandbox::new();
    for source in [
        "local function f() return (('a'):gsub('a', f)) end f()",
        "local function f() return pcall(f) end f() error('end')",
        "local t = {} for i = 1, 300 do t = setmetatable({}, { __index = t }) end local x = t.x error('end')",
        "local function f() table.sort({ 1, 2 }, f) end f()",
        "local function f() return coroutine.wrap(f)() end f()",
        "local function f() return load('return ...')(tostring(setmetatable({}, { __tostring = f }))) end f()",
    ] {
        assert!(sandbox.failure(source).starts_with("/scripts/test.lua"), "{source}");
    }
}
