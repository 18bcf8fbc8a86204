//! The back end of the sites: a process that answers scripts over HTTP/1.1, from the command and
//! the customer's number alone, so that every server gives the same bytes.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Records of an answer.
const RECORDS: usize = 12;
/// Longest head of a request; the scripts send about 60 bytes.
const MAX_HEAD: usize = 4096;

/// The records of a customer: lines of a label and an amount.
pub(crate) fn answer(command: &str, user: &str) -> String {
    let mut text = String::new();
    for record in 0..RECORDS {
        let hash = crc32fast::hash(format!("{command}/{user}/{record}").as_bytes());
        let (cents, number) = (hash % 10_000_000, hash >> 12);
        let (whole, rest) = (cents / 100, cents % 100);
        let _infallible = writeln!(text, "Account {number:07};{whole}.{rest:02}");
    }
    text
}

/// Prints the address, and answers until it is ended.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await.context("accept")?;
            // A script that ends its connection ends this task.
            tokio::spawn(async move { converse(stream).await });
        }
    })
}

async fn converse(mut stream: TcpStream) -> Result<()> {
    let mut head = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = memchr::memmem::find(&head, b"\r\n\r\n") {
                break at + 4;
            }
            anyhow::ensure!(head.len() < MAX_HEAD, "a head of more than {MAX_HEAD} bytes");
            if stream.read_buf(&mut head).await? == 0 {
                return Ok(());
            }
        };
        let line = String::from_utf8_lossy(&head[..end]).into_owned();
        let target = line.split(' ').nth(1).unwrap_or_default();
        let (command, user) = target.trim_start_matches('/').split_once('/').unwrap_or_default();
        let body = answer(command, user);
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(response.as_bytes()).await?;
        head.drain(..end);
    }
}
