//! The receiving direction of a connection whose sending direction the kernel encrypts. Records are
//! decrypted here, with rustls' algorithms. The kernel could decrypt, too, but returns one record
//! per system call.

use bytes::{Buf, BytesMut};
use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ProtocolVersion,
    SupportedCipherSuite,
};

/// Bytes of a record's header: type, version, length.
const HEADER: usize = 5;

/// Most bytes after the header: 2^14, plus the expansion that TLS 1.2 (RFC 5246 §6.2.3) and 1.3
/// (RFC 8446 §5.2) allow.
const MOST_12: usize = (1 << 14) + 2048;
const MOST_13: usize = (1 << 14) + 256;

/// Room for a read on a quiet connection, in bytes.
const READ: usize = 4096;

/// A `KeyUpdate` message (RFC 8446 §4.6.3) without its last byte, which requests new keys from the
/// other side, too.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// Meaning of a client's record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// No complete record has come.
    Incomplete,
    /// The record is consumed; [`Inbound::plain`] has its bytes, if any.
    Taken,
    /// The client has ended its sending direction.
    End,
    /// The client wants the server to change its keys.
    WantsNewKeys,
}

/// Records of the client.
pub(super) struct Inbound {
    /// Derives the next keys.
    secrets: KernelConnection<ServerConnectionData>,
    decrypter: Box<dyn MessageDecrypter>,
    /// The number of the next record.
    next: u64,
    /// Bytes of the socket that are not decrypted yet.
    sealed: BytesMut,
    /// Decrypted bytes.
    pub(super) plain: BytesMut,
    /// The last read filled its room.
    is_busy: bool,
}

impl Inbound {
    /// `sealed`: bytes that the handshake left over, beginning with a record; `plain`: bytes that
    /// it has decrypted.
    pub(super) fn new(
        secrets: KernelConnection<ServerConnectionData>,
        (next, keys): (u64, ConnectionTrafficSecrets),
        sealed: BytesMut,
        plain: BytesMut,
    ) -> Result<Self, Error> {
        let decrypter = decrypter(secrets.negotiated_cipher_suite(), keys)?;
        Ok(Self { secrets, decrypter, next, sealed, plain, is_busy: false })
    }

    /// True if a complete record waits.
    pub(super) fn has_record(&self) -> bool {
        self.record_len().is_some_and(|len| self.sealed.len() >= len)
    }

    /// True if bytes of the client wait, decrypted or not.
    pub(super) fn has_bytes(&self) -> bool {
        !self.plain.is_empty() || !self.sealed.is_empty()
    }

    /// A buffer with room for the next bytes of the socket.
    pub(super) fn room(&mut self) -> &mut BytesMut {
        let missing = self.record_len().map_or(0, |len| len.saturating_sub(self.sealed.len()));
        let most = if self.is_busy { HEADER + MOST_12 } else { READ };
        self.sealed.reserve(missing.clamp(READ, HEADER + MOST_12).max(most));
        &mut self.sealed
    }

    /// Notes that a read has ended, so that an idle connection frees its memory.
    pub(super) fn note_read(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
        if self.sealed.is_empty() {
            self.sealed = BytesMut::new();
        }
    }

    /// Decrypts the next record. [`Self::plain`] must be empty.
    ///
    /// # Errors
    /// The alert that must be sent to the client.
    pub(super) fn decrypt(&mut self) -> Result<Received, AlertDescription> {
        let Some(len) = self.record_len() else { return Ok(Received::Incomplete) };
        let is_13 = self.is_13();
        if len - HEADER > if is_13 { MOST_13 } else { MOST_12 } {
            return Err(AlertDescription::RecordOverflow);
        }
        if self.sealed.len() < len {
            return Ok(Received::Incomplete);
        }
        let mut record = self.sealed.split_to(len);
        let content_type = ContentType::from(record[0]);
        // All records of TLS 1.3 have this outer type (RFC 8446 §5.2).
        if is_13 && content_type != ContentType::ApplicationData {
            return Err(AlertDescription::UnexpectedMessage);
        }
        record.advance(HEADER);
        let begin = record.as_ptr().addr();
        let message =
            InboundOpaqueMessage::new(content_type, ProtocolVersion::TLSv1_2, &mut record);
        let message = self.decrypter.decrypt(message, self.next).map_err(|error| match error {
            Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
            Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
            _ => AlertDescription::BadRecordMac,
        })?;
        self.next += 1;
        let (content_type, len) = (message.typ, message.payload.len());
        let skipped = message.payload.as_ptr().addr().saturating_sub(begin);
        record.advance(skipped.min(record.len()));
        record.truncate(len);
        match content_type {
            ContentType::ApplicationData => {
                self.plain = record;
                Ok(Received::Taken)
            }
            ContentType::Alert => alert(&record),
            ContentType::Handshake if is_13 => self.key_update(&record),
            _ => Err(AlertDescription::UnexpectedMessage),
        }
    }

    /// Changes the client's keys. No other message is valid after the handshake: the server
    /// requests no certificate then, and it is the server that sends tickets.
    fn key_update(&mut self, message: &[u8]) -> Result<Received, AlertDescription> {
        let Some((&request, b"")) = message.strip_prefix(&KEY_UPDATE).and_then(<[u8]>::split_first)
        else {
            return Err(AlertDescription::UnexpectedMessage);
        };
        let updated = self.secrets.update_rx_secret().and_then(|(next, keys)| {
            Ok((next, decrypter(self.secrets.negotiated_cipher_suite(), keys)?))
        });
        (self.next, self.decrypter) = updated.map_err(|_| AlertDescription::InternalError)?;
        match request {
            0 => Ok(Received::Taken),
            1 => Ok(Received::WantsNewKeys),
            _ => Err(AlertDescription::IllegalParameter),
        }
    }

    fn is_13(&self) -> bool {
        self.secrets.protocol_version() == ProtocolVersion::TLSv1_3
    }

    /// Length of the next record including its header, once the header has come.
    fn record_len(&self) -> Option<usize> {
        let [_, _, _, high, low] = *self.sealed.first_chunk::<HEADER>()?;
        Some(HEADER + usize::from(u16::from_be_bytes([high, low])))
    }
}

fn alert(message: &[u8]) -> Result<Received, AlertDescription> {
    match message {
        [_, description] => match AlertDescription::from(*description) {
            AlertDescription::CloseNotify => Ok(Received::End),
            // A close_notify follows (RFC 8446 §6.1).
            AlertDescription::UserCanceled => Ok(Received::Taken),
            // The client has reported an error: the answer is the end, not another error.
            _ => Err(AlertDescription::CloseNotify),
        },
        _ => Err(AlertDescription::DecodeError),
    }
}

fn decrypter(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, Error> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    let (Aes128Gcm { key, iv } | Aes256Gcm { key, iv } | Chacha20Poly1305 { key, iv }) = secrets
    else {
        return Err(Error::General("an algorithm that the kernel does not know".to_owned()));
    };
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            // With AES-GCM in TLS 1.2 each record carries the rest of the nonce.
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            suite.aead_alg.decrypter(key, &iv.as_ref()[..fixed])
        }
    })
}
