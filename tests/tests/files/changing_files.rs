//! Files that change while slow clients download them: each complete response is one version of the
//! file, and each cut response is the beginning of one version, as `docs/snapshot.md` promises.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Extended, Head, LIMIT, Request, Server, Site, dies_with_us, pattern, processes,
    wait,
};

/// The longest time for which the snapshot guard may hold a writer (`docs/handover.md` §3):
/// `USUALLY` while at most 4 MB are in flight.
const USUALLY: Duration = Duration::from_millis(200);
const AT_MOST: Duration = Duration::from_secs(5);

const KB: usize = 1000;
const MB: usize = 1000 * KB;
const SIZES: [usize; 5] = [100 * KB, MB, 4 * MB, 8 * MB, 20 * MB];

const SCRIPT: &str = "<?php echo file_get_contents($_GET['f']);";

/// A way in which a writer gives a file new contents.
type Change = fn(&Path, &[u8]) -> io::Result<()>;
const CHANGES: [(&str, Change); 5] = [
    ("overwrites", |path, new| OpenOptions::new().write(true).open(path)?.write_all_at(new, 0)),
    ("reads and overwrites", |path, new| {
        OpenOptions::new().read(true).write(true).open(path)?.write_all_at(new, 0)
    }),
    ("truncates", |path, new| fs::write(path, new)),
    ("appends", |path, new| OpenOptions::new().append(true).open(path)?.write_all(new)),
    ("renames over it", |path, new| {
        let other = path.with_extension("new");
        fs::write(&other, new)?;
        fs::rename(other, path)
    }),
];

/// Connects a client, in the network that the scenario is about.
type Connect<'a> = &'a dyn Fn() -> Client;

fn site() -> Site {
    Site::with("page.php", SCRIPT)
}

fn start(site: &Site, options: &[&str]) -> Server {
    // No client may be cut because it is slow.
    let always = ["--workers", "2", "--send-timeout", "600", "--php-ini", "memory_limit=256M"];
    Server::start(site.root(), &[&always[..], options].concat())
}

/// Requests a file and reads only the head of the response.
fn ask(connect: Connect<'_>, name: &str) -> (Client, Head) {
    let mut client = connect();
    client.send(Request::get(&format!("/page.php?f={name}")).bytes());
    let head = client.head().unwrap();
    (client, head)
}

/// Changes a file that `downloads` clients are receiving; they continue to read only after the
/// change.
fn pause(connect: Connect<'_>, site: &Site, size: usize, change: usize, downloads: usize) {
    let (what, change) = CHANGES[change];
    let case = format!("{downloads} clients pause at {size} bytes, the writer {what}");
    let (old, new) = (pattern(1, size), pattern(2, size));
    let name = format!("{size}-{downloads}-{}", what.replace(' ', "-"));
    let path = site.write(&name, &old);
    let clients: Vec<_> = (0..downloads).map(|_| ask(connect, &name)).collect();
    check_held(&case, size, || change(&path, &new).unwrap());
    for (mut client, head) in clients {
        right_or_cut(&case, client.body_of(head, "GET"), &old, size);
    }
    let (mut client, head) = ask(connect, &name);
    let now = fs::read(&path).unwrap();
    let response = client.body_of(head, "GET").unwrap();
    assert!(response.expect(200) == now, "{case}: the next response is not the new version");
    fs::remove_file(path).unwrap();
}

#[track_caller]
fn check_held(case: &str, size: usize, change: impl FnOnce()) {
    let start = Instant::now();
    change();
    let held = start.elapsed();
    let limit = wait::emulated(if size <= 4 * MB { USUALLY } else { AT_MOST });
    println!("{case}: the writer was held for {held:?}");
    assert!(held < limit, "{case}");
}

#[track_caller]
fn right_or_cut(
    case: &str,
    response: Result<sendoff_tests::Response, Broken>,
    version: &[u8],
    size: usize,
) {
    match response {
        Ok(response) => {
            let body = response.expect(200);
            if body != version {
                let wrong = body.iter().zip(version).filter(|(is, should)| is != should).count();
                panic!("{case}: {wrong} of {size} bytes are wrong");
            }
        }
        Err(Broken::Cut(part)) => {
            assert!(version.starts_with(&part.body), "{case}: wrong bytes before the cut");
            panic!("{case}: cut after {} bytes, though the file could be copied", part.body.len());
        }
        Err(broken) => panic!("{case}: {broken:?}"),
    }
}

