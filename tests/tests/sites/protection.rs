//! Files that a site's rules deny are denied on every way that leads to them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{XattrFlags, setxattr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use sendoff_tests::{Fpm, Request, Response, Server, Site, dies_with_us};

const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2\n";

/// `ann` with the password `open sesame`.
const ANN: &str = "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";

/// `bob` with the same one.
const BOB: &str = "bob:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";

const AS_ANN: &str = "Basic YW5uOm9wZW4gc2VzYW1l";

const AS_BOB: &str = "Basic Ym9iOm9wZW4gc2VzYW1l";

const AS_EVE: &str = "Basic ZXZlOm9wZW4gc2VzYW1l";

/// A server with a listener, a pool, and the lines of `sites`. Paths are relative to the folder
/// around `root`.
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

/// A front controller reads the path behind its name as it reads a path without it.
#[test]
fn the_name_of_a_front_controller_opens_nothing() {
    let site =
        Site::with("index.php", "<?php echo $_SERVER['PATH_INFO'] ?: $_SERVER['REQUEST_URI'];");
    site.write("other/index.php", "<?php echo 'other', $_SERVER['PATH_INFO'];");
    site.write_at(site.outside("anns"), ANN);
    let server = run(
        &site,
        "[[site]]
root = 'root'
[[site.route]]
prefix = '/admin'
deny = true
[[site.route]]
prefix = '/staff'
auth = { users = 'anns', realm = 'staff' }
[[site.route]]
path = '/login'
rate = '1/h'
",
    );
    assert_eq!(server.page("/else"), "/else");
    for way in [
        "/admin",
        "/index.php/admin",
        "/index.php/admin/x",
        "/index.php//admin",
        "/index.php/x/../admin",
    ] {
        server.get(way).expect(403);
    }
    assert_eq!(server.page("/index.php/administer"), "/administer");
    server.get("/index.php/staff/x").expect(401);
    assert_eq!(ask_as(&server, AS_ANN, "/index.php/staff/x").text(), "/staff/x");
    // Another script is not what answers for that path.
    assert_eq!(server.page("/other/index.php/admin"), "other/admin");
    assert_eq!(server.page("/index.php/login"), "/login");
    server.get("/login").expect(429);
}

/// Routes that deny access also apply to paths that later routes make, and to the index file of a
/// folder.
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

