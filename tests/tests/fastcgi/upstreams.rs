//! Upstreams with several hosts (`docs/upstreams.md`): three php-fpms that serve the same site.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sendoff_tests::load::answering;
use sendoff_tests::{Client, Fpm, LIMIT, Request, Response, Server, Site, wait};

/// Processes of each php-fpm.
const PROCESSES: usize = 2;

/// A site whose script says which php-fpm has run it, and notes each `POST`.
fn site() -> Site {
    Site::with(
        "run.php",
        r#"<?php
if ($_SERVER['REQUEST_METHOD'] == 'POST') {
    file_put_contents('ran', "$_GET[n]\n", FILE_APPEND | LOCK_EX);
}
usleep(1000);
echo getenv('HOST');
"#,
    )
}

fn fpm(site: &Site, name: &str) -> Fpm {
    let pool = format!("pm.max_children = {PROCESSES}\nenv[HOST] = {name}");
    match name {
        "c" => Fpm::start_tcp(site.root(), &pool),
        _ => Fpm::start(site.root(), &pool),
    }
}

/// A server whose scripts run on these hosts.
fn serve(site: &Site, hosts: &[String], keys: &str) -> Server {
    let config = site.write_at(
        site.outside("sendoff.toml"),
        format!(
            "listen = '127.0.0.1:0'\nthreads = 2\n\
             [[upstream]]\nname = 'app'\nhosts = {hosts:?}\n{keys}\n\
             [[site]]\nroot = 'root'\nfastcgi = {{ '.php' = 'upstream:app' }}\n"
        ),
    );
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

fn hosts(all: &[Fpm]) -> Vec<String> {
    all.iter().map(Fpm::address).collect()
}

fn get() -> Request {
    Request::get("/run.php?n=get")
}

fn post(n: &str) -> Request {
    Request::post(&format!("/run.php?n={n}"), "text/plain", "x")
}

#[test]
fn each_host_gets_its_share_and_spare_ones_wait() {
    let site = site();
    let mut all = ["a", "b", "c"].map(|name| fpm(&site, name));
    let [a, b, c] = [0, 1, 2].map(|n| all[n].address());
    let hosts = [format!("{a} weight=3"), b, format!("{c} spare")];
    let server = serve(&site, &hosts, "fails = 1\nretry_after = '1m'\nslow_start = '0s'");
    let shares = answering(server.addr(), 40, &get());
    assert_eq!((shares["a"], shares["b"], shares.len()), (30, 10, 2), "{shares:?}");
    let report = server.explain("/run.php", &[]).unwrap();
    assert!(report.contains("upstream:app, unix:/"), "{report}");
    all[0].stop();
    all[1].stop();
    let shares = answering(server.addr(), 10, &get());
    assert_eq!(shares.get("c"), Some(&10), "{shares:?}");
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("app: 3 hosts, 1 up, "), "{status}");
    assert!(status.contains(&format!("{c}: 0 busy, 10 requests, up")), "{status}");
    assert_eq!(status.matches("down: 1 failures, to be tried in ").count(), 2, "{status}");
    all[2].stop();
    assert_eq!(server.get("/run.php").status(), 502);
    // All are down: they are tried whenever there is a request.
    all[1].start_again();
    assert_eq!(server.page("/run.php"), "b");
}

/// Sends requests until it is told to stop. Returns the number of `GET`s, the answered `POST`s, and
/// the unanswered ones.
fn keep_asking(server: &Server, name: usize, stop: &AtomicBool) -> (usize, Vec<String>, usize) {
    let mut client = Client::connect(server.addr());
    let (mut gets, mut posted, mut lost) = (0, Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..3 {
            let response = client.ask(&get());
            assert!(response.status() == 200, "GET {}: {}", response.status(), response.text());
            gets += 1;
        }
        let n = format!("{name}.{}", posted.len() + lost);
        match client.ask(&post(&n)).status() {
            200 => posted.push(n),
            502 => lost += 1,
            other => panic!("POST: {other}"),
        }
    }
    (gets, posted, lost)
}

