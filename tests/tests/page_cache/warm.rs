//! Pages of a sitemap are made before clients ask for them (docs/page-cache.md, "Warming").

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sendoff_tests::{Client, LIMIT, Request, Response, Server, Site, processes, wait};

use crate::{is_hit, status};

/// Answers for every path of the site: sitemaps under `/maps/`, which the files beside the root
/// contain with `BASE` for the site's URL, and pages, which note their requests in `asked`.
const SITE: &str = r#"<?php
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
$beside = dirname($_SERVER['DOCUMENT_ROOT']);
$scheme = ($_SERVER['HTTPS'] ?? '') === 'on' ? 'https' : 'http';
$base = "$scheme://$_SERVER[HTTP_HOST]";
$note = fn($file, $text) => file_put_contents("$beside/$file", "$text\n", FILE_APPEND | LOCK_EX);
if (preg_match('~^/maps/(\w+)~', $path, $name)) {
    header('Cache-Control: no-store');
    $note('maps', $path);
    if ($name[1] === 'loop') { header("Location: $base/maps/loop?" . mt_rand()); http_response_code(302); exit; }
    if ($name[1] === 'moved') { header('Location: /maps/map'); http_response_code(301); exit; }
    if ($name[1] === 'endless') {
        $next = fn($n) => "<sitemap><loc>$base/maps/endless/" . mt_rand() . "-$n</loc></sitemap>";
        exit('<sitemapindex>' . implode(array_map($next, range(1, 20))) . '</sitemapindex>');
    }
    $text = str_replace('BASE', $base, file_get_contents("$beside/$name[1]"));
    exit(str_ends_with($path, '.gz') ? gzencode($text) : $text);
}
$note('asked', "$path $_SERVER[REMOTE_ADDR] " . count($_COOKIE));
if (str_starts_with($path, '/wait')) file_get_contents("$_SERVER[DOCUMENT_ROOT]/pipe");
if (str_starts_with($path, '/private')) setcookie('session', '1');
if (str_starts_with($path, '/error') || is_file("$beside/broken")) http_response_code(500);
echo "page $path";
"#;

struct Warmed {
    site: Site,
    server: Server,
}

fn urls(paths: &[&str]) -> String {
    let urls = paths.iter().map(|path| match path.contains("://") {
        true => format!("<url><loc>{path}</loc></url>"),
        false => format!("<url><loc>BASE{path}</loc></url>"),
    });
    format!("<urlset>{}</urlset>", urls.collect::<String>())
}

fn index(paths: &[&str]) -> String {
    let maps = paths.iter().map(|path| format!("<sitemap><loc>BASE{path}</loc></sitemap>"));
    format!("<sitemapindex>{}</sitemapindex>", maps.collect::<String>())
}

impl Warmed {
    /// Starts a server for a site whose sitemaps are `maps`, by name.
    fn start(workers: usize, warm: &str, maps: &[(&str, &str)]) -> Self {
        let site = Site::with("index.php", SITE);
        for (name, text) in maps {
            site.write_at(site.outside(name), text);
        }
        for name in ["asked", "maps"] {
            site.write_at(site.outside(name), "");
        }
        let server = Self::serve(&site, workers, warm);
        Self { site, server }
    }

    fn serve(site: &Site, workers: usize, warm: &str) -> Server {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 2\npage_cache_folder = 'pages'\n\
             [[pool]]\nworkers = {workers}\n\
             [[site]]\nhosts = 'a.test'\nroot = 'root'\npage_cache = '10m'\nwarm = '{warm}'\n\
             [[site.route]]\npath = '/secret'\nallow_from = '127.0.0.1'\n\
             [[site.route]]\nmethod = 'PURGE'\npurge = true\n"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run_with(&config, site.root(), workers, 2);
        server.unwrap_or_else(|failed| panic!("{}", failed.stderr))
    }

