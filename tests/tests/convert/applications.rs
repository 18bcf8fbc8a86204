//! Applications behind nginx, services that decide about requests, lists of files, other folders.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use sendoff_tests::{LIMIT, Request, Site, dies_with_us, wait};

use crate::original::Original;

/// An application that answers with its parameters.
const APP: &str = r"
def application(env, start):
    keys = ['REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_URI', 'REMOTE_ADDR', 'HTTP_HOST', 'HTTP_X_A', 'APP_ENV']
    start('200 OK', [('Content-Type', 'text/plain'), ('X-Test', 'c')])
    return ['|'.join(env.get(key) or '' for key in keys).encode()]
";

/// A process of uWSGI that listens on two UNIX sockets.
struct Uwsgi {
    child: Child,
    sockets: [PathBuf; 2],
    _site: Site,
}

impl Uwsgi {
    fn start() -> Self {
        let site = Site::new();
        let script = site.write_at(site.outside("app.py"), APP);
        let sockets = ["uwsgi.sock", "scgi.sock"].map(|name| site.outside(name));
        let mut child = dies_with_us(Path::new("/usr/bin/uwsgi"), "KILL")
            .args(["--plugin", "python3", "--chmod-socket=666", "--wsgi-file"])
            .arg(script)
            .arg("--uwsgi-socket")
            .arg(&sockets[0])
            .arg("--scgi-socket")
            .arg(&sockets[1])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let connects = |path: &PathBuf| std::os::unix::net::UnixStream::connect(path).is_ok();
        let is_up = || sockets.iter().all(connects);
        wait::until(LIMIT, || is_up() || child.try_wait().unwrap().is_some());
        assert!(is_up(), "uwsgi (tools/install test)");
        Self { child, sockets, _site: site }
    }
}

impl Drop for Uwsgi {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn uwsgi_and_scgi() {
    let uwsgi = Uwsgi::start();
    let [by_uwsgi, by_scgi] = uwsgi.sockets.each_ref().map(|path| path.display());
    let lines = format!(
        "location /a/ {{ include /etc/nginx/uwsgi_params; uwsgi_param APP_ENV test; uwsgi_param HTTP_X_A $host; uwsgi_pass unix:{by_uwsgi}; }}
        location /b/ {{ include /etc/nginx/uwsgi_params; uwsgi_pass uwsgi://unix:{by_uwsgi}; uwsgi_hide_header X-Test; }}
        location /c/ {{ include /etc/nginx/scgi_params; scgi_param PATH_INFO $document_uri; scgi_param SCRIPT_NAME ''; scgi_pass unix:{by_scgi}; }}
        location /d/ {{ rewrite ^/d/(.*)$ /moved/$1 break; include /etc/nginx/uwsgi_params; uwsgi_pass unix:{by_uwsgi}; }}
        location /e/ {{ deny all; include /etc/nginx/uwsgi_params; uwsgi_pass unix:{by_uwsgi}; }}"
    );
    let pair = Original::start(&lines, &["a.txt"]);
    pair.same("/a/ /a/x%20y?q=r /a /b/z /c/x/y?a=b /d/e/f?g=h /e/x /a.txt /none");
    let request = Request::get("/a/x").header("Host", "example.test").header("X-A", "forged");
    pair.same_answer("a field that a parameter replaces", &request);
}

/// Starts a service that lets clients pass whose cookie names them, and returns its port.
fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let field = |name: &str| {
                let found = head.iter().filter_map(|line| line.split_once(": "));
                found
                    .filter(|(own, _)| own.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value)
                    .next()
            };
            let is_asked = head.first().is_some_and(|line| line.starts_with("GET /verify"));
            let path = field("X-Original-URI").unwrap_or_default();
            let status = match field("Cookie") {
                Some("name=ann") if is_asked && !path.contains("secret") => "200 OK",
                Some("name=root") if is_asked => "200 OK",
                Some(_) => "403 Forbidden",
                None => "401 Unauthorized",
            };
            let user = field("Cookie").unwrap_or_default().trim_start_matches("name=");
            let seen = field("X-Real-IP").unwrap_or_default();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nWWW-Authenticate: Basic realm=\"x\"\r\nX-Request-Start: {user} {seen}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            );
        }
    });
    port
}

#[test]
fn a_service_decides_about_requests() {
    let port = service();
    let lines = format!(
        "location = /auth {{ internal; proxy_pass http://127.0.0.1:{port}/verify; proxy_pass_request_body off;
            proxy_set_header Content-Length ''; proxy_set_header X-Original-URI $request_uri; proxy_set_header X-Real-IP $remote_addr; }}
        location /closed/ {{ auth_request /auth; }}
        location /app/ {{ auth_request /auth; auth_request_set $user $upstream_http_x_request_start;
            proxy_set_header X-Request-Start $user; proxy_pass http://127.0.0.1:APP; }}
        location /open/ {{ }}"
    );
    let files = ["closed/a.txt", "closed/secret.txt", "open/a.txt", "closed/index.html"];
    let pair = Original::start(&lines, &files);
    pair.same("/closed/a.txt /closed/ /open/a.txt /app/x /auth /closed/none");
    for cookie in ["name=ann", "name=root", "name=bob"] {
        for target in
            ["/closed/a.txt", "/closed/secret.txt", "/app/x?a=b", "/open/a.txt", "/closed/"]
        {
            let request = Request::get(target).header("Host", "example.test");
            let request = request.header("Cookie", cookie).header("X-Request-Start", "forged");
            let request = request.header("X-Real-IP", "10.1.1.1");
            pair.same_answer(&format!("{cookie} {target}"), &request);
        }
    }
}

#[test]
fn lists_of_files_are_shown_where_nginx_shows_them() {
    let lines = "location /list/ { autoindex on; location /list/closed/ { autoindex off; } }
        location /plain/ { limit_rate 100k; }";
    let pair =
        Original::start(lines, &["list/a/b.txt", "list/c.txt", "list/closed/d.txt", "plain/e.txt"]);
    pair.same(
        "/list/c.txt /list/closed/ /list/closed/d.txt /plain/ /plain/e.txt /list /list/none/",
    );
    for target in ["/list/", "/list/a/"] {
        let [theirs, ours] = pair.ask(&Request::get(target).header("Host", "example.test"));
        assert_eq!((theirs.status(), ours.status()), (200, 200), "{target}");
    }
}

#[test]
fn the_path_of_another_folder_without_its_slash() {
    let lines = "location /slash/ { alias OUTSIDE/data/; }
        location /bare { alias OUTSIDE/data; }
        location /tries/ { alias OUTSIDE/data/; }
        location = /exact { return 410; }
        location /exact/ { alias OUTSIDE/data/; }
        location ~ ^/tr { try_files $uri /index.html; }";
    let pair = Original::start(lines, &["index.html", "../data/data/a.txt"]);
    pair.same("/slash /slash/ /slash/a.txt /bare /bare/ /bare/a.txt /tries /exact /exact/a.txt");
}
