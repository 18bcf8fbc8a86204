//! What the machine can run out of: one request is refused or lost, the log says why, the rest serves, and when there is room again
//! nothing has to be done.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, dies_with_us, processes, wait};

const COUNT: &str = "<?php echo strlen(file_get_contents('php://input'));";

/// A server whose access log and temporary files are on a file system of 4 MiB, which only its processes see; and that file system.
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
fn a_full_disk_costs_large_bodies_and_lines_of_logs() {
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
}

/// A control group whose processes may have so much memory in all. It is removed when the value is dropped.
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
        let group = parent.join(format!("sendoff-test-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let group = Self(group);
        fs::write(group.0.join(limit), bytes.to_string()).unwrap();
        group
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
fn a_worker_without_memory_is_named_and_replaced() {
    let site = Site::with("much.php", "<?php echo strlen(str_repeat('x', 400 << 20));");
    site.write("ok.php", "<?php echo 'ok';");
    let server = Server::start(site.root(), &["--workers", "2", "--php-ini", "memory_limit=-1"]);
    let workers = server.workers();
    let group = MemoryGroup::new(100 << 20);
    workers.iter().for_each(|worker| group.take(*worker));
    assert_eq!(server.get("/much.php").status(), 502);
    server.await_log("was killed by signal 9: the kernel had no memory left");
    assert!(wait::until(LIMIT, || server.workers().iter().any(|worker| !workers.contains(worker))));
    assert_eq!(server.page("/ok.php"), "ok");
    // What is left in the group ends, so that it can be removed.
    server.workers().iter().for_each(|worker| processes::signal(*worker, Signal::KILL));
    server.await_replacement(&workers);
    assert!(!server.log().contains("the front ended"), "{}", server.log());
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: control groups")]
fn a_front_without_memory_is_named_and_replaced() {
    let site = Site::with("ok.php", "<?php echo 'ok';");
    let server = Server::start(site.root(), &["--workers", "2"]);
    let front = server.front();
    // What it has already is counted elsewhere.
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
    server.await_log("the front ended (signal: 9 (SIGKILL)): the kernel had no memory left");
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
