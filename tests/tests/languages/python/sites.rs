//! Sites on Django and Flask, in `sendoff-python` and in gunicorn: the same responses.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sendoff_tests::{
    LIMIT, Progress, Request, Response, Server, Site, pattern, processes, pypi, wait,
};

use super::server::{Python, Reference};
use super::{APPLICATION, MB, facts, from_files, from_files_with, made};

/// A site with a downloadable file and one of the applications.
fn site(name: &str, program: &[u8]) -> Site {
    let site = Site::new();
    site.write_at(site.outside("a"), pattern(8, 300_000));
    site.write_at(site.outside(&format!("{name}.py")), program);
    site
}

/// A page or a field without the parts that differ from session to session and from second to
/// second.
fn without_secrets(text: &str) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some(at) =
        ["csrfmiddlewaretoken\" value=\"", "csrftoken=", "sessionid=", "session=", "expires="]
            .iter()
            .filter_map(|marker| Some(rest.find(marker)? + marker.len()))
            .min()
    {
        out.push_str(&rest[..at]);
        rest = rest[at..].trim_start_matches(|c| !['"', ';'].contains(&c));
    }
    out + rest
}

/// Expects that two responses are equal, except for times and secrets.
#[track_caller]
fn assert_alike(what: &str, ours: Response, theirs: Response) {
    let comparable = |response: Response| {
        let length = response.header("Content-Length").map(str::to_owned);
        let is_text = response.header("Content-Type").is_some_and(|kind| kind.starts_with("text"));
        let (status, mut fields, body) = facts(response);
        fields.retain(|(name, _)| name != "Expires");
        for (_, value) in &mut fields {
            *value = without_secrets(value);
        }
        let text = is_text.then(|| without_secrets(&String::from_utf8_lossy(&body)));
        (status, fields, length, text.map_or(body, String::into_bytes))
    };
    let (ours, theirs) = (comparable(ours), comparable(theirs));
    assert_eq!((&ours.0, &ours.1), (&theirs.0, &theirs.1), "{what}");
    // A length that the application has not announced is the server's own choice.
    assert!(theirs.2.is_none() || ours.2 == theirs.2, "{what}: {:?} {:?}", ours.2, theirs.2);
    assert!(ours.3 == theirs.3, "{what}: other bytes");
}

/// Expects that `sendoff explain` names the line of the program that holds this text.
#[track_caller]
fn assert_explained(server: &Server, target: &str, program: &str, text: &str) {
    let number = program.lines().position(|line| line.contains(text)).unwrap() + 1;
    let table = server.explain(target, &[]).unwrap();
    assert!(table.contains(&format!("_site.py:{number}")), "{number}: {table}");
}

/// The cookies that a response sets, for the next request.
fn cookies(response: &Response) -> String {
    let set = response.head.all("Set-Cookie").map(|value| value.split(';').next().unwrap());
    set.collect::<Vec<_>>().join("; ")
}

