//! Clients that read a page at the speed of a slow line, and compare every byte.

use crate::http::Decoder;
use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes per second of each client: a common line of the papers' time.
const LINE: u64 = 100_000;
/// Time between two reads of a client.
const TICK: Duration = Duration::from_millis(100);

struct SlowClient {
    stream: TcpStream,
    since: Instant,
    decoder: Decoder,
    read: u64,
}

/// Clients that ask for the same page, each on a connection of its own, again and again.
pub(crate) struct SlowClients {
    addr: SocketAddr,
    path: String,
    body: Vec<u8>,
    clients: Vec<SlowClient>,
}

impl SlowClients {
    /// No client yet. `body` is the right answer.
    pub(crate) fn of(addr: SocketAddr, path: String, body: Vec<u8>) -> Self {
        Self { addr, path, body, clients: Vec::new() }
    }

    /// Has this many clients from now on: new ones begin to read, those above the number leave.
    pub(crate) fn set_count(&mut self, count: usize) -> Result<()> {
        self.clients.truncate(count);
        while self.clients.len() < count {
            let client = self.connect()?;
            self.clients.push(client);
        }
        Ok(())
    }

    /// Reads at the speed of the line.
    pub(crate) fn read_for(&mut self, time: Duration) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < time {
            self.read_once()?;
            thread::sleep(TICK);
        }
        Ok(())
    }

    /// Reads what has come down the lines since the last time. A client that has everything asks
    /// again.
    fn read_once(&mut self) -> Result<()> {
        for at in 0..self.clients.len() {
            self.clients[at].read(&self.body)?;
            if self.clients[at].decoder.is_done() {
                self.clients[at] = self.connect()?;
            }
        }
        Ok(())
    }

    fn connect(&self) -> Result<SlowClient> {
        let mut stream = TcpStream::connect(self.addr).context("a slow client")?;
        let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.path, self.addr);
        stream.write_all(request.as_bytes())?;
        stream.set_nonblocking(true)?;
        Ok(SlowClient { stream, since: Instant::now(), decoder: Decoder::new(), read: 0 })
    }
}

impl SlowClient {
    /// Reads until as many bytes have come as the line carries, or no more are there. Every byte is
    /// compared.
    fn read(&mut self, expected: &[u8]) -> Result<()> {
        let due = u64::try_from(self.since.elapsed().as_millis())? * LINE / 1000;
        let mut buffer = [0; 16 * 1024];
        while self.read < due && !self.decoder.is_done() {
            let size = usize::try_from(due - self.read)?.min(buffer.len());
            let n = match self.stream.read(&mut buffer[..size]) {
                Ok(0) => anyhow::bail!("a download ended after {} bytes", self.read),
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("a download"),
            };
            self.read += n as u64;
            let mut at = usize::try_from(self.decoder.body_len())?;
            let mut right = true;
            self.decoder.feed(&buffer[..n], |piece| {
                right &= expected.get(at..at + piece.len()) == Some(piece);
                at += piece.len();
            })?;
            ensure!(right, "a download differs before byte {at}");
        }
        Ok(())
    }
}
