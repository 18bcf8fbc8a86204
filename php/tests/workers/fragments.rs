//! Fragments: one worker makes what all workers of the pool send.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::TempDir;
use crate::common::front::{Front, Piece, joined};
use crate::common::link::Request;
use crate::common::master::{Master, Worker};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process};

/// Far longer than a worker waits for another one.
const LIMIT: Duration = Duration::from_secs(60);

/// `run()` counts and names runs. The first worker that calls `hold()` while the file `block` exists
/// creates the file `entered`, and waits until the test writes to the FIFO.
const PRELUDE: &str = "<?php
function run($key) { file_put_contents(__DIR__ . \"/runs-$key\", '.', FILE_APPEND);
    return \"<$key run \" . strlen(file_get_contents(__DIR__ . \"/runs-$key\")) . '>'; }
function hold() { if (@unlink(__DIR__ . '/block')) { touch(__DIR__ . '/entered');
    file_get_contents(__DIR__ . '/fifo'); } }
$ask = fn($name) => $_GET[$name] ?? null;
";

/// A pool, and a folder of scripts.
struct Pool {
    dir: TempDir,
    master: Master,
    workers: Vec<Worker>,
}

impl Pool {
    fn new(workers: usize, more: &[&str]) -> Self {
        let count = workers.to_string();
        let mut options = vec!["--workers", &count];
        options.extend(more.iter().flat_map(|setting| ["--php-ini", setting]));
        let master = Master::start(&options);
        let workers = (0..workers).map(|_| master.worker()).collect();
        let dir = TempDir::new();
        mknodat(CWD, dir.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        Self { dir, master, workers }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a script and returns a request for it.
    fn script(&self, code: &str) -> Request {
        let sum = code.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
        let name = format!("script-{sum:x}.php");
        fs::write(self.path(&name), format!("{PRELUDE}{code}")).unwrap();
        Request::new(&self.dir.file(&name))
    }

    fn ask(&mut self, worker: usize, code: &str) -> String {
        let request = self.script(code);
        self.workers[worker].link().ask(&request).body()
    }

    fn send(&mut self, worker: usize, code: &str) {
        let request = self.script(code);
        self.workers[worker].link().send(&request);
    }

    fn rest(&mut self, worker: usize) -> String {
        self.workers[worker].link().response().unwrap().body()
    }

    /// Lets the next worker that makes a fragment wait in the middle.
    fn block(&self) {
        fs::write(self.path("block"), "").unwrap();
    }

    fn wait_until_entered(&self) {
        let end = Instant::now() + LIMIT;
        while !self.path("entered").exists() {
            assert!(Instant::now() < end, "no worker makes the fragment");
            std::thread::yield_now();
        }
    }

    fn let_go(&self) {
        fs::write(self.path("fifo"), "go").unwrap();
    }
}

const MENU: &str =
    "sendoff_fragment('menu', 60, function () { hold(); echo run('menu'); }, ['posts']);";

/// A small fragment in the place of fragments that cannot be kept.
const SMALL_K: &str = "sendoff_fragment('k', 60, function () { echo run('k'); });";

#[test]
fn one_worker_makes_a_fragment_and_the_others_send_it() {
    let mut pool = Pool::new(3, &[]);
    for worker in [0, 1, 2, 1, 0] {
        assert_eq!(pool.ask(worker, MENU), "<menu run 1>");
    }
    let other_root = pool.script(MENU).with("DOCUMENT_ROOT", "/elsewhere");
    let body = pool.workers[0].link().ask(&other_root).body();
    assert_eq!(body, "<menu run 2>", "another site of the pool");
}

#[test]
fn others_wait_for_the_worker_that_makes_it() {
    let mut pool = Pool::new(2, &[]);
    pool.block();
    pool.send(0, MENU);
    pool.wait_until_entered();
    pool.send(1, MENU);
    pool.let_go();
    assert_eq!([pool.rest(0), pool.rest(1)], ["<menu run 1>", "<menu run 1>"]);
}

#[test]
fn a_worker_that_is_killed_while_it_makes_one_holds_up_no_other() {
    let mut pool = Pool::new(2, &[]);
    pool.block();
    pool.send(0, MENU);
    pool.wait_until_entered();
    let begun = Instant::now();
    pool.send(1, MENU);
    kill_process(pool.workers[0].pid, Signal::KILL).unwrap();
    assert_eq!(pool.rest(1), "<menu run 1>");
    assert!(begun.elapsed() < Duration::from_secs(4), "it has waited for a dead worker");
    // Its successor finds the fragment.
    pool.workers[0] = pool.master.worker();
    assert_eq!(pool.ask(0, MENU), "<menu run 1>");
}

#[test]
fn the_old_one_is_sent_while_a_new_one_is_made() {
    let mut pool = Pool::new(2, &[]);
    let short = MENU.replace("60", "1");
    assert_eq!(pool.ask(0, &short), "<menu run 1>");
    let end = Instant::now() + LIMIT;
    while pool.ask(1, "var_export(sendoff_fragment_fetch('menu'));") != "NULL" {
        assert!(Instant::now() < end, "its time is never over");
    }
    pool.block();
    pool.send(0, &short);
    pool.wait_until_entered();
    let begun = Instant::now();
    assert_eq!(pool.ask(1, &short), "<menu run 1>");
    assert!(begun.elapsed() < Duration::from_secs(4), "it has waited");
    pool.let_go();
    assert_eq!(pool.rest(0), "<menu run 2>");
    assert_eq!(pool.ask(1, &short), "<menu run 2>");
}

#[test]
fn a_purge_by_a_tag_or_a_key_is_seen_by_all_workers() {
    let mut pool = Pool::new(2, &[]);
    let purges = [
        "sendoff_fragment_purge(['posts']);",
        "sendoff_fragment_purge(['x', 'posts']);",
        "sendoff_fragment_purge();",
        "sendoff_fragment_delete('menu');",
    ];
    for (n, purge) in purges.iter().enumerate() {
        let kept = format!("<menu run {}>", n + 1);
        assert_eq!([0, 1].map(|worker| pool.ask(worker, MENU)), [&*kept, &kept]);
        pool.ask(0, "sendoff_fragment_purge(['other']); sendoff_fragment_delete('other');");
        assert_eq!(pool.ask(1, MENU), kept);
        assert_eq!(pool.ask(0, purge), "");
    }
    assert_eq!([1, 0].map(|worker| pool.ask(worker, MENU)), ["<menu run 5>"; 2]);
}

#[test]
fn what_is_purged_while_it_is_made_is_not_kept() {
    for make in [
        MENU,
        "echo sendoff_fragment_string('menu', 60, function () { hold(); return run('menu'); }, ['posts']);",
        "echo sendoff_fragment_string('menu', null, function () { hold(); $made = run('menu');
            sendoff_fragment_store('menu', 60, $made, ['posts']); return $made; });",
    ] {
        let mut pool = Pool::new(2, &[]);
        pool.block();
        pool.send(0, make);
        pool.wait_until_entered();
        pool.ask(1, "sendoff_fragment_purge(['posts']);");
        pool.let_go();
        assert_eq!(pool.rest(0), "<menu run 1>");
        assert_eq!([1, 0].map(|worker| pool.ask(worker, make)), ["<menu run 2>"; 2], "{make}");
    }
}

/// Calls of `F`, which are calls of `sendoff_fragment()`, or of the function that makes the fragment.
/// The pages are the same in both cases, and no fragment is kept.
const FAILING: [&str; 11] = [
    "F(function () { echo 'a', run('k'); ob_flush(); echo 'b'; });",
    "try { F(function () { echo 'a', run('k'); throw new Exception('b'); }); } catch (Exception $e) {
        echo $e->getMessage(), ob_get_level(); }",
    "F(function () { echo 'a', run('k'); exit('b'); }); echo 'not reached';",
    "F(function () { ob_start(); echo 'a', run('k'); }); echo 'b'; ob_end_flush(); echo 'c';",
    "ob_start(); echo 'x'; F(function () { echo 'a', run('k'); ob_end_flush(); ob_start(); }); echo 'b';",
    "register_shutdown_function(function () { echo 'end'; });
        F(function () { echo 'a', run('k'); trigger_error('b', E_USER_ERROR); });",
    "$fiber = new Fiber(function () { F(function () { echo run('k'); Fiber::suspend(); echo 'b'; }); });
        $fiber->start(); echo 'of this user'; $fiber->resume(); echo 'end', ob_get_level();",
    "$fiber = new Fiber(function () { F(function () { echo run('k'); Fiber::suspend(); echo 'b'; }); });
        $fiber->start(); ob_start(); echo 'of this user'; $fiber->resume(); echo 'end'; ob_end_flush();",
    "$fiber = new Fiber(function () { F(function () { echo run('k'); Fiber::suspend(); }); });
        $fiber->start(); echo 'of this user'; unset($fiber); echo 'end', ob_get_level();",
    "$others = new Fiber(function () { while (true) { echo 'of others'; Fiber::suspend(); } });
        F(function () use ($others) { echo run('k'); $others->start(); echo 'b'; });",
    "$make = fn($name) => new Fiber(function () use ($name) {
            F(function () use ($name) { echo $name, run('k'); Fiber::suspend(); echo $name, 'end'; }); });
        $menu = $make('menu'); $user = $make('user');
        $menu->start(); $user->start(); $menu->resume(); $user->resume(); echo ob_get_level();",
];

