//! php-fpm with `sendoff.so`: files that change, processes that die, fronts that restart,
//! applications that break the protocol.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, recv, socket};
use rustix::process::Signal;
use sendoff_tests::{
    Broken, Client, Extended, LIMIT, Request, Response, Server, Site, pattern, processes, wait,
};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

const MB: usize = 1 << 20;

/// True if the extension hands the file over at this moment.
fn hands_over(extended: &Extended) -> bool {
    let (response, (given, _)) = extended.counted("readfile('a');");
    assert!(response.expect(200) == pattern(1, 100_000));
    given == 100_000
}

fn start(pool: &str) -> Extended {
    let site = Site::new();
    site.write("a", pattern(1, 100_000));
    site.write("big", pattern(2, 8 * MB));
    site.write("big.php", "<?php readfile('big');");
    Extended::start(site, pool, &[])
}

#[test]
fn a_script_that_rewrites_what_it_has_read_sends_what_it_read() {
    let script = "<?php
        $n = (int) $_GET['n'];
        $read = file_get_contents('page');
        $next = str_repeat(sprintf('%08d', $n + 1), 10000);
        if ($n % 2) { file_put_contents('page', $next); }
        if ($n % 3 == 0) { echo 'x'; }
        echo $read;
        if ($n % 2 == 0) { $f = fopen('page', 'r+'); fwrite($f, $next); ftruncate($f, strlen($next)); }
        flush();
        if ($n % 3 == 0) { readfile('page'); }";
    let edition = |n: u32| format!("{n:08}").repeat(10_000);
    let extended = start("php_admin_value[output_buffering] = 4096");
    extended.site.write("self.php", script);
    extended.site.write("page", edition(0));
    let mut client = extended.server.connect();
    for n in 0..200 {
        let expected = match n % 3 {
            0 => format!("x{}{}", edition(n), edition(n + 1)),
            _ => edition(n),
        };
        let body = client.ask(&Request::get(&format!("/self.php?n={n}"))).text();
        assert!(body == expected, "round {n}: {} bytes", body.len());
    }
}

#[test]
fn a_file_rewritten_while_it_is_on_its_way_arrives_as_it_was() {
    let extended = start("");
    let path = extended.site.path("big");
    let (_, (given, _)) = extended.counted("readfile('big');");
    assert_eq!(given, 8 << 20);
    for round in 2..8 {
        let new = pattern(round + 1, 8 * MB);
        let mut client = Client::connect_narrow(extended.server.addr(), 16 * 1024);
        client.send(Request::get("/big.php").bytes());
        let head = client.head().unwrap();
        // `open()` waits until the front has copied the bytes that it has not sent.
        let path = path.clone();
        let writer = thread::spawn(move || fs::write(path, new).unwrap());
        let body = client.body_of(head, "GET").unwrap().body;
        assert!(body == pattern(round, 8 * MB), "round {round}");
        writer.join().unwrap();
    }
}

/// A writer is not delayed while the process is busy with another request, or is idle and holds the
/// file in its cache.
#[test]
fn a_writer_does_not_wait_for_a_front_that_has_gone() {
    let extended = start("pm.max_children = 1");
    assert!(hands_over(&extended));
    processes::signal(extended.server.front(), Signal::KILL);
    let before = Instant::now();
    fs::write(extended.site.path("a"), pattern(9, 10)).unwrap();
    let waited = before.elapsed();
    assert!(waited < Duration::from_secs(5), "the writer waited {waited:?}");
    assert!(wait::until(LIMIT, || {
        Client::connect(extended.server.addr())
            .try_ask(&Request::get("/quick.php"))
            .is_ok_and(|response| response.text() == "quick")
    }));
}

#[test]
fn after_a_restart_of_the_front_files_are_handed_over_again() {
    let extended = start("pm.max_children = 2");
    for _ in 0..3 {
        assert!(hands_over(&extended));
        processes::signal(extended.server.front(), Signal::KILL);
        // The first responses tell the new front about the application.
        let again = wait::until(LIMIT, || {
            let mut client = Client::connect(extended.server.addr());
            let answers = client.try_ask(&Request::get("/quick.php"));
            answers.is_ok_and(|response| response.text() == "quick") && hands_over(&extended)
        });
        assert!(again, "nothing is handed over to the new front");
    }
}

#[test]
fn after_a_restart_of_php_fpm_files_are_handed_over_again() {
    let mut extended = start("pm.max_children = 2");
    for _ in 0..3 {
        assert!(hands_over(&extended));
        extended.fpm.stop();
        assert_eq!(extended.server.get("/quick.php").status(), 502);
        extended.fpm.start_again();
        assert_eq!(extended.server.page("/quick.php"), "quick");
    }
    assert!(hands_over(&extended));
}

