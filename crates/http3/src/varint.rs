//! Variable-length integers of QUIC (RFC 9000 §16).

use bytes::{BufMut, BytesMut};

/// The largest value, which needs 62 bits.
pub const MAX: u64 = (1 << 62) - 1;

/// The integer at the beginning of `bytes` and the number of its bytes; `None` if `bytes` ends
/// before the integer does. An encoding that is longer than necessary is valid.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let rest = rest.get(..(1 << (first >> 6)) - 1)?;
    let value =
        rest.iter().fold(u64::from(first & 0x3f), |value, byte| (value << 8) | u64::from(*byte));
    Some((value, rest.len() + 1))
}

/// Appends the shortest encoding. `value` must not exceed [`MAX`].
pub fn encode(value: u64, out: &mut BytesMut) {
    debug_assert!(value <= MAX, "{value} is not a variable-length integer");
    let length = len(value);
    let form = u64::from(length.trailing_zeros()) << (8 * length - 2);
    out.put_uint(form | value, length);
}

/// The length of the shortest encoding in bytes: 1, 2, 4 or 8.
#[must_use]
pub const fn len(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

#[test]
fn integers_have_the_shortest_encoding() {
    let bounds = [0, 63, 64, 16_383, 16_384, 0x3fff_ffff, 1 << 30, MAX];
    for (index, value) in bounds.into_iter().enumerate() {
        let length = 1 << (index / 2);
        let mut out = BytesMut::new();
        encode(value, &mut out);
        assert_eq!((len(value), out.len()), (length, length), "{value}");
        assert_eq!(decode(&out[..length - 1]), None, "{value}");
        out.put_u8(0xff);
        assert_eq!(decode(&out), Some((value, length)));
    }
    // RFC 9000 A.1.
    let longest = 0xc219_7c5e_ff14_e88c_u64.to_be_bytes();
    assert_eq!(decode(&longest), Some((151_288_809_941_952_652, 8)));
    assert_eq!(decode(&[0x9d, 0x7f, 0x3e, 0x7d]), Some((494_878_333, 4)));
    assert_eq!(decode(&[0x7b, 0xbd]), Some((15_293, 2)));
    assert_eq!(decode(&[0x40, 0x25]), Some((37, 2)), "longer than necessary");
}
