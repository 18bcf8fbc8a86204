//! Applications that speak HTTP/1.1.

use sendoff_tests::{
    Authority, Broken, Client, Framing, LIMIT, Request, Server, Site, pattern, processes, wait,
};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::hosts::balance;
use crate::pass_on;
use crate::responder::{Peer, Responder};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Echoes each request.
fn echo(peer: &mut Peer) -> Option<()> {
    loop {
        let request = peer.request()?;
        peer.say(format!(
            "HTTP/1.1 200 Fine\r\nX-A: b\r\nContent-Length: {}\r\n\r\n{request}",
            request.len()
        ))?;
    }
}

#[test]
fn the_application_gets_the_request_and_the_client_its_response() {
    let (site, app) = (Site::new(), Responder::start(echo));
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    let request = Request::post("/a%20b/%2F?c=%20", "text/plain", "body")
        .header("Host", "a.test:81")
        .header("X-Forwarded-For", "6.6.6.6")
        .header("Connection", "keep-alive, X-Own")
        .header("X-Own", "secret")
        .header("TE", "trailers")
        .header("Cookie", "a=b");
    let response = client.ask(&request);
    assert_eq!((response.status(), &*response.head.reason), (200, "Fine"));
    assert_eq!(response.header("x-a"), Some("b"));
    let port = server.addr().port();
    assert_eq!(
        response.text(),
        format!(
            "POST /a%20b/%2F?c=%20 HTTP/1.1\r\nhost: a.test:81\r\ncontent-type: text/plain\r\ncookie: a=b\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: a.test:81\r\nx-forwarded-port: {port}\r\ncontent-length: 4\r\nte: trailers\r\nconnection: te\r\n\r\nbody"
        )
    );
    let head = client.ask(&Request::new("HEAD", "/x"));
    assert!(head.body.is_empty() && head.header("content-length").is_some());
    let large: Vec<u8> = pattern(1, 1_000_000).iter().map(|byte| b'a' + byte % 26).collect();
    let back = client.ask(&Request::post("/up", "text/plain", large.clone()));
    assert!(back.body.ends_with(&large) && back.body.len() < large.len() + 1000);
}

/// A proxy that names the client in one field passes others on as the client has sent them.
#[test]
fn only_the_field_that_trusted_proxies_write_names_the_client() {
    let (site, app) = (Site::new(), Responder::start(echo));
    for (field, told) in [
        ("CF-Connecting-IP", "192.0.2.9, 127.0.0.1"),
        ("Forwarded", "192.0.2.10, 127.0.0.1"),
        ("X-Forwarded-For", "198.51.100.1, 127.0.0.1"),
    ] {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\ntrusted_proxies = '127.0.0.1'\nproxy_field = '{field}'\n\
             [[site]]\nroot = 'root'\nphp = false\n[[site.route]]\nproxy = '{}'\n",
            app.url()
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run(&config, site.root(), 0).unwrap();
        let request = Request::get("/")
            .header("CF-Connecting-IP", "192.0.2.9")
            .header("Forwarded", "for=192.0.2.10")
            .header("X-Forwarded-For", "198.51.100.1");
        let got = server.connect().ask(&request).text();
        assert!(got.contains(&format!("\r\nx-forwarded-for: {told}\r\n")), "{field}: {got}");
    }
}

/// A client's `Connection` may take away fields of the client, but none that a route has set.
#[test]
fn connection_takes_away_no_field_of_a_route() {
    let (site, app) = (Site::new(), Responder::start(echo));
    site.write(".htaccess", "RequestHeader set X-Folder set\n");
    let routes = format!(
        "[[site.route]]\nrequest_headers = {{ X-Role = 'set', '?X-More' = 'set' }}\n\
         [[site.route]]\nprefix = '/stored'\ninternal = true\nrequest_headers = {{ Authorization = 'key' }}\nproxy = '{url}'\n\
         [[site.route]]\nproxy = '{url}'\n",
        url = app.url()
    );
    let server = crate::serve(&site, &routes);
    let request = Request::get("/")
        .header("X-Role", "set")
        .header("X-More", "client")
        .header("X-Own", "client")
        .header("Connection", "keep-alive, X-Role, x-more, X-Own, X-Forwarded-For");
    let response = server.ask(&request);
    let asked = response.text();
    for field in ["x-role: set\r\n", "x-more: set\r\n", "x-forwarded-for: 127.0.0.1\r\n"] {
        assert!(asked.contains(field), "no {field:?}: {asked}");
    }
    assert!(!asked.contains("client"), "{asked}");
}

