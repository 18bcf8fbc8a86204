//! Files that applications name: `X-Sendfile`, `X-Accel-Redirect`, `X-ZeroCopy`.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use sendoff_tests::{Broken, Fpm, Request, Response, Server, Site, pattern};

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
        assert!(sendoff_tests::wait::until(sendoff_tests::LIMIT, gone), "the script was cut short");
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
    // Our own workers hand files over; for them it is a field like any other.
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
            // What a client says about it does not count.
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
