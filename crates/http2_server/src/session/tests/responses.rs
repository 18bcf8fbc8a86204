//! Responses: shares of the windows, the order of frames, changes of the client's settings.

use sendoff_http2::{INITIAL_WINDOW, MAX_WINDOW};
use sendoff_streams::STREAM_BUFFER;

use super::super::super::settings::{
    FRAMES_IN_FLIGHT, IN_FLIGHT, STREAM_FRAMES, STREAMS, UNREAD_ANSWERS,
};
use super::*;

const WINDOW: usize = INITIAL_WINDOW as usize;

/// Bytes of bodies among frames.
fn bodies(frames: &[Sent]) -> usize {
    let size = |frame: &Sent| if let Sent::Data(_, bytes, _) = frame { *bytes } else { 0 };
    frames.iter().map(size).sum()
}

/// The streams of the DATA frames.
fn turns(frames: &[Sent]) -> Vec<u32> {
    let stream = |frame: &Sent| if let Sent::Data(id, ..) = frame { Some(*id) } else { None };
    frames.iter().filter_map(stream).collect()
}

/// A client with these streams, whose windows are large; the connection's has its initial size.
fn streams(ids: &[u32]) -> Peer {
    let mut peer = Peer::new();
    peer.initial_window(MAX_WINDOW).unwrap();
    ids.iter().for_each(|id| peer.open(*id));
    peer.sent();
    peer
}

#[test]
fn responses_keep_to_the_windows() {
    let mut peer = Peer::new();
    peer.open(1);
    peer.open(3);
    peer.window(1, 1).unwrap();
    // A share that has not been used is not for others.
    let shared = peer.session.room(1, WINDOW - 10);
    assert_eq!(shared, WINDOW - 10);
    assert_eq!(peer.session.room(3, WINDOW), 10);
    peer.session.give(1, piece(shared), false, MAX_FRAME);
    peer.session.give(3, piece(10), false, MAX_FRAME);
    assert_eq!((peer.session.room(1, 1), peer.session.room(3, 1)), (0, 0));
    assert_eq!(bodies(&peer.sent()), WINDOW);
    peer.window(0, 20).unwrap();
    assert_eq!((peer.give(1, 100, false), peer.give(3, 100, false)), (11, 9));
}

