//! Responses that redirect a request to another application: `X-Accel-Redirect` to an internal
//! route, `X-Reproxy-URL` (`docs/named-files.md`).

use std::time::{Duration, Instant};

use sendoff_tests::{
    Client, Fpm, LIMIT, Request, Response, Server, Site, Stock, pattern, processes, wait,
};

use crate::responder::{Peer, Responder};
use crate::serve;

/// The head that the application sends for `/N`.
type Heads = &'static [&'static str];

/// Answers like an object store: `/store/gone` is missing, other paths are objects whose contents
/// name the request.
fn store(peer: &mut Peer, request: &str) -> Option<()> {
    let (line, fields) = request.split_once("\r\n").unwrap();
    let (method, rest) = line.split_once(' ').unwrap();
    let target = rest.strip_suffix(" HTTP/1.1").or(rest.strip_suffix(" HTTP/1.0")).unwrap();
    let has = |field: &str| fields.to_lowercase().contains(field);
    let body = format!("object of {method} {target}").replace("HEAD", "GET");
    let length = body.len();
    let (status, more, body) = if target.starts_with("/store/gone") {
        ("404 Not Found", String::new(), "gone".to_owned())
    } else if has("if-none-match: \"store\"") {
        ("304 Not Modified", String::new(), String::new())
    } else if has("range: bytes=0-5") {
        let part = body[..6].to_owned();
        ("206 Partial Content", format!("Content-Range: bytes 0-5/{length}\r\n"), part)
    } else {
        ("200 OK", String::new(), body)
    };
    let own = match target.contains("bare") {
        true => "",
        false => {
            "Cache-Control: max-age=1\r\nContent-Disposition: store\r\nExpires: Sun, 01 Jan 2017 00:00:00 GMT\r\n\
             Set-Cookie: s=1\r\nX-Store: 1\r\nX-Accel-Redirect: /prot/a.txt\r\nX-Sendfile: /etc/passwd\r\n"
        }
    };
    let length = if status.starts_with("304") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let body = if method == "HEAD" { "" } else { &body };
    peer.say(format!(
        "HTTP/1.1 {status}\r\nETag: \"store\"\r\nLast-Modified: Sun, 01 Jan 2017 00:00:00 GMT\r\n\
         Content-Type: store/type\r\n{own}{more}{length}\r\n{body}"
    ))
}

/// An application and an object store in one: paths beneath `/store` are objects, others are the
/// heads in `heads`, by number.
fn application(heads: Heads) -> Responder {
    Responder::start(move |peer| {
        loop {
            let request = peer.request()?;
            let path = request.split(' ').nth(1)?.to_owned();
            if path.starts_with("/store") {
                store(peer, &request)?;
                continue;
            }
            let number: usize = path.trim_start_matches('/').parse().unwrap();
            let body = if request.starts_with("HEAD") { "" } else { "own" };
            peer.say(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n{}\r\n{body}",
                heads[number]
            ))?;
        }
    })
}

/// The parts of a response on which both servers must agree.
fn seen(response: &Response) -> String {
    let fields = [
        "content-type",
        "content-length",
        "content-range",
        "content-disposition",
        "last-modified",
        "expires",
        "x-own",
    ];
    let field = |name: &&str| format!("{name}: {}\n", response.header(name).unwrap_or("none"));
    let mut cookies: Vec<_> = response.head.all("set-cookie").collect();
    cookies.sort_unstable();
    // nginx sends both fields. Caches obey the stricter one, which is the first application's here.
    let caching = response.header("cache-control").unwrap_or("none");
    format!(
        "{} {}{cookies:?} {caching} {}",
        response.status(),
        fields.iter().map(field).collect::<String>(),
        response.text()
    )
}

