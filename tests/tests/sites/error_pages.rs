//! A site's own error pages are requested anew, as in nginx and Apache: rules that deny such a page
//! to clients deny it here, too.

use sendoff_tests::{Apache, Client, Fpm, Request, Response, Server, Site, Stock};

const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2\n";

const HOST: &str = "example.test";

/// `ann` with the password `open sesame`.
const ANN: &str = "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";

/// A script that shows the variables of the failed request.
const PAGE: &str = "<?php header('X-Page: yes');
    echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], ' ', $_SERVER['APP'] ?? '';";

/// A server with a listener, a pool, and the lines of `sites`. Paths are relative to the folder
/// around `root`.
fn run(site: &Site, sites: &str) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), format!("{TOP}{sites}"));
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

/// Sendoff, nginx with php-fpm, and Apache with the same rules.
struct Three {
    ours: Server,
    nginx: Stock,
    apache: Apache,
    _fpm: Fpm,
}

impl Three {
    fn start(site: &Site, ours: &str, nginx: &str, apache: &str) -> Self {
        let fpm = Fpm::start(site.root(), "");
        let php = format!(
            "include /etc/nginx/snippets/fastcgi-php.conf;\nfastcgi_pass {};",
            fpm.address()
        );
        Self {
            ours: run(site, &format!("[[site]]\nroot = 'root'\nfront_controller = 'off'\n{ours}")),
            nginx: Stock::nginx(site.root(), "", &nginx.replace("{php}", &php)),
            apache: Apache::start(&[(HOST.to_owned(), site.root().to_owned())], "", apache),
            _fpm: fpm,
        }
    }

    /// The answers of the three, in that order.
    fn ask(&self, request: &Request) -> [Response; 3] {
        [self.ours.addr(), self.nginx.addr(), self.apache.addr()].map(|addr| {
            let request = request.clone().header("Host", HOST);
            Client::connect(addr).ask(&request)
        })
    }

    /// Asks all three, and returns their common answer: the status and the page of the site, or
    /// `None` for the server's own page. Two differences are allowed: if the site's page cannot be
    /// shown, nginx answers with another status; Apache does not deny a page with the same rules as
    /// the failed request.
    #[track_caller]
    fn same(&self, request: &Request) -> (u16, Option<String>) {
        let answers = self.ask(request).map(|response| {
            let text = response.text();
            let own = !text.contains("<title>");
            (response.status(), own.then_some(text))
        });
        let [ours, mut nginx, mut apache] = answers;
        if nginx.1.is_none() && [403, 404].contains(&nginx.0) {
            nginx.0 = apache.0;
        }
        if nginx.1.is_none() && [401, 403].contains(&apache.0) {
            apache.1 = None;
        }
        assert_eq!(ours, nginx, "nginx, {request:?}");
        assert_eq!(ours, apache, "Apache, {request:?}");
        ours
    }
}

#[test]
fn pages_obey_the_rules_of_the_site() {
    let site = Site::with("404.php", PAGE);
    site.write("private/403.html", "a page that no client may see");
    site.write("private/x.html", "private");
    site.write("a.txt", "text");
    let three = Three::start(
        &site,
        "error_pages = { 404 = '/404.php', 403 = '/private/403.html', 410 = '/none.html' }\n\
         [[site.route]]\nparams = { APP = 'live' }\n\
         [[site.route]]\nprefix = '/private'\ndeny = true\n\
         [[site.route]]\nprefix = '/gone'\ndeny = true\nstatus = 410\n",
        "error_page 404 /404.php;\nerror_page 403 /private/403.html;\nerror_page 410 /none.html;\n\
         location /private { deny all; }\nlocation /gone { return 410; }\n\
         location ~ \\.php$ { {php}\nfastcgi_param APP live; }",
        "ErrorDocument 404 /404.php\nErrorDocument 403 /private/403.html\nErrorDocument 410 /none.html\nSetEnv APP live\n\
         <Location /private>\nRequire all denied\n</Location>\nRedirect 410 /gone\n",
    );
    let page = |text: &str| (404, Some(text.to_owned()));
    assert_eq!(three.same(&Request::get("/none?a=b")), page("GET /none?a=b  live"));
    let post = Request::post("/none", "text/plain", "body");
    assert_eq!(three.same(&post), page("GET /none  live"));
    assert_eq!(three.same(&Request::get("/private/x.html")), (403, None));
    assert_eq!(three.same(&Request::get("/private/403.html")), (403, None));
    assert_eq!(three.same(&Request::get("/gone")), (410, None));
    let [ours, ..] = three.ask(&Request::get("/private/x.html"));
    assert!(!ours.text().contains("may see"), "{}", ours.text());
}

