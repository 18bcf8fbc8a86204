//! The example of `docs/scaling.md`: HAProxy, two nodes, two hosts with php-fpm, and Redis, each in
//! its own network namespace.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Server, Site, processes, repository, wait};

const PAGE: &str = r"<?php
session_start();
$_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
header('X-Client: ' . $_SERVER['REMOTE_ADDR']);
header('X-Node: ' . $_SERVER['DOCUMENT_ROOT']);
echo $_SESSION['n'];
";

/// A client that asks until its input ends, each thread with a session of its own, and prints
/// errors, then the nodes and the number of requests.
const CLIENT: &str = r"
import http.client, sys, threading
stop, wrong, nodes, count = threading.Event(), [], set(), [0] * 8
def ask(number):
    connection, cookie, expected = http.client.HTTPConnection('10.0.0.1', 80, timeout=30), None, 0
    while not stop.is_set():
        expected += 1
        method = 'POST' if expected % 3 == 0 else 'GET'
        try:
            connection.request(method, '/session.php', headers={'Cookie': cookie} if cookie else {})
            response = connection.getresponse()
            body = response.read().decode()
        except Exception as error:
            wrong.append(f'{method}: {error!r}')
            connection.close()
            continue
        cookie = (response.getheader('Set-Cookie') or cookie or '').split(';')[0]
        if (response.status, body, response.getheader('X-Client')) != (200, str(expected), '10.0.0.1'):
            wrong.append(f'{method}: {response.status} {body[:99]!r} in place of {expected}')
            expected = int(body) if body.isdigit() else expected
        nodes.add(response.getheader('X-Node'))
        count[number] += 1
threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
sys.stdin.read()
stop.set()
[thread.join() for thread in threads]
print('\n'.join(wrong + [f'{len(nodes - {None})} nodes', f'{sum(count)} requests']))
";

/// The namespaces, which are removed with this value.
struct Network(String);

const MACHINES: [(&str, &str); 5] = [
    ("node1", "10.0.0.11"),
    ("node2", "10.0.0.12"),
    ("php1", "10.0.0.21"),
    ("php2", "10.0.0.22"),
    ("redis", "10.0.0.31"),
];

impl Network {
    fn new() -> Self {
        let this = Self(format!("sendoff-{}", std::process::id()));
        let balancer = this.name("balancer");
        ip(&format!("netns add {balancer}"));
        ip(&format!("-n {balancer} link add bridge type bridge"));
        ip(&format!("-n {balancer} address add 10.0.0.1/24 dev bridge"));
        for (machine, address) in MACHINES {
            let name = this.name(machine);
            ip(&format!("netns add {name}"));
            ip(&format!("-n {balancer} link add {machine} type veth peer name eth0 netns {name}"));
            ip(&format!("-n {balancer} link set {machine} master bridge up"));
            ip(&format!("-n {name} address add {address}/24 dev eth0"));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set eth0 up"));
        }
        ip(&format!("-n {balancer} link set lo up"));
        ip(&format!("-n {balancer} link set bridge up"));
        this
    }

    fn name(&self, machine: &str) -> String {
        format!("{}-{machine}", self.0)
    }

    /// A command on a machine. It ends with the test.
    fn on(&self, machine: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(machine)]);
        command.args(["setpriv", "--pdeathsig", "TERM", "--"]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in MACHINES.map(|(name, _)| name).into_iter().chain(["balancer"]) {
            let _ = Command::new("ip").args(["netns", "delete", &self.name(machine)]).status();
        }
    }
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().expect("ip (iproute2)");
    assert!(done.status.success(), "ip {words}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A block of the page in this language.
fn block(language: &str) -> String {
    let page = fs::read_to_string(repository::root().join("docs/scaling.md")).unwrap();
    let rest = page.split_once(&format!("```{language}\n")).unwrap().1;
    rest.split_once("```").unwrap().0.to_owned()
}

/// A process that ends with this value.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // php-fpm ends its processes.
        processes::signal(self.0.id(), Signal::TERM);
        wait::until(LIMIT, || self.0.try_wait().unwrap().is_some());
    }
}

/// One of the nodes.
struct Node {
    machine: &'static str,
    site: Site,
    server: Option<Server>,
}

