//! WebSocket and other protocols between clients and FastCGI applications: a connection goes along
//! with the request, on which the application answers in HTTP/1.1 (`docs/handover.md` §10).

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use http::Version;
use sendoff_application_response::beginning::{NoAnswer, ResponseStart};
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_exchange::sink::Sink;
use sendoff_http1::client::{HopByHop, LineEnds};
use sendoff_message::Cut;
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;
use sendoff_upstream_fastcgi::application::Application;
use sendoff_upstream_gateway::{GatewayExchange, GatewayTimeLimits, RequestProtocol, WebSocketKey};

use crate::application::proxy;
use crate::application::read_start;
use crate::context::Context;

/// The parameter for the field `Sec-WebSocket-Key`.
const KEY_PARAM: &[u8] = b"HTTP_SEC_WEBSOCKET_KEY";

/// A connection for the answer to one request. Only this process has the front's end, so an
/// application decides neither what the front sends its credentials to nor if a call blocks.
#[derive(Debug)]
pub(crate) struct TunnelOffer {
    front: UnixStream,
    application: UnixStream,
    key: Option<WebSocketKey>,
}

impl TunnelOffer {
    /// A connection for the application, if the client asks for another protocol and the application
    /// may know how to answer on it.
    pub(crate) fn make(
        context: &Context<'_>,
        application: &Application,
        sink: &mut dyn Sink,
        parameters: &mut RequestMessageBuilder,
    ) -> Option<Self> {
        let request = context.request;
        let is_asked = HopByHop::of(&request.headers).upgrade().is_some();
        let may_switch = is_asked && proxy::may_switch(request, sink);
        if !may_switch || !application.may_know_tunnel() || descriptors::level() >= Level::Scarce {
            return None;
        }
        let failed = |error: &_| {
            let request = request.shown();
            tracing::warn!(request, %error, "no connection can be made for a WebSocket");
        };
        let (front, theirs) = UnixStream::pair().inspect_err(failed).ok()?;
        // Clients of HTTP/2 and HTTP/3 send no key.
        let key = (request.version > Version::HTTP_11).then(WebSocketKey::random);
        if let Some(key) = &key {
            parameters.param(KEY_PARAM, key.as_bytes());
        }
        Some(Self { front, application: theirs, key })
    }

    /// The end of the connection that goes to the application.
    pub(crate) fn for_application(&self) -> BorrowedFd<'_> {
        self.application.as_fd()
    }

    /// Waits for the beginning of the answer on the connection. `exchange` is the request's, whose
    /// end is awaited in the background.
    ///
    /// # Errors
    /// The client has gone.
    pub(crate) async fn answer(
        self,
        context: &Context<'_>,
        exchange: UpstreamExchange,
        silence: Duration,
        sink: &mut dyn Sink,
    ) -> Result<Result<(UpstreamExchange, ResponseStart), NoAnswer>, Cut> {
        let Self { front, application, key } = self;
        // The application alone has this end now, so its death shows.
        drop(application);
        let who = exchange.who();
        exchange.drain();
        let patience = time_limits(context, silence);
        let protocol = RequestProtocol::Http { upgrade: true, key, line_ends: LineEnds::CrLf };
        let made = GatewayExchange::on_tunnel(front.into(), protocol, patience, who);
        let exchange = match made {
            Ok(exchange) => UpstreamExchange::Gateway(exchange),
            Err(why) => return Ok(Err(NoAnswer::Silent(why))),
        };
        let answer = read_start(&exchange, context, sink).await?;
        Ok(answer.map(|answer| (exchange, answer)))
    }
}

/// A route's `request_timeout` replaces the limit of the application; 0 means no limit.
fn time_limits(context: &Context<'_>, silence: Duration) -> GatewayTimeLimits {
    let silence = context.effects.settings.request_timeout.unwrap_or(silence);
    let silence = Some(silence).filter(|limit| !limit.is_zero());
    GatewayTimeLimits { first_byte: silence, silence, total: None }
}
