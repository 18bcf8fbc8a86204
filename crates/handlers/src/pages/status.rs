//! The status page of the server (`status_page = true` in a route).

use bytes::Bytes;
use http::StatusCode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::{Sink, unless_gone};
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_observe::status_page::{PAGE, POLICY, json};

use crate::context::Context;
use crate::outcome::Outcome;

/// The query of the request by which the page's script asks for the figures.
const FIGURES: &[u8] = b"json";

/// Answers with the page, or with the figures of all event loops.
pub(crate) async fn respond(context: &Context<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
    let services = context.services;
    let (kind, body) = if context.request.query.as_deref() == Some(FIGURES) {
        let Some(figures) = unless_gone(sink, services.gatherer.gather()).await? else {
            tracing::warn!("no figures for the status page: an event loop does not answer");
            return Ok(Outcome::refused(StatusCode::SERVICE_UNAVAILABLE, []));
        };
        let Ok(text) = json(&figures, &services.gatherer) else {
            return Ok(Outcome::refused(StatusCode::INTERNAL_SERVER_ERROR, []));
        };
        ("application/json", Bytes::from(text))
    } else {
        ("text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes()))
    };
    let mut head = ResponseHead::new(StatusCode::OK, Some(body.len() as u64));
    head.field("Content-Type", kind);
    head.field("Content-Security-Policy", Bytes::from_static(POLICY.as_bytes()));
    head.field("X-Content-Type-Options", Bytes::from_static(b"nosniff"));
    head.field("Referrer-Policy", Bytes::from_static(b"no-referrer"));
    head.field("Cache-Control", Bytes::from_static(b"no-store"));
    sink::respond(sink, head, [Segment::Bytes(body)]).await?;
    Ok(Outcome::Sent)
}
