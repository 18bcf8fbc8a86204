//! Worker mode: a script that boots once and takes requests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::cases::{cases, get};
use crate::common::fpm::Fpm;
use crate::common::front::Front;
use crate::common::link::{Request, Response};
use crate::common::master::{Master, Worker};
use crate::common::site::content;
use crate::common::{TempDir, script};
use rustix::process::Signal;
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::record::Kind;

fn ask(query: &str) -> Request {
    Request::new(&script("boot/worker.php")).query(query)
}

fn start(options: &[&str]) -> Master {
    start_script("worker.php", options)
}

fn start_script(name: &str, options: &[&str]) -> Master {
    Master::start(&[&["--worker-script", &script(&format!("boot/{name}"))], options].concat())
}

/// The answer of the worker, or of its successor if it has ended before it took the request.
fn answer(master: &Master, worker: &mut Worker, request: &Request) -> Response {
    loop {
        worker.link().send(request);
        if let Some(response) = worker.link().response() {
            return response;
        }
        *worker = master.worker();
    }
}

fn body(worker: &mut Worker, query: &str) -> String {
    worker.link().ask(&ask(query)).body()
}

#[test]
fn a_worker_script_boots_once() {
    let master = start(&[]);
    let mut worker = master.worker();
    for n in 1..=3 {
        assert_eq!(body(&mut worker, "do=count"), format!("request {n}\n"));
    }
}

/// The same requests, run by the same script in both modes: in order, and again in another order.
#[test]
fn answers_are_those_of_ordinary_mode() {
    let settings =
        ["--php-ini", "date.timezone=UTC", "--php-ini", "opcache.file_update_protection=0"];
    let ordinary = Master::start(&settings);
    let mut expected = ordinary.worker();
    let master = start_script("run.php", &settings);
    let mut worker = master.worker();
    let run = script("boot/run.php");
    let mut cases: Vec<_> = cases()
        .into_iter()
        // The SAPI evaluates PATH_INFO and SCRIPT_FILENAME before the script runs.
        .filter(|(name, _)| {
            !name.contains("path") && !name.contains("folder") && !name.contains("slash")
        })
        .filter_map(|(name, request)| {
            let path = request.params.iter().find(|(name, _)| name == "SCRIPT_FILENAME")?.1.clone();
            let runs = path.ends_with(".php") && fs::exists(&path).unwrap();
            let request = request.with("SCRIPT_FILENAME", &run).with("RUN", &path);
            runs.then(|| (name, request.with("FRANKENPHP_WORKER", "1")))
        })
        .collect();
    // These scripts define functions, list functions, or print a trace with the callers.
    let differ = ["errors", "environment", "functions", "no method"];
    cases.retain(|(name, _)| !differ.iter().any(|part| name.starts_with(part)));
    assert!(cases.len() > 50, "{}", cases.len());
    let backwards: Vec<_> = cases.iter().rev().cloned().collect();
    for (name, request) in [&cases[..], &backwards, &cases].concat() {
        let ours = answer(&master, &mut worker, &request);
        let theirs = expected.link().ask(&request);
        assert_eq!(ours.head(), theirs.head(), "{name}");
        assert_eq!(ours.log(), theirs.log(), "{name}");
        assert_eq!(ours.body(), theirs.body(), "{name}");
    }
}

