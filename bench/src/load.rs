//! The load generator: a closed loop over keep-alive connections, on one thread.
//!
//! It shares the machine with the servers, so it uses little CPU time: bodies that are not compared
//! are dropped in the kernel (`MSG_TRUNC`, tcp(7)), but every status, length and chunk header is
//! checked. The first response on each connection and a random one in a hundred later ones are
//! compared byte by byte.

use crate::cpu;
use crate::http::Decoder;
use anyhow::{Context, Result, bail};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// One response in this many is compared byte by byte.
const COMPARE_ONE_IN: u32 = 100;
/// Read size where a head is expected: small, so that few body bytes are copied with it.
const HEAD_READ: usize = 2 * 1024;
/// From this many bytes on, a separate call that drops them costs less than copying them. nginx
/// sends chunks of about 10 KB; one read for many of them is cheaper than two calls for each.
const DISCARD_FROM: u64 = 64 * 1024;
/// Room for one read or one discard.
const BUFFER: usize = 1024 * 1024;
/// A run in which nothing arrives for this long has failed.
const STALL: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// A run ends after this many wrong responses.
const MAX_ERRORS: u64 = 100;

/// The time to stop sending requests; responses to earlier ones are still awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Time(Duration),
    Responses(u64),
}

/// The life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It carries all requests of a run.
    Kept,
    /// It carries one request, which says `Connection: close`.
    New,
}

/// The result of one run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Correct responses.
    pub(crate) responses: u64,
    /// Responses that were wrong or never came.
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    /// Time from the first request to the last response.
    pub(crate) elapsed: Duration,
    /// The generator's own CPU time.
    pub(crate) client_cpu: Duration,
}

impl Outcome {
    /// The outcome, or an error if a response was wrong.
    pub(crate) fn flawless(self) -> Result<Self> {
        match (self.first_error, self.errors, self.responses) {
            (Some(first), errors, _) => bail!("{errors} wrong responses, the first: {first}"),
            (None, _, 0) => bail!("no response arrived"),
            (None, ..) => Ok(Self { first_error: None, ..self }),
        }
    }
}

/// The request and the right answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) addr: SocketAddr,
    pub(crate) path: &'a str,
    pub(crate) body: &'a [u8],
}

/// Connections to one server, kept between runs.
pub(crate) struct Client<'a> {
    target: Target<'a>,
    request: Vec<u8>,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    random: fastrand::Rng,
    /// Copy every byte out, as a browser does, instead of discarding.
    read_all: bool,
}

struct Connection {
    stream: TcpStream,
    decoder: Decoder,
    /// True if this response is compared; `mismatch` then receives its first wrong byte.
    compare: bool,
    mismatch: Option<usize>,
    waiting: bool,
}

enum Progress {
    Partial,
    Complete,
}

