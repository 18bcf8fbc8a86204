//! ASGI applications that get a body while it arrives (`stream_body`), and answer meanwhile.

use sendoff_tests::{Client, LIMIT, Server, Site, wait};

use super::server::Python;
use super::{COROUTINES, COROUTINES_PY};

/// The application has one thread, which must not stay at a request.
fn start() -> (Python, Server) {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1", "--threads", "1"]);
    let server = python.streaming_front();
    (python, server)
}

/// A client that has sent the first two of ten body bytes.
fn client(server: &Server, target: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nab"));
    client.head().unwrap();
    client
}

/// The first chunk that is not `skipped`.
fn chunk_behind(client: &mut Client, skipped: &[u8]) -> Vec<u8> {
    loop {
        let chunk = client.chunk();
        if chunk != skipped {
            return chunk;
        }
    }
}

fn await_note(python: &Python, name: &str) {
    let noted = wait::until(LIMIT, || python.site.outside(name).exists());
    assert!(noted, "no {name}: {}", python.log());
}

/// The client sends the rest of its body only when it has seen parts of the response.
#[test]
fn send_does_not_wait_for_receive() {
    let (python, server) = start();
    let mut client = client(&server, "/duplex?note=none");
    assert_eq!(client.chunk(), b"begun");
    for _ in 0..4 {
        assert_eq!(client.chunk(), b"tick");
    }
    client.send("cdefghij");
    assert_eq!(chunk_behind(&mut client, b"tick"), b"got 10");
    assert_eq!(client.chunk(), b"");
    let mut early = server.connect();
    early.send(
        "POST /duplex HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    assert_eq!(early.head().unwrap().status, 100);
    assert_eq!(early.head().unwrap().status, 200);
    assert_eq!(early.chunk(), b"begun");
    assert_eq!(early.chunk(), b"tick");
    early.send("abc");
    assert_eq!(chunk_behind(&mut early, b"tick"), b"got 3");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn a_client_that_leaves_inside_its_body_is_noticed() {
    let (python, server) = start();
    for name in ["duplex", "awaits"] {
        let mut client = client(&server, &format!("/{name}?note={name}"));
        assert_eq!(client.chunk(), b"begun");
        drop(client);
        await_note(&python, name);
        assert_eq!(server.page("/hello"), "hello");
    }
    await_note(&python, "awaits sent");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn a_receive_that_is_cancelled_loses_no_bytes() {
    let (python, server) = start();
    let mut client = client(&server, "/impatient");
    for byte in ["c", "d", "e", "f", "g", "h", "i", "j"] {
        assert_eq!(client.chunk(), b"waits");
        client.send(byte);
    }
    assert_eq!(chunk_behind(&mut client, b"waits"), b"abcdefghij");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn concurrent_receives_get_one_piece_each() {
    let (python, server) = start();
    let mut client = client(&server, "/together?note=together");
    assert_eq!(client.chunk(), b"ab");
    client.send("cdefghij");
    assert_eq!(client.chunk(), b"cdefghij");
    assert_eq!(client.chunk(), b"");
    await_note(&python, "together");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}
