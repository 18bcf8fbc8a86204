//! The effect of each signal on a running server.

use rustix::process::Signal;
use sendoff_tests::{Broken, LIMIT, Request, Server, Site, dies_with_us, processes, wait};
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The path of a log in a folder that only the user of the supervisor may enter.
fn private_log(site: &Site) -> PathBuf {
    let folder = site.outside("log");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    folder.join("access.log")
}

/// True if a process has the file open.
fn has_open(pid: u32, path: &Path) -> bool {
    processes::descriptors(pid).iter().any(|open| Path::new(open) == path)
}

#[test]
fn a_renamed_access_log_is_written_anew_after_sigusr1_and_no_line_is_lost() {
    let site = Site::waiting();
    let log = private_log(&site);
    let server =
        Server::start(site.root(), &["--threads", "2", "--access-log", log.to_str().unwrap()]);
    let front = server.front();
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let mut asked = 0;
    let mut ask = |rotation: usize| {
        for _ in 0..10 {
            for client in &mut clients {
                let target = format!("/a.txt?{asked}");
                assert_eq!(client.ask(&Request::get(&target)).text(), "static", "{rotation}");
                asked += 1;
            }
        }
    };
    let old = |rotation: usize| log.with_extension(rotation.to_string());
    ask(0);
    for rotation in 0..5 {
        fs::rename(&log, old(rotation)).unwrap();
        ask(rotation);
        server.signal(Signal::USR1);
        let reopened = || has_open(front, &log) && !has_open(front, &old(rotation));
        assert!(wait::until(LIMIT, reopened), "{:?}", processes::descriptors(front));
        ask(rotation);
    }
    assert_eq!(server.front(), front);
    server.signal(Signal::TERM);
    let (status, _) = server.await_end();
    assert_eq!(status.code(), Some(0));
    let files = (0..5).map(old).chain([log.clone()]);
    let text: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let mut numbers: Vec<usize> = text
        .lines()
        .map(|line| line.split_once("a.txt?").unwrap().1.split_once(' ').unwrap().0)
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..asked).collect::<Vec<_>>());
    assert!(!fs::read_to_string(&log).unwrap().is_empty(), "lines after the last rotation");
}

#[test]
fn a_log_that_cannot_be_opened_again_goes_on_in_the_old_file() {
    let site = Site::waiting();
    let log = private_log(&site);
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    let moved = site.outside("moved");
    fs::rename(log.parent().unwrap(), &moved).unwrap();
    server.signal(Signal::USR1);
    server.await_log("lines still go to the old file");
    assert_eq!(server.page("/ok.php"), "ok");
    let written = || fs::read_to_string(moved.join("access.log")).unwrap().contains("/ok.php");
    assert!(wait::until(LIMIT, written));
}

#[test]
fn signals_that_do_not_end_the_server_end_none_of_its_processes() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    let parts = [server.front(), server.php_master()];
    for signal in [Signal::HUP, Signal::USR1] {
        for process in [server.pid(), parts[0], parts[1]] {
            processes::signal(process, signal);
        }
    }
    for process in parts {
        processes::signal(process, Signal::USR2);
    }
    server.await_log("reloaded");
    assert_eq!(server.page("/ok.php"), "ok");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    assert_eq!([server.front(), server.php_master()], parts);
    assert!(!server.log().contains("started again"), "{}", server.log());
}

#[test]
fn sigusr2_replaces_the_workers_of_every_pool_and_cuts_nothing() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let (front, master, workers) = (server.front(), server.php_master(), server.workers());
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    server.signal(Signal::USR2);
    server.await_log("reloaded, with new workers in 1 pool");
    assert_eq!(server.page("/ok.php"), "ok");
    assert!(processes::runs(master), "it has a worker that is at work");
    pipe.release();
    assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
    assert!(wait::until(LIMIT, || !processes::runs(master)), "{}", server.log());
    let now = server.workers();
    assert!(now.len() == workers.len() && now.iter().all(|worker| !workers.contains(worker)));
    assert_eq!(server.front(), front);
}

