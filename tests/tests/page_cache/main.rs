//! The page cache (docs/page-cache.md): a page is made once, and no client ever gets the page of
//! another client.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod ending;
mod esi;
mod esi_kept;
mod fragments;
mod lscache;
mod lscache_attacks;
mod named;
mod purge;
mod ruled;
mod rules;
mod varnish;
mod warm;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::thread;

use rustix::fs::OFlags;

use sendoff_tests::{Client, LIMIT, Request, Response, Server, Site, wait};

/// Counts its runs and answers as its query demands: `head` lists fields, `body` selects the text,
/// `size` sets the number of bytes.
const PAGE: &str = r"<?php
$waits = is_file(__DIR__ . '/../wait');
file_put_contents(__DIR__ . '/../runs', '.', FILE_APPEND);
foreach ((array) ($_GET['head'] ?? []) as $field) header($field, false);
if (is_file(__DIR__ . '/../broken')) { http_response_code(500); exit('broken'); }
if ($waits) file_get_contents(__DIR__ . '/pipe');
if (is_file(__DIR__ . '/../withdrawn')) {
    http_response_code((int) ($_GET['now'] ?? 200));
    header_remove('Cache-Control');
    header($_GET['field'] ?? 'X-None: 1');
    exit('withdrawn');
}
$tag = $_SERVER['HTTP_IF_NONE_MATCH'] ?? '';
if ($tag !== '' && isset($_GET['confirm'])) { header('ETag: ' . $_GET['confirm']); http_response_code(304); exit; }
if (isset($_GET['tag'])) {
    header('ETag: ' . $_GET['tag']);
    if ($tag === $_GET['tag']) { http_response_code(304); exit; }
}
echo $_GET['body'] ?? 'run ', strlen(file_get_contents(__DIR__ . '/../runs')), ' ', $_SERVER['HTTP_X_A'] ?? '-', ' ',
    str_repeat('x', (int) ($_GET['size'] ?? 0));
";

struct CachingServer {
    site: Site,
    server: Server,
}

impl CachingServer {
    fn start(rule: &str) -> Self {
        Self::with(Site::with("page.php", PAGE), rule)
    }

    fn with(site: Site, rule: &str) -> Self {
        Self::with_lines(site, "", rule)
    }

    /// `lines` are about the whole site.
    fn with_lines(site: Site, lines: &str, rule: &str) -> Self {
        let server = serve(&site, lines, rule);
        Self { site, server }
    }

    /// With a further route, behind the rule.
    fn with_route(site: Site, rule: &str, route: &str) -> Self {
        Self::with(site, &format!("{rule}'\n{route}\n#"))
    }

    fn runs(&self) -> usize {
        fs::read(self.site.outside("runs")).map_or(0, |runs| runs.len())
    }

    fn get(&self, target: &str) -> Response {
        self.server.get(target)
    }

    /// Requests the target until the page comes without the script: a page is kept shortly after
    /// its first client has got it.
    fn get_kept(&self, target: &str) -> Response {
        wait::for_some("a kept page", || Some(self.get(target)).filter(is_hit))
    }

    fn bodies(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.site.outside("pages")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        files.filter(|file| file.extension().is_some_and(|ending| ending == "body")).collect()
    }
}

