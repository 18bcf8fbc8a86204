//! HTTP/2 (RFC 9113): the same requests and responses as in HTTP/1, many at a time, and no
//! ambiguous requests.

use std::time::Instant;

use rustix::process::Signal;
use sendoff_tests::frames::{
    CANCEL, DATA, END_HEADERS, END_STREAM, Frame, Frames, GOAWAY, HEADERS, INTERNAL_ERROR,
    NO_ERROR, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, request,
};
use sendoff_tests::{Broken, Client, LIMIT, Request, Response, Server, Site, pattern, processes};

const MB: usize = 1 << 20;

/// SETTINGS_INITIAL_WINDOW_SIZE.
const WINDOW: u16 = 4;

/// A script that shows its variables, except those that must differ.
const SEEN: &str = r"<?php
$seen = $_SERVER;
foreach (['SERVER_PROTOCOL', 'REMOTE_PORT', 'REQUEST_TIME', 'REQUEST_TIME_FLOAT', 'REQUEST_ID'] as $name) unset($seen[$name]);
ksort($seen);
echo json_encode($seen), sha1(file_get_contents('php://input'));
";

fn site() -> Site {
    let site = Site::with("seen.php", SEEN);
    site.write("quick.php", "<?php echo 'quick ', $_SERVER['SERVER_PROTOCOL'];");
    site.write("status.php", "<?php http_response_code((int) $_GET['s']); echo 'body';");
    site.write("file.php", "<?php readfile('large');");
    site.write(
        "made.php",
        "<?php for ($i = 0; $i < 20000; $i++) echo str_repeat(chr(65 + $i % 26), 100);",
    );
    site.write(
        "short.php",
        "<?php header('Content-Length: 100000'); echo str_repeat('x', 60000); flush(); exit;",
    );
    site.write(
        "fields.php",
        "<?php header('Connection: close'); header('Keep-Alive: 1'); header('X-UPPER: a'); header('Upgrade: x'); echo 'ok';",
    );
    site.write("large", pattern(1, 20 * MB));
    site.write("small.txt", "small");
    site
}

fn made() -> Vec<u8> {
    (0..20_000_u32).flat_map(|i| [b'A' + u8::try_from(i % 26).unwrap(); 100]).collect()
}

/// The parts of a response that must be equal in both versions.
fn facts(response: &Response) -> (u16, Vec<(String, String)>, &[u8]) {
    let of_the_connection = ["date", "connection", "transfer-encoding", "keep-alive"];
    let fields =
        response.head.headers.iter().map(|(name, value)| (name.to_lowercase(), value.clone()));
    let mut fields: Vec<_> =
        fields.filter(|(name, _)| !of_the_connection.contains(&&name[..])).collect();
    fields.sort();
    (response.status(), fields, &response.body)
}

#[test]
fn requests_mean_what_they_mean_in_http_1() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let (mut http1, mut http2) = (server.connect(), server.http2());
    let upload = pattern(2, 3 * MB);
    for request in [
        Request::get("/seen.php?a=b&c=%20d"),
        Request::get("/seen.php/more/path?x"),
        Request::get("/seen.php").header("Cookie", "a=1; b=2").header("X-Some", "thing"),
        Request::get("/seen.php").header("X_Under", "dropped").header("Host", "other.test:81"),
        Request::post("/seen.php", "text/plain", "short"),
        Request::post("/seen.php", "text/plain", upload),
        Request::upload("/seen.php", "f", "name.txt", b"contents"),
        Request::new("OPTIONS", "/seen.php"),
        Request::new("DELETE", "/seen.php"),
        Request::new("HEAD", "/seen.php"),
        Request::new("HEAD", "/large"),
        Request::get("/status.php?s=204"),
        Request::get("/status.php?s=304"),
        Request::get("/status.php?s=500"),
        Request::get("/large"),
        Request::get("/large").header("Range", "bytes=100-5000000"),
        Request::get("/small.txt"),
        Request::get("/small.txt").header("If-None-Match", "*"),
        Request::post("/small.txt", "text/plain", pattern(3, 200_000)),
        Request::get("/none"),
        Request::get("/%00"),
        Request::get("/../x"),
        Request::get("/made.php"),
        Request::get("/file.php"),
        Request::get("/fields.php"),
    ] {
        let (one, two) = match http1.try_ask(&request) {
            Ok(response) => (response, http2.ask(&request)),
            // It closes after some.
            Err(_) => {
                http1 = server.connect();
                (http1.ask(&request), http2.ask(&request))
            }
        };
        let (expected, got) = (facts(&one), facts(&two));
        let request =
            String::from_utf8_lossy(&request.bytes()[..]).lines().next().unwrap().to_owned();
        let mut expected = expected;
        if request.contains("fields.php") {
            expected.1.retain(|(name, _)| name != "upgrade");
        }
        // Only HTTP/1 needs a length to find the end.
        assert_eq!((expected.0, &expected.1), (got.0, &got.1), "{request}");
        assert!(expected.2 == got.2, "{request}: other bytes");
    }
    assert_eq!(http2.ask(&Request::get("/quick.php")).text(), "quick HTTP/2.0");
}

