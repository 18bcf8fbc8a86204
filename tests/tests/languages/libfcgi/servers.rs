//! The same programs behind web servers.

use std::path::Path;
use std::process::Stdio;

use sendoff_tests::{Client, Request, Response, Server, Site, Stock, assert_same, pattern, wait};

use super::application::{
    Address, Application, BOTH, Library, command, end_with_children, program,
};

fn nginx_before(site: &Site, address: &Address) -> Stock {
    // An absolute path, because nginx resolves includes relative to its configuration.
    let include = "include /etc/nginx/fastcgi.conf; fastcgi_param PATH_INFO ''";
    let location = format!("location / {{ {include}; fastcgi_pass {}; }}", address.nginx());
    Stock::nginx(site.root(), "", &location)
}

/// nginx with connections that it keeps.
fn keeping_nginx_before(site: &Site, address: &Address) -> Stock {
    let upstream = format!("upstream app {{ server {}; keepalive 2; }}", address.nginx());
    let location = "location / { include /etc/nginx/fastcgi.conf; fastcgi_keep_conn on; \
                    fastcgi_param PATH_INFO ''; fastcgi_pass app; }";
    Stock::nginx(site.root(), &upstream, location)
}

fn sendoff_before(site: &Site, address: &Address) -> Server {
    Server::start(site.root(), &["--fastcgi", &format!("/={}", address.option())])
}

fn requests(path: &str) -> Vec<Request> {
    let post = |query: &str, len| {
        Request::post(&format!("{path}?{query}"), "application/octet-stream", pattern(4, len))
    };
    let gets = ["conversions", "sizes", "large", "errors", "many", "nothing", "misuse", "closed"];
    let mut all: Vec<_> = gets.iter().map(|what| Request::get(&format!("{path}?{what}"))).collect();
    // nginx stops sending the request once the response has begun, so the program reads the whole
    // request first.
    all.extend([0, 1, 65_536, 1 << 20].map(|len| post("keep", len)));
    all.push(post("errors", 300_000));
    all.push(Request::new("HEAD", &format!("{path}?many")));
    all.push(Request::get(&format!("{path}?flushes")).http10());
    all
}

fn line(request: &Request) -> String {
    String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned()
}

#[test]
fn a_program_answers_alike_behind_nginx_and_sendoff() {
    let (site, probe) = (Site::new(), program("probe"));
    let debian = Application::start(&probe, &["16"], Library::Debian);
    let unix = Application::start(&probe, &["16"], Library::Ours);
    let tcp = Application::start_tcp(&probe, &["16"], Library::Ours);
    let reference = nginx_before(&site, &debian.address);
    let nginx = [
        nginx_before(&site, &unix.address),
        nginx_before(&site, &tcp.address),
        keeping_nginx_before(&site, &unix.address),
    ];
    let routes = [&unix, &tcp].map(|app| app.address.option());
    let routes = [format!("/unix={}", routes[0]), format!("/tcp={}", routes[1])];
    let sendoff = Server::start(
        site.root(),
        &["--fastcgi", &routes[0], "--fastcgi", &routes[1], "--workers", "1"],
    );
    let (over_unix, over_tcp) = (requests("/unix"), requests("/tcp"));
    for (number, request) in requests("/app").into_iter().enumerate() {
        let expected = reference.ask(&request);
        for server in &nginx {
            assert_same(&line(&request), &expected, &server.ask(&request));
        }
        for request in [&over_unix[number], &over_tcp[number]] {
            let ours = sendoff.ask(request);
            if expected.status() == 502 {
                assert_eq!(ours.status(), 502);
            } else {
                assert_same(&line(request), &expected, &ours);
            }
        }
    }
    sendoff.await_log("line 999 of the log");
    nginx.iter().for_each(|server| assert!(server.log().contains("of the log")));
    // With the connections that Sendoff keeps.
    drop((unix, tcp));
}

#[test]
fn a_client_that_leaves_costs_the_program_nothing() {
    let (site, probe) = (Site::new(), program("probe"));
    let app = Application::start(&probe, &["1", "4"], Library::Ours);
    let (nginx, sendoff) = (nginx_before(&site, &app.address), sendoff_before(&site, &app.address));
    for addr in [nginx.addr(), sendoff.addr()] {
        let mut client = Client::connect(addr);
        client.send(Request::get("/app?endless").bytes());
        client.read(100_000);
        drop(client);
        let mut next = Client::connect(addr);
        assert_eq!(next.ask(&Request::get("/app?head")).status(), 200);
    }
    let (status, log) = app.end();
    assert!(status.success() && log.matches("ended: -1, error 1").count() == 2, "{log}");
}