/// Idempotent requests go to another host. Others are lost only if a process had received them, and
/// run once.
#[test]
fn two_of_three_hosts_die_and_return() {
    let site = site();
    let mut all = ["a", "b", "c"].map(|name| fpm(&site, name));
    let keys = "fails = 1\nretry_after = '100ms'\nslow_start = '0s'";
    let server = serve(&site, &hosts(&all), keys);
    let stop = AtomicBool::new(false);
    let all_up = || server.command(&["status"]).unwrap().contains("3 hosts, 3 up");
    let results: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|n| (n, &server, &stop))
            .map(|(n, server, stop)| scope.spawn(move || keep_asking(server, n, stop)))
            .collect();
        for _ in 0..3 {
            all[0].stop();
            all[2].stop();
            let down = || server.command(&["status"]).unwrap().contains("3 hosts, 1 up");
            assert!(wait::until(LIMIT, down));
            all[0].start_again();
            all[2].start_again();
            assert!(wait::until(LIMIT, all_up));
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let lost: usize = results.iter().map(|(_, _, lost)| lost).sum();
    // Two hosts die three times: each loses the requests of its processes, and one connection that
    // no process had taken.
    assert!(lost <= 3 * 2 * (PROCESSES + 1), "{lost} were lost");
    let ran = std::fs::read_to_string(site.path("ran")).unwrap();
    let mut times = HashMap::new();
    ran.lines().for_each(|n| *times.entry(n).or_insert(0) += 1);
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    let posted: Vec<_> = results.iter().flat_map(|(_, posted, _)| posted).collect();
    assert!(posted.iter().all(|n| times.contains_key(n.as_str())));
    assert!(results.iter().all(|(gets, ..)| *gets > 0) && !posted.is_empty());
    let shares = answering(server.addr(), 30, &get());
    assert_eq!(shares.len(), 3, "{shares:?}");
}

/// A host that nothing listens on costs no request once a probe has found out.
#[test]
fn probes_find_hosts_that_go_and_come_without_requests() {
    let site = site();
    let mut all = ["a", "c"].map(|name| fpm(&site, name));
    let keys = "fails = 1\nretry_after = '1m'\nprobe = '50ms'";
    let server = serve(&site, &hosts(&all), keys);
    all[1].stop();
    server.await_log("the host is down");
    assert_eq!(answering(server.addr(), 10, &get()).get("a"), Some(&10));
    all[1].start_again();
    let back = || answering(server.addr(), 4, &get()).contains_key("c");
    assert!(wait::until(LIMIT, back), "{}", server.command(&["status"]).unwrap());
}

#[test]
fn a_host_gets_no_more_connections_than_its_limit() {
    let site = Site::new();
    let path = site.outside("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut all = Vec::new();
        while let Ok((mut stream, _)) = listener.accept() {
            counted.fetch_add(1, Ordering::Relaxed);
            // A process that reads, so that others are tried, and never answers.
            stream.read_exact(&mut [0; 16]).unwrap();
            all.push(stream);
        }
    });
    let config = site.write_at(
        site.outside("sendoff.toml"),
        format!(
            "listen = '127.0.0.1:0'\nthreads = 2\n[[upstream]]\nname = 'app'\n\
             hosts = ['unix:{}']\nconnections = 3\n\
             [[site]]\nroot = 'root'\nfastcgi = {{ '/' = 'upstream:app' }}\nfastcgi_timeout = '1s'\n",
            path.display()
        ),
    );
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    let mut clients: Vec<_> = (0..8)
        .map(|n| {
            let mut client = server.connect();
            client.send(Request::post(&format!("/{n}"), "text/plain", "x").bytes());
            client
        })
        .collect();
    assert!(wait::until(LIMIT, || accepted.load(Ordering::Relaxed) == 3));
    let first: Vec<_> = clients.drain(..3).map(|mut c| c.response("POST").status()).collect();
    // The others had to wait until these had ended.
    let status = |response: Response| response.status();
    assert!(first.iter().all(|status| *status == 504), "{first:?}");
    for mut client in clients {
        assert_eq!(status(client.response("POST")), 504);
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 8);
}

