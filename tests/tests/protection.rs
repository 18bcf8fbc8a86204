//! What a site's rules deny is denied by every way that leads to it.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use sendoff_tests::{Request, Response, Server, Site};

const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2\n";

/// `ann` with the password `open sesame`.
const ANN: &str = "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";

/// `bob` with the same one.
const BOB: &str = "bob:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";

const AS_ANN: &str = "Basic YW5uOm9wZW4gc2VzYW1l";

/// A server with what `sites` says behind a listener and a pool. Paths are relative to the folder around `root`.
fn run(site: &Site, sites: &str) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), format!("{TOP}{sites}"));
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

fn ask_as(server: &Server, credentials: &str, target: &str) -> Response {
    server.ask(&Request::get(target).header("Authorization", credentials))
}

/// A password that `.htaccess` files ask for opens no path for which a route asks for another one.
#[test]
fn one_password_does_not_stand_for_another() {
    let site = Site::with("secret.php", "<?php echo 'secret';");
    site.write("in/page.php", "<?php echo 'page of ', $_SERVER['REMOTE_USER'];");
    let anns = site.write_at(site.outside("anns"), ANN);
    site.write_at(site.outside("bobs"), BOB);
    let rules = format!(
        "AuthType Basic\nAuthName in\nAuthUserFile {}\nRequire valid-user\nRewriteEngine On\nRewriteRule ^way$ /secret.php [L]\n",
        anns.display()
    );
    site.write("in/.htaccess", rules);
    let server = run(
        &site,
        "[[site]]\nroot = 'root'\nhtaccess = true\n[[site.route]]\npath = '/secret.php'\nauth = { users = 'bobs', realm = 'secret' }\n",
    );
    assert_eq!(ask_as(&server, AS_ANN, "/in/page.php").text(), "page of ann");
    ask_as(&server, AS_ANN, "/secret.php").expect(401);
    let way = ask_as(&server, AS_ANN, "/in/way");
    assert_eq!(way.status(), 401, "{}", way.text());
    assert_eq!(way.header("WWW-Authenticate"), Some("Basic realm=\"secret\", charset=\"UTF-8\""));
}

/// Routes that deny also hold for paths that later routes make, and for the index file of a folder that a route has looked for.
#[test]
fn no_rewrite_leads_to_what_is_denied() {
    let site = Site::with("index.php", "<?php echo 'front ', $_SERVER['SCRIPT_NAME'];");
    site.write("private/x.txt", "private");
    site.write("private/index.html", "private");
    site.write("open/x.txt", "open");
    site.write("uploads/index.php", "<?php echo 'evil';");
    site.write_at(site.outside("users"), ANN);
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
[[site.route]]
prefix = '/private'
deny = true
[[site.route]]
path = '/open/x.txt'
auth = { users = 'users' }
[[site.route]]
match = '^/p/(.*)$'
rewrite = '/$1'
[[site.route]]
match = '^/t/(.*)$'
try_files = ['/$1', '/$1/', '=404']
[[site.route]]
match = '^/s/(.*)$'
rewrite = '/$1'
static = true
[[site.route]]
match = '.'
try_files = ['$path', '$path/', '/index.php']
[[site.route]]
match = '^/uploads/.*\.php'
deny = true
"#,
    );
    for (target, status) in [
        ("/p/private/x.txt", 403),
        ("/p/private/", 403),
        ("/p/x/../private/x.txt", 403),
        ("/p/x/%2e%2e/private/x.txt", 403),
        ("/p//private/x.txt", 403),
        ("/t/private/x.txt", 403),
        ("/t/private", 403),
        ("/s/private/x.txt", 403),
        ("/p/t/private/x.txt", 403),
        ("/p/open/x.txt", 401),
        ("/t/open/x.txt", 401),
        ("/uploads/", 403),
        ("/uploads/index.php", 403),
        ("/p/uploads/", 403),
    ] {
        assert_eq!(server.get(target).status(), status, "{target}");
    }
    for target in ["/none", "/p/p/private/x.txt"] {
        assert_eq!(server.page(target), "front /index.php");
    }
    assert_eq!(ask_as(&server, AS_ANN, "/p/open/x.txt").text(), "open");
}
