//! Name-value pairs (§3.4).

use crate::Error;

/// Lengths below this take one byte, others four bytes with the top bit set.
const ONE_BYTE_LIMIT: u8 = 0x80;

/// Appends one pair to a PARAMS stream. Lengths must stay below 2^31 bytes, which all limits of
/// this server ensure.
pub fn encode(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    match (short(name.len()), short(value.len())) {
        (Some(name), Some(value)) => out.extend_from_slice(&[name, value]),
        _ => {
            encode_len(out, name.len());
            encode_len(out, value.len());
        }
    }
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

fn encode_len(out: &mut Vec<u8>, len: usize) {
    if let Some(len) = short(len) {
        out.push(len);
    } else {
        let len = u32::try_from(len).unwrap_or(u32::MAX) | 0x8000_0000;
        out.extend_from_slice(&len.to_be_bytes());
    }
}

/// The length as one byte, if it fits.
fn short(len: usize) -> Option<u8> {
    u8::try_from(len).ok().filter(|&len| len < ONE_BYTE_LIMIT)
}

/// The pairs of a complete PARAMS stream. Ends after the first error.
pub fn decode(stream: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), Error>> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let pair = decode_one(&mut rest);
        if pair.is_none() {
            rest = &[];
        }
        Some(pair.ok_or(Error::TruncatedParam))
    })
}

fn decode_one<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let name_len = decode_len(rest)?;
    let value_len = decode_len(rest)?;
    let name = take(rest, name_len)?;
    let value = take(rest, value_len)?;
    Some((name, value))
}

fn decode_len(rest: &mut &[u8]) -> Option<usize> {
    let first = *rest.first()?;
    if first & 0x80 == 0 {
        *rest = &rest[1..];
        return Some(usize::from(first));
    }
    let (raw, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    usize::try_from(u32::from_be_bytes(*raw) & 0x7fff_ffff).ok()
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_pairs_survive_the_round_trip() {
        let long = vec![b'x'; 70_000];
        let mut stream = Vec::new();
        encode(&mut stream, b"A", b"");
        encode(&mut stream, b"NAME", &long);
        let pairs: Result<Vec<_>, _> = decode(&stream).collect();
        assert_eq!(pairs.unwrap(), [(&b"A"[..], &b""[..]), (&b"NAME"[..], &long[..])]);
    }

    #[test]
    fn every_truncation_is_an_error_and_ends_the_walk() {
        let mut stream = Vec::new();
        encode(&mut stream, b"NAME", &[b'v'; 200]);
        for cut in 1..stream.len() {
            let pairs: Vec<_> = decode(&stream[..cut]).collect();
            assert_eq!(pairs, [Err(Error::TruncatedParam)], "cut at {cut}");
        }
    }
}
