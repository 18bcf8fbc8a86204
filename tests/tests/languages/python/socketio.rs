//! A chat on socket.io: long polling, WebSockets, and the change from one to the other.

use sendoff_tests::{Authority, Server, Site, pypi};

use super::server::{Python, Reference};

const APPLICATION: &str = "chat:application";

fn site() -> Site {
    let site = Site::new();
    site.write_at(site.outside("chat.py"), include_bytes!("socketio/chat.py"));
    site
}

/// A front in the clear and in TLS, with a route.
fn front(site: &Site, route: &str) -> Server {
    let keys = Authority::new().issue(&["localhost"], &site.outside("keys"), "localhost");
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 2\n[[pool]]\nworkers = 'ondemand'\n[[site]]\nroot = '{}'\n\
         tls = {{ certificate = '{}', key = '{}' }}\nhttps_redirect = false\n{route}\n",
        site.root().display(),
        keys.chain.display(),
        keys.key.display(),
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|why| panic!("{why:#?}"))
}

#[track_caller]
fn chat(server: &Server) {
    let urls = [
        format!("http://{}", server.clear_addr()),
        format!("https://{}", server.tls_addr().unwrap()),
    ];
    let client = "tests/tests/languages/python/socketio/client.py";
    assert_eq!(pypi::run(&pypi::packages("socketio"), client, &urls), "all as expected\n");
}

#[test]
#[ignore = "heavy: fetches python-socketio"]
fn a_chat_on_socket_io_works_behind_a_proxy() {
    let site = site();
    let packages = pypi::packages("socketio");
    let uvicorn = Reference::uvicorn_with(&packages, &site, APPLICATION, "websockets-sansio");
    chat(&front(&site, &format!("[[site.route]]\nproxy = 'http://{}'", uvicorn.addr())));
}

/// A client that polls has a request open all the time, and sends its messages by another one.
#[test]
#[ignore = "heavy: fetches python-socketio"]
fn a_chat_on_socket_io_works_in_sendoff_python() {
    let options = ["--workers", "1", "--threads", "8"];
    let packages = pypi::packages("socketio");
    let python = Python::start_beside(&packages, site(), APPLICATION, &options);
    let socket = python.site.outside("socket");
    let mut server =
        front(&python.site, &format!("fastcgi = {{ '/' = 'unix:{}' }}", socket.display()));
    server.expect_linked_processes(32);
    chat(&server);
    assert!(!python.log().contains("Traceback"), "{}", python.log());
}
