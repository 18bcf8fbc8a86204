//! Tables of requests, good and bad, each also cut at every position.

use bytes::BytesMut;
use http::{Method, StatusCode, Version};

use crate::{BodyDecoder, BodyFraming, Decoded, Head, HeadDecoder, Limits, RequestError};

const MAX_BODY: u64 = 1 << 20;

/// The requests of a connection: each one's head in short, and its body.
type Seen = Vec<(String, Vec<u8>)>;

fn short(head: &Head) -> String {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let fields: Vec<_> =
        head.headers.iter().map(|(n, v)| format!("{n}={}", text(v.as_bytes()))).collect();
    let Head { method, target, version, framing, keep_alive, expect_continue, host, .. } = head;
    format!(
        "{method} {} {:?} {version:?} {framing:?} {keep_alive} {expect_continue} {:?} {fields:?}",
        text(target.path().as_ref()),
        target.query().map(|q| text(&q)),
        host.as_ref().map(|h| text(h))
    )
}

/// Reads requests as a connection would, one piece after another.
fn read(pieces: &[&[u8]]) -> Result<(Seen, Vec<u8>), RequestError> {
    let mut heads = HeadDecoder::new(Limits::default());
    let (mut seen, mut body, mut buf) = (Seen::new(), None::<BodyDecoder>, BytesMut::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let Some(decoder) = &mut body else {
                let Some(head) = heads.next(&mut buf)? else { break };
                body = Some(BodyDecoder::new(head.framing, MAX_BODY)?);
                seen.push((short(&head), Vec::new()));
                continue;
            };
            match decoder.decode(&mut buf)? {
                Decoded::Data(data) => seen.last_mut().unwrap().1.extend_from_slice(&data),
                Decoded::NeedMore => break,
                Decoded::End => body = None,
            }
        }
    }
    Ok((seen, buf.to_vec()))
}

fn head(wire: &str) -> Result<Head, RequestError> {
    let mut buf = BytesMut::from(wire);
    HeadDecoder::new(Limits::default()).next(&mut buf).map(|head| head.expect("a whole head"))
}

