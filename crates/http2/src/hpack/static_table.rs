//! The static table (RFC 7541 Appendix A). Its first entry has the index 1.

/// The number of entries.
pub(super) const LEN: usize = 61;

/// Name and value at an index.
pub(super) fn get(index: usize) -> Option<(&'static str, &'static str)> {
    TABLE.get(index.checked_sub(1)?).copied()
}

/// The index of an entry for a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Name and value are the same.
    Line(usize),
    /// Only the name is the same.
    Name(usize),
    /// No entry has the name.
    Nothing,
}

/// The best entry for a field. `name` may have any case.
pub(super) fn find(name: &[u8], value: &[u8]) -> Found {
    let mut found = Found::Nothing;
    let (Some(&start), Some(&end)) = (BY_LENGTH.1.get(name.len()), BY_LENGTH.1.get(name.len() + 1))
    else {
        return found;
    };
    for &index in &BY_LENGTH.0[start as usize..end as usize] {
        let (known_name, known_value) = TABLE[index as usize];
        if known_name.as_bytes().eq_ignore_ascii_case(name) {
            if known_value.as_bytes() == value {
                return Found::Line(index as usize + 1);
            }
            if found == Found::Nothing {
                found = Found::Name(index as usize + 1);
            }
        }
    }
    found
}

/// One more than the length of the longest name.
const LENGTHS: usize = 28;

/// The places of the entries in [`TABLE`], in the order of the lengths of their names; and the
/// start of each length.
static BY_LENGTH: ([u8; LEN], [u8; LENGTHS + 1]) = by_length();

const fn by_length() -> ([u8; LEN], [u8; LENGTHS + 1]) {
    let (mut places, mut starts, mut count, mut length) = ([0; LEN], [0; LENGTHS + 1], 0, 0);
    while length < LENGTHS {
        starts[length] = count;
        let mut place = 0;
        while (place as usize) < LEN {
            if TABLE[place as usize].0.len() == length {
                places[count as usize] = place;
                count += 1;
            }
            place += 1;
        }
        length += 1;
    }
    starts[LENGTHS] = count;
    assert!(count as usize == LEN, "a name is longer");
    (places, starts)
}

#[rustfmt::skip]
static TABLE: [(&str, &str); LEN] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];

#[test]
fn each_entry_is_found_by_name_and_value() {
    for (index, (name, value)) in (1..).zip(TABLE) {
        let first = TABLE.iter().position(|entry| entry.0 == name).unwrap() + 1;
        assert_eq!(find(name.as_bytes(), value.as_bytes()), Found::Line(index), "{name}");
        let other = find(name.to_uppercase().as_bytes(), b"?");
        assert_eq!(other, Found::Name(first), "{name}");
        assert_eq!(get(index), Some((name, value)));
    }
    assert_eq!((get(0), get(LEN + 1)), (None, None));
    for name in [&b""[..], b"content-typo", &[b'a'; 100]] {
        assert_eq!(find(name, b""), Found::Nothing);
    }
}