/// Servlet containers drop `;...` of each segment before they look at a path, so routes that deny a
/// path deny it with `;...` as well.
#[test]
fn parameters_and_backslashes_in_a_path_get_past_no_route() {
    let (site, app) = (Site::new(), Responder::start(echo));
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let routes = format!(
        "[[site.route]]\nprefix = '/manager'\ndeny = true\n\
         [[site.route]]\nextension = 'jspx'\ndeny = true\n\
         [[site.route]]\nprefix = '/admin'\nauth = {{ users = '{}' }}\n\
         [[site.route]]\nprefix = '/stored'\ninternal = true\nproxy = '{url}'\n\
         [[site.route]]\nproxy = '{url}'\n",
        users.display(),
        url = app.url()
    );
    let server = crate::serve(&site, &routes);
    for (target, status) in [
        ("/manager/s.txt", 403),
        ("/manager;/s.txt", 403),
        ("/manager;a=b;c/s.txt", 403),
        ("/manager%3b/s.txt", 403),
        ("/manager%3B;x/s.txt", 403),
        ("/;/manager/s.txt", 403),
        ("/;x/;y/manager", 403),
        ("/%6danager;x", 403),
        ("/x/..;/manager/s.txt", 403),
        ("/..;/manager", 400),
        ("/;a=b/../manager", 403),
        ("/a/;b/../manager;", 403),
        ("/echo.jspx;x", 403),
        ("/admin;/x", 401),
        ("/stored;/x", 404),
        // Node's `URL` takes a backslash for a slash.
        ("/manager\\s.txt", 403),
        ("/manager%5cs.txt", 403),
        ("/x\\..\\manager", 403),
        ("/x\\..\\y", 400),
        ("/manager;x\\y", 403),
        ("/manager\\;x", 403),
        ("/admin\\x", 401),
        ("/stored\\x", 404),
        ("/app\\page", 200),
        // Decoded once more, it would be a parameter: no container does that.
        ("/manager%253b/s.txt", 200),
        ("/app/page.jsp;jsessionid=ABC?x=1;y", 200),
        ("/managers;x/y", 200),
    ] {
        let response = server.get(target);
        assert_eq!(response.status(), status, "{target}");
        if status == 200 {
            assert!(response.text().starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{target}");
        }
    }
}

/// Limits hold for the path that a servlet container reads, and count a request once.
#[test]
fn parameters_in_a_path_get_past_no_limit() {
    let (site, app) = (Site::new(), Responder::start(echo));
    let routes = format!(
        "[[site.route]]\npath = '/login'\nrate = '2/h'\n\
         [[site.route]]\npath = '/other'\nrate = '2/h'\n\
         [[site.route]]\nprefix = '/both'\nrate = '2/h'\n\
         [[site.route]]\npath = '/small'\nmax_body = 10\n\
         [[site.route]]\nproxy = '{}'\n",
        app.url(),
    );
    let server = crate::serve(&site, &routes);
    for targets in [
        ["/login;x", "/login%3bx", "/login"],
        ["/other", "/;/other", "/other;x=y%3bz;"],
        ["/both;x/a", "/both;x/a%3by;z", "/both/;x"],
    ] {
        let statuses = targets.map(|target| server.get(target).status());
        assert_eq!(statuses, [200, 200, 429], "{targets:?}");
    }
    for (target, size, status) in
        [("/small", 11, 413), ("/small;x", 11, 413), ("/small;x", 10, 200), ("/large;x", 11, 200)]
    {
        let request = Request::post(target, "text/plain", "x".repeat(size));
        assert_eq!(server.ask(&request).status(), status, "{target} {size}");
    }
}

/// A rewrite that would also match its own result does not hide the routes behind it.
#[test]
fn parameters_in_a_path_get_past_no_route_behind_a_rewrite() {
    let (site, app) = (Site::new(), Responder::start(echo));
    let routes = format!(
        "[[site.route]]\nmatch = '^/(.*)$'\nrewrite = '/ctx/$1'\n\
         [[site.route]]\nprefix = '/ctx/shut'\ndeny = true\n\
         [[site.route]]\nproxy = '{}'\n",
        app.url(),
    );
    let server = crate::serve(&site, &routes);
    for target in ["/shut/h", "/shut;x/h", "/shut%3bx/h", "/shut%3bx;y/h", "/;x/shut/h"] {
        server.get(target).expect(403);
    }
    server.get("/open;x/h").expect(200);
}

/// One reading of a path does not replace the password that another one asks for.
#[test]
fn parameters_in_a_path_lead_past_no_password() {
    let (site, app) = (Site::new(), Responder::start(echo));
    let of = |name| format!("{name}:{{SHA}}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let staff = site.write_at(site.outside("staff"), of("ann") + &of("bob"));
    let admins = site.write_at(site.outside("admins"), of("bob"));
    let routes = format!(
        "[[site.route]]\nauth = {{ users = '{}' }}\n\
         [[site.route]]\nprefix = '/manager'\nauth = {{ users = '{}' }}\n\
         [[site.route]]\nproxy = '{}'\n",
        staff.display(),
        admins.display(),
        app.url(),
    );
    let server = crate::serve(&site, &routes);
    let ask = |credentials: &str, target: &str| {
        let request = Request::get(target).header("Authorization", credentials);
        server.ask(&request).status()
    };
    let (as_ann, as_bob) = ("Basic YW5uOm9wZW4gc2VzYW1l", "Basic Ym9iOm9wZW4gc2VzYW1l");
    for target in ["/manager/h", "/manager/h;x", "/manager;x/h", "/manager%3bx;y/h"] {
        assert_eq!(ask(as_ann, target), 401, "{target}");
        assert_eq!(ask(as_bob, target), 200, "{target}");
    }
    assert_eq!(ask(as_ann, "/x;y/h"), 200);
}

#[test]
fn responses_are_framed_anew() {
    let site = Site::new();
    for (wire, method, framing, body) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: y\r\n\r\n",
            "GET",
            Framing::Chunked,
            "abc",
        ),
        ("HTTP/1.1 204 No\r\n\r\n", "GET", Framing::None, ""),
        ("HTTP/1.1 304 Not\r\nContent-Length: 5\r\n\r\n", "GET", Framing::None, ""),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", Framing::None, ""),
        (
            "HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "GET",
            Framing::Length(0),
            "",
        ),
    ] {
        let app = Responder::saying(wire);
        let server = pass_on(&site, &app.url(), "");
        let mut client = server.connect();
        for _ in 0..2 {
            let response = client.ask(&Request::new(method, "/"));
            assert_eq!((response.framing, &*response.text()), (framing, body), "{wire:?}");
            assert_eq!(response.header("x-t"), None);
        }
    }
    let app = Responder::start(|peer| {
        peer.request()?;
        peer.say("HTTP/1.0 200 OK\r\n\r\nto the end")
    });
    let response = pass_on(&site, &app.url(), "").get("/");
    assert_eq!((response.framing, &*response.text()), (Framing::Chunked, "to the end"));
}

