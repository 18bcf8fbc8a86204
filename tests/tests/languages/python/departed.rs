//! ASGI applications whose client leaves before the end of its response.

use sendoff_tests::{Client, LIMIT, Request, Server, Site, wait};

use super::server::Python;
use super::{COROUTINES, COROUTINES_PY};

/// The application has one thread, which must not stay at a request.
fn start() -> (Python, Server) {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    let python = Python::start_in(site, COROUTINES, &["--workers", "1", "--threads", "1"]);
    let server = python.front(&[]);
    (python, server)
}

/// A client with a small receive buffer reads the head of a response, and leaves.
fn leave(server: &Server, target: &str) {
    let mut client = Client::connect_narrow(server.addr(), 4096);
    client.send(Request::get(target).bytes());
    client.head().unwrap();
}

#[track_caller]
fn await_note(python: &Python, name: &str) {
    let noted = wait::until(LIMIT, || python.site.outside(name).exists());
    assert!(noted, "no {name}: {}", python.log());
}

/// A cancellation inside `send()` would leave the generator at its `yield`: its `finally` would
/// run only when the garbage collector finds it.
#[test]
fn a_stream_is_cancelled_where_its_generator_waits() {
    let (python, server) = start();
    for (way, query) in [
        // The client's departure is found by a write, between pieces, or while send() waits for
        // room.
        ("written", "size=10&burst=1&pause=0.02"),
        ("burst", "size=10&burst=20&pause=0.02"),
        ("silent", "size=10&burst=1&pause=3600"),
        ("full", "size=30000000&burst=1&pause=3600"),
    ] {
        leave(&server, &format!("/events?{query}&note={way}"));
        let exists = |state: &str| python.site.outside(&format!("{way} {state}")).exists();
        let ended = wait::until(LIMIT, || exists("closed") || exists("open"));
        assert!(ended && exists("closed"), "{way}: ended {ended}: {}", python.log());
        assert_eq!(server.page("/hello"), "hello");
    }
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

/// Its client is gone, so the end of the response frees the thread; what fails behind it is logged.
#[test]
fn a_response_that_ends_too_late_ends_without_an_error() {
    let (python, server) = start();
    leave(&server, "/too_late?note=late&until=go");
    await_note(&python, "late sent");
    assert_eq!(server.page("/hello"), "hello");
    python.site.write_at(python.site.outside("go"), "");
    python.await_log("LookupError: behind a response without a client");
}

/// It would keep its thread for ever.
#[test]
fn an_endless_response_that_does_not_listen_is_ended() {
    let (python, server) = start();
    leave(&server, "/endless?note=endless");
    await_note(&python, "endless");
    assert_eq!(server.page("/hello"), "hello");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}
