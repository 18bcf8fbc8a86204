//! Authorizers (`docs/fastcgi.md`) that misbehave, and scripts of php-fpm as authorizers. Only a
//! response that allows the request gives access.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use sendoff_fastcgi::record::{AUTHORIZER, BeginRequest, EndRequest, Header, Kind};
use sendoff_tests::{Broken, Fpm, LIMIT, Request, Server, Site};

/// Files and scripts; without access a client may not get any byte of them.
fn site() -> Site {
    let site = Site::with("secret.txt", "the secret");
    site.write("secret.php", "<?php echo 'the secret of ', $_SERVER['REMOTE_USER'] ?? 'all';");
    site
}

/// A server with these routes, and with `keys` of the site, in TOML.
fn serve(site: &Site, keys: &str, routes: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'cache'\n[[pool]]\nworkers = 1\n\
         [[site]]\nroot = 'root'\nfastcgi_timeout = '1s'\n{keys}\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 1).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

/// The behaviour of an authorizer after its last byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    Silence,
}

/// An authorizer that answers each request as a script says.
struct Scripted {
    server: Server,
    scripts: Sender<(Vec<u8>, Then)>,
    /// The questions.
    asked: Receiver<Vec<u8>>,
    site: Site,
}

impl Scripted {
    fn start(keys: &str, routes: &str) -> Self {
        let site = site();
        let path = site.outside("authorizer.sock");
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        let (scripts, next) = channel::<(Vec<u8>, Then)>();
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for (answer, then) in next {
                let (mut stream, _) = listener.accept().unwrap();
                let Some(question) = question(&mut stream) else { continue };
                if tell.send(question).is_err() {
                    return;
                }
                // The front may have closed the connection, and be right.
                let said = stream.write_all(&answer);
                if said.is_ok() && then == Then::Silence {
                    silent.push(stream);
                }
            }
        });
        let routes = routes.replace("APP", &format!("unix:{}", path.display()));
        Self { server: serve(&site, keys, &routes), scripts, asked, site }
    }

    /// Sends a request that the authorizer answers with `answer`, and returns the client's status
    /// and body. The request is a `POST`, which has a connection of its own and is not repeated.
    fn ask(&self, target: &str, answer: Vec<u8>, then: Then) -> Result<(u16, String), Broken> {
        self.scripts.send((answer, then)).unwrap();
        let request = Request::post(target, "text/plain", "x");
        let response = self.server.connect().try_ask(&request)?;
        self.asked.recv_timeout(LIMIT).unwrap();
        Ok((response.status(), response.text()))
    }
}

/// Reads up to the end of the empty body; `None`: the front has given the connection up.
fn question(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    while !all.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => all.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
    Some(all)
}

fn stdout(text: &[u8]) -> Vec<u8> {
    let header = Header::new(Kind::STDOUT, 1, text.len().try_into().unwrap());
    [&header.encode(), text].concat()
}

fn end(app_status: u32) -> Vec<u8> {
    EndRequest { app_status, protocol_status: 0 }.encode(1).to_vec()
}

/// A whole response of an authorizer.
fn response(text: &str) -> Vec<u8> {
    [stdout(text.as_bytes()), end(0)].concat()
}

const ALL: &str = "[[site.route]]\nauthorize = 'APP'\n";

const YES: &str = "Status: 200 OK\r\nVariable-REMOTE_USER: ann\r\n\r\n";