#[test]
fn interim_responses_are_passed_on_but_for_100() {
    let site = Site::new();
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nContent-Length: 5\r\n\r\n";
    let app = Responder::saying(format!("HTTP/1.1 100 Continue\r\n\r\n{hints}{OK}"));
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    client.send(Request::get("/").bytes());
    let interim = client.head().unwrap();
    assert_eq!((interim.status, interim.header("link")), (103, Some("</a.css>")));
    assert_eq!(client.response("GET").text(), "ok");
    let endless = Responder::saying("HTTP/1.1 102 Processing\r\n\r\n".repeat(1000));
    let server = pass_on(&site, &endless.url(), "");
    let mut client = server.connect();
    client.send(Request::get("/").bytes());
    let heads = std::iter::repeat_with(|| client.head().unwrap().status);
    let before: Vec<_> = heads.take(33).collect();
    assert_eq!((before[..32].iter().all(|status| *status == 102), before[32]), (true, 502));
}

/// A client that waits for "100 Continue" gets it from the server, and the application gets the
/// whole request.
#[test]
fn expectations_end_at_the_server() {
    let (site, app) = (Site::new(), Responder::start(echo));
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    client.send(
        "PUT /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
    );
    assert_eq!(client.head().unwrap().status, 100);
    client.send("4\r\nbody\r\n0\r\n\r\n");
    let text = client.response("PUT").text();
    assert!(text.ends_with("content-length: 4\r\n\r\nbody"), "{text}");
    assert!(!text.contains("expect") && !text.contains("transfer-encoding"), "{text}");
}

