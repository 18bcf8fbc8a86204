//! Sends a request: the I/O for `request.rs`.

use std::rc::Rc;
use std::task::{Context, Poll};

use sendoff_upstream::error::UpstreamError;

use super::request::{GatewayRequest, Outgoing};
use super::stream::Stream;

/// A request that is being sent over one connection.
#[derive(Debug)]
pub(super) struct RequestSender {
    outgoing: Outgoing,
    state: SendState,
    /// Bytes of the request that were written.
    written: u64,
}

/// ```text
///            bytes are written            flushed
///  Flushed ────────────────────▶ Buffered ────────▶ Flushed
///     └───────────────┬─────────────┘
///                     └─ the connection fails ──▶ Deaf
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendState {
    /// The socket has all written bytes.
    Flushed,
    /// Written bytes may wait in the TLS session.
    Buffered,
    /// The application reads no more of the request. It may still have answered.
    Deaf,
}

impl RequestSender {
    pub(super) fn new(request: Rc<GatewayRequest>) -> Result<Self, UpstreamError> {
        let outgoing = Outgoing::new(request)?;
        Ok(Self { outgoing, state: SendState::Flushed, written: 0 })
    }

    /// Sends as much as the connection takes. Returns true if any byte was sent.
    pub(super) fn poll(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Result<bool, UpstreamError> {
        let written = self.written;
        while self.state != SendState::Deaf {
            self.outgoing.poll_more(cx)?;
            if self.outgoing.bytes().is_empty() {
                break;
            }
            match stream.poll_write(cx, self.outgoing.bytes()) {
                Poll::Ready(Ok(n)) => {
                    self.state = SendState::Buffered;
                    self.written += n as u64;
                    self.outgoing.advance(n)?;
                }
                Poll::Ready(Err(_)) => self.deafen(),
                Poll::Pending => break,
            }
        }
        if self.state == SendState::Buffered {
            match stream.poll_flush(cx) {
                Poll::Ready(Ok(())) => self.state = SendState::Flushed,
                Poll::Ready(Err(_)) => self.deafen(),
                Poll::Pending => {}
            }
        }
        Ok(self.written > written)
    }

    fn deafen(&mut self) {
        self.state = SendState::Deaf;
        self.outgoing.give_up();
    }

    /// Notes that the application asks for this number of bytes (AJP).
    pub(super) fn wants(&mut self, bytes: u16) -> Result<(), UpstreamError> {
        self.outgoing.wants(bytes)
    }

    /// True if the sender waits for the client.
    pub(super) fn is_starved(&self) -> bool {
        self.outgoing.is_starved()
    }

    /// True if the socket has all of the request.
    pub(super) fn is_done(&self) -> bool {
        self.state == SendState::Flushed && self.outgoing.is_done()
    }

    /// Bytes of the request that were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use bytes::Bytes;
    use sendoff_message::request::{Body, BodyStream};
    use tokio::net::UnixStream;

    use super::*;
    use crate::protocol::RequestProtocol;
    use crate::stream::Plain;
    use sendoff_transport::foreign::ForeignSocket;

    /// A sender of this body, its connection, and the application's end.
    async fn sender(body: Body) -> (RequestSender, Stream, std::os::unix::net::UnixStream) {
        let request = GatewayRequest {
            head: Bytes::from_static(b"head"),
            body,
            is_head: false,
            protocol: RequestProtocol::Scgi,
        };
        let (own, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let own = UnixStream::from_std(own).unwrap();
        own.writable().await.unwrap();
        let sender = RequestSender::new(Rc::new(request)).unwrap();
        (sender, Stream::Plain(Plain::Unix(ForeignSocket::new(own))), peer)
    }

    #[tokio::test]
    async fn a_request_is_done_once_the_socket_has_all_of_it() {
        let body = Bytes::from(vec![b'x'; 1 << 20]);
        let (mut sender, mut stream, mut peer) = sender(Body::Memory(body.clone())).await;
        let reader = std::thread::spawn(move || {
            let mut read = vec![0; 4 + body.len()];
            peer.read_exact(&mut read).map(|()| read)
        });
        std::future::poll_fn(|cx| {
            sender.poll(&mut stream, cx).unwrap();
            if sender.is_done() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert_eq!((sender.state, sender.written()), (SendState::Flushed, 4 + (1 << 20)));
        assert!(reader.join().unwrap().unwrap().starts_with(b"headxx"));
    }

    #[tokio::test]
    async fn nothing_is_sent_to_an_application_that_reads_no_more() {
        let (writer, body) = BodyStream::new(Some(4));
        let (mut sender, mut stream, peer) = sender(Body::Stream(body)).await;
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        assert!(sender.poll(&mut stream, cx).unwrap() && sender.is_starved());
        drop(peer);
        for _ in 0..2 {
            writer.push(Bytes::from_static(b"ab"));
            assert!(!sender.poll(&mut stream, cx).unwrap());
            assert_eq!((sender.state, sender.written()), (SendState::Deaf, 4));
        }
        assert!(!sender.is_starved() && !sender.is_done());
    }
}
