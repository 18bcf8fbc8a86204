//! The check of a host by a request.

mod grpc;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use sendoff_config::{Address, GatewayProtocol, HostCheck, HttpCheck};
use sendoff_delivery::segment::Segment;
use sendoff_http1::client::{LineEnds, RequestEncoder};
use sendoff_message::request::Body;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::inbox::Event;
use sendoff_upstream_http2::{Connections, Http2Request, Http2Stream, RequestTrailers};
use tokio::time::timeout;

use super::exchange_io::ExchangeIo;
use super::host::Host;
use super::parser::GatewayResponseParser;
use super::protocol::{RequestProtocol, line_ends};
use super::request::GatewayRequest;
use super::sender::RequestSender;

/// The name of the server in checks.
const USER_AGENT: &str = "sendoff";

impl Host {
    /// Sends the request of a check over a connection of its own. The answer must come within the
    /// time limit for a connection, once the connection is made.
    ///
    /// # Errors
    /// The host cannot be reached, or does not answer as it should.
    pub(super) async fn check(&self, check: &HostCheck) -> Result<(), UpstreamError> {
        let mut exchange = self.begin_check(check).await?;
        let limit = self.proxy().timeouts.connect;
        let answer = async {
            match check {
                HostCheck::Http(check) => answer(check, &mut exchange).await,
                HostCheck::Grpc(check) => grpc::answer(check, &mut exchange).await,
            }
        };
        timeout(limit, answer).await.unwrap_or_else(|_| {
            Err(unfit(UpstreamErrorKind::Silent, format!("its check took longer than {limit:?}")))
        })
    }

    async fn begin_check(&self, check: &HostCheck) -> Result<CheckExchange, UpstreamError> {
        let GatewayProtocol::Http2 { tls, .. } = &self.proxy().protocol else {
            let stream = self.connect(None).await?;
            let line_ends = line_ends(self.proxy());
            let request = Rc::new(http1_request(check, self.address(), line_ends));
            let parser = GatewayResponseParser::new(&request);
            let sender = RequestSender::new(request)?;
            let exchange = ExchangeIo::new(stream, false, sender, parser);
            return Ok(CheckExchange::Http1(Box::new(exchange)));
        };
        let scheme = if tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let request = Rc::new(http2_request(check, self.address(), scheme));
        let own = Connections::default();
        let stream = own.begin(&request, async || self.connect(None).await).await?;
        Ok(CheckExchange::Http2(Box::new(stream)))
    }
}

/// A check under way.
enum CheckExchange {
    Http1(Box<ExchangeIo>),
    Http2(Box<Http2Stream>),
}

impl CheckExchange {
    async fn next(&mut self) -> Result<Event, UpstreamError> {
        loop {
            if let Some(event) = poll_fn(|cx| self.poll(cx)).await? {
                return Ok(event);
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, UpstreamError>> {
        match self {
            Self::Http1(exchange) => exchange.poll(None, cx),
            Self::Http2(stream) => stream.poll(cx),
        }
    }
}

/// The host of a request, which a check may name.
fn authority<'c>(named: Option<&'c str>, address: &'c Address) -> &'c str {
    named.unwrap_or(match address {
        Address::Tcp(host_port) => host_port,
        Address::Unix(_) | Address::Pool(_) | Address::Upstream(_) => "localhost",
    })
}

fn http1_request(check: &HostCheck, address: &Address, line_ends: LineEnds) -> GatewayRequest {
    let mut out = BytesMut::new();
    // Only a GET request is a check over HTTP/1.1; its path and host were checked when the
    // configuration was read.
    if let HostCheck::Http(check) = check
        && let Ok(mut head) = RequestEncoder::new(&mut out, &Method::GET, check.path.as_bytes())
    {
        for (name, value) in [
            ("host", authority(check.host.as_deref(), address)),
            ("user-agent", USER_AGENT),
            ("connection", "close"),
        ] {
            let _written = head.field(name.as_bytes(), value.as_bytes());
        }
        head.finish();
    }
    let protocol = RequestProtocol::Http { upgrade: false, key: None, line_ends };
    let body = Body::Memory(Bytes::new());
    GatewayRequest { head: out.freeze(), body, is_head: false, protocol }
}

fn http2_request(check: &HostCheck, address: &Address, scheme: Scheme) -> Http2Request {
    let (method, path, host, body) = match check {
        HostCheck::Http(check) => (Method::GET, &*check.path, &check.host, Bytes::new()),
        HostCheck::Grpc(check) => (Method::POST, grpc::PATH, &check.host, grpc::request(check)),
    };
    let mut head = Request::new(());
    *head.method_mut() = method;
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(scheme);
    uri.authority = authority(host.as_deref(), address).parse().ok();
    uri.path_and_query = Some(path.parse().unwrap_or(PathAndQuery::from_static("/")));
    if let Ok(uri) = Uri::from_parts(uri) {
        *head.uri_mut() = uri;
    }
    let fields = head.headers_mut();
    fields.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if let HostCheck::Grpc(_) = check {
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    Http2Request::new(head, Body::Memory(body), RequestTrailers::None)
}

/// Reads the answer as far as it matters.
async fn answer(check: &HttpCheck, exchange: &mut CheckExchange) -> Result<(), UpstreamError> {
    let mut body = Vec::new();
    loop {
        match exchange.next().await? {
            Event::Head(head) if head.status.is_informational() => {}
            Event::Head(head) => {
                expect_status(check, head.status)?;
                if check.body.is_none() {
                    return Ok(());
                }
            }
            Event::Segment(Segment::Bytes(bytes)) => {
                let room = HttpCheck::MAX_BODY - body.len();
                body.extend_from_slice(&bytes[..bytes.len().min(room)]);
                if has_text(check, &body) {
                    return Ok(());
                }
                if body.len() == HttpCheck::MAX_BODY {
                    return Err(lacks_text(check));
                }
            }
            Event::End(_) => {
                return if has_text(check, &body) { Ok(()) } else { Err(lacks_text(check)) };
            }
            _ => {}
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