/// After any malformed response the client gets an error page or a cut response, at once, and the
/// next request gets its own response.
#[test]
fn broken_responses_are_refused_or_cut() {
    let site = Site::new();
    let body = |head: &str, body: &str| format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}");
    let refused = [
        "garbage\r\n\r\n".to_owned(),
        "HTTP/2 200 OK\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n".to_owned(),
        body("Content-Length: 1\r\nContent-Length: 1", "a"),
        body("Content-Length: 1\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
        body("Transfer-Encoding: gzip", ""),
        body("Content-Length: 1\r\n folded", "a"),
        body(&format!("X: {}", "x".repeat(1 << 20)), ""),
        "HTTP/1.1 200 OK\r\n".to_owned() + &"X: y\r\n".repeat(100_000),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Le".to_owned(),
        String::new(),
    ];
    for wire in refused {
        let app = Responder::start({
            let wire = wire.clone();
            move |peer| {
                let request = peer.request()?;
                peer.say(if request.starts_with("GET /good") { OK } else { &*wire })
            }
        });
        let server = pass_on(&site, &app.url(), "");
        let mut client = server.connect();
        let shown = &wire[..wire.len().min(60)];
        for method in ["GET", "POST"] {
            let response = client.ask(&Request::new(method, "/"));
            assert_eq!(response.status(), 502, "{shown:?}");
        }
        assert_eq!(client.ask(&Request::get("/good")).text(), "ok", "{shown:?}");
        server.await_log(&format!("answered with 502: {}", app.url()));
    }
    let cut = [
        body("Content-Length: 10", "short"),
        body("Transfer-Encoding: chunked", "5\r\nabc"),
        body("Transfer-Encoding: chunked", "5\r\nabcdefg\r\n0\r\n\r\n"),
        body("Transfer-Encoding: chunked", "zz\r\n"),
        body("Transfer-Encoding: chunked", "0\r\nbroken trailer\r\n\r\n"),
    ];
    for wire in cut {
        let app = Responder::start({
            let wire = wire.clone();
            move |peer| {
                peer.request()?;
                peer.say(&wire)
            }
        });
        let server = pass_on(&site, &app.url(), "");
        let answer = server.connect().try_ask(&Request::get("/"));
        let is_refused = matches!(&answer, Err(Broken::Cut(_) | Broken::Closed))
            || answer.as_ref().is_ok_and(|response| response.status() == 502);
        assert!(is_refused, "{wire:?}: {answer:?}");
        server.await_log("a response was cut short");
    }
}

/// Also in the check of a host.
#[test]
fn line_feeds_alone_are_accepted_where_the_route_says_so() {
    let site = Site::new();
    let app = Responder::start(|peer| {
        loop {
            let answer = match peer.request()?.starts_with("GET /up") {
                true => "HTTP/1.1 200 OK\nContent-Length: 2\n\nup",
                false => "HTTP/1.1 200 OK\nX: y\nContent-Length: 3\n\na\nb",
            };
            peer.say(answer)?;
        }
    });
    let keys = "fails = 1\nprobe = { every = '50ms', path = '/up', body = 'up' }";
    let hosts = [app.addr().to_string()];
    let server = balance(&site, "http", &hosts, keys, ", bare_line_feeds = true");
    let mut client = server.connect();
    for _ in 0..2 {
        let response = client.ask(&Request::get("/"));
        assert_eq!((&*response.text(), response.header("x")), ("a\nb", Some("y")));
    }
    let checks = || app.seen().iter().filter(|head| head.starts_with("GET /up")).count();
    assert!(wait::until(LIMIT, || checks() > 2));
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("app: 1 host, 1 up, "), "{status}");
}

#[test]
fn a_response_in_single_bytes_is_the_same() {
    let wire = "HTTP/1.1 103 x\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";
    let (site, app) = (
        Site::new(),
        Responder::start(move |peer| {
            loop {
                peer.request()?;
                peer.say_slowly(wire.as_bytes())?;
            }
        }),
    );
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(Request::get("/").bytes());
        assert_eq!(client.head().unwrap().status, 103);
        let response = client.response("GET");
        assert_eq!((&*response.text(), response.header("x")), ("hello!", Some("y")));
    }
    assert_eq!(app.connections(), 1);
}

