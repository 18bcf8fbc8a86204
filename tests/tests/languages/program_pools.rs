//! Pools with a program: processes in any language that the server starts, watches and ends
//! (`docs/pools.md`). The program here is written in C with libfcgi.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use sendoff_tests::{
    LIMIT, Request, Response, Server, Site, dies_with_us, processes, static_library, wait,
};

/// The program, compiled beside the site.
fn program(site: &Site) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("helpers/program.c");
    let program = site.outside("program");
    let compiled =
        Command::new("cc").arg("-o").arg(&program).arg(source).arg("-lfcgi").status().unwrap();
    assert!(compiled.success(), "libfcgi-dev is installed");
    program.display().to_string()
}

fn write(site: &Site, text: &str) -> PathBuf {
    site.write_at(
        site.outside("sendoff.toml"),
        format!("listen = '127.0.0.1:0'\nthreads = 1\n{text}"),
    )
}

fn run(site: &Site, text: &str) -> Server {
    let config = write(site, text);
    Server::try_run(&config, site.root(), 0).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

/// A site all of whose requests go to the program of a pool with these keys.
fn one_pool(program: &str, keys: &str) -> String {
    format!(
        "[[pool]]\nname = 'shop'\ncommand = ['{program}', 'a b', '']\n{keys}
        [[site]]\nroot = 'root'\nfastcgi = {{ '/' = 'pool:shop' }}\n"
    )
}

fn pid(server: &Server) -> u32 {
    server.page("/pid").parse().unwrap()
}

/// The response to a `POST`, which is not repeated.
fn post(server: &Server, target: &str) -> Response {
    server.ask(&Request::post(target, "text/plain", ""))
}

#[track_caller]
fn await_end_of(pid: u32) {
    assert!(wait::until(LIMIT, || !processes::runs(pid)), "process {pid} still runs");
}

fn started(path: &Path) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        (file == path).then_some(pid)
    });
    all.collect()
}

#[test]
fn a_process_gets_what_its_pool_says_and_nothing_else() {
    let site = Site::new();
    let program = program(&site);
    let config = write(
        &site,
        &one_pool(
            &program,
            "env = { SHOP = 'a=b c', LANG = 'C' }\numask = '027'\nchdir = '/usr'\nmemory_limit = '300M'",
        ),
    );
    // The server's own starter may have blocked and ignored signals.
    let mut starter = dies_with_us(Path::new("env"), "KILL");
    starter.args(["--block-signal=WINCH,USR2", "--ignore-signal=HUP,USR1"]);
    let server = Server::try_run_by(starter, &config, site.root(), 0).unwrap();
    assert_eq!(server.page("/arguments"), format!("[{program}][a b][]"));
    let environment = server.page("/environment");
    let mut names: Vec<_> =
        environment.lines().map(|line| line.split('=').next().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "LANG", "LOGNAME", "PATH", "SHOP", "USER"], "{environment}");
    for line in [
        "SHOP=a=b c",
        "LANG=C",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ] {
        assert!(environment.lines().any(|found| found == line), "{line} in {environment}");
    }
    let identity = server.page("/identity");
    assert!(identity.ends_with(" umask 027 cwd /usr"), "{identity}");
    assert_eq!(server.page("/limit"), "314572800 not enough");
    let descriptors = server.page("/descriptors");
    let mut kinds: Vec<_> =
        descriptors.lines().map(|line| line.split(':').next().unwrap()).collect();
    kinds.sort_unstable();
    // The last is the connection.
    assert_eq!(kinds, ["0 socket", "1 pipe", "2 pipe", "3 socket"], "{descriptors}");
    for line in server.page("/signals").lines() {
        let (name, mask) = line.split_once(":\t").unwrap();
        // 32 and 33 are the C library's own: posix_spawn(3) leaves them ignored.
        let mask = u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31);
        assert_eq!(mask, 0, "{name}");
    }
}

