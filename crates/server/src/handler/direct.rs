//! Responses that workers write to the client themselves (`docs/handover.md` §7): when they may, and what follows.

use bytes::Bytes;
use http::StatusCode;
use sendoff_config::Direct;
use sendoff_fastcgi::direct::{self, Sent};

use super::relay::{self, Body};
use super::services::Services;
use crate::cut::Cut;
use crate::filter;
use crate::responder::{Responder, Terms};
use crate::site::router::Script;
use crate::upstream::{Exchange, RequestMessageBuilder};

/// What became of the question whether the worker writes a response to the client itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    /// It could not be asked: the protocol, the client or a setting forbids it.
    Impossible,
    /// The front keeps the response: that promises to be quicker, or is being measured.
    Kept,
    /// The client's socket goes along with the request.
    Made,
}

/// Offers the client's socket to the worker that will get the request, if that promises to be of use.
pub(super) fn offer(
    services: &Services,
    script: &Script,
    responder: &mut dyn Responder,
    message: &mut RequestMessageBuilder,
) -> Offer {
    let Some(lender) = responder.lender().filter(|lender| lender.may_lend()) else {
        return Offer::Impossible;
    };
    let wanted = match services.site.delivery.direct() {
        Direct::Never => return Offer::Impossible,
        Direct::Auto => services.choice.offers(services.sizes.of(script)),
        Direct::Always => true,
    };
    if !wanted {
        return Offer::Kept;
    }
    let Some(Terms { http_10, keep_alive }) = lender.lend() else { return Offer::Impossible };
    let fields = filter::common_lines(&services.clock);
    message.lend(direct::Client { http_10, keep_alive, fields: &fields });
    Offer::Made
}

/// Goes on with a response that a worker has begun, as a rule to its end.
///
/// # Errors
/// The client is gone, or its response was cut short.
pub(super) async fn take_over(
    services: &Services,
    responder: &mut dyn Responder,
    exchange: Exchange,
    sent: Sent,
) -> Result<(), Cut> {
    let broken = |exchange: &Exchange, why: &str| {
        exchange.give_up(why);
        Err(Cut::application(format!("{}: {why}", exchange.who())))
    };
    let Ok(status) = StatusCode::from_u16(sent.status) else {
        return broken(&exchange, "it wrote a head with an impossible status");
    };
    if sent.gone {
        // So that the access log knows what the client has got. A head that is not whole counts as nothing.
        let _resumed = responder.lender().map(|lender| lender.resume(status, &sent));
        return Err(Cut::client_gone());
    }
    let Some(lender) = responder.lender() else {
        return broken(&exchange, "it wrote to a client whose socket it was not lent");
    };
    if let Err(lie) = lender.resume(status, &sent) {
        return broken(&exchange, &lie.to_string());
    }
    let body = Body { rest: Bytes::new(), surplus: sent.surplus, zero_copy: None };
    relay::pass_body(services, responder, exchange, body).await
}
