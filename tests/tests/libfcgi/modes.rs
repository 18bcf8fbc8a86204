//! A program behind our front, over UNIX and TCP, in every delivery mode: the same bytes.

use sendoff_tests::{Framing, Request, Server, Site};

use crate::application::{Application, Library, program};

fn made(n: usize) -> Vec<u8> {
    let line = b"sixty-three bytes and a line feed are what this line is made of\n";
    let mut body = line.repeat(n / line.len() + 1);
    body.truncate(n);
    body
}

/// Everything but the body and the time.
type Facts = (u16, Vec<(String, String)>, Framing);

fn answers(application: &Application, mode: &str) -> Vec<Facts> {
    let site = Site::new();
    let attached = format!("/made={}", application.address.option());
    let options = ["--delivery", mode, "--fastcgi", &attached, "--threads", "1"];
    let server = Server::start(site.root(), &options);
    let mut client = server.connect();
    // It is asked once before it is told what it may answer with.
    client.ask(&Request::get("/made?n=200000")).expect(200);
    let ways = ["", "&length=1", "&piece=1000", "&piece=20000&length=1", "&piece=70000&flush=1"];
    let mut answers = Vec::new();
    for n in [0, 1, 16_384, 65_537, 131_072, 1 << 20, 3 << 20] {
        for way in ways {
            let mut response = client.ask(&Request::get(&format!("/made?n={n}{way}")));
            assert!(response.body == made(n), "{mode} {n}{way}: other bytes");
            response.head.headers.retain(|(name, _)| name != "Date");
            answers.push((response.status(), response.head.headers, response.framing));
        }
        let target = format!("/made?n={n}");
        assert_eq!(client.ask(&Request::new("HEAD", &target)).body, b"");
        let old = server.ask(&Request::get(&target).http10());
        assert!(old.body == made(n), "{mode} {n}: other bytes over HTTP/1.0");
    }
    answers
}

#[test]
fn every_mode_sends_the_same_bytes() {
    let program = program("made");
    for start in [Application::start, Application::start_tcp] {
        // At once: a front that ends waits for its connections to applications to be old.
        let threads = ["relay", "region", "direct", "auto"].map(|mode| {
            let application = start(&program, &[], Library::Ours);
            std::thread::spawn(move || answers(&application, mode))
        });
        let all = threads.map(|thread| thread.join().unwrap());
        assert!(all.iter().all(|answers| *answers == all[0]));
    }
}
