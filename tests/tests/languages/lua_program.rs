//! `sendoff-lua`: the same scripts as in the server, in a separate process, behind Sendoff and
//! nginx. Debian's lighttpd runs them for comparison.

mod fragments;

use std::collections::VecDeque;
use std::fmt::Write;
use std::fs::Permissions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use sendoff_tests::{
    LIMIT, Lighttpd, Request, Response, Server, Site, Stock, binary, dies_with_us, pattern,
    processes, wait,
};

use crate::stops;

/// The scripts: the name of each is its path.
const SCRIPTS: &[(&str, &str)] = &[
    (
        "text",
        "lighty.header['Content-Type'] = 'text/plain' lighty.content = { 'a', 'b', 3 } return 200",
    ),
    (
        "files",
        "lighty.content = { '<', { filename = 'ROOT/a.txt' }, '|', { filename = 'ROOT/big.txt', offset = 5, length = 25 }, '>' } return 200",
    ),
    ("big", "lighty.content = { { filename = 'ROOT/big.txt' } } return 200"),
    (
        "mixed",
        "lighty.content = { '<', { filename = 'ROOT/big.txt' }, '|', { filename = 'ROOT/big.txt', offset = 7 }, '>' } return 200",
    ),
    (
        "newfiles",
        "lighty.r.resp_body.set({ { filename = 'ROOT/big.txt', offset = 5, length = 25 }, 'x' }) lighty.r.resp_body.add('y') return 200",
    ),
    ("none", "lighty.content = { 'a', { filename = '/does/not/exist' }, 'b' } return 200"),
    ("status", "lighty.content = { 'gone' } return 410"),
    ("page", "lighty.header['X-Why'] = 'so' return 403"),
    ("nothing", "lighty.header['X-A'] = '1' return 204"),
    ("redirect", "lighty.header['Location'] = 'http://example.test/x' return 302"),
    ("auth", "lighty.header['WWW-Authenticate'] = 'Basic realm=\"x\"' return 401"),
    (
        "cookies",
        "lighty.r.resp_header['Set-Cookie'] = 'a=1\\r\\nSet-Cookie: b=2' lighty.content = { 'c' } return 200",
    ),
    ("rewritten", "lighty.env['physical.path'] = lighty.env['physical.doc-root'] .. '/a.txt'"),
    ("missing", "lighty.env['physical.path'] = lighty.env['physical.doc-root'] .. '/none.txt'"),
    ("broken", "\nerror('no')"),
    ("syntax", "if if"),
    ("globals", "x = (x or 0) + 1 lighty.content = { tostring(x) } return 200"),
    ("send", "return lighty.stat('ROOT/big.txt')['http-response-send-file']"),
    ("again", "lighty.env['request.uri'] = '/text.lua?x' return lighty.RESTART_REQUEST"),
    (
        "body",
        "if not lighty.r.req_body.collect then return 0 end lighty.content = { lighty.r.req_body.get } return 200",
    ),
    (
        "attributes",
        "local t = {} for _, k in ipairs { 'uri.path', 'uri.path-raw', 'uri.scheme', 'uri.authority', 'uri.query', 'request.uri', 'request.orig-uri', 'request.method', 'request.protocol', 'request.remote-ip', 'physical.path', 'physical.doc-root' } do t[#t + 1] = k .. '=' .. tostring(lighty.env[k]) end lighty.content = { table.concat(t, '\\n') } return 200",
    ),
    (
        "fields",
        "lighty.content = { tostring(lighty.request['X-A']), tostring(lighty.request['User-Agent']), tostring(lighty.request['Cookie']) } return 200",
    ),
];

/// Fields that each server chooses itself.
const OWN: [&str; 7] =
    ["server", "date", "etag", "last-modified", "accept-ranges", "connection", "keep-alive"];

/// A site with the scripts and the files that they name.
fn site() -> Site {
    let site = Site::new();
    site.write("a.txt", "contents of a.txt");
    site.write("big.txt", "0123456789".repeat(10_000));
    for (name, text) in SCRIPTS {
        let text = text.replace("ROOT", site.root().to_str().unwrap());
        site.write(&format!("{name}.lua"), text);
    }
    site
}

fn program() -> PathBuf {
    let program = binary().with_file_name("sendoff-lua");
    assert!(program.is_file(), "run: cargo build --release --bin sendoff-lua");
    program
}

