//! Kept pages that are forgotten: by `PURGE`, by `sendoff purge`, and because a request may have
//! changed them.

use std::fs;
use std::net::SocketAddr;

use sendoff_tests::{Client, LIMIT, Request, Site, wait};

use crate::{CachingServer, PAGE, is_hit, status};

const ALLOWED: &str = "10m'\npurge = true\n#";

fn purge(kept: &CachingServer, target: &str) -> String {
    let answer = kept.server.ask(&Request::new("PURGE", target));
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.text()
}

/// Makes the cache keep these pages, and returns their texts.
fn keep<const N: usize>(kept: &CachingServer, targets: [&str; N]) -> [String; N] {
    targets.map(|target| {
        kept.get(target);
        kept.get_kept(target).text()
    })
}

#[test]
fn a_page_is_forgotten_by_request() {
    let kept = CachingServer::with(Site::with("page.php", PAGE), ALLOWED);
    let [one, two] = keep(&kept, ["/page.php?a", "/page.php?b"]);
    assert_eq!(purge(&kept, "/page.php?a"), "purged: 1\n");
    assert_eq!(purge(&kept, "/page.php?a"), "purged: 0\n");
    assert_eq!(kept.bodies().len(), 1);
    assert_ne!(kept.get("/page.php?a").text(), one);
    assert_eq!(kept.get("/page.php?b").text(), two);
}

#[test]
fn all_forms_of_a_page_and_all_beneath_a_path_are_forgotten() {
    let site = Site::with("page.php", PAGE);
    site.write("blog/page.php", PAGE.replace("'/../", "'/../../"));
    let kept = CachingServer::with(site, ALLOWED);
    for value in ["one", "two"] {
        let ask = Request::get("/page.php?head[]=Vary:+X-A").header("X-A", value);
        kept.server.ask(&ask);
        wait::for_some("a kept page", || Some(kept.server.ask(&ask)).filter(is_hit));
    }
    let [page] = keep(&kept, ["/blog/page.php"]);
    assert_eq!(purge(&kept, "/%70age.php?head[]=Vary:+X-A"), "purged: 2\n");
    assert_eq!(kept.get("/blog/page.php").text(), page);
    assert_eq!(purge(&kept, "/blogs/*"), "purged: 0\n");
    assert_eq!(purge(&kept, "/blog/*"), "purged: 1\n");
    assert_ne!(kept.get("/blog/page.php").text(), page);
}

/// Without the rule, or from elsewhere than the rule says, nothing is forgotten.
#[test]
fn not_every_client_may_forget_pages() {
    for rule in
        ["10m", "10m'\n[[site.route]]\nmethod = 'PURGE'\npurge = true\nallow_from = '10.9.8.7'\n#"]
    {
        let kept = CachingServer::with(Site::with("page.php", PAGE), rule);
        let [page] = keep(&kept, ["/page.php"]);
        let answer = kept.server.ask(&Request::new("PURGE", "/page.php"));
        assert!(!answer.text().contains("purged"), "{}", answer.text());
        assert_eq!(kept.get("/page.php").text(), page, "{rule}");
    }
}

/// A purge removes the pages of all event loops.
#[test]
fn pages_are_forgotten_by_command() {
    let site = Site::with("page.php", PAGE);
    let text = "listen = '127.0.0.1:0'\nthreads = 4\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 3\n\
                [[site]]\nroot = 'root'\n[[site.route]]\npage_cache = '10m'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = sendoff_tests::Server::try_run_with(&config, site.root(), 3, 4);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let kept = CachingServer { site, server };
    let url = |path: &str| format!("http://example.test{path}");
    let [mut one, two] = keep(&kept, ["/page.php?a", "/page.php?b"]);
    let command = |arguments: &[&str]| kept.server.command(&[&["purge"], arguments].concat());
    for round in 0..5 {
        assert_eq!(command(&[&url("/page.php?a")]).unwrap(), "1 kept page is forgotten\n");
        let pages: Vec<_> = (0..12).map(|_| kept.get("/page.php?a").text()).collect();
        assert!(!pages.contains(&one), "round {round}: {one} {pages:?}");
        one = kept.get_kept("/page.php?a").text();
    }
    assert_eq!(kept.get("/page.php?b").text(), two);
    assert_eq!(command(&["--json", &url("/page.php*")]).unwrap(), "{\n  \"pages\": 2\n}\n");
    keep(&kept, ["/page.php?a", "/page.php?b"]);
    assert_eq!(command(&["--all"]).unwrap(), "2 kept pages are forgotten\n");
    assert_eq!(kept.bodies().len(), 0);
    assert!(command(&["/page.php"]).unwrap_err().contains("is no URL"));
    assert!(command(&[]).is_err());
}

