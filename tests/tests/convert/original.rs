//! A server of nginx, and Sendoff with its converted configuration.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use sendoff_tests::{Fpm, Request, Response, Server, Site, Stock, binary};

/// A script that shows how it was called.
const SCRIPT: &str = "<?php
header('X-Script: ' . basename(__FILE__));
echo json_encode([
    __FILE__, $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? '', $_SERVER['REQUEST_URI'],
    $_SERVER['QUERY_STRING'], $_SERVER['APP_ENV'] ?? '', $_SERVER['front_controller_active'] ?? '',
]);
";

/// The exit status of `convert` if it left out directives.
const LEFT_OUT: i32 = 3;

/// The user that `USERS` names, for nginx and Sendoff: `user` with the password `secret`.
const USER: &str = "user:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
/// Its credentials.
const CREDENTIALS: &str = "Basic dXNlcjpzZWNyZXQ=";

/// Fields that both servers must have alike.
const FIELDS: [&str; 8] = [
    "cache-control",
    "content-type",
    "referrer-policy",
    "www-authenticate",
    "x-content-type-options",
    "x-frame-options",
    "x-script",
    "x-test",
];

/// The original and the copy.
pub(crate) struct Original {
    nginx: Stock,
    sendoff: Server,
    _fpm: Fpm,
    _site: Site,
}

impl Original {
    /// Starts nginx with these lines in its `server`, and Sendoff with what `convert` makes of the
    /// whole file. In the lines, `PHP` is php-fpm, `APP` the port of an application that shows its
    /// requests, `USERS` a file with one user and `OUTSIDE` a folder.
    pub(crate) fn start(server: &str, files: &[&str]) -> Self {
        Self::start_with("", server, files)
    }

    /// As [`start`](Self::start), with lines in nginx's `http`.
    pub(crate) fn start_with(http: &str, server: &str, files: &[&str]) -> Self {
        let site = Site::new();
        for file in files {
            let text = if file.ends_with(".php") { SCRIPT.to_owned() } else { format!("{file}\n") };
            site.write(file, text);
        }
        let users = site.write_at(site.outside("users"), USER);
        let outside = site.outside("data");
        fs::create_dir_all(&outside).unwrap();
        let fpm = Fpm::start(site.root(), "");
        let lines = server
            .replace("PHP;", &format!("{};", fpm.address()))
            .replace("APP", &application().to_string())
            .replace("USERS", users.to_str().unwrap())
            .replace("OUTSIDE", outside.to_str().unwrap());
        let nginx = Stock::nginx(site.root(), http, &lines);
        let text = convert(&nginx);
        let config = site.write_at(site.outside("sendoff.toml"), &text);
        let checked = Command::new(binary()).arg("check").arg(&config).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}\n{text}");
        let workers = if text.contains("[[pool]]") { 2 } else { 0 };
        let sendoff = Server::try_run(&config, site.root(), workers);
        let sendoff = sendoff.unwrap_or_else(|failed| panic!("{failed:?}\n{text}"));
        Self { nginx, sendoff, _fpm: fpm, _site: site }
    }

    /// Expects the same answers for targets that are separated by blanks.
    pub(crate) fn same(&self, targets: &str) {
        for target in targets.split_whitespace() {
            let request = Request::get(target).header("Host", "example.test");
            self.same_answer(target, &request);
            self.same_answer(target, &request.header("Authorization", CREDENTIALS));
        }
    }

    /// Expects the same answers for a request.
    pub(crate) fn same_answer(&self, name: &str, request: &Request) {
        let (theirs, ours) = (self.nginx.ask(request), self.sendoff.ask(request));
        let (theirs, ours) = (shown(&theirs), shown(&ours));
        let config = fs::read_to_string(self._site.outside("sendoff.toml")).unwrap();
        assert_eq!(ours, theirs, "{name}: ours, then nginx's\n{config}");
    }

    /// The answers of nginx and Sendoff.
    pub(crate) fn ask(&self, request: &Request) -> [Response; 2] {
        [self.nginx.ask(request), self.sendoff.ask(request)]
    }

    /// Expects that Sendoff refuses targets, separated by blanks, if nginx does.
    pub(crate) fn closed(&self, targets: &str) {
        for target in targets.split_whitespace() {
            self.closed_answer(target, &Request::get(target).header("Host", "example.test"));
        }
    }

    /// Expects that Sendoff refuses a request if nginx does.
    pub(crate) fn closed_answer(&self, name: &str, request: &Request) {
        let [theirs, ours] = self.ask(request).map(|answer| answer.status());
        let is_opened = (401..=404).contains(&theirs) && (200..400).contains(&ours);
        let config = fs::read_to_string(self._site.outside("sendoff.toml")).unwrap();
        assert!(!is_opened, "{name}: {ours}, but nginx says {theirs}\n{config}");
    }

    /// The routes of the converted configuration that speak of a folder.
    pub(crate) fn routes_of(&self, folder: &str) -> String {
        let config = fs::read_to_string(self._site.outside("sendoff.toml")).unwrap();
        let sections =
            config.split("\n\n").filter(|section| section.contains(&format!("/{folder}/")));
        sections.collect::<Vec<_>>().join("\n\n")
    }

    /// Expects that Sendoff refuses a path.
    pub(crate) fn refuses(&self, target: &str) {
        let request = Request::get(target).header("Host", "example.test");
        let status = self.sendoff.ask(&request).status();
        assert!((401..=404).contains(&status), "{target}: {status}");
    }
}

