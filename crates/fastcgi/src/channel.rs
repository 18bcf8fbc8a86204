//! The channel of `docs/handover.md` §8: processes of a FastCGI application that Sendoff did not
//! start open links to the front.

use std::fmt;

/// The request parameter in which the front announces its channel.
pub const CHANNEL_PARAM: &[u8] = b"SENDOFF_CHANNEL";

/// The request parameter by which the front identifies itself where `SERVER_SOFTWARE` has another
/// value. Clients cannot set it: their fields become `HTTP_*`.
pub const FRONT_PARAM: &[u8] = b"SENDOFF_FRONT";

/// The beginning of `SERVER_SOFTWARE` unless the operator has changed it.
pub const SOFTWARE_START: &[u8] = b"sendoff/";

/// The response field by which an application announces that it supports the channel. Its value is
/// `1`, or the claim of the request if the body is framed ([`crate::frames`]). In lower case.
pub const CHANNEL_FIELD: &[u8] = b"x-sendoff";

/// True for a field of a response head that is addressed to the front, which removes it.
#[must_use]
pub fn is_for_front(name: &[u8]) -> bool {
    let is = |own: &[u8]| name.eq_ignore_ascii_case(own);
    let begins =
        |own: &[u8]| name.get(..own.len()).is_some_and(|start| start.eq_ignore_ascii_case(own));
    [&b"x-sendfile"[..], b"x-sendfile2", b"x-litespeed-location", CHANNEL_FIELD].into_iter().any(is)
        || begins(b"x-accel-")
        || begins(b"x-reproxy-")
}

/// The front's answer to a registration that it accepts.
pub const REGISTERED: u8 = b'R';

/// 128 random bits, so that no other process can guess them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Secret(pub [u8; 16]);

impl fmt::Debug for Secret {
    /// Hides the value, which must not get into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// As 32 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> [u8; 32] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 32];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        hex
    }

    /// Reads 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(hex: &[u8]) -> Option<Self> {
        let hex: &[u8; 32] = hex.try_into().ok()?;
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut raw = [0; 16];
        for (byte, pair) in raw.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(raw))
    }
}

/// The value of [`CHANNEL_PARAM`]: `NAME TOKEN LINKS LINK CLAIM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The abstract UNIX socket (`SOCK_SEQPACKET`) that takes registrations, without its leading
    /// NUL.
    pub name: String,
    /// The token that a registration must contain.
    pub token: Secret,
    /// The number of links that a process opens: one to each event loop.
    pub links: u8,
    /// The number of the link on which this request may be answered.
    pub link: u8,
    /// The name of this request on that link, used once.
    pub claim: Secret,
}

impl Announcement {
    /// The parameter's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let Self { name, token, links, link, claim } = self;
        let mut value = Vec::with_capacity(name.len() + 80);
        value.extend_from_slice(name.as_bytes());
        value.push(b' ');
        value.extend_from_slice(&token.to_hex());
        value.extend_from_slice(format!(" {links} {link} ").as_bytes());
        value.extend_from_slice(&claim.to_hex());
        value
    }

    /// Replaces the claim in a value that [`Self::encode`] has returned.
    pub fn replace_claim(value: &mut [u8], claim: Secret) {
        if let Some(last) = value.last_chunk_mut() {
            *last = claim.to_hex();
        }
    }

    /// Reads the parameter's value; `None` if it has another format.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let mut words = value.split(|&b| b == b' ');
        let name = std::str::from_utf8(words.next()?).ok().filter(|name| !name.is_empty())?;
        let token = Secret::from_hex(words.next()?)?;
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u8>().ok();
        let (links, link) = (number()?, number()?);
        let claim = Secret::from_hex(words.next()?)?;
        let fits = words.next().is_none() && link < links;
        fits.then(|| Self { name: name.to_owned(), token, links, link, claim })
    }
}

/// Bytes in a registration.
pub const REGISTRATION_LEN: usize = 24;

/// The message that a process sends to the announced socket, with the descriptors of `links` links
/// and of the guard socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// The token from the announcement.
    pub token: Secret,
    /// The id of the process.
    pub pid: u32,
    /// The number of links.
    pub links: u32,
}

impl Registration {
    /// The message as it goes over the wire.
    #[must_use]
    pub fn encode(self) -> [u8; REGISTRATION_LEN] {
        let mut raw = [0; REGISTRATION_LEN];
        raw[..16].copy_from_slice(&self.token.0);
        raw[16..20].copy_from_slice(&self.pid.to_be_bytes());
        raw[20..].copy_from_slice(&self.links.to_be_bytes());
        raw
    }

    /// Reads a message; `None` if it has another length.
    #[must_use]
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; REGISTRATION_LEN] = raw.try_into().ok()?;
        let (token, numbers) = raw.split_first_chunk::<16>()?;
        let (pid, links) = numbers.split_first_chunk::<4>()?;
        Some(Self {
            token: Secret(*token),
            pid: u32::from_be_bytes(*pid),
            links: u32::from_be_bytes(links.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_survive_the_round_trip_and_others_are_not_understood() {
        let announcement = Announcement {
            name: "sendoff-1".to_owned(),
            token: Secret([0xa7; 16]),
            links: 3,
            link: 2,
            claim: Secret(std::array::from_fn(|i| u8::try_from(i * 17).unwrap_or(255))),
        };
        let mut value = Announcement { claim: Secret([0; 16]), ..announcement.clone() }.encode();
        Announcement::replace_claim(&mut value, announcement.claim);
        assert_eq!(value, announcement.encode());
        assert_eq!(Announcement::decode(&value), Some(announcement.clone()));
        let link_outside = Announcement { link: 3, ..announcement }.encode();
        for other in [&value[..value.len() - 1], &[&value[..], b" x"].concat(), b"", &link_outside]
        {
            assert_eq!(Announcement::decode(other), None);
        }
    }

    #[test]
    fn registrations_survive_the_round_trip() {
        let registration = Registration { token: Secret([9; 16]), pid: 70_000, links: 2 };
        let raw = registration.encode();
        assert_eq!(Registration::decode(&raw), Some(registration));
        assert_eq!(Registration::decode(&raw[1..]), None);
    }

    #[test]
    fn secrets_do_not_get_into_logs() {
        assert_eq!(format!("{:?}", Secret([7; 16])), "Secret");
    }
}
