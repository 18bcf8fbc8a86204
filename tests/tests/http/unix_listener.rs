//! Clients that come over a UNIX socket: proxies on the same host.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use sendoff_tests::{
    LIMIT, Request, Server, Site, Stock, binary, curl, dies_with_us, pattern, processes, wait,
};

/// The addresses that a script sees.
const ADDRESSES: &str =
    "<?php foreach (['REMOTE_ADDR', 'REMOTE_PORT', 'SERVER_ADDR', 'SERVER_PORT'] as $name)
    echo $_SERVER[$name], '|';";

fn start(site: &Site, socket: &Path, options: &[&str]) -> Server {
    let address = format!("unix:{}", socket.display());
    let mut all = vec!["--listen", "127.0.0.1:0", "--listen", &address];
    all.extend(options);
    Server::start(site.root(), &all)
}

fn socket(site: &Site) -> PathBuf {
    site.outside("sendoff.sock")
}

fn get(socket: &Path, target: &str, options: &[&str]) -> Vec<u8> {
    let done = curl()
        .args(["--fail", "--unix-socket"])
        .arg(socket)
        .arg(format!("http://example.test{target}"))
        .args(options)
        .output()
        .expect("curl");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[test]
fn pages_files_and_uploads_are_those_of_tcp() {
    let site = Site::with("page.php", "<?php echo 'a', file_get_contents('big'), 'b';");
    let big = pattern(1, 3 << 20);
    site.write("big", &big);
    site.write("generated.php", "<?php echo str_repeat('0123456789', 200_000);");
    site.write("in.php", "<?php echo md5(file_get_contents('php://input'));");
    let socket = socket(&site);
    let server = start(&site, &socket, &["--threads", "2"]);
    for round in 0..4 {
        assert!(get(&socket, "/page.php", &[]) == [b"a", &big[..], b"b"].concat(), "{round}");
        assert!(get(&socket, "/big", &[]) == big, "{round}");
        assert!(get(&socket, "/generated.php", &[]) == b"0123456789".repeat(200_000), "{round}");
    }
    let upload = format!("@{}", site.root().join("big").display());
    let sum = get(&socket, "/in.php", &["--data-binary", &upload]);
    let of_tcp = server.ask(&Request::post("/in.php", "application/x-www-form-urlencoded", big));
    assert_eq!(String::from_utf8(sum).unwrap(), of_tcp.text());
}

#[test]
fn scripts_see_the_addresses_that_nginx_shows() {
    let site = Site::with("addresses.php", ADDRESSES);
    let (ours, theirs) = (socket(&site), site.outside("nginx.sock"));
    let _server = start(&site, &ours, &[]);
    let show = format!(
        "listen unix:{};
        location = /addresses.php {{
            return 200 '$remote_addr|$remote_port|$server_addr|$server_port|';
        }}",
        theirs.display()
    );
    let _nginx = Stock::nginx(site.root(), "", &show);
    let expected = get(&theirs, "/addresses.php", &[]);
    let expected = String::from_utf8(expected).unwrap().replace("nginx.sock", "sendoff.sock");
    assert_eq!(expected, format!("unix:||unix:{}||", ours.display()));
    assert_eq!(String::from_utf8(get(&ours, "/addresses.php", &[])).unwrap(), expected);
}

#[test]
fn nginx_passes_requests_on_over_the_socket() {
    let site = Site::with("page.php", "<?php echo $_GET['q'], file_get_contents('big');");
    let big = pattern(2, 300_000);
    site.write("big", &big);
    let socket = socket(&site);
    let _server = start(&site, &socket, &[]);
    let upstream = format!("upstream sendoff {{ server unix:{}; keepalive 4; }}", socket.display());
    let pass = "location / {
        proxy_pass http://sendoff;
        proxy_http_version 1.1;
        proxy_set_header Connection '';
        proxy_set_header Host $host;
    }";
    let nginx = Stock::nginx(site.root(), &upstream, pass);
    for number in 0..20 {
        let page = nginx.ask(&Request::get(&format!("/page.php?q={number}")));
        assert!(page.body == [number.to_string().as_bytes(), &big].concat(), "{number}");
    }
    assert!(nginx.ask(&Request::get("/big")).body == big);
}

/// A UNIX socket cannot be reset, so the framing must tell.
#[test]
fn a_response_that_is_cut_does_not_look_complete() {
    let script = "<?php echo str_repeat('x', 1 << 20); flush(); posix_kill(getmypid(), 9);";
    let site = Site::with("dies.php", script);
    let socket = socket(&site);
    let _server = start(&site, &socket, &[]);
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.write_all(b"GET /dies.php HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert!(all.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&all[..100]));
    assert!(!all.ends_with(b"0\r\n\r\n"));
}

#[test]
fn the_socket_goes_with_the_server_and_may_be_left_over_from_a_killed_one() {
    let site = Site::with("ok.txt", "ok");
    let socket = socket(&site);
    drop(start(&site, &socket, &[]));
    assert!(!socket.exists());
    let killed = start(&site, &socket, &[]);
    killed.signal(Signal::KILL);
    killed.await_end();
    assert!(socket.exists());
    let _second = start(&site, &socket, &[]);
    assert_eq!(get(&socket, "/ok.txt", &[]), b"ok");
    // While a server answers there, another does not start.
    let address = format!("unix:{}", socket.display());
    let refused = Server::try_start(site.root(), &["--listen", &address]).err().unwrap();
    assert!(refused.stderr.contains("another server listens on this socket"), "{refused:?}");
    assert_eq!(get(&socket, "/ok.txt", &[]), b"ok");
}

#[test]
fn idle_connections_end_with_the_server() {
    let site = Site::with("ok.txt", "ok");
    let socket = socket(&site);
    let server = start(&site, &socket, &["--threads", "2"]);
    let mut idle: Vec<_> = (0..8).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for client in &mut idle {
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.write_all(b"GET /ok.txt HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut start = [0; 12];
        client.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    server.signal(Signal::TERM);
    for client in &mut idle {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.ends_with(b"\r\n\r\nok"));
    }
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(wait::until(LIMIT, || !socket.exists()));
}

/// The file is there before the server is ready.
#[test]
fn a_stop_while_the_server_starts_leaves_no_file_behind() {
    let site = Site::with("a.txt", "static");
    let socket = socket(&site);
    let mut command = dies_with_us(&binary(), "KILL");
    command.arg("serve").arg(site.root()).args(["--workers", "1", "--listen"]);
    command.arg(format!("unix:{}", socket.display())).env("XDG_RUNTIME_DIR", site.outside("run"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let end = Instant::now() + LIMIT;
    while !socket.exists() {
        assert!(Instant::now() < end, "the server does not listen");
    }
    processes::signal(server.id(), Signal::TERM);
    let mut status = None;
    let has_ended = wait::until(LIMIT, || {
        status = server.try_wait().unwrap();
        status.is_some()
    });
    assert!(has_ended, "the server goes on");
    assert_eq!(status.unwrap().code(), Some(0));
    assert!(!socket.exists());
}
