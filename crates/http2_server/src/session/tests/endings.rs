//! Ends of streams and of the connection, and floods.

use sendoff_http2::MAX_WINDOW;

use super::super::super::settings::{
    CONNECTION_WINDOW, RESET_FOR_ERRORS, RESET_REMEMBERED, RESET_UNSEEN, UNREAD_ANSWERS,
};
use super::super::LEAVING;
use super::*;

/// `:status: 200`.
const OK: Bytes = Bytes::from_static(b"\x88");

/// A turn of the connection's task begins. Returns the number of its wakeups by `act`.
fn turn(peer: &mut Peer, act: impl FnOnce(&mut Peer)) -> usize {
    let wakeups = Arc::new(Wakeups::default());
    peer.session.begin_turn(&Context::from_waker(&Waker::from(Arc::clone(&wakeups))));
    act(peer);
    wakeups.0.load(Ordering::Relaxed)
}

/// RFC 9113 §8.1: the rest of a request is not needed behind the response.
#[test]
fn a_response_before_the_end_of_its_request() {
    let not_needed = Sent::Reset(1, Code::NO_ERROR);
    // The body is let go before the end of the response, or behind it.
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.let_go(1, true);
    peer.session.send_head(1, &OK, true);
    assert_eq!(peer.sent(), [Sent::Headers(1, true), not_needed.clone()]);
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.send_head(1, &OK, true);
    assert_eq!(peer.sent(), [Sent::Headers(1, true)]);
    peer.session.let_go(1, true);
    assert_eq!(peer.sent(), [not_needed]);
    // The request has come.
    let mut peer = Peer::new();
    assert!(peer.head(1, HEAD, true).is_ok());
    peer.session.let_go(1, true);
    peer.session.send_head(1, &OK, true);
    assert_eq!(peer.sent(), [Sent::Headers(1, true)]);
    peer.session.let_go(1, false);
    assert!(peer.session.streams.is_empty());
}

#[test]
fn a_response_that_its_task_does_not_end_is_reset() {
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.send_head(1, &OK, false);
    peer.session.let_go(1, false);
    assert_eq!(peer.sent(), [Sent::Headers(1, false), Sent::Reset(1, Code::INTERNAL_ERROR)]);
    assert!(peer.session.live(1).is_none() && !peer.session.streams.is_empty());
    peer.session.let_go(1, true);
    assert!(peer.session.streams.is_empty());
}

/// A task may end when it has given all of its response.
#[test]
fn a_response_outlives_its_task() {
    let mut peer = Peer::new();
    assert!(peer.head(1, HEAD, true).is_ok());
    peer.session.send_head(1, &OK, false);
    assert_eq!(peer.give(1, 2 * MAX_FRAME, true), 2 * MAX_FRAME);
    peer.let_go(1);
    let parts = [false, true].map(|ends| Sent::Data(1, MAX_FRAME, ends));
    assert_eq!(peer.sent()[1..], parts);
    assert!(peer.session.streams.is_empty());
}

#[test]
fn a_stream_is_reset_once() {
    let mut peer = Peer::new();
    peer.open(1);
    let wakes = Wakeups::of_stream(&mut peer, 1, |peer| {
        peer.session.reset(1, Code::INTERNAL_ERROR);
        peer.session.reset(1, Code::NO_ERROR);
    });
    assert!(wakes);
    peer.let_go(1);
    assert_eq!(peer.sent(), [Sent::Reset(1, Code::INTERNAL_ERROR)]);
}

type Act<'a> = &'a dyn Fn(&mut Peer);

/// The connection's task sends what the tasks of streams leave.
#[test]
fn frames_of_streams_wake_the_task_of_the_connection() {
    let half = CONNECTION_WINDOW as usize / 2;
    let upload = |peer: &mut Peer| {
        for _ in 0..half / MAX_FRAME {
            assert!(peer.data(1, MAX_FRAME, 0, false).is_ok());
        }
    };
    let nothing = |_: &mut Peer| {};
    let cases: [(Act, Act); 6] = [
        (&nothing, &|peer| peer.session.send_head(1, &OK, false)),
        (&nothing, &|peer| assert_eq!(peer.give(1, 1, false), 1)),
        (&nothing, &|peer| peer.session.give_trailers(1, OK)),
        (&nothing, &|peer| peer.session.let_go(1, false)),
        (&upload, &|peer| peer.session.let_go(1, true)),
        (&upload, &|peer| peer.session.release(1, half)),
    ];
    for (case, (prepare, act)) in cases.into_iter().enumerate() {
        let mut peer = Peer::new();
        peer.open(1);
        prepare(&mut peer);
        assert_eq!(peer.sent(), []);
        assert!(turn(&mut peer, |peer| act(peer)) > 0, "case {case}");
        assert_ne!(peer.sent(), [], "case {case}");
    }
}

