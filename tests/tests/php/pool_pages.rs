//! The pages about a pool: `status_path` and `ping_path`.

use rustix::process::Signal;
use sendoff_tests::{Fpm, LIMIT, Request, Response, Server, Site, processes, wait};

const TOP: &str = "listen = '127.0.0.1:0'\nthreads = 2\n";

/// A pool of one worker with both pages.
const POOL: &str =
    "[[pool]]\nname = 'www'\nworkers = 1\nstatus_path = '/fpm-status'\nping_path = '/fpm-ping'\n";

fn run(site: &Site, text: &str, workers: usize) -> Server {
    let config = site.write_at(site.outside("sendoff.toml"), format!("{TOP}{text}"));
    Server::try_run(&config, site.root(), workers).unwrap_or_else(|failed| panic!("{failed:#?}"))
}

fn ask(server: &Server, host: &str, target: &str) -> Response {
    server.ask(&Request::get(target).header("Host", host))
}

/// A page of a status in any format, without its values.
fn names(page: &str) -> Vec<String> {
    let of_line = |line: &str| -> Vec<String> {
        if line.starts_with(['{', '<']) {
            // Names stand before colons, or in brackets.
            let parts: Vec<_> = line.split('"').collect();
            let is_name = |at: &usize| parts.get(at + 1).is_some_and(|next| next.starts_with(':'));
            let keys = (1..parts.len()).filter(is_name).map(|at| parts[at].to_owned());
            let elements = line.split('<').map(|part| part.split(['>', ' ']).next().unwrap());
            return keys
                .chain(elements.filter(|name| !name.contains('"')).map(str::to_owned))
                .collect();
        }
        match line.split_once(": ") {
            // The column of the values counts, too.
            Some((_, value)) if !line.starts_with('#') => {
                vec![line[..line.len() - value.trim_start().len()].to_owned()]
            }
            _ if line.starts_with("# TYPE") => vec![line.to_owned()],
            _ if line.starts_with("phpfpm") => {
                vec![line.split(' ').next().unwrap().to_owned()]
            }
            _ => vec![line.chars().filter(|c| *c == '*').collect()],
        }
    };
    page.lines().filter(|line| !line.starts_with("# HELP")).flat_map(of_line).collect()
}

#[test]
fn the_pages_are_those_of_php_fpm() {
    let site = Site::with("a.php", "<?php echo 'a';");
    let server = run(&site, &format!("{POOL}[[site]]\nroot = 'root'\n"), 1);
    let fpm = Fpm::start(
        site.root(),
        "pm.max_children = 1\npm.status_path = /fpm-status\nping.path = /fpm-ping",
    );
    let beneath = |path: &str| format!("{path}={}", fpm.address());
    let (status, ping) = (beneath("/fpm-status"), beneath("/fpm-ping"));
    let stock = Server::start(site.root(), &["--fastcgi", &status, "--fastcgi", &ping]);
    server.page("/a.php");
    for target in [
        "/fpm-ping",
        "/fpm-status",
        "/fpm-status?full",
        "/fpm-status?json",
        "/fpm-status?full&json",
        "/fpm-status?xml",
        "/fpm-status?xml&full",
        "/fpm-status?openmetrics",
    ] {
        let (ours, theirs) = (server.get(target), stock.get(target));
        let (our_names, their_names) = (names(&ours.text()), names(&theirs.text()));
        assert_eq!(our_names, their_names, "{target}\n{}\n{}", ours.text(), theirs.text());
        assert!(our_names.len() > 12 || ours.text() == "pong", "{our_names:?}");
        for name in ["Content-Type", "Expires", "Cache-Control"] {
            assert_eq!(ours.header(name), theirs.header(name), "{target} {name}");
        }
    }
    let html = server.get("/fpm-status?html&full").text();
    assert!(html.contains("<tr><th>pool</th><td>www</td></tr>"), "{html}");
    assert_eq!(server.ask(&Request::new("HEAD", "/fpm-status")).expect(200), b"");
}

#[test]
fn a_pool_whose_workers_are_all_busy_says_so() {
    let site = Site::with("wait.php", "<?php echo file_get_contents('go');");
    let go = site.fifo("go");
    let slow = "slow_log = 'slow.log'\nslow_after = '50ms'\nping_response = 'here'\n";
    let server = run(&site, &format!("{POOL}{slow}[[site]]\nroot = 'root'\n"), 1);
    let mut busy = server.connect();
    busy.send(Request::post("/wait.php?a=%0Ab", "text/plain", "12345").bytes());
    let has = |line: &str| server.page("/fpm-status?full").contains(&format!("\n{line}\n"));
    assert!(wait::until(LIMIT, || has("active processes:     1")));
    let mut waiting = server.connect();
    waiting.send(Request::get("/wait.php").bytes());
    assert!(wait::until(LIMIT, || has("listen queue:         1")));
    assert!(wait::until(LIMIT, || has("slow requests:        1")));
    assert_eq!(server.page("/fpm-ping"), "here");
    let pid = format!("pid:                  {}", server.workers()[0]);
    let script = format!("script:               {}", site.path("wait.php").display());
    for line in [
        "accepted conn:        1",
        "idle processes:       0",
        "total processes:      1",
        &pid,
        "state:                Running",
        "requests:             1",
        "request method:       POST",
        "request URI:          /wait.php?a=%0Ab",
        "content length:       5",
        "user:                 -",
        &script,
    ] {
        assert!(has(line), "{line}\n{}", server.page("/fpm-status?full"));
    }
    go.release();
    assert_eq!(busy.response("POST").expect(200), b"go");
    go.release();
    assert_eq!(waiting.response("GET").expect(200), b"go");
    assert!(wait::until(LIMIT, || has("state:                Idle")));
    for line in [
        "accepted conn:        2",
        "listen queue:         0",
        "max listen queue:     1",
        "idle processes:       1",
        "active processes:     0",
        "max active processes: 1",
        "requests:             2",
        "request method:       GET",
    ] {
        assert!(has(line), "{line}\n{}", server.page("/fpm-status?full"));
    }
}

