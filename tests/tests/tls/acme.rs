//! Certificates that the server obtains (ACME), from Pebble: `tools/pebble` builds it once.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use sendoff_tests::{
    Authorities, Bind, CUSTOMER_KEY, LIMIT, Pebble, Request, Server, Site, curl, pattern,
    processes, repository, wait,
};

/// Time limit for a certificate that is obtained at the second or third attempt.
const ATTEMPTS: Duration = Duration::from_secs(150);

struct Scenario {
    site: Site,
    pebble: Pebble,
}

impl Scenario {
    fn new(options: &Authorities<'_>) -> Self {
        let site = Site::with("a.txt", "static");
        site.write("big", pattern(1, 3_000_000));
        let pebble = Pebble::new(&site, options);
        Self { site, pebble }
    }

    fn started(options: &Authorities<'_>) -> Self {
        let mut scenario = Self::new(options);
        scenario.pebble.start();
        scenario
    }

    /// The folder that certificates are kept in.
    fn state(&self) -> PathBuf {
        self.site.outside("state")
    }

    /// Starts a server at one of the addresses. `ports` are the ports in the clear and for TLS,
    /// `keys` the lines of its `[[site]]`.
    fn server(&self, number: usize, ports: [u16; 2], keys: &str) -> Server {
        let config = self.config(number, ports, keys);
        Server::try_run(&config, self.site.root(), 1).unwrap()
    }

    /// A configuration whose names are proven by DNS: this script publishes the records.
    fn config_with_dns(&self, script: &str, keys: &str) -> PathBuf {
        let hook = self.site.write_at(self.site.outside("hook"), script);
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        let config = self.config(0, [0, 0], keys);
        let dns = format!("acme_dns = '{}'\nacme_dns_wait = '0s'\n", hook.display());
        prepend(&config, &dns);
        config
    }

    fn config(&self, number: usize, [clear, tls]: [u16; 2], keys: &str) -> PathBuf {
        let (addr, state) = (self.pebble.servers[number], self.state());
        let text = format!(
            "listen = ['{addr}:{clear}', '{addr}:{tls} tls']\nthreads = 1\nstate = '{}'\n{}[[pool]]\nworkers = 1\n\
             [[site]]\nroot = 'root'\n{keys}\n",
            state.display(),
            self.pebble.keys(),
        );
        self.site.write_at(self.site.outside(&format!("server{number}.toml")), text)
    }

    /// The ports where the authority looks for servers.
    fn ports(&self) -> [u16; 2] {
        [self.pebble.http, self.pebble.tls]
    }

    fn curl(&self, server: &Server, host: &str, path: &str) -> Output {
        let addr = server.tls_addr().unwrap();
        curl()
            .arg("--cacert")
            .arg(self.pebble.signer())
            .args(["--resolve", &format!("{host}:{}:{}", addr.port(), addr.ip())])
            .arg(format!("https://{host}:{}{path}", addr.port()))
            .output()
            .unwrap()
    }

    /// Waits until clients that trust the authority get a page of a host.
    #[track_caller]
    fn await_trust(&self, server: &Server, host: &str, limit: Duration) {
        let mut said = String::new();
        let trusted = wait::until(limit, || {
            std::thread::sleep(Duration::from_millis(500));
            let output = self.curl(server, host, "/a.txt");
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success() && output.stdout == b"static"
        });
        assert!(trusted, "{host}: {said}\n{}\n{}", server.log(), self.pebble.log());
    }
}

/// Adds keys of the top level to a configuration.
fn prepend(config: &Path, keys: &str) {
    let text = fs::read_to_string(config).unwrap();
    fs::write(config, format!("{keys}{text}")).unwrap();
}

