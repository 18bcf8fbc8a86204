//! Compressed responses: after decoding, clients have the bytes that they would get from the stock
//! servers.

use std::io::{self, Read};
use std::time::{Duration, Instant, SystemTime};

use sendoff_tests::mapper::Mapper;
use sendoff_tests::{
    Broken, Client, Request, Response, Server, Site, Stock, curl, pattern, processes, wait,
};

const CODINGS: [&str; 3] = ["zstd", "br", "gzip"];

const SCRIPT: &str = "<?php $case = $_GET['case'] ?? '';
function text(int $n) { $t = ''; for ($i = 0; strlen($t) < $n; $i++) $t .= \"<p>line $i of \" . $i * $i . \"</p>\\n\"; return $t; }
if ($case === 'tiny') echo 'a few words';
if ($case === 'small') echo text(3000);
if ($case === 'page') echo text(50000);
if ($case === 'large') echo text(3000000);
if ($case === 'pieces') for ($i = 0; $i < 300; $i++) echo text(700);
if ($case === 'flushes') for ($i = 0; $i < 20; $i++) { echo text(1500); if (ob_get_level()) ob_flush(); flush(); }
if ($case === 'readfile') readfile('big.html');
if ($case === 'echo') { echo '<html>'; echo file_get_contents('big.html'); echo text(2000); }
if ($case === 'sendfile') header('X-Accel-Redirect: /big.html');
if ($case === 'length') { header('Content-Length: 5000'); echo substr(text(6000), 0, 5000); }
if ($case === 'missing') { http_response_code(404); echo text(5000); }
if ($case === 'noise') { mt_srand(1); $n = ''; while (strlen($n) < 20000) $n .= chr(mt_rand(0, 255)); echo $n; }
if ($case === 'json') { header('Content-Type: application/json'); echo json_encode(range(0, 3000)); }
if ($case === 'problem') { header('Content-Type: application/problem+json'); echo json_encode(range(0, 3000)); }
if ($case === 'image') { header('Content-Type: image/png'); echo text(50000); }
if ($case === 'encoded') { header('Content-Encoding: gzip'); echo gzencode(text(50000)); }
if ($case === 'fixed') { header('Cache-Control: no-transform'); echo text(50000); }
if ($case === 'empty') http_response_code(204);
if ($case === 'part') { http_response_code(206); header('Content-Range: bytes 0-2999/9000'); echo substr(text(9000), 0, 3000); }
if ($case === 'tag') { header('ETag: \"abc\"'); header('Vary: Cookie');
    if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"abc\"') http_response_code(304); else echo text(5000); }
if ($case === 'match') { header('Content-Type: text/plain'); echo $_SERVER['HTTP_IF_MATCH'] ?? '-'; }
";

/// The cases of the script above whose body is compressed.
const COMPRESSED: [&str; 13] = [
    "small", "page", "large", "pieces", "flushes", "readfile", "echo", "sendfile", "length",
    "missing", "json", "problem", "tag",
];

fn text(length: usize) -> String {
    (0..).map(|n| format!("<p>line {n} of {}</p>\n", n * n % 977)).take(length / 20).collect()
}

/// Text that becomes very short.
fn words(length: usize) -> String {
    text(2000).repeat(1 + length / 1000)[..length].to_owned()
}

fn site() -> Site {
    let site = Site::with("x.php", SCRIPT);
    site.write("big.html", text(200_000));
    site.write("style.css", text(60_000));
    site.write("small.css", text(6_000));
    site.write("short.css", "a { color: red }");
    site.write("picture.png", pattern(1, 40_000));
    site
}

fn asking(target: &str, coding: &str) -> Request {
    Request::get(target).header("Accept-Encoding", coding)
}

fn decoded(coding: &str, mut body: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(body).read_to_end(&mut out)?,
        "zstd" => zstd::stream::read::Decoder::new(body)?.read_to_end(&mut out)?,
        "br" => brotli::BrotliDecompress(&mut body, &mut out).map(|()| 0)?,
        _ => body.read_to_end(&mut out)?,
    };
    Ok(out)
}

/// The body without its coding.
#[track_caller]
fn plain(response: &Response) -> Vec<u8> {
    let coding = response.header("content-encoding").unwrap_or_default();
    decoded(coding, &response.body).unwrap_or_else(|error| panic!("{error}: {:?}", response.head))
}

#[test]
fn decoded_bodies_are_those_of_the_stock_servers() {
    let site = site();
    let (stock, ours) =
        (Stock::start(site.root(), &[]), Server::start(site.root(), &["--compress"]));
    let cases = ["tiny", "noise", "image", "encoded", "fixed", "empty", "part", "match"];
    for case in COMPRESSED.iter().chain(&cases) {
        let target = format!("/x.php?case={case}");
        let theirs = stock.ask(&Request::get(&target));
        for coding in CODINGS {
            // The third time a file is sent from the cache.
            for _ in 0..3 {
                let response = ours.ask(&asking(&target, coding));
                assert_eq!(response.status(), theirs.status(), "{case}");
                assert!(plain(&response) == plain(&theirs), "{case}, {coding}: other bytes");
                assert_eq!(response.header("content-type"), theirs.header("content-type"));
                let expected = COMPRESSED.contains(case).then_some(coding);
                let expected = expected.or(theirs.header("content-encoding"));
                // That it gains nothing is noticed if the page comes as a whole.
                if *case != "noise" {
                    assert_eq!(response.header("content-encoding"), expected, "{case}, {coding}");
                }
                let varies = response.head.all("vary").any(|value| value == "Accept-Encoding");
                let depends = COMPRESSED.contains(case) || ["noise", "part"].contains(case);
                assert_eq!(varies, depends, "{case}, {coding}: {:?}", response.head);
            }
        }
        let identity = ours.ask(&Request::get(&target));
        assert!(identity.body == theirs.body, "{case}");
        assert_eq!(identity.header("content-encoding"), theirs.header("content-encoding"));
        let varies = identity.head.all("vary").any(|value| value == "Accept-Encoding");
        assert_eq!(varies, COMPRESSED.contains(case) || ["noise", "part"].contains(case), "{case}");
        let old = ours.ask(&asking(&target, "gzip, zstd;q=0, br;q=0").http10());
        // There is no older version of HTTP/2.
        let is_same = if old.is_multiplexed() {
            plain(&old) == plain(&theirs)
        } else {
            old.body == theirs.body
        };
        assert!(is_same, "{case}");
    }
}

#[test]
fn curl_decodes_what_it_gets() {
    let site = site();
    let server = Server::start(site.root(), &["--compress"]);
    for target in ["/x.php?case=flushes", "/x.php?case=large", "/big.html", "/style.css"] {
        let whole = server.get(target).body;
        for coding in CODINGS {
            let url = format!("http://{}{target}", server.addr());
            let field = format!("Accept-Encoding: {coding}");
            let done =
                curl().args(["--fail", "--compressed", "-H", &field, &url]).output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            assert!(done.stdout == whole, "{target}, {coding}");
        }
    }
}

#[test]
fn nothing_is_compressed_unless_the_operator_says_so() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for target in ["/x.php?case=page", "/style.css"] {
        let response = server.ask(&asking(target, "gzip, br, zstd"));
        assert_eq!(response.header("content-encoding"), None);
        assert_eq!(response.header("vary"), None);
    }
}

