//! Another server, and Sendoff with its converted configuration.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use sendoff_tests::{Apache, Caddy, Fpm, Request, Response, Server, Site, Stock, binary};

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
/// The hash of its password, of bcrypt.
pub(crate) const HASH: &str = "$2y$05$mcL8T3oNElJLRr0c1eoCEekDWI/XAtPFiApVL9byyS8Y5AQHx8RVW";
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
    // It ends first: it serves a folder of Apache's.
    sendoff: Server,
    other: Other,
    _fpm: Fpm,
    _site: Site,
}

/// The other server.
enum Other {
    Nginx(Stock),
    Caddy(Caddy),
    Apache(Apache),
}

impl Other {
    fn ask(&self, request: &Request) -> Response {
        match self {
            Self::Nginx(nginx) => nginx.ask(request),
            Self::Caddy(caddy) => caddy.ask(request),
            Self::Apache(apache) => apache.ask(request),
        }
    }

    fn config(&self) -> PathBuf {
        match self {
            Self::Nginx(nginx) => nginx.config(),
            Self::Caddy(caddy) => caddy.config(),
            Self::Apache(apache) => apache.config(),
        }
    }

    fn addr(&self) -> SocketAddr {
        match self {
            Self::Nginx(nginx) => nginx.addr(),
            Self::Caddy(caddy) => caddy.addr(),
            Self::Apache(apache) => apache.addr(),
        }
    }
}

impl Original {
    /// Starts nginx with these lines in its `server`, and Sendoff with what `convert` makes of the
    /// whole file. In the lines, `PHP` is php-fpm, `APP` the port of an application that shows its
    /// requests, `USERS` a file with the user `user`, `OTHERS` one with `boss`, and `OUTSIDE` a folder.
    pub(crate) fn start(server: &str, files: &[&str]) -> Self {
        Self::start_with("", server, files)
    }

    /// As [`start`](Self::start), with lines in nginx's `http`.
    pub(crate) fn start_with(http: &str, server: &str, files: &[&str]) -> Self {
        Self::beside(server, files, |site, lines| {
            Other::Nginx(Stock::nginx(site.root(), http, lines))
        })
    }

    /// As [`Original::start`], with Caddy and the lines of a block of a Caddyfile. In the lines,
    /// `ROOT` is the folder with the files.
    pub(crate) fn caddy(server: &str, files: &[&str]) -> Self {
        Self::beside(server, files, |site, lines| {
            let lines = lines.replace("ROOT", site.root().to_str().unwrap());
            match lines.split_once("---\n") {
                Some((around, lines)) => Other::Caddy(Caddy::start(around, lines)),
                None => Other::Caddy(Caddy::start("", &lines)),
            }
        })
    }

    /// As [`Original::start`], with Apache and the lines of a `<VirtualHost>`, behind `---` if other
    /// lines stand in front of it. In the lines, `ROOT` is the folder with the files.
    pub(crate) fn apache(server: &str, files: &[&str]) -> Self {
        Self::beside(server, files, |site, lines| {
            let root = site.root().to_str().unwrap();
            let (around, own) = lines.split_once("---\n").unwrap_or(("", lines));
            let lines = format!(
                "<Directory />\nRequire all denied\nAllowOverride None\n</Directory>\n\
                 <Directory ROOT>\nRequire all granted\n</Directory>\n{around}\n\
                 <VirtualHost *:PORT>\nServerName example.test\nDocumentRoot ROOT\n{own}\n</VirtualHost>\n"
            );
            let types =
                "text/plain txt\ntext/css css\ntext/html html\nimage/png png\nimage/jpeg jpg\n";
            let lines =
                lines.replace("ROOT", root).replace(&format!("DOCUMENT_{root}"), "DOCUMENT_ROOT");
            Other::Apache(Apache::with_lines(site.root(), types, &lines))
        })
    }

