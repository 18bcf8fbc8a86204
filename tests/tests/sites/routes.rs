//! Sites and routes of a configuration file, with real PHP.

use std::os::unix::fs::symlink;

use sendoff_tests::{Request, Response, Server, Site};

const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2\n";

/// A server with a listener, a pool, and the lines of `sites`. Paths are relative to the folder
/// around `root`.
fn run(site: &Site, sites: &str) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), format!("{TOP}{sites}"));
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

fn ask(server: &Server, host: &str, target: &str) -> Response {
    server.ask(&Request::get(target).header("Host", host))
}

/// A script that shows variables of its request.
const SHOW: &str = "<?php echo implode(' ', array_map(fn($n) => $n . '=' . ($_SERVER[$n] ?? '-'),
    ['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_URI', 'APP_ENV', 'HTTP_X_ADDED', 'REMOTE_USER', 'SERVER_SOFTWARE']));";

#[test]
fn the_host_decides_which_site_answers() {
    let site = Site::new();
    for name in ["a", "b", "wild", "rest"] {
        site.write_at(site.outside(&format!("{name}/index.html")), name);
    }
    let sites = ["a.test", "b.test", "*.b.test"].iter().zip(["a", "b", "wild"]);
    let mut text: String = sites
        .map(|(host, root)| format!("[[site]]\nhosts = '{host}'\nroot = '{root}'\n"))
        .collect();
    text += "[[site]]\nroot = 'rest'\n";
    let server = run(&site, &text);
    for (host, body) in [
        ("a.test", "a"),
        ("A.Test:8080", "a"),
        ("b.test", "b"),
        ("x.b.test", "wild"),
        ("x.y.b.test", "wild"),
        ("notb.test", "rest"),
        ("127.0.0.1", "rest"),
    ] {
        assert_eq!(ask(&server, host, "/").text(), body, "{host}");
    }
}

#[test]
fn routes_answer_in_order_and_rules_add_up() {
    let site = Site::with("index.php", SHOW);
    site.write("show.php", SHOW);
    site.write("a.txt", "text");
    site.write("img/x.png", "png");
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
server_software = 'Apache'
[[site.route]]
params = { APP_ENV = 'prod $path' }
request_headers = { X-Added = '$scheme' }
response_headers = { X-Frame-Options = 'DENY', X-Powered-By = false }
[[site.route]]
path = '/old'
redirect = 'https://$host/new?$query'
status = 301
[[site.route]]
match = '^/blog/(\d+)/(.*)$'
rewrite = '/show.php?id=$1&name=$2'
[[site.route]]
prefix = '/private'
deny = true
[[site.route]]
extension = ['png', 'txt']
cache = '30d, immutable'
[[site.route]]
path = '/health'
respond = 'ok $remote_addr'
[[site.route]]
method = 'DELETE'
deny = true
status = 404
[[site.route]]
query = { secret = '^letmein$' }
respond = 'in'
[[site.route]]
prefix = '/try'
try_files = ['/a$path', '/index.php?q=$path']
"#,
    );
    let page = server.page("/show.php?a=1");
    assert_eq!(
        page,
        "SCRIPT_NAME=/show.php PATH_INFO= QUERY_STRING=a=1 REQUEST_URI=/show.php?a=1 APP_ENV=prod /show.php HTTP_X_ADDED=http REMOTE_USER= SERVER_SOFTWARE=Apache"
    );
    let response = server.get("/show.php");
    assert_eq!(response.header("X-Frame-Options"), Some("DENY"));
    assert_eq!(response.header("X-Powered-By"), None);
    let page = server.page("/blog/12/a%20b%26c");
    assert!(page.contains("QUERY_STRING=id=12&name=a%20b%26c"), "{page}");
    assert!(page.contains("REQUEST_URI=/blog/12/a%20b%26c"), "{page}");
    let moved = ask(&server, "x.test:99", "/old?a=b%0d%0aX:y");
    assert_eq!(moved.status(), 301);
    assert_eq!(moved.header("Location"), Some("https://x.test/new?a=b%0d%0aX:y"));
    for denied in
        ["/private", "/private/", "/private/x", "//private/x", "/%70rivate", "/a/../private"]
    {
        server.get(denied).expect(403);
    }
    server.get("/privateer").expect(200);
    for cached in ["/a.txt", "/img/x.png"] {
        let response = server.get(cached);
        assert_eq!(response.header("Cache-Control"), Some("max-age=2592000, immutable"));
        assert!(response.header("Expires").is_some());
    }
    assert_eq!(server.get("/show.php").header("Cache-Control"), None);
    let health = server.page("/health");
    assert_eq!(health, "ok 127.0.0.1");
    server.ask(&Request::new("DELETE", "/a.txt")).expect(404);
    assert_eq!(server.page("/?secret=letmein"), "in");
    assert!(server.page("/?secret=letmeinx").starts_with("SCRIPT_NAME=/index.php"));
    let page = server.page("/try/x");
    assert!(
        page.contains("SCRIPT_NAME=/index.php") && page.contains("QUERY_STRING=q=/try/x"),
        "{page}"
    );
}