fn serve(site: &Site, lines: &str, rule: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\ntrusted_proxies = ['127.0.0.1']\npage_cache_folder = 'pages'\n[[pool]]\nworkers = 3\n\
         [[site]]\nroot = 'root'\n{lines}\n[[site.route]]\npage_cache = '{rule}'\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let started = Server::try_run(&config, site.root(), workers_of(lines));
    started.unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

/// The number of workers that start, unless another application runs the scripts.
fn workers_of(lines: &str) -> usize {
    if lines.contains("'.php'") { 0 } else { 3 }
}

fn status(response: &Response) -> &str {
    response.header("Cache-Status").unwrap_or_default()
}

fn is_hit(response: &Response) -> bool {
    status(response).starts_with("sendoff; hit")
}

#[test]
fn a_page_is_made_once() {
    let kept = CachingServer::start("10m");
    let first = kept.get("/page.php?size=100000");
    assert_eq!(status(&first), "sendoff; fwd=uri-miss; ttl=600");
    let again = kept.get_kept("/page.php?size=100000");
    let runs = kept.runs();
    for _ in 0..5 {
        let hit = kept.get("/page.php?size=100000");
        assert!(hit.body == again.body);
        assert_eq!(hit.header("Content-Length"), Some(&*again.body.len().to_string()));
        assert!(hit.header("Age").is_some_and(|age| age.parse::<u64>().is_ok()));
        assert_eq!(hit.header("X-Powered-By"), first.header("X-Powered-By"));
    }
    assert_eq!(kept.runs(), runs);
    let head = kept.server.ask(&Request::new("HEAD", "/page.php?size=100000"));
    assert!(is_hit(&head) && head.body.is_empty());
    assert_eq!(head.header("Content-Length"), Some(&*again.body.len().to_string()));
    let part = kept.server.ask(&Request::get("/page.php?size=100000").header("Range", "bytes=2-5"));
    assert_eq!(part.status(), 206);
    assert_eq!(part.body, again.body[2..6]);
    assert_eq!(kept.runs(), runs);
    // Another query is another page.
    assert_eq!(status(&kept.get("/page.php?size=1")), "sendoff; fwd=uri-miss; ttl=600");
}

/// Pages of one user are not cached, and requests for them are not answered from the cache.
#[test]
fn pages_of_users_are_made_for_each() {
    let kept = CachingServer::start("10m");
    for fields in [
        "head[]=Set-Cookie:+a=b",
        "head[]=Cache-Control:+private",
        "head[]=Cache-Control:+no-store",
        "head[]=Cache-Control:+public,+max-age=60&head[]=Set-Cookie:+a=b",
        "head[]=Expires:+0",
        "head[]=Vary:+*",
    ] {
        let target = format!("/page.php?{fields}");
        let (one, two) = (kept.get(&target), kept.get(&target));
        assert_eq!(status(&one), "sendoff; fwd=uri-miss", "{fields}");
        assert_ne!(one.text(), two.text(), "{fields}");
    }
    assert_eq!(kept.bodies().len(), 0);
    let anonymous = kept.get("/page.php");
    let kept_page = kept.get_kept("/page.php");
    assert_eq!(anonymous.text(), kept_page.text());
    for request in [
        Request::get("/page.php").header("Cookie", "session=1"),
        Request::get("/page.php").header("Authorization", "Basic YTpi"),
        Request::post("/page.php?", "text/plain", "x"),
    ] {
        let answer = kept.server.ask(&request);
        assert_eq!(answer.header("Cache-Status"), None);
        assert_ne!(answer.text(), kept_page.text());
    }
    assert_eq!(kept.get("/page.php").text(), kept_page.text());
    // A form may have changed the page.
    let answer = kept.server.ask(&Request::post("/page.php", "text/plain", "x"));
    assert_eq!(answer.header("Cache-Status"), None);
    assert_eq!(status(&kept.get("/page.php")), "sendoff; fwd=uri-miss; ttl=600");
}

#[test]
fn a_session_is_never_kept() {
    let site = Site::with("page.php", PAGE);
    site.write(
        "session.php",
        "<?php session_start(); echo $_SESSION['n'] = random_int(0, PHP_INT_MAX);",
    );
    let kept = CachingServer::with(site, "10m, cookies");
    let (one, two) = (kept.get("/session.php"), kept.get("/session.php"));
    assert_ne!(one.text(), two.text());
    assert_eq!(kept.bodies().len(), 0);
}

#[test]
fn without_a_time_only_pages_are_kept_that_ask_for_it() {
    let kept = CachingServer::start("http");
    assert_ne!(kept.get("/page.php").text(), kept.get("/page.php").text());
    let target = "/page.php?head[]=Cache-Control:+max-age=600";
    kept.get(target);
    assert!(status(&kept.get_kept(target)).starts_with("sendoff; hit; ttl="));
    // nginx's field is for the server alone.
    let target = "/page.php?head[]=X-Accel-Expires:+600";
    assert_eq!(kept.get(target).header("X-Accel-Expires"), None);
    assert_eq!(kept.get_kept(target).header("X-Accel-Expires"), None);
}

#[test]
fn pages_vary_with_the_fields_that_they_name() {
    let kept = CachingServer::start("10m");
    let ask = |value: &str| {
        kept.server.ask(&Request::get("/page.php?head[]=Vary:+X-A").header("X-A", value))
    };
    let both = ["one", "two"].map(|value| {
        ask(value);
        wait::for_some("a kept page", || Some(ask(value)).filter(is_hit))
    });
    assert_ne!(both[0].text(), both[1].text());
    let runs = kept.runs();
    for (value, page) in ["one", "two"].into_iter().zip(&both) {
        assert_eq!(ask(value).text(), page.text());
    }
    assert_eq!(kept.runs(), runs);
}

/// Twenty clients ask for a page that is just being made: the script runs once.
/// The application behind the cache does not see a field that `Connection` names, so its page is for
/// requests without the field. It sees the address of each client in a field that the clients have
/// not sent.
#[test]
fn pages_vary_with_the_fields_that_the_application_has_seen() {
    let app = Site::with("page.php", PAGE);
    let behind = Server::start(app.root(), &[]);
    let route = format!("[[site.route]]\nproxy = 'http://{}'\n", behind.addr());
    let kept = CachingServer::with_route(Site::new(), "10m", &route);
    let target = "/page.php?head[]=Vary:+X-A";
    let named = Request::get(target).header("X-A", "one").header("Connection", "X-A");
    assert!(kept.server.ask(&named).text().contains(" - "));
    let bare = wait::for_some("a kept page", || Some(kept.get(target)).filter(is_hit));
    assert!(bare.text().starts_with("run 1 - "), "{}", bare.text());
    let own = kept.server.ask(&Request::get(target).header("X-A", "one"));
    assert!(own.text().contains(" one "), "{}", own.text());
    for field in ["X-Forwarded-For", "Accept,+Forwarded"] {
        let target = format!("/page.php?head[]=Vary:+{field}");
        let pages = [(); 3].map(|()| kept.get(&target));
        assert!(!pages.iter().any(is_hit), "{field}: {:?}", pages.each_ref().map(status));
    }
}

#[test]
fn many_wait_for_one() {
    let site = Site::with("page.php", PAGE);
    site.write_at(site.outside("wait"), "");
    let fifo = site.fifo("pipe");
    let kept = CachingServer::with(site, "10m");
    let mut clients: Vec<_> = (0..20).map(|_| kept.server.connect()).collect();
    for client in &mut clients {
        client.send(Request::get("/page.php").bytes());
    }
    assert!(wait::until(LIMIT, || kept.runs() > 0));
    fs::remove_file(kept.site.outside("wait")).unwrap();
    fifo.release();
    let pages: Vec<_> = clients.iter_mut().map(|client| client.response("GET").text()).collect();
    assert_eq!(kept.runs(), 1);
    assert!(pages.iter().all(|page| page == &pages[0]), "{pages:?}");
}

/// A part that the application sends is no page, so that no request waits for it.
#[test]
fn nobody_waits_for_a_part() {
    let site = Site::with("page.php", PAGE);
    site.write_at(site.outside("wait"), "");
    let fifo = site.fifo("pipe");
    let kept = CachingServer::with(site, "10m");
    let mut part = kept.server.connect();
    part.send(Request::get("/page.php").header("Range", "bytes=2-5").bytes());
    assert!(wait::until(LIMIT, || kept.runs() == 1));
    let mut clients: Vec<_> = (0..20).map(|_| kept.server.connect()).collect();
    for client in &mut clients {
        client.send(Request::get("/page.php").bytes());
    }
    assert!(wait::until(LIMIT, || kept.runs() > 1));
    fs::remove_file(kept.site.outside("wait")).unwrap();
    fifo.release();
    part.response("GET");
    let pages: Vec<_> = clients.iter_mut().map(|client| client.response("GET").text()).collect();
    assert!(pages.iter().all(|page| page == &pages[0]), "{pages:?}");
    assert_eq!(kept.runs(), 2, "one of them makes the page");
}

#[test]
fn explain_says_why_a_request_is_passed_on() {
    let kept = CachingServer::start("10m");
    let explained = |field| kept.server.explain("/page.php", &["--header", field]).unwrap();
    for (field, why) in [
        ("Cookie: session=1", "it has cookies"),
        ("Authorization: Basic YTpi", "it has the field Authorization"),
    ] {
        let text = explained(field);
        let line = format!("the page cache passes the request on: {why}");
        assert!(text.contains(&line), "{text}");
    }
    assert!(!explained("X-A: b").contains("passes the request on"));
}

#[test]
fn conditions_of_clients_are_met_with_the_whole_page() {
    let kept = CachingServer::start("10m");
    let target = "/page.php?tag=%22t%22";
    let ask = || kept.server.ask(&Request::get(target).header("If-None-Match", "\"t\""));
    // The script sees no condition, so that the page is kept; the client gets a 304.
    assert_eq!(ask().status(), 304);
    kept.get_kept(target);
    let hit = ask();
    assert_eq!((hit.status(), hit.body.len()), (304, 0));
    assert_eq!(hit.header("ETag"), Some("\"t\""));
    assert_eq!(kept.get(target).status(), 200);
}

/// When its time is over, the application is asked whether the page is still valid.
#[test]
fn an_old_page_is_asked_about() {
    let kept = CachingServer::start("http");
    let target = "/page.php?tag=%22t%22&head[]=Cache-Control:+max-age=1";
    let first = kept.get(target);
    let valid = wait::for_some("a question", || {
        Some(kept.get(target)).filter(|page| status(page).contains("fwd-status=304"))
    });
    assert_eq!(valid.text(), first.text());
    assert_eq!(valid.status(), 200);
    assert!(kept.runs() >= 2);
}

/// A cache in between may say of a page of its own that it is valid (RFC 9111 §4.3.4).
#[test]
fn the_confirmation_of_another_page_renews_nothing() {
    for stale in ["", ",+stale-while-revalidate=600"] {
        let kept = CachingServer::start("http");
        let page = "/page.php?tag=%22t%22&confirm=%22u%22&head[]=Cache-Control:+max-age=1";
        let target = format!("{page}{stale}");
        assert_eq!(kept.get(&target).text(), "run 1 - ");
        let new = wait::for_some("a new page", || {
            Some(kept.get(&target)).filter(|page| page.text() != "run 1 - ")
        });
        assert_eq!((new.status(), &*new.text()), (200, "run 3 - "), "{}", status(&new));
    }
}

#[test]
fn an_old_page_is_sent_while_it_is_made_anew() {
    let kept = CachingServer::start("http");
    let target = "/page.php?head[]=Cache-Control:+max-age=1,+stale-while-revalidate=600";
    let first = kept.get(target);
    let stale = wait::for_some("an old page", || {
        Some(kept.get(target)).filter(|page| status(page).contains("detail=stale"))
    });
    assert_eq!(stale.text(), first.text());
    let renewed = wait::until(LIMIT, || kept.get(target).text() != first.text());
    assert!(renewed, "it is made anew");
}

#[test]
fn an_old_page_answers_a_head_and_is_made_anew() {
    let kept = CachingServer::start("http");
    let target = "/page.php?head[]=Cache-Control:+max-age=1,+stale-while-revalidate=600";
    let first = kept.get(target);
    kept.get_kept(target);
    wait::for_some("an old page", || {
        let head = kept.server.ask(&Request::new("HEAD", target));
        assert!(is_hit(&head), "{}", status(&head));
        Some(head).filter(|head| status(head).contains("detail=stale"))
    });
    let is_new = |page: &Response| is_hit(page) && page.text() != first.text();
    assert!(wait::until(LIMIT, || is_new(&kept.get(target))), "it is not made anew");
}

/// A client that reads slowly does not delay the new page.
#[test]
fn an_old_page_is_made_anew_while_a_slow_client_gets_it() {
    let kept = CachingServer::start("http");
    let target =
        "/page.php?size=7000000&head[]=Cache-Control:+max-age=1,+stale-while-revalidate=600";
    kept.get(target);
    let old = kept.get_kept(target);
    let mut slow = wait::for_some("an old page", || {
        let mut slow = Client::connect_narrow(kept.server.addr(), 4096);
        slow.send(Request::get(target).bytes());
        let head = slow.head().unwrap();
        let is_old = head.header("Cache-Status").is_some_and(|told| told.contains("detail=stale"));
        is_old.then_some((slow, head))
    });
    assert!(wait::until(LIMIT, || kept.get(target).body != old.body), "it is not made anew");
    assert!(slow.0.body_of(slow.1, "GET").unwrap().body == old.body);
}

#[test]
fn an_old_page_stands_in_for_a_broken_application() {
    let kept = CachingServer::start("1s, stale 1h");
    let target = "/page.php?head[]=Cache-Control:+max-age=1,+stale-while-revalidate=0";
    let first = kept.get(target);
    kept.get_kept(target);
    kept.site.write_at(kept.site.outside("broken"), "");
    let stale = wait::for_some("an old page", || {
        Some(kept.get(target)).filter(|page| status(page).contains("stale-if-error"))
    });
    assert_eq!((stale.status(), stale.text()), (200, first.text()));
    let head = kept.server.ask(&Request::new("HEAD", target));
    assert_eq!((head.status(), status(&head)), (200, status(&stale)));
    let other = kept.get("/page.php?body=other");
    assert_eq!((other.status(), &*other.text()), (500, "broken"), "nothing stands in");
}

/// An old page is not sent any longer once the application answers with something else, also if
/// that may not be kept.
#[test]
fn an_old_page_that_is_withdrawn_is_gone() {
    let kept = CachingServer::start("http, stale 1h");
    let answers = [
        ("404", "Cache-Control: no-store"),
        ("302", "Location: /elsewhere"),
        ("200", "Cache-Control: private"),
        ("200", "Set-Cookie: a=b"),
        ("200", "Cache-Control: no-store"),
    ];
    let target = |(status, field): (&str, &str)| {
        let field = field.replace(' ', "+");
        format!("/page.php?now={status}&field={field}&head[]=Cache-Control:+max-age=1")
    };
    for answer in answers {
        kept.get_kept(&target(answer));
    }
    kept.site.write_at(kept.site.outside("withdrawn"), "");
    for answer in answers {
        let target = target(answer);
        let withdrawn = |page: &Response| page.text() == "withdrawn";
        wait::for_some("the new answer", || Some(kept.get(&target)).filter(withdrawn));
        for _ in 0..5 {
            let page = kept.get(&target);
            assert_eq!((&*page.status().to_string(), &*page.text()), (answer.0, "withdrawn"));
        }
    }
}

/// "Ask again later" says nothing about the page.
#[test]
fn an_old_page_outlives_a_refusal() {
    let kept = CachingServer::start("http, stale 1h");
    let target = "/page.php?now=429&head[]=Cache-Control:+max-age=1";
    let first = kept.get(target);
    kept.get_kept(target);
    kept.site.write_at(kept.site.outside("withdrawn"), "");
    let runs = kept.runs();
    wait::for_some("a question", || Some(kept.get(target)).filter(|_| kept.runs() > runs));
    assert_eq!(kept.get(target).text(), first.text());
}

/// A page that a client or a worker has cut is no page.
#[test]
fn only_whole_pages_are_kept() {
    let site = Site::with("page.php", PAGE);
    site.write(
        "cut.php",
        "<?php header('Content-Length: 200000'); echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);",
    );
    site.fifo("pipe");
    site.write(
        "slow.php",
        "<?php echo str_repeat('x', 70000); flush(); file_get_contents('pipe'); echo 'end';",
    );
    let kept = CachingServer::with(site, "10m");
    let mut client = kept.server.connect();
    client.send(Request::get("/cut.php").bytes());
    let head = client.head().unwrap();
    assert_eq!(head.status, 200);
    assert!(client.body_of(head, "GET").is_err());
    let mut client = kept.server.connect();
    client.send(Request::get("/slow.php").bytes());
    client.head().unwrap();
    drop(client);
    let whole = thread::scope(|scope| {
        let asks = scope.spawn(|| kept.get("/slow.php"));
        // The first script may be gone with its client, or read from the pipe, too.
        let released = wait::until(LIMIT, || {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let pipe = File::options().write(true).custom_flags(flags).open(kept.site.path("pipe"));
            let _ = pipe.and_then(|mut pipe| pipe.write_all(b"go"));
            asks.is_finished()
        });
        assert!(released);
        asks.join().unwrap()
    });
    assert!(whole.text().ends_with("end"));
    // A body that was cut goes a moment later.
    let is_whole = |body: &PathBuf| fs::metadata(body).is_ok_and(|data| data.len() == 70_003);
    assert!(wait::until(LIMIT, || kept.bodies().iter().all(is_whole)));
}

#[test]
fn pages_survive_a_restart_but_not_damage() {
    let kept = CachingServer::start("10m");
    // The port of the server changes.
    let ask = |server: &Server, target: &str| {
        let host = Request::get(target).header("Host", "a.test");
        server.ask(&host.header("X-Forwarded-For", "192.0.2.1").header("X-Forwarded-Port", "80"))
    };
    let targets = ["/page.php?body=a&size=5000", "/page.php?body=b&size=5001"];
    let pages = targets.map(|target| {
        ask(&kept.server, target);
        let page = || Some(ask(&kept.server, target)).filter(is_hit);
        wait::for_some("a kept page", page).text()
    });
    let damaged = kept.bodies().into_iter().find(|body| fs::read(body).unwrap().starts_with(b"b"));
    let CachingServer { site, server } = kept;
    drop(server);
    let damaged = damaged.unwrap();
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, bytes).unwrap();
    let kept = CachingServer::with(site, "10m");
    kept.server.await_log("kept pages have been read pages=1");
    assert_eq!(ask(&kept.server, targets[0]).text(), pages[0]);
    assert_ne!(ask(&kept.server, targets[1]).text(), pages[1]);
}