#[test]
fn what_a_request_changes_is_as_before_in_the_next() {
    let dir = TempDir::new();
    let save = format!("session.save_path={}", dir.path().display());
    let master = start(&["--php-ini", &save]);
    let mut worker = master.worker();
    let pid = body(&mut worker, "do=pid");
    let before = body(&mut worker, "do=show");
    assert!(before.contains("\"env\":\"boot\"") && before.contains("Europe\\/Berlin"), "{before}");
    assert!(before.contains("\"getenv\":[\"boot\",false]"), "{before}");
    for _ in 0..3 {
        assert_eq!(body(&mut worker, "do=charset"), "ISO-8859-1");
        assert_eq!(body(&mut worker, "do=show"), before);
        let changing = worker.link().ask(&ask("do=change"));
        assert_eq!(changing.body(), "CHANGED[SHUTDOWN FUNCTION]", "{}", changing.log());
        for field in ["Status: 418", "X-Changed: yes", "X-Callback: yes", "Set-Cookie: PHPSESSID="]
        {
            assert!(changing.head().contains(field), "{}", changing.head());
        }
        let after = worker.link().ask(&ask("do=show"));
        assert_eq!(after.body(), before);
        assert!(!after.head().contains("X-C"), "{}", after.head());
    }
    assert_eq!(body(&mut worker, "do=pid"), pid);
}

/// Some of it stays in stock PHP, too: there the comparison is with a process that is new.
#[test]
fn the_state_of_extensions_ends_with_the_request() {
    let (leave, show) = (script("extensions/leave.php"), script("extensions/show.php"));
    let expected = Fpm::start(&[]).ask(&Request::new(&show)).body();
    let master = start_script("run.php", &[]);
    let mut worker = master.worker();
    let mut run = |path: &str| {
        let request = Request::new(&script("boot/run.php")).with("RUN", path);
        worker.link().ask(&request).body()
    };
    for _ in 0..3 {
        assert_eq!(run(&leave), "[true,true,true,true,true,true]\n");
        assert_eq!(run(&show), expected);
    }
}

#[test]
fn what_the_boot_has_set_in_extensions_holds_for_every_request() {
    let master = start_script("extensions.php", &[]);
    let mut worker = master.worker();
    let mut run = |what: &str| {
        let request = Request::new(&script("boot/extensions.php")).query(&format!("do={what}"));
        worker.link().ask(&request).body()
    };
    let before = run("show");
    for part in [
        "\"libxml\":[[true,0,false],{\"http\":{\"user_agent\":\"boot\"}}]",
        "\"mb_ereg\":[\"mr\",",
        "\"spl\":\".boot\"",
        "\"mysqli\":[4,",
        "\"date\":false,\"json\":0",
        "[\"ISO-8859-1\",true,true,true,false]",
    ] {
        assert!(before.contains(part), "{part} in {before}");
    }
    // An autoloader stays, as the classes do that it has loaded.
    let before = before.replace("true,false]", "true,true]");
    for _ in 0..3 {
        let changed = run("leave");
        assert!(changed.contains("[\"EUC-JP\",false,"), "{changed}");
        assert_eq!(run("show"), before);
    }
}

#[test]
fn a_seed_of_one_request_does_not_make_the_next_predictable() {
    let master = start(&[]);
    let mut worker = master.worker();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let seeded = body(&mut worker, "do=random&seed=1");
        seen.push(body(&mut worker, "do=random"));
        assert_eq!(body(&mut worker, "do=random&seed=1"), seeded);
    }
    assert!(seen.windows(2).any(|two| two[0] != two[1]), "{seen:?}");
}

/// The answers are the same as in ordinary mode, with the output of the application's own
/// functions; the next request is answered.
#[test]
fn a_script_that_ends_in_a_request_answers_it() {
    let master = start(&["--php-ini", "display_errors=0", "--php-ini", "html_errors=0"]);
    let mut worker = master.worker();
    let own = "[boot's shutdown function][shutdown function]";
    let ended_by_function =
        "before, [shutdown function]from a shutdown function[boot's shutdown function]";
    for (how, status, body, log) in [
        ("exit", 200, format!("before, exit{own}"), ""),
        ("error", 200, format!("before, {own}"), "Call to undefined function undefined_function()"),
        ("exception", 200, format!("before, {own}"), "Uncaught LogicException: thrown"),
        ("handled", 503, format!("before, handled thrown{own}"), ""),
        // PHP drops the buffer.
        ("memory", 200, own.to_owned(), "Allowed memory size of 16777216 bytes exhausted"),
        ("shutdown", 200, ended_by_function.to_owned(), ""),
    ] {
        let response = answer(&master, &mut worker, &ask(&format!("do=end&how={how}")));
        assert_eq!(response.body(), body, "{how}: {}", response.log());
        assert!(response.head().contains("X-Before: 1"), "{how}: {}", response.head());
        assert!(status == 200 || response.head().contains(&status.to_string()), "{how}");
        assert!(response.log().contains(log), "{how}: {}", response.log());
        let next = answer(&master, &mut worker, &ask("do=count"));
        assert_eq!(next.body(), "request 1\n", "{how}");
    }
}

