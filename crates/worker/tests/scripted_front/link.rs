//! Requests and responses over links, with the front scripted.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::thread;

use crate::front::{self, Seen, connect, push, request};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::record::{BeginRequest, Header, Kind};
use sendoff_worker::Gone;

fn read_all(worker: &mut sendoff_worker::Worker) -> Vec<u8> {
    let (mut body, mut buf) = (Vec::new(), [0; 1000]);
    loop {
        match worker.read(&mut buf).unwrap() {
            0 => return body,
            n => body.extend_from_slice(&buf[..n]),
        }
    }
}

#[test]
fn a_small_response_leaves_whole_with_its_length_first() {
    let (mut front, mut worker) = connect(1);
    for id in [7, 8] {
        front.links[0].send(&request(id, &[("REQUEST_METHOD", "POST"), ("EMPTY", "")], b"body"));
        assert!(worker.accept());
        let pairs: Vec<_> = worker.params_with_nul().collect();
        assert_eq!(pairs, [(&b"REQUEST_METHOD\0"[..], &b"POST\0"[..]), (b"EMPTY\0", b"\0")]);
        assert_eq!(read_all(&mut worker), b"body");
        worker.write_head(b"Status: 200\r\n\r\n").unwrap();
        worker.write(b"hello ").unwrap();
        worker.log(b"noted");
        worker.write(b"world").unwrap();
        worker.finish(3, false);
        worker.finish(4, false);
        assert_eq!(worker.write(b"late"), Err(Gone));
        let seen = [
            Seen::Record(Record::Length(11)),
            Seen::Stdout(b"Status: 200\r\n\r\nhello ".to_vec()),
            Seen::Stderr(b"noted\n".to_vec()),
            Seen::Stdout(b"world".to_vec()),
            Seen::End(3),
        ];
        assert_eq!(front.links[0].response(), seen);
    }
}

/// The front considers an unread request as not begun, and gives it to another worker.
#[test]
fn the_application_starts_when_the_whole_request_has_been_read() {
    let (mut front, mut worker) = connect(1);
    let whole = request(1, &[("REQUEST_METHOD", "POST")], &[b'x'; 60_000]);
    front.links[0].send(&whole[..30_000]);
    front.links[0].socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(!worker.accept(), "half a request is none");
}

#[test]
fn a_head_response_and_a_flushed_one_tell_no_length() {
    let (mut front, mut worker) = connect(1);
    front.links[0].send(&request(1, &[("REQUEST_METHOD", "HEAD")], b""));
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    front.links[0].ask(2);
    assert!(worker.accept(), "ends the first one");
    assert_eq!(front.links[0].response(), [Seen::Stdout(b"\r\n".to_vec()), Seen::End(0)]);
    worker.write_head(b"\r\n").unwrap();
    worker.flush().unwrap();
    assert_eq!(front.links[0].next(), Some(Seen::Stdout(b"\r\n".to_vec())));
    worker.finish(0, false);
    assert_eq!(front.links[0].response(), [Seen::End(0)]);
}

/// A script may work for hours and only log, and then die.
#[test]
fn log_lines_do_not_pile_up_until_the_end() {
    let (mut front, mut worker) = connect(1);
    front.links[0].ask(1);
    assert!(worker.accept());
    for _ in 0..40 {
        worker.log(&[b'l'; 1000]);
    }
    drop(worker);
    assert!(matches!(front.links[0].next(), Some(Seen::Stderr(_))));
}

/// A detached application may still log, and the front must know the request.
#[test]
fn log_lines_of_a_detached_application_leave_at_once() {
    let (mut front, mut worker) = connect(1);
    front.links[0].ask(3);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    worker.finish(0, true);
    assert_eq!(front.links[0].response().last(), Some(&Seen::End(0)));
    let trace = b"Fatal error: it\n#0 a.php(1)\n#1 {main}\n  thrown";
    for line in [&trace[..], b"more\n"] {
        worker.log(line);
        let whole = [line.strip_suffix(b"\n").unwrap_or(line), b"\n"].concat();
        assert_eq!(front.links[0].next(), Some(Seen::Stderr(whole)), "one record, not held back");
    }
    worker.ready();
    assert_eq!(front.links[0].next(), Some(Seen::Record(Record::Ready)));
}

/// The front drops the response, but not the log.
#[test]
fn log_lines_for_a_client_that_has_gone_stay_on_the_link() {
    let (mut front, mut worker) = connect(1);
    front.links[0].ask(3);
    assert!(worker.accept());
    let mut abort = Vec::new();
    push(&mut abort, Kind::ABORT_REQUEST, 3, &[]);
    front.links[0].send(&abort);
    assert!(worker.aborted());
    worker.log(b"#0 first\n#1 second");
    assert_eq!(worker.write(b"late"), Err(Gone));
    worker.finish(0, false);
    let seen = [Seen::Stderr(b"#0 first\n#1 second\n".to_vec()), Seen::End(0)];
    assert_eq!(front.links[0].response(), seen);
}