#[test]
fn what_follows_a_response_is_in_no_other() {
    let (site, app) = (
        Site::new(),
        Responder::saying(format!(
            "{OK}HTTP/1.1 200 OK\r\nX-Evil: y\r\nContent-Length: 4\r\n\r\nevil"
        )),
    );
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for number in 1..=5 {
        let response = client.ask(&Request::get("/"));
        assert_eq!((&*response.text(), response.header("x-evil")), ("ok", None));
        assert_eq!(app.connections(), number, "the connection is not used again");
    }
}

/// The application may still send what it announced, which must not become the response to another
/// request.
#[test]
fn a_response_that_announces_a_body_it_cannot_have_ends_its_connection() {
    for (answer, status) in [
        ("HTTP/1.1 204 No Content\r\nContent-Length: 60\r\n\r\n", 204),
        ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", 204),
        (
            "HTTP/1.1 100 Continue\r\nContent-Length: 60\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            200,
        ),
        (
            "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            200,
        ),
    ] {
        let app = Responder::start(move |peer| {
            peer.request()?;
            peer.say(if peer.number == 0 { answer } else { OK })?;
            peer.request()?;
            peer.say("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nFOREIGN")
        });
        let site = Site::new();
        let server = pass_on(&site, &app.url(), "");
        assert_eq!(server.get("/first").status(), status, "{answer}");
        assert_eq!(
            (server.get("/second").text(), app.connections()),
            ("ok".to_owned(), 2),
            "{answer}"
        );
    }
}

/// A 304 and a response to `HEAD` have the length of a response to `GET` (RFC 9110 §8.6).
#[test]
fn a_length_without_a_body_ends_no_connection() {
    for answer in [
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 60\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nContent-Length: 0\r\n\r\nHTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n",
    ] {
        let (site, app) = (Site::new(), Responder::saying(answer));
        let server = pass_on(&site, &app.url(), "");
        let mut client = server.connect();
        for _ in 0..3 {
            assert!(client.ask(&Request::get("/")).body.is_empty());
        }
        assert_eq!(app.connections(), 1, "{answer}");
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n";
    let (site, app) = (Site::new(), Responder::saying(head));
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for _ in 0..3 {
        assert_eq!(client.ask(&Request::new("HEAD", "/")).header("content-length"), Some("60"));
    }
    assert_eq!(app.connections(), 1);
}

#[test]
fn connections_are_kept_and_lost_without_a_lost_request() {
    let (site, app) = (Site::new(), Responder::saying(OK));
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.ask(&Request::get("/")).text(), "ok");
    }
    assert_eq!(app.connections(), 1);
    for _ in 0..20 {
        assert_eq!(client.ask(&Request::post("/", "a/b", "x")).text(), "ok");
    }
    assert_eq!(app.connections(), 1);
    // A connection that is closed behind a response is found to be.
    let app = Responder::start(|peer| {
        peer.request()?;
        peer.say(OK)
    });
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for number in 1..=20 {
        assert_eq!(client.ask(&Request::post("/", "a/b", "x")).text(), "ok");
        assert!(wait::until(LIMIT, || app.closed() == number));
    }
    // Every second request finds its connection closed without an answer.
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let app = Responder::start(|peer| {
        peer.request()?;
        ASKED.fetch_add(1, Ordering::SeqCst);
        peer.say(OK)?;
        peer.request()?;
        None
    });
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.ask(&Request::get("/")).text(), "ok");
    }
    assert_eq!(ASKED.load(Ordering::SeqCst), 20);
    // A request that was read is not sent twice unless it is idempotent. From then on such requests
    // get new connections.
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    let statuses = [(); 5].map(|()| client.ask(&Request::post("/", "a/b", "x")).status());
    assert_eq!(statuses, [200, 502, 200, 200, 200]);
}

