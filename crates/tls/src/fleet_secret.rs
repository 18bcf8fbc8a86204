//! The secrets of a node of a fleet, and values that only the nodes can read.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use sendoff_config::Config;
use serde::{Deserialize, Serialize};

use crate::password::Password;

/// Fewest characters of a secret, which must withstand guesses: `openssl rand -hex 32` prints twice
/// as many.
const SHORTEST: usize = 32;

/// Fewest different characters of a secret. Fewer than four of 100 million secrets of 32 random
/// hexadecimal digits have fewer.
const FEWEST: usize = 8;

/// Bytes of a derived key.
const KEY_LEN: usize = 32;

/// The first byte of a sealed value.
const VERSION: u8 = 1;

/// The values that a process of a node seals. Each has a key of its own, so that the front cannot
/// open what belongs to the agent for certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    /// The keys of session tickets.
    TicketKeys,
    /// The account and the certificates of an authority.
    Certificates,
}

impl Sealed {
    /// The text from which its key is derived.
    fn purpose(self) -> [&'static [u8]; 1] {
        match self {
            Self::TicketKeys => [b"sendoff fleet 1: ticket keys"],
            Self::Certificates => [b"sendoff fleet 1: certificates"],
        }
    }
}

/// The secrets by which a process of a node belongs to its fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSecrets {
    /// The password of the engine, if it has one.
    pub engine_password: Option<Password>,
    /// The key with which it seals values; `None`: the nodes have no secret.
    pub seal_key: Option<SealKey>,
}

impl FleetSecrets {
    /// Reads the files that the configuration names, for a process that seals these values.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(config: &Config, sealed: Sealed) -> Result<Self, String> {
        let engine_password = Self::engine_password(config)?;
        let seal_key = Self::secret(config)?.map(|secret| secret.derive(sealed)).transpose()?;
        Ok(Self { engine_password, seal_key })
    }

    /// Reads the password of the engine.
    ///
    /// # Errors
    /// A sentence: the file has no password.
    pub fn engine_password(config: &Config) -> Result<Option<Password>, String> {
        let file = config.fleet.as_ref().and_then(|fleet| fleet.engine.password_file.as_ref());
        file.map(|file| Password::read(file)).transpose()
    }

    /// Reads the secret of the nodes.
    ///
    /// # Errors
    /// A sentence: the file has no secret.
    pub fn secret(config: &Config) -> Result<Option<FleetSecret>, String> {
        let file = config.fleet.as_ref().and_then(|fleet| fleet.secret_file.as_ref());
        file.map(|file| FleetSecret::read(file)).transpose()
    }
}

/// A secret that only the nodes of a fleet have. It is in no debug output.
#[derive(Debug)]
pub struct FleetSecret(Password);

impl FleetSecret {
    fn read(path: &Path) -> Result<Self, String> {
        let secret = Password::read(path)?;
        let length = secret.text().chars().count();
        let different = secret.text().chars().collect::<BTreeSet<_>>().len();
        let has = match (length, different) {
            (SHORTEST.., FEWEST..) => return Ok(Self(secret)),
            (SHORTEST.., _) => format!("{different} different characters"),
            _ => format!("{length} characters"),
        };
        Err(format!(
            "{}: a secret of {has} can be guessed; it needs {SHORTEST}, as `openssl rand -hex 32` prints them",
            path.display()
        ))
    }

    fn derive(&self, sealed: Sealed) -> Result<SealKey, String> {
        let secret = Salt::new(HKDF_SHA256, &[]).extract(self.0.text().as_bytes());
        let mut key = SealKey([0; KEY_LEN]);
        let filled = secret
            .expand(&sealed.purpose(), HKDF_SHA256)
            .and_then(|derived| derived.fill(&mut key.0));
        filled.map(|()| key).map_err(|_| "no key can be derived from the secret".to_owned())
    }
}

/// A key that is derived from the secret. It is in no debug output.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealKey([u8; KEY_LEN]);

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// Seals values with a key of a fleet: without it they can neither be read nor made.
pub struct Seal(RandomizedNonceKey);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// Seals with this key.
    ///
    /// # Panics
    /// Never: the key has the length that the algorithm wants.
    #[must_use]
    pub fn new(SealKey(key): &SealKey) -> Self {
        // Several nodes draw nonces for one key: with this algorithm, two equal ones do no harm.
        Self(RandomizedNonceKey::new(&AES_256_GCM_SIV, key).expect("32 bytes are a key"))
    }

    /// Seals a value for the place with this name; `None` if the library refuses.
    #[must_use]
    pub fn seal(&self, name: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let mut text = plain.to_vec();
        let aad = Aad::from(name.as_bytes());
        let nonce = self.0.seal_in_place_append_tag(aad, &mut text).ok()?;
        Some([&[VERSION], &nonce.as_ref()[..], &text].concat())
    }

    /// The value that was sealed for the place with this name; `None`: there is another one, or a
    /// value that was sealed with another secret.
    #[must_use]
    pub fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.strip_prefix(&[VERSION])?.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let aad = Aad::from(name.as_bytes());
        self.0.open_in_place(nonce, aad, &mut text).ok().map(|plain| plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Result<FleetSecret, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        FleetSecret::read(file.path())
    }

    #[test]
    fn a_sealed_value_belongs_to_its_place_and_its_secret() {
        let seal = |letter: &str, sealed| {
            let key =
                secret(&"0123456 ".repeat(4).replace(' ', letter)).unwrap().derive(sealed).unwrap();
            assert_eq!(format!("{key:?}"), "SealKey");
            Seal::new(&key)
        };
        let others = [seal("b", Sealed::Certificates), seal("a", Sealed::TicketKeys)];
        let seal = seal("a", Sealed::Certificates);
        let sealed = seal.seal("shop:key", b"value").unwrap();
        assert_eq!(seal.open("shop:key", &sealed).as_deref(), Some(&b"value"[..]));
        assert_ne!(seal.seal("shop:key", b"value").unwrap(), sealed);
        assert_eq!(seal.open("shop:other", &sealed), None);
        others.iter().for_each(|other| assert_eq!(other.open("shop:key", &sealed), None));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal.open("shop:key", &changed), None, "byte {at}");
            assert_eq!(seal.open("shop:key", &sealed[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_secret_that_can_be_guessed_is_refused() {
        let said = secret(&"0123456".repeat(20)).unwrap_err();
        assert!(said.contains("a secret of 7 different characters can be guessed"), "{said}");
        let said = secret("0123456789abcdef\n").unwrap_err();
        assert!(said.contains("a secret of 16 characters can be guessed"), "{said}");
        assert!(!said.contains("0123"), "{said}");
    }
}
