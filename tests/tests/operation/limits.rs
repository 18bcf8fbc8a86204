//! Limits that an operator sets: a client that exceeds them is refused, told when to retry, and
//! counted.

use std::collections::HashMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use sendoff_tests::{Broken, Client, Http3, LIMIT, Request, Response, Server, Site, wait};
use serde_json::Value;

const CONFIG: &str = "listen = '127.0.0.1:0'\nthreads = 2\ntrusted_proxies = '127.0.0.1'\n\
    [[pool]]\nname = 'www'\nworkers = 1\n\
    [[site]]\nroot = 'root'\n\
    [[site.route]]\npath = '/metrics'\nmetrics = true\n\
    [[site.route]]\nprefix = '/api'\nrate = '2/h'\n\
    [[site.route]]\npath = '/once.txt'\nrate = '1/d'\nresponse_headers = { X-Rule = 'yes' }\n";

fn run(site: &Site) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), CONFIG);
    Server::try_run_with(&config, site.root(), 1, 2).unwrap()
}

fn ask(server: &Server, target: &str, client: &str) -> Response {
    // A connection of its own: the kernel gives it to either event loop.
    server.ask(&Request::get(target).header("X-Forwarded-For", client))
}

#[test]
fn a_client_that_asks_too_often_is_told_when_to_come_again() {
    let site = Site::new();
    site.write("api/a.php", "hello");
    site.write("once.txt", "once");
    site.write("free.txt", "free");
    let server = run(&site);
    for _ in 0..2 {
        assert_eq!(ask(&server, "/api/a.php", "192.0.2.1").text(), "hello");
    }
    for _ in 0..4 {
        let refused = ask(&server, "/api/a.php", "192.0.2.1");
        refused.expect(429);
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1700..=1800).contains(&after), "{after}");
        assert_eq!(refused.header("x-rule"), None);
        // Other routes and other clients have buckets of their own.
        assert_eq!(ask(&server, "/free.txt", "192.0.2.1").text(), "free");
    }
    server.await_log("GET /api/a.php of site default: answered with 429, because the client asks more often than `rate` allows (sendoff.toml:");
    server.await_log("client=192.0.2.1");
    assert_eq!(ask(&server, "/api/a.php", "192.0.2.2").text(), "hello");
    assert_eq!(ask(&server, "/once.txt", "192.0.2.1").text(), "once");
    let refused = ask(&server, "/once.txt", "192.0.2.1");
    refused.expect(429);
    assert_eq!(refused.header("x-rule"), Some("yes"), "a rule of the route");
    // The network of 64 bits is one client.
    assert_eq!(ask(&server, "/once.txt", "2001:db8::1").text(), "once");
    ask(&server, "/once.txt", "2001:db8::ffff").expect(429);
    assert_eq!(ask(&server, "/once.txt", "2001:db8:0:1::1").text(), "once");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("\nsendoff_limits_reached_total{limit=\"rate\"} 6\n"), "{metrics}");
    // A reload forgives nothing.
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    ask(&server, "/api/a.php", "192.0.2.1").expect(429);
}

