//! Random PHP programs must be answered as nginx and php-fpm answer them, with every file a lazy
//! string.
//!
//! `SENDOFF_PROGRAMS=N` runs N programs, `SENDOFF_SEED=S` starts with the program of seed S.
//! `SENDOFF_DELIVERY=MODE` selects one mode: a value of `--delivery`, php-fpm with our extension
//! (`fpm`), compressed responses (`compressed`), or worker mode with a process for each request
//! (`worker`) or for all requests (`lasting`). `SENDOFF_INI="KEY=VALUE KEY=VALUE"` adds settings. A
//! program with a different answer is shortened as long as its answer still differs, and printed.

#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod generator;

use generator::{Asks, Program};
use rustix::fs::{FlockOperation, flock};
use sendoff_tests::{Broken, Client, Fpm, Http2, Progress, Request, Response, Server, Site, Stock};
use sendoff_tests::{difference, extension};
use std::cell::Cell;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The ways in which responses leave, and php-fpm with our extension.
const DELIVERIES: [&str; 4] = ["auto", "direct", "region", "fpm"];

/// Settings for both sides: code of the JIT compiler may differ from the code that it compiles.
fn settings(delivery: &str) -> Vec<String> {
    let compiled = |mode| format!("opcache.jit_buffer_size=32M opcache.jit={mode}");
    let settings = match (std::env::var("SENDOFF_INI"), delivery) {
        (Ok(settings), _) => settings,
        (_, "region") => compiled("function"),
        (_, "direct") => compiled("tracing") + " opcache.jit_hot_loop=2 opcache.jit_hot_func=2",
        _ => String::new(),
    };
    settings.split_whitespace().map(str::to_owned).collect()
}

/// Includes the program that the path names: in worker mode in each request of a process, otherwise
/// once. A program holds its lock until its end, and each process that boots leaves a file, made by
/// a function that uses no resource number.
const RUNNER: &str = "<?php\n$run = static function () { include __DIR__ . $_SERVER['PATH_INFO']; };\n\
    if (!function_exists('sendoff_handle_request')) { $run(); return; }\n\
    touch(__DIR__ . '/boot.' . getmypid());\n\
    while (sendoff_handle_request($run)) { unset($GLOBALS['at work']); }\n";

/// The first run maps files, the others find them mapped, or changed.
const RUNS: usize = 3;

/// A program that takes this much longer waits for a lease, whose shortest time limit is 5 s.
const LATE: Duration = Duration::from_secs(3);

/// The run ends after this number of differences.
const ENOUGH: usize = 5;

/// Programs a `cargo test` runs.
const USUAL: u64 = 80;

struct Arena {
    site: Site,
    stock: Stock,
    /// Ends before the front: the constants that it has handed over are given back.
    _fpm: Option<Fpm>,
    ours: Server,
    logs: [PathBuf; 2],
    /// Every program gets a folder of its own, because PHP remembers scripts and settings by path.
    folders: u32,
    /// File segments that ours has sent, as far as scripts could see.
    segments: u64,
    /// Responses of ours that were compressed.
    compressed: Cell<u64>,
    /// The beginning of the request target, before the path of a program.
    runner: &'static str,
}

impl Arena {
    fn new(delivery: &str) -> Self {
        let site = Site::new();
        let logs = ["stock.log", "ours.log"].map(|name| site.write_at(site.outside(name), ""));
        let [stock, ours] = logs.clone().map(|log| format!("error_log={}", log.display()));
        // opcache must cache new programs, too, so that their texts are constants.
        let cached = "opcache.file_update_protection=0";
        let more = settings(delivery);
        let with = |log| {
            let own = [log, "log_errors=1", "sendoff.threshold=1", cached];
            own.into_iter().chain(more.iter().map(String::as_str)).collect::<Vec<_>>()
        };
        let runner = site.write("run.php", RUNNER).display().to_string();
        let stock = Stock::start(site.root(), &with(&stock));
        let settings = with(&ours);
        // A worker keeps at most 128 files, and deleted files for a minute: a new worker has room.
        let (ours, fpm) = if delivery == "fpm" {
            let pool = "pm.max_children = 1\npm.max_requests = 90";
            let fpm =
                Fpm::start_with(site.root(), pool, &[&settings[..], &[&extension()]].concat());
            let mut ours = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
            ours.expect_linked_processes(fpm.processes());
            (ours, Some(fpm))
        } else {
            let mut options = vec!["--workers", "1", "--max-requests", "90"];
            match delivery {
                "compressed" => options.push("--compress"),
                "worker" => {
                    options =
                        vec!["--workers", "2", "--max-requests", "1", "--php-worker", &runner];
                }
                "lasting" => options = vec!["--workers", "1", "--php-worker", &runner],
                delivery => options.extend(["--delivery", delivery]),
            }
            options.extend(settings.iter().flat_map(|setting| ["--php-ini", setting]));
            (Server::start(site.root(), &options), None)
        };
        Self {
            site,
            stock,
            ours,
            _fpm: fpm,
            logs,
            folders: 0,
            segments: 0,
            compressed: Cell::new(0),
            runner: if matches!(delivery, "worker" | "lasting") { "/run.php" } else { "" },
        }
    }

