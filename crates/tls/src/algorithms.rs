//! The algorithms that the operator allows.

use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite, kx_group};
use sendoff_config::{CipherSuite, KeyExchange, TlsAlgorithms};

use crate::identity::PROVIDER;

/// Cryptography with these algorithms alone.
pub(crate) fn provider(allowed: &TlsAlgorithms) -> Arc<CryptoProvider> {
    let ciphers: Vec<_> = allowed.ciphers.iter().map(|cipher| suite(*cipher)).collect();
    let is_restricted = |of: &SupportedCipherSuite| {
        ciphers.iter().any(|listed| listed.version().version == of.version().version)
    };
    let mut provider = CryptoProvider::clone(&PROVIDER);
    provider.cipher_suites.retain(|suite| !is_restricted(suite) || ciphers.contains(suite));
    if !allowed.groups.is_empty() {
        provider.kx_groups = allowed
            .groups
            .iter()
            .map(|group| match group {
                KeyExchange::X25519MlKem768 => kx_group::X25519MLKEM768,
                KeyExchange::X25519 => kx_group::X25519,
                KeyExchange::P256 => kx_group::SECP256R1,
                KeyExchange::P384 => kx_group::SECP384R1,
            })
            .collect();
    }
    Arc::new(provider)
}

const fn suite(cipher: CipherSuite) -> SupportedCipherSuite {
    match cipher {
        CipherSuite::Aes128 => cipher_suite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::Aes256 => cipher_suite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::ChaCha20 => cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        CipherSuite::EcdsaAes128 => cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::EcdsaAes256 => cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::EcdsaChaCha20 => cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        CipherSuite::RsaAes128 => cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::RsaAes256 => cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        CipherSuite::RsaChaCha20 => cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    }
}
