//! Address of a page.

use sendoff_message::request::decode_path;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// The host, and the path and the query that the client asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageAddress {
    /// In lower case, without the port.
    pub(super) host: String,
    /// The path decoded and normalised, and the query as sent, with its question mark.
    pub(super) uri: Vec<u8>,
}

impl PageAddress {
    /// `host`: in lower case, without the port.
    pub(crate) fn new(host: &str, uri: &[u8]) -> Self {
        let at = uri.iter().position(|&byte| byte == b'?').unwrap_or(uri.len());
        let (path, query) = uri.split_at(at);
        let path = decode_path(path).unwrap_or_else(|_| path.to_vec());
        Self { host: host.to_owned(), uri: [&path, query].concat() }
    }

    /// True if the path and the query contain this text.
    pub(super) fn contains(&self, text: &[u8]) -> bool {
        text.is_empty() || self.uri.windows(text.len()).any(|part| part == text)
    }

    /// Hash of the address: 20 bytes.
    pub(super) fn hash(&self) -> [u8; 20] {
        let hash = Sha1::new().chain_update((self.host.len() as u64).to_le_bytes());
        hash.chain_update(&self.host).chain_update(&self.uri).finalize().into()
    }
}
