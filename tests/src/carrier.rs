//! The carrier of a client's requests: a byte stream of HTTP/1, or streams of HTTP/2 or HTTP/3.

use crate::multiplexed::{self, Multiplexed};
use crate::polled::Polled;
use crate::quic::{self, OverQuic};
use crate::secure::Wire;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The window of a stream, unless the receive buffer is smaller: the default of HTTP/2.
const WINDOW: usize = 65_535;

/// A client's connection.
pub(crate) enum Carrier {
    Bytes(Wire),
    Streams(Box<Multiplexed>),
    Quic(Box<OverQuic>),
}

impl Carrier {
    /// HTTP/2 or HTTP/3, if clients speak it to the peer's port ([`multiplexed::PORTS`],
    /// [`quic::PORTS`]). `receive_buffer` is the size of the socket's receive buffer in bytes, if the
    /// client has set it.
    pub(crate) fn new(stream: TcpStream, receive_buffer: Option<usize>) -> Self {
        let peer = stream.peer_addr().ok();
        let window = receive_buffer.map_or(WINDOW, |size| size.min(WINDOW));
        let window = u32::try_from(window).unwrap();
        if let Some(peer) = peer.filter(|peer| quic::PORTS.has(peer.port())) {
            return Self::Quic(Box::new(OverQuic::connect(peer, window)));
        }
        let is_http2 = peer.is_some_and(|peer| multiplexed::PORTS.has(peer.port()));
        let wire = Wire::new(stream, is_http2);
        if !is_http2 {
            return Self::Bytes(wire);
        }
        let scheme = if matches!(wire, Wire::Tls(_)) { "https" } else { "http" };
        Self::Streams(Box::new(Multiplexed::new(Polled::new(wire), scheme, window)))
    }

    /// The version of the responses, if it is not what they say.
    pub(crate) fn version(&self) -> Option<&'static str> {
        match self {
            Self::Bytes(_) => None,
            Self::Streams(_) => Some("HTTP/2"),
            Self::Quic(_) => Some("HTTP/3"),
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Bytes(Wire::Tls(_)))
    }

    /// True if the protocol tells a cut response from a complete one (TLS, HTTP/2, HTTP/3).
    pub(crate) fn tells_cuts(&self) -> bool {
        !matches!(self, Self::Bytes(Wire::Plain(_)))
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Bytes(wire) => wire.socket(),
            Self::Streams(streams) => streams.socket(),
            Self::Quic(streams) => streams.socket(),
        }
    }

    /// Sends bytes of requests.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Bytes(wire) => wire.write_all(bytes),
            Self::Streams(streams) => streams.write(bytes),
            Self::Quic(streams) => streams.write(bytes),
        }
    }

    /// Ends the sending direction.
    pub(crate) fn half_close(&mut self) {
        match self {
            Self::Bytes(wire) => wire.half_close().unwrap(),
            Self::Streams(streams) => streams.half_close(),
            Self::Quic(streams) => streams.half_close(),
        }
    }

    /// Reads; waits until something comes.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes(wire) => wire.read(buffer),
            Self::Streams(streams) => streams.read(buffer),
            Self::Quic(streams) => streams.read(buffer),
        }
    }

    /// Reads bytes that have arrived. Does not wait.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes(wire) => {
                wire.socket().set_nonblocking(true).unwrap();
                let read = wire.read(buffer);
                wire.socket().set_nonblocking(false).unwrap();
                read
            }
            Self::Streams(streams) => streams.read_now(buffer),
            Self::Quic(streams) => streams.read_now(buffer),
        }
    }

    /// True if nothing has arrived. Does not wait.
    pub(crate) fn is_silent(&mut self) -> bool {
        match self {
            Self::Bytes(wire) => {
                let socket = wire.socket();
                socket.set_nonblocking(true).unwrap();
                let peeked = socket.peek(&mut [0]);
                socket.set_nonblocking(false).unwrap();
                matches!(peeked, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Streams(streams) => streams.is_silent(),
            Self::Quic(streams) => streams.is_silent(),
        }
    }
}
