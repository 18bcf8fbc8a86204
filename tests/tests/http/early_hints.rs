//! Interim responses (RFC 9110 §15.2), especially 103 (Early Hints, RFC 8297): they reach the
//! client while the application still works, and do not change the final response.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use sendoff_tests::{
    Extended, Fifo, Fpm, Head, LIMIT, Request, Server, Site, Stock, extension, wait,
};

/// The script waits for the test between its hint and its answer.
const HINTS: &str = "<?php
header('Link: </a.css>; rel=preload; as=style');
header('Link: </b.js>; rel=preload; as=script', false);
$sent = headers_send(103);
file_get_contents(__DIR__ . '/go-on');
header('X-Final: yes');
echo \"hinted $sent, \", headers_sent() ? 'gone' : 'open';";

fn links(head: &Head) -> Vec<&str> {
    head.all("Link").collect()
}

const LINKS: [&str; 2] = ["</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script"];

/// The hints come while the script waits, over both protocols.
#[track_caller]
fn hints_come_early(server: &Server, go_on: &Fifo) {
    let mut client = server.connect();
    client.send(Request::get("/hints.php").bytes());
    let hint = client.head().unwrap();
    assert_eq!((hint.status, &hint.reason[..]), (103, "Early Hints"));
    assert_eq!(links(&hint), LINKS);
    for absent in ["Date", "Server", "Content-Length", "Transfer-Encoding", "Connection"] {
        assert_eq!(hint.header(absent), None, "{absent}");
    }
    go_on.release();
    let response = client.response("GET");
    assert_eq!((response.status(), &response.text()[..]), (200, "hinted 1, open"));
    assert_eq!((links(&response.head), response.header("X-Final")), (LINKS.to_vec(), Some("yes")));

    let mut hints = Vec::new();
    let response = server.http2().try_ask_seeing(&Request::get("/hints.php"), |hint| {
        hints.push((hint.status, links(&hint).join(",")));
        go_on.release();
    });
    let response = response.unwrap();
    assert_eq!((response.status(), &response.text()[..]), (200, "hinted 1, open"));
    assert_eq!(hints, [(103, LINKS.join(","))]);
    assert_eq!((links(&response.head), response.header("X-Final")), (LINKS.to_vec(), Some("yes")));

    // The same connection goes on.
    assert_eq!(client.ask(&Request::get("/quick.php")).text(), "quick");
}

#[test]
fn scripts_send_hints_early() {
    for delivery in ["auto", "direct", "relay"] {
        let site = Site::with("hints.php", HINTS);
        site.write("quick.php", "<?php echo 'quick';");
        let server = Server::start(site.root(), &["--delivery", delivery]);
        hints_come_early(&server, &site.fifo("go-on"));
        // Nothing is hinted to HTTP/1.0, whose clients would take it for the response.
        let go_on = site.fifo("go-on-10");
        site.write("hints-10.php", HINTS.replace("go-on", "go-on-10"));
        let mut client = server.connect();
        client.send(Request::get("/hints-10.php").http10().bytes());
        go_on.release();
        let response = client.response("GET");
        assert_eq!((response.status(), &response.text()[..]), (200, "hinted 1, open"));
    }
}

#[test]
fn scripts_of_php_fpm_with_the_extension_send_hints_early() {
    let site = Site::with("hints.php", HINTS);
    let extended = Extended::start(site, "", &[]);
    // The first connection of a process, and one on which it has said that it is there.
    let go_on = extended.site.fifo("go-on");
    hints_come_early(&extended.server, &go_on);
    hints_come_early(&extended.server, &go_on);
}

/// nginx 1.22 would take the hint for the response.
#[test]
fn the_extension_sends_no_hints_to_other_servers() {
    let site = Site::with("hints.php", &HINTS.replace("file_get_contents", "strlen"));
    let stock = Stock::start(site.root(), &[&extension()]);
    let response = stock.ask(&Request::get("/hints.php"));
    assert_eq!((response.status(), &response.text()[..]), (200, "hinted 3, open"));
}

