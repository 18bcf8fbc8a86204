//! A server that is still sending its request when the response is ready.

use std::os::unix::net::UnixStream;

use crate::front::{Link, Seen, push};
use sendoff_fastcgi::params;
use sendoff_fastcgi::record::{BeginRequest, Kind};
use sendoff_worker::{Roles, Worker};

const RESPONDER: Roles = Roles { responder: true, authorizer: false, filter: false };
const HEAD: &[u8] = b"Status: 413\r\n\r\n";
static PIECE: [u8; 60_000] = [b'x'; 60_000];
/// Together these are more than a socket holds.
const PIECES: usize = 50;

/// Without reading the rest the server would block, and over TCP the response might be lost.
#[test]
fn the_rest_of_a_request_is_read_before_the_connection_is_closed() {
    let (server, theirs) = UnixStream::pair().unwrap();
    let mut link = Link::new(server);
    let mut request = BeginRequest { keep_conn: false }.encode(1).to_vec();
    let mut stream = Vec::new();
    params::encode(&mut stream, b"REQUEST_METHOD", b"POST");
    push(&mut request, Kind::PARAMS, 1, &stream);
    push(&mut request, Kind::PARAMS, 1, &[]);
    push(&mut request, Kind::STDIN, 1, &PIECE);
    link.send(&request);
    let application = std::thread::spawn(|| {
        let mut worker = Worker::on_connection(theirs.into(), RESPONDER);
        assert!(worker.accept_on_connection().unwrap());
        worker.write_head(HEAD).unwrap();
        assert!(!worker.accept_on_connection().unwrap());
        worker.close();
    });
    assert_eq!(link.response(), [Seen::Stdout(HEAD.to_vec()), Seen::End(0)]);
    let mut rest = Vec::new();
    for _ in 0..PIECES {
        push(&mut rest, Kind::STDIN, 1, &PIECE);
    }
    link.send(&rest);
    drop(link);
    application.join().unwrap();
}
