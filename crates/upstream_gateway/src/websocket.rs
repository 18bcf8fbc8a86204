//! The key that opens a WebSocket (RFC 6455 §1.3), for clients of HTTP/2 and HTTP/3, which send none
//! (RFC 8441 §5).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The length of a key: 16 bytes in Base64.
const KEY: usize = 24;

/// The length of the answer to a key: a SHA-1 digest in Base64.
const ANSWER: usize = 28;

/// The suffix of a key in the text whose digest answers it.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The value of `Sec-WebSocket-Key` in a request. It shows that the application understands
/// WebSocket; it is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketKey([u8; KEY]);

impl WebSocketKey {
    /// A new key.
    #[must_use]
    pub fn random() -> Self {
        let mut key = [0; KEY];
        encode(&fastrand::u128(..).to_ne_bytes(), &mut key);
        Self(key)
    }

    /// The value of the field.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True if `answer`, the value of `Sec-WebSocket-Accept`, answers this key.
    pub(crate) fn is_answered_by(&self, answer: &[u8]) -> bool {
        answer.trim_ascii() == answer_to(&self.0)
    }
}

/// The value of `Sec-WebSocket-Accept` that answers a key.
#[must_use]
pub fn answer_to(key: &[u8]) -> [u8; ANSWER] {
    let answer = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
    let mut text = [0; ANSWER];
    encode(answer.as_ref(), &mut text);
    text
}

/// Writes `bytes` in Base64, for which `text` has the exact room.
fn encode(bytes: &[u8], text: &mut [u8]) {
    let written = STANDARD.encode_slice(bytes, text);
    debug_assert!(written.is_ok(), "{written:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455 §1.3.
    #[test]
    fn a_key_has_one_answer() {
        let key = WebSocketKey(*b"dGhlIHNhbXBsZSBub25jZQ==");
        assert!(key.is_answered_by(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(!key.is_answered_by(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOO="));
        assert!(!key.is_answered_by(b""));
        assert!(!WebSocketKey::random().is_answered_by(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }
}
