//! A request on its way to an application.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sendoff_message::request::{Arrived, Body, BodyReader};
use sendoff_upstream::body::piece;
use sendoff_upstream::error::UpstreamError;
use sendoff_upstream_http2::Http2Request;

use super::protocol::RequestProtocol;

/// The most bytes of one read of a body in a file.
const PIECE: usize = 64 * 1024;

/// A request to an application, in the form of its protocol.
#[derive(Debug, Clone)]
pub enum GatewayMessage {
    /// For a connection of its own.
    Bytes(Rc<GatewayRequest>),
    /// For a stream of HTTP/2.
    Http2(Rc<Http2Request>),
}

/// A request in the application's protocol. It may be sent again over another connection, unless
/// its body is still arriving.
#[derive(Debug)]
pub struct GatewayRequest {
    /// All bytes before the body.
    pub head: Bytes,
    /// The body.
    pub body: Body,
    /// True for HEAD: the response has no body, even if its head announces one.
    pub is_head: bool,
    /// The application's protocol.
    pub protocol: RequestProtocol,
}

/// The unsent part of a request.
#[derive(Debug)]
pub(super) struct Outgoing {
    request: Rc<GatewayRequest>,
    /// The next bytes to send.
    pending: Bytes,
    /// Offset of the rest of the body.
    at: u64,
    /// The number of bytes of the body that the application has asked for (AJP); `None`: it waits
    /// for no bytes.
    asked: Option<u16>,
    stream: ArrivingBody,
}

/// A body that is still arriving.
#[derive(Debug)]
enum ArrivingBody {
    /// The body is complete, in memory or in a file.
    None,
    Reading(BodyReader),
    /// All of it was read.
    Ended,
    /// The application reads no more of it.
    GivenUp,
}

impl Outgoing {
    /// A request before its first byte is sent.
    pub(super) fn new(request: Rc<GatewayRequest>) -> Result<Self, UpstreamError> {
        let pending = request.head.clone();
        let stream = match &request.body {
            Body::Stream(stream) => {
                ArrivingBody::Reading(stream.reader().ok_or_else(UpstreamError::spent_body)?)
            }
            Body::Memory(_) | Body::File { .. } => ArrivingBody::None,
        };
        // The first piece of a body is sent unasked.
        let asked = (!request.body.is_empty()).then_some(u16::MAX);
        let mut outgoing = Self { request, pending: Bytes::new(), at: 0, asked, stream };
        outgoing.refill()?;
        // Head and first piece are sent with one system call.
        outgoing.pending = match outgoing.pending.is_empty() {
            true => pending,
            false => [pending, outgoing.pending].concat().into(),
        };
        Ok(outgoing)
    }