    /// The difference of our answer to a program from the reference, as a text; `None` if they are
    /// equal.
    fn difference(&mut self, program: &Program) -> Option<String> {
        self.folders += 1;
        let folder = format!("p{}", self.folders);
        self.site.write(&format!("{folder}/.user.ini"), &program.settings);
        self.site.write(&format!("{folder}/index.php"), program.source(self.folders));
        let stock = self.runs(program, &folder, self.stock.addr(), 0);
        let ours = self.runs(program, &folder, self.ours.addr(), 1);
        if program.asks == Asks::Once {
            // Other tests check this output; here it must only not break anything.
            let page = format!("{}/{folder}/index.php", self.runner);
            let _table = self.ours.explain(&page, &[]);
            self.wait_for_the_end(&folder);
        }
        let found = stock.into_iter().zip(ours).enumerate().find_map(|(run, (stock, ours))| {
            let what = format!("run {}", run + 1);
            match (stock.answer, ours.answer) {
                (Ok(stock), Ok(ours)) => difference(&what, &stock, &ours),
                (Err(_), Err(_)) => None,
                (stock, ours) => {
                    Some(format!("{what}: broken: stock {:?}, ours {:?}", stock.err(), ours.err()))
                }
            }
            .or_else(|| {
                (stock.log != ours.log)
                    .then(|| format!("{what}: log\nstock {}\nours {}", stock.log, ours.log))
            })
            .or_else(|| {
                let late = ours.took > stock.took + LATE;
                late.then(|| format!("{what}: took {:?}, stock {:?}", ours.took, stock.took))
            })
            .or_else(|| (stock.files != ours.files).then(|| format!("{what}: files left behind")))
        });
        let stats = fs::read_to_string(self.site.path(&folder).join("stats")).unwrap_or_default();
        let segments = stats.split_once("\"segments\":");
        self.segments += segments.map_or(0, |(_, n)| n.trim_end_matches('}').parse().unwrap());
        fs::remove_dir_all(self.site.path(&folder)).unwrap();
        found
    }

    fn runs(&self, program: &Program, folder: &str, addr: SocketAddr, log: usize) -> Vec<Run> {
        let files = self.site.path(folder).join("files");
        let _ = fs::remove_dir_all(&files);
        self.site.folder(&format!("{folder}/files"));
        for (name, contents) in &program.files {
            let name = name.replace('~', &self.folders.to_string());
            self.site.write_at(files.join(name), contents);
        }
        let run = |number| {
            let appended = files.join(format!("a{}", self.folders));
            if number > 0 && program.appended && appended.is_file() {
                let mut contents = fs::read(&appended).unwrap();
                contents.extend_from_slice(b"from somebody else\n");
                self.site.write_at(appended, contents);
            }
            let mut log = fs::File::open(&self.logs[log]).unwrap();
            log.seek(SeekFrom::End(0)).unwrap();
            let begin = Instant::now();
            let asks = match program.asks {
                Asks::Http2 if addr == self.stock.addr() => Asks::Usually,
                asks => asks,
            };
            let mut answer = self.ask(asks, addr, &format!("{}/{folder}/index.php", self.runner));
            if let Ok(answer) = &mut answer
                && !self.runner.is_empty()
            {
                answer.body = without_resources(&answer.body);
            }
            let answer = answer.map_err(|broken| format!("{broken:?}"));
            self.wait_for_the_end(folder);
            let took = begin.elapsed();
            let mut logged = Vec::new();
            log.read_to_end(&mut logged).unwrap();
            let mut left: Vec<_> =
                fs::read_dir(&files).unwrap().map(|e| e.unwrap().path()).collect();
            left.sort();
            let left = left.into_iter().map(|path| (fs::read(&path).ok(), path)).collect();
            let mut log = without_times(&String::from_utf8_lossy(&logged));
            if !self.runner.is_empty() {
                log = without_traces(&log);
            }
            Run { answer, took, log, files: left }
        };
        (0..RUNS).map(run).collect()
    }

