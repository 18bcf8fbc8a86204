use std::fmt::Debug;

use super::*;

const MAX_SECTION: usize = 16;
const UNEXPECTED: Error = Error::Connection(Code::FRAME_UNEXPECTED);

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    varint::encode(kind, &mut out);
    varint::encode(payload.len() as u64, &mut out);
    [&out, payload].concat()
}

/// All parts of a stream that arrives in these pieces.
fn read<P: PartialEq, E>(
    pieces: &[&[u8]],
    need_more: &P,
    mut next: impl FnMut(&mut BytesMut) -> Result<P, E>,
) -> Result<Vec<P>, E> {
    let (mut buf, mut parts) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.put_slice(piece);
        while let Some(part) = Some(next(&mut buf)?).filter(|part| part != need_more) {
            parts.push(part);
        }
        assert!(buf.len() <= MAX_SECTION, "more bytes are stored than necessary");
    }
    Ok(parts)
}

/// The parts of a request as text, with sections in brackets; `is_at_boundary` and `skipped`.
fn request(pieces: &[&[u8]]) -> Result<(String, bool, u64), Error> {
    let mut decoder = RequestDecoder::new(MAX_SECTION);
    let parts = read(pieces, &RequestPart::NeedMore, |buf| decoder.next(buf))?;
    let text = |part| match part {
        RequestPart::Data(data) => String::from_utf8(data.into()).unwrap(),
        section => format!("[{section:?}]"),
    };
    let text = parts.into_iter().map(text).collect();
    Ok((text, decoder.is_at_boundary(), decoder.skipped()))
}

fn control(pieces: &[&[u8]]) -> Result<Vec<Control>, Code> {
    let mut decoder = ControlDecoder::default();
    read(pieces, &Control::NeedMore, |buf| decoder.next(buf))
}

/// Asserts that all ways to cut a stream into up to three pieces, or into bytes, read the same.
fn assert_cuts<T: PartialEq + Debug>(bytes: &[u8], read: impl Fn(&[&[u8]]) -> T) {
    let whole = read(&[bytes]);
    assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()), whole);
    for (second, first) in (0..bytes.len()).flat_map(|end| (0..=end).map(move |at| (end, at))) {
        let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
        assert_eq!(read(&pieces), whole, "cut at {first} and {second}");
    }
}

#[test]
fn each_cut_of_a_request_gives_the_same_parts() {
    let (unknown, data) = (frame(0x1f * 0x999 + 0x21, &[0; 70]), frame(DATA, &[b'd'; 70]));
    let [head, trailers] = [frame(HEADERS, b"head"), frame(HEADERS, b"trailers")];
    let frames =
        [b"\x21\0", &head[..], b"\0\x03abc", b"\0\0", &unknown, &data, &trailers, &unknown];
    let stream = frames.concat();
    let expected = format!("[Head(b\"head\")]abc{}[Trailers(b\"trailers\")]", "d".repeat(70));
    assert_eq!(request(&[&stream]), Ok((expected, true, 4 + 2 * unknown.len() as u64)));
    assert_cuts(&stream, request);
    let ends: Vec<_> = (0..=frames.len()).map(|count| frames[..count].concat().len()).collect();
    for end in 0..=stream.len() {
        let (_, is_at_boundary, _) = request(&[&stream[..end]]).unwrap();
        assert_eq!(is_at_boundary, ends.contains(&end), "{end}");
    }
}

#[test]
fn wrong_frames_of_a_request_are_refused() {
    for wrong in [&b"\0\x01d"[..], b"\x01\x01h\x01\x01t\0\x01d", b"\x01\x01h\x01\x01t\x01\x01t"] {
        assert_eq!(request(&[wrong]), Err(UNEXPECTED));
        assert_cuts(wrong, request);
    }
    for kind in [2, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, 6, GOAWAY, 8, 9, MAX_PUSH_ID] {
        for before in [&b""[..], b"\x01\x01h"] {
            assert_eq!(request(&[before, &frame(kind, b"\0")]), Err(UNEXPECTED), "{kind}");
        }
    }
}

#[test]
fn long_sections_are_refused_and_long_unknown_frames_skipped() {
    assert!(request(&[&frame(HEADERS, &[0; MAX_SECTION])]).is_ok());
    assert_eq!(request(&[&[1, 17]]), Err(Error::SectionTooLarge));
    assert_eq!(request(&[&[1, 0, 1], &[0xff; 8]]), Err(Error::SectionTooLarge));
    let [header, payload] = [&b"\x21\xff\xff\xff\xff\xff\xff\xff\xff"[..], &[1; 5000]];
    assert_eq!(request(&[header, payload, payload]), Ok((String::new(), false, 10_009)));
    assert_eq!(control(&[b"\x04\0", header, payload, payload]).unwrap().len(), 1);
}

