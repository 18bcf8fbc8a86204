//! Exhausted resources of the machine: one request is refused or lost, the log says why, all other
//! requests are served, and the server recovers by itself when there is room again.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use sendoff_tests::{Client, LIMIT, Request, Server, Site, dies_with_us, processes, wait};

const COUNT: &str = "<?php echo strlen(file_get_contents('php://input'));";

/// A server whose access log and temporary files are on a file system of 4 MiB, in a mount
/// namespace of its own; and the path of that file system.
fn on_a_small_disk(site: &Site) -> (Server, PathBuf) {
    let folder = site.outside("small");
    fs::create_dir(&folder).unwrap();
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\naccess_log = '{}/access.log'\n[[pool]]\nworkers = 2\n\
         php_ini = {{ post_max_size = '100M' }}\n[[site]]\nroot = 'root'\n",
        folder.display()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut command = dies_with_us(Path::new("unshare"), "KILL");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=4m,mode=1777 tmpfs \"$0\" && exec \"$@\"");
    command.arg(&folder).env("TMPDIR", &folder);
    let server = Server::try_run_by(command, &config, site.root(), 2).unwrap();
    let seen = folder.strip_prefix("/").unwrap();
    let seen = Path::new(&format!("/proc/{}/root", server.pid())).join(seen);
    (server, seen)
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn a_full_disk_costs_large_bodies_and_lines_of_logs_as_root() {
    let site = Site::with("count.php", COUNT);
    let (server, disk) = on_a_small_disk(&site);
    let post = |megabytes: usize| {
        server.ask(&Request::post("/count.php", "text/plain", vec![b'x'; megabytes << 20]))
    };
    assert_eq!(post(2).text(), (2 << 20).to_string());
    assert_eq!(post(8).status(), 507);
    let mut filler = fs::File::create(disk.join("filler")).unwrap();
    let full = std::iter::repeat_with(|| filler.write_all(&[0; 4096])).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), ErrorKind::StorageFull);
    assert_eq!(post(2).status(), 507);
    // The last page of the log has room for some lines.
    let refused = "an access log cannot be written, lines are lost";
    assert!(wait::until(LIMIT, || {
        assert_eq!(post(0).text(), "0");
        server.log().contains(refused)
    }));
    fs::remove_file(disk.join("filler")).unwrap();
    drop(filler);
    assert_eq!(post(2).text(), (2 << 20).to_string());
    let log = || fs::read_to_string(disk.join("access.log")).unwrap();
    assert!(
        wait::until(LIMIT, || {
            assert_eq!(server.get("/count.php?again").text(), "0");
            log().contains("GET /count.php?again HTTP/1.1\" 200")
        }),
        "{}",
        log()
    );
    // The line that the disk had no room for ends before the next.
    let begins = |line: &str| line.matches("127.0.0.1 - - [").count();
    assert!(log().lines().all(|line| begins(line) == 1), "{}", log());
}

/// PHP keeps a body of more than 16 KiB in a temporary file of its own (docs/operate.md).
#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn a_body_for_which_php_has_no_room_is_empty_as_with_php_fpm_as_root() {
    let site = Site::with("count.php", COUNT);
    let folder = site.outside("full");
    fs::create_dir(&folder).unwrap();
    let text = format!(
        "listen = '127.0.0.1:0'\n[[pool]]\nworkers = 1\nphp_ini = {{ upload_tmp_dir = '{0}', sys_temp_dir = '{0}' }}\n\
         [[site]]\nroot = 'root'\n",
        folder.display()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut command = dies_with_us(Path::new("unshare"), "KILL");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    // The folder takes one page.
    command.arg("mount -t tmpfs -o size=4k,mode=1777 tmpfs \"$0\" && exec \"$@\"").arg(&folder);
    let server = Server::try_run_by(command, &config, site.root(), 1).unwrap();
    let post =
        |length| server.ask(&Request::post("/count.php", "text/plain", vec![b'x'; length])).text();
    assert_eq!([post(16_000), post(40_000)], ["16000", "0"]);
    server.await_log("POST data can't be buffered; all data discarded");
}

const KIBIBYTES: usize = 16 * 1024;

/// A generated page of 16 MiB, more than any of the small disks has room for.
const LARGE: &str =
    "<?php for ($i = 0; $i < 16384; $i++) echo str_repeat(chr(97 + $i % 26), 1024);";

/// A client that takes nothing for a while gets the whole page afterwards, and other clients are
/// served meanwhile.
fn a_slow_client_gets_its_page(server: &Server, wait_for: &str) {
    let mut slow = Client::connect_narrow(server.addr(), 4096);
    slow.send(Request::get("/large.php").bytes());
    server.await_log(wait_for);
    assert_eq!(server.get("/count.php").text(), "0");
    let page = slow.response("GET").expect(200).to_vec();
    assert_eq!(page.len(), KIBIBYTES << 10);
    let letters = page.chunks(1024).zip((b'a'..=b'z').cycle());
    for (number, (piece, letter)) in letters.enumerate() {
        assert!(piece.iter().all(|byte| *byte == letter), "piece {number}");
    }
}

const STUCK: &str = "cannot be written to a temporary file; applications wait for these clients";

#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn pages_wait_in_their_workers_for_slow_clients_while_the_disk_is_full_as_root() {
    let site = Site::with("count.php", COUNT);
    site.write("large.php", LARGE);
    let (server, _disk) = on_a_small_disk(&site);
    // The page itself fills the disk.
    a_slow_client_gets_its_page(&server, STUCK);
    // The spool's room is free again.
    let body = vec![b'x'; 2 << 20];
    assert_eq!(server.ask(&Request::post("/count.php", "text/plain", body)).text(), "2097152");
    assert_eq!(server.log().matches(STUCK).count(), 1, "once in a while");
}

