//! Processes that are told to end while clients ask: they answer every request that they have read.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sendoff_tests::{LIMIT, Request, Server, wait};

/// Number of clients that ask at a time.
const CLIENTS: usize = 8;

/// Number of responses between two stops.
const PER_STOP: u64 = 40;

/// Asks for `target` all the time, calls `stop` with the numbers 0 to `stops`, and expects that every
/// response is `expected`.
#[track_caller]
pub fn cost_no_request(
    server: &Server,
    target: &str,
    expected: &str,
    stops: usize,
    mut stop: impl FnMut(usize),
) {
    let (answered, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let lost = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let ask = || {
            let (request, mut client) = (Request::get(target), server.connect());
            while !done.load(Ordering::Relaxed) {
                let answer = client.try_ask(&request);
                let is_whole = answer.as_ref().is_ok_and(|response| response.text() == expected);
                let closes = answer.as_ref().map_or(true, |response| response.head.closes());
                if !is_whole {
                    lost.lock().unwrap().push(format!("{answer:?}"));
                }
                if closes {
                    client = server.connect();
                }
                answered.fetch_add(1, Ordering::Relaxed);
            }
        };
        (0..CLIENTS).for_each(|_| drop(scope.spawn(ask)));
        for number in 0..stops {
            let enough = answered.load(Ordering::Relaxed) + PER_STOP;
            wait::until(LIMIT, || answered.load(Ordering::Relaxed) >= enough);
            stop(number);
        }
        done.store(true, Ordering::Relaxed);
    });
    let lost = lost.into_inner().unwrap();
    let first = lost.first().map_or("", String::as_str);
    assert!(lost.is_empty(), "{} requests are lost, first {first}\n{}", lost.len(), server.log());
}
