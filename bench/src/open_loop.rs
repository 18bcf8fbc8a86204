//! An open loop: requests at a fixed rate, whether the server answers or not.
//!
//! The time of a response counts from the time at which its request was due. If every connection
//! still waits for a response, requests leave late, and their times contain the delay. A closed
//! loop asks less while a server is slow, and so omits the times that users would have seen
//! (coordinated omission).

use crate::cpu;
use crate::http::Decoder;
use crate::load::Target;
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Requests that are still to be sent this long after the last one was due are given up.
const BACKLOG: Duration = Duration::from_secs(2);
/// A response that takes longer fails the run.
const PATIENCE: Duration = Duration::from_secs(10);

/// The requests of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// Requests per second.
    pub(crate) rate: f64,
    pub(crate) time: Duration,
    /// Kept connections; each has a thread.
    pub(crate) connections: usize,
}

impl Schedule {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    fn count(&self) -> u32 {
        (self.rate * self.time.as_secs_f64()).max(1.0) as u32
    }

    /// Time from the start of the run to a request.
    fn due(&self, number: u32) -> Duration {
        Duration::from_secs_f64(f64::from(number) / self.rate)
    }
}

/// The times of a run.
#[derive(Debug)]
pub(crate) struct Times {
    /// Of all requests that were due, ascending, in ms. A request that was given up has the time
    /// until then.
    sorted: Vec<f64>,
    pub(crate) answered: u32,
    /// From the start of the run to the last response.
    pub(crate) elapsed: Duration,
    pub(crate) client_cpu: Duration,
}

impl Times {
    /// The time in ms that this share of the requests took at most.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into the list"
        )]
        let at = (self.sorted.len() as f64 * share) as usize;
        self.sorted[at.min(self.sorted.len() - 1)]
    }
}

/// A part of [`Times`], of one connection.
#[derive(Default)]
struct Part {
    times: Vec<f64>,
    answered: u32,
    client_cpu: Duration,
}

/// Sends the requests. A wrong response is an error.
pub(crate) fn run(target: Target<'_>, schedule: Schedule) -> Result<Times> {
    let (next, started) = (AtomicU32::new(0), Instant::now());
    let parts: Result<Vec<Part>> = thread::scope(|scope| {
        let client = || client(target, schedule, &next, started);
        let threads: Vec<_> = (0..schedule.connections).map(|_| scope.spawn(client)).collect();
        let panicked = |_| Err(anyhow::anyhow!("a client panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let (parts, elapsed) = (parts?, started.elapsed());
    let mut sorted: Vec<f64> = parts.iter().flat_map(|part| &part.times).copied().collect();
    sorted.sort_by(f64::total_cmp);
    Ok(Times {
        sorted,
        answered: parts.iter().map(|part| part.answered).sum(),
        elapsed,
        client_cpu: parts.iter().map(|part| part.client_cpu).sum(),
    })
}

/// Sends requests, each when it is due, until none is left.
fn client(
    target: Target<'_>,
    schedule: Schedule,
    next: &AtomicU32,
    started: Instant,
) -> Result<Part> {
    let (before, mut part) = (cpu::this_thread(), Part::default());
    let mut connection = None;
    let given_up = started + schedule.time + BACKLOG;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= schedule.count() {
            part.client_cpu = cpu::this_thread().saturating_sub(before);
            return Ok(part);
        }
        let due = started + schedule.due(number);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if Instant::now() < given_up {
            let stream = match connection.take() {
                Some(stream) => stream,
                None => open(target)?,
            };
            connection = exchange(stream, target)?;
            part.answered += 1;
        }
        part.times.push(due.elapsed().as_secs_f64() * 1e3);
    }
}

fn open(target: Target<'_>) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&target.addr, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Asks once. Returns the connection if the server keeps it.
fn exchange(mut stream: TcpStream, target: Target<'_>) -> Result<Option<TcpStream>> {
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", target.path, target.addr);
    stream.write_all(request.as_bytes()).context("a connection was closed")?;
    let (mut decoder, mut at, mut is_right) = (Decoder::new(), 0, true);
    let mut buffer = [0; 32 * 1024];
    while !decoder.is_done() {
        match stream.read(&mut buffer).context("no response")? {
            0 => decoder.end_of_stream()?,
            n => decoder.feed(&buffer[..n], |piece| {
                let end = at + piece.len();
                is_right &= target.body.get(at..end) == Some(piece);
                at = end;
            })?,
        }
    }
    ensure!(decoder.status() == 200, "{}: status {}", target.path, decoder.status());
    ensure!(is_right && at == target.body.len(), "{}: wrong bytes", target.path);
    Ok(decoder.keep_alive().then_some(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::{SocketAddr, TcpListener};

    /// A server of one connection that answers at once, but for one response: it takes `pause`.
    fn serve(slow: u32, pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
        let addr = listener.local_addr().expect("address");
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let mut number = 0;
            for line in BufReader::new(&stream).lines() {
                if line.is_ok_and(|line| line.is_empty()) {
                    if number == slow {
                        thread::sleep(pause);
                    }
                    number += 1;
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    (&stream).write_all(answer).expect("sent");
                }
            }
        });
        addr
    }

    const SCHEDULE: Schedule =
        Schedule { rate: 200.0, time: Duration::from_millis(500), connections: 1 };

    #[test]
    fn one_slow_response_delays_all_requests_that_were_due_meanwhile() {
        let addr = serve(10, Duration::from_millis(300));
        let times = run(Target { addr, path: "/", body: b"ok" }, SCHEDULE).expect("ran");
        assert_eq!((times.sorted.len(), times.answered), (100, 100));
        // 60 of the 100 requests were due in these 300 ms; 30 of them waited for 150 ms or longer.
        assert!(times.percentile(0.75) > 120.0, "{times:?}");
        assert!(times.percentile(1.0) >= 300.0, "{times:?}");
    }

    #[test]
    fn requests_that_are_never_sent_count_with_the_time_until_they_are_given_up() {
        let addr = serve(0, SCHEDULE.time + BACKLOG);
        let times = run(Target { addr, path: "/", body: b"ok" }, SCHEDULE).expect("ran");
        assert_eq!((times.sorted.len(), times.answered), (100, 1));
        assert!(times.percentile(0.0) >= 2000.0, "{times:?}");
    }

    #[test]
    fn a_wrong_response_is_an_error() {
        let addr = serve(0, Duration::ZERO);
        let error = run(Target { addr, path: "/", body: b"no" }, SCHEDULE).expect_err("wrong");
        assert!(error.to_string().contains("wrong bytes"), "{error}");
    }
}