    fn ask(&self, method: &str, path: &str) -> Response {
        let host = format!("a.test:{}", self.server.addr().port());
        self.server.ask(&Request::new(method, path).header("Host", &host))
    }

    /// The paths of the pages that were requested from the application.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.site.outside("asked")).unwrap();
        text.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    /// The line of `sendoff status` about the walks, once it contains `text`.
    fn await_status(&self, text: &str) -> String {
        wait::for_some(text, || {
            let report = self.server.command(&["status"]).unwrap();
            let line = report.lines().find(|line| line.starts_with("warmed"))?;
            (line.contains(text) && line.contains(" ago")).then(|| line.to_owned())
        })
    }
}

#[test]
fn clients_find_the_pages_of_sitemaps() {
    let one = urls(&["/1?a=1&amp;b=2", "/2", "/2"]);
    let maps = [
        ("map", &*index(&["/maps/one.xml", "/maps/two.xml.gz"])),
        ("one", &one),
        ("two", &urls(&["/3"])),
    ];
    let warmed = Warmed::start(2, "/maps/moved", &maps);
    warmed.await_status("a.test: 4 of 4 pages, ");
    warmed.server.await_log("warmed 4 of 4 pages");
    assert_eq!(warmed.asked(), ["/1", "/2", "/3"]);
    for path in ["/1?a=1&b=2", "/2", "/3"] {
        let page = warmed.ask("GET", path);
        assert!(is_hit(&page) && page.text().starts_with("page /"), "{path}: {}", status(&page));
    }
    assert_eq!(warmed.asked().len(), 3);
    let asked = fs::read_to_string(warmed.site.outside("asked")).unwrap();
    assert!(asked.lines().all(|line| line.ends_with(" 192.0.2.1 0")), "{asked}");
    let report = warmed.server.command(&["status", "--json"]).unwrap();
    assert!(report.contains("\"made\": 3"), "{report}");
}

/// `hosts` has a wildcard only, so `warm` is a URL.
#[test]
fn pages_are_made_for_clients_that_come_over_tls() {
    let site = Site::with("index.php", SITE);
    site.write_at(site.outside("map"), urls(&["/1", "https://b.a.test/2", "https://evil.test/3"]));
    site.write_at(site.outside("asked"), "");
    let text = "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\npage_cache_folder = 'pages'\n\
        [[pool]]\nworkers = 2\n[[site]]\nhosts = '*.a.test'\nroot = 'root'\ntls = 'self-signed'\n\
        page_cache = '10m'\nwarm = 'https://c.a.test/maps/map'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run(&config, site.root(), 2);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    server.await_log("warmed 2 of 2 pages");
    for (host, path) in [("c.a.test", "/1"), ("b.a.test", "/2")] {
        let mut client = Client::connect_tls(server.tls_addr().unwrap());
        let page = client.ask(&Request::get(path).header("Host", host));
        assert!(is_hit(&page), "{host}{path}: {}", status(&page));
    }
    assert_eq!(fs::read_to_string(site.outside("asked")).unwrap().lines().count(), 2);
}

#[test]
fn pages_are_made_again_after_a_purge_and_by_command() {
    let warmed = Warmed::start(2, "/maps/map", &[("map", &urls(&["/1", "/2"]))]);
    warmed.await_status("2 of 2 pages");
    assert_eq!(warmed.asked(), ["/1", "/2"]);
    warmed.server.command(&["purge", "--all"]).unwrap();
    wait::for_some("all pages again", || (warmed.asked().len() == 4).then_some(()));
    warmed.await_status("2 of 2 pages");
    assert_eq!(warmed.ask("PURGE", "/1").text(), "purged: 1\n");
    wait::for_some("the purged page", || (warmed.asked().len() == 5).then_some(()));
    assert_eq!(warmed.asked()[4], "/1");
    warmed.await_status("2 of 2 pages");
    // A purge that concerns no page leads to no walk.
    assert_eq!(warmed.ask("PURGE", "/other").text(), "purged: 0\n");
    let maps = || fs::read_to_string(warmed.site.outside("maps")).unwrap().lines().count();
    let before = maps();
    let said = warmed.server.command(&["purge", "--warm"]).unwrap();
    assert_eq!(said, "missing pages of 1 site are being made: see sendoff status\n");
    wait::for_some("a walk", || (maps() == before + 1).then_some(()));
    warmed.await_status("2 of 2 pages");
    assert_eq!(warmed.asked().len(), 5);
}

