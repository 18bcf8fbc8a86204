//! Applications on several hosts (`docs/upstreams.md`): servers in Python, and nginx.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sendoff_tests::load::answering;
use sendoff_tests::{Authority, Client, LIMIT, Request, Server, Site, Stock, dies_with_us, wait};

use crate::responder::Responder;
use crate::{ajp, scgi, serve};

/// Answers with its name, in one piece, and notes each `POST` before.
const APP: &str = r"
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        time.sleep(0.001)
        name = sys.argv[2].encode()
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s' % (len(name), name))
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        note = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(note, self.path.encode() + b'\n')
        os.close(note)
        self.do_GET()
    def log_message(self, *words):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
";

/// A server in Python that can be killed and started again at its address.
pub(crate) struct Python {
    name: &'static str,
    script: std::path::PathBuf,
    ran: std::path::PathBuf,
    pub(crate) addr: SocketAddr,
    child: Option<Child>,
}

impl Python {
    pub(crate) fn start(site: &Site, name: &'static str) -> Self {
        let script = site.write_at(site.outside("app.py"), APP);
        let ran = site.outside("ran");
        let mut this = Self { name, script, ran, addr: ([127, 0, 0, 1], 0).into(), child: None };
        // Another process may take the port in between.
        let started = (0..5).any(|_| {
            this.addr = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
            this.try_run()
        });
        assert!(started, "the server in Python does not start");
        this
    }

    pub(crate) fn try_run(&mut self) -> bool {
        let mut child = dies_with_us(Path::new("/usr/bin/python3"), "KILL")
            .args([self.script.to_str().unwrap(), &self.addr.port().to_string(), self.name])
            .arg(&self.ran)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3");
        let answers = || std::net::TcpStream::connect(self.addr).is_ok();
        let is_up = wait::until(LIMIT, || answers() || child.try_wait().unwrap().is_some());
        let is_up = is_up && child.try_wait().unwrap().is_none();
        self.child = Some(child);
        is_up
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// nginx that answers with `c`.
fn nginx(site: &Site) -> Stock {
    Stock::nginx(site.root(), "", "location / { return 200 c; }")
}

/// A server that passes requests on to these hosts.
pub(crate) fn balance(
    site: &Site,
    scheme: &str,
    hosts: &[String],
    keys: &str,
    more: &str,
) -> Server {
    serve(
        site,
        &format!(
            "[[site.route]]\nproxy = {{ to = '{scheme}://upstream:app'{more} }}\n\
             [[upstream]]\nname = 'app'\nhosts = {hosts:?}\n{keys}\n"
        ),
    )
}

#[test]
fn each_host_gets_its_share_and_spare_ones_wait() {
    let site = Site::new();
    let (mut a, mut b, c) = (Python::start(&site, "a"), Python::start(&site, "b"), nginx(&site));
    let hosts = [format!("{} weight=3", a.addr), b.addr.to_string(), format!("{} spare", c.addr())];
    let keys = "fails = 1\nretry_after = '1m'\nslow_start = '0s'";
    let server = balance(&site, "http", &hosts, keys, "");
    let shares = answering(server.addr(), 40, &Request::get("/"));
    assert_eq!((shares["a"], shares["b"], shares.len()), (30, 10, 2), "{shares:?}");
    let report = server.explain("/", &[]).unwrap();
    assert!(report.contains("http://upstream:app, tcp:127.0.0.1:"), "{report}");
    a.kill();
    b.kill();
    let shares = answering(server.addr(), 10, &Request::get("/"));
    assert_eq!(shares.get("c"), Some(&10), "{shares:?}");
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("app: 3 hosts, 1 up, "), "{status}");
    assert!(status.contains(&format!("{}: 0 busy, 10 requests, up", c.addr())), "{status}");
    drop(c);
    assert_eq!(server.get("/").status(), 502);
    // All are down: they are tried whenever there is a request.
    assert!(b.try_run());
    assert_eq!(server.page("/"), "b");
}

/// The responses that one client has seen.
#[derive(Default)]
struct Seen {
    gets: usize,
    posted: Vec<String>,
    lost: usize,
}

/// Asks until it is told to stop.
fn keep_asking(addr: SocketAddr, name: usize, stop: &AtomicBool) -> Seen {
    let (mut client, mut seen) = (Client::connect(addr), Seen::default());
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..3 {
            let response = client.ask(&Request::get("/"));
            assert_eq!(response.status(), 200, "GET: {}", response.text());
            seen.gets += 1;
        }
        let n = format!("/{name}.{}", seen.posted.len() + seen.lost);
        match client.ask(&Request::post(&n, "text/plain", "x")).status() {
            200 => seen.posted.push(n),
            502 => seen.lost += 1,
            other => panic!("POST: {other}"),
        }
    }
    seen
}

