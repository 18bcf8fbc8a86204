//! Clients that stay with a host, and requests that are alike (`docs/upstreams.md`).

use std::collections::HashSet;

use sendoff_tests::{Client, Request, Response, Server, Site};

use crate::hosts::{Python, balance, nowhere};
use crate::http2_app::{self, Http2App};
use crate::responder::{Peer, Responder};
use crate::{ajp, scgi};

/// The cookie that a response sets, as a client sends it back.
fn cookie(response: &Response) -> Option<String> {
    let mut cookies = response.head.all("Set-Cookie").filter(|value| value.starts_with("host="));
    let cookie = cookies.next()?.split(';').next().unwrap().to_owned();
    assert_eq!(cookies.next(), None);
    Some(cookie)
}

fn get_with(cookie: &str) -> Request {
    Request::get("/").header("Cookie", cookie)
}

/// Answers requests of uwsgi with `ok`.
fn uwsgi_ok(peer: &mut Peer) -> Option<()> {
    let head = peer.bytes(4)?;
    peer.bytes(usize::from(u16::from_le_bytes([head[1], head[2]])))?;
    peer.say("HTTP/1.1 200 OK\r\n\r\nok")
}

/// Asks once, then `ask`s with the cookie, then without it. Calls `reached` for the number of hosts
/// that have been reached.
fn stays(server: &Server, scheme: &str, reached: impl Fn() -> usize) {
    let first = server.get("/");
    assert_eq!(first.status(), 200, "{scheme}");
    let set = first.header("Set-Cookie").unwrap();
    assert!(set.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{scheme}: {set}");
    assert_eq!(first.header("Cache-Control"), Some("private"), "{scheme}");
    let cookie = cookie(&first).unwrap();
    for _ in 0..5 {
        let response = server.ask(&get_with(&format!("a=b; {cookie}")));
        assert_eq!((response.status(), response.header("Set-Cookie")), (200, None), "{scheme}");
        assert_eq!(response.header("Cache-Control"), None, "{scheme}");
    }
    assert_eq!(reached(), 1, "{scheme}");
    for _ in 0..5 {
        assert!(self::cookie(&server.get("/")).is_some(), "{scheme}");
    }
    assert_eq!(reached(), 2, "{scheme}: clients without the cookie go anywhere");
    let report = server.explain("/", &["-H", &format!("Cookie: {cookie}")]).unwrap();
    assert!(report.contains("the host was chosen by the client's cookie"), "{report}");
}

#[test]
fn a_client_stays_with_its_host_over_each_protocol() {
    let http = || Responder::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    for (scheme, apps) in [
        ("http", [http(), http()]),
        ("scgi", [0, 1].map(|_| Responder::start(scgi::answer_ok))),
        ("uwsgi", [0, 1].map(|_| Responder::start(uwsgi_ok))),
        ("ajp", [0, 1].map(|_| Responder::start(ajp::answer_ok))),
    ] {
        let site = Site::new();
        let hosts = [&apps[0], &apps[1]].map(|app| app.addr().to_string());
        let server = balance(&site, scheme, &hosts, "sticky = 'host'", "");
        stays(&server, scheme, || apps.iter().filter(|app| app.connections() > 0).count());
    }
    let (site, apps) = (Site::new(), [0, 1].map(|_| Http2App::start(http2_app::echo)));
    let hosts = [&apps[0], &apps[1]].map(|app| app.url().replace("h2://", ""));
    let server = balance(&site, "h2", &hosts, "sticky = { cookie = 'host' }", "");
    stays(&server, "h2", || apps.iter().filter(|app| app.connections() > 0).count());
}

#[test]
fn a_client_whose_host_is_down_or_gone_gets_another_host_and_another_cookie() {
    let site = Site::new();
    let (mut a, b) = (Python::start(&site, "a"), Python::start(&site, "b"));
    let keys = "fails = 1\nretry_after = '100ms'\nslow_start = '0s'\nsticky = 'host'";
    let server = balance(&site, "http", &[a.addr, b.addr].map(|addr| addr.to_string()), keys, "");
    // Equally busy hosts take turns.
    let of_a = [server.get("/"), server.get("/")];
    let of_a = of_a.iter().find(|response| response.text() == "a").and_then(cookie).unwrap();
    assert_eq!(server.ask(&get_with(&of_a)).text(), "a");
    a.kill();
    let moved = server.ask(&get_with(&of_a));
    let of_b = cookie(&moved).unwrap();
    assert_eq!(moved.text(), "b");
    assert_ne!(of_a, of_b);
    assert!(a.try_run());
    for _ in 0..4 {
        // Its session is there now.
        assert_eq!(server.ask(&get_with(&of_b)).text(), "b");
    }
    // The cookie of a host that the upstream does not have any more, and values that are none.
    let without_a = std::fs::read_to_string(site.outside("sendoff.toml")).unwrap();
    let without_a = without_a.replace(&a.addr.to_string(), &nowhere());
    site.write_at(site.outside("sendoff.toml"), without_a);
    server.command(&["reload"]).unwrap();
    let response = server.ask(&get_with(&of_b));
    assert_eq!((&*response.text(), cookie(&response)), ("b", None), "cookies survive a reload");
    for stale in [&*of_a, "host=", "host=x", "host=0123456789abcdef", "host=\"\u{e4}\""] {
        let response = server.ask(&get_with(stale));
        assert_eq!((&*response.text(), cookie(&response)), ("b", Some(of_b.clone())), "{stale}");
    }
}

#[test]
fn the_application_s_own_cookie_binds_and_comes_back_as_it_was() {
    own_cookie_binds("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", &[]);
}

/// The response that switches has a head of its own. HTTP/2 and HTTP/3 have no `Upgrade`.
#[test]
fn the_application_s_own_cookie_binds_where_the_protocol_is_switched() {
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n";
    own_cookie_binds(switched, &[("Connection", "Upgrade"), ("Upgrade", "x")]);
}

/// `head`: the beginning of the applications' responses. `fields`: further fields of the requests.
fn own_cookie_binds(head: &str, fields: &[(&str, &str)]) {
    let site = Site::new();
    let set = "Set-Cookie: host=1; Path=/app\r\nSet-Cookie: host=\r\nSet-Cookie: b=2\r\n";
    let apps = [0, 1].map(|_| Responder::saying(format!("{head}{set}\r\n")));
    let hosts = [&apps[0], &apps[1]].map(|app| app.addr().to_string());
    let server = balance(&site, "http", &hosts, "sticky = { application = 'host' }", "");
    let ask = |cookie: &str| {
        let mut request = get_with(cookie);
        for (name, value) in fields {
            request = request.header(name, value);
        }
        let mut client = server.connect();
        client.send(request.bytes());
        client.head().unwrap()
    };
    let first = ask("a=b");
    let [set, empty, other] = first.all("Set-Cookie").collect::<Vec<_>>()[..] else {
        panic!("{first:?}")
    };
    assert_eq!((empty, other), ("host=", "b=2"));
    let cookie = set.strip_suffix("~1; Path=/app").unwrap();
    let busy = |app: &Responder| app.seen().len();
    let bound = usize::from(busy(&apps[1]) == 1);
    for n in 2..5 {
        ask(&format!("a=b; {cookie}~1"));
        assert_eq!(busy(&apps[bound]), n);
    }
    assert_eq!(busy(&apps[1 - bound]), 0);
    let seen = apps[bound].seen().pop().unwrap().to_lowercase();
    assert!(seen.contains("cookie: a=b; host=1\r\n"), "{seen}");
}

#[test]
fn over_tls_the_cookie_is_for_tls_alone() {
    let site = Site::new();
    let app = Responder::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let config = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\nstate = 'state'\n\
         [[pool]]\nworkers = 'ondemand'\n\
         [[upstream]]\nname = 'app'\nhosts = '{}'\nsticky = 'host'\n\
         [[site]]\nroot = 'root'\nhttps_redirect = false\ntls = 'self-signed'\n\
         [[site.route]]\nproxy = 'http://upstream:app'\n",
        app.addr()
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    for (mut client, is_secure) in
        [(server.connect(), false), (Client::connect_tls(server.tls_addr().unwrap()), true)]
    {
        let response = client.ask(&Request::get("/"));
        let set = response.header("Set-Cookie").unwrap();
        assert_eq!(set.ends_with("; Secure"), is_secure, "{set}");
    }
}

#[test]
fn a_kept_page_has_no_cookie_and_answers_clients_that_have_one() {
    let site = Site::new();
    let app = Responder::saying(
        "HTTP/1.1 200 OK\r\nCache-Control: public, max-age=60\r\nContent-Length: 2\r\n\r\nok",
    );
    let config = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = 'pages'\n\
         [[pool]]\nworkers = 'ondemand'\n\
         [[upstream]]\nname = 'app'\nhosts = '{}'\nsticky = 'host'\n\
         [[site]]\nroot = 'root'\n[[site.route]]\npage_cache = '1m'\n\
         [[site.route]]\nproxy = 'http://upstream:app'\n",
        app.addr()
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    let first = server.get("/");
    let cookie = cookie(&first).unwrap();
    assert_eq!(first.header("Cache-Control"), Some("max-age=60, private"));
    for request in [Request::get("/"), get_with(&cookie), get_with("host=0123456789abcdef")] {
        let hit = server.ask(&request);
        assert!(hit.header("Cache-Status").unwrap().starts_with("sendoff; hit"));
        assert_eq!(hit.header("Set-Cookie"), None);
        assert_eq!(hit.header("Cache-Control"), Some("public, max-age=60"));
    }
    assert_eq!(app.seen().len(), 1);
    // Other cookies are the application's: their pages may be for this client alone.
    server.ask(&get_with(&format!("{cookie}; session=1"))).expect(200);
    assert_eq!(app.seen().len(), 2);
}

#[test]
fn requests_that_are_alike_go_to_the_same_host() {
    let site = Site::new();
    let apps = ["a", "b", "c"].map(|name| Python::start(&site, name));
    let hosts = apps.each_ref().map(|app| app.addr.to_string());
    let page = |server: &Server, path: &str, fields: &[(&str, &str)]| {
        let request = fields
            .iter()
            .fold(Request::get(path), |request, (name, value)| request.header(name, value));
        server.ask(&request).text()
    };
    let by_path = balance(&site, "http", &hosts, "balance = 'path'", "");
    let mut reached = HashSet::new();
    for path in (0..30).map(|number| format!("/{number}")) {
        let host = page(&by_path, &path, &[]);
        assert_eq!(page(&by_path, &format!("{path}?query"), &[]), host);
        reached.insert(host);
    }
    assert_eq!(reached.len(), 3);
    let report = by_path.explain("/", &[]).unwrap();
    assert!(report.contains("the host was chosen by a hash of the path"), "{report}");
    for (balance_by, name) in [("header:X-User", "X-User"), ("cookie:id", "Cookie")] {
        let server = balance(&site, "http", &hosts, &format!("balance = '{balance_by}'"), "");
        let ask = |value: usize| page(&server, "/", &[(name, &format!("id={value}"))]);
        let hosts: Vec<_> = (0..30).map(ask).collect();
        assert_eq!(hosts.iter().collect::<HashSet<_>>().len(), 3, "{balance_by}");
        assert_eq!((0..30).map(ask).collect::<Vec<_>>(), hosts, "{balance_by}");
        let without: HashSet<_> = (0..6).map(|_| page(&server, "/", &[])).collect();
        assert_eq!(without.len(), 3, "{balance_by}: requests without it go anywhere");
    }
    let by_client = balance(&site, "http", &hosts, "balance = 'client'", "");
    let of_clients: HashSet<_> = (1..30)
        .map(|last| {
            let ask = |path| {
                let mut client = Client::connect_from(by_client.addr(), [127, 0, 0, last].into());
                client.ask(&Request::get(path)).text()
            };
            let host = ask("/");
            assert_eq!(ask("/other"), host);
            host
        })
        .collect();
    assert_eq!(of_clients.len(), 3);
}
