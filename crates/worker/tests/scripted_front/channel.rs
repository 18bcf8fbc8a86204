//! Links that a process opens itself.

use crate::front::registry::{Registry, TOKEN};
use crate::front::{Seen, push};
use rustix::net::accept;
use sendoff_fastcgi::channel::{Announcement, Secret};
use sendoff_fastcgi::handover::Record;
use sendoff_fastcgi::record::Kind;
use sendoff_worker::Worker;

fn claim(number: u8) -> Seen {
    Seen::Record(Record::Claim(Secret([number; 16])))
}

#[test]
fn a_response_goes_to_the_link_after_its_claim_and_not_before() {
    let registry = Registry::new("claim");
    let (mut worker, mut links, _guard) = registry.register();
    assert!(worker.claim().is_err(), "there is no request");
    assert!(worker.begin_elsewhere(&registry.announcement(1, 7), b""));
    assert!(worker.accepts_files());
    assert!(worker.write(b"too early").is_err());
    worker.claim().unwrap();
    assert_eq!(links[1].next(), Some(claim(7)), "the claim does not wait for output");
    assert!(worker.claim().is_err(), "once");
    worker.write(b"body").unwrap();
    worker.finish(0, false);
    assert!(worker.write(b"too late").is_err());
    worker.end_elsewhere();
    assert_eq!(links[1].next(), Some(Seen::Stdout(b"body".to_vec())));
    assert_eq!(links[1].next(), Some(Seen::End(0)));
    // A request that needs no link sends nothing on it.
    assert!(worker.begin_elsewhere(&registry.announcement(0, 8), b""));
    worker.end_elsewhere();
    assert!(worker.begin_elsewhere(&registry.announcement(0, 9), b""));
    worker.claim().unwrap();
    worker.end_elsewhere();
    assert_eq!((links[0].next(), links[0].next()), (Some(claim(9)), Some(Seen::End(0))));
}

#[test]
fn an_abort_that_comes_late_is_not_for_the_next_request() {
    let registry = Registry::new("abort");
    let (mut worker, mut links, _guard) = registry.register();
    let mut abort = Vec::new();
    assert!(worker.begin_elsewhere(&registry.announcement(0, 1), b""));
    worker.claim().unwrap();
    push(&mut abort, Kind::ABORT_REQUEST, 1, &[]);
    links[0].send(&abort);
    worker.end_elsewhere();
    assert!(worker.begin_elsewhere(&registry.announcement(0, 2), b""));
    worker.claim().unwrap();
    assert!(!worker.aborted());
    worker.write(b"whole").unwrap();
    worker.flush().unwrap();
    let mut abort = Vec::new();
    push(&mut abort, Kind::ABORT_REQUEST, 2, &[]);
    links[0].send(&abort);
    assert!(worker.aborted(), "this one is");
}

#[test]
fn another_front_and_one_that_has_gone_get_nothing() {
    let registry = Registry::new("gone");
    let (mut worker, links, guard) = registry.register();
    let other = Announcement { token: Secret([4; 16]), ..registry.announcement(0, 1) };
    assert!(!worker.begin_elsewhere(&other, b""));
    assert!(worker.begin_elsewhere(&registry.announcement(0, 2), b""));
    drop((links, guard));
    assert!(worker.claim().is_err());
    worker.end_elsewhere();
    assert!(worker.is_lost());
    assert!(!worker.begin_elsewhere(&registry.announcement(0, 3), b""));
}

#[test]
fn nobody_there_is_no_worker() {
    let nobody = Announcement {
        name: format!("sendoff-test-{}-nobody", std::process::id()),
        token: TOKEN,
        links: 1,
        link: 0,
        claim: TOKEN,
    };
    assert!(Worker::register(&nobody).is_err());
    // A peer that hangs up is not a front either.
    let registry = Registry::new("rude");
    let announcement = registry.announcement(0, 1);
    let process = std::thread::spawn(move || Worker::register(&announcement).is_err());
    drop(accept(&registry.socket).unwrap());
    assert!(process.join().unwrap());
}
