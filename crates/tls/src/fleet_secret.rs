//! The secrets of a node of a fleet, and values that only the nodes can read.

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

/// The first byte of a sealed value.
const VERSION: u8 = 1;

/// The purpose of the key that is derived from the secret.
const PURPOSE: [&[u8]; 1] = [b"sendoff fleet: sealed values, version 1"];

/// The secrets by which a node belongs to its fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSecrets {
    /// The password of the engine, if it has one.
    pub engine_password: Option<Password>,
    /// The secret that only the nodes have; `None`: nodes share nothing that needs one.
    pub secret: Option<FleetSecret>,
}

impl FleetSecrets {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read(config: &Config) -> Result<Self, String> {
        let engine_password = Self::engine_password(config)?;
        Ok(Self { engine_password, secret: Self::secret(config)? })
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetSecret(Password);

impl FleetSecret {
    fn read(path: &Path) -> Result<Self, String> {
        let secret = Password::read(path)?;
        match secret.text().chars().count() {
            SHORTEST.. => Ok(Self(secret)),
            length => Err(format!(
                "{}: a secret of {length} characters can be guessed; it needs {SHORTEST}, as `openssl rand -hex 32` prints them",
                path.display()
            )),
        }
    }
}

/// Seals values with the secret of a fleet: without it they can neither be read nor made.
pub struct Seal(RandomizedNonceKey);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// `None` if the library refuses to derive a key.
    #[must_use]
    pub fn new(FleetSecret(secret): &FleetSecret) -> Option<Self> {
        let derived = Salt::new(HKDF_SHA256, &[]).extract(secret.text().as_bytes());
        let mut key = [0; 32];
        derived.expand(&PURPOSE, HKDF_SHA256).ok()?.fill(&mut key).ok()?;
        // Several nodes draw nonces for one key: with this algorithm, two equal ones do no harm.
        RandomizedNonceKey::new(&AES_256_GCM_SIV, &key).ok().map(Self)
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
        let [seal, other] = ["a", "b"].map(|letter| {
            let secret = secret(&letter.repeat(SHORTEST)).unwrap();
            assert!(!format!("{secret:?}").contains(letter.repeat(2).as_str()));
            Seal::new(&secret).unwrap()
        });
        let sealed = seal.seal("shop:key", b"value").unwrap();
        assert_eq!(seal.open("shop:key", &sealed).as_deref(), Some(&b"value"[..]));
        assert_ne!(seal.seal("shop:key", b"value").unwrap(), sealed);
        assert_eq!(seal.open("shop:other", &sealed), None);
        assert_eq!(other.open("shop:key", &sealed), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(seal.open("shop:key", &changed), None, "byte {at}");
            assert_eq!(seal.open("shop:key", &sealed[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_short_secret_is_refused() {
        let said = secret("0123456789abcdef\n").unwrap_err();
        assert!(said.contains("a secret of 16 characters can be guessed"), "{said}");
        assert!(!said.contains("0123"), "{said}");
    }
}