/// `headers_send()` with other arguments, at other times.
#[test]
fn headers_are_sent_once() {
    let site = Site::with(
        "final.php",
        "<?php http_response_code(404); header('X-A: 1'); echo headers_send(410), ' ';
        echo headers_sent() ? 'sent' : 'open', ' ', headers_send(103), headers_send(500);
        @header('X-B: 2');",
    );
    site.write("default.php", "<?php header('HTTP/1.1 404 Gone fishing'); echo headers_send();");
    site.write(
        "errors.php",
        "<?php foreach ([99, 101, 1000, -1] as $status) {
            try { headers_send($status); } catch (ValueError $e) { echo $e->getMessage(), '|'; }
        }",
    );
    site.write(
        "ended.php",
        "<?php echo 'x'; fastcgi_finish_request(); error_log('late ' . headers_send(103));",
    );
    site.write("twice.php", "<?php headers_send(102); header('X-A: 1'); headers_send(103);");
    let server = Server::start(site.root(), &[]);
    let response = server.get("/final.php");
    assert_eq!((response.status(), &response.text()[..]), (410, "0 sent 30"));
    assert_eq!((response.header("X-A"), response.header("X-B")), (Some("1"), None));
    let response = server.get("/default.php");
    assert_eq!((response.status(), &response.text()[..]), (200, "0"));
    let refused =
        "headers_send(): Argument #1 ($status) must be a status from 100 to 999 other than 101|";
    assert_eq!(server.page("/errors.php"), refused.repeat(4));
    assert_eq!(server.page("/ended.php"), "x");
    server.await_log("late 3");
    let mut client = server.connect();
    client.send(Request::new("HEAD", "/twice.php").bytes());
    let [first, second] = [client.head().unwrap(), client.head().unwrap()];
    assert_eq!((first.status, first.header("X-A")), (102, None));
    assert_eq!((second.status, second.header("X-A")), (103, Some("1")));
    assert_eq!(client.response("HEAD").header("X-A"), Some("1"));
}

/// As with php-fpm, a flush without output sends nothing, or (since PHP 8.4) the headers of the
/// response.
#[test]
fn a_flush_without_output_sends_no_hints() {
    let code = HINTS.replace("$sent = headers_send(103)", "$sent = 1; flush()");
    let site = Site::with("hints.php", &code.replace("file_get_contents", "strlen"));
    let stock = Stock::start(site.root(), &[]);
    let server = Server::start(site.root(), &[]);
    let request = Request::get("/hints.php");
    let (theirs, ours) = (stock.ask(&request), server.ask(&request));
    assert_eq!((theirs.status(), ours.status()), (200, 200));
    assert_eq!((links(&ours.head), &ours.body), (links(&theirs.head), &theirs.body));
}

/// Rules of the site remove and change fields of hints, too; fields that rules add are in the final
/// response only.
#[test]
fn rules_of_the_site_hold_for_hints() {
    let site =
        Site::with("a.php", "<?php header('X-Secret: 1'); header('X-Kept: 1'); headers_send(103);");
    site.write(".htaccess", "Header unset X-Secret\nHeader set X-Kept 2\nHeader set X-Added 3\n");
    let server = Server::start(site.root(), &["--htaccess"]);
    let mut client = server.connect();
    client.send(Request::get("/a.php").bytes());
    let hint = client.head().unwrap();
    assert_eq!((hint.status, hint.header("X-Kept")), (103, Some("2")));
    assert_eq!((hint.header("X-Secret"), hint.header("X-Added")), (None, None));
    let response = client.response("GET");
    assert_eq!((response.header("X-Secret"), response.header("X-Added")), (None, Some("3")));
}