/// A path that rules have made is protected whatever answers for it: an application, a script with
/// path info, a text or a redirect, in the route that rewrites or in a later one.
#[test]
fn no_rewrite_leads_to_what_is_denied_whatever_answers() {
    let backend = Site::with("index.php", "<?php echo 'proxy ', $_SERVER['REQUEST_URI'];");
    let backend = Server::start(backend.root(), &["--front-controller", "/index.php"]);
    let site = Site::with("app", "<?php echo 'app ', $_SERVER['PATH_INFO'];");
    site.write("x.php", "<?php echo 'script ', $_SERVER['PATH_INFO'];");
    site.write_at(site.outside("text.lua"), "lighty.content = { 'lua' } return 200");
    site.write_at(site.outside("users"), ANN);
    let fpm = Fpm::start(site.root(), "security.limit_extensions =\n");
    let (proxy, fastcgi) = (format!("http://{}", backend.addr()), fpm.address());
    let server = run(
        &site,
        &format!(
            r#"
[[site]]
root = 'root'
fastcgi = {{ '/folder' = '{fastcgi}' }}
[[site.route]]
match = '^/[a-z.]+/private'
deny = true
[[site.route]]
match = '^/[a-z.]+/staff'
auth = {{ users = 'users' }}
[[site.route]]
match = '^/rewrite/(.*)$'
rewrite = '/$1'
[[site.route]]
match = '^/try/(.*)$'
try_files = ['/none', '/$1']
[[site.route]]
prefix = '/proxy'
proxy = '{proxy}'
[[site.route]]
match = '^/own/proxy/(.*)$'
rewrite = '/proxy/$1'
proxy = '{proxy}'
[[site.route]]
prefix = '/app'
fastcgi = '{fastcgi}'
[[site.route]]
match = '^/own/app/(.*)$'
rewrite = '/app/$1'
fastcgi = '{fastcgi}'
params = {{ SCRIPT_FILENAME = '{root}/app', PATH_INFO = '/$1' }}
[[site.route]]
prefix = '/folder'
params = {{ SCRIPT_FILENAME = '{root}/app' }}
[[site.route]]
match = '^/own/x.php/(.*)$'
rewrite = '/x.php/$1'
php = true
[[site.route]]
prefix = '/text'
respond = 'text'
[[site.route]]
match = '^/own/text/(.*)$'
rewrite = '/text/$1'
respond = 'text'
[[site.route]]
prefix = '/away'
redirect = 'http://away.test$path'
[[site.route]]
match = '^/own/lua/(.*)$'
rewrite = '/lua/$1'
lua = 'text.lua'
[[site.route]]
prefix = '/lua'
lua = 'text.lua'
[[site.route]]
match = '^/late/(.*)$'
rewrite = '/closed/$1'
proxy = '{proxy}'
[[site.route]]
prefix = '/closed/later'
deny = true
"#,
            root = site.root().display(),
        ),
    );
    for (way, to, text) in [
        ("/rewrite", "/proxy/", "proxy /proxy/"),
        ("/try", "/proxy/", "proxy /proxy/"),
        ("/own", "/proxy/", "proxy /proxy/"),
        ("/rewrite", "/app/", "app /"),
        ("/own", "/app/", "app /"),
        ("/rewrite", "/folder/", "app /"),
        ("/try", "/folder/", "app /"),
        ("/rewrite", "/x.php/", "script /"),
        ("/own", "/x.php/", "script /"),
        ("/rewrite", "/text/", "text"),
        ("/own", "/text/", "text"),
        ("/rewrite", "/lua/", "lua"),
        ("/own", "/lua/", "lua"),
    ] {
        let target = |name: &str| format!("{way}{to}{name}");
        let answer = server.get(&target("open"));
        let expected = if text.ends_with('/') { format!("{text}open") } else { text.to_owned() };
        assert_eq!((answer.status(), answer.text()), (200, expected), "{}", target("open"));
        for (name, status) in [("private", 403), ("private/x", 403), ("staff", 401)] {
            let answer = server.get(&target(name));
            assert_eq!(answer.status(), status, "{}: {}", target(name), answer.text());
        }
        ask_as(&server, AS_ANN, &target("staff")).expect(200);
    }
    // Neither the target of a redirect nor a missing file is told.
    server.get("/rewrite/away/open").expect(302);
    server.get("/rewrite/away/private").expect(403);
    server.get("/rewrite/none/open").expect(404);
    server.get("/rewrite/none/private").expect(403);
    // The route that denies stands after the route that rewrites.
    assert_eq!(server.page("/late/open"), "proxy /closed/open");
    server.get("/late/later").expect(403);
}

/// The server's own pages are protected at every path that leads to them.
#[test]
fn no_rewrite_leads_to_a_page_of_a_pool() {
    let site = Site::with("a.txt", "text");
    let server = run(
        &site,
        r#"
status_path = '/status'
[[site]]
root = 'root'
[[site.route]]
path = '/status'
deny = true
[[site.route]]
match = '^/rewrite/(.*)$'
rewrite = '/$1'
"#,
    );
    server.get("/status").expect(403);
    server.get("/rewrite/status").expect(403);
}

/// The script or file to which a path leads does not weaken the rules of the path: a client must
/// have every password that is asked for on the way.
#[test]
fn no_way_leads_past_the_stricter_password() {
    let site = Site::with("index.php", "<?php echo 'front';");
    site.write("admin/page.php", "<?php echo 'page';");
    site.write("folder/index.html", "index");
    site.write("tool.php", "<?php echo 'tool';");
    site.write("a.txt", "text");
    site.write_at(site.outside("staff"), format!("{ANN}{BOB}"));
    site.write_at(site.outside("admins"), format!("{BOB}{}", BOB.replace("bob", "eve")));
    let server = run(
        &site,
        r#"
[[site]]
root = 'root'
front_controller = '/index.php'
[[site.route]]
auth = { users = 'staff', realm = 'staff' }
[[site.route]]
prefix = ['/admin', '/vault']
auth = { users = 'admins', realm = 'admins' }
[[site.route]]
path = '/folder/'
auth = { users = 'admins', realm = 'admins' }
[[site.route]]
match = '/report$'
auth = { users = 'admins', realm = 'admins' }
[[site.route]]
match = '^/vault/(.*)$'
rewrite = '/$1'
"#,
    );
    for (target, text) in [
        ("/admin/none", "front"),
        ("/admin/page.php", "page"),
        ("/folder/", "index"),
        ("/tool.php/report", "tool"),
        ("/vault/a.txt", "text"),
        ("/vault/none", "front"),
    ] {
        let refused = ask_as(&server, AS_ANN, target);
        assert_eq!(refused.status(), 401, "{target}: {}", refused.text());
        let challenge = refused.header("WWW-Authenticate").unwrap();
        assert!(challenge.contains("admins"), "{target}: {challenge}");
        assert_eq!(ask_as(&server, AS_BOB, target).text(), text, "{target}");
    }
    for target in ["/none", "/tool.php/x", "/a.txt"] {
        ask_as(&server, AS_ANN, target).expect(200);
        ask_as(&server, AS_EVE, target).expect(401);
    }
    // The last matching route decides which password counts.
    ask_as(&server, AS_EVE, "/admin/page.php").expect(200);
    // The front controller asks for the password of the staff, too.
    ask_as(&server, AS_EVE, "/admin/none").expect(401);
}

