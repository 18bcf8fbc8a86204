//! FastCGI applications that Sendoff did not start.

use sendoff_tests::{
    Broken, Client, Fifo, Fpm, Request, Server, Site, Stock, assert_same, pattern, processes, wait,
};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const ENV: &str = include_str!("../../scripts/env.php");

#[test]
fn php_fpm_answers_as_behind_nginx() {
    let site = Site::with("env.php", ENV);
    site.write("index.php", "<?php echo 'index ', $_SERVER['REQUEST_URI'];");
    site.write("a.txt", "static");
    site.write(
        "err.php",
        "<?php header('Status: 404 Gone fishing'); error_log('fish'); echo 'no';",
    );
    site.write(
        "big.php",
        "<?php for ($i = 0; $i < 3000; $i++) echo str_repeat(chr(65 + $i % 26), 1000);",
    );
    let stock = Stock::start(site.root(), &[]);
    for fpm in [Fpm::start(site.root(), ""), Fpm::start_tcp(site.root(), "")] {
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
        for request in [
            Request::get("/env.php?a=1&b[]=2"),
            Request::get("/env.php/path/info?x"),
            Request::get("/env.php").header("Cookie", "a=b").header("X-Some", "thing"),
            Request::post("/env.php", "application/x-www-form-urlencoded", "c=3&d=4"),
            Request::upload("/env.php", "file", "a.bin", &pattern(1, 300_000)),
            Request::get("/"),
            Request::get("/a.txt"),
            Request::get("/err.php"),
            Request::get("/big.php"),
            Request::new("HEAD", "/index.php"),
        ] {
            let line = String::from_utf8_lossy(&request.bytes()).lines().next().unwrap().to_owned();
            let (theirs, ours) = (stock.ask(&request), server.ask(&request));
            if line.contains("a.txt") {
                assert_eq!(ours.body, theirs.body);
            } else {
                assert_same(&line, &theirs, &ours);
            }
        }
        server.await_log("fish");
        assert!(server.workers().is_empty(), "no workers are needed");
    }
}

/// php-fpm does not clear the reserved bytes at the end of a FastCGI response: output of its
/// scripts appears there. The front must not take them for an announcement of handover.
#[test]
fn no_output_makes_php_fpm_one_of_ours() {
    // In pieces that go through its buffer.
    let fill =
        "<?php for ($i = 0; $i < 9; $i++) { echo str_repeat(chr($_GET['n']), 900); flush(); }";
    let site = Site::with("fill.php", fill);
    site.write("env.php", "<?php echo $_SERVER['SENDOFF_ACCEPT'] ?? 'nothing';");
    let fpm = Fpm::start(site.root(), "pm.max_children = 1");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--delivery", "direct"]);
    for n in 1..=3 {
        let fill = server.page(&format!("/fill.php?n={n}"));
        assert!(fill.len() == 8100 && fill.bytes().all(|byte| byte == n));
        for _ in 0..3 {
            assert_eq!(server.page("/env.php"), "nothing");
        }
    }
}

#[test]
fn connections_are_kept() {
    let site = Site::with("pid.php", "<?php echo getmypid(), ' ', $_SERVER['REMOTE_PORT'];");
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let mut client = server.connect();
    let pid = |text: String| text.split(' ').next().unwrap().to_owned();
    let first = pid(client.ask(&Request::get("/pid.php")).text());
    for _ in 0..20 {
        // Without a kept connection php-fpm's processes take turns.
        assert_eq!(pid(client.ask(&Request::get("/pid.php")).text()), first);
    }
}

