//! Several pools in one server.

use std::time::Instant;

use rustix::process::Signal;
use sendoff_tests::{LIMIT, Request, Server, Site, processes, wait};

const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 1\n";

fn run(site: &Site, text: &str, workers: usize) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), format!("{TOP}{text}"));
    Server::try_run(&config, site.root(), workers).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

fn ask(server: &Server, host: &str, target: &str) -> String {
    let response = server.ask(&Request::get(target).header("Host", host));
    response.expect(200);
    response.text()
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn each_site_has_its_pool_and_pools_do_not_share_their_fate() {
    let site = Site::with("a.php", "<?php echo ini_get('precision'), ' ', getmypid();");
    let text = "[[pool]]\nname = 'one'\nworkers = 1\nphp_ini.precision = 1
        [[pool]]\nname = 'two'\nworkers = 1\nphp_ini.precision = 2
        [[site]]\nroot = 'root'\nhosts = 'one.test'\npool = 'one'
        [[site]]\nroot = 'root'\nhosts = 'two.test'\npool = 'two'\n";
    let server = run(&site, text, 2);
    let (one, two) = (ask(&server, "one.test", "/a.php"), ask(&server, "two.test", "/a.php"));
    let pid = |answer: &str| answer.split_once(' ').unwrap().1.parse::<u32>().unwrap();
    assert!(one.starts_with("1 ") && two.starts_with("2 "), "{one} {two}");
    let master = parent(pid(&one));
    assert_ne!(master, parent(pid(&two)));
    processes::signal(master, Signal::KILL);
    server.await_log("the PHP master of pool one");
    assert_eq!(ask(&server, "two.test", "/a.php"), two, "the same worker");
    // A worker outlives its master for a moment.
    let again = wait::for_some("a new worker of pool one", || {
        Some(ask(&server, "one.test", "/a.php")).filter(|answer| *answer != one)
    });
    assert!(again.starts_with("1 "), "{again}");
}

#[test]
fn a_pool_on_demand_has_no_process_while_no_request_comes() {
    let site = Site::with("a.php", "<?php echo 'here ', getmypid();");
    site.write("static.txt", "static");
    let text = "[[pool]]\nworkers = 'ondemand'\nworker_idle_timeout = '500ms'
        [[site]]\nroot = 'root'\n";
    let server = run(&site, text, 0);
    let has_none =
        || processes::children(server.pid()).iter().all(|child| *child == server.front());
    assert_eq!(server.page("/static.txt"), "static");
    assert!(has_none());
    let mut seen = Vec::new();
    for _ in 0..2 {
        let asked = Instant::now();
        let page = server.page("/a.php");
        assert!(page.starts_with("here "), "{page}");
        eprintln!("the first request took {:?}", asked.elapsed());
        assert_eq!(server.page("/a.php"), page, "the same worker");
        seen.push(page);
        assert!(wait::until(LIMIT, has_none), "{}", server.log());
    }
    assert_ne!(seen[0], seen[1]);
}

/// The front repeats its call.
#[test]
fn a_master_on_demand_that_dies_is_called_again() {
    let site = Site::with("a.php", "<?php echo getmypid();");
    let text = "[[pool]]\nworkers = 'ondemand'\nworker_idle_timeout = '500ms'
        [[site]]\nroot = 'root'\n";
    let server = run(&site, text, 0);
    server.page("/a.php");
    let master = server.php_master();
    processes::signal(master, Signal::KILL);
    server.await_log("the PHP master ended");
    // The worker of the old one may still answer before it ends.
    let is_called = || {
        server.page("/a.php");
        let mut children = processes::children(server.pid()).into_iter();
        children.any(|child| child != master && processes::is_php(child))
    };
    assert!(wait::until(LIMIT, is_called));
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: workers get another group")]
fn scripts_have_the_group_of_their_pool_as_root() {
    let site = Site::with(
        "a.php",
        "<?php echo `id -un; id -gn`, implode(' ', posix_getgroups()), \"\\n\"; umask(0); touch('made'); echo filegroup('made');",
    );
    let text = "[[pool]]\nworkers = 1\nuser = 'www-data'\ngroup = 'daemon'
        [[site]]\nroot = 'root'\n";
    let server = run(&site, text, 1);
    let made = || std::os::unix::fs::MetadataExt::gid(&site.path("made").metadata().unwrap());
    let expected = |group| {
        let groups: Vec<_> =
            processes::groups("www-data", group).iter().map(u32::to_string).collect();
        format!("www-data\n{group}\n{}\n{}", groups.join(" "), made())
    };
    let said = server.page("/a.php");
    assert_eq!(said, expected("daemon"));
    // A reload gives the workers another group.
    site.write_at(
        site.outside("sendoff.toml"),
        format!("{TOP}{}", text.replace("group = 'daemon'\n", "")),
    );
    assert_eq!(server.command(&["reload"]).unwrap(), "reloaded, with new workers in 1 pool\n");
    std::fs::remove_file(site.path("made")).unwrap();
    let said = server.page("/a.php");
    assert_eq!(said, expected("www-data"));
}