#[test]
fn what_was_never_meant_to_be_served_is_refused_with_the_option_that_would_help() {
    let site = Site::with("index.php", "<?php echo 'front controller';");
    let names = [
        "wp-config.php.bak",
        "wp-config.php~",
        "dump.sql",
        "composer.json",
        "vendor/composer/installed.json",
        "CVS/Entries",
        ".env",
        ".git/config",
        "a.php.save",
    ];
    for name in names {
        site.write(name, "secret");
    }
    site.folder("empty");
    let server = Server::start(site.root(), &[]);
    for name in names {
        let target = format!("/{name}");
        let response = server.get(&target);
        assert_eq!(response.status(), 403, "{name}");
        assert!(!response.text().contains("secret"));
        server.await_log(&format!("request=\"GET {target}\""));
        let log = server.log();
        let line = log.lines().find(|line| line.contains(&format!("GET {target}\""))).unwrap();
        assert!(line.contains("--serve"), "{line}");
    }
    server.get("/empty/").expect(403);
    assert_eq!(server.page("/not/there.sql"), "front controller", "a name of the application's");
    let open = Server::start(site.root(), &["--serve", "*.sql", "--serve", "composer.json"]);
    for (name, status) in [("/dump.sql", 200), ("/composer.json", 200), ("/a.php.save", 403)] {
        open.get(name).expect(status);
    }
}

#[test]
fn scripts_run_only_where_the_operator_wants_them() {
    let site = Site::with("index.php", "<?php echo 'index';");
    site.write("admin/x.php", "<?php echo 'admin';");
    site.write("uploads/evil.php", "<?php echo 'evil';");
    let server = Server::start(site.root(), &["--php-only", "/index.php", "--php-only", "/admin/"]);
    assert_eq!(server.page("/"), "index");
    assert_eq!(server.page("/admin/x.php"), "admin");
    server.get("/uploads/evil.php").expect(403);
    server.get("/uploads/evil.php/x").expect(403);
    server.await_log("php_only");
}

/// The site belongs to root and the workers' user may write to one folder, as with Debian's
/// packages.
#[test]
#[cfg_attr(not(root), ignore = "needs root: chown")]
fn scripts_in_folders_that_workers_can_write_to_as_root() {
    let site = Site::with("index.php", "<?php echo 'index';");
    site.write("app/x.php", "<?php echo 'app';");
    site.write("uploads/a/evil.php", "<?php echo 'evil';");
    site.write("uploads/a/b.txt", "text");
    for path in ["", "index.php", "app", "app/x.php"] {
        std::os::unix::fs::chown(site.path(path), Some(0), Some(0)).unwrap();
    }
    let server = run(&site, "[[site]]\nroot = 'root'\nscripts_in_writable_folders = false\n");
    assert_eq!(server.page("/"), "index");
    assert_eq!(server.page("/app/x.php"), "app");
    server.get("/uploads/a/evil.php").expect(403);
    assert_eq!(server.page("/uploads/a/b.txt"), "text");
    server.await_log("scripts_in_writable_folders");
}

