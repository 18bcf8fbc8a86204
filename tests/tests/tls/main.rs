//! TLS: certificates of sites, sessions, versions, clients' certificates, and connections that end
//! early.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod acme;
mod certificates;
mod connections;
mod lying_authority;
mod responses;
mod scan;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use sendoff_tests::{Authority, Certificate, Server, Site, curl, pattern};

/// A script that shows the variables about the connection.
const SEEN: &str = "<?php foreach (['HTTPS', 'REQUEST_SCHEME', 'SERVER_PORT', 'SSL_PROTOCOL', 'SSL_TLS_SNI', 'SSL_CLIENT_VERIFY',
    'SSL_CLIENT_S_DN', 'SSL_CLIENT_I_DN'] as $name) echo $_SERVER[$name] ?? '-', '|';";

struct Secured {
    site: Site,
    authority: Authority,
}

impl Secured {
    fn new() -> Self {
        let site = Site::with("seen.php", SEEN);
        site.write("big", pattern(1, 3_000_000));
        site.write("big.php", "<?php readfile('big');");
        site.write("generated.php", "<?php echo str_repeat('0123456789', 100_000);");
        Self { site, authority: Authority::new() }
    }

    fn issue(&self, names: &[&str]) -> Certificate {
        self.authority.issue(names, &self.site.outside("keys"), names[0])
    }

    /// The path of the authority's certificate.
    fn trusted(&self) -> PathBuf {
        self.site.write_at(self.site.outside("keys/authority.pem"), self.authority.pem())
    }

    /// Starts a server with sites of one folder: the keys of each, in TOML.
    fn run(&self, sites: &[&str]) -> Server {
        Server::try_run(&self.write(sites), self.site.root(), 2).unwrap()
    }

    fn write(&self, sites: &[&str]) -> PathBuf {
        let mut text = "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\n".to_owned();
        text += "[[pool]]\nworkers = 2\n";
        for site in sites {
            text += &format!("[[site]]\nroot = 'root'\nhttps_redirect = false\n{site}\n");
        }
        self.site.write_at(self.site.outside("sendoff.toml"), text)
    }

    /// Starts a server of the whole folder, with a certificate for localhost.
    fn serve(&self) -> Server {
        let Certificate { chain, key } = self.issue(&["localhost"]);
        let (chain, key) = (chain.to_str().unwrap(), key.to_str().unwrap());
        let options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", chain, "--tls-key", key];
        Server::start(self.site.root(), &options)
    }

    /// Asks by curl, which trusts the authority, for a page of a host.
    fn curl(&self, server: &Server, host: &str, page: &str, options: &[&str]) -> Output {
        let addr = server.tls_addr().unwrap();
        curl()
            .arg("--cacert")
            .arg(self.trusted())
            .args(["--resolve", &format!("{host}:{}:127.0.0.1", addr.port())])
            .args(options)
            .arg(format!("https://{host}:{}{page}", addr.port()))
            .output()
            .unwrap()
    }

    #[track_caller]
    fn page(&self, server: &Server, host: &str, options: &[&str]) -> String {
        let output = self.curl(server, host, "/seen.php", options);
        assert!(output.status.success(), "{host}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn refusal(&self, server: &Server, host: &str, options: &[&str]) -> String {
        let output = self.curl(server, host, "/seen.php", options);
        assert!(!output.status.success(), "{host}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

/// True if the kernel of this machine can encrypt.
fn kernel_has_tls() -> bool {
    Path::new("/proc/net/tls_stat").exists()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn tls(certificate: &Certificate) -> String {
    let Certificate { chain, key } = certificate;
    format!("certificate = '{}', key = '{}'", chain.display(), key.display())
}

/// The output of `openssl s_client` with this input.
fn s_client(addr: SocketAddr, options: &[&str], input: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &addr.to_string()])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may have ended already.
    let _ = stdin.write_all(input.as_bytes());
    let reader = thread::spawn(move || child.wait_with_output().unwrap());
    let output = if input.contains("Connection: close") {
        let output = reader.join().unwrap();
        drop(stdin);
        output
    } else {
        drop(stdin);
        reader.join().unwrap()
    };
    text(&output.stdout) + &text(&output.stderr)
}

/// The server's own certificate in what `openssl s_client` prints.
fn first_certificate(said: &str) -> String {
    let (_, rest) = said.split_once("-----BEGIN CERTIFICATE-----").unwrap();
    rest.split_once("-----END").unwrap().0.to_owned()
}

const CLOSING: &str = "GET /seen.php HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n";