fn get(fields: &str) -> Result<Head, RequestError> {
    head(&format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

#[test]
fn any_cut_gives_the_same_requests() {
    let wire: &[u8] = b"\r\nGET /a?b HTTP/1.1\r\nHost: h:80\r\nX: 1\r\nX:\t2 \r\nEmpty:\r\n\r\n\
        POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\r\n\
        PUT /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\nExpect: 100-continue\r\n\r\n\
        3 \t;a=\"b\"\r\nabc\r\n0000000000000000000A\r\n0123456789\r\n00000000000000000000\r\nTrailer: x\r\nB:\r\n\r\n\
        GET http://other HTTP/1.0\r\n\r\nrest";
    let whole = read(&[wire]).unwrap();
    assert_eq!(whole.1, b"rest");
    let bodies: Vec<_> = whole.0.iter().map(|(_, b)| b.as_slice()).collect();
    assert_eq!(bodies, [&b""[..], b"hello", b"abc0123456789", b""]);
    assert_eq!(
        whole.0[0].0,
        "GET /a Some(\"b\") HTTP/1.1 None true false Some(\"h:80\") \
         [\"host=h:80\", \"x=1\", \"x=2\", \"empty=\"]"
    );
    for cut in 0..=wire.len() {
        assert_eq!(read(&[&wire[..cut], &wire[cut..]]), Ok(whole.clone()), "cut at {cut}");
    }
    let bytes: Vec<_> = wire.chunks(1).collect();
    assert_eq!(read(&bytes), Ok(whole));
}

/// A bad request is refused with the same status for every split into pieces.
#[test]
fn bad_requests_are_refused_with_the_right_status() {
    let h = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    let chunked = |body: &str| h("Transfer-Encoding: chunked\r\n") + body;
    let table = [
        // Line endings and white space.
        (400, "GET / HTTP/1.1\nHost: a\n\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a\r\n\n".into()),
        (400, "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        (400, "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n".into()),
        (400, "\r\n".repeat(5)),
        (400, h("X: a\rb\r\n")),
        (400, h("X: a\r\r\n")),
        (400, h("X\r: a\r\n")),
        (400, h("X : a\r\n")),
        (400, h("X\t: a\r\n")),
        (400, h(" X: a\r\n")),
        (400, h("X: a\r\n b\r\n")),
        (400, h("X: a\r\n\tb\r\n")),
        (400, h("X:\r\n b\r\n")),
        (400, h(": a\r\n")),
        (400, h("X\r\n")),
        (400, h("X: a\0b\r\n")),
        (400, h("X: a\x01b\r\n")),
        (400, h("X: a\x7fb\r\n")),
        (400, h("X\0: a\r\n")),
        (400, h("X(: a\r\n")),
        (400, h("\u{e9}: a\r\n")),
        // The request line.
        (400, line("GET  / HTTP/1.1")),
        (400, line("GET /  HTTP/1.1")),
        (400, line("GET / HTTP/1.1 ")),
        (400, line("GET\t/ HTTP/1.1")),
        (400, line(" GET / HTTP/1.1")),
        (400, line("GET / b HTTP/1.1")),
        (400, line("GET / http/1.1")),
        (400, line("GET / HTTP/1")),
        (400, line("GET / HTTP/11.1")),
        (400, line("GET / HTTP/1.1x")),
        (400, line("GET / XTTP/1.1")),
        (400, line("GET /")),
        (400, line("GET")),
        (400, line("G(T / HTTP/1.1")),
        (400, line("/ HTTP/1.1")),
        (400, line("GET a HTTP/1.1")),
        (400, line("GET * HTTP/1.1")),
        (400, line("OPTIONS *a HTTP/1.1")),
        (400, line("GET /a#b HTTP/1.1")),
        (400, line("GET /a\0b HTTP/1.1")),
        (400, line("GET /a\x7fb HTTP/1.1")),
        (400, line("GET ftp://a/ HTTP/1.1")),
        (400, line("GET http:///a HTTP/1.1")),
        (400, line("GET http://u@a/ HTTP/1.1")),
        (400, line("GET http://a:b/ HTTP/1.1")),
        (400, line("GET a:80 HTTP/1.1")),
        (400, "\u{16}\u{3}\u{1}".into()),
        (501, line("CONNECT a:80 HTTP/1.1")),
        (501, line("CONNECT / HTTP/1.1")),
        (505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
        (505, line("GET / HTTP/2.0")),
        (505, line("GET / HTTP/0.9")),
        (505, line("GET / HTTP/3.1")),
        (400, line("GET / HTTP/1.10")),
        (400, line("GET / HTTP/1.")),
        (400, line("GET / HTTP/1.a")),
        (414, line(&format!("GET /{} HTTP/1.1", "a".repeat(8 * 1024)))),
        (414, "a".repeat(8 * 1024)),
        (431, h(&format!("X: {}\r\n", "a".repeat(32 * 1024)))),
        (431, h(&"X: y\r\n".repeat(crate::MAX_FIELDS))),
        // Host.
        (400, "GET / HTTP/1.1\r\n\r\n".into()),
        (400, "GET http://a/ HTTP/1.1\r\n\r\n".into()),
        (400, h("Host: a\r\n")),
        (400, h("host: b\r\n")),
        (400, "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost:\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a:\r\nX: :\r\nHost: a\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: .\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: ..\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a..b\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a..:80\r\n\r\n".into()),
        (400, line("GET http://a..b/ HTTP/1.1")),
        (400, "GET / HTTP/1.1\r\nHost: [v1.]\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [v.a]\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [vg.a]\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [v1a]\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [v1.a/b]\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [::g]\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: a%2\r\n\r\n".into()),
        (400, "GET / HTTP/1.1\r\nHost: \u{e9}\r\n\r\n".into()),
        // Duplicate fields: one parser takes the first, another the last.
        (400, h("Authorization: Basic a\r\nAuthorization: Basic b\r\n")),
        (400, h("Content-Type: a/b\r\ncontent-type: a/b\r\n")),
        // Framing.
        (400, h("Content-Length: 5\r\nContent-Length: 5\r\n")),
        (400, h("Content-Length: 5\r\ncontent-length: 6\r\n")),
        (400, h("Content-Length: 5, 5\r\n")),
        (400, h("Content-Length: +5\r\n")),
        (400, h("Content-Length: -5\r\n")),
        (400, h("Content-Length: 5 5\r\n")),
        (400, h("Content-Length: 0x5\r\n")),
        (400, h("Content-Length: 5.0\r\n")),
        (400, h("Content-Length:\r\n")),
        (400, h("Content-Length: 18446744073709551616\r\n")),
        (413, h("Content-Length: 1048577\r\n")),
        (400, h("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")),
        (400, h("Content-Length: 5\r\nTransfer-Encoding: identity\r\n")),
        (400, h("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")),
        (400, h("Transfer-Encoding: chunked, chunked\r\n")),
        (400, h("Transfer-Encoding: chunked, gzip\r\n")),
        (400, h("Transfer-Encoding: gzip\r\n")),
        (400, h("Transfer-Encoding: identity\r\n")),
        (400, h("Transfer-Encoding: xchunked\r\n")),
        (400, h("Transfer-Encoding: chunked;a=b\r\n")),
        (400, h("Transfer-Encoding: \"chunked\"\r\n")),
        (400, h("Transfer-Encoding: , chunked\r\n")),
        (400, h("Transfer-Encoding: chunked,\r\n")),
        (400, h("Transfer-Encoding: chun ked\r\n")),
        (400, h("Transfer-Encoding:\r\n")),
        (400, h("Transfer-Encoding: \x0bchunked\r\n")),
        (501, h("Transfer-Encoding: gzip, chunked\r\n")),
        (501, h("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n")),
        (400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into()),
        (417, h("Expect: tea\r\n")),
        (417, h("Expect: 100-continue, tea\r\n")),
        (417, h("Expect: , tea\r\n")),
        (417, h("Expect:\r\nExpect: tea\r\n")),
        // Chunks.
        (400, chunked("\r\n")),
        (400, chunked("g\r\n")),
        (400, chunked("+1\r\na\r\n")),
        (400, chunked("-1\r\na\r\n")),
        (400, chunked("0x1\r\na\r\n")),
        (400, chunked("1_0\r\na\r\n")),
        (400, chunked(" 1\r\na\r\n")),
        (400, chunked("1 \r\na\r\n")),
        (400, chunked("1 1;a\r\na\r\n")),
        (400, chunked("1 a\r\na\r\n")),
        (400, chunked(" ;a\r\na\r\n")),
        (400, chunked("1\t\r\na\r\n")),
        (400, chunked("1\na\r\n")),
        (400, chunked("1\r\r\na\r\n")),
        (400, chunked("1;a\rb\r\na\r\n")),
        (400, chunked("1;a\0\r\na\r\n")),
        (400, chunked(";a\r\na\r\n")),
        (400, chunked("10000000000000000\r\n")),
        (400, chunked(&format!("{}1\r\na\r\n", "0".repeat(17 * 1024)))),
        (400, chunked(&format!("{}1\r\na\r\n", "0".repeat(1024)).repeat(17))),
        (400, chunked(&format!("1{};a\r\na\r\n", " ".repeat(17 * 1024)))),
        (400, chunked("000000000000000010000000000000000\r\n")),
        (413, chunked("ffffffffffffffff\r\n")),
        (413, chunked("1\r\na\r\n100000\r\n")),
        (400, chunked("1\r\nab\r\n")),
        (400, chunked("1\r\na\n0\r\n\r\n")),
        (400, chunked("1\r\na\rb")),
        (400, chunked("1\r\na0\r\n\r\n")),
        (400, chunked(&format!("1;{}\r\na\r\n", "x".repeat(17 * 1024)))),
        (400, chunked(&format!("1;{}\r\na\r\n", "x".repeat(1024)).repeat(17))),
        (400, chunked(&format!("0\r\n{}", "X: y\r\n".repeat(5000)))),
        (400, chunked("0\r\nX: y\n\r\n")),
        (400, chunked("0\r\nX : y\r\n\r\n")),
        (400, chunked("0\r\n X: y\r\n\r\n")),
        (400, chunked("0\r\nX: a\0b\r\n\r\n")),
        (400, chunked("0\r\nGET / HTTP/1.1\r\n\r\n")),
        (400, chunked("0\r\nX\r\n\r\n")),
    ];
    for (status, wire) in table {
        let wire = wire.as_bytes();
        let error = read(&[wire]).expect_err(&String::from_utf8_lossy(wire));
        assert_eq!(error.status().as_u16(), status, "{:?}: {error}", String::from_utf8_lossy(wire));
        assert!(!error.to_string().is_empty());
        let step = 1 + wire.len() / 256;
        for cut in (0..wire.len()).step_by(step) {
            let again = read(&[&wire[..cut], &wire[cut..]]).expect_err("refused when whole");
            assert_eq!(again.status(), error.status(), "cut at {cut}");
        }
    }
}

#[test]
fn targets_are_taken_apart() {
    let table = [
        ("GET /a/b%20c?d=e?f HTTP/1.1", "/a/b%20c?d=e?f", "/a/b%20c", Some("d=e?f"), "a"),
        ("GET /? HTTP/1.1", "/?", "/", Some(""), "a"),
        ("GET //x HTTP/1.1", "//x", "//x", None, "a"),
        ("GET /\u{e9} HTTP/1.1", "/\u{e9}", "/\u{e9}", None, "a"),
        ("GET http://b HTTP/1.1", "/", "/", None, "b"),
        ("GET HTTPS://b:1/x?y HTTP/1.1", "/x?y", "/x", Some("y"), "b:1"),
        ("GET http://b?y HTTP/1.1", "/?y", "/", Some("y"), "b"),
        ("GET http://[::1]:8/x HTTP/1.1", "/x", "/x", None, "[::1]:8"),
        ("OPTIONS * HTTP/1.1", "*", "*", None, "a"),
        ("OPTIONS http://b HTTP/1.1", "*", "*", None, "b"),
    ];
    for (line, uri, path, query, host) in table {
        let head = head(&format!("{line}\r\nHost: a\r\n\r\n")).unwrap();
        assert_eq!(head.target.uri(), uri);
        assert_eq!(head.target.path(), path);
        assert_eq!(head.target.query().as_deref(), query.map(str::as_bytes));
        assert_eq!(head.target.raw(), line.split(' ').nth(1).unwrap());
        assert_eq!(head.host.unwrap(), host);
        assert_eq!(head.headers["host"], host);
        assert_eq!(head.headers.get_all("host").iter().count(), 1);
    }
}

/// A body in tiny chunks costs little more than its bytes.
#[test]
fn small_chunks_are_taken_together() {
    let decode = |body: &[u8], most| {
        let mut decoder = BodyDecoder::new(BodyFraming::Chunked, most).unwrap();
        let (mut buf, mut seen) = (BytesMut::from(body), Vec::new());
        loop {
            match decoder.decode(&mut buf) {
                Ok(Decoded::Data(data)) => seen.push(data),
                Ok(end) => return (seen, Ok(end), buf),
                Err(error) => return (seen, Err(error), buf),
            }
        }
    };
    let tiny = b"1\r\na\r\n003\r\nbcd\r\n".repeat(1000);
    let (seen, end, rest) = decode(&[&tiny, &b"0\r\n\r\nnext"[..]].concat(), 4000);
    assert_eq!((seen.len(), end, &rest[..]), (1, Ok(Decoded::End), &b"next"[..]));
    assert_eq!(seen[0], b"abcd".repeat(1000));
    // The bytes behind them are checked as strictly as before.
    let (seen, end, _) = decode(&tiny, 3999);
    assert_eq!((seen[0].len(), end), (3997, Err(RequestError::BodyTooLarge)));
    for wrong in ["1\r\nab\r\n", "1\ra\r\n", "g\r\n", "\r\n", "1 \r\na\r\n"] {
        let (seen, end, _) = decode(&[&tiny, wrong.as_bytes()].concat(), 9000);
        assert!(matches!(end, Err(RequestError::Malformed(_))), "{wrong:?}");
        assert_eq!(seen[0], b"abcd".repeat(1000));
    }
    let (_, end, _) = decode(&[&tiny, &b"1\r"[..]].concat(), 9000);
    assert_eq!(end, Ok(Decoded::NeedMore));
    let large = [&tiny, &b"400\r\n"[..], &[b'x'; 1024], b"\r\n401\r\n", &[b'y'; 1025]].concat();
    let (seen, ..) = decode(&large, 9000);
    assert_eq!(seen.iter().map(|data| data.len()).collect::<Vec<_>>(), [5024, 1025]);
}

#[test]
fn methods_are_case_sensitive_tokens() {
    let request = |method: &str| head(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(request("GET").unwrap().method, Method::GET);
    for method in ["PROPFIND", "VERSION-CONTROL", "M_1"] {
        assert_eq!(request(method).unwrap().method.as_str(), method);
    }
    for method in ["get", "Post", "PROPfIND"] {
        assert!(matches!(request(method), Err(RequestError::Malformed(_))), "{method}");
    }
}

#[test]
fn hosts() {
    for host in [
        "a",
        "A.b-c_d",
        "1.2.3.4:80",
        "[::1]",
        "[::1]:65535",
        "[v1.a:b]",
        "[VfF.a]:80",
        "a:",
        "a.",
        ".a",
        "a.:80",
        "a%41",
        "a%2e%2eb",
        "a,b",
    ] {
        let wire = format!("GET / HTTP/1.1\r\nHost: {host} \r\n\r\n");
        assert_eq!(head(&wire).unwrap().host.unwrap(), host);
    }
    assert_eq!(head("GET / HTTP/1.0\r\n\r\n").unwrap().host, None);
}

#[test]
fn persistence() {
    for (version, fields, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, Close\r\n", false),
        ("1.1", "Connection: x\r\nConnection:\tclose \r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let head = head(&format!("GET / HTTP/{version}\r\nHost: a\r\n{fields}\r\n")).unwrap();
        assert_eq!(head.keep_alive, keep_alive, "{version} {fields}");
    }
}

#[test]
fn framing_and_expectations() {
    assert_eq!(get("").unwrap().framing, BodyFraming::None);
    assert_eq!(get("Content-Length: 007\r\n").unwrap().framing, BodyFraming::Length(7));
    let max = get("Content-Length: 18446744073709551615\r\n").unwrap().framing;
    assert_eq!(max, BodyFraming::Length(u64::MAX));
    assert_eq!(get("transfer-encoding: CHUNKED\r\n").unwrap().framing, BodyFraming::Chunked);
    assert!(get("Expect: 100-Continue\r\nContent-Length: 1\r\n").unwrap().expect_continue);
    assert!(!get("Expect: 100-continue\r\nContent-Length: 0\r\n").unwrap().expect_continue);
    assert!(!get("Expect: 100-continue\r\n").unwrap().expect_continue);
    for none in ["Expect:", "Expect: ,", "Expect:\r\nExpect: ,,"] {
        assert!(!get(&format!("{none}\r\nContent-Length: 1\r\n")).unwrap().expect_continue);
    }
    assert!(get("Expect: , 100-continue\r\nContent-Length: 1\r\n").unwrap().expect_continue);
    let old = head("POST / HTTP/1.0\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n").unwrap();
    assert_eq!((old.version, old.expect_continue), (Version::HTTP_10, false));
}

#[test]
fn limits_hold_to_the_byte() {
    let limits = Limits { request_line: 20, head: 40 };
    let run = |wire: &str| {
        HeadDecoder::new(limits).next(&mut BytesMut::from(wire)).map(|head| head.is_some())
    };
    let status = |wire: &str| run(wire).map_err(RequestError::status);
    assert_eq!(status("GET /aaaa HTTP/1.1\r\nHost: a\r\nX: bbbb\r\n\r\n"), Ok(true));
    assert_eq!(status("GET /aaaaa HTTP/1.1\r\n"), Err(StatusCode::URI_TOO_LONG));
    assert_eq!(status("GET /aaaa HTTP/1.1\r"), Ok(false));
    assert_eq!(
        status("GET /aaaa HTTP/1.1\r\nHost: a\r\nX: bbbbb\r\n\r\n"),
        Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    );
    assert_eq!(status("GET /aaaa HTTP/1.1\r\nHost: a\r\nX: bbbb\r\n\r"), Ok(false));
}

#[test]
fn values_share_the_received_bytes() {
    let mut buf = BytesMut::from("GET /abc HTTP/1.1\r\nHost: a\r\nX: some value\r\n\r\n");
    let memory = buf.as_ptr_range();
    let head = HeadDecoder::new(Limits::default()).next(&mut buf).unwrap().unwrap();
    assert!(memory.contains(&head.headers["x"].as_bytes().as_ptr()));
    assert!(memory.contains(&head.target.path().as_ptr()));
    assert!(memory.contains(&head.host.unwrap().as_ptr()));
}

#[test]
fn higher_minor_versions_are_answered_as_http_1_1() {
    for minor in 2..=9 {
        let head = head(&format!("GET / HTTP/1.{minor}\r\nHost: a\r\n\r\n")).unwrap();
        assert_eq!((head.version, head.keep_alive), (Version::HTTP_11, true));
    }
    let error = head("GET / HTTP/1.9\r\n\r\n").unwrap_err();
    assert_eq!(error, RequestError::Malformed("no Host field"));
}

#[test]
fn targets_may_hold_any_bytes_but_blanks_and_controls() {
    let mut buf =
        BytesMut::from(&b"GET /\xff?q=caf\xe9\x80\"<>|{}^`\\ HTTP/1.1\r\nHost: a\r\n\r\n"[..]);
    let head = HeadDecoder::new(Limits::default()).next(&mut buf).unwrap().unwrap();
    assert_eq!(head.target.path(), &b"/\xff"[..]);
    assert_eq!(head.target.query().unwrap(), &b"q=caf\xe9\x80\"<>|{}^`\\"[..]);
}

/// CGI turns `X.A`, `X_A` and `X-A` into the same `HTTP_X_A`.
#[test]
fn fields_whose_names_hold_more_than_letters_digits_and_hyphens_are_dropped() {
    let odd: String = "!#$%&'*+.^_`|~".chars().map(|c| format!("X{c}A: 1\r\n")).collect();
    let head = get(&format!("{odd}X-A: 2\r\nContent_Length: 5\r\n")).unwrap();
    let names: Vec<_> = head.headers.keys().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, ["host", "x-a"]);
    assert_eq!(head.framing, BodyFraming::None);
}

#[test]
fn the_asterisk_form_is_told_apart() {
    for (line, is_asterisk) in [
        ("OPTIONS *", true),
        ("OPTIONS http://b", true),
        ("OPTIONS http://b/", false),
        ("OPTIONS http://b?*", false),
        ("OPTIONS /*", false),
        ("GET /", false),
    ] {
        let head = head(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n")).unwrap();
        assert_eq!(head.target.is_asterisk(), is_asterisk, "{line}");
    }
}

/// A refusal of HEAD has no body, so the method must be known even if the head cannot be parsed.
#[test]
fn a_refused_head_request_is_known_to_be_one() {
    for (wire, is_head) in [
        ("HEAD / HTTP/1.1\r\nHost: a b\r\n\r\n", true),
        ("\r\nHEAD / HTTP/1.1\r\nHost: a\n", true),
        ("HEAD / HTTP/2.0\r\n\r\n", true),
        ("HEAD / HT", true),
        ("HEADER / HTTP/1.1\r\n\r\n", false),
        ("GET / HTTP/1.1\r\n\r\n", false),
        ("HEAD", false),
    ] {
        let mut decoder = HeadDecoder::new(Limits::default());
        assert!(!matches!(decoder.next(&mut BytesMut::from(wire)), Ok(Some(_))));
        assert_eq!(decoder.is_head(), is_head, "{wire:?}");
    }
    let mut decoder = HeadDecoder::new(Limits::default());
    let mut buf = BytesMut::from("HEAD / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n");
    for is_head in [true, false] {
        assert!(decoder.next(&mut buf).unwrap().is_some());
        assert_eq!(decoder.is_head(), is_head);
    }
}