/// A server for requests of clients that `X-Forwarded-For` names, with these lines of its site.
fn behind_a_proxy(site: &Site, lines: &str) -> Server {
    let top = "listen = '127.0.0.1:0'\nthreads = 1\ntrusted_proxies = '127.0.0.1'\n\
        [[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n";
    let config = site.write_at(site.outside("sendoff.toml"), format!("{top}{lines}"));
    Server::try_run(&config, site.root(), 1).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

/// A limit for a script holds for every path that leads to it, and counts each request once.
#[test]
fn no_path_leads_past_the_limits_of_a_script() {
    let site = Site::with("login.php", "<?php echo 'login';");
    site.write("folder/index.html", "index");
    site.write("index.php", "<?php echo 'front';");
    let server = behind_a_proxy(
        &site,
        "front_controller = '/index.php'\n\
         [[site.route]]\nprefix = '/'\nrate = '1000/h'\n\
         [[site.route]]\npath = ['/login.php', '/folder/index.html', '/index.php']\nrate = '2/h'\n\
         [[site.route]]\nmatch = '^/to/(.*)$'\nrewrite = '/$1'\n",
    );
    for (number, targets) in [
        ["/login.php", "/login.php/x", "/login.php/x/y"],
        ["/login.php/x", "/login.php/y", "/login.php"],
        ["/to/login.php", "/to/login.php/x", "/login.php"],
        ["/folder/", "/folder/index.html", "/to/folder/"],
        ["/none", "/index.php", "/"],
    ]
    .into_iter()
    .enumerate()
    {
        let client = format!("192.0.2.{number}");
        let statuses = targets.map(|target| ask(&server, target, &client).status());
        assert_eq!(statuses, [200, 200, 429], "{targets:?}");
    }
}

/// Wrong passwords count for the limit of the script that they are tried on, and so do right ones.
#[test]
fn a_limit_holds_for_passwords_of_htaccess_files() {
    let site = Site::with("in/login.php", "<?php echo 'login';");
    // `ann` with the password `open sesame`.
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let rules = format!(
        "AuthType Basic\nAuthName in\nAuthUserFile {}\nRequire valid-user\n\
         RewriteEngine On\nRewriteRule ^way$ /in/login.php [L]\n",
        users.display()
    );
    site.write("in/.htaccess", rules);
    let route = "[[site.route]]\npath = '/in/login.php'\nrate = '2/h'\n";
    let routed = "[[site.route]]\nprefix = '/in'\nphp = true\n";
    for (routes, target) in [
        (route.to_owned(), "/in/login.php"),
        (route.to_owned(), "/in/login.php/x"),
        (format!("{route}{routed}"), "/in/login.php/x"),
    ] {
        let server = behind_a_proxy(&site, &format!("htaccess = true\n{routes}"));
        for (client, credentials, status) in [
            ("192.0.2.1", "Basic YW5uOndyb25n", 401),
            ("192.0.2.2", "Basic YW5uOm9wZW4gc2VzYW1l", 200),
        ] {
            let request = Request::get(target)
                .header("X-Forwarded-For", client)
                .header("Authorization", credentials);
            let statuses = [0; 3].map(|_| server.ask(&request).status());
            assert_eq!(statuses, [status, status, 429], "{target} {client}");
        }
    }
    // The files tell where this path leads only after the password.
    let server = behind_a_proxy(&site, &format!("htaccess = true\n{route}"));
    let request = Request::get("/in/way").header("Authorization", "Basic YW5uOm9wZW4gc2VzYW1l");
    assert_eq!([0; 3].map(|_| server.ask(&request).status()), [200, 200, 429]);
}

/// A request whose body a script of Lua wants to see counts for the limits of both plans, once for
/// each.
#[test]
fn a_limit_holds_behind_a_script_that_sees_the_body() {
    let site = Site::with("login.php", "<?php echo 'login';");
    site.write_at(
        site.outside("body.lua"),
        "if not lighty.r.req_body.collect then return 0 end return 0",
    );
    let server = behind_a_proxy(
        &site,
        "[[site.route]]\nmethod = 'POST'\nlua = 'body.lua'\nrate = '4/h'\n\
         [[site.route]]\npath = '/login.php'\nrate = '2/h'\n\
         [[site.route]]\npath = '/other.php'\nrate = '9/h'\n",
    );
    for client in ["192.0.2.1", "192.0.2.2"] {
        let target = if client.ends_with('1') { "/login.php" } else { "/login.php/x" };
        let post = |target: &str| {
            let request = Request::post(target, "text/plain", "body");
            server.ask(&request.header("X-Forwarded-For", client)).status()
        };
        assert_eq!([0; 3].map(|_| post(target)), [200, 200, 429], "{target}");
        assert_eq!([0; 2].map(|_| post("/none")), [404, 429], "the route of the script");
    }
}

/// `max_body` of a script holds with path info behind it, unless `max_body` of the path is smaller.
#[test]
fn no_path_leads_past_the_largest_body_of_a_script() {
    let site = Site::with("small.php", "<?php echo 'small';");
    site.write("large.php", "<?php echo 'large';");
    let server = behind_a_proxy(
        &site,
        "[[site.route]]\nmax_body = 100\n\
         [[site.route]]\npath = '/small.php'\nmax_body = 10\n\
         [[site.route]]\npath = '/large.php'\nmax_body = 1000\n\
         [[site.route]]\npath = '/small.php/wide'\nmax_body = 1000\n",
    );
    for (target, size, status) in [
        ("/small.php", 10, 200),
        ("/small.php", 11, 413),
        ("/small.php/x", 10, 200),
        ("/small.php/x", 11, 413),
        ("/small.php/wide", 11, 413),
        ("/large.php", 1000, 200),
        ("/large.php/x", 100, 200),
        ("/large.php/x", 101, 413),
    ] {
        let request = Request::post(target, "text/plain", "x".repeat(size));
        assert_eq!(server.ask(&request).status(), status, "{target} {size}");
    }
}

/// A server with two event loops and two workers. `top` comes before the sections, `routes` after
/// the site.
fn limited(site: &Site, top: &str, routes: &str) -> Server {
    let config = config(top, routes);
    let config = site.write_at(site.outside("sendoff.toml"), config);
    Server::try_run_with(&config, site.root(), 2, 2).unwrap()
}

fn config(top: &str, routes: &str) -> String {
    format!(
        "listen = '127.0.0.1:0'\nthreads = 2\n{top}\n[[pool]]\nname = 'www'\nworkers = 2\n\
        [[site]]\nroot = 'root'\ndelivery = 'relay'\n\
        [[site.route]]\npath = '/metrics'\nmetrics = true\n{routes}"
    )
}

/// The counter of a limit in the metrics that this client gets.
fn met(client: &mut Client, limit: &str) -> u64 {
    let metrics = client.ask(&Request::get("/metrics")).text();
    let start = format!("sendoff_limits_reached_total{{limit=\"{limit}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start}: {metrics}")).parse().unwrap()
}

