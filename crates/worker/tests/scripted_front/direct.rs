//! Responses on a client's own socket, with front and client scripted.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::front::{Front, Seen, connect, request, sockets};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sendoff_fastcgi::direct::{Client, MAX_RECORDS, Rest, Sent};
use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::record::{Header, Kind};
use sendoff_worker::{Gone, Roles, Worker};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: x\r\nA: b\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Sends a request with a client's socket; returns the client's end.
fn lend(front: &mut Front, http_10: bool, narrow: bool) -> TcpStream {
    let whole = request(1, &[("REQUEST_METHOD", "GET")], b"");
    lend_with(front, http_10, narrow, &whole)
}

/// Sends the socket after the first record of `whole`.
fn lend_with(front: &mut Front, http_10: bool, narrow: bool, whole: &[u8]) -> TcpStream {
    let fields = b"Server: x\r\n";
    let client = Client { http_10, keep_alive: !http_10, encrypted: false, fields };
    lend_as(front, client, narrow, whole)
}

fn lend_as(front: &mut Front, terms: Client<'_>, narrow: bool, whole: &[u8]) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (socket, _) = listener.accept().unwrap();
    if narrow {
        set_socket_send_buffer_size(&socket, 10_000).unwrap();
        set_socket_recv_buffer_size(&client, 10_000).unwrap();
    }
    let (begin, rest) = whole.split_at(16);
    let mut wire = begin.to_vec();
    terms.encode(1, &mut wire);
    wire.extend_from_slice(rest);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [socket.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let link = &front.links[0].socket;
    sendmsg(link, &[IoSlice::new(&wire)], &mut control, SendFlags::empty()).unwrap();
    client
}

fn begun() -> (Front, Worker, TcpStream) {
    let (mut front, mut worker) = connect(1);
    let client = lend(&mut front, false, false);
    assert!(worker.accept());
    worker.write_head(b"A: b\r\n\r\n").unwrap();
    (front, worker, client)
}

/// Reads to the end. The socket must be closed when the front learns of the end: no other process
/// has the socket here, so the client sees the end at once.
fn read_all(mut client: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn small_or_unusual_responses_leave_over_the_link_and_the_socket_is_closed() {
    let large = vec![b'x'; 100_000];
    type Case<'a> = (&'a [u8], &'a dyn Fn(&mut Worker));
    let cases: [Case<'_>; 7] = [
        (b"A: b\r\n\r\n", &|worker| worker.write(b"small").unwrap()),
        (b"A: b\r\n\r\n", &|worker| {
            worker.write(b"flushed").unwrap();
            worker.flush().unwrap();
            worker.write(&[b'x'; 100_000]).unwrap();
        }),
        (b"X-Sendfile: /x\r\n\r\n", &|worker| worker.write(&large).unwrap()),
        (b"X-Accel-Limit-Rate: 5\r\n\r\n", &|worker| worker.write(&large).unwrap()),
        (b"X-ZeroCopy: 0/1\r\n\r\n", &|worker| worker.write(&large).unwrap()),
        (b"Status: 304\r\n\r\n", &|worker| worker.write(&large).unwrap()),
        (b"a b c\r\n\r\n", &|worker| worker.write(&large).unwrap()),
    ];
    for (head, write) in cases {
        let (mut front, mut worker) = connect(1);
        let client = lend(&mut front, false, false);
        assert!(worker.accept());
        worker.write_head(head).unwrap();
        let reader = std::thread::spawn(move || front.links[0].response());
        write(&mut worker);
        worker.finish(0, false);
        let seen = reader.join().unwrap();
        assert!(!seen.iter().any(|seen| matches!(seen, Seen::Record(Record::Sent(_)))));
        let is_whole = |seen: &Seen| matches!(seen, Seen::Stdout(text) if text.starts_with(head));
        assert!(seen.iter().any(is_whole), "{seen:?}");
        assert_eq!(read_all(client), b"");
    }
}

/// The application never sees the request, and the worker must close the socket.
#[test]
fn a_request_that_is_aborted_before_it_is_whole_leaves_no_socket_behind() {
    let (mut front, mut worker) = connect(1);
    let mut cut = request(1, &[("REQUEST_METHOD", "GET")], b"")[..16].to_vec();
    cut.extend_from_slice(&Header::new(Kind::ABORT_REQUEST, 1, 0).encode());
    let client = lend_with(&mut front, false, false, &cut);
    drop(front);
    assert!(!worker.accept());
    assert_eq!(read_all(client), b"");
    drop(worker);
}

#[test]
fn a_large_response_goes_to_the_client_and_the_front_hears_how_it_went() {
    let (mut front, mut worker, client) = begun();
    worker.write(b"first").unwrap();
    let reader = std::thread::spawn(move || read_all(client));
    worker.log(b"noted");
    for _ in 0..2 {
        worker.write(&[b'x'; 20_000]).unwrap();
    }
    worker.write(b"last").unwrap();
    worker.finish(0, false);
    let body = [b"4e25\r\nfirst".to_vec(), vec![b'x'; 20_000], b"\r\n4e20\r\n".to_vec()].concat();
    let body = [body, vec![b'x'; 20_000], b"\r\n4\r\nlast\r\n0\r\n\r\n".to_vec()].concat();
    let short = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&"x".repeat(1000), "X");
    assert_eq!(short(&reader.join().unwrap()), short(&[HEAD, &body].concat()));
    let sent = Sent {
        wire: (HEAD.len() + body.len()) as u64,
        head: HEAD.len().try_into().unwrap(),
        framed: 0,
        rest: Rest::Length(0),
        status: 200,
        gone: false,
        surplus: false,
    };
    // The log did not wait for the end.
    let seen = front.links[0].response();
    assert_eq!(
        seen,
        [Seen::Stderr(b"noted\n".to_vec()), Seen::Record(Record::Sent(sent)), Seen::End(0)]
    );
    // The next request is not affected.
    front.links[0].ask(1);
    assert!(worker.accept());
    worker.write_head(b"A: b\r\n\r\n").unwrap();
    worker.finish(0, false);
    assert_eq!(front.links[0].response()[0], Seen::Record(Record::Length(0)));
}

/// A response beyond the announced length goes to the client, even if it is written in small
/// pieces.
#[test]
fn pages_in_small_pieces_go_to_the_client() {
    for size in [40_000, 100_000, 120_000, 200_000] {
        let (mut front, mut worker, client) = begun();
        let reader = std::thread::spawn(move || read_all(client));
        let body = vec![b'x'; size];
        body.chunks(4096).for_each(|piece| worker.write(piece).unwrap());
        worker.finish(0, false);
        let wire = reader.join().unwrap();
        let response = front.links[0].response();
        assert!(
            matches!(&response[..], [Seen::Record(Record::Sent(sent)), Seen::End(0)]
                if sent.wire == wire.len() as u64 && sent.rest == Rest::Length(0)),
            "{size}: {response:?}"
        );
        assert!(unchunked(wire.strip_prefix(HEAD).unwrap()) == body, "{size}");
    }
}

/// The front gets the bytes that a full socket refuses, and the worker does not wait.
#[test]
fn what_a_full_socket_does_not_take_goes_to_the_front() {
    let payload: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    for (http_10, head, first, then) in [
        (false, &b"A: b\r\n\r\n"[..], 900_000, 0),
        (false, b"A: b\r\n\r\n", 200_000, 30_000),
        (false, b"A: b\r\n\r\n", 30_000, 30_000),
        (true, b"A: b\r\n\r\n", 900_000, 0),
        (false, b"Content-Length: 900000\r\nA: b\r\n\r\n", 300_000, 300_000),
        (false, b"Content-Length: 500000\r\nA: b\r\n\r\n", 800_000, 100),
    ] {
        let (mut front, mut worker) = connect(1);
        let client = lend(&mut front, http_10, true);
        assert!(worker.accept());
        let reader = std::thread::spawn(move || front.links[0].response());
        worker.write_head(head).unwrap();
        let since = Instant::now();
        worker.write(&payload[..first]).unwrap();
        assert!(since.elapsed() < Duration::from_secs(1), "it waits for the client");
        let mut at = first;
        while then > 0 && at < payload.len() {
            let end = payload.len().min(at + then);
            worker.write(&payload[at..end]).unwrap();
            at = end;
        }
        worker.finish(0, false);
        let mut sent = None;
        let mut stdout = Vec::new();
        for seen in reader.join().unwrap() {
            match seen {
                Seen::Record(Record::Sent(told)) => assert!(sent.replace(told).is_none()),
                Seen::Stdout(more) => stdout.extend(more),
                Seen::End(0) => {}
                other => panic!("{other:?}"),
            }
        }
        let sent = sent.expect("it has begun to write");
        assert!(sent.wire < 900_000 && sent.framed > 0, "{sent:?}");
        let mut wire = read_all(client);
        assert_eq!(wire.len() as u64, sent.wire);
        // Completes the response as a front would.
        let (framed, rest) = stdout.split_at(sent.framed.try_into().unwrap());
        wire.extend_from_slice(framed);
        match sent.rest {
            Rest::Length(left) => {
                wire.extend_from_slice(&rest[..rest.len().min(left.try_into().unwrap())]);
            }
            Rest::Close => wire.extend_from_slice(rest),
            Rest::Chunked { open } => {
                wire.extend_from_slice(if open { b"\r\n" } else { b"" });
                if !rest.is_empty() {
                    wire.extend_from_slice(format!("{:x}\r\n", rest.len()).as_bytes());
                    wire.extend_from_slice(&[rest, b"\r\n"].concat());
                }
                wire.extend_from_slice(b"0\r\n\r\n");
            }
        }
        let text = String::from_utf8_lossy(&wire[..sent.head as usize]).into_owned();
        assert!(text.ends_with("\r\n\r\n"), "{text}");
        let body = &wire[sent.head as usize..];
        if text.contains("chunked") {
            assert!(unchunked(body) == payload, "{sent:?}");
        } else {
            let announced = if text.contains("500000") { 500_000 } else { 900_000 };
            assert!(body == &payload[..announced], "{sent:?}");
            assert_eq!(sent.surplus, announced < first);
        }
    }
}

/// A key may encrypt a limited number of records, and only the front knows the number before this
/// response.
#[test]
fn the_socket_is_given_back_before_its_keys_are_used_up() {
    let (mut front, mut worker) = connect(1);
    let terms = Client { http_10: false, keep_alive: true, encrypted: true, fields: b"" };
    let client = lend_as(&mut front, terms, false, &request(1, &[("REQUEST_METHOD", "GET")], b""));
    assert!(worker.accept());
    let reader = std::thread::spawn(move || read_all(client).len() as u64);
    worker.write_head(b"Content-Length: 2000000\r\n\r\n").unwrap();
    worker.write(&[b'x'; 20_000]).unwrap();
    let response = std::thread::spawn(move || front.links[0].response());
    for _ in 0..MAX_RECORDS {
        worker.write(b"x").unwrap();
        worker.flush().unwrap();
    }
    worker.finish(0, false);
    let response = response.join().unwrap();
    let Some(Seen::Record(Record::Sent(sent))) = response.first() else { panic!("{response:?}") };
    assert_eq!(sent.wire, reader.join().unwrap());
    let (body, all) = (sent.wire - u64::from(sent.head), 20_000 + MAX_RECORDS);
    assert_eq!(sent.rest, Rest::Length(2_000_000 - body));
    let over_link =
        |seen: &Seen| if let Seen::Stdout(bytes) = seen { bytes.len() as u64 } else { 0 };
    assert_eq!(response.iter().map(over_link).sum::<u64>(), all - body);
    // The first piece took two records.
    assert_eq!(body, 20_000 + MAX_RECORDS - 2);
}

fn unchunked(mut wire: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = wire.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = std::str::from_utf8(&wire[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        body.extend_from_slice(&wire[line + 2..line + 2 + size]);
        assert_eq!(&wire[line + 2 + size..line + 4 + size], b"\r\n");
        wire = &wire[line + 4 + size..];
        if size == 0 {
            assert!(wire.is_empty());
            return body;
        }
    }
}

#[test]
fn a_client_that_has_gone_ends_the_script() {
    let (mut front, mut worker, client) = begun();
    drop(client);
    let writes = (0..100).find(|_| worker.write(&[b'x'; 20_000]) == Err(Gone));
    assert!(writes.is_some() && worker.aborted());
    assert_eq!(worker.write(b"more"), Err(Gone));
    // The front is told at once.
    match front.links[0].next() {
        Some(Seen::Record(Record::Sent(sent))) => assert!(sent.gone),
        other => panic!("{other:?}"),
    }
    worker.finish(0, false);
    assert_eq!(front.links[0].response(), [Seen::End(0)]);
    front.links[0].ask(1);
    assert!(worker.accept() && !worker.aborted());
}

/// Output was refused, so the client has an incomplete response, which must not look complete.
#[test]
fn a_response_that_was_cut_gets_no_end() {
    for http_10 in [false, true] {
        let (mut front, mut worker) = connect(1);
        let mut cut = request(1, &[("REQUEST_METHOD", "PUT")], &[b'b'; 100_000]);
        // The body is incomplete, so the worker does not check for an abort before the client
        // reads.
        cut.truncate(cut.len() - 8);
        let mut client = lend_with(&mut front, http_10, false, &cut);
        assert!(worker.accept());
        worker.write_head(b"A: b\r\n\r\n").unwrap();
        worker.write(&[b'x'; 20_000]).unwrap();
        drop(front);
        let mut body = [0; 50_000];
        while worker.read(&mut body).is_ok() {}
        assert_eq!(worker.write(b"what the front does not want"), Err(Gone));
        worker.finish(0, false);
        let mut seen = Vec::new();
        // For an HTTP/1.0 client the end of the connection is the end of the body.
        assert_eq!(client.read_to_end(&mut seen).is_err(), http_10);
        assert!(seen.ends_with(if http_10 { b"" } else { b"x\r\n" }), "{} bytes", seen.len());
    }
}

/// A web server may close its half of a connection and still read the response. A front that has
/// lent a client's socket will write something else to the client by then.
#[test]
fn a_front_that_has_hung_up_takes_the_socket_back() {
    let roles = Roles { responder: true, authorizer: false, filter: false };
    for (begin, http_10) in [(false, false), (true, false), (true, true)] {
        let (mut front, mut links, _guard) = sockets(1);
        let mut worker = Worker::on_connection(links.remove(0), roles);
        let mut client = lend(&mut front, http_10, false);
        assert!(worker.accept_on_connection().unwrap());
        worker.write_head(b"A: b\r\n\r\n").unwrap();
        if begin {
            worker.write(&[b'x'; 20_000]).unwrap();
        }
        drop(front);
        assert_eq!(worker.write(&[b'y'; 20_000]), Err(Gone));
        worker.close();
        let mut seen = Vec::new();
        assert_eq!(client.read_to_end(&mut seen).is_err(), http_10);
        assert!(http_10 || if begin { seen.ends_with(b"x\r\n") } else { seen.is_empty() });
    }
}

/// A web server that has closed its half still reads the response; after a full close it does not.
#[test]
fn a_connection_that_has_been_closed_is_told_from_a_half_of_it() {
    let roles = Roles { responder: true, authorizer: false, filter: false };
    let (mut front, mut links, _guard) = sockets(1);
    let mut worker = Worker::on_connection(links.remove(0), roles);
    front.links[0].send(&request(1, &[("REQUEST_METHOD", "GET")], b""));
    assert!(worker.accept_on_connection().unwrap());
    assert_eq!(worker.read(&mut [0]).unwrap(), 0);
    assert!(!worker.aborted());
    front.links[0].socket.shutdown(std::net::Shutdown::Write).unwrap();
    for _ in 0..2 {
        assert!(!worker.aborted());
        worker.write(b"A: b\r\n\r\n").unwrap();
        worker.flush().unwrap();
    }
    drop(front);
    assert!(worker.aborted());
    assert_eq!(worker.write(b"x"), Err(Gone));
}
