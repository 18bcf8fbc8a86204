//! Bodies that no handler uses: the request is answered at once, and the body is read and dropped.

use sendoff_tests::frames::{
    DATA, END_HEADERS, END_STREAM, Frames, HEADERS, NO_ERROR, RST_STREAM, frame, request,
};
use sendoff_tests::{Authority, Client, Http3, LIMIT, Server, Site, http3, pattern, wait};

const MB: usize = 1 << 20;

/// The length of a body of which a client sends only [`FIRST`] bytes before it reads.
const LENGTH: usize = 2_000_000;
const FIRST: usize = 10_000;

/// Requests whose bodies are not used, and the statuses of their responses.
const REFUSED: [(&str, u16); 3] = [("/nothing.txt", 404), ("/a.txt", 405), ("/.git/config", 403)];

fn site() -> Site {
    let site = Site::with("a.txt", "static");
    site.write("large", pattern(1, 20 * MB));
    site.write(".git/config", "[core]");
    site
}

/// A server that speaks HTTP/1.1, and also HTTP/3 beside TLS.
fn serve(site: &Site) -> Server {
    let certificate = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let (chain, key) = (certificate.chain.to_str().unwrap(), certificate.key.to_str().unwrap());
    let options = ["--tls-listen", "127.0.0.1:0 h3", "--tls-cert", chain, "--tls-key", key];
    Server::start(site.root(), &options)
}

