//! WebSockets by independent clients: frames right and wrong, as in Autobahn's cases.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use sendoff_tests::{Authority, Server, Site, pypi, repository};

use super::server::Python;

const FOLDER: &str = "tests/tests/languages/python/websocket_cases";

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
    let server = front(&python, port);
    let addrs =
        [server.clear_addr(), server.tls_addr().unwrap()].map(|addr| addr.port().to_string());
    let said = pypi::run(&packages, &format!("{FOLDER}/client.py"), &[port, &addrs[0], &addrs[1]]);
    let _ended = (echo.kill(), echo.wait());
    let counts: Vec<_> = said.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert_eq!(counts.len(), 9, "{said}");
    for (way, count) in counts {
        let (passed, all) = count.split_once(" of ").unwrap();
        assert!(passed == all && all.parse::<u32>().unwrap() > 500, "{way}: {said}");
    }
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}

/// A front with HTTP/1.1 in the clear, and all versions over TLS.
fn front(python: &Python, port: &str) -> Server {
    let site = &python.site;
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 2\n[[pool]]\nworkers = 'ondemand'\n[[site]]\n\
         root = '{}'\ntls = {{ certificate = '{}', key = '{}' }}\nhttps_redirect = false\nfastcgi = {{ '/' = 'unix:{}' }}\n\
         [[site.route]]\npath = '/wsproto'\nproxy = 'http://127.0.0.1:{port}'\n",
        site.root().display(),
        keys.chain.display(),
        keys.key.display(),
        site.outside("socket").display(),
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut server =
        Server::try_run(&config, site.root(), 0).unwrap_or_else(|why| panic!("{why:#?}"));
    server.expect_linked_processes(32);
    server
}