#[test]
#[ignore = "heavy: Flask in two servers"]
fn a_site_on_flask_is_the_same_as_in_gunicorn() {
    let site = site("flask_site", include_bytes!("flask_site.py"));
    let options = ["--workers", "2", "--user", "www-data"];
    let python = Python::start_in(site, "flask_site", &options);
    let gunicorn = Reference::gunicorn(&python.site, "flask_site");
    let server = python.front(&[]);
    let host = |request: Request| request.header("Host", "shop.example");
    for target in [
        "/",
        "/json?a=1&b=%C3%A9",
        "/download",
        "/download?range=1",
        "/attachment",
        "/who",
        "/error",
        "/stream?name=x",
        "/missing",
        "/static/missing",
    ] {
        for request in [
            Request::get(target),
            Request::get(target).header("Range", "bytes=1000-150000"),
            Request::new("HEAD", target),
            Request::new("OPTIONS", target),
        ] {
            let request = host(request);
            assert_alike(target, server.ask(&request), gunicorn.ask(&request));
        }
    }
    for range in
        ["bytes=0-0", "bytes=250000-", "bytes=-100000", "bytes=299999-400000", "bytes=300000-"]
    {
        let request = host(Request::get("/download?range=1").header("Range", range));
        assert_alike(range, server.ask(&request), gunicorn.ask(&request));
    }
    let etag = server.get("/download").header("ETag").map(str::to_owned);
    let etag = etag.unwrap_or_default();
    let request = host(Request::get("/download?range=1").header("If-None-Match", &etag));
    assert_alike("If-None-Match", server.ask(&request), gunicorn.ask(&request));
    for request in [
        Request::upload("/upload", "file", "caf\u{e9}.bin", &pattern(2, 500_000)),
        Request::new("PUT", "/raw"),
    ] {
        let request = host(request);
        assert_alike("a body", server.ask(&request), gunicorn.ask(&request));
    }
    let form = host(Request::post("/form", "application/x-www-form-urlencoded", "name=Ada"));
    let (ours, theirs) = (server.ask(&form), gunicorn.ask(&form));
    let told = [cookies(&ours), cookies(&theirs)];
    assert_alike("/form", ours, theirs);
    let who = |cookie: &str| host(Request::get("/who").header("Cookie", cookie));
    // Each understands the other's session.
    assert_eq!(server.ask(&who(&told[1])).expect(200), b"Ada");
    assert_eq!(gunicorn.ask(&who(&told[0])).expect(200), b"Ada");
    assert_eq!(from_files(&server, "/download"), 300_000);
    assert_eq!(from_files(&server, "/attachment"), 300_000);
    assert_explained(&server, "/attachment", include_str!("flask_site.py"), "as_attachment=True");
    // Werkzeug cuts the range out by an iterator of its own.
    for (range, length) in [("1000-150000", 149_001), ("250000-", 50_000), ("-100000", 100_000)] {
        let range = format!("Range: bytes={range}");
        let table = from_files_with(&server, "/download?range=1", &["-H", &range]);
        assert_eq!(table, length, "{range}");
    }
}

#[test]
#[ignore = "heavy: Django in two servers"]
fn a_site_on_django_is_the_same_as_in_gunicorn() {
    let site = site("django_site", include_bytes!("django_site.py"));
    let folder = site.outside(".");
    let made = Command::new("/usr/bin/python3").arg("django_site.py").current_dir(&folder).status();
    assert!(made.unwrap().success());
    site.adopt_all(&folder);
    let options = ["--workers", "2", "--threads", "2", "--user", "www-data"];
    let python = Python::start_in(site, "django_site", &options);
    let gunicorn = Reference::gunicorn(&python.site, "django_site");
    let server = python.front(&[]);
    let host = |request: Request| request.header("Host", "shop.example");
    let css = "/static/admin/css/base.css";
    for target in
        ["/download", "/download?save=1", "/stream", "/admin/", "/admin/login/", css, "/no"]
    {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let request = host(Request::new(method, target));
            assert_alike(
                &format!("{method} {target}"),
                server.ask(&request),
                gunicorn.ask(&request),
            );
        }
    }
    let echo = host(Request::post("/echo", "application/octet-stream", pattern(3, 2 * MB)));
    assert_alike("/echo", server.ask(&echo), gunicorn.ask(&echo));
    // The administrator logs in at each of the two.
    let log_in = |page: Response, post: &dyn Fn(&Request) -> Response| {
        let cookie = cookies(&page);
        let page = page.text();
        let (_, token) = page.split_once("csrfmiddlewaretoken\" value=\"").unwrap();
        let token = token.split('"').next().unwrap();
        let form =
            format!("csrfmiddlewaretoken={token}&username=admin&password=secret&next=/admin/");
        let request = Request::post("/admin/login/", "application/x-www-form-urlencoded", form);
        post(&host(request).header("Cookie", &cookie))
    };
    let page = host(Request::get("/admin/login/"));
    let ours = log_in(server.ask(&page), &|request| server.ask(request));
    let theirs = log_in(gunicorn.ask(&page), &|request| gunicorn.ask(request));
    let session = [cookies(&ours), cookies(&theirs)];
    assert_eq!(ours.status(), 302, "{}", ours.text());
    assert_alike("login", ours, theirs);
    for target in
        ["/admin/", "/admin/auth/user/", "/admin/auth/user/1/change/", "/admin/auth/group/add/"]
    {
        let ask = |cookie: &str| host(Request::get(target)).header("Cookie", cookie);
        let (ours, theirs) = (server.ask(&ask(&session[0])), gunicorn.ask(&ask(&session[1])));
        ours.expect(200);
        assert_alike(target, ours, theirs);
    }
    assert_eq!(from_files(&server, "/download"), 300_000);
    assert_explained(&server, "/download", include_str!("django_site.py"), "FileResponse(open");
    // The file is root's: the process has kept the capability to guard it. (The front sends small
    // files from memory.)
    let table = server.explain(css, &[]).unwrap();
    assert!(table.contains("it hands over files"), "{table}");
}