#[test]
fn only_a_complete_permission_gives_access() {
    let app = Scripted::start("", ALL);
    let refused =
        |protocol_status| EndRequest { app_status: 0, protocol_status }.encode(1).to_vec();
    let page = "Status: 200 OK\r\n\r\n";
    let failures: Vec<(&str, Vec<u8>, Then, &[u16])> = vec![
        ("dies at once", Vec::new(), Then::Close, &[502]),
        ("says nothing", Vec::new(), Then::Silence, &[504]),
        ("half a head", stdout(b"Status: 200 OK\r\nVari"), Then::Close, &[502]),
        ("half a head, and waits", stdout(b"Status: 200 OK\r\nVari"), Then::Silence, &[504]),
        ("a head and no end", stdout(YES.as_bytes()), Then::Close, &[502]),
        ("a head, and waits", stdout(YES.as_bytes()), Then::Silence, &[504]),
        ("no head", end(0), Then::Silence, &[502]),
        ("an empty head", response("\r\n"), Then::Silence, &[502]),
        (
            "a failure behind the head",
            [stdout(page.as_bytes()), end(1)].concat(),
            Then::Close,
            &[502],
        ),
        ("overloaded", refused(2), Then::Silence, &[503]),
        ("another role", refused(3), Then::Silence, &[502]),
        (
            "a wrong id",
            [&[1, 6, 0, 9, 0, 1, 0, 0, b'x'][..], &end(0)].concat(),
            Then::Silence,
            &[502],
        ),
        ("nonsense", b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), Then::Silence, &[502]),
        (
            "a folded field",
            response("Status: 200\r\nVariable-A: x\r\n y\r\n\r\n"),
            Then::Silence,
            &[502],
        ),
        ("a bad status", response("Status: yes\r\n\r\n"), Then::Silence, &[502]),
        ("101", response("Status: 101 Switching\r\n\r\n"), Then::Silence, &[502]),
        (
            "an endless body",
            [
                &stdout(page.as_bytes())[..],
                &stdout(&[b'x'; 50_000]),
                &stdout(&[b'x'; 50_000]),
                &end(0),
            ]
            .concat(),
            Then::Silence,
            &[502],
        ),
    ];
    for (what, answer, then, expected) in failures {
        for target in ["/secret.txt", "/secret.php"] {
            let got = app.ask(target, answer.clone(), then);
            let Ok((status, body)) = got else { panic!("{what}: {got:?}") };
            assert!(expected.contains(&status), "{what}: {status}");
            assert!(!body.contains("the secret"), "{what}: {body}");
        }
        let got = app.ask("/secret.php", response(YES), Then::Silence).unwrap();
        assert_eq!(got, (200, "the secret of ann".to_owned()), "after {what}");
    }
    drop(app.scripts);
    std::fs::remove_file(app.site.outside("authorizer.sock")).unwrap();
    assert_eq!(app.server.get("/secret.txt").status(), 502, "without an authorizer");
    app.server.await_log("no access without an authorizer");
}

#[test]
fn a_refusal_is_the_clients_response() {
    let app = Scripted::start("error_pages = { 403 = '/secret.txt' }", ALL);
    let large = format!("Status: 403 No\r\n\r\n{}", "no ".repeat(20_000));
    let got = app.ask("/secret.txt", response(&large), Then::Silence).unwrap();
    assert_eq!(got, (403, "no ".repeat(20_000)));
    app.scripts.send((response("Location: /login?from=x\r\n\r\n"), Then::Close)).unwrap();
    let redirect = app.server.ask(&Request::post("/secret.php", "text/plain", "x"));
    assert_eq!((redirect.status(), redirect.header("Location")), (302, Some("/login?from=x")));
}

