//! ASGI applications whose client leaves before the end of its response.

use rustix::process::Signal;
use sendoff_tests::{Client, LIMIT, Request, Server, Site, wait};

use super::server::Python;
use super::{COROUTINES, COROUTINES_PY};

/// The application has one thread, which must not stay at a request.
fn start() -> (Python, Server) {
    start_with(COROUTINES)
}

fn start_with(application: &str) -> (Python, Server) {
    let site = Site::new();
    site.write_at(site.outside("coroutines.py"), COROUTINES_PY);
    // A place for one request without a client.
    let few =
        "from sendoff import asgi\nasgi.DEPARTED_LIMIT = 1\nfrom coroutines import application\n";
    site.write_at(site.outside("few.py"), few);
    let python = Python::start_in(site, application, &["--workers", "1", "--threads", "1"]);
    let server = python.front(&[]);
    (python, server)
}

/// Clients ask an application that goes on until there is the file `go`, and leave when it has begun.
fn leave_waiting(python: &Python, server: &Server, names: &[&str]) {
    for name in names {
        let mut client = server.connect();
        client.send(Request::get(&format!("/waits?note={name}&until=go")).bytes());
        await_note(python, &format!("{name} begun"));
    }
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

/// As in uvicorn: they are not ended, and other clients do not wait for them.
#[test]
fn requests_without_clients_go_on_without_threads() {
    let (python, server) = start();
    let names = ["one", "two", "three"];
    leave_waiting(&python, &server, &names);
    assert_eq!(server.page("/hello"), "hello");
    assert!(!python.site.outside("one").exists());
    python.site.write_at(python.site.outside("go"), "");
    names.iter().for_each(|name| await_note(&python, name));
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

#[test]
fn requests_without_clients_are_limited() {
    let (python, server) = start_with("few:application");
    leave_waiting(&python, &server, &["one", "two"]);
    // The second one keeps the thread.
    python.await_log("1 requests go on without their clients");
    let mut client = server.connect();
    client.send(Request::get("/waits?note=three&until=go").bytes());
    python.site.write_at(python.site.outside("go"), "");
    assert_eq!(client.response("GET").text(), "waited");
    ["one", "two"].iter().for_each(|name| await_note(&python, name));
    // The place is free again.
    std::fs::remove_file(python.site.outside("go")).unwrap();
    leave_waiting(&python, &server, &["four"]);
    assert_eq!(server.page("/hello"), "hello");
}

#[test]
fn a_stop_lets_requests_without_clients_finish() {
    let (python, server) = start();
    leave_waiting(&python, &server, &["left"]);
    assert_eq!(server.page("/hello"), "hello");
    python.signal(Signal::TERM);
    python.site.write_at(python.site.outside("go"), "");
    await_note(&python, "left");
    await_note(&python, "shutdown");
    let (status, log) = python.end();
    assert!(status.success(), "{log}");
}

/// It would never end.
#[test]
fn an_endless_response_that_does_not_listen_is_ended() {
    let (python, server) = start();
    leave(&server, "/endless?note=endless");
    await_note(&python, "endless");
    assert_eq!(server.page("/hello"), "hello");
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}
