//! Hashes of passwords in files of lines `NAME:HASH`: the kinds that the server can check, and the
//! reasons why it refuses others.
//!
//! `sendoff check` and the server both use this module, so they give the same answer.

use std::fmt;

/// The highest cost of bcrypt, which has 2^cost rounds; cost 14 takes about a second.
const MAX_COST: u32 = 14;

/// Rounds of SHA-256 and SHA-512 crypt: `MAX_ROUNDS` take about half a second.
const MIN_ROUNDS: u32 = 1000;
const USUAL_ROUNDS: u32 = 5000;
const MAX_ROUNDS: u32 = 500_000;

/// A hash that the server can check: its kind, and the cost of a check. Equal values take the same
/// time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PasswordHash {
    /// `{SHA}`, without a salt.
    Sha1,
    /// `$apr1$`, Apache's variant of MD5 crypt.
    Apr1,
    /// `$5$`
    Sha256Crypt {
        /// Rounds of the digest.
        rounds: u32,
    },
    /// `$6$`
    Sha512Crypt {
        /// Rounds of the digest.
        rounds: u32,
    },
    /// `$2y$` and its relatives.
    Bcrypt {
        /// The binary logarithm of the number of rounds.
        cost: u32,
    },
}

/// The reason why the server cannot check a hash. No password matches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnusableHash {
    /// `$1$`
    Md5Crypt,
    /// `{SSHA}`
    SaltedSha1,
    /// `{PLAIN}`
    Plain,
    /// `$y$`, `$7$`, `$gy$`
    Yescrypt,
    /// `$argon2`
    Argon2,
    /// 13 characters: the traditional DES hash of crypt(3).
    DesCrypt,
    /// A check would take seconds, and other clients would wait meanwhile.
    Costly,
    /// A known mark, followed by text that is not a hash of this kind.
    Damaged,
    /// No known mark; perhaps the password in plain text.
    Unknown,
}

impl fmt::Display for UnusableHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Md5Crypt => "MD5 crypt ($1$) is not supported",
            Self::SaltedSha1 => "salted SHA-1 ({SSHA}) is not supported",
            Self::Plain => "a password in plain text ({PLAIN}) is not supported",
            Self::Yescrypt => "yescrypt ($y$) and scrypt ($7$) are not supported",
            Self::Argon2 => "Argon2 is not supported",
            Self::DesCrypt => "DES crypt is not supported",
            Self::Costly => {
                "the hash would take seconds for each password (the limits: bcrypt's cost 14, 500000 rounds)"
            }
            Self::Damaged => "the hash is incomplete, or has something behind it",
            Self::Unknown => "this is no hash of a kind that is supported",
        })
    }
}

impl UnusableHash {
    /// Advice for the operator.
    #[must_use]
    pub fn help(self) -> &'static str {
        "a hash cannot be converted: set the password anew by `htpasswd -B FILE NAME`; supported are bcrypt (-B), SHA-512 and SHA-256 crypt (-5, -2), apr1 (-m), sha (-s)"
    }
}

impl PasswordHash {
    /// The kind of a hash.
    ///
    /// # Errors
    /// No password can match it.
    pub fn of(hash: &str) -> Result<Self, UnusableHash> {
        const OTHERS: [(&str, UnusableHash); 7] = [
            ("$1$", UnusableHash::Md5Crypt),
            ("{SSHA}", UnusableHash::SaltedSha1),
            ("{PLAIN}", UnusableHash::Plain),
            ("$y$", UnusableHash::Yescrypt),
            ("$gy$", UnusableHash::Yescrypt),
            ("$7$", UnusableHash::Yescrypt),
            ("$argon2", UnusableHash::Argon2),
        ];
        if let Some(digest) = hash.strip_prefix("{SHA}") {
            let is_whole = digest.len() == 28 && digest.ends_with('=') && digest.is_ascii();
            return is_whole.then_some(Self::Sha1).ok_or(UnusableHash::Damaged);
        }
        if let Some(rest) = hash.strip_prefix("$apr1$") {
            let digest = rest.split_once('$').map(|(_, digest)| digest);
            let is_whole = digest.is_some_and(|digest| is_encoded(digest, 22));
            return is_whole.then_some(Self::Apr1).ok_or(UnusableHash::Damaged);
        }
        if let Some(rest) = hash.strip_prefix("$5$") {
            return Ok(Self::Sha256Crypt { rounds: rounds(rest, 43)? });
        }
        if let Some(rest) = hash.strip_prefix("$6$") {
            return Ok(Self::Sha512Crypt { rounds: rounds(rest, 86)? });
        }
        let marks = ["$2y$", "$2b$", "$2a$", "$2x$"];
        if let Some(rest) = marks.iter().find_map(|mark| hash.strip_prefix(mark)) {
            return bcrypt(rest);
        }
        if let Some((_, why)) = OTHERS.iter().find(|(mark, _)| hash.starts_with(mark)) {
            return Err(*why);
        }
        Err(if is_encoded(hash, 13) { UnusableHash::DesCrypt } else { UnusableHash::Unknown })
    }
}

/// The rounds of SHA-256 or SHA-512 crypt: `[rounds=N$]SALT$DIGEST`.
fn rounds(rest: &str, digest: usize) -> Result<u32, UnusableHash> {
    let (rounds, rest) = match rest.strip_prefix("rounds=").map(|rest| rest.split_once('$')) {
        None => (USUAL_ROUNDS, rest),
        Some(Some((number, rest))) => (number.parse().map_err(|_| UnusableHash::Damaged)?, rest),
        Some(None) => return Err(UnusableHash::Damaged),
    };
    let is_whole = rest.split_once('$').is_some_and(|(_, text)| is_encoded(text, digest));
    match rounds {
        _ if !is_whole => Err(UnusableHash::Damaged),
        MIN_ROUNDS..=MAX_ROUNDS => Ok(rounds),
        0..MIN_ROUNDS => Err(UnusableHash::Damaged),
        _ => Err(UnusableHash::Costly),
    }
}