#[test]
fn a_reload_does_not_begin_from_zero() {
    let warmed = Warmed::start(2, "/maps/map", &[("map", &urls(&["/1", "/2"]))]);
    warmed.await_status("2 of 2 pages");
    let maps = |site: &Site| fs::read_to_string(site.outside("maps")).unwrap().lines().count();
    warmed.server.command(&["reload"]).unwrap();
    warmed.await_status("2 of 2 pages");
    assert_eq!(maps(&warmed.site), 1);
    // Another sitemap is walked through.
    let config = warmed.site.outside("sendoff.toml");
    let text = fs::read_to_string(&config).unwrap().replace("/maps/map", "/maps/map?2");
    warmed.site.write_at(config, text);
    warmed.server.command(&["reload"]).unwrap();
    wait::for_some("a walk", || (maps(&warmed.site) == 2).then_some(()));
    warmed.await_status("2 of 2 pages");
    assert_eq!(warmed.asked().len(), 2);
}

#[test]
fn an_upgrade_does_not_begin_from_zero() {
    let Warmed { site, server } = Warmed::start(2, "/maps/map", &[("map", &urls(&["/1", "/2"]))]);
    server.await_log("warmed 2 of 2 pages");
    let said = server.command(&["upgrade"]).unwrap();
    let new = said.strip_prefix("upgraded: process ").unwrap_or_else(|| panic!("{said}"));
    let new = new.split(' ').next().unwrap().parse().unwrap();
    wait::for_some("the walk of the new server", || {
        (server.log().matches("warmed 2 of 2 pages").count() == 2).then_some(())
    });
    assert_eq!(fs::read_to_string(site.outside("maps")).unwrap().lines().count(), 2);
    assert_eq!(fs::read_to_string(site.outside("asked")).unwrap().lines().count(), 2);
    processes::signal(new, Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(new)));
    let (status, log) = server.await_end();
    assert!(status.success() && !log.contains("panicked"), "{log}");
}