    /// The next bytes to send; empty while there are none.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.pending
    }

    /// Notes that this number of bytes was sent.
    pub(super) fn advance(&mut self, n: usize) -> Result<(), UpstreamError> {
        drop(self.pending.split_to(n));
        if self.pending.is_empty() { self.refill() } else { Ok(()) }
    }

    /// Notes that the application asks for this number of bytes (AJP).
    pub(super) fn wants(&mut self, bytes: u16) -> Result<(), UpstreamError> {
        self.asked = Some(bytes);
        if self.pending.is_empty() { self.refill() } else { Ok(()) }
    }

    /// True if all of it was sent.
    pub(super) fn is_done(&self) -> bool {
        let is_read = match self.stream {
            ArrivingBody::None => self.at == self.request.body.len(),
            ArrivingBody::Ended => true,
            // A container does not ask for the end of a body whose length it knows.
            ArrivingBody::Reading(_) => self.request.body.known_len() == Some(self.at),
            ArrivingBody::GivenUp => false,
        };
        self.pending.is_empty() && is_read
    }

    /// True if the sender waits for the client.
    pub(super) fn is_starved(&self) -> bool {
        let is_wanted = match self.request.protocol {
            RequestProtocol::Ajp { .. } => self.asked.is_some(),
            RequestProtocol::Http { .. } | RequestProtocol::Scgi | RequestProtocol::Uwsgi => true,
        };
        self.pending.is_empty() && is_wanted && matches!(self.stream, ArrivingBody::Reading(_))
    }

    /// Takes the next bytes of a body that is still arriving; the task is woken when more arrive.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Result<(), UpstreamError> {
        if self.is_starved()
            && let ArrivingBody::Reading(reader) = &self.stream
            && let Poll::Ready(()) = reader.poll_arrived(cx)
        {
            self.refill()?;
        }
        Ok(())
    }

    /// Drops the rest of the body, because the application reads no more.
    pub(super) fn give_up(&mut self) {
        if let ArrivingBody::Reading(_) = self.stream {
            self.stream = ArrivingBody::GivenUp;
        }
    }

    fn refill(&mut self) -> Result<(), UpstreamError> {
        if let ArrivingBody::Reading(_) = self.stream {
            return self.refill_from_stream();
        }
        self.refill_from_store().map_err(|error| UpstreamError::unreadable_body(&error))
    }

    fn refill_from_stream(&mut self) -> Result<(), UpstreamError> {
        let ArrivingBody::Reading(reader) = &mut self.stream else { return Ok(()) };
        let most = match self.request.protocol {
            RequestProtocol::Http { .. } | RequestProtocol::Scgi | RequestProtocol::Uwsgi => PIECE,
            RequestProtocol::Ajp { packet_size } => match self.asked {
                Some(asked) => sendoff_ajp::piece_room(asked, packet_size),
                None => return Ok(()),
            },
        };
        let arrived = match reader.take(most) {
            Arrived::Nothing => return Ok(()),
            Arrived::Failed(status) => return Err(UpstreamError::of_body(status)),
            Arrived::Bytes(bytes) => bytes,
            Arrived::End => {
                self.stream = ArrivingBody::Ended;
                Bytes::new()
            }
        };
        self.at += arrived.len() as u64;
        self.pending = match self.request.protocol {
            RequestProtocol::Ajp { packet_size } => {
                let asked = self.asked.take().unwrap_or_default();
                sendoff_ajp::body_piece(&arrived, asked, packet_size).0
            }
            RequestProtocol::Http { .. } if self.request.body.known_len().is_none() => {
                chunk(&arrived)
            }
            RequestProtocol::Http { .. } | RequestProtocol::Scgi | RequestProtocol::Uwsgi => {
                arrived
            }
        };
        Ok(())
    }

    fn refill_from_store(&mut self) -> io::Result<()> {
        let RequestProtocol::Ajp { packet_size } = self.request.protocol else {
            self.pending = piece(&self.request.body, self.at, PIECE)?;
            self.at += self.pending.len() as u64;
            return Ok(());
        };
        let Some(asked) = self.asked.take() else { return Ok(()) };
        let next = piece(&self.request.body, self.at, packet_size)?;
        let (packet, taken) = sendoff_ajp::body_piece(&next, asked, packet_size);
        self.at += taken as u64;
        self.pending = packet;
        Ok(())
    }
}