#[test]
fn a_process_killed_at_work_costs_its_request_only() {
    let extended = start("");
    for (name, code) in [
        ("moved", "readfile('a'); flush(); posix_kill(getmypid(), 9);"),
        ("framed", "echo 'x'; @ob_end_flush(); flush(); posix_kill(getmypid(), 9);"),
        ("queued", "readfile('a'); posix_kill(getmypid(), 9);"),
    ] {
        extended
            .site
            .write("late.php", format!("<?php opcache_invalidate(__FILE__, true); {code}"));
        let late = extended.server.connect().try_ask(&Request::get("/late.php"));
        assert!(matches!(late, Err(Broken::Cut(_) | Broken::Closed)), "{name}: {late:?}");
        assert!(wait::until(LIMIT, || hands_over(&extended)));
    }
}

#[test]
fn processes_that_are_replaced_cost_no_request() {
    for max_requests in 1..=2 {
        let extended = start(&format!("pm.max_requests = {max_requests}"));
        let mut client = extended.server.connect();
        for _ in 0..10 {
            assert!(client.ask(&Request::get("/big.php")).expect(200) == pattern(2, 8 * MB));
        }
    }
}

/// The end of one response and the beginning of the next cross on the link.
#[test]
fn clients_that_leave_harm_nobody() {
    let extended = start("pm.max_children = 1");
    let script = "<?php ignore_user_abort((bool) $_GET['ignore']);
        for ($i = 0; $i < 2000; $i++) { readfile('a'); echo 'x'; flush(); }
        file_put_contents('counts', 'done');";
    extended.site.write("long.php", script);
    for round in 0..20 {
        let mut client = extended.server.connect();
        client.send(Request::get(&format!("/long.php?ignore={}", round % 2)).bytes());
        client.read(100 + 10_000 * round);
        drop(client);
        assert_eq!(extended.server.page("/quick.php"), "quick");
        assert!(extended.server.get("/big.php").expect(200) == pattern(2, 8 * MB));
    }
    assert!(hands_over(&extended));
}

