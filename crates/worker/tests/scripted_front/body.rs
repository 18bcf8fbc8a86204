//! Waiting for a body without reading it.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::front::push;
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::{BeginRequest, Kind};
use sendoff_worker::{Roles, Worker};

const RESPONDER: Roles = Roles { responder: true, authorizer: false, filter: false };
const LIMIT: Duration = Duration::from_secs(20);

/// A request without its body.
fn beginning() -> Vec<u8> {
    let mut request = BeginRequest { keep_conn: true }.encode(1).to_vec();
    let mut stream = Vec::new();
    params::encode(&mut stream, b"REQUEST_METHOD", b"POST");
    push(&mut request, Kind::PARAMS, 1, &stream);
    push(&mut request, Kind::PARAMS, 1, &[]);
    request
}

/// A worker with a request whose body has not begun to arrive, and the server's end.
fn begun() -> (UnixStream, Worker) {
    let (mut server, theirs) = UnixStream::pair().unwrap();
    server.write_all(&beginning()).unwrap();
    let mut worker = Worker::on_connection(theirs.into(), RESPONDER);
    assert!(worker.accept_on_connection().unwrap());
    (server, worker)
}

fn stdin(content: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    push(&mut records, Kind::STDIN, 1, content);
    records
}

fn is_readable(worker: &mut Worker) -> bool {
    worker.await_body(None, Some(Duration::ZERO))
}

#[test]
fn a_body_is_awaited_until_it_can_be_read() {
    let (mut server, mut worker) = begun();
    let mut buf = [0; 100];
    assert!(!is_readable(&mut worker));
    assert!(!worker.await_body(None, Some(Duration::from_millis(20))));
    // A link that can be read may have only the beginning of a record.
    let record = stdin(b"abc");
    server.write_all(&record[..5]).unwrap();
    assert!(!worker.await_body(None, Some(Duration::from_millis(20))));
    server.write_all(&record[5..]).unwrap();
    assert!(worker.await_body(None, Some(LIMIT)));
    assert!(is_readable(&mut worker));
    assert_eq!(worker.read(&mut buf[..2]).unwrap(), 2);
    assert!(is_readable(&mut worker));
    assert_eq!(worker.read(&mut buf).unwrap(), 1);
    assert!(!is_readable(&mut worker));
    // The end.
    server.write_all(&stdin(b"")).unwrap();
    assert!(worker.await_body(None, None));
    assert_eq!(worker.read(&mut buf).unwrap(), 0);
    assert!(!worker.aborted());
}

#[test]
fn a_descriptor_ends_the_waiting() {
    let (mut server, mut worker) = begun();
    let (mut other, wake) = UnixStream::pair().unwrap();
    other.write_all(b"x").unwrap();
    assert!(!worker.await_body(Some(wake.as_fd()), None));
    server.write_all(&stdin(b"abc")).unwrap();
    assert!(worker.await_body(Some(wake.as_fd()), Some(LIMIT)));
}

#[test]
fn a_server_that_leaves_inside_a_body_is_noticed() {
    let (mut server, mut worker) = begun();
    assert!(!worker.aborted());
    server.write_all(&stdin(b"abc")).unwrap();
    drop(server);
    // Behind unread bytes nothing is received.
    assert!(!worker.aborted());
    let mut buf = [0; 100];
    assert_eq!(worker.read(&mut buf).unwrap(), 3);
    assert!(worker.aborted());
    assert!(worker.await_body(None, None));
    assert!(worker.read(&mut buf).is_err());
}

#[test]
fn a_stop_cuts_no_body() {
    let (mut server, mut worker) = begun();
    worker.stopper().stop();
    server.write_all(&[stdin(b"all of it"), stdin(b"")].concat()).unwrap();
    let (mut body, mut buf) = (Vec::new(), [0; 100]);
    while let n @ 1.. = worker.read(&mut buf).unwrap() {
        body.extend_from_slice(&buf[..n]);
    }
    assert_eq!(body, b"all of it");
    assert!(!worker.accept_on_connection().unwrap(), "no request is waiting");
}

/// The stop comes at any moment of the wait and of the arrival of a request.
#[test]
fn a_request_that_a_stop_meets_is_whole_or_unread() {
    for _ in 0..500 {
        let (mut server, theirs) = UnixStream::pair().unwrap();
        let mut worker = Worker::on_connection(theirs.into(), RESPONDER);
        let stopper = worker.stopper();
        let stops = std::thread::spawn(move || stopper.stop());
        let asks = std::thread::spawn(move || (server.write_all(&beginning()), server));
        let came = worker.accept_on_connection().unwrap();
        stops.join().unwrap();
        let (sent, mut server) = asks.join().unwrap();
        if came {
            server.write_all(&[stdin(b"whole"), stdin(b"")].concat()).unwrap();
            assert_eq!(worker.read(&mut [0; 100]).unwrap(), 5);
        } else if sent.is_ok() {
            // The server learns that its request was not read.
            drop(worker);
            let error = server.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
}
