//! Files: types, conditions, ranges, indexes, and files that must never be served.

use sendoff_tests::mapper::Mapper;
use sendoff_tests::{
    Client, LIMIT, Pair, Request, Response, Server, Site, pattern, processes, wait,
};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

#[test]
fn a_deleted_file_frees_its_space_though_other_files_are_asked_for() {
    let site = Site::new();
    site.write("deleted.bin", pattern(1, 1 << 20));
    site.write("other.txt", "other");
    let server = Server::start(site.root(), &["--threads", "1"]);
    server.ask(&Request::get("/deleted.bin")).expect(200);
    let path = site.path("deleted.bin").to_string_lossy().into_owned();
    let holds = || {
        let opened = processes::descriptors(server.front());
        opened.iter().any(|target| target.starts_with(&path))
    };
    assert!(holds(), "the file is not kept open at all");
    std::fs::remove_file(site.path("deleted.bin")).unwrap();
    assert!(wait::until(LIMIT, || {
        server.ask(&Request::get("/other.txt")).expect(200);
        !holds()
    }));
}

#[test]
fn sizes_and_types() {
    let site = Site::new();
    let server = Server::start(site.root(), &[]);
    for (number, size) in
        [0, 1, 4095, 16_384, 65_536, 65_537, 1 << 20, 30 << 20].into_iter().enumerate()
    {
        let name = format!("f{size}.bin");
        let contents = pattern(number as u64, size);
        site.write(&name, &contents);
        let mut client = server.connect();
        for _ in 0..2 {
            let response = client.ask(&Request::get(&format!("/{name}")));
            assert!(response.expect(200) == contents, "{name}");
            assert_eq!(response.header("content-length"), Some(&*size.to_string()));
            assert_eq!(response.header("accept-ranges"), Some("bytes"));
            let head = client.ask(&Request::new("HEAD", &format!("/{name}")));
            assert_eq!(head.header("content-length"), Some(&*size.to_string()));
        }
    }
    for (name, kind) in [
        ("a.html", "text/html"),
        ("a.css", "text/css"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.JPG", "image/jpeg"),
        ("a.json", "application/json"),
        ("a.txt", "text/plain"),
        ("a.woff2", "font/woff2"),
        ("a.woff", "font/woff"),
        ("a.mp4", "video/mp4"),
        ("a.m3u8", "application/vnd.apple.mpegurl"),
        ("messages.pot", "text/plain"),
        ("a.webp", "image/webp"),
        ("a.pdf", "application/pdf"),
        ("a.unknown-kind", "application/octet-stream"),
        ("no-extension", "application/octet-stream"),
        ("with space &.txt", "text/plain"),
    ] {
        site.write(name, "x");
        let response = server.get(&format!("/{}", name.replace(' ', "%20")));
        response.expect(200);
        let sent = response.header("content-type").unwrap().split(';').next().unwrap();
        assert_eq!(sent, kind, "{name}");
    }
    for (name, kinds) in [
        ("a.js", ["text/javascript", "application/javascript"]),
        ("a.xml", ["text/xml", "application/xml"]),
    ] {
        site.write(name, "x");
        let response = server.get(&format!("/{name}"));
        let sent = response.header("content-type").unwrap().split(';').next().unwrap().to_owned();
        assert!(kinds.contains(&&*sent), "{name}: {sent}");
    }
}

#[test]
fn conditions() {
    let site = Site::new();
    site.write("a.txt", "contents");
    let server = Server::start(site.root(), &[]);
    let first = server.get("/a.txt");
    let etag = first.header("etag").expect("an ETag").to_owned();
    let modified = first.header("last-modified").expect("Last-Modified").to_owned();
    let ask = |headers: &[(&str, &str)]| -> Response {
        let request = Request::get("/a.txt");
        server.ask(
            &headers.iter().fold(request, |request, (name, value)| request.header(name, value)),
        )
    };
    let long_ago = "Sun, 06 Nov 1994 08:49:37 GMT";
    let later = "Fri, 01 Jan 2038 00:00:00 GMT";
    for (headers, status) in [
        (vec![("If-None-Match", &*etag)], 304),
        (vec![("If-None-Match", "*")], 304),
        (vec![("If-None-Match", &*format!("\"other\", W/{}", etag.trim_start_matches("W/")))], 304),
        (vec![("If-None-Match", "\"other\"")], 200),
        (vec![("If-Modified-Since", &*modified)], 304),
        (vec![("If-Modified-Since", later)], 304),
        (vec![("If-Modified-Since", long_ago)], 200),
        (vec![("If-Modified-Since", "nonsense")], 200),
        // RFC 9110 section 13.2.2: If-None-Match decides alone where there is one.
        (vec![("If-None-Match", "\"other\""), ("If-Modified-Since", &*modified)], 200),
        (vec![("If-None-Match", &*etag), ("If-Modified-Since", long_ago)], 304),
        (vec![("If-Match", &*etag)], if etag.starts_with("W/") { 412 } else { 200 }),
        (vec![("If-Match", "*")], 200),
        (vec![("If-Match", "\"other\"")], 412),
        (vec![("If-Unmodified-Since", &*modified)], 200),
        (vec![("If-Unmodified-Since", long_ago)], 412),
        (vec![("If-Match", "\"other\""), ("If-None-Match", &*etag)], 412),
    ] {
        let response = ask(&headers);
        assert_eq!(response.status(), status, "{headers:?}");
        if status == 304 {
            assert_eq!(response.header("etag"), Some(&*etag));
            assert!(response.body.is_empty());
        }
    }
    site.write("a.txt", "contents, changed");
    let changed = ask(&[("If-None-Match", &etag)]);
    assert_eq!(changed.expect(200), b"contents, changed");
    assert_ne!(changed.header("etag"), Some(&*etag));
}

#[test]
fn one_range() {
    let site = Site::new();
    let contents = pattern(3, 100_000);
    site.write("a.bin", &contents);
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    for (range, from, to) in [
        ("bytes=0-0", 0, 0),
        ("bytes=0-99999", 0, 99_999),
        ("bytes=10-", 10, 99_999),
        ("bytes=-5", 99_995, 99_999),
        ("bytes=-200000", 0, 99_999),
        ("bytes=99999-", 99_999, 99_999),
        ("bytes=5000-80000", 5000, 80_000),
        ("bytes=50-1000000", 50, 99_999),
        ("Bytes=1-2", 1, 2),
    ] {
        let response = client.ask(&Request::get("/a.bin").header("Range", range));
        assert!(response.expect(206) == &contents[from..=to], "{range}");
        assert_eq!(response.header("content-range"), Some(&*format!("bytes {from}-{to}/100000")));
    }
    for range in ["bytes=100000-", "bytes=-0", "bytes=200000-300000"] {
        let response = client.ask(&Request::get("/a.bin").header("Range", range));
        assert_eq!(response.status(), 416, "{range}");
        assert_eq!(response.header("content-range"), Some("bytes */100000"));
    }
    for range in ["lines=1-2", "bytes", "bytes=", "bytes=a-b", "bytes=5-2", "bytes=1-2-3"] {
        let response = client.ask(&Request::get("/a.bin").header("Range", range));
        // RFC 9110 section 14.2: ignored, or refused as not satisfiable.
        assert!(response.status() == 416 || response.expect(200).len() == 100_000, "{range}");
    }
    let head = client.ask(&Request::new("HEAD", "/a.bin"));
    let etag = head.header("etag").unwrap().to_owned();
    for (validator, status) in
        [("\"other\"", 200), ("Sun, 06 Nov 1994 08:49:37 GMT", 200), (&*etag, 206)]
    {
        if validator.starts_with("W/") {
            continue;
        }
        let request =
            Request::get("/a.bin").header("Range", "bytes=0-9").header("If-Range", validator);
        assert_eq!(client.ask(&request).status(), status, "If-Range: {validator}");
    }
}

#[test]
fn several_ranges() {
    let site = Site::new();
    let contents = pattern(4, 200_000);
    site.write("a.bin", &contents);
    let server = Server::start(site.root(), &[]);
    let ranges = [(0, 9), (1000, 90_000), (199_990, 199_999)];
    let request = Request::get("/a.bin").header("Range", "bytes=0-9, 1000-90000, -10");
    let response = server.ask(&request);
    let body = response.expect(206);
    let kind = response.header("content-type").unwrap();
    let boundary =
        kind.strip_prefix("multipart/byteranges; boundary=").expect(kind).trim_matches('"');
    let mut rest = body;
    for (from, to) in ranges {
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").expect("a part") + 4;
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        assert!(head.contains(&format!("--{boundary}\r\n")), "{head}");
        assert!(
            head.to_lowercase().contains(&format!("content-range: bytes {from}-{to}/200000\r\n")),
            "{head}"
        );
        let length = to - from + 1;
        assert!(rest[end..end + length] == contents[from..=to]);
        rest = &rest[end + length..];
    }
    let end = format!("\r\n--{boundary}--");
    assert_eq!(String::from_utf8_lossy(rest).trim_end(), end);
    // A request made to be expensive costs little (RFC 9110 section 14.2).
    let many = (0..2000).map(|_| "0-").collect::<Vec<_>>().join(",");
    let response = server.ask(&Request::get("/a.bin").header("Range", &format!("bytes={many}")));
    assert!(matches!(response.status(), 200 | 206 | 416), "{:?}", response.head);
    assert!(response.body.len() < 1 << 20, "{} bytes", response.body.len());
}

#[test]
fn indexes_and_folders() {
    let site = Site::new();
    site.write("both/index.php", "<?php echo 'php index';");
    site.write("both/index.html", "html index");
    site.write("html/index.html", "html index");
    site.write("none/a.txt", "a");
    let pair = Pair::start(&site, &[]);
    assert_eq!(pair.same_page("/both/").text(), "php index");
    assert_eq!(pair.ours.page("/html/"), "html index");
    let redirect = pair.ours.get("/html");
    assert_eq!(redirect.status(), 301);
    assert!(redirect.header("location").unwrap().ends_with("/html/"), "{redirect:?}");
    let redirect = pair.ours.get("/html?x=1");
    assert!(redirect.header("location").unwrap().ends_with("/html/?x=1"), "{redirect:?}");
    // Another site's name must not come out of doubled slashes.
    let redirect = pair.ours.get("//html");
    let location = redirect.header("location").unwrap_or("/");
    assert!(!location.starts_with("//"), "{location}");
    for target in ["/none/", "/nothing", "/none"] {
        let response = pair.ours.get(target);
        assert!(!response.text().contains("a.txt"), "no listing: {}", response.text());
        if target != "/none" {
            assert!(matches!(response.status(), 403 | 404), "{target}: {}", response.status());
        }
    }
}

#[test]
fn what_is_not_for_everybody() {
    let site = Site::new();
    site.write(".env", "SECRET");
    site.write(".git/config", "SECRET");
    site.write("sub/.htaccess", "SECRET");
    site.write("sub/.hidden/a.txt", "SECRET");
    let unreadable = site.write("unreadable.txt", "SECRET");
    site.write_at(site.outside("secret.txt"), "SECRET");
    symlink(site.outside("secret.txt"), site.path("link.txt")).unwrap();
    symlink("../secret.txt", site.path("relative.txt")).unwrap();
    symlink(site.outside(""), site.path("out")).unwrap();
    site.write("real.txt", "inside");
    symlink("real.txt", site.path("inside.txt")).unwrap();
    site.write(".well-known/acme-challenge/token", "token");
    let server = Server::start(site.root(), &[]);
    // The front runs as the owner of the site, so its mode alone makes the file unreadable.
    std::fs::set_permissions(&unreadable, PermissionsExt::from_mode(0o000)).unwrap();
    assert_eq!(server.get("/unreadable.txt").status(), 403);
    site.write("shut/a.txt", "SECRET");
    std::fs::set_permissions(site.path("shut"), PermissionsExt::from_mode(0o000)).unwrap();
    for target in ["/shut/a.txt", "/shut/", "/shut", "/shut/none/"] {
        assert_eq!(server.get(target).status(), 403, "{target}");
    }
    for target in [
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/sub/.htaccess",
        "/sub/.hidden/a.txt",
        "/link.txt",
        "/relative.txt",
        "/out/secret.txt",
        "/out/root/../secret.txt",
    ] {
        let response = server.get(target);
        assert!(matches!(response.status(), 403 | 404), "{target}: {}", response.status());
        assert!(!response.text().contains("SECRET"), "{target}");
    }
    assert_eq!(server.page("/inside.txt"), "inside");
    // RFC 8615: the one folder with a dot that exists to be read.
    assert_eq!(server.page("/.well-known/acme-challenge/token"), "token");
}

#[test]
fn methods() {
    let site = Site::new();
    site.write("a.txt", "a");
    let server = Server::start(site.root(), &[]);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let response = server.ask(&Request::new(method, "/a.txt").header("Content-Length", "0"));
        assert_eq!(response.status(), 405, "{method}");
        assert!(response.header("allow").unwrap().contains("GET"), "{response:?}");
    }
    assert!(matches!(server.ask(&Request::new("TRACE", "/a.txt")).status(), 405 | 501));
}