/// A page that was begun before the purge may show old contents, so it is not kept.
#[test]
fn a_page_that_is_being_made_is_forgotten_too() {
    for wants in ["/page.php", "/*", "all"] {
        let site = Site::with("page.php", PAGE);
        site.write_at(site.outside("wait"), "");
        let fifo = site.fifo("pipe");
        let kept = CachingServer::with(site, ALLOWED);
        let mut client = kept.server.connect();
        client.send(Request::get("/page.php").bytes());
        assert!(wait::until(LIMIT, || kept.runs() == 1));
        match wants {
            "all" => assert!(kept.server.command(&["purge", "--all"]).is_ok()),
            target => assert_eq!(purge(&kept, target), "purged: 0\n"),
        }
        fs::remove_file(kept.site.outside("wait")).unwrap();
        fifo.release();
        assert_eq!(client.response("GET").text(), "run 1 - ");
        // Another page that is kept shows that the first one would be there by now.
        keep(&kept, ["/page.php?other"]);
        assert_eq!(kept.get("/page.php").text(), "run 3 - ", "{wants}");
    }
}

/// A purged page does not come back with the next server.
#[test]
fn a_forgotten_page_is_gone_after_a_restart() {
    let kept = CachingServer::with(Site::with("page.php", PAGE), ALLOWED);
    keep(&kept, ["/page.php?a", "/page.php?b"]);
    purge(&kept, "/page.php?a");
    let CachingServer { site, server } = kept;
    drop(server);
    let kept = CachingServer::with(site, ALLOWED);
    kept.server.await_log("kept pages have been read pages=1");
}

/// RFC 9111 §4.4. A redirect leads the client to the page that it has changed.
#[test]
fn what_a_request_may_have_changed_is_forgotten() {
    let kept = CachingServer::start("10m");
    let [one, two, three] = keep(&kept, ["/page.php?a", "/page.php?b", "/page.php?c"]);
    let post = |target: &str| kept.server.ask(&Request::post(target, "text/plain", "x")).status();
    assert_eq!(post("/page.php?a&head[]=Location:+/page.php?b%23c1"), 302);
    assert_ne!(kept.get("/page.php?b").text(), two);
    assert_eq!(kept.get("/page.php?a").text(), one);
    assert_eq!(post("/page.php?a"), 200);
    assert_ne!(kept.get("/page.php?a").text(), one);
    // Failed requests purge no page, nor do HEAD, OPTIONS, and a PURGE that no rule allows.
    kept.site.write_at(kept.site.outside("broken"), "");
    assert_eq!(post("/page.php?c"), 500);
    fs::remove_file(kept.site.outside("broken")).unwrap();
    for method in ["HEAD", "OPTIONS", "PURGE"] {
        kept.server.ask(&Request::new(method, "/page.php?c"));
    }
    let hit = kept.get("/page.php?c");
    assert_eq!((hit.text(), is_hit(&hit)), (three, true), "{}", status(&hit));
}