/// PHP makes the names of cookies into names of variables, so WordPress knows its cookies in many
/// forms.
#[test]
fn cookies_of_users_are_known_as_php_reads_them() {
    let site = Site::with("page.php", PAGE);
    let kept = CachingServer::with_lines(site, "app = 'wordpress'", "10m, cookies");
    let ask = |cookie: &str| kept.server.ask(&Request::get("/page.php").header("Cookie", cookie));
    for cookie in [
        "comment_author_x=1",
        "comment.author_x=1",
        "comment author_x=1",
        "comment_author[x=1",
        "comment_author",
        "a=b;\twp-postpass_x=1",
        "a=b; wordpress.logged.in_x=1",
        "woocommerce.cart.hash[]=1",
        "woocommerce_recently_viewed=7|9",
        "store_notice0c8a=hidden",
    ] {
        assert_eq!(ask(cookie).header("Cache-Status"), None, "{cookie}");
    }
    assert_eq!(kept.bodies().len(), 0);
    assert!(status(&ask("a=comment_author")).ends_with("ttl=600"));
}

/// Rules of later routes take precedence over rules of earlier routes.
#[test]
fn a_route_takes_requests_out() {
    let site = Site::with("page.php", PAGE);
    let rule =
        "10m, cookies'\n[[site.route]]\nheader = { Cookie = 'logged_in' }\npage_cache = 'off";
    let kept = CachingServer::with(site, rule);
    let ask = |cookie: &str| kept.server.ask(&Request::get("/page.php").header("Cookie", cookie));
    ask("theme=dark");
    let page = kept.get_kept("/page.php");
    assert_eq!(ask("theme=light").text(), page.text());
    let own = ask("theme=dark; logged_in=me");
    assert_ne!(own.text(), page.text());
    assert_eq!(own.header("Cache-Status"), None);
}

