//! Request paths that try to run a file that is not a script, to reveal a script's source, or to
//! leave the site.

use sendoff_tests::{Broken, Request, Server, Site};
use std::os::unix::fs::symlink;

#[test]
fn names_cannot_be_tricked() {
    let site = Site::with("index.php", "<?php echo 'front controller';");
    site.write("page.php", "<?php /* SOURCE */ echo 'page';");
    site.write("up.jpg", "<?php echo 'EXEC', 'UTED'; /* an upload */");
    site.write("up.php.jpg", "<?php echo 'EXEC', 'UTED';");
    site.write("up.phps", "<?php echo 'EXEC', 'UTED';");
    site.write(".hidden.php", "<?php echo 'EXEC', 'UTED';");
    site.write(".dir/x.php", "<?php echo 'EXEC', 'UTED';");
    site.folder("folder.php");
    site.write_at(site.outside("secret.txt"), "SECRET");
    site.write_at(site.outside("secret.php"), "<?php echo 'EXEC', 'UTED';");
    symlink(site.outside("secret.php"), site.path("link.php")).unwrap();
    symlink(site.outside(""), site.path("out")).unwrap();
    let server = Server::start(site.root(), &[]);
    for target in [
        "/up.jpg/x.php",
        "/up.jpg/.php",
        "/up.jpg/",
        "/up.jpg%00.php",
        "/up.jpg%00/x.php",
        "/up.jpg%20.php",
        "/up.jpg/page.php/x.php",
        "/up.php.jpg",
        "/up.php.jpg/x.php",
        "/page.php%00",
        "/page.php%00.jpg",
        "/page.php.",
        "/page.php...",
        "/page.php%20",
        "/page.php%09",
        "/page.php%0a",
        "/page.php%0d%0aX-Injected:%201",
        "/page.php::$DATA",
        "/page.PHP",
        "/page.phP",
        "/page.php~",
        "/page.php%2f",
        "/page.php%2fx",
        "/page.php%5c",
        "/page.php\\x",
        "/page.php/../up.jpg/x.php",
        "/.hidden.php",
        "/%2ehidden.php",
        "/.dir/x.php",
        "/link.php",
        "/out/secret.php",
        "/out/secret.txt",
        "/folder.php",
        "/folder.php/",
        "/folder.php/x.php",
        "/../secret.txt",
        "/../secret.php",
        "/x/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2E%2E/secret.php",
        "/.%2e/secret.txt",
        "/..%2fsecret.txt",
        "/x/..%2f..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%252e%252e/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/..;/secret.txt",
        "/.../secret.txt",
        "//../secret.txt",
        "/./../secret.txt",
        "/page.php/../../secret.txt",
        "/%",
        "/%zz",
        "/%2",
    ] {
        let mut client = server.connect();
        let response = match client.try_ask(&Request::get(target)) {
            Ok(response) => response,
            Err(Broken::Closed) => panic!("{target}: closed without an answer"),
            Err(other) => panic!("{target}: {other:?}"),
        };
        let text = response.text();
        for forbidden in ["EXECUTED", "SECRET", "SOURCE", "<?php /*"] {
            assert!(!text.contains(forbidden), "{target}: {text}");
        }
        assert_eq!(response.header("x-injected"), None, "{target}");
        assert!(response.status() < 500, "{target}: {}", response.status());
    }
    // A picture is sent as a picture, also if it contains PHP code.
    assert!(server.page("/up.jpg").starts_with("<?php"));
    for target in [
        "/page.php",
        "/%70age.php",
        "/page%2ephp",
        "//page.php",
        "/x/../page.php",
        "/page.php/a/../b",
    ] {
        assert_eq!(server.page(target), "page", "{target}");
    }
}

#[test]
fn odd_targets_get_an_answer() {
    let site = Site::with("index.php", "<?php echo 'front';");
    let server = Server::start(site.root(), &[]);
    let long = format!("/{}", "a".repeat(5000));
    let deep = "/a".repeat(2000);
    let name = format!("/{}.php", "n".repeat(300));
    for target in [&*long, &*deep, &*name, "/a?b?c#d", "/[]{}|^", "/\"<>"] {
        let mut client = server.connect();
        let response = client.try_ask(&Request::get(target)).expect(target);
        assert!(
            matches!(response.status(), 200 | 400 | 404 | 414),
            "{target}: {}",
            response.status()
        );
    }
    for (request_line, expected) in [
        ("GET http://example.test/ HTTP/1.1", 200),
        ("GET http://example.test/no/such?x HTTP/1.1", 200),
        ("GET / HTTP/1.1", 200),
        ("GET index.php HTTP/1.1", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /\0 HTTP/1.1", 400),
        ("GET / x HTTP/1.1", 400),
    ] {
        let mut client = server.connect();
        client.send(format!("{request_line}\r\nHost: example.test\r\n\r\n"));
        assert_eq!(client.response("GET").status(), expected, "{request_line}");
    }
}
