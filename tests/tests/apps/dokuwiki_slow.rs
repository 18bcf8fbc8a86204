//! DokuWiki from Debian's package: browsing, editing, and 50 MB up and down, while slow clients
//! hold 1 MB each.

use sendoff_tests::{Client, Progress, Request, Server, Site, load, pattern, processes};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MB: usize = 1 << 20;

fn wiki() -> Site {
    let site = Site::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("dokuwiki.sh");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dokuwiki");
    let status = Command::new("sh").arg(script).arg(cache).arg(site.root()).status().unwrap();
    assert!(status.success(), "dokuwiki.sh: {status}");
    site.write("slow.php", "<?php echo file_get_contents('slow.bin');");
    site.write("slow.bin", pattern(1, MB));
    site.adopt_all(site.root());
    site
}

/// Pages that DokuWiki generates once and then serves from its own cache.
const CACHED: [&str; 3] =
    ["/lib/exe/css.php?t=dokuwiki", "/lib/exe/js.php?t=dokuwiki", "/lib/exe/jquery.php"];

/// Fills DokuWiki's caches. The ETag of a generated page contains the time before its generation,
/// the ETag of a cached page the time of the cached file. If a second of the clock begins in
/// between, which happens on a new machine, the first ETag never becomes valid again.
fn fill_caches(server: &Server) {
    for target in CACHED {
        server.get(target).expect(200);
    }
}

/// The value of a hidden field of a form.
fn hidden(page: &str, name: &str) -> String {
    let field = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&field).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

fn browse(server: &Server) {
    let start = server.page("/doku.php");
    assert!(start.contains("It runs on <strong>Sendoff</strong>"), "{start}");
    assert!(server.page("/doku.php?id=wiki:syntax").contains("Formatting Syntax"));
    assert!(
        server.page("/doku.php?id=wiki:nothing").contains("does not exist")
            || server.get("/doku.php?id=wiki:nothing").status() == 404
    );
    for (target, kind) in [
        (CACHED[0], "text/css"),
        (CACHED[1], "application/javascript"),
        (CACHED[2], "application/javascript"),
        ("/lib/images/smileys/smile.svg", "image/svg+xml"),
        ("/lib/tpl/dokuwiki/images/logo.png", "image/png"),
        ("/lib/exe/fetch.php?media=wiki:dokuwiki-128.png", "image/png"),
    ] {
        let response = server.get(target);
        response.expect(200);
        assert!(
            response.header("content-type").unwrap().starts_with(kind),
            "{target}: {response:?}"
        );
        if let Some(etag) = response.header("etag") {
            let again = server.ask(&Request::get(target).header("If-None-Match", etag));
            assert_eq!(again.status(), 304, "{target}");
        }
    }
}

fn edit(server: &Server, round: usize) {
    let form = server.page("/doku.php?id=notes&do=edit");
    let text = format!("====== Notes ======\nround %23{round} %3C%26%3E");
    let fields: String = ["sectok", "rev", "date", "prefix", "changecheck"]
        .iter()
        .map(|name| format!("{name}={}&", hidden(&form, name)))
        .collect();
    let body = format!(
        "id=notes&{fields}suffix=&wikitext={}&summary=test&do[save]=1",
        text.replace('\n', "%0A")
    );
    let saved =
        server.ask(&Request::post("/doku.php?id=notes", "application/x-www-form-urlencoded", body));
    assert!(matches!(saved.status(), 302 | 303), "{saved:?}");
    let page = server.page("/doku.php?id=notes");
    assert!(page.contains(&format!("round #{round} &lt;&amp;&gt;")), "{page}");
    assert!(server.page("/doku.php?id=notes&do=revisions").contains("notes"));
}

fn up_and_down(server: &Server, name: &str, contents: &[u8]) {
    let upload = Request::upload("/lib/exe/ajax.php?call=mediaupload", "qqfile", name, contents);
    let answer = server.ask(&upload).text();
    assert!(answer.contains("\"success\":true"), "{answer}");
    let target = format!("/lib/exe/fetch.php?media={name}");
    let response = server.get(&target);
    assert!(response.expect(200) == contents, "{name}: {} bytes came back", response.body.len());
    let (from, to) = (contents.len() / 3, contents.len() / 2);
    let part = server.ask(&Request::get(&target).header("Range", &format!("bytes={from}-{to}")));
    assert!(part.expect(206) == &contents[from..=to]);
    let head = server.ask(&Request::new("HEAD", &target));
    assert_eq!(head.status(), 200);
}

/// Browses, edits, uploads and downloads, while `slow` clients read 1 MB each at `rate` bytes per
/// second.
fn visit(slow: usize, rate: usize, size: usize) {
    let site = wiki();
    let limits = ["upload_max_filesize=64M", "post_max_size=64M"];
    let server = Server::start(site.root(), &["--php-ini", limits[0], "--php-ini", limits[1]]);
    fill_caches(&server);
    // PHP compiles all scripts before anything is timed.
    browse(&server);
    let before = processes::private_memory(server.front());
    let _progress = Progress::new(0, &format!("a wiki with {slow} slow clients"));
    std::thread::scope(|scope| {
        let addr = server.addr();
        let readers = scope.spawn(move || {
            load::read_slowly(addr, slow, &Request::get("/slow.php"), &pattern(1, MB), rate);
        });
        let times = load::times(server.addr(), 100, &Request::get("/doku.php"));
        let held = processes::private_memory(server.front()).saturating_sub(before);
        let mut round = 0;
        while round == 0 || !readers.is_finished() {
            browse(&server);
            edit(&server, round);
            up_and_down(&server, "big.zip", &pattern(2, size));
            // DokuWiki keeps old versions, and asks before it overwrites.
            std::fs::remove_file(site.path("data/media/big.zip")).unwrap();
            round += 1;
        }
        let quick = load::percentile_99(&times);
        println!(
            "99 of 100 pages within {quick:?}; the front held {} KB for {slow} slow clients",
            held / 1024
        );
        // Not a measurement: a page held by a slow client would take many seconds.
        assert!(quick < Duration::from_secs(1), "pages took {quick:?}");
        assert!(held < 64 * MB as u64, "the front grew by {} KB", held / 1024);
        readers.join().unwrap();
    });
    let after = processes::private_memory(server.front()).saturating_sub(before);
    assert!(after < 64 * MB as u64, "the front kept {} KB", after / 1024);
    let mut client = Client::connect(server.addr());
    client.ask(&Request::get("/doku.php")).expect(200);
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn fifty_megabytes_while_two_hundred_clients_are_slow() {
    visit(200, 50_000, 50 * MB);
}
