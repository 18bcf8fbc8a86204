//! `.htaccess` files in a running server: they are obeyed, and a change counts at once.
//! The module `htaccess` compares the meaning of each directive with Apache.

use std::os::unix::fs::{MetadataExt, lchown, symlink};

use sendoff_tests::{Request, Server, Site};

const SHOW: &str = "<?php echo json_encode(array_map(fn($n) => $_SERVER[$n] ?? null, ['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_URI', 'REDIRECT_URL', 'APP', 'REMOTE_USER']), JSON_UNESCAPED_SLASHES);";

const WORDPRESS: &str = "RewriteEngine On
RewriteBase /
RewriteRule ^index\\.php$ - [L]
RewriteCond %{REQUEST_FILENAME} !-f
RewriteCond %{REQUEST_FILENAME} !-d
RewriteRule . /index.php [L]
";

#[test]
fn pretty_links_reach_the_front_controller_and_files_do_not() {
    let site = Site::with("index.php", SHOW);
    site.write("a.txt", "text");
    site.write(".htaccess", format!("{WORDPRESS}SetEnv APP live\n"));
    let server = Server::start(site.root(), &[]);
    assert_eq!(server.page("/a.txt"), "text");
    assert_eq!(
        server.page("/2026/11/post?x=1"),
        r#"["/index.php","","x=1","/2026/11/post?x=1","/2026/11/post","live",null]"#
            .replace(",null]", r#",""]"#)
    );
    server.get("/.htaccess").expect(403);
    let off = Server::start(site.root(), &["--no-htaccess", "--front-controller", "off"]);
    off.get("/2026/11/post").expect(404);
}

#[test]
fn a_refused_folder_is_named_with_the_reason() {
    let site = Site::with("empty/x.txt", "text");
    site.write(".htaccess", WORDPRESS);
    let server = Server::start(site.root(), &[]);
    server.get("/empty/").expect(403);
    server.await_log("a folder without an index file");
}

/// Apache without the module for it answers with 403 as well; Ubuntu 24.04's Apache with 404.
#[test]
fn a_rule_for_a_proxy_refuses_what_it_matches() {
    let site = Site::with("a.txt", "text");
    site.write(
        ".htaccess",
        "RewriteEngine On\nRewriteRule ^proxy/(.*)$ http://127.0.0.1:9/$1 [P]\n",
    );
    let server = Server::start(site.root(), &[]);
    server.get("/proxy/x").expect(403);
    assert_eq!(server.page("/a.txt"), "text");
}

#[test]
fn a_changed_file_counts_at_once() {
    let site = Site::with("private/a.txt", "secret");
    site.write(".htaccess", "");
    let server = Server::start(site.root(), &[]);
    server.get("/private/a.txt").expect(200);
    for round in 0..20 {
        site.write("private/.htaccess", "Require all denied\n");
        assert_eq!(server.get("/private/a.txt").status(), 403, "{round}");
        std::fs::remove_file(site.path("private/.htaccess")).unwrap();
        assert_eq!(server.get("/private/a.txt").status(), 200, "{round}");
    }
    server.await_log("private/.htaccess");
}

/// A server with these keys and sections behind `[[site]]` and `root`.
fn run(site: &Site, keys: &str) -> Server {
    let text = format!("listen = '127.0.0.1:0'\nthreads = 1\n[[site]]\nroot = 'root'\n{keys}");
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

#[test]
fn files_count_wherever_they_lie() {
    let site = Site::with("index.php", "<?php echo 'front';");
    site.write("a.txt", "text");
    site.write("data/.htaccess", "Require all denied\n");
    site.write("data/users.db", "secret");
    site.write("data/in/deep.txt", "secret");
    site.write("data/run.php", "<?php echo 'secret';");
    site.write("open/b.txt", "text");
    site.write_at(site.outside("lib/c.txt"), "text");
    site.write_at(site.outside("lib/shut/.htaccess"), "Require all denied\n");
    site.write_at(site.outside("lib/shut/d.txt"), "secret");
    let alias = format!("/lib={}", site.outside("lib").display());
    let alias_key = "alias = { '/lib' = 'lib' }\n";
    let route = "[[site.route]]\nextension = ['db', 'txt']\nstatic = true\ncache = '1h'\n";
    for server in [
        Server::start(site.root(), &["--alias", &alias]),
        run(&site, alias_key),
        run(&site, &format!("{alias_key}{route}")),
        run(&site, &format!("{alias_key}front_controller = '/index.php'\n")),
    ] {
        for shut in [
            "/data/users.db",
            "/data//users.db",
            "/open/../data/users.db",
            "/data/in/deep.txt",
            "/data/run.php",
            "/data/",
            "/data",
            "/lib/shut/d.txt",
        ] {
            let response = server.get(shut);
            assert_eq!(response.status(), 403, "{shut}: {}", response.text());
        }
        for (open, text) in [
            ("/a.txt", "text"),
            ("/open/b.txt", "text"),
            ("/lib/c.txt", "text"),
            ("/", "front"),
            ("/blog/2026", "front"),
        ] {
            assert_eq!(server.page(open), text, "{open}");
        }
        for round in 0..5 {
            site.write("open/.htaccess", "Require all denied\n");
            assert_eq!(server.get("/open/b.txt").status(), 403, "{round}");
            std::fs::remove_file(site.path("open/.htaccess")).unwrap();
            assert_eq!(server.get("/open/b.txt").status(), 200, "{round}");
        }
        // A folder of this name was not there when it was asked for.
        assert_eq!(server.page("/new/e.dat"), "front");
        site.write("new/.htaccess", "Require all denied\n");
        site.write("new/e.dat", "secret");
        server.get("/new/e.dat").expect(403);
        std::fs::remove_dir_all(site.path("new")).unwrap();
    }
    let ignored = run(&site, "htaccess = false\n");
    assert_eq!(ignored.page("/data/users.db"), "secret");
}

#[test]
fn the_front_controller_yields_to_files_that_say_what_answers_and_to_no_others() {
    let site = Site::with("index.php", "<?php echo 'front of ', $_SERVER['REQUEST_URI'];");
    site.write("shop/index.php", "<?php echo 'shop';");
    let server = Server::start(site.root(), &[]);
    for silent in ["", "# nothing but a comment\n", "Options -Indexes\n", "RewriteEngine On\n"] {
        site.write(".htaccess", silent);
        assert_eq!(server.page("/blog/1"), "front of /blog/1", "{silent}");
        assert_eq!(server.page("/shop/"), "shop", "{silent}");
    }
    let rules = "RewriteEngine On\nRewriteRule ^old$ /shop/ [L]\n";
    site.write(".htaccess", rules);
    assert_eq!(server.page("/old"), "shop");
    server.get("/blog/1").expect(404);
    server.await_log("front_controller = \"/index.php\" would let it answer");
    let given = Server::start(site.root(), &["--front-controller", "/index.php"]);
    assert_eq!(given.page("/blog/1"), "front of /blog/1");
    assert_eq!(given.page("/old"), "shop");
    // With `htaccess = true` the files decide everything, as in Apache.
    site.write(".htaccess", "# nothing but a comment\n");
    Server::start(site.root(), &["--htaccess"]).get("/blog/1").expect(404);
}

#[test]
fn what_is_not_understood_refuses_and_is_named() {
    let site = Site::with("a/x.txt", "text");
    site.write("b/x.txt", "text");
    site.write("a/.htaccess", "Require host-of-my-own example.org\n");
    site.write("b/.htaccess", "NoSuchDirective on\n");
    site.write(".htaccess", "");
    let server = Server::start(site.root(), &[]);
    let status = server.get("/a/x.txt").status();
    assert!([403, 500].contains(&status), "{status}");
    server.get("/b/x.txt").expect(500);
    server.await_log("a/.htaccess:1: ");
    server.await_log("b/.htaccess:1: NoSuchDirective is unknown");
}

#[test]
fn passwords_are_asked_for() {
    let site = Site::with("in/index.php", SHOW);
    site.write(".htaccess", "");
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    site.write(
        "in/.htaccess",
        format!(
            "AuthType Basic\nAuthName \"a realm\"\nAuthUserFile {}\nRequire user ann\n",
            users.display()
        ),
    );
    let server = Server::start(site.root(), &[]);
    let refused = server.get("/in/");
    assert_eq!(refused.status(), 401);
    let challenge = refused.header("WWW-Authenticate");
    assert_eq!(challenge, Some("Basic realm=\"a realm\", charset=\"UTF-8\""));
    let ask = |field| server.ask(&Request::get("/in/").header("Authorization", field));
    assert_eq!(ask("Basic YW5uOndyb25n").status(), 401, "ann:wrong");
    let page = ask("Basic YW5uOm9wZW4gc2VzYW1l").text();
    assert!(page.ends_with(r#""ann"]"#), "{page}");
}

/// php_value and php_flag apply to their folder and request, in any order of requests to one
/// worker.
#[test]
fn php_values_belong_to_their_folder() {
    const INI: &str = "<?php echo ini_get('memory_limit'), ' ', ini_get('upload_max_filesize'), ' ', ini_get('date.timezone'), ' ', (int) ini_get('display_errors'), ' ', ini_get('arg_separator.output');";
    let site = Site::with("i.php", INI);
    site.write("in/i.php", INI);
    site.write(
        ".htaccess",
        "php_value upload_max_filesize 77M\nphp_value arg_separator.output \"a'b;${HOME}\"\n",
    );
    site.write(
        "in/.htaccess",
        "php_value memory_limit 99M\nphp_flag display_errors on\nphp_value date.timezone Europe/Berlin\n",
    );
    let options =
        ["--workers", "1", "--php-ini", "memory_limit=128M", "--php-ini", "display_errors=0"];
    let server = Server::start(site.root(), &options);
    for _ in 0..3 {
        assert_eq!(server.page("/i.php"), "128M 77M UTC 0 a'b;${HOME}".replace("UTC", &zone()));
        assert_eq!(server.page("/in/i.php"), "99M 77M Europe/Berlin 1 a'b;${HOME}");
    }
    site.write(".htaccess", "");
    std::fs::remove_file(site.path("in/.htaccess")).unwrap();
    let plain = server.page("/in/i.php");
    assert!(plain.starts_with("128M 2M ") && plain.ends_with(" 0 &"), "{plain}");
}

/// A script that a route names, or runs, gets its own folder's values, regardless of the request's
/// path.
#[test]
fn php_values_reach_the_scripts_of_routes() {
    const INI: &str = "<?php echo ini_get('memory_limit'), ' ', ini_get('upload_max_filesize');";
    let site = Site::with("app/index.php", INI);
    site.write("app/in/other.php", INI);
    site.write("i.php", INI);
    let routes = "[[site.route]]\nprefix = '/run'\nphp = '/app/in/other.php'\n
        [[site.route]]\nprefix = '/app'\nphp = true\n";
    for more in ["", "htaccess = true\n"] {
        let server = run(&site, &[more, routes].concat());
        let plain = server.page("/i.php");
        let (memory, upload) = plain.split_once(' ').unwrap();
        for _ in 0..3 {
            site.write("app/.htaccess", "php_value upload_max_filesize 77M\n");
            site.write("app/in/.htaccess", "php_value memory_limit 99M\n");
            assert_eq!(server.page("/run/x"), "99M 77M", "{more}");
            assert_eq!(server.page("/app/in/other.php"), "99M 77M", "{more}");
            assert_eq!(server.page("/app/index.php"), format!("{memory} 77M"), "{more}");
            assert_eq!(server.page("/i.php"), plain, "{more}");
            std::fs::remove_file(site.path("app/.htaccess")).unwrap();
            std::fs::remove_file(site.path("app/in/.htaccess")).unwrap();
            assert_eq!(server.page("/run/x"), plain, "{more}");
        }
        // Once the password was shown.
        password_for(&site, "app");
        let protected = std::fs::read_to_string(site.path("app/.htaccess")).unwrap();
        site.write("app/.htaccess", protected + "php_value memory_limit 88M\n");
        server.get("/run/x").expect(401);
        let allowed = server.ask(&Request::get("/run/x").header("Authorization", ANN));
        assert_eq!((allowed.status(), allowed.text()), (200, format!("88M {upload}")), "{more}");
        std::fs::remove_file(site.path("app/.htaccess")).unwrap();
    }
}

/// The time zone without a setting.
fn zone() -> String {
    let output = std::process::Command::new("php")
        .args(["-r", "echo ini_get('date.timezone');"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn heads_and_error_documents() {
    let site = Site::with("a.html", "page");
    site.write("x.php", "<?php header('X-Own: yes'); http_response_code(418); echo 'teapot';");
    site.write("gone.html", "it is gone");
    site.write(
        ".htaccess",
        "Header set X-Frame-Options DENY\nHeader always set X-Always yes\nHeader unset X-Own\nRedirect 410 /old\nErrorDocument 410 /gone.html\nErrorDocument 404 \"nothing here\"\nExpiresActive On\nExpiresByType text/html \"access plus 1 hour\"\nAddDefaultCharset utf-8\n",
    );
    let server = Server::start(site.root(), &["--front-controller", "off"]);
    let page = server.get("/a.html");
    assert_eq!(page.header("X-Frame-Options"), Some("DENY"));
    assert_eq!(page.header("X-Always"), Some("yes"));
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.header("Cache-Control"), Some("max-age=3600"));
    let script = server.get("/x.php");
    assert_eq!((script.status(), script.header("X-Own")), (418, None));
    let gone = server.get("/old/x");
    assert_eq!((gone.status(), &*gone.text()), (410, "it is gone"));
    assert_eq!(gone.header("X-Always"), Some("yes"));
    let missing = server.get("/none");
    assert_eq!((missing.status(), &*missing.text()), (404, "nothing here"));
}

/// The author of a `.htaccess` file can neither choose the script nor name the user of the request.
#[test]
fn variables_of_files_do_not_replace_those_of_the_server() {
    let site = Site::with("index.php", SHOW);
    site.write("uploads/evil.php", "<?php echo 'evil';");
    site.write(".htaccess", "");
    let evil = site.path("uploads/evil.php");
    let lines = [
        "DirectoryIndex /index.php".to_owned(),
        format!("SetEnv SCRIPT_FILENAME {}", evil.display()),
        "SetEnv REMOTE_USER root".to_owned(),
        "SetEnv PHP_ADMIN_VALUE auto_prepend_file=/etc/passwd".to_owned(),
        "SetEnv APP folder\n".to_owned(),
    ];
    site.write("d/.htaccess", lines.join("\n"));
    let server = Server::start(site.root(), &["--php-only", "/index.php"]);
    server.get("/uploads/evil.php").expect(403);
    let page = server.page("/d/");
    assert!(page.contains("/index.php") && page.ends_with(r#""folder",""]"#), "{page}");
}

/// `.htaccess` files cannot set the parameters by which a front announces itself: with
/// `SENDOFF_CHANNEL` a tenant could lead the process's links to a socket of his own.
#[test]
fn files_announce_no_front_and_no_channel() {
    let names = ["SENDOFF_FRONT", "SENDOFF_CHANNEL", "SENDOFF_ACCEPT", "SENDOFF_ACCEL"];
    let site = Site::with(
        "env.php",
        "<?php echo implode(' ', preg_grep('/SENDOFF|APP/', array_keys($_SERVER)));",
    );
    let lines: Vec<_> = names.iter().map(|name| format!("SetEnv {name} 1\n")).collect();
    site.write(".htaccess", format!("{}SetEnv APP 1\n", lines.concat()));
    let fpm = sendoff_tests::Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    assert_eq!(server.page("/env.php"), "APP");
}

/// Rewriting leads to no path that a route of the site denies.
#[test]
fn files_do_not_lead_around_routes() {
    let site = Site::with("private/s.txt", "secret");
    site.write(
        ".htaccess",
        "RewriteEngine On\nRewriteRule ^go/(.*)$ /private/$1 [L]\nErrorDocument 404 /private/s.txt\n",
    );
    let server = Server::start(site.root(), &["--deny", "/private"]);
    for (target, status) in [("/private/s.txt", 403), ("/go/s.txt", 403), ("/none", 404)] {
        let response = server.get(target);
        assert_eq!(response.status(), status, "{target}");
        assert!(!response.text().contains("secret"), "{target}");
    }
}

/// The file of a tenant's `AuthUserFile` may be a pipe: no event loop waits for it.
#[test]
fn a_password_file_that_is_none_stops_no_other_request() {
    let site = Site::with("a.txt", "text");
    let pipe = site.fifo("pipe");
    site.write(".htaccess", "");
    let path = site.path("pipe");
    site.write(
        "d/.htaccess",
        format!(
            "AuthType Basic\nAuthName x\nAuthUserFile {}\nRequire valid-user\n",
            path.display()
        ),
    );
    let server = Server::start(site.root(), &["--threads", "1"]);
    for _ in 0..3 {
        let asked = Request::get("/d/").header("Authorization", "Basic YTpi");
        assert_eq!(server.ask(&asked).status(), 500);
        assert_eq!(server.page("/a.txt"), "text");
    }
    drop(pipe);
}

/// Outcomes are kept; every kind of change that they depend on counts in the next request.
#[test]
fn what_rules_looked_at_counts_as_it_is_now() {
    let site = Site::with("index.php", "<?php echo 'front';");
    site.write(".htaccess", WORDPRESS);
    site.write("d/a.txt", "text");
    site.write("other/a.txt", "other");
    site.write("other/.htaccess", "Require all denied\n");
    symlink(site.path("d"), site.path("link")).unwrap();
    let server = Server::start(site.root(), &["--threads", "1"]);
    let rename = |from: &str, to: &str| std::fs::rename(site.path(from), site.path(to)).unwrap();
    let status = |target: &str| server.get(target).status();
    for round in 0..10 {
        // A file that a condition looks for.
        assert_eq!(server.page("/new.txt"), "front", "{round}");
        site.write("new.txt", "new");
        assert_eq!(server.page("/new.txt"), "new", "{round}");
        std::fs::remove_file(site.path("new.txt")).unwrap();
        // A file that is overwritten in place, and a file that is renamed over it.
        site.write("d/.htaccess", "Require all denied \n");
        assert_eq!((status("/d/a.txt"), status("/link/a.txt")), (403, 403), "{round}");
        site.write("d/.htaccess", "Require all granted\n");
        assert_eq!((status("/d/a.txt"), status("/link/a.txt")), (200, 200), "{round}");
        site.write("d/new", "Require all denied \n");
        rename("d/new", "d/.htaccess");
        assert_eq!((status("/d/a.txt"), status("/link/a.txt")), (403, 403), "{round}");
        std::fs::remove_file(site.path("d/.htaccess")).unwrap();
        assert_eq!((status("/d/a.txt"), status("/link/a.txt")), (200, 200), "{round}");
        // A folder is replaced by another one.
        rename("d", "before");
        rename("other", "d");
        assert_eq!((status("/d/a.txt"), status("/link/a.txt")), (403, 403), "{round}");
        rename("d", "other");
        rename("before", "d");
        assert_eq!((status("/d/a.txt"), status("/link/a.txt")), (200, 200), "{round}");
    }
}

/// A file that lives on under another name, or a folder in use by a process, has no event when it
/// is replaced.
#[test]
fn what_takes_the_place_of_a_file_or_folder_that_lives_on_is_watched() {
    let site = Site::with("d/a.txt", "text");
    let server = Server::start(site.root(), &["--threads", "1"]);
    let status = || server.get("/d/a.txt").status();
    for round in 0..5 {
        let (old, new) = (format!("old{round}"), format!("new{round}"));
        site.write("d/.htaccess", "Require all granted\n");
        std::fs::hard_link(site.path("d/.htaccess"), site.outside(&old)).unwrap();
        assert_eq!(status(), 200, "{round}");
        site.write("d/next", "Require all granted\n");
        std::fs::hard_link(site.path("d/next"), site.outside(&new)).unwrap();
        std::fs::rename(site.path("d/next"), site.path("d/.htaccess")).unwrap();
        assert_eq!(status(), 200, "{round}");
        site.write_at(site.outside(&new), "Require all denied\n");
        assert_eq!(status(), 403, "{round}: by its other name");
        site.write("d/.htaccess", "Require all granted\n");
        assert_eq!(status(), 200, "{round}");
        // As a process does that works there.
        let open = std::fs::File::open(site.path("d")).unwrap();
        std::fs::remove_dir_all(site.path("d")).unwrap();
        assert_eq!(status(), 404, "{round}");
        site.write("d/a.txt", "text");
        assert_eq!(status(), 200, "{round}");
        site.write("d/.htaccess", "Require all denied\n");
        assert_eq!(status(), 403, "{round}: in a new folder");
        drop(open);
    }
}

/// Outcomes that depend on the client's fields are not given to another request.
#[test]
fn requests_that_differ_have_outcomes_that_differ() {
    let site = Site::with("a.txt", "text");
    site.write(
        ".htaccess",
        "RewriteEngine On\nRewriteCond %{HTTP:X-Key} !=open\nRewriteRule ^a - [F]\nRewriteCond %{HTTP_HOST} =b.example\nRewriteRule . - [G]\nRewriteCond %{REQUEST_METHOD} =HEAD\nRewriteRule . - [R=409]\nRewriteCond %{QUERY_STRING} x\nRewriteRule . - [R=410]\nRewriteCond %{THE_REQUEST} /%61\nRewriteRule . - [R=406]\n",
    );
    let server = Server::start(site.root(), &["--threads", "1"]);
    let key = |request: Request, value| server.ask(&request.header("X-Key", value)).status();
    for _ in 0..3 {
        server.get("/a.txt").expect(403);
        assert_eq!(key(Request::get("/a.txt"), "open"), 200);
        assert_eq!(key(Request::get("/a.txt"), "closed"), 403);
        assert_eq!(key(Request::get("/a.txt?x"), "open"), 410);
        assert_eq!(key(Request::get("/%61.txt"), "open"), 406);
        assert_eq!(key(Request::new("HEAD", "/a.txt"), "open"), 409);
        assert_eq!(key(Request::get("/a.txt").header("Host", "b.example"), "open"), 410);
    }
}

/// A request that needs a password is evaluated twice, and its fields are changed once.
#[test]
fn fields_are_changed_once_with_a_password() {
    let site = Site::with("i.php", "<?php echo $_SERVER['HTTP_X_A'];");
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let rules = "AuthType Basic\nAuthName x\nRequire valid-user\nRequestHeader append X-A more\n";
    site.write(".htaccess", format!("AuthUserFile {}\n{rules}", users.display()));
    let server = Server::start(site.root(), &[]);
    let asked = Request::get("/i.php").header("X-A", "own");
    let asked = asked.header("Authorization", "Basic YW5uOm9wZW4gc2VzYW1l");
    assert_eq!(server.ask(&asked).text(), "own, more");
}

#[test]
fn members_of_groups_are_let_in() {
    let site = Site::with("a.txt", "text");
    let users = "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";
    let users = site.write_at(site.outside("users"), users);
    let groups = site.write_at(site.outside("groups"), "staff: bob\n");
    let rules = "AuthType Basic\nAuthName x\nRequire group staff\n";
    let (users, groups_file) = (users.display(), groups.display());
    site.write(".htaccess", format!("AuthUserFile {users}\nAuthGroupFile {groups_file}\n{rules}"));
    let server = Server::start(site.root(), &[]);
    let asked = Request::get("/a.txt").header("Authorization", "Basic YW5uOm9wZW4gc2VzYW1l");
    for _ in 0..3 {
        assert_eq!(server.ask(&asked).status(), 401);
        site.write_at(groups.clone(), "staff: bob ann\n");
        assert_eq!(server.ask(&asked).status(), 200);
        site.write_at(groups.clone(), "staff: bob\n");
    }
}

#[test]
fn bodies_may_be_limited_and_not_extended() {
    let site = Site::with("i.php", "<?php echo strlen(file_get_contents('php://input'));");
    site.write(".htaccess", "LimitRequestBody 0\n");
    site.write("small/i.php", "<?php echo 'small';");
    site.write("small/.htaccess", "LimitRequestBody 10\n");
    let server = Server::start(site.root(), &["--max-body", "1k"]);
    let post =
        |target, size| server.ask(&Request::post(target, "text/plain", vec![b'x'; size])).status();
    assert_eq!((post("/i.php", 1000), post("/i.php", 2000)), (200, 413));
    assert_eq!((post("/small/i.php", 10), post("/small/i.php", 11)), (200, 413));
}

/// None of these may cost other requests anything.
#[test]
fn hostile_files_refuse_their_folders() {
    let site = Site::with("a.txt", "text");
    let long = "a".repeat(3000);
    let rules = |text: &str, count: usize| text.repeat(count);
    for (folder, text) in [
        ("large", rules("# nothing at all\n", 700_000)),
        ("many", rules("SetEnv A\n", 100_000)),
        ("memory", rules("RewriteRule ((a|b){60}){30} -\n", 1000)),
        ("line", format!("Header set A {}\n", rules("a", 100_000))),
        ("nested", rules("<If true>\n", 100) + &rules("</If>\n", 100)),
        ("loop", "RewriteEngine On\nRewriteRule ^(.*)$ /loop/x$1 [N]\n".to_owned()),
        ("again", "RewriteEngine On\nRewriteRule ^(.*)$ /again/x$1\n".to_owned()),
        (
            "costly",
            format!(
                "SetEnvIf Request_URI (a+a+)+(?=b) x\n{}",
                rules("SetEnvIf Request_URI (a+a+)+(?=b) x\n", 9000)
            ),
        ),
        ("binary", "\0\u{1}\u{fffd}".repeat(5000)),
    ] {
        site.write(&format!("{folder}/a.txt"), "text");
        site.write(&format!("{folder}/.htaccess"), text);
    }
    for folder in ["pipe", "device", "folder", "nowhere", "itself"] {
        site.write(&format!("{folder}/a.txt"), "text");
    }
    let _pipe = site.fifo("pipe/.htaccess");
    site.folder("folder/.htaccess");
    for (folder, target) in
        [("device", "/dev/zero"), ("nowhere", "/nonexistent"), ("itself", ".htaccess")]
    {
        let link = site.path(&format!("{folder}/.htaccess"));
        symlink(target, link).unwrap();
    }
    site.write(".htaccess", "");
    let server = Server::start(site.root(), &["--threads", "1"]);
    for _ in 0..3 {
        for (folder, status) in [
            ("large", 500),
            ("many", 500),
            ("memory", 500),
            ("line", 500),
            ("nested", 500),
            ("loop", 500),
            ("again", 500),
            ("costly", 500),
            ("binary", 500),
            ("pipe", 403),
            ("device", 403),
            ("folder", 403),
            ("nowhere", 200),
            ("itself", 403),
        ] {
            let start = std::time::Instant::now();
            let target = match folder {
                "costly" => format!("/{folder}/{long}"),
                _ => format!("/{folder}/a.txt"),
            };
            assert_eq!(server.get(&target).status(), status, "{folder}");
            assert!(start.elapsed().as_secs() < 5, "{folder}: {:?}", start.elapsed());
            assert_eq!(server.page("/a.txt"), "text");
        }
    }
    server.await_log("device/.htaccess: it cannot be read: it is no regular file");
    server.await_log("many/.htaccess:10001: the file has more than 10000 directives");
}

/// A file that is written while it is read has its old or its new contents, and in the end the last
/// ones.
#[test]
fn a_file_that_changes_while_it_is_read() {
    let site = Site::with("a.txt", "text");
    site.write(".htaccess", "");
    site.write("d/a.txt", "text");
    let server = Server::start(site.root(), &[]);
    let path = site.path("d/.htaccess");
    for round in 0..20 {
        let (path, last) = (path.clone(), if round % 2 == 0 { "denied" } else { "granted" });
        let writer = std::thread::spawn(move || {
            for state in 0..200 {
                let word = if state % 2 == 0 { "granted" } else { "denied" };
                std::fs::write(&path, format!("Require all {word}\n")).unwrap();
            }
            std::fs::write(&path, format!("Require all {last}\n")).unwrap();
        });
        while !writer.is_finished() {
            assert!([200, 403].contains(&server.get("/d/a.txt").status()));
        }
        writer.join().unwrap();
        let expected = if round % 2 == 0 { 403 } else { 200 };
        assert_eq!(server.get("/d/a.txt").status(), expected, "{round}");
    }
}

/// More folders than are watched and kept.
#[test]
fn rules_of_many_folders_hold() {
    let site = Site::with("a.txt", "text");
    site.write(".htaccess", "");
    for folder in 0..2500 {
        site.write(&format!("{folder}/.htaccess"), "Require all denied\n");
    }
    let server = Server::start(site.root(), &["--threads", "1"]);
    let mut client = server.connect();
    for folder in 0..2500 {
        let status = client.ask(&Request::get(&format!("/{folder}/a.txt"))).status();
        assert_eq!(status, 403, "{folder}");
    }
    for folder in (0..2500).step_by(500) {
        site.write(&format!("{folder}/.htaccess"), "Require all granted\n");
        assert_eq!(server.get(&format!("/{folder}/a.txt")).status(), 404, "{folder}");
        assert_eq!(server.get(&format!("/{}/a.txt", folder + 1)).status(), 403, "{folder}");
    }
}

/// `in/.htaccess` lets Ann in, with the password of the field `ANN`.
fn password_for(site: &Site, folder: &str) {
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let users = users.display();
    let text = format!("AuthType Basic\nAuthName x\nAuthUserFile {users}\nRequire valid-user\n");
    site.write(&format!("{folder}/.htaccess"), text);
}

const ANN: &str = "Basic YW5uOm9wZW4gc2VzYW1l";

/// A rule about the path of a folder holds when a route answers with the folder's index.
#[test]
fn files_refuse_a_folder_whose_index_a_route_sends() {
    let site = Site::with("admin/index.php", "<?php echo 'ran';");
    site.write("page/index.html", "page");
    site.write(".htaccess", "RewriteEngine On\nRewriteRule ^(admin|page)/?$ - [F,L]\n");
    for route in [
        "static = true\nprefix = '/page'\n[[site.route]]\nphp = true\n",
        "match = '^(.*/)$'\ntry_files = ['$1index.html', '$1index.php']\n",
    ] {
        let server = run(&site, &format!("[[site.route]]\n{route}"));
        for folder in ["/admin/", "/page/"] {
            assert_eq!(server.get(folder).status(), 403, "{folder}: {route}");
        }
        assert_eq!(server.page("/admin/index.php"), "ran");
        assert_eq!(server.page("/page/index.html"), "page");
    }
}

/// The script that answers for a path elsewhere is protected by the files of its own folder.
#[test]
fn files_protect_the_script_to_which_another_path_leads() {
    let site = Site::with("app/index.php", "<?php echo 'ran', ini_get('precision');");
    site.write("page.txt", "text");
    let php = "[[site.route]]\nprefix = '/run'\nphp = '/app/index.php'\n";
    let tried = "[[site.route]]\npath = '/try'\ntry_files = ['/none', '/app/index.php']\n";
    let controller = "front_controller = { '/' = '/app/index.php' }\n";
    for keys in [
        controller.to_owned(),
        format!("{controller}{php}{tried}"),
        format!("htaccess = true\n{controller}"),
    ] {
        let server = run(&site, &keys);
        let mut paths = vec!["/missing", "/deep/missing", "/app/index.php"];
        if keys.contains("route") {
            paths.extend(["/run", "/try"]);
        }
        for path in paths {
            let ask = |field| server.ask(&Request::get(path).header("Authorization", field));
            site.write("app/.htaccess", "Require all denied\n");
            assert_eq!(server.get(path).status(), 403, "{path}, denied: {keys}");
            password_for(&site, "app");
            assert_eq!(server.get(path).status(), 401, "{path}, no password: {keys}");
            assert_eq!(ask("Basic YW5uOndyb25n").status(), 401, "{path}, wrong: {keys}");
            let allowed = ask(ANN);
            assert_eq!(allowed.status(), 200, "{path}, password: {keys}");
            assert!(allowed.text().starts_with("ran"), "{path}: {}", allowed.text());
            site.write("app/.htaccess", "php_value precision 7\n");
            // A script that a route names runs without the settings of its folder.
            if !matches!(path, "/run" | "/try") {
                assert_eq!(server.page(path), "ran7", "{path}: {keys}");
            }
            std::fs::remove_file(site.path("app/.htaccess")).unwrap();
            assert_eq!(server.page(path), "ran14", "{path}, no file: {keys}");
        }
        assert_eq!(server.page("/page.txt"), "text");
    }
}

/// An alias leads around no file that lies above its folder, as far as the site has the folders.
#[test]
fn files_above_the_folder_of_an_alias_hold() {
    let site = Site::with("private/dl/s.txt", "secret");
    site.write("private/dl/run.php", "<?php echo 'secret';");
    site.write_at(site.outside("lib/shut/deep/d.txt"), "secret");
    let alias =
        "alias = { '/dl' = 'root/private/dl', '/lib' = 'lib', '/in/deep' = 'lib/shut/deep' }\n";
    let paths = ["/dl/s.txt", "/dl/run.php", "/dl/", "/in/deep/d.txt", "/dl/none"];
    let route = "[[site.route]]\nextension = ['txt', 'php']\ncache = '1h'\n";
    let files = "[[site.route]]\nextension = 'txt'\nstatic = true\n";
    for more in ["", "htaccess = true\n", route, files] {
        let server = run(&site, &[alias, more].concat());
        for round in 0..3 {
            assert_eq!(server.page("/dl/s.txt"), "secret", "{round}: {more}");
            assert_eq!(server.page("/dl/run.php"), "secret", "{round}: {more}");
            assert_eq!(server.page("/in/deep/d.txt"), "secret", "{round}: {more}");
            site.write("private/.htaccess", "Require all denied\n");
            site.write_at(site.outside("lib/shut/.htaccess"), "Require all denied\n");
            for path in paths {
                assert_eq!(server.get(path).status(), 403, "{path} {round}: {more}");
            }
            std::fs::remove_file(site.path("private/.htaccess")).unwrap();
            std::fs::remove_file(site.outside("lib/shut/.htaccess")).unwrap();
            // Rules of the root come before rules of the folder, and rewrite as for other paths.
            let rules = "RewriteEngine On\nRewriteRule ^dl/go$ dl/s.txt [L]\n";
            site.write("private/.htaccess", rules);
            assert_eq!(server.page("/dl/go"), "secret", "{round}: {more}");
            std::fs::remove_file(site.path("private/.htaccess")).unwrap();
        }
    }
}

/// With the password of a `.htaccess` file the client gets the route's answer, and nothing else.
#[test]
fn a_password_leads_back_to_the_answer_of_the_route() {
    let site = Site::with("adm/x.php", "<?php echo $_SERVER['REMOTE_USER'], ini_get('precision');");
    site.write("adm/x.py", "<?php echo 'ran';");
    site.write("adm/y.txt", "text");
    password_for(&site, "adm");
    let fpm = sendoff_tests::Fpm::start(site.root(), "security.limit_extensions = .py .php\n");
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1
        [[pool]]\nname = 'one'\nworkers = 1\nphp_ini.precision = 1
        [[pool]]\nname = 'two'\nworkers = 1\nphp_ini.precision = 2
        [[site]]\nroot = 'root'\npool = 'one'
        [[site.route]]\nextension = 'py'\nfastcgi = '{}'\nonly_files = true
        [[site.route]]\nprefix = '/adm'\nextension = 'php'\nphp = true\npool = 'two'
        [[site.route]]\nprefix = '/adm'\nextension = 'txt'\nstatic = true\n",
        fpm.address()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 2).unwrap_or_else(|e| panic!("{}", e.stderr));
    for (path, expected) in [("/adm/x.py", "ran"), ("/adm/x.php", "ann2"), ("/adm/y.txt", "text")] {
        let ask = |field| server.ask(&Request::get(path).header("Authorization", field));
        server.get(path).expect(401);
        assert_eq!(ask("Basic YW5uOndyb25n").status(), 401, "{path}");
        let allowed = ask(ANN);
        assert_eq!((allowed.status(), allowed.text().as_str()), (200, expected), "{path}");
    }
    // The files admit only another user, or no user at all.
    let other = std::fs::read_to_string(site.path("adm/.htaccess")).unwrap();
    for (rule, status) in [("Require user bob", 401), ("Require all denied", 403)] {
        site.write("adm/.htaccess", other.replace("Require valid-user", rule));
        for path in ["/adm/x.py", "/adm/x.php", "/adm/y.txt"] {
            let response = server.ask(&Request::get(path).header("Authorization", ANN));
            assert_eq!(response.status(), status, "{path}: {rule}");
        }
    }
}

/// `SymLinksIfOwnerMatch` of a file holds for links within the root, too, also once a response was
/// sent and the link changed its owner.
#[test]
#[cfg_attr(not(root), ignore = "needs root: chown")]
fn links_to_what_others_own_are_refused_as_root() {
    let site = Site::with("other/o.txt", "linked");
    site.write("index.php", "<?php echo 'front';");
    site.write("mine/.htaccess", "Options +SymLinksIfOwnerMatch\n");
    let file = site.path("other/o.txt");
    let owner = file.metadata().unwrap().uid();
    let link = |name: &str, target: &str| {
        symlink(target, site.path(name)).unwrap();
        lchown(site.path(name), Some(owner), None).unwrap();
        site.path(name)
    };
    let text = link("mine/link", "../other/o.txt");
    let folder = link("mine/folder", "../other");
    link("mine/nowhere", "none");
    let static_route = "[[site.route]]\nprefix = '/mine'\nstatic = true\n";
    for (keys, of_nowhere) in [("", 403), ("htaccess = true\n", 403), (static_route, 404)] {
        let server = run(&site, keys);
        for _ in 0..3 {
            for owned_by in [owner, 0] {
                lchown(&text, Some(owned_by), None).unwrap();
                lchown(&folder, Some(owned_by), None).unwrap();
                let status = if owned_by == owner { 200 } else { 403 };
                for target in ["/mine/link", "/mine/folder/o.txt"] {
                    assert_eq!(server.get(target).status(), status, "{target} of {owned_by}");
                }
                server.get("/mine/nowhere").expect(of_nowhere);
                assert_eq!(server.page("/other/o.txt"), "linked");
            }
        }
        server.await_log("SymLinksIfOwnerMatch");
    }
}
