//! Files that applications name: `X-Sendfile`, `X-Accel-Redirect`, `X-ZeroCopy`.

use std::os::unix::fs::MetadataExt;

use sendoff_tests::{Broken, Fpm, LIMIT, Lighttpd, Request, Response, Server, Site, pattern, wait};

/// Servers with workers and with php-fpm, both with `options`.
fn both(site: &Site, options: &[&str], scenario: impl Fn(&Server)) {
    let fpm = Fpm::start(site.root(), "");
    let php = fpm.php();
    for more in [&[][..], &["--fastcgi", &php]] {
        scenario(&Server::start(site.root(), &[options, more].concat()));
    }
}

fn site(script: &str) -> Site {
    let site = Site::with("send.php", script);
    site.write("files/a.bin", pattern(1, 300_000));
    site.write(".hidden/b.bin", "hidden");
    site.write_at(site.outside("private/c d.txt"), pattern(2, 200_000));
    site.write_at(site.outside("secret/s.txt"), "secret");
    site
}

const BY_NAME: &str = "<?php
    header('Content-Type: application/x-thing');
    header('Set-Cookie: a=b');
    header('ETag: \"mine\"');
    if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
    header($_GET['field'] . ': ' . $_GET['value']);
    echo 'this is not sent';";

fn ask(server: &Server, field: &str, value: &str) -> Response {
    server.get(&target(field, value))
}

fn target(field: &str, value: &str) -> String {
    format!("/send.php?field={field}&value={}", value.replace('%', "%25").replace(' ', "%20"))
}

/// The worker takes the request from the ring of its pool, and names the file before the head.
#[test]
fn a_request_that_waited_for_a_worker_may_name_a_file() {
    let site = site(BY_NAME);
    site.write(
        "wait.php",
        "<?php echo 'first '; ob_flush(); flush(); file_get_contents('pipe'); echo 'last';",
    );
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--workers", "1"]);
    let mut busy = server.connect();
    busy.send(Request::get("/wait.php").bytes());
    let head = busy.head().unwrap();
    let mut waiting = server.connect();
    let named = target("X-Sendfile", &site.path("files/a.bin").display().to_string());
    waiting.send(Request::new("HEAD", &named).bytes());
    let waits = || server.command(&["status"]).unwrap().contains(" 1 waiting");
    assert!(wait::until(LIMIT, waits));
    pipe.release();
    assert_eq!(busy.body_of(head, "GET").unwrap().body, b"first last");
    let response = waiting.response("HEAD");
    assert_eq!((response.status(), response.header("content-length")), (200, Some("300000")));
}

#[test]
fn a_named_file_takes_the_place_of_the_body() {
    let site = site(BY_NAME);
    let private = site.outside("private");
    let accel = format!("/protected={}", private.display());
    let options = ["--sendfile-from", private.to_str().unwrap(), "--accel", &accel];
    both(&site, &options, |server| {
        for (field, value, expected) in [
            ("X-Sendfile", site.path("files/a.bin").display().to_string(), pattern(1, 300_000)),
            ("x-sendfile", private.join("c d.txt").display().to_string(), pattern(2, 200_000)),
            ("X-Accel-Redirect", "/files/a.bin".to_owned(), pattern(1, 300_000)),
            ("X-Accel-Redirect", "/protected/c%20d.txt".to_owned(), pattern(2, 200_000)),
        ] {
            let response = ask(server, field, &value);
            assert!(response.expect(200) == expected, "{field}: {value}");
            assert_eq!(response.header("content-type"), Some("application/x-thing"));
            assert_eq!(response.header("set-cookie"), Some("a=b"));
            assert_eq!(response.header("accept-ranges"), Some("bytes"));
            assert_eq!(response.header("content-length"), Some(&*expected.len().to_string()));
            assert!(response.header("last-modified").is_some());
            assert_eq!(response.header(field), None);
            let etags: Vec<_> = response.head.all("etag").collect();
            assert!(etags.len() == 1 && etags[0] != "\"mine\"", "{etags:?}");
            let again = Request::get(&target(field, &value)).header("If-None-Match", etags[0]);
            assert_eq!(server.ask(&again).status(), 304);
            let range = Request::get(&target(field, &value)).header("Range", "bytes=10-19");
            let part = server.ask(&range);
            assert_eq!(part.expect(206), &expected[10..20]);
            assert_eq!(part.header("content-type"), Some("application/x-thing"));
            let far = Request::get(&target(field, &value)).header("Range", "bytes=900000-");
            assert_eq!(server.ask(&far).status(), 416);
            let several = Request::get(&target(field, &value)).header("Range", "bytes=0-1,5-6");
            let several = server.ask(&several).expect(206).to_vec();
            assert!(
                String::from_utf8_lossy(&several).contains("Content-Type: application/x-thing")
            );
            let head = server.ask(&Request::new("HEAD", &target(field, &value)));
            assert!(head.expect(200).is_empty());
            let post = Request::post(&target(field, &value), "text/plain", "x");
            assert!(server.ask(&post.header("Range", "bytes=0-1")).expect(200) == expected);
            let missing = format!("{}&status=404", target(field, &value));
            assert!(server.get(&missing).expect(404) == expected);
        }
    });
}