#[test]
fn names_lead_to_hosts() {
    let site = site();
    let fpm = Fpm::start_tcp(site.root(), "env[HOST] = a");
    let port = fpm.address().rsplit_once(':').unwrap().1.to_owned();
    let server = serve(&site, &[format!("localhost:{port}")], "fails = 1");
    // `localhost` may have an IPv6 address, too, where php-fpm does not listen.
    assert!((0..10).all(|_| server.page("/run.php") == "a"));
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains(&format!("tcp:127.0.0.1:{port}: 0 busy, ")), "{status}");
    let nowhere = serve(&site, &["nowhere.invalid:9000".to_owned()], "");
    let begun = std::time::Instant::now();
    assert_eq!(nowhere.get("/run.php").status(), 502);
    assert!(begun.elapsed() < Duration::from_secs(20));
    nowhere.await_log("nowhere.invalid:9000 cannot be looked up");
}

/// The process of a FastCGI host could write the head of a response itself, to the client's socket.
#[test]
fn clients_stay_with_the_host_that_their_cookie_names() {
    let site = site();
    let mut all = ["a", "b"].map(|name| fpm(&site, name));
    let keys = "fails = 1\nretry_after = '1m'\nsticky = 'host'";
    let server = serve(&site, &hosts(&all), keys);
    let responses: Vec<_> = (0..6).map(|_| server.ask(&get())).collect();
    let cookie = |response: &Response| {
        Some(response.header("Set-Cookie")?.split(';').next().unwrap().to_owned())
    };
    assert!(responses.iter().all(|response| cookie(response).is_some()));
    let of_a = responses.iter().find(|response| response.text() == "a").and_then(cookie).unwrap();
    let with = |cookie: &str| get().header("Cookie", cookie);
    for _ in 0..6 {
        let response = server.ask(&with(&of_a));
        assert_eq!((&*response.text(), cookie(&response)), ("a", None));
    }
    all[0].stop();
    let moved = server.ask(&with(&of_a));
    assert_eq!(moved.text(), "b");
    assert_ne!(cookie(&moved).unwrap(), of_a);
}

/// The sessions of each php-fpm are in a folder of its own, as those in memory would be. The script
/// shows the id that PHP has read, and so the value of its cookie.
#[test]
fn sessions_of_the_application_stay_with_their_host() {
    let site = site();
    site.write(
        "session.php",
        "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        echo getenv('HOST'), ' ', $_SESSION['n'], ' ', session_id();",
    );
    let all = ["a", "b"].map(|name| {
        let folder = site.outside(&format!("sessions-{name}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        let path = format!("php_value[session.save_path] = {}", folder.display());
        let pool = format!("pm.max_children = {PROCESSES}\nenv[HOST] = {name}\n{path}");
        Fpm::start(site.root(), &pool)
    });
    let server = serve(&site, &hosts(&all), "sticky = { application = 'PHPSESSID' }");
    let get = || Request::get("/session.php");
    let mut seen = HashSet::new();
    for _ in 0..6 {
        let first = server.ask(&get());
        let text = first.text();
        let [host, "1", id] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        let set = first.header("Set-Cookie").unwrap();
        assert!(set.ends_with(&format!("~{id}; path=/")), "{set}");
        let cookie = set.split(';').next().unwrap();
        for n in 2..5 {
            let again = server.ask(&get().header("Cookie", &format!("a=b; {cookie}; c=d")));
            assert_eq!(again.text(), format!("{host} {n} {id}"));
            assert_eq!(again.header("Set-Cookie"), None);
        }
        // What has no host in front of it goes to any, as it is.
        let own = format!("PHPSESSID={id}");
        let unbound = server.ask(&get().header("Cookie", &own)).text();
        assert!(unbound.ends_with(id), "{unbound}");
        seen.extend([host.to_owned(), unbound[..1].to_owned()]);
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}