/// As gunicorn does when a process has answered `--max-requests`.
#[test]
fn a_host_that_ends_connections_without_a_word_loses_no_post() {
    static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
    let app = Responder::start(|peer| {
        let number = CONNECTIONS.fetch_add(1, Ordering::SeqCst);
        peer.request()?;
        peer.say(OK)?;
        // The first is closed behind its response, others amid their second request.
        if number > 0 {
            peer.request()?;
        }
        None
    });
    let site = Site::new();
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    for number in 1..=10 {
        assert_eq!(client.ask(&Request::post("/", "a/b", "x")).text(), "ok");
        assert!(number > 1 || wait::until(LIMIT, || app.closed() == 1));
    }
}

#[test]
fn patience_ends() {
    let site = Site::new();
    let silent = Responder::start(|peer| {
        peer.request()?;
        peer.rest();
        None
    });
    let trickling = Responder::start(|peer| {
        peer.request()?;
        peer.say("HTTP/1.1 200 OK\r\nX-Long: ")?;
        loop {
            peer.say("x")?;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    });
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let deaf_url = format!("http://{}", deaf.local_addr().unwrap());
    for (url, limit, log) in [
        (silent.url(), "timeout = '300ms'", "silent for too long"),
        (silent.url(), "timeout = '60s', first_byte_timeout = '300ms'", "silent for too long"),
        (trickling.url(), "timeout = '5s', total_timeout = '1s'", "longer than total_timeout"),
        (deaf_url, "timeout = '300ms'", "silent for too long"),
    ] {
        let server = pass_on(&site, &url, &format!(", {limit}"));
        assert_eq!(server.get("/").status(), 504, "{limit}");
        server.await_log(log);
        assert_eq!(
            server.connect().ask(&Request::post("/", "a/b", vec![b'x'; 8 << 20])).status(),
            504
        );
    }
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = pass_on(&site, &format!("http://{gone}"), "");
    assert_eq!(server.get("/").status(), 502);
    server.await_log("cannot be connected to");
}

/// While the client takes nothing, the application is not read: neither memory nor disk fills.
#[test]
fn a_client_that_leaves_ends_the_exchange() {
    let site = Site::new();
    let (sender, ended) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let app = Responder::start(move |peer| {
        peer.request()?;
        peer.rest();
        sender.lock().unwrap().send(()).ok()
    });
    let server = pass_on(&site, &app.url(), "");
    let mut client = server.connect();
    client.send(Request::get("/").bytes());
    assert!(wait::until(LIMIT, || app.seen().len() == 1));
    drop(client);
    ended.recv_timeout(LIMIT).unwrap();
}

#[test]
fn sockets_tls_and_the_proxy_protocol_lead_there_too() {
    let site = Site::new();
    let path = site.outside("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut received = [0; 4096];
            let n = stream.read(&mut received).unwrap();
            assert!(received[..n].ends_with(b"\r\n\r\n"));
            stream.write_all(OK.as_bytes()).unwrap();
        }
    });
    let server = pass_on(&site, &format!("http://unix:{}", path.display()), "");
    assert_eq!(server.page("/"), "ok");

    let app = Responder::start(|peer| {
        // The signature and the length of a header of version 2 with addresses of IPv4.
        let header = peer.bytes(28)?;
        assert_eq!(header[..14], *b"\r\n\r\n\0\r\nQUIT\n\x21\x11");
        let request = peer.request()?;
        assert!(request.contains("connection: close\r\n"), "{request}");
        peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}", header[16]))?;
        peer.say("....")
    });
    let server = pass_on(&site, &app.url(), ", proxy_protocol = true");
    let mut client = server.connect();
    for _ in 0..2 {
        assert_eq!(client.ask(&Request::get("/")).text(), "127.");
    }
    assert_eq!(app.connections(), 2);
}

/// The application is a second Sendoff with a certificate.
#[test]
fn certificates_are_checked() {
    let (site, behind) = (Site::new(), Site::with("a.txt", "over TLS"));
    let authority = Authority::new();
    let certificate = authority.issue(&["app.test"], &behind.outside("tls"), "app");
    let (chain, key) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
    let app = Server::start(behind.root(), &options);
    let roots = site.write_at(site.outside("roots.pem"), authority.pem());
    let url = format!("https://{}", app.tls_addr().unwrap());
    let roots = format!("roots = '{}'", roots.display());
    for (more, status) in [
        (format!(", tls_name = 'app.test', {roots}"), 200),
        (format!(", tls_name = 'other.test', {roots}"), 502),
        (format!(", {roots}"), 502),
        (", tls_name = 'app.test'".to_owned(), 502),
        (", verify = false".to_owned(), 200),
    ] {
        let server = pass_on(&site, &url, &more);
        let mut client = server.connect();
        for _ in 0..2 {
            let response = client.ask(&Request::get("/a.txt"));
            assert_eq!(response.status(), status, "{more}");
            assert!(status != 200 || response.text() == "over TLS");
        }
        if status == 502 {
            server.await_log("TLS: invalid peer certificate");
        }
    }
}