#[test]
fn what_a_program_prints_is_in_the_log_line_by_line() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), ""));
    let process = pid(&server);
    server.page("/lines");
    server.await_log("to standard \\u{1b}[1merror");
    let log = server.log();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap();
    for (level, text) in [("INFO", "to standard output"), ("WARN", "to standard \\u{1b}[1merror")] {
        let found = line(text);
        let named = [level, "pool=\"shop\"", &format!("process={process}")]
            .iter()
            .all(|part| found.contains(part));
        assert!(named, "{found}");
    }
    assert!(!log.contains("and no end of line"), "{log}");
    processes::signal(process, Signal::TERM);
    server.await_log("and no end of line");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: changes its user")]
fn processes_run_as_the_user_of_their_pool_as_root() {
    let site = Site::new();
    let program = program(&site);
    let text = format!(
        "user = 'www-data'
        [[pool]]\nname = 'one'\ncommand = '{program}'\nuser = 'nobody'\ngroup = 'www-data'
        [[pool]]\nname = 'two'\ncommand = '{program}'
        [[site]]\nroot = 'root'\nfastcgi = {{ '/one' = 'pool:one', '/two' = 'pool:two' }}\n"
    );
    let server = run(&site, &text);
    let groups = processes::groups("nobody", "www-data").len();
    let identity = server.page("/one/identity");
    assert!(identity.starts_with(&format!("uid 65534 gid 33 groups {groups} ")), "{identity}");
    assert!(server.page("/two/identity").starts_with("uid 33 gid 33 "));
    let pid = server.page("/one/pid");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    // CAP_LEASE alone (capabilities(7)): 1 << 28.
    assert!(status.contains("\nCapEff:\t0000000010000000\n"), "{status}");
}

#[test]
#[cfg_attr(not(root), ignore = "needs root: chroot")]
fn a_program_may_have_a_root_directory_of_its_own_as_root() {
    let site = Site::new();
    program(&site);
    let jail = site.outside("jail");
    std::fs::create_dir_all(jail.join("bin")).unwrap();
    // The program's libraries, at their places in the new root.
    let output = Command::new("ldd").arg(site.outside("program")).output().unwrap();
    for path in String::from_utf8(output.stdout).unwrap().split_whitespace() {
        if path.starts_with('/') {
            let there = jail.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(there.parent().unwrap()).unwrap();
            std::fs::copy(path, there).unwrap();
        }
    }
    std::fs::copy(site.outside("program"), jail.join("bin/shop")).unwrap();
    let keys = format!("chroot = '{}'\nchdir = '/bin'", jail.display());
    let server = run(&site, &one_pool("shop", &keys));
    let identity = server.page("/identity");
    assert!(identity.ends_with(" cwd /bin"), "{identity}");
}

#[test]
fn a_process_that_dies_is_replaced_and_takes_its_own_processes_with_it() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), ""));
    let first = pid(&server);
    let child: u32 = server.page("/child").parse().unwrap();
    assert!(processes::runs(child));
    assert_eq!(post(&server, "/exit").status(), 502);
    let second = pid(&server);
    assert_ne!(first, second);
    await_end_of(child);
    server.await_log("program ended (exit status: 3), another one is started pool=");
    assert_eq!(post(&server, "/crash").status(), 502);
    assert_ne!(pid(&server), second);
    server.await_log("program ended (signal: 11 (SIGSEGV)");
}

/// At least one of two processes has answered no request when a request ends it. The request is not
/// sent to another process.
#[test]
fn a_page_that_kills_its_process_ends_one_and_the_next_starts_at_once() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), "workers = 2"));
    pid(&server);
    let ends = || server.log().matches("program ended (").count();
    for number in 1..=6 {
        let target = if number % 2 == 0 { "/crash" } else { "/exit" };
        assert_eq!(server.get(target).status(), 502);
        assert!(wait::until(LIMIT, || ends() >= number));
        pid(&server);
    }
    assert_eq!(ends(), 6);
    // The master may hear of the end before it hears that a request was the cause, but it says only
    // once what follows.
    let log = server.log();
    assert_eq!(log.matches("another one is started").count(), 6, "{log}");
}

