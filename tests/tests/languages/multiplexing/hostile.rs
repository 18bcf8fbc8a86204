//! Applications that announce multiplexing and misbehave: the client gets the correct response, a
//! clear 502 or 504, or a cut connection. It never hangs, and never gets bytes of another request.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sendoff_tests::{Broken, LIMIT, Request, wait};

use super::peer::{Heard, STDOUT, Scripted, Wire, beginning, end, record, response};

type Held = Arc<Mutex<Vec<(Arc<Wire>, u16, String)>>>;

/// Holds requests until `count` have come, and then returns all of them to be answered.
fn gather(
    held: &Held,
    wire: &Arc<Wire>,
    heard: &Heard,
    count: usize,
) -> Option<Vec<(Arc<Wire>, u16, String)>> {
    let Heard::Request { id, path } = heard else { return None };
    let mut held = held.lock().unwrap();
    held.push((Arc::clone(wire), *id, path.clone()));
    (held.len() == count).then(|| std::mem::take(&mut *held))
}

fn answer_all(all: &[(Arc<Wire>, u16, String)]) {
    for (wire, id, path) in all {
        wire.answer(*id, path);
    }
}

#[track_caller]
fn expect_own(answers: Vec<Option<(u16, String)>>, paths: &[&str]) {
    for (answer, path) in answers.into_iter().zip(paths) {
        assert_eq!(answer, Some((200, (*path).to_owned())));
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Ids are small and unique among open requests, and answers may come in any order and in pieces.
#[test]
fn ids_are_small_and_belong_to_one_request() {
    let held = Held::default();
    let peer = Scripted::sharing(&[], &[], move |wire, heard| {
        let Some(mut all) = gather(&held, wire, heard, 100) else { return };
        all.reverse();
        for (wire, id, path) in &all {
            wire.send(beginning(*id, &path[..1]));
        }
        for (wire, id, path) in &all {
            wire.note_end(*id);
            wire.send([record(*id, STDOUT, &path.as_bytes()[1..]), end(*id, 0)].concat());
        }
    });
    for round in 0..10 {
        let names = names(&format!("r{round}-"), 100);
        expect_own(peer.ask_all(&refs(&names)), &refs(&names));
    }
    assert_eq!(peer.wrong(), Vec::<String>::new());
    let most = peer.seen.most.load(Ordering::Relaxed);
    assert!(most >= 20, "at most {most} requests shared a connection");
    let largest = peer.seen.largest_id.load(Ordering::Relaxed);
    assert!(largest <= 110, "{largest}");
}

#[test]
fn an_application_that_takes_one_request_at_a_time_gets_one() {
    let held = Held::default();
    let values = [("FCGI_MPXS_CONNS", "0"), ("FCGI_MAX_REQS", "50")];
    let peer = Scripted::start(&values, &[], move |wire, heard| {
        if let Some(all) = gather(&held, wire, heard, 10) {
            answer_all(&all);
        }
    });
    for _ in 0..5 {
        let names = names("r", 10);
        expect_own(peer.ask_all(&refs(&names)), &refs(&names));
    }
    assert_eq!(peer.seen.most.load(Ordering::Relaxed), 1);
    assert_eq!(peer.wrong(), Vec::<String>::new());
}

/// `FCGI_MAX_REQS` limits the requests on all connections together, `FCGI_MAX_CONNS` the
/// connections of all event loops.
#[test]
fn limits_that_the_application_names_are_kept() {
    let values = [("FCGI_MAX_REQS", "12"), ("FCGI_MAX_CONNS", "2")];
    for threads in ["1", "2"] {
        let peer = Scripted::sharing(&values, &["--threads", threads], |wire, heard| {
            let Heard::Request { id, path } = heard else { return };
            let (wire, id, path) = (Arc::clone(wire), *id, path.clone());
            std::thread::spawn(move || wire.answer(id, &path));
        });
        let open = || peer.seen.connections.load(Ordering::Relaxed);
        assert!(wait::until(LIMIT, || open() <= 2), "{} connections", open());
        peer.seen.most_connections.store(0, Ordering::Relaxed);
        for round in 0..5 {
            let names = names(&format!("r{round}-"), 200);
            expect_own(peer.ask_all(&refs(&names)), &refs(&names));
        }
        let most = peer.seen.most_of_all.load(Ordering::Relaxed);
        assert!((2..=12).contains(&most), "{most} at once");
        let connections = peer.seen.most_connections.load(Ordering::Relaxed);
        assert!(connections <= 2, "{connections} connections");
    }
}

/// Records that come for a request after its end are in no response.
#[test]
fn late_records_are_in_no_other_response() {
    let peer = Scripted::sharing(&[], &[], |wire, heard| {
        let Heard::Request { id, path } = heard else { return };
        wire.answer(*id, path);
        let late = b"Content-Type: text/plain\r\nX-Late: yes\r\n\r\nlate";
        wire.send([record(*id, STDOUT, late), end(*id, 0), record(*id, STDOUT, late)].concat());
    });
    for round in 0..20 {
        let names = names(&format!("r{round}-"), 20);
        expect_own(peer.ask_all(&refs(&names)), &refs(&names));
    }
    assert_eq!(peer.wrong(), Vec::<String>::new());
}

/// When a shared connection breaks, one of its requests has a response that has begun: that
/// response is cut, `GET`s are sent again, a `POST` is not.
#[test]
fn a_connection_that_breaks_takes_along_what_cannot_be_asked_again() {
    let ways: [fn(u16) -> Vec<u8>; 7] = [
        |_| Vec::new(),
        |_| record(60_000, STDOUT, b"x"),
        |_| record(0, 11, &[0; 8]),
        |id| record(id, 3, &[0; 7]),
        |id| record(id, 1, &[0; 8]),
        |_| vec![2; 8],
        |id| record(id, 140, &[0; 8]),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let (held, is_broken) = (Held::default(), AtomicBool::new(false));
        let peer = Scripted::sharing(&[], &[], move |wire, heard| {
            let Heard::Request { id, path } = heard else { return };
            if is_broken.load(Ordering::Relaxed) {
                return wire.answer(*id, path);
            }
            let Some(all) = gather(&held, wire, heard, 9) else { return };
            is_broken.store(true, Ordering::Relaxed);
            for (wire, id, path) in &all {
                if path == "begun" {
                    wire.send([beginning(*id, "the beginning"), way(*id)].concat());
                }
            }
            for (wire, ..) in &all {
                wire.close();
            }
        });
        // Two on each shared connection; the `POST` has one for itself.
        let paths = ["begun", "a", "b", "post", "c", "d", "e", "f", "g"];
        let got = peer.ask_all(&paths);
        assert_eq!(got[0], None, "way {number}");
        for (got, path) in got.iter().zip(paths).filter(|(_, path)| path.len() == 1) {
            assert_eq!(*got, Some((200, path.to_owned())), "way {number}");
        }
        assert!(matches!(got[3], Some((502, _))), "way {number}: {:?}", got[3]);
        let posts = peer
            .heard()
            .into_iter()
            .filter(|heard| matches!(heard, Heard::Request { path, .. } if path == "post"));
        assert_eq!(posts.count(), 1, "way {number}");
        assert!(wait::until(LIMIT, || peer.shares()), "it is asked again");
    }
}

/// An application that says that it can share connections, and cannot, or not now.
#[test]
fn a_refusal_leads_to_a_connection_for_each_request() {
    for status in [1, 2] {
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        let held = Held::default();
        let peer = Scripted::sharing(&[], &[], move |wire, heard| {
            let Heard::Request { id, path } = heard else { return };
            if wire.open().len() > 1 {
                count.fetch_add(1, Ordering::Relaxed);
                wire.note_end(*id);
                return wire.send(end(*id, status));
            }
            if path == "first" {
                held.lock().unwrap().push((Arc::clone(wire), *id, path.clone()));
            } else {
                wire.answer(*id, path);
            }
            if path == "last" {
                answer_all(&std::mem::take(&mut *held.lock().unwrap()));
            }
        });
        // They hold every connection that there may be.
        let firsts: Vec<_> = (0..4)
            .map(|n| {
                let mut client = peer.server.connect();
                client.send(Request::get("/app/first").bytes());
                let is_first =
                    |heard: &Heard| matches!(heard, Heard::Request { path, .. } if path == "first");
                assert!(
                    wait::until(LIMIT, || peer.heard().into_iter().filter(is_first).count() > n)
                );
                client
            })
            .collect();
        let paths = ["a", "b", "post1", "c", "post2", "d", "e", "f"];
        expect_own(peer.ask_all(&paths), &paths);
        assert!(refused.load(Ordering::Relaxed) > 0, "none was refused");
        let before = refused.load(Ordering::Relaxed);
        expect_own(peer.ask_all(&paths), &paths);
        assert_eq!(refused.load(Ordering::Relaxed), before, "status {status}");
        assert!(!peer.shares(), "status {status}");
        assert_eq!(peer.server.page("/app/last"), "last");
        for mut client in firsts {
            assert_eq!(client.response("GET").text(), "first");
        }
    }
}

/// A request that could have a connection of its own shares one if none can be made.
#[test]
fn a_connection_that_cannot_be_made_costs_no_request() {
    let held = Held::default();
    let peer = Scripted::sharing(&[], &[], move |wire, heard| {
        if let Some(all) = gather(&held, wire, heard, 3) {
            answer_all(&all);
        }
    });
    let mut client = peer.server.connect();
    client.send(Request::get("/app/first").bytes());
    peer.await_heard(|heard| matches!(heard, Heard::Request { path, .. } if path == "first"));
    peer.stop_listening();
    expect_own(peer.ask_all(&["post1", "post2"]), &["post1", "post2"]);
    assert_eq!(client.response("GET").text(), "first");
}

/// An application goes on with an aborted request: its output reaches no client, and the connection
/// is given up.
#[test]
fn a_request_that_is_never_aborted_costs_a_connection() {
    let (held, bad) = (Held::default(), Arc::new(AtomicUsize::new(usize::MAX)));
    let endless = Arc::clone(&bad);
    let peer = Scripted::sharing(&[], &[], move |wire, heard| match heard {
        Heard::Request { id, path } if path.starts_with("held") => {
            held.lock().unwrap().push((Arc::clone(wire), *id, path.clone()));
        }
        Heard::Request { id, path } if path == "release" => {
            answer_all(&std::mem::take(&mut *held.lock().unwrap()));
            wire.answer(*id, path);
        }
        Heard::Request { id, path } if path == "endless" => {
            endless.store(wire.number, Ordering::Relaxed);
            wire.send(beginning(*id, "endless"));
        }
        Heard::Request { id, path } if path == "which" => {
            wire.answer(*id, &wire.number.to_string());
        }
        Heard::Request { id, path } => wire.answer(*id, path),
        Heard::Abort(id) => {
            // Enough output that the front gives the connection up, and an id that stays open.
            (0..30).for_each(|_| wire.send(record(*id, STDOUT, &[b'y'; 60_000])));
        }
    });
    let begin = |path: &str| {
        let mut client = peer.server.connect();
        client.send(Request::get(&format!("/app/{path}")).bytes());
        peer.await_heard(
            |heard| matches!(heard, Heard::Request { path: heard, .. } if heard == path),
        );
        client
    };
    // Something that keeps each connection.
    let held: Vec<_> = (0..8).map(|n| begin(&format!("held{n}"))).collect();
    let mut leaves = begin("endless");
    leaves.head().unwrap();
    drop(leaves);
    peer.await_heard(|heard| matches!(heard, Heard::Abort(_)));
    let bad = bad.load(Ordering::Relaxed).to_string();
    let is_used =
        || peer.ask_all(&["which"; 20]).into_iter().flatten().any(|(_, wire)| wire == bad);
    assert!(wait::until(LIMIT, || !is_used()), "it takes new requests");
    assert!((0..20).all(|_| !is_used()), "it takes new requests again");
    for round in 0..10 {
        let names = names(&format!("r{round}-"), 20);
        expect_own(peer.ask_all(&refs(&names)), &refs(&names));
    }
    assert_eq!(peer.server.page("/app/release"), "release");
    for (n, mut client) in held.into_iter().enumerate() {
        assert_eq!(client.response("GET").text(), format!("held{n}"));
    }
    assert_eq!(peer.wrong(), Vec::<String>::new());
}

/// A request on an idle connection that the application closes at the same time is repeated.
#[test]
fn idle_connections_may_close_at_any_time() {
    let peer = Scripted::sharing(&[], &[], |wire, heard| {
        let Heard::Request { id, path } = heard else { return };
        if path.starts_with("close") && wire.open().len() == 1 {
            wire.send(response(*id, path));
            wire.close();
        } else {
            wire.answer(*id, path);
        }
    });
    for round in 0..50 {
        assert_eq!(peer.server.page("/app/close"), "close");
        assert_eq!(peer.server.page("/app/next"), "next");
        let posted = peer.server.ask(&Request::post("/app/posted", "text/plain", "x"));
        assert_eq!(posted.text(), "posted", "round {round}");
    }
}

/// An application that reads nothing and says nothing.
#[test]
fn silence_is_504_for_each() {
    let peer = Scripted::sharing(&[], &["--fastcgi-timeout", "1s"], |_, heard| {
        if matches!(heard, Heard::Request { path, .. } if path == "stop") {
            std::thread::park();
        }
    });
    let mut stop = peer.server.connect();
    stop.send(Request::get("/app/stop").bytes());
    peer.await_heard(|heard| matches!(heard, Heard::Request { path, .. } if path == "stop"));
    let names = names("r", 50);
    for answer in peer.ask_all(&refs(&names)) {
        assert!(matches!(answer, Some((504, _))), "{answer:?}");
    }
    let stopped = stop.try_response("GET");
    assert!(matches!(&stopped, Ok(response) if response.status() == 504), "{stopped:?}");
    assert!(!matches!(stopped, Err(Broken::Hangs)));
}
