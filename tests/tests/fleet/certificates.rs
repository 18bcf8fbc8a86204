//! One certificate for all nodes. `tools/pebble` builds the authority once.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sendoff_tests::{
    Authorities, Authority, Engine, LIMIT, Pebble, Server, Site, curl, processes, wait,
};

use crate::Node;
use crate::records::RULES;

/// The secret of the nodes, and another one.
const SECRETS: [&str; 2] =
    ["0123456789abcdef0123456789abcdef\n", "fedcba9876543210fedcba9876543210\n"];

/// An authority that is not reached, and the folder of its certificates.
const NO_AUTHORITY: &str = "acme_directory = 'https://127.0.0.1:1/dir'\n";
const FOLDER: &str = "127.0.0.1_1_dir";

/// Names that lead to the first and to the second node, as Pebble resolves them.
const BOTH: &str = "['a.test', 'b.test']";

/// Time limit for a certificate that a node obtains after the lock of another one has ended.
const ATTEMPTS: Duration = Duration::from_secs(150);

/// A node whose certificate comes from an authority.
struct Shop<'e> {
    engine: &'e str,
    /// Keys of the top level.
    authority: &'e str,
    hosts: &'e str,
    /// Further keys of `[fleet]`.
    keys: &'e str,
    secret: &'e str,
    listen: [SocketAddr; 2],
}

impl<'e> Shop<'e> {
    fn new(engine: &'e str, authority: &'e str, hosts: &'e str) -> Self {
        let listen = [SocketAddr::from(([127, 0, 0, 1], 0)); 2];
        Self { engine, authority, hosts, keys: "", secret: SECRETS[0], listen }
    }

    fn start(&self) -> Node {
        self.start_in(Site::with("a.txt", "static"))
    }

    fn start_in(&self, site: Site) -> Node {
        let Self { engine, authority, hosts, keys, secret, listen: [clear, tls] } = self;
        site.write_at(site.outside("secret"), secret);
        let text = format!(
            "listen = ['{clear}', '{tls} tls']\nthreads = 1\nstate = 'state'\npage_cache_folder = 'pages'\n{authority}\
             [fleet]\nname = 'shop'\nengine = '{engine}'\nsecret_file = 'secret'\n{keys}\n\
             [[site]]\nroot = 'root'\nphp = false\nhosts = {hosts}\ntls = 'auto'\n"
        );
        let config = site.write_at(site.outside("sendoff.toml"), text);
        let server = Server::try_run_with(&config, site.root(), 0, 1);
        Node { site, server: server.unwrap_or_else(|failed| panic!("{failed:#?}")) }
    }
}

/// A folder of a node that has a certificate for `a.test`.
fn with_certificate(authority: &Authority) -> Site {
    let site = Site::with("a.txt", "static");
    let issued = authority.issue(&["a.test"], &site.outside("issued"), "a.test");
    let [chain, key] = [issued.chain, issued.key].map(|path| fs::read_to_string(path).unwrap());
    let folder = site.outside("state/acme").join(FOLDER).join("certificates");
    fs::create_dir_all(&folder).unwrap();
    site.write_at(folder.join("a.test.pem"), chain + &key);
    site
}

