//! Programs in the role of an authorizer (`docs/fastcgi.md`), with Debian's library and ours.

use sendoff_tests::{Request, Server, Site};

use crate::application::{Application, BOTH, program};

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
