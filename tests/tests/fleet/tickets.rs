//! TLS sessions are resumed by any node.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use sendoff_tests::{Engine, Server, Site, wait};

use crate::Node;

const REQUEST: &str = "GET /a.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The longest life of a key.
const LIFE: Duration = Duration::from_secs(12 * 60 * 60);

fn start(engine: &str) -> Node {
    start_with(engine, None)
}

/// `secret`: of the nodes.
fn start_with(engine: &str, secret: Option<&str>) -> Node {
    let site = Site::with("a.txt", "text");
    let keys = secret.map_or("", |secret| {
        site.write_at(site.outside("secret"), secret);
        "secret_file = 'secret'"
    });
    let text = format!(
        "listen = ['127.0.0.1:0', '127.0.0.1:0 tls']\nthreads = 2\npage_cache_folder = 'pages'\n[fleet]\nname = 'shop'\nengine = '{engine}'\n{keys}\n\
         [[site]]\nroot = 'root'\nphp = false\ntls = 'self-signed'\n"
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let server = Server::try_run_with(&config, site.root(), 0, 2);
    Node { site, server: server.unwrap_or_else(|failed| panic!("{failed:#?}")) }
}

/// The output of a client that keeps its session in `file`, or resumes it.
fn handshake(node: &Node, version: &str, file: [&str; 2]) -> String {
    let addr = node.server.tls_addr().unwrap().to_string();
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &addr, "-servername", "localhost", "-ign_eof", version])
        .args(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(REQUEST.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("HTTP/1.1 200 OK"), "{text}");
    text
}

/// True if a session of one node is resumed by the other.
fn is_resumed(one: &Node, other: &Node, version: &str) -> bool {
    let file = one.site.outside("session").display().to_string();
    assert!(handshake(one, version, ["-sess_out", &file]).contains("New, TLSv1"));
    handshake(other, version, ["-sess_in", &file]).contains("Reused, TLSv1")
}

#[test]
fn a_session_of_one_node_is_resumed_by_the_other() {
    let engine = Engine::start();
    let nodes = [(); 2].map(|()| start(&engine.url()));
    nodes.iter().for_each(Node::await_engine);
    let [one, two] = &nodes;
    for version in ["-tls1_2", "-tls1_3"] {
        assert!(is_resumed(one, two, version) && is_resumed(two, one, version), "{version}");
    }
    let keys = engine.command(&["KEYS", "shop:ticket-key:*"]);
    assert!((1..=2).contains(&keys.lines().count()), "{keys}");
    for key in keys.lines() {
        let left: u128 = engine.command(&["PTTL", key]).parse().unwrap();
        assert!(left <= LIFE.as_millis() + 300_000, "{key} lives for {left} ms");
    }
    // The keys are known for as long as they live, without the engine, and it gets them back.
    let before = engine.command(&["GET", keys.lines().next().unwrap()]);
    engine.kill();
    nodes.iter().for_each(Node::await_away);
    assert!(is_resumed(one, two, "-tls1_3"));
    engine.start_again();
    nodes.iter().for_each(Node::await_engine);
    assert_eq!(engine.command(&["GET", keys.lines().next().unwrap()]), before);
    // A node that has just started resumes sessions, too.
    assert!(is_resumed(one, &start_and_wait(&engine), "-tls1_3"));
}

fn start_and_wait(engine: &Engine) -> Node {
    let node = start(&engine.url());
    node.await_engine();
    node
}

/// A node that has never met the engine has keys of its own.
#[test]
fn a_node_without_the_engine_resumes_its_own_sessions() {
    let engine = Engine::start();
    let alone = start("redis://unix:/no/such/engine");
    alone.await_away();
    let other = start_and_wait(&engine);
    assert!(is_resumed(&alone, &alone, "-tls1_3"));
    assert_eq!(other.log_lines("WARN"), 0, "it keeps no pages and writes to no folder");
    assert!(!is_resumed(&alone, &other, "-tls1_3") && !is_resumed(&other, &alone, "-tls1_3"));
}

/// With a secret of the nodes, readers and writers of the engine have no key.
#[test]
fn keys_are_sealed_if_the_nodes_have_a_secret() {
    let engine = Engine::start();
    let secrets = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"];
    let [one, two, stranger] =
        [secrets[0], secrets[0], secrets[1]].map(|secret| start_with(&engine.url(), Some(secret)));
    [&one, &two, &stranger].into_iter().for_each(Node::await_engine);
    assert!(is_resumed(&one, &two, "-tls1_3") && is_resumed(&two, &one, "-tls1_2"));
    assert!(!is_resumed(&one, &stranger, "-tls1_3"));
    stranger.server.await_log("it is no key for session tickets");
    assert_eq!(engine.command(&["KEYS", "shop:ticket-key:*"]), "");
    let keys = engine.command(&["KEYS", "shop:sealed-ticket-key:*"]);
    assert_eq!(engine.command(&["STRLEN", keys.lines().next().unwrap()]), "77");
}

/// A value that is no key is an error in the log.
#[test]
fn garbage_in_place_of_a_key_is_not_used() {
    let engine = Engine::start();
    let time = engine.command(&["TIME"]);
    let period = time.lines().next().unwrap().parse::<u64>().unwrap() / (6 * 60 * 60);
    engine.command(&["SET", &format!("shop:ticket-key:{period}"), "short"]);
    let node = start_and_wait(&engine);
    assert!(is_resumed(&node, &node, "-tls1_3"));
    assert!(wait::until(sendoff_tests::LIMIT, || node.figure("broken") > 0));
    node.server.await_log("it is no key for session tickets");
}
