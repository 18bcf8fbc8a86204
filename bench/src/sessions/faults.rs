//! Servers that are right, slow, wrong, or swap two bytes: the load generator must tell them apart.

use super::*;
use crate::sessions::tally::Quality;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Right,
    /// Every page takes longer than is tolerable.
    Slow,
    /// Pages of another customer.
    Foreign,
    /// Two bytes of the padding change places.
    Swapping,
    /// The last byte is missing, and the length says so.
    Short,
}

const LIMITS: Limits = Limits { good: Duration::from_secs(2), tolerable: Duration::from_secs(4) };

/// For the slow server: its answers take twice the tolerable time.
const STRICT: Limits =
    Limits { good: Duration::from_millis(40), tolerable: Duration::from_millis(80) };

fn serve(bank: Arc<Bank>, manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
    let addr = listener.local_addr().expect("address");
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let bank = Arc::clone(&bank);
            thread::spawn(move || converse(&bank, &stream, manner));
        }
    });
    addr
}

fn converse(bank: &Bank, mut stream: &TcpStream, manner: Manner) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    loop {
        let request = lines.next()?.ok()?;
        let mut is_conditional = false;
        loop {
            let line = lines.next()?.ok()?;
            is_conditional |= line.starts_with("If-Modified-Since: ");
            if line.is_empty() {
                break;
            }
        }
        let path = request.split(' ').nth(1)?;
        let answer = if is_conditional {
            b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()
        } else {
            let body = body(bank, path, manner)?;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            [head.into_bytes(), body].concat()
        };
        stream.write_all(&answer).ok()?;
    }
}

fn body(bank: &Bank, path: &str, manner: Manner) -> Option<Vec<u8>> {
    if let Some(name) = path.strip_prefix("/files/") {
        return Some(bank.file(name.strip_suffix(".gif")?.parse().ok()?).to_vec());
    }
    let (name, query) = path.rsplit_once('/')?.1.split_once(".php?user=")?;
    let (user, check) = query.split_once("&check=")?;
    let state = BANKING.states.iter().position(|state| state.name == name)?;
    let (user, check): (u32, usize) = (user.parse().ok()?, check.parse().ok()?);
    let user = if manner == Manner::Foreign { user + 1 } else { user };
    let (text, [padding, end]) = bank.page(Visit { state, user, check });
    let mut body = [&text[..], padding, end].concat();
    let last = body.len() - 40;
    match manner {
        Manner::Slow => thread::sleep(STRICT.tolerable * 2),
        Manner::Swapping => {
            let other = (0..last).rev().find(|&at| body[at] != body[last])?;
            body.swap(last, other);
        }
        Manner::Short => {
            body.pop();
        }
        Manner::Right | Manner::Foreign => {}
    }
    Some(body)
}

fn qualities(manner: Manner, limits: Limits) -> (Quality, Tally) {
    let bank = Arc::new(Bank::new());
    let load = Load {
        addr: serve(Arc::clone(&bank), manner),
        bank,
        printing: Printing::Pieces,
        sessions: 4,
        ramp: Duration::ZERO,
        time: Duration::from_millis(600),
        thinking: 0.0,
        speed: 50_000_000,
        limits,
    };
    let tally = run(load).expect("ran");
    (tally.sum(), tally)
}

#[test]
fn a_right_server_is_good() {
    let (sum, tally) = qualities(Manner::Right, LIMITS);
    assert!(sum.good > 4, "{sum:?}");
    assert_eq!((sum.failed, sum.wrong), (0, 0), "{tally:?}");
    assert!(tally.bytes > 100_000);
}

#[test]
fn a_slow_server_fails() {
    let (sum, _) = qualities(Manner::Slow, STRICT);
    assert!(sum.failed > 0, "{sum:?}");
    assert_eq!((sum.good, sum.wrong), (0, 0), "{sum:?}");
}

#[test]
fn wrong_bytes_are_found_wherever_they_are() {
    for (manner, why) in [
        (Manner::Foreign, "wrong bytes"),
        (Manner::Swapping, "wrong bytes"),
        (Manner::Short, "bytes instead of"),
    ] {
        let (sum, tally) = qualities(manner, LIMITS);
        assert!(sum.wrong > 0, "{manner:?}: {sum:?}");
        // The pages of logout have no customer's data, but no session gets there.
        assert_eq!(sum.good, 0, "{manner:?}: {sum:?}");
        assert!(!tally.is_valid());
        let first = tally.first_wrong.expect("a reason");
        assert!(first.contains(why), "{manner:?}: {first}");
    }
}

#[test]
fn an_unreachable_server_fails_every_page() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("an address");
    let load = Load {
        bank: Arc::new(Bank::new()),
        addr: closed,
        printing: Printing::Once,
        sessions: 2,
        ramp: Duration::ZERO,
        time: Duration::from_millis(100),
        thinking: 0.001,
        speed: SPEED,
        limits: LIMITS,
    };
    let tally = run(load).expect("ran");
    assert!(tally.sum().failed > 0 && tally.sum().good == 0, "{tally:?}");
}