/// A chunk of a body of unknown length; the last chunk if there are no bytes (RFC 9112 §7.1).
fn chunk(bytes: &Bytes) -> Bytes {
    match bytes.len() {
        0 => Bytes::from_static(b"0\r\n\r\n"),
        len => [format!("{len:x}\r\n").as_bytes(), bytes, b"\r\n"].concat().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use sendoff_upstream::error::UpstreamErrorKind;

    use super::*;

    fn in_file(bytes: &[u8]) -> Body {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Body::File { descriptor: Rc::new(file.into()), len: bytes.len() as u64 }
    }

    fn request(protocol: RequestProtocol, body: Body) -> Rc<GatewayRequest> {
        Rc::new(GatewayRequest {
            head: Bytes::from_static(b"head"),
            body,
            is_head: false,
            protocol,
        })
    }

    /// All bytes that are sent without being asked for, taken `step` bytes at a time.
    fn all(outgoing: &mut Outgoing, step: usize) -> Vec<u8> {
        let mut sent = Vec::new();
        while !outgoing.bytes().is_empty() {
            let n = outgoing.bytes().len().min(step);
            sent.extend_from_slice(&outgoing.bytes()[..n]);
            outgoing.advance(n).unwrap();
        }
        sent
    }

    #[test]
    fn a_body_follows_its_head_from_memory_or_from_a_file() {
        let bytes: Vec<u8> = (0..=250).cycle().take(PIECE * 2 + 5).collect();
        for body in [Body::Memory(bytes.clone().into()), in_file(&bytes)] {
            for step in [PIECE, 1000, usize::MAX] {
                let mut outgoing =
                    Outgoing::new(request(RequestProtocol::Scgi, body.clone())).unwrap();
                assert!(!outgoing.is_done());
                assert!(all(&mut outgoing, step) == [b"head", &bytes[..]].concat());
                assert!(outgoing.is_done());
            }
        }
    }

    #[test]
    fn a_body_follows_while_it_arrives() {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        for (len, expected) in [(Some(4), "abcd"), (None, "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n")] {
            let (writer, body) = sendoff_message::request::BodyStream::new(len);
            let protocol = RequestProtocol::Http {
                upgrade: false,
                key: None,
                line_ends: sendoff_http1::client::LineEnds::CrLf,
            };
            let message = request(protocol, Body::Stream(body));
            let mut outgoing = Outgoing::new(Rc::clone(&message)).unwrap();
            assert_eq!(all(&mut outgoing, 9), b"head");
            let mut sent = Vec::new();
            for piece in ["abc", "d"] {
                assert!(outgoing.is_starved() && !outgoing.is_done());
                writer.push(piece.into());
                outgoing.poll_more(cx).unwrap();
                sent.extend(all(&mut outgoing, 1));
            }
            writer.end(None);
            outgoing.poll_more(cx).unwrap();
            sent.extend(all(&mut outgoing, 9));
            assert_eq!(
                (String::from_utf8(sent).unwrap(), outgoing.is_done()),
                (expected.into(), true)
            );
            // No other connection can get the body.
            assert!(Outgoing::new(message).is_err());
        }
    }

    #[test]
    fn a_body_that_fails_ends_the_request() {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let (writer, body) = sendoff_message::request::BodyStream::new(Some(9));
        let mut outgoing =
            Outgoing::new(request(RequestProtocol::Scgi, Body::Stream(body))).unwrap();
        assert_eq!(all(&mut outgoing, 9), b"head");
        writer.fail(http::StatusCode::REQUEST_TIMEOUT);
        let error = outgoing.poll_more(cx).unwrap_err();
        let expected = UpstreamErrorKind::Request(http::StatusCode::REQUEST_TIMEOUT);
        assert_eq!(error.kind(), expected);
    }

    #[test]
    fn with_ajp_pieces_are_sent_when_they_are_asked_for() {
        let protocol = RequestProtocol::Ajp { packet_size: 8192 };
        let bytes = vec![b'x'; 10_000];
        let mut outgoing = Outgoing::new(request(protocol, in_file(&bytes))).unwrap();
        assert_eq!(all(&mut outgoing, 100).len(), 4 + 8192);
        assert!(!outgoing.is_done());
        for (asked, sent, done) in [(100, 106, false), (8186, 1714 + 6, true), (8186, 4, true)] {
            outgoing.wants(asked).unwrap();
            assert_eq!((all(&mut outgoing, 5000).len(), outgoing.is_done()), (sent, done));
        }
        let mut nothing = Outgoing::new(request(protocol, Body::default())).unwrap();
        assert_eq!(all(&mut nothing, 9), b"head");
    }
}
