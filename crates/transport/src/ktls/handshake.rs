//! A handshake whose keys can be handed over at its end. rustls' buffered connections cannot do
//! that without losing bytes that the client has sent ahead.

use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{Error, ServerConfig};

use super::super::failure::HandshakeFailure;
use super::super::{Tcp, Transport};

/// Most bytes of an incomplete handshake message. rustls takes messages of 64 KiB.
const MOST_INCOMPLETE: usize = 128 * 1024;

/// The size of one read, in bytes.
const READ: usize = 4096;

/// Outcome of a step of the handshake.
pub(super) enum HandshakeStep {
    Again,
    Send,
    Read,
    /// The handshake may have ended.
    Quiet,
}

/// A handshake without a socket.
pub(super) struct Handshake {
    pub(super) connection: UnbufferedServerConnection,
    /// Bytes of the client that rustls has not consumed yet.
    pub(super) incoming: BytesMut,
    /// Records for the client.
    pub(super) outgoing: Vec<u8>,
    /// Bytes of requests that came with the end of the handshake.
    pub(super) plain: BytesMut,
}

/// Completes a handshake. `incoming`: the client's bytes, from its first one.
pub(super) async fn complete(
    tcp: &mut Tcp,
    incoming: BytesMut,
    config: Arc<ServerConfig>,
) -> Result<Handshake, HandshakeFailure> {
    let mut handshake = Handshake::new(config, incoming)?;
    loop {
        match handshake.step() {
            Ok(HandshakeStep::Again) => {}
            Ok(HandshakeStep::Send) => handshake.send(tcp).await?,
            Ok(HandshakeStep::Read) => handshake.read(tcp).await?,
            // The server may have records to send before the client has finished its part.
            Ok(HandshakeStep::Quiet) if handshake.connection.is_handshaking() => {
                handshake.read(tcp).await?;
            }
            Ok(HandshakeStep::Quiet) => return Ok(handshake),
            Err(HandshakeFailure::Tls(error)) => {
                handshake.encode_alert();
                let _ = handshake.send(tcp).await;
                return Err(HandshakeFailure::Tls(error));
            }
            Err(failure) => return Err(failure),
        }
    }
}

impl Handshake {
    pub(super) fn new(
        config: Arc<ServerConfig>,
        incoming: BytesMut,
    ) -> Result<Self, HandshakeFailure> {
        let connection = UnbufferedServerConnection::new(config).map_err(HandshakeFailure::Tls)?;
        Ok(Self { connection, incoming, outgoing: Vec::new(), plain: BytesMut::new() })
    }

    pub(super) fn step(&mut self) -> Result<HandshakeStep, HandshakeFailure> {
        let Self { connection, incoming, outgoing, plain } = self;
        let UnbufferedStatus { mut discard, state } = connection.process_tls_records(incoming);
        let step = match state.map_err(HandshakeFailure::Tls)? {
            ConnectionState::EncodeTlsData(data) => {
                encode(data, outgoing)?;
                HandshakeStep::Again
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                HandshakeStep::Send
            }
            ConnectionState::BlockedHandshake => HandshakeStep::Read,
            ConnectionState::WriteTraffic(_) => HandshakeStep::Quiet,
            ConnectionState::ReadTraffic(mut records) => {
                while let Some(record) = records.next_record() {
                    let record = record.map_err(HandshakeFailure::Tls)?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
                HandshakeStep::Again
            }
            // Includes early data, which no ticket of this server allows.
            _ => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
        };
        incoming.advance(discard);
        Ok(step)
    }

    /// After an error rustls at most produces an alert.
    fn encode_alert(&mut self) {
        while let ConnectionState::EncodeTlsData(data) =
            match self.connection.process_tls_records(&mut []).state {
                Ok(state) => state,
                Err(_) => return,
            }
        {
            if encode(data, &mut self.outgoing).is_err() {
                return;
            }
        }
    }

    async fn send(&mut self, tcp: &mut Tcp) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.outgoing.len() {
            match tcp.try_send(&[IoSlice::new(&self.outgoing[sent..])], false) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll_fn(|cx| tcp.poll_writable(cx)).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        Ok(())
    }

    async fn read(&mut self, tcp: &mut Tcp) -> io::Result<()> {
        if self.incoming.len() >= MOST_INCOMPLETE {
            return Err(io::Error::new(ErrorKind::InvalidData, "a handshake without end"));
        }
        self.incoming.reserve(READ);
        match poll_fn(|cx| tcp.poll_read(cx, &mut self.incoming)).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn encode<Data>(
    mut data: EncodeTlsData<'_, Data>,
    outgoing: &mut Vec<u8>,
) -> Result<(), HandshakeFailure> {
    let at = outgoing.len();
    loop {
        match data.encode(&mut outgoing[at..]) {
            Ok(n) => {
                outgoing.truncate(at + n);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(size))
                if outgoing.len() - at < size.required_size =>
            {
                outgoing.resize(at + size.required_size, 0);
            }
            Err(error) => return Err(HandshakeFailure::Tls(Error::General(error.to_string()))),
        }
    }
}
