//! A connection of a browser: a slow line, some requests, and the comparison of every byte.

use super::tally::Ending;
use crate::http::{Decoder, FramingError};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

/// Bytes read at a time: some tenths of a second of the slow line.
pub(super) const READ: usize = 16 * 1024;
/// Receive buffer of the kernel: small, so that the server feels the slow line.
const RECEIVE_BUFFER: u32 = 32 * 1024;
/// Share of the connections that carry more than one request, and how many then.
const KEPT: f64 = 0.7;
const REQUESTS: std::ops::RangeInclusive<u32> = 5..=15;

/// The reason why a response is not the expected one.
#[derive(Debug)]
pub(crate) enum Fault {
    Wrong(String),
    Broken(String),
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<Fault> for Ending {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Wrong(why) => Self::Wrong(why),
            Fault::Broken(why) => Self::Failed(why),
        }
    }
}

/// A request with the only right answer.
pub(crate) struct Request<'a> {
    pub(crate) path: &'a str,
    /// `If-Modified-Since`, which the server answers by 304.
    pub(crate) since: Option<&'a str>,
    pub(crate) body: [&'a [u8]; 3],
}

impl Request<'_> {
    /// True if these bytes stand at this place of the body.
    fn is_right(&self, mut at: usize, mut piece: &[u8]) -> bool {
        for part in self.body {
            let Some(rest) = part.get(at..) else {
                at -= part.len();
                continue;
            };
            let (own, others) = piece.split_at(rest.len().min(piece.len()));
            if own != &rest[..own.len()] {
                return false;
            }
            (piece, at) = (others, 0);
        }
        piece.is_empty()
    }

    fn len(&self) -> usize {
        self.body.iter().map(|part| part.len()).sum()
    }
}

/// A line to the server, with a connection while one is open.
pub(crate) struct Line {
    addr: SocketAddr,
    /// Bytes per second.
    speed: u32,
    open: Option<Open>,
    /// Bytes of the last response so far.
    read: u64,
}

struct Open {
    stream: TcpStream,
    /// Requests that it may still carry.
    left: u32,
    /// The time at which the line has carried everything that was read.
    free_at: Instant,
}

impl Line {
    pub(crate) fn new(addr: SocketAddr, speed: u32) -> Self {
        Self { addr, speed, open: None, read: 0 }
    }

    /// Bytes of the last response that were read and right, even if the exchange was given up.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Sends a request and compares the response. Returns the bytes that were read. A kept
    /// connection that the server has closed meanwhile is replaced once.
    pub(crate) async fn exchange(
        &mut self,
        request: &Request<'_>,
        random: &mut fastrand::Rng,
    ) -> Result<u64, Fault> {
        self.read = 0;
        if let Some(open) = self.open.take() {
            match self.attempt(open, request).await? {
                Attempt::Answered(bytes) => return Ok(bytes),
                Attempt::Closed => {}
            }
        }
        let left = if random.f64() < KEPT { random.u32(REQUESTS) } else { 1 };
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        let stream = socket.connect(self.addr).await?;
        stream.set_nodelay(true)?;
        let open = Open { stream, left, free_at: Instant::now() };
        match self.attempt(open, request).await? {
            Attempt::Answered(bytes) => Ok(bytes),
            Attempt::Closed => Err(Fault::Broken("a new connection was closed".into())),
        }
    }

    async fn attempt(&mut self, mut open: Open, request: &Request<'_>) -> Result<Attempt, Fault> {
        open.left -= 1;
        let is_last = open.left == 0;
        let mut head = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", request.path, self.addr);
        if let Some(date) = request.since {
            head.push_str(&format!("If-Modified-Since: {date}\r\n"));
        }
        head.push_str(if is_last { "Connection: close\r\n\r\n" } else { "\r\n" });
        if open.stream.write_all(head.as_bytes()).await.is_err() {
            return Ok(Attempt::Closed);
        }
        let mut decoder = Decoder::new();
        open.free_at = open.free_at.max(Instant::now());
        while !decoder.is_done() {
            sleep_until(open.free_at).await;
            open.stream.readable().await?;
            match receive(&open.stream, &mut decoder, request)? {
                Received::Nothing => {}
                Received::Bytes(n) => {
                    self.read += n as u64;
                    open.free_at += Duration::from_secs_f64(n as f64 / f64::from(self.speed));
                }
                Received::End(_) if self.read == 0 => return Ok(Attempt::Closed),
                Received::End(Some(error)) => return Err(error.into()),
                Received::End(None) => {
                    let cut = |error: FramingError| Fault::Broken(error.to_string());
                    decoder.end_of_stream().map_err(cut)?;
                    break;
                }
            }
        }
        judge(&decoder, request)?;
        if decoder.keep_alive() && !is_last {
            self.open = Some(open);
        }
        Ok(Attempt::Answered(self.read))
    }
}

enum Attempt {
    Answered(u64),
    /// The connection ended before a byte of the response.
    Closed,
}

enum Received {
    Nothing,
    Bytes(usize),
    /// The connection has ended, perhaps by an error.
    End(Option<std::io::Error>),
}

/// Reads once and compares. The buffer lives for this call, not in each of 20,000 sessions.
fn receive(
    stream: &TcpStream,
    decoder: &mut Decoder,
    request: &Request<'_>,
) -> Result<Received, Fault> {
    let mut buffer = [0; READ];
    match stream.try_read(&mut buffer) {
        Ok(0) => Ok(Received::End(None)),
        Ok(n) => compare(decoder, &buffer[..n], request).map(|()| Received::Bytes(n)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::Nothing),
        Err(error) => Ok(Received::End(Some(error))),
    }
}

fn compare(decoder: &mut Decoder, bytes: &[u8], request: &Request<'_>) -> Result<(), Fault> {
    let mut at = decoder.body_len();
    let mut wrong = None;
    let fed = decoder.feed(bytes, |piece| {
        let offset = usize::try_from(at).unwrap_or(usize::MAX);
        if wrong.is_none() && !request.is_right(offset, piece) {
            wrong = Some(at);
        }
        at += piece.len() as u64;
    });
    let path = request.path;
    fed.map_err(|error| Fault::Wrong(format!("{path}: {error}")))?;
    match wrong {
        Some(at) if decoder.status() == 200 => {
            Err(Fault::Wrong(format!("{path}: wrong bytes from byte {at} on")))
        }
        _ => Ok(()),
    }
}

fn judge(decoder: &Decoder, request: &Request<'_>) -> Result<(), Fault> {
    let (path, status) = (request.path, decoder.status());
    let expected = if request.since.is_some() { 304 } else { 200 };
    if status != expected {
        return Err(Fault::Wrong(format!("{path}: status {status} instead of {expected}")));
    }
    let (got, want) = (decoder.body_len(), request.len() as u64);
    if expected == 200 && got != want {
        return Err(Fault::Wrong(format!("{path}: {got} bytes instead of {want}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_in_parts_are_compared_at_any_place() {
        let request = Request { path: "/", since: None, body: [b"abc", b"", b"def"] };
        let whole = b"abcdef";
        for from in 0..whole.len() {
            for to in from + 1..=whole.len() {
                assert!(request.is_right(from, &whole[from..to]), "{from}..{to}");
                assert!(!request.is_right(from, &vec![b'!'; to - from]), "{from}..{to}");
            }
        }
        assert!(!request.is_right(3, b"defg"), "too long");
        assert!(!request.is_right(9, b"a"), "behind the end");
    }
}
