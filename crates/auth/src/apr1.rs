//! Apache's variant of the MD5-based crypt, which `htpasswd` writes by default: `$apr1$SALT$HASH`.
//!
//! The algorithm is Poul-Henning Kamp's md5crypt with another mark; Apache documents it in
//! "Password Formats". The only library for it depends on a cryptography crate that has not been
//! maintained since 2016, so the loop is here and only the digest is a library's.

use md5::{Digest, Md5};

const MARK: &str = "$apr1$";
const ROUNDS: usize = 1000;
const MAX_SALT: usize = 8;

/// The digits of the encoding, least significant first.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The bytes of the digest in each group of the encoding.
const TRIPLES: [[usize; 3]; 5] = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];

/// The hash of a password with the salt of another hash; `None` if the other hash is not of this
/// kind.
pub(super) fn hash_like(hash: &str, password: &[u8]) -> Option<String> {
    let (salt, _) = hash.strip_prefix(MARK)?.split_once('$')?;
    let salt = salt.get(..salt.len().min(MAX_SALT))?;
    let digest = digest(password, salt.as_bytes());
    Some(format!("{MARK}{salt}${}", encode(&digest)))
}

fn digest(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let once: [u8; 16] = Md5::digest([password, salt, password].concat()).into();
    let mut first = [password, MARK.as_bytes(), salt].concat();
    first.extend(once.iter().cycle().take(password.len()));
    let mut bits = password.len();
    while bits > 0 {
        first.push(if bits & 1 == 1 { 0 } else { password[0] });
        bits >>= 1;
    }
    let mut digest: [u8; 16] = Md5::digest(&first).into();
    for round in 0..ROUNDS {
        let mut text = Md5::new();
        let odd = round % 2 == 1;
        text.update(if odd { password } else { &digest });
        if round % 3 != 0 {
            text.update(salt);
        }
        if round % 7 != 0 {
            text.update(password);
        }
        text.update(if odd { &digest } else { password });
        digest = text.finalize().into();
    }
    digest
}

fn encode(digest: &[u8; 16]) -> String {
    let mut out = String::with_capacity(22);
    let mut put = |mut value: u32, digits: usize| {
        for _ in 0..digits {
            out.push(char::from(DIGITS[(value & 63) as usize]));
            value >>= 6;
        }
    };
    for [high, middle, low] in TRIPLES.map(|triple| triple.map(|at| u32::from(digest[at]))) {
        put(high << 16 | middle << 8 | low, 4);
    }
    put(u32::from(digest[11]), 2);
    out
}
