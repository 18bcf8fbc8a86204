//! Applications that speak SCGI.

use std::sync::{Mutex, mpsc};

use sendoff_tests::{Broken, Request, Site, pattern};

use crate::pass_on;
use crate::responder::{Peer, Responder};

/// Reads the head of a request: its parameters.
pub(crate) fn params(peer: &mut Peer) -> Option<Vec<(String, String)>> {
    let mut digits = String::new();
    loop {
        match peer.bytes(1)?[0] {
            b':' => break,
            digit => digits.push(char::from(digit)),
        }
    }
    let head = peer.bytes(digits.parse().unwrap())?;
    assert_eq!(peer.bytes(1)?, b",");
    let text = String::from_utf8(head).unwrap();
    let words: Vec<_> = text.strip_suffix('\0').unwrap().split('\0').collect();
    Some(words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect())
}

fn url(app: &Responder) -> String {
    app.url().replace("http:", "scgi:")
}

/// Answers a request with `ok`.
pub(crate) fn answer_ok(peer: &mut Peer) -> Option<()> {
    let params = params(peer)?;
    peer.bytes(params[0].1.parse().unwrap())?;
    peer.say("Status: 200 OK\r\n\r\nok")
}

#[test]
fn a_status_line_is_the_status() {
    let app = Responder::start(|peer| {
        let params = params(peer)?;
        peer.bytes(params[0].1.parse().unwrap())?;
        peer.say("HTTP/1.1 404 Not Here\r\nX-A: b\r\n\r\nmissing")
    });
    let site = Site::new();
    let response = pass_on(&site, &url(&app), "").get("/");
    assert_eq!((response.status(), &*response.head.reason), (404, "Not Here"));
    assert_eq!((response.header("x-a"), &*response.text()), (Some("b"), "missing"));
}

#[test]
fn parameters_and_the_body_arrive() {
    let app = Responder::start(|peer| {
        let params = params(peer)?;
        assert_eq!(params[0].0, "CONTENT_LENGTH");
        let body = peer.bytes(params[0].1.parse().unwrap())?;
        let wanted = [
            "SCGI",
            "REQUEST_METHOD",
            "SCRIPT_NAME",
            "PATH_INFO",
            "QUERY_STRING",
            "REQUEST_URI",
            "CONTENT_TYPE",
            "HTTP_X_A",
        ];
        let told = wanted.map(|name| {
            let found = params.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value);
            found.collect::<Vec<_>>().join("+")
        });
        peer.say(format!("Status: 201 Made\r\nX-B: c\r\n\r\n{} {}", told.join("|"), body.len()))
    });
    let site = Site::new();
    let server = pass_on(&site, &url(&app), "");
    let request = Request::post("/a%20b?c", "text/plain", pattern(1, 100_000)).header("X-A", "d");
    let response = server.ask(&request);
    assert_eq!(
        (response.status(), &*response.head.reason, response.header("x-b")),
        (201, "Made", Some("c"))
    );
    assert_eq!(response.text(), "1|POST||/a b|c|/a%20b?c|text/plain|d 100000");
}

/// The client need not wait for work that follows; it has what was announced.
#[test]
fn a_body_of_the_announced_length_is_complete_before_the_application_ends() {
    let (work, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let app = Responder::start(move |peer| {
        let is_head = params(peer)?.contains(&("REQUEST_METHOD".to_owned(), "HEAD".to_owned()));
        peer.say("Status: 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        peer.say(if is_head { "" } else { "page" })?;
        ended.lock().unwrap().recv().ok()
    });
    let site = Site::new();
    let server = pass_on(&site, &url(&app), "");
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("/")).text(), "page");
    assert_eq!(client.ask(&Request::new("HEAD", "/")).status(), 200);
    assert_eq!(client.ask(&Request::get("/")).text(), "page");
    drop(work);
}

#[test]
fn broken_responses_are_refused_or_cut() {
    let site = Site::new();
    for (wire, is_refused) in [
        ("", true),
        ("garbage", true),
        ("Status: 200\r\nX-A: b", true),
        ("X A: b\r\n\r\n", true),
        ("Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", true),
        ("Content-Length: 10\r\n\r\nshort", false),
    ] {
        let app = Responder::start(move |peer| {
            params(peer)?;
            peer.say_slowly(wire.as_bytes())
        });
        let server = pass_on(&site, &url(&app), "");
        match server.connect().try_ask(&Request::get("/")) {
            Ok(response) => assert!(is_refused && response.status() == 502, "{wire:?}"),
            Err(broken) => assert!(!is_refused && matches!(broken, Broken::Cut(_)), "{wire:?}"),
        }
    }
}

#[test]
fn lines_with_control_characters_are_dropped_unless_the_server_obeys_them() {
    let site = Site::new();
    for (wire, status, logged) in [
        ("Status: 403 a\u{1b}b\r\n\r\n", 403, "a reason phrase with a control character"),
        ("Status: 403\r\nX-A: \u{1}\r\n\r\n", 403, "which is dropped: X-A: "),
        ("Status: 403\r\nLocation: /\u{1}\r\n\r\n", 502, "that the server obeys: Location: /"),
        ("Status: 403 \r\nX-A: 1\r\nX-Sendfile: /\r1\r\n\r\n", 502, "obeys: X-Sendfile: "),
        // Such fields of interim responses have no meaning.
        (
            "Status: 103\r\nX-Sendfile: \u{1}\r\n\r\nStatus: 403\r\n\r\n",
            403,
            "which is dropped: X-Sendfile: ",
        ),
    ] {
        let app = Responder::start(move |peer| {
            params(peer)?;
            peer.say(format!("{wire}body"))
        });
        let server = pass_on(&site, &url(&app), "");
        let mut client = server.connect();
        client.send(Request::get("/").bytes());
        if wire.starts_with("Status: 103") {
            assert_eq!(client.head().unwrap().status, 103);
        }
        assert_eq!(client.response("GET").status(), status, "{wire:?}");
        server.await_log(logged);
    }
}

/// The body of a response that mixes bytes and the file `name`.
fn mixed(name: &str) -> (String, String) {
    let places = format!("X-ZeroCopy: 5/{}", name.len());
    (places, format!("hello{name}bye"))
}

#[test]
fn files_named_in_a_body_are_sent() {
    let site = Site::new();
    let file = site.write_at(site.outside("files/a.bin"), pattern(1, 100_000));
    let (field, body) = mixed(file.to_str().unwrap());
    let app = Responder::start(move |peer| {
        params(peer)?;
        peer.say(format!("Status: 200 OK\r\n{field}\r\n\r\n{body}"))
    });
    let server = crate::serve(
        &site,
        &format!("sendfile_from = 'files'\n[[site.route]]\nproxy = '{}'\n", url(&app)),
    );
    let expected = [b"hello", &pattern(1, 100_000)[..], b"bye"].concat();
    assert!(server.get("/").expect(200) == expected);
    // Without `sendfile_from` the field has no meaning for the server, and the body passes
    // unchanged.
    let server = pass_on(&site, &url(&app), "");
    assert!(server.get("/").text().starts_with("hello/"));
}