/// A client chooses the host that it names, but a request purges pages only of the site that answers
/// it. Neither site has a name.
#[test]
fn a_request_purges_no_page_of_another_site() {
    let site = Site::with("page.php", PAGE);
    let text = "threads = 1\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 3\n\
                [[site]]\nlisten = '127.0.0.1:0'\nroot = 'root'\npage_cache = '10m'\n\
                purge_from = '127.0.0.9'\n[[site.route]]\nmethod = 'PURGE'\npurge = true\n\
                [[site]]\nlisten = '127.0.0.2:0'\nroot = 'root'\npage_cache = '10m'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = sendoff_tests::Server::try_run(&config, site.root(), 3);
    let server = server.unwrap_or_else(|failed| panic!("{}", failed.stderr));
    let status_text = server.command(&["status"]).unwrap();
    let listens = status_text.lines().find_map(|line| line.strip_prefix("listens on ")).unwrap();
    let all: Vec<SocketAddr> =
        listens.split(", ").map(|address| address.trim().parse().unwrap()).collect();
    let at = |ip: &str| *all.iter().find(|address| address.ip().to_string() == ip).unwrap();
    let (shop, other) = (at("127.0.0.1"), at("127.0.0.2"));
    let to =
        |address, request: Request| Client::connect(address).ask(&request.header("Host", "b.test"));
    let is_kept = || is_hit(&to(other, Request::get("/page.php?b")));
    assert!(wait::until(LIMIT, is_kept));
    let location = "/page.php?head[]=Location:+/page.php?b";
    for request in [
        Request::post("/page.php?b", "text/plain", "x"),
        Request::post(location, "text/plain", "x"),
        Request::new("PURGE", "/page.php?b"),
        Request::new("PURGE", "/*"),
    ] {
        let answer = to(shop, request.clone());
        assert!([200, 302].contains(&answer.status()), "{}", answer.text());
        assert!(!answer.text().contains("purged: 1"), "{}", answer.text());
        assert!(is_kept());
    }
    // From the address that the site names.
    let from = || Client::connect_from(shop, [127, 0, 0, 9].into());
    for field in [None, Some(("X-Url", ".*")), Some(("X-Purge-Method", "regex"))] {
        for target in ["/page.php?b", "/page.php*"] {
            let request = Request::new("PURGE", target).header("Host", "b.test");
            let request = field
                .into_iter()
                .fold(request, |request, (name, value)| request.header(name, value));
            assert_eq!(from().ask(&request).text(), "purged: 0\n", "{target} {field:?}");
            assert!(is_kept());
        }
    }
    // The operator's command knows no sites.
    let url = "http://b.test/page.php?b";
    assert_eq!(server.command(&["purge", url]).unwrap(), "1 kept page is forgotten\n");
    assert!(wait::until(LIMIT, is_kept));
    to(other, Request::post("/page.php?b", "text/plain", "x"));
    assert!(!is_kept());
}

/// The URL says which of several servers keeps the page; so does the configuration file.
#[test]
fn the_server_is_found_by_the_url_and_by_its_configuration() {
    let site = Site::with("page.php", PAGE);
    let start = |name: &str| {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = '{name}'\n[[pool]]\nworkers = 3\n\
             [[site]]\nroot = 'root'\n[[site.route]]\npage_cache = '10m'\n"
        );
        let config = site.write_at(site.outside(&format!("{name}.toml")), text);
        let server = sendoff_tests::Server::try_run(&config, site.root(), 3);
        (server.unwrap_or_else(|failed| panic!("{}", failed.stderr)), config)
    };
    let servers = [start("one"), start("two")];
    let command = |arguments: &[&str]| sendoff_tests::sendoff(site.root(), arguments);
    for (server, config) in &servers {
        let keep = || {
            let is_kept = || is_hit(&server.get("/page.php"));
            assert!(wait::until(LIMIT, is_kept));
        };
        keep();
        let url = format!("http://example.test:{}/page.php", server.addr().port());
        assert_eq!(command(&["purge", &url]).unwrap(), "1 kept page is forgotten\n");
        keep();
        let config = config.to_str().unwrap();
        let url = "http://example.test/page.php";
        let purged = command(&["purge", "--config", config, url]);
        assert_eq!(purged.unwrap(), "1 kept page is forgotten\n");
        let status = command(&["status", "--config", config]).unwrap();
        assert!(status.contains(&format!("process {},", server.pid())), "{status}");
    }
    let unclear = command(&["purge", "http://example.test/page.php"]).unwrap_err();
    assert!(unclear.contains("choose one by --listen or --config"), "{unclear}");
    let other = command(&["status", "--config", "/nowhere.toml"]).unwrap_err();
    assert!(other.contains("was started with /nowhere.toml"), "{other}");
}