/// RFC 9113 §6.8: requests that the client has sent before it read the first GOAWAY are answered.
#[test]
fn a_client_is_told_to_go_in_two_steps() {
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.leave();
    peer.session.leave();
    assert_eq!(peer.sent(), [Sent::GoAway(MAX_WINDOW, Code::NO_ERROR), Sent::Ping(LEAVING)]);
    peer.takes(Frame::PingAck([0; 8]));
    assert_eq!(peer.sent(), []);
    peer.open(3);
    peer.takes(Frame::PingAck(LEAVING));
    peer.takes(Frame::PingAck(LEAVING));
    assert_eq!(peer.sent(), [Sent::GoAway(3, Code::NO_ERROR)]);
    // Later requests are ignored; their fields are decoded.
    let later = [HEAD, b"\x40\x01x\x01y"].concat();
    assert!(matches!(peer.head(5, &later, true), Ok(Received::Nothing)));
    assert!(peer.head(3, &[0xbe], true).is_ok());
    assert_eq!(peer.sent(), []);
    peer.takes(Frame::Data { stream: 5, data: b"", size: 0, ends: true });
    for id in [1, 3] {
        assert!(!peer.session.is_over());
        peer.session.reset(id, Code::INTERNAL_ERROR);
        assert!(!peer.session.is_over(), "a frame waits");
        peer.sent();
        let wakeups = turn(&mut peer, |peer| peer.let_go(id));
        assert!(wakeups > 0, "the connection's task waits for the last stream");
    }
    assert!(peer.session.is_over());
}

#[test]
fn a_client_that_leaves_gets_its_responses() {
    let mut peer = Peer::new();
    assert!(peer.head(1, HEAD, true).is_ok());
    peer.takes(Frame::GoAway);
    assert!(!peer.session.is_over());
    peer.session.send_head(1, &OK, true);
    assert_eq!(peer.sent(), [Sent::Headers(1, true)]);
    assert!(turn(&mut peer, |peer| peer.let_go(1)) > 0);
    assert!(!peer.session.is_over(), "a frame waits");
    assert_eq!(peer.sent(), [Sent::GoAway(1, Code::NO_ERROR)]);
    assert!(peer.session.is_over());
}

/// A client that was told to go because of what it did.
#[test]
fn further_requests_are_refused() {
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.leave();
    peer.sent();
    peer.refuses = true;
    assert!(matches!(peer.head(3, HEAD, true), Ok(Received::Refused)));
    assert_eq!(peer.sent(), [Sent::Reset(3, Code::REFUSED_STREAM)]);
    assert!(peer.session.live(1).is_some());
}

#[test]
fn the_end_of_the_connection_ends_its_streams() {
    let mut peer = Peer::new();
    peer.open(1);
    assert_eq!(peer.give(1, 10, false), 10);
    peer.session.end(Code::PROTOCOL_ERROR, "");
    peer.session.end(Code::ENHANCE_YOUR_CALM, "");
    assert_eq!(peer.sent(), [Sent::GoAway(1, Code::PROTOCOL_ERROR)]);
    assert!(peer.session.live(1).is_none());
    peer.let_go(1);
    assert!(peer.session.streams.is_empty() && peer.session.is_taken());
}

/// CVE-2023-44487: as many requests as a client may have open are given up in a turn, not more.
#[test]
fn requests_that_are_given_up_at_once() {
    let give_up = |peer: &mut Peer, id| {
        peer.open(id);
        peer.receive(Frame::RstStream { stream: id })
    };
    let mut peer = Peer::new();
    let mut ids = (1..).step_by(2);
    for _ in 0..3 {
        turn(&mut peer, |peer| {
            for id in ids.by_ref().take(RESET_UNSEEN) {
                assert!(give_up(peer, id).is_ok());
                peer.let_go(id);
            }
        });
    }
    assert_eq!(give_up(&mut peer, ids.next().unwrap()).unwrap_err().code, Code::ENHANCE_YOUR_CALM);
    // Requests of an earlier turn do not count.
    let mut peer = Peer::new();
    peer.open(1);
    turn(&mut peer, |peer| {
        peer.takes(Frame::RstStream { stream: 1 });
        for id in (3..).step_by(2).take(RESET_UNSEEN) {
            assert!(give_up(peer, id).is_ok());
        }
    });
}

/// CVE-2025-8671: mistakes that the server answers with a reset.
#[test]
fn mistakes_are_counted() {
    let mut peer = Peer::new();
    let mut mistake = |id: u32| {
        peer.open(id);
        let increment = Frame::Malformed { stream: id, code: Code::PROTOCOL_ERROR };
        let result = peer.receive(increment);
        peer.let_go(id);
        result
    };
    let mut ids = (1..).step_by(2);
    ids.by_ref().take(RESET_FOR_ERRORS).for_each(|id| assert!(mistake(id).is_ok()));
    assert_eq!(mistake(ids.next().unwrap()).unwrap_err().code, Code::ENHANCE_YOUR_CALM);
}

/// The server's own resets, for example of uploads that were answered early, are no mistakes.
#[test]
fn memory_of_resets_is_bounded() {
    let mut peer = Peer::new();
    for id in (1..).step_by(2).take(2 * RESET_REMEMBERED) {
        peer.open(id);
        peer.session.reset(id, Code::NO_ERROR);
        peer.let_go(id);
        if peer.session.is_clogged() {
            peer.sent();
        }
    }
    assert!(peer.session.reset.len() <= RESET_REMEMBERED);
    assert!(peer.session.streams.is_empty());
    assert!(peer.session.output.len() <= UNREAD_ANSWERS);
}

/// Nothing else would send the GOAWAY of an idle connection.
#[test]
fn a_client_that_leaves_is_told_goodbye_at_once() {
    let mut peer = Peer::new();
    let is_woken = Wakeups::of_connection(&mut peer, |peer| {
        peer.takes(Frame::GoAway);
        assert!(!peer.session.is_over());
    });
    assert!(is_woken);
    assert_eq!(peer.sent(), [Sent::GoAway(0, Code::NO_ERROR)]);
    assert!(peer.session.is_over());
}