#[test]
fn routes_say_what_is_asked_for() {
    let (site, app) = (Site::with("a.txt", "static"), Responder::start(echo));
    let url = app.url();
    let server = crate::serve(
        &site,
        &format!(
            "[[site.route]]\nprefix = '/private'\ndeny = true\n[[site.route]]\nmatch = '^/old/(.*)$'\nrewrite = '/new/$1?x'\n[[site.route]]\nprefix = ['/app', '/new']\nrequest_headers = {{ X-Set = '$host', Cookie = false }}\nresponse_headers = {{ X-A = false }}\nproxy = {{ to = '{url}', host = 'upstream', forwarded = 'Forwarded' }}\n"
        ),
    );
    let ask = |target: &str| server.ask(&Request::get(target).header("Cookie", "a"));
    let response = ask("/app/x");
    let expected = format!(
        "GET /app/x HTTP/1.1\r\nhost: {}\r\nx-set: example.test\r\nforwarded: for=127.0.0.1;proto=http;host=\"example.test\"\r\n\r\n",
        app.addr()
    );
    assert_eq!((&*response.text(), response.header("x-a")), (&*expected, None));
    assert!(ask("/old/a%20b?y").text().starts_with("GET /new/a%20b?x "));
    assert!(ask("/private/../app/./x").text().starts_with("GET /app/x "));
    assert_eq!(ask("/app/../private").status(), 403);
    assert_eq!(ask("/app/..;/private").status(), 403);
    assert_eq!(ask("/app/..;/x").status(), 400);
    assert_eq!(ask("/a.txt").text(), "static");
    assert_eq!(app.seen().len(), 3);
    let table = server.explain("/app/x", &[]).unwrap();
    assert!(table.contains("speaks HTTP"), "{table}");
}

/// A client that is slower than the application holds it back: untaken bytes do not fill the
/// memory, and none are lost.
#[test]
fn a_slow_client_gets_everything() {
    let site = Site::new();
    let body = pattern(3, 20 << 20);
    let wire = [b"HTTP/1.1 200 OK\r\nContent-Length: 20971520\r\n\r\n", &body[..]].concat();
    let app = Responder::saying(wire);
    let server = pass_on(&site, &app.url(), "");
    let mut slow = Client::connect_narrow(server.addr(), 4096);
    slow.send(Request::get("/").bytes());
    let head = slow.head().unwrap();
    let before = processes::private_memory(server.front());
    assert_eq!(server.connect().ask(&Request::new("HEAD", "/")).status(), 200);
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
    assert!(slow.body_of(head, "GET").unwrap().body == body);
}

/// A servlet container reads `/account;x` as `/account`, and Node reads `/account\x` beneath it.
#[test]
fn a_page_that_is_not_kept_is_kept_under_no_other_spelling() {
    let site = Site::new();
    let app = Responder::saying(
        "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\nContent-Length: 2\r\n\r\nok",
    );
    let config = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
         [[site]]\nroot = 'root'\nphp = false\n[[site.route]]\npage_cache = '1m'\n\
         [[site.route]]\nprefix = '/account'\npage_cache = 'off'\n[[site.route]]\nproxy = '{}'\n",
        app.url()
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    for (target, is_kept) in [
        ("/account", false),
        ("/account;x", false),
        ("/;/account/a", false),
        ("/account\\x", false),
        ("/accounts;x", true),
        ("/a\\account", true),
    ] {
        let is_hit = || {
            let status = server.get(target).header("Cache-Status").map(str::to_owned);
            status.is_some_and(|status| status.contains("hit"))
        };
        match is_kept {
            true => assert!(wait::until(LIMIT, is_hit), "{target}"),
            false => assert!(!is_hit() && !is_hit(), "{target}"),
        }
    }
}