#[test]
fn kept_pages_are_compressed_once_and_pass_the_filters() {
    let site = Site::with("page.php", PAGE);
    let rule = "10m'\ncompress = true\nresponse_headers = { X-Rule = 'yes' }\n#";
    let kept = CachingServer::with(site, rule);
    let ask = || {
        kept.server.ask(&Request::get("/page.php?size=200000").header("Accept-Encoding", "gzip"))
    };
    ask();
    let hit = wait::for_some("a kept page", || Some(ask()).filter(is_hit));
    assert_eq!(hit.header("X-Rule"), Some("yes"));
    assert_eq!(hit.header("Content-Encoding"), Some("gzip"));
    let whole = wait::for_some("a compressed form", || {
        Some(ask()).filter(|hit| hit.header("Content-Length").is_some())
    });
    assert!(whole.body.len() < 5000);
    let plain = kept.get("/page.php?size=200000");
    assert!(is_hit(&plain) && plain.body.len() > 200_000);
}

/// A response to HEAD has no body, so it does not become the page for GET.
#[test]
fn a_page_is_not_made_of_a_head() {
    let kept = CachingServer::start("10m");
    let head = kept.server.ask(&Request::new("HEAD", "/page.php"));
    assert_eq!(status(&head), "sendoff; fwd=uri-miss");
    let page = kept.get("/page.php");
    assert_eq!((status(&page), page.body.is_empty()), ("sendoff; fwd=uri-miss; ttl=600", false));
    kept.get_kept("/page.php");
}

