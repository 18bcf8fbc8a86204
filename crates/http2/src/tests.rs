//! Frames as RFC 9113 §6 has them: valid ones, and each way of being wrong.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::{Code, ConnectionError, Frame, FrameDecoder, MAX_FRAME, MAX_WINDOW, Settings, encode};

const MAX_BLOCK: usize = 1000;

fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection whose first SETTINGS have come.
fn decoder() -> FrameDecoder {
    let mut decoder = FrameDecoder::new(MAX_BLOCK);
    let settings = bytes(4, 0, 0, &[]);
    let first = Ok(Some((Frame::Settings(Settings::default()), settings.len())));
    assert_eq!(decoder.next(&settings), first);
    decoder
}

fn error(bytes: &[u8]) -> Code {
    decoder().next(bytes).unwrap_err().code
}

#[test]
fn frames_of_a_client() {
    let settings = Settings { initial_window: Some(7), resizes_table: true };
    let block = Cow::Borrowed(&b"block"[..]);
    let entries = [0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0, 9, 0, 4, 0, 0, 0, 7, 0xff, 0xff, 1, 2, 3, 4];
    for (bytes, frame) in [
        (bytes(0, 0, 1, b"abc"), Frame::Data { stream: 1, data: b"abc", size: 3, ends: false }),
        (
            bytes(0, 9, 1, b"\x02abc\0\0"),
            Frame::Data { stream: 1, data: b"abc", size: 6, ends: true },
        ),
        (bytes(1, 4, 3, b"block"), Frame::Headers { stream: 3, block: block.clone(), ends: false }),
        (
            bytes(1, 0x2d, 3, b"\x01\0\0\0\0\0block\0"),
            Frame::Headers { stream: 3, block, ends: true },
        ),
        (bytes(2, 0, 9, b"\0\0\0\0\0"), Frame::Ignored),
        (bytes(3, 0, 1, &[0; 4]), Frame::RstStream { stream: 1 }),
        (bytes(4, 0, 0, &entries), Frame::Settings(settings)),
        (bytes(4, 1, 0, &[]), Frame::SettingsAck),
        (bytes(6, 0, 0, b"12345678"), Frame::Ping(*b"12345678")),
        (bytes(6, 1, 0, b"12345678"), Frame::PingAck(*b"12345678")),
        (bytes(7, 0, 0, &[0; 8]), Frame::GoAway),
        (bytes(7, 0, 0, &[0; 9]), Frame::GoAway),
        (bytes(8, 0, 0, &[0x80, 0, 1, 0]), Frame::WindowUpdate { stream: 0, increment: 256 }),
        // The reserved bit of a stream is ignored (§4.1).
        (bytes(3, 0, 0x8000_0001, &[0; 4]), Frame::RstStream { stream: 1 }),
        (bytes(200, 0xff, 7, b"unknown"), Frame::Ignored),
    ] {
        assert_eq!(decoder().next(&bytes), Ok(Some((frame, bytes.len()))));
        for end in 0..bytes.len() {
            assert_eq!(decoder().next(&bytes[..end]), Ok(None), "{bytes:x?}");
        }
    }
}

/// RFC 9113 §6.5.2.
#[test]
fn settings_have_all_values_up_to_their_limits() {
    for (setting, initial_window) in [
        ([0, 2, 0, 0, 0, 1], None),
        ([0, 4, 0, 0, 0, 0], Some(0)),
        ([0, 4, 0x7f, 0xff, 0xff, 0xff], Some(MAX_WINDOW)),
        ([0, 5, 0, 0, 0x40, 0], None),
        ([0, 5, 0, 0xff, 0xff, 0xff], None),
    ] {
        let (bytes, settings) =
            (bytes(4, 0, 0, &setting), Settings { initial_window, resizes_table: false });
        let expected = Ok(Some((Frame::Settings(settings), bytes.len())));
        assert_eq!(decoder().next(&bytes), expected, "{setting:?}");
    }
}

#[test]
fn errors_of_one_stream() {
    for (bytes, code) in [
        (bytes(2, 0, 9, b"\0\0\0\0"), Code::FRAME_SIZE_ERROR),
        (bytes(2, 0, 9, b"\0\0\0\x09\0"), Code::PROTOCOL_ERROR),
        (bytes(2, 0, 9, b"\x80\0\0\x09\0"), Code::PROTOCOL_ERROR),
        (bytes(8, 0, 9, &[0; 4]), Code::PROTOCOL_ERROR),
    ] {
        let frame = Frame::Malformed { stream: 9, code };
        assert_eq!(decoder().next(&bytes), Ok(Some((frame, bytes.len()))));
    }
}

