//! HTTP/1.1 on the wire (RFC 9112): framing, persistence, and refused requests.

use sendoff_tests::{Client, Framing, Pair, Request, Server, Site, Stock, pattern};

fn site() -> Site {
    let site = Site::with(
        "echo.php",
        "<?php echo $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');",
    );
    site.write("a.txt", "static");
    site.write("n.php", "<?php echo 'n=', $_GET['n'];");
    site
}

#[test]
fn connections_are_kept() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    for round in 0..100 {
        assert_eq!(client.ask(&Request::get("/a.txt")).text(), "static");
        assert_eq!(
            client.ask(&Request::get(&format!("/n.php?n={round}"))).text(),
            format!("n={round}")
        );
        assert!(client.ask(&Request::new("HEAD", "/n.php?n=1")).body.is_empty());
        let body = pattern(round, usize::try_from(round * 1000).unwrap());
        let answer = client.ask(&Request::post("/echo.php", "text/plain", body.clone())).body;
        assert!(answer.strip_prefix(b"POST ").unwrap() == body);
    }
    let last = client.ask(&Request::get("/a.txt").header("Connection", "close"));
    assert!(last.head.closes());
    assert!(client.is_closed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    let mut requests = Vec::new();
    for round in 0..50 {
        requests.extend(Request::get(&format!("/n.php?n={round}")).bytes());
        requests.extend(Request::get("/a.txt").bytes());
        requests.extend(Request::post("/echo.php", "text/plain", format!("body {round}")).bytes());
        requests.extend(Request::new("HEAD", "/a.txt").bytes());
    }
    // Cut in odd places, so that heads and bodies arrive in pieces.
    for piece in requests.chunks(997) {
        client.send(piece);
    }
    for round in 0..50 {
        assert_eq!(client.response("GET").text(), format!("n={round}"));
        assert_eq!(client.response("GET").text(), "static");
        assert_eq!(client.response("POST").text(), format!("POST body {round}"));
        assert_eq!(client.response("HEAD").status(), 200);
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    let chunked = "POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for byte in chunked.bytes().chain(Request::post("/echo.php", "text/plain", "xyz").bytes()) {
        client.send([byte]);
    }
    assert_eq!(client.response("POST").text(), "POST abc");
    assert_eq!(client.response("POST").text(), "POST xyz");
}

#[test]
fn chunked_requests() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    let body = pattern(1, 3_000_000);
    for size in [1000, 65_536, 1_000_000] {
        client.send("POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nTrailer: X-T\r\n\r\n");
        for chunk in body.chunks(size) {
            // Servers accept few chunk extensions, because clients send none.
            let extension = if chunk.len() < 1_000_000 { "" } else { ";name=\"va;lue\"" };
            client.send(format!("{:X}{extension}\r\n", chunk.len()));
            client.send(chunk);
            client.send("\r\n");
        }
        client.send("000\r\nX-T: dropped\r\nContent-Length: 5\r\n\r\n");
        assert!(client.response("POST").body.strip_prefix(b"POST ").unwrap() == body);
    }
}

#[test]
fn expect_100_continue() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    let head =
        "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n";
    client.send(head);
    assert_eq!(client.head().unwrap().status, 100);
    client.send("body");
    assert_eq!(client.response("POST").text(), "POST body");
    // A client that does not wait for the 100 need not be sent one.
    client.send(format!("{head}more"));
    let mut answer = client.response("POST");
    if answer.status() == 100 {
        answer = client.response("POST");
    }
    assert_eq!(answer.text(), "POST more");
    client.send("GET /a.txt HTTP/1.1\r\nHost: h\r\nExpect: the-impossible\r\n\r\n");
    assert_eq!(client.response("GET").status(), 417);
}