/// Far more than the socket accepts at once, in pieces on both sides of every limit.
#[test]
fn large_writes_arrive_whole_while_the_front_reads_slowly() {
    let (mut front, mut worker) = connect(1);
    front.links[0].ask(1);
    let sizes =
        [1, 16_383, 16_384, 65_527, 65_528, 65_529, 131_056, 3, 5_000_000, 40_000_000, 0, 9];
    let pieces: Vec<Vec<u8>> = sizes
        .iter()
        .map(|&size| (0..size).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect())
        .collect();
    let mut expected = b"\r\n".to_vec();
    pieces.iter().for_each(|piece| expected.extend(piece));
    let writer = thread::spawn(move || {
        assert!(worker.accept());
        worker.write_head(b"\r\n").unwrap();
        pieces.iter().for_each(|piece| worker.write(piece).unwrap());
        worker.finish(0, false);
        worker
    });
    let response = front.links[0].response();
    assert!(response == [Seen::Stdout(expected), Seen::End(0)], "bytes differ");
    writer.join().unwrap();
}

#[test]
fn detach_is_announced_and_ready_comes_at_the_latest_with_accept() {
    let (mut front, mut worker) = connect(2);
    front.links[1].ask(5);
    assert!(worker.accept());
    worker.write_head(b"\r\n").unwrap();
    worker.finish(0, true);
    let detach = [
        Seen::Record(Record::Length(0)),
        Seen::Stdout(b"\r\n".to_vec()),
        Seen::Record(Record::Detach),
        Seen::End(0),
    ];
    assert_eq!(front.links[1].response(), detach);
    front.links[0].ask(6);
    assert!(worker.accept());
    assert_eq!(front.links[1].next(), Some(Seen::Record(Record::Ready)));
    worker.ready();
    worker.finish(0, false);
    assert_eq!(front.links[0].response(), [Seen::End(0)]);
}

#[test]
fn an_abort_stops_the_output() {
    let (mut front, mut worker) = connect(1);
    front.links[0].ask(1);
    assert!(worker.accept());
    assert!(!worker.aborted());
    worker.write(b"never sent").unwrap();
    worker.log(b"noted");
    worker.write(b"neither").unwrap();
    let mut abort = Vec::new();
    push(&mut abort, Kind::ABORT_REQUEST, 9, &[]);
    front.links[0].send(&abort);
    assert!(!worker.aborted(), "another request's");
    abort.clear();
    push(&mut abort, Kind::ABORT_REQUEST, 1, &[]);
    front.links[0].send(&abort);
    assert_eq!(worker.flush(), Err(Gone));
    assert!(worker.aborted());
    assert_eq!(worker.write(&[0; 50_000]), Err(Gone));
    worker.finish(0, false);
    assert_eq!(front.links[0].response(), [Seen::Stderr(b"noted\n".to_vec()), Seen::End(0)]);
    front.links[0].ask(2);
    assert!(worker.accept());
    assert!(!worker.aborted());
}

#[test]
fn a_plain_fastcgi_server_gets_plain_fastcgi() {
    let (mut front, mut worker) = connect(1);
    let link = &mut front.links[0];
    let mut wire = Vec::new();
    let mut values = Vec::new();
    sendoff_fastcgi::params::encode(&mut values, b"FCGI_MPXS_CONNS", b"");
    push(&mut wire, Kind::GET_VALUES, 0, &values);
    push(&mut wire, Kind(99), 0, b"?");
    let mut filter = BeginRequest { keep_conn: true }.encode(4);
    filter[9] = 3;
    wire.extend_from_slice(&filter);
    wire.extend_from_slice(&BeginRequest { keep_conn: false }.encode(5));
    push(&mut wire, Kind::PARAMS, 5, &[]);
    // Enough of the body that the application starts before its end.
    push(&mut wire, Kind::STDIN, 5, &[b'x'; 65_000]);
    push(&mut wire, Kind::STDIN, 5, &[b'x'; 1000]);
    link.send(&wire);
    assert!(worker.accept());
    assert_eq!(link.next(), Some(Seen::Other(10, b"\x0f\x01FCGI_MPXS_CONNS0".to_vec())));
    assert_eq!(link.next(), Some(Seen::Other(11, vec![99, 0, 0, 0, 0, 0, 0, 0])));
    assert_eq!(link.next(), Some(Seen::End(0)), "role refused");
    let mut buf = [0; 100];
    let mut read = 0;
    while read < 66_000 {
        read += worker.read(&mut buf).unwrap();
    }
    wire.clear();
    push(&mut wire, Kind::STDIN, 5, b" body");
    push(&mut wire, Kind::STDIN, 5, b"");
    link.send(&wire);
    assert_eq!(read_all(&mut worker), b" body");
    worker.write_head(b"\r\n").unwrap();
    worker.finish(0, true);
    assert_eq!(link.response(), [Seen::Stdout(b"\r\n".to_vec()), Seen::End(0)]);
    assert!(!worker.accept(), "no FCGI_KEEP_CONN");
}

