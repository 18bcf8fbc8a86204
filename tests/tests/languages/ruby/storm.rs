//! Workers killed at random under load: no wrong byte, no hang.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use sendoff_tests::{Broken, Progress, Request, Server, Site, pattern, processes};

use super::application::{Application, test_application};
use super::front;

const REQUESTS: u64 = 20_000;
const CLIENTS: usize = 8;
/// One worker is killed per this number of requests.
const PER_KILL: u64 = 200;

/// A request, and the only correct body with status 200.
fn exchange(number: u64, file: &[u8]) -> (Request, Vec<u8>) {
    let size = usize::try_from(number * 7919 % 150_000).unwrap();
    let row: Vec<u8> = (0..=255).cycle().take(size).collect();
    match number % 4 {
        0 => (Request::get("/files/large.bin"), file.to_vec()),
        1 => (Request::get(&format!("/array/{size}")), row),
        2 => (Request::get(&format!("/each/{size}")), row),
        _ => (Request::get(&format!("/length/{size}")), row),
    }
}

/// Returns the number of requests that a worker's death has cost.
fn client(server: &Server, next: &AtomicU64, progress: &Progress, file: &[u8]) -> u64 {
    let mut connection = server.connect();
    let mut lost = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= REQUESTS {
            return lost;
        }
        progress.advance();
        let (request, expected) = exchange(number, file);
        let closes = match connection.try_ask(&request) {
            Ok(response) if response.status() == 200 => {
                assert!(response.body == expected, "request {number}: wrong bytes");
                response.head.closes()
            }
            Ok(response) => {
                assert!(matches!(response.status(), 502..=504), "request {number}");
                lost += 1;
                true
            }
            Err(Broken::Cut(part)) => {
                assert!(expected.starts_with(&part.body), "request {number}: wrong bytes");
                lost += 1;
                true
            }
            Err(Broken::Closed) => {
                lost += 1;
                true
            }
            Err(other) => panic!("request {number}: {other:?}"),
        };
        if closes {
            connection = server.connect();
        }
    }
}

#[test]
#[ignore = "heavy: make test-heavy"]
fn workers_killed_under_load_cost_their_requests_only() {
    let site = Site::new();
    let file = pattern(1, 200_000);
    site.write("large.bin", &file);
    let application = Application::start(&site, &test_application(), &["workers=4"]);
    let server = front(&site, &application, &[]);
    let (next, killed, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let progress = Progress::new(REQUESTS, "requests");
    let lost: u64 = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let due = next.load(Ordering::Relaxed) / PER_KILL;
                let kills = killed.load(Ordering::Relaxed);
                let workers = application.workers();
                if kills < due && !workers.is_empty() {
                    let victim = usize::try_from(kills * 31).unwrap() % workers.len();
                    processes::signal(workers[victim], Signal::KILL);
                    killed.store(kills + 1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| client(&server, &next, &progress, &file)))
            .collect();
        let lost = clients.into_iter().map(|client| client.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        killer.join().unwrap();
        lost
    });
    let kills = killed.load(Ordering::Relaxed);
    eprintln!("{REQUESTS} requests, {kills} workers killed, {lost} requests lost");
    assert!(kills > 10);
    // A worker has three threads, each with one request.
    assert!(lost <= 3 * kills, "{lost} requests lost by {kills} deaths");
    server.page("/pid").parse::<u32>().unwrap();
}