const CLIENTS: usize = 8;

/// Idempotent requests go to another host. Others are lost only if a host had received them, and
/// run at most once.
#[test]
fn two_of_three_hosts_die_and_return() {
    let site = Site::new();
    let mut dying = [Python::start(&site, "a"), Python::start(&site, "b")];
    // nginx notes nothing, so it answers a POST with another name.
    let c = nginx(&site);
    let hosts: Vec<_> = [dying[0].addr, dying[1].addr, c.addr()].map(|at| at.to_string()).into();
    let keys = "fails = 1\nretry_after = '100ms'\nslow_start = '0s'\nprobe = '100ms'";
    let server = balance(&site, "http", &hosts, keys, "");
    let stop = AtomicBool::new(false);
    let says = |what: &str| server.command(&["status"]).unwrap().contains(what);
    let seen: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| (n, server.addr(), &stop))
            .map(|(n, addr, stop)| scope.spawn(move || keep_asking(addr, n, stop)))
            .collect();
        for _ in 0..3 {
            dying.iter_mut().for_each(Python::kill);
            assert!(wait::until(LIMIT, || says("3 hosts, 1 up")));
            dying.iter_mut().for_each(|app| assert!(app.try_run()));
            assert!(wait::until(LIMIT, || says("3 hosts, 3 up")));
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let lost: usize = seen.iter().map(|seen| seen.lost).sum();
    assert!(lost <= 3 * CLIENTS, "{lost} were lost");
    assert!(seen.iter().all(|seen| seen.gets > 0 && !seen.posted.is_empty()));
    let ran = std::fs::read_to_string(site.outside("ran")).unwrap();
    let mut times = HashMap::new();
    ran.lines().for_each(|n| *times.entry(n).or_insert(0) += 1);
    assert!(!times.is_empty() && times.values().all(|times| *times == 1), "{times:?}");
    let shares = answering(server.addr(), 30, &Request::get("/"));
    assert_eq!(shares.len(), 3, "{shares:?}");
}

/// An address on which nothing listens: a port that was free a moment ago.
pub(crate) fn nowhere() -> String {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string()
}

#[test]
fn the_other_protocols_have_several_hosts_too() {
    let scgi = Responder::start(scgi::answer_ok);
    let ajp = Responder::start(ajp::answer_ok);
    for (scheme, app) in [("scgi", scgi), ("ajp", ajp)] {
        let site = Site::new();
        let hosts = [nowhere(), app.addr().to_string()];
        let server = balance(&site, scheme, &hosts, "fails = 2", "");
        for n in 0..6 {
            // The failed host has read nothing of the request, so a POST goes to the next host as
            // well.
            let request = [Request::get("/"), Request::post("/", "text/plain", "abc")];
            assert_eq!(server.ask(&request[n % 2]).expect(200), b"ok", "{scheme} {n}");
        }
        server.await_log("sent to another host: it cannot be connected to");
        server.await_log("the host is down");
    }
}

#[test]
fn an_outage_is_a_few_lines_of_the_log() {
    let site = Site::new();
    let hosts = [nowhere(), nowhere()];
    let server = balance(&site, "http", &hosts, "", "");
    let mut client = server.connect();
    for number in 0..100 {
        let request =
            if number % 2 == 0 { Request::get("/") } else { Request::post("/", "a/b", "x") };
        assert_eq!(client.ask(&request).status(), 502);
    }
    let log = server.log();
    let lines = log.lines().filter(|line| hosts.iter().any(|host| line.contains(host)));
    // Each is down, and each is the first and the last that a request tries.
    assert!((2..=8).contains(&lines.count()), "{log}");
}