const HEADS: Heads = &[
    "X-Accel-Redirect: /store/a%20b?sig=x%2Fy&c=d\r\n",
    "X-Accel-Redirect: /store/bare\r\nContent-Type: app/type\r\nCache-Control: private\r\nSet-Cookie: a=1\r\nX-Own: 1\r\n\
     Content-Disposition: app\r\nExpires: Mon, 02 Jan 2017 00:00:00 GMT\r\nETag: \"app\"\r\n",
    "X-Accel-Redirect: /store/a\r\nCache-Control: private\r\nSet-Cookie: a=1\r\nX-Own: 1\r\nContent-Disposition: app\r\n\
     Expires: Mon, 02 Jan 2017 00:00:00 GMT\r\n",
    "X-Accel-Redirect: /prot/a.txt\r\nContent-Type: app/type\r\nCache-Control: private\r\nSet-Cookie: a=1\r\n\
     Content-Disposition: app\r\nLast-Modified: Mon, 02 Jan 2017 00:00:00 GMT\r\n",
    "X-Accel-Redirect: /prot/a.txt\r\nContent-Type: text/plain\r\nX-Accel-Charset: utf-8\r\nX-Accel-Limit-Rate: 0\r\n\
     X-Accel-Buffering: no\r\nX-Accel-Expires: 10\r\n",
    "Content-Type: text/plain\r\nX-Accel-Charset: utf-8\r\nX-Accel-Limit-Rate: nonsense\r\nX-Accel-Buffering: perhaps\r\n",
    "Content-Type: text/plain; charset=koi8-r\r\nX-Accel-Charset: utf-8\r\n",
    "X-Accel-Redirect: /prot/none\r\n",
    "X-Accel-Redirect: /store/gone/bare\r\n",
    "X-Accel-Redirect: /prot/a.txt?x=y\r\nX-Accel-Redirect: /prot/none\r\nContent-Type: a/b\r\n",
    "X-Accel-Redirect: /store/raw bare\r\n",
];

/// A server whose requests go to `app`, which may lead them to itself and to the file `a.txt`.
fn led(site: &Site, app: &Responder) -> Server {
    site.write_at(site.outside("files/a.txt"), "0123456789");
    let folder = site.outside("files").display().to_string();
    let url = app.url();
    serve(
        site,
        &format!(
            "sendfile_from = '{folder}'\naccel = {{ '/prot' = '{folder}' }}\n\
             [[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{url}'\n\
             [[site.route]]\nproxy = '{url}'\n"
        ),
    )
}

#[test]
fn answers_are_those_of_nginx() {
    let site = Site::new();
    let app = application(HEADS);
    let server = led(&site, &app);
    let (url, files) = (app.url(), site.outside("files").display().to_string());
    // nginx takes only charsets that its configuration mentions.
    let nginx = Stock::nginx(
        site.root(),
        "",
        &format!(
            "location / {{ proxy_pass {url}; }}\n\
             location /known {{ charset utf-8; }}\n\
             location /prot/ {{ internal; alias {files}/; }}\n\
             location /store {{ internal; proxy_ignore_headers X-Accel-Redirect; proxy_pass {url}; }}"
        ),
    );
    for (number, head) in HEADS.iter().enumerate() {
        let target = format!("/{number}");
        for request in [
            Request::get(&target),
            Request::new("HEAD", &target),
            Request::get(&target).header("Range", "bytes=0-5"),
            Request::get(&target).header("If-None-Match", "\"store\""),
            Request::post(&target, "text/plain", "body"),
        ] {
            let (ours, theirs) = (server.ask(&request), nginx.ask(&request));
            let shown = String::from_utf8_lossy(&request.bytes()).into_owned();
            if ours.status() >= 400 && head.contains("/prot/") {
                assert_eq!(ours.status(), theirs.status(), "{shown}");
                continue;
            }
            assert_eq!(seen(&ours), seen(&theirs), "{head}{shown}");
            for hidden in
                ["x-accel-redirect", "x-accel-charset", "x-accel-limit-rate", "x-sendfile"]
            {
                assert_eq!(ours.header(hidden), None, "{shown}");
            }
        }
    }
    // Clients do not get there.
    for path in ["/store/a", "/store", "//store/a", "/x/../store/a", "/%73tore/a"] {
        assert_eq!(server.get(path).status(), 404, "{path}");
    }
    assert_eq!(server.get("/0").text(), "object of GET /store/a%20b?sig=x%2Fy&c=d");
}

const URLS: &str = "<?php
header('Content-Type: app/type');
header('X-Own: 1');
header('ETag: \"app\"');
if (isset($_GET['size'])) header('X-Reproxy-Expected-Size: ' . $_GET['size']);
header('X-Reproxy-Cache-For: 60');
header('X-Reproxy-URL: ' . $_GET['urls']);
echo 'own';";

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