#[test]
fn many_requests_at_a_time() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.http2();
    let kinds = ["/quick.php", "/made.php", "/small.txt", "/file.php", "/large", "/none"];
    // More than may be open at a time: the client waits for the others.
    let requests: Vec<_> = (0..300)
        .map(|number| Request::get(if number < 12 { kinds[number % 6] } else { kinds[number % 3] }))
        .collect();
    let (large, made) = (pattern(1, 20 * MB), made());
    for (number, response) in client.ask_all(&requests).into_iter().enumerate() {
        let kind = if number < 12 { number % 6 } else { number % 3 };
        let expected: &[u8] = match kind {
            0 => b"quick HTTP/2.0",
            1 => &made,
            2 => b"small",
            3 | 4 => &large,
            _ => {
                response.expect(404);
                continue;
            }
        };
        assert!(response.expect(200) == expected, "{number}");
    }
    let uploads: Vec<_> = (0..40_u64)
        .map(|n| Request::post("/seen.php", "text/plain", pattern(n, 100_000)))
        .collect();
    for (upload, response) in uploads.iter().zip(client.ask_all(&uploads)) {
        assert_eq!(response.text(), server.ask(upload).text().replace("\"keep-alive\"", ""));
    }
}

/// A response that is not whole must not look whole; other streams go on.
#[test]
fn a_cut_response_is_reset() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.http2();
    match client.try_ask(&Request::get("/short.php")) {
        Err(Broken::Cut(part)) => assert!(part.body.len() <= 60_000),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.ask(&Request::get("/small.txt")).text(), "small");
    let mut frames = Frames::connect(server.clear_addr(), &[]);
    frames.get(1, "/short.php");
    assert_eq!(frames.body(1), Err(Some(INTERNAL_ERROR)));
}

#[test]
fn the_preface_is_noticed_in_pieces_and_only_at_the_start() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let preface = sendoff_tests::frames::PREFACE;
    let mut client = Client::connect(server.clear_addr());
    preface.iter().for_each(|byte| client.send([*byte]));
    client.send(frame(SETTINGS, 0, 0, &[]));
    assert_eq!(client.read(9)[3], SETTINGS);
    let mut client = Client::connect(server.clear_addr());
    let post = Request::post("/quick.php", "text/plain", "x").bytes();
    post.chunks(1).for_each(|byte| client.send(byte));
    assert_eq!(client.response("POST").text(), "quick HTTP/1.1");
    client.send(preface);
    assert_eq!(client.response("GET").status(), 505);
}

/// The first byte of the fields of a response: `:status` from the static table.
const STATUS_200: u8 = 0x88;
const STATUS_400: u8 = 0x8c;

enum Answer {
    Status(u8),
    Other,
    Reset,
}

