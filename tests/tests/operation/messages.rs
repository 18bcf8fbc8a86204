//! Messages of the program for new users: each names the mistake, its place, and a remedy.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use sendoff_tests::{LIMIT, Server, Site, binary, wait};

/// Runs the program as a user who is not root, in a runtime folder of its own.
fn run(site: &Site, arguments: &[&str]) -> Output {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary());
        command
    } else {
        Command::new(binary())
    };
    command.args(arguments).current_dir(site.root()).env("XDG_RUNTIME_DIR", site.outside("none"));
    command.output().unwrap()
}

#[test]
fn each_mistake_costs_one_line_that_says_what_where_and_what_to_do() {
    let site = Site::with("index.php", "<?php echo 'here';");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let (root, at) = (site.root().to_str().unwrap(), taken.to_string());
    let key = site.write_at(site.outside("key.pem"), "");
    let key = key.to_str().unwrap();
    let script = site.path("index.php");
    let script = script.to_str().unwrap();
    // Settings of the machine that may allow these addresses.
    let setting = |name| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    let lowest: u16 = setting("ip_unprivileged_port_start").trim().parse().unwrap();
    let may_listen = |line: &str| match line {
        "serve --listen 127.0.0.1:80" => lowest <= 80,
        "serve --listen 192.0.2.1:9000" => setting("ip_nonlocal_bind") != "0\n",
        _ => false,
    };
    for (line, status, says) in [
        // The command line.
        ("serv", 2, &["no command serv", "mean serve", "sendoff --help"][..]),
        ("start", 2, &["no command start", "sendoff serve FOLDER"]),
        ("/srv/www", 2, &["no command /srv/www", "sendoff serve /srv/www"]),
        ("-v", 2, &["no option -v", "--version"]),
        ("serve --port 80", 2, &["no option --port", "--listen PORT", "sendoff serve --help"]),
        ("serve --lissten 80", 2, &["no option --lissten", "mean --listen"]),
        ("serve one two", 2, &["two: one argument too many", "sendoff serve --help"]),
        ("explain", 2, &["<URL> is missing", "sendoff explain --help"]),
        ("serve --listen", 2, &["--listen", "a value is missing", "<ADDR>"]),
        // Values.
        ("serve --listen 127.0.0.1:99999", 2, &["--listen 127.0.0.1:99999", "0 to 65535"]),
        ("serve --max-body 64MB", 2, &["--max-body 64MB", "64K, 100M or 1G"]),
        ("serve --workers 0", 2, &["--workers 0", "1 to 1024", "auto"]),
        ("serve --fastcgi .php=/run/x.sock", 2, &["--fastcgi .php=/run/x.sock", "unix:/PATH"]),
        (
            "serve --fastcgi .php=unix:/a --fastcgi .php=unix:/b",
            2,
            &["--fastcgi .php", "given twice", "leave one out", "[[upstream]]"],
        ),
        // Options that must fit together.
        (
            "serve --tls-cert a.pem",
            2,
            &["--tls-key <FILE> is missing", "private key", "--tls alone"],
        ),
        ("serve --tls-key KEY", 2, &["--tls-cert <FILE> is missing", "--tls alone"]),
        ("status --json --watch", 2, &["--json and --watch", "leave one out"]),
        // The machine.
        ("serve /no/such/folder", 2, &["ROOT", "/no/such/folder", "No such file"]),
        ("serve SCRIPT", 2, &["ROOT", "index.php", "is not a folder"]),
        ("serve --user 33", 2, &["--user", "no user 33", "its name, which is www-data"]),
        ("serve --user nosuchuser", 2, &["--user", "no user nosuchuser", "getent passwd"]),
        ("serve --user www-data", 2, &["--user", "only root", "leave it out"]),
        ("serve --listen 127.0.0.1:80", 1, &["127.0.0.1:80", "below 1024", "--listen 8080"]),
        ("serve --listen AT", 1, &[&at, "in use", "ss -ltnp"]),
        ("serve --listen 192.0.2.1:9000", 1, &["192.0.2.1:9000", "ip address"]),
        // Servers that are not there.
        ("status", 1, &["no sendoff server of this user runs", "--socket"]),
        ("stop --listen 1", 1, &["listens on 1 ", "--socket"]),
        ("explain http://localhost:1/x", 1, &["port 1 ", "sendoff status"]),
        ("explain localhost:1/x", 1, &["port 1 ", "sendoff status"]),
        ("explain /x", 2, &["/x", "http://HOST:PORT/"]),
        ("run /no/such.toml", 2, &["/no/such.toml", "No such file", "--config FILE"]),
        ("run --config /no/such.toml", 2, &["/no/such.toml", "No such file", "--config FILE"]),
    ] {
        if may_listen(line) {
            continue;
        }
        let words = line.split(' ').map(|word| match word {
            "KEY" => key,
            "AT" => &at,
            "SCRIPT" => script,
            word => word,
        });
        let mut arguments: Vec<_> = words.collect();
        // The folder, where the line names none.
        if arguments[0] == "serve" && arguments.get(1).is_some_and(|next| next.starts_with('-')) {
            arguments.insert(1, root);
        }
        let done = run(&site, &arguments);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{line}: {said}");
        assert!(done.stdout.is_empty(), "{line}: {said}");
        for text in says {
            assert!(said.contains(text), "{line}: {text:?} is not in {said}");
        }
        assert!(said.starts_with("sendoff: "), "{line}: {said}");
        // A report on a file has a line for each mistake and one for each remedy.
        let lines = if line.starts_with("run") { 3 } else { 1 };
        assert_eq!(said.lines().count(), lines, "{line}: {said}");
    }
}

/// A problem that may disappear by itself is a warning when the server starts.
#[test]
fn what_cannot_be_used_yet_is_named_when_the_server_starts() {
    let site = Site::with("index.php", "<?php echo 'here';");
    let socket = format!(".php=unix:{}", site.outside("none.sock").display());
    let server = Server::start(site.root(), &["--fastcgi", &socket]);
    for text in ["none.sock: No such file", "get 502 until the application listens there"] {
        assert!(server.log().contains(text), "{}", server.log());
    }
    assert_eq!(server.get("/index.php").status(), 502);
    let logged = || server.log().contains("does the application run, and listen there?");
    assert!(wait::until(LIMIT, logged), "{}", server.log());
}

#[test]
fn a_folder_without_an_index_is_named_with_the_remedy() {
    let site = Site::with("folder/a.txt", "a");
    let server = Server::start(site.root(), &[]);
    assert_eq!(server.get("/folder/").status(), 403);
    let logged = || server.log().contains("neither index.php nor index.html: put one there");
    assert!(wait::until(LIMIT, logged), "{}", server.log());
}

/// Root may read everything; the server's user may not.
#[test]
#[cfg_attr(not(root), ignore = "needs root: another user")]
fn a_root_that_the_servers_user_may_not_read_is_named_as_root() {
    let site = Site::with("index.php", "<?php echo 'here';");
    let closed = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(site.root(), closed).unwrap();
    rustix::fs::chown(site.root(), Some(rustix::fs::Uid::ROOT), None).unwrap();
    let server = Server::start(site.root(), &["--user", "nobody"]);
    for text in ["Permission denied", "requests get 403", "namei -l"] {
        assert!(server.log().contains(text), "{}", server.log());
    }
    assert_eq!(server.get("/index.php").status(), 403);
}
