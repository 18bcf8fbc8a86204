//! Requests: bodies and their windows, trailers, mistakes.

use super::super::super::settings::{CONNECTION_WINDOW, STREAM_WINDOW, STREAMS};
use super::*;

const PART: usize = MAX_FRAME / 2;

/// The windows as the client counts them.
struct Windows {
    connection: u32,
    stream: u32,
}

impl Windows {
    /// Counts a frame of `size` bytes, which the windows must allow, and the updates that follow.
    #[track_caller]
    fn count(&mut self, peer: &mut Peer, id: u32, size: u32) {
        let enough = "the windows are not given back";
        self.connection = self.connection.checked_sub(size).expect(enough);
        self.stream = self.stream.checked_sub(size).expect(enough);
        for frame in peer.sent() {
            match frame {
                Sent::Update(0, bytes) => self.connection += bytes,
                Sent::Update(stream, bytes) if stream == id => self.stream += bytes,
                _ => {}
            }
        }
    }
}

/// Sends bodies of three windows in all by `part`, which sends one frame and returns its size. The
/// windows of the client must allow each. Each stream has `frames` frames.
#[track_caller]
fn windows_last(frames: u32, mut part: impl FnMut(&mut Peer, u32, u32) -> u32) {
    let mut peer = Peer::new();
    let (mut connection, mut all) = (CONNECTION_WINDOW, 0);
    for id in (1..).step_by(2) {
        let mut windows = Windows { connection, stream: STREAM_WINDOW };
        peer.open(id);
        for frame in 0..frames {
            let size = part(&mut peer, id, frame);
            windows.count(&mut peer, id, size);
            all += size;
            if all > 3 * CONNECTION_WINDOW {
                return;
            }
        }
        if peer.session.live(id).is_some() {
            peer.takes(Frame::RstStream { stream: id });
        }
        connection = windows.connection;
    }
}

#[test]
fn bytes_that_the_task_has_taken_are_given_back() {
    windows_last(u32::MAX, |peer, id, _| {
        peer.data(id, PART, 0, false).unwrap();
        peer.session.live(id).unwrap().input.body.clear();
        peer.session.release(id, PART);
        u32::try_from(PART).unwrap()
    });
}

/// RFC 9113 §6.9.1: padding counts.
#[test]
fn padding_is_given_back_at_once() {
    windows_last(u32::MAX, |peer, id, _| {
        peer.data(id, 1, 256, false).unwrap();
        peer.session.live(id).unwrap().input.body.clear();
        peer.session.release(id, 1);
        257
    });
}

#[test]
fn a_body_without_a_reader_is_given_back_to_the_connection() {
    windows_last(100, |peer, id, frame| {
        if frame == 0 {
            peer.session.let_go(id, true);
        }
        peer.data(id, PART, 0, false).unwrap();
        u32::try_from(PART).unwrap()
    });
    // Kept before the task has let it go.
    windows_last(100, |peer, id, frame| {
        peer.data(id, PART, 0, false).unwrap();
        if frame % 100 == 99 {
            peer.session.let_go(id, true);
        }
        u32::try_from(PART).unwrap()
    });
}

#[test]
fn bodies_that_end_in_an_error_are_given_back() {
    let part = u32::try_from(PART).unwrap();
    // A frame on a stream that the client does not know to be reset.
    windows_last(100, |peer, id, frame| {
        if frame == 1 {
            peer.session.reset(id, Code::INTERNAL_ERROR);
        }
        peer.data(id, PART, 0, false).unwrap();
        part
    });
    // A body of another length.
    windows_last(2, |peer, id, frame| {
        if frame == 0 {
            assert_eq!(peer.session.expect_length(id, 1), Ok(true));
        }
        peer.data(id, PART, 0, false).unwrap();
        part
    });
    // The client gives its request up.
    windows_last(64, |peer, id, _| {
        peer.data(id, PART, 0, false).unwrap();
        part
    });
}

#[test]
fn a_client_keeps_to_the_windows() {
    let fill = |peer: &mut Peer, id| {
        for _ in 0..STREAM_WINDOW as usize / MAX_FRAME {
            assert!(peer.data(id, MAX_FRAME, 0, false).is_ok());
        }
    };
    let mut peer = Peer::new();
    peer.open(1);
    fill(&mut peer, 1);
    assert_eq!(peer.sent(), []);
    assert_eq!(peer.data(1, 0, 1, false).unwrap_err().code, Code::FLOW_CONTROL_ERROR);
    // The window of the connection has been given back, the stream's has not.
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.let_go(1, true);
    fill(&mut peer, 1);
    peer.sent();
    assert!(peer.data(1, 1, 0, false).is_ok());
    assert_eq!(peer.sent(), [Sent::Reset(1, Code::FLOW_CONTROL_ERROR)]);
}

#[test]
fn a_body_has_its_announced_length() {
    for (length, parts, is_valid) in [
        (3, &[(3, true)][..], true),
        (3, &[(1, false), (2, true)], true),
        (3, &[(3, false), (0, true)], true),
        (3, &[(2, true)], false),
        (3, &[(4, false)], false),
        (3, &[(3, false), (1, true)], false),
        (0, &[(0, true)], true),
    ] {
        let mut peer = Peer::new();
        peer.open(1);
        assert_eq!(peer.session.expect_length(1, length), Ok(true));
        for (bytes, ends) in parts {
            assert!(peer.data(1, *bytes, 0, *ends).is_ok());
        }
        let reset = [Sent::Reset(1, Code::PROTOCOL_ERROR)];
        assert_eq!(peer.sent(), if is_valid { &[][..] } else { &reset }, "{length} {parts:?}");
    }
    // Without a body.
    for (length, is_valid) in [(0, true), (1, false)] {
        let mut peer = Peer::new();
        assert!(peer.head(1, HEAD, true).is_ok());
        assert_eq!(peer.session.expect_length(1, length), Ok(is_valid));
        assert_eq!(peer.sent().is_empty(), is_valid);
    }
}