/// The second request would get more, or less, than the first.
#[test]
fn a_page_of_another_length_than_it_says_is_not_kept() {
    let kept = CachingServer::start("10m");
    let long = "/page.php?head[]=Content-Length:+3";
    for _ in 0..2 {
        let page = kept.get(long);
        assert_eq!((page.text().len(), is_hit(&page)), (3, false));
    }
    let short = "/page.php?tag=%22t%22&head[]=Content-Length:+30000";
    let asks = Request::get(short).header("If-None-Match", "\"t\"");
    for _ in 0..2 {
        // The client needs no body, and does not notice.
        let mut client = kept.server.connect();
        client.send(asks.bytes());
        let _ = client.try_response("GET");
    }
    let mut client = kept.server.connect();
    client.send(Request::get(short).bytes());
    let head = client.head().unwrap();
    assert_eq!(head.header("Cache-Status"), Some("sendoff; fwd=uri-miss; ttl=600"));
    assert!(client.body_of(head, "GET").is_err());
    assert_eq!(kept.bodies().len(), 0);
}

/// Others do not wait for a slow client, and the page does not wait in memory.
#[test]
fn a_page_is_kept_before_a_slow_client_has_it() {
    let kept = CachingServer::start("10m");
    let target = "/page.php?size=7000000";
    let mut slow = Client::connect_narrow(kept.server.addr(), 4096);
    slow.send(Request::get(target).bytes());
    assert!(wait::until(LIMIT, || kept.runs() == 1));
    let other = kept.get(target);
    assert!(is_hit(&other), "{}", status(&other));
    assert_eq!(kept.runs(), 1);
    assert!(slow.response("GET").body == other.body);
}