/// The signal that comes with `RLIMIT_FSIZE` would end the front.
#[test]
fn so_they_do_where_files_may_not_grow() {
    let site = Site::with("count.php", COUNT);
    site.write("large.php", LARGE);
    let text = "listen = '127.0.0.1:0'\nthreads = 1\naccess_log = 'access.log'\n[[pool]]\nworkers = 2\n\
                php_ini = { post_max_size = '100M' }\n[[site]]\nroot = 'root'\n";
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut command = dies_with_us(Path::new("prlimit"), "KILL");
    command.arg("--fsize=4194304:4194304");
    let server = Server::try_run_by(command, &config, site.root(), 2).unwrap();
    let front = server.front();
    a_slow_client_gets_its_page(&server, STUCK);
    let post = |megabytes: usize| {
        server.ask(&Request::post("/count.php", "text/plain", vec![b'x'; megabytes << 20]))
    };
    assert_eq!(post(2).text(), "2097152");
    assert_eq!(post(8).status(), 507);
    assert_eq!(server.front(), front, "it is still the same process");
}

/// A control group with a memory limit for all its processes. It is removed when the value is
/// dropped.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new(bytes: u64) -> Self {
        let groups = Path::new("/sys/fs/cgroup");
        let first = groups.join("memory");
        let (parent, limit) = if first.is_dir() {
            (first, "memory.limit_in_bytes")
        } else {
            (groups.to_owned(), "memory.max")
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let group = parent.join(format!("sendoff-test-{}-{number}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let group = Self(group);
        fs::write(group.0.join(limit), bytes.to_string()).unwrap();
        group
    }

    /// The log's reason for the end of a process in this group. The server was started outside of
    /// it, so it uses the machine's count; with version 2 the count of its own group, which has no
    /// events.
    fn reason(&self) -> &'static str {
        match self.0.parent() {
            Some(parent) if parent.ends_with("memory") => ": perhaps the kernel had no memory left",
            _ => "",
        }
    }

    fn take(&self, process: u32) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Its last process may not have been reaped yet.
        assert!(wait::until(LIMIT, || fs::remove_dir(&self.0).is_ok()) || std::thread::panicking());
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: control groups")]
fn a_worker_without_memory_is_named_and_replaced_as_root() {
    let site = Site::with("much.php", "<?php echo strlen(str_repeat('x', 400 << 20));");
    site.write("ok.php", "<?php echo 'ok';");
    let server = Server::start(site.root(), &["--workers", "2", "--php-ini", "memory_limit=-1"]);
    let workers = server.workers();
    let group = MemoryGroup::new(100 << 20);
    workers.iter().for_each(|worker| group.take(*worker));
    assert_eq!(server.get("/much.php").status(), 502);
    server.await_log(&format!("was killed by signal 9{}", group.reason()));
    assert!(wait::until(LIMIT, || server.workers().iter().any(|worker| !workers.contains(worker))));
    assert_eq!(server.page("/ok.php"), "ok");
    // Ends the processes in the group, so that it can be removed.
    server.workers().iter().for_each(|worker| processes::signal(*worker, Signal::KILL));
    server.await_replacement(&workers);
    assert!(!server.log().contains("the front ended"), "{}", server.log());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: control groups")]
fn a_front_without_memory_is_named_and_replaced_as_root() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let server = Server::start(site.root(), &["--workers", "2"]);
    let front = server.front();
    // The memory that the front has already is charged to its old group.
    let group = MemoryGroup::new(512 << 10);
    group.take(front);
    let mut clients = Vec::new();
    assert!(wait::until(LIMIT, || {
        for _ in 0..32 {
            // A request whose head does not end.
            let Ok(mut client) = TcpStream::connect(server.addr()) else { continue };
            let _ = client.write_all(b"GET /ok.php HTTP/1.1\r\nHost: a\r\nX: ");
            clients.push(client);
        }
        !processes::runs(front)
    }));
    drop(clients);
    server.await_log(&format!("the front ended (signal: 9 (SIGKILL)){}", group.reason()));
    server.await_page("/ok.php", "ok");
    assert_ne!(server.front(), front);
    assert!(wait::until(LIMIT, || server.workers().len() == 2), "{:?}", server.workers());
}

#[test]
fn a_pool_that_cannot_start_costs_its_own_sites_alone() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let boot = site.write("broken.php", "<?php exit(1);");
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nname = 'sound'\nworkers = 2\n\
         [[pool]]\nname = 'broken'\nphp_worker = '{}'\nworkers = 1\n\
         [[site]]\nhosts = 'sound.test'\nroot = 'root'\npool = 'sound'\n\
         [[site]]\nhosts = 'broken.test'\nroot = 'root'\npool = 'broken'\n",
        boot.display()
    );
    let config = site.write_at(site.outside("sendoff.toml"), text);
    let mut server = Server::try_run(&config, site.root(), 2).unwrap();
    // The worker that boots in the end.
    server.expect_linked_processes(1);
    let ask = |host, target| server.ask(&Request::get(target).header("Host", host));
    assert_eq!(ask("sound.test", "/ok.php").text(), "ok");
    server.await_log("its script has not booted");
    assert_eq!(ask("broken.test", "/page").status(), 503);
    assert_eq!(ask("sound.test", "/ok.php").text(), "ok");
    fs::write(&boot, "<?php while (sendoff_handle_request(function () { echo 'repaired'; })) {}")
        .unwrap();
    assert!(wait::until(LIMIT, || ask("broken.test", "/page").text() == "repaired"));
}
