//! Many clients at once: slow ones that keep their responses open, and quick ones that are timed.

use crate::{Client, Request};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The time between two reads of a slow client.
const TICK: Duration = Duration::from_millis(100);

/// Connects `count` clients with small windows. Each sends the same request and reads at `rate`
/// bytes per second. Returns when all have received `expected` completely.
///
/// # Panics
/// If a client receives anything else.
pub fn read_slowly(
    addr: SocketAddr,
    count: usize,
    request: &Request,
    expected: &[u8],
    rate: usize,
) {
    let bytes = request.clone().header("Connection", "close").bytes();
    let mut open: Vec<_> = (0..count)
        .map(|_| {
            let mut client = Client::connect_narrow(addr, 16 * 1024);
            client.send(&bytes);
            client
        })
        .collect();
    let per_tick = rate / 10;
    while !open.is_empty() {
        let next = Instant::now() + TICK;
        open.retain_mut(|client| {
            if client.read_some(per_tick) {
                return true;
            }
            assert!(
                client.response("GET").expect(200) == expected,
                "a slow client got other bytes"
            );
            false
        });
        // Sets the pace of reading; no event is awaited here.
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Sends `count` requests one after the other on one connection, and returns their times, shortest
/// first.
///
/// # Panics
/// If an answer is not 200.
pub fn times(addr: SocketAddr, count: usize, request: &Request) -> Vec<Duration> {
    let mut client = Client::connect(addr);
    let mut times: Vec<_> = (0..count)
        .map(|_| {
            let start = Instant::now();
            let response = client.ask(request);
            response.expect(200);
            if response.head.closes() {
                client = Client::connect(addr);
            }
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

/// Sends `count` equal requests one after the other on one connection. Returns the texts of the
/// responses, each with the number of responses that had it.
///
/// # Panics
/// If a response is not whole.
#[must_use]
pub fn answering(addr: SocketAddr, count: usize, request: &Request) -> HashMap<String, usize> {
    let (mut client, mut texts) = (Client::connect(addr), HashMap::new());
    for _ in 0..count {
        *texts.entry(client.ask(request).text()).or_insert(0) += 1;
    }
    texts
}

/// The 99th percentile.
///
/// # Panics
/// If there are none.
pub fn percentile_99(times: &[Duration]) -> Duration {
    times[(times.len() * 99).div_ceil(100) - 1]
}