fn bcrypt(rest: &str) -> Result<PasswordHash, UnusableHash> {
    let whole = rest.split_once('$').filter(|(cost, text)| cost.len() == 2 && is_encoded(text, 53));
    let (cost, _) = whole.ok_or(UnusableHash::Damaged)?;
    match cost.parse().map_err(|_| UnusableHash::Damaged)? {
        cost @ 4..=MAX_COST => Ok(PasswordHash::Bcrypt { cost }),
        0..4 => Err(UnusableHash::Damaged),
        _ => Err(UnusableHash::Costly),
    }
}

/// True for a text of this length with only the 64 digits of crypt(3).
fn is_encoded(text: &str, length: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/');
    text.len() == length && text.bytes().all(is_digit)
}

/// The hashes in a file of lines `NAME:HASH` that no password matches, each kind once: the number
/// of its first line, counted from 1, and the number of its lines.
pub fn unusable_hashes(file: &[u8]) -> Vec<(UnusableHash, usize, usize)> {
    let mut found: Vec<(UnusableHash, usize, usize)> = Vec::new();
    for (number, line) in password_lines(file) {
        let PasswordLine::User { hash, .. } = line else { continue };
        let Err(why) = PasswordHash::of(hash) else { continue };
        match found.iter_mut().find(|(known, ..)| *known == why) {
            Some((_, _, lines)) => *lines += 1,
            None => found.push((why, number, 1)),
        }
    }
    found
}

/// A line of a file with users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordLine<'f> {
    /// `NAME:HASH`. Text behind a second colon has no meaning.
    User {
        /// The name.
        name: &'f [u8],
        /// The hash; empty if it is not UTF-8, which no valid hash is.
        hash: &'f str,
    },
    /// No colon.
    NoUser,
}

/// The lines of a file with users, each with its number from 1. Empty lines and comments are left
/// out.
pub fn password_lines(file: &[u8]) -> impl Iterator<Item = (usize, PasswordLine<'_>)> {
    let lines = file.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).zip(1..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(b"#"));
    lines.map(|(line, number)| {
        let mut parts = line.split(|&byte| byte == b':');
        let read = match (parts.next(), parts.next()) {
            (Some(name), Some(hash)) => {
                PasswordLine::User { name, hash: str::from_utf8(hash).unwrap_or_default() }
            }
            _ => PasswordLine::NoUser,
        };
        (number, read)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_told_from_the_others() {
        let b53 = "zG6GKXi4lRaCysT0o/VgZOkfK.r.fpi96s..rGbo2uC.jAuaVdt3u";
        let d43 = "GaquuSxQl7QEt1FlYUrReIiqah0DzC50QJNSQipemv9";
        for (hash, expected) in [
            (format!("$2y$05${b53}"), Ok(PasswordHash::Bcrypt { cost: 5 })),
            (format!("$2a$14${b53}"), Ok(PasswordHash::Bcrypt { cost: 14 })),
            (format!("$2y$15${b53}"), Err(UnusableHash::Costly)),
            (format!("$2y$05${b53}x"), Err(UnusableHash::Damaged)),
            ("$apr1$D2..19Tx$kQZbO4N5dvk87kx2eAa2o/".into(), Ok(PasswordHash::Apr1)),
            ("$apr1$x$y".into(), Err(UnusableHash::Damaged)),
            ("{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=".into(), Ok(PasswordHash::Sha1)),
            ("{SHA}x".into(), Err(UnusableHash::Damaged)),
            (format!("$5$salt${d43}"), Ok(PasswordHash::Sha256Crypt { rounds: 5000 })),
            (format!("$5$rounds=1000$s${d43}"), Ok(PasswordHash::Sha256Crypt { rounds: 1000 })),
            (format!("$5$rounds=999999$s${d43}"), Err(UnusableHash::Costly)),
            (format!("$5$rounds=9$s${d43}"), Err(UnusableHash::Damaged)),
            (format!("$6$s${d43}{d43}"), Ok(PasswordHash::Sha512Crypt { rounds: 5000 })),
            (format!("$6$s${d43}"), Err(UnusableHash::Damaged)),
            ("$1$salt$0123456789012345678901".into(), Err(UnusableHash::Md5Crypt)),
            ("{SSHA}x".into(), Err(UnusableHash::SaltedSha1)),
            ("{PLAIN}secret".into(), Err(UnusableHash::Plain)),
            ("$y$j9T$x$y".into(), Err(UnusableHash::Yescrypt)),
            ("$argon2id$v=19$x".into(), Err(UnusableHash::Argon2)),
            ("rqXexS6ZhobKA".into(), Err(UnusableHash::DesCrypt)),
            ("open sesame".into(), Err(UnusableHash::Unknown)),
            (String::new(), Err(UnusableHash::Unknown)),
        ] {
            assert_eq!(PasswordHash::of(&hash), expected, "{hash}");
        }
    }

    #[test]
    fn each_kind_that_no_password_matches_is_named_once() {
        let file = b"# users\na:$1$x\nno colon\nb:{PLAIN}x\r\n\nc:$1$y\nd:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n";
        let found = [(UnusableHash::Md5Crypt, 2, 2), (UnusableHash::Plain, 4, 1)];
        assert_eq!(unusable_hashes(file), found);
        let no_user = password_lines(file).find(|(_, line)| *line == PasswordLine::NoUser);
        assert_eq!(no_user, Some((3, PasswordLine::NoUser)));
    }
}