/// The converted configuration, with an address and a number of workers for the test.
fn convert(nginx: &Stock) -> String {
    let made = Command::new(binary()).arg("convert").arg(nginx.config()).output().unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(matches!(made.status.code(), Some(0 | LEFT_OUT)), "{said}\n{text}");
    let listen = format!("listen = \"{}\"", nginx.addr());
    assert!(text.contains(&listen), "{text}");
    text.replace(&listen, "listen = \"127.0.0.1:0\"").replace("[[pool]]", "[[pool]]\nworkers = 2")
}

/// The compared parts of an answer: the status, the target of a redirect without its host, fields,
/// and the body unless it is an error page.
fn shown(response: &Response) -> String {
    let location = response.header("location").unwrap_or_default();
    let location = location
        .split_once("://")
        .map_or(location, |(_, rest)| rest.find('/').map_or("/", |slash| &rest[slash..]));
    let mut text = format!("{} {location}\n", response.status());
    if response.status() == 401 {
        // Sendoff also names the charset of passwords.
        let realm = response.header("www-authenticate").unwrap_or_default();
        text.push_str(realm.split(',').next().unwrap_or_default());
    }
    if response.status() == 200 {
        for field in FIELDS {
            let values: Vec<_> = response.head.all(field).map(of_type).collect();
            text.push_str(&format!("{field}: {values:?}\n"));
        }
        text.push_str(&response.text());
    }
    text
}

/// The media type, in the older and the newer form for scripts, and without its charset.
fn of_type(value: &str) -> &str {
    match value.split(';').next().unwrap_or_default() {
        "application/javascript" => "text/javascript",
        "image/x-icon" => "image/vnd.microsoft.icon",
        value => value,
    }
}

/// Starts an application that answers with the first line and the main fields of its requests, and
/// returns its port. It ends with the test.
fn application() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let Some(first) = head.first() else { continue };
            let mut body = first.replace("HTTP/1.0", "HTTP/1.1");
            let field = |name: &str| {
                head.iter().find(|line| line.to_ascii_lowercase().starts_with(name)).cloned()
            };
            for name in ["host:", "x-forwarded-for:", "x-forwarded-proto:", "x-request-start:"] {
                let value = field(name).unwrap_or_default().to_ascii_lowercase();
                body.push_str(&format!("\n{value}"));
            }
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
        }
    });
    port
}
