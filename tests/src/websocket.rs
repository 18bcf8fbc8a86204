//! WebSocket frames (RFC 6455 §5.2) and the handshake of a client.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use crate::{Client, Request};

/// The opcodes that tests send and expect.
pub const TEXT: u8 = 1;
/// See [`TEXT`].
pub const BINARY: u8 = 2;
/// See [`TEXT`].
pub const CLOSE: u8 = 8;
/// See [`TEXT`].
pub const PING: u8 = 9;
/// See [`TEXT`].
pub const PONG: u8 = 10;

/// The key of every client, and its answer (RFC 6455 §1.3).
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ANSWER: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The answer of a server to a client's key (RFC 6455 §1.3).
#[must_use]
pub fn answer_to(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    STANDARD.encode(Sha1::digest([key, GUID].concat()))
}

/// The request for a WebSocket over HTTP/1.1.
#[must_use]
pub fn handshake(target: &str) -> Request {
    Request::get(target)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", KEY)
}

/// A client's frame that holds a whole message.
#[must_use]
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    part(0x80 | opcode, payload)
}

/// A client's frame with this first byte.
#[must_use]
pub fn part(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [1, 2, 3, 250];
    let mut bytes = vec![first];
    match payload.len() {
        len @ ..126 => bytes.push(0x80 | u8::try_from(len).unwrap()),
        len @ ..65536 => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend(u64::try_from(len).unwrap().to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// A close frame of a client.
#[must_use]
pub fn close(code: u16) -> Vec<u8> {
    frame(CLOSE, &code.to_be_bytes())
}

/// The server's frames: opcode and payload.
///
/// # Panics
/// If the bytes end inside a frame, or a frame is a fragment.
#[must_use]
pub fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let [first, len, rest @ ..] = bytes {
        assert_eq!(first & 0x80, 0x80, "a fragment");
        let (len, rest) = match len {
            126 => {
                let (len, rest) = rest.split_first_chunk().unwrap();
                (usize::from(u16::from_be_bytes(*len)), rest)
            }
            127 => {
                let (len, rest) = rest.split_first_chunk().unwrap();
                (usize::try_from(u64::from_be_bytes(*len)).unwrap(), rest)
            }
            len => (usize::from(*len), rest),
        };
        let (payload, rest) = rest.split_at(len);
        all.push((first & 0x0f, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "{bytes:?}");
    all
}

/// A WebSocket of a client over HTTP/1.1.
pub struct WebSocket {
    client: Client,
    /// The subprotocol that the server has chosen.
    pub subprotocol: Option<String>,
}

impl WebSocket {
    /// Opens one.
    ///
    /// # Panics
    /// If the server refuses.
    pub fn open(mut client: Client, request: &Request) -> Self {
        client.send(request.bytes());
        let head = client.head().unwrap();
        assert_eq!(head.status, 101, "{head:?}");
        assert_eq!(head.header("Sec-WebSocket-Accept"), Some(ANSWER));
        assert_eq!(head.header("Upgrade"), Some("websocket"));
        assert_eq!(head.header("Connection"), Some("Upgrade"));
        let subprotocol = head.header("Sec-WebSocket-Protocol").map(str::to_owned);
        Self { client, subprotocol }
    }

    /// Sends a whole message.
    pub fn send(&mut self, opcode: u8, payload: &[u8]) {
        self.client.send(frame(opcode, payload));
    }

    /// The connection.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The next frame: opcode and payload.
    ///
    /// # Panics
    /// If there is none, or it is a fragment.
    pub fn receive(&mut self) -> (u8, Vec<u8>) {
        let head = self.client.read(2);
        assert_eq!(head[0] & 0x80, 0x80, "a fragment");
        let len = match head[1] {
            126 => u64::from(u16::from_be_bytes(self.client.read(2).try_into().unwrap())),
            127 => u64::from_be_bytes(self.client.read(8).try_into().unwrap()),
            len => u64::from(len),
        };
        (head[0] & 0x0f, self.client.read(usize::try_from(len).unwrap()))
    }

    /// Waits for a close frame, and for the end of the connection behind it; the code.
    ///
    /// # Panics
    /// If something else comes.
    pub fn closed(&mut self) -> u16 {
        let (opcode, payload) = self.receive();
        assert_eq!(opcode, CLOSE, "{payload:?}");
        u16::from_be_bytes(payload[..2].try_into().unwrap())
    }
}
