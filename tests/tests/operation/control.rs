//! `sendoff status`, `reopen` and `stop`, and clients of the control socket that mean no good.

use rustix::process::Signal;
use sendoff_tests::{Broken, LIMIT, Request, Server, Site, processes, sendoff, wait};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

#[test]
fn status_shows_connections_and_what_workers_do() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--threads", "2"]);
    let mut busy = server.connect();
    busy.send(Request::get("/wait.php?x=1").bytes());
    let head = busy.head().unwrap();
    let mut idle = server.connect();
    assert_eq!(idle.ask(&Request::get("/ok.php")).text(), "ok");
    let mut status = String::new();
    // The event loop may not have noticed yet that the response has been read.
    wait::until(LIMIT, || {
        status = server.command(&["status"]).unwrap();
        status.contains("connections  2, 1 of them idle")
    });
    for expected in [
        format!("process {}, running for ", server.pid()),
        format!("listens on   {}", server.addr()),
        format!("site         default: {}", site.root().display()),
        "connections  2, 1 of them idle".to_owned(),
        "pool         default: 4 workers, 1 busy, 0 waiting".to_owned(),
        "GET /wait.php".to_owned(),
        "last reload  never".to_owned(),
    ] {
        assert!(status.contains(&expected), "{expected:?} is not in\n{status}");
    }
    let json = server.command(&["status", "--json"]).unwrap();
    for worker in server.workers() {
        assert!(status.contains(&format!(" {worker} ")), "{worker} is not in\n{status}");
        assert!(json.contains(&format!("\"pid\": {worker},")), "{worker} is not in\n{json}");
    }
    assert!(json.contains("\"connections\": 2,"), "{json}");
    pipe.release();
    assert_eq!(busy.body_of(head, "GET").unwrap().body, b"first last");
}

/// One worker, so that a request waits; another one's body does not come to its end.
#[test]
fn status_says_of_each_request_how_old_it_is_whose_and_how_far() {
    let site = Site::waiting();
    site.write("silent.php", "<?php file_get_contents('pipe'); echo 'done';");
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--threads", "2", "--workers", "1"]);
    let ask = |request: Request| {
        let mut client = server.connect();
        client.send(request.bytes());
        client
    };
    let mut status = String::new();
    let mut shows = |parts: &[&str]| {
        let shown = wait::until(LIMIT, || {
            status = server.command(&["status"]).unwrap();
            status.lines().any(|line| parts.iter().all(|part| line.contains(part)))
        });
        assert!(shown, "{parts:?} is not in\n{status}");
    };
    let mut first = ask(Request::get("/silent.php?a").header("Host", "shop.test"));
    let worker = format!(" {} ", server.workers()[0]);
    let whose = " s  127.0.0.1  default (shop.test)  GET /silent.php?a";
    shows(&[&worker, "  running ", whose]);
    let mut second = ask(Request::get("/ok.php").header("Host", "shop.test"));
    shows(&["request      waiting for worker ", "  127.0.0.1  ", "GET /ok.php"]);
    let mut third = server.connect();
    third.send("POST /ok.php HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx");
    shows(&["request      reading body ", "POST /ok.php"]);
    let json = server.command(&["status", "--json"]).unwrap();
    for expected in [
        "\"phase\": \"running\"",
        "\"phase\": \"waiting\"",
        "\"phase\": \"reading_body\"",
        "\"client\": \"127.0.0.1\"",
        "\"host\": \"shop.test\"",
        "\"age\": ",
    ] {
        assert!(json.contains(expected), "{expected} is not in\n{json}");
    }
    pipe.release();
    assert_eq!(first.response("GET").text(), "done");
    assert_eq!(second.response("GET").text(), "ok");
    third.send("y");
    assert_eq!(third.response("POST").text(), "ok");
    let none = wait::until(LIMIT, || !server.command(&["status"]).unwrap().contains("ok.php"));
    assert!(none, "a request is listed behind its end");
}