/// A page that is too long to stay in memory.
const LONG: &str = "/page.php?size=40000";

/// The stale page that would replace a failure has lost its file: the client gets the failure.
#[test]
fn a_page_without_its_file_stands_in_for_nothing() {
    let kept = CachingServer::start("10m, stale 1h");
    kept.get(LONG);
    kept.get_kept(LONG);
    kept.site.write_at(kept.site.outside("broken"), "");
    kept.bodies().iter().for_each(|body| fs::remove_file(body).unwrap());
    let page = kept.get(LONG);
    assert_eq!((page.status(), &*page.text()), (500, "broken"));
}

/// Named pipes that a script of the server's user puts into the folder block neither an event loop
/// nor the thread that reads the folder.
#[test]
fn files_of_others_in_the_folder_are_no_pages() {
    let site = Site::with("page.php", PAGE);
    let folder = site.outside("pages");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let facts = "../pages/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    drop(site.fifo(facts));
    let kept = CachingServer::with(site, "10m");
    kept.server.await_log("kept pages have been read pages=0");
    kept.get(LONG);
    kept.get_kept(LONG);
    let body = kept.bodies().remove(0);
    fs::remove_file(&body).unwrap();
    drop(kept.site.fifo(&format!("../pages/{}", body.file_name().unwrap().display())));
    let page = kept.get(LONG);
    assert_eq!((page.status(), is_hit(&page)), (200, false));
    assert!(page.text().starts_with("run 2 - "));
}

