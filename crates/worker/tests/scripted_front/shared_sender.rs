//! A sender of files that threads with a connection each share.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use crate::front::registry::Registry;
use crate::front::{Link, Seen, request_accepting};
use sendoff_fastcgi::channel::Secret;
use sendoff_fastcgi::handover::Record;
use sendoff_worker::{BodyTransfer, Gone, Roles, Sender, Worker};

const HEAD: &[u8] = b"Status: 200\r\n\r\n";
const RESPONDER: Roles = Roles { responder: true, authorizer: false, filter: false };
const LEN: u64 = 50_000;

/// A file that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, contents: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("sendoff-{}-{name}", std::process::id()));
        fs::write(&path, contents).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// A connection that the front has opened, and the worker on it.
fn connect() -> (Link, Worker) {
    let (front, theirs) = UnixStream::pair().unwrap();
    let mut worker = Worker::on_connection(theirs.into(), RESPONDER);
    worker.hands_over();
    (Link::new(front), worker)
}

/// A request that announces the channel, if there is a registry.
fn ask(link: &mut Link, method: &str, registry: Option<(&Registry, u8)>) {
    let announced = registry.map(|(registry, claim)| registry.announcement(1, claim).encode());
    let announced = announced.map(|value| String::from_utf8(value).unwrap());
    let mut pairs = vec![("REQUEST_METHOD", method)];
    pairs.extend(announced.as_deref().map(|value| ("SENDOFF_CHANNEL", value)));
    link.send(&request_accepting("channel", 1, &pairs, b""));
}

fn answer(
    worker: &mut Worker,
    sender: &Sender,
    file: &File,
    offset: u64,
    len: u64,
) -> BodyTransfer {
    assert!(worker.accept_on_connection().unwrap());
    assert_eq!(worker.params_with_nul().len(), 1, "the channel is not shown");
    let way = sender.send(worker, HEAD, file.as_fd(), offset, len).unwrap();
    worker.finish(0, false);
    way
}

/// The response on the connection when the body is on a link.
fn moved(claim: u8) -> [Seen; 2] {
    let field = [b"X-Sendoff: ", &Secret([claim; 16]).to_hex()[..], b"\r\n"].concat();
    [Seen::Stdout([&field, HEAD, b"\xff\xff\xff\xff"].concat()), Seen::End(0)]
}

/// The file that a response on a link names; its descriptor has arrived.
fn opened(seen: &[Seen]) -> Option<sendoff_fastcgi::handover::FileId> {
    seen.iter().find_map(|seen| match seen {
        Seen::Record(Record::Open(id)) => Some(*id),
        _ => None,
    })
}

#[test]
fn threads_open_a_file_once_on_links_that_they_share() {
    let file = Temporary::new("once", &[b'x'; 50_000]);
    let registry = Registry::new("once");
    let sender = Arc::new(Sender::new(8));
    let [(mut first, a), (mut second, b)] = [connect(), connect()];
    let answering = |mut worker: Worker, offset: u64| {
        let (sender, path) = (Arc::clone(&sender), file.0.clone());
        std::thread::spawn(move || {
            let open = File::open(path).unwrap();
            assert_eq!(
                answer(&mut worker, &sender, &open, offset, LEN - offset),
                BodyTransfer::HandedOver
            );
        })
    };
    ask(&mut first, "GET", Some((&registry, 7)));
    let process = answering(a, 0);
    let (mut links, _guard) = registry.take();
    assert_eq!(first.response(), moved(7));
    process.join().unwrap();
    let seen = links[1].response();
    let id = opened(&seen).unwrap();
    let segment = |offset| Record::Segment { file: id, offset, length: LEN - offset };
    assert_eq!(seen[0], Seen::Record(Record::Claim(Secret([7; 16]))));
    assert_eq!(seen[2..], [Seen::Record(segment(0)), Seen::End(0)]);
    let mut contents = Vec::new();
    File::from(links[1].fds.pop_front().unwrap()).read_to_end(&mut contents).unwrap();
    assert_eq!(contents, [b'x'; 50_000]);
    ask(&mut second, "GET", Some((&registry, 8)));
    answering(b, 1000).join().unwrap();
    assert_eq!(second.response(), moved(8));
    assert_eq!(links[1].response()[1..], [Seen::Record(segment(1000)), Seen::End(0)]);
}