#[test]
fn http_1_0() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for target in ["/a.txt", "/n.php?n=1"] {
        let mut client = server.connect();
        let answer = client.ask(&Request::get(target).http10());
        answer.expect(200);
        assert_ne!(answer.framing, Framing::Chunked);
        assert!(client.is_closed());
    }
    let mut client = server.connect();
    client.send("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!(client.response("GET").text(), "static");
    assert!(client.is_closed());
    let mut client = server.connect();
    for _ in 0..3 {
        client.send("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(client.response("GET").text(), "static");
    }
}

#[test]
fn what_is_ambiguous_is_refused_and_the_connection_closed() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let smuggled = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
    for (what, head) in [
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n"),
        ("a list of lengths", "Content-Length: 5, 6\r\n"),
        ("length and chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("a signed length", "Content-Length: +5\r\n"),
        ("a negative length", "Content-Length: -5\r\n"),
        ("a hexadecimal length", "Content-Length: 0x5\r\n"),
        ("an empty length", "Content-Length: \r\n"),
        ("a length beyond numbers", "Content-Length: 99999999999999999999999\r\n"),
        ("a space before the colon", "Content-Length : 5\r\n"),
        ("a space before the name", " X: 1\r\n"),
        ("a folded line", "X: 1\r\n\t2\r\n"),
        ("a bare LF", "X: 1\nContent-Length: 5\r\n"),
        ("a bare CR", "X: 1\rContent-Length: 5\r\n"),
        ("a NUL", "X: 1\0\r\n"),
        ("no colon", "Content-Length 5\r\n"),
        ("no name", ": 5\r\n"),
        ("an odd name", "X(1): 5\r\n"),
        ("an unknown coding after chunked", "Transfer-Encoding: chunked, gzip\r\n"),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n"),
        ("chunked in two headers", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("a second Host", "Host: other\r\n"),
    ] {
        let mut client = server.connect();
        client.send(format!("POST /echo.php HTTP/1.1\r\nHost: h\r\n{head}\r\n"));
        let _ = client.try_send(smuggled);
        let answer = client.try_response("POST").unwrap_or_else(|e| panic!("{what}: {e:?}"));
        assert_eq!(answer.status(), 400, "{what}");
        assert!(client.is_closed(), "{what}: the connection must end");
    }
    let unknown = "POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n";
    let mut client = server.connect();
    client.send(unknown);
    assert!(matches!(client.response("POST").status(), 400 | 501));
    assert!(client.is_closed());
}

#[test]
fn bad_chunks_are_refused() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for chunks in [
        "x\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "\r\n",
        "fffffffffffffffff\r\nabc",
        "3;\nx\r\nabc\r\n0\r\n\r\n",
        "0\r\nbad trailer\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send("POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(chunks);
        let answer = client.try_response("POST").unwrap_or_else(|e| panic!("{chunks:?}: {e:?}"));
        assert_eq!(answer.status(), 400, "{chunks:?}");
        assert!(client.is_closed(), "{chunks:?}");
    }
}

#[test]
fn hosts_and_request_lines() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for (request, status) in [
        ("GET /a.txt HTTP/1.1\r\n\r\n", 400),
        ("GET /a.txt HTTP/1.1\r\nHost: \r\n\r\n", 200),
        ("GET /a.txt HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET /a.txt HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET /a.txt HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200),
        ("\r\nGET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n", 200),
        ("GET /a.txt HTTP/1.1\r\nHOST: h\r\n\r\n", 200),
        ("GET /a.txt HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("GET /a.txt HTTP/1.9\r\nHost: h\r\n\r\n", 200),
        ("GET /a.txt HTTP/1\r\nHost: h\r\n\r\n", 400),
        ("GET /a.txt http/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET /a.txt\r\n\r\n", 400),
        ("G@T /a.txt HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("\x16\x03\x01\x02\0\x01\0\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 200),
        ("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", 400),
    ] {
        let mut client = server.connect();
        client.send(request);
        let answer = client.try_response("GET").unwrap_or_else(|e| panic!("{request:?}: {e:?}"));
        let also = match (request.split(' ').next(), status) {
            (Some("CONNECT"), _) => &[405, 501][..],
            (Some("OPTIONS"), _) => &[204, 400, 403, 404, 405],
            // RFC 9112 section 2.3 leaves it open.
            (_, 505) if request.contains("HTTP/2.0") => &[400, 505],
            // Section 3.2: an empty Host is allowed if the target has no authority; refusing it is
            // allowed, too.
            (_, 200) if request.contains("Host: \r\n") => &[400],
            _ => &[],
        };
        let got = answer.status();
        assert!(got == status || also.contains(&got), "{request:?}: {got}");
    }
}

#[test]
fn what_nginx_accepts_and_refuses() {
    let site = site();
    site.write("q.php", "<?php echo bin2hex($_SERVER['QUERY_STRING'] . $_SERVER['REQUEST_URI']);");
    let pair = Pair::start(&site, &[]);
    let get = |rest: &str| format!("GET /q.php HTTP/1.1\r\n{rest}\r\n").into_bytes();
    let post = |head: &str, body: &str| {
        format!("POST /echo.php HTTP/1.1\r\nHost: h\r\n{head}\r\n{body}").into_bytes()
    };
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    for (status, request) in [
        (200, b"GET /q.php HTTP/1.2\r\nHost: h\r\n\r\n".to_vec()),
        (400, b"GET /q.php HTTP/1.2\r\n\r\n".to_vec()),
        (400, get("Host: .\r\n")),
        (400, get("Host: ..\r\n")),
        (400, get("Host: a..b\r\n")),
        (200, get("Host: a.\r\n")),
        (200, get("Host: [v1.a:b]:80\r\n")),
        (400, get("Host: h\r\nAuthorization: Basic YTpi\r\nAuthorization: Basic Yzpk\r\n")),
        (200, post("Expect:\r\nContent-Length: 2\r\n", "ab")),
        (200, chunked("2 ;a=b\r\nab\r\n0\r\n\r\n")),
        (200, chunked("2\t ;a=b\r\nab\r\n0\r\n\r\n")),
        (200, chunked("000000000000000000002\r\nab\r\n00000000000000000000000\r\n\r\n")),
        (200, b"GET /q.php?q=caf\xe9&r=\xff\x80&s=\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()),
        (200, b"GET /q.php?<\"'>{|}^`\\ HTTP/1.1\r\nHost: h\r\n\r\n".to_vec()),
    ] {
        let ask = |addr| {
            let mut client = Client::connect(addr);
            client.send(&request);
            client.response("GET")
        };
        let shown = String::from_utf8_lossy(&request);
        let (stock, ours) = (ask(pair.stock.addr()), ask(pair.ours.addr()));
        assert_eq!((stock.status(), ours.status()), (status, status), "{shown}");
        if status == 200 {
            assert_eq!(ours.text(), stock.text(), "{shown}");
        }
    }
    // nginx accepts this one: CONTENT_TYPE is the first value and HTTP_CONTENT_TYPE the last.
    let mut client = pair.ours.connect();
    client.send(post("Content-Type: a/b\r\nContent-Type: c/d\r\nContent-Length: 2\r\n", "ab"));
    assert_eq!(client.response("POST").status(), 400);
}

#[test]
fn a_content_length_that_makes_no_sense_is_dropped_and_two_that_differ_are_refused() {
    let script = "<?php
        foreach ($_GET['v'] as $length) header('Content-Length: ' . $length, false);
        echo 'page';";
    let site = Site::with("l.php", script);
    let pair = Pair::start(&site, &[]);
    for (lengths, why) in [
        ("v[]=abc", Some("not a number")),
        ("v[]=-1", Some("not a number")),
        ("v[]=%2B4", Some("not a number")),
        ("v[]=4,%204", Some("not a number")),
        ("v[]=99999999999999999999", Some("not a number")),
        ("v[]=4&v[]=4", None),
        ("v[]=004", None),
    ] {
        let target = format!("/l.php?{lengths}");
        let ours =
            if Stock::is_lenient() { pair.same_page(&target) } else { pair.ours.get(&target) };
        assert_eq!(ours.expect(200), b"page", "{lengths}");
        if let Some(why) = why {
            pair.ours.await_log(why);
        }
    }
    // nginx before 1.23 uses the last one and cuts the connection; later versions answer with 502.
    for lengths in ["v[]=5&v[]=6", "v[]=4&v[]=x", "v[]=4,%204&v[]=4"] {
        assert_eq!(pair.ours.get(&format!("/l.php?{lengths}")).status(), 502, "{lengths}");
        pair.ours.await_log("two different Content-Length fields");
    }
    assert_eq!(pair.ours.get("/l.php?v[]=4").expect(200), b"page");
}

#[test]
fn heads_have_limits() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let ordinary =
        format!("GET /a.txt HTTP/1.1\r\nHost: h\r\nCookie: {}\r\n\r\n", "c".repeat(4000));
    let mut client = server.connect();
    client.send(ordinary);
    client.response("GET").expect(200);
    let long_line = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(1 << 20));
    let long_header =
        format!("GET /a.txt HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "a".repeat(1 << 20));
    let many = format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: 1\r\n".repeat(100_000));
    for (request, statuses) in
        [(long_line, [414, 431, 400]), (long_header, [431, 400, 400]), (many, [431, 400, 400])]
    {
        let mut client = server.connect();
        let _ = client.try_send(request);
        let answer = client.try_response("GET").expect("an answer before the end");
        assert!(statuses.contains(&answer.status()), "{}", answer.status());
        assert!(client.is_closed());
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_request_leaves_nothing_behind() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for part in [
        "",
        "G",
        "GET /a.txt HTTP/1.1\r\nHost: h\r\n",
        "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\nshort",
        "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: 90000000\r\n\r\nshort",
        "POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let mut client = server.connect();
        client.send(part);
        drop(client);
        let mut client = server.connect();
        client.send(part);
        client.half_close();
        let _ = client.try_response("GET");
    }
    assert_eq!(server.get("/a.txt").text(), "static");
}

#[test]
fn a_client_may_close_its_sending_side() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(Request::get("/a.txt").bytes());
    client.half_close();
    client.response("GET").expect(200);
    assert!(client.is_closed());
}

#[test]
fn responses_say_what_they_must() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for target in ["/a.txt", "/n.php?n=1", "/missing"] {
        let answer = server.get(target);
        let date = answer.header("date").expect("RFC 9110 section 6.6.1: a Date");
        assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
        // The whole body is known before the first byte leaves, so it needs no chunks.
        assert_eq!(answer.framing, Framing::Length(answer.body.len() as u64), "{target}");
    }
}