impl Node {
    fn new(machine: &'static str) -> Self {
        let site = Site::with("session.php", PAGE);
        let config = block("toml").replace("/srv/shop", site.root().to_str().unwrap());
        site.write_at(site.outside("sendoff.toml"), config);
        Self { machine, site, server: None }
    }

    fn start(&mut self, network: &Network) {
        let config = self.site.outside("sendoff.toml");
        let server = Server::try_run_by(network.on(self.machine), &config, self.site.root(), 0);
        self.server = Some(server.unwrap_or_else(|failed| panic!("{failed:#?}")));
        self.site.write("ready", "yes");
    }

    fn stop(&mut self) {
        let server = self.server.take().unwrap();
        server.signal(Signal::TERM);
        let (status, log) = server.await_end();
        assert!(status.success(), "{status}: {log}");
    }
}

/// The state of a node and its number of sessions, according to HAProxy.
fn state(socket: &Path, node: &str) -> (String, String) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"show stat\n").unwrap();
    let mut table = String::new();
    stream.read_to_string(&mut table).unwrap();
    let line = table.lines().find(|line| line.starts_with(&format!("sendoff,{node},")));
    let words: Vec<_> = line.unwrap().split(',').collect();
    (words[17].to_owned(), words[4].to_owned())
}

#[test]
#[ignore = "heavy: HAProxy, Redis and php-fpm in network namespaces"]
fn scaling_a_rolling_restart_loses_nothing_as_root() {
    let network = Network::new();
    let folder = Site::new();
    let mut redis = network.on("redis");
    redis.args(["redis-server", "--bind", "10.0.0.31", "--protected-mode", "no", "--save", ""]);
    let _redis = Running::start(redis.current_dir(folder.root()));
    // Each PHP host has the files of both nodes, which differ only in their paths.
    let mut nodes = ["node1", "node2"].map(Node::new);
    let _php: Vec<_> = ["php1", "php2"]
        .into_iter()
        .map(|machine| {
            let log = folder.outside(machine).display().to_string();
            let pool = format!("[global]\nerror_log = {log}\ndaemonize = no\n{}", block("ini"));
            let pool = folder.write_at(folder.outside(&format!("{machine}.conf")), pool);
            let mut command = network.on(machine);
            command.arg("/usr/sbin/php-fpm8.2").args(["-d", "extension=igbinary.so"]);
            Running::start(command.args(["-d", "extension=redis.so", "-F", "-y"]).arg(pool))
        })
        .collect();
    nodes.iter_mut().for_each(|node| node.start(&network));
    let socket = folder.outside("admin.sock");
    let config = block("haproxy").replace("/run/haproxy/admin.sock", socket.to_str().unwrap());
    let config = folder.write_at(folder.outside("haproxy.cfg"), config);
    let mut haproxy = network.on("balancer");
    let _haproxy = Running::start(haproxy.args(["haproxy", "-db", "-f"]).arg(config));
    wait::for_some("HAProxy", || UnixStream::connect(&socket).ok());
    let is = |node: &str, wanted: &str| state(&socket, node).0.starts_with(wanted);
    assert!(wait::until(LIMIT, || is("node1", "UP") && is("node2", "UP")));

    let script = folder.write_at(folder.outside("client.py"), CLIENT);
    let mut client = network
        .on("balancer")
        .arg("/usr/bin/python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..2 {
        for node in &mut nodes {
            fs::remove_file(node.site.path("ready")).unwrap();
            let drained = || state(&socket, node.machine) == ("NOLB".to_owned(), "0".to_owned());
            assert!(wait::until(LIMIT, drained), "{:?}", state(&socket, node.machine));
            node.stop();
            assert!(wait::until(LIMIT, || is(node.machine, "DOWN")));
            node.start(&network);
            assert!(wait::until(LIMIT, || is(node.machine, "UP")));
        }
    }
    drop(client.stdin.take());
    let seen = client.wait_with_output().unwrap();
    let seen = String::from_utf8(seen.stdout).unwrap();
    let lines: Vec<_> = seen.lines().collect();
    println!("{seen}");
    assert_eq!(lines[0], "2 nodes", "{seen}");
    let requests: usize = lines[1].split(' ').next().unwrap().parse().unwrap();
    assert!(requests > 100, "{seen}");
}