/// RFC 9113 §8.1.
#[test]
fn trailers_end_a_body() {
    const TRAILER: &[u8] = b"\x00\x01x\x01y";
    let trailers = |ends, prepare: &dyn Fn(&mut Peer)| {
        let mut peer = Peer::new();
        peer.open(1);
        prepare(&mut peer);
        assert!(peer.head(1, TRAILER, ends).is_ok());
        let stream = peer.session.live(1);
        (stream.is_some_and(|stream| stream.input.has_ended), peer.sent())
    };
    let reset = |code| vec![Sent::Reset(1, code)];
    let length = |peer: &mut Peer, length| {
        assert_eq!(peer.session.expect_length(1, length), Ok(true));
    };
    assert_eq!(trailers(true, &|_| {}), (true, vec![]));
    assert_eq!(trailers(false, &|_| {}), (false, reset(Code::PROTOCOL_ERROR)));
    assert_eq!(trailers(true, &|peer| length(peer, 1)), (false, reset(Code::PROTOCOL_ERROR)));
    assert_eq!(trailers(true, &|peer| length(peer, 0)), (true, vec![]));
    let end = |peer: &mut Peer| drop(peer.data(1, 0, 0, true).unwrap());
    assert_eq!(trailers(true, &end), (false, reset(Code::STREAM_CLOSED)));
    // They are decoded on streams that are reset, too: later blocks refer to them.
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.reset(1, Code::INTERNAL_ERROR);
    assert!(peer.head(1, b"\x40\x01x\x01y", true).is_ok());
    assert!(peer.head(3, &[HEAD, &[0xbe]].concat(), true).is_ok());
    assert_eq!(peer.head(5, &[0xbf], true).unwrap_err().code, Code::COMPRESSION_ERROR);
}

/// RFC 9113 §5.1: idle streams have no frames but HEADERS; closed ones that the client knows of
/// have none.
#[test]
fn frames_on_idle_and_closed_streams() {
    let frames = |id| {
        [
            Frame::Data { stream: id, data: &[], size: 0, ends: true },
            Frame::RstStream { stream: id },
            Frame::WindowUpdate { stream: id, increment: 1 },
            Frame::Malformed { stream: id, code: Code::PROTOCOL_ERROR },
        ]
    };
    for id in [2, 4, 7] {
        for frame in frames(id) {
            let mut peer = Peer::new();
            peer.open(5);
            assert_eq!(peer.error(frame), Code::PROTOCOL_ERROR, "{id}");
        }
    }
    let closed = || {
        let mut peer = Peer::new();
        assert!(peer.head(1, HEAD, true).is_ok());
        peer.session.send_head(1, &Bytes::from_static(b"\x88"), true);
        peer.let_go(1);
        assert!(peer.session.streams.is_empty());
        peer
    };
    let [data, reset, update, _] = frames(1);
    assert_eq!(closed().error(data.clone()), Code::STREAM_CLOSED);
    assert_eq!(closed().head(1, HEAD, true).unwrap_err().code, Code::STREAM_CLOSED);
    closed().takes(reset);
    closed().takes(update);
    // The client may not know of the end: it was reset, or GOAWAY is on its way.
    let mut peer = closed();
    peer.session.leave();
    peer.takes(data.clone());
    let mut peer = Peer::new();
    peer.open(1);
    peer.session.reset(1, Code::INTERNAL_ERROR);
    peer.let_go(1);
    assert!(peer.session.streams.is_empty());
    peer.takes(data);
    assert!(matches!(peer.head(1, b"", true), Ok(Received::Nothing)));
}

/// RFC 9113 §5.1, §8.1.1.
#[test]
fn mistakes_end_their_stream() {
    let mut peer = Peer::new();
    assert!(peer.head(1, HEAD, true).is_ok());
    assert!(peer.data(1, 1, 0, true).is_ok());
    assert_eq!(peer.sent(), [Sent::Reset(1, Code::STREAM_CLOSED)]);
    // A head without a path.
    assert!(matches!(peer.head(3, HEAD.split_at(2).0, true), Ok(Received::Nothing)));
    assert_eq!(peer.sent(), [Sent::Reset(3, Code::PROTOCOL_ERROR)]);
}

#[test]
fn parts_of_a_request_wake_its_task() {
    let parts: [fn(&mut Peer); 3] = [
        |peer| drop(peer.data(1, 1, 0, false).unwrap()),
        |peer| drop(peer.data(1, 0, 0, true).unwrap()),
        |peer| drop(peer.head(1, b"\x00\x01x\x01y", true).unwrap()),
    ];
    for part in parts {
        let mut peer = Peer::new();
        peer.open(1);
        assert!(Wakeups::of_stream(&mut peer, 1, part));
    }
}

#[test]
fn streams_beyond_the_limit_are_refused() {
    let mut peer = Peer::new();
    let last = u32::try_from(2 * STREAMS).unwrap() + 1;
    (1..last).step_by(2).for_each(|id| peer.open(id));
    assert!(matches!(peer.head(last, HEAD, true), Ok(Received::Nothing)));
    assert_eq!(peer.sent(), [Sent::Reset(last, Code::REFUSED_STREAM)]);
    peer.takes(Frame::RstStream { stream: 1 });
    peer.open(last + 2);
}