    /// Waits for the script: the client may have all it wants, and it goes on.
    fn wait_for_the_end(&self, folder: &str) {
        let at_work = fs::File::create(self.site.path(folder).join("lock")).unwrap();
        flock(&at_work, FlockOperation::LockExclusive).unwrap();
    }

    /// The shortest program found that is still answered differently.
    fn shorten(&mut self, mut program: Program) -> Program {
        let mut at = program.statements.len();
        while at > 0 {
            at -= 1;
            let mut shorter = program.clone();
            shorter.statements.remove(at);
            if self.difference(&shorter).is_some() {
                program = shorter;
            }
        }
        program
    }

    fn ask(&self, asks: Asks, addr: SocketAddr, page: &str) -> Result<Response, Broken> {
        let request = Request::new(if asks == Asks::Head { "HEAD" } else { "GET" }, page);
        let request = request.header("Accept-Encoding", "zstd");
        let response = match asks {
            Asks::Usually | Asks::Head => Client::connect(addr).try_ask(&request),
            Asks::Http10 => Client::connect(addr).try_ask(&request.http10()),
            Asks::Once => Client::connect(addr).try_ask(&request.header("Connection", "close")),
            Asks::Twice => {
                let mut client = Client::connect(addr);
                client.send(request.bytes().repeat(2));
                let first = self.decoded(client.try_response("GET")?);
                let mut second = self.decoded(client.try_response("GET")?);
                second.body.extend_from_slice(&first.body);
                return Ok(second);
            }
            Asks::Leaves => {
                let mut client = Client::connect(addr);
                client.send(request.bytes());
                client.head()?;
                Err(Broken::Closed)
            }
            Asks::Narrow => Client::connect_narrow(addr, 32 * 1024).try_ask(&request),
            Asks::Http2 => Http2::connect(self.ours.clear_addr()).try_ask(&request),
        };
        response.map(|response| self.decoded(response))
    }

    /// The response as it was before it was compressed.
    fn decoded(&self, mut response: Response) -> Response {
        let fields = &mut response.head.headers;
        let is_vary = |name: &str| name.eq_ignore_ascii_case("Vary");
        fields.retain(|(name, value)| !(is_vary(name) && value == "Accept-Encoding"));
        if response.header("content-encoding") == Some("zstd") {
            self.compressed.set(self.compressed.get() + 1);
            let fields = &mut response.head.headers;
            let of_coding = ["Content-Encoding", "Content-Length"];
            fields.retain(|(name, _)| !of_coding.iter().any(|of| name.eq_ignore_ascii_case(of)));
            if !response.body.is_empty() {
                response.body = zstd::decode_all(&response.body[..]).unwrap();
            }
        }
        response
    }
}

struct Run {
    answer: Result<Response, String>,
    took: Duration,
    log: String,
    files: Vec<(Option<Vec<u8>>, PathBuf)>,
}

/// Without the date in front of each entry of PHP's log.
fn without_times(log: &str) -> String {
    let entries = log.lines().map(|line| match line.split_once("] ") {
        Some((time, entry)) if time.starts_with('[') && time.contains(':') => entry,
        _ => line,
    });
    entries.collect::<Vec<_>>().join("\n")
}

