//! Behaviour that is visible only on the link: streaming, detaching, aborts, and the ends of
//! processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::link::Request;
use crate::common::master::{Master, Worker};
use crate::common::{TempDir, script};
use bytes::Bytes;
use rustix::process::{Signal, kill_process};
use sendoff_fastcgi::RecordPart;
use sendoff_fastcgi::record::Kind;
use sendoff_pool_messages::ToMaster;

fn get(file: &str, query: &str) -> Request {
    Request::new(&script(file)).query(query)
}

/// Makes a named pipe; a script that reads it waits until [`open_fifo`].
fn fifo(dir: &TempDir) -> String {
    let path = dir.file("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

fn open_fifo(path: &str) {
    fs::write(path, "go").unwrap();
}

fn body(worker: &mut Worker, file: &str, query: &str) -> String {
    worker.link().ask(&get(file, query)).body()
}

/// Fails unless the worker's link is closed.
fn assert_gone(worker: &mut Worker) {
    while worker.link().part().is_some() {}
}

#[test]
fn flushed_output_arrives_before_the_script_ends() {
    let (dir, master) = (TempDir::new(), Master::start(&[]));
    let mut worker = master.worker();
    let fifo = fifo(&dir);
    worker.link().send(&get("stream.php", &format!("fifo={fifo}")));
    assert!(worker.link().read_until("first ").contains("\r\n\r\n"));
    open_fifo(&fifo);
    assert_eq!(worker.link().read_until("second"), "second");
}

#[test]
fn a_detached_script_works_on_and_then_reports_ready() {
    let (dir, master) = (TempDir::new(), Master::start(&[]));
    let mut worker = master.worker();
    let (fifo, done) = (fifo(&dir), dir.file("done"));
    let request = get("finish_and_work.php", &format!("fifo={fifo}&done={done}"))
        .with("SENDOFF_ACCEPT", "file");
    let response = worker.link().ask(&request);
    assert_eq!((response.head().contains("X-Sent: yes"), response.body()), (true, "sent".into()));
    assert_eq!(response.handover, [Kind::LENGTH, Kind::DETACH]);
    assert!(!fs::exists(&done).unwrap());
    open_fifo(&fifo);
    let line = worker.link().part();
    let data = Bytes::from_static(b"a line after the end\n");
    assert_eq!(line, Some(RecordPart::Stream { kind: Kind::STDERR, request_id: 1, data }));
    let ready = worker.link().part();
    assert!(matches!(ready, Some(RecordPart::Record { kind: Kind::READY, .. })), "{ready:?}");
    assert_eq!(fs::read_to_string(done).unwrap(), "worked on, 0");
    assert_eq!(body(&mut worker, "hello.php", ""), "Hello, world\n");
}

/// A trace has many lines. The front can log one record as one entry.
#[test]
fn an_entry_of_the_log_is_one_record() {
    let master = Master::start(&["--php-ini", "html_errors=0"]);
    let mut worker = master.worker();
    let fatal = "PHP Fatal error:  Uncaught ";
    for (kind, first, inside, last) in [
        ("exception", fatal, "\n#0 {main}\n", "errors.php on line 24\n"),
        ("error", fatal, "undefined_things()\n#1 {main}\n", "errors.php on line 4\n"),
        ("log", "first\nsecond\n", "xxxx", "\nlast\n"),
    ] {
        worker.link().send(&get("errors.php", &format!("kind={kind}")));
        let entries = worker.link().log_entries();
        let [entry] = &entries[..] else { panic!("{kind}: {entries:#?}") };
        assert!(entry.starts_with(first) && entry.contains(inside), "{entry}");
        assert!(entry.ends_with(last), "{entry}");
    }
}

#[test]
fn the_parameter_of_the_front_is_hidden() {
    let master = Master::start(&[]);
    let request = get("server.php", "").with("SENDOFF_ACCEPT", "file");
    assert!(!master.worker().link().ask(&request).body().contains("SENDOFF_ACCEPT="));
}

#[test]
fn a_client_that_goes_ends_the_script_unless_it_asked_to_go_on() {
    for (ignore, goes_on) in [("0", false), ("1", true)] {
        let (dir, master) = (TempDir::new(), Master::start(&[]));
        let mut worker = master.worker();
        let done = dir.file("done");
        worker.link().send(&get("aborted.php", &format!("ignore={ignore}&done={done}")));
        worker.link().read_until("begun");
        worker.link().abort();
        assert!(worker.link().response().is_some());
        assert_eq!(body(&mut worker, "hello.php", ""), "Hello, world\n");
        assert_eq!(fs::read_to_string(&done).unwrap(), "1 1");
        assert_eq!(fs::exists(format!("{done}.more")).unwrap(), goes_on);
    }
}

#[test]
fn a_killed_worker_costs_its_request_and_is_replaced() {
    let master = Master::start(&["--workers", "2"]);
    let (mut one, mut other) = (master.worker(), master.worker());
    for query in ["kill", "killed-late"] {
        one.link().send(&get("process.php", query));
        assert!(one.link().response().is_none());
        one = master.worker();
        assert_eq!(body(&mut one, "hello.php", ""), "Hello, world\n");
    }
    assert_eq!(body(&mut other, "hello.php", ""), "Hello, world\n");
}

#[test]
fn workers_do_not_outlive_their_master() {
    let mut master = Master::start(&["--workers", "2"]);
    let (mut busy, mut idle) = (master.worker(), master.worker());
    busy.link().send(&get("burn.php", "60"));
    master.signal(Signal::KILL);
    master.wait();
    assert_gone(&mut busy);
    assert_gone(&mut idle);
}

/// The pauses are 100, 200 and 400 ms: only shorter ones are an error.
#[test]
fn a_worker_that_cannot_start_is_replaced_ever_later() {
    let master = Master::start(&[]);
    let began = Instant::now();
    for _ in 0..3 {
        kill_process(master.worker().pid, Signal::KILL).unwrap();
    }
    assert_eq!(body(&mut master.worker(), "hello.php", ""), "Hello, world\n");
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
}

/// php.ini's folder can be set, and its sections take effect.
#[test]
fn sections_of_php_ini_hold_for_their_host_and_folder() {
    let dir = TempDir::new();
    let path = script("");
    let ini = format!(
        "memory_limit=20M\n[PATH={}]\nmemory_limit=21M\n[HOST=special.example]\nmemory_limit=22M\n",
        path.trim_end_matches('/')
    );
    fs::write(dir.path().join("php.ini"), ini).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
    let master = Master::spawn(command.env("PHPRC", dir.path()), &[]);
    let mut worker = master.worker();
    let request = get("user_ini/page.php", "").without("DOCUMENT_ROOT");
    assert_eq!(worker.link().ask(&request).body(), "21M\n");
    // The nearer setting takes precedence.
    let special = request.with("SERVER_NAME", "Special.Example");
    assert_eq!(worker.link().ask(&special).body(), "21M\n");
    fs::write(dir.path().join("page.php"), "<?php echo ini_get('memory_limit');").unwrap();
    let outside = |host| Request::new(&dir.file("page.php")).with("SERVER_NAME", host);
    assert_eq!(worker.link().ask(&outside("localhost")).body(), "20M");
    assert_eq!(worker.link().ask(&outside("Special.Example")).body(), "22M");
}

/// A script runs in its own folder; afterwards the worker is in the root, as with php-fpm under
/// systemd.
#[test]
fn the_working_directory_is_the_folder_of_the_script() {
    let master = Master::start(&[]);
    let mut worker = master.worker();
    for _ in 0..2 {
        assert_eq!(body(&mut worker, "folder/where.php", ""), "folder ../ /");
    }
}

#[test]
fn a_worker_that_recurses_to_death_is_replaced() {
    let master = Master::start(&["--php-ini", "memory_limit=-1"]);
    let mut worker = master.worker();
    worker.link().send(&get("overflow.php", ""));
    assert!(worker.link().response().is_none());
    assert_eq!(body(&mut master.worker(), "hello.php", ""), "Hello, world\n");
}

#[test]
fn a_worker_makes_room_after_its_last_request() {
    let master = Master::start(&["--max-requests", "3"]);
    let mut worker = master.worker();
    for _ in 0..3 {
        assert_eq!(body(&mut worker, "hello.php", ""), "Hello, world\n");
    }
    assert_gone(&mut worker);
    let mut next = master.worker();
    assert_ne!(next.pid, worker.pid);
    assert_eq!(body(&mut next, "hello.php", ""), "Hello, world\n");
}

#[test]
fn workers_share_opcache_and_apcu() {
    let master =
        Master::start(&["--workers", "2", "--php-ini", "opcache.file_update_protection=0"]);
    let mut answers = Vec::new();
    for mut worker in [master.worker(), master.worker()] {
        answers.push(body(&mut worker, "shared.php", ""));
        answers.push(body(&mut worker, "shared.php", ""));
    }
    for (i, answer) in answers.iter().enumerate() {
        assert!(answer.contains(&format!("\"hits\":{i},\"count\":{}", i + 1)), "{answers:?}");
    }
}

#[test]
fn settings_of_the_command_line_win() {
    let master = Master::start(&[
        "--php-ini",
        "memory_limit=123M",
        "--php-ini",
        "allow_url_fopen=Off",
        "--php-ini",
        "sys_temp_dir=/a b;c",
        "--php-ini",
        "log_errors",
    ]);
    let mut worker = master.worker();
    let mut ask = |name: &str| body(&mut worker, "ini.php", &format!("name={name}"));
    assert_eq!(ask("memory_limit"), r#"{"memory_limit":"50M","admin":false}"#);
    assert_eq!(ask("allow_url_fopen"), r#"{"allow_url_fopen":"","admin":false}"#);
    assert_eq!(ask("sys_temp_dir"), r#"{"sys_temp_dir":"\/a b;c","admin":false}"#);
    assert_eq!(ask("log_errors"), r#"{"log_errors":"1","admin":"1"}"#);
}

#[test]
fn a_worker_with_several_links_answers_on_each() {
    let master = Master::start(&["--links", "3"]);
    let mut worker = master.worker();
    assert_eq!(worker.links.len(), 3);
    for i in [2, 0, 1, 1, 2] {
        let answer = worker.links[i].ask(&get("hello.php", ""));
        assert_eq!(answer.body(), "Hello, world\n");
    }
}

#[test]
fn sigterm_lets_workers_finish() {
    let (dir, mut master) = (TempDir::new(), Master::start(&["--workers", "2"]));
    let (mut busy, idle) = (master.worker(), master.worker());
    let fifo = fifo(&dir);
    busy.link().send(&get("stream.php", &format!("fifo={fifo}")));
    busy.link().read_until("first ");
    master.signal(Signal::TERM);
    drop(idle);
    open_fifo(&fifo);
    busy.link().read_until("second");
    assert!(busy.link().response().is_some());
    drop(busy);
    assert_eq!(master.wait().code(), Some(0));
}

#[test]
fn a_second_sigterm_does_not_wait() {
    let (dir, mut master) = (TempDir::new(), Master::start(&[]));
    let mut worker = master.worker();
    let fifo = fifo(&dir);
    worker.link().send(&get("stream.php", &format!("fifo={fifo}")));
    worker.link().read_until("first ");
    master.signal(Signal::TERM);
    // Several pending signals of one number count once, so send them until the master has ended.
    while master.is_running() {
        master.signal(Signal::TERM);
    }
    assert_eq!(master.wait().code(), Some(0));
    assert_gone(&mut worker);
}

/// Both happen together when the supervisor dies: the socket closes, and the signal arrives.
#[test]
fn the_end_of_the_front_and_sigterm_are_one_reason_to_finish() {
    let (dir, mut master) = (TempDir::new(), Master::start(&[]));
    let mut worker = master.worker();
    let fifo = fifo(&dir);
    worker.link().send(&get("stream.php", &format!("fifo={fifo}")));
    worker.link().read_until("first ");
    master.close_pool();
    master.signal(Signal::TERM);
    open_fifo(&fifo);
    worker.link().read_until("second");
    assert!(worker.link().response().is_some());
    drop(worker);
    assert_eq!(master.wait().code(), Some(0));
}

#[test]
fn stuck_workers_say_where_they_are_and_are_replaced() {
    let (dir, mut master) = (TempDir::new(), Master::start_with(&[], Stdio::piped()));
    let mut log = BufReader::new(master.stderr()).lines();
    let mut line = || log.next().unwrap().unwrap();
    let mut worker = master.worker();
    let (fifo, pid) = (fifo(&dir), worker.pid.as_raw_nonzero());
    worker.link().send(&get("stream.php", &format!("fifo={fifo}")));
    worker.link().read_until("first ");
    // The script has opened the pipe and waits for data that never arrive.
    let _writer = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let request = "GET /x\nforged".into();
    master.tell(&ToMaster::Replace { pid: pid.get().unsigned_abs(), request });
    assert_eq!(line(), format!("sendoff-php: worker {pid} is stuck in GET /x?forged"));
    let said = format!("sendoff-php: worker {pid} of pool default: ");
    let ended = line();
    assert!(ended.starts_with(&format!("{said}it is ended in GET ")), "{ended}");
    assert_eq!(line(), format!("{said}  #0 file_get_contents()"));
    assert_eq!(line(), format!("{said}  #1 {{main}} at {}:6", script("stream.php")));
    assert_gone(&mut worker);
    // The next worker takes requests, and stops before it can answer.
    let mut worker = master.worker();
    let pid = worker.pid.as_raw_nonzero();
    assert_eq!(worker.link().ask(&get("hello.php", "")).body(), "Hello, world\n");
    kill_process(worker.pid, Signal::STOP).unwrap();
    master.tell(&ToMaster::Replace { pid: pid.get().unsigned_abs(), request: "GET /y".into() });
    assert_eq!(line(), format!("sendoff-php: worker {pid} is stuck in GET /y"));
    assert_eq!(line(), format!("sendoff-php: worker {pid} does not end: killed"));
    assert_gone(&mut worker);
    assert_eq!(master.worker().link().ask(&get("hello.php", "")).body(), "Hello, world\n");
}

/// The front may end right after this message, as it does when the server ends.
#[test]
fn the_last_words_of_a_front_count() {
    let (dir, mut master) = (TempDir::new(), Master::start(&[]));
    let mut worker = master.worker();
    let fifo = fifo(&dir);
    worker.link().send(&get("stream.php", &format!("fifo={fifo}")));
    worker.link().read_until("first ");
    master.signal(Signal::STOP);
    let pid = worker.pid.as_raw_nonzero().get().unsigned_abs();
    master.tell(&ToMaster::Replace { pid, request: "GET /".into() });
    master.close_pool();
    let since = Instant::now();
    master.signal(Signal::CONT);
    assert_eq!(master.wait().code(), Some(0));
    assert!(since.elapsed() < Duration::from_secs(15), "it waited for the script");
}

#[test]
fn only_workers_can_be_replaced() {
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let master = Master::start(&[]);
    let mut worker = master.worker();
    for pid in [other.id(), std::process::id(), 1, 0, u32::MAX, u32::MAX - other.id() + 1] {
        master.tell(&ToMaster::Replace { pid, request: "".into() });
    }
    // The earlier messages have been read by now.
    let pid = worker.pid.as_raw_nonzero().get().unsigned_abs();
    master.tell(&ToMaster::Replace { pid, request: "".into() });
    assert_gone(&mut worker);
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn workers_of_another_front_make_room_and_end_in_time() {
    let dir = TempDir::new();
    let master = Master::start(&["--workers", "2", "--request-timeout", "500ms"]);
    let (mut old, mut fresh) = (master.worker(), master.worker());
    let fifo = fifo(&dir);
    old.link().send(&get("stream.php", &format!("fifo={fifo}")));
    old.link().read_until("first ");
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let at = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    master.tell(&ToMaster::FrontStarted { at });
    let mut new = master.worker();
    assert_eq!(new.link().ask(&get("hello.php", "")).body(), "Hello, world\n");
    assert_gone(&mut old);
    // A worker without requests has served no other front.
    assert_eq!(fresh.link().ask(&get("hello.php", "")).body(), "Hello, world\n");
    // The message may be late: later requests belong to this front.
    master.tell(&ToMaster::FrontStarted { at });
    assert_eq!(new.link().ask(&get("hello.php", "")).body(), "Hello, world\n");
}

#[test]
fn a_master_without_a_front_ends() {
    let mut master = Master::start(&[]);
    let worker = master.worker();
    master.close_pool();
    drop(worker);
    assert_eq!(master.wait().code(), Some(0));
}

#[test]
fn sigterm_to_a_worker_ends_it_after_its_request() {
    let (dir, master) = (TempDir::new(), Master::start(&[]));
    let mut worker = master.worker();
    let fifo = fifo(&dir);
    worker.link().send(&get("stream.php", &format!("fifo={fifo}")));
    worker.link().read_until("first ");
    kill_process(worker.pid, Signal::TERM).unwrap();
    open_fifo(&fifo);
    worker.link().read_until("second");
    assert!(worker.link().response().is_some());
    assert_gone(&mut worker);
    assert_eq!(body(&mut master.worker(), "hello.php", ""), "Hello, world\n");
}

/// An idle worker ends too, although no system call is interrupted.
#[test]
fn sigterm_ends_an_idle_worker() {
    let master = Master::start(&["--links", "2"]);
    let mut worker = master.worker();
    kill_process(worker.pid, Signal::TERM).unwrap();
    assert_gone(&mut worker);
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: runs workers as another user")]
fn workers_run_as_the_user_given_and_keep_the_right_to_lease() {
    let master = Master::start(&["--uid", "65534", "--gid", "65534"]);
    let answer = body(&mut master.worker(), "process.php", "status");
    let lease = format!("{:016x}", 1_u64 << 28);
    let none = "0".repeat(16);
    for (name, value) in [
        ("Uid", r"65534\t65534\t65534\t65534"),
        ("Gid", r"65534\t65534\t65534\t65534"),
        ("Groups", "65534"),
        ("CapEff", &lease),
        ("CapPrm", &lease),
        ("CapInh", &none),
        ("CapAmb", &none),
        ("SigBlk", &none),
    ] {
        assert!(answer.contains(&format!("\"{name}\":\"{value}\"")), "{name}: {answer}");
    }
}

/// A worker has no descriptors of the master, of other workers or of the front's ends.
#[test]
fn a_worker_has_only_its_own_descriptors() {
    let master = Master::start(&["--workers", "3", "--links", "2", "--snapshot", "copy"]);
    let workers: Vec<_> = (0..3).map(|_| master.worker()).collect();
    for mut worker in workers {
        let answer = body(&mut worker, "process.php", "fds");
        // Two links, the guard, and the socket for questions about the pool; the master's pool
        // socket and the front's ends would exceed that.
        assert!(answer.contains(r#""socket:[]":4"#), "{answer}");
        assert!(!answer.contains("signalfd"), "{answer}");
    }
}

/// Each request has the whole time limit, and only the request that exceeds it is ended.
#[test]
fn the_time_limit_is_per_request() {
    let master = Master::start(&["--php-ini", "max_execution_time=1"]);
    let mut worker = master.worker();
    for _ in 0..3 {
        assert_eq!(body(&mut worker, "burn.php", "0.6"), "done");
    }
    let over = worker.link().ask(&get("burn.php", "5"));
    assert!(over.head().starts_with("Status: 500"), "{}", over.head());
    assert!(over.log().contains("Maximum execution time of 1 second exceeded"), "{}", over.log());
    assert_eq!(body(&mut worker, "burn.php", "0.6"), "done");
}

#[test]
fn sleep_is_not_cut_short() {
    let master = Master::start(&[]);
    assert_eq!(body(&mut master.worker(), "process.php", "sleep"), "0 slept");
}

#[test]
fn what_a_script_writes_to_stderr_goes_to_the_log() {
    let mut master = Master::start_with(&[], Stdio::piped());
    let mut log = BufReader::new(master.stderr()).lines();
    let mut worker = master.worker();
    let pid = worker.pid.as_raw_nonzero();
    body(&mut worker, "process.php", "stderr");
    let expected = format!("sendoff-php: worker {pid} of pool default: to descriptor 2");
    assert_eq!(log.next().unwrap().unwrap(), expected);
    worker.link().send(&get("process.php", "kill"));
    let line = log.next().unwrap().unwrap();
    assert_eq!(line, format!("sendoff-php: worker {pid} was killed by signal 9"));
}

#[test]
fn a_script_cannot_change_the_servers_log() {
    let dir = TempDir::new();
    let log = dir.file("error.log");
    fs::write(&log, "before\n").unwrap();
    let file = fs::OpenOptions::new().append(true).open(&log).unwrap();
    let code = "<?php foreach (['stdout', 'stderr'] as $n) {
            $log = \"/dev/$n\";
            echo stat($log)['mode'] >> 12, ' ';
            file_put_contents(\"php://$n\", \"sendoff-php: worker 1 was killed\\nline\\x1b $n\");
            exec(\"truncate -s 0 $log 2> /dev/null\");
        }";
    fs::write(dir.file("a.php"), code).unwrap();
    let master = Master::start_with(&[], file.into());
    let mut worker = master.worker();
    assert_eq!(worker.link().ask(&Request::new(&dir.file("a.php"))).body(), "1 1 ");
    worker.link().send(&get("process.php", "kill"));
    assert!(worker.link().response().is_none());
    // The next worker starts after the master has logged the end of this one.
    master.worker();
    let pid = worker.pid.as_raw_nonzero();
    let said = format!("sendoff-php: worker {pid} of pool default: ");
    let expected = format!(
        "before\n{said}sendoff-php: worker 1 was killed\n{said}line\\u{{1b}} stdoutsendoff-php: worker 1 was killed\n\
         {said}line\\u{{1b}} stderr\nsendoff-php: worker {pid} was killed by signal 9\n"
    );
    assert_eq!(fs::read_to_string(&log).unwrap(), expected);
}

/// A program in the background goes on printing after the end of the worker that has started it,
/// and neither keeps the worker nor blocks the master.
#[test]
fn what_outlives_a_worker_still_prints() {
    let (dir, mut master) = (TempDir::new(), Master::start_with(&[], Stdio::piped()));
    let fifo = fifo(&dir);
    let code = format!("<?php exec('(cat {fifo}; echo later >&2) > /dev/null &'); echo 'started';");
    fs::write(dir.file("a.php"), code).unwrap();
    let mut log = BufReader::new(master.stderr()).lines();
    let mut worker = master.worker();
    assert_eq!(worker.link().ask(&Request::new(&dir.file("a.php"))).body(), "started");
    let pid = worker.pid.as_raw_nonzero();
    kill_process(worker.pid, Signal::KILL).unwrap();
    let line = log.next().unwrap().unwrap();
    assert_eq!(line, format!("sendoff-php: worker {pid} was killed by signal 9"));
    master.worker();
    open_fifo(&fifo);
    let line = log.next().unwrap().unwrap();
    assert_eq!(line, format!("sendoff-php: worker {pid} of pool default: later"));
}

#[test]
fn a_flood_hides_no_last_words() {
    let dir = TempDir::new();
    let code =
        "<?php for ($i = 0; $i < 20000; $i++) file_put_contents('php://stderr', \"flood\\n\");
        posix_kill(getmypid(), 11);";
    fs::write(dir.file("a.php"), code).unwrap();
    let log = dir.file("error.log");
    let file = fs::File::create(&log).unwrap();
    let master = Master::start_with(&[], file.into());
    let mut worker = master.worker();
    worker.link().send(&Request::new(&dir.file("a.php")));
    assert!(worker.link().response().is_none());
    let pid = worker.pid.as_raw_nonzero();
    master.worker();
    let logged = fs::read_to_string(&log).unwrap();
    let said = format!("sendoff-php: worker {pid} of pool default: ");
    let report = &logged[logged.find("it crashes (signal 11)").unwrap()..];
    assert!(report.contains(&format!("\n{said}  #0 posix_kill()\n{said}  #1 {{main}} at ")));
    assert!(report.contains(&format!("worker {pid} was killed by signal 11\n")), "{report}");
}

#[test]
fn nonsense_on_the_command_line_is_refused_with_a_sentence() {
    let text = std::env::temp_dir().join(format!("sendoff-no-config-{}", std::process::id()));
    fs::write(&text, "{}").unwrap();
    let garbage = fs::File::open(&text).unwrap();
    rustix::io::fcntl_setfd(&garbage, rustix::io::FdFlags::empty()).unwrap();
    fs::remove_file(&text).unwrap();
    let garbage = garbage.as_raw_fd().to_string();
    for (options, complaint) in [
        (&["--config-fd", "77", "--pool-fd", "78"][..], "--config-fd 77: Bad file"),
        (&["--config-fd", "2", "--pool-fd", "78"], "--config-fd 2: Bad file"),
        (&["--config-fd", &garbage, "--pool-fd", "78"], "not from this version of sendoff"),
        (&["--pool-fd", "3"], "--config-fd"),
        (&["--config-fd", "many", "--pool-fd", "3"], "--config-fd"),
        (&["--config-fd", "3", "--pool-fd", "3", "--workers", "1"], "--workers"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sendoff-php"));
        let out = command.args(["--pool", "0"]).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(complaint), "{options:?}: {said}");
    }
}
