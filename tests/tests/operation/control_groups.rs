//! Limits of all processes of a pool together. On a kernel that accounts memory in control groups
//! of version 1, `tools/ktls` runs these tests in a virtual machine (tools/test-heavy calls it).

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Server, Site, dies_with_us, processes, sendoff, wait};

/// The mount point of control groups, in the virtual machine and on most systems.
const GROUPS: &str = "/sys/fs/cgroup";

/// A control group that is delegated as systemd does it. It is removed on drop, and must then be
/// empty.
struct Delegated(PathBuf);

impl Delegated {
    fn new(name: &str) -> Self {
        let groups = Path::new(GROUPS);
        fs::write(groups.join("cgroup.subtree_control"), "+memory +cpu +pids").unwrap();
        let group = groups.join(format!("sendoff-test-{}-{name}", std::process::id()));
        fs::create_dir(&group).unwrap();
        Self(group)
    }

    fn start(&self, site: &Site, pool: &str) -> Server {
        let mut command = dies_with_us(Path::new("sh"), "KILL");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        Server::try_run_by(command, &config(site, pool), site.root(), 2).unwrap()
    }

    fn processes(&self, group: &str) -> Vec<u32> {
        let listed = fs::read_to_string(self.0.join(group).join("cgroup.procs")).unwrap();
        listed.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn value(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap().trim_end().to_owned()
    }

    fn folders(&self) -> Vec<String> {
        let all = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let folders = all.filter(|entry| entry.file_type().unwrap().is_dir());
        let mut names: Vec<_> =
            folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        // Its last process may not have been reaped yet.
        assert!(wait::until(LIMIT, || fs::remove_dir(&self.0).is_ok()) || std::thread::panicking());
    }
}

fn config(site: &Site, pool: &str) -> PathBuf {
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\n[[pool]]\nname = 'www'\nworkers = 2\n{pool}\n\
         [[site]]\nroot = 'root'\n[[site.route]]\npath = '/metrics'\nmetrics = true\n"
    );
    site.write_at(site.outside("sendoff.toml"), text)
}

fn site() -> Site {
    let site = Site::with("much.php", "<?php echo strlen(str_repeat('x', 400 << 20));");
    site.write("ok.php", "<?php echo 'ok';");
    site
}

const LIMITS: &str = "total_memory = '250M'\ntotal_cpu = '0.5'\ntotal_processes = 60\n\
                      php_ini = { memory_limit = '-1' }";

#[test]
#[ignore = "heavy: needs control groups of version 2 with controllers; tools/test-heavy has them in a virtual machine"]
fn a_pool_has_its_limits_and_what_exceeds_them_is_named_in_control_groups() {
    let (site, group) = (site(), Delegated::new("limits"));
    let server = group.start(&site, LIMITS);
    assert_eq!(group.value("pool-www/memory.max"), (250 << 20).to_string());
    assert_eq!(group.value("pool-www/cpu.max"), "50000 100000");
    assert_eq!(group.value("pool-www/pids.max"), "60");
    let inside = group.processes("pool-www");
    let workers = server.workers();
    assert!(workers.iter().all(|worker| inside.contains(worker)), "{inside:?}");
    assert!(inside.contains(&server.php_master()), "{inside:?}");
    let others = group.processes("sendoff-server");
    assert_eq!(others.len(), 2, "{others:?}");
    assert!(others.contains(&server.pid()) && others.contains(&server.front()), "{others:?}");

    assert_eq!(server.get("/much.php").status(), 502);
    server.await_log(
        "was killed by signal 9: the processes of the pool have used up their total_memory",
    );
    server.await_page("/ok.php", "ok");
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains(" of 262.1 MB of memory, "), "{status}");
    assert!(
        status.contains(" of 60 processes and threads, at most 0.5 processors, 1 process ended"),
        "{status}"
    );
    let metrics = server.page("/metrics");
    let count = "sendoff_pool_processes_out_of_memory_total{pool=\"www\"} 1\n";
    assert!(metrics.contains(count), "{metrics}");

    // A worker that was killed by hand does not count as out of memory.
    let workers = server.workers();
    processes::signal(workers[0], Signal::KILL);
    let line = format!("worker {} was killed by signal 9\n", workers[0]);
    server.await_log(&line);
    server.await_replacement(&workers[..1]);
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(group.folders(), [""; 0], "left behind");
}

#[test]
#[ignore = "heavy: needs control groups of version 2 with controllers; tools/test-heavy has them in a virtual machine"]
fn limits_outlive_reloads_and_upgrades_in_control_groups() {
    let (site, group) = (site(), Delegated::new("kept"));
    // The first configuration limits nothing: the server makes no groups.
    let server = group.start(&site, "");
    assert_eq!(group.folders(), [""; 0]);
    config(&site, "total_processes = 60");
    server.command(&["reload"]).unwrap();
    // Workers from before the reload may take a moment to end.
    let are_inside = || {
        let inside = group.processes("pool-www");
        server.workers().iter().all(|worker| inside.contains(worker))
    };
    assert!(wait::until(LIMIT, are_inside), "{:?}", group.processes("pool-www"));
    assert_eq!(group.value("pool-www/pids.max"), "60");
    config(&site, "total_processes = 61");
    server.command(&["reload"]).unwrap();
    assert!(wait::until(LIMIT, || group.folders() == ["pool-www.2", "sendoff-server"]));
    assert_eq!(group.value("pool-www.2/pids.max"), "61");
    let said = server.command(&["upgrade"]).unwrap();
    let words = said.strip_prefix("upgraded: process ").unwrap_or_else(|| panic!("{said}"));
    let new: u32 = words.split(' ').next().unwrap().parse().unwrap();
    let old = server.pid();
    assert!(wait::until(LIMIT, || !processes::runs(old)), "{}", server.log());
    assert_eq!(group.folders(), ["pool-www", "sendoff-server"]);
    assert_eq!(group.value("pool-www/pids.max"), "61");
    assert_eq!(group.processes("pool-www").len(), 3);
    let status = sendoff(site.root(), &["status"]).unwrap();
    assert!(status.contains(" of 61 processes and threads\n"), "{status}");
    processes::signal(new, Signal::TERM);
    assert!(wait::until(LIMIT, || !processes::runs(new)));
    let (status, log) = server.await_end();
    assert_eq!(status.code(), Some(0), "{log}");
    assert_eq!(group.folders(), [""; 0], "left behind");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: mounts")]
fn without_control_groups_the_server_says_so_and_serves_as_root() {
    let site = site();
    let mut command = dies_with_us(Path::new("unshare"), "KILL");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg("! mountpoint -q /sys/fs/cgroup || umount -R -l /sys/fs/cgroup; exec \"$@\"");
    command.arg("sh");
    let config = config(&site, "total_memory = '1G'\ntotal_cpu = '50%'");
    let server = Server::try_run_by(command, &config, site.root(), 2).unwrap();
    server.await_log(
        "total_memory, total_cpu and total_processes do not hold for www: the control groups of \
         version 2 that this process belongs to are not mounted; start the server by systemd with \
         Delegate=yes in its unit (docs/security.md)",
    );
    assert_eq!(server.page("/ok.php"), "ok");
    let status = server.command(&["status"]).unwrap();
    let expected = "together at most 1073.7 MB of memory, at most ";
    assert!(status.contains(expected), "{status}");
    assert!(status.contains(" processors, which does not hold: the log says why\n"), "{status}");
}