#[test]
fn what_cannot_be_handed_over_is_copied_or_left_out() {
    let file = Temporary::new("copied", &[b'x'; 50_000]);
    let registry = Registry::new("copied");
    let sender = Sender::new(8);
    for (what, method, announced, len, body) in [
        ("no channel", "GET", None, LEN, 50_000),
        ("HEAD", "HEAD", Some((&registry, 1)), LEN, 0),
        ("nothing of it", "GET", Some((&registry, 2)), 0, 0),
    ] {
        let (mut link, mut worker) = connect();
        ask(&mut link, method, announced);
        let open = File::open(&file.0).unwrap();
        let answered = std::thread::scope(|scope| {
            let answering = scope.spawn(|| answer(&mut worker, &sender, &open, 0, len));
            let expected = [HEAD, &vec![b'x'; body]].concat();
            assert_eq!(link.response(), [Seen::Stdout(expected), Seen::End(0)], "{what}");
            answering.join().unwrap()
        });
        assert_eq!(answered, BodyTransfer::Copied, "{what}");
    }
    rustix::io::ioctl_fionbio(&registry.socket, true).unwrap();
    let registered = rustix::net::accept(&registry.socket);
    assert_eq!(registered.unwrap_err(), rustix::io::Errno::AGAIN, "no links were needed");
}

/// A response whose file ends too early or cannot be read must not look complete.
#[test]
fn a_body_that_breaks_off_is_cut() {
    let file = Temporary::new("short", &[b'x'; 50_000]);
    let sender = Sender::new(8);
    let unreadable = File::options().write(true).open(&file.0).unwrap();
    for (what, open, body, why) in [
        ("shorter", File::open(&file.0).unwrap(), 50_000, "it has become shorter"),
        ("unreadable", unreadable, 0, "Bad file descriptor"),
    ] {
        let (mut link, mut worker) = connect();
        ask(&mut link, "GET", None);
        assert!(worker.accept_on_connection().unwrap());
        let sent = sender.send(&mut worker, HEAD, open.as_fd(), 0, LEN + 1);
        assert_eq!(sent, Err(Gone), "{what}");
        worker.finish(0, false);
        assert!(!worker.accept_on_connection().unwrap(), "{what}: another request");
        let (mut bytes, mut log) = (Vec::new(), Vec::new());
        while let Some(seen) = link.next() {
            match seen {
                Seen::Stdout(more) => bytes.extend(more),
                Seen::Stderr(more) => log.extend(more),
                other => panic!("{what}: {other:?}"),
            }
        }
        assert!(bytes == [HEAD, &vec![b'x'; body]].concat(), "{what}: {} bytes", bytes.len());
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains(why), "{what}: {log}");
    }
}

/// Files of sysfs have the size of a page but contain less.
#[test]
fn a_size_that_promises_too_much_cuts_nothing() {
    let (mut link, mut worker) = connect();
    ask(&mut link, "GET", None);
    let path = "/sys/devices/system/cpu/possible";
    let open = File::open(path).unwrap();
    let size = open.metadata().unwrap().len();
    let contents = fs::read(path).unwrap();
    assert!(size > contents.len() as u64);
    assert_eq!(answer(&mut worker, &Sender::new(8), &open, 0, size), BodyTransfer::Copied);
    assert_eq!(link.response(), [Seen::Stdout([HEAD, &contents].concat()), Seen::End(0)]);
}

#[test]
fn a_file_that_was_replaced_is_another_file() {
    let file = Temporary::new("replaced", &[b'x'; 50_000]);
    let registry = Registry::new("replaced");
    let sender = Sender::new(8);
    let (mut link, mut worker) = connect();
    ask(&mut link, "GET", Some((&registry, 1)));
    let open = File::open(&file.0).unwrap();
    let (mut links, _guard) = std::thread::scope(|scope| {
        let front = scope.spawn(|| registry.take());
        assert_eq!(answer(&mut worker, &sender, &open, 0, LEN), BodyTransfer::HandedOver);
        front.join().unwrap()
    });
    let (_, before) = (link.response(), links[1].response());
    fs::remove_file(&file.0).unwrap();
    fs::write(&file.0, [b'y'; 50_000]).unwrap();
    ask(&mut link, "GET", Some((&registry, 2)));
    let open = File::open(&file.0).unwrap();
    assert_eq!(answer(&mut worker, &sender, &open, 0, LEN), BodyTransfer::HandedOver);
    let after = opened(&links[1].response());
    assert!(after.is_some() && after != opened(&before));
}