#[test]
fn each_cut_of_a_control_stream_gives_the_same_frames() {
    let unknown = frame(0x21, &[4; 70]);
    let settings = b"\x04\x0b\x01\x25\x06\x44\0\x07\x10\x08\x01\x21\x07";
    let push = b"\x0d\x01\x05\x0d\x01\x05\x03\x01\x03";
    let stream = [settings, &unknown[..], push, b"\x07\x02\x40\xff\x07\x01\x09"].concat();
    let expected = "[Settings(Settings { max_field_section_size: Some(1024), \
        qpack_max_table_capacity: 37, qpack_blocked_streams: 16, enable_connect_protocol: true }), \
        MaxPushId(5), MaxPushId(5), CancelPush(3), GoAway(255), GoAway(9)]";
    assert_eq!(format!("{:?}", control(&[&stream]).unwrap()), expected);
    assert_cuts(&stream, control);
}

#[test]
fn wrong_frames_of_a_control_stream_are_refused() {
    #[rustfmt::skip]
    let cases: [(Code, &[&[u8]]); 7] = [
        (Code::MISSING_SETTINGS, &[b"\x07\x01\0", b"\x21\0"]),
        (Code::FRAME_ERROR, &[b"\x04\x01\x06", b"\x04\x02\x06\x40"]),
        (Code::FRAME_ERROR, &[b"\x04\0\x07\0", b"\x04\0\x07\x01\x40", b"\x04\0\x07\x02\x04\0"]),
        (Code::SETTINGS_ERROR, &[
            b"\x04\x02\x02\0", b"\x04\x02\x03\0", b"\x04\x02\x04\0", b"\x04\x02\x05\0",
            b"\x04\x02\x08\x02", b"\x04\x04\x06\x09\x06\x09", b"\x04\x04\x21\0\x21\x01",
        ]),
        (Code::ID_ERROR, &[b"\x04\0\x0d\x01\x05\x0d\x01\x04", b"\x04\0\x07\x01\x04\x07\x01\x05"]),
        (Code::EXCESSIVE_LOAD, &[b"\x04\x80\0\x40\x01"]),
        (Code::FRAME_UNEXPECTED, &[
            b"\x04\0\0\0", b"\x04\0\x01\0", b"\x04\0\x02\0", b"\x04\0\x04\0", b"\x04\0\x05\0",
            b"\x04\0\x06\0", b"\x04\0\x08\0", b"\x04\0\x09\0",
        ]),
    ];
    for (code, streams) in cases {
        for stream in streams {
            assert_eq!(control(&[stream]), Err(code), "{stream:x?}");
        }
    }
}

#[test]
fn encoded_frames_have_the_layout_of_the_rfc() {
    let mut out = BytesMut::new();
    control_stream(&mut out);
    settings(16, true, &mut out);
    goaway(4, &mut out);
    headers(b"section", &mut out);
    data_header(16_384, &mut out);
    let control = b"\0\x04\x0b\x01\0\x06\x10\x07\0\x08\x01\x48\xf8\0\x07\x01\x04";
    assert_eq!(out[..], [&control[..], b"\x01\x07section\0\x80\0\x40\0"].concat());
    assert_eq!(format!("{} {}", Code::ID_ERROR, Code(0x33)), "H3_ID_ERROR 0x33");
    let types = [0, 1, 2, 3, 4].map(crate::StreamType::from);
    assert_eq!(format!("{types:?}"), "[Control, Push, QpackEncoder, QpackDecoder, Other(4)]");
}

#[test]
fn random_streams_do_not_panic() {
    let mut random = fastrand::Rng::with_seed(9114);
    let mut accepted = 0;
    for _ in 0..5_000 {
        // Small numbers are frame types and lengths more often than random ones.
        let bytes: Vec<_> = (0..16).map(|_| (random.u8(..) >> random.u8(..8)) & 0x7f).collect();
        let pieces: Vec<_> = bytes.chunks(random.usize(1..9)).collect();
        accepted += usize::from(request(&[&[&b"\x01\x01h"[..]], &pieces[..]].concat()).is_ok());
        accepted += usize::from(control(&[&[&b"\x04\0"[..]], &pieces[..]].concat()).is_ok());
    }
    assert!((1..10_000).contains(&accepted), "{accepted}");
}
