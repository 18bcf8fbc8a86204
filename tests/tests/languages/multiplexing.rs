//! Requests that share a connection to a FastCGI application: a program with Go's `net/http/fcgi`,
//! and applications that misbehave.

mod application;
mod hostile;
mod peer;

use application::{Attached, Way};
use sendoff_tests::{Broken, Client, LIMIT, Request, pattern, processes, wait};

/// Connections of one event loop that requests without a body may share.
const FEW: usize = 4;

/// Further connections of one event loop.
const MANY: usize = 16;

const BOTH: [Way; 2] = [Way::Unix, Way::Tcp];

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|at| (at >> 3).to_le_bytes()[0]).collect()
}

#[test]
fn five_hundred_requests_at_once_need_few_connections() {
    for way in BOTH {
        for threads in [1, 2] {
            let attached = Attached::start(way, &threads.to_string());
            for _ in 0..3 {
                let (ids, connections) = attached.gather(500);
                assert_eq!(ids, (0..500).map(|id| id.to_string()).collect::<Vec<_>>());
                assert!(connections <= FEW * threads, "{connections} over {way:?}");
            }
        }
    }
}

#[test]
fn large_bodies_in_both_directions_are_whole() {
    for way in BOTH {
        let attached = Attached::start(way, "1");
        std::thread::scope(|scope| {
            for seed in 0..60 {
                let server = &attached.server;
                scope.spawn(move || {
                    let body = pattern(seed, 200_000 + 20_000 * usize::try_from(seed).unwrap());
                    for method in ["POST", "PUT"] {
                        let mut request = Request::post("/app/echo", "text/plain", body.clone());
                        request.method = method.to_owned();
                        let response = server.connect().ask(&request);
                        assert!(response.expect(200) == body, "{} bytes", response.body.len());
                    }
                    let n = 300_000 * usize::try_from(seed % 7).unwrap();
                    let response = server.get(&format!("/app/bytes?n={n}"));
                    assert!(response.expect(200) == bytes(n), "{} bytes", response.body.len());
                });
            }
        });
    }
}

/// Clients that take nothing of large responses, buffered and not, delay no other request.
#[test]
fn slow_clients_delay_no_others() {
    let attached = Attached::start(Way::Unix, "1");
    let stalled: Vec<_> = (0..20)
        .map(|i| {
            let mut client = Client::connect_narrow(attached.server.addr(), 4096);
            let unbuffered = if i % 2 == 0 { "&unbuffered=1" } else { "" };
            client.send(Request::get(&format!("/app/bytes?n=10000000{unbuffered}")).bytes());
            client.head().unwrap();
            client
        })
        .collect();
    let (_, connections) = attached.gather(200);
    assert!(connections <= FEW + MANY, "{connections}");
    for i in 0..100 {
        assert_eq!(attached.server.page(&format!("/app/hello?{i}")), format!("hello {i}"));
    }
    let body = pattern(1, 1_000_000);
    let echoed = attached.server.ask(&Request::post("/app/echo", "text/plain", body.clone()));
    assert!(echoed.expect(200) == body);
    // They get all of it in the end.
    for mut client in stalled {
        let mut all = Vec::new();
        while all.len() < 10_000_000 {
            all.extend(client.chunk());
        }
        assert!(all == bytes(10_000_000));
    }
}

/// A handler that does not read its body stops Go from reading the connection.
#[test]
fn a_body_that_is_not_read_delays_no_others() {
    let attached = Attached::start(Way::Tcp, "1");
    let post = |target: &str| Request::post(target, "text/plain", vec![b'x'; 3_000_000]);
    let held: Vec<_> = (0..8).map(|_| attached.hold(post)).collect();
    let (_, connections) = attached.gather(100);
    assert!(connections <= FEW, "{connections}");
    for (mut client, name) in held {
        attached.release(&name);
        assert_eq!(client.response("POST").text(), "held 3000000 <nil>");
    }
}

/// For Go a request is open until its body has ended; if the id is used again before, Go closes the
/// connection.
#[test]
fn answers_before_the_end_of_the_body_break_nothing() {
    let attached = Attached::start(Way::Unix, "1");
    let accepted = || attached.server.page("/app/accepted").parse::<u32>().unwrap();
    let before = accepted();
    let (mut held, name) = attached.hold(Request::get);
    for _ in 0..100 {
        // By a method that may be repeated, because others have a new connection each.
        let mut request = Request::post("/app/early", "text/plain", vec![b'x'; 1_000_000]);
        request.method = "PUT".to_owned();
        assert_eq!(attached.server.ask(&request).text(), "early");
    }
    let new = accepted() - before;
    assert!(new < 10, "{new} connections");
    attached.release(&name);
    assert_eq!(held.response("GET").text(), "held 0 <nil>");
}

