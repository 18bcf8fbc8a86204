//! Announcements to FastCGI applications: the applications that are told of the channel
//! (`docs/handover.md` §8), and the applications that use it.

use std::rc::Rc;

use bytes::Bytes;
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_fastcgi::channel::{CHANNEL_FIELD, CHANNEL_PARAM, FRONT_PARAM, SOFTWARE_START};
use sendoff_fastcgi::direct::ACCEPT_DIRECT;
use sendoff_fastcgi::handover::{
    ACCEPT_CHANNEL, ACCEPT_EXPLAIN, ACCEPT_PARAM, ACCEPT_REGION, ACCEPT_TUNNEL,
};
use sendoff_message::response::CgiHead;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;
use sendoff_upstream_fastcgi::application::Application;
use sendoff_upstream_worker::claims::Claim;

use crate::application::accept::words;
use crate::context::Context;

/// Ways of answering that depend on the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offered {
    /// The client's socket is lent.
    pub(crate) direct: bool,
    /// A connection for the answer goes along with the request.
    pub(crate) tunnel: bool,
    /// The response is to be explained.
    pub(crate) explained: bool,
}

/// Adds parameters that announce how an application may answer beyond FastCGI's own records,
/// limited to the ways that the application has said it knows. Returns the claim if the channel is
/// announced.
pub(crate) fn announce(
    context: &Context<'_>,
    application: &Application,
    offered: Offered,
    parameters: &mut RequestMessageBuilder,
) -> Option<Rc<Claim>> {
    let Offered { direct, tunnel, explained } = offered;
    let services = context.services;
    let region = context.site.delivery.accepts_regions() && application.knows_region();
    let knows_memory = direct || region;
    // TCP cannot pass descriptors.
    let may_ask = application.is_local() && !knows_memory;
    if services.channel.is_some() && may_ask && !is_front_by_software(context) {
        parameters.param(FRONT_PARAM, b"1");
    }
    let announced = announce_channel(context, application);
    let explains = explained && (knows_memory || announced.is_some());
    let words = words([
        direct.then_some(ACCEPT_DIRECT),
        region.then_some(ACCEPT_REGION),
        announced.is_some().then_some(ACCEPT_CHANNEL),
        tunnel.then_some(ACCEPT_TUNNEL),
        explains.then_some(ACCEPT_EXPLAIN),
    ]);
    if !words.is_empty() {
        parameters.param(ACCEPT_PARAM, &words);
    }
    let (announcement, claim) = announced?;
    parameters.param(CHANNEL_PARAM, &announcement);
    Some(claim)
}

/// The announcement of the channel and the claim that it contains, if the application knows the
/// channel.
fn announce_channel(
    context: &Context<'_>,
    application: &Application,
) -> Option<(Vec<u8>, Rc<Claim>)> {
    let services = context.services;
    let channel = services.channel.as_ref().filter(|_| application.knows_channel())?;
    let announced = channel.announce(&services.claims, services.number);
    let failed = |error: &_| {
        let request = context.request.shown();
        tracing::warn!(request, %error, "the channel could not be announced");
    };
    announced.inspect_err(failed).ok()
}

/// True if `SERVER_SOFTWARE` tells the application that its front knows the channel.
fn is_front_by_software(context: &Context<'_>) -> bool {
    let params = &context.effects.params;
    let own = params.iter().rev().find(|(name, _)| **name == *b"SERVER_SOFTWARE");
    let software = own.map_or(&context.site.software[..], |(_, value)| value);
    software.starts_with(SOFTWARE_START)
}

/// Notes from a response head if the application knows the channel: it has sent the field. If the
/// field holds the claim's secret, the body may come in frames.
pub(crate) fn look_for_frames(
    application: &Application,
    exchange: &mut UpstreamExchange,
    claim: Option<Rc<Claim>>,
    head: &CgiHead,
    rest: &mut Bytes,
) {
    let field = head.values(CHANNEL_FIELD).next();
    application.says_it_knows_channel(field.is_some());
    if let (Some(value), Some(claim), UpstreamExchange::Application(exchange)) =
        (field, claim, exchange)
        && *value == claim.secret().to_hex()
    {
        exchange.expect_frames(claim, std::mem::take(rest));
    }
}
