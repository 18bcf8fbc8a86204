//! `sendoff convert` with a configuration of NGINX Unit, whose documentation says what is expected:
//! Debian has no package of it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use sendoff_tests::{Client, Request, Response, Server, Site, binary};

/// A script that shows how it was called.
const SCRIPT: &str = "<?php
header('X-Test: script');
echo implode('|', [basename(dirname(__FILE__)), $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? '', $_SERVER['QUERY_STRING'], getenv('MODE')]);
";

pub(crate) struct Converted {
    server: Server,
    _site: Site,
}

impl Converted {
    /// Starts Sendoff with what `convert` makes of this document. In it, `ROOT` is the folder with
    /// the files, and `APP` the port of an application that answers with the first line of requests.
    pub(crate) fn start(text: &str, files: &[&str]) -> Self {
        let site = Site::new();
        for file in files {
            let text = if file.ends_with(".php") { SCRIPT.to_owned() } else { format!("{file}\n") };
            site.write(file, text);
        }
        let text = text
            .replace("ROOT", site.root().to_str().unwrap())
            .replace("APP", &application().to_string());
        let original = site.write_at(site.outside("unit.json"), text);
        let made = Command::new(binary()).arg("convert").arg(&original).output().unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{said}\n{text}");
        // All sites are at one address.
        let text = text.replace("listen = \"0.0.0.0:80\"\n", "");
        let text = format!("listen = \"127.0.0.1:0\"\n{text}");
        let config = site.write_at(site.outside("sendoff.toml"), &text);
        let checked = Command::new(binary()).arg("check").arg(&config).output().unwrap();
        let said = [checked.stdout, checked.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(checked.status.success() && !said.contains("tried"), "{said}\n{text}");
        let workers = if text.contains("[[pool]]") { 2 } else { 0 };
        let server = Server::try_run(&config, site.root(), workers);
        let server = server.unwrap_or_else(|failed| panic!("{failed:?}\n{text}"));
        Self { server, _site: site }
    }

    pub(crate) fn ask(&self, request: &Request) -> Response {
        self.server.ask(request)
    }

    pub(crate) fn connect(&self) -> Client {
        self.server.connect()
    }

    /// Expects these answers: for each target the status, and the body or the target of a redirect.
    #[track_caller]
    fn answers(&self, expected: &[(&str, u16, &str)]) {
        for (target, status, text) in expected {
            self.answers_request(
                &Request::get(target).header("Host", "example.test"),
                target,
                *status,
                text,
            );
        }
    }

    #[track_caller]
    fn answers_request(&self, request: &Request, name: &str, status: u16, text: &str) {
        let response = self.ask(request);
        let shown = match response.header("location") {
            Some(location) => {
                location.strip_prefix("http://example.test").unwrap_or(location).to_owned()
            }
            None if response.status() == 200 => response.text().trim_end().to_owned(),
            None => String::new(),
        };
        assert_eq!((response.status(), &*shown), (status, text), "{name}\n{}", self.config());
    }

    pub(crate) fn config(&self) -> String {
        fs::read_to_string(self._site.outside("sendoff.toml")).unwrap()
    }
}

/// Starts an application that answers with the first line and `Host` of its requests, and returns
/// its port. It ends with the test.
fn application() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let Some(first) = head.first() else { continue };
            let host = head.iter().find(|line| line.to_ascii_lowercase().starts_with("host:"));
            let body = format!("{first} {}", host.cloned().unwrap_or_default().to_lowercase());
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
        }
    });
    port
}

/// The configuration that Unit's documentation has for WordPress.
const WORDPRESS: &str = r#"{
    "listeners": {"*:80": {"pass": "routes"}},
    "routes": [
        {"match": {"uri": ["*.php", "*.php/*", "/wp-admin/"]}, "action": {"pass": "applications/wordpress/direct"}},
        {"action": {"share": "ROOT$uri", "fallback": {"pass": "applications/wordpress/index"}}}
    ],
    "applications": {"wordpress": {
        "type": "php", "processes": 2, "environment": {"MODE": "wp"},
        "targets": {"direct": {"root": "ROOT/"}, "index": {"root": "ROOT/", "script": "index.php"}}
    }}
}"#;