/// The question has the role, the parameters that belong to it, and no body.
#[test]
fn the_question_is_as_the_specification_says() {
    let app = Scripted::start("", ALL);
    app.ask("/secret.txt", response(YES), Then::Silence).unwrap();
    app.scripts.send((response(YES), Then::Silence)).unwrap();
    let headers = Request::post("/secret.php/info?a=b", "text/plain", "12345");
    let headers =
        headers.header("Remote-User", "mallory").header("Variable-REMOTE_USER", "mallory");
    assert_eq!(app.server.ask(&headers).text(), "the secret of ann");
    let question = app.asked.recv_timeout(LIMIT).unwrap();
    let (role, _) = BeginRequest::decode(&question[8..16]).unwrap();
    assert_eq!(role, AUTHORIZER);
    let text = String::from_utf8_lossy(&question);
    assert!(text.contains("REQUEST_URI/secret.php/info?a=b"), "{text}");
    for absent in
        ["\u{e}\u{1}CONTENT_LENGTH", "PATH_INFO", "PATH_TRANSLATED", "SCRIPT_NAME", "12345"]
    {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}

/// The authorizer is asked for each request, also for kept pages; no user gets a page that was made
/// for another user.
#[test]
fn kept_pages_are_sent_only_with_access() {
    let routes = "[[site.route]]\npage_cache = '1h'\nauthorize = 'APP'\n";
    let app = Scripted::start("", routes);
    app.site.write("made.php", "<?php file_put_contents('made', 'x', FILE_APPEND); echo 'for ', $_SERVER['REMOTE_USER'] ?: 'all';");
    let get = |answer: &str| {
        app.scripts.send((response(answer), Then::Close)).unwrap();
        let response = app.server.get("/made.php");
        app.asked.recv_timeout(LIMIT).unwrap();
        (response.status(), response.text())
    };
    let anonymous = "Status: 200 OK\r\n\r\n";
    for _ in 0..2 {
        assert_eq!(get(anonymous), (200, "for all".to_owned()));
    }
    assert_eq!(std::fs::read(app.site.path("made")).unwrap().len(), 1, "kept");
    assert_eq!(get("Status: 403 No\r\n\r\nno"), (403, "no".to_owned()));
    for name in ["ann", "bob", "ann"] {
        let said = format!("Status: 200 OK\r\nVariable-REMOTE_USER: {name}\r\n\r\n");
        assert_eq!(get(&said), (200, format!("for {name}")));
    }
    assert_eq!(get(anonymous), (200, "for all".to_owned()));
    assert_eq!(std::fs::read(app.site.path("made")).unwrap().len(), 4);
}

/// A path that a request is led to has an authorizer of its own, and so have the pages of errors.
#[test]
fn no_way_leads_around_an_authorizer() {
    let routes = "[[site.route]]\npath = '/around'\nrewrite = '/secret.txt'\n\
        [[site.route]]\npath = '/secret.txt'\nauthorize = 'APP'\n\
        [[site.route]]\nprefix = '/folder'\nmatch = 'index'\nauthorize = 'APP'\n\
        [[site.route]]\npath = '/denied'\ndeny = true\n";
    let app =
        Scripted::start("index = ['index.txt']\nerror_pages = { 403 = '/secret.txt' }", routes);
    app.site.folder("folder");
    app.site.write("folder/index.txt", "the secret");
    for target in
        ["/around", "/secret.txt", "/folder/", "/folder/index.txt", "/%73ecret.txt", "//secret.txt"]
    {
        app.scripts.send((response("Status: 401 No\r\n\r\nno"), Then::Close)).unwrap();
        let response = app.server.get(target);
        assert_eq!((response.status(), response.text()), (401, "no".to_owned()), "{target}");
        app.asked.recv_timeout(LIMIT).unwrap();
    }
    app.scripts.send((response("Status: 401 No\r\n\r\nno"), Then::Close)).unwrap();
    let page = app.server.get("/denied");
    assert_eq!(page.status(), 403);
    assert!(!page.text().contains("the secret"), "{}", page.text());
}

/// php-fpm runs a script as the authorizer. A response without `Status` is a 200, and a fatal error
/// in php-fpm's log is a failure.
#[test]
fn scripts_of_php_fpm_are_authorizers() {
    let site = site();
    let check = "<?php if (($_GET['do'] ?? '') === 'die') { ini_set('display_errors', '1'); no_such_function(); }
        if (($_COOKIE['user'] ?? '') !== 'ann') { http_response_code(403); exit('not you'); }
        header('Variable-REMOTE_USER: ' . $_COOKIE['user']); echo $_SERVER['FCGI_ROLE'];";
    let script = site.write_at(site.outside("check.php"), check);
    let fpm = Fpm::start(site.root(), "");
    let routes = format!(
        "[[site.route]]\nauthorize = {{ fastcgi = '{}', script = '{}' }}\n",
        fpm.address(),
        script.display()
    );
    let server = serve(&site, "", &routes);
    for _ in 0..3 {
        let denied = server.get("/secret.txt");
        assert_eq!((denied.status(), denied.text()), (403, "not you".to_owned()));
        let mine = |target: &str| server.ask(&Request::get(target).header("Cookie", "user=ann"));
        assert_eq!(mine("/secret.txt").text(), "the secret");
        assert_eq!(mine("/secret.php").text(), "the secret of ann");
        let died = mine("/secret.txt?do=die");
        assert!(died.status() >= 500 && !died.text().contains("the secret"), "{}", died.status());
    }
}