/// A client that takes `rate` bytes per second.
fn crawl(client: &mut Client, rate: usize, size: usize) {
    const STEP: Duration = Duration::from_millis(20);
    let start = Instant::now();
    for taken in (0..size).step_by(rate / 50) {
        client.read_some(rate / 50);
        let due = STEP * u32::try_from(taken / (rate / 50)).unwrap();
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

/// As [`pause`] for a client that never pauses, but is slow.
fn crawling(connect: Connect<'_>, site: &Site, size: usize, rate: Option<usize>) {
    let case = format!("a client takes {size} bytes slowly");
    let (old, new) = (pattern(1, size), pattern(2, size));
    let name = format!("slow-{size}");
    let path = site.write(&name, &old);
    let (mut client, head) = ask(connect, &name);
    check_held(&case, size, || CHANGES[0].1(&path, &new).unwrap());
    if let Some(rate) = rate {
        crawl(&mut client, rate, size);
    }
    right_or_cut(&case, client.body_of(head, "GET"), &old, size);
}

#[test]
fn clients_that_pause() {
    let site = site();
    let server = start(&site, &[]);
    let narrow: Connect<'_> = &|| Client::connect_narrow(server.addr(), 16 * 1024);
    let wide: Connect<'_> = &|| server.connect();
    for size in SIZES {
        for change in 0..CHANGES.len() {
            for connect in [narrow, wide] {
                let downloads = if size > 8 * MB { 1 + change % 2 } else { 1 + 2 * (change % 2) };
                pause(connect, &site, size, change, downloads);
            }
        }
        // Overwriting in place, which changes pages in flight, with and without a copy in the
        // front.
        pause(narrow, &site, size, 0, 3);
        pause(wide, &site, size, 0, 3);
    }
    no_complaints(&server);
}

/// In every delivery mode, with enough generated bytes around the file to use shared memory or the
/// client's socket.
#[test]
fn every_delivery_mode() {
    for delivery in ["relay", "file", "region", "direct"] {
        for around in [0, 300 * KB] {
            // It has read the file when its first byte arrives.
            let script = "<?php $s = str_repeat('.', AROUND);
                $f = file_get_contents($_GET['f']); echo $s, $f, $s;";
            let site = Site::with("page.php", &script.replace("AROUND", &around.to_string()));
            let server = start(&site, &["--delivery", delivery, "--threads", "2"]);
            for size in [100 * KB, 4 * MB, 20 * MB] {
                let case = format!("{delivery}, {size} bytes in {around}");
                let (old, new) = (pattern(1, size), pattern(2, size));
                let path = site.write("f", &old);
                let connect = || Client::connect_narrow(server.addr(), 16 * 1024);
                let clients: Vec<_> = (0..3).map(|_| ask(&connect, "f")).collect();
                check_held(&case, size, || CHANGES[0].1(&path, &new).unwrap());
                let dots = vec![b'.'; around];
                let expected = [&dots, &old, &dots].map(Vec::as_slice).concat();
                for (mut client, head) in clients {
                    right_or_cut(&case, client.body_of(head, "GET"), &expected, size);
                }
            }
            no_complaints(&server);
        }
    }
}

/// php-fpm with `sendoff.so` behind our front: files come on links opened by php-fpm's processes.
#[test]
fn files_that_php_fpm_hands_over() {
    let extended = Extended::start(site(), "", &["--send-timeout", "600"]);
    let (server, site) = (&extended.server, &extended.site);
    let narrow: Connect<'_> = &|| Client::connect_narrow(server.addr(), 16 * 1024);
    for size in SIZES {
        let (response, (handed_over, _)) = {
            site.write("f", pattern(1, size));
            extended.counted("echo file_get_contents('f');")
        };
        assert!(response.expect(200) == pattern(1, size));
        assert_eq!(handed_over, size as u64);
        for downloads in [1, 3] {
            pause(narrow, site, size, 0, downloads);
        }
        pause(narrow, site, size, 2, 1);
    }
    crawling(&|| server.connect(), site, 500 * KB, Some(250 * KB));
    no_complaints(server);
}

#[test]
fn clients_that_crawl() {
    let site = site();
    let server = start(&site, &[]);
    thread::scope(|scope| {
        for size in [500 * KB, 2 * MB] {
            let (server, site) = (&server, &site);
            scope.spawn(move || crawling(&|| server.connect(), site, size, Some(250 * KB)));
        }
    });
    no_complaints(&server);
}

#[test]
#[ignore = "heavy: make test-heavy; 20 MB at 250 KB/s take 80 s"]
fn clients_that_crawl_for_long() {
    let site = site();
    let server = start(&site, &[]);
    thread::scope(|scope| {
        for size in SIZES {
            let (server, site) = (&server, &site);
            scope.spawn(move || crawling(&|| server.connect(), site, size, Some(250 * KB)));
        }
    });
    no_complaints(&server);
}

#[test]
fn clients_that_stop_for_ever() {
    let site = site();
    let server = start(&site, &[]);
    let mut stopped = Vec::new();
    for size in SIZES {
        let path = site.write(&size.to_string(), pattern(0, size));
        let connect = || Client::connect_narrow(server.addr(), 16 * 1024);
        for version in 1..6 {
            stopped.push(ask(&connect, &size.to_string()));
            let case = format!("{} clients have stopped", stopped.len());
            check_held(&case, size, || CHANGES[0].1(&path, &pattern(version, size)).unwrap());
        }
        let (mut client, head) = ask(&|| server.connect(), &size.to_string());
        right_or_cut("a client reads", client.body_of(head, "GET"), &pattern(5, size), size);
    }
    no_complaints(&server);
}

/// A script that sends the same 20 MB repeatedly to a client that reads nothing, until the front
/// stops reading the link and the script blocks.
struct UnreadLink {
    /// It leaves before the server ends.
    client: Client,
    server: Server,
    head: Head,
    path: PathBuf,
    old: Vec<u8>,
    worker: u32,
    _site: Site,
}

impl UnreadLink {
    const SIZE: usize = 20 * MB;

    fn new() -> Self {
        let script = "<?php
            $s = file_get_contents('f');
            file_put_contents('worker', getmypid());
            $i = 0;
            while (true) { echo $s; if (++$i % 100 === 0) file_put_contents('written', $i); }";
        let site = Site::with("page.php", script);
        let old = pattern(1, Self::SIZE);
        let (path, written) = (site.write("f", &old), site.write("written", ""));
        let worker = site.write("worker", "");
        let server = start(&site, &["--php-ini", "max_execution_time=0"]);
        let connect = || Client::connect_narrow(server.addr(), 16 * 1024);
        let (client, head) = ask(&connect, "f");
        let mut so_far = (String::new(), Instant::now());
        // Shorter than this it may be at work on the next hundred.
        let blocked = wait::emulated(Duration::from_millis(500));
        while so_far.0.is_empty() || so_far.1.elapsed() < blocked {
            let now = fs::read_to_string(&written).unwrap();
            if now != so_far.0 {
                so_far = (now, Instant::now());
            }
            thread::yield_now();
        }
        let worker = fs::read_to_string(worker).unwrap().parse().unwrap();
        Self { client, server, head, path, old, worker, _site: site }
    }

    fn overwrite(&self, case: &str) {
        let new = pattern(2, Self::SIZE);
        check_held(case, Self::SIZE, || CHANGES[0].1(&self.path, &new).unwrap());
    }
}

/// The worker's `RECALL` lies behind records that the front does not read.
#[test]
fn a_recall_behind_a_link_that_is_not_read() {
    let mut unread = UnreadLink::new();
    unread.overwrite("an unread link");
    // The script's private copy, and the output that waits.
    let memory = processes::private_memory(unread.worker);
    assert!(memory < 300 << 20, "the worker takes {memory} bytes");
    match unread.client.body_of(unread.head, "GET") {
        Err(Broken::Cut(part)) => {
            assert!(unread.old.starts_with(&part.body), "wrong bytes before the cut");
        }
        other => panic!("{:?}", other.map(|response| response.body.len())),
    }
}

/// The front has to notice although it does not read the link.
#[test]
fn a_worker_that_dies_while_its_link_is_not_read() {
    let mut unread = UnreadLink::new();
    processes::signal(unread.worker, Signal::KILL);
    unread.overwrite("a dead worker");
    let mut expected = unread.old.iter().cycle();
    for _ in 0..3 {
        let chunk = unread.client.chunk();
        assert!(!chunk.is_empty() && chunk.iter().all(|is| Some(is) == expected.next()));
    }
    no_complaints(&unread.server);
}

/// The worker's `RECALL` will never be answered.
#[test]
fn a_front_that_dies_while_a_link_is_not_read() {
    let unread = UnreadLink::new();
    let front = unread.server.front();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let start = Instant::now();
            CHANGES[0].1(&unread.path, &pattern(2, UnreadLink::SIZE)).unwrap();
            start.elapsed()
        });
        let inode = format!(":{} ", fs::metadata(&unread.path).unwrap().ino());
        let breaking = || {
            let locks = fs::read_to_string("/proc/locks").unwrap();
            locks.lines().any(|lock| lock.contains(&inode) && lock.contains("BREAKING"))
        };
        assert!(wait::until(LIMIT, breaking));
        processes::signal(front, Signal::KILL);
        let held = writer.join().unwrap();
        println!("a dead front: the writer was held for {held:?}");
        assert!(held < wait::emulated(AT_MOST / 2), "{held:?}");
    });
    assert!(wait::until(LIMIT, || unread.server.front() != front));
}