#[test]
fn sigint_cuts_what_is_under_way_and_its_log_line_is_written() {
    let site = Site::waiting();
    let _never_released = site.fifo("pipe");
    let log = private_log(&site);
    let options = ["--shutdown-timeout", "1h", "--access-log", log.to_str().unwrap()];
    // Also while the server drains already.
    for before in [None, Some(Signal::TERM)] {
        let server = Server::start(site.root(), &options);
        let mut client = server.connect();
        client.send(Request::get("/wait.php").bytes());
        let head = client.head().unwrap();
        if let Some(signal) = before {
            server.signal(signal);
            let refuses = || std::net::TcpStream::connect(server.addr()).is_err();
            assert!(wait::until(LIMIT, refuses));
        }
        server.signal(Signal::INT);
        let (status, said) = server.await_end();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(matches!(client.body_of(head, "GET"), Err(Broken::Cut(_))));
        let lines = fs::read_to_string(&log).unwrap();
        assert!(lines.contains("GET /wait.php"), "{lines}");
        assert!(!said.contains("panicked") && !said.contains("killed"), "{said}");
        fs::remove_file(&log).unwrap();
    }
}

#[test]
fn a_server_that_is_about_to_leave_says_so_and_serves_on() {
    let site = Site::with("a.txt", "static");
    let config = "listen = '127.0.0.1:0'\nthreads = 1\ndrain_delay = '1h'\n\
        [[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n\
        [[site.route]]\npath = '/ready'\nready = true\n";
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 1).unwrap();
    assert_eq!(server.get("/ready").text(), "ready\n");
    server.signal(Signal::TERM);
    assert!(wait::until(LIMIT, || server.get("/ready").status() == 503));
    for _ in 0..10 {
        assert_eq!(server.get("/a.txt").text(), "static");
        server.get("/ready").expect(503);
    }
    // A second signal waits for nothing.
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A server in the foreground of a terminal that belongs to another process: `script` relays its
/// input.
#[test]
fn the_terminal_of_the_server_stops_no_script_and_its_ctrl_c_ends_everything() {
    let site = Site::with("asks.php", "<?php echo exec('head -c 1 /dev/tty 2>&1; echo done');");
    site.write("ok.php", "<?php echo getmypid();");
    let (socket, log) = (site.outside("sendoff.sock"), site.outside("said"));
    let config = format!(
        "listen = 'unix:{}'\nthreads = 1\n[[pool]]\nname = 'php'\nworkers = 2\n\
         [[pool]]\nname = 'program'\nworkers = 1\ncommand = ['/bin/sleep', '9999']\n\
         [[site]]\nroot = 'root'\npool = 'php'\nfastcgi = {{ '/program' = 'pool:program' }}\n",
        socket.display()
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let command = format!(
        "exec setpriv --pdeathsig KILL -- {} run --config {} > {} 2>&1",
        sendoff_tests::binary().display(),
        config.display(),
        log.display()
    );
    let mut terminal = dies_with_us(Path::new("script"), "KILL")
        .args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"])
        .env("XDG_RUNTIME_DIR", site.outside("run"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&log).unwrap_or_default();
    assert!(wait::until(LIMIT, || UnixStream::connect(&socket).is_ok()), "{}", said());
    let get = |target: &str| {
        let mut client = UnixStream::connect(&socket).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        write!(client, "GET {target} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{target}: {error}"));
        answer.rsplit_once("\r\n\r\n").unwrap_or_default().1.to_owned()
    };
    assert_eq!(get("/asks.php"), "done", "{}", said());
    let worker: u32 = get("/ok.php").parse().unwrap();
    // Also the processes of a program.
    let server = processes::parent(processes::parent(worker).unwrap()).unwrap();
    let family = processes::descendants(server);
    let with_terminal: Vec<_> =
        family.iter().filter(|pid| processes::has_terminal(**pid)).collect();
    assert!(family.len() >= 6 && with_terminal.is_empty(), "{with_terminal:?} of {family:?}");
    terminal.stdin.take().unwrap().write_all(b"\x03").unwrap();
    let mut status = None;
    let has_ended = || {
        status = terminal.try_wait().unwrap();
        status.is_some()
    };
    assert!(wait::until(LIMIT, has_ended), "{}", said());
    assert_eq!(status.unwrap().code(), Some(0), "{}", said());
    assert!(wait::until(LIMIT, || !family.iter().any(|pid| processes::runs(*pid))));
    assert!(!said().contains("killed"), "{}", said());
}