#[test]
fn workers_at_work_are_shown_before_idle_ones() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--threads", "1", "--workers", "4"]);
    let mut busy = server.connect();
    busy.send(Request::get("/wait.php").bytes());
    let head = busy.head().unwrap();
    let status = server.command(&["status"]).unwrap();
    let workers = server.workers();
    let of_worker =
        |line: &&str| workers.iter().any(|worker| line.contains(&format!(" {worker} ")));
    let mut lines = status.lines().filter(|line| !line.starts_with("sendoff ")).filter(of_worker);
    let first = lines.next().unwrap();
    assert!(first.contains("  sending ") && first.contains("GET /wait.php"), "{status}");
    assert!(lines.all(|line| line.ends_with("  idle")), "{status}");
    pipe.release();
    busy.body_of(head, "GET").unwrap();
}

#[test]
fn status_counts_what_each_site_was_sent_also_after_a_reload() {
    let site = Site::waiting();
    site.write("big.php", "<?php readfile('big');");
    site.write("big", vec![b'x'; 2_000_000]);
    let write = |sites: &[&str]| {
        let sites = sites.iter().map(|host| format!("[[site]]\nhosts = '{host}'\nroot = 'root'\n"));
        let text = format!("listen = '127.0.0.1:0'\nthreads = 2\n{}", sites.collect::<String>());
        site.write_at(site.outside("sendoff.toml"), text)
    };
    let config = write(&["a.test", "b.test"]);
    let server = Server::try_run_with(&config, site.root(), 4, 2).unwrap();
    let ask = |host: &str, target: &str| {
        server.ask(&Request::get(target).header("Host", host)).expect(200);
    };
    ask("a.test", "/a.txt");
    ask("a.test", "/ok.php");
    ask("b.test", "/big.php");
    let shows = |expected: &[&str]| {
        let mut status = String::new();
        // A response is counted when its last byte has left.
        let shown = wait::until(LIMIT, || {
            status = server.command(&["status"]).unwrap();
            expected.iter().all(|line| status.contains(line))
        });
        assert!(shown, "{expected:?}\n{status}");
    };
    let of_b = "1 request, 2.0 MB handed over, 0.0 MB copied";
    let root = site.root().display();
    shows(&[
        "sent         3 requests, 2.0 MB handed over",
        &format!("site         a.test: {root}: 2 requests, 0.0 MB"),
        &format!("site         b.test: {root}: {of_b}"),
        " 0 waiting, 2 requests\n",
    ]);
    write(&["c.test", "b.test"]);
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    ask("c.test", "/a.txt");
    shows(&[
        &format!("site         c.test: {root}: 1 request, 0.0 MB"),
        &format!("site         b.test: {root}: {of_b}"),
    ]);
}

#[test]
fn status_of_a_thousand_sites_is_short() {
    let site = Site::waiting();
    let sites = (0..1000).map(|n| format!("[[site]]\nhosts = 's{n}.test'\nroot = 'root'\n"));
    let text = format!("listen = '127.0.0.1:0'\nthreads = 1\n{}", sites.collect::<String>());
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 4).unwrap();
    server.ask(&Request::get("/a.txt").header("Host", "s777.test")).expect(200);
    let mut status = String::new();
    let busy = || {
        status = server.command(&["status"]).unwrap();
        status.contains("s777.test")
    };
    assert!(wait::until(LIMIT, busy));
    assert!(status.lines().count() < 50, "{status}");
    assert!(status.contains("and 968 sites with fewer requests"), "{status}");
    let json = server.command(&["status", "--json"]).unwrap();
    assert_eq!(json.matches("\"handed_over\"").count(), 1000);
}

#[test]
fn a_server_is_found_by_its_port_among_several() {
    let site = Site::waiting();
    let (one, two) = (Server::start(site.root(), &[]), Server::start(site.root(), &[]));
    let status = |options: &[&str]| sendoff(site.root(), &[&["status"], options].concat());
    for server in [&one, &two] {
        let (address, port) = (server.addr().to_string(), server.addr().port().to_string());
        for listen in [address, port] {
            let status = status(&["--listen", &listen]).unwrap();
            assert!(status.contains(&format!("process {},", server.pid())), "{status}");
        }
    }
    let unclear = status(&[]).unwrap_err();
    assert!(unclear.contains("choose one by --listen"), "{unclear}");
    assert_eq!(unclear.lines().count(), 1, "{unclear}");
    // Nothing can listen on port 0.
    let missing = status(&["--listen", "0"]).unwrap_err();
    assert_eq!(
        missing,
        "sendoff: no sendoff server of this user listens on 0 on this machine: \
         ask as the user that has started it, or name its socket by --socket\n"
    );
    let nowhere = site.outside("nowhere");
    let missing = status(&["--socket", nowhere.to_str().unwrap()]).unwrap_err();
    assert!(missing.contains("no sendoff server answers at"), "{missing}");
    assert_eq!(missing.lines().count(), 1, "{missing}");
}