#[test]
fn hostile_weights_choose_nothing_that_was_not_accepted() {
    let site = site();
    let server = Server::start(site.root(), &["--compress"]);
    let many = "br;q=0.1,".repeat(800);
    for (value, coding) in [
        ("gzip;q=0.1, br;q=0.2, zstd;q=0.15", Some("br")),
        ("*", Some("zstd")),
        ("*;q=0.5, zstd;q=0", Some("br")),
        ("identity;q=0", None),
        ("gzip;q=2, br;q=-1, zstd;q=NaN", None),
        (&many, Some("br")),
        (";;;,,,;q=1,\t", None),
        ("identity;q=0.9, gzip;q=0.8", None),
        ("compress, deflate", None),
    ] {
        let response = server.ask(&asking("/style.css", value));
        assert_eq!(response.header("content-encoding"), coding, "{value}");
        assert!(plain(&response) == text(60_000).as_bytes());
    }
}

#[test]
fn conditions_know_the_tags_of_compressed_responses() {
    let site = site();
    let server = Server::start(site.root(), &["--compress"]);
    for target in ["/style.css", "/x.php?case=tag"] {
        let own = server.get(target).header("etag").unwrap().to_owned();
        // From the third time on the file comes from the cache.
        for _ in 0..4 {
            let compressed = server.ask(&asking(target, "br"));
            let tag = compressed.header("etag").unwrap().to_owned();
            assert_eq!(tag, format!("W/{}+br\"", own.trim_end_matches('"')));
            let response = server.ask(&asking(target, "br").header("If-None-Match", &tag));
            response.expect(304);
            assert_eq!(response.header("etag"), Some(&*tag));
            assert!(response.head.all("vary").any(|value| value == "Accept-Encoding"));
            let identity = server.ask(&Request::get(target).header("If-None-Match", &own));
            identity.expect(304);
            assert_eq!(identity.header("etag"), Some(&*own));
            server.ask(&asking(target, "br").header("If-None-Match", "W/\"other+br\"")).expect(200);
        }
    }
    // A range counts the bytes of the file, and a client with compressed bytes gets the whole
    // response.
    let range = || asking("/style.css", "br").header("Range", "bytes=100-199");
    let part = server.ask(&range());
    assert_eq!(part.expect(206), &text(60_000).as_bytes()[100..200]);
    assert_eq!(part.header("content-encoding"), None);
    // RFC 9110 §15.3.7: as the whole would say.
    assert!(part.head.all("vary").any(|value| value == "Accept-Encoding"), "{:?}", part.head);
    let own = part.header("etag").unwrap().to_owned();
    assert_eq!(server.ask(&range().header("If-Range", &own)).expect(206).len(), 100);
    let tag = server.ask(&asking("/style.css", "br")).header("etag").unwrap().to_owned();
    let whole = server.ask(&range().header("If-Range", &tag));
    whole.expect(200);
    assert!(plain(&whole) == text(60_000).as_bytes());
    assert_eq!(whole.header("accept-ranges"), None);
    // A cache has compressed bytes, and asks for a client that takes none, or others.
    for coding in ["identity", "gzip", "br;q=0, *"] {
        for target in ["/style.css", "/x.php?case=tag"] {
            let tag = server.ask(&asking(target, "br")).header("etag").unwrap().to_owned();
            let other = server.ask(&asking(target, coding).header("If-None-Match", &tag));
            assert_eq!(other.status(), 200, "{target}, {coding}");
        }
    }
    let seen = asking("/x.php?case=match", "br").header("If-Match", "W/\"abc+br\", \"d\"");
    assert_eq!(server.ask(&seen).text(), "\"abc\", \"d\"");
}

