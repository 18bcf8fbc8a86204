//! Responses over TLS: their ends, slow clients, and what the server says of them.

use std::path::Path;

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Framing, LIMIT, Request, Server, overwrite, pattern, processes, wait,
};

use crate::{Secured, kernel_has_tls, text, tls};

/// The end of a body that has no length must be the end that the server meant.
#[test]
fn a_cut_response_is_never_taken_for_a_whole_one() {
    let secured = Secured::new();
    secured.site.write(
        "dies.php",
        "<?php echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);",
    );
    secured.site.write("ends.php", "<?php echo str_repeat('x', 100000); flush();");
    let server = secured.serve();
    let ask = |page: &str| {
        Client::connect(server.tls_addr().unwrap()).try_ask(&Request::get(page).http10())
    };
    assert_eq!(ask("/ends.php").unwrap().body.len(), 100_000);
    for _ in 0..3 {
        let cut = ask("/dies.php");
        assert!(matches!(cut, Err(Broken::Cut(_) | Broken::Closed)), "{cut:?}");
    }
    // With chunked coding, a cut response lacks the last chunk and `close_notify`.
    for (page, is_cut) in [("/ends.php", false), ("/dies.php", true)] {
        let mut client = Client::connect(server.tls_addr().unwrap());
        client.send(Request::get(page).header("Connection", "close").bytes());
        let received = client.rest();
        assert_eq!(received.ends_with(b"\r\n0\r\n\r\n"), !is_cut, "{page}");
        assert_eq!(client.is_truncated(), is_cut, "{page}");
    }
}

/// The kernel ends the connections of a process that has died, as if they were complete.
#[test]
fn a_response_whose_server_dies_is_not_taken_for_a_whole_one() {
    let secured = Secured::new();
    secured.site.write(
        "waits.php",
        "<?php for ($i = 0; $i < 30; $i++) echo str_repeat('x', 100000); flush();
        file_put_contents('written', 'all'); file_get_contents('pipe');",
    );
    let (written, pipe) = (secured.site.fifo("written"), secured.site.fifo("pipe"));
    let server = secured.serve();
    let front = server.front();
    let mut client = Client::connect_narrow(server.tls_addr().unwrap(), 16 * 1024);
    client.send(Request::get("/waits.php").http10().bytes());
    let head = client.head().unwrap();
    assert_eq!(head.framing("GET"), Ok(Framing::Close));
    // A script that still writes would be aborted, and never come to the pipe.
    assert_eq!(written.await_script(), "all");
    processes::signal(front, Signal::KILL);
    match client.body_of(head, "GET") {
        Err(Broken::Cut(part)) => assert!(part.body.iter().all(|byte| *byte == b'x')),
        other => panic!("{:?}", other.map(|response| response.body.len())),
    }
    assert!(client.is_truncated());
    pipe.release();
    assert!(wait::until(LIMIT, || server.front() != front));
}

/// A kernel that encrypts keeps a record outside of TCP while the socket is full.
#[test]
fn slow_clients_get_everything_and_the_end() {
    let secured = Secured::new();
    secured
        .site
        .write("ends.php", "<?php for ($i = 0; $i < 30; $i++) echo str_repeat('x', 100000);");
    let server = secured.serve();
    let addr = server.tls_addr().unwrap();
    for (page, body) in [("/ends.php", vec![b'x'; 3_000_000]), ("/big", pattern(1, 3_000_000))] {
        let mut clients: Vec<_> = (0..5).map(|_| Client::connect_narrow(addr, 16 * 1024)).collect();
        let request = Request::get(page).http10();
        clients.iter_mut().for_each(|client| client.send(request.bytes()));
        // Each client reads when all previous clients have everything.
        for mut client in clients {
            let response = client.response("GET");
            assert!(response.expect(200) == body, "{page}");
            assert!(client.is_closed() && !client.is_truncated(), "{page}");
        }
    }
}

/// The kernel reads ranges of files when it encrypts them, which may be later.
#[test]
fn files_that_change_are_sent_as_they_were() {
    let secured = Secured::new();
    secured.site.write("file.php", "<?php echo file_get_contents($_GET['f']);");
    let server = secured.serve();
    let addr = server.tls_addr().unwrap();
    for size in [50_000, 1_000_000, 20_000_000] {
        let path = secured.site.write("changes", pattern(2, size));
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let mut client = Client::connect_narrow(addr, 16 * 1024);
                client.send(Request::get("/file.php?f=changes").bytes());
                let head = client.head().unwrap();
                (client, head)
            })
            .collect();
        overwrite(&path, &pattern(3, size));
        for (mut client, head) in clients {
            let response = client.body_of(head, "GET").unwrap();
            assert!(response.expect(200) == pattern(2, size), "{size} bytes");
        }
    }
}

#[test]
fn the_status_says_what_encrypts() {
    let secured = Secured::new();
    let server = secured.serve();
    let mut open = Client::connect(server.tls_addr().unwrap());
    open.ask(&Request::get("/seen.php")).expect(200);
    let status = server.command(&["status"]).unwrap();
    let expected = if kernel_has_tls() {
        "\nTLS          by the kernel for 1 of them\n"
    } else {
        "\nTLS          by the server; the kernel has none\n"
    };
    assert!(status.contains(expected), "{status}");
    let clear = Server::start(secured.site.root(), &[]);
    assert!(!clear.command(&["status"]).unwrap().contains("TLS"));
}

/// `sendoff explain` takes URLs with https. On a loopback address, a certificate that other clients
/// would refuse only causes a note.
#[test]
fn pages_are_explained_over_tls() {
    let secured = Secured::new();
    let a = secured.issue(&["a.test"]);
    let server = secured.run(&[&format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&a))]);
    let port = server.tls_addr().unwrap().port();
    let explain = |host: &str, trusted: &Path| {
        let url = format!("https://{host}:{port}/big.php");
        let said = server.explain_url(&url, &[], &[("SSL_CERT_FILE", trusted)]);
        (said.status.success(), text(&said.stdout), text(&said.stderr))
    };
    let (explained, table, note) = explain("a.test", &secured.trusted());
    assert!(explained && note.is_empty(), "{note}");
    let way = if kernel_has_tls() { "file, sendfile" } else { "file, encrypted" };
    assert!(table.contains("200 OK, 3000000 bytes") && table.contains(way), "{table}");
    let (explained, same, note) = explain("a.test", Path::new("/dev/null"));
    assert!(explained && note.contains("would refuse it"), "{note}");
    assert_eq!(same.lines().next(), table.lines().next());
    // A certificate for another name.
    let (explained, _, note) = explain("b.test", &secured.trusted());
    assert!(explained && note.contains("would refuse it"), "{note}");
    // The wrong port.
    let clear = server.clear_addr().port();
    for (url, expected) in [
        (format!("https://a.test:{clear}/"), "does not answer over TLS"),
        (format!("http://a.test:{port}/"), "the port may be one for https"),
    ] {
        let said = server.explain_url(&url, &[], &[]);
        let error = text(&said.stderr);
        assert!(!said.status.success() && error.contains(expected), "{error}");
    }
}
