//! Files.

use std::time::{Duration, Instant};

use sendoff_tests::Request;

use super::Shown;
use super::machine::{Machine, Running};

pub(super) const TASKS: &[Shown] = &[
    ("Serve a single-page application", single_page),
    ("Cache files with hashes in their names", hashes),
    ("Make browsers ask again for HTML", html),
    ("Let pages of another site read responses (CORS)", one_origin),
    ("Reflect the origin of many sites (CORS)", reflected_origin),
    ("Stop hotlinks to pictures", hotlinks),
    ("Send large private downloads with X-Accel-Redirect", accel),
    ("Send large private downloads with X-Sendfile", sendfile),
    ("Keep a folder for X-Accel-Redirect inside the root", internal),
    ("Serve a folder outside the root", alias),
    ("List the files of a folder", listing),
    ("Limit the bandwidth of downloads", bandwidth),
    ("Compress responses", compress),
    ("Send pre-compressed files", pre_compressed),
    ("Show your own error pages", error_pages),
    ("Deny dotfiles and other private files", private_files),
    ("Allow one kind of file only", one_kind),
];

#[test]
fn files() {
    super::run(TASKS);
}

fn cache_of(run: &Running, url: &str) -> Option<String> {
    run.get(url).header("Cache-Control").map(str::to_owned)
}

fn listing(machine: Machine) {
    let run = machine.with("pub/a.txt", "a").with("pub/.env", "x").with("b.txt", "b").start();
    let page = run.text("http://example.org/pub/");
    assert!(page.contains("href=\"./a.txt\"") && !page.contains("env"), "{page}");
    assert_eq!(run.text("http://example.org/pub/a.txt"), "a");
    assert_eq!(run.status("http://example.org/"), 403);
}

fn bandwidth(machine: Machine) {
    let file = vec![b'x'; 600_000];
    let run = machine.with("downloads/a.iso", &file).start();
    let begun = Instant::now();
    assert_eq!(run.text("http://example.org/downloads/a.iso").len(), file.len());
    assert!(begun.elapsed() > Duration::from_millis(150), "{:?}", begun.elapsed());
}

fn single_page(machine: Machine) {
    let run = machine.with("index.html", "the page").with("app.js", "script").start();
    assert_eq!(run.text("http://example.org/"), "the page");
    assert_eq!(run.text("http://example.org/users/7"), "the page");
    assert_eq!(run.text("http://example.org/app.js"), "script");
    assert_eq!(cache_of(&run, "http://example.org/users/7").as_deref(), Some("no-cache"));
}

fn hashes(machine: Machine) {
    let run = machine.with("assets/app-4f2a91c7.js", "x").with("assets/app.js", "x").start();
    let said = run.command().to_lowercase();
    assert!(said.contains("\ncache-control: max-age=31536000, public, immutable\n"), "{said}");
    assert_eq!(cache_of(&run, "http://example.org/assets/app.js"), None);
}

fn html(machine: Machine) {
    let machine = machine.with("index.html", "x").with("a.html", "x").with("docs/index.html", "x");
    let run = machine.with("a.css", "x").start();
    for path in ["", "a.html", "docs/"] {
        let cache = cache_of(&run, &format!("http://example.org/{path}"));
        assert_eq!(cache.as_deref(), Some("no-cache"), "{path}");
    }
    assert_eq!(cache_of(&run, "http://example.org/a.css"), None);
}

const ALLOW: &str = "Access-Control-Allow-Origin";

fn one_origin(machine: Machine) {
    let run = machine.with("api/index.php", "<?php echo 'data';").with("a.txt", "").start();
    assert_eq!(run.get("http://example.org/a.txt").header("Vary"), None);
    let from = |origin: &str| {
        run.ask("http://example.org/api/", |request| request.header("Origin", origin))
    };
    let response = from("https://app.example.com");
    assert_eq!(
        (response.header(ALLOW), &*response.text()),
        (Some("https://app.example.com"), "data")
    );
    assert_eq!(response.header("Vary"), Some("Origin"));
    let other = from("https://app.example.com.evil.test");
    assert_eq!((other.header(ALLOW), other.header("Vary")), (None, Some("Origin")));
    let said = run.curl("curl -si -X OPTIONS -H 'Origin: https://app.example.com' -H 'Access-Control-Request-Method: PUT' http://example.org/api/");
    assert!(said.starts_with("HTTP/1.1 204 "), "{said}");
    for field in [
        "access-control-allow-origin: https://app.example.com",
        "access-control-allow-methods: get, post, put, delete",
        "access-control-max-age: 7200",
    ] {
        assert!(said.to_lowercase().contains(&format!("\n{field}\n")), "{field}\n{said}");
    }
}

fn reflected_origin(machine: Machine) {
    let run = machine.with("api/a.json", "{}").with("a.txt", "").start();
    assert_eq!(run.get("http://example.org/a.txt").header("Vary"), None);
    let from = |origin: &str| {
        run.ask("http://example.org/api/a.json", |request| request.header("Origin", origin))
    };
    for origin in ["https://one.example.com", "https://two.example.com", "https://example.net"] {
        let response = from(origin);
        assert_eq!(response.header(ALLOW), Some(origin));
        assert_eq!(response.header("Vary"), Some("Origin"));
    }
    for origin in ["https://example.com.evil.test", "https://a.b.example.com", "null"] {
        assert_eq!(from(origin).header(ALLOW), None);
    }
    let asked = run.ask("http://example.org/api/a.json", |_| {
        let request =
            Request::new("OPTIONS", "/api/a.json").header("Origin", "https://example.net");
        request.header("Access-Control-Request-Method", "PUT")
    });
    assert_eq!((asked.status(), asked.header(ALLOW)), (204, Some("https://example.net")));
    assert_eq!(run.get("http://example.org/api/a.json").header("Vary"), Some("Origin"));
}

