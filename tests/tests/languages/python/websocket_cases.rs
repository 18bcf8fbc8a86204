//! WebSockets by independent clients: frames right and wrong, as in Autobahn's cases.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use sendoff_tests::{Server, Site, pypi, repository};

use super::server::Python;
use super::websockets::{front, listening};

const FOLDER: &str = "tests/tests/languages/python/websocket_cases";

/// Event loops of each server.
const THREADS: u8 = 2;

/// The client compares the bytes through the proxy with the bytes of the same server without one,
/// and the answers of an ASGI application with the expected ones.
#[test]
#[ignore = "heavy: fetches wsproto, h2 and aioquic"]
fn every_frame_is_answered_as_without_a_server_between() {
    let packages = pypi::packages("websockets");
    let site = Site::new();
    site.write_at(site.outside("echo_site.py"), include_bytes!("websocket_cases/echo_site.py"));
    let options = ["--workers", "1", "--threads", "1"];
    let python = Python::start_beside(&packages, site, "echo_site:application", &options);
    let mut echo = pypi::python(&packages);
    echo.arg(repository::root().join(FOLDER).join("wsproto_server.py"));
    let mut echo = echo.stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(echo.stdout.take().unwrap()).read_line(&mut port).unwrap();
    let port = port.trim();
    let route = format!("[[site.route]]\npath = '/wsproto'\nproxy = 'http://127.0.0.1:{port}'\n");
    let server = front(&python, THREADS, &route);
    let before = Site::new();
    let twice = second(&before, &server);
    for server in [&server, &twice] {
        let [clear, tls] = [server.clear_addr(), server.tls_addr().unwrap()];
        let ports = [port, &clear.port().to_string(), &tls.port().to_string()];
        assert_all_pass(&pypi::run(&packages, &format!("{FOLDER}/client.py"), &ports));
    }
    let _ended = (echo.kill(), echo.wait());
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

/// Expects that each way has passed all of its cases.
#[track_caller]
fn assert_all_pass(said: &str) {
    let counts: Vec<_> = said.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert_eq!(counts.len(), 9, "{said}");
    for (way, count) in counts {
        let (passed, all) = count.split_once(" of ").unwrap();
        assert!(passed == all && all.parse::<u32>().unwrap() > 500, "{way}: {said}");
    }
}

/// A server that passes all requests on to another one, over HTTP/2 (RFC 8441).
fn second(site: &Site, first: &Server) -> Server {
    let url = format!("h2s://{}", first.tls_addr().unwrap());
    let route = format!("[[site.route]]\nproxy = {{ to = '{url}', verify = false }}\n");
    let config = site.write_at(site.outside("sendoff.toml"), listening(site, THREADS) + &route);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|why| panic!("{why:#?}"))
}
