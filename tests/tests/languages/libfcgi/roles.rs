//! Programs in the roles of an authorizer and of a filter (`docs/fastcgi.md`), with Debian's
//! library and ours.

use sendoff_tests::{Request, Server, Site};

use super::application::{Application, BOTH, program};

/// A server with these routes, in which `APP` stands for the application.
fn serve(site: &Site, application: &Application, routes: &str) -> Server {
    let routes = routes.replace("APP", &application.address.option());
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 1).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

#[test]
fn an_authorizer_is_asked_before_whatever_answers() {
    let site = Site::with("page.txt", "a file");
    let who = "<?php echo $_SERVER['REMOTE_USER'] ?? 'none', ' by ', $_SERVER['AUTH_TYPE'] ?? '-',
        ' proxy ', $_SERVER['HTTP_PROXY'] ?? 'none';";
    site.write("who.php", who);
    let program = program("roles");
    for library in BOTH {
        for app in [
            Application::start(&program, &[], library),
            Application::start_tcp(&program, &[], library),
        ] {
            let routes = "[[site.route]]\nprefix = '/open'\nrespond = 'open'\n\
                [[site.route]]\nauthorize = 'APP'\n\
                [[site.route]]\nprefix = '/app'\nfastcgi = 'APP'\n\
                [[site.route]]\npath = '/to'\nredirect = '/page.txt'\n";
            let server = serve(&site, &app, routes);
            assert_eq!(server.page("/open"), "open");
            let as_ann = |request: Request| server.ask(&request.header("Cookie", "user=ann"));
            let mine = |target: &str| as_ann(Request::get(target));
            for target in ["/page.txt", "/who.php", "/app/x", "/to", "/missing"] {
                let denied = server.get(target);
                assert_eq!(denied.status(), 401, "{target}");
                assert_eq!(denied.header("X-From"), Some("authorizer"));
                let told = format!(
                    "AUTHORIZER GET uri {target} file {target} length none name none info none body 0"
                )
                .replace("file /app", "file ");
                assert_eq!(denied.text(), told);
            }
            let file = mine("/page.txt");
            assert_eq!((file.text(), file.header("Set-Cookie")), ("a file".to_owned(), None));
            assert_eq!(mine("/who.php").text(), "ann by cookie proxy none");
            let answer = "RESPONDER user ann by cookie proxy none body";
            assert_eq!(mine("/app/x").text(), format!("{answer} 0"));
            assert_eq!((mine("/to").status(), mine("/missing").status()), (302, 404));
            let post = || Request::post("/app/x", "text/plain", "12345").header("X-A", "b");
            assert_eq!(as_ann(post()).text(), format!("{answer} 5"));
            let denied = server.ask(&post()).text();
            assert!(denied.contains("POST") && denied.ends_with("body 0"), "{denied}");
            let report = server.explain("/page.txt", &["--header", "Cookie: user=ann"]);
            let report = report.unwrap();
            assert!(report.contains("allowed by the authorizer "), "{report}");
            let report = server.explain("/page.txt", &[]).unwrap();
            assert!(report.contains("not allowed by the authorizer "), "{report}");
            server.await_log("Variable-HTTP_PROXY of an authorizer sets nothing");
        }
    }
}

/// Files of all sizes that matter: none, less than a record, about a record, many records.
const SIZES: [usize; 6] = [0, 1, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 3_000_000];

#[test]
fn a_filter_gets_the_file_behind_the_body_and_answers_for_it() {
    let site = Site::with("page.php", "<?php echo 'a script';");
    site.write("open.txt", "not filtered");
    site.write("text/index.html", "the index");
    site.write("one/index.html", "one");
    let text = |size: usize| "abcdefghijklmno\n".repeat(size / 16 + 1)[..size].to_owned();
    for size in SIZES {
        site.write(&format!("text/{size}.txt"), text(size));
    }
    let root = site.root().display().to_string();
    let program = program("roles");
    for library in BOTH {
        for app in [
            Application::start(&program, &[], library),
            Application::start_tcp(&program, &[], library),
        ] {
            let routes = "[[site.route]]\nprefix = '/text'\nfilter = 'APP'\n\
                [[site.route]]\npath = '/page.php'\nfilter = 'APP'\n\
                [[site.route]]\nprefix = '/to'\nrewrite = '/text/1.txt'\n\
                [[site.route]]\npath = '/one/index.html'\nfilter = 'APP'\n";
            let server = serve(&site, &app, routes);
            for size in SIZES {
                let target = format!("/text/{size}.txt");
                let file = std::fs::metadata(site.root().join(&target[1..])).unwrap();
                let modified = file.modified().unwrap().duration_since(std::time::UNIX_EPOCH);
                let seconds = modified.unwrap().as_secs();
                let page = server.get(&target);
                assert!(page.text() == text(size).to_uppercase(), "{library:?} {target}");
                assert_eq!(page.header("X-Data").unwrap(), format!("{size} modified {seconds}"));
                let asked = format!("GET {target} file {root}{target}");
                assert_eq!(page.header("X-Request"), Some(&*asked));
                assert_eq!(page.header("X-Body"), Some("0"));
                assert_eq!((page.header("ETag"), page.header("Accept-Ranges")), (None, None));
                // A request body comes first.
                let body = "x".repeat(size % 100_000);
                let posted = server.ask(&Request::post(&target, "text/plain", body.as_str()));
                assert!(posted.text() == text(size).to_uppercase(), "{library:?} POST {target}");
                assert_eq!(posted.header("X-Body").unwrap(), body.len().to_string());
                // The filter need not read the file, and the unread rest is no part of the next
                // request.
                assert_eq!(server.page(&format!("{target}?head")), "not read");
                assert_eq!(server.get(&format!("{target}?unchanged")).status(), 304);
            }
            assert_eq!(server.page("/text/"), "THE INDEX");
            // Where a request is led counts as well.
            assert_eq!((server.page("/to/x"), server.page("/one/")), ("A".into(), "ONE".into()));
            let head = server.ask(&Request::new("HEAD", "/text/1.txt"));
            assert_eq!((head.status(), head.text().as_str()), (200, ""));
            assert_eq!(server.page("/page.php"), "a script");
            assert_eq!(server.page("/open.txt"), "not filtered");
            assert_eq!(
                (server.get("/text/none").status(), server.get("/text").status()),
                (404, 301)
            );
            let report = server.explain("/text/1.txt", &[]).unwrap();
            assert!(report.contains("the file passes through a filter"), "{report}");
        }
    }
}

#[test]
fn without_its_filter_a_file_is_not_sent() {
    let site = Site::with("text/a.txt", "never seen");
    let app = Application::start(&program("roles"), &[], BOTH[0]);
    let gone = "[[site.route]]\nprefix = '/text'\nfilter = 'unix:/nowhere/filter.sock'\n";
    let both = "[[site.route]]\nfilter = 'APP'\nauthorize = 'APP'\n";
    let page = serve(&site, &app, gone).get("/text/a.txt");
    assert_eq!(page.status(), 502);
    assert!(!page.text().contains("never"), "{}", page.text());
    let server = serve(&site, &app, both);
    assert_eq!(server.get("/text/a.txt").status(), 401);
    let allowed = server.ask(&Request::get("/text/a.txt").header("Cookie", "user=ann"));
    assert_eq!(allowed.text(), "NEVER SEEN");
}
