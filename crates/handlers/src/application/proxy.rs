//! Applications that speak HTTP, SCGI, uwsgi or AJP: sends a request to one, and its response to
//! the client (`docs/gateway.md`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, Version};
use sendoff_application_request::public_urls::make_public;
use sendoff_application_response::beginning::{NoAnswer, ResponseStart};
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::failure::ApplicationFailure;
use sendoff_application_response::fields::is_for_server;
use sendoff_application_response::host_cookie;
use sendoff_exchange::sink::{Sink, unless_gone};
use sendoff_grpc::{WebCall, WebResponse};
use sendoff_message::Cut;
use sendoff_message::request::Request;
use sendoff_message::response::{CgiHead, ResponseHead};
use sendoff_report::at_work::Phase;
use sendoff_upstream::error::{Retry, UpstreamError, UpstreamErrorKind};
use sendoff_upstream::hosts::{AttemptGuard, Tried};
use sendoff_upstream_gateway::{
    Gateway, GatewayExchange, GatewayHost, GatewayMessage, GatewayReuse, GatewayTimeLimits,
    GatewayTunnel,
};

use crate::application::read_start;
use crate::application::retry::{is_repeatable, log_retry};
use crate::application::script::Call;
use crate::context::Context;
use crate::outcome::Outcome;

/// The application to which a route passes a request, and the matched prefix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProxyTarget {
    /// The number of the application within the site.
    pub(crate) application: usize,
    /// Bytes of the path that the route's `prefix` has matched.
    pub(crate) prefix: usize,
}

/// Answers a request with an application's response.
///
/// # Errors
/// The client has gone, or its response was cut short after it had begun.
pub(crate) async fn respond(
    context: &Context<'_>,
    proxied: ProxyTarget,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let gateway = &context.services.gateways[context.site.number][proxied.application];
    let Some(web) = WebCall::of(context.request, gateway.proxy()) else {
        return answer(context, gateway, proxied, sink).await;
    };
    let Ok(request) = web.as_grpc(context.request) else {
        let why = "a call of gRPC-Web whose body is no text in base64, or too large";
        let failure = ApplicationFailure::new(StatusCode::BAD_REQUEST, why);
        return Call::new(*context).fail(failure, false, sink).await;
    };
    let context = Context { request: &request, ..*context };
    let mut sink = WebResponse::new(sink, web);
    // On the heap, because few requests are such calls.
    Box::pin(answer(&context, gateway, proxied, &mut sink)).await
}

async fn answer(
    context: &Context<'_>,
    gateway: &Arc<Gateway>,
    proxied: ProxyTarget,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let call = Call::new(*context);
    let failure = match message(context, gateway, proxied, sink) {
        Ok(message) => match ask(&call, gateway, &message, sink).await? {
            Ok((exchange, answer)) => {
                let notes = sink.client().notes();
                notes.note_phase(Phase::Sending);
                notes.upstream = Some(exchange.who());
                return pass_on(&call, gateway, proxied.prefix, exchange, answer, sink).await;
            }
            Err(failure) => failure,
        },
        Err(failure) => failure.of(&gateway.name()),
    };
    call.fail(failure, false, sink).await
}

/// The request in the form for the application.
pub(crate) fn message(
    context: &Context<'_>,
    gateway: &Gateway,
    proxied: ProxyTarget,
    sink: &mut dyn Sink,
) -> Result<GatewayMessage, ApplicationFailure> {
    let may_switch = may_switch(context.request, sink);
    let message = context.for_hosts(gateway.hosts(), |asked| {
        sendoff_application_request::message(asked, gateway.proxy(), proxied.prefix, may_switch)
    })?;
    Ok(message)
}

/// Sends the request to one host after the other, until one of them answers.
///
/// # Errors
/// The client has gone.
pub(crate) async fn ask(
    call: &Call<'_>,
    gateway: &Arc<Gateway>,
    message: &GatewayMessage,
    sink: &mut dyn Sink,
) -> Result<Result<(UpstreamExchange, ResponseStart), ApplicationFailure>, Cut> {
    let is_repeatable = is_repeatable(call.context.request);
    let mut tried = Tried::none(call.context.request, gateway.hosts());
    loop {
        sink.client().notes().note_phase(Phase::Waiting);
        let attempt = match unless_gone(sink, gateway.hosts().choose(&mut tried)).await? {
            Ok(attempt) => attempt,
            Err(why) => return Ok(Err(ApplicationFailure::from(why).of(&gateway.name()))),
        };
        let who = || gateway.name_of(attempt.host());
        let why = match ask_host(&call.context, gateway, attempt.host(), message, sink).await? {
            Ok((mut exchange, answer)) => {
                attempt.answered();
                if let UpstreamExchange::Gateway(exchange) = &mut exchange {
                    exchange.hold(attempt);
                }
                return Ok(Ok((exchange, answer)));
            }
            Err(NoAnswer::Failed(failure)) => {
                let (kind, why) = (UpstreamErrorKind::Broken, failure.why.clone());
                let failure = failure.of(&who());
                attempt.failed(&UpstreamError::new(kind, Retry::Unsafe, why));
                return Ok(Err(failure));
            }
            Err(NoAnswer::Silent(why)) => why,
        };
        attempt.failed(&why);
        let may_try_another = tried.may_try_another(&why, is_repeatable, gateway.hosts());
        if !may_try_another || call.context.request.body.is_spent() {
            return Ok(Err(ApplicationFailure::from(why).of(&who())));
        }
        log_retry(attempt.host().address(), call.log_name(), &why);
    }
}