#[test]
fn what_could_be_read_in_two_ways_reaches_no_script() {
    let site = site();
    site.write(
        "note.php",
        "<?php file_put_contents('reached', $_SERVER['REQUEST_URI'] . \"\n\", FILE_APPEND);",
    );
    let server = Server::start(site.root(), &[]);
    let target = "/note.php";
    for (block, answer) in [
        (request("GET", target, &[("x", " a")]), Answer::Reset),
        (request("GET", target, &[("x", "a\t")]), Answer::Reset),
        (request("GET", target, &[("host", "other.test")]), Answer::Status(STATUS_400)),
        (
            request("GET", target, &[("host", "example.test"), ("host", "example.test")]),
            Answer::Status(STATUS_400),
        ),
        (
            request("GET", target, &[("authorization", "a"), ("authorization", "b")]),
            Answer::Status(STATUS_400),
        ),
        (request("GET", "*", &[]), Answer::Status(STATUS_400)),
        (request("GET", "/%zz.php", &[]), Answer::Status(STATUS_400)),
        (request("GET", "http://example.test/note.php", &[]), Answer::Status(STATUS_400)),
        (request("GET", "", &[]), Answer::Reset),
        (request("GET", "/note.php HTTP/1.1", &[]), Answer::Reset),
        (request("GET", target, &[("connection", "close")]), Answer::Reset),
        (request("GET", target, &[("transfer-encoding", "chunked")]), Answer::Reset),
        (request("GET", target, &[("upgrade", "h2c")]), Answer::Reset),
        (request("GET", target, &[("te", "gzip")]), Answer::Reset),
        (request("GET", target, &[("content-length", "5")]), Answer::Reset),
        (
            sendoff_tests::frames::fields(&[
                (":method", "GET"),
                (":scheme", "http"),
                (":path", target),
            ]),
            Answer::Status(STATUS_400),
        ),
        (
            sendoff_tests::frames::fields(&[
                (":method", "CONNECT"),
                (":authority", "example.test:80"),
            ]),
            Answer::Other,
        ),
    ] {
        let mut client = Frames::connect(server.clear_addr(), &[]);
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        let shown = String::from_utf8_lossy(&block).into_owned();
        let first = client.find(|frame| frame.stream == 1).unwrap_or_else(|| panic!("{shown}"));
        match answer {
            Answer::Status(status) => {
                assert_eq!((first.kind, first.payload[0]), (HEADERS, status), "{shown}");
            }
            Answer::Other => {
                assert!(first.kind == HEADERS && first.payload[0] != STATUS_200, "{shown}");
            }
            Answer::Reset => assert_eq!(first.kind, RST_STREAM, "{shown}"),
        }
        // Only the stream was concerned.
        client.get(3, "/small.txt");
        assert_eq!(client.body(3).unwrap(), b"small", "{shown}");
    }
    // The decoder of fields cannot go on after these.
    for value in ["a\r\nx: y", "a\0"] {
        let mut client = Frames::connect(server.clear_addr(), &[]);
        client.send(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            1,
            &request("GET", target, &[("x", value)]),
        ));
        let refused = client.find(|frame| matches!(frame.kind, RST_STREAM | GOAWAY));
        assert!(refused.is_some(), "{value:?}");
    }
    // A body longer or shorter than announced, and trailers.
    for (length, data, kind) in
        [("3", "abcd", RST_STREAM), ("5", "abcd", RST_STREAM), ("4", "abcd", HEADERS)]
    {
        let mut client = Frames::connect(server.clear_addr(), &[]);
        let fields = [("content-length", length)];
        client.send(frame(HEADERS, END_HEADERS, 1, &request("POST", "/seen.php", &fields)));
        client.send(frame(DATA, 0, 1, data.as_bytes()));
        let trailers = sendoff_tests::frames::fields(&[("x-trailer", "1"), ("host", "b")]);
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers));
        assert_eq!(client.find(|frame| frame.stream == 1).unwrap().kind, kind, "{length}");
        if kind == HEADERS {
            let body = String::from_utf8(client.body(1).unwrap()).unwrap();
            assert!(!body.contains("TRAILER") && body.contains("example.test"), "{body}");
        }
    }
    assert!(!site.path("reached").exists());
}

#[test]
fn a_body_is_asked_for_if_the_client_waits() {
    let site = site();
    let server = Server::start(site.root(), &["--max-body", "1000"]);
    let mut client = Frames::connect(server.clear_addr(), &[]);
    let fields = [("expect", "100-continue"), ("content-length", "3")];
    client.send(frame(HEADERS, END_HEADERS, 1, &request("POST", "/seen.php", &fields)));
    let interim = client.find(|frame| frame.stream == 1).unwrap();
    assert_eq!((interim.kind, interim.ends()), (HEADERS, false));
    client.send(frame(DATA, END_STREAM, 1, b"abc"));
    assert!(client.body(1).unwrap().ends_with(b"a9993e364706816aba3e25717850c26c9cd0d89d"));
    // A body that is not wanted is not asked for.
    client.send(frame(HEADERS, END_HEADERS, 3, &request("POST", "/small.txt", &fields)));
    let first = client.find(|frame| frame.stream == 3).unwrap();
    assert!(first.kind == HEADERS && first.payload[0] != STATUS_200);
    let reset = client.find(|frame| frame.stream == 3 && frame.kind == RST_STREAM).unwrap();
    assert_eq!(reset.code(), NO_ERROR);
    // A body that is too large is refused, announced or not.
    for (stream, length) in [(5, Some("1001")), (7, None)] {
        let fields: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
        client.send(frame(HEADERS, END_HEADERS, stream, &request("POST", "/seen.php", &fields)));
        client.send(frame(DATA, END_STREAM, stream, &[b'x'; 1001]));
        let body = String::from_utf8(client.body(stream).unwrap()).unwrap();
        assert!(body.contains("413"), "{body}");
    }
}