#[test]
fn head_has_the_head_of_get() {
    let site = site();
    site.write("ready.css", text(50_000));
    site.write("ready.css.br", "ready");
    let server = Server::start(site.root(), &["--compress"]);
    let mut targets: Vec<String> = COMPRESSED.map(|case| format!("/x.php?case={case}")).to_vec();
    targets.extend(
        ["/style.css", "/small.css", "/short.css", "/picture.png", "/ready.css"].map(str::to_owned),
    );
    for target in targets {
        for coding in CODINGS {
            let fields = |response: &Response| {
                let own = ["date", "content-length", "transfer-encoding"];
                let mut fields: Vec<_> = response.head.headers.clone();
                fields.retain(|(name, _)| !own.contains(&&*name.to_ascii_lowercase()));
                fields
            };
            let get = server.ask(&asking(&target, coding));
            let head = server.ask(&Request::new("HEAD", &target).header("Accept-Encoding", coding));
            assert_eq!(fields(&head), fields(&get), "{target}, {coding}");
            if let Some(length) = head.header("content-length") {
                assert_eq!(Some(length), get.header("content-length"), "{target}, {coding}");
            }
        }
    }
}

#[test]
fn files_beside_are_sent_as_they_are() {
    let site = site();
    let server = Server::start(site.root(), &["--compress"]);
    let ready = |coding: &str| server.ask(&asking("/style.css", coding));
    assert_eq!(plain(&ready("br")), text(60_000).as_bytes());
    let gz = pattern(2, 3000);
    site.write("style.css.gz", &gz);
    let response = ready("gzip");
    assert!(response.expect(200) == gz, "the file itself");
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    assert_eq!(response.header("content-type"), Some("text/css"));
    assert_eq!(response.header("content-length"), Some("3000"));
    assert_eq!(response.header("vary"), Some("Accept-Encoding"));
    let tag = response.header("etag").unwrap().to_owned();
    assert!(tag.starts_with('"') && Some(&*tag) != server.get("/style.css").header("etag"));
    // The client likes zstd better, but the ready-made file costs nothing.
    assert!(ready("zstd, gzip").body == gz);
    assert_eq!(ready("zstd").header("content-encoding"), Some("zstd"));
    // Ranges count compressed bytes.
    let range = asking("/style.css", "gzip").header("Range", "bytes=1000-1999");
    let part = server.ask(&range.clone().header("If-Range", &tag));
    assert!(part.expect(206) == &gz[1000..2000]);
    assert_eq!(part.header("content-encoding"), Some("gzip"));
    assert_eq!(part.header("content-range"), Some("bytes 1000-1999/3000"));
    server.ask(&asking("/style.css", "gzip").header("If-None-Match", &tag)).expect(304);
    let identity = server.get("/style.css");
    assert_eq!(identity.header("vary"), Some("Accept-Encoding"));
    assert!(identity.body == text(60_000).as_bytes());
    // A compressed file that is older than its original is not sent.
    let hour = Duration::from_secs(3600);
    let file = std::fs::File::options().write(true).open(site.path("style.css.gz")).unwrap();
    file.set_modified(SystemTime::now() - hour).unwrap();
    assert!(plain(&ready("gzip")) == text(60_000).as_bytes());
    file.set_modified(SystemTime::now() + hour).unwrap();
    assert!(ready("gzip").body == gz);
    // Anything but a regular file of the site is not sent.
    std::fs::remove_file(site.path("style.css.gz")).unwrap();
    std::fs::create_dir(site.path("style.css.gz")).unwrap();
    assert!(plain(&ready("gzip")) == text(60_000).as_bytes());
    let outside = site.write_at(site.outside("style.css.br"), "not brotli");
    std::os::unix::fs::symlink(outside, site.path("style.css.br")).unwrap();
    let followed = Server::start(site.root(), &["--compress", "--symlinks", "inside"]);
    assert!(plain(&followed.ask(&asking("/style.css", "br"))) == text(60_000).as_bytes());
}