fn head(target: &str, fields: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// Gets answers amid bodies, sends the rest of each, and reuses the connection.
fn is_answered_amid_bodies(mut client: Client) {
    for (target, status) in REFUSED {
        client.send(head(target, &format!("Content-Length: {LENGTH}\r\n")));
        client.send(vec![b'a'; FIRST]);
        let answer = client.response("POST");
        assert_eq!(answer.status(), status, "{target}");
        assert_eq!(answer.header("connection"), None, "{target}");
        client.send(vec![b'a'; LENGTH - FIRST]);
        client.send(head(target, "Transfer-Encoding: chunked\r\n"));
        client.send(format!("{LENGTH:x}\r\n"));
        assert_eq!(client.response("POST").status(), status, "{target}");
        client.send(vec![b'a'; LENGTH]);
        client.send("\r\n0\r\nX-Trailer: 1\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(client.response("GET").text(), "static", "{target}");
    }
}

#[test]
fn a_request_is_answered_before_a_body_that_is_not_used() {
    let site = site();
    let server = serve(&site);
    is_answered_amid_bodies(Client::connect(server.clear_addr()));
    is_answered_amid_bodies(Client::connect_tls(server.tls_addr().unwrap()));
}

#[test]
fn the_access_log_has_each_answer_once() {
    let site = site();
    let log = site.outside("access.log");
    let server = Server::start(site.root(), &["--access-log", log.to_str().unwrap()]);
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(head("/nothing.txt", &format!("Content-Length: {LENGTH}\r\n")));
        assert_eq!(client.response("POST").status(), 404);
        client.send(vec![b'a'; LENGTH]);
    }
    assert_eq!(server.page("/a.txt"), "static");
    let lines = || std::fs::read_to_string(&log).unwrap_or_default();
    assert!(wait::until(LIMIT, || lines().contains("/a.txt")), "{}", lines());
    assert_eq!(lines().matches("\"POST /nothing.txt HTTP/1.1\" 404").count(), 2, "{}", lines());
    assert_eq!(lines().lines().count(), 3, "{}", lines());
}

/// A reset would drop the response.
#[test]
fn a_client_that_sends_its_whole_body_before_it_reads_gets_the_answer() {
    let site = site();
    let server = serve(&site);
    let connect: [&dyn Fn() -> Client; 2] = [&|| Client::connect(server.clear_addr()), &|| {
        Client::connect_tls(server.tls_addr().unwrap())
    }];
    for connect in connect {
        for fields in ["", "Connection: close\r\n", "Expect: 100-continue\r\n"] {
            let mut client = connect();
            client.send(head("/nothing.txt", &format!("{fields}Content-Length: {}\r\n", 20 * MB)));
            client.send(vec![b'a'; FIRST]);
            // The server has answered before the rest comes.
            assert!(wait::until(LIMIT, || !client.is_silent()), "{fields}");
            for _ in 0..19 {
                client.send(vec![b'a'; MB]);
            }
            client.send(vec![b'a'; MB - FIRST]);
            assert_eq!(client.response("POST").status(), 404, "{fields}");
        }
    }
}

/// Neither end may wait for the other one to read.
#[test]
fn a_large_response_and_a_large_body_can_pass_each_other() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    for _ in 0..2 {
        client
            .send(format!("GET /large HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 20 * MB));
        client.send(vec![b'a'; 20 * MB]);
        assert!(client.response("GET").body == pattern(1, 20 * MB));
    }
}

/// The bytes behind a malformed body are no request.
#[test]
fn a_body_that_turns_out_to_be_malformed_ends_the_connection() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    for bad in ["3\r\nabcGET", "zz\r\n", "0\r\nbad trailer\r\n\r\n"] {
        let mut client = server.connect();
        client.send(head("/nothing.txt", "Transfer-Encoding: chunked\r\n"));
        client.send("3\r\nabc\r\n");
        assert_eq!(client.response("POST").status(), 404, "{bad}");
        // The server may have closed the connection before the second part is sent.
        let _closed = client.try_send(bad);
        let _closed = client.try_send("GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(client.is_closed(), "{bad}");
    }
}

/// A body that ends early is no reason to keep the connection.
#[test]
fn a_client_that_ends_amid_its_body_ends_the_connection() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = server.connect();
    client.send(head("/nothing.txt", &format!("Content-Length: {LENGTH}\r\n")));
    assert_eq!(client.response("POST").status(), 404);
    client.half_close();
    assert!(client.is_closed());
}

#[test]
fn a_stream_of_http2_is_answered_before_a_body_that_is_not_used() {
    let site = site();
    let server = Server::start(site.root(), &[]);
    let mut client = Frames::connect(server.clear_addr(), &[]);
    for (stream, (target, status)) in (1..).step_by(2).zip(REFUSED) {
        let length = LENGTH.to_string();
        let block = request("POST", target, &[("content-length", &length)]);
        client.send(frame(HEADERS, END_HEADERS, stream, &block));
        client.send(frame(DATA, 0, stream, &vec![b'a'; FIRST]));
        let page = client.body(stream).unwrap();
        assert!(String::from_utf8(page).unwrap().contains(&status.to_string()), "{target}");
        // The client may keep the rest to itself.
        let end = client.find(|frame| frame.stream == stream && frame.kind == RST_STREAM);
        assert_eq!(end.unwrap().code(), NO_ERROR, "{target}");
    }
    // A stream whose rest comes ends without a reset.
    let block = request("POST", "/nothing.txt", &[("content-length", "6")]);
    client.send(frame(HEADERS, END_HEADERS, 7, &block));
    client.send(frame(DATA, 0, 7, b"abc"));
    assert!(client.body(7).is_ok());
    client.send(frame(DATA, END_STREAM, 7, b"def"));
    client.get(9, "/a.txt");
    let next = client.find(|frame| matches!(frame.stream, 7 | 9)).unwrap();
    assert_eq!((next.stream, next.kind), (9, HEADERS));
}

#[test]
fn a_stream_of_http3_is_answered_before_a_body_that_is_not_used() {
    let site = site();
    let server = serve(&site);
    let mut client = Http3::connect(server.tls_addr().unwrap(), "localhost");
    for (target, status) in REFUSED {
        let length = LENGTH.to_string();
        let fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", target),
            ("content-length", &length),
        ];
        let first =
            [http3::headers_frame(&fields), http3::data_frames(&vec![b'a'; FIRST])].concat();
        let answer = client.try_ask_amid_body(first).unwrap();
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(&status.to_string()), "{target}: {text}");
    }
}
