//! Servers that are right, slow, wrong, or swap two bytes: the load generator must tell them apart.

use super::*;
use crate::sessions::model::Items;
use crate::sessions::tally::Quality;
use crate::sessions::{BANKING, ECOMMERCE, SUPPORT};
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
    /// Two bytes of each page's padding, or of each file of an item, change places.
    Swapping,
    /// The last byte is missing, and the length says so.
    Short,
}

const LIMITS: Limits = Limits { good: Duration::from_secs(2), tolerable: Duration::from_secs(4) };

/// For the slow server: its answers take twice the tolerable time.
const STRICT: Limits =
    Limits { good: Duration::from_millis(40), tolerable: Duration::from_millis(80) };

fn serve(contents: Arc<Contents>, manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
    let addr = listener.local_addr().expect("address");
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let contents = Arc::clone(&contents);
            thread::spawn(move || converse(&contents, &stream, manner));
        }
    });
    addr
}

fn converse(contents: &Contents, mut stream: &TcpStream, manner: Manner) -> Option<()> {
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
            let body = body(contents, path, manner)?;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            [head.into_bytes(), body].concat()
        };
        stream.write_all(&answer).ok()?;
    }
}

fn body(contents: &Contents, path: &str, manner: Manner) -> Option<Vec<u8>> {
    if let Some(name) = path.strip_prefix("/files/") {
        return Some(contents.file(name.strip_suffix(".gif")?.parse().ok()?).to_vec());
    }
    let mut body = if let Some(name) = path.strip_prefix("/stock/") {
        let (class, item) = name.split_once('/')?.1.strip_suffix(".bin")?.split_once('-')?;
        let (mark, rest) = contents.stored(class.parse().ok()?, item.parse().ok()?);
        [mark.as_bytes(), rest].concat()
    } else {
        let (name, query) = path.rsplit_once('/')?.1.split_once(".php?user=")?;
        let (user, item) = query.split_once("&item=")?;
        let state = contents.scenario.states.iter().position(|state| state.name == name)?;
        let (user, item): (u32, usize) = (user.parse().ok()?, item.parse().ok()?);
        let user = if manner == Manner::Foreign { user + 1 } else { user };
        let (text, [padding, end]) = contents.page(Visit { state, user, item });
        [&text[..], padding, end].concat()
    };
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

fn load(contents: Contents, manner: Manner, limits: Limits) -> Load {
    let contents = Arc::new(contents);
    Load {
        addr: serve(Arc::clone(&contents), manner),
        contents,
        printing: Printing::Pieces,
        sessions: 4,
        behind: 0,
        ramp: Duration::ZERO,
        time: Duration::from_millis(600),
        thinking: 0.0,
        speed: 50_000_000,
        limits,
    }
}

fn qualities(manner: Manner, limits: Limits) -> (Quality, Tally) {
    let tally = run(load(Contents::new(&BANKING, 1), manner, limits)).expect("ran");
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
        addr: closed,
        sessions: 2,
        time: Duration::from_millis(100),
        thinking: 0.001,
        ..load(Contents::new(&BANKING, 1), Manner::Right, LIMITS)
    };
    let tally = run(load).expect("ran");
    assert!(tally.sum().failed > 0 && tally.sum().good == 0, "{tally:?}");
}

#[test]
fn a_right_server_is_good_in_every_scenario() {
    for scenario in [&SUPPORT, &ECOMMERCE] {
        let load = load(Contents::new(scenario, 2), Manner::Right, LIMITS);
        let mut tally = run(Load { behind: 50, ..load }).expect("ran");
        let sum = tally.sum();
        assert!(sum.good > 4, "{sum:?}");
        assert_eq!((tally.first_failed.take(), sum.wrong), (None, 0), "{sum:?}");
        assert_eq!(tally.rate_percentile(0.5).is_some(), scenario.items.each == 16, "downloads");
    }
}

/// A scenario that begins with a download.
fn downloads(item: fn(&mut fastrand::Rng, usize) -> usize) -> Contents {
    let items = Items { chosen_at: 0, choose: item, ..SUPPORT.items };
    let states = SUPPORT.states.split_at(6).1;
    let scenario = Scenario { states, items, ..SUPPORT };
    Contents::new(Box::leak(Box::new(scenario)), 1)
}

#[test]
fn wrong_downloads_are_found() {
    let run = |manner| run(load(downloads(|_, _| 3), manner, LIMITS)).expect("ran");
    let right = run(Manner::Right);
    assert!(right.bytes > 400_000 && right.sum().wrong == 0, "{right:?}");
    let swapped = run(Manner::Swapping);
    assert_eq!((swapped.sum().good, swapped.sum().tolerable), (0, 0), "{swapped:?}");
    let reason = swapped.first_wrong.expect("a reason");
    assert!(reason.contains("/stock/0/0-3.bin: wrong bytes"), "{reason}");
}

#[test]
fn a_download_that_the_end_of_the_run_cuts_counts() {
    // The largest one would take 12 s.
    let largest = Load {
        sessions: 1,
        time: Duration::from_millis(1500),
        speed: 3_000_000,
        ..load(downloads(|_, _| 15), Manner::Right, LIMITS)
    };
    let mut tally = run(largest).expect("ran");
    assert_eq!(tally.sum().all(), 1, "{tally:?}");
    assert_eq!((tally.sum().wrong, &tally.first_failed), (0, &None), "{tally:?}");
    let rate = tally.rate_percentile(0.5).expect("a download");
    assert!((500_000.0..3_100_000.0).contains(&rate), "{rate}");
}
