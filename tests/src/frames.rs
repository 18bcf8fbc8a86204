//! A client that sends exactly the given frames of HTTP/2 (RFC 9113 §4), valid or not.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::LIMIT;
use crate::secure::Wire;

/// The connection preface, the first bytes that a client sends (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113 §6).
pub const DATA: u8 = 0;
/// Fields of a request or response.
pub const HEADERS: u8 = 1;
/// Deprecated: receivers ignore it.
pub const PRIORITY: u8 = 2;
/// The abrupt end of a stream.
pub const RST_STREAM: u8 = 3;
/// Parameters of the connection.
pub const SETTINGS: u8 = 4;
/// A question that the peer acknowledges.
pub const PING: u8 = 6;
/// The end of the connection.
pub const GOAWAY: u8 = 7;
/// An increment of the peer's flow-control window.
pub const WINDOW_UPDATE: u8 = 8;
/// The rest of a field block.
pub const CONTINUATION: u8 = 9;

/// The frame is the last of its direction of the stream. On SETTINGS and PING: an answer.
pub const END_STREAM: u8 = 1;
/// No CONTINUATION follows.
pub const END_HEADERS: u8 = 4;

/// Error codes (RFC 9113 §7).
pub const NO_ERROR: u32 = 0;
/// A violation of the protocol.
pub const PROTOCOL_ERROR: u32 = 1;
/// The server could not complete the response.
pub const INTERNAL_ERROR: u32 = 2;
/// More streams than allowed.
pub const REFUSED_STREAM: u32 = 7;
/// The client does not want the response.
pub const CANCEL: u32 = 8;
/// The peer causes excessive load.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0: the connection.
    pub stream: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of a RST_STREAM or GOAWAY.
    ///
    /// # Panics
    /// If it is neither.
    pub fn code(&self) -> u32 {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => panic!("{self:?} has no error code"),
        };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    /// True if it is the last frame of its direction of the stream.
    pub fn ends(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Fields as literals that enter no table (RFC 7541 §6.2.2), without compression.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// An integer with a prefix of 7 bits (RFC 7541 §5.1).
fn integer(block: &mut Vec<u8>, value: usize) {
    let Some(mut rest) = value.checked_sub(127) else {
        return block.push(u8::try_from(value).unwrap());
    };
    block.push(127);
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}

/// The fields of a request, with more at their end.
pub fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo =
        [(":method", method), (":scheme", "http"), (":path", path), (":authority", "example.test")];
    fields(&[&pseudo[..], more].concat())
}

/// A connection that sends what it is told to.
pub struct Frames {
    wire: Wire,
    received: Vec<u8>,
}

impl Frames {
    /// Connects, over TLS if the server speaks it there, and sends the preface with these settings.
    ///
    /// # Panics
    /// If the connection is refused.
    pub fn connect(addr: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(addr).expect("connect");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self { wire: Wire::new(stream, true), received: Vec::new() };
        let settings = settings.iter().flat_map(|(id, value)| {
            let bytes: Vec<u8> = id.to_be_bytes().into_iter().chain(value.to_be_bytes()).collect();
            bytes
        });
        let settings: Vec<u8> = settings.collect();
        client.send([PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat());
        client
    }

    /// The socket beneath.
    pub fn stream(&self) -> &TcpStream {
        self.wire.socket()
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.write_all(bytes.as_ref()).and_then(|()| self.wire.flush()).expect("send");
    }

    /// Sends bytes that the server may refuse to take.
    pub fn try_send(&mut self, bytes: &[u8]) {
        let _refused = self.wire.write_all(bytes);
    }

    /// Ends the sending direction. It fails on a connection that is gone.
    pub fn half_close(&mut self) {
        let _gone = self.wire.half_close();
    }

    /// Sends `bytes` again and again until the server takes no more, or at least `most` bytes have
    /// been sent. Returns the number of bytes sent.
    pub fn flood(&mut self, bytes: &[u8], most: usize) -> usize {
        let mut sent = 0;
        while sent < most {
            match self.wire.write(bytes) {
                Ok(n) => sent += n,
                Err(_) => break,
            }
        }
        sent
    }

    /// A request without a body.
    pub fn get(&mut self, stream: u32, path: &str) {
        let block = request("GET", path, &[]);
        self.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
    }

    /// Increases the server's window by `bytes`; stream 0: the window of the connection.
    pub fn allow(&mut self, stream: u32, bytes: u32) {
        self.send(frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()));
    }

    /// The next frame; `None` at the end of the connection.
    ///
    /// # Panics
    /// If nothing comes for [`LIMIT`].
    pub fn receive(&mut self) -> Option<Frame> {
        self.fill(9)?;
        let length = u32::from_be_bytes([0, self.received[0], self.received[1], self.received[2]]);
        let length = usize::try_from(length).unwrap();
        let (kind, flags) = (self.received[3], self.received[4]);
        let stream = u32::from_be_bytes(self.received[5..9].try_into().unwrap());
        self.fill(9 + length)?;
        let payload = self.received[9..9 + length].to_vec();
        self.received.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }

    fn fill(&mut self, length: usize) -> Option<()> {
        let mut buffer = [0; 64 * 1024];
        while self.received.len() < length {
            match self.wire.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
                {
                    panic!("the server hangs")
                }
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Reads up to the first frame for which `wanted` is true; `None` if the connection ends
    /// before.
    pub fn find(&mut self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.receive()?;
            if wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// The body of a stream's response up to its end.
    ///
    /// # Errors
    /// The code it was reset with; `None`: the connection has ended.
    pub fn body(&mut self, stream: u32) -> Result<Vec<u8>, Option<u32>> {
        let mut body = Vec::new();
        loop {
            let frame = self.find(|frame| frame.stream == stream).ok_or(None)?;
            match frame.kind {
                RST_STREAM => return Err(Some(frame.code())),
                DATA => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if frame.ends() {
                return Ok(body);
            }
        }
    }

    /// Reads up to the end of the connection. The code of its GOAWAY, if one came.
    pub fn end(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some(frame) = self.receive() {
            if frame.kind == GOAWAY {
                code = Some(frame.code());
            }
        }
        code
    }
}