#[test]
fn errors_of_the_connection() {
    for bytes in [
        bytes(0, 0, 0, b"a"),
        bytes(0, 8, 1, b"\x02a"),
        bytes(1, 4, 0, b""),
        bytes(1, 0x24, 3, b"\0\0\0\x03\0"),
        bytes(2, 0, 0, &[0; 5]),
        bytes(3, 0, 0, &[0; 4]),
        bytes(4, 0, 1, &[]),
        bytes(4, 0, 0, &[0, 2, 0, 0, 0, 2]),
        bytes(4, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]),
        bytes(4, 0, 0, &[0, 5, 1, 0, 0, 0]),
        bytes(5, 4, 1, &[0; 4]),
        bytes(6, 0, 1, &[0; 8]),
        bytes(7, 0, 1, &[0; 8]),
        bytes(8, 0, 0, &[0; 4]),
        bytes(9, 4, 1, b""),
    ] {
        assert_eq!(error(&bytes), Code::PROTOCOL_ERROR, "{bytes:x?}");
    }
    for bytes in [
        bytes(0, 8, 1, b""),
        bytes(1, 0x24, 3, b"\0\0\0\0"),
        bytes(3, 0, 1, &[0; 3]),
        bytes(4, 0, 0, &[0; 7]),
        bytes(4, 1, 0, &[0; 6]),
        bytes(6, 0, 0, &[0; 7]),
        bytes(7, 0, 0, &[0; 7]),
        bytes(8, 0, 1, &[0; 5]),
        bytes(0, 0, 1, &vec![0; MAX_FRAME + 1])[..9].to_vec(),
    ] {
        assert_eq!(error(&bytes), Code::FRAME_SIZE_ERROR, "{bytes:x?}");
    }
    let window = bytes(4, 0, 0, &[0, 4, 0x80, 0, 0, 0]);
    assert_eq!(error(&window), Code::FLOW_CONTROL_ERROR);
    for first in [bytes(6, 0, 0, &[0; 8]), bytes(4, 1, 0, &[])] {
        let error = FrameDecoder::new(MAX_BLOCK).next(&first).unwrap_err();
        assert_eq!(error.code, Code::PROTOCOL_ERROR);
    }
}

/// RFC 9113 §6.10.
#[test]
fn a_field_block_may_have_several_frames() {
    let mut decoder = decoder();
    for (frame, expected) in [
        (bytes(1, 1, 3, b"one "), Frame::Ignored),
        (bytes(9, 0, 3, b"two "), Frame::Ignored),
        (
            bytes(9, 4, 3, b"three"),
            Frame::Headers { stream: 3, block: Cow::Borrowed(b"one two three"), ends: true },
        ),
    ] {
        assert_eq!(decoder.next(&frame), Ok(Some((expected, frame.len()))));
    }
    for other in [bytes(0, 0, 3, b""), bytes(9, 4, 5, b""), bytes(200, 0, 3, b"")] {
        assert!(matches!(decoder.next(&bytes(1, 0, 3, b"")), Ok(Some((Frame::Ignored, 9)))));
        assert_eq!(decoder.next(&other).unwrap_err().code, Code::PROTOCOL_ERROR);
        decoder = self::decoder();
    }
}

/// CVE-2024-27316.
#[test]
fn field_blocks_are_bounded() {
    let endless = |part: &[u8]| -> (usize, ConnectionError) {
        let mut decoder = decoder();
        assert!(decoder.next(&bytes(1, 0, 3, b"")).is_ok());
        let frame = bytes(9, 0, 3, part);
        let mut ends = (1..).map(|count| (count, decoder.next(&frame).err()));
        ends.find_map(|(count, error)| Some((count, error?))).unwrap()
    };
    let calm = ConnectionError::new(Code::ENHANCE_YOUR_CALM, "a field block is too large");
    assert_eq!(endless(b""), (17, calm));
    assert_eq!(endless(&[0; MAX_BLOCK / 2]), (3, calm));
}

#[test]
fn a_large_field_block_is_sent_in_several_frames() {
    let block = vec![7; 2 * MAX_FRAME + 1];
    let mut out = BytesMut::new();
    encode::headers(3, &block, true, &mut out);
    let (mut decoder, mut at) = (FrameDecoder::new(usize::MAX), 0);
    assert!(decoder.next(&bytes(4, 0, 0, &[])).is_ok());
    let mut last = None;
    while let Some((frame, size)) = decoder.next(&out[at..]).unwrap() {
        at += size;
        last = Some(frame);
    }
    assert_eq!(last, Some(Frame::Headers { stream: 3, block: block.into(), ends: true }));
    assert_eq!(at, out.len());
}