#[test]
fn routes_and_htaccess_files_protect_the_pages() {
    let site = Site::with("index.php", "<?php echo 'the front controller';");
    site.write_at(site.outside("users"), "ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n");
    let other = "[[pool]]\nname = 'other'\nworkers = 1\nping_path = '/other-ping'\n";
    let text = format!(
        "{POOL}{other}
[[site]]
root = 'root'
hosts = 'open.test'
pool = 'www'
[[site]]
root = 'root'
hosts = 'routes.test'
pool = 'www'
[[site.route]]
path = '/fpm-status'
allow_from = ['10.0.0.0/8']
[[site.route]]
path = '/fpm-ping'
auth = {{ users = 'users', realm = 'monitors' }}
[[site.route]]
path = '/other-ping'
php = true
pool = 'other'
[[site]]
root = 'htaccess'
hosts = 'htaccess.test'
pool = 'www'
htaccess = true
"
    );
    let rules = "<If \"%{REQUEST_URI} == '/fpm-status'\">\nRequire all denied\n</If>\n\
        RewriteEngine on\nRewriteRule . index.php\n";
    std::fs::create_dir(site.outside("htaccess")).unwrap();
    site.write_at(site.outside("htaccess/.htaccess"), rules);
    site.write_at(site.outside("htaccess/index.php"), "<?php echo 'rewritten';");
    let server = run(&site, &text, 2);
    assert_eq!(ask(&server, "open.test", "/fpm%2dping?x").expect(200), b"pong");
    ask(&server, "open.test", "/fpm-status").expect(200);
    let page = b"the front controller";
    for none in ["/other-ping", "/fpm-ping/", "/x/fpm-ping", "/Fpm-Ping"] {
        assert_eq!(ask(&server, "open.test", none).expect(200), page, "{none}");
    }
    ask(&server, "routes.test", "/fpm-status").expect(403);
    ask(&server, "routes.test", "/fpm-ping").expect(401);
    let ping = Request::get("/fpm-ping").header("Host", "routes.test");
    let known = ping.header("Authorization", "Basic YW5uOm9wZW4gc2VzYW1l");
    assert_eq!(server.ask(&known).expect(200), b"pong");
    assert_eq!(ask(&server, "routes.test", "/other-ping").expect(200), b"pong");
    assert_eq!(ask(&server, "htaccess.test", "/any").expect(200), b"rewritten");
    assert_eq!(ask(&server, "htaccess.test", "/fpm-ping").expect(200), b"pong");
    ask(&server, "htaccess.test", "/fpm-status").expect(403);
}

/// Prints the pool's state: names and types with `?names`, everything with `?all`.
const ASKS: &str = "<?php
    $state = fpm_get_status();
    if (isset($_GET['all'])) exit(json_encode($state));
    $type = fn(&$value, $key) => $value = $key === 'pool' || $key === 'process-manager' ? $value : get_debug_type($value);
    array_walk_recursive($state, $type);
    echo json_encode($state), new ReflectionFunction('fpm_get_status');";

#[test]
fn scripts_get_the_array_of_php_fpm() {
    let site = Site::with("a.php", ASKS);
    let server = run(&site, "[[pool]]\nname = 'www'\nworkers = 2\n[[site]]\nroot = 'root'\n", 2);
    let fpm = Fpm::start(site.root(), "pm.max_children = 2");
    let stock = Server::start(site.root(), &["--fastcgi", &format!(".php={}", fpm.address())]);
    for _ in 0..3 {
        assert_eq!(server.page("/a.php?names"), stock.page("/a.php?names"));
    }
    let all = |server: &Server| -> serde_json::Value {
        serde_json::from_str(&server.page("/a.php?all=1&b")).unwrap()
    };
    let (ours, theirs) = (all(&server), all(&stock));
    // php-fpm's own figures are racy.
    for (name, figure) in [("accepted-conn", 4), ("active-processes", 1), ("total-processes", 2)] {
        assert_eq!(ours[name], figure, "{name}: {ours}");
    }
    let running = |state: &serde_json::Value| {
        let mut running = state["procs"].as_array().unwrap().clone();
        running.retain(|worker| worker["state"] == "Running");
        assert_eq!(running.len(), 1, "{state}");
        running.remove(0)
    };
    let (ours, theirs) = (running(&ours), running(&theirs));
    for same in
        ["request-method", "request-uri", "query-string", "request-length", "user", "script"]
    {
        assert_eq!(ours[same], theirs[same], "{same}: {ours}\n{theirs}");
    }
    assert!(server.workers().contains(&u32::try_from(ours["pid"].as_u64().unwrap()).unwrap()));
}

#[test]
fn scripts_get_the_state_of_the_pool_from_another_front_and_from_another_master() {
    let site = Site::with("a.php", ASKS);
    let server = run(&site, "[[pool]]\nname = 'www'\nworkers = 1\n[[site]]\nroot = 'root'\n", 1);
    let asks = || {
        let Ok(response) = server.connect().try_ask(&Request::get("/a.php?all")) else {
            return false;
        };
        response.text().contains("\"total-processes\":1,")
    };
    assert!(asks());
    for process in [server.front(), server.php_master()] {
        processes::signal(process, Signal::KILL);
        assert!(wait::until(LIMIT, || !processes::runs(process)));
        assert!(
            wait::until(LIMIT, || std::net::TcpStream::connect(server.addr()).is_ok() && asks())
        );
    }
}