#[test]
fn wordpress() {
    let files = [
        "index.php",
        "wp-login.php",
        "wp-admin/index.php",
        "style.css",
        "plain/index.html",
        "empty/a.txt",
    ];
    let server = Converted::start(WORDPRESS, &files);
    let root = server._site.root().file_name().unwrap().to_str().unwrap().to_owned();
    let by_index = |query: &str| format!("{root}|/index.php||{query}|wp");
    server.answers(&[
        ("/", 200, &by_index("")),
        ("/a/post/?p=1", 200, &by_index("p=1")),
        ("/a/post", 200, &by_index("")),
        ("/wp-login.php?x", 200, &format!("{root}|/wp-login.php||x|wp")),
        ("/wp-admin/", 200, "wp-admin|/wp-admin/index.php|||wp"),
        ("/wp-login.php/more", 200, &format!("{root}|/wp-login.php|/more||wp")),
        ("/none.php", 404, ""),
        ("/style.css", 200, "style.css"),
        ("/plain/", 200, "plain/index.html"),
        ("/plain", 301, "/plain/"),
        ("/empty/", 200, &by_index("")),
        // Paths of the routes themselves.
        ("/@unit/1/style.css", 404, ""),
        ("/%40unit/1/", 404, ""),
    ]);
    let post = |target| Request::post(target, "text/plain", "a=b").header("Host", "example.test");
    server.answers_request(&post("/login"), "POST", 200, &by_index(""));
    // Files answer GET only.
    server.answers_request(&post("/style.css"), "POST to a file", 200, &by_index(""));
}

#[test]
fn scripts_in_folders() {
    let text = r#"{
        "listeners": {"*:80": {"pass": "routes"}},
        "routes": [
            {"match": {"uri": "/data/*"}, "action": {"return": 403}},
            {"match": {"uri": "/old/*"}, "action": {"rewrite": "/new/index.php", "pass": "applications/a"}},
            {"action": {"pass": "applications/a"}}
        ],
        "applications": {"a": {"type": "php", "root": "ROOT"}}
    }"#;
    let files = ["index.php", "new/index.php", "data/a.php", "a.txt"];
    let server = Converted::start(text, &files);
    server.answers(&[
        ("/new/", 200, "new|/new/index.php|||"),
        ("/new/index.php/x?y=z", 200, "new|/new/index.php|/x|y=z|"),
        ("/new", 301, "/new/"),
        ("/old/x?a", 200, "new|/new/index.php||a|"),
        ("/data/a.php", 403, ""),
        ("/data//a.php", 403, ""),
        ("/x/../data/a.php", 403, ""),
        ("/none", 404, ""),
    ]);
    // PHP runs scripts only.
    assert_ne!(server.ask(&Request::get("/a.txt")).status(), 200);
}

#[test]
fn routes_and_hosts() {
    let text = r#"{
        "listeners": {"*:80": {"pass": "routes/main"}},
        "routes": {
            "main": [
                {"match": {"host": "www.example.test"}, "action": {"return": 301, "location": "http://example.test$request_uri"}},
                {"match": {"uri": "/api/*"}, "action": {"pass": "routes/api"}},
                {"match": {"uri": ["/private/*", "!/private/open/*"]}, "action": {"return": 404}},
                {"match": {"cookies": {"id": "a*"}, "uri": "/cookie"}, "action": {"proxy": "http://127.0.0.1:APP"}},
                {"match": {"uri": "/lb"}, "action": {"pass": "upstreams/lb"}},
                {"match": {"uri": "/two/*"}, "action": {"share": ["ROOT/one$uri", "ROOT$uri"], "response_headers": {"X-Test": "two"}, "fallback": {"proxy": "http://127.0.0.1:APP"}}},
                {"action": {"share": "ROOT$uri"}}
            ],
            "api": [
                {"match": {"method": "POST"}, "action": {"return": 405}},
                {"match": {"uri": "/api/v1/*", "arguments": {"key": "!bad"}}, "action": {"rewrite": "/v2$uri", "proxy": "http://127.0.0.1:APP"}}
            ]
        },
        "upstreams": {"lb": {"servers": {"127.0.0.1:APP": {}}}}
    }"#;
    let files = [
        "a.txt",
        "private/a.txt",
        "private/open/a.txt",
        "index.html",
        "one/two/a.txt",
        "two/b.txt",
    ];
    let server = Converted::start(text, &files);
    let get = |target: &str| format!("GET {target} HTTP/1.1 host: example.test");
    server.answers(&[
        ("/a.txt", 200, "a.txt"),
        ("/", 200, "index.html"),
        ("/private/a.txt", 404, ""),
        ("/private/open/a.txt", 200, "private/open/a.txt"),
        ("/api/v1/x?key=good", 200, &get("/v2/api/v1/x?key=good")),
        ("/api/v1/x?key=bad", 404, ""),
        ("/api/v1/x", 404, ""),
        ("/api/none", 404, ""),
        ("/cookie", 404, ""),
        ("/lb", 200, &get("/lb")),
        ("/two/a.txt", 200, "one/two/a.txt"),
        ("/two/b.txt", 200, "two/b.txt"),
        ("/two/c%20d?e", 200, &get("/two/c%20d?e")),
    ]);
    let request =
        Request::get("/cookie").header("Host", "example.test").header("Cookie", "x=y; id=ab");
    server.answers_request(&request, "cookie", 200, &get("/cookie"));
    let request =
        Request::post("/api/v1/x?key=good", "text/plain", "").header("Host", "example.test");
    server.answers_request(&request, "POST", 405, "");
    let request = Request::get("/a.txt?b").header("Host", "WWW.example.test:80");
    server.answers_request(&request, "www", 301, "/a.txt?b");
}
