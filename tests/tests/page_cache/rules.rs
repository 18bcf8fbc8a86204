//! Rules of RFC 9111 for caches, one line each: a first request fills the cache, and a second
//! request shows whether the page was kept.

use std::fs;

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Response, Site, wait};

use crate::{CachingServer, PAGE, is_hit, status};

/// Fields of a request.
type Fields = &'static [(&'static str, &'static str)];

/// A page, the fields of the first and of the second request for it, and true if the second is
/// answered from the cache.
type Rule = (&'static str, Fields, Fields, bool);

const RULES: &[Rule] = &[
    // How long a page is fresh (§4.2.1).
    ("head[]=Cache-Control:+max-age=60", &[], &[], true),
    ("head[]=Cache-Control:+MAX-AGE=60", &[], &[], true),
    ("head[]=Cache-Control:+public&head[]=Cache-Control:+max-age=60", &[], &[], true),
    ("head[]=Cache-Control:+max-age=0", &[], &[], false),
    ("head[]=Cache-Control:+max-age=0,+s-maxage=60", &[], &[], true),
    ("head[]=Cache-Control:+max-age=60,+s-maxage=0", &[], &[], false),
    ("head[]=Expires:+Fri,+01+Jan+2100+00:00:00+GMT", &[], &[], true),
    ("head[]=Expires:+Fri,+01+Jan+2021+00:00:00+GMT", &[], &[], false),
    ("head[]=Expires:+0", &[], &[], false),
    ("head[]=Expires:+Thursday,+18-Aug-50+02:01:18+GMT", &[], &[], true),
    ("head[]=Expires:+Thu,+18++Aug++2050+02:01:18+GMT", &[], &[], false),
    // How old it is (§4.2.3).
    ("head[]=Cache-Control:+max-age=60&head[]=Age:+70,+0", &[], &[], false),
    ("head[]=Cache-Control:+max-age=60&head[]=Age:+0,+70", &[], &[], true),
    (
        "head[]=Cache-Control:+max-age=60&head[]=Date:+Thu,+19+Nov+1981+08:52:00+GMT",
        &[],
        &[],
        false,
    ),
    // Fields for shared caches of a site (RFC 9213).
    ("head[]=Cache-Control:+no-store&head[]=CDN-Cache-Control:+max-age=60", &[], &[], true),
    ("head[]=Cache-Control:+max-age=60&head[]=CDN-Cache-Control:+private", &[], &[], false),
    (
        "head[]=Cache-Control:+no-store&head[]=CDN-Cache-Control:+max-age=60,+%26%26",
        &[],
        &[],
        false,
    ),
    ("head[]=Cache-Control:+max-age=60&head[]=CDN-Cache-Control:+NO-STORE", &[], &[], false),
    (
        "head[]=Expires:+Fri,+01+Jan+2021+00:00:00+GMT&head[]=Cache-Control:+max-age=60",
        &[],
        &[],
        true,
    ),
    (
        "head[]=Expires:+Fri,+01+Jan+2100+00:00:00+GMT&head[]=Cache-Control:+max-age=0",
        &[],
        &[],
        false,
    ),
    ("head[]=Cache-Control:+max-age=60&head[]=Age:+30", &[], &[], true),
    ("head[]=Cache-Control:+max-age=60&head[]=Age:+60", &[], &[], false),
    ("head[]=Last-Modified:+Fri,+01+Jan+2021+00:00:00+GMT", &[], &[], false),
    ("", &[], &[], false),
    // Pages that are not for other clients (§3, §5.2.2).
    ("head[]=Cache-Control:+private,+max-age=60", &[], &[], false),
    ("head[]=Cache-Control:+private=%22x-a%22,+max-age=60", &[], &[], false),
    ("head[]=Cache-Control:+no-cache=%22x-a%22,+max-age=60", &[], &[], false),
    ("head[]=Cache-Control:+no-store,+max-age=60", &[], &[], false),
    ("head[]=Cache-Control:+max-age=60&head[]=Set-Cookie:+a=b", &[], &[], false),
    ("head[]=Cache-Control:+public,+max-age=60", &[("Authorization", "Basic YTpi")], &[], false),
    ("head[]=Cache-Control:+max-age=60", &[], &[("Authorization", "Basic YTpi")], false),
    // Which requests get the page (§4.1).
    ("head[]=Cache-Control:+max-age=60&head[]=Vary:+*", &[], &[], false),
    ("head[]=Cache-Control:+max-age=60&head[]=Vary:+X-A", &[("X-A", "1")], &[("X-A", "1")], true),
    ("head[]=Cache-Control:+max-age=60&head[]=Vary:+x-a", &[("X-A", "1")], &[("X-A", "2")], false),
    ("head[]=Cache-Control:+max-age=60&head[]=Vary:+X-A", &[("X-A", "1")], &[], false),
    ("head[]=Cache-Control:+max-age=60&head[]=Vary:+X-A", &[], &[("X-A", "")], false),
    (
        "head[]=Cache-Control:+max-age=60&head[]=Vary:+X-A&head[]=Vary:+X-B",
        &[("X-A", "1"), ("X-B", "1")],
        &[("X-A", "1"), ("X-B", "2")],
        false,
    ),
    ("head[]=Cache-Control:+max-age=60&head[]=Vary:+X-A", &[("X-B", "1")], &[("X-B", "2")], true),
    // Streams without an end.
    ("head[]=Cache-Control:+max-age=60&head[]=Content-Type:+text/event-stream", &[], &[], false),
    // Other statuses than 200 (§3).
    ("head[]=Cache-Control:+max-age=60&head[]=Status:+404", &[], &[], true),
    ("head[]=Cache-Control:+max-age=60&head[]=Status:+302&head[]=Location:+/", &[], &[], true),
    (
        "head[]=Cache-Control:+max-age=60&head[]=Status:+206&head[]=Content-Range:+bytes+0-1/9",
        &[],
        &[],
        false,
    ),
    ("head[]=Status:+404", &[], &[], false),
    // `Cache-Control` of a client does not make the application work.
    ("head[]=Cache-Control:+max-age=60", &[], &[("Cache-Control", "no-cache")], true),
    ("head[]=Cache-Control:+max-age=60", &[], &[("Pragma", "no-cache")], true),
    ("head[]=Cache-Control:+max-age=60", &[("Cache-Control", "no-store")], &[], true),
];

fn with(target: &str, fields: Fields) -> Request {
    let request = Request::get(target);
    fields.iter().fold(request, |request, (name, value)| request.header(name, value))
}

#[test]
fn pages_are_kept_by_the_rules() {
    let kept = CachingServer::start("http");
    for (number, (page, first, second, expected)) in RULES.iter().enumerate() {
        let target = format!("/page.php?rule={number}&{page}");
        let asked = kept.server.ask(&with(&target, first));
        if status(&asked).contains("; ttl=") {
            let is_there = || is_hit(&kept.server.ask(&with(&target, first)));
            assert!(wait::until(LIMIT, is_there), "{page} {first:?}");
        }
        let answer = kept.server.ask(&with(&target, second));
        assert_eq!(is_hit(&answer), *expected, "{page} {first:?} {second:?}");
    }
}

/// A kept page answers conditions and ranges as the application would (§4.3.2, RFC 9110 §14).
#[test]
fn a_kept_page_answers_conditions_and_ranges() {
    let kept = CachingServer::start("http");
    let page = "/page.php?size=100&tag=%22t%22&head[]=Cache-Control:+max-age=600\
                &head[]=Last-Modified:+Fri,+01+Jan+2021+00:00:00+GMT";
    kept.get(page);
    let whole = kept.get_kept(page);
    let runs = kept.runs();
    for (fields, status, range) in [
        (&[("If-None-Match", "\"t\"")][..], 304, None),
        (&[("If-None-Match", "W/\"t\"")], 304, None),
        (&[("If-None-Match", "\"x\", \"t\"")], 304, None),
        (&[("If-None-Match", "*")], 304, None),
        (&[("If-None-Match", "\"x\"")], 200, None),
        (&[("If-Modified-Since", "Fri, 01 Jan 2021 00:00:00 GMT")], 304, None),
        (&[("If-Modified-Since", "Fri, 01 Jan 2020 00:00:00 GMT")], 200, None),
        (
            &[("If-None-Match", "\"x\""), ("If-Modified-Since", "Fri, 01 Jan 2021 00:00:00 GMT")],
            200,
            None,
        ),
        (&[("Range", "bytes=2-5")], 206, Some(2..6)),
        (&[("Range", "bytes=-3")], 206, Some(whole.body.len() - 3..whole.body.len())),
        (&[("Range", "bytes=2-5"), ("If-Range", "\"t\"")], 206, Some(2..6)),
        (&[("Range", "bytes=2-5"), ("If-Range", "\"x\"")], 200, None),
        (&[("Range", "bytes=2-5,7-8")], 200, None),
        (&[("Range", "bytes=1000-"), ("If-Range", "\"x\"")], 200, None),
        (&[("Range", "bytes=2-5"), ("If-None-Match", "\"t\"")], 304, None),
    ] {
        let answer = kept.server.ask(&with(page, fields));
        assert_eq!((answer.status(), is_hit(&answer)), (status, true), "{fields:?}");
        let part = match status {
            304 => &[][..],
            _ => &whole.body[range.unwrap_or(0..whole.body.len())],
        };
        assert_eq!(answer.body, part, "{fields:?}");
        assert_eq!(answer.header("ETag"), Some("\"t\""), "{fields:?}");
    }
    let beyond = kept.server.ask(&with(page, &[("Range", "bytes=1000-")]));
    let range = format!("bytes */{}", whole.body.len());
    assert_eq!((beyond.status(), beyond.header("Content-Range")), (416, Some(&*range)));
    assert!(is_hit(&beyond) && beyond.body.is_empty());
    // Only a GET asks for a part (RFC 9110 §14.2).
    let head = kept.server.ask(&Request::new("HEAD", page).header("Range", "bytes=2-5"));
    assert_eq!((head.status(), head.header("Content-Range")), (200, None));
    assert_eq!(kept.runs(), runs);
}

/// A weak tag does not say that the bytes are the same, so it proves no part (RFC 9110 §13.1.5).
#[test]
fn a_part_needs_a_strong_tag() {
    let kept = CachingServer::start("http");
    let page = "/page.php?tag=W/%22t%22&head[]=Cache-Control:+max-age=600";
    kept.get(page);
    kept.get_kept(page);
    for tag in ["\"t\"", "W/\"t\""] {
        let asks = Request::get(page).header("Range", "bytes=2-5").header("If-Range", tag);
        let answer = kept.server.ask(&asks);
        assert_eq!((answer.status(), is_hit(&answer)), (200, true), "{tag}");
    }
}

/// The application's `Age` adds to the age of the page (§4.2.3).
#[test]
fn the_age_of_a_page_is_told() {
    let kept = CachingServer::start("http");
    let page = "/page.php?head[]=Cache-Control:+max-age=6000&head[]=Age:+3000";
    kept.get(page);
    let age = |page: &Response| page.header("Age").unwrap().parse::<u64>().unwrap();
    let first = age(&kept.get_kept(page));
    assert!((3000..4000).contains(&first), "{first}");
    assert!(wait::until(LIMIT, || age(&kept.get(page)) > first));
}

/// A page whose `Date` is two hours old has been on its way for two hours (§4.2.3).
#[test]
fn an_old_date_is_a_part_of_the_age() {
    let script = "<?php header('Date: ' . gmdate('D, d M Y H:i:s', time() - 7200) . ' GMT');
        header('Cache-Control: max-age=' . $_GET['fresh']); echo random_int(0, PHP_INT_MAX);";
    let kept = CachingServer::with(Site::with("dated.php", script), "http");
    let old = |_| kept.get("/dated.php?fresh=7200");
    assert_ne!(old(1).text(), old(2).text());
    kept.get("/dated.php?fresh=9000");
    let age: u64 = kept.get_kept("/dated.php?fresh=9000").header("Age").unwrap().parse().unwrap();
    assert!((7200..9000).contains(&age), "{age}");
}

/// An application that forbids it is not represented by its old page when it fails (§4.2.4).
#[test]
fn an_old_page_is_not_sent_where_that_is_forbidden() {
    let kept = CachingServer::start("10m, stale 1h");
    for control in ["max-age=1,+must-revalidate", "max-age=1,+proxy-revalidate", "s-maxage=1"] {
        let page = format!("/page.php?head[]=Cache-Control:+{control}");
        kept.get(&page);
        kept.site.write_at(kept.site.outside("broken"), "");
        let mut last = None;
        let failed = wait::until(LIMIT, || {
            let answer = kept.get(&page);
            let has_failed = answer.status() == 500;
            last = Some(answer);
            has_failed
        });
        assert!(failed, "{control}: {:?}", last.map(|answer| status(&answer).to_owned()));
        fs::remove_file(kept.site.outside("broken")).unwrap();
    }
}

/// A script of pages that a client can check: their length and their bytes follow from their
/// number.
const NUMBERED: &str =
    "<?php $n = (int) $_GET['n']; echo str_repeat(md5($n), $n * 40), \"end of $n\";";

/// A front that is killed while it writes leaves whole pages or none, and torn files do not count
/// as pages.
#[test]
fn a_killed_server_leaves_no_wrong_page() {
    let mut site = Site::with("numbered.php", NUMBERED);
    site.write("page.php", PAGE);
    let mut hits = 0;
    for round in 0..5 {
        let kept = CachingServer::with(site, "10m");
        kept.server.await_log("kept pages have been read");
        let mut clients: Vec<_> = (0..40)
            .map(|n| {
                let mut client = kept.server.connect();
                let request = Request::get(&format!("/numbered.php?n={n}"));
                // The port of the server changes.
                let request = request.header("Host", "a.test").header("X-Forwarded-Port", "80");
                client.send(request.header("X-Forwarded-For", "192.0.2.1").bytes());
                client
            })
            .collect();
        for (n, client) in clients.iter_mut().enumerate() {
            // The server is killed while others are answered and written.
            if n == 8 * (round + 1) {
                sendoff_tests::processes::signal(kept.server.front(), Signal::KILL);
            }
            let Ok(page) = client.try_response("GET") else { continue };
            assert!(page.text().ends_with(&format!("end of {n}")), "{n}: {}", status(&page));
            let line = page.text().bytes().take(32).collect::<Vec<_>>();
            let repeated = page.body[..n * 40 * 32].chunks(32).all(|part| part == line);
            assert_eq!(
                (page.body.len(), repeated),
                (n * 40 * 32 + format!("end of {n}").len(), true)
            );
            hits += usize::from(is_hit(&page));
        }
        // As if power had failed: pieces of files.
        for (number, body) in kept.bodies().iter().enumerate().filter(|(number, _)| number % 5 == 0)
        {
            let bytes = fs::read(body).unwrap();
            fs::write(body, &bytes[..bytes.len() * (number % 3) / 3]).unwrap();
        }
        for entry in fs::read_dir(kept.site.outside("pages")).unwrap().step_by(7) {
            let path = entry.unwrap().path();
            if path.extension().is_none() {
                let text = fs::read(&path).unwrap();
                fs::write(&path, &text[..text.len() / 2]).unwrap();
            }
        }
        let CachingServer { site: own, server } = kept;
        sendoff_tests::processes::signal(server.pid(), Signal::TERM);
        server.await_end();
        site = own;
    }
    assert!(hits > 0, "no page has survived");
}

/// Sends 9 MiB, or the part of them that is asked for.
const LARGE: &str = r"<?php
$size = 9 << 20;
$all = fn(int $first, int $count) => substr(str_repeat('0123456789abcdef', ($count >> 4) + 2), $first % 16, $count);
header('Cache-Control: max-age=600');
if (preg_match('/^bytes=(\d+)-(\d+)$/', $_SERVER['HTTP_RANGE'] ?? '', $part)) {
    http_response_code(206);
    header(sprintf('Content-Range: bytes %d-%d/%d', $part[1], $part[2], $size));
    echo $all((int) $part[1], $part[2] - $part[1] + 1);
} else {
    header('Content-Length: ' . $size);
    echo $all(0, $size);
}";

/// A download that is not kept is resumed by the application that can do that.
#[test]
fn ranges_of_what_is_not_kept_are_the_applications() {
    let kept = CachingServer::with(Site::with("page.php", LARGE), "10m");
    let part =
        || kept.server.ask(&Request::get("/page.php").header("Range", "bytes=9000005-9000008"));
    for _ in 0..2 {
        let part = part();
        assert_eq!((part.status(), part.body.len()), (206, 4));
        assert_eq!(part.text(), "5678");
        assert_eq!(part.header("Content-Range"), Some("bytes 9000005-9000008/9437184"));
        assert_eq!(status(&part), "sendoff; fwd=uri-miss");
        let whole = kept.get("/page.php");
        assert_eq!((whole.status(), whole.body.len()), (200, 9 << 20));
        assert_eq!(status(&whole), "sendoff; fwd=uri-miss");
    }
}

/// Fields of an application's 304 go to the client, too, and may forbid to keep the page.
#[test]
fn a_page_that_may_no_longer_be_kept_is_forgotten() {
    let script = "<?php header('ETag: \"t\"');
        if (isset($_SERVER['HTTP_IF_NONE_MATCH'])) {
            header('Cache-Control: private'); header('X-Said: private'); http_response_code(304); exit;
        }
        header('Cache-Control: max-age=1'); echo 'page';";
    let kept = CachingServer::with(Site::with("page.php", script), "http");
    kept.get("/page.php");
    let valid = wait::for_some("a question", || {
        Some(kept.get("/page.php")).filter(|page| page.header("X-Said").is_some())
    });
    assert_eq!((valid.status(), &*valid.text()), (200, "page"));
    assert_eq!(valid.header("Cache-Control"), Some("private"));
    assert!(wait::until(LIMIT, || kept.bodies().is_empty()));
}

/// A dropped line may have forbidden the page to be kept.
#[test]
fn a_page_of_which_a_line_was_dropped_is_not_kept() {
    let script = "<?php header('ETag: \"t\"'); header('Cache-Control: max-age=1');
        if (isset($_SERVER['HTTP_IF_NONE_MATCH'])) {
            header('X-Said: 1'); header(\"Set-Cookie: a=\\x01\"); http_response_code(304); exit;
        }
        echo 'page';";
    let site = Site::with("page.php", PAGE);
    site.write("confirmed.php", script);
    let kept = CachingServer::with(site, "10m");
    for field in [
        "Set-Cookie:+sid=%01abc",
        "Cache-Control:+private,x=%01",
        "Status:+404+a%1bb&head[]=Cache-Control:+max-age=60",
        "Content-Length:+x",
        "NoColon",
    ] {
        let target = format!("/page.php?head[]=X-A:+1&head[]={field}");
        let (one, two) = (kept.get(&target), kept.get(&target));
        assert_eq!(status(&one), "sendoff; fwd=uri-miss; detail=invalid-field", "{field}");
        assert_ne!(one.text(), two.text(), "{field}");
    }
    let target = "/page.php?head[]=X-Accel-Redirect:+/x%01";
    assert_eq!([kept.get(target).status(), kept.get(target).status()], [502, 502]);
    kept.get("/confirmed.php");
    wait::for_some("a question", || {
        Some(kept.get("/confirmed.php")).filter(|page| page.header("X-Said").is_some())
    });
    assert!(wait::until(LIMIT, || kept.bodies().is_empty()));
}

/// A script whose pages are fresh for a second, and which confirms them with the fields of `said`.
const CONFIRMING: &str = "<?php
file_put_contents(__DIR__ . '/../runs', '.', FILE_APPEND);
header('Cache-Control: max-age=1');
if (isset($_SERVER['HTTP_IF_NONE_MATCH'])) {
    foreach ($_GET['said'] as $field) header($field, false);
    http_response_code(304);
    exit;
}
foreach ($_GET['head'] as $field) header($field, false);
echo 'run ', strlen(file_get_contents(__DIR__ . '/../runs'));";

/// The bytes of the body stay as they are, so what describes them stays, too (RFC 9111 §3.2).
#[test]
fn a_confirmation_does_not_change_what_describes_the_bytes() {
    let kept = CachingServer::with(Site::with("page.php", CONFIRMING), "10m");
    let target = "/page.php?head[]=ETag:+W/%22t%22&said[]=ETag:+%22t%22&said[]=X-Said:+1\
                  &said[]=Content-Encoding:+gzip&said[]=Content-Range:+bytes+0-1/2\
                  &said[]=Content-Language:+de";
    assert_eq!(kept.get(target).text(), "run 1");
    let confirmed = wait::for_some("a confirmation", || {
        Some(kept.get(target)).filter(|page| page.header("X-Said").is_some())
    });
    let part = kept.server.ask(&Request::get(target).header("Range", "bytes=1-2"));
    assert_eq!((confirmed.status(), &*confirmed.text()), (200, "run 1"));
    assert_eq!((part.status(), &*part.text()), (206, "un"));
    assert_eq!(part.header("Content-Range"), Some("bytes 1-2/5"));
    for page in [confirmed, part] {
        assert_eq!(page.header("Content-Encoding"), None);
        assert_eq!(page.header("Content-Language"), Some("de"));
        assert_eq!(page.header("ETag"), Some("W/\"t\""));
        let ranges = page.head.headers.iter().filter(|(name, _)| name == "Content-Range").count();
        assert_eq!(ranges, usize::from(page.status() == 206));
    }
}

/// An application's own `Content-Range` in a whole page means nothing, also for a part of the page.
#[test]
fn a_part_of_a_page_has_one_content_range() {
    let kept = CachingServer::with(Site::with("page.php", CONFIRMING), "10m");
    let target = "/page.php?head[]=Content-Range:+bytes+0-1/2&head[]=Cache-Control:+max-age=60";
    kept.get_kept(target);
    let part = kept.server.ask(&Request::get(target).header("Range", "bytes=1-2"));
    let all = part.head.headers.iter().filter(|(name, _)| name == "Content-Range");
    let all: Vec<_> = all.map(|(_, value)| &**value).collect();
    assert_eq!((part.status(), all), (206, vec!["bytes 1-2/5"]));
}

/// `ETag` has one value (RFC 9110 §8.8.3). Several fields, or a list, are no tag: they confirm no
/// page, and a page with them is asked about by its date, if it has one.
#[test]
fn several_tags_are_none() {
    let kept = CachingServer::with(Site::with("page.php", CONFIRMING), "10m");
    let of_page = "/page.php?head[]=ETag:+%22t%22&said[]=X-Said:+1&said[]=ETag:+%22t%22";
    for (target, is_confirmed) in [
        (of_page.to_owned(), true),
        (format!("{of_page}&said[]=ETag:+%22u%22"), false),
        (format!("{of_page},+%22u%22"), false),
        (of_page.replacen("&said", "&head[]=ETag:+%22u%22&said", 1), false),
    ] {
        let first = kept.get(&target).text();
        let second = wait::for_some("another answer", || {
            let page = kept.get(&target);
            Some(page).filter(|page| page.header("X-Said").is_some() || page.text() != first)
        });
        assert_eq!(second.text() == first, is_confirmed, "{target}: {}", second.text());
    }
    // Nor does the client's copy of such a page have a tag.
    let target =
        of_page.replacen("&said", "&head[]=ETag:+%22u%22&head[]=Cache-Control:+max-age=60&said", 1);
    kept.get_kept(&target);
    let again = kept.server.ask(&Request::get(&target).header("If-None-Match", "\"t\""));
    assert_eq!(again.status(), 200);
}