/// The worker copies a file that its script still holds.
#[test]
#[ignore = "heavy: make test-heavy; takes 2 GiB of memory"]
fn a_script_that_holds_a_gigabyte() {
    let script = "<?php
        $s = file_get_contents('f');
        file_put_contents('has-read', 'yes');
        file_get_contents('go-on');
        echo strlen($s), ord($s[12345]), ord($s[strlen($s) - 1]);";
    let site = Site::with("page.php", script);
    let (has_read, go_on) = (site.fifo("has-read"), site.fifo("go-on"));
    let path = site.write("f", [b'a'; 20_000]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    drop(file);
    let server = start(&site, &[]);
    let mut client = server.connect();
    client.send(Request::get("/page.php").bytes());
    has_read.await_script();
    check_held("a gigabyte", 1 << 30, || CHANGES[0].1(&path, &[b'b'; 20_000]).unwrap());
    go_on.release();
    assert_eq!(client.response("GET").text(), "1073741824970");
}

/// The worker makes one copy of the file for the script that still holds it, and one of the part
/// that waits to be sent, both within 4 s: some virtual machines take longer for twice a gigabyte.
#[test]
#[ignore = "heavy: make test-heavy; takes 2 GiB of memory"]
fn a_script_that_has_written_half_a_gigabyte() {
    let script = "<?php
        echo file_get_contents('f');
        file_put_contents('has-written', 'yes');
        file_get_contents('go-on');";
    let site = Site::with("page.php", script);
    let (has_written, go_on) = (site.fifo("has-written"), site.fifo("go-on"));
    let path = site.write("f", [b'a'; 20_000]);
    let size = 1 << 29;
    OpenOptions::new().write(true).open(&path).unwrap().set_len(size).unwrap();
    let server = start(&site, &[]);
    let mut client = server.connect();
    client.send(Request::get("/page.php").bytes());
    has_written.await_script();
    check_held("half a gigabyte, written", 1 << 29, || {
        CHANGES[0].1(&path, &[b'b'; 20_000]).unwrap();
    });
    go_on.release();
    let body = client.response("GET").body;
    assert_eq!(body.len() as u64, size);
    assert!(body[..20_000] == [b'a'; 20_000] && body[20_000..].iter().all(|byte| *byte == 0));
    no_complaints(&server);
}

/// Clients behind a veth pair, whose receive queues the server cannot see.
#[test]
fn clients_in_another_network() {
    with_own_network("clients_in_another_network", |network| {
        let site = site();
        let server = start(&site, &["--listen", "10.99.0.1:0"]);
        let connect = || network.connect(server.addr());
        for size in SIZES {
            pause(&connect, &site, size, 0, 1);
            pause(&connect, &site, size, 0, 3);
            pause(&connect, &site, size, 2, 1);
        }
        network.limit("1mbit");
        // 8 s.
        crawling(&connect, &site, MB, None);
        no_complaints(&server);
    });
}

#[test]
#[ignore = "heavy: make test-heavy; 4 MB at 1 Mbit/s take 34 s"]
fn clients_on_a_slow_line() {
    with_own_network("clients_on_a_slow_line", |network| {
        let site = site();
        let server = start(&site, &["--listen", "10.99.0.1:0"]);
        network.limit("1mbit");
        for size in [100 * KB, MB, 4 * MB] {
            crawling(&|| network.connect(server.addr()), &site, size, None);
        }
        no_complaints(&server);
    });
}

#[track_caller]
fn no_complaints(server: &Server) {
    let log = server.log();
    for complaint in ["RECALL", "is lost", "ending"] {
        assert!(!log.contains(complaint), "{log}");
    }
}

/// A second network namespace, joined to ours by a veth pair, as long as the value lives.
struct Network {
    holder: Child,
}

impl Network {
    fn new() -> io::Result<Self> {
        let mut holder = dies_with_us(Path::new("unshare"), "KILL");
        holder.arg("--net");
        // It says when it is there, and ends with its input.
        holder.args(["sh", "-c", "echo there; exec cat"]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut there = [0; 6];
        io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut there)?;
        let network = Self { holder };
        let pid = network.holder.id().to_string();
        ip(&["link", "set", "lo", "up"])?;
        ip(&["link", "add", "here", "type", "veth", "peer", "name", "there", "netns", &pid])?;
        ip(&["addr", "add", "10.99.0.1/24", "dev", "here"])?;
        ip(&["link", "set", "here", "up"])?;
        for command in
            [&["addr", "add", "10.99.0.2/24", "dev", "there"][..], &["link", "set", "there", "up"]]
        {
            run(Command::new("nsenter").args(["-t", &pid, "-n", "ip"]).args(command))?;
        }
        Ok(network)
    }

    /// Limits the rate of bytes to the clients.
    fn limit(&self, rate: &str) {
        let tbf = ["qdisc", "add", "dev", "here", "root", "tbf", "rate", rate];
        run(Command::new("tc").args(tbf).args(["burst", "32kbit", "latency", "400ms"])).unwrap();
    }

    /// A client in the other namespace.
    fn connect(&self, server: SocketAddr) -> Client {
        let namespace = fs::File::open(format!("/proc/{}/ns/net", self.holder.id())).unwrap();
        // A socket belongs to the namespace that its thread was in when the socket was created.
        let connect = thread::spawn(move || {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), network).unwrap();
            Client::connect(server)
        });
        connect.join().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ended = self.holder.wait();
    }
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> io::Result<()> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(io::Error::other(format!("{command:?}: {why}")))
}

/// Runs a scenario in its own process with its own network namespace. `test`: the name of the test.
fn with_own_network(test: &str, scenario: impl FnOnce(&Network)) {
    const INSIDE: &str = "SENDOFF_OWN_NETWORK";
    if !rustix::process::getuid().is_root() {
        eprintln!("ignored: only root can make network namespaces");
    } else if std::env::var_os(INSIDE).is_some() {
        match Network::new() {
            Ok(network) => scenario(&network),
            Err(error) => eprintln!("ignored: this kernel makes no veth pair: {error}"),
        }
    } else {
        let mut unshare = Command::new("unshare");
        unshare.arg("--net").arg(std::env::current_exe().unwrap()).env(INSIDE, "");
        let status = unshare.args(["--exact", test, "--nocapture", "--include-ignored"]).status();
        assert!(status.unwrap().success());
    }
}
