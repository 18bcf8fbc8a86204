//! One request at a time, for experiments that do not measure the rate of requests.

use crate::http::Decoder;
use crate::site::{Page, Site, Workload};
use anyhow::{Result, ensure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

pub(crate) const MIB: usize = 1024 * 1024;

/// The body of a page, asked for on a connection of its own; an error if the status is not 200.
pub(crate) fn ask(addr: SocketAddr, path: &str, patience: Duration) -> Result<Vec<u8>> {
    exchange(addr, "GET", path, &[], patience)
}

/// Sends a request with a body, and returns the body of the response.
pub(crate) fn exchange(
    addr: SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
    patience: Duration,
) -> Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&addr, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let (mut decoder, mut answer) = (Decoder::new(), Vec::new());
    let mut buffer = [0; 16 * 1024];
    while !decoder.is_done() {
        match stream.read(&mut buffer)? {
            0 => decoder.end_of_stream()?,
            n => decoder.feed(&buffer[..n], |piece| answer.extend_from_slice(piece))?,
        }
    }
    ensure!(decoder.status() == 200, "status {}", decoder.status());
    Ok(answer)
}

/// The results of this many clients that work at the same time.
pub(crate) fn at_once<T: Send>(
    clients: usize,
    work: impl Fn() -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(&work)).collect();
        let panicked = |_| Err(anyhow::anyhow!("a client panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}

/// Writes the page `/hello.php`.
pub(crate) fn hello_site(site: &Site) -> Result<()> {
    site.add(&Workload::new("hello", Page::Hello))
}
