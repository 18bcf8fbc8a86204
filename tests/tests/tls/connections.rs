//! Handshakes, sessions, versions, and keys that clients change.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use sendoff_tests::{
    Certificate, Client, Http3, LIMIT, Request, Server, dies_with_us, pattern, wait,
};

use crate::{CLOSING, Secured, kernel_has_tls, s_client, text, tls};

#[test]
fn requests_in_the_clear_are_redirected() {
    let secured = Secured::new();
    let certificate = secured.issue(&["a.test"]);
    // The port that the redirect names must be known before the server starts.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:{port} tls']\nthreads = 1\n[[pool]]\nworkers = 2\n\
         [[site]]\nroot = 'root'\nhosts = 'a.test'\ntls = {{ {} }}\n",
        tls(&certificate)
    );
    let config = secured.site.write_at(secured.site.outside("sendoff.toml"), config);
    let server = Server::try_run(&config, secured.site.root(), 2).unwrap();
    let request = Request::post("/seen.php?a=%20", "text/plain", b"1".to_vec());
    let answer = server.ask(&request.header("Host", "A.test:80"));
    assert_eq!(answer.status(), 308);
    let location = format!("https://a.test:{port}/seen.php?a=%20");
    assert_eq!(answer.header("Location"), Some(&*location));
    assert!(secured.page(&server, "a.test", &[]).starts_with("on|https|"));
}

#[test]
fn sessions_are_resumed_by_every_event_loop_and_after_a_reload() {
    let secured = Secured::new();
    let Certificate { chain, key } = secured.issue(&["a.test"]);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let options =
        ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key, "--threads", "3"];
    let server = Server::start(secured.site.root(), &options);
    let addr = server.tls_addr().unwrap();
    for version in ["-tls1_2", "-tls1_3"] {
        let saved = secured.site.outside(&version[1..]);
        let saved = saved.to_str().unwrap();
        let options = |mode| [version, "-servername", "a.test", mode, saved];
        assert!(s_client(addr, &options("-sess_out"), CLOSING).contains("New, TLSv1"));
        for turn in 0..6 {
            if turn == 5 {
                server.command(&["reload"]).unwrap();
            }
            // The kernel spreads the connections over the event loops.
            let resumed = s_client(addr, &options("-sess_in"), CLOSING);
            assert!(resumed.contains("Reused, TLSv1"), "{version}: {resumed}");
            assert!(resumed.contains("HTTP/1.1 200 OK"), "{resumed}");
        }
    }
}

#[test]
fn only_the_algorithms_that_the_operator_lists_are_agreed_on() {
    let secured = Secured::new();
    let certificate = secured.issue(&["localhost"]);
    let config = |algorithms: &str| {
        let config = format!(
            "listen = ['127.0.0.1:0', '127.0.0.1:0 tls h3']\nthreads = 1\n{algorithms}\n[[pool]]\nworkers = 1\n\
             [[site]]\nroot = 'root'\ntls = {{ {} }}\n",
            tls(&certificate)
        );
        secured.site.write_at(secured.site.outside("sendoff.toml"), config)
    };
    let path = config(
        "tls_ciphers = ['TLS_AES_256_GCM_SHA384', 'ECDHE-ECDSA-CHACHA20-POLY1305']\n\
         tls_groups = ['P-384', 'X25519']",
    );
    let server = Server::try_run(&path, secured.site.root(), 1).unwrap();
    let addr = server.tls_addr().unwrap();
    let agreed = |options: &[&str]| s_client(addr, options, CLOSING);
    for (options, seen) in [
        (&["-tls1_3"][..], "TLS_AES_256_GCM_SHA384"),
        (&["-tls1_2"], "ECDHE-ECDSA-CHACHA20-POLY1305"),
        (&["-groups", "P-384"], "secp384r1"),
        (&["-groups", "P-256:X25519"], "X25519"),
    ] {
        let said = agreed(options);
        assert!(said.contains(seen) && said.contains("200 OK"), "{options:?}: {said}");
    }
    let others = [
        &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"][..],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        &["-groups", "P-256"],
    ];
    for options in others {
        let said = agreed(options);
        assert!(said.contains("handshake failure") && !said.contains("200 OK"), "{said}");
    }
    // QUIC begins with AES-128 whatever is listed.
    let over_quic = Http3::connect(addr, "localhost").ask(&Request::get("/seen.php"));
    assert_eq!(over_quic.status(), 200);
    config("");
    server.command(&["reload"]).unwrap();
    for options in others {
        let said = agreed(options);
        assert!(said.contains("200 OK"), "{options:?}: {said}");
    }
}