/// A rewrite that would also match its own result does not hide the routes behind it.
#[test]
fn a_rewrite_that_matches_its_result_hides_no_route() {
    let site = Site::with("ctx/x.php", "<?php echo 'secret';");
    site.write("ctx/folder/index.html", "secret");
    site.write("ctx/locked.php", "<?php echo 'locked';");
    site.write("ctx/s.txt", "secret");
    site.write("ctx/open.php", "<?php echo 'open';");
    site.write("ctx/send.php", "<?php header('X-Accel-Redirect: ' . $_GET['name']);");
    site.write_at(site.outside("users"), ANN);
    for rule in [
        "match = '^/(.*)$'\nrewrite = '/ctx/$1'",
        "try_files = ['/ctx$path/', '/none$path', '/ctx$path']",
    ] {
        let server = run(
            &site,
            &format!(
                r#"
[[site]]
root = 'root'
front_controller = 'off'
[[site.route]]
{rule}
[[site.route]]
path = ['/ctx/x.php', '/ctx/folder/index.html', '/ctx/s.txt']
deny = true
[[site.route]]
path = '/ctx/locked.php'
auth = {{ users = 'users' }}
"#
            ),
        );
        for (target, status) in [
            ("/x.php", 403),
            ("/x.php/i", 403),
            ("/folder/", 403),
            ("/locked.php/i", 401),
            ("/send.php?name=/ctx/s.txt", 403),
            ("/send.php?name=/ctx/open.php", 403),
            ("/open.php/i", 200),
        ] {
            assert_eq!(server.get(target).status(), status, "{rule}: {target}");
        }
        assert_eq!(ask_as(&server, AS_ANN, "/locked.php/i").text(), "locked");
    }
}

const NO_SCRIPTS: &str = "[[site]]\nroot = 'root'\nscripts_in_writable_folders = false\n";

/// Gives everything to root, except for the folders named.
fn give_to_root(site: &Site, workers: &[&str]) {
    fn give(path: &Path) {
        lchown(path, Some(0), Some(0)).unwrap();
        if path.is_dir() && !path.is_symlink() {
            path.read_dir().unwrap().for_each(|entry| give(&entry.unwrap().path()));
        }
    }
    give(&site.outside(""));
    for folder in workers {
        chown(site.outside(folder), Some(33), Some(33)).unwrap();
    }
}

/// Scripts behind symbolic links run only if the workers' user cannot change any part of the way.
#[test]
#[cfg_attr(not(root), ignore = "needs root: chown")]
fn links_into_writable_folders_as_root() {
    let site = Site::new();
    for script in ["root/app/x.php", "safe/x.php", "writable/safe/x.php", "writable/x.php"] {
        site.write_at(site.outside(script), "<?php echo 'ran';");
    }
    for (name, target) in [
        ("safe.php", "../safe/x.php".into()),
        ("back.php", site.path("app/x.php").display().to_string()),
        ("round.php", "../root/app/x.php".into()),
        ("below.php", "../writable/safe/x.php".into()),
        ("in.php", "../writable/x.php".into()),
        ("hop.php", "../writable/hop".into()),
        ("folder", "../writable/safe".into()),
    ] {
        symlink(target, site.path(name)).unwrap();
    }
    symlink("../safe/x.php", site.outside("writable/hop")).unwrap();
    give_to_root(&site, &["writable"]);
    let server = run(&site, NO_SCRIPTS);
    for (target, status) in [
        ("/app/x.php", 200),
        ("/safe.php", 200),
        ("/back.php", 200),
        ("/round.php", 200),
        ("/below.php", 403),
        ("/in.php", 403),
        ("/hop.php", 403),
        ("/folder/x.php", 403),
        ("/folder/x.php/more", 403),
    ] {
        assert_eq!(server.get(target).status(), status, "{target}");
    }
    server.await_log("/writable; scripts_in_writable_folders = true");
}

