//! HTTP/2 as programs of others speak it: curl, nghttp, h2spec.

use std::path::PathBuf;
use std::process::{Command, Output};

use sendoff_tests::{Server, Site, pattern, repository};

fn site() -> Site {
    let site = Site::with("length.php", "<?php echo strlen(file_get_contents('php://input'));");
    site.write("file.php", "<?php readfile('large');");
    site.write("large", pattern(1, 3 << 20));
    site.write("index.html", "index");
    site
}

#[track_caller]
fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Output {
    let program = program.as_ref();
    let done = Command::new(program).args(arguments).output();
    done.unwrap_or_else(|error| panic!("{}: {error}; tools/install test", program.display()))
}

#[test]
fn curl() {
    let site = site();
    let server = Server::start(site.root(), &["--max-body", "5000000"]);
    let url = |path: &str| format!("http://{}{path}", server.clear_addr());
    let curl = |arguments: &[&str]| {
        let always = [
            "-q",
            "--noproxy",
            "*",
            "--silent",
            "--show-error",
            "--max-time",
            "30",
            "--http2-prior-knowledge",
        ];
        let done = run("curl", &[&always[..], arguments].concat());
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    for path in ["/large", "/file.php"] {
        assert!(curl(&[&url(path)]) == pattern(1, 3 << 20), "{path}");
    }
    let large = format!("@{}", site.path("large").display());
    assert_eq!(curl(&["--data-binary", &large, &url("/length.php")]), b"3145728");
    assert_eq!(
        curl(&["--data-binary", &large, "--header", "Expect: 100-continue", &url("/length.php")]),
        b"3145728"
    );
    let status = ["--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"];
    let status =
        |arguments: &[&str]| String::from_utf8(curl(&[&status[..], arguments].concat())).unwrap();
    assert_eq!(status(&["--head", &url("/large")]), "2 200");
    assert_eq!(status(&["--data-binary", &large, &url("/large")]), "2 405");
    let too_large = site.write("too-large", pattern(2, 6_000_000));
    let too_large = format!("@{}", too_large.display());
    assert_eq!(status(&["--data-binary", &too_large, &url("/length.php")]), "2 413");
}

/// By ALPN.
#[test]
fn curl_over_tls() {
    let site = site();
    site.write("seen.php", "<?php echo $_SERVER['SERVER_PROTOCOL'], ' ', $_SERVER['HTTPS'];");
    let server = Server::start(site.root(), &["--tls-listen", "127.0.0.1:0"]);
    let url = |path: &str| format!("https://{}{path}", server.tls_addr().unwrap());
    let curl = |arguments: &[&str]| {
        let always =
            ["-q", "--noproxy", "*", "--silent", "--show-error", "--max-time", "30", "--insecure"];
        let done = run("curl", &[&always[..], arguments].concat());
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    assert_eq!(curl(&[&url("/seen.php")]), b"HTTP/2.0 on");
    assert_eq!(curl(&["--http1.1", &url("/seen.php")]), b"HTTP/1.1 on");
    for path in ["/large", "/file.php"] {
        assert!(curl(&[&url(path)]) == pattern(1, 3 << 20), "{path}");
    }
    let large = format!("@{}", site.path("large").display());
    assert_eq!(curl(&["--data-binary", &large, &url("/length.php")]), b"3145728");
}

#[test]
fn nghttp() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let url = format!("http://{}/large", server.clear_addr());
    // With a small window, which needs many updates.
    let done = run("nghttp", &["--window-bits=10", "--no-dep", &url]);
    assert!(done.status.success() && done.stdout == pattern(1, 3 << 20));
    let script = format!("http://{}/file.php", server.clear_addr());
    let done = run("nghttp", &["--null-out", "--stat", "--multiply=50", &url, &script]);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.matches(" 200   3M ").count() == 100, "{said}");
}

/// The conformance tests of <https://github.com/summerwind/h2spec>.
#[test]
fn h2spec() {
    let site = site();
    let server = Server::start(site.root(), &["--tls-listen", "127.0.0.1:0"]);
    let run = |port: u16, more: &[&str]| {
        let always = ["--host", "127.0.0.1", "--timeout", "10", "--port", &port.to_string()];
        let done = run(tool(), &[&always[..], more].concat());
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let said = run(server.tls_addr().unwrap().port(), &["--tls", "--insecure"]);
    assert!(said.contains("145 tests, 145 passed, 0 skipped, 0 failed"), "{said}");
    // At an address that also speaks HTTP/1, a beginning of neither version is refused in HTTP/1;
    // h2spec expects silence.
    let said = run(server.clear_addr().port(), &[]);
    let (_, failures) = said.split_once("Failures:").unwrap_or(("", ""));
    let failed: Vec<_> = failures.lines().filter(|line| line.contains('\u{d7}')).collect();
    assert!(said.contains("145 tests, 144 passed, 0 skipped, 1 failed"), "{said}");
    assert!(
        matches!(failed[..], [only] if only.contains("Sends invalid connection preface")),
        "{said}"
    );
}

/// Builds the program if it has not been built yet.
fn tool() -> PathBuf {
    let script = repository::root().join("tools/h2spec");
    let done = run(&script, &[]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
}