/// RFC 9113 §6.9.1.
#[test]
fn windows_have_a_limit() {
    let mut peer = Peer::new();
    peer.open(1);
    peer.window(1, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    peer.window(0, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    assert_eq!(peer.sent(), []);
    peer.window(1, 1).unwrap();
    assert_eq!(peer.sent(), [Sent::Reset(1, Code::FLOW_CONTROL_ERROR)]);
    assert_eq!(peer.window(0, 1).unwrap_err().code, Code::FLOW_CONTROL_ERROR);
    // By settings, which are an error of the connection (§6.9.2).
    let mut peer = Peer::new();
    peer.open(1);
    peer.window(1, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    peer.initial_window(INITIAL_WINDOW).unwrap();
    let larger = peer.initial_window(INITIAL_WINDOW + 1);
    assert_eq!(larger.unwrap_err().code, Code::FLOW_CONTROL_ERROR);
}

/// RFC 9113 §6.9.2.
#[test]
fn a_smaller_initial_window_counts_behind_its_acknowledgement() {
    let mut peer = Peer::new();
    peer.open(1);
    assert_eq!(peer.give(1, 30_000, false), 30_000);
    peer.initial_window(10_000).unwrap();
    let sent = peer.sent();
    assert_eq!((bodies(&sent), sent.last()), (30_000, Some(&Sent::SettingsAck)));
    peer.window(1, 20_000).unwrap();
    assert_eq!(peer.give(1, 1, false), 0);
    peer.window(1, 1).unwrap();
    assert_eq!(peer.give(1, 2, false), 1);
    peer.initial_window(10_005).unwrap();
    assert_eq!(peer.give(1, 10, false), 5);
    peer.open(3);
    assert_eq!(peer.session.room(3, WINDOW), 10_005);
}

#[test]
fn what_gives_room_wakes_the_streams() {
    let mut peer = Peer::new();
    peer.initial_window(0).unwrap();
    peer.open(1);
    assert!(!peer.session.has_room(1));
    assert!(Wakeups::of_stream(&mut peer, 1, |peer| drop(peer.initial_window(5))));
    assert!(Wakeups::of_stream(&mut peer, 1, |peer| drop(peer.window(1, 5))));
    let mut peer = streams(&[1, 3]);
    assert_eq!(peer.give(1, WINDOW, false), WINDOW);
    assert!(!peer.session.has_room(3));
    peer.sent();
    assert!(Wakeups::of_stream(&mut peer, 3, |peer| drop(peer.window(0, 5))));
    // The bytes of another stream are dropped, or leave.
    for act in [
        |peer: &mut Peer| peer.takes(Frame::RstStream { stream: 1 }),
        |peer: &mut Peer| drop(peer.sent()),
    ] {
        let mut peer = streams(&[1, 3, 5, 7, 9]);
        peer.window(0, MAX_WINDOW - INITIAL_WINDOW).unwrap();
        for id in [1, 5, 7, 9] {
            assert_eq!(peer.give(id, STREAM_BUFFER, false), STREAM_BUFFER);
        }
        assert!(!peer.session.has_room(3), "{IN_FLIGHT} bytes are in flight");
        assert!(Wakeups::of_stream(&mut peer, 3, act));
    }
    // The stream's own bytes leave.
    let mut peer = streams(&[1]);
    peer.window(0, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    assert_eq!(peer.give(1, 2 * STREAM_BUFFER, false), STREAM_BUFFER);
    assert!(!peer.session.has_room(1));
    assert!(Wakeups::of_stream(&mut peer, 1, |peer| drop(peer.sent())));
    assert_eq!(peer.give(1, STREAM_BUFFER, true), STREAM_BUFFER);
    assert!(Wakeups::of_stream(&mut peer, 1, |peer| peer.session.cut()));
}

#[test]
fn the_bytes_in_flight_are_bounded() {
    let ids: Vec<u32> = (1..21).step_by(2).collect();
    let mut peer = streams(&ids);
    peer.window(0, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    let rooms: Vec<_> = ids.iter().map(|id| peer.session.room(*id, 1 << 20)).collect();
    assert_eq!(rooms, [vec![STREAM_BUFFER; IN_FLIGHT / STREAM_BUFFER], vec![0; 6]].concat());
    let given: Vec<_> = ids.iter().map(|id| peer.give(*id, 1 << 20, false)).collect();
    assert_eq!(given, rooms);
    assert_eq!(bodies(&peer.sent()), IN_FLIGHT);
    assert!(peer.session.is_taken());
}

#[test]
fn streams_wait_in_order_of_arrival_and_none_overtakes() {
    let mut peer = streams(&[1, 3, 5, 7]);
    assert_eq!(peer.give(7, WINDOW, false), WINDOW);
    for id in [5, 3, 5] {
        assert!(!peer.session.has_room(id));
    }
    peer.sent();
    // They wait more than once.
    for (first, second) in [(5, 3), (3, 5), (5, 3)] {
        peer.window(0, 10).unwrap();
        assert!(!peer.session.has_room(second));
        assert_eq!((peer.give(1, 10, false), peer.give(second, 10, false)), (0, 0));
        assert_eq!(peer.give(first, 20, false), 10, "it is its turn");
        assert!(!peer.session.has_room(first));
    }
}

/// A stream that waits gets a share of one frame; other streams get the rest.
#[test]
fn streams_that_wait_share_by_the_frame() {
    let mut peer = streams(&[1, 3, 5]);
    assert_eq!(peer.give(1, WINDOW, false), WINDOW);
    assert!(!peer.session.has_room(3) && !peer.session.has_room(5));
    peer.sent();
    peer.window(0, u32::try_from(MAX_FRAME).unwrap() + 100).unwrap();
    assert_eq!(peer.session.room(5, 1 << 20), 100);
    assert_eq!(peer.session.room(3, 1 << 20), MAX_FRAME);
}

/// The streams that wait get a share when half of the bytes in flight have left.
#[test]
fn streams_that_wait_for_memory_are_not_overtaken() {
    let mut peer = streams(&[1, 3, 5, 7, 9, 11]);
    peer.window(0, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    for id in [1, 3, 5, 7] {
        assert_eq!(peer.give(id, STREAM_BUFFER, false), STREAM_BUFFER);
    }
    assert!(!peer.session.has_room(9));
    let take = |peer: &mut Peer, bytes: usize| {
        peer.session.slices(&mut []);
        peer.session.take(bytes);
    };
    take(&mut peer, STREAM_BUFFER);
    assert_eq!(peer.session.room(11, 1), 0);
    assert!(!peer.session.has_room(11));
    take(&mut peer, STREAM_BUFFER + 8 * FRAME_HEADER);
    assert_eq!((peer.session.room(9, 1), peer.session.room(11, 1)), (1, 1));
}

/// A stream may wait until all bytes of the connection have left.
#[test]
fn the_end_of_other_streams_wakes_the_streams_that_wait_for_it() {
    for act in [
        |peer: &mut Peer| peer.takes(Frame::RstStream { stream: 1 }),
        |peer: &mut Peer| drop(peer.sent()),
    ] {
        let mut peer = streams(&[1, 3]);
        assert_eq!(peer.give(1, 10, false), 10);
        peer.session.live(3).unwrap().output.awaits_taken = true;
        assert!(Wakeups::of_stream(&mut peer, 3, act));
        assert!(peer.session.is_taken());
    }
}

#[test]
fn a_share_that_is_not_used_goes_to_the_streams_that_wait() {
    let shared = || {
        let mut peer = streams(&[1, 3]);
        assert_eq!(peer.session.room(1, WINDOW), WINDOW);
        assert!(!peer.session.has_room(3));
        peer
    };
    for act in [
        |peer: &mut Peer| assert_eq!(peer.session.room(1, 0), 0),
        |peer: &mut Peer| peer.session.give(1, piece(1), true, MAX_FRAME),
        |peer: &mut Peer| peer.takes(Frame::RstStream { stream: 1 }),
        |peer: &mut Peer| {
            peer.data(1, 0, 0, true).unwrap();
            peer.session.give_trailers(1, Bytes::new());
            peer.let_go(1);
            assert_eq!(peer.sent(), [Sent::Headers(1, true)]);
        },
    ] {
        let mut peer = shared();
        assert!(Wakeups::of_stream(&mut peer, 3, act));
        assert!(peer.session.room(3, MAX_FRAME) >= MAX_FRAME - 1);
    }
}

#[test]
fn frames_of_all_streams_leave_in_turn() {
    let mut peer = streams(&[1, 3]);
    assert_eq!(peer.give(1, 2 * MAX_FRAME, true), 2 * MAX_FRAME);
    assert_eq!(peer.give(3, MAX_FRAME + 1, true), MAX_FRAME + 1);
    let sent = peer.sent();
    assert_eq!(turns(&sent), [1, 3, 1, 3]);
    assert_eq!(sent.last(), Some(&Sent::Data(3, 1, true)));
}

/// The client has not seen the bytes that a reset drops.
#[test]
fn dropped_bytes_do_not_use_the_window() {
    let mut peer = streams(&[1, 3]);
    assert_eq!(peer.give(1, WINDOW, false), WINDOW);
    peer.takes(Frame::RstStream { stream: 1 });
    assert_eq!(peer.give(3, WINDOW, false), WINDOW);
    assert_eq!(bodies(&peer.sent()), WINDOW);
    assert!(peer.session.is_taken());
}

#[test]
fn a_client_that_reads_no_answers_is_noticed() {
    let mut peer = Peer::new();
    let mut answers = 0;
    while !peer.session.is_clogged() {
        peer.takes(Frame::Ping([1; 8]));
        answers += FRAME_HEADER + 8;
        assert!(answers < UNREAD_ANSWERS + 100);
    }
    assert!(answers > UNREAD_ANSWERS);
    assert_eq!(peer.sent().first(), Some(&Sent::Ping([1; 8])));
    assert!(!peer.session.is_clogged());
}

/// The client may send updates of the windows behind a body that it reads slowly.
#[test]
fn bodies_are_no_answers_that_wait() {
    let mut peer = streams(&[1, 3]);
    peer.window(0, MAX_WINDOW - INITIAL_WINDOW).unwrap();
    for id in [1, 3] {
        assert_eq!(peer.give(id, STREAM_BUFFER, false), STREAM_BUFFER);
    }
    peer.session.slices(&mut []);
    assert!(peer.session.output.len() > UNREAD_ANSWERS && !peer.session.is_clogged());
}

/// A client that allows one byte after the other, and does not read, would else have a frame for
/// each byte.
#[test]
fn frames_in_flight_are_limited_whatever_their_size() {
    let mut peer = Peer::new();
    peer.initial_window(0).unwrap();
    let ids: Vec<u32> = (0..u32::try_from(STREAMS).unwrap()).map(|place| 2 * place + 1).collect();
    ids.iter().for_each(|id| peer.open(*id));
    peer.sent();
    let mut given = 0;
    for _ in 0..2 * STREAM_FRAMES {
        peer.window(1, 1).unwrap();
        given += peer.give(1, 1000, false);
    }
    assert_eq!(given, STREAM_FRAMES, "of one stream");
    for _ in 0..STREAM_FRAMES {
        for id in &ids[1..] {
            peer.window(*id, 1).unwrap();
            given += peer.give(*id, 1000, false);
        }
    }
    assert_eq!(given, FRAMES_IN_FLIGHT, "of a connection");
    assert!(!peer.session.has_room(1));
    assert!(Wakeups::of_stream(&mut peer, 1, |peer| assert_eq!(bodies(&peer.sent()), given)));
    assert_eq!(peer.give(1, 1000, false), STREAM_FRAMES, "the rest in one frame");
    assert_eq!(peer.sent(), [Sent::Data(1, STREAM_FRAMES, false)]);
}

#[test]
fn frames_that_are_dropped_make_room() {
    let others: Vec<u32> = (1..=FRAMES_IN_FLIGHT / STREAM_FRAMES)
        .map(|place| 2 * u32::try_from(place).unwrap() + 1)
        .collect();
    let mut peer = streams(&[&[1], &others[..]].concat());
    for id in &others {
        (0..STREAM_FRAMES).for_each(|_| assert_eq!(peer.give(*id, 1, false), 1));
    }
    assert_eq!(peer.give(1, 1, false), 0);
    others.iter().for_each(|id| peer.session.reset(*id, Code::INTERNAL_ERROR));
    assert_eq!(peer.give(1, 1, false), 1);
}

/// RFC 7541 §4.2.
#[test]
fn the_next_block_says_that_no_table_is_used_in_trailers_too() {
    let mut peer = streams(&[1]);
    peer.session.send_head(1, &Bytes::from_static(b"\x88"), false);
    peer.sent();
    peer.receive(Frame::Settings(Settings { initial_window: None, resizes_table: true })).unwrap();
    peer.sent();
    peer.session.give_trailers(1, Bytes::from_static(b"\x00\x01a\x01b"));
    assert_eq!(peer.sent_bytes()[FRAME_HEADER..], *b"\x20\x00\x01a\x01b");
}

#[test]
fn the_bytes_that_wait_are_counted() {
    let mut peer = streams(&[1, 3]);
    for (id, bytes) in [(1, 40_000), (3, 10), (1, 5)] {
        peer.session.room(id, bytes);
        peer.session.give(id, piece(bytes), false, MAX_FRAME);
        peer.session.send_head(id, &Bytes::from_static(b"\x88"), false);
    }
    while peer.session.pass_next() {}
    let mut left = 40_015 + 5 * FRAME_HEADER + 3 * (FRAME_HEADER + 1);
    let (mut heads, mut at) = (8 * FRAME_HEADER + 3, 0);
    for step in [3, 17, 20_000, 1, 12_345, 5_000].into_iter().cycle() {
        assert_eq!(
            (peer.session.output.len(), peer.session.in_flight.bytes + heads),
            (left, left),
            "{at}"
        );
        assert_eq!(peer.session.output.frames_len(), heads);
        let step = step.min(left);
        if step == 0 {
            break;
        }
        let in_flight = peer.session.in_flight.bytes;
        peer.session.take(step);
        heads -= step - (in_flight - peer.session.in_flight.bytes);
        (left, at) = (left - step, at + step);
    }
}