/// A cache that updates its page from a 304 would give the page another type.
#[test]
fn a_304_that_names_a_file_says_no_type() {
    let script = "<?php
        http_response_code(304);
        header('X-Sendfile: ' . __DIR__ . '/files/a.bin');";
    both(&site(script), &[], |server| {
        let response = server.get("/send.php");
        assert_eq!((response.status(), response.body.len()), (304, 0));
        assert_eq!(response.header("Content-Type"), None);
    });
}

#[test]
fn what_was_not_allowed_is_not_sent() {
    let site = site(BY_NAME);
    let root = site.root().display().to_string();
    let options = ["--sendfile-from", site.outside("private").to_str().unwrap()].map(String::from);
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    both(&site, &options, |server| {
        for (field, value, status) in [
            ("X-Sendfile", site.outside("secret/s.txt").display().to_string(), 403),
            ("X-Sendfile", format!("{root}/../secret/s.txt"), 403),
            ("X-Sendfile", format!("{root}/send.php"), 403),
            ("X-Sendfile", format!("{root}/.hidden/b.bin"), 403),
            ("X-Sendfile", format!("{root}/none"), 404),
            ("X-Sendfile", format!("{root}/files"), 403),
            ("X-Sendfile", "files/a.bin".to_owned(), 403),
            ("X-Sendfile", "/etc/passwd".to_owned(), 403),
            ("X-Accel-Redirect", "/../secret/s.txt".to_owned(), 403),
            ("X-Accel-Redirect", "/send.php".to_owned(), 403),
            ("X-Accel-Redirect", "/none".to_owned(), 404),
            ("X-Accel-Redirect", "files/a.bin".to_owned(), 403),
        ] {
            let response = ask(server, field, &value);
            assert_eq!(response.status(), status, "{field}: {value}");
            assert!(!response.text().contains("secret"));
        }
        server.await_log(&format!("--sendfile-from {}", site.outside("secret").display()));
        assert!(ask(server, "X-Other", "x").text().contains("this is not sent"));
    });
}