#[test]
fn a_fragment_that_fails_is_not_kept() {
    for setting in ["output_buffering=0", "output_buffering=4096"] {
        let mut pool = Pool::new(1, &[setting, "display_errors=0"]);
        for (n, code) in FAILING.iter().enumerate() {
            let kept =
                format!("function F($make) {{ sendoff_fragment('k{n}', 60, $make); }} {code}");
            let plain = format!("function F($make) {{ $make(); }} {code}");
            let expected = pool.ask(0, &plain);
            fs::remove_file(pool.path("runs-k")).unwrap();
            assert_eq!(pool.ask(0, &kept), expected, "{setting}: {code}");
            let runs = expected.matches("<k run").count();
            let other = (1..=runs).rev().fold(expected, |page, run| {
                page.replace(&format!("run {run}>"), &format!("run {}>", run + runs))
            });
            assert_eq!(pool.ask(0, &kept), other, "{setting}: {code}");
            fs::remove_file(pool.path("runs-k")).unwrap();
        }
    }
}

#[test]
fn fragments_may_be_empty_nested_and_buffered() {
    let long = format!("<k run 1>{}100000", "x".repeat(100_000));
    for (code, expected) in [
        (
            "F(function () { echo 'a', run('k'); }); F(function () { echo 'never'; });",
            "a<k run 1>a<k run 1>",
        ),
        (
            "ob_start(fn($all) => strtoupper($all)); F(function () { ob_start(); echo run('k'); ob_end_flush(); });",
            "<K RUN 1>",
        ),
        ("F(function () { F(function () { echo 'a', run('k'); }); echo 'b'; });", "a<k run 1>b"),
        ("echo 'x'; F(function () {}); F(function () { echo 'never'; });", "x"),
        ("F(function () { header('X-A: 1'); echo run('k'); });", "<k run 1>"),
        ("$f = __DIR__ . '/long'; file_put_contents($f, str_repeat('x', 100000)); F(function () use ($f) {
            echo run('k'); readfile($f); echo strlen(file_get_contents($f)); });", &long),
    ] {
        let mut pool = Pool::new(2, &[]);
        let code = format!("function F($make) {{ sendoff_fragment('k', 60, $make); }} {code}");
        assert_eq!([0, 1, 0].map(|worker| pool.ask(worker, &code)), [expected; 3], "{code}");
    }
}