/// An access control list with one further user, in setfacl(1)'s format (acl(5),
/// `linux/posix_acl_xattr.h`).
fn allow(path: &Path, user: u32, permissions: u16, mask: u16) {
    let entries = [
        (1, 7, u32::MAX),
        (2, permissions, user),
        (4, 5, u32::MAX),
        (16, mask, u32::MAX),
        (32, 5, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(u16::to_le_bytes(permissions));
        list.extend(u32::to_le_bytes(id));
    }
    setxattr(path, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
}

/// Access control lists let the workers' user write to files that their mode seems to protect.
#[test]
#[cfg_attr(not(root), ignore = "needs root: chown")]
fn access_control_lists_as_root() {
    let site = Site::new();
    for folder in ["plain", "listed", "masked", "other"] {
        site.write(&format!("{folder}/in/x.php"), "<?php echo 'ran';");
    }
    give_to_root(&site, &[]);
    allow(&site.path("listed"), 33, 7, 7);
    allow(&site.path("masked"), 33, 7, 5);
    allow(&site.path("other"), 34, 7, 7);
    let server = run(&site, NO_SCRIPTS);
    for (target, status) in [
        ("/plain/in/x.php", 200),
        ("/listed/in/x.php", 403),
        ("/masked/in/x.php", 200),
        ("/other/in/x.php", 200),
    ] {
        assert_eq!(server.get(target).status(), status, "{target}");
        // The kernel's decision for a process of that user. Some programs read the mode instead.
        let folder = site.path(target.split('/').nth(1).unwrap());
        let writes = Command::new("setpriv")
            .args(["--reuid=33", "--regid=33", "--init-groups", "touch"])
            .arg(folder.join("written"))
            .status();
        assert_eq!(writes.unwrap().success(), status == 403, "{target}");
    }
}

/// The workers' user may write to folders of all its groups. The server runs with other groups than
/// this machine has.
#[test]
#[cfg_attr(not(root), ignore = "needs root: mount")]
fn groups_of_the_workers_user_as_root() {
    const GROUP: u32 = 64_321;
    let site = Site::new();
    site.write("app/x.php", "<?php echo 'ran as ', implode(' ', posix_getgroups());");
    site.write("shared/x.php", "<?php echo 'ran';");
    give_to_root(&site, &[]);
    chown(site.path("shared"), Some(0), Some(GROUP)).unwrap();
    let writable = std::fs::Permissions::from_mode(0o775);
    std::fs::set_permissions(site.path("shared"), writable).unwrap();
    let groups = std::fs::read_to_string("/etc/group").unwrap();
    let groups = format!("{groups}sendoff-test:x:{GROUP}:www-data\n");
    let groups = site.write_at(site.outside("group"), groups);
    let config = site.write_at(site.outside("sendoff.toml"), format!("{TOP}{NO_SCRIPTS}"));
    let mut command = dies_with_us(Path::new("unshare"), "KILL");
    command
        .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/group && exec \"$@\""])
        .arg(groups);
    let server = Server::try_run_by(command, &config, site.root(), 2)
        .unwrap_or_else(|f| panic!("{}", f.stderr));
    let page = server.page("/app/x.php");
    assert!(page.contains(&GROUP.to_string()), "{page}");
    server.get("/shared/x.php").expect(403);
    // Without the group.
    run(&site, NO_SCRIPTS).get("/shared/x.php").expect(200);
}

/// `u` with the password `\u{fc}`, whose hash takes a quarter of a second.
const COSTLY: &str = "u:$2y$12$cng/h67gst4M6uYN21rdV.gewJg9RwLlR1njL5uNnlmB3hJZ03mmW\n";
const AS_U: &str = "Basic dTrDvA==";