/// The front dies at every byte of a request.
#[test]
fn a_cut_request_ends_the_worker() {
    let whole = request(1, &[("REQUEST_METHOD", "GET"), ("QUERY_STRING", "")], b"some body");
    for cut in 0..whole.len() {
        let (mut front, mut worker) = connect(2);
        front.links[0].send(&whole[..cut]);
        drop(front);
        if worker.accept() {
            let mut buf = [0; 100];
            while matches!(worker.read(&mut buf), Ok(1..)) {}
            let _gone = worker.write(&[0; 100_000]);
            worker.finish(0, false);
        }
        assert!(!worker.accept(), "cut at {cut}");
    }
}

/// Every byte of a request is replaced by several others: the worker must not panic or hang, and
/// must end.
#[test]
fn a_front_that_lies_does_no_harm() {
    let whole = request(1, &[("REQUEST_METHOD", "GET"), ("QUERY_STRING", "")], b"some body");
    for at in 0..whole.len() {
        for lie in [0, 1, 3, 4, 5, 9, 0x7f, 0x80, 0xff] {
            let (mut front, mut worker) = connect(1);
            let mut wire = whole.clone();
            wire[at] = lie;
            front.links[0].send(&wire);
            drop(front);
            for _ in 0..3 {
                if !worker.accept() {
                    break;
                }
                let _gone = worker.write(b"x");
                worker.aborted();
            }
            assert!(!worker.accept());
        }
    }
}

#[test]
fn too_many_parameters_are_refused() {
    let (mut front, mut worker) = connect(1);
    let mut wire = BeginRequest { keep_conn: true }.encode(1).to_vec();
    let content = [0; 65_535];
    for _ in 0..17 {
        wire.extend_from_slice(&Header::new(Kind::PARAMS, 1, 65_535).encode());
        wire.extend_from_slice(&content);
    }
    let sender = thread::spawn(move || {
        use std::io::Write;
        let _reset = front.links[0].socket.write_all(&wire);
    });
    assert!(!worker.accept());
    drop(worker);
    sender.join().unwrap();
}

#[test]
fn stop_lets_the_waiting_request_through_and_no_other() {
    let (mut front, mut worker) = connect(2);
    front.links[1].ask(1);
    worker.stopper().stop();
    assert!(worker.accept());
    assert!(!worker.aborted());
    worker.write_head(b"\r\n").unwrap();
    worker.flush().unwrap();
    worker.finish(0, false);
    assert_eq!(front.links[1].response(), [Seen::Stdout(b"\r\n".to_vec()), Seen::End(0)]);
    assert!(!worker.accept());
}

/// A request whose body is the first `len` bytes of a file.
fn with_body_file(id: u16, len: u64) -> Vec<u8> {
    let mut wire = request(id, &[("REQUEST_METHOD", "POST")], b"");
    wire.truncate(wire.len() - 8);
    Record::Body(len).encode(id, &mut wire);
    wire
}

fn send_with_fd(link: &front::Link, wire: &[u8], fd: &impl AsFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&link.socket, &[IoSlice::new(wire)], &mut control, SendFlags::empty()).unwrap();
}

#[test]
fn a_large_body_comes_as_a_file() {
    let body = memfd_create("body", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&body, &[b'x'; 3000]).unwrap();
    let (front, mut worker) = connect(1);
    send_with_fd(&front.links[0], &with_body_file(1, 2500), &body);
    assert!(worker.accept());
    assert_eq!(read_all(&mut worker), [b'x'; 2500]);
    send_with_fd(&front.links[0], &with_body_file(2, 3001), &body);
    assert!(!worker.accept(), "longer than its file");

    let (mut front, mut worker) = connect(1);
    front.links[0].send(&with_body_file(1, 1));
    assert!(!worker.accept(), "no descriptor");

    let (front, mut worker) = connect(1);
    send_with_fd(&front.links[0], &with_body_file(1, 0), &front.links[0].socket);
    assert!(!worker.accept(), "not a file");
}
