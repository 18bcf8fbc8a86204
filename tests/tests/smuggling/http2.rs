//! Fields of HTTP/2 requests that would end a field, a head or a request if they were passed on as
//! HTTP/1.1.

use sendoff_tests::frames::{self, END_HEADERS, END_STREAM, Frames, HEADERS};
use sendoff_tests::{Request, Site};

use crate::applications::Application;
use crate::serve;

const CHUNKED: &str =
    "x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /python?inner HTTP/1.1\r\nHost: a\r\n\r\n";

/// Fields behind the pseudo-fields.
const FIELDS: &[(&str, &str)] = &[
    ("x", CHUNKED),
    ("x", "y\r\nx-sendoff: inner"),
    ("x", "y\nx-sendoff: inner"),
    ("x", "y\rx-sendoff: inner"),
    ("x", "y\0z"),
    ("x\r\ntransfer-encoding", "chunked"),
    ("x: y\r\ntransfer-encoding", "chunked"),
    ("x\ny", "z"),
    ("x\0", "z"),
    ("x y", "z"),
    ("x:", "z"),
    ("", "z"),
    ("X", "z"),
    ("transfer-encoding", "chunked"),
    ("connection", "keep-alive"),
    ("connection", "x-sendoff"),
    ("keep-alive", "x"),
    ("upgrade", "websocket"),
    ("te", "chunked"),
    ("content-length", "5"),
    ("content-length", "x"),
    ("content-length", "0, 5"),
    ("host", "b.test\r\nx-sendoff: inner"),
    (":path", "/python?inner"),
    (":late", "x"),
];

/// Targets and methods.
const PSEUDO: &[(&str, &str)] = &[
    ("GET", "/python?first HTTP/1.1\r\nX-Sendoff: inner\r\n\r\nGET /python?inner"),
    ("GET", "/python?first\r\nx: y"),
    ("GET", "/python?first\n"),
    ("GET", "/python?first "),
    ("GET", "/python?first\0"),
    ("GET", "python?first"),
    ("GET", ""),
    ("GET /python?inner HTTP/1.1\r\nHost: a\r\n\r\nGET", "/python?first"),
    ("GET\n", "/python?first"),
    ("", "/python?first"),
];

#[test]
fn fields_of_http2_end_nothing_in_http1() {
    let site = Site::new();
    let applications = [Application::gunicorn(&site)];
    let server = serve(&site, &applications);
    let fields = FIELDS.iter().map(|field| frames::request("GET", "/python?first", &[*field]));
    let pseudo = PSEUDO.iter().map(|(method, path)| frames::request(method, path, &[]));
    for (number, block) in fields.chain(pseudo).enumerate() {
        let mut client = Frames::connect(server.addr(), &[]);
        client.send(frames::frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        // A response, or the end of the stream or the connection.
        client.find(|frame| frame.stream == 1 || frame.kind == frames::GOAWAY);
        let control = server.ask(&Request::get("/python?control"));
        assert_eq!(control.text(), "answered control;", "case {number}");
        for seen in applications[0].seen() {
            assert_eq!(seen.id, seen.sendoff, "case {number}");
            assert!(["first", "control"].contains(&&*seen.id), "case {number}: {seen:?}");
        }
    }
}
