//! Password files as `htpasswd` writes them.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sendoff_config::{PasswordHash, PasswordLine, password_lines};
use sha_crypt::{PasswordVerifier, ShaCrypt};
use sha1::{Digest, Sha1};

use super::apr1;

/// The longest password for SHA-crypt, in bytes: as in libxcrypt, with which nginx and Apache compare
/// these. Each round hashes the password, so a long one would keep a thread busy for a minute.
const MAX_SHA_CRYPT: usize = 511;

/// A hash that the server can check, and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hash {
    kind: PasswordHash,
    text: String,
}

/// The users of a file and the hashes of their passwords.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Passwords {
    /// `None` for a hash that no password matches.
    users: HashMap<Vec<u8>, Option<Hash>>,
    /// One hash of each kind and cost in the file.
    samples: BTreeMap<PasswordHash, Hash>,
}

impl Passwords {
    /// Parses lines `NAME:HASH`; comments, lines without a colon and text behind a second colon are
    /// skipped. The first of two lines with the same name counts, as in Apache and nginx.
    pub(super) fn parse(file: &[u8]) -> Self {
        let mut passwords = Self::default();
        for (_, line) in password_lines(file) {
            let PasswordLine::User { name, hash } = line else { continue };
            let kind = PasswordHash::of(hash).ok();
            let hash = kind.map(|kind| Hash { kind, text: hash.to_owned() });
            if let Some(hash) = &hash {
                passwords.samples.entry(hash.kind).or_insert_with(|| hash.clone());
            }
            passwords.users.entry(name.to_vec()).or_insert(hash);
        }
        passwords
    }

    /// True if this is the user's password. Each failing attempt does the same work, so the time
    /// does not reveal which names exist: it computes one hash of each kind and cost in the file,
    /// for known and unknown users. This takes up to a second, as bcrypt intends.
    pub(super) fn verify(&self, user: &[u8], password: &[u8]) -> bool {
        let own = self.own(user);
        if own.is_some_and(|hash| matches(hash, password)) {
            return true;
        }
        for hash in self.others(own) {
            black_box(matches(hash, password));
        }
        false
    }

    fn own(&self, user: &[u8]) -> Option<&Hash> {
        self.users.get(user)?.as_ref()
    }

    /// The hashes that a failing attempt computes besides the user's own.
    fn others(&self, own: Option<&Hash>) -> impl Iterator<Item = &Hash> {
        let own = own.map(|own| own.kind);
        self.samples.values().filter(move |sample| Some(sample.kind) != own)
    }
}

fn matches(hash: &Hash, password: &[u8]) -> bool {
    let text = &*hash.text;
    match hash.kind {
        PasswordHash::Bcrypt { .. } => bcrypt::verify(password, text).unwrap_or(false),
        PasswordHash::Apr1 => apr1::hash_like(text, password)
            .is_some_and(|own| is_equal(own.as_bytes(), text.as_bytes())),
        PasswordHash::Sha1 => {
            let own = ["{SHA}", &STANDARD.encode(Sha1::digest(password))].concat();
            is_equal(own.as_bytes(), text.as_bytes())
        }
        PasswordHash::Sha256Crypt { .. } | PasswordHash::Sha512Crypt { .. } => {
            password.len() <= MAX_SHA_CRYPT
                && ShaCrypt::default().verify_password(password, text).is_ok()
        }
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && black_box(a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b))) == 0
}

#[cfg(test)]
mod tests {
    use sha_crypt::PasswordHasher;

    use super::*;

    /// Hashes from Apache's htpasswd 2.4 (-B, -m, -2, -5, -s), with comments and line ends as
    /// editors leave them.
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

    /// The same for passwords that are long, empty or not ASCII.
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

    #[test]
    fn an_attempt_that_fails_takes_the_same_work_for_each_name() {
        for file in [FILE, &[b"first:{PLAIN}x\nsecond:$2y$05$\n", FILE].concat()] {
            let passwords = Passwords::parse(file);
            let work = |user: &str| {
                let own = passwords.own(user.as_bytes());
                let mut kinds: Vec<_> =
                    own.into_iter().chain(passwords.others(own)).map(|hash| hash.kind).collect();
                kinds.sort_unstable();
                kinds
            };
            assert_eq!(work("nobody").len(), 5);
            for user in ["bcrypt", "apr1", "sha256", "sha512", "sha1", "plain", "broken", ""] {
                assert_eq!(work(user), work("nobody"), "{user}");
            }
        }
    }

    /// A hash by libxcrypt, which refuses longer passwords.
    #[test]
    fn sha_crypt_takes_passwords_as_long_as_the_c_library() {
        let line = b"ann:$5$abcdefgh$rKfLIht5ff20Rn/FWIOcGK4beOB9KzL7RN3x8I9FWWB";
        let longest = "x".repeat(MAX_SHA_CRYPT);
        assert!(Passwords::parse(line).verify(b"ann", longest.as_bytes()));
        let longer = [b'x'; MAX_SHA_CRYPT + 1];
        let hash = ShaCrypt::default().hash_password_with_salt(&longer, b"abcdefgh").unwrap();
        let line = format!("ann:{hash}");
        assert!(ShaCrypt::default().verify_password(&longer, &*hash.to_string()).is_ok());
        assert!(!Passwords::parse(line.as_bytes()).verify(b"ann", &longer));
    }

    #[test]
    fn of_two_lines_with_one_name_the_first_counts() {
        let lines = b"ann:{SHA}W8r/fyL/UzygmbNAjq2HbA67qac=\nann:{PLAIN}x\n";
        assert!(Passwords::parse(lines).verify(b"ann", b"open sesame"));
    }
}