fn run(site: &Site, keys: &str) -> Server {
    let text = format!("listen = '127.0.0.1:0'\nthreads = 1\n{keys}");
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 0);
    let mut server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    // The program opens links to the front when it hands over its first file.
    server.expect_linked_processes(1000);
    server
}

/// A server that starts the program, for requests to `mount`.
fn pool(site: &Site, arguments: &[&str], mount: &str) -> Server {
    let mut command = format!("'{}'", program().display());
    for argument in arguments {
        write!(command, ", '{argument}'").unwrap();
    }
    run(
        site,
        &format!(
            "[[pool]]\nname = 'scripts'\ncommand = [{command}]\n[[site]]\nroot = 'root'\n\
             front_controller = 'off'\nfastcgi = {{ '{mount}' = 'pool:scripts' }}\n"
        ),
    )
}

/// The program on a socket of its own.
struct Program {
    child: Child,
    socket: PathBuf,
}

impl Program {
    fn start(site: &Site, arguments: &[&str]) -> Self {
        let socket = site.outside("lua.sock");
        let mut command = dies_with_us(&program(), "TERM");
        command.arg("--bind").arg(&socket).args(["--socket-mode", "666"]).args(arguments);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        wait::for_some("sendoff-lua", || UnixStream::connect(&socket).ok());
        Self { child, socket }
    }