/// These errors happen while the response is being ended.
#[test]
fn errors_at_the_end_of_a_request_are_answered() {
    let master = start(&["--php-ini", "display_errors=0"]);
    let mut worker = master.worker();
    for (how, log) in [("shutdown-error", "undefined_function"), ("buffer", "from a buffer")] {
        let response = answer(&master, &mut worker, &ask(&format!("do=end&how={how}")));
        assert!(response.log().contains(log), "{how}: {}", response.log());
        assert_eq!(answer(&master, &mut worker, &ask("do=count")).body(), "request 1\n", "{how}");
    }
}

#[test]
fn a_script_may_answer_what_its_handler_throws() {
    let master = start_script("catches.php", &[]);
    let mut worker = master.worker();
    for (query, expected) in
        [("throw=a", "begun, caught a"), ("", "begun, "), ("throw=b", "begun, caught b")]
    {
        let request = Request::new(&script("boot/catches.php")).query(query);
        assert_eq!(answer(&master, &mut worker, &request).body(), expected);
    }
}

#[test]
fn functions_of_worker_mode() {
    let master = start(&[]);
    let mut worker = master.worker();
    let response = worker.link().ask(&ask("do=nested"));
    assert_eq!(response.body(), "a request is being handled already\n");
    for (query, next) in [("do=asks", 3), ("do=asks&buffer=1", 5)] {
        assert_eq!(body(&mut worker, query), "asks: a request is being handled already");
        assert_eq!(body(&mut worker, "do=count"), format!("request {next}\n"));
    }
    assert_eq!(
        body(&mut worker, "do=asks&exit=1"),
        "asks: [boot's shutdown function]a request is being handled already"
    );
    let ordinary = Master::start(&[]);
    let exists = ordinary.worker().link().ask(&get("functions.php")).body();
    assert!(!exists.contains("handle_request"), "{exists}");
}

#[test]
fn uploads_and_the_body_end_with_their_request() {
    let master = start(&[]);
    let mut worker = master.worker();
    let part = "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n0123456789\r\n--XX--\r\n";
    for _ in 0..3 {
        let upload = ask("do=upload").post("multipart/form-data; boundary=XX", part.as_bytes());
        let got = worker.link().ask(&upload).body();
        assert!(got.ends_with(",true,10]"), "{got}");
        assert_eq!(body(&mut worker, "do=uploaded"), "[false,false,false]");
    }
}

#[test]
fn a_user_gets_the_own_session_alone() {
    let dir = TempDir::new();
    let master = start(&["--php-ini", &format!("session.save_path={}", dir.path().display())]);
    let mut worker = master.worker();
    let session = |name: &str, id: Option<&str>| {
        let request = ask(&format!("do=session&name={name}"));
        match id {
            Some(id) => request.with("HTTP_COOKIE", &format!("PHPSESSID={id}")),
            None => request,
        }
    };
    let mut users = Vec::new();
    for n in 0..20 {
        let name = format!("user{n}");
        let response = worker.link().ask(&session(&name, None));
        let body = response.body();
        let (id, said) = body.split_once(' ').unwrap();
        assert_eq!(said, name);
        assert!(response.head().contains(&format!("Set-Cookie: PHPSESSID={id}")));
        users.push((id.to_owned(), name));
    }
    for (id, name) in users.iter().rev() {
        let again = worker.link().ask(&session("another", Some(id))).body();
        assert_eq!(again, format!("{id} {name}"));
    }
}