#[test]
fn old_versions_and_broken_clients_are_refused_and_nobody_else_notices() {
    let secured = Secured::new();
    let (a, b) = (secured.issue(&["a.test"]), secured.issue(&["b.test"]));
    let server = secured.run(&[
        &format!("hosts = 'a.test'\ntls = {{ {} }}", tls(&a)),
        &format!("hosts = 'b.test'\ntls = {{ {}, oldest = '1.3' }}", tls(&b)),
    ]);
    let addr = server.tls_addr().unwrap();
    let refused = s_client(addr, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "");
    assert!(refused.contains("alert") && !refused.contains("BEGIN CERTIFICATE"), "{refused}");
    assert!(secured.page(&server, "a.test", &["--tls-max", "1.2"]).contains("|TLSv1.2|"));
    assert!(
        secured
            .refusal(&server, "b.test", &["--tls-max", "1.2"])
            .contains("alert protocol version")
    );
    server.await_log("no TLS handshake: the client speaks TLS 1.2 at most, and the site wants 1.3");
    // A connection that was made for another site does not get around it.
    for (version, status) in [("1.2", "421"), ("1.3", "200")] {
        let options = ["-H", "Host: b.test", "--tls-max", version, "-o", "/dev/null"];
        let options = [&options[..], &["-w", "%{http_code}"]].concat();
        let other = secured.curl(&server, "a.test", "/seen.php", &options);
        assert_eq!(text(&other.stdout), status, "{version}");
    }
    let clear = {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let mut all = String::new();
        let _ = stream.read_to_string(&mut all);
        all
    };
    assert!(clear.starts_with("HTTP/1.1 400 ") && clear.contains("https://"), "{clear:?}");
    for noise in
        [&pattern(7, 5000)[..], b"\x16\x03\x01\x40\x00", &[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]]
    {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(noise).unwrap();
        // The server may have closed it already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // An alert, or nothing; and then the end.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    server.await_log("no TLS handshake");
    assert!(secured.page(&server, "a.test", &[]).starts_with("on|"));
}

#[test]
fn handshakes_that_stall_are_ended() {
    let secured = Secured::new();
    let Certificate { chain, key } = secured.issue(&["localhost"]);
    let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
    let mut options = vec!["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
    options.extend(["--head-timeout", "300ms", "--idle-timeout", "300ms"]);
    let server = Server::start(secured.site.root(), &options);
    let addr = server.tls_addr().unwrap();
    for beginning in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(beginning).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
    // An idle connection ends with close_notify: the client knows that nothing is missing.
    let mut idle = Client::connect(addr);
    idle.ask(&Request::get("/seen.php")).expect(200);
    assert!(idle.is_closed() && !idle.is_truncated());
}

/// A running `openssl s_client`.
struct Commanded {
    child: Child,
    stdin: ChildStdin,
    said: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Commanded {
    fn start(addr: SocketAddr, options: &[&str]) -> Self {
        let mut command = dies_with_us(Path::new("openssl"), "KILL");
        command.args(["s_client", "-tls1_3", "-connect", &addr.to_string()]).args(options);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let sources: [Box<dyn Read + Send>; 2] = [Box::new(stdout), Box::new(stderr)];
        let collect = |mut source: Box<dyn Read + Send>| {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = source.read(&mut buffer) {
                    said.lock().unwrap().extend_from_slice(&buffer[..n]);
                }
            })
        };
        let readers = sources.map(collect).into();
        Self { stdin: child.stdin.take().unwrap(), child, said, readers }
    }

    /// Types something: a line with one letter is a command, if nothing else was typed with it.
    fn types(&mut self, input: &[u8]) {
        self.stdin.write_all(input).unwrap();
    }

    /// Waits until it has said something as many times as this.
    #[track_caller]
    fn says(&self, what: &[u8], times: usize) {
        let count = || {
            let said = self.said.lock().unwrap();
            said.windows(what.len()).filter(|window| *window == what).count()
        };
        let what = what.escape_ascii();
        assert!(wait::until(LIMIT, || count() >= times), "no {what}: {}", self.text());
    }

    fn text(&self) -> String {
        text(&self.said.lock().unwrap())
    }

    /// Its whole output, once the server has ended the connection.
    fn ended(mut self) -> String {
        self.readers.drain(..).for_each(|reader| reader.join().unwrap());
        self.child.wait().unwrap();
        self.text()
    }
}

impl Drop for Commanded {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kernel cannot change the keys of the sending direction: the connection ends gracefully.
#[test]
fn clients_may_change_keys_and_ask_for_other_ones() {
    const ASK: &[u8] = b"GET /seen.php HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let secured = Secured::new();
    let server = secured.serve();
    let addr = server.tls_addr().unwrap();
    let mut client = Commanded::start(addr, &[]);
    client.says(b"Verify return code", 1);
    for (command, times) in [(b"k\n", 1), (b"k\n", 2), (b"K\n", 3)] {
        client.types(command);
        client.says(b"KEYUPDATE", times);
        client.types(ASK);
        client.says(b"|TLSv1.3|", times);
    }
    if !kernel_has_tls() {
        client.types(CLOSING.as_bytes());
    }
    let said = client.ended();
    let responses = if kernel_has_tls() { 3 } else { 4 };
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), responses, "{said}");
    assert_eq!(said.matches("Connection: close").count(), 1, "{said}");
    assert!(said.contains("closed") && !said.contains("unexpected eof"), "{said}");
}

#[test]
fn http2_clients_that_ask_for_other_keys_are_told_to_go() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0question";
    const ACKNOWLEDGED: &[u8] = b"\0\0\x08\x06\x01\0\0\0\0question";
    const GOAWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0";
    let secured = Secured::new();
    let server = secured.serve();
    let mut client = Commanded::start(server.tls_addr().unwrap(), &["-alpn", "h2"]);
    client.says(b"Verify return code", 1);
    client.types(PREFACE);
    client.types(PING);
    client.says(ACKNOWLEDGED, 1);
    client.types(b"K\n");
    client.says(b"KEYUPDATE", 1);
    if kernel_has_tls() {
        client.says(GOAWAY, 1);
        let said = client.ended();
        assert!(said.contains("closed") && !said.contains("unexpected eof"), "{said}");
    } else {
        client.types(PING);
        client.says(ACKNOWLEDGED, 2);
    }
}
