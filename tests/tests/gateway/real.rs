//! Application servers as Debian has them, over UNIX sockets; Tomcat, over TCP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use sendoff_tests::{
    Client, LIMIT, Request, Response, Server, Site, dies_with_us, pattern, processes, tomcat, wait,
};

use crate::pass_on;

/// An application that answers with the request and its body.
const APP: &str = r"
def application(env, start):
    length = int(env.get('CONTENT_LENGTH') or 0)
    body = env['wsgi.input'].read(length)
    keys = ['REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REMOTE_ADDR', 'HTTP_HOST', 'HTTP_X_A']
    head = '|'.join(env.get(key) or '' for key in keys).encode() + b'\n'
    start('201 Made', [('Content-Type', 'text/plain'), ('X-B', 'c')])
    return [head, body]
";

const ECHO: &str = r"
import asyncio, os, sys, websockets
os.umask(0)
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with websockets.unix_serve(echo, sys.argv[1], ping_interval=None):
        await asyncio.Future()
asyncio.run(main())
";

/// A process of an application server that listens on a UNIX socket.
struct App {
    child: Child,
    socket: PathBuf,
}

impl App {
    fn start(site: &Site, command: &[&str]) -> Self {
        let socket = site.outside("app.sock");
        site.write_at(site.outside("app.py"), APP);
        let path = socket.to_str().unwrap();
        let arguments = command[1..].iter().map(|argument| argument.replace("SOCKET", path));
        // Its processes get more descriptors than many shells give.
        let mut child = dies_with_us(Path::new("prlimit"), "KILL")
            .args(["--nofile=8192:8192", command[0]])
            .args(arguments)
            .current_dir(site.outside(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let connects = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        let is_up = wait::until(LIMIT, || connects() || child.try_wait().unwrap().is_some());
        assert!(is_up && connects(), "{} (tools/install test)", command[0]);
        Self { child, socket }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://unix:{}", self.socket.display())
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let id = self.child.id();
        for process in processes::descendants(id) {
            processes::signal(process, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const GUNICORN: &[&str] =
    &["/usr/bin/gunicorn", "-w", "2", "--umask", "0", "-b", "unix:SOCKET", "app:application"];

fn uwsgi(option: &'static str) -> [&'static str; 10] {
    [
        "/usr/bin/uwsgi",
        "--plugin",
        "python3",
        "--wsgi-file",
        "app.py",
        "--master",
        "--processes=2",
        "--chmod-socket=666",
        option,
        "SOCKET",
    ]
}

#[test]
fn gunicorn_and_uwsgi_answer_over_their_protocols() {
    for (command, scheme) in [
        (GUNICORN, "http"),
        (&uwsgi("--http-socket")[..], "http"),
        (&uwsgi("--scgi-socket")[..], "scgi"),
        (&uwsgi("--uwsgi-socket")[..], "uwsgi"),
    ] {
        let site = Site::new();
        let app = App::start(&site, command);
        let server = pass_on(&site, &app.url(scheme), "");
        let mut client = server.connect();
        for body in [Vec::new(), pattern(1, 10), pattern(2, 300_000)] {
            let request =
                Request::post("/a%20b?c=d", "text/plain", body.clone()).header("X-A", "e");
            let response = client.ask(&request);
            assert_eq!(
                (response.status(), response.header("x-b")),
                (201, Some("c")),
                "{command:?}"
            );
            // Over a UNIX socket HTTP has no address of the client but the one in X-Forwarded-For.
            let line =
                String::from_utf8_lossy(response.body.split(|b| *b == b'\n').next().unwrap());
            let rest = if matches!(scheme, "scgi" | "uwsgi") {
                "127.0.0.1|example.test|e"
            } else {
                "|example.test|e"
            };
            assert!(line.starts_with("POST||/a b|c=d|") && line.ends_with(rest), "{line}");
            assert!(response.body.ends_with(&body), "{} bytes", response.body.len());
        }
        assert_eq!(client.ask(&Request::get("/x")).status(), 201);
    }
}

/// A client's side of a WebSocket.
fn websocket(server: &Server) -> Client {
    let mut client = server.connect();
    let request = Request::get("/")
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    client.send(request.bytes());
    let head = client.head().unwrap();
    assert_eq!((head.status, head.header("upgrade")), (101, Some("websocket")));
    assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    client
}

/// A message there and back.
fn echo(client: &mut Client) {
    // Masked with zeros.
    client.send(b"\x81\x85\0\0\0\0hello");
    assert_eq!(client.read(7), b"\x81\x05hello");
}

fn start_echo(site: &Site) -> App {
    let script = site.write_at(site.outside("echo.py"), ECHO);
    App::start(site, &["/usr/bin/python3", script.to_str().unwrap(), "SOCKET"])
}

#[test]
fn pythons_websockets_speak_through_it() {
    let site = Site::new();
    let app = start_echo(&site);
    let server = pass_on(&site, &app.url("http"), "");
    let mut client = websocket(&server);
    for _ in 0..100 {
        echo(&mut client);
    }
    // A close frame is answered with a close frame, and the connection ends (RFC 6455 §7).
    client.send(b"\x88\x82\0\0\0\0\x03\xe8");
    assert_eq!(client.read(4), b"\x88\x02\x03\xe8");
    assert!(client.is_closed());
}

/// Debian's Tomcat with its own connectors, beside each other.
struct Tomcat {
    child: Child,
    _folder: Site,
    http: SocketAddr,
    ajp: SocketAddr,
}

const PAGE: &str = r#"<%@ page contentType="text/plain; charset=UTF-8" %><%@ page import="java.io.*" %><%
out.print(request.getMethod() + "|" + request.getRequestURI() + "|" + request.getQueryString() + "|" + request.getServerName()
    + "|" + request.getServerPort() + "|" + request.getScheme() + "|" + request.getHeader("X-A") + "|");
InputStream in = request.getInputStream();
long sum = 0;
int count = 0;
for (int b; (b = in.read()) >= 0; count++) sum = sum * 31 + b;
out.print(count + "|" + sum);
response.setHeader("X-B", "c");
int repeat = request.getParameter("n") == null ? 0 : Integer.parseInt(request.getParameter("n"));
for (int i = 0; i < repeat; i++) out.print("0123456789");
%>"#;

impl Tomcat {
    fn start() -> Self {
        let folder = Site::new();
        let base = folder.root();
        let connectors = r#"<Connector protocol="HTTP/1.1" address="127.0.0.1" port="0"/>
            <Connector protocol="AJP/1.3" address="127.0.0.1" port="0" secret="s3cret" packetSize="16384"/>"#;
        let mut command = tomcat(base, connectors, &[]);
        fs::write(base.join("webapps/ROOT/page.jsp"), PAGE).unwrap();
        let log = base.join("logs/out");
        let output = fs::File::create(&log).unwrap();
        let mut child = command
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("java (tools/install java)");
        let said = || fs::read_to_string(&log).unwrap();
        wait::until(8 * LIMIT, || {
            child.try_wait().unwrap().is_some() || said().contains("Server startup in")
        });
        let port = |name: &str| {
            let said = said();
            let rest = said.split(name).nth(1).unwrap_or_else(|| panic!("{said}"));
            let port = rest.split('"').next().unwrap().parse().unwrap();
            SocketAddr::from(([127, 0, 0, 1], port))
        };
        let (http, ajp) = (port("http-nio-127.0.0.1-auto-1-"), port("ajp-nio-127.0.0.1-auto-2-"));
        Self { child, _folder: folder, http, ajp }
    }
}

impl Drop for Tomcat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn told(response: &Response) -> (u16, Option<&str>, String) {
    (response.status(), response.header("x-b"), response.text())
}

#[test]
#[ignore = "heavy: Tomcat"]
fn tomcat_answers_over_http_and_ajp_as_by_itself() {
    let tomcat = Tomcat::start();
    let site = Site::new();
    let over_http = pass_on(&site, &format!("http://{}", tomcat.http), "");
    let other = Site::new();
    let more = ", secret = 's3cret', packet_size = 16384";
    let over_ajp = pass_on(&other, &format!("ajp://{}", tomcat.ajp), more);
    let large = "x".repeat(9000);
    for request in [
        Request::get("/page.jsp?a=b%20c").header("X-A", "d"),
        Request::get("/page.jsp;x=y?n=100000"),
        Request::new("HEAD", "/page.jsp"),
        Request::new("OPTIONS", "/page.jsp"),
        Request::new("PROPFIND", "/page.jsp"),
        Request::post("/page.jsp", "application/octet-stream", pattern(1, 0)),
        Request::post("/page.jsp", "application/octet-stream", pattern(2, 8186)),
        Request::post("/page.jsp", "application/octet-stream", pattern(3, 1_000_000)),
        Request::get("/missing"),
    ] {
        let request = request.header("Host", "shop.test:8080");
        let line = String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned();
        let own = Client::connect(tomcat.http).ask(&request);
        for server in [&over_http, &over_ajp] {
            let mut client = server.connect();
            for _ in 0..2 {
                let ours = client.ask(&request);
                assert_eq!(told(&ours), told(&own), "{line}");
            }
        }
    }
    // More than Tomcat's HTTP takes, and than an AJP packet of the usual size holds.
    let cookie = Request::get("/page.jsp").header("Cookie", &format!("a={large}"));
    assert_eq!((over_http.ask(&cookie).status(), over_ajp.ask(&cookie).status()), (400, 200));
    let third = Site::new();
    let wrong = pass_on(&third, &format!("ajp://{}", tomcat.ajp), ", secret = 'other'");
    assert_eq!(wrong.get("/page.jsp").status(), 403);
}