    fn beside(server: &str, files: &[&str], start: impl FnOnce(&Site, &str) -> Other) -> Self {
        let site = Site::new();
        for file in files {
            let text = if file.ends_with(".php") { SCRIPT.to_owned() } else { format!("{file}\n") };
            site.write(file, text);
        }
        let users = site.write_at(site.outside("users"), USER);
        let others = site.write_at(site.outside("others"), USER.replacen("user:", "boss:", 1));
        let outside = site.outside("data");
        fs::create_dir_all(&outside).unwrap();
        let fpm = Fpm::start(site.root(), "");
        let lines = server
            .replace("PHP;", &format!("{};", fpm.address()))
            .replace("PHP\n", &format!("{}\n", fpm.address().replacen("unix:", "unix/", 1)))
            .replace("APP", &application().to_string())
            .replace("HASH", HASH)
            .replace("USERS", users.to_str().unwrap())
            .replace("OTHERS", others.to_str().unwrap())
            .replace("OUTSIDE", outside.to_str().unwrap());
        let other = start(&site, &lines);
        let text = convert(&other, &site);
        let config = site.write_at(site.outside("sendoff.toml"), &text);
        let checked = Command::new(binary()).arg("check").arg(&config).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}\n{text}");
        let workers = if text.contains("[[pool]]") { 2 } else { 0 };
        let sendoff = Server::try_run(&config, site.root(), workers);
        let sendoff = sendoff.unwrap_or_else(|failed| panic!("{failed:?}\n{text}"));
        Self { other, sendoff, _fpm: fpm, _site: site }
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
        let (theirs, ours) = (self.other.ask(request), self.sendoff.ask(request));
        let (theirs, mut ours) = (shown(&theirs), shown(&ours));
        if let Other::Apache(_) = self.other {
            // Sendoff also names the scheme, and a ? stays in redirects without a query.
            ours = ours.replace("x-forwarded-proto: http", "").replace("?\n", "\n");
        }
        let config = fs::read_to_string(self._site.outside("sendoff.toml")).unwrap();
        assert_eq!(ours, theirs, "{name}: ours, then the other's\n{config}");
    }

    /// The answers of nginx and Sendoff.
    pub(crate) fn ask(&self, request: &Request) -> [Response; 2] {
        [self.other.ask(request), self.sendoff.ask(request)]
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
        assert!(!is_opened, "{name}: {ours}, but the other says {theirs}\n{config}");
    }

    /// The converted configuration.
    pub(crate) fn config(&self) -> String {
        fs::read_to_string(self._site.outside("sendoff.toml")).unwrap()
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
fn convert(other: &Other, site: &Site) -> String {
    let made = Command::new(binary()).arg("convert").arg(other.config()).output().unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(matches!(made.status.code(), Some(0 | LEFT_OUT)), "{said}\n{text}");
    let listen = format!("listen = \"{}\"", other.addr());
    assert!(text.contains(&listen), "{text}");
    // A file of users that a comment describes.
    let files = text.lines().filter_map(|line| line.split_once("belong into the file "));
    for (file, users) in files.filter_map(|(_, rest)| rest.split_once(" beside this one: ")) {
        site.write_at(site.outside(file), users.replace(' ', "\n") + "\n");
    }
    text.replace(&format!("{listen}\n"), "").replace("[[pool]]", "[[pool]]\nworkers = 2").replacen(
        "[[",
        "listen = \"127.0.0.1:0\"\n\n[[",
        1,
    )
}

/// The compared parts of an answer: the status, the target of a redirect without its host, fields,
/// and the body unless it is an error page.
fn shown(response: &Response) -> String {
    let location = response.header("location").unwrap_or_default();
    let location = location
        .split_once("://")
        .map_or(location, |(_, rest)| rest.find('/').map_or("/", |slash| &rest[slash..]));
    // Sendoff redirects to folders with 301, Caddy with 308.
    let status = if response.status() == 308 { 301 } else { response.status() };
    let mut text = format!("{status} {location}\n");
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
            let mut reader = BufReader::new(&stream);
            let lines = reader.by_ref().lines().map_while(Result::ok);
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let Some(first) = head.first() else { continue };
            // An unread body would reset the connection.
            let length = head.iter().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let value = value.trim().parse().ok();
                value.filter(|_| name.eq_ignore_ascii_case("content-length"))
            });
            let _ = io::copy(&mut reader.by_ref().take(length.unwrap_or(0)), &mut io::sink());
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

/// Spellings of a path that lead to the same file.
pub(crate) fn spellings(path: &str) -> Vec<String> {
    let name = path.trim_start_matches('/');
    let (first, rest) = name.split_at(1);
    vec![
        path.to_owned(),
        format!("//{name}"),
        format!("/./{name}"),
        format!("/x/../{name}"),
        format!("/%{:02x}{rest}", first.as_bytes()[0]),
        format!("/{}", name.to_ascii_uppercase()),
        path.replace('/', "//"),
        path.replacen('/', "/%2e/", 1),
        format!("{path}/"),
        format!("{path}/."),
        format!("{path}%00"),
        format!("{path}%0a"),
        format!("{path};x"),
        format!("{path}?x=/../open"),
        format!("/open/..{path}"),
        format!("/open/%2e%2e{path}"),
        path.replace('/', "/%2f"),
        path.replace('/', "\\"),
    ]
}
