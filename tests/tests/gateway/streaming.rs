//! Request bodies that applications get while they arrive (`stream_body`).

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sendoff_tests::{Fpm, Http3, LIMIT, Request, Server, Site, curl, pattern, processes, wait};

use crate::responder::{Peer, Responder};
use crate::{ajp, scgi, serve};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that passes requests on to `url` while they arrive.
fn streamed(site: &Site, url: &str) -> Server {
    serve(site, &format!("[[site.route]]\nstream_body = true\nproxy = '{url}'\n"))
}

/// As `streamed`, with TLS as well.
fn serve_over_tls(site: &Site, url: &str) -> Server {
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\n[[pool]]\nworkers = 'ondemand'\n[[site]]\n\
         root = 'root'\nhosts = 'localhost'\ntls = 'self-signed'\nhttps_redirect = false\n\
         [[site.route]]\nstream_body = true\nproxy = '{url}'\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

/// An application that reports to the test the bytes that it has read.
fn telling(
    script: impl Fn(&mut Peer, &Sender<Vec<u8>>) -> Option<()> + Send + Sync + 'static,
) -> (Responder, Receiver<Vec<u8>>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let app = Responder::start(move |peer| {
        let tell = tell.lock().unwrap().clone();
        script(peer, &tell)
    });
    (app, told)
}

fn next(told: &Receiver<Vec<u8>>) -> String {
    String::from_utf8(told.recv_timeout(LIMIT).expect("the application reads")).unwrap()
}

/// Bytes arrive before the client has sent the rest, with each way to mark the end of the body.
#[test]
fn an_application_gets_a_body_while_it_arrives() {
    let with_length = |peer: &mut Peer, tell: &Sender<Vec<u8>>| {
        tell.send(peer.head()?.into_bytes()).ok()?;
        tell.send(peer.bytes(3)?).ok()?;
        tell.send(peer.bytes(3)?).ok()?;
        peer.say(OK)
    };
    let in_chunks = |peer: &mut Peer, tell: &Sender<Vec<u8>>| {
        tell.send(peer.head()?.into_bytes()).ok()?;
        tell.send(peer.bytes(8)?[3..6].to_vec()).ok()?;
        tell.send(peer.bytes(13)?[3..6].to_vec()).ok()?;
        peer.say(OK)
    };
    let over_scgi = |peer: &mut Peer, tell: &Sender<Vec<u8>>| {
        tell.send(
            scgi::params(peer)?
                .iter()
                .map(|(name, value)| format!("{name}: {value}\n"))
                .collect::<String>()
                .into(),
        )
        .ok()?;
        tell.send(peer.bytes(3)?).ok()?;
        tell.send(peer.bytes(3)?).ok()?;
        peer.say("Status: 200 OK\r\n\r\nok")
    };
    let over_ajp = |peer: &mut Peer, tell: &Sender<Vec<u8>>| {
        tell.send(ajp::request(peer)?).ok()?;
        tell.send(ajp::packet(peer)?[2..].to_vec()).ok()?;
        ajp::ask_for_more(peer)?;
        tell.send(ajp::packet(peer)?[2..].to_vec()).ok()?;
        ajp::say_ok(peer)
    };
    for (scheme, framing, (app, told)) in [
        ("http", "Content-Length: 6", telling(with_length)),
        ("http", "Transfer-Encoding: chunked", telling(in_chunks)),
        ("scgi", "Content-Length: 6", telling(over_scgi)),
        ("ajp", "Content-Length: 6", telling(over_ajp)),
    ] {
        let site = Site::new();
        let server = streamed(&site, &app.url().replace("http:", &format!("{scheme}:")));
        let mut client = server.connect();
        let is_chunked = framing.ends_with("chunked");
        let (first, last) =
            if is_chunked { ("3\r\nabc\r\n", "3\r\ndef\r\n0\r\n\r\n") } else { ("abc", "def") };
        client.send(format!("POST /up HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{first}"));
        let head = told.recv_timeout(LIMIT).unwrap();
        let head = String::from_utf8_lossy(&head).to_lowercase();
        assert!(scheme != "http" || head.contains(&framing.to_lowercase()), "{head}");
        assert_eq!(next(&told), "abc", "{scheme} {framing}");
        client.send(last);
        assert_eq!(next(&told), "def", "{scheme} {framing}");
        assert_eq!(client.response("POST").text(), "ok");
    }
}

/// The client's bytes wait in the sockets, not in the server's memory.
#[test]
fn an_application_that_reads_nothing_holds_the_client_back() {
    const ALL: usize = 100 << 20;
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let (app, told) = telling(move |peer, tell| {
        tell.send(peer.head()?.into_bytes()).ok()?;
        may_go.lock().unwrap().recv().ok()?;
        let mut sum = 0_u64;
        for _ in 0..ALL / 4096 {
            sum += peer.bytes(4096)?.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        let sum = sum.to_string();
        peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{sum}", sum.len()))
    });
    let site = Site::new();
    let server = streamed(&site, &app.url());
    let before = processes::private_memory(server.front());
    let mut client = server.connect();
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {ALL}\r\n\r\n"));
    drop(next(&told));
    let piece = vec![3; 64 * 1024];
    let (mut sent, mut socket) = (0, client.stream().try_clone().unwrap());
    socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let stopped = loop {
        match socket.write(&piece[..piece.len().min(ALL - sent)]) {
            Ok(0) => panic!("everything was taken"),
            Ok(n) => sent += n,
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(stopped, ErrorKind::WouldBlock);
    let grown = processes::private_memory(server.front()).saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes for a body that waits");
    go.send(()).unwrap();
    socket.set_write_timeout(Some(LIMIT)).unwrap();
    while sent < ALL {
        sent += socket.write(&piece[..piece.len().min(ALL - sent)]).unwrap();
    }
    assert_eq!(client.response("PUT").text(), (3 * ALL).to_string());
}

/// The application sees the end of the connection. The client, if still connected, gets an error
/// with the reason.
#[test]
fn a_body_that_never_comes_ends_at_both_sides() {
    let (app, told) = telling(|peer, tell| {
        drop(peer.head()?);
        tell.send(b"begun".to_vec()).ok()?;
        let all = peer.rest();
        tell.send(all).ok()
    });
    let site = Site::new();
    let config = format!(
        "listen = '127.0.0.1:0'\nbody_timeout = '300ms'\nmax_body = 10\n[[pool]]\nworkers = 'ondemand'\n\
         [[site]]\nroot = 'root'\n[[site.route]]\nstream_body = true\nproxy = '{}'\n",
        app.url()
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 0).unwrap();
    let begin = |framing: &str| {
        let mut client = server.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        assert_eq!(next(&told), "begun");
        client
    };
    // It stalls.
    let mut client = begin("Content-Length: 6");
    client.send("abc");
    assert_eq!(client.response("POST").status(), 408);
    assert!(client.is_closed());
    assert_eq!(next(&told), "abc");
    // It dies.
    for how in [Shutdown::Both, Shutdown::Write] {
        let client = begin("Content-Length: 6");
        client.stream().write_all(b"ab").unwrap();
        client.stream().shutdown(how).unwrap();
        assert!("ab".starts_with(&next(&told)), "{how:?}");
    }
    // It sends more than it may, or nonsense.
    for (chunks, status) in [("9\r\n123456789\r\n2\r\n12\r\n", 413), ("x\r\n", 400)] {
        let mut client = begin("Transfer-Encoding: chunked");
        client.send(chunks);
        assert_eq!(client.response("POST").status(), status);
        let read = next(&told);
        assert!(!read.ends_with("0\r\n\r\n"), "{read}");
    }
    server.await_log("the request body took too long");
}

/// A client that sends too few bytes per second gets 408, even if its pauses are short. A client
/// whose application reads nothing for longer than `body_timeout` gets its answer.
#[test]
fn a_client_must_send_at_the_least_rate_whenever_it_is_waited_for() {
    const ALL: usize = 20 << 20;
    const BODY_TIMEOUT: Duration = Duration::from_millis(500);
    let (app, _told) = telling(|peer, _| {
        let head = peer.head()?;
        if head.contains("/crawls") {
            drop(peer.rest());
            return None;
        }
        // This test is about time, so it sleeps.
        std::thread::sleep(3 * BODY_TIMEOUT);
        drop(peer.bytes(ALL)?);
        peer.say(OK)
    });
    let site = Site::new();
    let config = format!(
        "listen = '127.0.0.1:0'\nbody_timeout = '{}ms'\nmin_body_rate = '1M'\n[[pool]]\nworkers = 'ondemand'\n\
         [[site]]\nroot = 'root'\n[[site.route]]\nstream_body = true\nproxy = '{}'\n",
        BODY_TIMEOUT.as_millis(),
        app.url()
    );
    let config = site.write_at(site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, site.root(), 0).unwrap();

    let mut client = server.connect();
    client.send("POST /crawls HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n");
    client.stream().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut status = [0; 12];
    let came = wait::until(LIMIT, || {
        let _refused = client.try_send([b'x'; 64]);
        client.stream().peek(&mut status).is_ok_and(|n| n == status.len())
    });
    assert!(came && &status == b"HTTP/1.1 408", "{}", status.escape_ascii());

    let mut client = server.connect();
    client.send(format!("POST /waits HTTP/1.1\r\nHost: a\r\nContent-Length: {ALL}\r\n\r\n"));
    client.send(vec![b'x'; ALL]);
    assert_eq!(client.response("POST").text(), "ok");
}

/// Once a body has gone to an application, its request is not sent again, even if it is idempotent.
#[test]
fn a_body_that_has_gone_is_not_sent_again() {
    let (dies, told) = telling(|peer, tell| {
        drop(peer.head()?);
        peer.bytes(3)?;
        tell.send(b"read".to_vec()).ok()
    });
    let fine = Responder::saying(OK);
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (hosts, status) in [([dies.addr(), fine.addr()], 502), ([nowhere, fine.addr()], 200)] {
        let site = Site::new();
        let server = serve(
            &site,
            &format!(
                "[[site.route]]\nstream_body = true\nproxy = 'http://upstream:app'\n\
                 [[upstream]]\nname = 'app'\nhosts = ['{}', '{} spare']\n",
                hosts[0], hosts[1]
            ),
        );
        let mut client = server.connect();
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
        if status == 502 {
            assert_eq!(next(&told), "read");
        }
        // The server may have answered and closed already.
        let _ = client.try_send("def");
        assert_eq!(client.response("PUT").status(), status);
    }
    assert_eq!(fine.seen().len(), 1);
}

/// An application may answer before it has read the whole request: the client gets the answer and
/// the end of the connection.
#[test]
fn an_early_answer_ends_the_connection() {
    let app = Responder::start(|peer| {
        drop(peer.head()?);
        peer.say("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno")?;
        drop(peer.rest());
        Some(())
    });
    let site = Site::new();
    let server = streamed(&site, &app.url());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc");
    let response = client.response("POST");
    assert_eq!((response.status(), &*response.text()), (403, "no"));
    assert_eq!(response.header("connection"), Some("close"));
}

/// curl 7.88 drops a response over HTTP/2 if the server stops its upload in the same bytes.
#[test]
fn clients_get_an_early_answer_over_http2_and_http3() {
    for lingers in [true, false] {
        let app = Responder::start(move |peer| {
            drop(peer.head()?);
            peer.say(
                "HTTP/1.1 413 Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large",
            )?;
            if lingers {
                drop(peer.rest());
            }
            Some(())
        });
        let site = Site::new();
        let server = serve_over_tls(&site, &app.url());
        let bytes = pattern(1, 3_000_000);
        let large = site.write_at(site.outside("large"), &bytes);
        let upload = Request::post("/", "text/plain", bytes).header("Host", "localhost");
        let mut http3 = Http3::connect(server.tls_addr().unwrap(), "localhost");
        assert_eq!(http3.ask(&upload).expect(413), b"too large");
        for (version, addr) in [
            ("--http2-prior-knowledge", server.clear_addr()),
            ("--http2", server.tls_addr().unwrap()),
        ] {
            let scheme = if version == "--http2" { "https" } else { "http" };
            for _ in 0..5 {
                let done = curl()
                    .args(["--insecure", version, "--header", "Host: localhost"])
                    .args(["--write-out", " %{http_code} %{http_version}"])
                    .args(["--data-binary", &format!("@{}", large.display())])
                    .arg(format!("{scheme}://{addr}/"))
                    .output()
                    .unwrap();
                let (said, problem) = (done.stdout, String::from_utf8_lossy(&done.stderr));
                assert_eq!(
                    String::from_utf8_lossy(&said),
                    "too large 413 2",
                    "{version}: {problem}"
                );
            }
        }
    }
}

#[test]
fn bodies_of_http2_are_streamed_too() {
    let app = Responder::start(|peer| {
        loop {
            let request = peer.request()?;
            let body = request.split_once("\r\n\r\n")?.1;
            peer.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))?;
        }
    });
    let site = Site::new();
    let server = streamed(&site, &app.url());
    let body: Vec<u8> = pattern(1, 3_000_000).iter().map(|byte| b'a' + byte % 26).collect();
    let request = Request::post("/", "text/plain", body.clone());
    let mut client = server.http2();
    for _ in 0..2 {
        assert!(client.ask(&request).expect(200) == body);
    }
}

/// PHP reads the body of a `PUT` when the script asks for it.
#[test]
fn php_fpm_reads_a_body_while_it_arrives() {
    let site = Site::with(
        "up.php",
        "<?php $in = fopen('php://input', 'r'); $all = fread($in, 1000); file_put_contents('first', 'x');
        $all .= stream_get_contents($in); echo strlen($all), ' ', md5($all);",
    );
    let mut fpm = Fpm::start(site.root(), "");
    let routes = format!(
        "fastcgi = {{ '.php' = '{}' }}\n[[site.route]]\npath = '/up.php'\nstream_body = true\n",
        fpm.address()
    );
    let server = serve(&site, &routes);
    let body = pattern(7, 300_000);
    let mut client = server.connect();
    for round in 0..3 {
        let method = if round == 2 { "POST" } else { "PUT" };
        client.send(format!(
            "{method} /up.php HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        client.send(&body[..100_000]);
        // It reads the body of a POST before the script.
        if method == "PUT" {
            assert!(wait::until(LIMIT, || site.path("first").exists()));
            std::fs::remove_file(site.path("first")).unwrap();
        }
        client.send(&body[100_000..]);
        let text = client.response(method).text();
        assert_eq!(text, format!("300000 {}", md5(&site, &body)), "{method}");
    }
    fpm.stop();
    client.send("PUT /up.php HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    assert_eq!(client.response("PUT").status(), 502);
}

/// As `md5sum` says.
fn md5(site: &Site, bytes: &[u8]) -> String {
    let file = site.write_at(site.outside("body"), bytes);
    let sum = std::process::Command::new("md5sum").arg(file).output().unwrap();
    String::from_utf8(sum.stdout).unwrap()[..32].to_owned()
}

/// The server does not wait for room in a connection that the application has closed; many clients
/// send everything first.
#[test]
fn what_the_application_does_not_take_is_dropped() {
    let app = Responder::start(|peer| {
        drop(peer.head()?);
        peer.say("HTTP/1.1 200 OK\r\n\r\nearly")
    });
    let site = Site::new();
    let server = streamed(&site, &app.url());
    let mut socket = TcpStream::connect(server.addr()).unwrap();
    socket.set_write_timeout(Some(LIMIT)).unwrap();
    socket.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n").unwrap();
    let piece = vec![b'x'; 100_000];
    // The connection may be reset once the answer is complete and nothing more is read.
    let _ = (0..300).try_for_each(|_| socket.write_all(&piece));
    drop(socket);
    assert!(server.get("/").text() == "early");
}
