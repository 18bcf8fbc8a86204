//! The keys that rustls has agreed on, in the kernel's format (`<linux/tls.h>`). No system calls.

use rustls::{ConnectionTrafficSecrets, ProtocolVersion};

/// `TLS_CIPHER_*` of `<linux/tls.h>`.
const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;
const CHACHA20_POLY1305: u16 = 54;

/// Bytes of a record's header and of its authentication tag, which has the same length in all three
/// algorithms.
const HEADER_AND_TAG: u64 = 5 + 16;

/// Bytes of AES-GCM's nonce that come from the handshake; the kernel calls them salt.
const SALT: usize = 4;

/// Largest size of `crypto_info`, in bytes.
const MOST: usize = 56;

/// Most records that one AES-GCM key may encrypt (RFC 8446 §5.5).
const AES_GCM_LIMIT: u64 = 1 << 24;

/// The keys of the sending direction, as one of the structs `tls12_crypto_info_*`:
///
/// ```text
///  AES-GCM   version cipher | iv 8        | key 16 or 32 | salt 4 | record number 8
///  ChaCha20  version cipher | iv 12       | key 32       |        | record number 8
/// ```
pub(super) struct Keys {
    bytes: [u8; MOST],
    len: usize,
    /// Bytes that a record adds to its contents.
    pub(super) overhead: u64,
    /// Number of the first record that the kernel encrypts.
    pub(super) first: u64,
    /// Most records that these keys may encrypt.
    pub(super) limit: u64,
}

impl Keys {
    /// `next`: the number of the next record. `None` if the kernel does not know the algorithm.
    pub(super) fn new(
        version: ProtocolVersion,
        secrets: &ConnectionTrafficSecrets,
        next: u64,
    ) -> Option<Self> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (cipher, key, nonce, limit) = match secrets {
            Aes128Gcm { key, iv } => (AES_GCM_128, key, iv, AES_GCM_LIMIT),
            Aes256Gcm { key, iv } => (AES_GCM_256, key, iv, AES_GCM_LIMIT),
            Chacha20Poly1305 { key, iv } => (CHACHA20_POLY1305, key, iv, u64::MAX),
            _ => return None,
        };
        let is_12 = version == ProtocolVersion::TLSv1_2;
        let salt = if cipher == CHACHA20_POLY1305 { 0 } else { SALT };
        let (salt, iv) = nonce.as_ref().split_at(salt);
        let is_explicit = is_12 && !salt.is_empty();
        let mut iv = iv.to_vec();
        if is_explicit {
            apart(&mut iv);
        }
        let fields: [&[u8]; 6] = [
            &u16::from(version).to_ne_bytes(),
            &cipher.to_ne_bytes(),
            &iv,
            key.as_ref(),
            salt,
            &next.to_be_bytes(),
        ];
        let all = fields.concat();
        let mut bytes = [0; MOST];
        bytes.get_mut(..all.len())?.copy_from_slice(&all);
        let inner = if is_explicit { iv.len() as u64 } else { u64::from(!is_12) };
        Some(Self { bytes, len: all.len(), overhead: HEADER_AND_TAG + inner, first: next, limit })
    }

    /// The struct's bytes.
    pub(super) fn info(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// A struct with version and cipher, and room for the rest, and its length.
    pub(super) fn empty(&self) -> ([u8; MOST], usize) {
        let mut bytes = [0; MOST];
        bytes[..4].copy_from_slice(&self.bytes[..4]);
        (bytes, self.len)
    }

    /// The number of the next record, from a struct that the kernel has filled.
    pub(super) fn next(info: &[u8]) -> u64 {
        info.last_chunk().map_or(0, |next| u64::from_be_bytes(*next))
    }
}

/// TLS 1.2 sends a part of AES-GCM's nonce with each record, and two records with the same nonce
/// reveal the key (RFC 5288 §3). rustls has used this value xor the numbers of its records; the
/// kernel counts upwards from the given value. Starting half of the range apart, the two never
/// meet.
fn apart(iv: &mut [u8]) {
    iv[0] ^= 0x80;
}

#[cfg(test)]
mod tests {
    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    /// `n` bytes that count upwards from `from`.
    fn count(from: u8, n: u8) -> Vec<u8> {
        (from..from + n).collect()
    }

    fn keys(version: ProtocolVersion, secrets: &ConnectionTrafficSecrets, next: u64) -> Keys {
        Keys::new(version, secrets, next).unwrap()
    }

    fn key() -> AeadKey {
        AeadKey::from(<[u8; 32]>::try_from(count(100, 32)).unwrap())
    }

    fn iv() -> Iv {
        Iv::from(<[u8; 12]>::try_from(count(1, 12)).unwrap())
    }

    fn head(version: u16, cipher: u16) -> Vec<u8> {
        [version.to_ne_bytes(), cipher.to_ne_bytes()].concat()
    }

    #[test]
    fn aes_gcm_splits_the_nonce() {
        let made = keys(
            ProtocolVersion::TLSv1_3,
            &ConnectionTrafficSecrets::Aes256Gcm { key: key(), iv: iv() },
            2,
        );
        let expected = [
            head(0x304, 52),
            count(5, 8),
            count(100, 32),
            count(1, 4),
            vec![0, 0, 0, 0, 0, 0, 0, 2],
        ];
        assert_eq!(made.info(), expected.concat());
        assert_eq!((made.overhead, made.first, made.limit), (22, 2, 1 << 24));
    }

    #[test]
    fn chacha_takes_the_nonce_as_a_whole() {
        for (version, number, overhead) in
            [(ProtocolVersion::TLSv1_3, 0x304, 22), (ProtocolVersion::TLSv1_2, 0x303, 21)]
        {
            let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 { key: key(), iv: iv() };
            let made = keys(version, &secrets, 258);
            let expected =
                [head(number, 54), count(1, 12), count(100, 32), vec![0, 0, 0, 0, 0, 0, 1, 2]];
            assert_eq!(made.info(), expected.concat());
            assert_eq!((made.overhead, made.limit), (overhead, u64::MAX));
        }
    }

    #[test]
    fn nonces_of_tls_12_are_not_used_twice() {
        let secrets = ConnectionTrafficSecrets::Aes256Gcm { key: key(), iv: iv() };
        let made = keys(ProtocolVersion::TLSv1_2, &secrets, 1);
        assert_eq!(made.overhead, 29);
        let explicit = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
        let by_rustls = explicit(&count(5, 8));
        let by_kernel = explicit(&made.info()[4..12]);
        assert_eq!(by_kernel.abs_diff(by_rustls), 1 << 63);
        assert_eq!(made.info()[44..48], count(1, 4), "the salt stays");
    }

    #[test]
    fn the_kernel_tells_the_next_record() {
        let secrets = ConnectionTrafficSecrets::Aes256Gcm { key: key(), iv: iv() };
        let made = keys(ProtocolVersion::TLSv1_3, &secrets, 77);
        let (empty, len) = made.empty();
        assert_eq!((&empty[..4], len), (&made.info()[..4], made.info().len()));
        assert!(empty[4..].iter().all(|&byte| byte == 0));
        assert_eq!(Keys::next(made.info()), 77);
    }
}