fn php_and(site: &Site, routes: &str, workers: usize) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = {workers}\n[[site]]\nroot = 'root'\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), workers).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

#[test]
fn the_body_of_a_url_takes_the_place_of_the_applications() {
    let site = Site::with("x.php", URLS);
    let app = application(&[]);
    let url = app.url();
    let server = php_and(
        &site,
        &format!("[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{url}'\n"),
        2,
    );
    let target = |urls: &str| format!("/x.php?urls={}", encoded(urls));
    let get = |urls: &str| server.get(&target(urls));
    let response = get(&format!("{url}/store/a?sig=%2F"));
    assert_eq!(
        (response.status(), response.text()),
        (200, "object of GET /store/a?sig=%2F".into())
    );
    assert_eq!(response.header("content-type"), Some("app/type"));
    assert_eq!(response.header("x-own"), Some("1"));
    assert_eq!(response.header("etag"), Some("\"store\""));
    for absent in ["x-store", "x-reproxy-url", "x-reproxy-cache-for", "content-disposition"] {
        assert_eq!(response.header(absent), None, "{absent}");
    }
    let asked = app.seen().pop().unwrap().to_lowercase();
    assert!(asked.contains(&format!("host: {}", app.addr())), "{asked}");
    let one = target(&format!("{url}/store/a"));
    let with = |name: &str, value: &str| server.ask(&Request::get(&one).header(name, value));
    let part = with("Range", "bytes=0-5");
    assert_eq!((part.status(), part.text()), (206, "object".to_owned()));
    assert_eq!(part.header("content-range"), Some("bytes 0-5/22"));
    assert_eq!(with("If-None-Match", "\"store\"").status(), 304);
    let head = server.ask(&Request::new("HEAD", &one));
    assert_eq!((head.status(), head.header("content-length")), (200, Some("22")));
    assert_eq!(
        server.ask(&Request::post(&one, "text/plain", "x")).text(),
        "object of GET /store/a"
    );
    // Nothing of the client reaches the other application.
    with("Cookie", "session=secret");
    with("Authorization", "Basic c2VjcmV0");
    assert!(!app.seen().join("").to_lowercase().contains("secret"));
    assert!(!app.seen().join("").contains("text/plain"));
    // The first URL that has a body.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(get(&format!("{url}/store/gone  {url}/store/b")).text(), "object of GET /store/b");
    assert_eq!(get(&format!("http://{dead}/store/a {url}/store/b")).status(), 200);
    assert_eq!(get(&format!("{url}/store/gone {url}/store/gone/2")).status(), 404);
    let sized = |size: u32| {
        let urls = encoded(&format!("{url}/store/a {url}/store/abc"));
        server.get(&format!("/x.php?urls={urls}&size={size}"))
    };
    assert_eq!(sized(22).text(), "object of GET /store/a");
    assert_eq!(sized(24).text(), "object of GET /store/abc");
    assert_eq!(sized(23).status(), 502);
}

#[test]
fn no_application_is_asked_that_is_not_listed() {
    let site = Site::with("x.php", URLS);
    site.write("r.php", "<?php header('X-Accel-Redirect: ' . $_GET['uri']); echo 'own';");
    let (app, other) = (application(&[]), application(&[]));
    let (url, addr) = (app.url(), app.addr());
    let server = php_and(
        &site,
        &format!(
            "[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{url}'\n\
             [[site.route]]\nprefix = '/outside'\nproxy = '{}'\n",
            other.url()
        ),
        2,
    );
    let urls = [
        format!("{}/store/a", other.url()),
        format!("http://localhost:{}/store/a", addr.port()),
        format!("https://{addr}/store/a"),
        format!("ftp://{addr}/store/a"),
        format!("http://{addr}@{}/store/a", other.addr()),
        format!("http://{}#@{addr}/store/a", other.addr()),
        format!("http://{}\\@{addr}/store/a", other.addr()),
        format!("http://{addr}.evil.test/store/a"),
        format!("http://user:secret@{addr}/store/a"),
        format!("//{addr}/store/a"),
        "/store/a".to_owned(),
        "file:///etc/passwd".to_owned(),
        "http://169.254.169.254/store/latest/meta-data".to_owned(),
        format!("{url}/elsewhere"),
        format!("{url}/store/../elsewhere"),
        format!("{url}/store/%2e%2e/elsewhere"),
        format!("{url}/store%2f..%2felsewhere"),
        format!("{url}/stored"),
        format!("{url}/store/%00"),
        format!("{url}/store/%zz"),
        format!("{url}/store/\u{e9}"),
    ];
    for named in &urls {
        let response = server.get(&format!("/x.php?urls={}", encoded(named)));
        assert_eq!(response.status(), 403, "{named}");
        assert!(!response.text().contains("object"), "{named}");
    }
    server.await_log("internal = true and proxy =");
    for uri in ["/outside/a", "/store/../x.php", "/store/%2e%2e/outside", "/store/%00", "//outside"]
    {
        let response = server.get(&format!("/r.php?uri={}", encoded(uri)));
        assert!([403, 404].contains(&response.status()), "{uri}: {}", response.status());
    }
    assert_eq!((app.connections(), other.connections()), (0, 0));
}