#[test]
fn a_client_that_leaves_costs_no_other_its_answer() {
    for way in BOTH {
        let attached = Attached::start(way, "1");
        let held: Vec<_> = (0..8).map(|_| attached.hold(Request::get)).collect();
        for _ in 0..20 {
            // At work without output, with output, and with a body on its way.
            let (client, name) = attached.hold(Request::get);
            drop(client);
            let mut reading = Client::connect_narrow(attached.server.addr(), 4096);
            reading.send(Request::get("/app/bytes?n=3000000").bytes());
            reading.head().unwrap();
            drop(reading);
            let mut sending = attached.server.connect();
            sending
                .send("POST /app/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\nxxx");
            drop(sending);
            attached.release(&name);
            attached.await_gathered(&format!("{name}-done"), 1);
            assert_eq!(attached.server.page("/app/hello?after"), "hello after");
        }
        for (mut client, name) in held {
            attached.release(&name);
            assert_eq!(client.response("GET").text(), "held 0 <nil>");
        }
    }
}

/// A body that is passed on while it arrives waits for its client; other requests do not.
#[test]
fn bodies_that_wait_for_their_clients_delay_no_others() {
    for way in BOTH {
        let attached = Attached::start_streaming(way);
        let begin = || {
            let mut client = attached.server.connect();
            client.send("POST /app/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n");
            client.send([b'x'; 100_000]);
            client
        };
        // More than there are connections.
        let waiting: Vec<_> = (0..40).map(|_| begin()).collect();
        let leaving: Vec<_> = (0..40).map(|_| begin()).collect();
        let (_, connections) = attached.gather(100);
        assert!(connections <= FEW + MANY, "{connections}");
        for i in 0..50 {
            let body = pattern(i, 300_000);
            let echoed =
                attached.server.ask(&Request::post("/app/echo", "text/plain", body.clone()));
            assert!(echoed.expect(200) == body);
        }
        drop(leaving);
        for mut client in waiting {
            client.send([b'x'; 100_000]);
            assert!(client.response("POST").expect(200) == [b'x'; 200_000]);
        }
    }
}

#[test]
fn silence_ends_one_request_and_no_other() {
    let options = ["--threads", "1", "--fastcgi-timeout", "1s"];
    let attached = Attached::start_with(Way::Unix, &options);
    let mut silent: Vec<_> = (0..10).map(|_| attached.server.connect()).collect();
    for client in &mut silent {
        client.send(Request::get("/app/silent").bytes());
    }
    let others = std::thread::scope(|scope| {
        let quick = scope.spawn(|| {
            let hello = || attached.server.page("/app/hello?x") == "hello x";
            (0..2000).filter(|_| hello()).count()
        });
        for client in &mut silent {
            assert_eq!(client.response("GET").status(), 504);
        }
        quick.join().unwrap()
    });
    assert_eq!(others, 2000);
    attached.server.await_log("it was silent for too long");
}

#[test]
fn a_program_that_dies_costs_its_requests_only() {
    let mut attached = Attached::start(Way::Unix, "1");
    let mut begun = Client::connect_narrow(attached.server.addr(), 4096);
    begun.send(Request::get("/app/bytes?n=300000000").bytes());
    let head = begun.head().unwrap();
    let mut held: Vec<_> = (0..10).map(|_| attached.hold(Request::get).0).collect();
    let mut posted: Vec<_> = (0..10)
        .map(|_| attached.hold(|target| Request::post(target, "text/plain", "x")).0)
        .collect();
    attached.kill();
    let cut = begun.body_of(head, "GET");
    assert!(matches!(cut, Err(Broken::Cut(_))));
    for client in held.iter_mut().chain(&mut posted) {
        let method = "GET";
        assert_eq!(client.response(method).status(), 502);
    }
}

#[test]
fn idle_connections_are_closed() {
    let attached = Attached::start(Way::Unix, "1");
    attached.gather(100);
    let before = processes::unix_sockets(attached.pid());
    let open = || processes::unix_sockets(attached.pid());
    // The listener, twice.
    assert!(before > 2 && wait::until(LIMIT, || open() == 2), "{before}, then {}", open());
    assert_eq!(attached.server.page("/app/hello?again"), "hello again");
}

#[test]
fn files_that_are_named_and_explanations_are_as_ever() {
    let attached = Attached::start(Way::Unix, "1");
    let (mut held, name) = attached.hold(Request::get);
    let file = attached.site.path("file.txt");
    let target = format!("/app/file?name={}", file.display());
    for _ in 0..20 {
        assert_eq!(attached.server.page(&target), "the file");
    }
    let explained = attached.server.explain("/app/hello?x", &[]).unwrap();
    assert!(explained.contains("a FastCGI application"), "{explained}");
    attached.release(&name);
    held.response("GET").expect(200);
}