const SCRIPT: &str = r#"#!/bin/sh
case $QUERY_STRING in
env) printf 'Content-Type: text/plain\r\n\r\n'; env | grep -vE '^(SERVER_PORT|REMOTE_PORT|LD_LIBRARY_PATH)=' | sort ;;
body) sum=$(sha1sum); printf 'Content-Type: application/octet-stream\n\n%s' "$sum" ;;
large) printf 'Content-Type: text/plain\n\n'; head -c 3000000 /dev/zero | tr '\0' z ;;
status) printf 'Status: 404 Gone fishing\nX-Some: thing\n\n' ;;
deaf) printf 'Content-Type: text/plain\n\ndeaf' ;;
error) echo 'fish' >&2; printf 'Content-Type: text/plain\n\nok'; exit 3 ;;
none) ;;
*) printf 'Content-Type: text/plain\n\n%s' "$CONTENT_LENGTH" ;;
esac
"#;

fn cgi_requests() -> Vec<Request> {
    let gets = ["env", "large", "status", "error", "none", "deaf", "other"];
    let mut all: Vec<_> = gets.iter().map(|what| Request::get(&format!("/a.cgi?{what}"))).collect();
    for len in [0, 1, 100_000, 2_000_000] {
        all.push(Request::post("/a.cgi?body", "application/octet-stream", pattern(6, len)));
        // No body for a script that leaves it unread: the outcome in fcgiwrap is a race.
    }
    all.push(Request::get("/no-such.cgi"));
    all.push(Request::new("HEAD", "/a.cgi?large"));
    all
}

/// fcgiwrap, started as its manual page says: alone, by spawn-fcgi, several by multiwatch.
#[test]
fn fcgiwrap_runs_cgi_scripts() {
    let site = Site::with("a.cgi", SCRIPT);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(site.path("a.cgi"), executable).unwrap();
    let wrap = Path::new("/usr/sbin/fcgiwrap");
    let [debian, ours] = BOTH.map(|library| Application::start(wrap, &["-c", "2"], library));
    let spawned = Spawned::start(&[wrap.to_str().unwrap()]);
    let watched = Spawned::start(&["/usr/bin/multiwatch", "-f", "3", "--", wrap.to_str().unwrap()]);
    let reference = nginx_before(&site, &debian.address);
    let nginx =
        [&ours.address, &spawned.address, &watched.address].map(|app| nginx_before(&site, app));
    let sendoff =
        Server::start(site.root(), &["--fastcgi", &format!(".cgi={}", ours.address.option())]);
    for request in cgi_requests() {
        let expected = reference.ask(&request);
        for server in &nginx {
            assert_same(&line(&request), &expected, &server.ask(&request));
        }
        let theirs = sendoff.ask(&request);
        // Files that are not there are never asked for; the variables of two servers differ.
        if !line(&request).contains("no-such") && !line(&request).contains("env") {
            same_page(&request, &expected, &theirs);
        }
    }
    let text = sendoff.ask(&Request::get("/a.cgi?env")).text();
    assert!(text.contains("SCRIPT_NAME=/a.cgi") && !text.contains("SENDOFF_ACCEPT"), "{text}");
}

fn same_page(request: &Request, expected: &Response, ours: &Response) {
    if expected.status() == 502 {
        assert_eq!(ours.status(), 502);
    } else {
        assert_same(&line(request), expected, ours);
    }
}

/// A program that spawn-fcgi has started, with our library.
struct Spawned {
    address: Address,
    child: std::process::Child,
    _site: Site,
}

impl Spawned {
    fn start(program: &[&str]) -> Self {
        let site = Site::new();
        let path = site.outside("spawned.sock");
        let mut arguments = vec!["-n", "-M", "0666", "-s", path.to_str().unwrap(), "--"];
        arguments.extend(program);
        let child = command(Path::new("/usr/bin/spawn-fcgi"), &arguments, Library::Ours)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = Address::Unix(path.clone());
        wait::for_some("spawn-fcgi", || std::os::unix::net::UnixStream::connect(&path).ok());
        Self { address, child, _site: site }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        end_with_children(&mut self.child);
    }
}
