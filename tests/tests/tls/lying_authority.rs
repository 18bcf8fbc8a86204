//! Authorities that lie: the server logs the error, asks again later, and its sites go on with
//! their present certificates.

mod authority;

use std::path::PathBuf;
use std::time::Duration;

use sendoff_tests::{LIMIT, Server, Site, curl, processes, wait};

use authority::{Liar, Lie};

/// The memory, in bytes, that the process that talks to the authority may take; a body of the
/// largest allowed size is a megabyte.
const MEMORY: u64 = 32 << 20;

/// The number of bytes that the authority can send of an endless body: the client's limit, and the
/// buffers of sockets and TLS.
const FITS_INTO_SOCKETS: u64 = 16 << 20;

struct Scenario {
    site: Site,
    authority: Liar,
}

impl Scenario {
    fn new() -> Self {
        let site = Site::with("a.txt", "static");
        let authority = Liar::start(&site);
        Self { site, authority }
    }

    /// Writes a configuration in which the site has these hosts.
    fn configure(&self, hosts: &str) -> PathBuf {
        let text = format!(
            "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 1\nstate = '{}'\n{}[[pool]]\nworkers = 1\n\
             [[site]]\nroot = 'root'\nhosts = [{hosts}]\ntls = 'auto'\n",
            self.site.outside("state").display(),
            self.authority.keys(),
        );
        self.site.write_at(self.site.outside("server.toml"), text)
    }

    /// A server that has a certificate for `a.test`.
    fn server(&self) -> Server {
        let config = self.configure("'a.test'");
        let server = Server::try_run(&config, self.site.root(), 1).unwrap();
        server.await_log("a certificate was obtained");
        self.assert_trusted(&server);
        server
    }

    /// Has the server ask for a certificate with another name, for which the authority tells this
    /// lie.
    fn ask(&self, server: &Server, name: &str, lie: Lie) {
        self.authority.tell(lie);
        self.configure(&format!("'a.test', '{name}.test'"));
        server.command(&["reload"]).unwrap();
    }

    /// Clients that trust the authority get pages from `a.test`.
    #[track_caller]
    fn assert_trusted(&self, server: &Server) {
        let addr = server.tls_addr().unwrap();
        let mut said = String::new();
        let trusted = wait::until(LIMIT, || {
            let output = curl()
                .arg("--cacert")
                .arg(self.authority.signer())
                .args(["--resolve", &format!("a.test:{}:127.0.0.1", addr.port())])
                .arg(format!("https://a.test:{}/a.txt", addr.port()))
                .output()
                .unwrap();
            said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.stdout == b"static"
        });
        assert!(trusted, "{said}\n{}", server.log());
    }
}

/// The process that obtains certificates.
fn agent(server: &Server) -> u32 {
    wait::for_some("the process for certificates", || {
        let mut children = processes::children(server.pid()).into_iter();
        children
            .find(|child| processes::arguments(*child).get(1).is_some_and(|first| first == "acme"))
    })
}

#[test]
fn what_is_not_acme_is_said() {
    let scenario = Scenario::new();
    let server = scenario.server();
    for (name, lie, says) in [
        ("redirect", Lie::Redirect, "something else than ACME: a redirect to https://127.0.0.1:"),
        ("page", Lie::Page, "something else than ACME: a page for browsers"),
        (
            "broken",
            Lie::Broken,
            "something else than ACME: failed to (de)serialize JSON: EOF while",
        ),
        ("endless", Lie::Endless, "something else than ACME: more than 1048576 bytes"),
        ("nonces", Lie::Nonces, "no good"),
    ] {
        scenario.ask(&server, name, lie);
        server.await_log(&format!("no certificate: {}", complaint(&scenario, lie, says)));
        let held = processes::private_memory(agent(&server));
        assert!(held < MEMORY, "{lie:?}: {held} bytes");
        scenario.assert_trusted(&server);
    }
    let sent = scenario.authority.sent();
    assert!(sent < FITS_INTO_SOCKETS, "{sent} bytes");
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("a.test, nonces.test: none yet, next attempt in "), "{status}");
    scenario.ask(&server, "true", Lie::None);
    let obtained = || server.log().matches("a certificate was obtained").count() == 2;
    assert!(wait::until(LIMIT, obtained), "{}", server.log());
}

/// The beginning of a failure in the log.
fn complaint(scenario: &Scenario, lie: Lie, says: &str) -> String {
    let keys = scenario.authority.keys();
    let directory = keys.split('\'').nth(1).unwrap();
    if lie == Lie::Nonces { says.to_owned() } else { format!("{directory} answers with {says}") }
}

#[test]
fn certificates_for_another_name_or_key_are_not_used() {
    let scenario = Scenario::new();
    let server = scenario.server();
    for (name, lie, says) in [
        ("name", Lie::OtherName, "no certificate: the authority has left a.test out"),
        ("key", Lie::OtherKey, "no certificate: the authority has sent something else: "),
    ] {
        scenario.ask(&server, name, lie);
        server.await_log(says);
        scenario.assert_trusted(&server);
    }
}

#[test]
fn an_authority_that_stops_amid_an_answer_is_left() {
    let scenario = Scenario::new();
    let server = scenario.server();
    scenario.ask(&server, "stall", Lie::Stall);
    let left = || server.log().contains("something else than ACME: nothing complete within 30 s");
    assert!(wait::until(LIMIT + Duration::from_secs(30), left), "{}", server.log());
    scenario.assert_trusted(&server);
    // A configuration that comes meanwhile does not wait for the authority.
    scenario.ask(&server, "again", Lie::Stall);
    let asked = || server.log().matches("a certificate is asked for").count() == 3;
    assert!(wait::until(LIMIT, asked), "{}", server.log());
    scenario.ask(&server, "true", Lie::None);
    let obtained = || server.log().matches("a certificate was obtained").count() == 2;
    assert!(wait::until(LIMIT, obtained), "{}", server.log());
}
