//! The check of a host by a request of HTTP/1.1.

use std::future::poll_fn;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use sendoff_config::{Address, HttpCheck};
use sendoff_delivery::segment::Segment;
use sendoff_http1::client::RequestEncoder;
use sendoff_message::request::Body;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::inbox::Event;
use tokio::time::timeout;

use super::exchange_io::ExchangeIo;
use super::host::Host;
use super::parser::GatewayResponseParser;
use super::protocol::RequestProtocol;
use super::request::GatewayRequest;
use super::sender::RequestSender;

impl Host {
    /// Sends the request of a check over a connection of its own. The answer must come within the
    /// time limit for a connection, once the connection is made.
    ///
    /// # Errors
    /// The host cannot be reached, or does not answer as it should.
    pub(super) async fn check(&self, check: &HttpCheck) -> Result<(), UpstreamError> {
        let stream = self.connect_for_check().await?;
        let request = Rc::new(request(check, self.address()));
        let parser = GatewayResponseParser::new(&request);
        let mut exchange = ExchangeIo::new(stream, false, RequestSender::new(request)?, parser);
        let limit = self.proxy().timeouts.connect;
        timeout(limit, answer(check, &mut exchange)).await.unwrap_or_else(|_| {
            Err(unfit(UpstreamErrorKind::Silent, format!("its check took longer than {limit:?}")))
        })
    }
}

fn request(check: &HttpCheck, address: &Address) -> GatewayRequest {
    let mut out = BytesMut::new();
    // Path and host were checked when the configuration was read.
    if let Ok(mut head) = RequestEncoder::new(&mut out, &Method::GET, check.path.as_bytes()) {
        let own = match address {
            Address::Tcp(host_port) => host_port,
            Address::Unix(_) | Address::Pool(_) | Address::Upstream(_) => "localhost",
        };
        for (name, value) in [
            ("host", check.host.as_deref().unwrap_or(own)),
            ("user-agent", "sendoff"),
            ("connection", "close"),
        ] {
            let _written = head.field(name.as_bytes(), value.as_bytes());
        }
        head.finish();
    }
    let protocol = RequestProtocol::Http { upgrade: false, key: None };
    let body = Body::Memory(Bytes::new());
    GatewayRequest { head: out.freeze(), body, is_head: false, protocol }
}

/// Reads the answer as far as it matters.
async fn answer(check: &HttpCheck, exchange: &mut ExchangeIo) -> Result<(), UpstreamError> {
    let mut body = Vec::new();
    loop {
        match poll_fn(|cx| exchange.poll(None, cx)).await? {
            Some(Event::Head(head)) if head.status.is_informational() => {}
            Some(Event::Head(head)) => {
                expect_status(check, head.status)?;
                if check.body.is_none() {
                    return Ok(());
                }
            }
            Some(Event::Segment(Segment::Bytes(bytes))) => {
                let room = HttpCheck::MAX_BODY - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if has_text(check, &body) {
                    return Ok(());
                }
                if body.len() == HttpCheck::MAX_BODY {
                    return Err(lacks_text(check));
                }
            }
            Some(Event::End(_)) => {
                return if has_text(check, &body) { Ok(()) } else { Err(lacks_text(check)) };
            }
            Some(_) | None => {}
        }
    }
}

fn expect_status(check: &HttpCheck, status: StatusCode) -> Result<(), UpstreamError> {
    let is_expected = match check.status {
        Some(expected) => status.as_u16() == expected,
        None => status.is_success() || status.is_redirection(),
    };
    if is_expected {
        return Ok(());
    }
    let why = format!("its check {} was answered with {}", check.path, status.as_u16());
    Err(unfit(UpstreamErrorKind::Broken, why))
}

fn has_text(check: &HttpCheck, body: &[u8]) -> bool {
    let text = check.body.as_deref().unwrap_or_default().as_bytes();
    text.is_empty() || body.windows(text.len()).any(|part| part == text)
}

fn lacks_text(check: &HttpCheck) -> UpstreamError {
    let text = check.body.as_deref().unwrap_or_default();
    let why = format!("the answer to its check {} does not contain {text:?}", check.path);
    unfit(UpstreamErrorKind::Broken, why)
}

fn unfit(kind: UpstreamErrorKind, why: String) -> UpstreamError {
    UpstreamError::new(kind, Retry::Safe, why)
}