#[test]
fn hints_are_not_counted_in_the_access_log_and_not_explained() {
    let site = Site::with("a.php", "<?php header('X-A: 1'); headers_send(103); echo '12345';");
    let log = site.write_at(site.outside("access.log"), "");
    let options =
        ["--access-log", log.to_str().unwrap(), "--access-log-format", "$status $body_bytes_sent"];
    let server = Server::start(site.root(), &options);
    let mut client = server.connect();
    client.send(Request::get("/a.php").bytes());
    assert_eq!(client.head().unwrap().status, 103);
    let response = client.response("GET");
    let framing = response.head.header("Content-Length").map_or(5 + 10, |_| 5);
    server.http2().ask(&Request::get("/a.php"));
    wait::for_some("the lines of the access log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        (text == format!("200 {framing}\n200 5\n")).then_some(())
    });
    let report = server.explain("/a.php", &[]).unwrap();
    assert!(report.contains("200 OK, 5 bytes") && !report.contains("103 Early"), "{report}");
}

/// A FastCGI application that answers one request with `first`, waits for a signal, and sends
/// `second`.
struct Responder {
    option: String,
    thread: JoinHandle<()>,
}

impl Responder {
    fn start(site: &Site, answers: Vec<(Vec<u8>, Vec<u8>)>, told: Receiver<()>) -> Self {
        let path = site.outside("responder.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, all).unwrap();
        let thread = std::thread::spawn(move || {
            for (first, second) in answers {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
                // Up to the empty STDIN record.
                while !request.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
                    let n = stream.read(&mut buffer).unwrap();
                    assert!(n > 0, "the front hung up");
                    request.extend_from_slice(&buffer[..n]);
                }
                stream.write_all(&first).unwrap();
                told.recv_timeout(LIMIT).unwrap();
                // The front may have given it up.
                let _given_up = stream.write_all(&second);
            }
        });
        Self { option: format!(".app=unix:{}", path.display()), thread }
    }
}

fn stdout(content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, 6, 0, 1, high, low, 0, 0], content].concat()
}

