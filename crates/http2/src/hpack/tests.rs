use bytes::BytesMut;
use http::StatusCode;

use super::*;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
    let mut all = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    decoder.decode(block, |name, value| all.push((text(&name), text(&value))))?;
    Ok(all)
}

fn lines(decoder: &mut Decoder, block: &[u8]) -> String {
    let lines = decode(decoder, block).unwrap();
    lines.iter().map(|(name, value)| format!("{name}={value};")).collect()
}

/// RFC 7541 C.3 and C.4: the same requests, plain and by the Huffman code.
#[test]
fn requests_of_one_connection() {
    let plain: [&[u8]; 3] = [
        b"\x82\x86\x84\x41\x0fwww.example.com",
        b"\x82\x86\x84\xbe\x58\x08no-cache",
        b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
    ];
    let huffman: [&[u8]; 3] = [
        b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
        b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
        b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        let [first, second, third] = blocks.map(|block| lines(&mut decoder, block));
        let start = ":method=GET;:scheme=http;:path=/;:authority=www.example.com;";
        assert_eq!(first, start);
        assert_eq!(second, format!("{start}cache-control=no-cache;"));
        let third_start = ":method=GET;:scheme=https;:path=/index.html;";
        let third_end = ":authority=www.example.com;custom-key=custom-value;";
        assert_eq!(third, format!("{third_start}{third_end}"));
    }
}

#[test]
fn the_table_keeps_to_its_size() {
    let mut decoder = Decoder::default();
    // Entries of 1 + 1 + 32 bytes.
    for letter in b'a'..=b'z' {
        assert!(decode(&mut decoder, &[0x40, 1, letter, 1, b'1']).is_ok());
    }
    assert_eq!(lines(&mut decoder, &[0xbe, 0x80 | (62 + 25)]), "z=1;a=1;");
    // 70 bytes: two entries.
    assert_eq!(lines(&mut decoder, &[0x3f, 70 - 31, 0xbf]), "y=1;");
    assert_eq!(decode(&mut decoder, &[0xc0]), Err(HpackError));
    // An entry that is larger than the table.
    let large = [&[0x40, 1, b'x', 40][..], &[b'v'; 40]].concat();
    assert!(decode(&mut decoder, &large).is_ok());
    assert_eq!(decode(&mut decoder, &[0xbe]), Err(HpackError));
    // Twice at the start, and up to the limit.
    assert_eq!(lines(&mut decoder, &[0x20, 0x3f, 0xe1, 0x1f, 0x82]), ":method=GET;");
    assert_eq!(decode(&mut decoder, &[0x3f, 0xe2, 0x1f]), Err(HpackError));
    assert_eq!(decode(&mut decoder, &[0x82, 0x20]), Err(HpackError));
}

/// RFC 7541 §4.1: an entry counts with 32 bytes more than its name and value.
#[test]
fn the_largest_entry_fills_the_table() {
    let entry = |value: usize| {
        let mut block = BytesMut::from(&b"\x40\x01x"[..]);
        sendoff_field_section::integer::encode(0, 7, value, &mut block);
        block.extend_from_slice(&vec![b'v'; value]);
        block
    };
    for (value, is_kept) in [(4096 - 32 - 1, true), (4096 - 32, false)] {
        let mut decoder = Decoder::default();
        assert!(decode(&mut decoder, &entry(value)).is_ok());
        assert_eq!(decode(&mut decoder, &[0xbe]).is_ok(), is_kept, "{value}");
    }
}

#[test]
fn wrong_blocks_are_refused() {
    for block in [
        &[0x80][..],
        &[0xbe],
        &[0xff],
        &[0x40],
        &[0x40, 1],
        &[0x40, 1, b'a', 2, b'b'],
        &[0x00, 1, b'a'],
        &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff],
        // Huffman with too much padding.
        &[0x00, 0x81, 0x1f, 0x82, 0x1f, 0xff],
    ] {
        assert_eq!(decode(&mut Decoder::default(), block), Err(HpackError), "{block:x?}");
    }
}

#[test]
fn responses_are_decoded_as_they_were_encoded() {
    let fields =
        [("Content-Type", "text/html"), ("X-Own", "1"), ("Vary", ""), ("content-length", "5")];
    for status in [StatusCode::OK, StatusCode::IM_A_TEAPOT] {
        let mut block = BytesMut::from(&[NO_TABLE][..]);
        let bytes = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        encode(status, bytes, &mut block);
        let expected = "content-type=text/html;x-own=1;vary=;content-length=5;";
        let expected = format!(":status={};{expected}", status.as_str());
        assert_eq!(lines(&mut Decoder::default(), &block), expected);
    }
}