fn hotlinks(machine: Machine) {
    let run = machine.with("a.png", "picture").with("a.txt", "text").start();
    let from = |path: &str, page: &str| {
        let url = format!("http://example.org/{path}");
        run.ask(&url, |request| request.header("Referer", page)).status()
    };
    assert_eq!(run.status("http://example.org/a.png"), 200);
    assert_eq!(from("a.png", "https://example.org/page"), 200);
    assert_eq!(from("a.png", "https://www.example.org/"), 200);
    assert_eq!(from("a.png", "https://other.test/example.org/"), 403);
    assert_eq!(from("a.png", "https://example.org.other.test/"), 403);
    assert_eq!(from("a.txt", "https://other.test/"), 200);
}

fn accel(machine: Machine) {
    let script = "<?php if (!isset($_GET['user'])) { http_response_code(403); exit; }
        header('X-Accel-Redirect: /private/film.mp4');";
    let machine = machine.with("film.php", script);
    machine.write("/srv/files/film.mp4", "the film");
    let run = machine.start();
    assert_eq!(run.status("http://example.org/film.php"), 403);
    assert_eq!(run.text("http://example.org/film.php?user=ada"), "the film");
    assert_eq!(run.status("http://example.org/private/film.mp4"), 404);
}

fn sendfile(machine: Machine) {
    let film = machine.write("/srv/files/film.mp4", "the film");
    let script = format!("<?php header('X-Sendfile: {}');", film.display());
    let run = machine.with("film.php", script).start();
    let part =
        run.ask("http://example.org/film.php", |request| request.header("Range", "bytes=4-"));
    assert_eq!((part.status(), &*part.text()), (206, "film"));
    assert_eq!(part.header("X-Sendfile"), None);
}

fn internal(machine: Machine) {
    let script = "<?php header('X-Accel-Redirect: /private/film.mp4');";
    let run = machine.with("film.php", script).with("private/film.mp4", "the film").start();
    assert_eq!(run.text("http://example.org/film.php"), "the film");
    assert_eq!(run.status("http://example.org/private/film.mp4"), 404);
}

fn alias(machine: Machine) {
    machine.write("/usr/share/javascript/jquery/jquery.js", "library");
    let run = machine.start();
    assert_eq!(run.text("http://example.org/javascript/jquery/jquery.js"), "library");
}

fn coding_of(run: &Running, path: &str, accepted: &str) -> Option<String> {
    let url = format!("http://example.org{path}");
    let response = run.ask(&url, |request| request.header("Accept-Encoding", accepted));
    response.header("Content-Encoding").map(str::to_owned)
}

fn compress(machine: Machine) {
    let page = "<?php echo str_repeat('text ', $_GET['words']);";
    let run = machine.with("a.php", page).start();
    for (accepted, coding) in [("gzip, zstd, br", "br"), ("gzip, zstd", "zstd"), ("gzip", "gzip")] {
        assert_eq!(coding_of(&run, "/a.php?words=200", accepted).as_deref(), Some(coding));
    }
    assert_eq!(coding_of(&run, "/a.php?words=200", "deflate"), None);
    assert_eq!(coding_of(&run, "/a.php?words=9", "br"), None, "too short");
    let said = run.curl("curl -s --compressed 'http://example.org/a.php?words=200'");
    assert_eq!(said, "text ".repeat(200));
}

fn pre_compressed(machine: Machine) {
    let machine = machine.with("style.css", "x".repeat(5000)).with("style.css.br", "ready-made");
    let page = "<?php echo str_repeat('text ', 1000);";
    let run = machine.with("a.php", page).start();
    let style = run.ask("http://example.org/style.css", |r| r.header("Accept-Encoding", "br"));
    assert_eq!((&*style.text(), style.header("Content-Encoding")), ("ready-made", Some("br")));
    assert_eq!(coding_of(&run, "/style.css", "gzip").as_deref(), Some("gzip"));
    assert_eq!(coding_of(&run, "/a.php", "br"), None);
}

fn error_pages(machine: Machine) {
    let run = machine.with("errors/404.html", "not here").with("index.php", "front").start();
    let response = run.get("http://example.org/nothing");
    assert_eq!((response.status(), &*response.text()), (404, "not here"));
}

fn private_files(machine: Machine) {
    let mut machine = machine.with("a.txt", "text").with(".well-known/security.txt", "text");
    let refused = [".env", ".git/config", "dump.sql", "a.php.bak"];
    let hidden = ["settings.ini", "logs/a.LOG", "vendor/autoload.php", "vendor/x/README.md"];
    for name in refused.iter().chain(&hidden) {
        machine = machine.with(name, "secret");
    }
    let run = machine.start();
    for (names, status) in [(refused, 403), (hidden, 404)] {
        for name in names {
            assert_eq!(run.status(&format!("http://example.org/{name}")), status, "{name}");
        }
    }
    assert_eq!(run.text("http://example.org/a.txt"), "text");
    assert_eq!(run.text("http://example.org/.well-known/security.txt"), "text");
}

fn one_kind(machine: Machine) {
    let machine = machine.with("pictures/a.JPG", "picture").with("pictures/a.php", "<?php echo 1;");
    let run = machine.with("pictures/a.html", "page").with("a.html", "page").start();
    assert_eq!(run.text("http://example.org/pictures/a.JPG"), "picture");
    assert_eq!(run.status("http://example.org/pictures/a.html"), 403);
    assert_eq!(run.status("http://example.org/pictures/a.php"), 403);
    assert_eq!(run.text("http://example.org/a.html"), "page");
}
