//! A program behind our front, over UNIX and TCP, in every delivery mode: the same bytes.

use rustix::process::Signal;
use sendoff_tests::{Framing, Progress, Request, Server, Site};

use super::application::{Application, Library, program};

fn made(n: usize) -> Vec<u8> {
    let line = b"sixty-three bytes and a line feed are what this line is made of\n";
    let mut body = line.repeat(n / line.len() + 1);
    body.truncate(n);
    body
}

/// Everything but the body and the time.
type Facts = (u16, Vec<(String, String)>, Framing);

const MB: usize = 1 << 20;

fn answers(application: &Application, mode: &str, sizes: &[usize], ways: &[&str]) -> Vec<Facts> {
    let site = Site::new();
    let attached = format!("/={}", application.address.option());
    let options = ["--delivery", mode, "--fastcgi", &attached, "--threads", "1"];
    let server = Server::start(site.root(), &options);
    let mut client = server.connect();
    // The front announces its words only after a first response.
    client.ask(&Request::get("/made?n=200000")).expect(200);
    let mut answers = Vec::new();
    for &n in sizes {
        let body = made(n);
        for way in ways {
            let mut response = client.ask(&Request::get(&format!("/made?n={n}{way}")));
            assert!(response.body == body, "{mode} {n}{way}: other bytes");
            response.head.headers.retain(|(name, _)| name != "Date");
            answers.push((response.status(), response.head.headers, response.framing));
        }
        let target = format!("/made?n={n}");
        assert_eq!(client.ask(&Request::new("HEAD", &target)).body, b"");
        let old = server.ask(&Request::get(&target).http10());
        assert!(old.body == body, "{mode} {n}: other bytes over HTTP/1.0");
    }
    answers
}

fn same_everywhere(sizes: &'static [usize], ways: &'static [&str]) {
    let _progress = Progress::new(0, "programs on libfcgi");
    let program = program("made");
    for start in [Application::start, Application::start_tcp] {
        // Killed, because a draining front would wait until its connections to applications are
        // old.
        let threads = ["relay", "region", "direct", "auto"].map(|mode| {
            let application = start(&program, &[], Library::Ours);
            std::thread::spawn(move || answers(&application, mode, sizes, ways))
        });
        let all = threads.map(|thread| thread.join().unwrap());
        assert!(all.iter().all(|answers| *answers == all[0]));
    }
}

#[test]
fn every_mode_sends_the_same_bytes() {
    same_everywhere(
        &[0, 1, 16_384, 65_537, 131_072, MB, 5 * MB],
        &["", "&length=1", "&piece=1000", "&piece=20000&length=1", "&piece=70000&flush=1"],
    );
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn sixty_four_megabytes() {
    same_everywhere(&[64 * MB + 1], &["", "&piece=100000", "&piece=1000000&flush=1", "&length=1"]);
}

#[test]
fn what_is_explained() {
    let program = program("made");
    for (start, expected) in [
        (Application::start as fn(&_, &_, _) -> _, "it hands over memory, no files"),
        (Application::start_tcp, "it has not said that it knows handover"),
    ] {
        let application = start(&program, &[], Library::Ours);
        let attached = format!("/made={}", application.address.option());
        let site = Site::new();
        let server = Server::start(site.root(), &["--fastcgi", &attached]);
        // The end of its first response announces its abilities.
        server.get("/made?n=1");
        let table = server.explain("/made?n=100000", &[]).unwrap();
        assert!(table.contains("200 OK, 100000 bytes") && table.contains(expected), "{table}");
    }
}

/// Output of a program after its timeout is dropped, although it was lent the client's socket.
#[test]
fn a_late_answer_does_not_follow_the_error_page() {
    let application = Application::start(&program("made"), &[], Library::Ours);
    let attached = format!("/={}", application.address.option());
    let site = Site::new();
    let server = Server::start(
        site.root(),
        &["--delivery", "direct", "--fastcgi", &attached, "--fastcgi-timeout", "1"],
    );
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("/made?n=200000")).expect(200), made(200_000));
    application.signal(Signal::STOP);
    let late = client.ask(&Request::get("/made?n=300000"));
    application.signal(Signal::CONT);
    assert_eq!((late.status(), late.header("connection")), (504, Some("close")));
    assert!(client.is_closed());
    assert_eq!(server.get("/made?n=200000").expect(200), made(200_000));
}