#[test]
fn other_hosts_and_pages_of_single_clients_are_left_out() {
    let paths = [
        "/1",
        "http://evil.test/x",
        "http://169.254.169.254/latest",
        "https://a.test/secure",
        "/private",
        "/secret",
        "/error",
        "/2",
    ];
    let bomb = format!(
        "<!DOCTYPE urlset [<!ENTITY a \"{}\"><!ENTITY b \"{}\">]>{}",
        "a".repeat(1000),
        "&a;".repeat(1000),
        urls(&["/&b;", "/3"])
    );
    let foreign = "<sitemapindex><sitemap><loc>http://evil.test/s</loc></sitemap></sitemapindex>";
    let maps = [
        ("map", &*index(&["/maps/one", "/maps/bomb", "/maps/foreign", "/maps/loop", "/maps/none"])),
        ("one", &urls(&paths)),
        ("bomb", &bomb),
        ("foreign", foreign),
        ("none", "<html>no sitemap</html>"),
    ];
    let warmed = Warmed::start(2, "/maps/map", &maps);
    // `/private` sets a cookie, `/secret` is for clients of this machine only. `/error`,
    // `/maps/loop` and `/maps/none` are errors.
    let line = warmed.await_status("3 of 6 pages, 2 may not be kept, 3 errors");
    assert!(line.contains("<html>"), "{line}");
    assert_eq!(warmed.asked(), ["/1", "/private", "/error", "/2", "/3"]);
    let log = warmed.server.log();
    for said in ["other hosts, which are left out: 3", "redirected more than", "answered with 500"]
    {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(!is_hit(&warmed.ask("GET", "/private")));
}

#[test]
fn endless_sitemaps_end() {
    let warmed = Warmed::start(2, "/maps/endless", &[]);
    warmed.await_status("0 of 0 pages");
    let requested = fs::read_to_string(warmed.site.outside("maps")).unwrap().lines().count();
    assert_eq!(requested, 1 + 20 + 400, "two indexes above a sitemap");
}

#[test]
fn an_application_that_fails_is_left_alone() {
    let paths: Vec<_> = (0..50).map(|number| format!("/error{number}")).collect();
    let paths: Vec<_> = paths.iter().map(String::as_str).collect();
    let warmed = Warmed::start(2, "/maps/map", &[("map", &urls(&paths))]);
    let line = warmed.await_status("0 of 50 pages, 10 errors");
    assert!(line.contains("ended early: 10 requests in a row have failed"), "{line}");
    assert!(line.contains("/error9: it was answered with 500"), "{line}");
    assert_eq!(warmed.asked().len(), 10);
    let paths = paths.join(" ").replace("error", "private");
    let paths: Vec<_> = paths.split(' ').collect();
    warmed.site.write_at(warmed.site.outside("map"), urls(&paths));
    warmed.server.command(&["purge", "--warm"]).unwrap();
    let line = warmed.await_status("0 of 50 pages, 20 may not be kept");
    assert!(line.contains("the last 20 pages were made and may not be kept"), "{line}");
}

/// While a client has one of two workers, the other one stays free for clients.
#[test]
fn clients_come_first() {
    let warmed = Warmed::start(2, "/maps/map", &[("map", &urls(&["/1", "/2", "/3"]))]);
    warmed.await_status("3 of 3 pages");
    let fifo = warmed.site.fifo("pipe");
    let host = format!("a.test:{}", warmed.server.addr().port());
    let mut slow = warmed.server.connect();
    slow.send(Request::get("/wait").header("Host", &host).bytes());
    let held = fifo.hold();
    let before = warmed.asked().len();
    warmed.server.command(&["purge", "--all"]).unwrap();
    // Longer than the pause between two walks.
    let begun = Instant::now();
    for number in 0.. {
        let page = warmed.ask("GET", &format!("/client{number}"));
        assert_eq!(page.text(), format!("page /client{number}"));
        if begun.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    let maps = fs::read_to_string(warmed.site.outside("maps")).unwrap();
    assert_eq!(maps.lines().count(), 1, "{maps}");
    let asked = warmed.asked();
    let asked: Vec<_> = asked[before..].iter().filter(|path| !path.contains("client")).collect();
    assert!(asked.is_empty(), "{asked:?}");
    drop(held);
    slow.response("GET");
    warmed.await_status("3 of 3 pages");
}

#[test]
fn mistakes_are_explained() {
    let site = Site::with("index.php", SITE);
    let check = |lines: &str| {
        let text = format!("listen = '127.0.0.1:0'\n[[site]]\nroot = 'root'\n{lines}\n");
        let config = site.write_at(site.outside("sendoff.toml"), text);
        sendoff_tests::sendoff(site.root(), &["check", "--config", config.to_str().unwrap()])
    };
    for (lines, says) in [
        ("warm = '/s.xml'\nhosts = 'a.test'", "only if pages are kept"),
        (
            "warm = '/s.xml'\npage_cache = '1m'",
            "write its URL: warm = \"https://example.org/s.xml\"",
        ),
        ("warm = 's.xml'\npage_cache = '1m'\nhosts = 'a.test'", "neither a path nor a URL"),
        ("warm = 'ftp://a.test/'\npage_cache = '1m'", "neither a path nor a URL"),
    ] {
        let said = check(lines).unwrap_err();
        assert!(said.contains(says), "{lines}: {said}");
    }
    check("warm = 'http://a.test/s.xml'\npage_cache = '1m'").unwrap();
}