/// The master hears of the end before it hears that a request was the cause.
#[test]
fn a_pause_that_a_request_cancels_is_not_announced() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), "workers = 2"));
    let first = pid(&server);
    let master = processes::parent(first).unwrap();
    let _hang: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.connect();
            client.send(Request::get("/hang").bytes());
            client
        })
        .collect();
    assert!(wait::until(LIMIT, || server.log().matches("hangs").count() == 2));
    let other = processes::children(master).into_iter().find(|pid| *pid != first).unwrap();
    processes::signal(server.front(), Signal::STOP);
    processes::signal(other, Signal::KILL);
    assert!(wait::until(LIMIT, || processes::parent(other).is_none()));
    processes::signal(server.front(), Signal::CONT);
    assert!(wait::until(LIMIT, || processes::children(master).len() == 2));
    server.await_log("another one is started");
    assert_eq!(server.log().matches("another one is started").count(), 1, "{}", server.log());
}

#[test]
fn a_program_that_cannot_run_costs_its_own_requests_and_no_others() {
    let site = Site::with("a.txt", "static");
    let program = program(&site);
    let script = site.write_at(site.outside("script"), "#!/no/such/interpreter\n");
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "[[pool]]\nname = 'bad'\ncommand = ['{program}', '--fail']\nworkers = 2
        [[pool]]\nname = 'lost'\ncommand = '{}'
        [[pool]]\nname = 'good'\ncommand = '{program}'
        [[site]]\nroot = 'root'
        fastcgi = {{ '/bad' = 'pool:bad', '/lost' = 'pool:lost', '/good' = 'pool:good' }}\n",
        script.display()
    );
    let server = run(&site, &text);
    for (path, why) in [
        ("/bad", "the last one ended (exit status: 4)"),
        ("/lost", "the last one ended (exit status: 127)"),
    ] {
        // As long as the next process starts soon, requests wait for it.
        let response = post(&server, path);
        assert_eq!((response.status(), response.header("Retry-After").is_some()), (503, true));
        server.await_log(&format!(
            "answered with 503: pool:{}: no process of it runs: {why}",
            &path[1..]
        ));
    }
    server.await_log("there is no database");
    server.await_log("another one is started after 400ms");
    server.await_log("script or the interpreter in its first line is missing");
    assert_eq!(server.page("/a.txt"), "static");
    assert!(!server.page("/good/pid").is_empty());
    let status = server.command(&["status"]).unwrap();
    assert!(status.contains("pool         bad: "), "{status}");
    assert!(
        status.contains(&format!(
            "pool         good: 1 process, 0 busy, 0 waiting, 1 request: {program}\n"
        )),
        "{status}"
    );
    assert!(
        status.contains("it does not run: the last process ended (exit status: 127)"),
        "{status}"
    );
}

#[test]
fn processes_that_end_by_themselves_are_replaced_without_a_word_of_alarm() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), ""));
    let first = pid(&server);
    server.page("/last");
    let second = pid(&server);
    assert_ne!(first, second);
    server.await_log("program ended (exit status: 0), another one is started pool=");
    assert!(!server.log().contains(" ERROR "), "{}", server.log());
}

#[test]
fn a_silent_request_gets_504() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), "request_timeout = '300ms'\nworkers = 2"));
    assert_eq!(post(&server, "/hang").status(), 504);
    server.await_log("hangs");
    assert!(pid(&server) > 0, "the other process");
}