#[test]
fn hosts_behind_tls_have_the_name_of_the_application() {
    let (site, behind) = (Site::new(), Site::with("a.txt", "over TLS"));
    let authority = Authority::new();
    let certificate = authority.issue(&["app.test"], &behind.outside("tls"), "app");
    let (chain, key) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
    let app = Server::start(behind.root(), &options);
    let roots = site.write_at(site.outside("roots.pem"), authority.pem());
    let hosts = [nowhere(), app.tls_addr().unwrap().to_string()];
    let more = format!(", tls_name = 'app.test', roots = '{}'", roots.display());
    let server = balance(&site, "https", &hosts, "", &more);
    for _ in 0..4 {
        assert_eq!(server.page("/a.txt"), "over TLS");
    }
}

/// A host has at most as many requests as the upstream says; others wait for their turn.
#[test]
fn a_host_gets_no_more_requests_than_its_limit() {
    let site = Site::new();
    let go = site.fifo("go");
    let path = site.path("go");
    let app = Responder::start(move |peer| {
        loop {
            peer.request()?;
            // Until the test lets it go on.
            std::fs::read(&path).ok()?;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
    });
    let server = balance(&site, "http", &[app.addr().to_string()], "connections = 1", "");
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            client.send(Request::get("/").bytes());
            client
        })
        .collect();
    assert!(wait::until(LIMIT, || server.command(&["status"]).unwrap().contains(": 3 busy")));
    for done in 1..=3 {
        assert!(wait::until(LIMIT, || app.seen().len() == done), "{}", app.seen().len());
        go.release();
    }
    assert!(clients.iter_mut().all(|client| client.response("GET").expect(200) == b"ok"));
    assert_eq!(app.connections(), 1);
}

/// An application that answers requests of `/up` with what the test has set, and others with its
/// name.
fn checked(name: &'static str, health: &Arc<Mutex<&'static str>>) -> Responder {
    let health = Arc::clone(health);
    Responder::start(move |peer| {
        loop {
            let request = peer.request()?;
            let answer = match request.starts_with("GET /up ") {
                true => health.lock().unwrap().to_owned(),
                false => format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{name}"),
            };
            peer.say(answer)?;
        }
    })
}

const WELL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nI am ready.\n";

#[test]
fn a_host_is_up_while_it_answers_checks_as_it_should() {
    let site = Site::new();
    let health = Arc::new(Mutex::new(WELL));
    let (a, b) = (checked("a", &health), checked("b", &Arc::new(Mutex::new(WELL))));
    let keys = "fails = 2\nslow_start = '0s'\n\
                probe = { every = '50ms', path = '/up', host = 'check.test', status = 200, body = 'ready' }";
    let hosts = [&a, &b].map(|app| app.addr().to_string());
    let server = balance(&site, "http", &hosts, keys, ", connect_timeout = '200ms'");
    let says = |what: &str| server.command(&["status"]).unwrap().contains(what);
    let shares = || answering(server.addr(), 10, &Request::get("/"));
    assert!(wait::until(LIMIT, || a.seen().iter().any(|request| request.starts_with("GET /up "))));
    let check = a.seen().swap_remove(0);
    assert!(check.contains("\r\nhost: check.test\r\n"), "{check}");
    assert_eq!(shares().len(), 2);
    for (answer, why) in [
        (
            "HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nready\n",
            "its check /up was answered with 503",
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "its check /up was answered with 204"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nread",
            "the answer to its check /up does not contain \"ready\"",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\nread", "its check took longer than 200ms"),
        ("", "its check took longer than 200ms"),
        ("SSH-2.0-x\r\n\r\n", ""),
    ] {
        *health.lock().unwrap() = answer;
        assert!(wait::until(LIMIT, || says("down until a check succeeds")), "{why}");
        assert!(says(why), "{why}: {}", server.command(&["status"]).unwrap());
        // Requests would be answered, but do not count.
        assert_eq!(shares().get("b"), Some(&10), "{why}");
        *health.lock().unwrap() = WELL;
        assert!(wait::until(LIMIT, || says("2 hosts, 2 up")), "{why}");
        assert_eq!(shares().len(), 2, "{why}");
    }
    let log = server.log();
    assert!(log.contains("the host is down: its check /up was answered with 503"), "{log}");
    assert!(log.contains("the host is back"), "{log}");
}