    /// Ends it as a supervisor does; the status.
    fn end(&mut self) -> Option<i32> {
        processes::signal(self.child.id(), Signal::TERM);
        let mut status = None;
        wait::until(LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it ends").code()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The parts of a response on which all servers must agree. Error pages are each server's own.
fn shown(request: &Request, response: &Response, with_page: bool) -> String {
    let line = String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned();
    let mut text = format!("{line}: {}\n", response.status());
    let mut fields: Vec<String> = Vec::new();
    for (name, value) in &response.head.headers {
        let name = name.to_ascii_lowercase();
        let is_of_page = ["content-type", "content-length", "transfer-encoding"].contains(&&*name);
        // lighttpd removes fields of scripts from error pages; here they stay.
        let is_kept = name.starts_with("x-");
        if !OWN.contains(&&*name) && (with_page || !is_of_page && !is_kept) {
            fields.push(format!("{name}: {value}\n"));
        }
    }
    fields.sort();
    text.extend(fields);
    if with_page { text + &String::from_utf8_lossy(&response.body) } else { text }
}

#[test]
fn all_four_give_the_same_answers() {
    let site = site();
    let mut routes =
        String::from("[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\nfront_controller = 'off'\n");
    let mut lines = String::new();
    for (name, _) in SCRIPTS {
        let path = site.path(&format!("{name}.lua"));
        let path = path.display();
        writeln!(routes, "[[site.route]]\nprefix = '/{name}.lua'\nlua = '{path}'").unwrap();
        let url = format!("$HTTP[\"url\"] =~ \"^/{name}\\.lua(/|\\?|$)\"");
        writeln!(lines, "{url} {{ magnet.attract-physical-path-to = (\"{path}\") }}").unwrap();
    }
    let inside = Server::try_run(
        &site.write_at(
            site.outside("inside.toml"),
            format!("listen = '127.0.0.1:0'\nthreads = 1\n{routes}"),
        ),
        site.root(),
        1,
    );
    let inside = inside.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let behind = pool(&site, &[], ".lua");
    let program = Program::start(&site, &[]);
    let nginx = Stock::nginx(
        site.root(),
        "",
        &format!(
            "location ~ \\.lua$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{}; }}",
            program.socket.display()
        ),
    );
    let lighttpd = Lighttpd::start(site.root(), &lines);

    let mut requests: Vec<Request> =
        SCRIPTS.iter().map(|(name, _)| Request::get(&format!("/{name}.lua"))).collect();
    requests.extend(["/text.lua?q", "/attributes.lua?c=d%20e", "/globals.lua"].map(Request::get));
    requests.extend(
        ["text", "big", "send", "rewritten"]
            .map(|name| Request::new("HEAD", &format!("/{name}.lua"))),
    );
    requests.push(Request::get("/send.lua").header("Range", "bytes=5-24"));
    requests.push(Request::get("/fields.lua").header("X-A", "1").header("Cookie", "a=b; c=d"));
    for length in [2, 70_000, 1_000_000] {
        requests.push(Request::post("/body.lua", "text/plain", pattern(3, length)));
    }
    let mut differing = String::new();
    for request in &requests {
        let theirs = lighttpd.ask(request);
        let with_page = !(theirs.status() >= 400 && theirs.body.starts_with(b"<"));
        let sent = request.bytes();
        // For a short body lighttpd 1.4.69 reports the bytes of the whole request, and it sends a
        // script that restarts the request in this phase as a file.
        let is_different =
            sent.starts_with(b"GET /again") || sent.starts_with(b"POST") && sent.len() < 1000;
        let expected = inside.ask(request);
        let expected_shown = shown(request, &expected, with_page);
        let all =
            [("lighttpd", theirs), ("Sendoff", behind.ask(request)), ("nginx", nginx.ask(request))];
        for (who, answer) in all {
            let answer = shown(request, &answer, with_page);
            if answer != expected_shown && !(is_different && who == "lighttpd") {
                let most = |text: &str| text.chars().take(600).collect::<String>();
                writeln!(
                    differing,
                    "{who}: {}\nin the server: {}\n",
                    most(&answer),
                    most(&expected_shown)
                )
                .unwrap();
            }
        }
    }
    assert!(differing.is_empty(), "{differing}\n{}\n{}", behind.log(), nginx.log());
    behind.await_log("broken.lua:2: no");
    behind.await_log("syntax.lua:1: ");
    assert!(wait::until(LIMIT, || nginx.log().contains("broken.lua:2: no")), "{}", nginx.log());
}

#[test]
fn files_are_handed_over_with_the_bytes_between_them() {
    let site = site();
    let server = pool(&site, &["--threads", "1"], ".lua");
    // The first response says that the program can.
    server.page("/text.lua");
    for (path, files) in [("/big.lua", 1), ("/mixed.lua", 2), ("/send.lua", 1)] {
        let mut table = String::new();
        // The link to the front is opened when the first file is wanted.
        wait::until(LIMIT, || {
            table = server.explain(path, &[]).unwrap();
            table.matches("file, sendfile").count() == files
        });
        assert_eq!(table.matches("file, sendfile").count(), files, "{path}: {table}");
    }
    let table = server.explain("/text.lua", &[]).unwrap();
    assert!(table.contains("  text.lua:1  "), "{table}");
    let big = "0123456789".repeat(10_000);
    assert_eq!(server.page("/mixed.lua"), format!("<{big}|{}>", &big[7..]));
}

#[test]
fn only_scripts_run_and_no_source_is_shown() {
    let site = site();
    site.write("secret.txt", "secret");
    site.write("nothing/x", "");
    site.write("silent.lua", "x = 1");
    site.write("loop.lua", "return lighty.RESTART_REQUEST");
    site.write(
        "out.lua",
        "lighty.env['request.uri'] = '/secret.txt' return lighty.RESTART_REQUEST",
    );
    let program = Program::start(&site, &["--threads", "2"]);
    let nginx = Stock::nginx(
        site.root(),
        "",
        &format!(
            "location / {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{}; }}",
            program.socket.display()
        ),
    );
    for (path, status) in [
        ("/secret.txt", 403),
        ("/nothing", 403),
        ("/absent.lua", 404),
        ("/silent.lua", 404),
        ("/loop.lua", 500),
        ("/out.lua", 403),
    ] {
        let answer = nginx.ask(&Request::get(path));
        assert_eq!(answer.status(), status, "{path}: {}", nginx.log());
        assert!(!answer.text().contains("secret") && !answer.text().contains("x = 1"), "{path}");
    }
    for why in ["begun the request again 10 times", "no script has answered"] {
        assert!(wait::until(LIMIT, || nginx.log().contains(why)), "{why}: {}", nginx.log());
    }
}

#[test]
fn scripts_on_the_command_line_run_for_every_request() {
    let site = Site::with("a.txt", "contents");
    let first = site.write_at(site.outside("first.lua"), "lighty.r.resp_header['X-First'] = 'yes'");
    let second = site.write_at(
        site.outside("second.lua"),
        "if lighty.env['uri.path'] == '/a.txt' then lighty.env['physical.path'] = lighty.env['physical.path'] return end
        lighty.content = { lighty.env['uri.path'], ' ', lighty.env['physical.path'], ' ', lighty.req_env['REQUEST_METHOD'] } return 200",
    );
    let scripts = [first.to_str().unwrap(), second.to_str().unwrap()];
    let server = pool(&site, &scripts, "/");
    let answer = server.get("/some/path");
    assert_eq!(answer.header("X-First"), Some("yes"));
    assert_eq!(answer.text(), format!("/some/path {}/some/path GET", site.root().display()));
    // Neither script has answered, nor chosen another file.
    server.get("/a.txt").expect(404);
    site.write_at(second, "lighty.content = { 'new' } return 200");
    assert_eq!(server.page("/other"), "new");
}

#[test]
fn a_hostile_script_harms_no_other() {
    let site = site();
    site.write("endless.lua", "\nwhile true do pcall(function() while true do end end) end");
    site.write("greedy.lua", "local s = 'x'\nwhile true do s = s .. s end");
    site.write("deep.lua", "local function f() return f() + 1 end\nreturn f()");
    let server = pool(&site, &["--threads", "1"], ".lua");
    let process = processes::descendants(server.pid())
        .into_iter()
        .find(|pid| processes::program(*pid) == "sendoff-lua")
        .unwrap();
    for (name, why) in [
        ("endless", "endless.lua:2: the script takes more than"),
        ("greedy", "greedy.lua"),
        ("deep", "deep.lua:1: the script takes more than"),
    ] {
        server.get(&format!("/{name}.lua")).expect(500);
        server.await_log(why);
        assert_eq!(server.page("/text.lua"), "ab3");
    }
    assert!(processes::runs(process), "the same process has answered");
}

#[test]
fn threads_share_a_dictionary() {
    let site = Site::with(
        "count.lua",
        "lighty.content = { tostring(sendoff.shared.incr('n')) } return 200",
    );
    let server = pool(&site, &["--threads", "4"], ".lua");
    let mut seen: Vec<u32> = std::thread::scope(|scope| {
        let ask =
            || (0..25).map(|_| server.page("/count.lua").parse().unwrap()).collect::<Vec<u32>>();
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
}

#[test]
fn it_ends_in_good_order_with_idle_connections() {
    let site = site();
    let mut program = Program::start(&site, &["--threads", "3", "--stop-timeout", "3600"]);
    let upstream =
        format!("upstream lua {{ server unix:{}; keepalive 4; }}", program.socket.display());
    let nginx = Stock::nginx(
        site.root(),
        &upstream,
        "location / { include /etc/nginx/fastcgi.conf; fastcgi_pass lua; fastcgi_keep_conn on; }",
    );
    for _ in 0..3 {
        assert_eq!(nginx.ask(&Request::get("/text.lua")).text(), "ab3");
    }
    // nginx keeps the connection for a minute.
    assert_eq!(program.end(), Some(0));
}

/// Processes share a listening socket; the oldest one ends, again and again.
#[test]
fn stops_cost_no_request() {
    let site = site();
    let socket = site.outside("shared.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let start = || {
        let mut command = dies_with_us(&program(), "TERM");
        let inherited = OwnedFd::from(listener.try_clone().unwrap());
        let child = command.args(["--threads", "2"]).stdin(inherited).spawn().unwrap();
        Program { child, socket: socket.clone() }
    };
    let mut running = VecDeque::from([start(), start()]);
    let route = format!("fastcgi = {{ '.lua' = 'unix:{}' }}", socket.display());
    let server = run(&site, &format!("[[site]]\nroot = 'root'\n{route}\n"));
    stops::cost_no_request(&server, "/text.lua", "ab3", 60, |_| {
        running.push_back(start());
        running.pop_front().unwrap().end();
    });
}

#[test]
fn a_wrong_command_line_says_what_to_do() {
    let ends = |arguments: &[&str]| {
        let done = Command::new(program()).args(arguments).stdin(Stdio::null()).output().unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    for (arguments, text) in [
        (&[][..], "--bind ADDRESS"),
        (&["--bind", "/does/not/exist/s"], "cannot listen on /does/not/exist/s"),
        (&["--threads", "0"], "a number from 1 to 1024"),
        (&["--fragments", "7"], "0, or a number from 8 to 4096"),
        (&["--socket-mode", "999"], "three octal digits"),
    ] {
        let (good, stderr) = ends(arguments);
        assert!(!good && stderr.contains(text), "{arguments:?}: {stderr}");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lua-wrong.sock");
    let socket = folder.to_str().unwrap();
    let (good, stderr) = ends(&["--bind", socket, "/does/not/exist.lua"]);
    assert!(!good && stderr.contains("/does/not/exist.lua: No such file"), "{stderr}");
    let _ = std::fs::remove_file(folder);
}
