//! The Huffman code (RFC 7541 §5.2 and Appendix B) of HPACK and QPACK. It is canonical, and
//! therefore follows from the lengths of its codes: codes of one length are consecutive numbers in
//! the order of their symbols, and continue the shorter ones.

use bytes::{BufMut, BytesMut};

/// 256 is the end of a string (EOS), which must not occur in one. Its code is 30 ones.
const SYMBOLS: usize = 257;
const SHORTEST: usize = 5;
const LONGEST: usize = 30;

/// Appends the string with this encoding; `None` if the encoding is not valid.
#[must_use]
pub fn decode(bytes: &[u8], out: &mut BytesMut) -> Option<()> {
    let mut bytes = bytes.iter();
    // The next `count` bits of the string and zeros behind them.
    let (mut window, mut count) = (0_u64, 0);
    loop {
        while count <= 56 {
            let Some(byte) = bytes.next() else { break };
            window |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let code = window >> 32;
        let length = (SHORTEST..=LONGEST).find(|length| code < CODE.ends[*length])?;
        if length > count {
            // The padding is less than 8 bits of EOS.
            let is_valid = count < 8 && window.leading_ones() as usize == count;
            return is_valid.then_some(());
        }
        let index = usize::try_from((code - CODE.ends[length - 1]) >> (32 - length)).ok()?;
        let symbol = CODE.sorted[CODE.counts[length - 1] + index];
        out.put_u8(u8::try_from(symbol).ok()?);
        window <<= length;
        count -= length;
    }
}

struct Code {
    /// The symbols in the order of their codes.
    sorted: [u16; SYMBOLS],
    /// The number of symbols with a code of up to each length.
    counts: [usize; LONGEST + 1],
    /// The end of the codes of up to each length, with further bits up to 32.
    ends: [u64; LONGEST + 1],
}

static CODE: Code = code();

const fn code() -> Code {
    let (mut sorted, mut counts, mut ends) = ([0; SYMBOLS], [0; LONGEST + 1], [0; LONGEST + 1]);
    let (mut length, mut count, mut end) = (1, 0, 0);
    while length <= LONGEST {
        let mut symbol = 0;
        while (symbol as usize) < SYMBOLS {
            if LENGTHS[symbol as usize] as usize == length {
                sorted[count] = symbol;
                count += 1;
                end += 1 << (32 - length);
            }
            symbol += 1;
        }
        (counts[length], ends[length]) = (count, end);
        length += 1;
    }
    assert!(count == SYMBOLS && end == 1 << 32, "the code is not complete");
    Code { sorted, counts, ends }
}

/// The length of each symbol's code in bits.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23,
    23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22,
    22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26,
    27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
    25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The code of a symbol: the part of all codes that the symbols before it use.
    fn code(symbol: u16) -> u32 {
        let length = |symbol: u16| LENGTHS[usize::from(symbol)];
        let is_before = |other: &u16| (length(*other), *other) < (length(symbol), symbol);
        let used: u32 = (0..=256).filter(is_before).map(|other| 1 << (30 - length(other))).sum();
        used >> (30 - length(symbol))
    }

    /// Encodes symbols, then padding bits of ones up to a full byte.
    fn encode(symbols: impl IntoIterator<Item = u16>) -> Vec<u8> {
        let bits =
            |symbol| (0..LENGTHS[usize::from(symbol)]).rev().map(move |bit| code(symbol) >> bit);
        let mut bits: Vec<_> = symbols.into_iter().flat_map(bits).collect();
        bits.resize(bits.len().next_multiple_of(8), 1);
        let byte =
            |bits: &[u32]| bits.iter().fold(0, |byte, bit| (byte << 1) | bit.to_le_bytes()[0] & 1);
        bits.chunks(8).map(byte).collect()
    }

    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut out = BytesMut::new();
        decode(bytes, &mut out).map(|()| out.to_vec())
    }

    #[test]
    fn examples_of_rfc_7541() {
        // Appendix B.
        let symbols = [48, 37, 122, 88, 63, 124, 35, 126, 125, 123, 92, 199, 255, 254, 22, 256];
        #[rustfmt::skip]
        let codes = [
            0x0, 0x15, 0x7b, 0xfc, 0x3fc, 0x7fc, 0xffa, 0x1ffd, 0x3ffd, 0x7ffe, 0x7_fff0,
            0x1ff_ffec, 0x3ff_ffee, 0x7ff_fff0, 0x3fff_fffe, 0x3fff_ffff,
        ];
        assert_eq!(symbols.map(code), codes);
        // Appendix C.4 and C.6.
        for (bytes, text) in [
            (&0xf1e3_c2e5_f23a_6ba0_ab90_f4ff_u128.to_be_bytes()[4..], "www.example.com"),
            (&0xa8eb_1064_9cbf_u64.to_be_bytes()[2..], "no-cache"),
            (&0x25a8_49e9_5ba9_7d7f_u64.to_be_bytes(), "custom-key"),
            (&0x25_a849_e95b_b8e8_b4bf_u128.to_be_bytes()[7..], "custom-value"),
            (&[0x64, 0x02], "302"),
        ] {
            assert_eq!(decoded(bytes).as_deref(), Some(text.as_bytes()));
            assert_eq!(encode(text.bytes().map(u16::from)), bytes);
        }
    }

    #[test]
    fn each_symbol_is_decoded_at_each_bit() {
        for (symbol, zeros) in (0..=255).flat_map(|byte| (0..8).map(move |zeros| (byte, zeros))) {
            let text = [&b"0000000"[..zeros], &[symbol, b'a']].concat();
            assert_eq!(decoded(&encode(text.iter().copied().map(u16::from))), Some(text));
        }
    }

    #[test]
    fn wrong_padding_and_eos_are_refused() {
        // `0` has the code 00000; `X` has 8 bits.
        for (bytes, text) in [(&[][..], ""), (&[0b0000_0111], "0"), (&[0xfc], "X")] {
            assert_eq!(decoded(bytes).as_deref(), Some(text.as_bytes()));
            assert_eq!(decoded(&[bytes, &[0xff]].concat()), None, "more than 7 bits");
        }
        assert!((0..0b111).all(|padding| decoded(&[padding]).is_none()));
        assert_eq!(decoded(&encode([97, 97, 256])), None);
        assert_eq!(decoded(&encode([97, 256, 97])), None);
    }
}
