//! Password files as `htpasswd` writes them.

use std::collections::HashMap;
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha_crypt::{PasswordVerifier, ShaCrypt};
use sha1::{Digest, Sha1};

use super::apr1;

/// bcrypt's cost: 2 to the power of it in rounds; 14 takes about a second.
const MAX_COST: u32 = 14;

/// Rounds of SHA-256 and SHA-512 crypt: about half a second.
const MAX_ROUNDS: u32 = 500_000;

/// The users of a file and the hashes of their passwords.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Passwords(HashMap<Vec<u8>, String>);

impl Passwords {
    /// Lines `NAME:HASH`; comments and lines without a colon are skipped, and so is what follows a second colon.
    pub(super) fn parse(file: &[u8]) -> Self {
        let lines = file.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
        let entries = lines.filter(|line| !line.starts_with(b"#")).filter_map(|line| {
            let mut parts = line.split(|&b| b == b':');
            let (name, hash) = (parts.next()?, parts.next()?);
            Some((name.to_vec(), str::from_utf8(hash).ok()?.to_owned()))
        });
        Self(entries.collect())
    }

    /// Whether this is the user's password. For a name that is not in the file the same work is done, so that the time does not tell
    /// which names exist. It takes up to a tenth of a second, which is what bcrypt is for.
    pub(super) fn verify(&self, user: &[u8], password: &[u8]) -> bool {
        match self.0.get(user) {
            Some(hash) => matches(hash, password),
            None => {
                if let Some(hash) = self.0.values().next() {
                    black_box(matches(hash, password));
                }
                false
            }
        }
    }
}

/// bcrypt (`$2y$`), Apache's MD5 (`$apr1$`), SHA-256 and SHA-512 crypt (`$5$`, `$6$`) and SHA-1 (`{SHA}`). Others, plain text among
/// them, match nothing.
fn matches(hash: &str, password: &[u8]) -> bool {
    if is_too_costly(hash) {
        false
    } else if hash.starts_with("$2") {
        bcrypt::verify(password, hash).unwrap_or(false)
    } else if apr1::is_apr1(hash) {
        apr1::hash_like(hash, password).is_some_and(|own| is_equal(own.as_bytes(), hash.as_bytes()))
    } else if let Some(encoded) = hash.strip_prefix("{SHA}") {
        let own = STANDARD.encode(Sha1::digest(password));
        is_equal(own.as_bytes(), encoded.as_bytes())
    } else {
        (hash.starts_with("$5$") || hash.starts_with("$6$"))
            && ShaCrypt::default().verify_password(password, hash).is_ok()
    }
}

/// Whether a hash says that it takes seconds to compute. Others wait meanwhile.
fn is_too_costly(hash: &str) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let mut parts = hash.split('$').skip(1);
    match parts.next() {
        Some(kind) if kind.starts_with('2') => {
            number(parts.next()).is_none_or(|cost| cost > MAX_COST)
        }
        Some("5" | "6") => {
            let rounds = parts.next().and_then(|part| part.strip_prefix("rounds="));
            rounds.is_some_and(|rounds| number(Some(rounds)).is_none_or(|n| n > MAX_ROUNDS))
        }
        _ => false,
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && black_box(a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that Apache's htpasswd 2.4 has written (-B, -m, -2, -5, -s), with comments and line ends as editors leave them.
    const FILE: &[u8] = b"# users\r\n\
        bcrypt:$2y$05$zG6GKXi4lRaCysT0o/VgZOkfK.r.fpi96s..rGbo2uC.jAuaVdt3u\r\n\
        apr1:$apr1$D2..19Tx$kQZbO4N5dvk87kx2eAa2o/:more\n\
        sha256:$5$.XTWTkwyUtbR2bTk$GaquuSxQl7QEt1FlYUrReIiqah0DzC50QJNSQipemv9\n\
        sha512:$6$YAYRqzrh0UbHeaff$frMS39d.BSQ1f.3XTtVDMB90py8uSLTzgVPM/9hlRZIfr4XCpF/wBvlu/PrpfzRU9lj2yGCXmCwHcTbncFwK//\n\
        sha1:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\n\
        plain:open sesame\n\
        broken:$apr1$\n\
        short:$2y$05$\n\
        no colon\n";

    /// The same of passwords that are long, empty and not ASCII.
    const ODD: [(&str, &str); 3] = [
        ("long:$apr1$w4DJSckW$11/JiXxNa66XIAfh7GCRE1", "x"),
        ("empty:$apr1$xclFGPsN$yDMTkEKYVJtu5ilMXBEA01", ""),
        ("u:$2y$12$cng/h67gst4M6uYN21rdV.gewJg9RwLlR1njL5uNnlmB3hJZ03mmW", "\u{fc}"),
    ];

    #[test]
    fn every_format_of_htpasswd_is_known_and_nothing_else_matches() {
        let passwords = Passwords::parse(FILE);
        for user in ["bcrypt", "apr1", "sha256", "sha512", "sha1"] {
            let verify = |password: &str| passwords.verify(user.as_bytes(), password.as_bytes());
            assert!(verify("open sesame"), "{user}");
            assert!(!verify("open Sesame"), "{user}");
            assert!(!verify(""), "{user}");
        }
        for (line, password) in ODD {
            let name = line.split(':').next().unwrap().as_bytes();
            let password = if name == b"long" { password.repeat(100) } else { password.to_owned() };
            assert!(Passwords::parse(line.as_bytes()).verify(name, password.as_bytes()), "{line}");
            assert!(!Passwords::parse(line.as_bytes()).verify(name, b"y"), "{line}");
        }
        let costly = String::from_utf8_lossy(FILE).replace("$2y$05", "$2y$31");
        assert!(!Passwords::parse(costly.as_bytes()).verify(b"bcrypt", b"open sesame"));
        for user in ["plain", "broken", "short", "no colon", "nobody", "", "# users"] {
            assert!(!passwords.verify(user.as_bytes(), b"open sesame"), "{user}");
            assert!(!passwords.verify(user.as_bytes(), b""), "{user}");
        }
        assert!(!Passwords::default().verify(b"x", b"x"));
    }
}