/// The serial number of the certificate that clients get.
fn serial(addr: SocketAddr, host: &str) -> String {
    let script = "openssl s_client -connect \"$0\" -servername \"$1\" </dev/null 2>/dev/null | openssl x509 -noout -serial";
    let output = Command::new("sh").args(["-c", script, &addr.to_string(), host]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The process that obtains certificates.
fn agent(server: &Server) -> u32 {
    wait::for_some("the process for certificates", || {
        let mut children = processes::children(server.pid()).into_iter();
        children
            .find(|child| processes::arguments(*child).get(1).is_some_and(|first| first == "acme"))
    })
}

/// A connection by TLS that trusts every server, amid a response that the client does not read yet.
struct Open(std::process::Child);

impl Open {
    fn new(addr: SocketAddr, host: &str) -> Self {
        let child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &addr.to_string(), "-servername", host])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn ask(&mut self, host: &str) -> String {
        use std::io::{Read, Write};
        let request = format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.0.stdin.as_mut().unwrap().write_all(request.as_bytes()).unwrap();
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(b"static") {
            self.0.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const AUTO: &str = "hosts = ['a.test', 'www.a.test']\ntls = 'auto'";

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_signs_after_a_handshake() {
    let mut scenario = Scenario::new(&Authorities::default());
    let server = scenario.server(0, scenario.ports(), AUTO);
    server.await_log("clients get one that the server signed itself");
    let tls = server.tls_addr().unwrap();
    let mut open = Open::new(tls, "a.test");
    assert!(open.ask("a.test").starts_with("HTTP/1.1 200"));
    let own = serial(tls, "a.test");
    assert_ne!(own, "");
    server.await_log("is not reached");
    let status = server.command(&["status"]).unwrap();
    assert!(
        status.contains("certificate  a.test, www.a.test: none yet, next attempt in "),
        "{status}"
    );
    scenario.pebble.start();
    scenario.await_trust(&server, "a.test", ATTEMPTS);
    scenario.await_trust(&server, "www.a.test", LIMIT);
    assert!(open.ask("a.test").starts_with("HTTP/1.1 200"), "the connection goes on");
    assert_ne!(serial(tls, "a.test"), own);
    server.await_log("an authority has checked a name");
    let renewed =
        wait::until(LIMIT, || server.command(&["status"]).unwrap().contains("renewed in"));
    assert!(renewed, "{}", server.command(&["status"]).unwrap());
    assert_eq!(scenario.pebble.signed(), 1);
    let before = serial(tls, "a.test");
    // A front that is started again has the certificate.
    processes::signal(server.front(), Signal::KILL);
    server.await_log("the front ended");
    scenario.await_trust(&server, "a.test", LIMIT);
    drop((open, server));
    // The next server has the certificate, too.
    scenario.pebble.stop();
    let server = scenario.server(0, scenario.ports(), AUTO);
    assert_eq!(serial(server.tls_addr().unwrap(), "a.test"), before);
}

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_signs_after_a_request_in_the_clear() {
    let scenario = Scenario::started(&Authorities::default());
    // Nothing listens where the authority expects TLS.
    let [clear, _] = scenario.ports();
    scenario.site.write("closed", "");
    let keys = format!(
        "{AUTO}\nmaintenance = '{}'\n[[site.route]]\nprefix = '/'\ndeny = true\n",
        scenario.site.path("closed").display()
    );
    let server = scenario.server(0, [clear, 0], &keys);
    server.await_log("Failed to connect");
    let signed = wait::until(ATTEMPTS, || server.log().contains("a certificate was obtained"));
    assert!(signed, "{}", server.log());
    let addr = server.tls_addr().unwrap();
    let refused = scenario.curl(&server, "a.test", "/a.txt");
    assert!(refused.status.success(), "{}: {refused:?}", addr);
    // Other requests are redirected.
    let other = Request::get("/.well-known/acme-challenge/other").header("Host", "a.test");
    server.ask(&other).expect(308);
}

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_renews_in_time() {
    let scenario = Scenario::started(&Authorities { validity: 30, ..Authorities::default() });
    let server = scenario.server(0, scenario.ports(), AUTO);
    scenario.await_trust(&server, "a.test", LIMIT);
    let tls = server.tls_addr().unwrap();
    let first = serial(tls, "a.test");
    let mut open = Open::new(tls, "a.test");
    assert!(open.ask("a.test").starts_with("HTTP/1.1 200"));
    let renewed = wait::until(ATTEMPTS, || {
        std::thread::sleep(Duration::from_millis(200));
        serial(tls, "a.test") != first
    });
    assert!(renewed, "{}", server.log());
    assert!(open.ask("a.test").starts_with("HTTP/1.1 200"), "the connection goes on");
    scenario.await_trust(&server, "a.test", LIMIT);
}

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_signs_once_for_two_servers() {
    let scenario = Scenario::started(&Authorities::default());
    // The two names lead to different servers, so the server that does not ask must answer the
    // authority, too.
    let keys = "hosts = ['a.test', 'b.test']\ntls = 'auto'";
    let both = [0, 1].map(|number| scenario.server(number, scenario.ports(), keys));
    for server in &both {
        scenario.await_trust(server, "a.test", ATTEMPTS);
        scenario.await_trust(server, "b.test", LIMIT);
    }
    let [first, second] = both.each_ref().map(|one| serial(one.tls_addr().unwrap(), "a.test"));
    assert_eq!(first, second);
    assert_eq!(scenario.pebble.signed(), 1, "{}", scenario.pebble.log());
}

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_that_makes_trouble_signs_in_the_end() {
    let environment = [
        ("PEBBLE_WFE_NONCEREJECT", "50"),
        ("PEBBLE_AUTHZREUSE", "50"),
        ("PEBBLE_VA_NOSLEEP", "0"),
        ("PEBBLE_VA_SLEEPTIME", "2"),
    ];
    let options = Authorities { environment: &environment, ..Authorities::default() };
    let scenario = Scenario::started(&options);
    let server = scenario.server(0, scenario.ports(), AUTO);
    scenario.await_trust(&server, "a.test", ATTEMPTS);
    let log = scenario.pebble.log();
    assert!(log.contains("Configured to reject 50% of good nonces"), "{log}");
}

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_finds_the_server_that_was_killed() {
    let environment = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "4")];
    let options = Authorities { environment: &environment, ..Authorities::default() };
    let mut scenario = Scenario::started(&options);
    let server = scenario.server(0, scenario.ports(), AUTO);
    server.await_log("a certificate is asked for");
    let waiting = || scenario.pebble.log().contains("Pulled a task");
    assert!(wait::until(LIMIT, waiting), "{}", scenario.pebble.log());
    processes::signal(agent(&server), Signal::KILL);
    server.await_log("the process for certificates ended");
    scenario.await_trust(&server, "a.test", ATTEMPTS);
    // The server makes a new account if the authority has lost the old one.
    drop(server);
    let folder = fs::read_dir(scenario.state().join("acme")).unwrap().next().unwrap().unwrap();
    fs::remove_dir_all(folder.path().join("certificates")).unwrap();
    fs::remove_dir_all(folder.path().join("attempts")).unwrap();
    scenario.pebble.stop();
    scenario.pebble.start();
    let server = scenario.server(0, scenario.ports(), AUTO);
    scenario.await_trust(&server, "a.test", ATTEMPTS);
    server.await_log("the authority does not know the account any more");
}

#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_that_refuses_is_not_asked_again_at_once() {
    let scenario = Scenario::started(&Authorities::default());
    let keys = "hosts = 'blocked.test'\ntls = 'auto'";
    let server = scenario.server(0, scenario.ports(), keys);
    server.await_log("the authority does not sign this name: remove it from hosts");
    drop(server);
    let server = scenario.server(0, scenario.ports(), keys);
    let told = wait::until(LIMIT, || {
        let status = server.command(&["status"]).unwrap();
        status.contains("blocked.test: none yet, next attempt in ") && status.contains(" min ")
    });
    assert!(told, "{}", server.command(&["status"]).unwrap());
    assert!(!server.log().contains("a certificate is asked for"), "{}", server.log());
}

/// Wildcards are proven by records of DNS, which the program of docs/tls.md publishes by nsupdate.
/// No connection of the authority reaches the server.
#[test]
#[ignore = "heavy: builds Pebble, needs bind9"]
fn an_authority_signs_a_wildcard_by_dns_for_its_customer() {
    let options = Authorities { wants_customers: true, ..Authorities::default() };
    let mut scenario = Scenario::new(&options);
    let bind = Bind::start(&scenario.site);
    scenario.pebble.ask_names_of(bind.addr);
    scenario.pebble.start();
    let documented = fs::read_to_string(repository::root().join("docs/tls.md")).unwrap();
    let script = documented.split("```sh\n").find(|block| block.contains("nsupdate")).unwrap();
    let script = script.split("```").next().unwrap();
    let at = format!("nsupdate -k {}", bind.key().display());
    let server = format!("server {} {}", bind.addr.ip(), bind.addr.port());
    let script = script
        .replace("nsupdate -k /etc/sendoff/dns.key", &at)
        .replace("server ns1.example.org", &server);
    assert!(script.contains(&at) && script.contains(&server), "{script}");
    let keys = "hosts = ['a.test', '*.a.test']\ntls = 'auto'";
    let config = scenario.config_with_dns(&script, keys);
    let key = scenario.site.write_at(scenario.site.outside("customer"), CUSTOMER_KEY);
    let start = || Server::try_run(&config, scenario.site.root(), 1).unwrap();
    let stranger = start();
    stranger.await_log("acme_account_id and acme_account_key name it");
    drop(stranger);
    fs::remove_dir_all(scenario.state()).unwrap();
    let account = format!("acme_account_id = 'kid-1'\nacme_account_key = '{}'\n", key.display());
    prepend(&config, &account);
    let server = start();
    scenario.await_trust(&server, "a.test", ATTEMPTS);
    scenario.await_trust(&server, "any.a.test", LIMIT);
    assert_eq!(scenario.pebble.signed(), 1);
    // The records are gone.
    assert_eq!(bind.log().matches("adding an RR at '_acme-challenge.a.test' TXT").count(), 2);
    let left = || bind.log().matches("deleting an RR at _acme-challenge.a.test TXT").count();
    assert!(wait::until(LIMIT, || left() == 2), "{}", bind.log());
}

#[test]
#[ignore = "heavy: builds Pebble, needs bind9"]
fn an_authority_that_finds_no_record_is_told_of() {
    let mut scenario = Scenario::new(&Authorities::default());
    let bind = Bind::start(&scenario.site);
    scenario.pebble.ask_names_of(bind.addr);
    scenario.pebble.start();
    let config = scenario.config_with_dns("#!/bin/sh\n", AUTO);
    let server = Server::try_run(&config, scenario.site.root(), 1).unwrap();
    server.await_log("the authority looks for a TXT record");
}

#[test]
fn without_an_authority_the_site_has_a_certificate_of_its_own() {
    let scenario = Scenario::new(&Authorities::default());
    // Its owner is the user of the process for certificates.
    let mark = scenario.site.write_at(scenario.state().join("acme/mark"), "");
    let server = scenario.server(0, [0, 0], AUTO);
    let tls = server.tls_addr().unwrap();
    let mut open = Open::new(tls, "a.test");
    assert!(open.ask("a.test").starts_with("HTTP/1.1 200"));
    server.await_log("is not reached");
    assert!(server.log().contains("clients get one that the server signed itself"));
    let agent = agent(&server);
    let folder = fs::read_dir(scenario.state().join("acme")).unwrap().flatten();
    let folder = folder.map(|entry| entry.path()).find(|path| path.is_dir()).unwrap();
    assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
    let user = |path: &Path| path.metadata().unwrap().uid();
    let of_agent = user(Path::new(&format!("/proc/{agent}")));
    assert_eq!((user(&folder), of_agent), (user(&mark), user(&mark)));
    // A reload that changes nothing about certificates leaves the process alone; a reload after
    // which no site needs the authority ends it.
    server.command(&["reload"]).unwrap();
    assert!(processes::runs(agent));
    let config = scenario.site.outside("server0.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("'auto'", "'self-signed'")).unwrap();
    server.command(&["reload"]).unwrap();
    assert!(wait::until(LIMIT, || !processes::runs(agent)), "{}", server.log());
    assert!(open.ask("a.test").starts_with("HTTP/1.1 200"), "the connection goes on");
}

/// Operators learn from the log and the status that the authority is not reached or that a limit of
/// attempts holds, not from a browser's complaint.
#[test]
fn the_log_says_of_a_certificate_that_it_has_expired_or_waits() {
    let scenario = Scenario::new(&Authorities::default());
    let start = || scenario.server(0, [0, 0], AUTO);
    let server = start();
    server.await_log("is not reached");
    drop(server);
    // The pause after the attempt outlives the server.
    let server = start();
    server.await_log("there is no certificate: the last attempt failed: ");
    assert!(!server.log().contains("a certificate is asked for"), "{}", server.log());
    drop(server);
    let entries = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect()
    };
    let folder = entries(&scenario.state().join("acme")).into_iter().find(|path| path.is_dir());
    let folder = folder.unwrap();
    let attempts = entries(&folder.join("attempts"));
    let name = attempts[0].file_stem().unwrap().to_str().unwrap();
    let mut params =
        rcgen::CertificateParams::new(["a.test", "www.a.test"].map(str::to_owned)).unwrap();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 4, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
    fs::create_dir_all(folder.join("certificates")).unwrap();
    scenario.site.write_at(folder.join("certificates").join(format!("{name}.pem")), pem);
    let server = start();
    server.await_log("the certificate expired ");
    assert!(server.log().contains("; the next attempt is in "), "{}", server.log());
    let status = || server.command(&["status"]).unwrap();
    assert!(wait::until(LIMIT, || status().contains("www.a.test: expired ")), "{}", status());
    assert_eq!(server.log().matches("the certificate expired ").count(), 1, "once a day");
}