/// A new connection from this address, if it is served.
fn is_served(server: &Server, from: Ipv4Addr) -> Option<Client> {
    let mut client = Client::connect_from(server.addr(), from);
    client.try_ask(&Request::get("/a.txt")).is_ok_and(|r| r.text() == "static").then_some(client)
}

const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[test]
fn a_client_has_as_many_connections_as_it_may_and_leaves_room_for_others() {
    let site = Site::with("a.txt", "static");
    let server = limited(&site, "max_connections_per_client = 2", "");
    let mut open: Vec<_> = (0..2).map(|_| is_served(&server, ONE).unwrap()).collect();
    for _ in 0..20 {
        assert!(is_served(&server, ONE).is_none());
    }
    let mut other = is_served(&server, OTHER).unwrap();
    assert_eq!(met(&mut other, "connections_per_client"), 20);
    server.await_log("a client has 2 connections: further ones are closed");
    let lines = server.log().matches("further ones are closed").count();
    assert_eq!(lines, 1, "a flood does not fill the log");
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("\nlimits met   connections_per_client 20\n"), "{status}");
    // A connection that has ended makes room.
    open.pop();
    assert!(wait::until(LIMIT, || is_served(&server, ONE).is_some()));
    // A reload changes the limit, also for connections that are open.
    let more = config("max_connections_per_client = 3", "");
    site.write_at(site.outside("sendoff.toml"), more);
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded\n");
    assert!(wait::until(LIMIT, || {
        let two = [is_served(&server, ONE), is_served(&server, ONE)];
        two.iter().all(Option::is_some)
    }));
}

/// The first packets of HTTP/3 do not prove their sender's address.
#[test]
fn packets_with_a_forged_address_count_for_no_client() {
    let site = Site::with("a.txt", "static");
    let text = "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n\
        max_connections_per_client = 2\n\
        [[site]]\nroot = 'root'\nphp = false\ntls = 'self-signed'\nhttps_redirect = false\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    // Clients whose packets go no further.
    let taker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = taker.local_addr().unwrap();
    let mut first = HashMap::new();
    for _ in 0..4 {
        thread::spawn(move || drop(Http3::try_connect(addr, "localhost")));
    }
    taker.set_read_timeout(Some(LIMIT)).unwrap();
    while first.len() < 4 {
        let mut packet = [0; 2000];
        let (len, from) = taker.recv_from(&mut packet).unwrap();
        first.entry(from).or_insert_with(|| packet[..len].to_vec());
    }
    for packet in first.values() {
        let forger = UdpSocket::bind((ONE, 0)).unwrap();
        forger.set_read_timeout(Some(LIMIT)).unwrap();
        forger.send_to(packet, server.tls_addr().unwrap()).unwrap();
        // The server has begun a handshake.
        forger.recv_from(&mut [0; 2000]).unwrap();
    }
    assert!(is_served(&server, ONE).is_some());
}