/// Variables of `.htaccess` files are seen by scripts.
#[test]
fn pages_differ_where_folders_set_variables() {
    let site = Site::with("page.php", "<?php echo $_SERVER['ROLE'] ?? 'none';");
    site.write(".htaccess", "SetEnvIf X-A (.+) ROLE=$1\n");
    let kept = CachingServer::with_lines(site, "htaccess = true", "10m");
    let ask = |role: &str| kept.server.ask(&Request::get("/page.php").header("X-A", role)).text();
    for _ in 0..2 {
        assert_eq!([ask("admin"), ask("guest")], ["admin", "guest"]);
    }
}

#[test]
fn what_is_private_is_private_in_capitals() {
    let kept = CachingServer::start("http");
    for control in ["Private,+max-age=60", "max-age=60,+NO-STORE", "private;+max-age=60"] {
        let target = format!("/page.php?head[]=Cache-Control:+{control}");
        let (one, two) = (kept.get(&target), kept.get(&target));
        assert_ne!(one.text(), two.text(), "{control}");
    }
    // A part is whole for its client alone.
    let target =
        "/page.php?head[]=X-Accel-Expires:+60&head[]=Status:+206&head[]=Content-Range:+bytes+0-1/9";
    assert_ne!(kept.get(target).text(), kept.get(target).text());
}