/// Clients that show the password get a page behind a password. Other clients get the server's own
/// page.
#[test]
fn pages_behind_a_password_need_it() {
    let site = Site::with("404.html", "our own page");
    site.write("401.html", "log in");
    let users = site.write_at(site.outside("users"), ANN);
    let users = users.display();
    let three = Three::start(
        &site,
        &format!(
            "error_pages = {{ 404 = '/404.html', 401 = '/401.html' }}\n[[site.route]]\nauth = {{ users = '{users}', realm = 'r' }}\n"
        ),
        &format!(
            "error_page 404 /404.html;\nerror_page 401 /401.html;\nauth_basic r;\nauth_basic_user_file {users};"
        ),
        &format!(
            "ErrorDocument 404 /404.html\nErrorDocument 401 /401.html\n\
             <Location />\nAuthType Basic\nAuthName r\nAuthUserFile {users}\nRequire valid-user\n</Location>\n"
        ),
    );
    let with = |field| Request::get("/none").header("Authorization", field);
    assert_eq!(three.same(&Request::get("/none")), (401, None));
    assert_eq!(three.same(&with("Basic YW5uOndyb25n")), (401, None));
    let page = Some("our own page".to_owned());
    assert_eq!(three.same(&with("Basic YW5uOm9wZW4gc2VzYW1l")), (404, page));
    for answer in three.ask(&Request::get("/none")) {
        assert!(answer.header("WWW-Authenticate").is_some());
    }
}

/// `.htaccess` files apply to pages that the configuration names, and routes to pages that
/// `.htaccess` files name.
#[test]
fn pages_obey_htaccess_files() {
    let site = Site::with("open/404.html", "our own page");
    site.write("shut/404.html", "a page that no client may see");
    site.write("shut/.htaccess", "Require all denied\n");
    site.write("denied/404.html", "a page that no client may see");
    site.write("own/.htaccess", "ErrorDocument 404 /denied/404.html\n");
    let pages = |folder: &str| {
        Three::start(
            &site,
            &format!(
                "htaccess = true\nerror_pages = {{ 404 = '/{folder}/404.html' }}\n[[site.route]]\nprefix = '/denied'\ndeny = true\n"
            ),
            &format!(
                "error_page 404 /{folder}/404.html;\nlocation /shut {{ deny all; }}\n\
                 location /own {{ error_page 404 /denied/404.html; }}\nlocation /denied {{ deny all; }}"
            ),
            &format!(
                "ErrorDocument 404 /{folder}/404.html\n<Location /denied>\nRequire all denied\n</Location>\n"
            ),
        )
    };
    let open = pages("open");
    assert_eq!(open.same(&Request::get("/none")), (404, Some("our own page".to_owned())));
    assert_eq!(open.same(&Request::get("/own/none")), (404, None));
    let shut = pages("shut");
    assert_eq!(shut.same(&Request::get("/none")), (404, None));
}

/// A page that fails, or that leads elsewhere, is not asked for again.
#[test]
fn pages_do_not_run_in_circles() {
    let site = Site::with(
        "loop.php",
        "<?php http_response_code(404); header('X-Page: yes'); echo 'missing';",
    );
    site.write("folder/index.html", "index");
    let server = run(
        &site,
        "[[site]]\nroot = 'root'\nfront_controller = 'off'\n\
         error_pages = { 404 = '/loop.php', 403 = '/also-denied', 410 = '/moved' }\n\
         [[site.route]]\nprefix = ['/denied', '/also-denied']\ndeny = true\n\
         [[site.route]]\nprefix = '/gone'\ndeny = true\nstatus = 410\n\
         [[site.route]]\npath = '/moved'\nredirect = 'https://elsewhere.test/'\n",
    );
    let missing = server.get("/none");
    assert_eq!((missing.status(), &*missing.text()), (404, "missing"));
    for (target, status) in [("/denied", 403), ("/also-denied", 403), ("/gone", 410)] {
        let response = server.get(target);
        assert_eq!((response.status(), response.header("Location")), (status, None), "{target}");
        assert!(response.text().contains("<title>"), "{target}: {}", response.text());
    }
}