#[test]
fn a_boot_that_fails_is_logged_and_tried_again_ever_later() {
    let file = script("boot/no_loop.php");
    let mut master = Master::start_with(&["--worker-script", &file], Stdio::piped());
    let mut log = BufReader::new(master.stderr()).lines().map(Result::unwrap);
    let began = Instant::now();
    for delay in ["100ms", "200ms", "400ms"] {
        master.cannot_start();
        for why in [
            "the application says why".to_owned(),
            format!("the worker script {file} has ended before it called sendoff_handle_request()"),
        ] {
            let line = log.next().unwrap();
            assert!(line.ends_with(&format!(" of pool default: {why}")), "{line}");
        }
        assert!(log.next().unwrap().ends_with(" ended with status 1"));
        let next =
            format!("sendoff-php: its script has not booted: the next one starts in {delay}");
        assert_eq!(log.next().unwrap(), next);
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
}

#[test]
fn a_worker_script_that_is_repaired_boots() {
    let dir = TempDir::new();
    let path = dir.file("worker.php");
    fs::write(&path, "<?php undefined_function();").unwrap();
    let master = Master::start(&["--worker-script", &path]);
    master.cannot_start();
    fs::write(dir.file("new"), "<?php while (sendoff_handle_request(fn () => print('up'))) {}")
        .unwrap();
    fs::rename(dir.file("new"), &path).unwrap();
    assert_eq!(master.worker().link().ask(&Request::new(&path)).body(), "up");
}

/// PHP runs these after the script or the callable has ended.
#[test]
fn fibers_and_destructors_of_a_request_end_with_it() {
    for (script, body) in [
        (
            "$fiber = new Fiber(fn () => sendoff_handle_request(function () {
                 echo 'begun';
                 Fiber::suspend();
             }));
             $fiber->start();",
            "begun",
        ),
        (
            "class Asks {
                 function __destruct() {
                     try {
                         sendoff_handle_request(fn () => 1);
                     } catch (RuntimeException $e) {
                         echo $e->getMessage();
                     }
                 }
             }
             while (sendoff_handle_request(fn () => new Asks)) {}",
            "a request is being handled already",
        ),
    ] {
        let dir = TempDir::new();
        let path = dir.file("worker.php");
        fs::write(&path, format!("<?php {script}")).unwrap();
        let master = Master::start(&["--worker-script", &path]);
        for _ in 0..2 {
            let response = answer(&master, &mut master.worker(), &Request::new(&path));
            assert_eq!(response.body(), body, "{script}");
        }
    }
}

#[test]
fn a_callback_that_throws_at_the_end_of_the_boot_costs_no_request() {
    let dir = TempDir::new();
    let path = dir.file("worker.php");
    let script = "<?php ob_start(function () { throw new Exception('callback'); });
        while (sendoff_handle_request(fn () => print('up'))) {}";
    fs::write(&path, script).unwrap();
    let master = Master::start(&["--worker-script", &path]);
    master.cannot_start();
}

#[test]
fn a_worker_is_replaced_after_its_requests() {
    let master = start(&["--max-requests", "5"]);
    let mut worker = master.worker();
    let bodies: Vec<_> =
        (0..20).map(|_| answer(&master, &mut worker, &ask("do=count")).body()).collect();
    let numbers: Vec<u32> = bodies.iter().map(|body| body[8..].trim().parse().unwrap()).collect();
    assert_eq!(numbers, [[1, 2, 3, 4, 5]; 4].concat());
}