#[test]
fn strings_are_kept_fetched_and_stored() {
    let mut pool = Pool::new(2, &[]);
    let string = "echo sendoff_fragment_string('s', 60, fn() => run('s'));";
    assert_eq!([0, 1].map(|worker| pool.ask(worker, string)), ["<s run 1>"; 2]);
    let fetch = "var_export([sendoff_fragment_fetch('s'), sendoff_fragment_fetch('none')]);";
    assert_eq!(pool.ask(1, fetch), "array (\n  0 => '<s run 1>',\n  1 => NULL,\n)");
    let store = "var_export(sendoff_fragment_store('s', 60, \"a\\0b\"));";
    assert_eq!(pool.ask(1, store), "true");
    assert_eq!(pool.ask(0, "echo bin2hex(sendoff_fragment_fetch('s'));"), "610062");
    for (bad, error) in [
        ("sendoff_fragment_string('t', 60, fn() => 7);", "TypeError"),
        ("sendoff_fragment_string('t', 60, fn() => throw new LogicException);", "LogicException"),
        ("sendoff_fragment('t', 60, 'no function');", "TypeError"),
        ("sendoff_fragment('t', 60, fn() => 7, range(1, 65));", "ValueError"),
        ("sendoff_fragment('t', 60, fn() => 7, [new stdClass]);", "Error"),
    ] {
        let code = format!("try {{ {bad} }} catch (Throwable $e) {{ echo get_class($e); }}");
        assert_eq!(pool.ask(0, &code), error, "{bad}");
    }
    assert_eq!(pool.ask(0, "var_export(sendoff_fragment_fetch('t'));"), "NULL");
}