#[test]
fn aliases_and_symbolic_links_lead_out_of_the_root() {
    let site = Site::with("index.html", "root");
    site.write_at(site.outside("lib/j.js"), "alias");
    site.write_at(site.outside("app/run.php"), "<?php echo $_SERVER['SCRIPT_FILENAME'];");
    let target = site.write_at(site.outside("other/o.txt"), "linked");
    symlink(&target, site.path("o.txt")).unwrap();
    symlink("/etc/shadow", site.path("shadow")).unwrap();
    let text = |policy: &str| {
        format!(
            "[[site]]\nroot = 'root'\nalias = {{ '/js' = 'lib', '/js/app' = 'app' }}\nsymlinks = '{policy}'\n"
        )
    };
    let server = run(&site, &text("any"));
    assert_eq!(server.page("/js/j.js"), "alias");
    let script = site.outside("app/run.php");
    assert_eq!(server.page("/js/app/run.php"), script.to_str().unwrap());
    for wrong in ["/jsx", "/js/../../other/o.txt", "/js/%2e%2e/other/o.txt", "/js"] {
        assert!([301, 400, 403, 404].contains(&server.get(wrong).status()), "{wrong}");
    }
    assert_eq!(server.page("/o.txt"), "linked");
    let inside = run(&site, &text("inside"));
    inside.get("/o.txt").expect(403);
    inside.await_log("--follow-symlinks-into");
}

/// A link is followed only if its target has the same owner.
#[test]
#[cfg_attr(not(root), ignore = "needs root: chown")]
fn symbolic_links_of_one_owner_as_root() {
    let site = Site::with("index.html", "root");
    let file = site.write_at(site.outside("other/o.txt"), "linked");
    let folder = file.parent().unwrap();
    let www = 33;
    for (name, target, owner) in [
        ("by-root", &*file, 0),
        ("by-www", &*file, www),
        ("folder-by-www", folder, www),
        ("folder-by-root", folder, 0),
    ] {
        symlink(target, site.path(name)).unwrap();
        std::os::unix::fs::lchown(site.path(name), Some(owner), None).unwrap();
    }
    symlink("by-www", site.path("chain")).unwrap();
    std::os::unix::fs::lchown(site.path("chain"), Some(www), None).unwrap();
    symlink("by-root", site.path("chain-by-root")).unwrap();
    std::os::unix::fs::lchown(site.path("chain-by-root"), Some(www), None).unwrap();
    std::os::unix::fs::lchown(&file, Some(www), None).unwrap();
    std::os::unix::fs::lchown(folder, Some(www), None).unwrap();
    let server = run(&site, "[[site]]\nroot = 'root'\n");
    for (target, status) in [
        ("/by-www", 200),
        ("/by-root", 403),
        ("/folder-by-www/o.txt", 200),
        ("/folder-by-root/o.txt", 403),
        ("/chain", 200),
        ("/chain-by-root", 403),
    ] {
        assert_eq!(server.get(target).status(), status, "{target}");
    }
}

