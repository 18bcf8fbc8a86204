//! WebSockets on streams (RFC 8441): their requests and responses.

use bytes::Bytes;
use h2::ext::Protocol;
use http::header::{CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE};
use http::{HeaderMap, Method, Request, StatusCode};
use sendoff_http1::{CgiHead, Field};
use sendoff_upstream::error::UpstreamError;

use crate::fields;

const WEBSOCKET: &str = "websocket";

/// The offer of a client to change to WebSocket.
#[derive(Debug)]
pub struct WebSocketOffer {
    /// The request in the form of RFC 8441.
    pub(crate) head: Request<()>,
    /// The answer to the client's key; `None`: it has sent none.
    answer: Option<Bytes>,
}

impl WebSocketOffer {
    /// The offer in a request with this head. `answer`: the value of `Sec-WebSocket-Accept` that the
    /// client awaits, if it has sent a key.
    #[must_use]
    pub fn new(head: &Request<()>, answer: Option<Bytes>) -> Self {
        let mut head = head.clone();
        *head.method_mut() = Method::CONNECT;
        head.headers_mut().remove(SEC_WEBSOCKET_KEY);
        head.extensions_mut().insert(Protocol::from_static(WEBSOCKET));
        Self { head, answer }
    }

    /// The head of a success in the form of HTTP/1.1, which has a status for it and repeats the
    /// protocol.
    pub(crate) fn accepted(&self, mut response: HeaderMap) -> Result<CgiHead, UpstreamError> {
        response.remove(CONTENT_LENGTH);
        response.remove(SEC_WEBSOCKET_ACCEPT);
        let mut head = fields::head(StatusCode::OK, &response)?;
        head.status = StatusCode::SWITCHING_PROTOCOLS;
        let mut add = |name: &'static str, value| {
            head.fields.push(Field::Own(Bytes::from_static(name.as_bytes()), value));
        };
        add(UPGRADE.as_str(), Bytes::from_static(WEBSOCKET.as_bytes()));
        self.answer.iter().for_each(|answer| add("sec-websocket-accept", answer.clone()));
        Ok(head)
    }
}