#[test]
fn files_that_change_are_served_as_they_are() {
    let site = Site::new();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    for round in 0..50_u64 {
        let length = usize::try_from(1000 + (round * 7919) % 200_000).unwrap();
        let contents = pattern(round, length);
        // Writes in place and renames a new file over the old one, by turns.
        if round % 2 == 0 {
            site.write("a.bin", &contents);
        } else {
            let new = site.write("new.bin", &contents);
            std::fs::rename(new, site.path("a.bin")).unwrap();
        }
        assert!(client.ask(&Request::get("/a.bin")).expect(200) == contents, "round {round}");
    }
    std::fs::remove_file(site.path("a.bin")).unwrap();
    assert_eq!(client.ask(&Request::get("/a.bin")).status(), 404);
}

/// A store into a page that is dirty already changes no time, so only the contents show it.
#[test]
fn stores_through_a_mapping_are_seen() {
    for size in [1000, 4096, 30_000, 100_000] {
        let site = Site::new();
        let file = site.write("a.bin", vec![b'-'; size]);
        let mapper = Mapper::compile(&site);
        let mut mapping = mapper.start();
        mapping.keep(&file);
        let server = Server::start(site.root(), &[]);
        let mut client = server.connect();
        let began = Instant::now();
        for letter in ('a'..='z').cycle() {
            mapping.write_to_kept(letter);
            let body = client.ask(&Request::get("/a.bin")).expect(200).to_vec();
            let first = &body[..size.min(1000)];
            assert!(first.iter().all(|byte| *byte == letter as u8), "{size} bytes, {letter}");
            assert_eq!(body.len(), size);
            // Long enough for the file's last change to be an old one.
            if began.elapsed() > Duration::from_millis(300) {
                break;
            }
        }
    }
}

#[test]
fn slow_readers_get_whole_files() {
    let site = Site::new();
    let contents = pattern(5, 3_000_000);
    site.write("a.bin", &contents);
    let server = Server::start(site.root(), &[]);
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(Request::get("/a.bin").bytes());
            client
        })
        .collect();
    assert_eq!(server.get("/a.bin").expect(200).len(), contents.len());
    for client in &mut clients {
        assert!(client.response("GET").expect(200) == contents);
    }
}
