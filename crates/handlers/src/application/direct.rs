//! Responses that workers write to the client's socket themselves (`docs/handover.md` §7): the
//! offer of the socket, and the continuation of the response.

use bytes::Bytes;
use http::StatusCode;
use sendoff_application_response::exchange::UpstreamExchange;
use sendoff_application_response::relay::{self, BodyLength, RelayedBody};
use sendoff_config::LendPolicy;
use sendoff_exchange::client::{Lender, Terms};
use sendoff_exchange::sink::Sink;
use sendoff_fastcgi::direct::{self, Sent};
use sendoff_fastcgi::handover::Sockets;
use sendoff_message::Cut;
use sendoff_site_files::router::Script;
use sendoff_transport::descriptors;
use sendoff_transport::descriptors::Level;
use sendoff_upstream::fastcgi_request::RequestMessageBuilder;

use crate::context::Context;
use crate::head_rules;

/// The decision about offering the client's socket to the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LendOutcome {
    /// The protocol, the client, a setting or a shortage of descriptors forbids an offer.
    Impossible,
    /// An offer is possible, but sending by the front promises to be faster, or is being timed.
    Withheld,
    /// The client's socket goes along with the request.
    Lent,
}

/// Offers the client's socket to the worker or application that will get the request, if the
/// receiver `takes` such sockets, and the configuration or the measured times favour an offer.
pub(crate) fn offer(
    context: &Context<'_>,
    script: &Script,
    takes: Sockets,
    sink: &mut dyn Sink,
    message: &mut RequestMessageBuilder,
) -> LendOutcome {
    let party = context.services.sites.party(context.request.listener);
    let may_lend = |lender: &&mut dyn Lender| lender.may_lend(party.map(|party| &**party));
    let Some(lender) = sink.client().lender().filter(may_lend) else {
        return LendOutcome::Impossible;
    };
    let tls = context.request.tls.as_deref();
    let encrypted = tls.is_some_and(|tls| tls.by_kernel);
    let is_possible = encrypted == tls.is_some() && takes.include(encrypted);
    if descriptors::level() >= Level::Scarce || !is_possible {
        return LendOutcome::Impossible;
    }
    let wanted = match context.site.delivery.direct() {
        LendPolicy::Never => return LendOutcome::Impossible,
        LendPolicy::Auto => {
            let services = context.services;
            services.lending.of(context.request).offers(services.sizes.of(script))
        }
        LendPolicy::Always => true,
    };
    if !wanted {
        return LendOutcome::Withheld;
    }
    let Some(Terms { http_10, keep_alive }) = lender.lend(party) else {
        return LendOutcome::Impossible;
    };
    let fields = head_rules::common_lines(&context.services.clock);
    message.lend(direct::Client { http_10, keep_alive, encrypted, fields: &fields });
    LendOutcome::Lent
}

/// Continues a response that a worker has begun. Usually only its end is missing.
///
/// # Errors
/// The client has gone, or its response was cut short.
pub(crate) async fn take_over(
    context: &Context<'_>,
    sink: &mut dyn Sink,
    exchange: UpstreamExchange,
    sent: Sent,
) -> Result<(), Cut> {
    let broken = |exchange: &UpstreamExchange, why: &str| {
        exchange.give_up(why);
        Err(Cut::application(format!("{}: {why}", exchange.who())))
    };
    let Ok(status) = StatusCode::from_u16(sent.status) else {
        return broken(&exchange, "it wrote a head with an impossible status");
    };
    if sent.gone {
        // The access log needs the number of bytes that the client has got. An incomplete head
        // counts as nothing.
        let _resumed = sink.client().lender().map(|lender| lender.resume(status, &sent));
        return Err(Cut::client_gone());
    }
    let Some(lender) = sink.client().lender() else {
        return broken(&exchange, "it wrote to a client whose socket it was not lent");
    };
    if let Err(lie) = lender.resume(status, &sent) {
        return broken(&exchange, &lie.to_string());
    }
    let body = RelayedBody {
        rest: Bytes::new(),
        length: BodyLength::Open,
        surplus: sent.surplus,
        zero_copy: None,
        is_unbuffered: false,
        patience: &context.services.patience,
    };
    relay::pass_body(context.site, context.request, sink, exchange, body).await
}