#[test]
fn many_at_a_time_on_several_event_loops() {
    let site = Site::new();
    for n in 0..8 {
        site.write(&format!("f{n}"), pattern(n, 200_000 + usize::try_from(n).unwrap()));
    }
    site.write("f.php", "<?php echo 'x'; readfile('f' . $_GET['n']); echo 'y';");
    let extended = Extended::start(site, "pm.max_children = 6", &["--threads", "2"]);
    let addr = extended.server.addr();
    let clients: Vec<_> = (0..8)
        .map(|n| {
            thread::spawn(move || {
                let whole = pattern(n, 200_000 + usize::try_from(n).unwrap());
                let expected = [b"x", &whole[..], b"y"].concat();
                for _ in 0..30 {
                    let mut client = Client::connect(addr);
                    for _ in 0..2 {
                        let page = client.ask(&Request::get(&format!("/f.php?n={n}")));
                        assert!(page.expect(200) == expected);
                    }
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

/// A FastCGI application on a UNIX socket that sends scripted records, one connection at a time.
struct Fake {
    listener: UnixListener,
    address: String,
}

const STDOUT: u8 = 6;
const END_REQUEST: u8 = 3;
const ABORT_REQUEST: u8 = 2;
const CLAIM: u8 = 138;

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// The words of `SENDOFF_CHANNEL` that the front announces: the socket's name, the token and the
/// claim, both in hexadecimal digits.
struct Announced {
    name: String,
    token: String,
    claim: String,
}

impl Fake {
    fn new(site: &Site) -> Self {
        let path = site.outside("fake.sock");
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        Self { listener, address: format!("/app=unix:{}", path.display()) }
    }

    /// Answers one request. The requests are POSTs, so each comes on a new connection.
    fn answer(&self, answer: impl FnOnce(Option<Announced>) -> Vec<u8>) {
        let (mut stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
        while !request.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
            let n = stream.read(&mut buffer).unwrap();
            assert!(n > 0, "the front hung up");
            request.extend_from_slice(&buffer[..n]);
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let announced = text.split_once("SENDOFF_CHANNEL").map(|(_, value)| {
            let words: Vec<&str> = value.splitn(5, ' ').collect();
            assert_eq!(words[2..4], ["1", "0"]);
            let claim = words[4][..32].to_owned();
            Announced { name: words[0].to_owned(), token: words[1].to_owned(), claim }
        });
        // The front may close the connection before the end.
        let _closed = stream.write_all(&answer(announced));
    }
}

fn post(server: &Server) -> Result<Response, Broken> {
    server.connect().try_ask(&Request::post("/app/x", "text/plain", "x"))
}

fn framed(claim: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("X-Sendoff: {claim}\r\nContent-Type: text/plain\r\n\r\n");
    [record(STDOUT, &[head.as_bytes(), body].concat()), record(END_REQUEST, &[0; 8])].concat()
}

#[test]
fn applications_that_break_the_frames_are_cut_off() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let server =
        Server::start(site.root(), &["--fastcgi", &fake.address.clone(), "--workers", "1"]);
    let bodies: [(&[u8], Option<&[u8]>); 6] = [
        (b"\0\0\0\x05hello", Some(b"hello")),
        (b"", Some(b"")),
        (b"\0\0\0\x05he", None),
        (b"\0\0", None),
        (b"\xff\xff\xff\xffx", None),
        (b"\0\0\0\x01x\xff\xff\xff\xff\0\0\0\x01y", None),
    ];
    let application = thread::spawn(move || {
        fake.answer(|announced| {
            assert!(announced.is_none(), "nothing is announced before it says hello");
            framed("1", b"plain")
        });
        for (body, _) in bodies {
            fake.answer(|announced| framed(&announced.unwrap().claim, body));
        }
        // The claim of another request: the body is not framed.
        fake.answer(|_| framed(&"0".repeat(32), b"\0\0\0\x05"));
        // Without the field the front stops announcing.
        fake.answer(|_| {
            [record(STDOUT, b"A: b\r\n\r\nplain"), record(END_REQUEST, &[0; 8])].concat()
        });
        fake.answer(|announced| {
            assert!(announced.is_none());
            framed("1", b"plain")
        });
    });
    assert_eq!(post(&server).unwrap().text(), "plain");
    for (sent, expected) in bodies {
        match (post(&server), expected) {
            (Ok(response), Some(expected)) => assert_eq!(response.expect(200), expected),
            (Err(Broken::Cut(_) | Broken::Closed), None) => {}
            (other, _) => panic!("{sent:?}: {other:?}"),
        }
    }
    assert_eq!(post(&server).unwrap().expect(200), b"\0\0\0\x05");
    assert_eq!(post(&server).unwrap().text(), "plain");
    assert_eq!(post(&server).unwrap().text(), "plain");
    application.join().unwrap();
}

fn hex(digits: &str) -> Vec<u8> {
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// Registers as a process would, with one link. `None`: refused.
fn register(announced: &Announced, token: &str) -> Option<UnixStream> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, socketpair};
    use std::os::fd::AsFd;
    let registry = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(announced.name.as_bytes()).unwrap();
    connect(&registry, &address).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (_, guard) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let message = [&hex(token)[..], &std::process::id().to_be_bytes(), &[0, 0, 0, 1]].concat();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [theirs.as_fd(), guard.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let pieces = [std::io::IoSlice::new(&message)];
    sendmsg(&registry, &pieces, &mut control, SendFlags::NOSIGNAL).unwrap();
    let mut answer = [0; 1];
    let (n, _) = recv(&registry, &mut answer, rustix::net::RecvFlags::empty()).unwrap();
    (n == 1 && &answer == b"R").then_some(ours)
}

#[test]
fn registrations_and_claims_that_lie_are_refused() {
    let site = Site::new();
    let fake = Fake::new(&site);
    let server =
        Server::start(site.root(), &["--fastcgi", &fake.address.clone(), "--workers", "1"]);
    let application = thread::spawn(move || {
        fake.answer(|_| framed("1", b"plain"));
        fake.answer(|announced| {
            let announced = announced.unwrap();
            for _ in 0..200 {
                assert!(register(&announced, &"0".repeat(32)).is_none(), "a wrong token");
            }
            let mut link = register(&announced, &announced.token).unwrap();
            link.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            // The answer to a claim of an unknown request is ABORT_REQUEST, and the following
            // records are dropped.
            let mut wrong = record(CLAIM, &[7; 16]);
            wrong.extend(record(STDOUT, b"dropped"));
            wrong.extend(record(END_REQUEST, &[0; 8]));
            link.write_all(&wrong).unwrap();
            let mut aborted = [0; 8];
            link.read_exact(&mut aborted).unwrap();
            assert_eq!(aborted[1], ABORT_REQUEST);
            let claim = hex(&announced.claim);
            link.write_all(&[record(CLAIM, &claim), record(STDOUT, b"over")].concat()).unwrap();
            // A second claim before the end breaks the link, and the response with it.
            link.write_all(&record(CLAIM, &claim)).unwrap();
            assert_eq!(link.read(&mut aborted).unwrap(), 0, "the front closes a broken link");
            framed(&announced.claim, b"\0\0\0\x05hello\xff\xff\xff\xff")
        });
        // A record of a request that was not claimed.
        fake.answer(|announced| {
            let announced = announced.unwrap();
            let mut link = register(&announced, &announced.token).unwrap();
            link.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            link.write_all(&record(STDOUT, b"unasked")).unwrap();
            assert_eq!(link.read(&mut [0; 8]).unwrap(), 0);
            framed(&announced.claim, b"\0\0\0\x05hello")
        });
        // A correct application.
        fake.answer(|announced| {
            let announced = announced.unwrap();
            let mut link = register(&announced, &announced.token).unwrap();
            let claim = record(CLAIM, &hex(&announced.claim));
            let end = record(END_REQUEST, &[0; 8]);
            link.write_all(&[claim, record(STDOUT, b" world"), end].concat()).unwrap();
            framed(&announced.claim, b"\0\0\0\x05hello\xff\xff\xff\xff")
        });
    });
    assert_eq!(post(&server).unwrap().text(), "plain");
    assert!(matches!(post(&server), Err(Broken::Cut(_) | Broken::Closed)));
    assert_eq!(post(&server).unwrap().text(), "hello");
    assert_eq!(post(&server).unwrap().text(), "hello world");
    application.join().unwrap();
    // Every local process can make such lines.
    let lines = server.log().matches("a registration was refused").count();
    assert!((1..100).contains(&lines), "{lines}");
}