/// The times of a file do not tell of a store into a page that is dirty already.
#[test]
fn kept_compressed_files_are_those_of_the_present_contents() {
    for size in [6_000, 60_000, 1_000_000] {
        let site = site();
        let file = site.write("mapped.css", words(size));
        let rest = words(size).into_bytes()[4096..].to_vec();
        let mapper = Mapper::compile(&site);
        let mut mapping = mapper.start();
        mapping.keep(&file);
        let server = Server::start(site.root(), &["--compress"]);
        let began = Instant::now();
        for letter in ('a'..='z').cycle() {
            mapping.write_to_kept(letter);
            // The second is made while the file is compressed for later ones.
            for _ in 0..4 {
                let body = plain(&server.ask(&asking("/mapped.css", "gzip")));
                assert!(body[..4096].iter().all(|byte| *byte == letter as u8), "{size}, {letter}");
                assert!(body[4096..] == rest);
            }
            if began.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
    }
}

#[test]
fn a_changed_file_is_another_file() {
    let site = site();
    let server = Server::start(site.root(), &["--compress"]);
    for round in 0..30 {
        let body = format!("{round} {}", text(50_000 + round));
        site.write("style.css", &body);
        for coding in CODINGS {
            for _ in 0..4 {
                assert!(plain(&server.ask(&asking("/style.css", coding))) == body.as_bytes());
            }
        }
    }
}

#[test]
fn a_file_that_changes_on_its_way_is_cut() {
    let site = site();
    // Too large to be kept, and when it is compressed still larger than a socket's buffer (4 MiB).
    let mut large: String =
        pattern(5, 6_000_000).iter().map(|byte| format!("{byte:02x}")).collect();
    site.write("large.css", &large);
    let server = Server::start(site.root(), &["--compress", "--threads", "1"]);
    assert!(plain(&server.ask(&asking("/large.css", "gzip"))) == large.as_bytes());
    let mut client = Client::connect_narrow(server.addr(), 4096);
    client.send(asking("/large.css", "gzip").bytes());
    let head = client.head().unwrap();
    large.make_ascii_uppercase();
    sendoff_tests::overwrite(&site.path("large.css"), large.as_bytes());
    match client.body_of(head, "GET") {
        Err(Broken::Cut(_)) => {}
        other => panic!("a mixture: {:?}", other.map(|response| response.body.len())),
    }
    server.await_log("a file changed while it was compressed");
}

/// The body of a chunked response as it arrives.
struct Arriving<'c>(&'c mut Client);