#[test]
fn what_does_not_fit_is_made_each_time() {
    let large = "sendoff_fragment('large', 60, function () { echo run('large'), str_repeat('x', 2 << 20); });";
    let mut pool = Pool::new(1, &[]);
    for n in [1, 2] {
        assert!(pool.ask(0, large).starts_with(&format!("<large run {n}>xxx")));
    }
    for ttl in ["0", "-1"] {
        let code = MENU.replace("60", ttl);
        let runs = [0, 0].map(|worker| pool.ask(worker, &code));
        assert_ne!(runs[0], runs[1]);
    }
    let mut off = Pool::new(1, &["sendoff.fragments=0"]);
    assert_eq!([0, 0].map(|worker| off.ask(worker, MENU)), ["<menu run 1>", "<menu run 2>"]);
    // More than the memory has room for: the oldest are forgotten, the bytes are right.
    let mut small = Pool::new(1, &["sendoff.fragments=8M"]);
    let many = "$all = ''; foreach ([1, 2] as $_) for ($i = 0; $i < 6000; $i++)
        sendoff_fragment(\"many $i\", 60, function () use ($i) { echo str_repeat(\"$i,\", 700), \"\\n\"; });";
    let expected: String = (0..6000).map(|i| format!("{i},").repeat(700) + "\n").collect();
    assert!(small.ask(0, many) == [expected.as_str(), &expected].concat());
}

/// Waiting for a fragment that cannot be kept would only queue the pages.
#[test]
fn a_fragment_that_could_not_be_kept_is_not_waited_for() {
    for make in [
        "echo run('k'); ob_flush(); hold();",
        "echo run('k'); hold(); echo str_repeat('x', 2 << 20);",
        "echo run('k'); hold(); ob_start();",
    ] {
        let mut pool = Pool::new(2, &[]);
        let code = format!("sendoff_fragment('k', 60, function () {{ {make} }}, ['t']);");
        assert!(pool.ask(0, &code).starts_with("<k run 1>"));
        pool.block();
        pool.send(0, &code);
        pool.wait_until_entered();
        let begun = Instant::now();
        assert!(pool.ask(1, &code).starts_with("<k run 3>"), "{make}");
        assert!(begun.elapsed() < Duration::from_secs(4), "it has waited: {make}");
        pool.let_go();
        assert!(pool.rest(0).starts_with("<k run 2>"), "{make}");
        assert_eq!(pool.ask(1, "var_export(sendoff_fragment_fetch('k'));"), "NULL");
        // A fragment that can be kept is kept at once.
        assert_eq!([0, 1].map(|worker| pool.ask(worker, SMALL_K)), ["<k run 4>"; 2]);
    }
}

#[test]
fn pools_do_not_share_fragments() {
    let (mut one, mut other) = (Pool::new(1, &[]), Pool::new(1, &[]));
    let code = "sendoff_fragment('k', 60, function () { echo $_SERVER['POOL']; });";
    let answers = [(&mut one, "one"), (&mut other, "other")].map(|(pool, name)| {
        let request = pool.script(code).with("POOL", name).with("DOCUMENT_ROOT", "/same");
        [(); 2].map(|()| pool.workers[0].link().ask(&request).body())
    });
    assert_eq!(answers, [["one"; 2], ["other"; 2]]);
}

#[test]
fn worker_scripts_share_fragments_too() {
    let dir = TempDir::new();
    let code = "while (sendoff_handle_request(function () {
        sendoff_fragment('k', 60, function () { echo 'made by ', getmypid(); }, ['t']);
        if (isset($_GET['purge'])) sendoff_fragment_purge(['t']);
    }));";
    fs::write(dir.path().join("worker.php"), format!("{PRELUDE}{code}")).unwrap();
    let script = dir.file("worker.php");
    let master = Master::start(&["--worker-script", &script, "--workers", "2"]);
    let mut workers = [master.worker(), master.worker()];
    let mut ask = |worker: usize, query: &str| {
        workers[worker].link().ask(&Request::new(&script).query(query)).body()
    };
    let first = ask(0, "");
    assert!(first.starts_with("made by "), "{first}");
    assert_eq!([ask(1, ""), ask(0, ""), ask(1, "purge")], [(); 3].map(|()| first.clone()));
    let second = ask(1, "");
    assert_ne!(second, first);
    assert_eq!([ask(0, ""), ask(1, "")], [second.clone(), second]);
}

