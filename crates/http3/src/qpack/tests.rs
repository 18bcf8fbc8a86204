use bytes::{BufMut, BytesMut};
use http::StatusCode;
use sendoff_field_section::integer;

use super::lines::Lines;
use super::*;
use crate::Code;

const NO_LIMIT: usize = usize::MAX;

/// A section of literals with literal names, from `name: value|name: value`.
fn section(fields: &str) -> BytesMut {
    let mut out = BytesMut::from(&[0, 0][..]);
    for (name, value) in fields.split('|').map(|field| field.split_once(": ").unwrap()) {
        integer::encode(0x20, 3, name.len(), &mut out);
        out.put_slice(name.as_bytes());
        integer::encode(0, 7, value.len(), &mut out);
        out.put_slice(value.as_bytes());
    }
    out
}

/// The fields of any section in the notation of [`section`], for responses as well.
fn fields(section: &[u8]) -> Result<String, QpackError> {
    let mut lines = Lines::new(section)?;
    let mut fields = Vec::new();
    while let Some((name, value)) = lines.next_line()? {
        fields.push([&name[..], b": ", &value].concat());
    }
    Ok(String::from_utf8_lossy(&fields.join(&b'|')).into_owned())
}

#[test]
fn head_of_a_request_in_each_representation() {
    // RFC 9204 B.1.
    assert_eq!(fields(b"\0\0\x51\x0b/index.html").as_deref(), Ok(":path: /index.html"));

    // `custom-key` and `custom-value` by the Huffman code (RFC 7541 C.4.3).
    let name = b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f";
    let value = b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf";
    // Indexed `:method: GET` and `:scheme: https`; static names of `:path` and `:authority`.
    let mut bytes = BytesMut::from(&b"\0\0\xd1\xd7\x51\x02/a\x70\x01h"[..]);
    integer::encode(0x28, 3, name.len(), &mut bytes);
    bytes.put_slice(name);
    integer::encode(0x80, 7, value.len(), &mut bytes);
    bytes.put_slice(value);
    // `accept-encoding: gzip, deflate, br`, indexed; `user-agent`, index 95 in two bytes.
    bytes.put_slice(b"\xdf\x5f\x50\x02me");

    let size = 7 * 32 + 10 + 12 + 7 + 11 + 22 + 32 + 12;
    let expected = format!(
        "FieldSection {{ method: GET, scheme: b\"https\", authority: Some(b\"h\"), \
        path: Some(b\"/a\"), protocol: None, fields: {{\"custom-key\": \"custom-value\", \
        \"accept-encoding\": \"gzip, deflate, br\", \"user-agent\": \"me\"}}, size: {size} }}"
    );
    assert_eq!(format!("{:?}", decode(&bytes, size).unwrap()), expected);
    assert_eq!(decode(&bytes, size - 1), Err(QpackError::TooLarge));
}

#[test]
fn malformed_heads_are_refused() {
    let value = "the value of a pseudo-header field is not valid";
    for (reason, head) in [
        ("no :method", ":scheme: s|:path: /"),
        ("no :scheme", ":method: GET|:path: /"),
        ("no :path", ":method: GET|:scheme: s|:authority: h"),
        (":method is not valid", ":method: G{T|:scheme: s|:path: /"),
        (value, ":method: GET|:scheme: s|:path: "),
        (value, ":method: GET|:scheme: s|:path: / HTTP/1.1"),
        (value, ":method: GET|:scheme: s|:path: /|:authority: h\r\n"),
        ("a pseudo-header field is sent twice", ":method: GET|:method: GET|:scheme: s|:path: /"),
        ("a pseudo-header field behind another field", ":method: GET|:scheme: s|x: y|:path: /"),
        ("an unknown pseudo-header field", ":method: GET|:scheme: s|:path: /|:x: y"),
        ("an unknown pseudo-header field", ":method: GET|:scheme: s|:path: /|:status: 200"),
        ("an unknown pseudo-header field", ":Method: GET|:scheme: s|:path: /"),
        (":protocol without CONNECT", ":method: GET|:scheme: s|:path: /|:protocol: p"),
        ("a wrong target of CONNECT", ":method: CONNECT"),
        ("a wrong target of CONNECT", ":method: CONNECT|:authority: h|:path: /"),
        ("a wrong target of CONNECT", ":method: CONNECT|:authority: h|:scheme: s"),
        ("no :path", ":method: CONNECT|:protocol: p|:scheme: s|:authority: h"),
        ("no :scheme", ":method: CONNECT|:protocol: p|:authority: h|:path: /"),
    ] {
        assert_eq!(decode(&section(head), NO_LIMIT), Err(QpackError::Malformed(reason)), "{head}");
    }
}

#[test]
fn malformed_fields_are_refused_in_heads_and_trailers() {
    let own = ["connection: ", "keep-alive: ", "proxy-connection: ", "transfer-encoding: "];
    for (reason, malformed) in [
        ("a field of the connection", &own[..]),
        ("a field of the connection", &["upgrade: h2c"]),
        ("TE is not \"trailers\"", &["te: gzip", "te: trailers, gzip"]),
        ("a field value begins or ends with a blank", &["x:  y", "x: y\t", "x:  "]),
        ("a field name is not valid", &["X: y", "x y: z", "x\": y", "x:: y", "\u{e4}: y", ": y"]),
        ("a field value is not valid", &["x: a\rb", "x: a\nb", "x: a\0b"]),
    ] {
        for field in malformed {
            let expected = QpackError::Malformed(reason);
            let head = section(&format!(":method: GET|:scheme: s|:path: /|{field}"));
            assert_eq!(decode(&head, NO_LIMIT), Err(expected), "{field:?}");
            assert_eq!(trailers(&section(field), NO_LIMIT), Err(expected), "{field:?}");
        }
    }
    let pseudo = Err(QpackError::Malformed("a pseudo-header field in trailers"));
    assert_eq!(trailers(&section(":path: /"), NO_LIMIT), pseudo);
}