impl Read for Arriving<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Chunks are short enough here.
        let chunk = self.0.chunk();
        buffer[..chunk.len()].copy_from_slice(&chunk);
        Ok(chunk.len())
    }
}

#[test]
fn flushed_output_arrives_before_the_script_goes_on() {
    let site = Site::with(
        "x.php",
        "<?php for ($i = 0; $i < 3; $i++) {
            echo \"part $i\\n\"; if (ob_get_level()) ob_flush(); flush(); file_get_contents('pipe'); }",
    );
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--compress"]);
    for coding in CODINGS {
        let mut client = server.connect();
        client.send(asking("/x.php", coding).bytes());
        let head = client.head().unwrap();
        assert_eq!(head.header("content-encoding"), Some(coding));
        let arriving = Arriving(&mut client);
        let mut decoder: Box<dyn Read> = match coding {
            "gzip" => Box::new(flate2::read::GzDecoder::new(arriving)),
            "zstd" => Box::new(zstd::stream::read::Decoder::new(arriving).unwrap()),
            _ => Box::new(brotli::Decompressor::new(arriving, 4096)),
        };
        for part in 0..3 {
            let mut seen = [0; 7];
            decoder.read_exact(&mut seen).unwrap();
            assert_eq!(String::from_utf8_lossy(&seen), format!("part {part}\n"), "{coding}");
            pipe.release();
        }
        let mut rest = Vec::new();
        assert_eq!(decoder.read_to_end(&mut rest).unwrap(), 0, "{coding}");
    }
}