#[test]
fn a_worker_that_has_grown_or_is_old_is_replaced() {
    let grown = start(&["--max-memory", "40000000"]);
    let mut worker = grown.worker();
    let grow = ask("do=grow&size=50000000");
    assert_eq!(answer(&grown, &mut worker, &ask("do=count")).body(), "request 1\n");
    assert_eq!(answer(&grown, &mut worker, &grow).body(), "grown");
    assert_eq!(answer(&grown, &mut worker, &ask("do=count")).body(), "request 1\n");
    let old = start(&["--max-age", "1s"]);
    let mut worker = old.worker();
    let began = Instant::now();
    let mut last = 0;
    loop {
        let body = answer(&old, &mut worker, &ask("do=count")).body();
        let number: u32 = body[8..].trim().parse().unwrap();
        if number <= last {
            break;
        }
        last = number;
        assert!(began.elapsed() < Duration::from_secs(20), "it is never replaced");
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
}

/// The script may still run its code after the loop.
#[test]
fn a_worker_that_is_told_to_end_lets_its_script_end() {
    for signal in [true, false] {
        let (dir, mut master) = (TempDir::new(), start(&[]));
        let mut worker = master.worker();
        let done = dir.file("done");
        body(&mut worker, &format!("do=done&file={done}"));
        if signal {
            master.signal(Signal::TERM);
        } else {
            master.close_pool();
        }
        drop(worker);
        assert_eq!(master.wait().code(), Some(0));
        assert_eq!(fs::read_to_string(done).unwrap(), "the loop has ended after 1");
    }
}

/// The front is told when a script goes on for long after a response.
#[test]
fn the_front_knows_when_a_script_works_on_after_a_response() {
    let dir = TempDir::new();
    let path = dir.file("worker.php");
    fs::write(&path, "<?php while (sendoff_handle_request(fn () => print('x'))) { usleep(5000); }")
        .unwrap();
    let master = Master::start(&["--worker-script", &path]);
    let mut worker = master.worker();
    let request = Request::new(&path).with("SENDOFF_ACCEPT", "file");
    assert_eq!(worker.link().ask(&request).body(), "x");
    let mut detached = 0;
    for _ in 0..5 {
        let response = worker.link().ask(&request);
        assert_eq!(response.body(), "x");
        if response.handover.contains(&Kind::DETACH) {
            detached += 1;
            let ready = worker.link().part();
            assert!(
                matches!(ready, Some(RecordPart::Record { kind: Kind::READY, .. })),
                "{ready:?}"
            );
        }
    }
    assert!(detached >= 4, "{detached}");
}

#[test]
fn a_thousand_requests_cost_neither_memory_nor_descriptors() {
    let dir = TempDir::new();
    let master = start(&["--php-ini", &format!("session.save_path={}", dir.path().display())]);
    let mut worker = master.worker();
    let pid = worker.pid.as_raw_nonzero();
    let resources = || {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let data = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        let data: u64 = data.split_whitespace().nth(1).unwrap().parse().unwrap();
        (fds, maps, data)
    };
    let mut round = |count: usize| {
        let cookie = "PHPSESSID=abcdefghijklmnopqrstuvwxyz";
        for n in 0..count {
            let query = ["do=count", "do=show", "do=session&name=x", "do=random"][n * 7 % 4];
            let request = ask(query).with("HTTP_COOKIE", cookie);
            let request = match n % 3 {
                0 => request.post("application/x-www-form-urlencoded", b"a=1&b[]=2"),
                _ => request,
            };
            assert!(!worker.link().ask(&request).body().is_empty());
        }
    };
    round(200);
    let before = resources();
    round(1000);
    let after = resources();
    assert_eq!((before.0, before.1), (after.0, after.1));
    assert!(after.2 <= before.2 + before.2 / 20, "{} KiB, then {} KiB", before.2, after.2);
}

/// A busy worker finishes its request.
#[test]
fn a_changed_file_boots_the_workers_again() {
    let (dir, outside) = (TempDir::new(), TempDir::new());
    let path = dir.file("worker.php");
    fs::write(
        &path,
        "<?php $say = require __DIR__ . '/say.php'; while (sendoff_handle_request(fn () => print($say))) {}",
    )
    .unwrap();
    fs::write(dir.file("say.php"), "<?php return 'first';").unwrap();
    let folder = dir.path().display().to_string();
    let master = Master::start(&["--worker-script", &path, "--watch", &folder]);
    let (mut worker, request) = (master.worker(), Request::new(&path));
    assert_eq!(worker.link().ask(&request).body(), "first");
    for (code, said) in [("second", true), ("broken(", false), ("third", true)] {
        // The file is replaced atomically: a worker that boots in between would be replaced at
        // once.
        let new = outside.file("say.php");
        fs::write(&new, format!("<?php return '{code}';{}", if said { "" } else { "(" })).unwrap();
        fs::rename(new, dir.file("say.php")).unwrap();
        if said {
            worker = master.worker();
            assert_eq!(worker.link().ask(&request).body(), code);
        } else {
            master.cannot_start();
        }
    }
}

/// The application keeps lazy strings whose files are meanwhile overwritten, truncated and deleted.
#[test]
fn strings_of_files_outlive_their_request_and_the_file() {
    let (dir, master) = (TempDir::new(), start(&["--php-ini", "sendoff.threshold=1"]));
    let mut front = Front::new(master.worker());
    let contents: Vec<Vec<u8>> =
        (0..4).map(|n| content(&format!("file {n} "), 150_000 + n * 4096)).collect();
    let paths: Vec<_> = (0..4).map(|n| dir.file(&format!("{n}.bin"))).collect();
    let mut ask = |query: String| front.body(&ask(&query));
    for (path, contents) in paths.iter().zip(&contents) {
        fs::write(path, contents).unwrap();
        // The last one is also sent, so the front has it open.
        let echo = if path.contains("3.bin") { "&echo=3" } else { "" };
        let got = ask(format!("do=keep&file={path}{echo}"));
        assert!(got.ends_with(if echo.is_empty() { b"\n" } else { contents }), "{path}");
    }
    let kept = ask("do=keep".to_owned());
    std::thread::scope(|scope| {
        let change = scope.spawn(|| {
            fs::write(&paths[0], b"overwritten").unwrap();
            fs::OpenOptions::new().write(true).open(&paths[1]).unwrap().set_len(100).unwrap();
            fs::remove_file(&paths[2]).unwrap();
            fs::write(&paths[3], content("another ", 150_000)).unwrap();
        });
        while !change.is_finished() {
            assert_eq!(ask("do=keep".to_owned()), kept);
        }
    });
    for (n, contents) in contents.iter().enumerate() {
        let got = ask(format!("do=keep&echo={n}"));
        assert!(got.starts_with(&kept) && got.ends_with(contents), "file {n}");
    }
    // The new contents of the file are another string.
    let both = ask(format!("do=keep&file={}&echo=4", paths[0]));
    assert!(both.starts_with(&kept) && both.ends_with(b"overwritten"));
    ask("do=drop".to_owned());
    let before = count(&mut ask);
    assert_eq!(count(&mut ask), before + 1, "it is still the same process");
}

/// The number of this request.
fn count(ask: &mut impl FnMut(String) -> Vec<u8>) -> u32 {
    let said = String::from_utf8(ask("do=count".to_owned())).unwrap();
    said["request ".len()..].trim().parse().unwrap()
}

/// There is room for 128 files; a worker that reads other files in each request keeps reading all
/// of them right.
#[test]
fn files_that_no_variable_has_make_room() {
    let (dir, master) = (TempDir::new(), start(&["--php-ini", "sendoff.threshold=1"]));
    let mut front = Front::new(master.worker());
    for n in 0..200 {
        let (path, contents) = (dir.file(&format!("{n}.bin")), content(&format!("{n} "), 20_000));
        fs::write(&path, &contents).unwrap();
        let got = front.body(&ask(&format!("do=keep&file={path}&echo=0")));
        assert!(got.ends_with(&contents), "file {n}");
        front.body(&ask("do=drop"));
    }
}