#[test]
fn a_large_download_does_not_delay_other_streams() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for large in ["/large", "/file.php"] {
        let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0x7fff_ffff)]);
        client.allow(0, 0x7000_0000);
        client.get(1, large);
        client.find(|frame| frame.stream == 1 && frame.kind == DATA).unwrap();
        client.get(3, "/small.txt");
        let mut bytes = 0;
        let is_small = |frame: &Frame| frame.stream == 3 && frame.ends();
        loop {
            let frame = client.receive().unwrap();
            assert!(!(frame.stream == 1 && frame.ends()), "{large} came first");
            if is_small(&frame) {
                break;
            }
            bytes += frame.payload.len();
        }
        assert!(bytes < 19 * MB, "{bytes} bytes of {large} came before");
        assert!(!client.body(1).unwrap().is_empty());
    }
}

/// Clients that open no window, on many streams: the responses wait on disk, not in memory, and
/// occupy no worker.
#[test]
fn streams_that_take_nothing_cost_little_memory() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let before = processes::private_memory(server.front());
    let mut clients: Vec<_> = (0..10)
        .map(|_| {
            let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 0)]);
            (0..100)
                .for_each(|n| client.get(2 * n + 1, ["/made.php", "/file.php"][(n % 2) as usize]));
            client
        })
        .collect();
    for client in &mut clients {
        let mut begun = 0;
        while begun < 100 {
            begun += usize::from(client.receive().unwrap().kind == HEADERS);
        }
    }
    let began = Instant::now();
    server.get("/quick.php").expect(200);
    assert!(began.elapsed() < LIMIT / 3);
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < 100 << 20, "1,000 streams cost {} MiB", grown >> 20);
    // The responses that waited are correct.
    let (large, made) = (pattern(1, 20 * MB), made());
    for (stream, expected) in [(1, &made), (3, &large)] {
        clients[0].allow(0, 0x3000_0000);
        clients[0].allow(stream, 0x7000_0000);
        assert!(clients[0].body(stream).unwrap() == *expected);
    }
}

#[test]
fn who_takes_or_sends_nothing_is_given_up() {
    let site = site();
    let options = [
        "--send-timeout",
        "1",
        "--body-timeout",
        "1",
        "--idle-timeout",
        "1",
        "--head-timeout",
        "1",
    ];
    let server = Server::start(site.root(), &options);
    let mut client = Frames::connect(server.clear_addr(), &[(WINDOW, 10)]);
    client.get(1, "/large");
    assert_eq!(client.body(1), Err(Some(INTERNAL_ERROR)));
    client.send(frame(HEADERS, END_HEADERS, 3, &request("POST", "/seen.php", &[])));
    let body = client.find(|frame| frame.stream == 3 && frame.kind == DATA).unwrap();
    assert_eq!(body.payload.len(), 10);
    client.allow(3, 1000);
    assert!(client.body(3).is_ok(), "a page says 408");
    // Then it is idle, and told so before the connection ends.
    assert_eq!(client.end(), Some(NO_ERROR));
    // A preface, settings or fields that do not come to their end.
    let preface = sendoff_tests::frames::PREFACE;
    let begun = frame(HEADERS, 0, 1, &request("GET", "/large", &[]));
    let settings = frame(SETTINGS, 0, 0, &[]);
    let all = [
        preface[..10].to_vec(),
        preface.to_vec(),
        [preface, &settings, &begun[..20]].concat(),
        [preface, &settings, &begun].concat(),
    ];
    let clients = all.map(|sent| {
        let mut client = Client::connect(server.clear_addr());
        client.send(sent);
        client
    });
    for client in clients {
        let mut bytes = Vec::new();
        let _reset = std::io::Read::read_to_end(&mut client.stream(), &mut bytes);
        assert!(!bytes.starts_with(b"HTTP/1.1 200"));
    }
}