fn end() -> Vec<u8> {
    [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec()
}

#[test]
fn any_fastcgi_application_may_send_interim_responses() {
    let hint: &[u8] = b"Status: 103 Early Hints\r\nLink: </x>; rel=preload\r\nX-Accel-Redirect: /secret\r\nContent-Length: 9\r\nConnection: close\r\n\r\n";
    let final_head = b"Status: 201 Made\r\nContent-Length: 4\r\n\r\nbody";
    // Whole; cut within; two at once, with the final head behind them.
    let cut = [stdout(&hint[..30]), stdout(&hint[30..])].concat();
    let both = [stdout(&[hint, b"Status: 102\n\n", final_head].concat())].concat();
    let rest = [stdout(final_head), end()].concat();
    let answers = [(stdout(hint), rest.clone(), 1), (cut, rest, 1), (both, end(), 2)];
    let site = Site::with("x.app", "");
    let twice = answers.iter().flat_map(|(first, second, _)| {
        [(first.clone(), second.clone()), (first.clone(), second.clone())]
    });
    let (tell, told) = channel();
    let responder = Responder::start(&site, twice.collect(), told);
    let server = Server::start(site.root(), &["--fastcgi", &responder.option]);
    for (_, _, expected) in answers {
        let mut client = server.connect();
        client.send(Request::get("/x.app").bytes());
        let hint = client.head().unwrap();
        assert_eq!((hint.status, links(&hint)), (103, vec!["</x>; rel=preload"]));
        assert_eq!(hint.headers.len(), 1, "{hint:?}");
        if expected == 2 {
            assert_eq!(client.head().unwrap().status, 102);
        }
        tell.send(()).unwrap();
        let response = client.response("GET");
        assert_eq!((response.expect(201), &response.head.reason[..]), (&b"body"[..], "Made"));

        let mut hints = Vec::new();
        let response = server.http2().try_ask_seeing(&Request::get("/x.app"), |hint| {
            if hints.is_empty() {
                tell.send(()).unwrap();
                assert_eq!(hint.headers, [("link".to_owned(), "</x>; rel=preload".to_owned())]);
            }
            hints.push(hint.status);
        });
        assert_eq!(response.unwrap().expect(201), b"body");
        assert_eq!(hints, [103, 102][..expected]);
    }
    responder.thread.join().unwrap();
}

#[test]
fn interim_responses_are_bounded_and_none_changes_the_protocol() {
    let hint: &[u8] = b"Status: 103\r\nLink: </x>\r\n\r\n";
    let large = [b"Status: 103\r\nX: ", &[b'x'; 60_000][..], b"\r\n\r\n"].concat();
    let answers = [
        // No application can change the client's protocol.
        stdout(b"Status: 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        [stdout(hint), stdout(b"Status: 101\r\n\r\n")].concat(),
        // More than 32.
        stdout(&hint.repeat(33)),
        // A response that ends without a final head.
        [stdout(hint), end()].concat(),
        // Not a head.
        [stdout(hint), stdout(b"<html>\n\n")].concat(),
        [stdout(&large), stdout(&[&large[..], b"Status: 500\n\n"].concat()), end()].concat(),
    ];
    let expected = [(0, 502), (1, 502), (32, 502), (1, 502), (1, 502), (2, 500)];
    let site = Site::with("x.app", "");
    let (tell, told) = channel();
    let all = answers.iter().flat_map(|all| [(all.clone(), vec![]), (all.clone(), vec![])]);
    let responder = Responder::start(&site, all.collect(), told);
    let server = Server::start(site.root(), &["--fastcgi", &responder.option]);
    for (hints, status) in expected {
        let mut client = server.connect();
        client.send(Request::get("/x.app").bytes());
        for _ in 0..hints {
            assert_eq!(client.head().unwrap().status, 103);
        }
        assert_eq!(client.response("GET").status(), status);
        tell.send(()).unwrap();
        let mut seen = 0;
        let response = server.http2().try_ask_seeing(&Request::get("/x.app"), |_| seen += 1);
        assert_eq!((response.unwrap().status(), seen), (status, hints));
        tell.send(()).unwrap();
    }
    responder.thread.join().unwrap();
    server.await_log("a Status of 101");
    server.await_log("more than 32 interim responses");
}

/// A script's final status cannot be interim: its body must not be taken for a head. Our own workers
/// tell the two apart; a head from php-fpm with a status of 102 to 199 may be a hint.
#[test]
fn a_script_whose_only_status_is_interim_is_refused() {
    let head = r#"echo "Status: 200\r\n\r\nno head at all";"#;
    let site = Site::with("103.php", &format!("<?php http_response_code(103); {head}"));
    site.write("100.php", format!("<?php http_response_code(100); {head}"));
    site.write("101.php", format!("<?php http_response_code(101); {head}"));
    site.write("named.php", format!("<?php header('Status: 103 Hint'); {head}"));
    site.write("line.php", format!("<?php header('HTTP/1.1 199 Made'); {head}"));
    site.write("digits.php", "<?php header('HTTP/1.1 1000 x');");
    site.write("large.php", "<?php http_response_code(103); echo str_repeat('x', 1 << 20);");
    let server = Server::start(site.root(), &["--workers", "1"]);
    for name in
        ["103.php", "100.php", "101.php", "named.php", "line.php", "digits.php", "large.php"]
    {
        server.get(&format!("/{name}")).expect(502);
    }
    server.await_log("a response has no status 103: it is interim");
    server.await_log("a response has no status 1000: a status has three digits");
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    for name in ["100.php", "101.php"] {
        server.get(&format!("/{name}")).expect(502);
    }
    site.write("bad.php", "<?php http_response_code(103); echo 'no head at all';");
    let mut client = server.connect();
    client.send(Request::get("/bad.php").bytes());
    assert_eq!(client.head().unwrap().status, 103);
    client.response("GET").expect(502);
}

/// The server itself sends 100.
#[test]
fn a_script_cannot_send_100_as_a_hint() {
    let site = Site::with("a.php", "<?php $sent = headers_send(100); echo $sent;");
    let server = Server::start(site.root(), &[]);
    assert_eq!(server.page("/a.php"), "3");
}
