//! The content codings that a client accepts (RFC 9110 §12.5.3).

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, Version};
use sendoff_config::Coding;

/// A weight in thousandths; 0: not acceptable.
type Weight = u16;

/// The codings that a client accepts, with their weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Accepted {
    zstd: Weight,
    brotli: Weight,
    gzip: Weight,
    /// The weight of a response without a coding; 0 if the client does not mention it, because it
    /// accepts such a response anyway.
    identity: Weight,
}

impl Accepted {
    /// The codings in the fields of a request. A client that names none, or speaks HTTP/1.0, gets
    /// no coding: caches between such a client and this server may not know `Vary`.
    pub(super) fn of(headers: &HeaderMap, version: Version) -> Self {
        let mut accepted = Self::default();
        if version < Version::HTTP_11 {
            return accepted;
        }
        let [mut zstd, mut brotli, mut gzip, mut identity, mut other] = [None; 5];
        let values = headers.get_all(ACCEPT_ENCODING);
        let members = values.iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
        for (name, weight) in members.filter_map(member) {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let slot = match () {
                () if is("zstd") => &mut zstd,
                () if is("br") => &mut brotli,
                () if is("gzip") || is("x-gzip") => &mut gzip,
                () if is("identity") => &mut identity,
                () if is("*") => &mut other,
                () => continue,
            };
            // The best weight of a repeated coding counts.
            *slot = (*slot).max(Some(weight));
        }
        let weight = |own: Option<Weight>| own.or(other).unwrap_or(0);
        accepted.zstd = weight(zstd);
        accepted.brotli = weight(brotli);
        accepted.gzip = weight(gzip);
        accepted.identity = identity.unwrap_or(0);
        accepted
    }

    /// A client that accepts everything, as browsers do.
    pub(super) fn everything() -> Self {
        Self { zstd: 1000, brotli: 1000, gzip: 1000, identity: 0 }
    }

    /// The codings of `offered` that the client accepts, by descending weight; codings of equal
    /// weight keep their order. A coding with a lower weight than `identity` is left out.
    pub(super) fn choices(self, offered: &[Coding]) -> Vec<Coding> {
        let accepts = |coding: &Coding| {
            let weight = self.weight(*coding);
            weight > 0 && weight >= self.identity
        };
        let mut choices: Vec<Coding> = offered.iter().copied().filter(accepts).collect();
        choices.sort_by_key(|coding| std::cmp::Reverse(self.weight(*coding)));
        choices
    }

    /// True if the client accepts this coding at all.
    pub(super) fn takes(self, coding: Coding) -> bool {
        self.weight(coding) > 0
    }

    fn weight(self, coding: Coding) -> Weight {
        match coding {
            Coding::Zstd => self.zstd,
            Coding::Brotli => self.brotli,
            Coding::Gzip => self.gzip,
        }
    }
}

/// A coding and its weight. `None` for a malformed member, which is ignored.
fn member(member: &[u8]) -> Option<(&[u8], Weight)> {
    let mut parts = member.split(|&b| b == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let mut weight = 1000;
    for part in parts {
        if let [b'q' | b'Q', b'=', value @ ..] = part {
            weight = thousandths(value)?;
        }
    }
    Some((name, weight))
}

/// `0.5` as 500: a digit, and up to three behind a point (§12.4.2).
fn thousandths(value: &[u8]) -> Option<Weight> {
    let (whole, fraction) = match value {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] => (whole, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction.iter().chain([&b'0'; 3]).take(3);
    let fraction = digits.fold(0, |sum, digit| 10 * sum + Weight::from(digit - b'0'));
    match (whole, fraction) {
        (b'0', fraction) => Some(fraction),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, http::HeaderValue::from_str(value).unwrap());
        let accepted = Accepted::of(&headers, Version::HTTP_11);
        let names = accepted.choices(&Coding::ALL).into_iter().map(Coding::name);
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn weights_decide_and_the_offer_breaks_ties() {
        for (value, expected) in [
            ("gzip, deflate, br, zstd", "zstd br gzip"),
            ("gzip", "gzip"),
            ("X-GZIP", "gzip"),
            ("gzip;q=1.0, br;q=0.999, zstd;q=0", "gzip br"),
            ("br ; q=0.2 , GZIP;Q=0.3", "gzip br"),
            ("*", "zstd br gzip"),
            ("*;q=0.5, zstd;q=0", "br gzip"),
            ("*;q=0", ""),
            ("identity;q=0", ""),
            ("identity;q=0, *", "zstd br gzip"),
            ("identity, gzip;q=0.5", ""),
            ("identity;q=0.5, gzip;q=0.5", "gzip"),
            ("", ""),
            ("deflate", ""),
            ("gzip;q=0, gzip;q=0.4", "gzip"),
        ] {
            assert_eq!(choices(value), expected, "{value}");
        }
    }

    #[test]
    fn malformed_members_are_ignored() {
        for value in [
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=",
            "gzip;q=-1",
            "gzip;q=1e0",
            ";q=1",
            ",,,",
            "gzipp",
            "g zip",
            "gzip;q=0.0x",
            "=;,;=",
        ] {
            assert_eq!(choices(value), "", "{value}");
        }
        assert_eq!(choices("gzip;q=x, br"), "br");
        let many = "gzip;q=0.001,".repeat(2000);
        assert_eq!(choices(&many), "gzip");
    }

    #[test]
    fn without_the_field_and_in_http_10_there_is_no_coding() {
        let mut headers = HeaderMap::new();
        assert_eq!(Accepted::of(&headers, Version::HTTP_11), Accepted::default());
        headers.insert(ACCEPT_ENCODING, http::HeaderValue::from_static("gzip"));
        assert_eq!(Accepted::of(&headers, Version::HTTP_10), Accepted::default());
    }
}
