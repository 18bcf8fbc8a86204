//! Attacks of hostile scripts on the server: they may call any function of the C library
//! (docs/security.md).

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sendoff_tests::{LIMIT, Server, Site, dies_with_us, wait};

const ATTACK: &str = include_str!("sandbox/attack.php");

/// Refusals: EPERM and EACCES.
const REFUSED: [&str; 2] = ["error 1", "error 13"];

fn site() -> Site {
    let site = Site::with("attack.php", ATTACK);
    site.write("ok.php", "<?php echo 'ok';");
    site
}

/// Lines of a configuration with two workers, a page cache, and scripts that may call foreign
/// functions; and the folder of the pages.
fn config(site: &Site, pool: &str) -> (PathBuf, PathBuf) {
    let pages = site.outside("pages");
    let text = format!(
        "listen = '127.0.0.1:0'\nthreads = 1\npage_cache_folder = '{}'\naccess_log = 'access.log'\n\
         [[pool]]\nworkers = 2\nphp_ini = {{ ffi.enable = 'true', opcache.file_update_protection = 0 }}\n{pool}\n\
         [[site]]\nroot = 'root'\n[[site.route]]\npath = '/kept'\npage_cache = '1h'\n",
        pages.display()
    );
    (site.write_at(site.outside("sendoff.toml"), text), pages)
}

/// A server that root has started.
fn as_root(site: &Site, pool: &str) -> (Server, PathBuf) {
    let (config, pages) = config(site, pool);
    (Server::try_run(&config, site.root(), 2).unwrap(), pages)
}

/// A server that `www-data` has started, the user of its scripts.
fn as_web_user(site: &Site, pool: &str) -> (Server, PathBuf) {
    let (config, pages) = config(site, pool);
    let mut command = dies_with_us(Path::new("setpriv"), "KILL");
    command.args(["--reuid=www-data", "--regid=www-data", "--clear-groups", "--"]);
    (Server::try_run_by(command, &config, site.root(), 2).unwrap(), pages)
}

/// The outcome of a script's attacks on the other processes of its server, one line each.
fn attack(server: &Server, more: &str) -> String {
    let (supervisor, front, master) = (server.pid(), server.front(), server.php_master());
    server.page(&format!(
        "/attack.php?processes[supervisor]={supervisor}&processes[front]={front}&processes[master]={master}{more}"
    ))
}

fn refused(line: &str) -> bool {
    REFUSED.iter().any(|error| line.ends_with(error))
}

/// The attempts that were not refused.
fn successes(report: &str) -> Vec<&str> {
    let attempts: Vec<_> = report.lines().collect();
    assert!(attempts.len() > 60, "{report}");
    attempts.into_iter().filter(|line| !refused(line)).collect()
}

/// The value of a line in `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_script_reaches_no_process_of_a_server_that_root_started_as_root() {
    let site = site();
    let key = site.write_at(site.outside("key.pem"), "secret");
    let log = site.outside("access.log");
    let (server, pages) = as_root(&site, "");
    for file in [&key, &log] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(file, Some(0), Some(0)).unwrap();
    }
    let mut more = String::new();
    for (what, path) in [
        ("read[key]", &key),
        ("read[log]", &log),
        ("write[pages]", &pages),
        ("read[pages]", &pages),
        ("connect[control]", &server.control_socket()),
    ] {
        write!(more, "&{what}={}", path.display()).unwrap();
    }
    let report = attack(&server, &more);
    assert!(successes(&report).is_empty(), "{:#?}", successes(&report));
    assert_eq!(server.page("/ok.php"), "ok");
}