/// Routes hold for a named URI as for a client's request, also without the parameters that the
/// application behind the internal route may drop.
#[test]
fn parameters_in_a_named_path_get_past_no_route() {
    let site = Site::with("x.php", URLS);
    site.write("r.php", "<?php header('X-Accel-Redirect: ' . $_GET['uri']); echo 'own';");
    let of = |name| format!("{name}:{{SHA}}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    site.write_at(site.outside("staff"), of("ann") + &of("bob"));
    site.write_at(site.outside("admins"), of("bob"));
    let app = application(&[]);
    let url = app.url();
    let server = php_and(
        &site,
        &format!(
            "[[site.route]]\nprefix = '/store'\nauth = {{ users = 'staff' }}\n\
             [[site.route]]\nprefix = '/store/private'\ndeny = true\n\
             [[site.route]]\nprefix = '/store/admin'\nauth = {{ users = 'admins' }}\n\
             [[site.route]]\nprefix = '/store/near'\nallow_from = '10.0.0.0/8'\ninternal = true\nproxy = '{url}'\n\
             [[site.route]]\nprefix = '/store/own'\nauth = {{ users = 'admins' }}\ninternal = true\nproxy = '{url}'\n\
             [[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{url}'\n\
             [[site.route]]\nmatch = '^/led/(.*)$'\ninternal = true\nrewrite = '/store/$1'\nproxy = '{url}'\n"
        ),
        2,
    );
    let ask = |target: &str, credentials: &str| {
        let count = app.seen().len();
        let status =
            server.ask(&Request::get(target).header("Authorization", credentials)).status();
        // A refused request has not reached the application.
        assert_eq!(app.seen().len() > count, status == 200, "{target}: {status}");
        status
    };
    let (as_ann, as_bob) = ("Basic YW5uOm9wZW4gc2VzYW1l", "Basic Ym9iOm9wZW4gc2VzYW1l");
    for (uri, for_ann, for_bob) in [
        ("/store/a", 200, 200),
        ("/store/a;x", 200, 200),
        ("/store/privates;x/a", 200, 200),
        // Decoded once more, it would be a parameter: no container does that.
        ("/store/private%253ba/x", 200, 200),
        ("/store/private/x", 403, 403),
        ("/store/private;a/x", 403, 403),
        ("/store/private%3ba/x", 403, 403),
        ("/store/private%3Ba;b/x", 403, 403),
        ("/store/;/private/x", 403, 403),
        ("/store/;x/;y/private;", 403, 403),
        ("/store/x/..;/private/x", 403, 403),
        ("/store/..;/..;/x", 403, 403),
        ("/store/private;a/\u{e9}", 403, 403),
        ("/store/admin/x", 401, 200),
        ("/store/admin;a/x", 401, 200),
        ("/store/admin%3ba/x", 401, 200),
        ("/store/own/x", 401, 200),
        ("/store/own;a/x", 401, 200),
        ("/store/near/x", 403, 403),
        ("/store/near;a/x", 403, 403),
        ("/led/private;a/x", 200, 200),
    ] {
        let target = format!("/r.php?uri={}", encoded(uri));
        assert_eq!((ask(&target, as_ann), ask(&target, as_bob)), (for_ann, for_bob), "{uri}");
    }
    // The path of a URL is one of the host, so only the internal routes count.
    for (path, for_ann, for_bob) in [
        ("/store/a;x", 200, 200),
        ("/store/private/x", 200, 200),
        ("/store/own/x", 401, 200),
        ("/store/own;a/x", 401, 200),
        ("/store/near/x", 403, 403),
        ("/store/near;a/x", 403, 403),
        ("/store/near%3ba/x", 403, 403),
    ] {
        let target = format!("/x.php?urls={}", encoded(&format!("{url}{path}")));
        assert_eq!((ask(&target, as_ann), ask(&target, as_bob)), (for_ann, for_bob), "{path}");
    }
}

/// The authorizer of an internal route decides about the client, of whom a named host learns nothing.
#[test]
fn an_authorizer_of_an_internal_route_is_asked() {
    let site = Site::with("x.php", URLS);
    site.write("r.php", "<?php header('X-Accel-Redirect: ' . $_GET['uri']); echo 'own';");
    let check = "<?php if (($_COOKIE['user'] ?? '') !== 'ann') http_response_code(403);";
    let script = site.write_at(site.outside("check.php"), check).display().to_string();
    let (app, fpm) = (application(&[]), Fpm::start(site.root(), ""));
    let (url, asked) = (app.url(), fpm.address());
    let server = php_and(
        &site,
        &format!(
            "[[site.route]]\nprefix = '/store/own'\nauthorize = {{ fastcgi = '{asked}', script = '{script}' }}\n\
             internal = true\nproxy = '{url}'\n\
             [[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{url}'\n"
        ),
        2,
    );
    for path in ["/store/own/x", "/store/own;a/x"] {
        let by_url = format!("/x.php?urls={}", encoded(&format!("{url}{path}")));
        let by_uri = format!("/r.php?uri={}", encoded(path));
        for target in [by_url, by_uri] {
            assert_eq!(server.get(&target).status(), 403, "{target}");
            let as_ann = Request::get(&target).header("Cookie", "user=ann");
            assert_eq!(server.ask(&as_ann).status(), 200, "{target}");
            let asked = app.seen().pop().unwrap();
            assert_eq!(asked.contains("user=ann"), target.starts_with("/r.php"), "{asked}");
        }
    }
    assert_eq!(app.seen().len(), 4, "a refused request has not reached the application");
}

#[test]
fn a_store_leads_nowhere() {
    let site = Site::with("x.php", "<?php header('X-Accel-Redirect: /store/a'); echo 'own';");
    site.write("prot/a.txt", "not for stores");
    let app = application(&[]);
    let server = php_and(
        &site,
        &format!(
            "sendfile_from = 'root/prot'\n[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{}'\n",
            app.url()
        ),
        2,
    );
    let response = server.get("/x.php");
    assert_eq!((response.status(), response.text()), (200, "object of GET /store/a".to_owned()));
    assert_eq!(response.header("x-sendfile"), None);
    assert_eq!(app.seen().len(), 1);
}

/// The store answers only when the test lets it; meanwhile the only worker answers another request.
#[test]
fn the_worker_is_free_while_the_store_answers() {
    let (let_go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let app = Responder::start(move |peer| {
        let request = peer.request()?;
        wait.lock().unwrap().recv().ok()?;
        store(peer, &request)
    });
    let site = Site::with("x.php", "<?php header('X-Accel-Redirect: /store/a');");
    site.write("y.php", "<?php echo 'the worker is free';");
    let server = php_and(
        &site,
        &format!("[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{}'\n", app.url()),
        1,
    );
    let mut client = server.connect();
    client.send(Request::get("/x.php").bytes());
    assert!(wait::until(LIMIT, || app.seen().len() == 1));
    assert_eq!(server.get("/y.php").text(), "the worker is free");
    let_go.send(()).unwrap();
    assert_eq!(client.response("GET").text(), "object of GET /store/a");
    // A client that leaves: the next request is served.
    let mut leaving = server.connect();
    leaving.send(Request::get("/x.php").bytes());
    assert!(wait::until(LIMIT, || app.seen().len() == 2));
    drop(leaving);
    let_go.send(()).unwrap();
    assert_eq!(server.get("/y.php").text(), "the worker is free");
}

#[test]
fn a_store_that_fails_is_answered_for() {
    let site = Site::with("x.php", "<?php header('X-Accel-Redirect: /store/a'); echo 'own';");
    for (wire, expected) in [
        (&b"garbage\r\n\r\n"[..], Some(502)),
        (b"", Some(502)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", Some(502)),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", Some(502)),
        (b"HTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\nx", Some(500)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", None),
    ] {
        let app = Responder::start(move |peer| {
            peer.request()?;
            peer.say(wire)
        });
        let server = php_and(
            &site,
            &format!(
                "[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{}'\n",
                app.url()
            ),
            1,
        );
        let upgrade = Request::get("/x.php").header("Connection", "upgrade").header("Upgrade", "x");
        match (server.connect().try_ask(&upgrade), expected) {
            (Ok(response), Some(status)) => assert_eq!(response.status(), status, "{wire:?}"),
            (Err(_), None) => {}
            (other, _) => panic!("{wire:?}: {other:?}"),
        }
    }
}

#[test]
fn a_body_leaves_at_the_pace_that_the_application_asks_for() {
    const RATE: usize = 200_000;
    let script = "<?php
        header('X-Accel-Limit-Rate: 200000');
        header('Content-Type: application/x-thing');
        if ($_GET['how'] === 'file') header('X-Sendfile: ' . __DIR__ . '/a.bin');
        else if ($_GET['how'] === 'uri') header('X-Accel-Redirect: /a.bin');
        else if ($_GET['how'] === 'store') header('X-Accel-Redirect: /store/a');
        else echo file_get_contents(__DIR__ . '/a.bin');";
    let site = Site::with("x.php", script);
    site.write("y.php", "<?php echo 'not held up';");
    let contents = pattern(1, 3 * RATE);
    site.write("a.bin", &contents);
    let large = contents.clone();
    let app = Responder::start(move |peer| {
        peer.request()?;
        peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", large.len()))?;
        peer.say(&large)
    });
    let server = php_and(
        &site,
        &format!("[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{}'\n", app.url()),
        4,
    );
    let begin = Instant::now();
    let mut clients = ["file", "uri", "store", "bytes"].map(|how| {
        let mut client = server.connect();
        client.send(Request::get(&format!("/x.php?how={how}")).bytes());
        (how, client)
    });
    assert_eq!(server.get("/y.php").text(), "not held up");
    for (how, client) in &mut clients {
        let response = client.response("GET");
        assert!(response.expect(200) == contents, "{how}");
        assert_eq!(response.header("x-accel-limit-rate"), None);
        // The first second's bytes leave at once, the others take two seconds.
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(1900), "{how}: {took:?}");
    }
    let mut head = server.connect();
    assert!(head.ask(&Request::new("HEAD", "/x.php?how=file")).body.is_empty());
}

/// A client that reads nothing, and a body that names more files than may be open.
#[test]
fn files_named_in_a_body_are_opened_in_time() {
    const NAMES: usize = 600;
    let mixed = "<?php header('X-ZeroCopy: chunked'); $a = __DIR__ . '/a.bin';
        for ($i = 0; $i < 600; $i++) printf(\"%x;file\\r\\n%s\\r\\n\", strlen($a), $a);
        echo \"0\\r\\n\\r\\n\";";
    let site = Site::with("x.php", mixed);
    let contents = pattern(3, 80_000);
    site.write("a.bin", &contents);
    let server = php_and(&site, "[[site.route]]\nprefix = '/x.php'\nname_files = true\n", 2);
    let used = || processes::descriptors(server.front()).len();
    let before = used();
    let mut client = Client::connect_narrow(server.addr(), 16 * 1024);
    client.send(Request::get("/x.php").bytes());
    assert!(wait::until(LIMIT, || used() >= before + 200), "{} descriptors", used());
    let is_more = || used() > before + 280;
    assert!(!wait::until(Duration::from_millis(500), is_more), "{} descriptors", used());
    let response = client.response("GET");
    assert!(response.expect(200) == contents.repeat(NAMES), "{} bytes", response.body.len());
}

#[test]
fn routes_say_who_may_name_something() {
    let site = Site::with("x.php", "<?php header('X-Accel-Redirect: /store/a'); echo 'own';");
    site.write(
        "no/x.php",
        "<?php header('X-Sendfile: ' . dirname(__DIR__) . '/a.txt'); echo 'own';",
    );
    site.write("a.upload.php", "<?php header('X-Accel-Redirect: /store/a'); echo 'own';");
    site.write("no/led.php", "<?php header('X-Accel-Redirect: /store/a'); echo 'own';");
    let mixed = "<?php $a = dirname(__DIR__) . '/a.txt'; header('X-ZeroCopy: 1/' . strlen($a)); echo '<', $a, '>';";
    site.write("mixed/x.php", mixed);
    site.write("a.txt", "contents");
    let named = site.path("a.txt").display().to_string();
    let proxied = Responder::saying(format!(
        "HTTP/1.1 200 OK\r\nX-Sendfile: {named}\r\nContent-Length: 3\r\n\r\nown"
    ));
    let app = application(&[]);
    let (store, url) = (app.url(), proxied.url());
    let server = php_and(
        &site,
        &format!(
            "[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{store}'\n\
             [[site.route]]\nprefix = ['/no', '/app']\nname_files = false\n\
             [[site.route]]\nprefix = ['/mixed', '/may']\nname_files = true\n\
             [[site.route]]\nextension = '.upload.php'\nname_files = false\n\
             [[site.route]]\nprefix = ['/app', '/may']\nproxy = '{url}'\n"
        ),
        2,
    );
    for (path, body) in [
        ("/x.php", "object of GET /store/a"),
        ("/no/x.php", "own"),
        ("/no/led.php", "own"),
        ("/x.php/path/info", "object of GET /store/a"),
        ("/a.upload.php", "own"),
        ("/a.upload.php/path/info", "own"),
        ("/mixed/x.php", "<contents>"),
        ("/app/", "own"),
        ("/may/", "contents"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status(), &*response.text()), (200, body), "{path}");
        for hidden in ["x-sendfile", "x-accel-redirect"] {
            assert_eq!(response.header(hidden), None, "{path}");
        }
    }
}

/// Fields by which applications name something, with a value that names nothing.
const NAMING: [&str; 8] = [
    "X-Sendfile: /none",
    "X-Sendfile2: /none 0-",
    "X-Accel-Redirect: /none",
    "X-LiteSpeed-Location: /none",
    "X-Reproxy-URL: http://none.test/",
    "X-Reproxy-Expected-Size: 1",
    "X-ZeroCopy: 0/1",
    "X-Accel-Limit-Rate: 0",
];

/// An application that may not name files could otherwise tell clients which files it would name.
#[test]
fn what_names_something_reaches_no_client() {
    let site =
        Site::with("own.php", "<?php foreach ($_GET['h'] as $head) header($head); echo 'own';");
    let fields = NAMING.map(|field| format!("{field}\r\n")).concat();
    let head = format!("X-Own: 1\r\n{fields}Content-Length: 3\r\n\r\nown");
    let http = Responder::saying(format!("HTTP/1.1 200 OK\r\n{head}"));
    let switching = Responder::saying(format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\nX-Own: 1\r\n{fields}\r\n"
    ));
    let scgi = Responder::start(move |peer| {
        peer.bytes(1)?;
        peer.say(format!("Status: 200 OK\r\n{head}"))
    });
    let ajp = Responder::start(|peer| {
        crate::ajp::request(peer)?;
        let fields = NAMING.iter().filter_map(|field| field.split_once(": "));
        let fields: Vec<_> = [("X-Own", "1")].into_iter().chain(fields).collect();
        peer.say(crate::ajp::head(200, &fields))?;
        peer.say(crate::ajp::data(b"own"))?;
        peer.say(crate::ajp::END)
    });
    let to = |responder: &Responder, scheme: &str| responder.url().replace("http:", scheme);
    let server = php_and(
        &site,
        &format!(
            "[[site.route]]\npath = '/own.php'\nname_files = false\n\
             [[site.route]]\npath = '/http'\nproxy = '{}'\n\
             [[site.route]]\npath = '/switching'\nproxy = '{}'\n\
             [[site.route]]\npath = '/scgi'\nname_files = false\nproxy = '{}'\n\
             [[site.route]]\npath = '/ajp'\nname_files = false\nproxy = '{}'\n",
            http.url(),
            switching.url(),
            to(&scgi, "scgi:"),
            to(&ajp, "ajp:"),
        ),
        2,
    );
    let query = NAMING.map(|field| format!("h[]={}", encoded(field))).join("&");
    let clean = |head: &sendoff_tests::Head, path: &str| {
        let names = NAMING.map(|field| field.split(':').next().unwrap());
        let leaked: Vec<_> = names.iter().filter(|name| head.header(name).is_some()).collect();
        assert!(leaked.is_empty(), "{path}: {leaked:?}");
    };
    for path in ["/http", "/scgi", "/ajp", &format!("/own.php?h[]=X-Own:1&{query}")] {
        let response = server.get(path);
        assert_eq!((response.status(), &*response.text()), (200, "own"), "{path}");
        assert_eq!(response.header("X-Own"), Some("1"), "{path}");
        clean(&response.head, path);
    }
    let mut client = server.connect();
    let upgrade =
        Request::get("/switching").header("Connection", "Upgrade").header("Upgrade", "echo");
    client.send(upgrade.bytes());
    let head = client.head().unwrap();
    assert_eq!((head.status, head.header("X-Own")), (101, Some("1")));
    clean(&head, "/switching");
    // The response at which another application has led the client.
    let led = Site::with(
        "led.php",
        "<?php header('X-Accel-Redirect: /store/a'); header('X-ZeroCopy: 0/1');",
    );
    let routes =
        format!("[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{}'\n", http.url());
    let server = php_and(&led, &routes, 1);
    let response = server.get("/led.php");
    assert_eq!((&*response.text(), response.header("X-Own")), ("own", Some("1")));
    clean(&response.head, "/led.php");
}

/// A client for which no internal route is chosen gets the application's own body, which the page
/// cache does not keep for others.
#[test]
fn a_body_that_stays_because_of_the_client_is_not_kept() {
    let site = Site::new();
    let app = Responder::start(|peer| {
        loop {
            let request = peer.request()?;
            let body = if request.starts_with("GET /store/a ") { "led" } else { "own" };
            peer.say(format!(
                "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /store/a\r\nContent-Length: 3\r\n\r\n{body}"
            ))?;
        }
    });
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 'ondemand'\n\
         [[site]]\nroot = 'root'\npage_cache = '10m'\n\
         [[site.route]]\nprefix = '/store'\nheader = {{ X-Key = '^good$' }}\ninternal = true\nproxy = '{0}'\n\
         [[site.route]]\nproxy = '{0}'\n",
        app.url()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"));
    for (target, keys) in [("/a", ["good", "bad"]), ("/b", ["bad", "good"])] {
        for _ in 0..2 {
            for key in keys {
                let page = server.ask(&Request::get(target).header("X-Key", key));
                assert_eq!(page.text(), if key == "good" { "led" } else { "own" }, "{target}");
                assert_eq!(page.header("Cache-Status"), Some("sendoff; fwd=uri-miss"), "{target}");
            }
        }
    }
}

#[test]
fn a_response_that_was_led_elsewhere_is_explained() {
    let script = "<?php header('X-Accel-Limit-Rate: 1'); header('X-Accel-Buffering: no');
        header($_GET['h']); echo 'own';";
    let site = Site::with("x.php", script);
    let app = application(&[]);
    let url = app.url();
    let server = php_and(
        &site,
        &format!("[[site.route]]\nprefix = '/store'\ninternal = true\nproxy = '{url}'\n"),
        1,
    );
    for head in ["X-Accel-Redirect:/store/a".to_owned(), format!("X-Reproxy-URL:{url}/store/a")] {
        let table = server.explain(&format!("/x.php?h={}", encoded(&head)), &[]).unwrap();
        for text in [
            &*format!("answered by {url}"),
            &format!("led there by {}", head.replacen(':', ": ", 1)),
            "sent at 1 bytes/s (X-Accel-Limit-Rate)",
            "a slow client holds the application back (X-Accel-Buffering: no)",
        ] {
            assert!(table.contains(text), "{text:?} is not in\n{table}");
        }
    }
}