/// Asks from an address of its own, and returns the status.
fn ask_from(address: [u8; 4], server: SocketAddr, host: &str, credentials: &str) -> String {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    bind(&socket, &SocketAddr::from((address, 0))).unwrap();
    connect(&socket, &server).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(sendoff_tests::LIMIT)).unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: {credentials}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[9..12]).into_owned()
}

/// Clients that guess passwords at one site, each from its own address, do not delay the users of
/// another site.
#[test]
fn an_attack_on_one_site_does_not_hold_up_another() {
    const ATTACKERS: u8 = 20;
    let site = Site::with("index.html", "index");
    site.write_at(site.outside("users"), COSTLY);
    let one = |host: &str| {
        format!(
            "[[site]]\nhosts = '{host}'\nroot = 'root'\n[[site.route]]\nauth = {{ users = 'users', realm = 'r' }}\n"
        )
    };
    let server = run(&site, &[one("a.test"), one("b.test")].concat());
    let addr = server.addr();
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 1..=ATTACKERS {
            let answered = &answered;
            scope.spawn(move || {
                assert_eq!(ask_from([127, 0, 1, number], addr, "a.test", "Basic dTp4"), "401");
                answered.fetch_add(1, Ordering::Relaxed);
            });
        }
        sendoff_tests::wait::until(sendoff_tests::LIMIT, || answered.load(Ordering::Relaxed) > 0);
        assert_eq!(ask_from([127, 0, 2, 1], addr, "b.test", AS_U), "200");
        let before = answered.load(Ordering::Relaxed);
        assert!(before < usize::from(ATTACKERS) / 2, "{before} attackers came before");
    });
}

/// A browser takes `//evil.test` for another host.
#[test]
fn a_redirect_to_the_path_as_sent_stays_on_the_site() {
    let site = Site::new();
    let server = run(
        &site,
        "[[site]]\nroot = 'root'\n[[site.route]]\nmatch = '^/out'\nredirect = '//cdn.test$uri'\n\
         [[site.route]]\nmatch = '[^/]$'\nredirect = '$uri/'\n",
    );
    for (target, location) in [
        ("/folder", "/folder/"),
        ("//evil.test", "/evil.test/"),
        ("/\\evil.test", "/evil.test/"),
        ("/.//evil.test", "/.//evil.test/"),
        ("///\\//evil.test", "/evil.test/"),
        ("/out", "//cdn.test/out"),
    ] {
        assert_eq!(server.get(target).header("Location"), Some(location), "{target}");
    }
}

/// Names of files, which clients may choose at an upload, begin no line of the log.
#[test]
fn names_forge_no_lines_of_the_log() {
    let site = Site::with("up/a\nWARN forged.php", "<?php echo 'ran';");
    let server = run(&site, "[[site]]\nroot = 'root'\nphp_only = '/index.php'\n");
    server.get("/up/a%0AWARN%20forged.php").expect(403);
    server.await_log("forged.php");
    assert!(!server.log().contains("\nWARN forged"), "{}", server.log());
}

/// A folder's `.htaccess` file, which an application may let clients write, does not affect scripts
/// of other folders.
#[test]
#[cfg_attr(not(root), ignore = "needs root: chown")]
fn settings_of_a_writable_folder_stay_there_as_root() {
    let site = Site::with("index.php", "<?php echo 'index ', ini_get('memory_limit');");
    let evil = site.write("up/evil.txt", "<?php echo 'evil ';");
    let settings = format!("php_value auto_prepend_file {}\n", evil.display());
    for (folder, rules) in [
        ("plain", "AddHandler application/x-httpd-php .txt\n"),
        ("index", "DirectoryIndex /index.php\n"),
        ("rewrite", "RewriteEngine On\nRewriteRule . /index.php [L]\n"),
        ("fallback", "FallbackResource /index.php\n"),
    ] {
        site.write(&format!("up/{folder}/.htaccess"), format!("{settings}{rules}"));
        site.write(&format!("up/{folder}/evil.txt"), "<?php echo 'evil ';");
    }
    site.write(".htaccess", "php_value memory_limit 99M\n");
    give_to_root(&site, &["root/up"]);
    let server =
        run(&site, &format!("{NO_SCRIPTS}htaccess = true\nfront_controller = '/index.php'\n"));
    for target in ["/none", "/up/plain/none", "/up/index/", "/up/rewrite/x", "/up/fallback/none"] {
        assert_eq!(server.page(target), "index 99M", "{target}");
    }
    server.get("/up/plain/evil.txt").expect(403);
}