#[test]
fn a_response_whose_worker_dies_does_not_look_complete() {
    let site = Site::with(
        "x.php",
        "<?php echo str_repeat('some text ', (int) $_GET['n']); if (ob_get_level()) ob_flush(); flush();
        file_get_contents('pipe'); posix_kill(getmypid(), 9); sleep(100);",
    );
    let pipe = site.fifo("pipe");
    let server = Server::start(site.root(), &["--compress"]);
    for coding in CODINGS {
        for n in [10, 100_000] {
            let mut client = server.connect();
            client.send(asking(&format!("/x.php?n={n}"), coding).bytes());
            let head = client.head().unwrap();
            pipe.release();
            let Err(Broken::Cut(part)) = client.body_of(head, "GET") else {
                panic!("{coding}: it looks complete");
            };
            assert!(decoded(coding, &part.body).is_err(), "{coding}: the stream looks complete");
        }
    }
    server.await_log("died");
}

#[test]
fn a_response_that_breaks_its_promise_does_not_look_complete() {
    let site = Site::with(
        "x.php",
        "<?php header('Content-Length: 9000'); echo str_repeat('some text ', 500);",
    );
    let server = Server::start(site.root(), &["--compress"]);
    for coding in CODINGS {
        match server.connect().try_ask(&asking("/x.php", coding)) {
            Err(Broken::Cut(part)) => assert!(decoded(coding, &part.body).is_err(), "{coding}"),
            other => panic!("{coding}: {other:?}"),
        }
    }
}

#[test]
fn clients_that_leave_or_take_nothing_hold_no_encoder_for_ever() {
    let site = site();
    site.write("large.css", text(12_000_000));
    let server = Server::start(site.root(), &["--compress", "--threads", "1"]);
    let mut clients = Vec::new();
    for number in 0..200 {
        let mut client = Client::connect_narrow(server.addr(), 4096);
        client.send(asking("/large.css", CODINGS[number % 3]).bytes());
        client.head().unwrap();
        clients.push(client);
    }
    // Others are served meanwhile.
    for coding in CODINGS {
        let response = server.ask(&asking("/x.php?case=page", coding));
        assert_eq!(response.status(), 200);
        assert!(plain(&response).len() >= 50_000);
    }
    drop(clients);
    // Their encoders are free again: with a leak in the budget this response would stay
    // uncompressed.
    wait::for_some("the encoders to be freed", || {
        let response = server.ask(&asking("/x.php?case=flushes", "zstd"));
        (response.header("content-encoding") == Some("zstd")).then_some(())
    });
}

#[test]
fn thousands_of_compressed_streams_cost_bounded_memory() {
    const STREAMS: usize = 1000;
    let site = Site::with(
        "x.php",
        "<?php echo str_repeat('some text ', 2000); if (ob_get_level()) ob_flush(); flush();",
    );
    site.write("large.css", text(12_000_000));
    let server = Server::start(site.root(), &["--compress", "--threads", "1"]);
    server.ask(&asking("/x.php", "zstd")).expect(200);
    let before = processes::private_memory(server.front());
    let mut clients: Vec<Client> = (0..STREAMS)
        .map(|number| {
            let mut client = Client::connect_narrow(server.addr(), 4096);
            client.send(asking("/large.css", CODINGS[number % 3]).bytes());
            client
        })
        .collect();
    let mut compressed = 0;
    for client in &mut clients {
        compressed += usize::from(client.head().unwrap().header("content-encoding").is_some());
    }
    let grown = processes::private_memory(server.front()) - before;
    assert!(compressed >= 100, "only {compressed} of {STREAMS} are compressed");
    assert!(compressed < STREAMS, "the memory of all encoders is bounded");
    // 128 MiB of encoders, 32 MiB of send queues, 32 KiB for each slow client, and the memory of
    // connections.
    assert!(grown < 260 << 20, "{STREAMS} streams take {} MiB", grown >> 20);
    assert_eq!(server.ask(&Request::get("/x.php")).status(), 200);
    drop(clients);
}

#[test]
fn explain_says_what_is_compressed() {
    let site = site();
    let server = Server::start(site.root(), &["--compress"]);
    let table = server.explain("/x.php?case=readfile", &[]).unwrap();
    assert!(table.contains("compressed with zstd"), "{table}");
    assert!(table.contains("compress = false"), "{table}");
    let table = server.explain("/x.php?case=readfile", &["-H", "Accept-Encoding: gzip"]).unwrap();
    assert!(table.contains("compressed with gzip"), "{table}");
    let table = server.explain("/x.php?case=image", &[]).unwrap();
    assert!(!table.contains("compressed"), "{table}");
}