/// A client may end its sending direction after its requests, as in HTTP/1. Requests that wait for
/// an application are then given up, in both versions.
#[test]
fn requests_that_have_come_whole_outlive_the_sending_direction() {
    let site = site();
    site.write("slow.php", "<?php sleep(3); echo 'late';");
    let log = site.outside("access.log");
    let server = Server::start(
        site.root(),
        &["--tls-listen", "127.0.0.1:0", "--access-log", log.to_str().unwrap()],
    );
    let large = pattern(1, 20 * MB);
    for addr in [server.clear_addr(), server.tls_addr().unwrap()] {
        // All in one write, so that the server may see the end together with the requests.
        let head = |method, stream, path| {
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &request(method, path, &[]))
        };
        let mut client = Frames::connect(addr, &[(WINDOW, 0x7fff_ffff)]);
        let all = [
            frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes()),
            head("GET", 1, "/large"),
            head("HEAD", 3, "/large"),
            head("GET", 5, "/none"),
            head("GET", 7, "/small.txt"),
        ];
        client.send(all.concat());
        client.half_close();
        let mut answers: [Vec<u8>; 8] = Default::default();
        let mut ended = Vec::new();
        while let Some(frame) = client.receive() {
            assert!(!matches!(frame.kind, RST_STREAM | GOAWAY), "{frame:?}");
            if frame.ends() {
                ended.push(frame.stream);
            }
            if frame.kind == DATA {
                answers[usize::try_from(frame.stream).unwrap()].extend(frame.payload);
            }
        }
        ended.sort_unstable();
        assert_eq!(ended, [1, 3, 5, 7]);
        assert!(answers[1] == large && answers[3].is_empty() && answers[7] == b"small");
        assert!(answers[5].windows(3).any(|three| three == b"404"));

        // Exchanges that cannot be completed do not keep the connection: a body without an end, a
        // response that waits for a window, a response that waits for a script.
        let began = Instant::now();
        let mut client = Frames::connect(addr, &[(WINDOW, 10)]);
        client.send(frame(HEADERS, END_HEADERS, 1, &request("POST", "/seen.php", &[])));
        client.send(frame(DATA, 0, 1, b"begun"));
        client.get(3, "/large");
        client.get(5, "/slow.php");
        client.half_close();
        let mut first = Vec::new();
        while let Some(frame) = client.receive() {
            assert!(!frame.ends(), "{frame:?}");
            if frame.kind == DATA {
                first.extend(frame.payload);
            }
        }
        assert_eq!(first, large[..10]);
        assert!(began.elapsed() < LIMIT / 3, "{:?}", began.elapsed());
    }
    let given_up = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.matches("\"GET /slow.php HTTP/2.0\" 499 0").count() == 2
    };
    assert!(sendoff_tests::wait::until(LIMIT, given_up), "{:?}", std::fs::read_to_string(&log));
}

#[test]
fn a_stop_lets_streams_end_and_takes_no_others() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut idle = Frames::connect(server.clear_addr(), &[]);
    idle.get(1, "/small.txt");
    idle.body(1).unwrap();
    let mut busy = Frames::connect(server.clear_addr(), &[(WINDOW, 0)]);
    busy.get(1, "/large");
    busy.find(|frame| frame.stream == 1).unwrap();
    processes::signal(server.pid(), Signal::TERM);
    let warning = busy.find(|frame| frame.kind == GOAWAY).unwrap();
    assert_eq!((&warning.payload[..4], warning.code()), (&[0x7f, 0xff, 0xff, 0xff][..], NO_ERROR));
    let ping = busy.find(|frame| frame.kind == PING).unwrap();
    // A request that was on its way is answered; after the ping nothing more is taken.
    busy.allow(0, 0x3000_0000);
    busy.get(3, "/small.txt");
    busy.allow(3, 100);
    assert_eq!(busy.body(3).unwrap(), b"small");
    busy.send(frame(PING, 1, 0, &ping.payload));
    let last = busy.find(|frame| frame.kind == GOAWAY).unwrap();
    assert_eq!(&last.payload[..4], 3_u32.to_be_bytes());
    busy.allow(1, 0x3000_0000);
    assert!(busy.body(1).unwrap() == pattern(1, 20 * MB));
    assert_eq!((busy.end(), idle.end()), (None, Some(NO_ERROR)));
    assert!(server.await_end().0.success());
}

#[test]
fn what_clients_did_is_in_the_access_log() {
    let site = site();
    site.write("slow.php", "<?php sleep(2); echo 'late';");
    let log = site.outside("access.log");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    let mut client = Frames::connect(server.clear_addr(), &[]);
    client.get(1, "/small.txt?x");
    client.body(1).unwrap();
    client.get(3, "/slow.php");
    client.send(frame(RST_STREAM, 0, 3, &CANCEL.to_be_bytes()));
    client.get(5, "/none");
    client.body(5).unwrap();
    let lines = [
        "\"GET /small.txt?x HTTP/2.0\" 200 5",
        "\"GET /slow.php HTTP/2.0\" 499 0",
        "\"GET /none HTTP/2.0\" 404 ",
    ];
    let has_all = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        lines.iter().all(|line| log.contains(line))
    };
    assert!(sendoff_tests::wait::until(LIMIT, has_all), "{:?}", std::fs::read_to_string(&log));
}
