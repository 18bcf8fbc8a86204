//! Scripts that wait for subrequests.

use std::time::Duration;

use bytes::Bytes;

use super::{Sandbox, text};
use crate::{Exchange, Phase, Reply, ScriptDecision, Step, Subrequest, Waiting};

fn reply(body: &'static str) -> Result<Reply, String> {
    let field = |name: &'static str, value: &'static str| (name.into(), value.into());
    let fields =
        vec![field("X-Some", "1"), field("x-some", "2"), field("Content-Type", "text/plain")];
    Ok(Reply { status: 200, fields, body: body.into() })
}

fn waits(step: Step) -> Box<Waiting> {
    match step {
        Step::Waits(waiting) => waiting,
        Step::Done(exchange, outcome) => panic!("{outcome:?} {exchange:?}"),
    }
}

fn done(step: Step) -> (Box<Exchange>, ScriptDecision) {
    match step {
        Step::Done(exchange, outcome) => (exchange, outcome),
        Step::Waits(mut waiting) => panic!("it waits for {:?}", waiting.wish()),
    }
}

impl Sandbox {
    fn start(&self, source: &str) -> Step {
        self.runtime.start(&self.compile(source), self.exchange(Phase::Route))
    }
}

#[test]
fn a_script_gets_the_answer_that_it_has_waited_for() {
    let sandbox = Sandbox::new();
    let mut waiting = waits(sandbox.start(
        "x = 5 lighty.header['X-Own'] = 'before'
        local a = sendoff.subrequest { path = '/a?b', method = 'POST', headers = { ['X-A'] = 'b', Cookie = false }, body = 'c', timeout = 2 }
        lighty.content = { a.status, a.headers['x-some'], a.headers['content-type'], a.body, x }
        return 200",
    ));
    let fields = |wish: &Subrequest| {
        let mut fields = wish.fields.clone();
        fields.sort();
        fields
    };
    let wish = waiting.wish().unwrap();
    assert_eq!(
        (&*wish.target, &*wish.method, &*wish.body),
        (&b"/a?b"[..], &b"POST"[..], &b"c"[..])
    );
    let field = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    assert_eq!(fields(&wish), [field("Cookie", ""), field("X-A", "b")]);
    assert_eq!(wish.timeout, Duration::from_secs(2));
    // Another script runs meanwhile, and sees no data of the first.
    assert_eq!(sandbox.value("tostring(x) .. tostring(lighty.header['X-Own'])"), "nilnil");
    let (exchange, outcome) = done(sandbox.runtime.go_on(*waiting, reply("body")));
    assert_eq!(outcome, ScriptDecision::Answer(200));
    assert_eq!(text(&exchange), "2001, 2text/plainbody5");
    assert_eq!(exchange.fields, [field("X-Own", "before")]);
}

#[test]
fn scripts_wait_beside_one_another() {
    let sandbox = Sandbox::new();
    let source = "n = (n or 0) + 1
        local function f() return sendoff.subrequest('/inner').body end
        local inner = coroutine.wrap(function() coroutine.yield(1) return f() end)
        inner()
        local ok, text = pcall(inner)
        lighty.content = { text, n, coroutine.isyieldable() and 'y' or 'n' } return 200";
    let first = waits(sandbox.start(source));
    let second = waits(sandbox.start(source));
    let (exchange, _) = done(sandbox.runtime.go_on(*second, reply("second")));
    assert_eq!(text(&exchange), "second1y");
    let (exchange, _) = done(sandbox.runtime.go_on(*first, reply("first")));
    assert_eq!(text(&exchange), "first1y");
    // Dropping a waiting script leaves no data behind.
    drop(waits(sandbox.start(source)));
    assert_eq!(sandbox.value("tostring(n)"), "nil");
}