#[test]
fn a_password_is_asked_for() {
    let site = Site::with("admin/index.php", SHOW);
    site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let server = run(
        &site,
        "[[site]]\nroot = 'root'\n[[site.route]]\nprefix = '/admin'\nauth = { users = 'users', realm = 'The back door' }\n",
    );
    let refused = server.get("/admin/");
    assert_eq!(refused.status(), 401);
    assert_eq!(
        refused.header("WWW-Authenticate"),
        Some("Basic realm=\"The back door\", charset=\"UTF-8\"")
    );
    let with = |field| server.ask(&Request::get("/admin/").header("Authorization", field));
    assert_eq!(with("Basic YW5uOndyb25n").status(), 401, "ann:wrong");
    let page = with("Basic YW5uOm9wZW4gc2VzYW1l");
    assert!(page.text().contains("REMOTE_USER=ann"), "{}", page.text());
    let upload = Request::post("/admin/", "text/plain", vec![b'x'; 3_000_000]);
    assert_eq!(server.ask(&upload).status(), 401);
}

#[test]
fn addresses_are_allowed_and_denied() {
    let site = Site::with("a.txt", "text");
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[[site.route]]
allow_from = ['10.0.0.0/8']
[[site]]
hosts = 'b.test'
root = 'root'
[[site.route]]
deny_from = ['192.0.2.0/24']
"#,
    );
    ask(&server, "a.test", "/a.txt").expect(403);
    ask(&server, "b.test", "/a.txt").expect(200);
}

#[test]
fn errors_have_the_sites_own_pages() {
    let site = Site::with(
        "404.php",
        "<?php header('X-Page: yes'); echo 'missing ', $_SERVER['REQUEST_URI'];",
    );
    site.write("403.html", "forbidden here");
    site.write("x.sql", "secret");
    let server = run(
        &site,
        "[[site]]\nroot = 'root'\nfront_controller = 'off'\nerror_pages = { 404 = '/404.php', 403 = '/403.html', 500 = '/none.html' }\n",
    );
    let missing = server.get("/none?a=b");
    assert_eq!((missing.status(), missing.header("X-Page")), (404, Some("yes")));
    assert_eq!(missing.text(), "missing /none?a=b");
    let forbidden = server.ask(&Request::get("/x.sql").header("Range", "bytes=0-3"));
    assert_eq!((forbidden.status(), &*forbidden.text()), (403, "forbidden here"));
    let head = server.ask(&Request::new("HEAD", "/none"));
    assert_eq!((head.status(), head.body.len()), (404, 0));
}

#[test]
fn a_site_in_maintenance_answers_503() {
    let site = Site::with("index.html", "here");
    let server = run(&site, "[[site]]\nroot = 'root'\nmaintenance = 'closed'\n");
    assert_eq!(server.page("/"), "here");
    let flag = site.write_at(site.outside("closed"), "");
    let closed = server.get("/");
    assert_eq!(closed.status(), 503);
    assert!(closed.header("Retry-After").is_some());
    std::fs::remove_file(flag).unwrap();
    assert_eq!(server.page("/"), "here");
}

#[test]
fn front_controllers_of_folders() {
    let site = Site::new();
    for name in ["app.php", "shop/index.php", "shop/deep/x.txt"] {
        site.write(name, "<?php echo $_SERVER['SCRIPT_NAME'];");
    }
    let text = |setting: &str| {
        format!("[[site]]\nroot = 'root'\nindex = 'index.php'\nfront_controller = {setting}\n")
    };
    let listed = run(&site, &text("{ '/' = '/app.php', '/shop' = '/shop/index.php' }"));
    for (target, script) in [
        ("/", "/app.php"),
        ("/x", "/app.php"),
        ("/shopping", "/app.php"),
        ("/shop/", "/shop/index.php"),
        ("/shop/a/b", "/shop/index.php"),
    ] {
        assert_eq!(listed.page(target), script, "{target}");
    }
    listed.get("/shop/deep/").expect(403);
    let nearest = run(&site, &text("'nearest'"));
    assert_eq!(nearest.page("/shop/a/b"), "/shop/index.php");
    nearest.get("/x").expect(404);
    let off = run(&site, &text("'off'"));
    off.get("/shop/a").expect(404);
}