/// As in nginx, a named file is answered with 403 if a route denies it, and with 401 if a route
/// asks for a password.
#[test]
fn routes_hold_for_what_applications_name() {
    let site = site(BY_NAME);
    site.write("shut/s.txt", "secret");
    site.write("inner/i.txt", "for applications");
    site.write("locked/l.txt", "locked");
    site.write("mixed.php", "<?php header('X-ZeroCopy: chunked');
        $name = $_GET['name']; printf(\"%x;file\\r\\n%s\\r\\n0\\r\\n\\r\\n\", strlen($name), $name);");
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let routes = format!(
        "[[site.route]]\nprefix = '/inner'\ninternal = true\n\
         [[site.route]]\nprefix = ['/shut', '/inner', '/protected/shut']\ndeny = true\n\
         [[site.route]]\nprefix = '/files'\nauth = {{ users = '{}' }}\n\
         [[site.route]]\nprefix = '/locked'\nallow_from = '192.0.2.1'\n",
        users.display()
    );
    site.write_at(site.outside("private/shut/s.txt"), "secret");
    let root = site.root().display().to_string();
    let private = site.outside("private").display().to_string();
    let fpm = Fpm::start(site.root(), "");
    let php = fpm.php().replace(".php=", "");
    for more in [String::new(), format!("fastcgi = {{ '.php' = '{php}' }}\n")] {
        let text = format!(
            "listen = '127.0.0.1:0'\nthreads = 1\n[[site]]\nroot = 'root'\naccel = {{ '/protected' = '{private}' }}\n{more}{routes}"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server =
            Server::try_run(&config, site.root(), 2).unwrap_or_else(|f| panic!("{}", f.stderr));
        for (field, value, status) in [
            ("X-Accel-Redirect", "/shut/s.txt".to_owned(), 403),
            ("X-Accel-Redirect", "//shut/./s.txt".to_owned(), 403),
            ("X-Accel-Redirect", "/sh%2575t/s.txt".to_owned(), 404),
            ("X-LiteSpeed-Location", "/%73hut/s.txt?x=1".to_owned(), 403),
            ("X-Accel-Redirect", "/protected/../root/shut/s.txt".to_owned(), 404),
            ("X-Accel-Redirect", "/protected/..%2froot/shut/s.txt".to_owned(), 404),
            ("X-Accel-Redirect", "/files/../../secret/s.txt".to_owned(), 403),
            ("X-Accel-Redirect", "/protected/shut/s.txt".to_owned(), 403),
            ("X-Accel-Redirect", "/protected/c%20d.txt".to_owned(), 200),
            ("X-Sendfile", format!("{root}/shut/s.txt"), 403),
            ("X-Sendfile", format!("{root}//shut/s.txt"), 403),
            ("X-Sendfile2", format!("{root}/shut/s.txt 0-"), 403),
            ("X-Accel-Redirect", "/inner/i.txt".to_owned(), 200),
            ("X-Sendfile", format!("{root}/inner/i.txt"), 200),
            ("X-Accel-Redirect", "/locked/l.txt".to_owned(), 403),
            ("X-Accel-Redirect", "/files/a.bin".to_owned(), 401),
            ("X-Sendfile", format!("{root}/files/a.bin"), 401),
        ] {
            let response = ask(&server, field, &value);
            assert_eq!(response.status(), status, "{field}: {value}: {}", response.text());
            assert!(!response.text().contains("secret"));
            if status == 401 {
                assert!(response.header("WWW-Authenticate").is_some());
                let right = Request::get(&target(field, &value))
                    .header("Authorization", "Basic YW5uOm9wZW4gc2VzYW1l");
                assert_eq!(server.ask(&right).expect(200), pattern(1, 300_000));
            }
        }
        server.await_log("a route with internal = true in place of deny");
        server.get("/inner/i.txt").expect(404);
        server.get("/shut/s.txt").expect(403);
    }
}

/// Sites of one pool of workers, `a.test` and `b.test`, each with further keys.
fn two_sites(site: &Site, a: &str, b: &str) -> Server {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n\
         [[site]]\nhosts = 'a.test'\nroot = 'root'\n{a}\
         [[site]]\nhosts = 'b.test'\n{b}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 1).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

fn ask_host(server: &Server, host: &str, field: &str, value: &str) -> Response {
    server.ask(&Request::get(&target(field, value)).header("Host", host))
}

/// For a script of another site of the pool, the URIs of `accel` lead nowhere (as in nginx), so
/// they lead past no route either.
#[test]
fn accel_of_a_site_is_for_its_own_scripts_alone() {
    let site = site(BY_NAME);
    let other = site.outside("other");
    site.write_at(other.join("send.php"), BY_NAME);
    for name in ["shut", "asks", "near", "open"] {
        site.write_at(other.join(name).join("f.txt"), name);
    }
    site.write_at(site.outside("links/own.txt"), "own");
    std::os::unix::fs::symlink(other.join("shut/f.txt"), site.outside("links/l.txt")).unwrap();
    let users = site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let server = two_sites(
        &site,
        "accel = { '/other' = 'other', '/links' = 'links' }\n",
        &format!(
            "root = 'other'\n[[site.route]]\nprefix = '/shut'\ndeny = true\n\
             [[site.route]]\nprefix = '/asks'\nauth = {{ users = '{}' }}\n\
             [[site.route]]\nprefix = '/near'\nallow_from = '192.0.2.1'\n",
            users.display()
        ),
    );
    for field in ["X-Accel-Redirect", "X-LiteSpeed-Location"] {
        for (uri, of_a, of_b) in [
            ("/other/shut/f.txt", 200, 404),
            ("/other/asks/f.txt", 200, 404),
            ("/other/near/f.txt", 200, 404),
            ("/other/open/f.txt", 200, 404),
            ("/links/own.txt", 200, 404),
            ("/links/l.txt", 403, 404),
            ("/shut/f.txt", 404, 403),
            ("/asks/f.txt", 404, 401),
            ("/near/f.txt", 404, 403),
            ("/open/f.txt", 404, 200),
        ] {
            for (host, expected) in [("a.test", of_a), ("b.test", of_b), ("a.test", of_a)] {
                let response = ask_host(&server, host, field, uri);
                assert_eq!(response.status(), expected, "{host}: {field}: {uri}");
            }
        }
    }
}

#[test]
fn sites_of_a_pool_have_different_folders_for_one_prefix_of_accel() {
    let script = "<?php
        header('X-Accel-Redirect: ' . $_GET['uri']);
        if (isset($_GET['remove'])) unlink($_GET['remove']);
        echo json_encode([isset($_SERVER['SENDOFF_ACCEL']), getenv('SENDOFF_ACCEL')]);";
    let site = site(script);
    for path in ["one/f.txt", "two/f.txt", "deep/f.txt", "two/deep/f.txt"] {
        site.write_at(site.outside(path), path);
    }
    let server = two_sites(
        &site,
        "accel = { '/files' = 'one', '/files/deep' = 'deep' }\n",
        "root = 'root'\naccel = { '/files' = 'two' }\n",
    );
    for remove in [false, true] {
        for (host, uri, path) in [
            ("a.test", "/files/f.txt", "one/f.txt"),
            ("b.test", "/files/f.txt", "two/f.txt"),
            ("a.test", "/files/deep/f.txt", "deep/f.txt"),
            ("b.test", "/files/deep/f.txt", "two/deep/f.txt"),
        ] {
            let file = site.write_at(site.outside(path), path);
            let remove = remove.then(|| format!("&remove={}", file.display()));
            let target = format!("/send.php?uri={uri}{}", remove.unwrap_or_default());
            let response = server.ask(&Request::get(&target).header("Host", host));
            let seen = (response.status(), response.text());
            assert_eq!(seen, (200, path.to_owned()), "{host}{target}");
        }
    }
    // Scripts do not see how the worker learns the folders.
    let none = server.ask(&Request::get("/send.php?uri=").header("Host", "a.test"));
    assert_eq!(none.text(), "[false,false]");
}

/// A file that its name no longer leads to is sent only if the routes would let it be named where
/// it was opened.
#[test]
fn routes_hold_for_the_place_of_an_open_file() {
    let script = "<?php
        [$link, $to] = [$_GET['link'], $_GET['to']];
        symlink($to, $link);
        header('X-Accel-Redirect: ' . $_GET['uri']);
        unlink($link);";
    let site = site(script);
    site.write("shut/s.txt", "secret");
    let private = site.outside("private");
    site.write_at(private.join("shut/s.txt"), "secret");
    site.write_at(private.join("d.txt"), "allowed");
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 1\n[[site]]\nroot = 'root'\n\
         accel = {{ '/protected' = '{}' }}\n\
         [[site.route]]\nprefix = ['/shut', '/protected/shut']\ndeny = true\n",
        private.display()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server =
        Server::try_run(&config, site.root(), 1).unwrap_or_else(|f| panic!("{}", f.stderr));
    for (uri, link, to, status) in [
        ("/l.txt", site.path("l.txt"), "files/a.bin", 200),
        ("/l.txt", site.path("l.txt"), "shut/s.txt", 403),
        ("/protected/l.txt", private.join("l.txt"), "d.txt", 200),
        ("/protected/l.txt", private.join("l.txt"), "shut/s.txt", 403),
    ] {
        let target = format!("/send.php?uri={uri}&link={}&to={to}", link.display());
        let response = server.get(&target);
        assert_eq!(response.status(), status, "{uri} to {to}: {}", server.log());
        assert!(!response.text().contains("secret"));
    }
}

/// Links in a folder, such as links from an unpacked archive, give no access to files elsewhere.
#[test]
fn links_lead_out_of_no_folder() {
    let site = site(BY_NAME);
    let private = site.outside("private");
    let secret = site.outside("secret/s.txt");
    // Link and file have one owner: a client may ask for the one in the root.
    let owner = secret.metadata().unwrap();
    for link in [private.join("out"), site.path("out.txt")] {
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    std::os::unix::fs::symlink("c d.txt", private.join("in")).unwrap();
    std::os::unix::fs::symlink(private.join("c d.txt"), site.path("in.txt")).unwrap();
    let accel = format!("/protected={}", private.display());
    let options = ["--sendfile-from", private.to_str().unwrap(), "--accel", &accel];
    both(&site, &options, |server| {
        server.get("/out.txt").expect(200);
        for (field, value, status) in [
            ("X-Sendfile", private.join("out").display().to_string(), 403),
            ("X-Sendfile", site.path("out.txt").display().to_string(), 403),
            ("X-Accel-Redirect", "/protected/out".to_owned(), 403),
            ("X-Accel-Redirect", "/out.txt".to_owned(), 403),
            ("X-Sendfile", private.join("in").display().to_string(), 200),
            ("X-Accel-Redirect", "/protected/in".to_owned(), 200),
            // The operator lets everything in that folder be named.
            ("X-Accel-Redirect", "/in.txt".to_owned(), 200),
        ] {
            let response = ask(server, field, &value);
            assert_eq!(response.status(), status, "{field}: {value}");
            assert!(!response.text().contains("secret"));
        }
        server.await_log("--follow-symlinks-into");
    });
}

#[test]
fn a_file_may_be_removed_once_the_header_has_left() {
    // The fifo tells the script that the file is open: its client has the head.
    let script = "<?php
        $file = __DIR__ . '/files/a.bin';
        header('X-Sendfile: ' . $file);
        echo 'x';
        while (ob_get_level()) ob_end_flush();
        flush();
        file_get_contents(__DIR__ . '/go');
        unlink($file);
        file_put_contents(__DIR__ . '/gone', 'yes');";
    let site = site(script);
    let fifo = site.fifo("go");
    let fpm = Fpm::start(site.root(), "");
    for options in [vec![], vec!["--fastcgi".to_owned(), fpm.php()]] {
        site.write("files/a.bin", pattern(1, 3_000_000));
        let _ = std::fs::remove_file(site.path("gone"));
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let server = Server::start(site.root(), &options);
        let mut client = sendoff_tests::Client::connect_narrow(server.addr(), 4096);
        client.send(Request::get("/send.php").bytes());
        let head = client.head().unwrap();
        fifo.release();
        let gone = || site.path("gone").exists();
        assert!(wait::until(LIMIT, gone), "the script was cut short");
        assert!(client.body_of(head, "GET").unwrap().expect(200) == pattern(1, 3_000_000));
    }
}

#[test]
fn names_in_the_body_become_files() {
    let script = "<?php
        $root = __DIR__;
        [$a, $b] = [\"$root/files/a.bin\", $_GET['b'] ?? \"$root/small.txt\"];
        $places = [[5, strlen($a)], [10 + strlen($a), strlen($b)]];
        header('X-ZeroCopy:' . implode(':', array_map(fn($p) => \"$p[0]/$p[1]\", $places)));
        echo \"hello{$a}world{$b}bye\";";
    let site = site(script);
    site.write("small.txt", "<small>");
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let response = server.get("/send.php");
    let expected = [b"hello", &pattern(1, 300_000)[..], b"world", b"<small>", b"bye"].concat();
    assert!(response.expect(200) == expected);
    assert_eq!(response.header("x-zerocopy"), None);
    let old = Request::get("/send.php").http10();
    assert!(server.ask(&old).expect(200) == expected);
    let secret = format!("/send.php?b={}", site.outside("secret/s.txt").display());
    let cut = server.connect().try_ask(&Request::get(&secret));
    assert!(matches!(cut, Err(Broken::Cut(_) | Broken::Closed)), "{cut:?}");
    server.await_log("--sendfile-from");
    drop(server);
    // Our own workers hand files over; for them the field has no meaning.
    let server = Server::start(site.root(), &[]);
    assert!(server.get("/send.php").header("x-zerocopy").is_some());
}

#[test]
fn symfony_finds_out_by_itself() {
    let script = "<?php
        require '/usr/share/php/Symfony/Component/HttpFoundation/autoload.php';
        use Symfony\\Component\\HttpFoundation\\{BinaryFileResponse, Request};
        BinaryFileResponse::trustXSendfileTypeHeader();
        $request = Request::createFromGlobals();
        $type = ['Content-Type' => 'application/x-thing'];
        $response = new BinaryFileResponse(dirname(__DIR__) . '/private/c d.txt', 200, $type);
        $response->headers->set('X-Asked', $request->headers->get('X-Sendfile-Type', 'no'));
        $response->prepare($request)->send();";
    let site = site(script);
    let private = site.outside("private").display().to_string();
    let contents = pattern(2, 200_000);
    for (options, asked) in [(vec![], "no"), (vec!["--sendfile-from", &*private], "X-Sendfile")] {
        both(&site, &options, |server| {
            // The client's own field has no effect.
            let whole = Request::get("/send.php").header("X-Sendfile-Type", "X-Accel-Redirect");
            let response = server.ask(&whole.header("X-Accel-Mapping", "/=/etc"));
            assert!(response.expect(200) == contents);
            assert_eq!(response.header("x-asked"), Some(asked));
            assert_eq!(response.header("content-type"), Some("application/x-thing"));
            let part = server.ask(&Request::get("/send.php").header("Range", "bytes=5-14"));
            assert_eq!(part.expect(206), &contents[5..15]);
            let tail = server.ask(&Request::get("/send.php").header("Range", "bytes=-10"));
            assert_eq!(tail.expect(206), &contents[contents.len() - 10..]);
        });
    }
}

/// A script that names a file and then changes it.
const NAMED: &str = "<?php
    $file = $_GET['file'];
    header('Content-Type: application/x-thing');
    header(($_GET['field'] ?? 'X-Sendfile') . ': ' . ($_GET['value'] ?? $file));
    switch ($_GET['then']) {
        case 'unlink': unlink($file); break;
        case 'replace': file_put_contents(\"$file.new\", 'new'); rename(\"$file.new\", $file); break;
        case 'rewrite': file_put_contents($file, 'rewritten'); break;
        case 'other': unlink($file); header('X-Sendfile: ' . $_GET['other']); break;
        case 'second': unlink($file); header('X-Sendfile: ' . $_GET['other'], false); break;
        case 'remove': unlink($file); header_remove('x-sendfile'); break;
        case 'removeall': header_remove(); break;
        case 'again': unlink($file); file_put_contents($file, 'again'); header('X-Sendfile: ' . $file); break;
        case 'none': unlink($file); header('X-Sendfile: ' . $file); break;
        case 'fatal': unlink($file); no_such_function(); break;
    }
    echo 'this is the body';";

#[test]
fn a_worker_opens_the_file_when_the_header_is_set() {
    let site = Site::with("send.php", NAMED);
    let private = site.outside("private");
    let secret = site.write_at(site.outside("secret/s.txt"), "secret");
    let other = site.write_at(private.join("other.bin"), "the other").display().to_string();
    let accel = format!("/protected={}", private.display());
    let options = ["--sendfile-from", private.to_str().unwrap(), "--accel", &accel];
    let server = Server::start(site.root(), &options);
    for big in [false, true] {
        let contents = if big { pattern(1, 300_000) } else { b"small".to_vec() };
        let get = |path: std::path::PathBuf, then: &str, more: &str| {
            let path = site.write_at(path, &contents);
            let target =
                format!("/send.php?file={}&then={then}&other={other}{more}", path.display());
            server.get(&target)
        };
        let place = || private.join("a.bin");
        for (then, expected) in [
            ("nothing", &contents[..]),
            ("unlink", &contents),
            ("replace", &contents),
            ("rewrite", b"rewritten"),
            ("other", b"the other"),
            ("second", &contents),
            ("again", b"again"),
            ("remove", b"this is the body"),
            ("removeall", b"this is the body"),
        ] {
            let response = get(place(), then, "");
            assert!(response.expect(200) == expected, "{then}: {:?}", response.text());
            if expected == contents {
                assert_eq!(response.header("content-type"), Some("application/x-thing"));
                assert_eq!(response.header("x-sendfile"), None);
                let length = contents.len().to_string();
                assert_eq!(response.header("content-length"), Some(&*length));
            }
        }
        get(place(), "none", "").expect(404);
        // A script that fails: the named file is sent with its status, as with a file that exists.
        assert!(get(place(), "fatal", "").expect(500) == contents);
        for uri in ["/protected/a.bin", "/protected/%61.bin?x=1"] {
            let more = format!("&field=X-Accel-Redirect&value={}", uri.replace('%', "%25"));
            assert!(get(place(), "unlink", &more).expect(200) == contents, "{uri}");
        }
        let more = "&field=X-Accel-Redirect&value=/files/b.bin";
        assert!(get(site.path("files/b.bin"), "unlink", more).expect(200) == contents);
        // By another name of the folder.
        let alias = site.outside("alias");
        let _ = std::fs::remove_file(&alias);
        std::os::unix::fs::symlink("private", &alias).unwrap();
        assert!(get(alias.join("a.bin"), "unlink", "").expect(200) == contents);
    }
    // A file that must not be sent is not sent either when its name is gone.
    for name in ["../secret/a.bin", ".hidden/a.bin", "a.php", "../private/../secret/a.bin"] {
        for then in ["nothing", "unlink", "replace"] {
            let path = site.write_at(site.path(name), "private");
            let target = format!("/send.php?file={}&then={then}", path.display());
            let response = server.get(&target);
            assert_eq!(response.status(), 403, "{name} {then}");
            assert!(!response.text().contains("private"));
        }
    }
    // A name that may be sent, for a file that may not.
    let link = private.join("link");
    std::os::unix::fs::symlink(&secret, &link).unwrap();
    for field in ["X-Sendfile", "X-Accel-Redirect&value=/protected/link"] {
        let link = link.display();
        let response = server.get(&format!("/send.php?file={link}&then=unlink&field={field}"));
        assert_eq!(response.status(), 403, "{field}");
        std::os::unix::fs::symlink(&secret, link.to_string()).unwrap();
    }
    // Opening a FIFO must not block.
    let _pipe = site.fifo("pipe");
    let pipe = site.path("pipe");
    let response = server.get(&format!("/send.php?file={}&then=nothing", pipe.display()));
    assert_eq!(response.status(), 403);
}

#[test]
fn symfony_deletes_the_file_after_it_was_sent() {
    let script = "<?php
        require '/usr/share/php/Symfony/Component/HttpFoundation/autoload.php';
        use Symfony\\Component\\HttpFoundation\\{BinaryFileResponse, Request};
        BinaryFileResponse::trustXSendfileTypeHeader();
        $request = Request::createFromGlobals();
        $type = ['Content-Type' => 'application/x-thing'];
        $response = new BinaryFileResponse(__DIR__ . '/private/once.bin', 200, $type);
        $response->deleteFileAfterSend();
        $response->headers->set('X-Asked', $request->headers->get('X-Sendfile-Type', 'no'));
        $response->prepare($request)->send();";
    let site = Site::with("send.php", script);
    let path = site.path("private/once.bin");
    let contents = pattern(2, 200_000);
    site.write_at(path.clone(), &contents);
    let private = site.path("private").display().to_string();
    for options in [&[][..], &["--sendfile-from", &private]] {
        let server = Server::start(site.root(), options);
        for range in [None, Some("bytes=5-14")] {
            site.write_at(path.clone(), &contents);
            let mut request = Request::get("/send.php");
            if let Some(range) = range {
                request = request.header("Range", range);
            }
            let response = server.ask(&request);
            let asked = if options.is_empty() { "no" } else { "X-Sendfile" };
            assert_eq!(response.header("x-asked"), Some(asked));
            match range {
                None => assert!(response.expect(200) == contents),
                Some(_) => assert_eq!(response.expect(206), &contents[5..15]),
            }
            let gone = || !path.exists();
            assert!(wait::until(LIMIT, gone), "it was not deleted");
        }
    }
}

/// As with lighttpd, the application chooses the ranges itself.
#[test]
fn ranges_of_several_files_become_the_body() {
    let script = "<?php
        http_response_code(206);
        header('Content-Type: application/x-thing');
        header('Content-Range: bytes 10-19/300000');
        header('Content-Length: 7');
        header('X-Sendfile2: ' . $_GET['value']);
        echo 'this is not sent';";
    let site = site(script);
    let a = site.path("files/a.bin").display().to_string();
    let spaced = site.outside("private/c d.txt").display().to_string();
    let private = site.outside("private").display().to_string();
    both(&site, &["--sendfile-from", &private], |server| {
        let get = |value: &str| {
            let value = value.replace('%', "%25").replace(' ', "%20");
            server.get(&format!("/send.php?value={value}"))
        };
        let response = get(&format!("{a} 10-19,{} 0-, {a} 299990-", spaced.replace(' ', "%20")));
        let (one, two) = (pattern(1, 300_000), pattern(2, 200_000));
        let expected = [&one[10..20], &two[..], &one[299_990..]].concat();
        assert!(response.expect(206) == expected);
        assert_eq!(response.header("content-length"), Some(&*expected.len().to_string()));
        assert_eq!(response.header("content-range"), Some("bytes 10-19/300000"));
        assert_eq!(response.header("x-sendfile2"), None);
        assert_eq!(get(&format!("{a} 10-19,/etc/passwd 0-")).status(), 403);
        assert_eq!(get(&format!("{a}x 0-")).status(), 404);
        assert_eq!(get(&format!("{a} 0-300000")).status(), 502);
        assert_eq!(get(&a).status(), 502);
    });
}

/// A body with the names of files, in both forms.
const MIXED: &str = "<?php
    $root = __DIR__;
    [$a, $b] = [\"$root/files/a.bin\", $_GET['b'] ?? \"$root/small.txt\"];
    if (($_GET['how'] ?? '') === 'chunked') {
        header('X-ZeroCopy: chunked');
        $chunk = fn ($text, $what = '') => printf(\"%x%s\\r\\n%s\\r\\n\", strlen($text), $what, $text);
        $chunk('hello');
        $chunk($a, ';file');
        flush();
        $chunk('world');
        $chunk($b, $_GET['range'] ?? ';file');
        if (isset($_GET['handed'])) {
            printf(\"%x\\r\\n\", filesize($a));
            readfile($a);
            echo \"\\r\\n\";
        }
        $chunk('bye');
        echo $_GET['end'] ?? \"0\\r\\n\\r\\n\";
        exit;
    }
    $places = [[5, strlen($a)], [10 + strlen($a), strlen($b)]];
    header('X-ZeroCopy:' . ($_GET['places'] ?? implode(':', array_map(fn($p) => \"$p[0]/$p[1]\", $places))));
    echo \"hello{$a}world{$b}bye\";";

#[test]
fn bodies_mix_bytes_and_files_whoever_makes_them() {
    let site = site(MIXED);
    site.write("small.txt", "<small>");
    let files = site.path("files").display().to_string();
    let a = pattern(1, 300_000);
    both(&site, &["--sendfile-from", &files], |server| {
        let expected = [b"hello", &a[..], b"world", b"<small>", b"bye"].concat();
        for target in ["/send.php", "/send.php?how=chunked"] {
            let response = server.get(target);
            assert!(response.expect(200) == expected, "{target}: {:?}", response.text().len());
            assert_eq!(response.header("x-zerocopy"), None);
            assert_eq!(response.header("content-length"), None);
            let old = server.ask(&Request::get(target).http10());
            assert!(old.expect(200) == expected, "{target}");
            // A response without a body has no names in it.
            let mut client = server.connect();
            let head = client.ask(&Request::new("HEAD", target));
            assert!(head.expect(200).is_empty());
            assert!(client.ask(&Request::get(target)).expect(200) == expected);
        }
        let part = server.get("/send.php?how=chunked&range=;file=1-5");
        assert!(part.text().ends_with("worldsmallbye"));
        let handed = server.get("/send.php?how=chunked&handed=1");
        let whole = [&expected[..expected.len() - 3], &a[..], b"bye"].concat();
        assert!(handed.expect(200) == whole);
        let secret = site.outside("secret/s.txt").display().to_string();
        for bad in [
            format!("b={secret}"),
            format!("how=chunked&b={secret}"),
            "how=chunked&range=;file=8-".to_owned(),
            "how=chunked&range=;x".to_owned(),
            "how=chunked&end=".to_owned(),
            "how=chunked&end=0".to_owned(),
            "how=chunked&end=0%0d%0a%0d%0amore".to_owned(),
            "how=chunked&end=ffffffffffffffff%0d%0ax".to_owned(),
            "places=5/100000".to_owned(),
            "places=0/1:0/1".to_owned(),
            "places=99999999/5".to_owned(),
        ] {
            match server.connect().try_ask(&Request::get(&format!("/send.php?{bad}"))) {
                Err(Broken::Cut(_) | Broken::Closed) => {}
                Ok(response) => assert_eq!(response.status(), 502, "{bad}"),
                Err(other) => panic!("{bad}: {other:?}"),
            }
        }
        assert!(server.get("/send.php").expect(200) == expected);
    });
}

/// The value of LiteSpeed's `X-LiteSpeed-Location` is a URI, too.
#[test]
fn the_name_of_litespeed_leads_to_the_same_file() {
    let site = site(BY_NAME);
    let accel = format!("/protected={}", site.outside("private").display());
    both(&site, &["--accel", &accel], |server| {
        let response = ask(server, "X-LiteSpeed-Location", "/protected/c%20d.txt");
        assert!(response.expect(200) == pattern(2, 200_000));
        assert_eq!(response.header("x-litespeed-location"), None);
        assert_eq!(ask(server, "X-LiteSpeed-Location", "/../secret/s.txt").status(), 403);
    });
}

const BY_LIGHTTPD: &str = "<?php
    if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
    header('Content-Type: application/x-thing');
    header('Set-Cookie: a=b');
    header($_GET['field'] . ': ' . $_GET['value']);
    echo 'this is not sent';";

#[test]
fn files_and_ranges_are_those_of_lighttpd() {
    let site = site(BY_LIGHTTPD);
    let fpm = Fpm::start(site.root(), "");
    let socket = fpm.address();
    let socket = socket.strip_prefix("unix:").unwrap();
    let (root, private) = (site.root().display(), site.outside("private"));
    let lines = format!(
        "server.modules += (\"mod_fastcgi\")\nfastcgi.server = (\".php\" => ((\"socket\" => \"{socket}\", \
         \"x-sendfile\" => \"enable\", \"x-sendfile-docroot\" => (\"{root}\", \"{}\"))))",
        private.display()
    );
    let theirs = Lighttpd::start(site.root(), &lines);
    let (a, spaced) = (site.path("files/a.bin"), private.join("c d.txt"));
    let (a, spaced) = (a.display().to_string(), spaced.display().to_string().replace(' ', "%20"));
    let secret = site.outside("secret/s.txt").display().to_string();
    both(&site, &["--sendfile-from", private.to_str().unwrap()], |server| {
        for (field, value, more) in [
            ("X-Sendfile", a.clone(), ""),
            ("X-Sendfile", a.clone(), "&status=404"),
            ("X-Sendfile", format!("{a}x"), ""),
            ("X-Sendfile", secret.clone(), ""),
            ("X-Sendfile", format!("{}/../secret/s.txt", private.display()), ""),
            ("X-Sendfile2", format!("{a} 0-"), ""),
            ("X-Sendfile2", format!("{a} 10-19"), "&status=206"),
            ("X-Sendfile2", format!("{a} 10-19, {spaced} 0-,{a} 299990-"), ""),
            ("X-Sendfile2", format!("{secret} 0-"), ""),
            ("X-Sendfile2", format!("{a}x 0-"), ""),
        ] {
            let target = format!("{}{more}", target(field, &value));
            let (ours, theirs) = (server.get(&target), theirs.ask(&Request::get(&target)));
            let shown = format!("{field}: {value}{more}");
            if theirs.status() >= 400 && more.is_empty() {
                // lighttpd answers some of these with 502, and some with 404.
                assert!(ours.status() >= 400, "{shown}: {}", ours.status());
                assert!(!ours.text().contains("secret"), "{shown}");
                continue;
            }
            assert_eq!(ours.status(), theirs.status(), "{shown}");
            assert!(ours.body == theirs.body, "{shown}");
            for name in ["content-type", "set-cookie", "content-length"] {
                assert_eq!(ours.header(name), theirs.header(name), "{shown}: {name}");
            }
        }
    });
}

/// Values that no application sends in good faith: an answer comes, and the server goes on.
#[test]
fn hostile_values_are_answered() {
    let site = site("<?php foreach ($_GET['h'] as $h) header($h, false); echo 'own';");
    let root = site.root().display().to_string();
    let a = format!("{root}/files/a.bin");
    let long = "x".repeat(60_000);
    let many = format!("X-Sendfile2: {}", format!("{a} 0-0,").repeat(60_000 / (a.len() + 5)));
    both(&site, &[], |server| {
        let get = |heads: &[&str]| {
            let encode = |text: &str| text.bytes().map(|b| format!("%{b:02x}")).collect::<String>();
            let query: Vec<_> = heads.iter().map(|head| format!("h[]={}", encode(head))).collect();
            // Longer than a request line may be.
            let post = Request::get(&format!("/send.php?{}", query.join("&")));
            server.connect().try_ask(&post)
        };
        for (heads, statuses) in [
            (&["X-Sendfile: ", "X-Accel-Redirect: "][..], &[200][..]),
            (&["X-Sendfile: /", "X-Sendfile: /etc/passwd"], &[403]),
            (&["X-Accel-Redirect: //etc/passwd"], &[404, 403]),
            (&["X-Accel-Redirect: /\u{ff}"], &[404]),
            (&["X-Accel-Redirect: http://127.0.0.1/"], &[403]),
            (&["X-Accel-Redirect: /%"], &[403]),
            (&["X-Accel-Redirect: /send.php/files/a.bin"], &[403, 404]),
            (&["X-Accel-Redirect: /files/a.bin/"], &[403, 404]),
            (&["X-Accel-Limit-Rate: 99999999999999999999", "X-Accel-Charset: \t"], &[200]),
            (&["X-Accel-Buffering: no", "X-Accel-Limit-Rate: 18446744073709551615"], &[200]),
            (&["X-Sendfile2: ,,,, ,"], &[200]),
            (&["X-Sendfile2: / 0-"], &[403]),
            (&["X-Reproxy-URL: http://127.0.0.1/"], &[403]),
            (&["X-Reproxy-URL:   ", "X-Reproxy-Expected-Size: x"], &[200, 403, 502]),
            (&["X-Sendfile: /proc/self/environ", "X-Accel-Redirect: /files/a.bin"], &[403]),
            (&["X-Sendfile: /dev/zero"], &[403]),
        ] {
            let response = get(heads).unwrap_or_else(|broken| panic!("{heads:?}: {broken:?}"));
            assert!(statuses.contains(&response.status()), "{heads:?}: {}", response.status());
            assert!(!response.text().contains("root:"), "{heads:?}");
        }
        site.write("long.php", format!("<?php header('X-Accel-Redirect: /{long}'); echo 'own';"));
        assert!(server.get("/long.php").status() >= 400);
        site.write("many.php", format!("<?php header('{many}'); echo 'own';"));
        let zero = a.len() + 5;
        assert_eq!(server.get("/many.php").expect(200).len(), 60_000 / zero);
        assert_eq!(server.get("/send.php?h[]=A:b").text(), "own");
    });
}