/// Asks one host. Repeats the request over a new connection if the host closed the kept one
/// meanwhile and the request is repeatable or did not arrive.
async fn ask_host(
    context: &Context<'_>,
    gateway: &Arc<Gateway>,
    host: &Arc<GatewayHost>,
    message: &GatewayMessage,
    sink: &mut dyn Sink,
) -> Result<Result<(UpstreamExchange, ResponseStart), NoAnswer>, Cut> {
    let is_repeatable = is_repeatable(context.request);
    let mut reuse = if is_repeatable { GatewayReuse::Kept } else { GatewayReuse::Fresh };
    let patience = patience(context, gateway);
    loop {
        let client = Some(context.request);
        let begun = GatewayExchange::begin(gateway, host, message, client, reuse, patience);
        let exchange = match unless_gone(sink, begun).await? {
            Ok(exchange) => exchange,
            Err(why) => return Ok(Err(NoAnswer::Silent(why))),
        };
        sink.client().notes().note_phase(Phase::Running);
        let is_kept = exchange.is_kept();
        let exchange = UpstreamExchange::Gateway(exchange);
        let no_answer = match read_start(&exchange, context, sink).await? {
            Ok(answer) => return Ok(Ok((exchange, answer))),
            Err(no_answer) => no_answer,
        };
        let is_lost = matches!(&no_answer, NoAnswer::Silent(why)
            if why.kind() == UpstreamErrorKind::Died
                && (is_repeatable || why.retry() == Retry::Safe));
        if !is_lost || !is_kept || context.request.body.is_spent() {
            return Ok(Err(no_answer));
        }
        reuse = GatewayReuse::New;
    }
}

/// The application's time limits. A route's `request_timeout` replaces the application's own limits
/// of silence; 0 means no limit.
fn patience(context: &Context<'_>, gateway: &Gateway) -> GatewayTimeLimits {
    let timeouts = &gateway.proxy().timeouts;
    let of_route = context.effects.settings.request_timeout;
    let limit = |own: Duration| match of_route {
        Some(Duration::ZERO) => None,
        Some(limit) => Some(limit),
        None => Some(own),
    };
    GatewayTimeLimits {
        first_byte: limit(timeouts.first_byte),
        silence: limit(timeouts.silence),
        total: timeouts.total,
    }
}

async fn pass_on(
    call: &Call<'_>,
    gateway: &Gateway,
    prefix: usize,
    exchange: UpstreamExchange,
    answer: ResponseStart,
    sink: &mut dyn Sink,
) -> Result<Outcome, Cut> {
    let make_public = |head: &mut CgiHead| {
        make_public(call.context.request, gateway.proxy(), prefix, &mut head.fields);
    };
    match (answer, exchange) {
        (ResponseStart::Head(mut begun), exchange) => {
            make_public(&mut begun.head);
            call.pass_on(exchange, begun, sink).await
        }
        (ResponseStart::Switch(mut head), UpstreamExchange::Gateway(exchange)) => {
            make_public(&mut head);
            exchange.attempt().into_iter().for_each(|host| host.tag_cookie(&mut head.fields));
            let cookie = exchange.attempt().and_then(AttemptGuard::new_cookie);
            let cookie =
                cookie.map(|cookie| host_cookie::set_cookie(&cookie, call.context.request));
            let limit = gateway.proxy().timeouts.tunnel;
            switch(*exchange, SwitchedHead { head, cookie }, limit)
        }
        // Only workers are lent the client's socket, or sent a connection.
        (ResponseStart::Sent(_) | ResponseStart::Tunnel | ResponseStart::Switch(_), _) => {
            Ok(Outcome::refused(StatusCode::BAD_GATEWAY, []))
        }
    }
}

/// True if the client's connection could carry another protocol after a response to this request.
pub(crate) fn may_switch(request: &Request, sink: &mut dyn Sink) -> bool {
    request.version >= Version::HTTP_11
        && request.method == Method::GET
        && request.body.is_empty()
        && sink.client().may_switch()
}

/// The change of the client's connection to the application's protocol. `limit`: the longest time
/// without a byte.
///
/// # Errors
/// The application's connection has ended.
pub(crate) fn switch(
    exchange: GatewayExchange,
    head: SwitchedHead,
    limit: Duration,
) -> Result<Outcome, Cut> {
    let Some(tunnel) = exchange.into_tunnel(limit) else {
        return Err(Cut::application("a connection that has ended changed its protocol"));
    };
    Ok(Outcome::Switched(Box::new(Switched { head: head.for_client(), tunnel })))
}

/// A change of protocol, to which the application has agreed.
pub(crate) struct Switched {
    /// The head for the client.
    pub(crate) head: ResponseHead,
    pub(crate) tunnel: GatewayTunnel,
}

/// The head of a response that changes the protocol.
pub(crate) struct SwitchedHead {
    /// The application's head.
    pub(crate) head: CgiHead,
    /// The value of the cookie that binds the client to the host.
    pub(crate) cookie: Option<Bytes>,
}

impl SwitchedHead {
    /// The head that tells the client of the switch.
    fn for_client(self) -> ResponseHead {
        let mut head = ResponseHead::of(self.head);
        head.fields.retain(|field| !is_for_server(field.name()));
        head.field("Connection", "Upgrade");
        if let Some(cookie) = self.cookie {
            head.field("Set-Cookie", cookie);
        }
        head
    }
}