#[test]
fn a_body_limit_of_a_route() {
    let site = Site::with("up.php", "<?php echo strlen(file_get_contents('php://input'));");
    let server =
        run(&site, "[[site]]\nroot = 'root'\n[[site.route]]\npath = '/up.php'\nmax_body = '1K'\n");
    let post = |target: &str, size| server.ask(&Request::post(target, "x/y", vec![b'a'; size]));
    assert_eq!(post("/up.php", 1024).text(), "1024");
    post("/up.php", 1025).expect(413);
    post("/up.php/more", 1025).expect(413);
}

/// A route has another deadline for scripts than the pool.
#[test]
fn a_deadline_of_a_route() {
    let site = Site::with("wait.php", "<?php sleep((int) $_GET['s']); echo 'done';");
    let server = run(
        &site,
        "request_timeout = 0\n[[site]]\nroot = 'root'\n[[site.route]]\nquery = { short = true }\nrequest_timeout = '500ms'\n",
    );
    server.get("/wait.php?s=20&short").expect(504);
    server.await_log("GET /wait.php?s=20&short");
    assert_eq!(server.page("/wait.php?s=2"), "done");
}

/// An expression that would take for ever is an error, not a hang and not a miss.
#[test]
fn an_expression_that_takes_too_long_refuses() {
    let site = Site::with("index.html", "here");
    let server =
        run(&site, "[[site]]\nroot = 'root'\n[[site.route]]\nmatch = '^/(a+)+$'\ndeny = true\n");
    server.get("/aaa").expect(403);
    let long = format!("/{}!", "a".repeat(3000));
    assert_eq!(server.get(&long).status(), 500);
    server.await_log("cannot be evaluated");
}

/// A route that names a script applies on every way to the script: with path info, or as the index
/// of its folder.
#[test]
fn what_protects_a_script_protects_every_way_to_it() {
    let site = Site::with("uploads/evil.php", "<?php echo 'evil';");
    for name in ["admin.php", "sec/index.php", "admin/index.php", "open/index.php"] {
        site.write(name, "<?php echo 'ran';");
    }
    site.write("files/index.html", "index");
    site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[[site.route]]
prefix = '/uploads'
extension = 'php'
deny = true
[[site.route]]
path = '/admin.php'
auth = { users = 'users' }
[[site.route]]
match = '^/sec/.*\.php$'
auth = { users = 'users' }
[[site.route]]
path = ['/admin/index.php', '/files/index.html']
deny = true
[[site.route]]
match = '^/line(.*)end$'
deny = true
"#,
    );
    for (target, status) in [
        ("/uploads/evil.php", 403),
        ("/uploads/evil.php/", 403),
        ("/uploads/evil.php/x", 403),
        ("/admin.php", 401),
        ("/admin.php/x", 401),
        ("/sec/", 401),
        ("/sec/index.php/x", 401),
        ("/admin/", 403),
        ("/admin/index.php/x", 403),
        ("/files/", 403),
        ("/line%0aend", 403),
        ("/open/", 200),
        ("/open/index.php/x", 200),
    ] {
        assert_eq!(server.get(target).status(), status, "{target}");
    }
}

/// A rule about a parameter or a cookie holds in every form in which PHP reads it.
#[test]
fn parameters_and_cookies_are_denied_in_every_form() {
    let site = Site::with("page.php", READS);
    let server = reading(&site);
    for query in [
        "a_b=c",
        "a_b=%63",
        "a_b=%43&a_b=c",
        "+a_b=c",
        "a_b%00=c",
        "a_b%00x=c",
        "a_b[]=c",
        "a_b[x][y]=c",
        "a_b%5Bx%5D=c",
        "a.b=c",
        "a[b=c",
        "a+b=c",
        "x=1&%61.b=c",
        "a_b=x&a_b=c",
        "a_b=c&a_b=x",
        "x=1;a_b=c",
    ] {
        let answer = server.get(&format!("/page.php?{query}"));
        assert_eq!(answer.header("X-Query"), Some("yes"), "{query}");
    }
    for query in ["a_b=d", "b=c", "ab=c", "a_b", "A_b=c", "xa_b=c", ""] {
        let answer = server.get(&format!("/page.php?{query}"));
        assert_eq!(answer.header("X-Query"), None, "{query}");
    }
}