/// Processes of one user may signal each other; all else is refused.
#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_script_reads_no_process_of_a_server_of_its_own_user_as_root() {
    let site = site();
    let (server, _) = as_web_user(&site, "");
    let report = attack(&server, "");
    let open = successes(&report);
    assert!(
        open.iter().all(|line| line.contains("kill ") || line.contains("send_signal ")),
        "{open:#?}"
    );
    assert_eq!(server.page("/ok.php"), "ok");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_pool_without_new_privileges_signals_nothing_of_the_server_as_root() {
    for start in [as_root, as_web_user] {
        let site = site();
        let (server, _) = start(&site, "no_new_privileges = true");
        // The front knows a worker from its fork on; the worker gives up its privileges later,
        // before its first request.
        let are_confined =
            || server.workers().into_iter().all(|worker| status(worker, "NoNewPrivs") == "1");
        assert!(wait::until(LIMIT, are_confined));
        let report = attack(&server, "");
        assert!(successes(&report).is_empty(), "{:#?}", successes(&report));
        assert_eq!(server.page("/ok.php"), "ok");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn the_front_has_no_privileges_and_a_user_of_its_own_as_root() {
    let site = site();
    let (server, _) = as_root(&site, "");
    let front = server.front();
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(front, name), "0000000000000000", "{name}");
    }
    assert_eq!((&*status(front, "NoNewPrivs"), &*status(front, "Seccomp")), ("1", "2"));
    let users = status(front, "Uid");
    let users: Vec<u32> = users.split_whitespace().map(|id| id.parse().unwrap()).collect();
    // The front knows a worker from its fork on; the worker gives up its privileges later, before
    // its first request.
    let of_scripts = wait::for_some("a worker with a user of its own", || {
        let worker = status(server.workers()[0], "Uid");
        let user: u32 = worker.split_whitespace().next()?.parse().ok()?;
        (user != 0).then_some(user)
    });
    let [real, effective, saved, files] = users[..] else { panic!("{users:?}") };
    assert!(real == effective && real == saved, "{users:?}");
    assert!(real != 0 && real != of_scripts && files == of_scripts, "{users:?} {of_scripts}");
    let said = server.command(&["status"]).unwrap();
    let expected = format!("front        user {real}, opens files as user {files}, confined");
    assert!(said.contains(&expected), "{said}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_file_that_only_the_user_of_scripts_may_read_is_served_as_root() {
    let site = site();
    let file = site.write("private/a.txt", "private");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    let (server, _) = as_root(&site, "");
    assert_eq!(server.page("/private/a.txt"), "private");
}

/// A worker has only the descriptors that PHP and the links need: no listener, log, configuration,
/// or key.
#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_worker_inherits_nothing_of_the_server_as_root() {
    let site = site();
    let (server, _) = as_root(&site, "");
    let listening: Vec<String> = listening_sockets();
    let report = server.page("/attack.php?own[]=1");
    let own: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("own ")).collect();
    assert!(own.len() > 5, "{report}");
    for descriptor in own {
        let target = descriptor.split_once(' ').unwrap().1;
        let is_foreign = ["sendoff-config", "sendoff-keys", "access.log", "sendoff-report"]
            .iter()
            .any(|name| target.contains(name));
        assert!(
            !is_foreign && !listening.iter().any(|inode| target.contains(inode.as_str())),
            "{descriptor}"
        );
    }
}

/// The names, in `/proc/PID/fd`, of listening TCP sockets.
fn listening_sockets() -> Vec<String> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let fields = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = fields.filter(|fields| fields[3] == "0A");
    listening.map(|fields| format!("socket:[{}]", fields[9])).collect()
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_pool_has_limits_of_its_own_as_root() {
    let site = Site::with("limits.php", "<?php echo file_get_contents('/proc/self/limits');");
    let pool = "max_open_files = 300\nmax_processes = 4000\nmax_core = '1M'";
    let (server, _) = as_root(&site, pool);
    let limits = server.page("/limits.php");
    for (name, value) in
        [("Max open files", "300"), ("Max processes", "4000"), ("Max core file size", "1048576")]
    {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let values: Vec<_> = line.split_whitespace().collect();
        assert_eq!(values[..2], [value, value], "{name}");
    }
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: processes of different users")]
fn a_worker_is_to_end_before_the_front_where_there_is_no_memory_left_as_root() {
    let site = site();
    let (server, _) = as_root(&site, "");
    let score = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap();
        text.trim().parse::<i32>().unwrap()
    };
    let of_workers = (score(server.front()) + 200).min(1000);
    for worker in server.workers() {
        // A process has the master's until it has begun.
        assert!(wait::until(LIMIT, || score(worker) == of_workers), "{}", score(worker));
    }
}