#[test]
#[ignore = "heavy: FastAPI, which is fetched, in two servers"]
fn a_site_on_fastapi_is_the_same_as_in_uvicorn() {
    let site = site("starlette_site", include_bytes!("starlette_site.py"));
    let application = "starlette_site:application";
    let packages = pypi::packages("starlette");
    let options = ["--workers", "1", "--threads", "4"];
    let python = Python::start_beside(&packages, site, application, &options);
    let uvicorn = Reference::uvicorn(&packages, &python.site, application);
    let server = python.front(&[]);
    let ranges = [
        "bytes=0-299999",
        "bytes=1000-150000",
        "bytes=1000-1999",
        "bytes=70001-",
        "bytes=-100000",
        "bytes=299999-400000",
        "bytes=0-65535",
        "bytes=0-65536",
        "bytes=0-70000,100000-200000",
        "bytes=0-70000,50000-200000",
        "bytes=300000-",
        "bytes=9-8",
        "lines=1-2",
    ];
    let origin = "https://shop.example";
    let etag = server.get("/download").header("ETag").map(str::to_owned).unwrap_or_default();
    for target in
        ["/download", "/static/a", "/gzip/a", "/changing/a", "/hidden/a", "/own", "/read", "/none"]
    {
        let get = Request::get(target).header("Host", "shop.example").header("Origin", origin);
        let head = Request::new("HEAD", target).header("Host", "shop.example");
        // Middleware that changes bodies does not change bodies that Starlette hands over as a
        // whole.
        let is_changed = ["/gzip/a", "/changing/a", "/hidden/a"].contains(&target);
        for request in [&get, &head].into_iter().filter(|_| !is_changed) {
            assert_alike(target, server.ask(request), uvicorn.ask(request));
        }
        for range in ranges {
            for request in [&get, &head] {
                let request = request.clone().header("Range", range);
                let what = format!("{target} {range}");
                let [ours, theirs] =
                    [server.ask(&request), uvicorn.ask(&request)].map(|mut response| {
                        without_boundary(&mut response);
                        response
                    });
                assert_alike(&what, ours, theirs);
            }
        }
        if is_changed {
            continue;
        }
        for validator in [&etag, "\"other\"", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            let request =
                get.clone().header("Range", "bytes=5-200000").header("If-Range", validator);
            assert_alike(target, server.ask(&request), uvicorn.ask(&request));
        }
    }
    let from_files = |target: &str, range: &str| {
        from_files_with(&server, target, &["-H", &format!("Range: bytes={range}")])
    };
    for target in ["/download", "/static/a"] {
        assert_eq!(from_files(target, "0-299999"), 300_000, "{target}");
        assert_eq!(from_files(target, "1000-150000"), 149_001, "{target}");
        assert_eq!(from_files(target, "-100000"), 100_000, "{target}");
        // Several ranges are read, and so is a range that fits into one piece.
        assert_eq!(from_files(target, "0-70000,100000-200000"), 0, "{target}");
        assert_eq!(from_files(target, "0-65535"), 0, "{target}");
    }
    for target in ["/gzip/a", "/changing/a", "/hidden/a", "/late/a", "/own", "/read"] {
        assert_eq!(from_files(target, "1000-150000"), 0, "{target}");
    }
    let request = Request::get("/task").header("Range", "bytes=1000-150000");
    assert!(server.ask(&request).expect(206) == &pattern(8, 300_000)[1000..150_001]);
    // It runs behind the response.
    assert!(wait::until(LIMIT, || server.page("/done") == "1"));
    for stream in ["events", "ticks"] {
        let mut client = server.connect();
        client.send(Request::get(&format!("/{stream}")).bytes());
        client.head().unwrap();
        drop(client);
        let ended = python.site.outside(&format!("{stream} ended"));
        assert!(wait::until(LIMIT, || ended.exists()), "{stream}: {}", python.log());
    }
    let request = Request::get("/shrinks").header("Range", "bytes=1000-280000");
    assert!(server.connect().try_ask(&request).is_err());
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

/// Puts the same text in place of the boundary between parts, which is random.
fn without_boundary(response: &mut Response) {
    let Some(kind) =
        response.head.headers.iter_mut().find(|(_, value)| value.contains("boundary="))
    else {
        return;
    };
    let boundary = kind.1.split_off(kind.1.find('=').unwrap() + 1);
    let mut body = Vec::new();
    let mut rest = &response.body[..];
    while let Some(at) = rest.windows(boundary.len()).position(|part| part == boundary.as_bytes()) {
        body.extend_from_slice(&rest[..at]);
        rest = &rest[at + boundary.len()..];
    }
    response.body = [&body, rest].concat();
}

#[test]
#[ignore = "heavy: workers are killed for a minute"]
fn no_response_has_foreign_bytes_while_workers_are_killed() {
    let site = Site::new();
    let files = [40_000, 300_000, 3 * MB].map(|n| (n, pattern(n as u64, n)));
    for (n, contents) in &files {
        site.write_at(site.outside(&format!("f{n}")), contents);
    }
    let options =
        ["--workers", "4", "--threads", "2", "--user", "www-data", "--max-requests", "50"];
    let python = Python::start_in(site, APPLICATION, &options);
    let mut server = python.front(&["--threads", "2"]);
    // The dead ones' links go only when the front has noticed.
    server.expect_linked_processes(32);
    let progress = Progress::new(0, "responses while workers are killed");
    let (over, whole, cut) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for client in 0..8_usize {
            let (server, files, over, whole, cut, progress) =
                (&server, &files, &over, &whole, &cut, &progress);
            scope.spawn(move || {
                for round in client.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (n, contents) = &files[round % 3];
                    let (target, body) = match round % 4 {
                        0 => (format!("/file?name=f{n}"), contents.clone()),
                        1 => (format!("/generator?n={n}&piece=30000"), made(*n)),
                        2 => (format!("/file?name=f{n}&length={n}"), contents.clone()),
                        _ => (format!("/one?n={n}"), made(*n)),
                    };
                    match server.connect().try_ask(&Request::get(&target)) {
                        Ok(response) if response.status() == 200 => {
                            assert!(response.body == body, "{target}: foreign bytes");
                            whole.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(response) => {
                            assert!(
                                [502, 503].contains(&response.status()),
                                "{target}: {}",
                                response.status()
                            );
                            cut.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => {
                            cut.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    progress.advance();
                }
            });
        }
        let end = Instant::now() + Duration::from_secs(60);
        let mut round = 0;
        while Instant::now() < end {
            let workers = python.workers();
            if let Some(worker) = workers.get(round % workers.len().max(1)) {
                processes::signal(*worker, Signal::KILL);
            }
            round += 1;
            // The pace of the killing, not a wait for anything.
            std::thread::sleep(Duration::from_millis(300));
        }
        over.store(true, Ordering::Relaxed);
    });
    let (whole, cut) = (whole.into_inner(), cut.into_inner());
    eprintln!("{whole} whole responses, {cut} cut");
    assert!(whole > 500 && cut > 0, "{whole} whole, {cut} cut");
}
