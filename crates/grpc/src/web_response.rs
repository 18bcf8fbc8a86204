//! Responses to calls of gRPC-Web: trailers become a message of the body.

use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes};
use http::HeaderMap;
use sendoff_delivery::Progress;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::client::Client;
use sendoff_exchange::sink::{Fit, Room, Sink};
use sendoff_message::Cut;
use sendoff_message::response::{ResponseEnd, ResponseHead, Trailers};

use crate::WebCall;

/// The mark of a message that holds the trailers.
const TRAILERS: u8 = 0x80;

/// A filter that gives a response of gRPC the form for browsers, and passes every other one on.
pub struct WebResponse<'s> {
    next: &'s mut dyn Sink,
    call: WebCall,
    /// The response is one of gRPC.
    is_grpc: bool,
}

impl<'s> WebResponse<'s> {
    /// The response to this call.
    pub fn new(next: &'s mut dyn Sink, call: WebCall) -> Self {
        next.client().withhold_socket();
        Self { next, call, is_grpc: false }
    }
}

impl Sink for WebResponse<'_> {
    fn interim(&mut self, head: ResponseHead) -> Result<(), Cut> {
        self.next.interim(head)
    }

    fn begin(&mut self, mut head: ResponseHead) -> Result<(), Cut> {
        let new = head.value("Content-Type").and_then(|old| self.call.media_type(old));
        if let Some(new) = new {
            self.is_grpc = true;
            let fields = head.fields.iter_mut().filter(|field| field.is("Content-Type"));
            fields.for_each(|field| field.set_value(new.clone()));
            // The trailers make the body longer.
            head.length = None;
        }
        self.next.begin(head)
    }

    fn push(&mut self, segment: Segment) -> Result<Fit, Cut> {
        if !(self.is_grpc && self.call.is_text()) {
            return self.next.push(segment);
        }
        let Segment::Bytes(bytes) = segment else {
            return Err(Cut::application("a response of gRPC that names a file"));
        };
        self.next.push(Segment::Bytes(STANDARD.encode(bytes).into()))
    }

    fn trailers(&mut self, trailers: Trailers) -> Result<(), Cut> {
        if !self.is_grpc {
            return self.next.trailers(trailers);
        }
        self.push(Segment::Bytes(message(trailers.fields()))).map(drop)
    }

    fn end(&mut self, ending: ResponseEnd) -> Result<u64, Cut> {
        self.next.end(ending)
    }

    fn room(&self) -> Room {
        self.next.room()
    }

    fn send_now(&mut self) -> Result<Progress, Cut> {
        self.next.send_now()
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.next.poll_writable(cx)
    }

    fn client(&mut self) -> &mut dyn Client {
        self.next.client()
    }
}

/// The trailers as a message.
fn message(fields: &HeaderMap) -> Bytes {
    let mut text = Vec::new();
    for (name, value) in fields {
        text.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    let mut message = Vec::with_capacity(5 + text.len());
    message.put_u8(TRAILERS);
    // A section of trailers has at most some tens of kilobytes.
    message.put_u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
    message.extend(text);
    message.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_become_a_message() {
        let fields = [("grpc-status", "0"), ("x-a", "b")]
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let message = message(&HeaderMap::from_iter(fields));
        assert_eq!(message, &b"\x80\0\0\0\x18grpc-status: 0\r\nx-a: b\r\n"[..]);
    }
}