/// All that is kept by a front is gone with it, but the processes stay.
#[test]
fn processes_outlive_the_front_but_not_their_master() {
    let site = Site::new();
    let server = run(&site, &one_pool(&program(&site), ""));
    let first = pid(&server);
    processes::signal(server.front(), Signal::KILL);
    server.await_page("/pid", &first.to_string());
    let master = parent(first);
    assert_eq!(processes::arguments(master), ["sendoff: program master, pool shop"]);
    processes::signal(master, Signal::KILL);
    await_end_of(first);
    server.await_log("the master of pool shop ended (signal: 9 (SIGKILL)), it is started again");
    let second = pid(&server);
    assert_ne!(first, second);
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn a_reload_replaces_changed_programs_and_leaves_others_alone() {
    let site = Site::new();
    let program = program(&site);
    let text = |env: &str, other: &str| {
        format!(
            "[[pool]]\nname = 'one'\ncommand = '{program}'\nenv = {{ SHOP = '{env}' }}\nworkers = 2
            [[pool]]\nname = 'two'\ncommand = '{program}'
            {other}
            [[site]]\nroot = 'root'\nfastcgi = {{ '/one' = 'pool:one', '/two' = 'pool:two' }}\n"
        )
    };
    let server = run(&site, &text("1", ""));
    let pid = |path: &str| server.page(path).parse::<u32>().unwrap();
    let two = pid("/two/pid");
    let olds = started(Path::new(&program));
    assert_eq!(olds.len(), 3);
    // A request that has begun keeps its process.
    let mut client = server.connect();
    client.send(Request::post("/one/hang", "text/plain", "").bytes());
    server.await_log("hangs");
    write(
        &site,
        &text("2", "[[pool]]\nname = 'three'\ncommand = '{program}'")
            .replace("{program}", &program),
    );
    let said = server.command(&["reload"]).unwrap();
    assert!(said.contains("reloaded, with new workers in 1 pool"), "{said}");
    assert!(server.page("/one/environment").contains("SHOP=2"));
    assert!(!olds.contains(&pid("/one/pid")));
    assert_eq!(pid("/two/pid"), two, "the same process");
    assert!(olds.iter().all(|old| processes::runs(*old)), "{}", server.log());
    drop(client);
    for old in olds.into_iter().filter(|old| *old != two) {
        await_end_of(old);
    }
    // A program that is not there changes nothing.
    write(&site, &text("3", "").replace(&program, "/no/such/program"));
    let said = server.command(&["reload"]).unwrap_err();
    assert!(said.contains("/no/such/program: No such file or directory"), "{said}");
    assert!(server.page("/one/environment").contains("SHOP=2"));
}

#[test]
fn a_program_that_does_not_end_is_killed_in_time() {
    let site = Site::new();
    let program = program(&site);
    let text = format!(
        "shutdown_timeout = '1s'
        [[pool]]\nname = 'shop'\ncommand = '{program} --stubborn'\nworkers = 2
        [[site]]\nroot = 'root'\nfastcgi = {{ '/' = 'pool:shop' }}\n"
    );
    let server = run(&site, &text);
    let process = pid(&server);
    server.signal(Signal::TERM);
    let (status, log) = server.await_end();
    assert!(status.success(), "{log}");
    assert!(log.contains("a process has not ended in time, it is killed"), "{log}");
    assert!(!processes::runs(process));
}

/// A program without a handler for SIGTERM ends at once; `await_end` checks that no process is
/// left.
#[test]
fn no_process_outlives_the_supervisor() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let site = Site::new();
        let server = run(&site, &one_pool(&program(&site), "workers = 3"));
        let process = pid(&server);
        server.signal(signal);
        server.await_end();
        await_end_of(process);
    }
}

/// With libsendoff in the program, its bytes are not copied through the connection.
#[test]
fn a_program_on_libsendoff_shares_its_memory() {
    let site = Site::new();
    let program = program(&site);
    let library = site.outside("library");
    std::fs::create_dir(&library).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../libfcgi/build");
    let built = Command::new(script).arg(static_library()).arg(&library).status().unwrap();
    assert!(built.success());
    let keys = format!("env = {{ LD_LIBRARY_PATH = '{}' }}", library.display());
    let server = run(&site, &one_pool(&program, &keys));
    let expected: String = (0..200_000).map(|number| format!("{number:07}\n")).collect();
    for _ in 0..3 {
        assert!(server.page("/large") == expected);
    }
    let table = server.explain("/large", &[]).unwrap();
    assert!(table.contains("pool:shop") && table.contains("memory"), "{table}");
}

#[test]
fn the_command_line_has_no_programs() {
    let site = Site::new();
    let failed = Server::try_start(site.root(), &["--fastcgi", "/=pool:shop"]).err().unwrap();
    assert!(failed.stderr.contains("there is no pool \"shop\""), "{}", failed.stderr);
}