#[test]
fn valid_heads_and_trailers_are_accepted() {
    let tunnel = decode(&section(":method: CONNECT|:authority: h"), NO_LIMIT).unwrap();
    assert_eq!((&tunnel.scheme[..], tunnel.path), (&b""[..], None));
    let websocket =
        ":method: CONNECT|:protocol: p|:scheme: s|:authority: h|:path: /|te: Trailers|x: ";
    let websocket = decode(&section(websocket), NO_LIMIT).unwrap();
    assert_eq!((websocket.protocol, websocket.fields.len()), (Some("p".into()), 2));

    let bytes = section("x: a\tb|x: c");
    let fields = trailers(&bytes, 32 + 4 + 32 + 2).unwrap();
    assert_eq!(fields.get_all("x").iter().collect::<Vec<_>>(), ["a\tb", "c"]);
    assert_eq!(trailers(&bytes, 32 + 4 + 32 + 1), Err(QpackError::TooLarge));
    let many: String = (0..32_768).map(|index| format!("x{index}: |")).collect();
    assert!(trailers(&section(&many[..many.len() - 1]), NO_LIMIT) == Err(QpackError::TooLarge));
}

#[test]
fn dynamic_references_and_invalid_encodings_are_refused() {
    let prefixes = [&b""[..], b"\0", b"\x01\0", b"\0\x80"];
    let dynamic =
        [&b"\0\0\x80"[..], b"\0\0\x10", b"\0\0\x40\x01a", b"\0\0\x60\x01a", b"\0\0\0\x01a"];
    let beyond_the_table = [&b"\0\0\xff\x24"[..], b"\0\0\x5f\x54\x01a"];
    let strings = [&b"\0\0\x51\x02a"[..], b"\0\0\x23ab", b"\0\0\x51", b"\0\0\x51\x81\0"];
    for wrong in [&prefixes[..], &dynamic, &beyond_the_table, &strings].concat() {
        assert_eq!(fields(wrong), Err(QpackError::Decompression), "{wrong:?}");
    }
    assert_eq!(fields(b"\0\x05\xd1").as_deref(), Ok(":method: GET"), "a positive Base");
}

#[test]
fn encoded_responses_are_decoded() {
    let response = |status, fields: &str| {
        let fields = fields.split('|').map(|field| field.split_once(": ").unwrap());
        let mut out = BytesMut::new();
        encode(status, fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())), &mut out);
        out
    };
    let sent = "content-type: text/html; charset=utf-8|Content-Type: x|X-Y: Z|";
    let sent = format!("{sent}set-cookie: {}|{}: ", "v".repeat(300), "n".repeat(40));
    for status in (100..=999).map(|status| StatusCode::from_u16(status).unwrap()) {
        let expected = format!(":status: {}|{sent}", status.as_str());
        let expected = expected.replace("Content-Type", "content-type").replace("X-Y", "x-y");
        assert_eq!(fields(&response(status, &sent)), Ok(expected));
    }
    let indexed = response(StatusCode::OK, "Vary: Accept-Encoding|vary: accept-encoding");
    assert_eq!(indexed[..], *b"\0\0\xd9\x5f\x2c\x0fAccept-Encoding\xfb");
}

#[test]
fn only_instructions_without_effect_are_accepted() {
    assert_eq!(EncoderStream.take(&[0x20, 0x20]), Ok(()));
    for wrong in [0x21, 0x3f, 0x00, 0x40, 0x80, 0xc0] {
        assert_eq!(EncoderStream.take(&[0x20, wrong]), Err(Code::QPACK_ENCODER_STREAM_ERROR));
    }
    // Stream Cancellation of the ids 4, 63 and 2^62 - 1, then instructions and an endless id.
    let longest = [&[0x7f, 0xc0][..], &[0xff; 7], &[0x3f]].concat();
    let valid = [&[0x44, 0x7f, 0x00][..], &longest].concat();
    let endless = [&[0x7f][..], &[0x80; 9]].concat();
    for wrong in [&[0x80][..], &[0xff], &[0x00], &[0x3f], &endless] {
        let mut stream = DecoderStream::default();
        assert!(valid.iter().all(|byte| stream.take(&[*byte]).is_ok()));
        assert_eq!(stream.take(wrong), Err(Code::QPACK_DECODER_STREAM_ERROR));
    }
}

#[test]
fn random_sections_do_not_panic() {
    let mut random = fastrand::Rng::with_seed(9204);
    let valid = section(":method: GET|:scheme: s|:path: /|x: y|accept: */*");
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut bytes = valid.to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(2..bytes.len());
            bytes[at] = random.u8(..);
        }
        accepted += usize::from(decode(&bytes, 1000).is_ok());
        random.fill(&mut bytes[2..]);
        accepted += usize::from(trailers(&bytes, 1000).is_ok());
        let _ = (DecoderStream::default().take(&bytes), EncoderStream.take(&bytes));
    }
    assert!((1..40_000).contains(&accepted), "{accepted}");
}
