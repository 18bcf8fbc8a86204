//! A program behind our front, over UNIX and TCP, in every delivery mode: the same bytes.

use sendoff_tests::{Request, Server, Site};

use crate::application::{Application, Library, program};

fn made(n: usize) -> Vec<u8> {
    let line = b"sixty-three bytes and a line feed are what this line is made of\n";
    let mut body = line.repeat(n / line.len() + 1);
    body.truncate(n);
    body
}

#[test]
fn every_mode_sends_the_same_bytes() {
    let (site, program) = (Site::new(), program("made"));
    for start in [Application::start, Application::start_tcp] {
        let mut first = Vec::new();
        for mode in ["relay", "region", "direct", "auto"] {
            let application = start(&program, &[], Library::Ours);
            let attached = format!("/made={}", application.address.option());
            let options = ["--delivery", mode, "--fastcgi", &attached, "--threads", "1"];
            let server = Server::start(site.root(), &options);
            let mut client = server.connect();
            // It is asked once before it is told what it may answer with.
            client.ask(&Request::get("/made?n=200000")).expect(200);
            let mut answers = Vec::new();
            for n in [0, 1, 16_384, 65_537, 131_072, 1 << 20, 3 << 20] {
                for more in
                    ["", "&length=1", "&piece=1000", "&piece=20000&length=1", "&piece=70000&flush=1"]
                {
                    let request = Request::get(&format!("/made?n={n}{more}"));
                    let mut response = client.ask(&request);
                    assert!(response.body == made(n), "{mode} {n}{more}: other bytes");
                    response.head.headers.retain(|(name, _)| name != "Date");
                    answers.push((response.status(), response.head.headers, response.framing));
                }
                let request = Request::get(&format!("/made?n={n}"));
                assert_eq!(client.ask(&Request::new("HEAD", &format!("/made?n={n}"))).body, b"");
                assert!(server.ask(&request.http10()).body == made(n), "{mode} {n} HTTP/1.0");
            }
            if first.is_empty() {
                first = answers;
            } else {
                assert_eq!(answers, first, "{mode}");
            }
        }
    }
}
