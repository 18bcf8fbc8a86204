//! Round trips of WebSocket messages through a proxy, for `tools/bench-streams`.
//!
//! `websocket_load echo` is the application: it prints its address, accepts each WebSocket, and
//! sends every byte back, so that messages keep their mask. `websocket_load ADDRESS MESSAGES SOCKETS`
//! sends messages of 32 bytes through a proxy at this address, one after the other on each of the
//! sockets, and prints messages per second and the median of the round trips.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// RFC 6455 §1.3: the key, and the answer that belongs to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A text message of 32 bytes with a mask of zeros.
const MESSAGE: [u8; 38] = *b"\x81\xa0\0\0\0\x0001234567890123456789012345678901";

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [word] if word == "echo" => echo(),
        [address, messages, sockets] => {
            load(address, messages.parse().unwrap(), sockets.parse().unwrap());
        }
        _ => panic!("see the source"),
    }
}

/// Reads to the end of a head.
fn skip_head(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("GET ") || head.starts_with("HTTP/1.1 101"), "{head}");
}

fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        std::thread::spawn(move || {
            stream.set_nodelay(true).unwrap();
            skip_head(&mut stream);
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                stream.write_all(&buffer[..length]).unwrap();
            }
        });
    }
}

fn load(address: &str, messages: usize, sockets: usize) {
    let each = messages.div_ceil(sockets);
    let begun = Instant::now();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..sockets).map(|_| scope.spawn(|| round_trips(address, each))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    times.sort();
    println!(
        "{:.0} messages/s, median {:.1} us",
        times.len() as f64 / seconds,
        times[times.len() / 2].as_secs_f64() * 1e6
    );
}

fn round_trips(address: &str, messages: usize) -> Vec<Duration> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let request = format!(
        "GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    skip_head(&mut stream);
    let mut answer = MESSAGE;
    (0..messages)
        .map(|_| {
            let begun = Instant::now();
            stream.write_all(&MESSAGE).unwrap();
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, MESSAGE);
            begun.elapsed()
        })
        .collect()
}