impl<'a> Client<'a> {
    /// Opens `connections` connections to the target.
    pub(crate) fn connect(
        target: Target<'a>,
        connections: usize,
        persistence: Persistence,
        read_all: bool,
    ) -> Result<Self> {
        let field = match persistence {
            Persistence::Kept => "",
            Persistence::New => "Connection: close\r\n",
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: sendoff-bench\r\nAccept: */*\r\n{field}\r\n",
            target.path, target.addr
        );
        let mut client = Self {
            request: request.into_bytes(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: Vec::with_capacity(connections),
            buffer: vec![0; BUFFER],
            random: fastrand::Rng::new(),
            read_all,
            target,
        };
        for index in 0..connections {
            let connection = client.open(index)?;
            client.connections.push(connection);
        }
        Ok(client)
    }

    /// Keeps one request outstanding on each connection until the limit, then waits for the last
    /// responses.
    pub(crate) fn run(&mut self, limit: Limit) -> Result<Outcome> {
        let cpu_before = cpu::this_thread();
        let started = Instant::now();
        let mut tally = Tally::new(limit, started);
        for index in 0..self.connections.len() {
            self.ask(index, &mut tally)?;
        }
        let mut events = Vec::with_capacity(self.connections.len());
        while tally.outstanding > 0 {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&STALL),
            ) {
                Ok(0) => {
                    let waiting = tally.outstanding;
                    tally.error(&format!("{waiting} responses did not come within 10 s"));
                    break;
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("epoll_wait"),
            }
            for event in &events {
                let index = usize::try_from(event.data.u64())?;
                self.ready(index, &mut tally)?;
            }
        }
        Ok(Outcome {
            responses: tally.responses,
            errors: tally.errors,
            first_error: tally.first_error,
            elapsed: started.elapsed(),
            client_cpu: cpu::this_thread().saturating_sub(cpu_before),
        })
    }

    fn open(&self, index: usize) -> Result<Connection> {
        let stream = TcpStream::connect(self.target.addr)
            .with_context(|| format!("cannot connect to {}", self.target.addr))?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        epoll::add(
            &self.epoll,
            &stream,
            epoll::EventData::new_u64(index as u64),
            epoll::EventFlags::IN,
        )?;
        Ok(Connection {
            stream,
            decoder: Decoder::new(),
            compare: true,
            mismatch: None,
            waiting: false,
        })
    }

    /// Sends the next request on connection `index`, unless the limit is reached.
    fn ask(&mut self, index: usize, tally: &mut Tally) -> Result<()> {
        if !tally.take_turn() {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        connection.decoder.reset();
        connection.mismatch = None;
        let sent = send(&connection.stream, &self.request, SendFlags::NOSIGNAL);
        match sent {
            Ok(n) if n == self.request.len() => {
                connection.waiting = true;
                tally.outstanding += 1;
                Ok(())
            }
            // The socket is empty between requests: a short write means a broken kernel or peer,
            // not a full buffer.
            Ok(n) => bail!("only {n} bytes of a request were sent"),
            Err(error) => {
                tally.error(&format!("a request could not be sent: {error}"));
                self.connections[index] = self.open(index)?;
                Ok(())
            }
        }
    }

    fn ready(&mut self, index: usize, tally: &mut Tally) -> Result<()> {
        if !self.connections[index].waiting {
            // The server may close an idle connection, but must not send bytes on it.
            let idle = &self.connections[index].stream;
            if matches!(recv(idle, &mut self.buffer[..1], RecvFlags::empty()), Ok((_, 1))) {
                tally.error("bytes after the end of a response");
            }
            self.connections[index] = self.open(index)?;
            return Ok(());
        }
        let progress = self.receive(index);
        let connection = &mut self.connections[index];
        match progress {
            Ok(Progress::Partial) => return Ok(()),
            Ok(Progress::Complete) => {
                connection.waiting = false;
                tally.outstanding -= 1;
                match connection.judge(self.target.body) {
                    Ok(()) => tally.responses += 1,
                    Err(why) => tally.error(&why),
                }
                if connection.decoder.keep_alive() {
                    connection.compare = self.random.u32(..COMPARE_ONE_IN) == 0;
                } else {
                    self.connections[index] = self.open(index)?;
                }
            }
            Err(why) => {
                tally.outstanding -= 1;
                tally.error(&why.to_string());
                self.connections[index] = self.open(index)?;
            }
        }
        self.ask(index, tally)
    }

    /// Reads or discards the received bytes, until the socket is empty or the response complete.
    fn receive(&mut self, index: usize) -> Result<Progress> {
        let connection = &mut self.connections[index];
        let copy_out = connection.compare || self.read_all;
        loop {
            let skippable = connection.decoder.skippable();
            let discard = !copy_out && skippable >= DISCARD_FROM;
            let (size, flags) = if discard {
                let size = usize::try_from(skippable).map_or(BUFFER, |n| n.min(BUFFER));
                (size, RecvFlags::TRUNC)
            } else if !copy_out && connection.decoder.in_head() {
                (HEAD_READ, RecvFlags::empty())
            } else {
                (BUFFER, RecvFlags::empty())
            };
            let n = match recv(&connection.stream, &mut self.buffer[..size], flags) {
                Ok((_, 0)) => {
                    connection.decoder.end_of_stream()?;
                    return Ok(Progress::Complete);
                }
                Ok((_, n)) => n,
                Err(Errno::AGAIN) => return Ok(Progress::Partial),
                Err(Errno::INTR) => continue,
                Err(error) => bail!("reading a response: {error}"),
            };
            if discard {
                connection.decoder.skip(n as u64);
            } else {
                connection.take(&self.buffer[..n], self.target.body)?;
            }
            if connection.decoder.is_done() {
                return Ok(Progress::Complete);
            }
            if n < size {
                return Ok(Progress::Partial);
            }
        }
    }
}

impl Connection {
    fn take(&mut self, wire: &[u8], expected: &[u8]) -> Result<()> {
        let Self { decoder, mismatch, compare, .. } = self;
        let mut offset = usize::try_from(decoder.body_len())?;
        decoder.feed(wire, |piece| {
            if *compare && mismatch.is_none() {
                let right = expected.get(offset..offset + piece.len());
                if right != Some(piece) {
                    *mismatch = Some(offset + first_difference(piece, expected, offset));
                }
            }
            offset += piece.len();
        })?;
        Ok(())
    }

    /// Returns an error unless the complete response is the right one.
    fn judge(&self, expected: &[u8]) -> Result<(), String> {
        if self.decoder.status() != 200 {
            return Err(format!("status {}", self.decoder.status()));
        }
        if self.decoder.body_len() != expected.len() as u64 {
            let (got, want) = (self.decoder.body_len(), expected.len());
            return Err(format!("a body of {got} bytes instead of {want}"));
        }
        match self.mismatch {
            Some(at) => Err(format!("byte {at} of the body is wrong")),
            None => Ok(()),
        }
    }
}

fn first_difference(piece: &[u8], expected: &[u8], offset: usize) -> usize {
    let rest = expected.get(offset..).unwrap_or(&[]);
    let same = piece.iter().zip(rest).take_while(|(a, b)| a == b);
    same.count()
}

/// The running count of one run.
struct Tally {
    limit: Limit,
    started: Instant,
    asked: u64,
    outstanding: usize,
    responses: u64,
    errors: u64,
    first_error: Option<String>,
}

impl Tally {
    fn new(limit: Limit, started: Instant) -> Self {
        Self {
            limit,
            started,
            asked: 0,
            outstanding: 0,
            responses: 0,
            errors: 0,
            first_error: None,
        }
    }

    fn take_turn(&mut self) -> bool {
        let within = match self.limit {
            Limit::Time(time) => self.started.elapsed() < time,
            Limit::Responses(n) => self.asked < n,
        };
        let may = within && self.errors < MAX_ERRORS;
        self.asked += u64::from(may);
        may
    }

    fn error(&mut self, why: &str) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| why.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    /// Answers every request on every connection with `wire`, until the client leaves.
    fn server(wire: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
        let addr = listener.local_addr().expect("address");
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let wire = wire.clone();
                thread::spawn(move || {
                    let mut request = [0; 4096];
                    // The client sends one small request at a time, so one read is one request.
                    while matches!(stream.read(&mut request), Ok(n) if n > 0) {
                        if stream.write_all(&wire).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        addr
    }

    fn run(wire: &[u8], body: &[u8], limit: Limit, read_all: bool) -> Outcome {
        let target = Target { addr: server(wire.to_vec()), path: "/", body };
        let mut client =
            Client::connect(target, 3, Persistence::Kept, read_all).expect("connected");
        client.run(limit).expect("ran")
    }

    fn sized(body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn right_answers_are_counted_exactly() {
        let body = vec![b'x'; 300_000];
        for read_all in [false, true] {
            let outcome = run(&sized(&body), &body, Limit::Responses(500), read_all);
            assert_eq!((outcome.responses, outcome.errors), (500, 0));
            assert!(outcome.flawless().is_ok());
        }
    }

    #[test]
    fn chunked_answers_are_counted_exactly() {
        let body = vec![b'y'; 40_000];
        let chunk = [b"9c40\r\n", &body[..], b"\r\n"].concat();
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let wire = [&head[..], &chunk, &chunk, b"0\r\n\r\n"].concat();
        let outcome = run(&wire, &body.repeat(2), Limit::Responses(200), false);
        assert_eq!((outcome.responses, outcome.errors), (200, 0));
    }

    #[test]
    fn a_run_for_a_time_ends() {
        let limit = Limit::Time(Duration::from_millis(30));
        let outcome = run(&sized(b"hello"), b"hello", limit, false);
        assert!(outcome.elapsed >= Duration::from_millis(30));
        assert!(outcome.flawless().expect("no errors").responses > 0);
    }

    #[test]
    fn connections_that_the_server_ends_are_opened_again() {
        let wire = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        let outcome = run(wire, b"ok", Limit::Responses(20), false);
        assert_eq!((outcome.responses, outcome.errors), (20, 0));
    }

    #[test]
    fn wrong_answers_fail_the_run() {
        let mut wrong = vec![b'x'; 100_000];
        wrong[77_777] = b'!';
        let cases = [
            (sized(&wrong), "byte 77777"),
            (sized(&wrong[..50_000]), "50000 bytes instead of 100000"),
            (b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n".to_vec(), "502"),
            (b"nonsense\r\n\r\n".to_vec(), "head"),
        ];
        for (wire, why) in cases {
            let outcome = run(&wire, &[b'x'; 100_000], Limit::Responses(3), false);
            assert_eq!(outcome.errors, 3, "{why}");
            let error = outcome.flawless().expect_err("wrong").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn bytes_after_a_response_fail_the_run() {
        let wire = [&sized(b"ok")[..], b"more"].concat();
        let outcome = run(&wire, b"ok", Limit::Responses(3), false);
        assert_eq!(outcome.errors, 3);
        let error = outcome.flawless().expect_err("wrong").to_string();
        assert!(error.contains("after the end"), "{error}");
    }
}
