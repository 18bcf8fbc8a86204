//! The metrics of the server (`metrics = true` in a route).

use bytes::Bytes;
use http::StatusCode;
use sendoff_delivery::segment::Segment;
use sendoff_exchange::sink;
use sendoff_exchange::sink::{Sink, unless_gone};
use sendoff_message::Cut;
use sendoff_message::response::ResponseHead;
use sendoff_observe::exposition::Exposition;
use sendoff_observe::metrics::Metrics;

use crate::context::Context;
use crate::outcome::Outcome;

/// Answers with the metrics of all event loops.
pub(crate) async fn respond(context: &Context<'_>, sink: &mut dyn Sink) -> Result<Outcome, Cut> {
    let services = context.services;
    let Some(figures) = unless_gone(sink, services.gatherer.gather()).await? else {
        tracing::warn!("no metrics: an event loop does not answer");
        return Ok(Outcome::refused(StatusCode::SERVICE_UNAVAILABLE, []));
    };
    let Ok(text) = Metrics::new(figures, &services.gatherer).text() else {
        return Ok(Outcome::refused(StatusCode::INTERNAL_SERVER_ERROR, []));
    };
    let format = Exposition::preferred(&context.request.headers);
    let text = format.written(text);
    let mut head = ResponseHead::new(StatusCode::OK, Some(text.len() as u64));
    head.field("Content-Type", format.content_type());
    head.field("Vary", "Accept");
    head.field("Cache-Control", Bytes::from_static(b"no-store"));
    sink::respond(sink, head, [Segment::Bytes(text.into())]).await?;
    Ok(Outcome::Sent)
}
