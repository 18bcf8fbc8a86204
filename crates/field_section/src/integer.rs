//! Prefixed integers (RFC 7541 §5.1, RFC 9204 §4.1.1).

use bytes::{BufMut, BytesMut};

/// The integer in the low `prefix` bits of the first byte and in the bytes behind it, and the
/// number of these bytes. `None` if `bytes` ends before the integer does, or for a value above
/// `u32::MAX`: no index and no length in a field section is larger.
#[must_use]
pub fn decode(bytes: &[u8], prefix: u32) -> Option<(u32, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let limit = (1_u32 << prefix) - 1;
    let low = u32::from(first) & limit;
    if low < limit {
        return Some((low, 1));
    }
    let mut value = u64::from(limit);
    // 5 bytes are enough for `u32::MAX`.
    for (index, byte) in rest.iter().take(5).enumerate() {
        value += u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, index + 2));
        }
    }
    None
}

/// Appends an integer whose first byte has `flags` above its low `prefix` bits.
pub fn encode(flags: u8, prefix: u32, value: usize, out: &mut BytesMut) {
    let limit = (1 << prefix) - 1;
    if value < limit {
        out.put_u8(flags | low_byte(value));
        return;
    }
    out.put_u8(flags | low_byte(limit));
    let mut rest = value - limit;
    while rest > 0x7f {
        out.put_u8(0x80 | low_byte(rest));
        rest >>= 7;
    }
    out.put_u8(low_byte(rest));
}

const fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

#[test]
fn integers_are_decoded_up_to_their_limit() {
    for (prefix, flags) in [(3, 0x28), (4, 0x50), (6, 0xc0), (7, 0x80), (8, 0)] {
        for value in [0, 6, 7, 8, 30, 62, 126, 127, 254, 255, 256, 383, 1 << 20, u32::MAX] {
            let mut out = BytesMut::new();
            encode(flags, prefix, value as usize, &mut out);
            assert_eq!(decode(&out, prefix), Some((value, out.len())), "{value}");
            assert_eq!(decode(&out[..out.len() - 1], prefix), None, "{value}");
            assert_eq!(out[0] & flags, flags);
        }
    }
    // RFC 7541 C.1.2.
    assert_eq!(decode(&[0xff, 0x9a, 0x0a], 5), Some((1337, 3)));
    // u32::MAX + 1, and 6 continuation bytes.
    assert_eq!(decode(&[0xff, 0x81, 0xfe, 0xff, 0xff, 0x0f], 8), None);
    assert_eq!(decode(&[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 8), None);
}