/// Its making belongs to the request in which it began.
#[test]
fn a_fiber_of_a_worker_script_may_go_on_in_a_later_request() {
    let dir = TempDir::new();
    let code = "$fiber = null;
    while (sendoff_handle_request(function () use (&$fiber) {
        switch ($_SERVER['QUERY_STRING']) {
        case 'begin':
            $fiber = new Fiber(function () {
                sendoff_fragment('k', 60, function () { echo run('k'); Fiber::suspend(); echo 'end'; });
            });
            return $fiber->start();
        case 'resume':
            sendoff_fragment_purge(['t']);
            $fiber->resume();
        }
        var_export(sendoff_fragment_store('stored', 60, 'a'));
        sendoff_fragment('k', 60, fn() => print(run('k')));
    }));";
    fs::write(dir.path().join("worker.php"), format!("{PRELUDE}{code}")).unwrap();
    let script = dir.file("worker.php");
    let master = Master::start(&["--worker-script", &script, "--workers", "1"]);
    let mut worker = master.worker();
    let mut ask = |query| worker.link().ask(&Request::new(&script).query(query)).body();
    assert_eq!(ask("begin"), "<k run 1>");
    assert_eq!(ask("resume"), "endtrue<k run 2>");
    assert_eq!(ask("use"), "true<k run 2>");
}

#[test]
fn a_whole_fragment_leaves_as_a_segment() {
    for setting in ["output_buffering=0", "output_buffering=4096"] {
        let pool = Pool::new(1, &[setting]);
        let request = pool.script(
            "echo 'before'; sendoff_fragment('k', 60, function () { run('k'); echo str_repeat('long ', 8000); });
             echo 'after'; ob_start(); sendoff_fragment('k', 60, fn() => 0); echo strlen(ob_get_clean());",
        );
        let Pool { mut workers, dir: _dir, master: _master } = pool;
        let mut front = Front::new(workers.remove(0));
        let long = "long ".repeat(8000);
        let bytes = |text: &str| Piece::Bytes(text.as_bytes().to_vec());
        for n in 0..4 {
            let pieces = joined(front.ask(&request));
            let all: Vec<u8> = pieces.iter().cloned().flat_map(Piece::into_bytes).collect();
            let text = String::from_utf8(all).unwrap();
            assert_eq!(text, format!("before{long}after40000"));
            if n >= 2 {
                let file = Piece::File(long.clone().into_bytes());
                assert_eq!(pieces, [bytes("before"), file, bytes("after40000")], "{setting}");
            }
        }
    }
}