#[test]
fn what_cannot_be_asked_for_gives_a_reason() {
    let sandbox = Sandbox::new();
    for (wish, why) in [
        ("'x'", "the path does not begin with a slash"),
        ("{}", "the path does not begin with a slash"),
    ] {
        let source = format!(
            "local a, why = sendoff.subrequest({wish}) lighty.content = {{ tostring(a), why }} return 200"
        );
        let mut waiting = waits(sandbox.start(&source));
        let refused = waiting.wish().unwrap_err();
        let (exchange, _) = done(sandbox.runtime.go_on(*waiting, Err(refused)));
        assert_eq!(text(&exchange), format!("nil{why}"));
    }
    assert!(sandbox.failure("sendoff.subrequest(1)").contains("string or table expected"));
    let why = sandbox.failure("sendoff['sub' .. 'request']('/')");
    assert!(why.contains("must contain the word"), "{why}");
    // Subrequests are refused where scripts cannot wait.
    let (exchange, _) =
        sandbox.run("local a, why = sendoff.subrequest('/') lighty.content = { why } return 200");
    assert_eq!(text(&exchange), "no subrequest can be made here");
    // They are also refused within a library function that calls back.
    let why = sandbox.failure("('a'):gsub('a', function() sendoff.subrequest('/') end)");
    assert!(why.contains("yield"), "{why}");
}

#[test]
fn a_run_makes_so_many_subrequests_and_steps_in_all() {
    let sandbox = Sandbox::new();
    let mut step = sandbox.start("for i = 1, 100 do local a, why = sendoff.subrequest('/') if not a then lighty.content = { i, why } return 200 end end");
    let (exchange, _) = loop {
        match step {
            Step::Done(exchange, outcome) => break (exchange, outcome),
            Step::Waits(mut waiting) => {
                let answer = waiting.wish().and_then(|_| reply("x"));
                step = sandbox.runtime.go_on(*waiting, answer);
            }
        }
    };
    assert_eq!(text(&exchange), "33more than 32 subrequests in one run");
    let mut step =
        sandbox.start("while true do sendoff.subrequest('/') for i = 1, 100000 do end end");
    let outcome = loop {
        match step {
            Step::Done(_, outcome) => break outcome,
            Step::Waits(waiting) => step = sandbox.runtime.go_on(*waiting, reply("x")),
        }
    };
    let ScriptDecision::Failed(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("the script takes more than 2000000 steps"), "{why}");
}

#[test]
fn only_so_many_scripts_wait_and_each_has_its_memory() {
    let sandbox = Sandbox::new();
    let source =
        "local s = ('x'):rep(3000000) sendoff.subrequest('/') lighty.content = { #s } return 200";
    let mut all: Vec<_> = (0..64).map(|_| waits(sandbox.start(source))).collect();
    assert!(all.iter_mut().all(|waiting| waiting.wish().is_ok()));
    let mut surplus = waits(sandbox.start(source));
    assert_eq!(surplus.wish().unwrap_err(), "too many scripts wait");
    drop(surplus);
    for waiting in all {
        let (exchange, outcome) = done(sandbox.runtime.go_on(*waiting, reply("")));
        assert_eq!((text(&exchange), outcome), ("3000000".to_owned(), ScriptDecision::Answer(200)));
    }
    // No script is waiting any more, so the memory limit is one script's again.
    let why = sandbox.failure("local t = {} for i = 1, 100 do t[i] = ('x'):rep(1000000) .. i end");
    assert!(why.contains("of memory"), "{why}");
}

#[test]
fn the_coroutine_of_a_run_is_not_for_scripts() {
    let sandbox = Sandbox::new();
    for source in [
        "coroutine.yield(1) --subrequest",
        "coroutine.yield() --subrequest",
        "coroutine.wrap(coroutine.yield)() coroutine.yield() --subrequest",
    ] {
        let why = sandbox.failure(source);
        assert!(why.contains("attempt to yield from outside a coroutine"), "{source}: {why}");
    }
    for source in [
        "local me = coroutine.running() coroutine.resume(me) error('end') --subrequest",
        "local me = coroutine.running() coroutine.wrap(function() coroutine.resume(me) end)() error('end') --subrequest",
        "local me = coroutine.running() coroutine.wrap(function() coroutine.close(me) end)() --subrequest",
        "local me = coroutine.running() coroutine.close(me) --subrequest",
    ] {
        let why = sandbox.failure(source);
        assert!(why.starts_with("/scripts/test.lua"), "{source}: {why}");
        assert_eq!(sandbox.value("1 + 1 --[[subrequest]]"), "2", "after {source}");
    }
}
