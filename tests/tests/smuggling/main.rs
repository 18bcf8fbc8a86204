//! Malformed requests: a proxy before Sendoff, Sendoff, and the applications behind it agree on the
//! end of each request.
//!
//! Every server that passes a request on adds a field with the id that it has read in the request's
//! target. The applications note these ids beside the id that they have read themselves. If two
//! servers disagree, an application answers a request that a server before it has not seen, and the
//! ids differ.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod applications;
mod corpus;
mod http2;
mod to_http2;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use sendoff_tests::{LIMIT, Server, Site, dies_with_us, wait};

use applications::{Application, Seen};
use corpus::corpus;

/// Time without bytes after which the client of a malformed request ends its direction. A server
/// that waits for the rest of a request then knows that none comes. With a shorter time no case
/// fails, but the client misses answers.
const QUIET: Duration = Duration::from_millis(100);

/// Starts Sendoff in front of applications.
fn serve(site: &Site, applications: &[Application]) -> Server {
    let routes: String = applications.iter().map(Application::route).collect();
    let keys: String = applications.iter().filter_map(Application::fastcgi).collect();
    let fastcgi = if keys.is_empty() { String::new() } else { format!("fastcgi = {{ {keys} }}\n") };
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nworkers = 2\n[[site]]\nroot = 'root'\n{fastcgi}\
         [[site.route]]\nrequest_headers = {{ X-Sendoff = '$query;' }}\n{routes}"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    Server::try_run(&config, site.root(), 2).unwrap_or_else(|failed| panic!("{}", failed.stderr))
}

/// HAProxy in front of a server. It keeps connections and gives them to any client.
struct Haproxy {
    child: Child,
    addr: SocketAddr,
}

impl Haproxy {
    /// With `relaxed` it passes on requests that it would refuse otherwise.
    fn start(site: &Site, to: SocketAddr, relaxed: bool) -> Self {
        let program = Path::new("/usr/sbin/haproxy");
        assert!(program.exists(), "no haproxy; run: tools/install test");
        let option = if relaxed { "option accept-invalid-http-request" } else { "" };
        let (folder, name) = (site.outside(""), format!("haproxy-{relaxed}"));
        let port = wait::for_some("a port", || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
            Some(listener.local_addr().unwrap().port())
        });
        let text = format!(
            "global\n maxconn 200\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n \
             timeout http-request 5s\n option http-keep-alive\n http-reuse always\n retries 0\n\
             frontend f\n bind 127.0.0.1:{port}\n {option}\n http-request set-header X-Haproxy %[query];\n default_backend b\n\
             backend b\n server s {to}\n"
        );
        let config = site.write_at(folder.join(name + ".cfg"), text);
        let child = dies_with_us(program, "KILL")
            .arg("-db")
            .arg("-f")
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let haproxy = Self { child, addr };
        wait::for_some("HAProxy", || TcpStream::connect(addr).ok());
        haproxy
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends bytes, and receives until the end of the connection. After `quiet` without a byte the
/// client ends its direction.
fn exchange(addr: SocketAddr, bytes: &[u8], quiet: Duration) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(quiet)).unwrap();
    // A server that has refused the beginning may have closed the connection.
    let _ = stream.write_all(bytes);
    let (mut received, mut part) = (Vec::new(), [0; 16 * 1024]);
    let mut is_open = true;
    loop {
        match stream.read(&mut part) {
            Ok(0) => return received,
            Ok(n) => received.extend_from_slice(&part[..n]),
            Err(error) if is_open && error.kind() == ErrorKind::WouldBlock => {
                is_open = false;
                let _ = stream.shutdown(Shutdown::Write);
                stream.set_read_timeout(Some(LIMIT)).unwrap();
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return received,
            Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&received)),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sends every request of the corpus to an application, through the server at `addr`. Returns the
/// disagreements.
fn wrongs(addr: SocketAddr, application: &Application, behind_haproxy: bool) -> Vec<String> {
    let mut wrongs = Vec::new();
    let path = application.path();
    let mut answered = 0;
    for (number, case) in corpus().iter().enumerate() {
        let target = |what: &str| format!("{path}?{number}-{what}");
        let inner = format!("GET {} HTTP/1.1\r\nHost: a.test\r\n\r\n", target("inner"));
        let next =
            format!("GET {} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", target("next"));
        let mut bytes = case.bytes(&target("first"), &inner);
        bytes.extend_from_slice(next.as_bytes());
        let said = exchange(addr, &bytes, QUIET);
        // The next client gets its own answer, although connections are kept.
        let control = format!(
            "GET {} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n",
            target("control")
        );
        let control = text(&exchange(addr, control.as_bytes(), LIMIT));
        let seen = application.seen();
        answered += usize::from(seen.iter().any(|seen| seen.id == format!("{number}-first")));
        let mut wrong = |what: String| {
            wrongs.push(format!("{path}: {}: {what}\n{}", case.name, text(&said)));
        };
        for Seen { id, sendoff, haproxy } in &seen {
            if id != sendoff || (behind_haproxy && id != haproxy) {
                wrong(format!("Sendoff has seen {sendoff:?}, HAProxy {haproxy:?}, it {id:?}"));
            }
        }
        let is_inner = |seen: &Seen| seen.id.ends_with("inner");
        if !behind_haproxy && seen.iter().any(is_inner) {
            wrong("the inner request was answered".to_owned());
        }
        if !control.contains(&format!("answered {number}-control;")) {
            wrong(format!("the next client got {control}"));
        }
    }
    assert!(answered > 20, "{path}: {answered} requests of the corpus were answered");
    wrongs
}

/// Sends the corpus to applications, directly and through HAProxy.
fn agree(site: &Site, applications: &[Application]) {
    assert!(corpus().len() >= 200, "{}", corpus().len());
    let server = serve(site, applications);
    let haproxies = [false, true].map(|relaxed| Haproxy::start(site, server.addr(), relaxed));
    let mut wrong = Vec::new();
    for application in applications {
        wrong.extend(wrongs(server.addr(), application, false));
        for haproxy in &haproxies {
            wrong.extend(wrongs(haproxy.addr, application, true));
        }
    }
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), wrong.join("\n"));
}

/// Requests to workers cannot be read in two ways, so this is a test of HAProxy and Sendoff alone.
#[test]
fn haproxy_sendoff_and_workers_agree() {
    let site = Site::new();
    agree(&site, &[Application::workers(&site)]);
}

#[test]
fn haproxy_sendoff_and_gunicorn_agree() {
    let site = Site::new();
    agree(&site, &[Application::gunicorn(&site)]);
}

#[test]
fn haproxy_sendoff_and_php_fpm_agree() {
    let site = Site::new();
    agree(&site, &[Application::php_fpm(&site)]);
}

#[test]
#[ignore = "heavy: starts Tomcat"]
fn haproxy_sendoff_and_tomcat_agree() {
    let site = Site::new();
    agree(&site, &Application::tomcat(&site));
}