#[test]
fn a_server_that_does_not_answer_holds_up_no_command_for_another() {
    let site = Site::waiting();
    let (well, stopped) = (Server::start(site.root(), &[]), Server::start(site.root(), &[]));
    processes::signal(stopped.pid(), Signal::STOP);
    let port = well.addr().port().to_string();
    let status = sendoff(site.root(), &["status", "--listen", &port]).unwrap();
    assert!(status.contains(&format!("process {},", well.pid())), "{status}");
    let missing = sendoff(site.root(), &["status", "--listen", "0"]).unwrap_err();
    let expected = format!("there is process {}, which does not answer\n", stopped.pid());
    assert!(missing.ends_with(&expected), "{missing}");
    processes::signal(stopped.pid(), Signal::CONT);
}

#[test]
fn stop_waits_for_open_responses_and_for_the_end_of_the_server() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| server.command(&["stop"]));
        let refuses = || std::net::TcpStream::connect(server.addr()).is_err();
        assert!(wait::until(LIMIT, refuses));
        let ending = server.command(&["status"]).unwrap_err();
        assert!(ending.contains("the server is ending"), "{ending}");
        pipe.release();
        assert_eq!(client.body_of(head, "GET").unwrap().body, b"first last");
        assert_eq!(stopping.join().unwrap().unwrap(), "the server has ended\n");
    });
    let socket = server.control_socket();
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!socket.exists());
}

#[test]
fn stop_now_cuts_open_responses() {
    let site = Site::waiting();
    let _never_released = site.fifo("pipe");
    let server = Server::start(site.root(), &["--shutdown-timeout", "1h"]);
    let mut client = server.connect();
    client.send(Request::get("/wait.php").bytes());
    let head = client.head().unwrap();
    assert_eq!(server.command(&["stop", "--now"]).unwrap(), "the server has ended\n");
    assert!(matches!(client.body_of(head, "GET"), Err(Broken::Cut(_))));
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
}

#[test]
fn reopen_says_what_it_did() {
    let site = Site::waiting();
    let log = site.outside("access.log");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    fs::rename(&log, site.outside("access.log.1")).unwrap();
    let said = server.command(&["reopen"]).unwrap();
    assert_eq!(said, format!("{} was opened again\n", log.display()));
    assert_eq!(server.page("/ok.php"), "ok");
    assert!(wait::until(LIMIT, || fs::read_to_string(&log).unwrap().contains("/ok.php")));
}

#[test]
fn clients_that_stall_or_send_nonsense_hurt_nothing() {
    let site = Site::waiting();
    let server = Server::start(site.root(), &[]);
    let socket = server.control_socket();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let folder = fs::metadata(socket.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    let connect = || UnixStream::connect(&socket).unwrap();
    // More clients than are served at a time: some send nothing, some half a command, some too
    // much, some do not read.
    let mut stalled: Vec<_> = (0..24).map(|_| connect()).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        let bytes: &[u8] = [&b""[..], b"stat", &[b'x'; 100_000], b"status\n"][number % 4];
        // The server may have closed the connection already.
        let _ = client.write_all(&bytes[..bytes.len().min(60_000)]);
    }
    assert_eq!(server.page("/ok.php"), "ok");
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("4 workers"), "{status}");
    for nonsense in [&b"\n"[..], b"status \xff\n", b"stop now please\n", b"{}\n"] {
        let mut client = connect();
        client.write_all(nonsense).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "{\"Failed\":\"that is no command\"}\n", "{nonsense:?}");
    }
    assert_eq!(server.page("/ok.php"), "ok");
}
