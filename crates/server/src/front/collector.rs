//! Requests to the collector of traces (OTLP/HTTP, in JSON).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use sendoff_config::{ProxyAddress, Traces};
use sendoff_delivery::segment::Segment;
use sendoff_http1::CgiHead;
use sendoff_http1::client::{LineEnds, RequestEncoder};
use sendoff_message::request::Body;
use sendoff_report::seldom::Seldom;
use sendoff_traces::{Resource, Span, Value, encode, rejected};
use sendoff_upstream::error::{UpstreamError, UpstreamErrorKind};
use sendoff_upstream::inbox::Event;
use sendoff_upstream_gateway::{
    Gateway, GatewayExchange, GatewayMessage, GatewayRequest, GatewayReuse, GatewayTimeLimits,
    RequestProtocol, tend_gateways,
};

use super::generation::Tasks;

/// The most bytes of a response that are read: it is empty, or has a sentence.
const MAX_RESPONSE: usize = 64 * 1024;

/// The reason why the collector has not taken spans.
#[derive(Debug)]
pub(super) enum Refusal {
    /// They may be sent again, after this time if the collector says so.
    Later { why: String, after: Option<Duration> },
    /// The collector does not want them.
    Final(String),
}

impl Refusal {
    /// There is no time left.
    pub(super) fn late() -> Self {
        Self::Later { why: "it has not answered before the end".to_owned(), after: None }
    }

    /// The pause that the collector asks for.
    pub(super) fn after(&self) -> Option<Duration> {
        match self {
            Self::Later { after, .. } => *after,
            Self::Final(_) => None,
        }
    }

    pub(super) fn why(&self) -> &str {
        match self {
            Self::Later { why, .. } | Self::Final(why) => why,
        }
    }
}

impl From<UpstreamError> for Refusal {
    fn from(error: UpstreamError) -> Self {
        Self::Later { why: error.to_string(), after: None }
    }
}

/// The collector of a configuration. It belongs to one runtime.
pub(super) struct Collector {
    traces: Traces,
    gateway: Arc<Gateway>,
    resource: Resource,
    _tasks: Tasks,
}

impl Collector {
    /// Makes no connection yet.
    pub(super) fn new(traces: Traces) -> Self {
        let gateway = Gateway::new(traces.collector.clone(), None);
        let tasks = Tasks(tend_gateways(vec![Arc::clone(&gateway)]));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let attributes = vec![
            ("service.name", Value::Text(traces.service_name.clone())),
            ("host.name", Value::Text(host)),
            ("process.pid", Value::Number(std::process::id().into())),
        ];
        let resource = Resource { attributes, version: env!("CARGO_PKG_VERSION") };
        Self { traces, gateway, resource, _tasks: tasks }
    }

    /// The settings.
    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// The name for the log.
    pub(super) fn name(&self) -> &str {
        self.gateway.name()
    }

    /// Sends spans. Returns the number of them that the collector has rejected.
    pub(super) async fn send(&self, spans: &[Span]) -> Result<usize, Refusal> {
        static SAID: Seldom = Seldom::new();
        let message = GatewayMessage::Bytes(Rc::new(self.request(spans)?));
        let answer = match self.ask(&message, GatewayReuse::Kept).await {
            // The collector has closed the kept connection meanwhile.
            Err((error, true)) if error.kind() == UpstreamErrorKind::Died => {
                self.ask(&message, GatewayReuse::New).await
            }
            answer => answer,
        };
        let (head, body) = answer.map_err(|(error, _)| error)?;
        match head.status {
            status if status.is_success() => match rejected(&body) {
                Some((count, why)) => {
                    if SAID.is_due() {
                        let collector = self.name();
                        tracing::warn!(collector, "it has rejected {count} spans: {why}");
                    }
                    Ok(count)
                }
                None => Ok(0),
            },
            // The statuses after which OTLP allows another try.
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                let after = head.values(b"retry-after").next();
                let after = after.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
                let why = format!("it answered with {}", head.status);
                Err(Refusal::Later { why, after: after.map(Duration::from_secs) })
            }
            status => Err(Refusal::Final(format!("it answered with {status}"))),
        }
    }

    /// The request with these spans.
    fn request(&self, spans: &[Span]) -> Result<GatewayRequest, Refusal> {
        let body = Bytes::from(encode(&self.resource, spans));
        let mut out = BytesMut::with_capacity(512);
        let invalid = |what: &str| Refusal::Final(format!("its {what} cannot be sent in HTTP/1.1"));
        let mut head = RequestEncoder::new(&mut out, &Method::POST, self.traces.target.as_bytes())
            .map_err(|_| invalid("path"))?;
        let host = match &self.traces.collector.address {
            ProxyAddress::Tcp(host_port) => host_port.as_bytes(),
            ProxyAddress::Unix(_) | ProxyAddress::Upstream(_) => b"localhost",
        };
        let length = body.len().to_string();
        let own: [(&[u8], &[u8]); 4] = [
            (b"host", host),
            (b"content-type", b"application/json"),
            (b"content-length", length.as_bytes()),
            (b"user-agent", concat!("Sendoff/", env!("CARGO_PKG_VERSION")).as_bytes()),
        ];
        let others = self.traces.headers.iter();
        let others = others.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        for (name, value) in own.into_iter().chain(others) {
            head.field(name, value).map_err(|_| invalid("field"))?;
        }
        head.finish();
        let line_ends = LineEnds::CrLf;
        let protocol = RequestProtocol::Http { upgrade: false, key: None, line_ends };
        let body = Body::Memory(body);
        Ok(GatewayRequest { head: out.freeze(), body, is_head: false, protocol })
    }

    /// Sends a request, and reads the response. An error comes with true if the connection had been
    /// kept.
    async fn ask(
        &self,
        message: &GatewayMessage,
        reuse: GatewayReuse,
    ) -> Result<(CgiHead, Vec<u8>), (UpstreamError, bool)> {
        let timeouts = &self.traces.collector.timeouts;
        let limits = GatewayTimeLimits {
            first_byte: Some(timeouts.first_byte),
            silence: Some(timeouts.silence),
            total: timeouts.total,
        };
        let none = || (UpstreamError::broken("it has no host"), false);
        let host = self.gateway.hosts().all().into_iter().next().ok_or_else(none)?;
        let begun =
            GatewayExchange::begin(&self.gateway, &host, message, None, reuse, limits).await;
        let exchange = begun.map_err(|error| (error, false))?;
        let (mut head, mut body) = (None, Vec::new());
        loop {
            match exchange.next().await {
                Event::Head(received) if received.status.is_informational() => {}
                Event::Head(received) => head = Some(received),
                Event::Segment(Segment::Bytes(bytes)) if body.len() < MAX_RESPONSE => {
                    body.extend_from_slice(&bytes);
                }
                Event::Failed(error) => return Err((error, exchange.is_kept())),
                Event::Trailers(_) => {}
                _ => break,
            }
        }
        let broken = || (UpstreamError::broken("its response has no head"), false);
        head.map(|head| (head, body)).ok_or_else(broken)
    }
}