/// The serial number of the certificate that clients get.
fn serial(node: &Node, host: &str) -> String {
    let script = "openssl s_client -connect \"$0\" -servername \"$1\" </dev/null 2>/dev/null | openssl x509 -noout -serial";
    let addr = node.server.tls_addr().unwrap().to_string();
    let output = Command::new("sh").args(["-c", script, &addr, host]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn await_serial(node: &Node, expected: &str) {
    let is_served = || serial(node, "a.test") == expected;
    assert!(wait::until(LIMIT, is_served), "{}", node.server.log());
}

fn exists(engine: &Engine, name: &str) -> bool {
    engine.command(&["EXISTS", &format!("shop:acme:{FOLDER}:{name}")]) == "1"
}

/// A node that starts takes the certificate of another one, by the rights that docs/fleet.md names.
#[test]
fn a_node_takes_the_certificate_of_another_one() {
    let words: Vec<_> = RULES.split(' ').collect();
    let engine = Engine::with(&[&["--user"], &words[1..]].concat());
    let url = engine.url();
    let keys = "user = 'shop'\npassword_file = 'password'";
    let shop = Shop { keys, ..Shop::new(&url, NO_AUTHORITY, "'a.test'") };
    let start = |site: Site| {
        site.write_at(site.outside("password"), "secret");
        shop.start_in(site)
    };
    let one = start(with_certificate(&Authority::new()));
    assert!(wait::until(LIMIT, || exists(&engine, "certificate:a.test")), "{}", one.server.log());
    let of_one = serial(&one, "a.test");
    let two = start(Site::with("a.txt", "static"));
    await_serial(&two, &of_one);
    two.server.await_log("the certificate of another node is used");
    assert_eq!(two.log_lines("a certificate is asked for"), 0, "{}", two.server.log());
    let sealed = engine.command(&["GET", &format!("shop:acme:{FOLDER}:certificate:a.test")]);
    assert!(!sealed.contains("PRIVATE KEY") && !sealed.contains("CERTIFICATE"), "{sealed}");
    // It stays without the engine, and the engine gets it back. The newest one counts.
    engine.kill();
    two.server.await_log("certificates are not shared with other nodes");
    assert_eq!(serial(&two, "a.test"), of_one);
    engine.start_again();
    assert!(wait::until(LIMIT, || exists(&engine, "certificate:a.test")), "{}", two.server.log());
    assert!(!exists(&engine, "lock"));
}

/// Values that no node has written are an error in the log and nothing else.
#[test]
fn garbage_in_place_of_a_certificate_is_not_used() {
    let engine = Engine::start();
    let url = engine.url();
    let key = |name| format!("shop:acme:{FOLDER}:{name}");
    let site = with_certificate(&Authority::new());
    engine.command(&["SET", &key("certificate:a.test"), "garbage"]);
    engine.command(&["RPUSH", &key("challenges"), "garbage"]);
    let shop = Shop::new(&url, NO_AUTHORITY, "'a.test'");
    let one = shop.start_in(site);
    one.server.await_log("no node with this secret_file has sealed it");
    let of_one = serial(&one, "a.test");
    let shared = || engine.command(&["STRLEN", &key("certificate:a.test")]);
    assert!(wait::until(LIMIT, || shared().len() > 3), "{}", one.server.log());
    // A node with another secret neither reads nor serves it.
    let stranger = Shop { secret: SECRETS[1], ..shop }.start();
    stranger.server.await_log("no node with this secret_file has sealed it");
    stranger.server.await_log("a certificate is asked for");
    assert_ne!(serial(&stranger, "a.test"), of_one);
    assert_eq!(serial(&one, "a.test"), of_one);
}

/// Nodes wait for the owner of the lock, but not for longer than the lock lives.
#[test]
fn a_node_waits_until_the_lock_of_another_one_ends() {
    let engine = Engine::start();
    let url = engine.url();
    let lock = format!("shop:acme:{FOLDER}:lock");
    let begun = Instant::now();
    let life = Duration::from_secs(4);
    engine.command(&["SET", &lock, "other", "PX", &life.as_millis().to_string()]);
    let shop = Shop::new(&url, NO_AUTHORITY, "'a.test'");
    let node = shop.start();
    node.server.await_log("a certificate is asked for");
    assert!(begun.elapsed() >= life, "{}", node.server.log());
    node.server.await_log("no certificate: ");
    assert!(wait::until(LIMIT, || !exists(&engine, "lock")));
    // A value that does not end is no lock.
    engine.command(&["FLUSHALL"]);
    engine.command(&["SET", &lock, "mine"]);
    let other = shop.start();
    other.server.await_log("it does not end as a lock does");
    other.server.await_log("a certificate is asked for");
}

/// A node that does not reach the authority waits for a minute, and the other one does not.
#[test]
fn a_node_that_fails_by_itself_does_not_make_the_others_wait() {
    let engine = Engine::start();
    let url = engine.url();
    let shop = Shop::new(&url, NO_AUTHORITY, "'a.test'");
    let one = shop.start();
    one.server.await_log("no certificate: ");
    assert!(wait::until(LIMIT, || exists(&engine, "attempts:a.test")));
    let two = shop.start();
    two.server.await_log("a certificate is asked for");
    assert_eq!(one.log_lines("a certificate is asked for"), 1, "{}", one.server.log());
}

/// An engine without memory answers reads, which do not end the outage.
#[test]
fn an_engine_that_refuses_the_lock_is_told_once() {
    let engine = Engine::start();
    engine.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let node = Shop::new(&engine.url(), NO_AUTHORITY, "'a.test'").start();
    let refused = "certificates are not shared with other nodes by the fleet's engine";
    node.server.await_log(refused);
    let again = "certificates are shared with other nodes again";
    let looks = || engine.command(&["INFO", "commandstats"]);
    let is_asked = || looks().contains("cmdstat_getrange") && looks().contains("cmdstat_eval");
    assert!(wait::until(LIMIT, is_asked), "{}", looks());
    engine.command(&["CONFIG", "RESETSTAT"]);
    assert!(wait::until(LIMIT, is_asked), "{}", looks());
    let lines = [refused, again, "a certificate is asked for"].map(|text| node.log_lines(text));
    assert_eq!(lines, [1, 0, 0], "{}", node.server.log());
    engine.command(&["CONFIG", "SET", "maxmemory", "0"]);
    node.server.await_log("a certificate is asked for");
    assert_eq!(node.log_lines(again), 1, "{}", node.server.log());
}

#[test]
fn the_check_warns_of_a_secret_that_others_can_use() {
    let engine = Engine::start();
    let url = engine.url();
    let shop = Shop::new(&url, NO_AUTHORITY, "'a.test'");
    let Node { site, server } = shop.start_in(with_certificate(&Authority::new()));
    drop(server);
    let config = site.outside("sendoff.toml");
    for (mode, is_told) in [(0o644, true), (0o602, true), (0o640, false), (0o600, false)] {
        fs::set_permissions(site.outside("secret"), Permissions::from_mode(mode)).unwrap();
        let said = sendoff_tests::sendoff(site.root(), &["check", config.to_str().unwrap()]);
        let is_said = said.as_ref().unwrap().contains("every user of this machine can read");
        assert_eq!(is_said, is_told, "{mode:o} {said:?}");
    }
}

/// An authority, two nodes, and their engine.
struct Scenario {
    pebble: Pebble,
    engine: Engine,
    _site: Site,
}

impl Scenario {
    fn start(options: &Authorities<'_>) -> Self {
        let site = Site::new();
        let mut pebble = Pebble::new(&site, options);
        pebble.start();
        Self { pebble, engine: Engine::start(), _site: site }
    }

    /// Starts a node at the address where the authority looks for it.
    fn node(&self, number: usize, hosts: &str) -> Node {
        let addr = self.pebble.servers[number];
        let listen = [self.pebble.http, self.pebble.tls].map(|port| (addr, port).into());
        let (url, authority) = (self.engine.url(), self.pebble.keys());
        Shop { listen, ..Shop::new(&url, &authority, hosts) }.start()
    }

    /// Waits until clients that trust the authority get a page of a host.
    #[track_caller]
    fn await_trust(&self, node: &Node, host: &str, limit: Duration) {
        let addr = node.server.tls_addr().unwrap();
        let trusts = || {
            let mut command = curl();
            command.arg("--cacert").arg(self.pebble.signer());
            command.args(["--resolve", &format!("{host}:{}:{}", addr.port(), addr.ip())]);
            command.arg(format!("https://{host}:{}/a.txt", addr.port()));
            command.output().unwrap().stdout == b"static"
        };
        let is_trusted = wait::until(limit, trusts);
        assert!(is_trusted, "{}\n{}", node.server.log(), self.pebble.log());
    }
}

/// Whichever node asks, the authority checks one name at the other one.
#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_signs_once_for_all_nodes() {
    let mut scenario = Scenario::start(&Authorities::default());
    let nodes = [0, 1].map(|number| scenario.node(number, BOTH));
    for node in &nodes {
        scenario.await_trust(node, "a.test", ATTEMPTS);
        scenario.await_trust(node, "b.test", LIMIT);
    }
    let [one, two] = &nodes;
    assert_eq!(serial(one, "a.test"), serial(two, "a.test"));
    assert_eq!(scenario.pebble.signed(), 1, "{}", scenario.pebble.log());
    let asked = nodes.iter().map(|node| node.log_lines("a certificate is asked for"));
    assert_eq!(asked.sum::<usize>(), 1);
    for node in &nodes {
        let status = || node.server.command(&["status"]).unwrap();
        let says = || {
            status().contains("a.test, b.test: holds for 89 d")
                && status().contains(", obtained by ")
        };
        assert!(wait::until(LIMIT, says), "{}", status());
    }
    // A node that starts later does not ask.
    scenario.pebble.stop();
    let before = serial(one, "a.test");
    let (url, authority) = (scenario.engine.url(), scenario.pebble.keys());
    await_serial(&Shop::new(&url, &authority, BOTH).start(), &before);
}

/// The node that asks is killed while the authority checks a name, which leads to the other node.
#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_signs_once_although_the_node_that_asks_is_killed() {
    let environment = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "4")];
    let options = Authorities { environment: &environment, ..Authorities::default() };
    let scenario = Scenario::start(&options);
    let one = scenario.node(0, BOTH);
    one.server.await_log("a certificate is asked for");
    let two = scenario.node(1, BOTH);
    let is_checked = || scenario.pebble.log().contains("Pulled a task");
    assert!(wait::until(LIMIT, is_checked), "{}", scenario.pebble.log());
    let killed = Instant::now();
    let agent = wait::for_some("the process for certificates", || {
        let children = processes::children(one.server.pid()).into_iter();
        children
            .into_iter()
            .find(|child| processes::arguments(*child).get(1).is_some_and(|first| first == "acme"))
    });
    processes::signal(agent, Signal::KILL);
    assert_eq!(two.log_lines("a certificate is asked for"), 0, "{}", two.server.log());
    for node in [&one, &two] {
        scenario.await_trust(node, "b.test", ATTEMPTS);
    }
    eprintln!("both nodes have a certificate after {:?}", killed.elapsed());
    assert_eq!(scenario.pebble.signed(), 1, "{}", scenario.pebble.log());
    assert_eq!(serial(&one, "a.test"), serial(&two, "a.test"));
}

/// Without the engine each node renews its certificate before it expires; afterwards, they agree on
/// one again.
#[test]
#[ignore = "heavy: builds Pebble"]
fn an_authority_signs_for_each_node_while_the_engine_is_away() {
    let scenario = Scenario::start(&Authorities { validity: 60, ..Authorities::default() });
    let hosts = ["'a.test'", "'b.test'"];
    let names = ["a.test", "b.test"];
    let nodes = [0, 1].map(|number| scenario.node(number, hosts[number]));
    for (node, name) in nodes.iter().zip(names) {
        scenario.await_trust(node, name, ATTEMPTS);
    }
    scenario.engine.kill();
    let before = [0, 1].map(|number| serial(&nodes[number], names[number]));
    for ((node, name), before) in nodes.iter().zip(names).zip(before) {
        let is_renewed = || serial(node, name) != before;
        assert!(wait::until(ATTEMPTS, is_renewed), "{}", node.server.log());
        scenario.await_trust(node, name, LIMIT);
    }
    scenario.engine.start_again();
    for node in &nodes {
        let is_shared = || node.log_lines("certificates are shared with other nodes again") == 1;
        assert!(wait::until(LIMIT, is_shared), "{}", node.server.log());
    }
}