/// Applications take the first, the last, or all of several fields with one name as one text, so a
/// negated condition holds if any of these is another value.
#[test]
fn a_field_that_comes_twice_gets_around_no_negated_condition() {
    let site = Site::with("a.txt", "a");
    let server = run(
        &site,
        "[[site]]\nroot = 'root'\n[[site.route]]\nheader = { X-Kind = '!^safe$' }\ndeny = true\n",
    );
    for (kinds, status) in [
        (&["safe"][..], 200),
        // PHP reads "safe, safe".
        (&["safe", "safe"], 403),
        (&[], 403),
        (&["evil"], 403),
        (&["safe", "evil"], 403),
        (&["evil", "safe"], 403),
    ] {
        let request = kinds
            .iter()
            .fold(Request::get("/a.txt"), |request, kind| request.header("X-Kind", kind));
        assert_eq!(server.ask(&request).status(), status, "{kinds:?}");
    }
}

/// Random queries and cookies: the rule finds every parameter that the script finds.
#[test]
fn rules_find_what_php_reads() {
    let site = Site::with("page.php", READS);
    let server = reading(&site);
    let pieces = [
        "a", "_", "b", ".", "+", "%20", "%2e", "[", "]", "%5B", "%5d", "=", "%3d", "&", ";", "c",
        "%63", "%00", "x", "%61", "a_b", "a_b=c", "=c", "[]", "[x]", "a.b", "%", "%0", "&&",
    ];
    let in_cookies = [" ", "\t", ",", "; "];
    let seed = fastrand::u64(..);
    let mut generator = fastrand::Rng::with_seed(seed);
    let mut random = |below: usize| generator.usize(..below);
    let mut client = server.connect();
    let (mut queries, mut cookies) = (0, 0);
    for _ in 0..6000 {
        let count = 1 + random(8);
        let mut query: String = (0..count).map(|_| pieces[random(pieces.len())]).collect();
        if random(2) == 0 {
            query += ["=c", "=%63", "[x]=c", "&a_b=c", "&a[b=c&"][random(5)];
        }
        let cookie: String = (0..count)
            .map(|_| {
                let number = random(pieces.len() + in_cookies.len());
                pieces.get(number).or_else(|| in_cookies.get(number - pieces.len())).unwrap()
            })
            .copied()
            .collect();
        let request = Request::get(&format!("/page.php?{query}")).header("Cookie", cookie.trim());
        let answer = client.ask(&request);
        let text = answer.text();
        for (what, field, count) in
            [("query", "X-Query", &mut queries), ("cookie", "X-Cookie", &mut cookies)]
        {
            if text.contains(what) {
                *count += 1;
                let case = format!("seed {seed}: ?{query} Cookie: {cookie:?}");
                assert_eq!(answer.header(field), Some("yes"), "{case}");
            }
        }
    }
    assert!(queries > 50 && cookies > 10, "{queries} queries and {cookies} cookies had it");
}

/// Says where PHP finds the value `c` of `a_b`.
const READS: &str = "<?php
function has($value) { return is_array($value) ? array_filter($value, 'has') !== [] : $value === 'c'; }
foreach (['query' => $_GET, 'cookie' => $_COOKIE] as $what => $from) {
    if (has($from['a_b'] ?? null)) echo $what, ' ';
}";

fn reading(site: &Site) -> Server {
    run(
        site,
        "[[site]]
root = 'root'
[[site.route]]
query = { a_b = '^c$' }
response_headers = { X-Query = 'yes' }
[[site.route]]
header = { Cookie = '(?:^|; )a_b=c(?:;|$)' }
response_headers = { X-Cookie = 'yes' }
",
    )
}