/// With the same number for each resource: in a process that runs on, they count up.
fn without_resources(body: &[u8]) -> Vec<u8> {
    const BEGIN: &[u8] = b"Resource id #";
    let (mut rest, mut all) = (body, Vec::with_capacity(body.len()));
    while let Some(at) = rest.windows(BEGIN.len()).position(|window| window == BEGIN) {
        let (before, after) = rest.split_at(at + BEGIN.len());
        all.extend_from_slice(before);
        let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        rest = &after[digits..];
    }
    all.extend_from_slice(rest);
    all
}

/// Without the functions that an exception passed: a worker script has one more.
fn without_traces(log: &str) -> String {
    log.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

#[test]
fn programs_are_answered_as_stock_answers_them() {
    let first = number("SENDOFF_SEED").unwrap_or(1);
    run_programs(first, number("SENDOFF_PROGRAMS").unwrap_or(USUAL));
}

#[test]
fn compressed_programs_are_the_same() {
    run_with("compressed", 500_000, number("SENDOFF_PROGRAMS").unwrap_or(USUAL / 4));
}

#[test]
fn programs_in_worker_mode_are_answered_as_stock_answers_them() {
    run_with("worker", 700_000, number("SENDOFF_PROGRAMS").unwrap_or(USUAL / 4));
}

/// Each program runs three times.
#[test]
fn requests_of_programs_in_one_worker_are_answered_as_stock_answers_them() {
    run_with("lasting", 800_000, number("SENDOFF_PROGRAMS").unwrap_or(USUAL / 2));
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn thousands_of_requests_of_programs_in_one_worker_are_answered_as_stock_answers_them() {
    run_with("lasting", 2_000_000, number("SENDOFF_PROGRAMS").unwrap_or(1_000));
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn thousands_of_programs_are_answered_as_stock_answers_them() {
    run_programs(1_000_000, number("SENDOFF_PROGRAMS").unwrap_or(10_000));
}

fn run_programs(first: u64, count: u64) {
    match std::env::var("SENDOFF_DELIVERY") {
        Ok(delivery) => run_with(&delivery, first, count),
        Err(_) => {
            for (at, delivery) in (0..).zip(DELIVERIES) {
                let share = count / DELIVERIES.len() as u64;
                run_with(delivery, first + at * share, share);
            }
        }
    }
}

fn run_with(delivery: &str, first: u64, count: u64) {
    let mut arena = Arena::new(delivery);
    let mut different = Vec::new();
    let progress = Progress::new(count, &format!("programs, {delivery},"));
    for seed in first..first + count {
        let mut program = Program::new(seed);
        if delivery == "lasting" {
            program = program.lasting();
        }
        progress.advance();
        let Some(how) = arena.difference(&program) else { continue };
        let shortest = arena.shorten(program);
        let again = arena.difference(&shortest);
        eprintln!(
            "--- seed {seed}, {delivery}, {:?}: {how}\nmade shorter: {}\n{}{}",
            shortest.asks,
            again.unwrap_or_else(|| "not every time".into()),
            shortest.settings,
            shortest.source(0)
        );
        different.push(seed);
        if different.len() == ENOUGH {
            break;
        }
    }
    let log = arena.ours.log();
    // A client of HTTP/2 that leaves is a broken pipe.
    let of_us = |line: &&str| !line.contains("an HTTP/2 connection ends early");
    let broken = log.lines().filter(of_us).find(|line| line.contains("broken"));
    assert_eq!(broken, None, "{delivery}: two of ours do not understand each other:\n{log}");
    eprintln!("{delivery}: {count} programs, {} file segments in their last runs", arena.segments);
    let compressed = arena.compressed.get();
    assert!(delivery != "compressed" || compressed > count / 4, "{compressed} were compressed");
    let may_be_few = count < USUAL / 4 || matches!(delivery, "relay" | "lasting");
    assert!(may_be_few || arena.segments > count / 4, "hardly any file was handed over");
    if delivery == "lasting" {
        let names =
            fs::read_dir(arena.site.root()).unwrap().map(|entry| entry.unwrap().file_name());
        let boots = names.filter(|name| name.to_string_lossy().starts_with("boot.")).count();
        eprintln!("{} requests by {boots} processes", count * RUNS as u64);
        assert!((boots as u64) < count / 5, "{boots} processes: hardly any took a second request");
    }
    assert!(different.is_empty(), "answered differently: the programs of the seeds {different:?}");
}