/// PHP writes late output to the connection after the end of the response: it must not become part
/// of the next response.
#[test]
fn output_after_the_end_is_in_nobodys_response() {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    let late = "<?php echo 'x'; fastcgi_finish_request(); file_get_contents('go-on');
        echo str_repeat(\"X-Late: yes\\r\\n\\r\\nlate\", 2000);";
    site.write("late.php", late);
    let go_on = site.fifo("go-on");
    let fpm = Fpm::start(site.root(), "pm.max_children = 1");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    for _ in 0..3 {
        assert_eq!(server.page("/late.php"), "x");
        // The request waits for the only process, on the kept connection.
        let mut client = server.connect();
        client.send(Request::get("/quick.php").bytes());
        go_on.release();
        let response = client.response("GET");
        assert!(response.text() == "quick", "{} bytes", response.body.len());
        assert_eq!(response.header("x-late"), None);
    }
}

/// A process that goes on after the end of its response delays no other request, and a request that
/// went to another process runs once.
#[test]
fn a_process_that_goes_on_after_its_response_is_passed_over() {
    let late = "<?php echo 'x'; fastcgi_finish_request(); file_get_contents($_GET['go']);";
    let site = Site::with("late.php", late);
    site.write("quick.php", "<?php file_put_contents('ran', 'x', FILE_APPEND); echo 'quick';");
    let fpm = Fpm::start(site.root(), "pm.max_children = 3");
    let options = ["--fastcgi", &fpm.php(), "--fastcgi-timeout", "10"];
    let server = Server::start(site.root(), &options);
    let go = [site.fifo("go0"), site.fifo("go1")];
    for n in 0..go.len() {
        assert_eq!(server.page(&format!("/late.php?go=go{n}")), "x");
        assert_eq!(server.page("/quick.php"), "quick");
        let post = Request::post("/quick.php", "text/plain", "x");
        assert_eq!(server.connect().ask(&post).text(), "quick");
    }
    go.iter().for_each(Fifo::release);
    for _ in 0..5 {
        assert_eq!(server.page("/quick.php"), "quick");
    }
    assert_eq!(std::fs::read(site.path("ran")).unwrap().len(), 9);
}

#[test]
fn processes_that_are_replaced_cost_no_request() {
    let site = Site::with("pid.php", "<?php echo getmypid();");
    for max_requests in 1..=3 {
        let pool = format!("pm.max_requests = {max_requests}");
        let fpm = Fpm::start(site.root(), &pool);
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
        let mut client = server.connect();
        for i in 0..30 {
            let request = if i % 3 == 0 {
                Request::post("/pid.php", "text/plain", "x")
            } else {
                Request::get("/pid.php")
            };
            client.ask(&request).expect(200);
        }
    }
}

#[test]
fn a_process_killed_at_work_costs_its_request_only() {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    site.write("early.php", "<?php posix_kill(getmypid(), 9);");
    site.write(
        "late.php",
        "<?php echo str_repeat('x', 100000); flush(); posix_kill(getmypid(), 9);",
    );
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    for _ in 0..3 {
        assert_eq!(server.page("/quick.php"), "quick");
        assert_eq!(server.get("/early.php").status(), 502);
        let late = server.connect().try_ask(&Request::get("/late.php"));
        assert!(matches!(late, Err(Broken::Cut(_) | Broken::Closed)), "{late:?}");
    }
    assert_eq!(server.page("/quick.php"), "quick");
}

#[test]
fn php_fpm_may_be_stopped_and_started_again() {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    for mut fpm in [Fpm::start(site.root(), ""), Fpm::start_tcp(site.root(), "")] {
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
        for _ in 0..3 {
            assert_eq!(server.page("/quick.php"), "quick");
            fpm.stop();
            assert_eq!(server.get("/quick.php").status(), 502);
            fpm.start_again();
            assert_eq!(server.page("/quick.php"), "quick");
        }
    }
}

#[test]
fn large_bodies_arrive_whole_and_unread_ones_do_no_harm() {
    let site = Site::with("sha.php", "<?php echo sha1(file_get_contents('php://input'));");
    site.write("echo.php", "<?php readfile('php://input');");
    site.write("deaf.php", "<?php echo 'deaf';");
    let pool = "php_admin_value[post_max_size] = 64M\nphp_admin_value[memory_limit] = 256M";
    let fpm = Fpm::start(site.root(), pool);
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let body = pattern(3, 20 << 20);
    let post = |target, body: &[u8]| Request::post(target, "application/octet-stream", body);
    let mut client = server.connect();
    assert!(client.ask(&post("/echo.php", &body)).expect(200) == body);
    for size in [0, 1, 65_535, 65_536, 65_537, 100_000, 20 << 20] {
        let response = client.ask(&post("/echo.php", &body[..size]));
        assert!(response.expect(200) == &body[..size], "{size}");
        assert_eq!(client.ask(&post("/deaf.php", &body[..size])).text(), "deaf");
    }
    assert_eq!(client.ask(&post("/sha.php", &body)).text().len(), 40);
}

#[test]
fn a_hundred_at_once_with_four_processes() {
    let site = Site::with("work.php", "<?php usleep(2000); echo $_GET['n'];");
    let fpm = Fpm::start(site.root(), "");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
    let addr = server.addr();
    let threads: Vec<_> = (0..100)
        .map(|n| {
            std::thread::spawn(move || {
                let mut client = Client::connect(addr);
                for round in 0..5 {
                    let target = format!("/work.php?n={n}.{round}");
                    assert_eq!(client.ask(&Request::get(&target)).text(), format!("{n}.{round}"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// An application whose processes (threads here) serve one connection at a time, and count
/// connections.
struct Serving {
    listener: UnixListener,
    address: String,
    accepted: Arc<AtomicUsize>,
}

impl Serving {
    fn new(site: &Site) -> Self {
        let path = site.outside("serving.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, everybody).unwrap();
        Self { listener, address: format!("unix:{}", path.display()), accepted: Arc::default() }
    }

    fn more(&self, processes: usize) {
        for _ in 0..processes {
            let (listener, accepted) = (self.listener.try_clone().unwrap(), self.accepted.clone());
            std::thread::spawn(move || {
                while let Ok((mut stream, _)) = listener.accept() {
                    accepted.fetch_add(1, Ordering::Relaxed);
                    while let Some(id) = request(&mut stream) {
                        let head = record(STDOUT, b"Content-Type: text/plain\r\n\r\nserved");
                        let mut answer = [head, record(END_REQUEST, &[0; 8])].concat();
                        let end = answer.len() - 16;
                        for at in [2, end + 2] {
                            answer[at..at + 2].copy_from_slice(&id);
                        }
                        if stream.write_all(&answer).is_err() {
                            break;
                        }
                    }
                }
            });
        }
    }

    /// The number of connections that 32 clients need for this number of requests each.
    fn connections(
        &self,
        server: &Server,
        rounds: usize,
        method: fn(usize) -> &'static str,
    ) -> usize {
        let before = self.accepted.load(Ordering::Relaxed);
        let addr = server.addr();
        let ask = move || {
            let mut client = Client::connect(addr);
            for round in 0..rounds {
                let request = Request::new(method(round), "/app/x");
                assert_eq!(client.ask(&request).text(), "served");
            }
        };
        let threads: Vec<_> = (0..32).map(|_| std::thread::spawn(ask)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.accepted.load(Ordering::Relaxed) - before
    }
}

/// Reads a request to its end and returns its id.
fn request(stream: &mut impl Read) -> Option<[u8; 2]> {
    const STDIN: u8 = 5;
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).ok()?;
        let [_, kind, id @ .., len, low, padding, _] = header;
        let len = usize::from(u16::from_be_bytes([len, low]));
        stream.read_exact(&mut vec![0; len + usize::from(padding)]).ok()?;
        if kind == STDIN && len == 0 {
            return Some(id);
        }
    }
}

/// Simultaneous requests of 32 clients use one connection per process, and a few more for which no
/// process was free. Each `POST` needs a new connection.
#[test]
fn under_load_connections_are_kept() {
    let site = Site::new();
    let serving = Serving::new(&site);
    let attached = format!("/app={}", serving.address);
    let server = Server::start(site.root(), &["--fastcgi", &attached, "--threads", "2"]);
    let get: fn(usize) -> &'static str = |_| "GET";
    serving.more(1);
    let one = serving.connections(&server, 50, get);
    serving.more(3);
    let four = serving.connections(&server, 50, get);
    serving.more(8);
    let twelve = serving.connections(&server, 50, get);
    assert!(one < 40 && four < 60 && twelve < 120, "{one}, {four}, {twelve} for 1600 requests");
    let mixed =
        serving.connections(&server, 50, |round| if round % 10 == 9 { "POST" } else { "GET" });
    assert!((160..400).contains(&mixed), "{mixed} for 1600 requests, 160 of them POST");
}

/// All free processes get requests, although connections are tried one at a time before any is
/// answered.
#[test]
fn every_process_is_used_at_once() {
    let site = Site::with("wait.php", "<?php file_get_contents($_GET['go']); echo 'went';");
    let go: Vec<_> = (0..8).map(|n| site.fifo(&format!("go{n}"))).collect();
    let pool = "pm.max_children = 8";
    for fpm in [Fpm::start(site.root(), pool), Fpm::start_tcp(site.root(), pool)] {
        let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
        let mut clients: Vec<_> = (0..8)
            .map(|n| {
                let mut client = server.connect();
                client.send(Request::get(&format!("/wait.php?go=go{n}")).bytes());
                client
            })
            .collect();
        // In reverse order, so that all must be at work at the same time.
        for (client, go) in clients.iter_mut().zip(&go).rev() {
            go.release();
            assert_eq!(client.response("GET").text(), "went");
        }
    }
}

/// Requests that time out in the queue do not delay the others.
#[test]
fn clients_that_leave_while_they_wait_are_passed_over() {
    let site = Site::with("wait.php", "<?php file_get_contents('go'); echo 'went';");
    site.write("quick.php", "<?php echo 'quick';");
    let go = site.fifo("go");
    let fpm = Fpm::start(site.root(), "pm.max_children = 1");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let mut first = server.connect();
    first.send(Request::get("/wait.php").bytes());
    let mut others: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            client.send(Request::get("/quick.php").bytes());
            client
        })
        .collect();
    others.drain(..10);
    go.release();
    assert_eq!(first.response("GET").text(), "went");
    for mut client in others {
        assert_eq!(client.response("GET").text(), "quick");
    }
}

#[test]
fn idle_connections_are_given_back() {
    let site = Site::with("quick.php", "<?php echo 'quick';");
    let fpm = Fpm::start(site.root(), "pm.max_children = 1");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php(), "--threads", "2"]);
    let before = processes::unix_sockets(server.front());
    // With a single process, an idle connection keeps all other requests out.
    for _ in 0..5 {
        assert_eq!(server.page("/quick.php"), "quick");
        let post = Request::post("/quick.php", "text/plain", "x");
        assert_eq!(server.ask(&post).text(), "quick");
    }
    let back =
        wait::until(sendoff_tests::LIMIT, || processes::unix_sockets(server.front()) <= before);
    assert!(back);
}

#[test]
fn nobody_there_or_nobody_answering() {
    let site = Site::with("a.php", "<?php echo 'never';");
    let nobody = format!(".php=unix:{}", site.outside("none.sock").display());
    let server = Server::start(site.root(), &["--fastcgi", &nobody]);
    assert_eq!(server.get("/a.php").status(), 502);
    server.await_log("none.sock");
    drop(server);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let attached = format!(".php=tcp:{}", silent.local_addr().unwrap());
    let server = Server::start(
        site.root(),
        &["--fastcgi", &attached, "--fastcgi-timeout", "0.3", "--user", &user()],
    );
    assert_eq!(server.get("/a.php").status(), 504);
}

/// The option is here to test that it works together with others.
fn user() -> String {
    if rustix::process::getuid().is_root() { "www-data".to_owned() } else { "nobody".to_owned() }
}

/// A FastCGI application that sends one given response per connection.
fn answering(
    site: &Site,
    answers: Vec<Vec<u8>>,
) -> (String, std::thread::JoinHandle<Vec<Vec<u8>>>) {
    let path = site.outside("app.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let thread = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            // Up to the empty STDIN record.
            while !request.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
                let n = stream.read(&mut buffer).unwrap();
                assert!(n > 0, "the front hung up");
                request.extend_from_slice(&buffer[..n]);
            }
            stream.write_all(&answer).unwrap();
            requests.push(request);
        }
        requests
    });
    (format!("unix:{}", path.display()), thread)
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

const STDOUT: u8 = 6;
const END_REQUEST: u8 = 3;

#[test]
fn refusals_and_nonsense_become_statuses() {
    let site = Site::new();
    let head = record(STDOUT, b"Content-Type: text/plain\r\n\r\nfine");
    let end = |status| record(END_REQUEST, &[0, 0, 0, 0, status, 0, 0, 0]);
    let answers = vec![
        [head, end(0)].concat(),
        end(1),
        end(2),
        end(3),
        end(0),
        b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        record(STDOUT, b"no header\r\n\r\n"),
        record(200, b"?"),
        Vec::new(),
    ];
    let (address, application) = answering(&site, answers);
    let server = Server::start(site.root(), &["--fastcgi", &format!("/app={address}")]);
    // POST is not idempotent: each request goes over a new connection, and is sent once.
    let post = Request::post("/app/x", "text/plain", "x");
    assert_eq!(server.ask(&post).text(), "fine");
    for status in [503, 503, 502, 502, 502, 502, 502, 502] {
        assert_eq!(server.ask(&post).status(), status);
    }
    application.join().unwrap();
}

#[test]
fn a_prefix_belongs_to_its_application() {
    let site = Site::with("app/real.txt", "not sent");
    site.write("apple.txt", "static");
    let answer =
        [record(STDOUT, b"Status: 201 Made\r\n\r\n"), record(END_REQUEST, &[0; 8])].concat();
    let (address, application) = answering(&site, vec![answer.clone(), answer]);
    let server = Server::start(site.root(), &["--fastcgi", &format!("/app={address}")]);
    let sneaky = Request::post("/app/real.txt?q", "text/plain", "body")
        .header("X-Sendfile-Type", "X-Accel-Redirect")
        .header("X-Accel-Mapping", "/=/etc");
    assert_eq!(server.ask(&sneaky).status(), 201);
    assert_eq!(server.ask(&Request::post("/app", "text/plain", "b")).status(), 201);
    assert_eq!(server.page("/apple.txt"), "static");
    let requests = application.join().unwrap();
    let request = String::from_utf8_lossy(&requests[0]).into_owned();
    let root = site.root().display().to_string();
    for expected in [
        "SCRIPT_NAME/app".to_owned(),
        "PATH_INFO/real.txt".to_owned(),
        format!("SCRIPT_FILENAME{root}/app"),
        "QUERY_STRINGq".to_owned(),
    ] {
        assert!(request.contains(&expected), "{expected} in {request:?}");
    }
    assert!(!request.contains("X_SENDFILE_TYPE") && !request.contains("X_ACCEL"), "{request:?}");
}

#[test]
fn a_slow_client_does_not_hold_the_application() {
    let site =
        Site::with("big.php", "<?php for ($i = 0; $i < 20000; $i++) echo str_repeat('x', 1000);");
    site.write("quick.php", "<?php echo 'quick';");
    let fpm = Fpm::start(site.root(), "pm.max_children = 1");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let mut slow = Client::connect_narrow(server.addr(), 4096);
    slow.send(Request::get("/big.php").bytes());
    assert_eq!(server.page("/quick.php"), "quick");
    assert_eq!(slow.response("GET").expect(200).len(), 20_000_000);
}

#[test]
fn a_client_that_leaves_frees_the_application() {
    let site =
        Site::with("endless.php", "<?php while (true) { echo str_repeat('x', 10000); flush(); }");
    site.write("quick.php", "<?php echo 'quick';");
    let fpm = Fpm::start(site.root(), "pm.max_children = 1");
    let server = Server::start(site.root(), &["--fastcgi", &fpm.php()]);
    let mut client = server.connect();
    client.send(Request::get("/endless.php").bytes());
    client.read(1000);
    drop(client);
    assert_eq!(server.page("/quick.php"), "quick");
}

#[test]
fn a_full_queue_of_connections_is_for_later() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket};
    let site = Site::with("a.php", "<?php echo 'never';");
    let path = site.outside("full.sock");
    let address = SocketAddrUnix::new(&path).unwrap();
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &address).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    listen(&listener, 0).unwrap();
    // A queue of length 0 has room for one.
    let waiting = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    connect(&waiting, &address).unwrap();
    let attached = format!(".php=unix:{}", path.display());
    let server = Server::start(site.root(), &["--fastcgi", &attached]);
    let response = server.get("/a.php");
    assert_eq!(response.status(), 503);
    assert!(response.header("retry-after").is_some());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let site = Site::new();
    let none = site.outside("none").display().to_string();
    for options in [
        ["--fastcgi", ".php=/run/php.sock"],
        ["--fastcgi", "php=unix:/run/php.sock"],
        ["--accel", "x=/tmp"],
        ["--sendfile-from", &none],
    ] {
        let failed = Server::try_start(site.root(), &options).err().expect("it starts");
        assert!(failed.stderr.contains(options[1].split('=').next().unwrap()), "{failed:?}");
    }
}
