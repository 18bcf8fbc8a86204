//! A database of countries in MaxMind's format (version 2.0 of its specification).

use std::net::IpAddr;

/// The kinds of values in the data section, as numbers of their control bytes.
const STRING: u8 = 2;
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const MAP: u8 = 7;
/// These two are extended: the number behind the control byte, minus 7.
const UINT64: u8 = 9 - 7;
const ARRAY: u8 = 11 - 7;

/// Zero bytes between the tree and the data.
const GAP: usize = 16;

/// One half of a node of the tree.
#[derive(Clone, Copy)]
enum Half {
    Nothing,
    Node(usize),
    Data(usize),
}

/// A database with these networks and the codes of their countries, of this type
/// (`GeoLite2-Country`). IPv4 addresses lie in `::/96`.
///
/// # Panics
/// If a network is not valid, or lies in another one.
#[must_use]
pub fn countries(kind: &str, networks: &[(&str, &str)]) -> Vec<u8> {
    let (mut nodes, mut data) = (vec![[Half::Nothing; 2]], Vec::new());
    for (network, code) in networks {
        let (address, prefix) = network.split_once('/').unwrap();
        let (bits, before) = match address.parse().unwrap() {
            IpAddr::V4(address) => (u128::from(address.to_bits()), 96),
            IpAddr::V6(address) => (address.to_bits(), 0),
        };
        let last = before + prefix.parse::<usize>().unwrap() - 1;
        let side = |at: usize| usize::from(bits >> (127 - at) & 1 == 1);
        let mut node = 0;
        for at in 0..last {
            node = match nodes[node][side(at)] {
                Half::Node(next) => next,
                Half::Nothing => {
                    nodes.push([Half::Nothing; 2]);
                    let new = nodes.len() - 1;
                    nodes[node][side(at)] = Half::Node(new);
                    new
                }
                Half::Data(_) => panic!("{network} lies in another network"),
            };
        }
        nodes[node][side(last)] = Half::Data(data.len());
        data.extend(map(&[("country", map(&[("iso_code", text(code))]))]));
    }
    let mut file = Vec::new();
    for half in nodes.iter().flatten() {
        let record = match half {
            Half::Nothing => nodes.len(),
            Half::Node(node) => *node,
            Half::Data(at) => nodes.len() + GAP + at,
        };
        file.extend(&u32::try_from(record).unwrap().to_be_bytes()[1..]);
    }
    file.extend([0; GAP]);
    file.extend(data);
    file.extend(b"\xab\xcd\xefMaxMind.com");
    file.extend(map(&[
        ("binary_format_major_version", number(UINT16, 2)),
        ("binary_format_minor_version", number(UINT16, 0)),
        ("build_epoch", [&[8, UINT64][..], &1_790_000_000_u64.to_be_bytes()].concat()),
        ("database_type", text(kind)),
        ("description", map(&[("en", text("for tests"))])),
        ("ip_version", number(UINT16, 6)),
        ("languages", vec![0, ARRAY]),
        ("node_count", number(UINT32, u32::try_from(nodes.len()).unwrap())),
        ("record_size", number(UINT16, 24)),
    ]));
    file
}

fn control(kind: u8, size: usize) -> u8 {
    assert!(size < 29, "longer values have another form");
    kind << 5 | u8::try_from(size).unwrap()
}

fn text(text: &str) -> Vec<u8> {
    [&[control(STRING, text.len())], text.as_bytes()].concat()
}

fn number(kind: u8, number: u32) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let bytes = if kind == UINT16 { &bytes[2..] } else { &bytes[..] };
    [&[control(kind, bytes.len())], bytes].concat()
}

fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries_of = entries.iter().flat_map(|(name, value)| [text(name), value.clone()]);
    std::iter::once(vec![control(MAP, entries.len())]).chain(entries_of).flatten().collect()
}
