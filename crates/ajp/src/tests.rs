use bytes::{Bytes, BytesMut};

use super::*;

fn packet(payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    [&FROM_CONTAINER, &len.to_be_bytes()[..], payload].concat()
}

fn read(pieces: &[&[u8]]) -> Result<Vec<ContainerPacket>, Malformed> {
    let (decoder, mut buf, mut all) = (Decoder::new(PACKET_SIZE), BytesMut::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        while !buf.is_empty()
            && let Some(answer) = decoder.next(&mut buf)?
        {
            all.push(answer);
        }
    }
    Ok(all)
}

#[test]
fn a_request_is_one_packet() {
    let facts = Facts {
        method: "GET",
        protocol: b"HTTP/1.1",
        uri: b"/a",
        query: Some(b"b"),
        remote_addr: b"::1",
        remote_port: Some(5),
        server_name: b"h",
        server_port: 443,
        local_addr: b"x",
        is_https: true,
        secret: Some(b"s"),
        ..Facts::default()
    };
    let mut request = ForwardRequest::new(facts);
    request.field("host", b"h");
    request.field("x-a", b"");
    let expected = [
        &b"\x12\x34\0\x70\x02\x02\0\x08HTTP/1.1\0\0\x02/a\0\0\x03::1\0\xff\xff\0\x01h\0\x01\xbb\x01"[..],
        b"\0\x02\xa0\x0b\0\x01h\0\0\x03x-a\0\0\0\0",
        b"\x05\0\x01b\0\x0c\0\x01s\0\x0a\0\x0fAJP_REMOTE_PORT\0\0\x015\0\x0a\0\x0eAJP_LOCAL_ADDR\0\0\x01x\0\xff",
    ]
    .concat();
    let mut sent = request.finish(PACKET_SIZE).unwrap().to_vec();
    let len = u16::from_be_bytes([sent[2], sent[3]]);
    assert_eq!(usize::from(len), sent.len() - HEADER);
    sent[3] = 0x70;
    assert_eq!(sent.escape_ascii().to_string(), expected.escape_ascii().to_string());
}

#[test]
fn a_method_without_a_number_is_spelled_out() {
    let request = ForwardRequest::new(Facts { method: "BREW", ..Facts::default() });
    let sent = request.finish(PACKET_SIZE).unwrap();
    assert_eq!(sent[5], words::OTHER_METHOD);
    assert!(sent.windows(8).any(|part| part == b"\x0d\0\x04BREW\0"));
    assert_eq!((words::method("OPTIONS"), words::method("MKACTIVITY")), (1, 27));
}

#[test]
fn a_request_that_fits_no_packet_is_refused() {
    let with = |len: usize, size: usize| {
        let mut request = ForwardRequest::new(Facts { method: "GET", ..Facts::default() });
        request.field("cookie", &vec![b'x'; len]);
        request.finish(size).map(|sent| sent.len())
    };
    let rest = with(0, PACKET_SIZE).unwrap();
    assert_eq!(with(PACKET_SIZE - rest, PACKET_SIZE), Ok(PACKET_SIZE));
    assert_eq!(with(PACKET_SIZE - rest + 1, PACKET_SIZE), Err(TooLarge));
    assert_eq!(with(70_000, MAX_PACKET_SIZE), Err(TooLarge));
}

#[test]
fn pieces_of_a_body_are_as_large_as_they_may_be() {
    let body = vec![b'x'; 20_000];
    for (asked, size, taken) in
        [(u16::MAX, 8192, 8186), (100, 8192, 100), (u16::MAX, MAX_PACKET_SIZE, 20_000)]
    {
        let (packet, n) = body_piece(&body, asked, size);
        assert_eq!((n, packet.len()), (taken, taken + 6));
        assert_eq!(packet[..2], FROM_SERVER);
        let number = |at| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        assert_eq!((number(2), number(4)), (taken + 2, taken));
    }
    assert_eq!(body_piece(b"", 8186, 8192), (Bytes::from_static(b"\x12\x34\0\0"), 0));
}

#[test]
fn an_answer_means_the_same_however_it_is_cut() {
    let head = b"\x04\0\xc8\0\x02OK\0\0\x02\xa0\x01\0\x09text/html\0\0\x03X-A\0\0\x01b\0";
    let wire = [
        packet(&[6, 0x1f, 0xfa]),
        packet(head),
        packet(b"\x03\0\x05hello\0"),
        packet(b"\x03\0\0\0"),
        packet(&[9]),
        packet(&[5, 1]),
    ]
    .concat();
    let field = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    let expected = [
        ContainerPacket::Wants(8186),
        ContainerPacket::Head {
            status: 200,
            reason: "OK".into(),
            fields: vec![field("Content-Type", "text/html"), field("X-A", "b")],
        },
        ContainerPacket::Data("hello".into()),
        ContainerPacket::Data(Bytes::new()),
        ContainerPacket::Pong,
        ContainerPacket::End { may_stay: true },
    ];
    for cut in 0..=wire.len() {
        assert_eq!(read(&[&wire[..cut], &wire[cut..]]).unwrap(), expected, "{cut}");
    }
    assert_eq!(read(&wire.chunks(1).collect::<Vec<_>>()).unwrap(), expected);
}

#[test]
fn packets_that_lie_are_refused() {
    for wire in [
        b"\x12\x34\0\x01\x09".to_vec(),
        b"HTTP/1.1 400 ".to_vec(),
        b"A\0".to_vec(),
        b"AB\xff\xff".to_vec(),
        packet(b""),
        packet(&[7]),
        packet(&[5]),
        packet(&[5, 1, 0]),
        packet(&[6, 1]),
        packet(&[9, 0]),
        packet(b"\x03\0\x05hell"),
        packet(b"\x03\0\x05hello\0\0"),
        packet(b"\x04\0\xc8\0\x02OK\0\xff\xff"),
        packet(b"\x04\0\xc8\0\x02OK\x01\0\0"),
        packet(b"\x04\0\xc8\0\x02OK\0\0\x01\xa0\x77\0\x01x\0"),
        packet(b"\x04\0\xc8\0\x02OK\0\0\x01\0\x09X-A\0\0\x01b\0"),
    ] {
        assert!(read(&[&wire]).is_err(), "{}", wire.escape_ascii());
    }
}