#[test]
fn a_proxy_has_any_number_of_connections_and_the_client_that_it_names_counts() {
    let site = Site::with("a.txt", "static");
    let listen = "trusted_proxies = '127.0.0.1'\nmax_connections_per_client = 1";
    let server = limited(&site, listen, "");
    let mut all: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for client in &mut all {
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
    }
    let config = config(listen, "").replace("127.0.0.1:0", "127.0.0.1:0 proxy_protocol");
    let site = Site::with("a.txt", "static");
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run_with(&config, site.root(), 2, 2).unwrap();
    let from = |client: &str| {
        let mut connection = server.connect();
        let header = format!("PROXY TCP4 {client} 127.0.0.1 1000 80\r\n");
        let _ = connection.try_send(format!("{header}GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
        let is_served = connection.try_response("GET").is_ok_and(|r| r.text() == "static");
        is_served.then_some(connection)
    };
    let first = from("192.0.2.1").unwrap();
    assert!(from("192.0.2.1").is_none());
    assert!(from("192.0.2.2").is_some());
    drop(first);
    assert!(wait::until(LIMIT, || from("192.0.2.1").is_some()));
}

#[test]
fn connections_that_are_idle_make_room_when_there_are_as_many_as_there_may_be() {
    let site = Site::with("a.txt", "static");
    let server = limited(&site, "max_connections = 4", "");
    // The kernel spreads them over both event loops.
    let mut open: Vec<_> = (0..20).map(|_| is_served(&server, ONE).unwrap()).collect();
    let mut last = open.pop().unwrap();
    assert!(met(&mut last, "idle_connections") >= 16);
    let status: Value =
        serde_json::from_str(&server.command(&["status", "--json"]).unwrap()).unwrap();
    assert!(status["connections"].as_u64().unwrap() <= 4, "{status}");
}

#[test]
fn a_body_that_comes_too_slowly_is_refused() {
    let site = Site::with("in.php", "<?php echo strlen(file_get_contents('php://input'));");
    let server = limited(&site, "body_timeout = '1s'\nmin_body_rate = '1M'", "");
    let mut client = server.connect();
    client.send("POST /in.php HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
    client.stream().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let begun = Instant::now();
    let mut answer = [0; 12];
    let came = wait::until(LIMIT, || {
        // A client that never pauses for long.
        let _refused = client.try_send([b'x'; 64]);
        client.stream().peek(&mut answer).is_ok_and(|n| n == answer.len())
    });
    assert!(came && &answer == b"HTTP/1.1 408", "{}", answer.escape_ascii());
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(met(&mut server.connect(), "body_timeout"), 1);
}

#[test]
fn a_client_that_takes_its_response_slowly_is_cut_below_the_least_rate_alone() {
    let site = Site::with("big.php", "<?php echo str_repeat('0123456789abcdef', 1 << 18);");
    let body = "0123456789abcdef".repeat(1 << 18);
    // Above the rate, with a send timeout that is much shorter than the interval between two
    // wake-ups of the socket.
    let server = limited(&site, "send_timeout = '500ms'\nmin_send_rate = 1000", "");
    let mut slow = Client::connect_narrow(server.addr(), 4096);
    slow.send(Request::get("/big.php").bytes());
    let head = slow.head().unwrap();
    let begun = Instant::now();
    wait::until(Duration::from_secs(3), || {
        assert!(slow.read_some(2048));
        false
    });
    assert!(begun.elapsed() >= Duration::from_secs(3));
    assert!(slow.body_of(head, "GET").unwrap().text() == body);
    drop((slow, server));
    // The same client below it.
    let server = limited(&site, "send_timeout = '500ms'\nmin_send_rate = '1G'", "");
    let mut slow = Client::connect_narrow(server.addr(), 4096);
    slow.send(Request::get("/big.php").bytes());
    let head = slow.head().unwrap();
    let mut other = server.connect();
    assert!(wait::until(LIMIT, || {
        slow.read_some(2048);
        met(&mut other, "send_timeout") == 1
    }));
    assert!(matches!(slow.body_of(head, "GET"), Err(Broken::Cut(_))));
    let quick = server.get("/big.php");
    assert!(quick.text() == body, "a quick client is served");
}

#[test]
fn who_holds_most_of_the_memory_is_cut_when_it_is_used_up() {
    let site = Site::new();
    site.write("big.php", "<?php echo str_repeat('0123456789abcdef', 1 << 19);");
    site.write("small.php", "<?php echo str_repeat('0123456789abcdef', 1 << 11);");
    let config = config("max_queued = '1M'", "").replace("threads = 2", "threads = 1");
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 2).unwrap();
    // A client that has been slow for a while has 32 KiB in memory and the rest on disk.
    let mut slow: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(Request::get("/big.php").bytes());
            let head = client.head().unwrap();
            (client, head)
        })
        .collect();
    let mut other = server.connect();
    assert!(wait::until(LIMIT, || met(&mut other, "queued_bytes") > 0));
    // A client that takes its responses is served all the while.
    for _ in 0..20 {
        let expected = "0123456789abcdef".repeat(1 << 11);
        assert!(other.ask(&Request::get("/small.php")).text() == expected);
    }
    let mut whole = 0;
    for (mut client, head) in slow.drain(..) {
        match client.body_of(head, "GET") {
            Ok(response) => {
                assert_eq!(response.text().len(), 8 << 20);
                whole += 1;
            }
            Err(Broken::Cut(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!((1..40).contains(&whole), "{whole} of 40 slow clients got everything");
    assert_eq!(met(&mut other, "queued_bytes"), 40 - whole);
}

#[test]
fn a_route_limits_the_requests_that_a_client_has_under_way() {
    let site = Site::waiting();
    // Opening a pipe for writing releases all its readers, so each of the two clients has a pipe of
    // its own.
    let (pipe, other_pipe) = (site.fifo("pipe"), site.fifo("other"));
    let script = "<?php echo 'first '; ob_flush(); flush(); file_get_contents($_GET['pipe'] ?? 'pipe'); echo 'last';";
    site.write("wait.php", script);
    let route = "[[site.route]]\npath = '/wait.php'\nconcurrency = 1\n";
    let server = limited(&site, "trusted_proxies = '127.0.0.1'", route);
    let request = Request::get("/wait.php").header("X-Forwarded-For", "192.0.2.1");
    let mut first = server.connect();
    first.send(request.bytes());
    let head = first.head().unwrap();
    for _ in 0..3 {
        let refused = server.ask(&request);
        refused.expect(429);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    ask(&server, "/wait.php/x", "192.0.2.1").expect(429);
    assert_eq!(ask(&server, "/ok.php", "192.0.2.1").text(), "ok", "of another route");
    pipe.release();
    assert_eq!(first.body_of(head, "GET").unwrap().text(), "first last");
    // The request is over when its last byte has left, and then the next may come.
    let mut next = server.connect();
    let head = wait::for_some("a place", || {
        next = server.connect();
        next.send(request.bytes());
        next.head().ok().filter(|head| head.status == 200)
    });
    let mut another = server.connect();
    let of_other_client =
        Request::get("/wait.php?pipe=other").header("X-Forwarded-For", "192.0.2.2");
    another.send(of_other_client.bytes());
    let of_another = another.head().unwrap();
    assert_eq!(of_another.status, 200, "another client");
    pipe.release();
    other_pipe.release();
    for (mut client, head) in [(next, head), (another, of_another)] {
        assert_eq!(client.body_of(head, "GET").unwrap().text(), "first last");
    }
    assert!(met(&mut server.connect(), "concurrency") >= 3);
}

#[test]
fn a_pool_lets_as_many_requests_wait_as_it_may() {
    let site = Site::waiting();
    let pipe = site.fifo("pipe");
    let config = config("", "").replace("workers = 2", "workers = 1\nmax_waiting = 1");
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run_with(&config, site.root(), 1, 2).unwrap();
    let mut first = server.connect();
    first.send(Request::get("/wait.php").bytes());
    let head = first.head().unwrap();
    let mut second = server.connect();
    second.send(Request::get("/ok.php").bytes());
    let waiting = || {
        let status = server.command(&["status", "--json"]).unwrap();
        serde_json::from_str::<Value>(&status).unwrap()["pools"][0]["waiting"] == 1
    };
    assert!(wait::until(LIMIT, waiting));
    let refused = server.get("/ok.php");
    refused.expect(503);
    assert!(refused.header("retry-after").is_some());
    pipe.release();
    assert_eq!(first.body_of(head, "GET").unwrap().text(), "first last");
    assert_eq!(second.response("GET").text(), "ok");
    assert_eq!(met(&mut server.connect(), "queue"), 1);
}

#[test]
fn the_status_page_is_for_those_who_are_named_and_runs_nothing_foreign() {
    let site = Site::with("a.php", "<?php echo 'hello';");
    let routes = "[[site.route]]\npath = '/status'\nallow_from = '127.0.0.3'\nstatus_page = true\n";
    let server = limited(&site, "", routes);
    assert_eq!(server.get("/a.php").text(), "hello");
    server.get("/status").expect(403);
    server.get("/status?json").expect(403);
    let mut operator = Client::connect_from(server.addr(), OTHER);
    let page = operator.ask(&Request::get("/status"));
    page.expect(200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let answer = operator.ask(&Request::get("/status?json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let figures: Value = serde_json::from_str(&answer.text()).unwrap();
    let pool = &figures["pools"][0];
    assert_eq!((&pool["name"], &pool["workers"]), (&"www".into(), &2.into()));
    assert!(figures["sites"][0]["requests"].as_u64().unwrap() >= 3, "{figures}");
}
