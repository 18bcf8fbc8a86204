//! Parts of a response besides its bytes and files, which the front has asked for.

use std::fs::File;
use std::os::fd::AsFd;

use crate::front::{Seen, connect, request};
use rustix::fs::fstat;
use sendoff_fastcgi::handover::{MAX_EXPLANATION, Record};
use sendoff_fastcgi::record::Kind;

const HEAD: &[u8] = b"Status: 200\r\n\r\n";

/// The worker's response to a front that accepts `words`.
fn response(words: &str) -> (Vec<Seen>, usize) {
    let (mut front, mut worker) = connect(1);
    let link = &mut front.links[0];
    link.send(&request(1, &[("SENDOFF_ACCEPT", words), ("REQUEST_METHOD", "GET")], b""));
    assert!(worker.accept());
    for _ in 0..2 {
        worker.named(File::open("/proc/self/exe").unwrap().into()).unwrap();
    }
    worker.write_head(HEAD).unwrap();
    worker.named(File::open("/proc/self/exe").unwrap().into()).unwrap();
    worker.write(b"one").unwrap();
    worker.explain(b"two is different");
    worker.explain(&[b'x'; 2 * MAX_EXPLANATION]);
    worker.explain(b"");
    worker.write(b"two").unwrap();
    worker.finish(0, false);
    worker.explain(b"late");
    let seen = link.response();
    if let Some(file) = link.fds.front() {
        let (sent, ours) =
            (fstat(file.as_fd()).unwrap(), fstat(File::open("/proc/self/exe").unwrap()).unwrap());
        assert_eq!((sent.st_dev, sent.st_ino), (ours.st_dev, ours.st_ino));
    }
    (seen, link.fds.len())
}

#[test]
fn nobody_asked() {
    let body = [HEAD, b"onetwo"].concat();
    let expected = vec![Seen::Record(Record::Length(6)), Seen::Stdout(body), Seen::End(0)];
    assert_eq!(response("file"), (expected, 0));
}

#[test]
fn explanations_stand_before_what_they_explain() {
    let explanation = |text: &[u8]| Seen::Other(Kind::EXPLAIN.0, text.to_vec());
    let expected = vec![
        Seen::Record(Record::Length(6)),
        Seen::Stdout([HEAD, b"one"].concat()),
        explanation(b"two is different"),
        explanation(&[b'x'; MAX_EXPLANATION]),
        Seen::Stdout(b"two".to_vec()),
        Seen::End(0),
    ];
    assert_eq!(response("file explain"), (expected, 0));
}

#[test]
fn a_named_file_comes_once_and_before_the_head() {
    let body = [HEAD, b"onetwo"].concat();
    let expected = vec![Seen::Record(Record::Named), Seen::Stdout(body), Seen::End(0)];
    assert_eq!(response("named file"), (expected, 1));
}