#[test]
fn a_constant_page_is_compressed_once() {
    let site = Site::with("x.php", &text(60_000));
    let ini = ["opcache.file_update_protection=0", "opcache.revalidate_freq=0"];
    let [protection, freshness] = ini.map(|setting| ["--php-ini", setting]);
    let server = Server::start(
        site.root(),
        &[&["--compress", "--workers", "1"], &protection[..], &freshness[..]].concat(),
    );
    // Only a response from the cache has a known length. PHP makes a constant a blob after it has
    // sent it some times.
    wait::for_some("the page to come from the cache", || {
        let response = server.ask(&asking("/x.php", "zstd"));
        assert!(plain(&response) == text(60_000).as_bytes());
        response.header("content-length").map(drop)
    });
    let streamed = server.ask(&asking("/x.php", "gzip"));
    assert_eq!(streamed.header("content-length"), None, "another coding");
    assert!(plain(&streamed) == text(60_000).as_bytes());
}

#[test]
fn pages_with_secrets_are_compressed_for_their_own_site_alone() {
    let site = site();
    let server = Server::start(site.root(), &["--compress", "--trust-proxy", "127.0.0.1"]);
    let over_tls = |target: &str| {
        let request = asking(target, "zstd").header("X-Forwarded-Proto", "https");
        request.header("Cookie", "session=1")
    };
    let coding = |request: &Request| {
        let response = server.ask(request);
        assert!(response.head.all("vary").any(|value| value == "Accept-Encoding"));
        response.header("content-encoding").map(str::to_owned)
    };
    let zstd = Some("zstd".to_owned());
    let page = "/x.php?case=page";
    assert_eq!(coding(&asking(page, "zstd").header("Cookie", "session=1")), zstd, "no TLS");
    assert_eq!(coding(&asking(page, "zstd").header("X-Forwarded-Proto", "https")), zstd);
    assert_eq!(coding(&over_tls(page)), None);
    assert_eq!(coding(&over_tls(page).header("Sec-Fetch-Site", "cross-site")), None);
    assert_eq!(coding(&over_tls(page).header("Sec-Fetch-Site", "same-origin")), zstd);
    assert_eq!(coding(&over_tls("/style.css").header("Sec-Fetch-Site", "cross-site")), zstd);
    let table = server.explain(page, &["-H", "X-Forwarded-Proto: https", "-H", "Cookie: a=b"]);
    let table = table.unwrap();
    assert!(table.contains("not compressed") && table.contains("compress_cross_site"), "{table}");
}

#[test]
fn sites_and_routes_say_what_is_compressed() {
    let site = site();
    let config = site.write_at(
        site.outside("sendoff.toml"),
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2
        [[site]]\nroot = 'root'\ncompress = 'static'\ncompress_with = ['gzip', 'br']
        compress_types = ['text/css', 'image/*']\ncompress_min_length = 10
        [[site.route]]\npath = '/small.css'\ncompress = false
        [[site.route]]\npath = '/x.php'\nquery = { case = 'image' }\ncompress = true\n",
    );
    let server = Server::try_run(&config, site.root(), 2).unwrap();
    for (target, coding) in [
        ("/style.css", Some("gzip")),
        ("/short.css", None),
        ("/small.css", None),
        ("/big.html", None),
        ("/x.php?case=page", None),
        ("/x.php?case=image", Some("gzip")),
    ] {
        let response = server.ask(&asking(target, "zstd, br, gzip"));
        assert_eq!(response.header("content-encoding"), coding, "{target}");
        assert!(plain(&response) == server.get(target).body, "{target}");
    }
}
